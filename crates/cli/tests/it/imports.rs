//! Snapshots of restic and Borg, taken over from real repositories of theirs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use strongroom_testkit::tree::{TreeOptions, grow, mutate};

use crate::json::follows_the_schema;
use crate::world::{Run, World, has_program, is_root, skipped};

const PASSPHRASE: &str = "theirs";
const SNAPSHOTS: usize = 20;

/// A world with a repository of another program beside ours.
pub struct Theirs {
    pub world: World,
    program: &'static str,
    /// The folder of an older version of the program.
    older: Option<PathBuf>,
}

/// What was stored with the other program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    started: String,
    host: String,
    labels: Vec<String>,
}

impl Theirs {
    /// None if it cannot be tried here.
    pub fn new(program: &'static str) -> Option<Self> {
        Self::of_version(program, None)
    }

    fn of_version(program: &'static str, older: Option<PathBuf>) -> Option<Self> {
        let lacks = |what: &str| (!has_program(what)).then(|| format!("{what} is not installed"));
        let fuse = (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse".to_owned());
        let reason = lacks(program).or_else(|| lacks("rsync")).or(fuse);
        if skipped("an import", reason.as_deref()) {
            return None;
        }
        let world = World::with_repository();
        std::fs::create_dir(world.path("tmp")).unwrap();
        let theirs = Self { world, program, older };
        match program {
            "restic" => theirs.ask(&["init", "--quiet"]),
            _ => theirs.ask(&["init", "--encryption", "repokey"]),
        };
        Some(theirs)
    }

    #[expect(clippy::disallowed_methods, reason = "a test reads its surroundings")]
    pub fn surround(&self, command: &mut Command) {
        let repository = self.world.path("theirs");
        self.world.surround(command);
        command.env("TMPDIR", self.world.path("tmp")).stdin(Stdio::null());
        command.env("RESTIC_PASSWORD", PASSPHRASE).env("BORG_PASSPHRASE", PASSPHRASE);
        command.env("RESTIC_REPOSITORY", &repository).env("BORG_REPO", &repository);
        // Their caches would hide what is damaged in their repository.
        command.env("RESTIC_CACHE_DIR", self.world.path("their-cache"));
        if let Some(folder) = &self.older {
            let path = std::env::var_os("PATH").unwrap();
            let folders = std::iter::once(folder.clone()).chain(std::env::split_paths(&path));
            command.env("PATH", std::env::join_paths(folders).unwrap());
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = match &self.older {
            Some(folder) => Command::new(folder.join(self.program)),
            None => Command::new(self.program),
        };
        command.args(args);
        self.surround(&mut command);
        command
    }

    /// Runs the other program.
    #[track_caller]
    pub fn ask(&self, args: &[&str]) -> Run {
        let run = Run::of(self.command(args).output().unwrap());
        // A warning of Borg's.
        let is_good = run.code == Some(0) || (self.program == "borg" && run.code == Some(1));
        assert!(is_good, "{args:?}\n{}\n{}", run.out, run.err);
        run
    }

    /// Ours, to import theirs.
    pub fn import_command(&self, args: &[&str]) -> Command {
        let from = self.world.path("theirs");
        let mut command = self.world.command(["--json", "import", self.program]);
        command.arg(from).args(args);
        self.surround(&mut command);
        command
    }

    pub fn import(&self, args: &[&str]) -> Run {
        let run = Run::of(self.import_command(args).output().unwrap());
        self.assert_tidy();
        run
    }

    /// No folder and no mount is left.
    #[track_caller]
    pub fn assert_tidy(&self) {
        let left: Vec<_> = std::fs::read_dir(self.world.path("tmp")).unwrap().collect();
        let left: Vec<_> = left.into_iter().map(|entry| entry.unwrap().file_name()).collect();
        let ours = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with("strongroom");
        assert_eq!(left.iter().find(ours), None);
        let folder = self.world.path("").display().to_string();
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(folder.trim_end_matches('/')), "{mounts}");
    }

    /// Stores the tree with the other program. Each is of another day.
    pub fn store(&self, number: usize) -> Stored {
        let tree = self.world.tree();
        let tree = tree.to_str().unwrap();
        let day = format!("2021-02-{:02}", number + 1);
        let host = if number.is_multiple_of(7) { "other" } else { "web" };
        let tag = format!("n{number}");
        let started = format!("{day}T03:04:05Z");
        match self.program {
            "restic" => {
                let time = format!("{day} 03:04:05");
                let tags = format!("{tag},all");
                self.ask(&[
                    "backup", "--quiet", "--time", &time, "--tag", &tags, "--host", host, tree,
                ]);
                Stored { started, host: host.to_owned(), labels: vec![tag, "all".to_owned()] }
            }
            _ => {
                let time = format!("{day}T03:04:05");
                let place = format!("::{tag}");
                self.ask(&["create", "--timestamp", &time, "--comment", "all", &place, tree]);
                let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
                Stored { started, host, labels: vec![tag, "all".to_owned()] }
            }
        }
    }

    /// Restores a snapshot with the other program.
    fn restored(&self, name: &str) -> PathBuf {
        let target = self.world.path(&format!("theirs-{name}"));
        let mut command = match self.program {
            "restic" => {
                self.command(&["restore", "--quiet", name, "--target", target.to_str().unwrap()])
            }
            _ => {
                std::fs::create_dir(&target).unwrap();
                let place = format!("::{name}");
                let mut command = self.command(&["extract", "--numeric-ids", &place]);
                command.current_dir(&target);
                command
            }
        };
        let run = Run::of(command.output().unwrap());
        assert!(run.code.is_some_and(|code| code <= 1), "{}", run.err);
        target
    }

    /// What differs between a snapshot and what the other program restores of it.
    fn differences(&self, imported: &Value) -> String {
        let (ours, name) =
            (imported["snapshot"].as_str().unwrap(), imported["name"].as_str().unwrap());
        let target = self.world.path(&format!("ours-{name}"));
        let target_text = target.to_str().unwrap();
        self.world.run(["restore", ours, "--numeric-owner", "--target", target_text]).exits(0);
        let theirs = self.restored(name);
        let tree = self.world.tree();
        let below = tree.strip_prefix("/").unwrap();
        let mut rsync = Command::new("rsync");
        // Down to the nanosecond.
        rsync.args(["-aHAX", "--numeric-ids", "--checksum", "--dry-run", "-i", "--delete"]);
        rsync.arg("--modify-window=-1");
        rsync.arg(format!("{}/", theirs.join(below).display()));
        rsync.arg(format!("{}/", target.join(below).display()));
        let run = Run::of(rsync.output().unwrap()).exits(0);
        assert!(target.join(below).is_dir());
        std::fs::remove_dir_all(&theirs).unwrap();
        std::fs::remove_dir_all(&target).unwrap();
        run.out
    }

    /// The snapshots that our repository has, oldest first.
    pub fn snapshots(&self) -> Vec<Value> {
        let run = self.world.say("--json snapshots").exits(0);
        events(&run, "snapshot")
    }
}

fn events(run: &Run, name: &str) -> Vec<Value> {
    let lines = run.out.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    lines.filter(|event| event["event"] == name).collect()
}

fn stored(event: &Value) -> Stored {
    let text = |key: &str| event[key].as_str().unwrap().to_owned();
    let labels = event["labels"].as_array().unwrap().iter();
    let labels = labels.map(|label| label.as_str().unwrap().to_owned()).collect();
    let started = text("started");
    let started = started.split_once('.').map_or(started.clone(), |(whole, _)| format!("{whole}Z"));
    Stored { started, host: text("host"), labels }
}

/// Twenty snapshots of a tree of everything, compared one by one.
fn takes_over_all(program: &'static str, seed: u64) {
    if skipped("owners and devices", (!is_root()).then_some("only root makes them")) {
        return;
    }
    let Some(theirs) = Theirs::new(program) else { return };
    let options = TreeOptions { entries: 40, ..TreeOptions::default() };
    let tree = theirs.world.tree();
    grow(&tree, seed, options);
    add_what_grow_has_not(&tree);
    let mut all = Vec::new();
    for number in 0..SNAPSHOTS {
        all.push(theirs.store(number));
        mutate(&tree, seed + number as u64, options);
    }
    let planned = theirs.import(&["--dry-run"]).exits(0);
    follows_the_schema(&planned);
    assert_eq!(events(&planned, "planned").len(), SNAPSHOTS);
    assert_eq!(theirs.snapshots().len(), 0);
    // Two of them first, so that what follows is not in the order of the times.
    let named = events(&planned, "planned");
    let name = |place: usize| named[place]["name"].as_str().unwrap().to_owned();
    let some = theirs.import(&["--snapshot", &name(1), "--snapshot", &name(12)]).exits(0);
    assert_eq!(some.summary()["imported"], 2);
    let rest = theirs.import(&[]).exits(0);
    follows_the_schema(&rest);
    assert_eq!((&rest.summary()["imported"], &rest.summary()["known"]), (&18.into(), &2.into()));
    assert_eq!(theirs.import(&[]).exits(0).summary()["imported"], 0);

    let listed = theirs.snapshots();
    assert_eq!(listed.iter().map(stored).collect::<Vec<_>>(), all);
    for snapshot in &listed {
        assert_eq!(snapshot["paths"], json!([tree.to_str().unwrap()]));
        assert_eq!(snapshot["origin"]["program"], program);
    }
    let imported = [events(&some, "imported"), events(&rest, "imported")].concat();
    // What did not change since the snapshot before is not read.
    let sum = |key: &str| imported.iter().filter_map(|event| event[key].as_u64()).sum::<u64>();
    assert!(sum("files_unchanged") > sum("files_read"), "{}", rest.out);
    std::thread::scope(|scope| {
        let all: Vec<_> = imported
            .chunks(SNAPSHOTS.div_ceil(4))
            .map(|some| {
                let theirs = &theirs;
                scope.spawn(move || {
                    some.iter().map(|event| theirs.differences(event)).collect::<String>()
                })
            })
            .collect();
        for some in all {
            assert_eq!(some.join().unwrap(), "");
        }
    });
    theirs.world.say("verify").exits(0);
    let first = theirs.world.of(listed[0]["id"].as_str().unwrap());
    let owners = theirs.world.run(["ls", "-l", &first]).exits(0).out;
    for name in ["daemon", "www-data"] {
        assert!(owners.contains(name), "no {name} in {owners}");
    }

    // What was made here is newer than all that was imported, also later.
    theirs.world.backup().exits(0);
    theirs.store(SNAPSHOTS);
    assert_eq!(theirs.import(&[]).exits(0).summary()["imported"], 1);
    let newest = theirs.snapshots().pop().unwrap();
    assert_eq!(newest["origin"], Value::Null, "{newest}");
    theirs.world.say("forget --keep-daily 3").exits(0);
}

/// Rights beyond the mode, a device with a number, and a name that two programs write differently.
fn add_what_grow_has_not(tree: &Path) {
    std::fs::write(tree.join("owned"), "by others").unwrap();
    let shell = "chown 1:33 owned; setfacl -m u:1234:r,g:55:rw list; setfacl -d -m u:99:rwx lists; \
                 setfacl -d -m u::rwx,g::rwx,o::- .; chown 12345:54321 list; chmod 4755 set-uid; chmod 1777 lists; \
                 mknod device c 7 300; mkfifo z-pipe; setfattr -n user.after -v pipe zz; \
                 ln list lists/linked";
    std::fs::write(tree.join("list"), "rights").unwrap();
    std::fs::write(tree.join("set-uid"), "").unwrap();
    std::fs::write(tree.join("zz"), "behind what has no attributes").unwrap();
    std::fs::create_dir(tree.join("lists")).unwrap();
    let name = OsStr::from_bytes(b"skull-\xf0\x9f\x92\x80-\xff\xfe");
    std::fs::write(tree.join(name), "1").unwrap();
    let status = Command::new("/bin/sh").args(["-ec", shell]).current_dir(tree).status();
    assert!(status.unwrap().success());
}

#[test]
fn every_snapshot_of_restic_is_taken_over() {
    takes_over_all("restic", 71);
}

#[test]
fn what_restic_was_given_as_a_relative_path_is_listed_where_it_keeps_it() {
    let Some(theirs) = Theirs::new("restic") else { return };
    let folder = theirs.world.path("home");
    std::fs::create_dir_all(folder.join("papers")).unwrap();
    std::fs::create_dir_all(folder.join("elsewhere")).unwrap();
    std::fs::write(folder.join("papers/one"), "1").unwrap();
    std::fs::write(folder.join("elsewhere/two"), "2").unwrap();
    for (day, paths) in [(1, "papers"), (2, "papers"), (3, "."), (4, "../home/papers")] {
        let mut command =
            theirs.command(&["backup", "--quiet", "--time", &format!("2021-02-{day:02} 03:04:05")]);
        Run::of(command.arg(paths).current_dir(&folder).output().unwrap()).exits(0);
    }
    let run = theirs.import(&[]).exits(0);
    assert_eq!(run.out.matches("as a relative path").count(), 3, "{}", run.out);
    let listed = theirs.snapshots();
    let expected = [
        (json!(["/papers"]), "/papers/one"),
        (json!(["/papers"]), "/papers/one"),
        (json!(["/elsewhere", "/papers"]), "/elsewhere/two"),
        (json!(["/home/papers"]), "/home/papers/one"),
    ];
    for (snapshot, (paths, file)) in listed.iter().zip(expected) {
        assert_eq!(snapshot["paths"], paths);
        let id = snapshot["id"].as_str().unwrap();
        let names = theirs.world.run(["ls", "--recursive", id]).exits(0).out;
        assert!(names.contains(file.trim_start_matches('/')), "{names}");
    }
}

#[test]
fn a_restic_whose_mount_shows_too_little_is_refused() {
    let folder = strongroom_testkit::servers::installed("restic-0.14");
    let Some(theirs) = Theirs::of_version("restic", Some(folder)) else { return };
    let run = theirs.import(&[]).exits(1);
    assert!(run.out.contains("restic 0.14.0 is too old"), "{}", run.out);
    let newer = Theirs { older: None, ..theirs };
    newer.import(&[]).exits(0);
}

#[test]
fn every_archive_of_borg_is_taken_over() {
    takes_over_all("borg", 72);
}

/// A tree of a few files.
pub fn few(program: &'static str, snapshots: usize) -> Option<Theirs> {
    let theirs = Theirs::new(program)?;
    std::fs::create_dir(theirs.world.tree()).unwrap();
    for number in 0..snapshots {
        let content = format!("{number}").repeat(100_000);
        std::fs::write(theirs.world.tree().join(format!("f{number}")), content).unwrap();
        theirs.store(number);
    }
    Some(theirs)
}

/// Returns when the first snapshot was imported; reads on, so that the program never waits for it.
pub fn wait_for_the_first(child: &mut Child) {
    let output = BufReader::new(child.stdout.take().unwrap());
    let (send, first) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if line.contains("\"event\":\"imported\"") {
                let _ = send.send(());
            }
        }
    });
    first.recv().unwrap();
}

#[test]
fn an_import_that_is_stopped_goes_on() {
    for program in ["restic", "borg"] {
        let Some(theirs) = few(program, 3) else { return };
        let mut command = theirs.import_command(&[]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_the_first(&mut child);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{program}");
        theirs.assert_tidy();
        let before = theirs.snapshots().len();
        assert!((1..3).contains(&before), "{before} snapshots");
        let rest = theirs.import(&[]).exits(0).summary();
        assert_eq!(rest["known"], before);
        assert_eq!(theirs.snapshots().len(), 3);
    }
}

#[test]
fn a_mount_that_dies_harms_no_snapshot() {
    let Some(theirs) = few("restic", 3) else { return };
    let mut command = theirs.import_command(&[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_the_first(&mut child);
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let children = std::fs::read_to_string(children).unwrap();
    let mounts = children.split_whitespace().filter(|pid| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.windows(7).any(|word| word == b"\0mount\0")
    });
    for pid in mounts {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let code = child.wait().unwrap().code();
    theirs.assert_tidy();
    // Between two snapshots it is mounted again; in one, that one is not kept.
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
    theirs.import(&[]).exits(0);
    let listed = theirs.snapshots();
    let files: Vec<u64> = listed.iter().map(|one| one["files"].as_u64().unwrap()).collect();
    assert_eq!(files, [1, 2, 3], "{listed:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_rest_is_taken_over() {
    let Some(theirs) = Theirs::new("restic") else { return };
    let tree = theirs.world.tree();
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("good"), "good").unwrap();
    theirs.store(0);
    let packs = |theirs: &Theirs| {
        strongroom_testkit::damage::files_below(&theirs.world.path("theirs/data"))
    };
    let before = packs(&theirs);
    let noise: Vec<u8> =
        (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(tree.join("bad"), noise).unwrap();
    theirs.store(1);
    let new = packs(&theirs).into_iter().filter(|path| !before.contains(path));
    let largest = new.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    bytes[5000] ^= 1;
    std::fs::remove_file(&largest).unwrap();
    std::fs::write(&largest, bytes).unwrap();
    let run = theirs.import(&[]).exits(3);
    follows_the_schema(&run);
    assert!(run.out.contains("/bad"), "{}\n{}", run.out, run.err);
    assert_eq!(run.summary()["problems"], 1, "{}", run.out);
    assert_eq!(theirs.snapshots().len(), 2);
    let tree = theirs.world.of("latest");
    assert_eq!(theirs.world.run(["cat", &format!("{tree}/good")]).exits(0).out, "good");
}

/// Borg extracts an archive whose paths begin with `./`, and its mount shows nothing of it.
#[test]
fn kept_1_4_an_archive_of_which_the_mount_shows_nothing_is_not_imported() {
    let Some(theirs) = few("borg", 1) else { return };
    let tar = theirs.world.path("t.tar");
    let mut packer = Command::new("tar");
    packer.arg("-C").arg(theirs.world.tree()).arg("-cf").arg(&tar).arg(".");
    assert!(packer.status().unwrap().success());
    theirs.ask(&["import-tar", "::tar", tar.to_str().unwrap()]);
    for imported in [1, 0] {
        let run = theirs.import(&[]).exits(3);
        assert!(run.out.contains("tar was not imported") && run.out.contains("it shows none"));
        let summary = run.summary();
        assert_eq!((&summary["imported"], theirs.snapshots().len()), (&imported.into(), 1));
    }
}

#[test]
fn what_a_person_can_get_wrong_is_explained() {
    let Some(theirs) = few("restic", 1) else { return };
    let fails = |command: &mut Command, code: i32, message: &str| {
        let run = Run::of(command.output().unwrap()).exits(code);
        assert!(run.out.contains(message), "no {message:?} in\n{}\n{}", run.out, run.err);
        theirs.assert_tidy();
    };
    let import = |args: &[&str]| theirs.import_command(args);
    fails(import(&[]).env("RESTIC_PASSWORD", "wrong"), 5, "wrong passphrase for the restic");
    fails(import(&[]).env_remove("RESTIC_PASSWORD"), 5, "was given no passphrase");
    fails(import(&[]).env("PATH", theirs.world.path("tmp")), 1, "restic is not installed");
    fails(&mut import(&["--snapshot", "nonesuch"]), 1, "there is no snapshot");
    fails(
        &mut import(&["--from-password-file", "/nowhere/x"]),
        5,
        "cannot read the passphrase file",
    );
    fails(&mut import(&["--from-password-command", "false"]), 5, "the passphrase command failed");
    let mut other = theirs.world.command(["--json", "import", "restic", "/nowhere/at/all"]);
    theirs.surround(&mut other);
    fails(&mut other, 6, "there is no restic repository at");
    let mut other = theirs.world.command(["--json", "import", "borg", "/nowhere/at/all"]);
    theirs.surround(&mut other);
    fails(&mut other, 6, "there is no borg repository at");

    let secret = theirs.world.path("secret");
    std::fs::write(&secret, format!("{PASSPHRASE}\n")).unwrap();
    let mut good = import(&["--from-password-file", secret.to_str().unwrap()]);
    Run::of(good.env_remove("RESTIC_PASSWORD").output().unwrap()).exits(0);
    let mut good = import(&["--from-password-command", "echo theirs"]);
    let known = Run::of(good.env("RESTIC_PASSWORD", "wrong").output().unwrap()).exits(0);
    assert_eq!(known.summary()["known"], 1);
    // Other tags make it no other snapshot.
    theirs.ask(&["tag", "--set", "new", "latest"]);
    assert_eq!(theirs.import(&[]).exits(0).summary()["known"], 1);
}
