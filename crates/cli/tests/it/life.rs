//! A short life of what real data has and small trees do not: a directory of very many names, and a
//! file whose recipe has nodes above nodes. Both go through every verb that removes, moves, copies or
//! mends, and after each the snapshots are compared with the trees that were backed up.
//!
//! Two lives: one of 20,000 names with the limits of the program, one with small limits
//! ([`SizeLimits`]), in which all recipes and trees have nodes three levels deep. Two readers look:
//! our own, and `docs/format/restore.py`. `campaign/life` is the long form.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_base::SizeLimits;
use strongroom_testkit::Random;

use crate::world::program;

const PASSPHRASE: &str =
    "strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

/// One life: a source that changes, a repository, a replica, and what each snapshot must give back.
struct Life {
    folder: tempfile::TempDir,
    python: Option<String>,
    /// The seed of small limits.
    limits: Option<u64>,
    /// Snapshots, and copies of the trees that they are of; the newest last.
    kept: Vec<(String, PathBuf)>,
    /// How many copies were made.
    copies: u32,
}

impl Life {
    fn new(limits: Option<u64>) -> Self {
        let in_memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let python = std::env::var("STRONGROOM_TEST_PYTHON").ok();
        if python.is_none() {
            strongroom_testkit::skip("STRONGROOM_TEST_PYTHON is not set; ./test sets it");
        }
        Self { folder: in_memory.unwrap(), python, limits, kept: Vec::new(), copies: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// Runs the program on one of the repositories, and returns what it printed.
    #[track_caller]
    fn run(&self, room: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program());
        command.arg("--repo").arg(self.path(room)).arg("--cache").arg(self.path("cache"));
        command.args(arguments).env("STRONGROOM_PASSWORD", PASSPHRASE);
        command.env("XDG_CONFIG_HOME", self.path("config"));
        if let Some(seed) = self.limits {
            command.env("STRONGROOM_TEST_LIMITS", seed.to_string());
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}\n{said}\n{error}", output.status);
        said
    }

    #[track_caller]
    fn strongroom(&self, arguments: &[&str]) -> String {
        self.run("room", arguments)
    }

    /// Backs the source up, without what `excluded` matches, and keeps a copy of it beside.
    fn back_up(&mut self, excluded: Option<&str>) {
        let source = self.source();
        let mut arguments = vec!["--json", "backup", source.to_str().unwrap()];
        arguments.extend(excluded.iter().flat_map(|pattern| ["--exclude", *pattern]));
        let said = self.strongroom(&arguments);
        let (_, after) = said.split_once("\"snapshot\":\"").expect("a summary names its snapshot");
        let id = after.split('"').next().unwrap().to_owned();
        self.copies += 1;
        let copy = self.path(&format!("copy-{}", self.copies));
        let status = Command::new("cp").arg("-a").args([&source, &copy]).status().unwrap();
        assert!(status.success());
        if let Some(name) = excluded {
            fs::remove_dir_all(copy.join(name)).unwrap();
            let modified = source.metadata().unwrap().modified().unwrap();
            fs::File::open(&copy).unwrap().set_modified(modified).unwrap();
        }
        self.kept.push((id, copy));
    }

    /// Every snapshot restores equal by our reader, the newest also by the second one, and a
    /// verification that reads everything finds nothing.
    #[track_caller]
    fn check(&self, room: &str, after: &str) {
        let verified = self.run(room, &["verify", "--data"]);
        assert!(verified.contains("no damage was found"), "after {after}: {verified}");
        for (id, copy) in &self.kept {
            // Nothing is deleted from a directory that a snapshot has only a part of.
            let target = self.path(&format!("restored-{}", copy.file_name().unwrap().display()));
            let what = format!("{id}:{}", self.source().display());
            let into = ["restore", &what, "--delete", "--target", target.to_str().unwrap()];
            self.run(room, &into);
            assert_same(copy, &target, &format!("{id} after {after}"));
        }
        if let (Some(python), Some((id, copy))) = (&self.python, self.kept.last()) {
            let out = self.path("by-python");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/restore.py");
            let mut command = Command::new(python);
            command.arg(script).arg(self.path(room)).arg(id).arg(&out);
            let status = command.env("STRONGROOM_PASSWORD", PASSPHRASE).status().unwrap();
            assert!(status.success(), "restore.py after {after}: {status}");
            let top = out.join(self.source().strip_prefix("/").unwrap());
            assert_same(copy, &top, &format!("restore.py after {after}"));
            fs::remove_dir_all(&out).unwrap();
        }
    }

    /// Changes one byte in the middle of each arena that `choose` names. More than one could lie in two
    /// shards of a small arena, which its parity does not bring back.
    fn damage(&self, choose: impl Fn(usize) -> bool) {
        let mut arenas: Vec<PathBuf> =
            fs::read_dir(self.path("room/arenas")).unwrap().map(|it| it.unwrap().path()).collect();
        arenas.sort();
        for (_, arena) in arenas.iter().enumerate().filter(|(place, _)| choose(*place)) {
            let file = fs::File::options().read(true).write(true).open(arena).unwrap();
            let middle = file.metadata().unwrap().len() / 2;
            let mut byte = [0];
            file.read_exact_at(&mut byte, middle).unwrap();
            file.write_all_at(&[byte[0] ^ 0x55], middle).unwrap();
        }
    }

    /// All verbs, one after another.
    fn live(&mut self, names: u64, long_bytes: usize) {
        let many = self.source().join("many");
        let long = self.source().join("long");
        grow(&self.source(), names, long_bytes);
        self.strongroom(&["init", "--kdf-memory", "32KiB"]);
        self.back_up(None);
        self.check("room", "the first backup");
        // Nothing was forgotten: nothing may go.
        self.strongroom(&["prune", "--max-unused", "0"]);
        self.check("room", "a prune without anything forgotten");

        change(&many, &long, names, 1);
        self.back_up(None);
        self.back_up(Some("other"));
        self.strongroom(&["prune", "--max-unused", "0"]);
        self.check("room", "a change and an exclusion");
        let replica = self.path("replica");
        let replica = replica.to_str().unwrap();
        self.strongroom(&["replicate", replica]);

        let (first, _) = self.kept.remove(0);
        self.strongroom(&["forget", &first]);
        self.strongroom(&["prune", "--max-unused", "0"]);
        self.check("room", "a forgotten snapshot and a prune");
        self.strongroom(&["replicate", "--mirror", replica]);
        self.check("replica", "a mirror");

        self.damage(|place| place.is_multiple_of(2));
        self.strongroom(&["repair"]);
        self.check("room", "a repair from parity");
        for arena in fs::read_dir(self.path("room/arenas")).unwrap().step_by(3) {
            fs::remove_file(arena.unwrap().path()).unwrap();
        }
        self.strongroom(&["repair", "--from", replica]);
        self.check("room", "a repair from the replica");

        change(&many, &long, names, 2);
        self.back_up(None);
        // A gathering replaces the newest snapshots by others of the same content.
        self.strongroom(&["forget", "--keep-last", "1"]);
        self.kept.drain(..self.kept.len() - 1);
        self.strongroom(&["prune", "--max-unused", "0", "--defragment"]);
        self.kept.last_mut().unwrap().0 = "latest".to_owned();
        self.check("room", "gathering");
        self.strongroom(&["drill", "--files", "200"]);
        self.strongroom(&["replicate", "--mirror", replica]);
        self.check("replica", "a second mirror");
        // And nothing is stored again.
        let said = self.strongroom(&["--json", "backup", self.source().to_str().unwrap()]);
        let stored = number_in(&said, "bytes_new");
        assert_eq!(stored, 0, "a backup of what is there: {said}");
    }
}

/// A number of the last line of JSON that has it.
fn number_in(said: &str, field: &str) -> u64 {
    let (_, after) = said.rsplit_once(&format!("\"{field}\":")).expect(field);
    after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A directory of this many names, some of them of files that do not compress, a long file, and another
/// directory.
fn grow(source: &Path, names: u64, long_bytes: usize) {
    let mut random = Random::new(46);
    let many = source.join("many");
    fs::create_dir_all(&many).unwrap();
    for number in 0..names {
        let bytes = if number.is_multiple_of(50) { 3000 } else { number as usize % 30 };
        fs::write(many.join(format!("name {number:05}")), random.noise(bytes)).unwrap();
    }
    fs::write(source.join("long"), random.noise(long_bytes)).unwrap();
    for number in 0..30 {
        let folder = source.join("other").join((number % 3).to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(number.to_string()), random.content(5000)).unwrap();
    }
}

/// Changes, adds and removes some names, and a part of the long file.
fn change(many: &Path, long: &Path, names: u64, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..names / 100 {
        let old = many.join(format!("name {:05}", random.below(names)));
        let _ = fs::remove_file(&old);
        if random.once_in(2) {
            fs::write(old, random.noise(40)).unwrap();
        }
        let new = format!("new {seed} {}", random.number());
        fs::write(many.join(new), random.noise(50)).unwrap();
    }
    let mut bytes = fs::read(long).unwrap();
    let middle = bytes.len() / 2;
    bytes.splice(middle..middle + 1000, random.noise(3000));
    fs::write(long, bytes).unwrap();
}

#[track_caller]
fn assert_same(expected: &Path, found: &Path, what: &str) {
    let with_slash = |path: &Path| format!("{}/", path.display());
    let mut command = Command::new("rsync");
    command.args(["-naXAHc", "--delete", "--itemize-changes"]);
    let output = command.args([with_slash(expected), with_slash(found)]).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().take(10).collect();
    assert!(lines.is_empty(), "{what}: {} differences, such as {lines:#?}", said.lines().count());
}

#[test]
fn a_directory_of_20_000_names_and_a_long_file_live_through_every_verb() {
    Life::new(None).live(20_000, 48 << 20);
}

#[test]
fn recipes_and_trees_of_depth_3_live_through_every_verb() {
    let is_deep = |seed: &u64| {
        let drawn = SizeLimits::from_seed(*seed);
        drawn.recipe_depth_min == 3
            && drawn.recipe_refs_max == 1
            && drawn.tree_chunk_bytes_max == 400
    };
    let seed = (0..).find(is_deep).expect("limits like these are drawn");
    Life::new(Some(seed)).live(600, 6 << 20);
}
