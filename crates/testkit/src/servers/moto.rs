//! moto: an imitation of S3 that checks no signature. It knows storage classes and their states.

use std::net::SocketAddr;
use std::process::Command;

use super::{Server, by_amazons_client, installed};

const KEY: &str = "k";
const SECRET: &str = "s";

/// A running moto with one bucket.
#[derive(Debug)]
pub struct Moto {
    /// The server.
    pub server: Server,
}

/// Starts moto with the bucket `bucket`.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn moto() -> Moto {
    let server = Server::start(|_, address| {
        let mut command = Command::new(installed("python/bin/moto_server"));
        command.args(["-H", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command
    });
    by_amazons_client(server.address, KEY, SECRET, "s3.create_bucket(Bucket='bucket')");
    Moto { server }
}

impl Moto {
    /// Runs lines of Python with Amazon's own client as `s3`.
    ///
    /// # Panics
    ///
    /// If they fail.
    pub fn by_amazons_client(&self, lines: &str) {
        by_amazons_client(self.server.address, KEY, SECRET, lines);
    }

    /// The variables that let a client in, at this address or at that of a relay before it.
    pub fn variables(&self, address: SocketAddr) -> Vec<(String, String)> {
        let endpoint = format!("http://{address}");
        [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_ACCESS_KEY_ID", KEY)]
            .into_iter()
            .chain([("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "us-east-1")])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}
