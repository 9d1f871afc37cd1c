//! Programs with buckets on bad days: they die at each step, their agent dies, the repository is full.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::time::Duration;

use super::count;
use super::surroundings::{Agent, Driven, eventually, versions};
use crate::space::Disk;
use crate::world::{CHEAP, World, is_root, skipped};

#[test]
fn a_program_goes_on_while_its_agent_is_gone() {
    let world = World::with_repository();
    let agent = Agent::start(&world);
    let mut counter = count(&world, u64::MAX);
    let mut program = Driven::with_bucket(&world, "orders", 0);
    program.does("memory = bytearray(noise(3_000_000, 1))");
    program.does("bucket.region('memory', memory)");
    program.does("bucket.store('n', 1)");
    program.does("bucket.wait('n', 1)");
    eventually("a version", || !versions(&world, "steps").is_empty());

    agent.kill();
    let (code, why) = program.fails("bucket.store('n', 2) or bucket.wait('n', 2)");
    assert!(matches!(code, -2 | -4), "{code} {why}");
    let (code, why) = program.fails("bucket.store('n', 2)");
    assert!(code == -2 && why.contains("no agent listens on"), "{code} {why}");
    assert!(why.contains("Start `strongroom ram agent`"), "{why}");
    program.does("memory[0:4] = b'more'");
    // The counter ends by itself when a call fails; its output says which.
    let mut said = String::new();
    let stderr = counter.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut said).unwrap();
    assert_eq!(counter.wait().unwrap().code(), Some(1));
    assert!(said.starts_with("counter: store: ") && said.contains("agent"), "{said}");

    let agent = Agent::start(&world);
    program.does("bucket.store('n', 2)");
    program.does("bucket.wait('n', 2)");
    program.does("memory[0:4] = bytes(4)");
    program.does("bucket.load('n', 2)");
    program.has("memory[0:4] == b'more' and memory[4:] == noise(3_000_000, 1)[4:]");
    agent.stop();
    world.say("verify --data").exits(0);
}

#[test]
fn a_program_that_dies_while_it_frees_its_memory_has_it_stored() {
    let world = World::with_repository();
    let _agent = Agent::start(&world);
    let blocked = world.path("blocked");
    let mut program = Driven::with_bucket(&world, "cache", 0);
    program.does("memory = bytearray(noise(1_000_000, 4))");
    program.does("bucket.region('memory', memory)");
    let block = format!("lambda: block({:?})", blocked.to_str().unwrap());
    program.does(&format!("bucket.on_quiesce(lambda: 0, lambda: 0, {block})"));
    program.begin("bucket.evict()");
    eventually("the callback", || blocked.exists());
    program.kill();

    let mut next = Driven::with_bucket(&world, "cache", 0);
    next.does("memory = bytearray(1_000_000)");
    next.does("bucket.region('memory', memory)");
    next.does("bucket.load('evicted', bucket.test('evicted'))");
    next.has("memory == noise(1_000_000, 4)");
}

#[test]
fn a_full_repository_fails_with_words_and_keeps_the_memory() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::empty();
    let repository = world.repository();
    let disk = Disk::mount(&repository, "8M");
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let disk = disk.unwrap();
    world.run(["init"].iter().chain(&CHEAP)).exits(0);
    let _agent = Agent::start(&world);
    let mut program = Driven::with_bucket(&world, "orders", 0);
    program.does("freed, memory = [], bytearray(noise(1_000_000, 6))");
    program.does("bucket.on_quiesce(lambda: 0, lambda: 0, lambda: freed.append(1))");
    program.does("bucket.region('memory', memory)");
    program.does("bucket.store('n', 1)");
    program.does("bucket.wait('n', 1)");

    program.does("more = bytearray(noise(20_000_000, 7))");
    program.does("bucket.region('more', more)");
    program.does("bucket.store('n', 2)");
    let (code, why) = program.fails("bucket.wait('n', 2)");
    assert!(code == -5 && why.contains("version 2 of n is not stored"), "{code} {why}");
    assert!(why.contains("space"), "{why}");
    assert!(Agent::log(&world).contains("bucket 0 of orders was not stored"));
    let (code, why) = program.fails("bucket.evict()");
    assert!(code == -5 && why.contains("space"), "{code} {why}");
    program.has("freed == [] and memory == noise(1_000_000, 6) and more == noise(20_000_000, 7)");
    assert_eq!(program.does("bucket.test('n')"), 1);
    world.say("verify --data").exits(0);

    disk.grow("100M");
    program.does("bucket.store('n', 2)");
    program.does("bucket.wait('n', 2)");
    program.does("bucket.evict()");
    program.has("freed == [1]");
    world.say("verify --data").exits(0);
}

/// A program that holds still when it is asked, or is held up in that callback for ever.
fn in_a_round(world: &World, number: u32, quiesce: &str) -> Driven {
    let mut program = Driven::with_bucket(world, "plate", number);
    program.does("held, memory = [], bytearray(noise(1_000_000, 8))");
    program.does("bucket.region('memory', memory)");
    let range = if number == 0 { "b'', b'm'" } else { "b'm'" };
    program.does(&format!("bucket.range({range})"));
    program.does(&format!("bucket.on_quiesce(lambda: {quiesce}, lambda: held.append('resumed'))"));
    program
}

#[test]
fn a_program_that_dies_while_it_holds_still_ends_its_round() {
    let world = World::with_repository();
    let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = probe.local_addr().unwrap();
    drop(probe);
    let cluster = world.path("cluster").display().to_string();
    world.say(&format!("ram cluster add {cluster} one={address}")).exits(0);
    let _agent = Agent::start_as_node(&world);
    let store = format!("ram cluster store plate --cluster {cluster} --deadline 20 --tries 1");
    let blocked = world.path("blocked");
    let block = format!("block({:?})", blocked.to_str().unwrap());

    // Killed in the callback.
    let mut calm = in_a_round(&world, 0, "held.append('still')");
    let stuck = in_a_round(&world, 1, &block);
    let round = world.start(&store);
    eventually("the callback", || blocked.exists());
    std::thread::sleep(Duration::from_millis(200));
    stuck.kill();
    let run = World::finish(round).exits(1);
    assert!(run.err.contains("its program ended"), "{run:?}");
    eventually_resumed(&mut calm);

    // Killed while it holds still, and another does not yet.
    fs::remove_file(&blocked).unwrap();
    let stuck = in_a_round(&world, 1, &block);
    let round = world.start(&store);
    eventually("the callback", || blocked.exists());
    std::thread::sleep(Duration::from_millis(200));
    calm.has("held[-1] == 'still'");
    calm.kill();
    std::thread::sleep(Duration::from_millis(200));
    stuck.kill();
    let run = World::finish(round).exits(1);
    assert!(run.err.contains("its program ended"), "{run:?}");
    assert!(versions(&world, "n").is_empty());

    // The agent is well: it serves calls, and rounds.
    let mut first = in_a_round(&world, 0, "held.append('still')");
    let mut second = in_a_round(&world, 1, "held.append('still')");
    first.does("bucket.store('n', 1)");
    first.does("bucket.wait('n', 1)");
    world.say(&store).exits(0).says("stored 2 buckets of plate");
    for program in [&mut first, &mut second] {
        eventually_resumed(program);
    }
}

/// Waits until a program that held still was let go.
fn eventually_resumed(program: &mut Driven) {
    for _ in 0..200 {
        if program.does("held[-1]") == "resumed" {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it is not let go");
}
