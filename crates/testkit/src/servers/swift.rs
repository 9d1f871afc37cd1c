//! OpenStack's Swift with its interface for S3: four daemons, rings with one copy. It answers 501
//! to conditional writes, so it is the store without exclusive create.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Server, by_amazons_client, prepare};

const KEY: &str = "test:tester";
const SECRET: &str = "not-a-secret-of-anyone";

/// A running Swift with one bucket.
#[derive(Debug)]
pub struct Swift {
    /// The daemon that clients talk to.
    pub server: Server,
    /// Those that keep accounts, containers and objects.
    _stores: [Server; 3],
}

/// Starts Swift with the bucket `bucket`.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn swift() -> Swift {
    let accounts = Server::start(|folder, address| store("account", folder, folder, address));
    let common = accounts.folder.path().to_owned();
    let other = |kind| Server::start(|folder, address| store(kind, &common, folder, address));
    let stores = [accounts, other("container"), other("object")];
    for (kind, server) in ["account", "container", "object"].into_iter().zip(&stores) {
        make_ring(kind, &common, server.address);
    }
    let server = Server::start(|folder, address| proxy(&common, folder, address));
    by_amazons_client(server.address, KEY, SECRET, "s3.create_bucket(Bucket='bucket')");
    Swift { server, _stores: stores }
}

/// The settings that all of them have.
fn common_settings(common: &Path, address: SocketAddr) -> String {
    format!(
        "[DEFAULT]\nbind_ip = {}\nbind_port = {}\nworkers = 0\nuser = {}\nswift_dir = {}\n",
        address.ip(),
        address.port(),
        user(),
        common.display()
    )
}

fn user() -> String {
    let output = Command::new("id").arg("-un").output().expect("the user's name");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn store(kind: &str, common: &Path, folder: &Path, address: SocketAddr) -> Command {
    std::fs::create_dir_all(common.join("devices/d1")).expect("a folder for a device");
    std::fs::write(common.join("swift.conf"), "[swift-hash]\nswift_hash_path_suffix = s\n")
        .expect("the servers' configuration");
    let text = format!(
        "{}devices = {}\nmount_check = false\nrecon_cache_path = {}\n[pipeline:main]\n\
         pipeline = {kind}-server\n[app:{kind}-server]\nuse = egg:swift#{kind}\n",
        common_settings(common, address),
        common.join("devices").display(),
        folder.display()
    );
    command(kind, folder, &text)
}

fn proxy(common: &Path, folder: &Path, address: SocketAddr) -> Command {
    let filters = ["catch_errors", "gatekeeper", "listing_formats", "s3api", "copy", "slo"];
    let mut text = common_settings(common, address);
    text.push_str(
        "[pipeline:main]\npipeline = catch_errors gatekeeper cache listing_formats s3api tempauth \
         copy slo proxy-server\n[app:proxy-server]\nuse = egg:swift#proxy\n\
         account_autocreate = true\n",
    );
    for filter in filters {
        text.push_str(&format!("[filter:{filter}]\nuse = egg:swift#{filter}\n"));
    }
    // Nothing listens at that port: it does without a cache.
    text.push_str("[filter:cache]\nuse = egg:swift#memcache\nmemcache_servers = 127.0.0.1:1\n");
    text.push_str(&format!(
        "[filter:tempauth]\nuse = egg:swift#tempauth\nuser_test_tester = {SECRET} .admin\n"
    ));
    command("proxy", folder, &text)
}

fn command(kind: &str, folder: &Path, settings: &str) -> Command {
    let file = folder.join(format!("{kind}.conf"));
    std::fs::write(&file, settings).expect("the server's configuration");
    let mut command = Command::new(format!("swift-{kind}-server"));
    command.arg(file).arg("-v");
    command
}

fn make_ring(kind: &str, common: &Path, address: SocketAddr) {
    let builder = common.join(format!("{kind}.builder"));
    let device = format!("r1z1-{}:{}/d1", address.ip(), address.port());
    prepare("swift-ring-builder", &[&builder, &"create", &"4", &"1", &"0"]);
    prepare("swift-ring-builder", &[&builder, &"add", &device, &"1"]);
    prepare("swift-ring-builder", &[&builder, &"rebalance"]);
}

impl Swift {
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
