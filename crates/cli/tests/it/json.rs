//! What programs read: every command with `--json`, each line compared with docs/json.schema.json.
//!
//! For a new command, or a new event, add a line to a scene below and a definition to the schema:
//! the test names the commands that no scene runs, and the definitions that no line follows.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use strongroom_bucket::{Bucket, KeyRange, Owner};
use strongroom_testkit::Random;
use strongroom_testkit::damage::files_below;

use crate::guests::Guest;
use crate::images::disk_with_files;
use crate::mount::cannot_mount;
use crate::world::{CHEAP, PASSPHRASE, Run, World, skipped};

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.schema.json");

/// Definitions of what other tests compare with the schema, because it takes a server; and of what
/// has no events but errors.
const ELSEWHERE: [&str; 7] = [
    "notice",
    "notified",
    "summary of lock",
    "summary of tui",
    // Of real repositories of other programs: imports.rs.
    "planned",
    "imported",
    "summary of import",
];

/// Reads lines of "definition, tab, JSON", without definition for an event. Prints what is wrong
/// with which line, and then each definition that a line follows.
const JUDGE: &str = r##"
import json, sys
from jsonschema import Draft202012Validator as Validator
schema = json.load(open(sys.argv[1]))
Validator.check_schema(schema)
defs, seen = schema["$defs"], set()
part = {name: Validator({"$defs": defs, **defs[name]}) for name in defs}
whole = Validator(schema)
for line in sys.stdin:
    wanted, text = line.rstrip("\n").split("\t", 1)
    value = json.loads(text)
    event = str(value.get("event"))
    name = wanted or (event if event in defs else f"{event} of {value.get('command')}")
    if name not in part:
        print("wrong: no definition", name, "for", text)
        continue
    seen.add(name)
    errors = [f"{error.json_path}: {error.message}" for error in part[name].iter_errors(value)]
    if not wanted and not errors and not whole.is_valid(value):
        errors = ["it fits more than one definition, or is in none of oneOf"]
    for error in errors:
        print("wrong:", name, error[:400], "in", text[:1000])
for name in defs:
    print("seen:" if name in seen else "unseen:", name)
"##;

/// Fails the test if a line does not follow the schema; gives the definitions that none follows.
fn judge(lines: &str) -> BTreeSet<String> {
    let python = std::env::var("STRONGROOM_TEST_PYTHON").unwrap_or("python3".to_owned());
    let mut command = Command::new(python);
    command.args(["-c", JUDGE, SCHEMA]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines = lines.to_owned();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "is jsonschema installed? ./test does it");
    let said = String::from_utf8(output.stdout).unwrap();
    let wrong: Vec<&str> = said.lines().filter(|line| line.starts_with("wrong:")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unseen = said.lines().filter_map(|line| line.strip_prefix("unseen: "));
    unseen.map(str::to_owned).collect()
}

/// Fails the test if the events of a run do not follow the schema.
#[track_caller]
pub fn follows_the_schema(run: &Run) {
    let lines: String = run.out.lines().map(|line| format!("\t{line}\n")).collect();
    assert!(!lines.is_empty());
    judge(&lines);
}

/// Fails the test if this is not what a webhook gets.
pub fn is_a_notice(body: &Value) {
    judge(&format!("notice\t{body}\n"));
}

/// What the scenes printed.
#[derive(Default)]
struct Book {
    lines: String,
    commands: BTreeSet<String>,
    /// Commands that ended otherwise than they should: all are named at once.
    wrong: Vec<String>,
}

impl Book {
    /// Runs a command in a world, and keeps its events.
    #[track_caller]
    fn say(&mut self, world: &World, words: &str, code: i32) -> Run {
        self.run(world, words.split(' '), code)
    }

    #[track_caller]
    fn run<S: AsRef<OsStr>>(
        &mut self,
        world: &World,
        words: impl IntoIterator<Item = S>,
        code: i32,
    ) -> Run {
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        let mut command = world.command([OsStr::new("--json").to_owned()].into_iter().chain(words));
        self.keep(Run::of(command.output().unwrap()), code)
    }

    #[track_caller]
    fn by_profile(&mut self, world: &World, words: &str, code: i32) -> Run {
        self.keep(Run::of(by_profile(world, words).output().unwrap()), code)
    }

    /// Keeps the events of a command that has ended.
    #[track_caller]
    fn keep(&mut self, run: Run, code: i32) -> Run {
        if run.code != Some(code) || !run.err.is_empty() {
            let place = std::panic::Location::caller();
            self.wrong.push(format!("{place}: not {code}: {run:#?}"));
        }
        self.keep_events(&run.out);
        run
    }

    /// Keeps the events of a command whose standard output is for content.
    #[track_caller]
    fn keep_beside(&mut self, command: &mut Command, code: i32) -> Run {
        let run = Run::of(command.output().unwrap());
        let events =
            Run { out: run.err.clone(), err: String::new(), bytes: Vec::new(), code: run.code };
        self.keep(events, code);
        run
    }

    /// Stops a command after its first event, and keeps all of them.
    #[track_caller]
    fn keep_until_stopped(&mut self, command: &mut Command) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        out.read_to_string(&mut said).unwrap();
        let code = child.wait().unwrap().code();
        self.keep(Run { code, out: said, err: String::new(), bytes: Vec::new() }, 0);
    }

    #[track_caller]
    fn keep_events(&mut self, text: &str) {
        let values: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let is_last = |event: &Value| event["event"] == "summary" || event["event"] == "error";
        assert!(
            values.last().is_some_and(is_last),
            "no summary and no error at the end of\n{text}"
        );
        assert_eq!(values.iter().filter(|event| is_last(event)).count(), 1, "{text}");
        for value in &values {
            self.commands.extend(value["command"].as_str().map(str::to_owned));
        }
        self.lines.extend(text.lines().map(|line| format!("\t{line}\n")));
    }
}

/// The commands that have none below them, as the help lists them.
fn commands_below(world: &World, path: &str) -> Vec<String> {
    let words = path.split(' ').filter(|word| !word.is_empty()).chain(["--help"]);
    let help = world.run(words).exits(0).out;
    let Some((_, list)) = help.split_once("Commands:\n") else { return vec![path.to_owned()] };
    let names = list.lines().take_while(|line| line.starts_with("  "));
    // A long text goes on below, further to the right.
    let names = names.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let paths = names.map(|name| format!("{path} {name}").trim_start().to_owned());
    paths.flat_map(|path| commands_below(world, &path)).collect()
}

#[test]
fn every_command_prints_what_the_schema_says() {
    let mut book = Book::default();
    // Each scene is a story of its own.
    snapshots_and_files(&mut book);
    forgetting(&mut book);
    damage(&mut book);
    replicas(&mut book);
    keys_and_mistakes(&mut book);
    profiles(&mut book);
    servers(&mut book);
    mounts(&mut book);
    images(&mut book);
    machines(&mut book);
    memory(&mut book);
    clusters(&mut book);
    stopped(&mut book);

    let unseen = judge(&book.lines);
    assert!(book.wrong.is_empty(), "{}", book.wrong.join("\n"));
    let world = World::empty();
    let all: BTreeSet<String> = commands_below(&world, "").into_iter().collect();
    let is_elsewhere = |name: &str| ELSEWHERE.contains(&format!("summary of {name}").as_str());
    let unused: Vec<_> =
        all.difference(&book.commands).filter(|name| !is_elsewhere(name)).collect();
    let unseen: Vec<_> = unseen.iter().filter(|name| !ELSEWHERE.contains(&name.as_str())).collect();
    assert!(unused.is_empty(), "add them to a scene in json.rs, and to the schema: {unused:?}");
    assert!(unseen.is_empty(), "no scene in json.rs prints these: {unseen:?}");
}

/// Names that are hard to write.
fn grow_names(tree: &Path) {
    fs::create_dir_all(tree.join("folder")).unwrap();
    for name in
        [&b"plain"[..], b"a\nb", b"\x1b[31m\x07", b"no utf-8 \xff\xfe", b"folder/\xc3", b"\""]
    {
        fs::write(tree.join(OsStr::from_bytes(name)), name.repeat(300)).unwrap();
    }
    std::os::unix::fs::symlink(OsStr::from_bytes(b"to \xff"), tree.join("link")).unwrap();
    fs::hard_link(tree.join("plain"), tree.join("second")).unwrap();
}

fn snapshots_and_files(book: &mut Book) {
    let world = World::empty();
    let tree = world.path("tr\u{e9}e");
    grow_names(&tree);
    let odd = tree.join(OsStr::from_bytes(b"no utf-8 \xff\xfe"));
    let tree = tree.display().to_string();
    book.say(&world, "snapshots", 6);
    book.run(&world, ["init"].iter().chain(&CHEAP), 0);
    book.run(&world, ["init"].iter().chain(&CHEAP), 1);
    book.say(&world, &format!("backup -v --dry-run {tree}"), 0);
    book.say(&world, &format!("backup --label x {tree}"), 0);
    book.say(&world, &format!("backup --exclude plain {tree}"), 0);
    book.say(&world, "backup /nowhere/at/all", 1);
    book.run(&world, [OsStr::new("backup"), odd.as_os_str()], 0);
    let odd_one = last(&book.say(&world, "snapshots", 0), "snapshot");
    assert!(odd_one["paths_hex"][0].as_str().unwrap().ends_with("20fffe"), "{odd_one}");
    let first = format!("latest~1:{tree}");
    let list = book.say(&world, &format!("ls -R {first}"), 0);
    let entries: Vec<Value> = list.events("entry");
    let hex = |path: &str| {
        entries.iter().find(|entry| entry["path"] == path).unwrap()["path_hex"].clone()
    };
    assert!(entries.iter().any(|entry| entry["path"].as_str().unwrap().ends_with("/a\nb")));
    assert_eq!(hex(&format!("{tree}/a\nb")), Value::Null);
    assert!(hex(&format!("{tree}/folder/\u{fffd}")).as_str().unwrap().ends_with("2fc3"));
    book.say(&world, "ls no-such-snapshot", 1);
    book.say(&world, "find -v *utf*", 0);
    book.say(&world, "find nothing-of-that-name", 0);
    book.say(&world, "find [", 1);
    book.say(&world, "diff latest~2 latest~1", 0);
    book.say(&world, "diff latest~1 latest~1", 0);
    fs::write(Path::new(&tree).join("plain"), "changed").unwrap();
    fs::remove_file(Path::new(&tree).join("\"")).unwrap();
    book.say(&world, "diff latest~2", 0);
    for words in [vec!["cat", &format!("latest~1:{tree}/a\nb")], vec!["dump", "latest~1"]] {
        let run = book.keep_beside(world.command(words.iter()).arg("--json"), 0);
        assert!(!run.bytes.is_empty());
    }
    let run = book.keep_beside(&mut world.command(["cat", "latest:/no-such-file", "--json"]), 1);
    assert!(run.bytes.is_empty());
    let run = book.keep_beside(&mut world.command(["dump", "--json", "--no-such-option"]), 2);
    assert!(run.bytes.is_empty());
    let out = world.path("out").display().to_string();
    book.say(&world, &format!("restore -n latest --target {out}"), 0);
    book.say(&world, &format!("restore -v latest~1 --target {out}"), 0);
    book.say(&world, &format!("restore latest~1 --target {out}"), 0);
    let drilled = last(&book.say(&world, "drill latest~1 --keep", 0), "summary");
    assert!(drilled["kept"].is_string(), "{drilled}");
    book.say(&world, "drill latest~1 --command false", 1);
    book.say(&world, "snapshots", 0);
    book.say(&world, "stats", 0);
    book.say(&world, "stats --snapshots", 0);
    book.say(&world, "stats --fragmentation", 0);
    book.say(&world, "stats --plot", 0);
    book.say(&world, &format!("stats --plot={}", world.path("plot.svg").display()), 0);
    book.say(&world, "unlock", 0);
    // There is no terminal.
    book.say(&world, "tui", 1);
    book.say(&world, "completions bash", 0);
    book.say(&world, &format!("manpages {}", world.folder.path().display()), 0);
    book.say(&world, "manpages /nowhere/at/all", 1);
    book.say(&world, &format!("debug envelope {}", world.repository().join("config").display()), 0);
    let arenas = files_below(&world.repository().join("arenas"));
    let arena = arenas[0].file_name().unwrap().to_str().unwrap().get(..8).unwrap();
    book.say(&world, &format!("debug arena {arena}"), 0);
    book.say(&world, "debug index", 0);
    book.say(&world, "debug sessions", 0);
    book.say(&world, "debug snapshot latest", 0);
    book.say(&world, &format!("debug tree {first}"), 0);
    // A name of the repository's own folder that a person put there.
    fs::write(world.repository().join("arenas/stranger"), "").unwrap();
    book.say(&world, "verify", 0);
    book.say(&world, "verify --data --keyless", 0);
    book.say(&world, "lock --for 1d", 1);
}

fn last(run: &Run, kind: &str) -> Value {
    run.events(kind).pop().expect(&run.out)
}

fn forgetting(book: &mut Book) {
    let world = World::with_tree(2);
    let mut random = Random::new(3);
    for _ in 0..4 {
        fs::write(world.tree().join("noise"), random.noise(300_000)).unwrap();
        world.backup().exits(0);
    }
    book.say(&world, "label latest --add y --description text", 0);
    book.say(&world, "label latest", 2);
    book.say(&world, "hold latest", 1);
    book.say(&world, "hold latest --reason court --until 2099-01-01", 0);
    book.say(&world, "hold", 0);
    book.say(&world, "forget latest", 1);
    book.say(&world, "hold latest --release", 0);
    book.say(&world, "forget", 1);
    book.say(&world, "forget --keep-last 2 -n", 0);
    book.say(&world, "forget --keep-last 2", 0);
    book.say(&world, "forget --keep-last 2", 0);
    let forgotten = last(&book.say(&world, "snapshots --forgotten", 0), "snapshot");
    book.say(&world, &format!("forget --undo {}", forgotten["id"].as_str().unwrap()), 0);
    book.say(&world, "forget --accept latest", 0);
    book.say(&world, "prune -n", 0);
    book.say(&world, "prune --later", 0);
    book.say(&world, "prune --undo", 0);
    book.say(&world, "prune --undo", 0);
    book.say(&world, "forget --keep-last 2", 0);
    book.say(&world, "prune", 0);
    book.say(&world, "prune", 0);
    book.say(&world, "prune --defragment=1MiB", 0);
    book.say(&world, "snapshots", 0);
}

fn damage(book: &mut Book) {
    let world = World::with_repository();
    grow_names(&world.tree());
    fs::write(world.tree().join("noise"), Random::new(4).noise(3 << 20)).unwrap();
    world.backup().exits(0);
    // A snapshot that was removed, and content that is lost.
    fs::write(world.tree().join("more"), "more").unwrap();
    world.backup().exits(0);
    let newest = files_below(&world.repository().join("snapshots"));
    let newest = newest.iter().max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    fs::remove_file(newest.unwrap()).unwrap();
    for arena in files_below(&world.repository().join("arenas")) {
        fs::set_permissions(&arena, fs::Permissions::from_mode(0o600)).unwrap();
        let bytes = fs::read(&arena).unwrap();
        if bytes.len() > 1 << 20 {
            fs::write(&arena, vec![0; bytes.len()]).unwrap();
        }
    }
    book.say(&world, "verify --data", 4);
    book.say(&world, "snapshots", 0);
    let out = world.path("out").display().to_string();
    let damaged = last(&book.say(&world, &format!("restore latest --target {out}"), 4), "summary");
    assert!(!damaged["damaged"].as_array().unwrap().is_empty(), "{damaged}");
    book.keep_beside(&mut world.command(["dump", "latest", "--json"]), 4);
    book.say(&world, "drill", 4);
    let plan = last(&book.say(&world, "repair -n", 4), "plan");
    assert!(!plan["affected"].as_array().unwrap().is_empty(), "{plan}");
    book.say(&world, "repair -n --keyless", 4);
    book.say(&world, "repair", 4);
    book.say(&world, "repair --keyless", 4);
    book.say(&world, "stats --snapshots", 0);
    book.say(&world, "diff latest", 0);
    // The list of snapshots itself.
    for snapshot in files_below(&world.repository().join("snapshots")) {
        fs::set_permissions(&snapshot, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&snapshot, "rubbish").unwrap();
    }
    book.say(&world, "snapshots", 4);
    book.say(&world, "verify", 4);
}

fn replicas(book: &mut Book) {
    let world = World::with_tree(5);
    world.backup().exits(0);
    let [one, two] = ["one", "two"].map(|name| world.path(name).display().to_string());
    book.say(&world, &format!("replicate -n {one}"), 0);
    book.say(&world, &format!("replicate {one} {two}"), 0);
    fs::write(world.path("file"), "in the way").unwrap();
    book.say(&world, &format!("replicate {} {two}", world.path("file").display()), 1);
    book.say(&world, &format!("replicate --mirror {one}"), 0);
    book.say(&world, &format!("audit {one}"), 0);
    let arena = files_below(&world.path("one/arenas")).remove(0);
    fs::set_permissions(&arena, fs::Permissions::from_mode(0o600)).unwrap();
    let mut bytes = fs::read(&arena).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&arena, bytes).unwrap();
    book.say(&world, &format!("audit --data {one}"), 4);
    fs::remove_file(&arena).unwrap();
    book.say(&world, &format!("audit {one}"), 3);
    fs::remove_file(files_below(&world.repository().join("arenas")).remove(0)).unwrap();
    book.say(&world, &format!("repair -n --from {two}"), 0);
    book.say(&world, &format!("repair --from {two}"), 0);
    fs::remove_dir_all(world.repository()).unwrap();
    book.say(&world, &format!("repair --from {two}"), 0);
    book.say(&world, "snapshots", 0);
}

fn keys_and_mistakes(book: &mut Book) {
    let world = World::with_repository();
    let [first, second] = ["first", "second"].map(|name| world.path(name).display().to_string());
    book.say(&world, &format!("key generate {first}"), 0);
    book.say(&world, &format!("key generate {first}"), 1);
    book.say(&world, &format!("key generate {second}"), 0);
    book.say(&world, &format!("key add --label anna --new-password-file {first}"), 0);
    let put_only = "key add --put-only --label bert --new-password-file";
    let key = last(&book.say(&world, &format!("{put_only} {second}"), 0), "summary");
    book.say(&world, "key list", 0);
    book.say(&world, &format!("key change --password-file {first} --new-password-file {first}"), 0);
    book.say(&world, &format!("stats --password-file {second}"), 0);
    book.say(&world, &format!("snapshots --password-file {second}"), 0);
    book.say(&world, &format!("key remove {}", key["key"].as_str().unwrap()), 0);
    book.say(&world, "key remove 00000000", 1);
    book.say(&world, &format!("key add --put-only --domain carl --new-password-file {second}"), 0);
    book.say(&world, "key end-domain carl", 1);
    book.say(&world, "key end-domain carl --yes", 0);
    book.say(&world, "key list", 0);
    let mut command = world.command(["snapshots", "--json"]);
    command.env("STRONGROOM_PASSWORD", "wrong");
    book.keep(Run::of(command.output().unwrap()), 5);
    for words in ["", "tag", "no-such-command", "snapshots --no-such-option", "key"] {
        let error = last(&book.run(&world, words.split_whitespace(), 2), "error");
        assert_eq!(error["exit"], 2, "{error}");
    }
    // Help is for people.
    assert!(world.say("--json snapshots --help").exits(0).says("Usage").err.is_empty());
}

/// A command whose repository only the profile names.
fn by_profile(world: &World, words: &str) -> Command {
    let mut command = world.command(words.split(' ').chain(["--json"]));
    command.env_remove("STRONGROOM_REPOSITORY").env_remove("STRONGROOM_PASSWORD");
    command
}

fn profiles(book: &mut Book) {
    let world = World::with_tree(6);
    book.by_profile(&world, "profile check", 1);
    book.by_profile(&world, "profile init", 0);
    book.by_profile(&world, "profile init", 1);
    let here = world.folder.path().display().to_string();
    fs::write(world.path("passphrase"), PASSPHRASE).unwrap();
    fs::set_permissions(world.path("passphrase"), fs::Permissions::from_mode(0o600)).unwrap();
    let write = |text: &str| {
        let head = "[default]\nrepo = \"HERE/repository\"\npassword-file = \"HERE/passphrase\"\n";
        let text = format!("{head}{text}").replace("HERE", &here);
        let file = world.path(".config/strongroom/config.toml");
        fs::write(&file, text).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let steps = "[default.backup]\npaths = [\"HERE/tree\"]\n[default.verify]\n\
                 [default.environment]\nTMPDIR = \"HERE\"\n";
    write(&format!("{steps}[default.prune]\nmax-rewrite = \"many\"\n"));
    book.by_profile(&world, "profile check", 1);
    book.by_profile(&world, "run", 2);
    book.by_profile(&world, "status", 1);
    book.by_profile(&world, "status --format nagios", 2);
    write(steps);
    book.by_profile(&world, "profile check", 0);
    book.by_profile(&world, "profile show", 0);
    book.by_profile(&world, "run -n", 0);
    let run = last(&book.by_profile(&world, "run", 0), "summary");
    assert_eq!(run["verdict"], "good");
    book.by_profile(&world, "run --due monthly", 0);
    book.by_profile(&world, "run verify --before false", 1);
    book.by_profile(&world, "run drill", 1);
    book.by_profile(&world, "run verify --notify http://127.0.0.1:9/ --notify-on success", 3);
    book.by_profile(&world, "status", 3);
    book.by_profile(&world, "status --format prometheus", 2);
    write(&steps.replace("HERE/tree", "/nowhere/at/all"));
    book.by_profile(&world, "run", 1);

    // A table of cron, for a program that keeps it in a file.
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    let script =
        "#!/bin/sh\nif [ \"$1\" = -l ]; then cat \"$HOME/table\"; else cat >\"$HOME/table\"; fi\n";
    fs::write(bin.join("crontab"), script).unwrap();
    fs::set_permissions(bin.join("crontab"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(world.path("table"), "").unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for (words, code) in [
        ("schedule -n --cron --user", 0),
        ("schedule --cron --user", 0),
        ("schedule --show --user", 0),
        ("schedule --remove --user", 0),
        ("schedule --remove --user", 0),
        ("schedule --at sometimes", 2),
    ] {
        let mut command = by_profile(&world, words);
        book.keep(Run::of(command.env("PATH", &path).output().unwrap()), code);
    }
}

fn servers(book: &mut Book) {
    let world = World::empty();
    let house = world.path("house").display().to_string();
    let id = last(
        &book.say(&world, &format!("token add room --name me --role admin --house {house}"), 0),
        "summary",
    );
    book.say(&world, &format!("token list --house {house}"), 0);
    let id = id["id"].as_str().unwrap();
    book.say(&world, &format!("token remove {id} --house {house}"), 0);
    book.say(&world, &format!("token remove {id} --house {house}"), 1);
    let words = format!("serve --json --listen 127.0.0.1:0 --house {house}");
    book.keep_until_stopped(&mut world.command(words.split(' ')));
    book.say(&world, &format!("serve --check-log --house {house}"), 0);
    let mut stdio = world.command(["serve", "--stdio", "--path", &house, "--json"]);
    // The server greets its client.
    assert!(!book.keep_beside(&mut stdio, 1).bytes.is_empty());
}

fn mounts(book: &mut Book) {
    if skipped("a mount", cannot_mount()) {
        return;
    }
    let world = World::with_tree(7);
    world.backup().exits(0);
    let folder = world.path("mnt");
    fs::create_dir(&folder).unwrap();
    let words = ["--json".as_ref(), "mount".as_ref(), folder.as_os_str()];
    book.keep_until_stopped(&mut world.command(words));
    book.say(&world, &format!("mount {}", world.tree().display()), 1);
    // What a mount looks like to it.
    fs::create_dir_all(folder.join("hosts/laptop/home/latest")).unwrap();
    book.say(&world, &format!("share {}", folder.display()), 0);
    book.say(&world, "share /nowhere", 1);
}

fn images(book: &mut Book) {
    let world = World::with_repository();
    let disk = disk_with_files(&world).display().to_string();
    let out = world.path("out.raw").display().to_string();
    book.say(&world, &format!("image show vda={disk}"), 0);
    book.say(&world, &format!("image backup vm1 vda={disk}"), 0);
    book.say(&world, "image backup vm1 /nowhere", 1);
    book.say(&world, &format!("image restore latest:/vm1/vda.raw {out}"), 0);
    book.say(&world, &format!("image restore latest {out}"), 1);
    let socket = world.path("nbd").display().to_string();
    book.keep_until_stopped(&mut world.command(["--json", "nbd", "--socket", &socket]));
    book.say(&world, "nbd --socket /nowhere/nbd", 1);
    book.say(&world, "boot latest:/vm2", 1);
    book.keep_until_stopped(
        &mut world.command(["--json", "boot", "--no-kvm", "--memory", "64MiB"]),
    );
    book.say(&world, "drill --boot --no-kvm --memory 64MiB --within 1s", 1);
    let set = world.path("set.toml");
    fs::write(&set, "[[machine]]\nstart = \"latest\"\nmemory = \"64MiB\"\n").unwrap();
    book.say(&world, &format!("drill --boot --no-kvm --within 1s --set {}", set.display()), 1);
    book.say(&world, "snapshots", 0);
}

fn memory(book: &mut Book) {
    let world = World::with_repository();
    let region = world.path("region").display().to_string();
    fs::write(&region, vec![1; 100_000]).unwrap();
    book.say(&world, &format!("ram store {region}"), 0);
    book.say(&world, &format!("ram watch {region} --count 1"), 0);
    book.say(&world, "ram store /nowhere", 1);
    book.say(&world, "ram load latest", 1);
    book.say(&world, "ram load latest --overwrite", 0);
    book.say(&world, "snapshots", 0);
}

/// A bucket in this process, an agent that is a node, and a client.
fn clusters(book: &mut Book) {
    let world = World::with_repository();
    let folder = world.path("cluster").display().to_string();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    book.say(&world, &format!("ram cluster add {folder} one={address}"), 0);
    book.say(&world, &format!("ram cluster add {folder} one={address}"), 1);
    let socket = world.path("ram.sock");
    let mut command = world.command(["--json", "ram", "agent", "--socket"]);
    command.arg(&socket).arg("--state").arg(world.path("state"));
    command.arg("--node").arg(world.path("cluster/one.json"));
    let mut agent = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(agent.stdout.take().unwrap());
    let mut said = String::new();
    out.read_line(&mut said).unwrap();
    let say = |book: &mut Book, words: &str, code| {
        book.say(&world, &format!("ram cluster {words} --cluster {folder}"), code);
    };
    say(book, "status sales", 3);
    let bucket = Bucket::open(Some(&socket), "sales", 0).unwrap();
    let memory = rustix::fs::memfd_create("sales", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 100_000).unwrap();
    rustix::io::pwrite(&memory, b"records", 0).unwrap();
    bucket.region("records", memory.as_fd(), None, 100_000).unwrap();
    bucket.range(&KeyRange::whole(), 0).unwrap();
    bucket.on_quiesce(Box::new(Still)).unwrap();
    say(book, "status sales", 0);
    say(book, "store sales", 0);
    say(book, "load sales", 1);
    say(book, "evict sales", 0);
    bucket.region("records", memory.as_fd(), None, 100_000).unwrap();
    say(book, "load sales", 0);
    say(book, "store sales --evict", 0);
    say(book, "evict others", 1);
    drop(bucket);
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    out.read_to_string(&mut said).unwrap();
    let code = agent.wait().unwrap().code();
    book.keep(Run { code, out: said, err: String::new(), bytes: Vec::new() }, 0);
}

/// A program that always holds still.
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

fn machines(book: &mut Book) {
    let world = World::with_repository();
    let guest = Guest::start(&world);
    let socket = guest.socket().display().to_string();
    book.say(&world, &format!("machine show {socket}"), 0);
    book.say(&world, &format!("machine backup {socket}"), 0);
    book.say(&world, &format!("machine backup {socket} --without sdx"), 1);
    book.say(&world, &format!("machine undo {socket}"), 0);
    book.say(&world, "machine show /nowhere", 1);
    book.say(&world, "machine emulator", 0);
}

/// Ctrl-C.
fn stopped(book: &mut Book) {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let mut random = Random::new(8);
    for number in 0..40 {
        fs::write(world.tree().join(format!("{number}")), random.noise(4 << 20)).unwrap();
    }
    let tree = world.tree().display().to_string();
    let child = world.start(&format!("backup --json --compression 12 --threads 1 {tree}"));
    let arenas = world.repository().join("arenas");
    let started = Instant::now();
    while !arenas.exists() || files_below(&arenas).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let run = book.keep(World::finish(child), 130);
    assert!(run.code != Some(130) || run.summary()["partial"] == true, "{}", run.out);
    book.say(&world, "snapshots", 0);
    let child = world.start("verify --data --json");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let run = World::finish(child);
    // It may have been quicker than the signal, or not yet ready for it.
    if matches!(run.code, Some(0 | 130)) && !run.out.is_empty() {
        book.keep_events(&run.out);
    }
    // One that dies leaves its session.
    let mut child = world.command(["backup", "--stdin", "input"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    let sessions = world.repository().join("sessions");
    let started = Instant::now();
    while fs::read_dir(&sessions).map_or(0, Iterator::count) == 0 {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    book.say(&world, "unlock", 0);
}

/// The table of the document has all exit codes, in the words of the help.
#[test]
fn kept_o8_the_document_has_every_exit_code() {
    let document = fs::read_to_string(Path::new(SCHEMA).with_file_name("json.md")).unwrap();
    let (_, table) = document.split_once("| `exit` | meaning |\n|---|---|\n").unwrap();
    let rows = table.lines().map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows: Vec<(&str, &str)> = rows.filter_map(|row| row.split_once(" | ")).collect();
    let help = World::empty().say("--help").exits(0).out;
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    let codes = codes.lines().map_while(|line| line.trim().split_once(' '));
    let codes: Vec<(&str, &str)> = codes.map(|(code, words)| (code, words.trim())).collect();
    assert_eq!(rows, codes);
}

/// A backup of which something is missing warns, and then sums up.
#[test]
fn kept_o8_the_last_line_is_the_summary() {
    let world = World::with_tree(1);
    let nowhere = world.path("nowhere");
    let run =
        world.run(["--json", "backup", world.tree().to_str().unwrap(), nowhere.to_str().unwrap()]);
    let run = run.exits(3);
    let events: Vec<Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().any(|event| event["event"] == "problem"));
    assert_eq!(events.last().unwrap()["event"], "summary");
}
