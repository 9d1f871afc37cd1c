//! A program that is killed in the middle and goes on where its last checkpoint was. What it computes
//! is what it computes without being killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Kind, World, eventually};

const STEPS: &str = "120";
const EACH: &str = "10";

/// How a program is run.
struct Run<'w> {
    world: &'w World,
    kind: Kind,
    checkpoint: &'static str,
}

/// What its ranks said, by rank.
#[derive(Debug, Default, PartialEq)]
struct Said {
    began: Vec<u64>,
    ended: Vec<u64>,
}

impl Run<'_> {
    fn ranks(&self) -> u32 {
        if self.kind == Kind::Mpi { 3 } else { 1 }
    }

    fn start(&self, pause_microseconds: &str) -> Child {
        let program = self.world.compile("heat", self.kind);
        let mut command = match self.kind {
            Kind::Single => Command::new(program),
            Kind::Mpi => {
                let mut command = Command::new("mpirun");
                command.args(["-n", "3"]).arg(program);
                command
            }
        };
        command
            .args(["300", STEPS, EACH, pause_microseconds])
            .arg(self.world.configuration())
            .arg(self.checkpoint)
            .env("LD_LIBRARY_PATH", self.world.library())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs to the end.
    fn finish(&self) -> Said {
        let ended = self.start("0").wait_with_output().unwrap();
        let output = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success(), "{output}");
        let of = |what: &str| -> Vec<u64> {
            let begins: Vec<String> =
                (0..self.ranks()).map(|rank| format!("rank {rank} {what} ")).collect();
            let numbers = begins.iter().map(|begin| {
                let line = output.lines().find_map(|line| line.strip_prefix(begin.as_str()));
                line.unwrap_or_else(|| panic!("no {begin} in {output}")).parse().unwrap()
            });
            numbers.collect()
        };
        Said { began: of("begins at"), ended: of("ends with") }
    }

    /// Runs until each rank has checkpoints, and kills the last rank.
    fn kill(&self) {
        let mut child = self.start("10000");
        // Kept to the end: a program whose output is closed would end.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let last = format!("rank {} is process ", self.ranks() - 1);
        let mut process = None;
        for line in lines.by_ref() {
            let line = line.unwrap();
            process = line.strip_prefix(&last).map(|number| number.parse().unwrap());
            if process.is_some() {
                break;
            }
        }
        let have_some = |rank| self.world.archive.versions("plate", rank, "heat").len() >= 3;
        assert!(eventually(|| (0..self.ranks()).all(have_some)));
        let process = Pid::from_raw(process.unwrap()).unwrap();
        kill_process(process, Signal::KILL).unwrap();
        assert!(!child.wait().unwrap().success(), "it was killed");
    }
}

fn check(kind: Kind, checkpoint: &'static str) {
    let calm = World::new();
    let expected = Run { world: &calm, kind, checkpoint }.finish();
    assert!(expected.began.iter().all(|began| *began == 0));

    let world = World::new();
    let run = Run { world: &world, kind, checkpoint };
    run.kill();
    let said = run.finish();
    let began = said.began[0];
    assert!((30..120).contains(&began) && began.is_multiple_of(10), "{said:?}");
    assert!(said.began.iter().all(|other| *other == began), "{said:?}");
    assert_eq!(said.ended, expected.ended);
    let last = world.archive.versions("plate", 0, "heat").last().copied();
    assert_eq!(last, Some(120));
}

#[test]
fn a_program_goes_on_with_its_regions() {
    check(Kind::Single, "regions");
}

#[test]
fn a_program_goes_on_with_its_file() {
    check(Kind::Single, "file");
}

#[test]
fn ranks_go_on_with_their_regions() {
    check(Kind::Mpi, "regions");
}

#[test]
fn ranks_go_on_with_their_files() {
    check(Kind::Mpi, "file");
}
