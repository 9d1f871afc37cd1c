//! A restore that closes a file and opens it again, while another process meddles with its name.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use strongroom_base::{Cancel, Monitor, Progress, SnapshotId};
use strongroom_engine::{RestoreOutcome, restore};
use strongroom_repository::read_snapshot;
use strongroom_testkit::Random;

use crate::restore::into;
use crate::world::World;

/// How the file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Fresh,
    Beside,
    Patch,
}

const WAYS: [Way; 3] = [Way::Fresh, Way::Beside, Way::Patch];
const BYTES: usize = 400_000;

/// What another process does to a path.
type Meddle<'m> = dyn Fn(&Path) + Send + Sync + 'm;

/// Does something once with the file that a restore is writing.
struct Meddler<'m> {
    target: PathBuf,
    way: Way,
    meddle: Mutex<Option<&'m Meddle<'m>>>,
}

impl Monitor for Meddler<'_> {
    fn progress(&self, _progress: &Progress) {
        let is_it = |name: &[u8]| match self.way {
            Way::Beside => name.starts_with(b".strongroom-restore-"),
            _ => name == b"long",
        };
        let names = fs::read_dir(&self.target).into_iter().flatten().flatten();
        let written = names.map(|entry| entry.path());
        let written = written.filter(|path| is_it(path.file_name().unwrap().as_bytes()));
        // As long as it is empty or old, nothing was written.
        let begun = |path: &PathBuf| fs::metadata(path).is_ok_and(|stat| stat.len() > 20_000);
        if let Some(path) = { written }.find(begun)
            && let Some(meddle) = self.meddle.lock().unwrap().take()
        {
            meddle(&path);
        }
    }
}

/// A file that needs many batches.
fn long(seed: u64) -> (World, SnapshotId, Vec<u8>) {
    let mut world = World::bare(seed);
    world.limits.batch_wants_max = 5;
    let content = Random::new(seed).noise(BYTES);
    world.write("long", &content);
    let id = world.backup().snapshot.id;
    (world, id, content)
}

fn restored_while(
    world: &World,
    id: SnapshotId,
    way: Way,
    meddle: &Meddle<'_>,
) -> (RestoreOutcome, PathBuf) {
    let target = world.folder.path().join(format!("target-{way:?}"));
    fs::create_dir(&target).unwrap();
    if way != Way::Fresh {
        fs::write(target.join("long"), "old").unwrap();
    }
    let mut options = into(&world.tree(), &target);
    options.target.patch = way == Way::Patch;
    let meddler = Meddler { target: target.clone(), way, meddle: Mutex::new(Some(meddle)) };
    let repository = world.open();
    let snapshot = read_snapshot(&repository, id).unwrap();
    let outcome = restore(&repository, &snapshot, &options, &meddler, &Cancel::new()).unwrap();
    assert!(meddler.meddle.lock().unwrap().is_none(), "{way:?}: it had its turn");
    (outcome, target)
}

#[test]
fn a_file_that_got_another_name_meanwhile_is_whole() {
    let (world, id, content) = long(650);
    for way in WAYS {
        let other = world.folder.path().join(format!("other-{way:?}"));
        let link = |path: &Path| fs::hard_link(path, &other).unwrap();
        let (outcome, target) = restored_while(&world, id, way, &link);
        assert_eq!((outcome.problems, outcome.files_failed), (0, 0), "{way:?}");
        assert!(fs::read(target.join("long")).unwrap() == content, "{way:?}: parts are lost");
        assert!(fs::read(&other).unwrap() == content, "{way:?}: it is the same file");
    }
}

#[test]
fn a_file_that_another_took_the_place_of_is_not_restored() {
    let (world, id, _) = long(651);
    let foreign = world.folder.path().join("foreign");
    for way in WAYS {
        fs::write(&foreign, "of another process").unwrap();
        let replace = |path: &Path| fs::rename(&foreign, path).unwrap();
        let (outcome, target) = restored_while(&world, id, way, &replace);
        assert_eq!((outcome.problems, outcome.files_failed), (1, 1), "{way:?}");
        let expected = if way == Way::Beside { "old" } else { "of another process" };
        assert_eq!(fs::read_to_string(target.join("long")).unwrap(), expected, "{way:?}");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1, "{way:?}: nothing is left over");
    }
}

#[test]
fn a_file_that_was_removed_meanwhile_is_not_restored() {
    let (world, id, _) = long(652);
    for way in WAYS {
        let remove = |path: &Path| fs::remove_file(path).unwrap();
        let (outcome, target) = restored_while(&world, id, way, &remove);
        assert_eq!((outcome.problems, outcome.files_failed), (1, 1), "{way:?}");
        let left = fs::read(target.join("long")).ok();
        assert_eq!(left, (way == Way::Beside).then(|| b"old".to_vec()), "{way:?}");
    }
}
