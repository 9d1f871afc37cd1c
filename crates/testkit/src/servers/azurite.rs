//! Azurite: Microsoft's own imitation of Azure's blobs. It checks signatures and conditions.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Server, installed};

const ACCOUNT: &str = "strongroomtest";
/// The key, in base64.
const KEY: &str = "bm90LWEtc2VjcmV0LW9mLWFueW9uZQ==";

/// A running Azurite with an account and no container.
#[derive(Debug)]
pub struct Azurite {
    /// The server.
    pub server: Server,
}

/// Starts Azurite.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn azurite() -> Azurite {
    Azurite { server: Server::start(command) }
}

fn command(folder: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(installed("npm/node_modules/.bin/azurite-blob"));
    command
        .args(["--blobHost", &address.ip().to_string(), "--blobPort", &address.port().to_string()])
        .args(["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--location"])
        .arg(folder.join("data"))
        .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY}"));
    command
}

impl Azurite {
    /// The variables that let a client in, at this address or at that of a relay before it.
    pub fn variables(&self, address: SocketAddr) -> Vec<(String, String)> {
        let endpoint = format!("http://{address}/{ACCOUNT}");
        [("AZURE_STORAGE_ENDPOINT", endpoint.as_str()), ("AZURE_STORAGE_ACCOUNT", ACCOUNT)]
            .into_iter()
            .chain([("AZURE_STORAGE_KEY", KEY)])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}
