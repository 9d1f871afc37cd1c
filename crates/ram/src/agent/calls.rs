//! What is done with a bucket, for its program or for a round: how it begins, how it goes on with each
//! report of a job, and how it ends. What the program answers is in `answers.rs`.

use std::io;
use std::sync::Arc;

use strongroom_base::SnapshotId;
use strongroom_bucket::ToProgram;
use strongroom_bucket::served::Connection;
use strongroom_cluster::{Content, Epoch};

use super::Agent;
use super::bucket::{Bucket, about_of};
use super::doing::{Doing, Next, Work};
use super::gate::Gate;
use super::jobs::{Filled, Job, JobEvent};
use super::limits::JOBS_MAX;
use super::waits::answer;
use crate::about::{About, RangeText};
use crate::counts::Counted;
use crate::keeper::{Areas, BucketName};

impl Agent {
    /// Something is to be done with a bucket, after what is being done.
    pub(super) fn enqueue(&mut self, name: &BucketName, work: Work, is_copy: bool) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.waiting.push_back((work, is_copy));
        self.go_on(name);
    }

    /// A program is about to load or evict by itself: a round that asks it to hold still would wait for
    /// it, and it for the round.
    pub(super) fn give_way(&mut self, name: &BucketName) {
        let doing = self.buckets.get(name).and_then(|bucket| bucket.round.as_ref());
        if let Some(job) = doing.filter(|doing| !doing.is_still).map(|doing| doing.job) {
            let reason = "its program loads or evicts it by itself at the same time";
            self.ended(name, job, Err(reason.to_owned()));
        }
    }

    /// Begins what can begin of what waits.
    pub(super) fn go_on(&mut self, name: &BucketName) {
        self.proceed(name);
        let number = self.number();
        let now = u64::try_from(self.keeper.now().0).unwrap_or_default();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some((work, is_copy)) = bucket.next() else { return };
        let gate = match work {
            Work::Version { .. } | Work::Evict { .. } => Arc::new(Gate::opened()),
            _ => Arc::new(Gate::default()),
        };
        bucket.begin(Doing::new(number, work.clone(), gate, is_copy));
        let (newest, areas) = (bucket.newest, bucket.areas.clone());
        let torn = bucket.torn.clone();
        match work {
            Work::Version { areas, keys, version, .. } => {
                let about = About { version: Some(version), ..about_of(name, &areas, &keys) };
                self.start(name, number, areas, |job| job.store_version(about, newest));
            }
            Work::Evict { .. } => match bucket.chosen(&[]) {
                Ok(areas) => {
                    let about = bucket.about(name, &areas, None);
                    self.start(name, number, areas, |job| job.store_evicted(about, now, newest));
                }
                Err(reason) => self.ended(name, number, Err(reason)),
            },
            Work::Load { version, areas: chosen, .. } => {
                self.start(name, number, areas, |job| job.load_version(version, chosen, torn));
            }
            Work::Round(epoch) => {
                self.start(name, number, areas, |job| job.store_round(epoch, newest, false));
            }
            Work::HoldStill(_) | Work::RoundLoad { .. } => self.ask_to_hold_still(name, number),
        }
        // A call and a round may both be able to begin.
        self.go_on(name);
    }

    /// Begins a job of what is done. If it cannot begin, it has failed.
    fn start(
        &mut self,
        name: &BucketName,
        number: u64,
        areas: Arc<Areas>,
        begin: impl FnOnce(Job) -> io::Result<()>,
    ) {
        let doing = self.buckets.get_mut(name).and_then(|bucket| bucket.doing(number));
        let Some(doing) = doing else { return };
        doing.areas = areas.clone();
        self.begin_part(name, number, number, areas, begin);
    }

    /// Begins a job of what the job `of` does. If it cannot begin, all of that has failed.
    pub(super) fn begin_part(
        &mut self,
        name: &BucketName,
        of: u64,
        number: u64,
        areas: Arc<Areas>,
        begin: impl FnOnce(Job) -> io::Result<()>,
    ) {
        let Some(doing) = self.buckets.get_mut(name).and_then(|it| it.doing(of)) else { return };
        let (gate, is_of_round) = (doing.gate.clone(), doing.work.is_of_round());
        let counted = match doing.counted.clone() {
            Some(counted) => Ok(counted),
            None => self.count(name, is_of_round),
        };
        let begun = counted.and_then(|counted| {
            if let Some(doing) = self.buckets.get_mut(name).and_then(|it| it.doing(of)) {
                doing.counted = Some(counted.clone());
            }
            self.begin_job(name, number, areas, (gate, counted), begin)
        });
        if let Err(reason) = begun {
            self.ended(name, of, Err(reason));
        }
    }

    /// Counts what is to be done with a bucket. A user may have more than its share of what programs ask
    /// for, as long as half of all is free. What rounds do is counted by itself: it waits in all buckets
    /// of a file at the same time, and programs do not ask for it. A user may have half of that, which is
    /// enough for all of its connections.
    pub(super) fn count(
        &mut self,
        name: &BucketName,
        is_of_round: bool,
    ) -> Result<Arc<Counted>, String> {
        let Some(user) = self.buckets.get(name).map(Bucket::user) else {
            return Err("its program ended".to_owned());
        };
        let jobs = if is_of_round { &self.round_jobs } else { &self.jobs };
        let all = jobs.all();
        if all >= JOBS_MAX {
            return Err(format!("the agent is at work on {JOBS_MAX} others: try again later"));
        }
        let (of_user, share) = (jobs.of(user), self.share_of(user, JOBS_MAX));
        let is_too_much = match is_of_round {
            true => of_user >= 2 * share,
            false => of_user >= share && all >= JOBS_MAX / 2,
        };
        if is_too_much {
            return Err(format!(
                "the agent is at work on as much for user {user} as one user may ask for: try again \
                 later"
            ));
        }
        Ok(Arc::new(jobs.count(user)))
    }

    pub(super) fn begin_job(
        &mut self,
        name: &BucketName,
        number: u64,
        areas: Arc<Areas>,
        (gate, counted): (Arc<Gate>, Arc<Counted>),
        begin: impl FnOnce(Job) -> io::Result<()>,
    ) -> Result<(), String> {
        let Some(connection) = self.connection_of(name) else {
            return Err("its program ended".to_owned());
        };
        let (keeper, events, bucket) = (self.keeper.clone(), self.events.clone(), name.clone());
        begin(Job { keeper, bucket, areas, number, gate, connection, events, counted })
            .map_err(|error| format!("no thread could be started: {error}"))
    }

    fn connection_of(&self, name: &BucketName) -> Option<Arc<Connection>> {
        Some(self.buckets.get(name)?.speaker.connection().clone())
    }

    /// The program of a round registered areas after the first reading began, as its callback may. What
    /// it has now is read whole, while it holds still.
    pub(super) fn read_again(&mut self, name: &BucketName, job: u64, epoch: Epoch) {
        let number = self.number();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let (newest, areas) = (bucket.newest, bucket.areas.clone());
        let Some(doing) = bucket.doing(job) else { return };
        // The job before is not heard any more.
        doing.gate.close();
        (doing.job, doing.gate) = (number, Arc::default());
        self.start(name, number, areas, |job| job.store_round(epoch, newest, true));
    }

    /// Asks the program of a bucket to hold still for a round.
    fn ask_to_hold_still(&mut self, name: &BucketName, job: u64) {
        let epoch = self.number();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        if !bucket.has_callbacks {
            let reason = "its program has no callback, so it cannot be asked to hold still";
            return self.ended(name, job, Err(reason.to_owned()));
        }
        bucket.quiesced = Some(epoch);
        bucket.tell(ToProgram::Quiesce { epoch });
    }

    /// A job has come further.
    pub(super) fn job(&mut self, name: &BucketName, number: u64, event: JobEvent) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        if bucket.looking == Some(number) {
            bucket.looking = None;
            match event {
                JobEvent::Looked(answer) => bucket.tell(answer),
                _ => bucket.speaker.end(),
            }
            return self.look_on(name);
        }
        let is_look = |doing: &Doing| doing.looking == Some(number);
        if bucket.round.as_ref().is_some_and(is_look) {
            // What broke is not known to be empty.
            let content =
                if let JobEvent::Found(content) = event { content } else { Content::Filled };
            return self.found(name, content);
        }
        let Some(doing) = bucket.doing(number) else { return };
        match event {
            // If the round was given up meanwhile, its program is left alone.
            JobEvent::Scanned if !doing.gate.is_waiting() => {}
            JobEvent::Scanned => match doing.work {
                Work::Round(_) if doing.is_still => self.look_for_content(name),
                _ => self.ask_to_hold_still(name, number),
            },
            JobEvent::Captured => self.captured(name, number),
            JobEvent::Stored(outcome) => self.stored(name, number, outcome),
            JobEvent::Compared(outcome) => self.compared(name, number, outcome),
            JobEvent::Loaded(Ok(filled)) => self.filled(name, number, *filled),
            JobEvent::Loaded(Err(reason)) => self.failed(name, number, reason),
            JobEvent::Looked(_) | JobEvent::Found(_) => {}
            JobEvent::Broke => {
                let reason = "a mistake in the agent ended it: please report what it logged";
                self.failed(name, number, reason.to_owned());
            }
        }
    }

    fn captured(&mut self, name: &BucketName, number: u64) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.doing(number) else { return };
        doing.is_captured = true;
        match doing.work {
            Work::Version { request, .. } => {
                bucket.tell(ToProgram::Captured { request });
                self.go_on(name);
            }
            Work::Round(epoch) => match (doing.is_copy, doing.reading.take()) {
                (false, _) => self.round_captured(name, epoch),
                // The node knows of copies already.
                (true, Some(epoch)) => bucket.tell(ToProgram::EpochCaptured { epoch }),
                (true, None) => {}
            },
            _ => {}
        }
    }

    fn stored(&mut self, name: &BucketName, job: u64, outcome: Result<SnapshotId, String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let snapshot = match outcome {
            Ok(snapshot) => snapshot,
            Err(reason) => return self.ended(name, job, Err(reason)),
        };
        bucket.newest = Some(snapshot);
        let Some(doing) = bucket.doing(job) else { return };
        doing.stored = Some(snapshot);
        // What is stored whole is compared before it is freed.
        if let Work::Evict { .. } = doing.work {
            return self.compare(name, job, snapshot);
        }
        self.ended(name, job, Ok(()));
    }

    /// Compares a bucket that holds still with what was stored of it.
    pub(super) fn compare(&mut self, name: &BucketName, number: u64, stored: SnapshotId) {
        let Some(bucket) = self.buckets.get(name) else { return };
        let areas = bucket.areas.clone();
        let about = bucket.about(name, &areas, None);
        self.start(name, number, areas, |job| job.compare(stored, about));
    }

    fn compared(&mut self, name: &BucketName, job: u64, outcome: Result<bool, String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.doing(job) else { return };
        match (doing.work.clone(), outcome) {
            (Work::HoldStill(epoch), outcome) => self.round_compared(name, epoch, outcome),
            (Work::Evict { .. }, Ok(true)) => self.free(name, job),
            (_, Ok(_)) => {
                let reason = "its memory changed while it was stored: nothing was freed";
                self.ended(name, job, Err(reason.to_owned()));
            }
            (_, Err(reason)) => self.ended(name, job, Err(reason)),
        }
    }

    /// A round fills or frees areas as soon as no store reads them.
    pub(super) fn after_stores(&mut self, name: &BucketName, next: Next) {
        let round = self.buckets.get_mut(name).and_then(|bucket| bucket.round.as_mut());
        if let Some(doing) = round {
            doing.next = Some(next);
            self.proceed(name);
        }
    }

    fn proceed(&mut self, name: &BucketName) {
        let next = self.buckets.get_mut(name).and_then(|bucket| bucket.take_next());
        match next {
            Some((job, Next::Free)) => self.free(name, job),
            Some((job, Next::Fill(snapshot))) => {
                let Some(bucket) = self.buckets.get(name) else { return };
                let (areas, claimed) = (bucket.areas.clone(), bucket.range.clone());
                let torn = bucket.torn.clone();
                self.start(name, job, areas, |job| job.load(claimed, torn, snapshot));
            }
            None => {}
        }
    }

    /// Asks a program, which holds still, to free its memory.
    fn free(&mut self, name: &BucketName, job: u64) {
        let question = self.number();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let epoch = *bucket.quiesced.get_or_insert(question);
        let Some(doing) = bucket.doing(job) else { return };
        doing.is_freeing = true;
        bucket.tell(ToProgram::Evict { epoch });
    }

    /// The areas of a bucket were filled. In a round, its program is to look at them.
    fn filled(&mut self, name: &BucketName, job: u64, filled: Filled) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.torn = filled.torn;
        let quiesced = bucket.quiesced;
        let Some(doing) = bucket.doing(job) else { return };
        match (&doing.work, quiesced) {
            (Work::RoundLoad { snapshot, .. }, Some(epoch)) => {
                let snapshot = *snapshot;
                let about = filled.about;
                let keys = about.range.as_ref().and_then(RangeText::range);
                let keys = keys.map(|range| (range, about.split_version));
                doing.loaded = Some(Box::new(about));
                bucket.newest = Some(snapshot);
                bucket.tell(ToProgram::Load { epoch, keys });
            }
            (Work::RoundLoad { .. }, None) => {
                self.ended(name, job, Err("its program went on meanwhile".to_owned()));
            }
            // The program called, and looks by itself.
            (Work::Load { .. }, _) => self.ended(name, job, Ok(())),
            _ => {}
        }
    }

    /// A job failed. If it was to fill areas, some may be filled in part: that is written down.
    fn failed(&mut self, name: &BucketName, job: u64, reason: String) {
        let torn = self.torn(name);
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.torn = torn;
        if bucket.torn.has(&bucket.areas) {
            bucket.content = Content::Unknown;
            if bucket.is_attached {
                self.attach(name);
            }
        }
        self.ended(name, job, Err(reason));
    }

    /// What a job did has ended: the program goes on, and hears of it if it asked.
    pub(super) fn ended(&mut self, name: &BucketName, job: u64, outcome: Result<(), String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.take(job) else { return };
        doing.gate.close();
        match &doing.work {
            Work::Version { request, version, .. } => {
                let (request, is_captured) = (*request, doing.is_captured);
                self.version_ended(name, request, version, is_captured, outcome);
            }
            Work::Load { request, .. } | Work::Evict { request } => {
                // Of an eviction, the program was asked to free its memory, and not to hold still.
                bucket.quiesced = None;
                bucket.tell(answer(*request, outcome));
            }
            work => {
                if let Some(epoch) = doing.reading {
                    bucket.tell(ToProgram::EpochCaptured { epoch });
                }
                bucket.resume(false);
                self.round_ended(name, work, doing.stored, outcome);
            }
        }
        // What is done next is counted by itself.
        drop(doing);
        self.go_on(name);
    }
}
