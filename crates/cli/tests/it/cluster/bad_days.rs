//! Agents that are killed at many moments, and a repository that is full, while clients of the file
//! write: no record is lost, and nothing is freed that no cut holds.

use std::process::Command;
use std::thread;
use std::time::Duration;

use super::nodes::{Net, Node};
use super::{missing, three_nodes};
use crate::world::{CHEAP, World, skipped};

/// Loads what is not in memory until all keys are.
fn bring_back(world: &World, net: &Net) {
    for _ in 0..20 {
        if net.run(world, "status sales").code == Some(0) {
            return;
        }
        // What is in memory is left as it is.
        net.run(world, "load sales --tries 2");
    }
    panic!("{:?}", net.run(world, "status sales"));
}

#[test]
fn agents_that_are_killed_while_memory_is_freed_lose_no_record() {
    if skipped("network namespaces", missing()) {
        return;
    }
    let (world, net) = (World::with_repository(), Net::new(3));
    let mut nodes = three_nodes(&world, &net, false);
    net.run(&world, "store sales").exits(0);
    for round in 0..4_u32 {
        let share = 1 + round % 3;
        let writing = net.start_update(&nodes, share);
        let store = net.start(&world, "store sales --evict --deadline 2 --tries 3");
        thread::sleep(Duration::from_millis(10 + 110 * u64::from(round)));
        nodes[round as usize % 3].restart_agent(&world, &net);
        let stored = World::finish(store);
        assert!(matches!(stored.code, Some(0 | 1 | 3)), "{stored:?}");
        bring_back(&world, &net);
        net.end_update(writing, share);
        net.check(&nodes);
    }
    net.run(&world, "store sales").exits(0).says("stored 3 buckets");
    world.run(["verify", "--data"]).exits(0);
}

#[test]
fn clients_that_are_killed_while_memory_is_freed_lose_no_record() {
    if skipped("network namespaces", missing()) {
        return;
    }
    let (world, net) = (World::with_repository(), Net::new(3));
    let nodes = three_nodes(&world, &net, true);
    net.lose(5);
    net.run(&world, "store sales").exits(0);
    for round in 0..4_u32 {
        let writing = net.start_update(&nodes, 2);
        let mut store = net.start(&world, "store sales --evict --deadline 2 --tries 3");
        thread::sleep(Duration::from_millis(20 + 130 * u64::from(round)));
        store.kill().unwrap();
        store.wait().unwrap();
        bring_back(&world, &net);
        net.end_update(writing, 2);
        net.check(&nodes);
    }
}

/// A world whose repository has room for this many MiB.
struct Small(World);

impl Small {
    fn new(mib: u32) -> Self {
        let world = World::empty();
        std::fs::create_dir_all(world.repository()).unwrap();
        let size = format!("size={mib}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(world.repository());
        assert!(mount.status().unwrap().success());
        world.run(["init"].iter().chain(&CHEAP)).exits(0);
        Self(world)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.repository()).status();
    }
}

#[test]
fn a_full_repository_keeps_every_bucket_in_memory() {
    if skipped("network namespaces", missing()) {
        return;
    }
    let net = Net::new(3);
    let small = Small::new(12);
    let world = &small.0;
    let nodes: Vec<Node> = three_nodes(world, &net, false);
    net.run(world, "store sales").exits(0);
    let filler = world.repository().join("filler");
    // What the reserve does not hold back is taken.
    let _ = std::fs::write(&filler, vec![1; 16 << 20]);
    net.update(&nodes, 40);
    let failed = net.run(world, "store sales --evict --deadline 2 --tries 2");
    failed.exits(1).warns("no space");
    net.run(world, "status sales").exits(0);
    net.check(&nodes);
    std::fs::remove_file(&filler).unwrap();
    net.run(world, "store sales").exits(0).says("stored 3 buckets");
    net.check(&nodes);
    world.run(["verify", "--data"]).exits(0);
}
