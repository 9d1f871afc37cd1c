//! Files that change while they are read, and backups that are stopped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_base::{Cancel, Monitor, Progress, Severity, Silent};
use strongroom_engine::{BackupOutcome, backup};
use strongroom_testkit::{Kind, Listener};

use crate::read_back::read_back;
use crate::world::{World, options, run, snapshot_ids};

/// Acts once, when the given file has been read to some extent.
struct Midway {
    listener: Listener,
    file: PathBuf,
    after_calls: u64,
    calls: AtomicU64,
    act: Box<dyn Fn() + Send + Sync>,
}

impl Monitor for Midway {
    fn progress(&self, progress: &Progress) {
        self.listener.progress(progress);
        let is_there = self.listener.worked_on().last() == Some(&self.file);
        if is_there && self.calls.fetch_add(1, Ordering::Relaxed) == self.after_calls {
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

/// A backup during which `act` happens to the file `target`, of so many bytes, after so many of
/// its chunks were read; then another, undisturbed, which must be right.
fn disturbed(
    target_bytes: usize,
    after_calls: u64,
    act: impl Fn(&Path) + Send + Sync + 'static,
) -> (World, BackupOutcome, Vec<String>) {
    let world = World::new(70);
    let file = world.tree().join("target");
    fs::write(&file, vec![7; target_bytes]).unwrap();
    let acting = file.clone();
    let midway = Midway {
        listener: Listener::new(),
        file,
        after_calls,
        calls: AtomicU64::new(0),
        act: Box::new(move || act(&acting)),
    };
    let outcome = run(&world.open(), &options(&world.tree()), &midway).unwrap();
    let problems: Vec<String> =
        midway.listener.problems().into_iter().map(|heard| heard.message).collect();
    assert!(midway.listener.problems().iter().all(|heard| heard.severity == Severity::Warning));
    assert_eq!(outcome.snapshot.stats.problems, problems.len() as u64);
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    let others = world.image().differences(&kept);
    let strays: Vec<_> = others.iter().filter(|line| !line.starts_with("target")).collect();
    assert!(strays.iter().all(|line| line.starts_with(": mtime")), "{strays:?}");
    let next = world.backup();
    world.assert_holds(&world.open(), next.snapshot.id, &world.image(), "the next backup");
    (world, outcome, problems)
}

/// Reading goes by two MiB, so the file is longer than that.
const LONG: usize = 9 << 20;

#[test]
fn a_file_grows() {
    let grow = |file: &Path| {
        let mut file = fs::File::options().append(true).open(file).unwrap();
        file.write_all(&[9; 1 << 20]).unwrap();
    };
    let (world, outcome, problems) = disturbed(LONG, 3, grow);
    assert_eq!(problems, ["it changed while it was read"]);
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    let Kind::File(content) = &kept.nodes[&b"target"[..]].kind else { panic!("a file") };
    assert_eq!(content.bytes, LONG as u64, "as long as it was when it was opened");
}

#[test]
fn a_file_shrinks() {
    let shrink = |file: &Path| {
        fs::File::options().write(true).open(file).unwrap().set_len(1000).unwrap();
    };
    let (_, _, problems) = disturbed(LONG, 3, shrink);
    assert_eq!(problems, ["it changed while it was read"]);
}

#[test]
fn a_file_is_removed_while_it_is_read() {
    let remove = |file: &Path| fs::remove_file(file).unwrap();
    let (world, outcome, problems) = disturbed(LONG, 3, remove);
    // It had been opened: all of it was read. Its inode changed by losing its name.
    assert_eq!(problems, ["it changed while it was read"]);
    let kept = read_back(&world.open(), outcome.snapshot.id, &world.tree()).unwrap();
    assert!(kept.nodes.contains_key(&b"target"[..]));
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
        assert!(stopped.committed && stopped.snapshot.partial, "{stop_after}");
        let repository = world.open();
        let kept = read_back(&repository, stopped.snapshot.id, &world.tree()).unwrap();
        let missing = world.image().differences(&kept);
        let whole = missing.iter().filter(|line| !line.ends_with("only in the first"));
        // A link to something that was not reached yet is linked to nothing.
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
        Err(error) => assert!(matches!(error, strongroom_engine::EngineError::Cancelled(_))),
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
    let file = world.tree().join("target");
    fs::write(&file, vec![7; LONG]).unwrap();
    let cancel = Cancel::new();
    let stop = cancel.clone();
    let midway = Midway {
        listener: Listener::new(),
        file,
        after_calls: 3,
        calls: AtomicU64::new(0),
        act: Box::new(move || stop.cancel()),
    };
    let stopped = backup(&world.open(), &options(&world.tree()), &midway, &cancel).unwrap();
    assert!(stopped.committed && stopped.snapshot.partial);
    assert_eq!(midway.listener.problems().len(), 0);
    let read = midway.calls.load(Ordering::Relaxed) * (8 << 10);
    assert!(read < LONG as u64 / 2, "{read} bytes were read");
    let kept = read_back(&world.open(), stopped.snapshot.id, &world.tree()).unwrap();
    assert!(!kept.nodes.contains_key(&b"target"[..]), "no half of a file is kept");
    let next = world.backup();
    world.assert_holds(&world.open(), next.snapshot.id, &world.image(), "the whole one");
}
