//! Tests of the RP* file: each floor by itself, and servers on the loopback.

mod agent;
mod doubt;
mod node;
mod registered;
mod servers;
mod tree;
mod wire;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::*;

/// How long a client waits for busy servers.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server on the loopback that ends with the test.
struct Running(Server);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn start(bucket: u32, role: Role, pages: u32, peers: &[SocketAddr]) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ServerOptions { bucket, role, peers: peers.to_vec(), pages };
    Running(Server::start(listener, options).unwrap())
}

/// A first server and some spares, which it knows.
fn file(spares: u32, pages: u32) -> Vec<Running> {
    let mut servers: Vec<Running> =
        (1..=spares).map(|bucket| start(bucket, Role::Spare, pages, &[])).collect();
    let peers = addresses(&servers);
    for server in &servers {
        // A spare may have to split as well, once it has a range.
        peers.iter().for_each(|peer| server.0.meet(*peer));
    }
    servers.insert(0, start(0, Role::First, pages, &peers));
    servers
}

fn addresses(servers: &[Running]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.0.address()).collect()
}

fn client(servers: &[Running]) -> Client {
    Client::new(addresses(servers), PATIENCE)
}

/// In the order of their keys, so that always the last bucket is split.
fn fill_in_order(client: &mut Client, workload: &Workload) {
    let records =
        (0..workload.records).map(|record| (workload.key(record), workload.value(record)));
    client.put_many(records.collect()).unwrap();
}
