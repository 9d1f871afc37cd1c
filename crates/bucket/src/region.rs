//! The areas of a bucket as the library keeps them, so that it can register them again.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{AreaFault, BucketError};
use crate::message::{AreaSize, FromProgram};
use crate::shadow::Shadow;

/// A region of memory.
#[derive(Debug)]
pub struct Region {
    /// The address at which the program maps it, if that matters.
    pub base: Option<u64>,
    pub memory: Memory,
}

/// Where its bytes are.
#[derive(Debug)]
pub enum Memory {
    /// In a file that the agent reads itself.
    Shared { file: OwnedFd, bytes: u64 },
    /// In the program alone.
    Private(Shadow),
}

/// All areas of a bucket, by name.
#[derive(Debug, Default)]
pub struct Regions(pub BTreeMap<String, Region>);

impl Region {
    pub fn file(&self) -> BorrowedFd<'_> {
        match &self.memory {
            Memory::Shared { file, .. } => file.as_fd(),
            Memory::Private(shadow) => shadow.file(),
        }
    }

    pub fn bytes(&self) -> u64 {
        match &self.memory {
            Memory::Shared { bytes, .. } => *bytes,
            Memory::Private(shadow) => shadow.bytes(),
        }
    }

    /// The message that registers it.
    pub fn message(&self, request: u32, area: &str) -> FromProgram {
        FromProgram::Region {
            request,
            area: area.to_owned(),
            bytes: self.bytes(),
            base: self.base,
            is_private: matches!(self.memory, Memory::Private(_)),
        }
    }
}

impl Regions {
    /// Copies the chosen areas that are private. Returns whether all of them are.
    pub fn capture(&mut self, chosen: &[String]) -> Result<bool, BucketError> {
        self.check(chosen)?;
        let mut is_copy = true;
        for (area, region) in self.chosen(chosen) {
            match &mut region.memory {
                Memory::Shared { .. } => is_copy = false,
                Memory::Private(shadow) => {
                    let copied = shadow.capture();
                    copied.map_err(|error| {
                        BucketError::area(area, AreaFault::Shadow(error.into()))
                    })?;
                }
            }
        }
        Ok(is_copy)
    }

    /// The agent may have written into shadows, and did not finish: what is a hole is found out again,
    /// so that the next copy has none of it.
    pub fn look_for_holes(&mut self) {
        for region in self.0.values_mut() {
            if let Memory::Private(shadow) = &mut region.memory {
                shadow.look_for_holes();
            }
        }
    }

    /// Copies what the agent wrote into private memory.
    pub fn put_back(&mut self, chosen: &[String]) {
        for (_, region) in self.chosen(chosen) {
            if let Memory::Private(shadow) = &mut region.memory {
                shadow.put_back();
            }
        }
    }

    /// Whether all chosen areas are registered.
    pub fn check(&self, chosen: &[String]) -> Result<(), BucketError> {
        let unknown = chosen.iter().find(|area| !self.0.contains_key(*area));
        match unknown {
            Some(area) => Err(BucketError::area(area, AreaFault::Unknown)),
            None => Ok(()),
        }
    }

    /// Whether the areas to be loaded are registered as they were stored: the chosen ones, or all
    /// that were stored. Returns their names.
    pub fn check_load(
        &self,
        stored: &[AreaSize],
        chosen: &[String],
    ) -> Result<Vec<String>, BucketError> {
        let is_stored = |area: &String| stored.iter().any(|stored| stored.area == *area);
        if let Some(area) = chosen.iter().find(|area| !is_stored(area)) {
            return Err(BucketError::area(area, AreaFault::NotStored));
        }
        let loaded = stored.iter().filter(|stored| is_chosen(chosen, &stored.area));
        let mut names = Vec::new();
        for AreaSize { area, bytes } in loaded {
            let region =
                self.0.get(area).ok_or_else(|| BucketError::area(area, AreaFault::Unknown))?;
            let registered = region.bytes();
            if registered != *bytes {
                let fault = AreaFault::Differs { registered, stored: *bytes };
                return Err(BucketError::area(area, fault));
            }
            names.push(area.clone());
        }
        Ok(names)
    }

    fn chosen(&mut self, chosen: &[String]) -> impl Iterator<Item = (&String, &mut Region)> {
        self.0.iter_mut().filter(move |(area, _)| is_chosen(chosen, area))
    }
}

/// Whether an area is meant: all are if none is named.
fn is_chosen(chosen: &[String], area: &String) -> bool {
    chosen.is_empty() || chosen.contains(area)
}
