//! Nodes on this machine whose programs claim too much, or have nothing: what is stored of them, and how
//! a lost node is recovered by what the book says.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};

use strongroom_bucket::{Bucket, KeyRange, Owner};

use super::nodes::start_agent;
use crate::world::{Run, World, program};

/// Agents of a cluster on this machine, killed at the end.
struct Nodes<'w> {
    world: &'w World,
    agents: Vec<(&'static str, Child)>,
}

impl<'w> Nodes<'w> {
    fn start(world: &'w World, names: &[&'static str]) -> Self {
        let address = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = world.path("cluster").display().to_string();
        let mut add = vec!["ram".to_owned(), "cluster".to_owned(), "add".to_owned(), folder];
        add.extend(names.iter().map(|name| format!("{name}={}", address())));
        world.run(&add).exits(0);
        let agent =
            |name: &&'static str| (*name, start_agent(world, name, Command::new(program())));
        Self { world, agents: names.iter().map(agent).collect() }
    }

    fn say(&self, words: &str) -> Run {
        self.world
            .say(&format!("ram cluster {words} --cluster {}", self.world.path("cluster").display()))
    }

    fn kill(&mut self, name: &str) {
        let (_, agent) = self.agents.iter_mut().find(|(other, _)| *other == name).unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    /// A program on a node, with memory that has this in it.
    fn program(&self, node: &str, number: u32, content: u8, keys: Option<(&str, &str)>) -> Program {
        let socket = self.world.path(&format!("{node}.sock"));
        let bucket = Bucket::open(Some(&socket), "sales", number).unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memory = File::from(rustix::fs::memfd_create("sales", flags).unwrap());
        memory.set_len(BYTES).unwrap();
        if content > 0 {
            memory.write_all_at(&vec![content; BYTES as usize], 0).unwrap();
        }
        bucket.region("records", memory.as_fd(), None, BYTES).unwrap();
        if let Some((low, high)) = keys {
            let high = (!high.is_empty()).then(|| high.as_bytes().to_vec());
            bucket.range(&KeyRange { low: low.as_bytes().to_vec(), high }, 0).unwrap();
        }
        bucket.on_quiesce(Box::new(Still)).unwrap();
        // The agent has heard all of it.
        bucket.test("any").unwrap();
        Program { _bucket: bucket, memory }
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        for (_, agent) in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

const BYTES: u64 = 100_000;

struct Program {
    _bucket: Bucket,
    memory: File,
}

impl Program {
    #[track_caller]
    fn has(&self, content: u8) {
        let mut bytes = vec![0; BYTES as usize];
        self.memory.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == content), "{} and not {content}", bytes[0]);
    }
}

struct Still;

impl Owner for Still {
    fn quiesce(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn resume(&mut self) {}

    fn evict(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn kept_1_11_keys_on_two_nodes_are_stored_by_none_and_named() {
    let world = World::with_repository();
    let nodes = Nodes::start(&world, &["one", "two", "three"]);
    let _first = nodes.program("one", 0, 1, Some(("", "g")));
    let second = nodes.program("two", 1, 5, Some(("g", "p")));
    let _third = nodes.program("three", 2, 3, Some(("p", "")));
    nodes.say("store sales").exits(0).says("stored 3 buckets");
    // An old copy of the second comes back; or another bucket has its keys.
    for (number, keys) in [(1, ("g", "p")), (7, ("g", "p")), (7, ("a", "c")), (7, ("", ""))] {
        let double = nodes.program("three", number, 9, Some(keys));
        let status = nodes.say("status sales").exits(3).warns("claimed twice: ");
        let status = status.warns(&format!("bucket {number} on node three"));
        assert!(!status.err.contains("no node has these keys"), "{status:?}");
        for words in ["store sales", "store sales --evict"] {
            for _ in 0..3 {
                let refused = nodes.say(&format!("{words} --deadline 1 --tries 1")).exits(1);
                refused.warns("claimed twice: ").warns(&format!("bucket {number} on node three"));
            }
        }
        second.has(5);
        double.has(9);
    }
    nodes.say("store sales").exits(0).says("stored 3 buckets");
    nodes.say("status sales").exits(0).says("3 nodes, all keys");
}

/// By the chapter of the book, word by word.
#[test]
fn kept_1_11_a_lost_node_is_recovered() {
    for keys in [None, Some(("m", ""))] {
        let world = World::with_repository();
        let mut nodes = Nodes::start(&world, &["one", "two"]);
        let first = nodes.program("one", 0, 1, Some(("", "m")));
        let second = nodes.program("two", 1, 2, Some(("m", "")));
        nodes.say("store sales").exits(0).says("stored 2 buckets");
        nodes.kill("two");
        drop(second);
        let status = nodes.say("status sales").exits(3);
        status.warns("node two does not answer").warns("no node has these keys: from m");
        let refused = nodes.say("store sales --deadline 1 --tries 1").exits(1);
        refused.warns("node two: it does not say what it has").warns("from m");
        // Its program is started elsewhere, without data; it may even say which keys it has.
        let again = nodes.program("one", 1, 0, keys);
        let refused = nodes.say("store sales --deadline 1 --tries 1 --without two").exits(1);
        let refused = refused.warns("no bucket is ready for these keys: from m");
        if keys.is_some() {
            refused.warns("bucket 1 on node one: it is empty");
        }
        first.memory.write_all_at(b"newer", 0).unwrap();
        nodes.say("load sales").exits(0).says("loaded 1 bucket").warns("left as they are");
        again.has(2);
        let mut newer = [0; 5];
        first.memory.read_exact_at(&mut newer, 0).unwrap();
        assert_eq!(&newer, b"newer", "what is in memory stays as it is");
        nodes.say("store sales --without two").exits(0).says("stored 2 buckets");
        nodes.say("load sales").exits(1).warns("all buckets of sales are in memory already");
        let unknown = nodes.say("store sales --without four").exits(1);
        unknown.warns("there is no node four in the cluster");
    }
}

#[test]
fn kept_1_11_zeros_are_stored_only_over_nothing_or_if_that_is_wanted() {
    let world = World::with_repository();
    let nodes = Nodes::start(&world, &["one"]);
    let program = nodes.program("one", 0, 0, Some(("", "")));
    nodes.say("store sales").exits(0).says("stored 1 bucket");
    nodes.say("store sales --deadline 1 --tries 1").exits(1).warns("it is empty: load it");
    nodes.say("store sales --accept-empty").exits(0).says("stored 1 bucket");
    program.memory.write_all_at(b"x", BYTES - 1).unwrap();
    nodes.say("store sales").exits(0).says("stored 1 bucket");
    let listed = world.run(["snapshots", "--json"]).exits(0).events("snapshot");
    assert!(listed.len() >= 3);
}
