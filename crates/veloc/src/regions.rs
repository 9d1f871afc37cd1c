//! The protected regions of a program, in groups, and the areas that they are stored as.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use strongroom_bucket::Bucket;

use crate::error::VelocError;

/// The group of regions without a name.
pub const DEFAULT_GROUP: &str = "default";

/// A region: its address and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The address, as a number: the library uses it in the program's own calls alone.
    pub address: usize,
    pub bytes: usize,
}

/// Which ids are meant: the modes ALL, SOME and REST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    All,
    Some(BTreeSet<i32>),
    Rest(BTreeSet<i32>),
}

impl Chosen {
    pub fn of(mode: i32, ids: BTreeSet<i32>) -> Result<Self, VelocError> {
        match mode {
            0 => Ok(Self::All),
            1 => Ok(Self::Some(ids)),
            2 => Ok(Self::Rest(ids)),
            _ => Err(VelocError::Selection(mode)),
        }
    }

    pub fn has(&self, id: i32) -> bool {
        match self {
            Self::All => true,
            Self::Some(ids) => ids.contains(&id),
            Self::Rest(ids) => !ids.contains(&id),
        }
    }
}

/// All protected regions, and what of them is registered.
#[derive(Debug, Default)]
pub struct Regions {
    groups: BTreeMap<String, BTreeMap<i32, Region>>,
    /// What the bucket knows of each area.
    registered: BTreeMap<String, Region>,
}

impl Regions {
    pub fn protect(&mut self, group: &str, id: i32, region: Region) {
        self.groups.entry(group.to_owned()).or_default().insert(id, region);
    }

    /// Gives a region up, and its area with it.
    pub fn unprotect(&mut self, bucket: &Bucket, group: &str, id: i32) -> Result<(), VelocError> {
        let region = self.groups.get_mut(group).and_then(|regions| regions.remove(&id));
        region.ok_or_else(|| VelocError::NotProtected { group: group.to_owned(), id })?;
        let area = area_of(group, id);
        if self.registered.remove(&area).is_some() {
            // If the agent is gone, the library forgets it all the same.
            drop(bucket.forget(&area));
        }
        Ok(())
    }

    /// Gives all regions of a group up.
    pub fn clear(&mut self, bucket: &Bucket, group: &str) -> Result<(), VelocError> {
        let ids: Vec<i32> =
            self.groups.get(group).into_iter().flatten().map(|(id, _)| *id).collect();
        ids.into_iter().try_for_each(|id| self.unprotect(bucket, group, id))
    }

    /// The group of a checkpoint: that of its name, or the default one if it has no regions.
    pub fn group_of<'n>(&self, checkpoint: &'n str) -> &'n str {
        let has_regions = self.groups.get(checkpoint).is_some_and(|group| !group.is_empty());
        if has_regions { checkpoint } else { DEFAULT_GROUP }
    }

    /// Registers the chosen regions of a group that have bytes. Returns their areas, `None` if no id
    /// is chosen.
    pub fn register(
        &mut self,
        bucket: &Bucket,
        group: &str,
        chosen: &Chosen,
    ) -> Result<Option<Vec<String>>, VelocError> {
        let regions = self.groups.get(group).into_iter().flatten();
        let chosen: Vec<(i32, Region)> =
            regions.filter(|(id, _)| chosen.has(**id)).map(|(id, region)| (*id, *region)).collect();
        if chosen.is_empty() {
            return Ok(None);
        }
        let mut areas = Vec::new();
        for (id, region) in chosen.into_iter().filter(|(_, region)| region.bytes > 0) {
            let area = area_of(group, id);
            self.register_area(bucket, &area, id, region)?;
            areas.push(area);
        }
        Ok(Some(areas))
    }

    /// Registers the region into which an area is to be loaded, as long as the area was stored.
    pub fn register_load(
        &mut self,
        bucket: &Bucket,
        group: &str,
        area: &str,
        id: i32,
        stored: u64,
    ) -> Result<(), VelocError> {
        let region = self.groups.get(group).and_then(|regions| regions.get(&id));
        let region =
            region.ok_or_else(|| VelocError::NotProtected { group: group.to_owned(), id })?;
        let short = VelocError::Short { id, bytes: region.bytes, stored };
        let bytes = usize::try_from(stored).ok().filter(|&bytes| bytes <= region.bytes);
        let region = Region { address: region.address, bytes: bytes.ok_or(short)? };
        self.register_area(bucket, area, id, region)
    }

    /// Registers an area unless it is registered so already.
    pub fn register_area(
        &mut self,
        bucket: &Bucket,
        area: &str,
        id: i32,
        region: Region,
    ) -> Result<(), VelocError> {
        if self.registered.get(area) == Some(&region) {
            return Ok(());
        }
        let memory = std::ptr::with_exposed_provenance_mut(region.address);
        let memory = NonNull::new(memory).ok_or(VelocError::Region(id))?;
        // SAFETY: the program protected this memory, so it is valid until it is unprotected; areas of
        // others are not stored. It is copied only within calls of the program, which hold still.
        unsafe { bucket.private_region(area, memory, region.bytes)? };
        self.registered.insert(area.to_owned(), region);
        Ok(())
    }
}

/// The area of a region: its id, behind the name of its group and a dot unless that is the default one.
fn area_of(group: &str, id: i32) -> String {
    if group == DEFAULT_GROUP { id.to_string() } else { format!("{group}.{id}") }
}

/// The id of an area; `None` if it is none of a region.
pub fn id_of(area: &str) -> Option<i32> {
    area.rsplit('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_says_its_id() {
        for (group, id) in [("default", 5), ("default", -1), ("a.b", 7), ("x", i32::MIN)] {
            assert_eq!(id_of(&area_of(group, id)), Some(id), "{group}");
        }
        assert_eq!(id_of("file"), None);
    }

    #[test]
    fn modes_choose_ids() {
        let ids = BTreeSet::from([1, 2]);
        let chosen = |mode| Chosen::of(mode, ids.clone()).unwrap();
        let among = |chosen: Chosen| (0..4).filter(|id| chosen.has(*id)).collect::<Vec<_>>();
        assert_eq!(among(chosen(0)), [0, 1, 2, 3]);
        assert_eq!(among(chosen(1)), [1, 2]);
        assert_eq!(among(chosen(2)), [0, 3]);
        assert!(Chosen::of(3, ids).is_err());
    }
}
