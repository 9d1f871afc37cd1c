//! What a program has begun: its checkpoint or restart, and what it protects.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_bucket::{AreaSize, Bucket};

use crate::config::Config;
use crate::error::VelocError;
use crate::mpi::Mpi;
use crate::pending::Pending;
use crate::regions::{Chosen, Region, Regions, id_of};
use crate::routed;

/// The area that a checkpoint has whose regions have no bytes.
const EMPTY: &str = "empty";

/// A program that uses VELOC.
#[derive(Debug)]
pub struct Client {
    config: Config,
    rank: u32,
    /// The other ranks, if there are any.
    mpi: Option<Mpi>,
    bucket: Arc<Bucket>,
    pub regions: Regions,
    phase: Phase,
    pending: Pending,
    /// The byte of [`EMPTY`], at an address that does not move.
    empty: Box<u8>,
}

/// What is under way.
#[derive(Debug)]
enum Phase {
    Idle,
    Checkpoint { name: String, version: u64, is_stored: bool, file: Option<PathBuf> },
    Restart { name: String, version: u64, areas: Vec<AreaSize> },
}

impl Client {
    pub fn open(config: Config, rank: u32, mpi: Option<Mpi>) -> Result<Self, VelocError> {
        let bucket = Arc::new(Bucket::open(config.socket.as_deref(), &config.file, rank)?);
        Ok(Self {
            config,
            rank,
            mpi,
            bucket,
            regions: Regions::default(),
            phase: Phase::Idle,
            pending: Pending::default(),
            empty: Box::new(0),
        })
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub fn unprotect(&mut self, group: &str, id: i32) -> Result<(), VelocError> {
        self.regions.unprotect(&self.bucket, group, id)
    }

    pub fn clear(&mut self, group: &str) -> Result<(), VelocError> {
        self.regions.clear(&self.bucket, group)
    }

    pub fn begin_checkpoint(&mut self, name: &str, version: i32) -> Result<(), VelocError> {
        if matches!(self.phase, Phase::Checkpoint { .. }) {
            return Err(VelocError::CheckpointUnderWay);
        }
        let version = check(name, version)?;
        let name = name.to_owned();
        self.phase = Phase::Checkpoint { name, version, is_stored: false, file: None };
        Ok(())
    }

    /// Captures regions. As in VELOC, the last call of a checkpoint counts.
    pub fn store_regions(&mut self, chosen: &Chosen) -> Result<(), VelocError> {
        let Phase::Checkpoint { name, version, is_stored, file } = &mut self.phase else {
            return Err(VelocError::NoCheckpoint);
        };
        if file.is_some() {
            return Err(VelocError::Mixed);
        }
        let group = self.regions.group_of(name);
        let areas = self.regions.register(&self.bucket, group, chosen)?;
        let mut areas = areas.ok_or(VelocError::NothingChosen)?;
        if areas.is_empty() {
            let region = Region { address: (&raw mut *self.empty).expose_provenance(), bytes: 1 };
            self.regions.register_area(&self.bucket, EMPTY, 0, region)?;
            areas.push(EMPTY.to_owned());
        }
        self.bucket.store_areas(name, *version, &areas)?;
        *is_stored = true;
        Ok(())
    }

    /// Ends a checkpoint. A file that the program says is bad is not stored.
    pub fn end_checkpoint(&mut self, is_good: bool) -> Result<(), VelocError> {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let Phase::Checkpoint { name, version, is_stored, file } = phase else {
            self.phase = phase;
            return Err(VelocError::NoCheckpoint);
        };
        match &file {
            Some(_) if is_stored => return Err(VelocError::Mixed),
            Some(file) if is_good => routed::store(&self.bucket, file, &name, version)?,
            Some(_) => return Ok(()),
            None if is_stored => {}
            None => return Err(VelocError::NothingChosen),
        }
        self.pending.add(&self.bucket, name, version, file)?;
        if self.config.is_sync { self.pending.wait() } else { Ok(()) }
    }

    pub fn wait(&mut self) -> Result<(), VelocError> {
        if matches!(self.phase, Phase::Checkpoint { .. }) {
            return Err(VelocError::CheckpointUnderWay);
        }
        self.pending.wait()
    }

    pub fn are_finished(&self) -> bool {
        self.pending.are_finished()
    }

    pub fn checkpoint(&mut self, name: &str, version: i32) -> Result<(), VelocError> {
        self.wait()?;
        self.begin_checkpoint(name, version)?;
        let stored = self.store_regions(&Chosen::All);
        if stored.is_err() {
            self.phase = Phase::Idle;
        }
        stored?;
        self.end_checkpoint(true)
    }

    /// The newest version up to `at_most` (any, if that is 0) that all ranks have.
    pub fn newest(&mut self, name: &str, at_most: i32) -> Result<Option<i32>, VelocError> {
        check(name, at_most)?;
        let mut bound = if at_most == 0 { i32::MAX } else { at_most };
        loop {
            // A rank that cannot say takes part in what all decide, and then no rank goes on: none waits
            // for one that has left.
            let found = self.newest_here(name, bound);
            let here = found.as_ref().ok().copied().flatten().unwrap_or(-1);
            let newest = self.smallest(here)?;
            found?;
            if newest < 0 {
                return Ok(None);
            }
            let has_it = self.newest_here(name, newest);
            let is_here = has_it.as_ref().map_or(-1, |found| i32::from(*found == Some(newest)));
            let is_everywhere = self.smallest(is_here)?;
            has_it?;
            match is_everywhere {
                1 => return Ok(Some(newest)),
                0 => {}
                _ => return Ok(None),
            }
            let Some(below) = newest.checked_sub(1).filter(|below| *below >= 0) else {
                return Ok(None);
            };
            bound = below;
        }
    }

    pub fn begin_restart(&mut self, name: &str, version: i32) -> Result<(), VelocError> {
        if matches!(self.phase, Phase::Checkpoint { .. }) {
            return Err(VelocError::CheckpointUnderWay);
        }
        let wanted = check(name, version)?;
        // All ranks begin, or none.
        let waited = self.pending.wait();
        let found = self.bucket.find(name, Some(wanted));
        let is_there = found
            .as_ref()
            .is_ok_and(|found| found.as_ref().is_some_and(|stored| stored.version == wanted));
        let are_there = self.smallest((is_there && waited.is_ok()).into())? == 1;
        waited?;
        let areas = found?.filter(|_| are_there).map(|stored| stored.areas);
        let name = name.to_owned();
        let Some(areas) = areas else {
            return Err(VelocError::NoVersion { name, version });
        };
        self.phase = Phase::Restart { name, version: wanted, areas };
        Ok(())
    }

    /// Fills regions from the version of the restart.
    pub fn load_regions(&mut self, chosen: &Chosen) -> Result<(), VelocError> {
        let Phase::Restart { name, version, areas } = &self.phase else {
            return Err(VelocError::NoRestart);
        };
        let group = self.regions.group_of(name);
        let mut loaded = Vec::new();
        for stored in areas {
            let Some(id) = id_of(&stored.area).filter(|id| chosen.has(*id)) else { continue };
            self.regions.register_load(&self.bucket, group, &stored.area, id, stored.bytes)?;
            loaded.push(stored.area.clone());
        }
        if !loaded.is_empty() {
            self.bucket.load_areas(name, *version, &loaded)?;
        }
        Ok(())
    }

    /// How long a region was when it was stored.
    pub fn stored_bytes(&self, id: i32) -> Result<i32, VelocError> {
        let Phase::Restart { name, areas, .. } = &self.phase else {
            return Err(VelocError::NoRestart);
        };
        let stored = areas.iter().find(|stored| id_of(&stored.area) == Some(id));
        let group = self.regions.group_of(name).to_owned();
        let stored = stored.ok_or(VelocError::NotProtected { group, id })?;
        i32::try_from(stored.bytes).map_err(|_| VelocError::Size(id))
    }

    pub fn end_restart(&mut self) -> Result<(), VelocError> {
        if !matches!(self.phase, Phase::Restart { .. }) {
            return Err(VelocError::NoRestart);
        }
        self.phase = Phase::Idle;
        Ok(())
    }

    pub fn restart(&mut self, name: &str, version: i32) -> Result<(), VelocError> {
        self.begin_restart(name, version)?;
        let loaded = self.load_regions(&Chosen::All);
        self.end_restart()?;
        loaded
    }

    /// The file into which the program writes its checkpoint, or from which it reads it.
    pub fn route(&mut self) -> Result<PathBuf, VelocError> {
        let scratch = self.scratch()?;
        match &mut self.phase {
            Phase::Idle => Err(VelocError::NoCheckpoint),
            Phase::Checkpoint { name, version, is_stored, file } => {
                if *is_stored {
                    return Err(VelocError::Mixed);
                }
                let path = routed::path_of(&scratch, name, self.rank, small(*version))?;
                routed::prepare(&scratch)?;
                *file = Some(path.clone());
                Ok(path)
            }
            Phase::Restart { name, version, areas } => {
                let path = routed::path_of(&scratch, name, self.rank, small(*version))?;
                let stored = areas.iter().find(|stored| stored.area == routed::AREA);
                let Some(stored) = stored else {
                    let version = small(*version);
                    return Err(VelocError::NoFile { name: name.clone(), version });
                };
                routed::prepare(&scratch)?;
                routed::load(&self.bucket, &path, name, *version, stored.bytes)?;
                Ok(path)
            }
        }
    }

    /// Removes the routed files of a name. What is stored stays stored.
    pub fn clean(&self, name: &str) -> Result<(), VelocError> {
        match &self.config.scratch {
            Some(scratch) => routed::clean(scratch, name, self.rank),
            None => Ok(()),
        }
    }

    fn newest_here(&self, name: &str, at_most: i32) -> Result<Option<i32>, VelocError> {
        let bound = u64::from(at_most.unsigned_abs());
        let found = self.bucket.find(name, Some(bound))?;
        Ok(found.and_then(|stored| i32::try_from(stored.version).ok()))
    }

    fn smallest(&self, number: i32) -> Result<i32, VelocError> {
        self.mpi.as_ref().map_or(Ok(number), |mpi| mpi.smallest(number))
    }

    fn scratch(&self) -> Result<PathBuf, VelocError> {
        let scratch = self.config.scratch.as_deref().map(Path::to_owned);
        scratch.ok_or(VelocError::NoScratch)
    }
}

/// The version as a number of the bucket.
fn check(name: &str, version: i32) -> Result<u64, VelocError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    let is_valid = !name.is_empty() && name.bytes().all(is_plain);
    u64::try_from(version).ok().filter(|_| is_valid).ok_or(VelocError::Name)
}

/// A version as VELOC numbers it.
fn small(version: u64) -> i32 {
    i32::try_from(version).expect("a phase has a version that was made of such a number")
}
