//! Disks, servers and tools for the tests.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_nbd::{
    Client, ClientOptions, Export, Exports, Listener, Server, ServerOptions, Stream, Zeroing,
};
use strongroom_testkit::Random;
use tempfile::TempDir;

/// How long a tool may take until it listens.
const START: Duration = Duration::from_secs(60);

/// Disks by name.
pub struct Named(pub BTreeMap<String, Arc<dyn Export>>);

impl Named {
    pub fn one(name: &str, export: impl Export + 'static) -> Arc<Self> {
        Arc::new(Self(BTreeMap::from([(name.to_owned(), Arc::new(export) as Arc<dyn Export>)])))
    }
}

impl Exports for Named {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Export>> {
        self.0.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A disk in memory that can be written.
pub struct Memory(pub RwLock<Vec<u8>>);

impl Memory {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(RwLock::new(bytes))
    }
}

impl Export for Memory {
    fn size(&self) -> u64 {
        self.0.read().unwrap().len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        let held = self.0.read().unwrap();
        bytes.extend_from_slice(&held[range.start as usize..range.end as usize]);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn write_zeroes(&self, range: Range<u64>, _: Zeroing) -> io::Result<()> {
        self.0.write().unwrap()[range.start as usize..range.end as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A server of ours in a folder of its own.
pub struct Ours {
    pub server: Server,
    pub folder: TempDir,
}

impl Ours {
    pub fn start(exports: Arc<dyn Exports>, options: ServerOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::unix(&folder.path().join("socket")).unwrap();
        Self { server: Server::start(listener, exports, options).unwrap(), folder }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    /// A connection by a pair of sockets.
    pub fn pair(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.server.admit(Stream::Unix(theirs));
        ours
    }

    pub fn client(&self, export: &str) -> Client {
        let options =
            ClientOptions { contexts: vec!["base:allocation".to_owned()], ..Default::default() };
        Client::open(Stream::Unix(self.pair()), export, &options).unwrap()
    }

    /// Waits until all clients have left.
    pub fn wait_until_empty(&self) {
        self.wait_until(0);
    }

    /// Waits until this many clients are left.
    pub fn wait_until(&self, clients: usize) {
        let waited = Stopwatch::start();
        while self.server.connections() > clients {
            assert!(waited.elapsed() < Duration::from_secs(20), "a client stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Another program's server, ended with this value.
pub struct Theirs {
    child: Child,
    pub socket: PathBuf,
    _folder: TempDir,
}

impl Theirs {
    /// Starts a program, which is given the path of its socket, and waits until it listens.
    pub fn start(make: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut command = make(&socket);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut started = Self { child, socket, _folder: folder };
        let waited = Stopwatch::start();
        while !started.socket.exists() {
            let ended = started.child.try_wait().unwrap();
            assert!(ended.is_none() && waited.elapsed() < START, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        started
    }

    /// `nbdkit` in the foreground with these arguments.
    pub fn nbdkit(arguments: &[&str]) -> Self {
        Self::start(|socket| {
            let mut command = Command::new("nbdkit");
            command.args(["-f", "--newstyle", "-U"]).arg(socket).args(arguments);
            command
        })
    }

    /// `qemu-nbd` for an image with these arguments.
    pub fn qemu_nbd(arguments: &[&str], image: &Path) -> Self {
        Self::start(|socket| {
            let mut command = Command::new("qemu-nbd");
            command.args(["--persistent", "--shared=8", "-k"]).arg(socket);
            command.args(arguments).arg(image);
            command
        })
    }

    pub fn stream(&self) -> Stream {
        let waited = Stopwatch::start();
        loop {
            match Stream::connect_unix(&self.socket) {
                Ok(stream) => return stream,
                Err(error) => assert!(waited.elapsed() < START, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn client(&self, export: &str, contexts: &[&str]) -> Client {
        let contexts = contexts.iter().map(|&context| context.to_owned()).collect();
        let options = ClientOptions { contexts, ..Default::default() };
        Client::open(self.stream(), export, &options).unwrap()
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program and returns what it prints. It must succeed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {} {words}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// True, with a note, if one of these programs is not installed.
pub fn lacks(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    });
    let reason = missing.map(|program| {
        format!("{program} is not installed (packages qemu-utils, libnbd-bin, nbdkit)")
    });
    strongroom_testkit::skipped(reason.as_deref())
}

/// A sparse raw image: runs of noise, of zeros and of holes.
pub fn sparse_image(path: &Path, seed: u64, bytes: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut content = vec![0; bytes as usize];
    let file = File::create(path).unwrap();
    file.set_len(bytes).unwrap();
    let mut position = 0;
    while position < bytes {
        let end = (position + 1 + random.below(512 << 10)).min(bytes);
        let part = &mut content[position as usize..end as usize];
        match random.below(5) {
            0 | 1 => {
                random.fill(part);
                file.write_all_at(part, position).unwrap();
            }
            2 => file.write_all_at(part, position).unwrap(),
            _ => {}
        }
        position = end;
    }
    content
}
