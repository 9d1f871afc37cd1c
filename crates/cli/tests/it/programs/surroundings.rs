//! What programs with buckets need: the agent, the libraries under the names that they are installed
//! with, and a program that does what a test says.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use strongroom_base::Stopwatch;

use crate::world::World;

/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
#[track_caller]
pub fn eventually(what: &str, is: impl Fn() -> bool) {
    let began = Stopwatch::start();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where programs of a world connect.
pub fn socket(world: &World) -> PathBuf {
    world.path("ram.sock")
}

/// An agent of the repository of a world.
pub struct Agent(Child);

impl Agent {
    pub fn start(world: &World) -> Self {
        Self::start_with(world, &[])
    }

    /// As the node `one` of the cluster in the folder `cluster`.
    pub fn start_as_node(world: &World) -> Self {
        let (node, state) = (world.path("cluster/one.json"), world.path("state"));
        Self::start_with(world, &["--node", &text(&node), "--state", &text(&state)])
    }

    fn start_with(world: &World, more: &[&str]) -> Self {
        let mut command = world.command(["ram", "agent", "--socket", &text(&socket(world))]);
        let log = File::options().create(true).append(true).open(world.path("agent.log")).unwrap();
        command.args(more).stdout(Stdio::piped()).stderr(log);
        let mut agent = command.spawn().unwrap();
        let mut said = BufReader::new(agent.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("serving"), "{line:?} {}", Self::log(world));
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self(agent)
    }

    /// What agents of this world complained of.
    pub fn log(world: &World) -> String {
        fs::read_to_string(world.path("agent.log")).unwrap()
    }

    /// By SIGKILL.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// As a service is stopped.
    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The snapshots of a world that have a version of this name, oldest first: its number, and their id.
pub fn versions(world: &World, name: &str) -> Vec<(u64, String)> {
    let listed = world.run(["snapshots", "--json"]).exits(0).events("snapshot");
    let of_name = |snapshot: &Value| {
        let mut labels = snapshot["labels"].as_array()?.iter().filter_map(Value::as_str);
        let number = labels.find_map(|label| label.strip_prefix(name)?.strip_prefix('@'))?;
        Some((number.parse().ok()?, snapshot["id"].as_str()?.to_owned()))
    };
    listed.iter().filter_map(of_name).collect()
}

/// A folder of this tree, by its path from the root.
pub fn of_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A folder with the libraries under the names that an installation gives them.
#[expect(clippy::disallowed_methods, reason = "Cargo puts the libraries beside the test")]
pub fn libraries(world: &World) -> PathBuf {
    let folder = world.path("lib");
    if folder.exists() {
        return folder;
    }
    fs::create_dir(&folder).unwrap();
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for (from, to) in [
        ("libstrongroom_bucket.so", "libstrongroom-bucket.so"),
        ("libstrongroom_bucket.so", "libstrongroom-bucket.so.0"),
        ("libveloc_client.so", "libveloc-client.so"),
    ] {
        let library = built.join(from);
        assert!(library.is_file(), "cargo test --no-run --package strongroom-veloc makes {from}");
        symlink(library, folder.join(to)).unwrap();
    }
    folder
}

/// Compiles a program in C of this tree.
pub fn compile(world: &World, compiler: &str, source: &str, args: &[&str]) -> PathBuf {
    let source = of_tree(source);
    let output = world.path(&text(Path::new(source.file_stem().unwrap())));
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-o"]).arg(&output).arg(source);
    command.arg("-L").arg(libraries(world)).args(args);
    let compiled = command.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    output
}

/// Has a program find the agent and the libraries.
pub fn surround(world: &World, command: &mut Command) {
    command.env("STRONGROOM_RAM_SOCKET", socket(world));
    command.env("LD_LIBRARY_PATH", libraries(world));
}

/// A program in Python that does what a test says.
pub struct Driven {
    pub process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Driven {
    /// With a bucket that is called `bucket`.
    pub fn with_bucket(world: &World, file: &str, number: u32) -> Self {
        let mut program = Self::start(world);
        program.does(&format!("bucket = Bucket({file:?}, {number})"));
        program
    }

    fn start(world: &World) -> Self {
        let mut command = Command::new("python3");
        surround(world, &mut command);
        command
            .arg(of_tree("crates/cli/tests/it/programs/driven.py"))
            .env("PYTHONPATH", of_tree("crates/bucket/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    /// Carries out a line.
    fn answer(&mut self, line: &str) -> Value {
        self.begin(line);
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{line}: {answer:?} {error}"))
    }

    /// Has it begin what does not return.
    pub fn begin(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Carries out a line that must succeed, and returns its value.
    #[track_caller]
    pub fn does(&mut self, line: &str) -> Value {
        let mut answer = self.answer(line);
        assert!(answer.get("failed").is_none(), "{line}: {answer}");
        answer["value"].take()
    }

    /// Carries out a line that a program asserts.
    #[track_caller]
    pub fn has(&mut self, line: &str) {
        assert_eq!(self.does(line), true, "{line}");
    }

    /// Carries out a call that must fail, and returns the number and the words.
    #[track_caller]
    pub fn fails(&mut self, line: &str) -> (i64, String) {
        let answer = self.answer(line);
        let failed = answer["failed"].as_str().unwrap_or_else(|| panic!("{line}: {answer}"));
        (answer["code"].as_i64().unwrap(), failed.to_owned())
    }

    /// By SIGKILL.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
