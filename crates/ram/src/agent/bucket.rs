//! A bucket that a program has registered: what it is, and what is being done with it. Its program
//! has one call carried out at a time, and it takes part in one round at a time; what else is asked
//! for waits. A program may need a store to reach its safe point, so that is carried out also while a
//! round asks it to hold still; what else changes or frees memory has the bucket for itself.
//!
//! - A round fills or frees memory only when no store reads it, and no store begins meanwhile.
//! - A program that itself loads or evicts while a round asks it to hold still would wait for the
//!   round, and the round for it: the round gives way.

use std::collections::VecDeque;
use std::sync::Arc;

use strongroom_base::SnapshotId;
use strongroom_bucket::{KeyRange, ToProgram};
use strongroom_cluster::{Content, Description, Epoch};

use super::doing::{Doing, Keys, Next, Work};
use super::jobs::Look;
use super::limits::{CALLS_MAX, WAITING_AREAS_MAX, WAITS_MAX};
use super::speaker::Speaker;
use super::torn::Torn;
use super::versions::Versions;
use crate::about::{About, AreaText, RangeText};
use crate::keeper::{Areas, BucketName};

/// A bucket.
pub struct Bucket {
    /// How its program is spoken to.
    pub speaker: Arc<Speaker>,
    /// Its areas. Stores that wait have those that there were.
    pub areas: Arc<Areas>,
    /// The keys that it holds.
    pub range: Option<KeyRange>,
    /// How many splits led to them.
    pub split_version: u64,
    /// Whether its areas hold anything, as far as that was looked at.
    pub content: Content,
    /// It can be asked to hold still.
    pub has_callbacks: bool,
    /// The node knows of it.
    pub is_attached: bool,
    /// Its program was asked to hold still by this question, and has not been let go since.
    pub quiesced: Option<u64>,
    /// What a round does with it now.
    pub round: Option<Doing>,
    /// What its program has done with it now.
    pub call: Option<Doing>,
    /// What is done next, and whether its areas are shadows that do not change until then.
    pub waiting: VecDeque<(Work, bool)>,
    /// The snapshot that differs least from it.
    pub newest: Option<SnapshotId>,
    /// Versions that its program had stored since it connected, and how that ended.
    pub versions: Versions,
    /// What its program asks of the repository, one after the other.
    pub looks: VecDeque<Look>,
    /// The job that looks now.
    pub looking: Option<u64>,
    /// Memory that a load has filled in part.
    pub torn: Torn,
}

impl Bucket {
    /// A bucket without anything.
    pub fn new(speaker: Arc<Speaker>, torn: Torn) -> Self {
        Self {
            speaker,
            areas: Arc::default(),
            range: None,
            split_version: 0,
            content: Content::Unknown,
            has_callbacks: false,
            is_attached: false,
            quiesced: None,
            round: None,
            call: None,
            waiting: VecDeque::new(),
            newest: None,
            versions: Versions::default(),
            looks: VecDeque::new(),
            looking: None,
            torn,
        }
    }

    /// What the node says of it.
    pub fn description(&self) -> Description {
        Description {
            range: self.range.clone(),
            split_version: self.split_version,
            bytes: self.bytes(),
            content: self.content,
        }
    }

    /// What is known of its content after this was seen: of parts of two times, nothing.
    pub fn known(&self, seen: Content) -> Content {
        if self.torn.has(&self.areas) { Content::Unknown } else { seen }
    }

    /// How long its areas are together.
    pub fn bytes(&self) -> u64 {
        self.areas.values().fold(0, |sum, area| sum.saturating_add(area.bytes))
    }

    /// The user of its program.
    pub fn user(&self) -> u32 {
        self.speaker.connection().peer().uid
    }

    /// Whether its program asks for more than it could wait for.
    pub fn is_flooded(&self) -> bool {
        let calls = self.waiting.iter().filter(|(work, _)| !work.is_of_round()).count();
        calls > CALLS_MAX
            || self.versions.waiting() + self.looks.len() > WAITS_MAX
            || self.waiting_areas() > WAITING_AREAS_MAX
    }

    /// How many areas are kept for calls that wait. Stores one after the other of the same areas have
    /// them in common.
    fn waiting_areas(&self) -> usize {
        let (mut count, mut before) = (0, &self.areas);
        for (work, _) in &self.waiting {
            match work {
                Work::Version { areas, .. } if !Arc::ptr_eq(areas, before) => {
                    count += areas.len();
                    before = areas;
                }
                Work::Load { areas, .. } => count += areas.len(),
                _ => {}
            }
        }
        count
    }

    /// What is written beside some of its areas.
    pub fn about(&self, name: &BucketName, areas: &Areas, epoch: Option<Epoch>) -> About {
        About { epoch: epoch.map(|epoch| epoch.0), ..about_of(name, areas, &self.keys()) }
    }

    /// Its keys now, and how many splits led to them.
    pub fn keys(&self) -> Keys {
        (self.range.clone(), self.split_version)
    }

    /// The areas of these names; all if there are none.
    ///
    /// # Errors
    ///
    /// One is not registered, or none is.
    pub fn chosen(&self, names: &[String]) -> Result<Arc<Areas>, String> {
        if self.areas.is_empty() {
            return Err("it has no areas: register one first".to_owned());
        }
        if names.is_empty() {
            return Ok(self.areas.clone());
        }
        let area = |name: &String| {
            let area = self.areas.get(name).ok_or_else(|| format!("there is no area {name}"))?;
            Ok((name.clone(), area.clone()))
        };
        names.iter().map(area).collect::<Result<Areas, String>>().map(Arc::new)
    }

    /// Speaks to its program.
    pub fn tell(&self, message: ToProgram) {
        self.speaker.say(message);
    }

    /// Lets its program go on.
    pub fn resume(&mut self, is_reading: bool) {
        if let Some(epoch) = self.quiesced.take() {
            self.tell(ToProgram::Resume { epoch, is_reading });
        }
    }

    /// What can begin now, of what waits.
    pub fn next(&mut self) -> Option<(Work, bool)> {
        let is_taken = |doing: &Doing| !matches!(doing.work, Work::Round(_)) && doing.is_still;
        let can_begin = |work: &Work| match work {
            Work::Version { .. } => {
                self.call.is_none() && !self.round.as_ref().is_some_and(is_taken)
            }
            _ => self.call.is_none() && self.round.is_none(),
        };
        let at = self.waiting.iter().position(|(work, _)| can_begin(work))?;
        self.waiting.remove(at)
    }

    /// Begins it.
    pub fn begin(&mut self, doing: Doing) {
        match doing.work.is_of_round() {
            true => self.round = Some(doing),
            false => self.call = Some(doing),
        }
    }

    /// What a job does.
    pub fn doing(&mut self, job: u64) -> Option<&mut Doing> {
        [&mut self.round, &mut self.call].into_iter().flatten().find(|doing| doing.job == job)
    }

    /// Ends what a job does.
    pub fn take(&mut self, job: u64) -> Option<Doing> {
        let slots = [&mut self.round, &mut self.call].into_iter();
        let mut of_job = slots.filter(|slot| slot.as_ref().is_some_and(|doing| doing.job == job));
        of_job.next()?.take()
    }

    /// What a round is to do with its areas, if no store reads them now.
    pub fn take_next(&mut self) -> Option<(u64, Next)> {
        let is_read = self.call.as_ref().is_some_and(|call| !call.is_captured);
        let doing = self.round.as_mut().filter(|_| !is_read)?;
        Some((doing.job, doing.next.take()?))
    }

    /// What a round wants of it: what is done, and what waits.
    pub fn of_round(&self) -> Vec<Work> {
        let doing = self.round.iter().map(|doing| &doing.work);
        let waiting = self.waiting.iter().map(|(work, _)| work);
        doing.chain(waiting.filter(|work| work.is_of_round())).cloned().collect()
    }

    /// Ends what is done with it, unless all is read.
    pub fn give_up(&self) {
        for doing in [&self.round, &self.call].into_iter().flatten() {
            doing.gate.close();
        }
    }

    /// Ends what is done with it.
    pub fn end(&self) {
        for doing in [&self.round, &self.call].into_iter().flatten() {
            doing.gate.end();
        }
        self.speaker.end();
    }
}

/// What is written beside areas of a bucket that had these keys.
pub fn about_of(name: &BucketName, areas: &Areas, (range, split_version): &Keys) -> About {
    let areas = areas.iter().map(|(name, area)| AreaText {
        name: name.clone(),
        bytes: area.bytes,
        base: area.base,
    });
    About {
        file: name.file.clone(),
        bucket: name.number,
        range: range.as_ref().map(RangeText::of),
        split_version: *split_version,
        epoch: None,
        version: None,
        areas: areas.collect(),
    }
}
