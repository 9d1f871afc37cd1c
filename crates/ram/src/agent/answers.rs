//! What a program answers when it was asked to hold still, to look at what was loaded, or to free its
//! memory. Answers to what was not asked are ignored.

use std::sync::Arc;

use strongroom_cluster::Content;

use super::Agent;
use super::doing::{Next, Work};
use super::jobs::Job;
use crate::keeper::{BucketName, are_same};

impl Agent {
    /// A program has freed its memory, or keeps it.
    pub(super) fn freed(&mut self, name: &BucketName, epoch: u64, outcome: Result<(), String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let is_asked = bucket.quiesced == Some(epoch);
        let freeing = [&bucket.round, &bucket.call]
            .into_iter()
            .flatten()
            .find(|doing| is_asked && doing.is_freeing)
            .map(|doing| (doing.job, doing.work.is_of_round()));
        let Some((job, is_of_round)) = freeing else { return };
        if let Err(reason) = outcome {
            let reason = format!("its program keeps its memory: {reason}");
            return self.ended(name, job, Err(reason));
        }
        // It was let go by being asked to free its memory.
        bucket.quiesced = None;
        bucket.areas = Arc::default();
        bucket.range = None;
        // What is left of it concerns no memory that is there.
        let _ = bucket.torn.clear();
        bucket.content = Content::Unknown;
        // A round reports it by itself.
        if !is_of_round && bucket.is_attached {
            self.attach(name);
        }
        self.ended(name, job, Ok(()));
    }

    /// A program has looked at what was loaded.
    pub(super) fn used(&mut self, name: &BucketName, epoch: u64, outcome: Result<(), String>) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let Some(doing) = bucket.round.as_mut().filter(|_| bucket.quiesced == Some(epoch)) else {
            return;
        };
        let Some(about) = doing.loaded.take() else { return };
        let job = doing.job;
        // A program that knows of no ranges has the one that was stored.
        if bucket.range.is_none() && outcome.is_ok() {
            bucket.range = about.range.and_then(|range| range.range());
            bucket.split_version = about.split_version;
        }
        if outcome.is_ok() {
            bucket.content = bucket.known(Content::Filled);
        }
        let outcome = outcome.map_err(|why| format!("its program cannot use it: {why}"));
        self.ended(name, job, outcome);
    }

    /// A program holds still, or does not.
    pub(super) fn quiesced(
        &mut self,
        name: &BucketName,
        epoch: u64,
        is_copy: bool,
        outcome: Result<(), String>,
    ) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let is_asked = bucket.quiesced == Some(epoch);
        let Some(doing) = bucket.round.as_mut().filter(|doing| is_asked && !doing.is_still) else {
            return;
        };
        let number = doing.job;
        if let Err(reason) = outcome {
            bucket.quiesced = None;
            let reason = format!("its program does not hold still: {reason}");
            return self.ended(name, number, Err(reason));
        }
        (doing.is_still, doing.is_copy) = (true, is_copy);
        let is_read = are_same(&doing.areas, &bucket.areas);
        match doing.work.clone() {
            // What it has under its keys may be nowhere else.
            Work::RoundLoad { .. } if bucket.range.is_some() => self.look_for_content(name),
            Work::RoundLoad { snapshot, .. } => self.after_stores(name, Next::Fill(snapshot)),
            Work::Round(epoch) if !is_read => self.read_again(name, number, epoch),
            Work::Round(_) => self.look_for_content(name),
            Work::HoldStill(epoch) => self.round_quiesced(name, epoch),
            _ => {}
        }
    }

    /// Finds out whether a bucket that holds still for a round has anything but zeros.
    pub(super) fn look_for_content(&mut self, name: &BucketName) {
        let number = self.number();
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let areas = bucket.areas.clone();
        let Some(doing) = bucket.round.as_mut() else { return };
        doing.looking = Some(number);
        let job = doing.job;
        self.begin_part(name, job, number, areas, Job::look_for_content);
    }

    /// It is known what a bucket holds. Its program holds still, unless the round was given up.
    pub(super) fn found(&mut self, name: &BucketName, content: Content) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let has_range = bucket.range.is_some();
        // What is torn may be registered later by a program that has no areas yet.
        if content == Content::Empty && !bucket.areas.is_empty() {
            // If it cannot be written down, the next agent finds the zeros as well.
            let _ = bucket.torn.clear();
        }
        let is_torn = bucket.torn.has(&bucket.areas);
        bucket.content = bucket.known(content);
        let Some(doing) = bucket.round.as_mut() else { return };
        doing.looking = None;
        let (job, work) = (doing.job, doing.work.clone());
        match work {
            Work::Round(_) if is_torn => self.ended(name, job, Err(TORN.to_owned())),
            Work::Round(epoch) => self.round_quiesced(name, epoch),
            Work::RoundLoad { .. } if has_range && content == Content::Filled && !is_torn => {
                // The node says so to the client, too.
                self.attach(name);
                let reason = "it is in memory already: evict it first";
                self.ended(name, job, Err(reason.to_owned()));
            }
            Work::RoundLoad { snapshot, .. } => self.after_stores(name, Next::Fill(snapshot)),
            _ => {}
        }
    }
}

const TORN: &str = "a load of it did not end, and its memory has parts of two times: load it again \
    (ram cluster load), or start its program without them";
