//! A load of a bucket. What is to be filled is found out first; if one area cannot be filled, none is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use strongroom_base::{Cancel, SnapshotId};
use strongroom_bucket::KeyRange;
use strongroom_engine::{EngineError, StoredRegion, load_region, regions_of};
use strongroom_repository::read_snapshot;
use strongroom_source::memory::huge::HugePages;

use crate::about::{ABOUT_NAME, About, RangeText};
use crate::keeper::{Area, Areas, BucketName, KeepError, Keeper, for_each_part};

/// What is loaded.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// These areas; all that were stored if there are none.
    pub areas: &'w [String],
    /// Of a bucket that had these keys; any if there are none.
    pub range: Option<&'w KeyRange>,
    /// From this snapshot.
    pub snapshot: SnapshotId,
}

/// A load that can be carried out.
pub struct Loading<'l> {
    keeper: &'l Keeper,
    about: About,
    parts: Vec<Part<'l>>,
    cancel: &'l Cancel,
}

/// An area, and what it is filled with.
struct Part<'l> {
    name: &'l String,
    area: &'l Area,
    file: &'l File,
    region: StoredRegion,
}

impl Keeper {
    /// Finds out how areas of a bucket are filled from a snapshot: those named, or all that it has.
    pub fn plan_load<'l>(
        &'l self,
        bucket: &BucketName,
        areas: &'l Areas,
        wanted: Wanted<'_>,
        cancel: &'l Cancel,
    ) -> Result<Loading<'l>, KeepError> {
        let Wanted { areas: wanted, range, snapshot } = wanted;
        let unfit = |why: String| KeepError::Unfit { bucket: bucket.clone(), snapshot, why };
        let stored = read_snapshot(&self.repository, snapshot)?;
        let about = self.about_in(bucket, &stored)?;
        let stored_range = about.range.as_ref().and_then(RangeText::range);
        if let Some(range) = range.filter(|range| stored_range.as_ref() != Some(*range)) {
            let had = stored_range.map_or_else(|| "no keys".to_owned(), |range| range.to_string());
            return Err(unfit(format!(
                "its program says that it has the keys {range}, and it was stored with {had}: start \
                 the program without a range"
            )));
        }
        let folder = bucket.path();
        let folder = folder.as_os_str().as_encoded_bytes();
        let mut parts: Vec<Part<'l>> = Vec::new();
        for region in regions_of(&self.repository, &stored, folder, cancel)? {
            let name = region.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name == ABOUT_NAME || !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
                continue;
            }
            let Some((name, area)) = areas.get_key_value(name) else {
                return Err(unfit(format!("no area \"{name}\" is registered")));
            };
            let bytes = region.content.stream_bytes();
            if bytes != area.bytes {
                let registered = area.bytes;
                return Err(unfit(format!(
                    "the area \"{name}\" had {bytes} bytes, and is registered with {registered}"
                )));
            }
            let unwritten = |error| KeepError::Unwritten { area: name.clone(), error };
            let file = area.file.writable().map_err(unwritten)?;
            parts.push(Part { name, area, file, region });
        }
        if let Some(missing) =
            wanted.iter().find(|name| !parts.iter().any(|part| part.name == *name))
        {
            return Err(unfit(format!("the area \"{missing}\" was not stored")));
        }
        Ok(Loading { keeper: self, about, parts, cancel })
    }
}

impl<'l> Loading<'l> {
    /// The areas that it fills.
    pub fn areas(&self) -> impl Iterator<Item = &'l Area> {
        self.parts.iter().map(|part| part.area)
    }

    /// Whether it fills the area of this name.
    pub fn has(&self, name: &str) -> bool {
        self.parts.iter().any(|part| part.name == name)
    }

    /// Fills the areas. Only what differs is written.
    ///
    /// # Errors
    ///
    /// The repository or the memory fails, or parts are lost. Some areas are filled by then.
    pub fn fill(&self) -> Result<(), KeepError> {
        let Keeper { repository, monitor, .. } = self.keeper;
        for Part { name, file, region, .. } in &self.parts {
            let filled = load_region(repository, region, file, &**monitor, self.cancel);
            let outcome = filled.map_err(|error| match error {
                EngineError::Output(error) => KeepError::Unwritten { area: (*name).clone(), error },
                error => error.into(),
            })?;
            if outcome.is_damaged() {
                return Err(KeepError::Lost { area: (*name).clone(), bytes: outcome.bytes_lost });
            }
        }
        Ok(())
    }

    /// Makes zeros of the areas. The caller knows that they were zeros before.
    ///
    /// # Errors
    ///
    /// The memory fails, or it is cancelled.
    pub fn zero(&self) -> io::Result<()> {
        for Part { area, file, .. } in &self.parts {
            let (memory, huge) = (area.file.memory()?, HugePages::of(file)?);
            for_each_part(&memory, area.bytes, self.cancel, &mut |at, part| {
                if part.iter().any(|byte| *byte != 0) {
                    let zeros = vec![0; part.len()];
                    match &huge {
                        Some(huge) => huge.write_all_at(&zeros, at)?,
                        None => file.write_all_at(&zeros, at)?,
                    }
                }
                Ok(true)
            })?;
            self.cancel.check().map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// What the bucket was.
    pub fn about(self) -> About {
        self.about
    }
}
