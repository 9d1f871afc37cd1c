//! What a node remembers of rounds: damaged, unreadable, or impossible to write. It says so, takes part
//! in nothing, and goes back behind no epoch.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use strongroom_cluster::{Acknowledgement, Epoch, RunId, State, Verb};
use strongroom_ram::agent::AgentError;
use strongroom_testkit::noise;

use crate::controller::Controller;
use crate::raw::Raw;
use crate::world::{Memory, World, eventually, whole};

/// The file of a node that has stored in epoch 3.
fn stored() -> (World, Controller, PathBuf) {
    let world = World::new();
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let _bucket = whole(&world, 1, &memory);
    controller.store(1, 3);
    drop(agent);
    let record = world.path("state").join("file.rounds");
    assert!(record.is_file());
    (world, controller, record)
}

/// What the node says to a command for itself.
#[track_caller]
fn said(controller: &Controller, run: u64, epoch: u64, verb: &Verb) -> Acknowledgement {
    let mut answer = None;
    eventually("the node answers", || {
        controller.send(run, epoch, verb.clone());
        answer = std::iter::from_fn(|| controller.hear()).find(|it| it.run == RunId(run));
        answer.is_some()
    });
    answer.unwrap()
}

#[test]
fn a_node_whose_record_is_damaged_or_unreadable_does_not_start() {
    let (world, controller, record) = stored();
    let right = fs::read(&record).unwrap();
    let mut wrong: Vec<Vec<u8>> = (0..right.len()).map(|length| right[..length].to_vec()).collect();
    for at in 0..right.len() {
        let mut flipped = right.clone();
        flipped[at] ^= 1 << (at % 8);
        wrong.push(flipped);
    }
    wrong.push([&right[..], b"\0"].concat());
    let refused = |what: &str| {
        let error = world.refused(&controller.node_file());
        let Some(AgentError::Record { path, why }) = &error else { panic!("{what}: {error:?}") };
        assert_eq!(*path, record, "{what}: {why}");
        assert!(error.unwrap().to_string().contains("file.rounds"), "{what}");
    };
    for bytes in wrong {
        fs::write(&record, &bytes).unwrap();
        refused(&format!("{bytes:?}"));
        assert_eq!(fs::read(&record).unwrap(), bytes, "it is left for a person to look at");
    }
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    refused("a directory");
    fs::remove_dir(&record).unwrap();
    symlink(&record, &record).unwrap();
    refused("a link to itself");
    fs::remove_file(&record).unwrap();
    // What a crash left of a write is no record.
    fs::write(record.with_extension("new-1"), &right[..7]).unwrap();
    fs::write(&record, right).unwrap();
    let _agent = world.node(&controller.node_file());
    assert_eq!(said(&controller, 4, 0, &Verb::Status).highest, Epoch(3));
    assert_eq!(said(&controller, 5, 3, &Verb::Prepare).state, State::Refused);
}

/// A folder that cannot be written, until this is dropped.
enum Unwritable {
    /// A file has its place.
    Replaced(PathBuf),
    /// The file system is full.
    Full(PathBuf),
}

impl Unwritable {
    fn new(state: &Path, is_full: bool) -> Self {
        if is_full {
            let filler = state.join("filler");
            assert!(fs::write(&filler, vec![1; 1 << 20]).is_err(), "it is full");
            return Self::Full(filler);
        }
        fs::rename(state, state.with_extension("away")).unwrap();
        fs::write(state, b"").unwrap();
        Self::Replaced(state.to_owned())
    }
}

impl Drop for Unwritable {
    fn drop(&mut self) {
        match self {
            Self::Full(filler) => fs::remove_file(filler).unwrap(),
            Self::Replaced(state) => {
                fs::remove_file(&*state).unwrap();
                fs::rename(state.with_extension("away"), state).unwrap();
            }
        }
    }
}

/// A file system of 64 KiB, until this is dropped.
struct Small(PathBuf);

impl Small {
    fn new(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let arguments = ["-t", "tmpfs", "-o", "size=64k", "none"];
        let is_mounted = Command::new("mount").args(arguments).arg(at).status().ok()?.success();
        if !is_mounted {
            strongroom_testkit::skip("nothing can be mounted here");
        }
        is_mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn an_epoch_that_cannot_be_written_stops_no_program_and_its_round_is_refused() {
    cannot_write(false);
}

#[test]
fn a_full_disk_stops_no_program_and_its_round_is_refused() {
    cannot_write(true);
}

fn cannot_write(is_full: bool) {
    let world = World::new();
    let state = world.path("state");
    let small = is_full.then(|| Small::new(&state));
    if matches!(small, Some(None)) {
        return;
    }
    let controller = Controller::new(&world, "cluster");
    let agent = world.node(&controller.node_file());
    let memory = Memory::new(&noise(1, 1 << 20));
    let program = Raw::with_memory(&world, 1, &memory);
    program.whole();
    program.settle();
    // The epoch: nothing is asked of the program, and the client hears why.
    let why = "the node's record could not be written";
    let unwritable = Unwritable::new(&state, is_full);
    let refused = said(&controller, 1, 5, &Verb::Prepare);
    assert_eq!(refused.state, State::Refused);
    assert!(refused.reason.contains(why), "{refused:?}");
    assert_eq!(refused.highest, Epoch(0));
    assert_eq!(program.hear_within(Duration::from_millis(300)), Err(()), "it goes on");
    let lines = world.log.lines();
    assert!(lines.iter().any(|line| line.contains("file.rounds")), "{lines:?}");
    drop(unwritable);
    // Its epoch stays used up.
    let again = said(&controller, 2, 5, &Verb::Prepare);
    assert_eq!(again.state, State::Refused);
    controller.send(3, 6, Verb::Prepare);
    program.hold_still(false);
    controller.until(1, (3, 6), &Verb::Prepare, &[State::Ready]);
    // What is stored: it is not called stored, and is not evicted later.
    let unwritable = Unwritable::new(&state, is_full);
    let failed = controller.until(1, (3, 6), &Verb::Cut, &[State::Failed]);
    assert!(failed.reason.contains(why), "{failed:?}");
    let evict = controller.evict(1, 6, failed.snapshot.unwrap_or(crate::controller::OTHER));
    let refused = said(&controller, 4, 7, &evict);
    assert_eq!(refused.state, State::Refused);
    assert!(refused.reason.contains(why), "{refused:?}");
    drop(unwritable);
    assert!(memory.read() == noise(1, 1 << 20));
    drop(agent);
    // The next agent knows what the disk has, and begins no round in an epoch of before.
    let _agent = world.node(&controller.node_file());
    assert_eq!(said(&controller, 5, 0, &Verb::Status).highest, Epoch(6));
    assert_eq!(said(&controller, 6, 6, &Verb::Prepare).state, State::Refused);
    drop(program);
}
