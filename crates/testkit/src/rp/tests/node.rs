//! Servers that are processes of their own (`examples/rp_node.rs`), killed at any time.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::super::*;
use super::{PATIENCE, fill_in_order};

/// A process that is killed at the end of the test.
struct Node(Child, SocketAddr);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Cargo builds the examples of a crate before it runs its tests.
#[expect(clippy::disallowed_methods, reason = "the example is beside this test")]
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().unwrap().parent().unwrap().join("examples/rp_node");
    assert!(
        program.exists(),
        "{} is missing: run cargo test without a filter once",
        program.display()
    );
    program
}

fn node(bucket: u32, role: &str, peers: &[SocketAddr]) -> Node {
    let peers: Vec<String> = peers.iter().map(SocketAddr::to_string).collect();
    let mut child = Command::new(program())
        .args(["--listen", "127.0.0.1:0", "--pages", "30", "--bucket", &bucket.to_string()])
        .args([role, "--peers", &peers.join(",")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix(&format!("ready bucket {bucket} at "));
    let address = address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    Node(child, address)
}

#[test]
fn processes_share_a_file_and_a_killed_one_is_an_error() {
    let mut nodes = vec![node(0, "--first", &[])];
    let first = nodes[0].1;
    // They introduce themselves to the first.
    nodes.extend([node(1, "--spare", &[first]), node(2, "--spare", &[first])]);
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.1).collect();
    let mut client = Client::new(addresses, PATIENCE);
    let workload = Workload::new(41, 600, 900);
    fill_in_order(&mut client, &workload);
    let (statuses, silent) = client.statuses();
    assert!(silent.is_empty());
    assert!(statuses.iter().filter(|(_, status)| status.records > 0).count() > 1, "{statuses:?}");
    assert_eq!(workload.check(&mut client).unwrap().equal, 600);

    let gone = statuses.iter().position(|(_, status)| status.bucket > 0 && status.records > 0);
    let gone = &mut nodes[gone.unwrap()];
    gone.0.kill().unwrap();
    gone.0.wait().unwrap();
    let waited = Stopwatch::start();
    let error = workload.check(&mut client).unwrap_err();
    assert!(waited.elapsed() < Duration::from_secs(10));
    assert!(error.to_string().contains(&gone.1.to_string()), "{error}");

    // The end of its standard input ends a node as well.
    drop(nodes[0].0.stdin.take());
    assert!(nodes[0].0.wait().unwrap().success());
}
