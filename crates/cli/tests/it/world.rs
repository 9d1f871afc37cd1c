//! A repository, a tree, and the program, in a folder of their own.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use strongroom_testkit::tree::{TreeOptions, grow};
use tempfile::TempDir;

/// As `key generate` makes them: a passphrase that a person chose takes 8 MiB to open.
pub const PASSPHRASE: &str =
    "strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";
/// Opening a key costs next to nothing.
pub const CHEAP: [&str; 2] = ["--kdf-memory", "32KiB"];
/// The least for a passphrase that a person chose.
pub const CHEAPEST_TYPED: [&str; 2] = ["--kdf-memory", "8MiB"];

/// The program under test: the one in `STRONGROOM_TEST_PROGRAM`, such as that of an older commit
/// (`campaign/findings`), else the one that was built with these tests.
pub fn program() -> PathBuf {
    let other = std::env::var_os("STRONGROOM_TEST_PROGRAM").filter(|name| !name.is_empty());
    other.map_or(PathBuf::from(env!("CARGO_BIN_EXE_strongroom")), PathBuf::from)
}

/// Where a test takes place.
pub struct World {
    pub folder: TempDir,
}

/// What a run of the program gave.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub bytes: Vec<u8>,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }

    /// Fails the test if it ended with another code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n{}\n{}", self.out, self.err);
        self
    }

    /// Fails the test if standard output lacks this.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.out.contains(text), "no {text:?} in\n{}\n{}", self.out, self.err);
        self
    }

    /// Fails the test where standard error lacks this.
    #[track_caller]
    pub fn warns(self, text: &str) -> Self {
        assert!(self.err.contains(text), "no {text:?} in\n{}\n{}", self.out, self.err);
        self
    }

    /// The events of a kind, such as those of a list.
    #[track_caller]
    pub fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        let values = self.out.lines().map(|line| serde_json::from_str(line).expect(line));
        values.filter(|event: &serde_json::Value| event["event"] == kind).collect()
    }

    /// The only line of events that is a summary.
    #[track_caller]
    pub fn summary(&self) -> serde_json::Value {
        let lines = self.out.lines().map(|line| serde_json::from_str(line).expect(line));
        let mut summaries = lines.filter(|line: &serde_json::Value| line["event"] == "summary");
        let summary = summaries.next().expect(&self.out);
        assert!(summaries.next().is_none(), "{}", self.out);
        summary
    }
}

impl World {
    /// An empty folder.
    pub fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// With a repository.
    pub fn with_repository() -> Self {
        let world = Self::empty();
        world.run(["init"].iter().chain(&CHEAP)).exits(0);
        world
    }

    /// With a repository and a tree of everything.
    pub fn with_tree(seed: u64) -> Self {
        let world = Self::with_repository();
        grow(&world.tree(), seed, TreeOptions { entries: 30, ..TreeOptions::default() });
        world
    }

    /// Waits until a backup takes the files that exist for unchanged ever after: what changed
    /// within a minute before a backup is read again by the next.
    pub fn settle(&self) {
        std::thread::sleep(std::time::Duration::from_secs(61));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn repository(&self) -> PathBuf {
        self.path("repository")
    }

    pub fn tree(&self) -> PathBuf {
        self.path("tree")
    }

    /// The program, with nothing of the tester's surroundings.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program());
        command.args(args);
        self.surround(&mut command);
        command
    }

    pub fn surround(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("TZ", "UTC")
            .env("STRONGROOM_REPOSITORY", self.repository())
            .env("STRONGROOM_CACHE", self.path("cache"))
            .env("STRONGROOM_PASSWORD", PASSPHRASE)
            .stdin(Stdio::null());
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Words with blanks between them.
    pub fn say(&self, words: &str) -> Run {
        self.run(words.split(' '))
    }

    /// With bytes on standard input.
    pub fn feed(&self, words: &str, input: &[u8]) -> Run {
        let mut command = self.command(words.split(' '));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Run::of(child.wait_with_output().unwrap())
    }

    pub fn backup(&self) -> Run {
        self.run([OsStr::new("backup"), self.tree().as_os_str()])
    }

    pub fn start(&self, words: &str) -> Child {
        let mut command = self.command(words.split(' '));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn finish(child: Child) -> Run {
        Run::of(child.wait_with_output().unwrap())
    }

    /// Puts a snapshot, or a part of it, into a new folder.
    #[track_caller]
    pub fn restored(&self, what: &str) -> PathBuf {
        let target = self.path("restored");
        let _ = std::fs::remove_dir_all(&target);
        let target_text = target.to_str().unwrap();
        self.run(["restore", what, "--target", target_text]).exits(0);
        target
    }

    /// Where a snapshot has the tree.
    pub fn of(&self, snapshot: &str) -> String {
        format!("{snapshot}:{}", self.tree().display())
    }
}

/// Bytes of all files below a folder.
pub fn bytes_below(folder: &Path) -> u64 {
    let files = strongroom_testkit::damage::files_below(folder);
    files.iter().map(|path| path.metadata().unwrap().len()).sum()
}

/// True for a test that only root can run, or that needs a program that is not installed. Under
/// `./test` such a test fails.
#[track_caller]
pub fn skipped(what: &str, reason: Option<&str>) -> bool {
    strongroom_testkit::skipped(reason.map(|reason| format!("{what}: {reason}")).as_deref())
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).exists())
}
