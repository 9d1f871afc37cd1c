//! Files that change while they are read, and backups that are stopped.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strongroom_base::{Cancel, Monitor, Progress, Severity, Silent};
use strongroom_engine::{BackupOutcome, EngineError, backup};
use strongroom_repository::{Repository, RepositoryError};
use strongroom_testkit::{Kind, Listener, Random};

use crate::read_back::read_back;
use crate::world::{PASSPHRASE, World, init_options, options, run, snapshot_ids};

/// Acts once, when this many bytes are finished: in the middle of the last file.
struct Midway {
    listener: Listener,
    after_bytes: u64,
    acted: AtomicBool,
    bytes: AtomicU64,
    act: Box<dyn Fn() + Send + Sync>,
}

impl Midway {
    /// Within a long file `target` of the world's tree, which the walk reaches last, and of which
    /// `into` bytes were stored.
    fn within(
        world: &World,
        target: &Path,
        into: u64,
        act: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let others = world.image().nodes.into_iter().filter_map(|(name, node)| match node.kind {
            Kind::File(content) if world.tree().join(OsStr::from_bytes(&name)) != target => {
                Some(content.bytes)
            }
            _ => None,
        });
        Self {
            listener: Listener::new(),
            after_bytes: others.sum::<u64>() + into,
            acted: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            act: Box::new(act),
        }
    }
}

impl Monitor for Midway {
    fn progress(&self, progress: &Progress) {
        self.listener.progress(progress);
        self.bytes.store(progress.bytes, Ordering::Relaxed);
        if progress.bytes > self.after_bytes && !self.acted.swap(true, Ordering::Relaxed) {
            (self.act)();
        }
    }

    fn working_on(&self, what: &Path) {
        self.listener.working_on(what);
    }

    fn problem(&self, problem: strongroom_base::Problem<'_>) {
        self.listener.problem(problem);
    }
}

/// A backup during which `act` happens to the file `zz`, of `bytes` bytes, after some of its chunks
/// were stored; then another, undisturbed, which must be right.
fn disturbed(
    target_bytes: usize,
    act: impl Fn(&Path) + Send + Sync + 'static,
) -> (World, BackupOutcome, Vec<String>) {
    let world = World::new(70);
    let file = world.tree().join("zz");
    fs::write(&file, vec![7; target_bytes]).unwrap();
    let acting = file.clone();
    let midway = Midway::within(&world, &file, 100_000, move || act(&acting));
    let outcome = run(&world.open(), &options(&world.tree()), &midway).unwrap();
    let problems: Vec<String> =
        midway.listener.problems().into_iter().map(|heard| heard.message).collect();
    assert!(midway.listener.problems().iter().all(|heard| heard.severity == Severity::Warning));
    assert_eq!(outcome.snapshot.stats.problems, problems.len() as u64);
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    let others = world.image().differences(&kept);
    let strays: Vec<_> = others.iter().filter(|line| !line.starts_with("zz")).collect();
    assert!(strays.iter().all(|line| line.starts_with(": mtime")), "{strays:?}");
    let next = world.backup();
    world.assert_holds(&world.open(), next.snapshot.id, &world.image(), "the next backup");
    (world, outcome, problems)
}

/// Reading runs one MiB and some pieces ahead, so the file is longer than that.
const LONG: usize = 9 << 20;

#[test]
fn a_file_grows() {
    let grow = |file: &Path| {
        let mut file = fs::File::options().append(true).open(file).unwrap();
        file.write_all(&[9; 1 << 20]).unwrap();
    };
    let (world, outcome, problems) = disturbed(LONG, grow);
    assert_eq!(problems, ["it changed while it was read"]);
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    let Kind::File(content) = &kept.nodes[&b"zz"[..]].kind else { panic!("a file") };
    assert_eq!(content.bytes, LONG as u64, "as long as it was when it was opened");
}

#[test]
fn a_file_shrinks() {
    let shrink = |file: &Path| {
        fs::File::options().write(true).open(file).unwrap().set_len(1000).unwrap();
    };
    let (_, _, problems) = disturbed(LONG, shrink);
    assert_eq!(problems, ["it changed while it was read"]);
}

#[test]
fn a_file_is_removed_while_it_is_read() {
    let remove = |file: &Path| fs::remove_file(file).unwrap();
    let (world, outcome, problems) = disturbed(LONG, remove);
    // It had been opened: all of it was read. Its inode changed by losing its name.
    assert_eq!(problems, ["it changed while it was read"]);
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    assert!(kept.nodes.contains_key(&b"zz"[..]));
}

/// Between the listing and the opening.
fn on_the_way(act: impl Fn(&Path) + Send + Sync + 'static) -> (World, BackupOutcome, Listener) {
    let world = World::new(71);
    let file = world.tree().join("target");
    fs::write(&file, vec![7; 100_000]).unwrap();
    let listener = Listener::on_work(move |what| {
        if what == file {
            act(what);
        }
    });
    let outcome = run(&world.open(), &options(&world.tree()), &listener).unwrap();
    let next = world.backup();
    world.assert_holds(&world.open(), next.snapshot.id, &world.image(), "the next backup");
    (world, outcome, listener)
}

#[test]
fn a_file_vanishes_before_it_is_opened() {
    let (world, outcome, listener) = on_the_way(|file| fs::remove_file(file).unwrap());
    assert_eq!(listener.problems().len(), 1, "{:?}", listener.problems());
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    assert!(!kept.nodes.contains_key(&b"target"[..]));
}

#[test]
fn a_file_becomes_a_pipe_before_it_is_opened() {
    let (_, _, listener) = on_the_way(|file| {
        fs::remove_file(file).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, file, kind, mode, 0).unwrap();
    });
    assert_eq!(listener.problems().len(), 1, "{:?}", listener.problems());
}

#[test]
fn a_file_becomes_a_link_out_of_the_tree_before_it_is_opened() {
    let (world, outcome, listener) = on_the_way(|file| {
        fs::remove_file(file).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", file).unwrap();
    });
    assert_eq!(listener.problems().len(), 1, "{:?}", listener.problems());
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    assert!(!kept.nodes.contains_key(&b"target"[..]));
}

#[test]
fn a_stopped_backup_is_a_partial_snapshot_and_a_parent() {
    for stop_after in [0, 1, 5, 20, 45] {
        let world = World::new(72);
        let cancel = Cancel::new();
        let (stop, seen) = (cancel.clone(), AtomicU64::new(0));
        let listener = Listener::on_work(move |_| {
            if seen.fetch_add(1, Ordering::Relaxed) == stop_after {
                stop.cancel();
            }
        });
        let stopped = backup(&world.open(), &options(&world.tree()), &listener, &cancel).unwrap();
        assert!(stopped.snapshot.partial, "{stop_after}");
        // An empty snapshot would be of no use.
        assert_eq!(stopped.committed, stopped.snapshot.stats.files > 0, "{stop_after}");
        if !stopped.committed {
            assert!(snapshot_ids(&world.open()).is_empty());
            continue;
        }
        let repository = world.open();
        let kept = read_back(&repository, stopped.snapshot.id, &world.tree()).unwrap();
        let missing = world.image().differences(&kept);
        let whole = missing.iter().filter(|line| !line.ends_with("only in the first"));
        // A link to a file that was not reached yet cannot be linked.
        let wrong: Vec<_> = whole.filter(|line| !line.contains("linked to")).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let next = world.backup();
        assert_eq!(next.snapshot.parent, Some(stopped.snapshot.id));
        assert!(!next.snapshot.partial);
        assert_eq!(next.files_unchanged > 0, stopped.files_new > 0);
        world.assert_holds(&world.open(), next.snapshot.id, &world.image(), "the whole one");
        // A complete snapshot is the better parent.
        let third = world.backup();
        assert_eq!(third.snapshot.parent, Some(next.snapshot.id));
        assert_eq!(third.written.data_chunks, 0);
    }
}

#[test]
fn a_complete_snapshot_is_a_better_parent_than_a_newer_partial_one() {
    let world = World::new(73);
    let first = world.backup();
    let cancel = Cancel::new();
    let stop = cancel.clone();
    let listener = Listener::on_work(move |_| stop.cancel());
    let stopped = backup(&world.open(), &options(&world.tree()), &listener, &cancel).unwrap();
    assert_eq!(stopped.snapshot.parent, Some(first.snapshot.id));
    let third = world.backup();
    assert_eq!(third.snapshot.parent, Some(first.snapshot.id));
    assert_eq!(third.written.data_chunks, 0);
}

#[test]
fn stopped_before_it_began() {
    let world = World::new(74);
    let cancel = Cancel::new();
    cancel.cancel();
    let outcome = backup(&world.open(), &options(&world.tree()), &Silent, &cancel);
    match outcome {
        Ok(outcome) => assert!(outcome.snapshot.partial),
        Err(error) => {
            assert!(matches!(error, EngineError::Repository(RepositoryError::Cancelled(_))))
        }
    }
    let repository = world.open();
    for id in snapshot_ids(&repository) {
        read_back(&repository, id, &world.tree()).unwrap();
    }
    assert!(strongroom_testkit::damage::names_in(&world.objects.snapshot(), "sessions").is_empty());
}

#[test]
fn a_stop_is_heard_within_a_large_file() {
    let world = World::new(74);
    let file = world.tree().join("zz");
    fs::write(&file, vec![7; LONG]).unwrap();
    let cancel = Cancel::new();
    let stop = cancel.clone();
    let midway = Midway::within(&world, &file, 100_000, move || stop.cancel());
    let stopped = backup(&world.open(), &options(&world.tree()), &midway, &cancel).unwrap();
    assert!(stopped.committed && stopped.snapshot.partial);
    assert_eq!(midway.listener.problems().len(), 0);
    let stored = midway.bytes.load(Ordering::Relaxed) - midway.after_bytes;
    assert!(stored < LONG as u64 * 2 / 3, "{stored} bytes were stored after the stop");
    let kept = read_back(&world.open(), stopped.snapshot.id, &world.tree()).unwrap();
    assert!(!kept.nodes.contains_key(&b"zz"[..]), "no half of a file is kept");
    let next = world.backup();
    world.assert_holds(&world.open(), next.snapshot.id, &world.image(), "the whole one");
}

/// The threads that read are all waiting for their files to be taken when a further name of a file
/// proves to need reading.
#[test]
fn a_link_whose_first_name_is_gone_waits_for_no_other_file() {
    let world = World::empty(73);
    Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(73);
    let (first, second) = (world.tree().join("a1"), world.tree().join("a2"));
    fs::write(&first, b"linked").unwrap();
    fs::hard_link(&first, &second).unwrap();
    for number in 0..6 {
        let large = world.tree().join(format!("b{number}"));
        fs::write(large, random.noise(5 << 20)).unwrap();
    }
    // The walk knows the second by then.
    let gone = first.clone();
    let listener = Listener::on_work(move |path| {
        if path == gone {
            std::thread::sleep(std::time::Duration::from_millis(300));
            fs::remove_file(path).unwrap();
        }
    });
    let (done, wait) = std::sync::mpsc::channel();
    let (repository, wanted) = (world.open(), options(&world.tree()));
    std::thread::spawn(move || {
        let outcome = run(&repository, &wanted, &listener).unwrap();
        done.send((outcome, listener.problems().len())).unwrap();
    });
    let minute = std::time::Duration::from_secs(60);
    let (outcome, problems) = wait.recv_timeout(minute).expect("it hangs");
    assert_eq!(problems, 1, "the first name has vanished");
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    let mut differences = world.image().differences(&kept);
    differences.retain(|line| !line.starts_with(": mtime"));
    assert_eq!(differences, [] as [String; 0]);
}
