//! versitygw: an S3 server that checks signatures, keeps conditions under races and locks objects.
//! Its objects are files, which a test can damage.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, by_amazons_client, installed};

/// The keys of its root user.
const KEY: &str = "strongroom-test";
const SECRET: &str = "not-a-secret-of-anyone";

/// A running versitygw with one bucket.
#[derive(Debug)]
pub struct Versitygw {
    /// The server.
    pub server: Server,
}

/// Starts versitygw with the bucket `bucket`.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn versitygw() -> Versitygw {
    let server = Server::start(|folder, address| {
        std::fs::create_dir_all(folder.join("data/bucket")).expect("a folder for a bucket");
        std::fs::create_dir_all(folder.join("versions")).expect("a folder for versions");
        command(folder, address)
    });
    Versitygw { server }
}

fn command(folder: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(installed("versitygw"));
    command
        .args(["--port", &address.to_string(), "posix", "--versioning-dir"])
        .arg(folder.join("versions"))
        .arg(folder.join("data"))
        .env("ROOT_ACCESS_KEY", KEY)
        .env("ROOT_SECRET_KEY", SECRET);
    command
}

impl Versitygw {
    /// The variables that let a client in, at this address or at that of a relay before it.
    pub fn variables(&self, address: SocketAddr) -> Vec<(String, String)> {
        let endpoint = format!("http://{address}");
        [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_ACCESS_KEY_ID", KEY)]
            .into_iter()
            .chain([("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "us-east-1")])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The folder that holds the bucket's objects as files.
    pub fn bucket(&self) -> PathBuf {
        self.server.folder.path().join("data/bucket")
    }

    /// Runs lines of Python with Amazon's own client as `s3`.
    ///
    /// # Panics
    ///
    /// If they fail.
    pub fn by_amazons_client(&self, lines: &str) {
        by_amazons_client(self.server.address, KEY, SECRET, lines);
    }

    /// Ends it as a crash would and starts it again.
    pub fn restart(&mut self) {
        self.server.restart(command);
    }
}
