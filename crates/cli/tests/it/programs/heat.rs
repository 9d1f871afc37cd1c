//! A program that uses VELOC, on one process and on three: killed between its checkpoints, it goes on
//! from the newest one, and computes what it computes without being killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::surroundings::{Agent, compile, eventually, of_tree, socket, surround, versions};
use crate::world::{World, has_program, skipped};

const STEPS: u64 = 120;
const EACH: u64 = 10;

/// Which processes are killed.
#[derive(Debug, Clone, Copy)]
enum Killed {
    Last,
    All,
}

struct Heat<'w> {
    world: &'w World,
    program: PathBuf,
    ranks: usize,
    checkpoint: &'static str,
}

/// What the ranks said, by rank.
#[derive(Debug, PartialEq)]
struct Said {
    began: Vec<u64>,
    ended: Vec<u64>,
}

impl<'w> Heat<'w> {
    fn new(world: &'w World, ranks: usize, checkpoint: &'static str) -> Self {
        let (compiler, kind) =
            if ranks == 1 { ("cc", "-DVELOC_NO_MPI") } else { ("mpicc", "-DWITH_MPI") };
        let include = of_tree("crates/veloc/include");
        let include = format!("-I{}", include.display());
        let source = "crates/veloc/tests/it/programs/heat.c";
        let program = compile(world, compiler, source, &[kind, &include, "-lveloc-client"]);
        let configuration = format!(
            "scratch = {}\nmode = async\nstrongroom_file = plate\nstrongroom_socket = {}\n",
            world.path("scratch").display(),
            socket(world).display()
        );
        fs::write(world.path("veloc.cfg"), configuration).unwrap();
        Self { world, program, ranks, checkpoint }
    }

    fn start(&self, pause_microseconds: u32) -> Child {
        let mut command = Command::new(&self.program);
        if self.ranks > 1 {
            command = Command::new("mpirun");
            command.args(["-n", &self.ranks.to_string()]).arg(&self.program);
        }
        command.args(["300", &STEPS.to_string(), &EACH.to_string()]);
        command.arg(pause_microseconds.to_string()).arg(self.world.path("veloc.cfg"));
        surround(self.world, &mut command);
        command.arg(self.checkpoint).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Runs to the end.
    fn finish(&self) -> Said {
        let ended = self.start(0).wait_with_output().unwrap();
        let output = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success(), "{output}{}", Agent::log(self.world));
        let of = |what: &str| -> Vec<u64> {
            let number = |rank: usize| {
                let begin = format!("rank {rank} {what} ");
                let line = output.lines().find_map(|line| line.strip_prefix(begin.as_str()));
                line.unwrap_or_else(|| panic!("no {begin} in {output}")).parse().unwrap()
            };
            (0..self.ranks).map(number).collect()
        };
        Said { began: of("begins at"), ended: of("ends with") }
    }

    /// Runs until each rank has checkpoints, and kills.
    fn kill(&self, killed: Killed) {
        let mut child = self.start(20_000);
        // Kept to the end: a program whose output is closed would end.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut processes: Vec<Pid> = Vec::new();
        while processes.len() < self.ranks {
            let line = lines.next().expect("each rank says its process").unwrap();
            if let Some((_, number)) = line.split_once(" is process ") {
                processes.push(Pid::from_raw(number.parse().unwrap()).unwrap());
            }
        }
        eventually("each rank has three checkpoints", || {
            versions(self.world, "heat").len() >= 3 * self.ranks
        });
        let chosen = match killed {
            Killed::Last => &processes[processes.len() - 1..],
            Killed::All => &processes[..],
        };
        for process in chosen {
            kill_process(*process, Signal::KILL).unwrap();
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
    }
}

fn check(ranks: usize, checkpoint: &'static str, killed: Killed) {
    if ranks > 1 && skipped("ranks", (!has_program("mpirun")).then_some("mpich is missing")) {
        return;
    }
    let calm = World::with_repository();
    let _calm_agent = Agent::start(&calm);
    let expected = Heat::new(&calm, ranks, checkpoint).finish();
    assert!(expected.began.iter().all(|began| *began == 0));

    let world = World::with_repository();
    let _agent = Agent::start(&world);
    let heat = Heat::new(&world, ranks, checkpoint);
    heat.kill(killed);
    let said = heat.finish();
    let began = said.began[0];
    assert!((1..STEPS).contains(&began) && began.is_multiple_of(EACH), "{said:?}");
    assert!(said.began.iter().all(|other| *other == began), "{said:?}");
    assert_eq!(said.ended, expected.ended);
    // What is stored last is the same, too.
    assert_eq!(last_states(&world, ranks, checkpoint), last_states(&calm, ranks, checkpoint));
    world.run(["verify", "--data"]).exits(0);
}

/// What is stored of each rank at the end, without the addresses of its memory.
fn last_states(world: &World, ranks: usize, checkpoint: &str) -> Vec<Vec<u8>> {
    let area = if checkpoint == "file" { "file" } else { "1" };
    let last = versions(world, "heat").into_iter().filter(|(version, _)| *version == STEPS);
    let snapshots: Vec<String> = last.map(|(_, snapshot)| snapshot).collect();
    assert_eq!(snapshots.len(), ranks);
    let of_rank = |rank: usize| {
        let folder = format!("/plate/{rank}/{area}");
        let found = snapshots.iter().map(|id| world.run(["cat", &format!("{id}:{folder}")]));
        let found = found.into_iter().find(|run| run.code == Some(0));
        found.unwrap_or_else(|| panic!("no snapshot has {folder}")).bytes
    };
    (0..ranks).map(of_rank).collect()
}

#[test]
fn a_process_goes_on_with_its_regions() {
    check(1, "regions", Killed::Last);
}

#[test]
fn a_process_goes_on_with_its_file() {
    check(1, "file", Killed::Last);
}

#[test]
fn ranks_go_on_after_one_was_killed() {
    check(3, "regions", Killed::Last);
}

#[test]
fn ranks_go_on_after_all_were_killed() {
    check(3, "file", Killed::All);
}
