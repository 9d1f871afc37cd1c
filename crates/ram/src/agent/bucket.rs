//! A bucket that a program has registered: what it is, and what is being done with it. Its program
//! has one call carried out at a time, and it takes part in one round at a time; what else is asked
//! for waits. A program may need a store to reach its safe point, so that is carried out also while a
//! round asks it to hold still; what else changes or frees memory has the bucket for itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use strongroom_base::SnapshotId;
use strongroom_bucket::served::Connection;
use strongroom_bucket::{KeyRange, ToProgram};
use strongroom_cluster::{Description, Epoch};

use super::jobs::Gate;
use crate::about::{About, AreaText, RangeText, VersionText};
use crate::keeper::{Areas, BucketName};

/// A bucket.
pub struct Bucket {
    /// How its program is spoken to.
    pub connection: Arc<Connection>,
    /// Its areas.
    pub areas: Areas,
    /// The keys that it holds.
    pub range: Option<KeyRange>,
    /// How many splits led to them.
    pub split_version: u64,
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
    pub versions: BTreeMap<(String, u64), Version>,
}

/// How far a version is.
pub enum Version {
    /// It is being stored. These requests wait for it.
    Storing(Vec<u32>),
    /// It is committed, or failed for this reason.
    Ended(Result<(), String>),
}

/// What can be done with a bucket.
#[derive(Debug, Clone)]
pub enum Work {
    /// Its program wants a version stored.
    Version {
        /// The number of its request.
        request: u32,
        /// What it is called.
        version: VersionText,
        /// The areas; all if there are none.
        areas: Vec<String>,
    },
    /// Its program wants areas filled.
    Load {
        /// The number of its request.
        request: u32,
        /// From this version.
        version: VersionText,
        /// The areas; all if there are none.
        areas: Vec<String>,
    },
    /// Its program wants to be rid of it.
    Evict {
        /// The number of its request.
        request: u32,
    },
    /// A round stores it.
    Round(Epoch),
    /// A round wants its program to hold still, to evict it.
    HoldStill(Epoch),
    /// A round loads it.
    RoundLoad {
        /// The round.
        epoch: Epoch,
        /// From this snapshot.
        snapshot: SnapshotId,
    },
}

/// What is done with a bucket.
pub struct Doing {
    /// Which job does it.
    pub job: u64,
    /// What it is.
    pub work: Work,
    /// Lets the job go on, or ends it.
    pub gate: Arc<Gate>,
    /// The areas are shadows that do not change until they are captured.
    pub is_copy: bool,
    /// By this question its program was asked to hold still.
    pub question: Option<u64>,
    /// It was captured.
    pub is_captured: bool,
    /// What was stored, for an eviction.
    pub stored: Option<SnapshotId>,
    /// What was loaded.
    pub loaded: Option<Box<About>>,
}

impl Doing {
    /// A beginning.
    pub fn new(job: u64, work: Work, gate: Arc<Gate>, is_copy: bool) -> Self {
        Self {
            job,
            work,
            gate,
            is_copy,
            question: None,
            is_captured: false,
            stored: None,
            loaded: None,
        }
    }
}

impl Bucket {
    /// A bucket without anything.
    pub fn new(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            areas: Areas::new(),
            range: None,
            split_version: 0,
            has_callbacks: false,
            is_attached: false,
            quiesced: None,
            round: None,
            call: None,
            waiting: VecDeque::new(),
            newest: None,
            versions: BTreeMap::new(),
        }
    }

    /// What the node says of it.
    pub fn description(&self) -> Description {
        Description {
            range: self.range.clone(),
            split_version: self.split_version,
            bytes: self.areas.values().map(|area| area.bytes).sum(),
        }
    }

    /// What is written beside some of its areas.
    pub fn about(
        &self,
        name: &BucketName,
        areas: &Areas,
        epoch: Option<Epoch>,
        version: Option<VersionText>,
    ) -> About {
        let areas = areas.iter().map(|(name, area)| AreaText {
            name: name.clone(),
            bytes: area.bytes,
            base: area.base,
        });
        About {
            file: name.file.clone(),
            bucket: name.number,
            range: self.range.as_ref().map(RangeText::of),
            split_version: self.split_version,
            epoch: epoch.map(|epoch| epoch.0),
            version,
            areas: areas.collect(),
        }
    }

    /// The areas of these names; all if there are none.
    pub fn chosen(&self, names: &[String]) -> Result<Areas, String> {
        if names.is_empty() {
            return Ok(self.areas.clone());
        }
        let area = |name: &String| {
            let area = self.areas.get(name).ok_or_else(|| format!("there is no area {name}"))?;
            Ok((name.clone(), area.clone()))
        };
        names.iter().map(area).collect()
    }

    /// Speaks to its program. One that is gone is noticed by the thread that reads.
    pub fn tell(&self, message: &ToProgram) {
        if self.connection.send(message).is_err() {
            self.connection.end();
        }
    }

    /// Whether its program has closed the connection or died. What it said before may not be heard yet.
    pub fn is_left(&self) -> bool {
        // The end is reported without being asked for.
        let mut polled = [PollFd::new(&*self.connection, PollFlags::empty())];
        let is_polled = poll(&mut polled, Some(&Timespec::default())).is_ok();
        is_polled && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Lets its program go on.
    pub fn resume(&mut self, is_reading: bool) {
        if let Some(epoch) = self.quiesced.take() {
            self.tell(&ToProgram::Resume { epoch, is_reading });
        }
    }

    /// What can begin now, of what waits.
    pub fn next(&mut self) -> Option<(Work, bool)> {
        let can_begin = |work: &Work| match work {
            Work::Version { .. } => self.call.is_none(),
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

    /// Ends what is done with it.
    pub fn give_up(&self) {
        for doing in [&self.round, &self.call].into_iter().flatten() {
            doing.gate.close();
        }
    }
}

impl Work {
    /// Whether a round wants it, and not the program.
    pub fn is_of_round(&self) -> bool {
        matches!(self, Self::Round(_) | Self::HoldStill(_) | Self::RoundLoad { .. })
    }
}
