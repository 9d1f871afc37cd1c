//! Real servers, started by a test on this machine's loopback and ended by their own pid.
//!
//! A server belongs to the test that started it and has a folder of its own. What must be installed
//! comes from Debian's packages (see `./test`) or from the folder that `campaign/servers` fills:
//! `target/servers`, or the one that `STRONGROOM_TEST_SERVERS` names. A server that is not
//! installed fails the test: nothing is skipped.

mod azurite;
mod moto;
mod s3proxy;
mod sshd;
mod swift;
mod versitygw;
mod vsftpd;
mod wsgidav;

pub use azurite::{Azurite, azurite};
pub use moto::{Moto, moto};
pub use s3proxy::{S3Proxy, s3proxy};
pub use sshd::{Sshd, sshd, sshd_with};
pub use swift::{Swift, swift};
pub use versitygw::{Versitygw, versitygw};
pub use vsftpd::{Vsftpd, vsftpd, vsftpd_tls};
pub use wsgidav::{Fault, Wsgidav, wsgidav, wsgidav_tls, wsgidav_with};

use std::ffi::OsStr;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;
use tempfile::TempDir;

/// How long a server may take until it accepts connections.
const START: Duration = Duration::from_secs(60);

/// A server that runs until this value is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its own files: configuration, data and what it prints (`output`).
    pub folder: TempDir,
}

impl Server {
    /// Starts a server in a new folder and waits until it accepts connections. The command is made
    /// of the folder and the address where it must listen.
    ///
    /// # Panics
    ///
    /// If it cannot be started, ends early, or does not listen within a minute.
    pub fn start(make: impl FnOnce(&Path, SocketAddr) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder for a server");
        let address = free_address();
        let command = make(folder.path(), address);
        let child = spawn(command, folder.path());
        let mut server = Self { child, address, folder };
        server.wait_until_it_listens();
        server
    }

    /// Ends it at once, as a crash would, and starts it again with the same files at the same
    /// address.
    ///
    /// # Panics
    ///
    /// As [`Server::start`].
    pub fn restart(&mut self, make: impl FnOnce(&Path, SocketAddr) -> Command) {
        self.kill();
        let command = make(self.folder.path(), self.address);
        self.child = spawn(command, self.folder.path());
        self.wait_until_it_listens();
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it printed.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("output")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait_until_it_listens(&mut self) {
        let waited = Stopwatch::start();
        while TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_err() {
            let ended = self.child.try_wait().expect("a child that was started");
            assert!(ended.is_none(), "a server ended ({ended:?}):\n{}", self.output());
            assert!(waited.elapsed() < START, "a server does not listen:\n{}", self.output());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(mut command: Command, folder: &Path) -> Child {
    let output = File::options()
        .create(true)
        .append(true)
        .open(folder.join("output"))
        .expect("a file for a server's output");
    let program = command.get_program().to_owned();
    command.stdin(Stdio::null());
    command.stdout(output.try_clone().expect("a second handle")).stderr(output);
    command.spawn().unwrap_or_else(|error| {
        panic!("cannot start {}: {error}; see the packages in ./test", program.display())
    })
}

/// An address of the loopback that is free now.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound socket has an address")
}

/// A program that `campaign/servers` installed, by its path in that folder.
///
/// # Panics
///
/// If it is not there.
#[expect(clippy::disallowed_methods, reason = "a test reads its surroundings")]
pub fn installed(path: &str) -> PathBuf {
    let named = std::env::var_os("STRONGROOM_TEST_SERVERS").filter(|name| !name.is_empty());
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let found = named.map_or(beside, PathBuf::from).join(path);
    assert!(found.exists(), "{path} is not installed: run campaign/servers");
    found
}

/// Runs a command that prepares a server (keys, certificates) to its end.
///
/// # Panics
///
/// If it fails.
pub fn prepare(program: &str, args: &[&dyn AsRef<OsStr>]) {
    let mut command = Command::new(program);
    command.args(args.iter().map(|arg| arg.as_ref()));
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs lines of Python with Amazon's own client (which moto brings with it) as `s3`.
///
/// # Panics
///
/// If they fail.
pub(crate) fn by_amazons_client(address: SocketAddr, key: &str, secret: &str, lines: &str) {
    let script = format!(
        "import boto3, botocore.config as c\n\
         s3 = boto3.client('s3', endpoint_url='http://{address}', aws_access_key_id='{key}', \
         aws_secret_access_key='{secret}', region_name='us-east-1', \
         config=c.Config(s3={{'addressing_style': 'path'}}))\n{lines}"
    );
    prepare(&installed("python/bin/python").to_string_lossy(), &[&"-c", &script]);
}
