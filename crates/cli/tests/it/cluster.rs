//! Files whose buckets are in the memory of many nodes: an RP* file on nodes in network namespaces,
//! with a network that loses, stored at one instant, loaded elsewhere, evicted.

mod bad_days;
mod families;
mod nodes;
mod twice;

use std::fs;
use std::time::Duration;

use nodes::{Net, Node};
use rustix::process::{Pid, Signal, kill_process};
use strongroom_base::Stopwatch;

use crate::world::{World, is_root, skipped};

/// What keeps these tests from running here.
fn missing() -> Option<&'static str> {
    if !is_root() {
        return Some("only root makes network namespaces");
    }
    ["ip", "nft"].into_iter().find(|name| !crate::world::has_program(name))
}

/// Three nodes with a bucket each, and the file that is spread over them.
fn three_nodes(world: &World, net: &Net, multicast: bool) -> Vec<Node> {
    let names = ["one", "two", "three"];
    net.add_to_cluster(world, &names, multicast);
    let nodes: Vec<Node> = names.into_iter().map(|name| net.node(world, name)).collect();
    net.fill(&nodes);
    nodes
}

#[test]
fn a_file_on_three_nodes_survives_one_and_grows_to_five() {
    if skipped("network namespaces", missing()) {
        return;
    }
    let (world, net) = (World::with_repository(), Net::new(5));
    let mut nodes = three_nodes(&world, &net, false);
    net.lose(5);
    let stored = net.run(&world, "store sales --json").exits(0).summary();
    assert_eq!(stored["buckets"].as_array().unwrap().len(), 3, "{stored}");
    net.update(&nodes, 1);
    let stored = net.run(&world, "store sales").exits(0);
    stored.says("stored 3 buckets of sales").says("at one instant (epoch 2)");
    let listed = world.run(["snapshots", "--json"]).exits(0).events("snapshot");
    assert!(listed.iter().all(|snapshot| snapshot["guarantee"] == "exact"), "{listed:?}");

    // A node dies: nothing is stored, and the keys that are missing are named.
    let lost = nodes.remove(1);
    let range = lost.range(&net);
    lost.kill();
    let failed = net.run(&world, "store sales --deadline 1 --tries 2").exits(1);
    failed.warns("no bucket is ready for").warns(&range);
    net.run(&world, "status sales").exits(3).warns("node two does not answer").warns(&range);
    net.check_with(&nodes, "the others go on");

    // Its bucket is loaded on a spare; then there are five, and the file spreads over them.
    net.run(&world, "load sales").exits(1).warns("no node has registered bucket 1 of sales");
    net.add_to_cluster(&world, &["four", "five"], false);
    nodes.push(net.spare(&world, "four", 1));
    nodes.push(net.spare(&world, "five", 3));
    let loaded = net.run(&world, "load sales").exits(0);
    loaded.says("loaded 1 bucket of sales").warns("left as they are");
    net.check(&nodes);
    net.grow(&nodes);
    // The node that is lost may have keys, as far as anybody knows.
    let failed = net.run(&world, "store sales --deadline 1 --tries 1").exits(1);
    failed.warns("node two: it does not say what it has");
    let stored = net.run(&world, "store sales --without two --json").exits(0).summary();
    assert_eq!(stored["buckets"].as_array().unwrap().len(), 4, "{stored}");
    net.check(&nodes);
    world.run(["verify", "--data"]).exits(0);
}

#[test]
fn a_network_that_is_slow_and_loses_stores_all_at_one_instant() {
    if skipped("network namespaces", missing()) {
        return;
    }
    for multicast in [false, true] {
        let (world, net) = (World::with_repository(), Net::slow(4, 5..60));
        let mut nodes = three_nodes(&world, &net, multicast);
        net.lose(5);
        for _ in 0..3 {
            net.update(&nodes, 5);
            let stored = net.run(&world, "store sales --json").exits(0).summary();
            assert_eq!(stored["buckets"].as_array().unwrap().len(), 3, "{stored}");
        }
        nodes.remove(2).kill();
        net.add_to_cluster(&world, &["four"], false);
        nodes.push(net.spare(&world, "four", 2));
        net.run(&world, "load sales").exits(0).says("loaded 1 bucket of sales");
        net.check(&nodes);
    }
}

#[test]
fn memory_is_freed_only_if_it_is_what_was_stored_and_comes_back_elsewhere() {
    if skipped("network namespaces", missing()) {
        return;
    }
    let (world, net) = (World::with_repository(), Net::new(3));
    let nodes = three_nodes(&world, &net, true);
    net.lose(5);
    net.run(&world, "store sales").exits(0);
    // Records change after the cut: their buckets stay, and say so.
    net.update(&nodes, 1);
    let evicted = net.run(&world, "evict sales").exits(3);
    evicted.warns("keeps its memory: it changed since it was stored");
    let evicted = net.run(&world, "store sales --evict --json").exits(0).summary();
    let freed = evicted["eviction"]["evicted"].as_array().unwrap().len();
    assert!(freed > 0, "{evicted}");
    net.run(&world, "status sales").exits(3).warns("no node has these keys: ");
    let loaded = net.run(&world, "load sales").exits(0);
    loaded.says(&format!("loaded {freed} bucket"));
    net.check(&nodes);
    // A command that is a copy of an old one, and files that do not belong to the cluster.
    fs::remove_file(world.path("cluster/sales.epoch")).unwrap();
    net.run(&world, "store sales").exits(0).says("stored 3 buckets");
    let other = world.path("other").display().to_string();
    let address = net.address("one");
    let one = format!("one={address}");
    world.run(["ram", "cluster", "add", &other, &one]).exits(0);
    let foreign = ["store", "sales", "--cluster", &other, "--deadline", "1", "--tries", "1"];
    let foreign = net.run_with(&world, &foreign).exits(1);
    foreign.warns("no bucket is ready for");
    net.check(&nodes);
}

#[test]
fn a_store_that_is_interrupted_lets_programs_go_on_before_their_deadline() {
    if skipped("network namespaces", missing()) {
        return;
    }
    let (world, net) = (World::with_repository(), Net::new(3));
    let mut nodes = three_nodes(&world, &net, false);
    nodes.remove(1).kill();
    let ready = || {
        let summary = net.run(&world, "status sales --json").exits(3).summary();
        let buckets = summary["buckets"].as_array().unwrap();
        buckets.iter().filter(|bucket| bucket["state"] == "ready").count()
    };
    let watch = Stopwatch::start();
    let store = net.start(&world, "store sales --deadline 50 --tries 1 --without two");
    while ready() < 2 {
        assert!(watch.elapsed() < Duration::from_secs(30), "no program holds still");
    }
    kill_process(Pid::from_child(&store), Signal::INT).unwrap();
    let stopped = World::finish(store).exits(130);
    stopped.warns("no snapshot was made, and programs go on; run it again to store");
    assert_eq!(ready(), 0, "programs hold still");
    assert!(watch.elapsed() < Duration::from_secs(45), "that may have been the deadline");
    net.check_with(&nodes, "programs answer");
}

#[test]
fn an_agent_that_dies_in_a_round_leaves_no_program_stopped() {
    if skipped("network namespaces", missing()) {
        return;
    }
    let (world, net) = (World::with_repository(), Net::new(3));
    let mut nodes = three_nodes(&world, &net, false);
    for round in 0..4 {
        let store = net.start(&world, "store sales --deadline 2 --tries 3");
        std::thread::sleep(Duration::from_millis(5 + 40 * round));
        nodes[1].restart_agent(&world, &net);
        // It may have been stored before, or again after; or it says why not.
        let output = World::finish(store);
        assert!(matches!(output.code, Some(0 | 1)), "{output:?}");
        net.check(&nodes);
    }
    net.run(&world, "store sales").exits(0).says("stored 3 buckets");
    // So does a client.
    let mut client = net.start(&world, "store sales");
    std::thread::sleep(Duration::from_millis(30));
    client.kill().unwrap();
    client.wait().unwrap();
    net.check(&nodes);
    net.run(&world, "store sales").exits(0).says("stored 3 buckets");
    world.run(["verify"]).exits(0);
}

#[test]
fn a_file_that_others_can_read_is_refused_with_what_to_do() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    let world = World::with_repository();
    let folder = world.path("cluster");
    let words = ["ram", "cluster", "add", folder.to_str().unwrap(), "one=127.0.0.1:7420"];
    world.run(words).exits(0);
    let file = folder.join("one.json");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let file = file.to_str().unwrap();
    let refused = world.run(["ram", "agent", "--node", file]).exits(1);
    refused.warns("can be read by other users").warns(&format!("run `chmod 600 {file}`"));
}
