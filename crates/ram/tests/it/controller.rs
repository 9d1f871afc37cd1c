//! A controller whose datagrams are made one by one.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

use strongroom_base::{OsEntropy, SnapshotId, Stopwatch};
use strongroom_cluster::{
    Acknowledgement, BucketNumber, Command, Cut, Epoch, FileName, Part, RunId, State, Verb,
    open_acknowledgement, seal_command,
};
use strongroom_ram::files::ControllerFile;

use crate::world::World;

/// A snapshot that is none.
pub const OTHER: SnapshotId = SnapshotId([8; 16]);

pub struct Controller {
    pub files: ControllerFile,
    pub socket: UdpSocket,
    /// The file that its commands are about.
    pub file: String,
    folder: PathBuf,
}

impl Controller {
    /// A cluster of one node on this machine.
    pub fn new(world: &World, folder: &str) -> Self {
        let folder = world.path(folder);
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        ControllerFile::add(&folder, &[("one".to_owned(), address)], None, &OsEntropy).unwrap();
        let files = ControllerFile::read(&folder).unwrap().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        Self { files, socket, file: "file".to_owned(), folder }
    }

    pub fn node_file(&self) -> PathBuf {
        self.folder.join("one.json")
    }

    pub fn command(&self, run: u64, epoch: u64, verb: Verb) -> Command {
        Command {
            file: FileName::new(&self.file).unwrap(),
            run: RunId(run),
            epoch: Epoch(epoch),
            verb,
            deadline_ms: 20_000,
            answered: Vec::new(),
        }
    }

    pub fn seal(&self, command: &Command) -> Vec<u8> {
        seal_command(command, &self.files.controller, &self.files.group, &OsEntropy)
    }

    pub fn throw(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.files.nodes[0].address).unwrap();
    }

    pub fn send(&self, run: u64, epoch: u64, verb: Verb) {
        self.throw(&self.seal(&self.command(run, epoch, verb)));
    }

    /// The next acknowledgement.
    pub fn hear(&self) -> Option<Acknowledgement> {
        let mut bytes = [0; 2048];
        let (length, _) = self.socket.recv_from(&mut bytes).ok()?;
        let node = &self.files.nodes[0];
        let key_of = |id| (id == node.id).then(|| node.key.clone());
        open_acknowledgement(&bytes[..length], key_of).ok()
    }

    /// Repeats a command until a bucket is in one of these states, in its run.
    #[track_caller]
    pub fn until(
        &self,
        bucket: u32,
        (run, epoch): (u64, u64),
        verb: &Verb,
        states: &[State],
    ) -> Acknowledgement {
        let start = Stopwatch::start();
        let mut last = None;
        while start.elapsed() < Duration::from_secs(20) {
            self.send(run, epoch, verb.clone());
            while let Some(answer) = self.hear() {
                let is_of_run = answer.run == RunId(run);
                if is_of_run && answer.bucket == Some(BucketNumber(bucket)) {
                    if states.contains(&answer.state) {
                        return answer;
                    }
                    last = Some(answer);
                }
            }
        }
        panic!("bucket {bucket} is not {states:?}: {last:?}");
    }

    /// Has a bucket stored in an epoch.
    #[track_caller]
    pub fn store(&self, bucket: u32, epoch: u64) -> SnapshotId {
        let of = (epoch, epoch);
        self.until(bucket, of, &Verb::Prepare, &[State::Ready]);
        self.until(bucket, of, &Verb::Cut, &[State::Stored]).snapshot.unwrap()
    }

    pub fn cut(epoch: u64) -> Cut {
        Cut { epoch: Epoch(epoch), snapshot: SnapshotId([9; 16]) }
    }

    pub fn part(&self, bucket: u32, snapshot: SnapshotId) -> Vec<Part> {
        vec![Part { bucket: BucketNumber(bucket), node: self.files.nodes[0].id, snapshot }]
    }

    pub fn evict(&self, bucket: u32, epoch: u64, snapshot: SnapshotId) -> Verb {
        Verb::Evict { cut: Self::cut(epoch), parts: self.part(bucket, snapshot) }
    }

    pub fn load(&self, bucket: u32, epoch: u64, snapshot: SnapshotId) -> Verb {
        Verb::Load { cut: Self::cut(epoch), parts: self.part(bucket, snapshot) }
    }
}
