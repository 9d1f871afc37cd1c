//! How the oldest and the newest snapshot lie after all versions, and how long it takes to restore
//! them: as they are, and after `prune --defragment`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::history::copy;
use super::{Contender, label};
use crate::peers::measure::{Usage, measure};
use crate::peers::runner::differences;
use crate::peers::tools::SnapshotLabel;
use crate::shell::{Done, Failure, Invocation, make_folder, remove};

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Snapshots, and how they lie.
    pub snapshots: Vec<Placed>,
    /// What bringing together took.
    pub gathering: Usage,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// What it is.
    pub name: String,
    /// How it lies.
    pub lies: Lies,
    /// Restoring it, each time.
    pub restores: Vec<Usage>,
}

/// How it lies, as `stats --fragmentation` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lies {
    /// Requests that restoring it takes.
    pub requests: u64,
    /// Requests if all that it needs lay together.
    pub requests_least: u64,
    /// Bytes that are read.
    pub read_bytes: u64,
}

/// One that is restored.
struct Scene {
    placed: Placed,
    /// The contender's folder.
    home: PathBuf,
    snapshot: SnapshotLabel,
}

/// Restores them in turn, so often, into a folder in memory, while nothing of the repository is in
/// the kernel's. What is restored last, of the newest brought together, is compared with `at`.
pub fn measure_placement(
    contender: &mut Contender,
    versions: u32,
    rounds: u32,
    at: &Path,
    scratch: &Path,
) -> Done {
    let (tool, place) = (&contender.tool, &contender.place);
    let Some((ask, gather)) = tool.fragmentation(place).zip(tool.gather(place)) else {
        return Ok(());
    };
    let said = scratch.join("said");
    copy(&contender.kept, &place.home)?;
    let [oldest, newest] = lies(&ask)?;
    let gathering = measure(&gather, &said)?;
    let [_, together] = lies(&ask)?;
    let after = scratch.join("gathered");
    copy(&place.home, &after)?;

    let scene = |name: String, version, lies, home: &Path| Scene {
        placed: Placed { name, lies, restores: Vec::new() },
        home: home.to_owned(),
        snapshot: SnapshotLabel { label: label(version), newer: (versions - version) as usize },
    };
    let mut scenes = [
        scene(label(1), 1, oldest, &contender.kept),
        scene(label(versions), versions, newest, &contender.kept),
        scene(format!("{}, brought together", label(versions)), versions, together, &after),
    ];
    let target = Path::new("/dev/shm").join(format!("strongroom-bench-{}", std::process::id()));
    let mut found = None;
    for _ in 0..rounds {
        for Scene { placed, home, snapshot } in &mut scenes {
            copy(home, &place.home)?;
            remove(&target)?;
            make_folder(&target)?;
            rustix::fs::sync();
            let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
            let restore = tool.restore(place, at, snapshot, &target);
            placed.restores.push(measure(&restore, &said)?);
        }
        found = differences(tool.keeps(), at, &tool.restored_at(at, &target))?;
    }
    remove(&target)?;
    let snapshots = scenes.map(|scene| scene.placed).into();
    let results = &mut contender.results;
    results.unequal.extend(found.map(|found| format!("brought together: {found}")));
    results.placement = Some(Placement { snapshots, gathering });
    Ok(())
}

/// How the oldest and the newest snapshot lie.
fn lies(ask: &Invocation) -> Done<[Lies; 2]> {
    let said = ask.run()?;
    let all: Vec<Lies> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    match (all.first(), all.last()) {
        (Some(oldest), Some(newest)) => Ok([oldest.clone(), newest.clone()]),
        _ => Err(Failure::Other("it does not say how its snapshots lie".to_owned())),
    }
}
