//! S3Proxy, set up as its users often do: it drops headers that it does not know, conditions among
//! them. So it answers every conditional PUT with success: the store that lies.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, installed};

const KEY: &str = "strongroom-test";
const SECRET: &str = "not-a-secret-of-anyone";

/// A running S3Proxy with one bucket.
#[derive(Debug)]
pub struct S3Proxy {
    /// The server.
    pub server: Server,
}

/// Starts S3Proxy with the bucket `bucket`.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn s3proxy() -> S3Proxy {
    S3Proxy { server: Server::start(command) }
}

fn command(folder: &Path, address: SocketAddr) -> Command {
    let data = folder.join("data");
    std::fs::create_dir_all(data.join("bucket")).expect("a folder for a bucket");
    let text = format!(
        "s3proxy.endpoint=http://{address}\ns3proxy.authorization=aws-v2-or-v4\n\
         s3proxy.identity={KEY}\ns3proxy.credential={SECRET}\ns3proxy.ignore-unknown-headers=true\n\
         jclouds.provider=filesystem\njclouds.identity=none\njclouds.credential=none\n\
         jclouds.filesystem.basedir={}\n",
        data.display()
    );
    let file = folder.join("s3proxy.conf");
    std::fs::write(&file, text).expect("the server's configuration");
    let mut command = Command::new("java");
    command
        .arg("-cp")
        .arg(installed("s3proxy/lib").join("*"))
        .args(["-Xmx256m", "org.gaul.s3proxy.Main", "--properties"])
        .arg(file);
    command
}

impl S3Proxy {
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
}
