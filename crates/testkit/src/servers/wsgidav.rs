//! wsgidav: a WebDAV server in Python. It wants a password, and speaks TLS if it is asked to.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, installed, prepare};

const PASSWORD: &str = "not-a-secret-of-anyone";

/// A running wsgidav with one share at its top.
#[derive(Debug)]
pub struct Wsgidav {
    /// The server.
    pub server: Server,
    has_tls: bool,
}

/// What is wrong with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It sees long before it moves a file that the new name is free.
    MovesLate,
    /// It grants every lock and keeps none.
    ForgetsLocks,
    /// It has no locks.
    LocksNothing,
    /// It gives a lock to all who ask while it looks whether another has it.
    LocksLate,
    /// It keeps a lock for an hour, however short it is asked for.
    LocksLong,
}

impl Fault {
    /// The Python code that puts it into wsgidav.
    fn patch(self) -> &'static str {
        match self {
            Self::None => "",
            Self::MovesLate => {
                "import shutil, time\nmove = shutil.move\n\
                 shutil.move = lambda *of: (time.sleep(0.1), move(*of))[1]"
            }
            Self::ForgetsLocks => {
                "from wsgidav.lock_man.lock_manager import LockManager\n\
                 LockManager._check_lock_permission = lambda *of: None"
            }
            Self::LocksNothing => {
                "from wsgidav.default_conf import DEFAULT_CONFIG\nDEFAULT_CONFIG['lock_storage'] = False"
            }
            Self::LocksLate => LOCKS_LATE,
            Self::LocksLong => {
                "from wsgidav import util\nutil.read_timeout_value_header = lambda value: 3600"
            }
        }
    }
}

/// What it does under a mutex, in two steps.
const LOCKS_LATE: &str = r"
import time
from wsgidav.lock_man import lock_manager as locks

def acquire(self, *, url, lock_type, lock_scope, lock_depth, lock_owner, timeout, principal, token_list):
    url = locks.normalize_lock_root(url)
    self._check_lock_permission(url, lock_type, lock_scope, lock_depth, token_list, principal)
    time.sleep(0.1)
    return self._generate_lock(
        principal, lock_type, lock_scope, lock_depth, lock_owner, url, timeout
    )

locks.LockManager.acquire = acquire
";

/// Starts wsgidav, which lets the user `me` in.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn wsgidav() -> Wsgidav {
    wsgidav_with(Fault::None)
}

/// The same with a fault.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn wsgidav_with(fault: Fault) -> Wsgidav {
    let server = Server::start(|folder, address| command(folder, address, false, fault));
    Wsgidav { server, has_tls: false }
}

/// The same over TLS, with a certificate that no machine trusts by itself.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn wsgidav_tls() -> Wsgidav {
    let server = Server::start(|folder, address| command(folder, address, true, Fault::None));
    Wsgidav { server, has_tls: true }
}

fn command(folder: &Path, address: SocketAddr, has_tls: bool, fault: Fault) -> Command {
    std::fs::create_dir_all(folder.join("data")).expect("a folder for the share");
    let mut text = format!(
        "host: {}\nport: {}\nserver: cheroot\nverbose: 1\nprovider_mapping:\n  /: {}\n\
         http_authenticator:\n  accept_basic: true\n  accept_digest: false\n  \
         default_to_digest: false\nsimple_dc:\n  user_mapping:\n    '*':\n      me:\n        \
         password: {PASSWORD}\n",
        address.ip(),
        address.port(),
        folder.join("data").display(),
    );
    if has_tls {
        let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
        if !certificate.exists() {
            let args = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
                        -subj /CN=wsgidav -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1";
            let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = Vec::new();
            let words: Vec<&str> = args.split_whitespace().collect();
            all.extend(words.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>));
            all.extend([&"-keyout" as &dyn AsRef<_>, &key, &"-out", &certificate]);
            prepare("openssl", &all);
        }
        writeln!(
            text,
            "ssl_certificate: {}\nssl_private_key: {}",
            certificate.display(),
            key.display()
        )
        .expect("a text grows");
    }
    let file = folder.join("wsgidav.yaml");
    std::fs::write(&file, text).expect("the server's configuration");
    let mut command = Command::new(installed("python/bin/python"));
    let run = "from wsgidav.server.server_cli import run; run()";
    command.arg("-c").arg(format!("{}\n{run}", fault.patch())).arg("--config").arg(file);
    command
}

impl Wsgidav {
    /// The address of a folder there, to be written by a person.
    pub fn url(&self, address: SocketAddr, path: &str) -> String {
        let scheme = if self.has_tls { "webdavs" } else { "webdav" };
        format!("{scheme}://me@{address}{path}")
    }

    /// The variables that let a client in.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut variables = vec![("WEBDAV_PASSWORD".to_owned(), PASSWORD.to_owned())];
        if self.has_tls {
            let file = self.server.folder.path().join("certificate.pem");
            variables.push(("STRONGROOM_CA_FILE".to_owned(), file.display().to_string()));
        }
        variables
    }

    /// The folder that holds the objects as files.
    pub fn data(&self) -> PathBuf {
        self.server.folder.path().join("data")
    }
}
