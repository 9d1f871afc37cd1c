//! Nodes with addresses of IPv4 and of IPv6.

use std::net::UdpSocket;
use std::process::{Child, Command};

use super::nodes::{Net, start_agent};
use super::{missing, three_nodes};
use crate::world::{World, program, skipped};

#[test]
fn nodes_may_have_addresses_of_ipv6() {
    if skipped("network namespaces", missing()) {
        return;
    }
    for multicast in [false, true] {
        let (world, net) = (World::with_repository(), Net::of_ipv6(3));
        let nodes = three_nodes(&world, &net, multicast);
        net.run(&world, "store sales").exits(0).says("stored 3 buckets");
        net.run(&world, "status sales").exits(0).says("3 nodes, all keys");
        net.check(&nodes);
    }
}

/// Agents that are killed at the end of a test.
struct Agents(Vec<Child>);

impl Drop for Agents {
    fn drop(&mut self) {
        for agent in &mut self.0 {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

#[test]
fn nodes_of_both_families_answer_one_client() {
    let world = World::with_repository();
    let folder = world.path("cluster").display().to_string();
    let free = |host: &str| UdpSocket::bind(host).unwrap().local_addr().unwrap();
    let one = format!("one={}", free("127.0.0.1:0"));
    let two = format!("two={}", free("[::1]:0"));
    let add = ["ram", "cluster", "add", &folder, &one, &two];
    let refused = world.run(add.iter().chain(&["--multicast", "239.195.7.1:7420"])).exits(1);
    refused.warns("of node \"two\" are not of one family").warns("choose a group of their family");
    world.run(add).exits(0);
    let start = |name| start_agent(&world, name, Command::new(program()));
    let _agents = Agents(["one", "two"].map(start).into());
    let status = ["ram", "cluster", "status", "sales", "--cluster", &folder, "--json"];
    // There are no keys, but both answer.
    let status = world.run(status).exits(3).summary();
    assert_eq!(status["silent"].as_array().unwrap().len(), 0, "{status}");
    assert_eq!(status["buckets"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["missing"][0], "[, )", "{status}");
}
