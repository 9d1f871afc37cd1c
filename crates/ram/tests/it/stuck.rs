//! Memory on a file system of a program's own, which stops to answer.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::io::{FdFlags, fcntl_setfd};
use strongroom_bucket::{FromProgram, ToProgram};
use strongroom_testkit::skipped;

use crate::raw::Raw;
use crate::world::{World, eventually};

/// A file system through FUSE with one file of zeros, `data`.
struct FileSystem {
    folder: PathBuf,
    device: Arc<File>,
    /// The requests that wait, while it does not answer.
    stuck: Arc<Mutex<Option<Vec<u64>>>>,
}

const BYTES: u64 = 4096;
/// What a request begins with, and what an answer does.
const HEAD: usize = 40;
const ROOT: u64 = 1;
const NO_SUCH_CALL: i32 = -38;

impl FileSystem {
    fn mount(world: &World) -> Self {
        let folder = world.path("mounted");
        fs::create_dir(&folder).unwrap();
        let device = Arc::new(File::options().read(true).write(true).open("/dev/fuse").unwrap());
        // The program that mounts has it as well.
        fcntl_setfd(&*device, FdFlags::empty()).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let mut mount = Command::new("mount");
        let mounted =
            mount.args(["-i", "-t", "fuse", "-o", &options, "stuck"]).arg(&folder).status();
        fcntl_setfd(&*device, FdFlags::CLOEXEC).unwrap();
        assert!(mounted.unwrap().success());
        let stuck = Arc::new(Mutex::new(None));
        let (requests, waiting) = (device.clone(), stuck.clone());
        thread::spawn(move || {
            let mut request = vec![0; 256 << 10];
            while let Ok(length @ HEAD..) = (&*requests).read(&mut request) {
                serve(&requests, &waiting, &request[..length]);
            }
        });
        Self { folder, device, stuck }
    }

    /// It does not answer, until what is returned is dropped.
    fn stops(&self) -> Stopped<'_> {
        *self.stuck.lock().unwrap() = Some(Vec::new());
        Stopped(self)
    }

    fn is_asked(&self) -> bool {
        self.stuck.lock().unwrap().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }
}

struct Stopped<'f>(&'f FileSystem);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for unique in self.0.stuck.lock().unwrap().take().unwrap_or_default() {
            answer(&self.0.device, unique, NO_SUCH_CALL, &[]);
        }
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

fn serve(device: &File, stuck: &Mutex<Option<Vec<u64>>>, request: &[u8]) {
    let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
    let (call, unique, node) = (word(4), long(8), long(16));
    // Nothing waits for these to be answered: to forget nodes.
    if matches!(call, 2 | 42) {
        return;
    }
    if let Some(waiting) = &mut *stuck.lock().unwrap() {
        return waiting.push(unique);
    }
    let bytes = match call {
        // To begin: version 7.12.
        26 => [7, 12, 0, 0, 0, 4096].map(u32::to_le_bytes).concat(),
        // To look up a name: node 2, and nothing is remembered.
        1 => [[2_u64, 0, 0, 0, 0].map(u64::to_le_bytes).concat(), attributes(2)].concat(),
        // To get attributes.
        3 => [[0; 16].to_vec(), attributes(node)].concat(),
        // To open.
        14 => vec![0; 16],
        // To read.
        15 => vec![0; word(HEAD + 16) as usize],
        // About the file system.
        17 => vec![0; 80],
        // To release.
        18 => Vec::new(),
        _ => return answer(device, unique, NO_SUCH_CALL, &[]),
    };
    answer(device, unique, 0, &bytes);
}

fn answer(mut device: &File, unique: u64, error: i32, bytes: &[u8]) {
    let length = u32::try_from(16 + bytes.len()).unwrap();
    let mut message = length.to_le_bytes().to_vec();
    message.extend(error.to_le_bytes());
    message.extend(unique.to_le_bytes());
    message.extend(bytes);
    // A request may have been interrupted.
    let _ = device.write(&message);
}

fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == ROOT { 0o040_755 } else { 0o100_644 };
    let longs = [node, BYTES, 8, 0, 0, 0].map(u64::to_le_bytes).concat();
    let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_le_bytes).concat();
    [longs, words].concat()
}

#[test]
fn a_file_system_that_does_not_answer_keeps_no_other_program_waiting() {
    let no_device = File::open("/dev/fuse").err().map(|error| format!("/dev/fuse: {error}"));
    let no_root = (!rustix::process::geteuid().is_root()).then(|| "only root mounts".to_owned());
    if skipped(no_device.or(no_root).as_deref()) {
        return;
    }
    let world = World::new();
    let own = FileSystem::mount(&world);
    let path = own.folder.join("data");
    let file = File::options().read(true).write(true).open(path).unwrap();
    let agent = world.agent();
    let (raw, other) = (Raw::greet(&world, 1), Raw::greet(&world, 2));
    assert_eq!(raw.register("data", file.as_fd(), BYTES), Ok(()));
    let stopped = own.stops();
    // After a load that failed, it is looked whether the areas are torn.
    let (name, areas) = ("v".to_owned(), Vec::new());
    raw.say(&FromProgram::Load { request: 1, name, version: 1, areas });
    raw.hear_until("failed", |it| matches!(it, ToProgram::Failed { request: 1, .. }));
    other.settle();
    raw.say(&FromProgram::Forget { request: 2, area: "data".to_owned() });
    raw.hear_until("done", |it| *it == ToProgram::Done { request: 2 });
    other.settle();
    eventually("the area is closed", || own.is_asked());
    drop(agent);
    drop(stopped);
}
