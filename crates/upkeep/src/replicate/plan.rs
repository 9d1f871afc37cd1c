//! What a replica lacks: a value that can be printed, tested and thrown away.

use std::collections::{HashMap, HashSet};

use strongroom_arena::envelope::format::{HEADER_BYTES, Header};
use strongroom_arena::{ARENAS_FOLDER, ArenaName};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName};
use strongroom_base::RepositoryId;
use strongroom_repository::objects::{
    ARRIVALS_FOLDER, COLLECTIONS_FOLDER, COPY, ENDED_FOLDER, FORGOTTEN_FOLDER, KEYS_FOLDER,
    REMARKS_FOLDER, SNAPSHOTS_FOLDER, VOUCHERS_FOLDER, expected,
};
use strongroom_repository::{
    RepositoryError, Shown, WithheldFolder, read_config, refuse_newer, show,
};

/// At most this many verdicts of two places are compared: once they differ, all that follow do.
const VERDICTS_COMPARED: usize = 8;

/// The folders that are copied before any arena, in this order.
///
/// The key slots come before the configuration, as with `init`: a place with a configuration is a
/// repository. It comes before all else, so that a replica which was begun says whose it is.
pub const FIRST_FOLDERS: [&str; 2] = [KEYS_FOLDER, ""];

/// The folders that are copied between arenas and snapshots: what is said of snapshots is there
/// before them. Remarks come before wishes, because a snapshot that is held is not forgotten.
pub const MIDDLE_FOLDERS: [&str; 5] =
    [VOUCHERS_FOLDER, ARRIVALS_FOLDER, ENDED_FOLDER, REMARKS_FOLDER, FORGOTTEN_FOLDER];

/// All folders that are copied.
pub const FOLDERS_COPIED: [&str; 9] = [
    KEYS_FOLDER,
    "",
    ARENAS_FOLDER,
    VOUCHERS_FOLDER,
    ARRIVALS_FOLDER,
    ENDED_FOLDER,
    REMARKS_FOLDER,
    FORGOTTEN_FOLDER,
    SNAPSHOTS_FOLDER,
];

/// What a replica lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyPlan {
    /// Objects that are to be sent, in the order in which they are.
    pub missing: Vec<ObjectInfo>,
    /// Objects that the target has with another length: one of the two is damaged.
    pub differing: Vec<ObjectInfo>,
    /// Objects that it has, and that are compared whole because something may be planted under their
    /// names.
    pub doubtful: Vec<ObjectInfo>,
    /// Objects that it has already, and their bytes.
    pub present: u64,
    /// The bytes of these.
    pub present_bytes: u64,
    /// Snapshots and key slots that only the target has.
    pub only_in_target: Vec<ObjectName>,
}

impl CopyPlan {
    /// Bytes that are to be sent.
    pub fn bytes(&self) -> u64 {
        self.missing.iter().chain(&self.differing).map(|info| info.bytes).sum()
    }

    fn add(&mut self, folder: FolderPlan) {
        self.missing.extend(folder.missing);
        self.differing.extend(folder.differing);
        self.present += folder.present + folder.doubtful.len() as u64;
        self.present_bytes += folder.present_bytes;
        self.present_bytes += folder.doubtful.iter().map(|info| info.bytes).sum::<u64>();
        self.doubtful.extend(folder.doubtful);
        self.only_in_target.extend(folder.only_in_target);
    }
}

/// Compares what is in both places, by names and lengths. Needs no key.
pub fn plan_replica(
    source: &dyn Backend,
    target: &dyn Backend,
) -> Result<CopyPlan, RepositoryError> {
    refuse_another(source, target)?;
    let mut plan = CopyPlan::default();
    let listed = first_collections(source, target)?;
    let present = Present::list(target, COLLECTIONS_FOLDER)?;
    plan.add(FolderPlan::of(COLLECTIONS_FOLDER, &listed, &present));
    for folder in FOLDERS_COPIED {
        let (listed, _) = list_given(source, folder)?;
        plan.add(FolderPlan::of(folder, &listed, &Present::list(target, folder)?));
    }
    Ok(plan)
}

/// The same for the objects of one folder.
#[derive(Debug, Default)]
pub struct FolderPlan {
    /// Those that the target lacks.
    pub missing: Vec<ObjectInfo>,
    /// Those that it has with another length.
    pub differing: Vec<ObjectInfo>,
    /// Generations of arenas that it has with the same length, below a greater one in either place.
    ///
    /// The name of a generation can be free there again, or still, while copies that were both used
    /// need what it has: then every client that may create objects can plant another one under it.
    pub doubtful: Vec<ObjectInfo>,
    /// How many it has.
    pub present: u64,
    /// Their bytes.
    pub present_bytes: u64,
    /// Snapshots and key slots that only the target has.
    pub only_in_target: Vec<ObjectName>,
}

impl FolderPlan {
    /// Compares a listing of a folder with what is in the target.
    pub fn of(folder: &str, listed: &[ObjectInfo], present: &Present) -> Self {
        let mut plan = Self::default();
        let names = listed.iter().map(|info| &info.name);
        let surpassed = surpassed(names.chain(present.names()));
        let is_doubtful =
            |name: &ObjectName| ArenaName::of(name).is_some_and(|name| surpassed.contains(&name));
        for info in listed {
            match present.bytes(&info.name) {
                None => plan.missing.push(info.clone()),
                Some(bytes) if bytes != info.bytes => plan.differing.push(info.clone()),
                Some(_) if is_doubtful(&info.name) => plan.doubtful.push(info.clone()),
                Some(bytes) => {
                    plan.present += 1;
                    plan.present_bytes += bytes;
                }
            }
        }
        if folder == KEYS_FOLDER || folder == SNAPSHOTS_FOLDER {
            let names: HashSet<&ObjectName> = listed.iter().map(|info| &info.name).collect();
            let only = present.names().filter(|name| !names.contains(name));
            plan.only_in_target = only.cloned().collect();
            plan.only_in_target.sort();
        }
        plan
    }
}

/// The generations of arenas among these names that are not the greatest of theirs.
fn surpassed<'n>(names: impl Iterator<Item = &'n ObjectName>) -> HashSet<ArenaName> {
    let mut generations: Vec<ArenaName> = names.filter_map(ArenaName::of).collect();
    generations.sort_unstable();
    generations.dedup();
    let pairs = generations.windows(2).filter(|pair| pair[0].id == pair[1].id);
    pairs.map(|pair| pair[0]).collect()
}

/// What a place has in a folder.
#[derive(Debug, Default)]
pub struct Present(HashMap<ObjectName, u64>);

impl Present {
    /// Lists it.
    pub fn list(backend: &dyn Backend, folder: &str) -> Result<Self, BackendError> {
        Ok(Self(list(backend, folder)?.into_iter().map(|info| (info.name, info.bytes)).collect()))
    }

    /// The length of an object that is there.
    pub fn bytes(&self, name: &ObjectName) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Adds an object, or gives it another length.
    pub fn insert(&mut self, info: &ObjectInfo) {
        self.0.insert(info.name.clone(), info.bytes);
    }

    fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.0.keys()
    }
}

/// The objects of a folder whose names are ours.
pub fn list(backend: &dyn Backend, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
    let mut objects = backend.list(folder)?;
    objects.retain(|info| expected(&info.name).is_some());
    Ok(objects)
}

/// The same, as far as the place gives them: the order in which a copy is made depends on snapshots,
/// arenas and collections alone.
pub fn list_given(
    backend: &dyn Backend,
    folder: &str,
) -> Result<(Vec<ObjectInfo>, Option<WithheldFolder>), BackendError> {
    if !MIDDLE_FOLDERS.contains(&folder) {
        return Ok((list(backend, folder)?, None));
    }
    let Shown { mut objects, withheld } = show(backend, folder)?;
    objects.retain(|info| expected(&info.name).is_some());
    Ok((objects, withheld))
}

/// Verdicts and ends of collections that have ended.
pub fn ended(source: &dyn Backend) -> Result<Vec<ObjectInfo>, RepositoryError> {
    let mut objects = list(source, COLLECTIONS_FOLDER)?;
    let number = |info: &ObjectInfo| info.name.file().split_once('.').map(|(n, _)| n.to_owned());
    let is_plan = |info: &ObjectInfo| info.name.file().trim_end_matches(COPY).ends_with(".plan");
    let is_done = |info: &&ObjectInfo| info.name.file().ends_with(".done");
    let done: HashSet<_> = objects.iter().filter(is_done).filter_map(number).collect();
    objects.retain(|info| !is_plan(info) && number(info).is_some_and(|n| done.contains(&n)));
    Ok(objects)
}

/// What a new replica gets of the collections: those that have ended, so that what they removed is
/// not missed there. Nothing in an empty place can depend on what they removed; in any other,
/// someone may have made a backup since.
pub fn first_collections(
    source: &dyn Backend,
    target: &dyn Backend,
) -> Result<Vec<ObjectInfo>, RepositoryError> {
    for folder in [ARENAS_FOLDER, SNAPSHOTS_FOLDER] {
        if !list(target, folder)?.is_empty() {
            return Ok(Vec::new());
        }
    }
    ended(source)
}

/// Verdicts that both places have under one number, and that are not the same: each has removed things
/// of its own since the one was copied from the other. Of many only the latest are compared.
pub fn forks(
    source: &dyn Backend,
    target: &dyn Backend,
) -> Result<Vec<ObjectName>, RepositoryError> {
    let number =
        |name: &ObjectName| -> Option<u64> { name.file().strip_suffix(".verdict")?.parse().ok() };
    let there = Present::list(target, COLLECTIONS_FOLDER)?;
    let mut common: Vec<ObjectName> = list(source, COLLECTIONS_FOLDER)?
        .into_iter()
        .map(|info| info.name)
        .filter(|name| number(name).is_some() && there.bytes(name).is_some())
        .collect();
    common.sort_by_key(|name| std::cmp::Reverse(number(name)));
    common.truncate(VERDICTS_COMPARED);
    let header = |place: &dyn Backend, name: &ObjectName| match place.read(name, 0, HEADER_BYTES) {
        Ok(bytes) => Ok(Header::unpack(&bytes).ok()),
        // What is damaged is reported when it is copied, or verified.
        Err(error) if error.is_not_found() || error.is_damage() => Ok(None),
        Err(error) => Err(error),
    };
    let mut forks = Vec::new();
    for name in common {
        let both = (header(source, &name)?, header(target, &name)?);
        if let (Some(here), Some(there)) = both
            && here.body_hash != there.body_hash
        {
            forks.push(name);
        }
    }
    Ok(forks)
}

/// Fails unless the target is empty, or is a copy of the same repository. Returns the repository's
/// identifier.
///
/// If the target's configuration is lost, objects with random names say whose copy it is.
pub fn refuse_another(
    source: &dyn Backend,
    target: &dyn Backend,
) -> Result<RepositoryId, RepositoryError> {
    refuse_newer(source)?;
    let (config, _) = read_config(source)?;
    let place = target.describe();
    match read_config(target) {
        Ok((found, _)) if found.id == config.id => return Ok(config.id),
        Ok(_) => return Err(RepositoryError::OtherRepository { place }),
        Err(RepositoryError::NotARepository { .. }) if target.holds_at_most(KEYS_FOLDER)? => {
            return Ok(config.id);
        }
        Err(RepositoryError::NotARepository { .. }) => {}
        Err(error) if error.is_damage() => {}
        Err(error) => return Err(error),
    }
    if has_common_object(source, target)? {
        return Ok(config.id);
    }
    Err(RepositoryError::PlaceNotEmpty { place })
}

/// Whether both places have an arena or a snapshot of one name. Names are random, so this does not
/// happen to two repositories.
fn has_common_object(one: &dyn Backend, other: &dyn Backend) -> Result<bool, RepositoryError> {
    let ids = |backend: &dyn Backend, folder| -> Result<HashSet<_>, BackendError> {
        let names = list(backend, folder)?.into_iter();
        Ok(names.map(|info| info.name.file().split('.').next().map(str::to_owned)).collect())
    };
    for folder in [ARENAS_FOLDER, SNAPSHOTS_FOLDER] {
        let there = ids(other, folder)?;
        if !there.is_empty() && ids(one, folder)?.iter().any(|id| there.contains(id)) {
            return Ok(true);
        }
    }
    Ok(false)
}
