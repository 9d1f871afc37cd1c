//! Bad nights: word that does not arrive, disks that are full, clocks that are wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::json::{follows_the_schema, is_a_notice};
use crate::runs::{STEPS, bare, next, say, webhook, with_profile, write_profile};
use crate::space::Disk;
use crate::world::{Run, World, has_program, is_root, program, skipped};

#[test]
fn a_notice_that_did_not_arrive_is_sent_with_the_next() {
    let world = with_profile(&STEPS.replace("~/tree", "/nowhere/at/all"));
    let (hook, requests) = webhook(&["404 Gone", "404 Gone", "200 OK", "200 OK"]);
    let run = || say(&world, &format!("run --notify {hook}/secret"));
    run().exits(1).warns("404");
    next(&requests);
    let record = fs::read_to_string(world.path(".local/state/strongroom/default.json")).unwrap();
    assert!(!record.contains("secret"), "{record}");
    say(&world, "status").exits(1).says("not delivered yet to the webhook at 127.0.0.1");
    let status = say(&world, "status --json").exits(1);
    assert_eq!(status.summary()["last_run"]["undelivered"].as_array().unwrap().len(), 1);
    follows_the_schema(&status);
    // A good run is not of interest, but what was missed is, and it is kept until it arrives.
    write_profile(&world, STEPS);
    run().exits(3).warns("404");
    next(&requests);
    run().exits(0);
    let body: Value = serde_json::from_str(&next(&requests).1).unwrap();
    is_a_notice(&body);
    assert_eq!(body["verdict"], "failed", "{body}");
    let subject = body["subject"].as_str().unwrap();
    assert!(subject.contains("all done; not delivered before: failed: backup ("), "{subject}");
    assert!(subject.ends_with(" ago)"), "{subject}");
    let text = body["text"].as_str().unwrap();
    assert!(text.find("all done") < text.find("/nowhere/at/all"), "{text}");
    assert_eq!(body["earlier"].as_array().unwrap().len(), 1, "{body}");
    assert_eq!(body["earlier"][0]["verdict"], "failed");
    // Only once.
    run().exits(0);
    assert!(requests.recv_timeout(Duration::from_millis(100)).is_err());
    let status = say(&world, "status").exits(0);
    assert!(!status.out.contains("not delivered"), "{}", status.out);
}

#[test]
fn several_notices_come_in_one_message_the_newer_first() {
    let world = with_profile("[default.backup]\npaths = [\"/nowhere/a\"]\n");
    let (hook, requests) = webhook(&["404 Gone", "404 Gone", "200 OK", "200 OK"]);
    let run = || say(&world, &format!("run --notify {hook}"));
    run().exits(1);
    write_profile(&world, "[default.backup]\npaths = [\"/nowhere/b\"]\n");
    run().exits(1);
    write_profile(&world, "[default.backup]\npaths = [\"/nowhere/c\"]\n");
    run().exits(1);
    let body =
        [next(&requests), next(&requests), next(&requests)].map(|request| request.1)[2].clone();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert!(
        body["subject"].as_str().unwrap().ends_with("; not delivered before: 2 runs"),
        "{body}"
    );
    let text = body["text"].as_str().unwrap();
    let places =
        ["/nowhere/c", "/nowhere/b", "/nowhere/a"].map(|path| text.find(path).expect(path));
    assert!(places.is_sorted(), "{text}");
    // To a check, it is as the last run was.
    write_profile(&world, "[default.backup]\npaths = [\"~/tree\"]\n");
    let (check, requests) = webhook(&["404 Gone", "404 Gone", "200 OK", "200 OK"]);
    let failing = format!("run --notify healthchecks:{check}/id");
    write_profile(&world, "[default.backup]\npaths = [\"/nowhere/d\"]\n");
    say(&world, &failing).exits(1);
    write_profile(&world, "[default.backup]\npaths = [\"~/tree\"]\n");
    say(&world, &failing).exits(0);
    let [_, _, _, (line, text)] = [(); 4].map(|()| next(&requests));
    assert!(line.starts_with("POST /id ") && text.contains("/nowhere/d"), "{line}\n{text}");
}

#[test]
fn a_test_reaches_each_recipient_and_runs_nothing() {
    let world = with_profile(BACKUP);
    let (hook, requests) = webhook(&["200 OK"]);
    let run = say(&world, &format!("--json run --notify-test --notify {hook}")).exits(0);
    follows_the_schema(&run);
    assert_eq!(run.events("notified")[0]["delivered"], true);
    let (line, body) = next(&requests);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert!(line.starts_with("POST / "), "{line}");
    assert!(body["subject"].as_str().unwrap().ends_with("a test"), "{body}");
    assert_eq!(snapshots(&world), 0);
    let (hook, _requests) = webhook(&["404 Gone"]);
    say(&world, &format!("run --notify-test --notify {hook}")).exits(1).warns("404");
    say(&world, "run --notify-test").exits(1).warns("notify = ");
}

const BACKUP: &str = "[default.backup]\npaths = [\"~/tree\"]\n";

fn snapshots(world: &World) -> usize {
    world.say("snapshots --json").exits(0).events("snapshot").len()
}

#[test]
fn a_full_disk_below_the_record_keeps_no_backup_from_being_made() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world =
        with_profile(&format!("{BACKUP}[default.run]\nmetrics = \"HERE/full/metrics.prom\"\n"));
    let path = world.path("full");
    let disk = Disk::mount(&path, "64k");
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let state = |words: &str| {
        let mut command = bare(&world, words);
        Run::of(command.env("XDG_STATE_HOME", world.path("full")).output().unwrap())
    };
    state("run").exits(0);
    let metrics = fs::read(path.join("metrics.prom")).unwrap();
    let record = fs::read(path.join("strongroom/default.json")).unwrap();
    fs::write(path.join("much"), vec![0; 1 << 20]).unwrap_err();
    let (hook, requests) = webhook(&["200 OK"]);
    let run = state(&format!("run --notify {hook}")).exits(3);
    for file in ["metrics.prom", "default.json"] {
        assert!(run.err.contains(file) && run.err.contains("No space left"), "{}", run.err);
    }
    assert_eq!(snapshots(&world), 2);
    let said = next(&requests).1;
    assert!(said.contains("metrics.prom") && said.contains("default.json"), "{said}");
    // Nothing is half-written.
    assert_eq!(fs::read(path.join("metrics.prom")).unwrap(), metrics);
    assert_eq!(fs::read(path.join("strongroom/default.json")).unwrap(), record);
    let left = fs::read_dir(&path).unwrap().chain(fs::read_dir(path.join("strongroom")).unwrap());
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["default.json", "default.lock", "metrics.prom", "much", "strongroom"]);
    // The file of the lock knows that it was begun, even if the record is lost as well.
    fs::remove_file(path.join("strongroom/default.json")).unwrap();
    fs::write(path.join("more"), vec![0; 1 << 20]).unwrap_err();
    state("run").exits(3);
    state("run --due monthly").exits(0);
    assert_eq!(snapshots(&world), 3);
}

#[test]
fn a_record_on_a_bad_disk_keeps_no_backup_from_being_made() {
    let world = with_profile(BACKUP);
    let folder = world.path(".local/state/strongroom");
    fs::create_dir_all(&folder).unwrap();
    // Reading it is an error of input and output.
    std::os::unix::fs::symlink("/proc/self/mem", folder.join("default.json")).unwrap();
    say(&world, "status").exits(1).warns("Input/output error").warns("it can be removed");
    say(&world, "run").exits(3).warns("Input/output error");
    say(&world, "run").exits(0);
    assert_eq!(fs::metadata(folder.join("default.json")).unwrap().permissions().mode() & 0o077, 0);
    if skipped("errors of a disk", (!has_program("strace")).then_some("strace is not installed")) {
        return;
    }
    // Only of the run itself: its steps are not followed.
    let mut command = Command::new("strace");
    command.args(["-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO"]);
    command.arg(program()).arg("run");
    world.surround(&mut command);
    command.env_remove("STRONGROOM_REPOSITORY").env_remove("STRONGROOM_PASSWORD");
    Run::of(command.output().unwrap()).exits(3).warns("cannot write").warns("Input/output error");
    assert_eq!(snapshots(&world), 3);
    let mut left: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["default.json", "default.lock", "places"], "nothing else is left");
}

#[test]
fn output_that_nothing_takes_keeps_no_backup_from_being_made() {
    let world = with_profile(BACKUP);
    for json in ["", "--json"] {
        let mut command = bare(&world, &format!("run {json}"));
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let run = World::finish(child).exits(3);
        if json.is_empty() {
            // For programs, this would be an event of the output.
            run.warns("the output cannot be written: No space left");
        }
    }
    assert_eq!(snapshots(&world), 2);
    let status = say(&world, "status --json").exits(3).summary();
    assert_eq!(status["last_run"]["steps"][0]["outcome"], "good", "{status}");
}

#[test]
fn a_wrong_clock_keeps_no_backup_from_being_made() {
    let world = with_profile(BACKUP);
    let file = world.path(".local/state/strongroom/default.json");
    say(&world, "run --due monthly").exits(0);
    say(&world, "run --due monthly").exits(0);
    assert_eq!(snapshots(&world), 1);
    // The run was made while the clock was years ahead; and now years behind.
    let text = fs::read_to_string(&file).unwrap();
    let year = text.split_once("\"started\":\"").unwrap().1[..4].to_owned();
    for there in ["2199", "1971"] {
        fs::write(&file, text.replace(&format!("\"{year}-"), &format!("\"{there}-"))).unwrap();
        let status = say(&world, "status --max-age 2d");
        let nagios = say(&world, "status --format nagios --max-age 2d");
        if there == "2199" {
            let run =
                status.exits(3).says("in the future").says("the clock of this machine was wrong");
            assert!(run.out.contains("last good backup"), "{}", run.out);
            nagios.exits(1).says("WARNING").says("in the future");
        } else {
            status.exits(1).says("older than allowed");
            nagios.exits(2).says("CRITICAL");
        }
        let before = snapshots(&world);
        let run = say(&world, "run --due monthly");
        assert_eq!(snapshots(&world) - before, 1, "{}", run.err);
        if there == "2199" {
            run.exits(3).warns("the last run is dated 2199-");
        }
        say(&world, "run --due monthly").exits(0);
        assert_eq!(snapshots(&world) - before, 1, "once");
        say(&world, "status --format nagios --max-age 2d");
    }
    say(&world, "status --max-age 2d").exits(0);
}

/// A run that was killed left its lock as it was while it ran.
#[test]
fn kept_o14_a_run_that_did_not_end_is_no_good_one() {
    let world = with_profile(BACKUP);
    say(&world, "run").exits(0);
    say(&world, "status").exits(0);
    let lock = world.path(".local/state/strongroom/default.lock");
    assert_eq!(fs::read_to_string(&lock).unwrap(), "", "it has ended");
    fs::write(&lock, "process 1 since then\nunended 2026-01-02T03:04:05Z\n").unwrap();
    say(&world, "status").exits(1).says("it did not end").says("last good backup");
    say(&world, "status --format nagios").exits(2).says("CRITICAL");
    say(&world, "run").exits(0);
    say(&world, "status").exits(0);
    let runs = say(&world, "status --json").exits(0).summary()["runs"].clone();
    let verdicts: Vec<_> = runs.as_array().unwrap().iter().map(|run| &run["verdict"]).collect();
    assert_eq!(verdicts, ["good", "stopped", "good"]);
}

#[test]
fn a_lock_that_holds_rubbish_is_a_lock_all_the_same() {
    let world = with_profile(BACKUP);
    let path = world.path(".local/state/strongroom/default.lock");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for rubbish in [&b"\xff\xfe\x1b[31m\n"[..], b"", b"\n\n", &[b'x'; 100_000]] {
        fs::write(&path, rubbish).unwrap();
        let held = fs::File::open(&path).unwrap();
        // A program that another test starts has the lock of before, too, for a moment.
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let run = say(&world, "run").exits(1).warns("is being run already, by ");
        assert!(run.err.len() < 400 && !run.err.contains('\x1b'), "{}", run.err);
        say(&world, "status").exits(1).says("it is being run by ");
    }
    say(&world, "run").exits(0);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    say(&world, "run").exits(3).warns("cannot lock");
    assert_eq!(snapshots(&world), 2);
}

/// A machine that may only add: what it may not do is said, and its backup is made.
#[test]
fn a_put_only_key_backs_up_though_it_cannot_prune() {
    let world = with_profile(STEPS);
    say(&world, "run").exits(0);
    fs::write(world.path("other"), "strongroom-put-only-passphrase\n").unwrap();
    let add = format!(
        "key add --put-only --kdf-memory 8MiB --new-password-file {}",
        world.path("other").display()
    );
    world.say(&add).exits(0);
    fs::copy(world.path("other"), world.path("passphrase")).unwrap();
    let run = say(&world, "run --json");
    let summary = run.summary();
    let outcomes: Vec<String> = summary["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            format!("{} {}", step["step"].as_str().unwrap(), step["outcome"].as_str().unwrap())
        })
        .collect();
    println!("{outcomes:?} {:?}\n{}", run.code, run.out);
    assert_eq!(outcomes[0], "backup good", "{outcomes:?}");
    assert_eq!(outcomes[1..3], ["forget failed", "prune failed"], "{outcomes:?}");
    assert_eq!(snapshots(&world), 2);
    for step in &summary["steps"].as_array().unwrap()[1..3] {
        let output = step["output"].as_str().unwrap();
        assert!(output.contains("use the passphrase of a key that may read"), "{output}");
    }
}

/// Those who should hear of a failure hear of a run that was killed, when the next one begins.
#[test]
fn a_run_that_did_not_end_is_told() {
    let world = with_profile(BACKUP);
    say(&world, "run").exits(0);
    let lock = world.path(".local/state/strongroom/default.lock");
    fs::write(&lock, "process 1 since then\nunended 2026-01-02T03:04:05Z\n").unwrap();
    let (hook, requests) = webhook(&["200 OK"]);
    say(&world, &format!("run --notify {hook} --notify-on failure")).exits(0);
    let (_, body) = next(&requests);
    assert!(body.contains("it did not end"), "{body}");
    say(&world, &format!("run --notify {hook} --notify-on failure")).exits(0);
}

/// What one recipient lacks is no matter of the others, and two at one host are two.
#[test]
fn each_recipient_is_told_for_itself() {
    let world = with_profile(BACKUP);
    let (hook, requests) = webhook(&["200 OK"]);
    let to_all =
        "--notify-on success --smtp smtps://anna@127.0.0.1:1 --notify mailto:a@example.org";
    say(&world, &format!("run {to_all} --notify {hook}")).exits(3).warns("there is no password");
    assert!(next(&requests).1.contains("all done"));

    let world = with_profile(BACKUP);
    let (hook, requests) = webhook(&["200 OK", "404 Gone", "200 OK"]);
    let both = format!("--notify-on warning --notify {hook}/a --notify {hook}/b");
    let fails = format!("run {both} --before false");
    say(&world, &fails).exits(1);
    let lines = [next(&requests).0, next(&requests).0];
    assert!(lines.iter().any(|line| line.starts_with("POST /a ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("POST /b ")), "{lines:?}");
    // The one that was refused is notified by the next run, which alone is good.
    say(&world, &format!("run {both}")).exits(0);
    let refused = next(&requests);
    assert!(refused.1.contains("earlier") || refused.1.contains("failed"), "{}", refused.1);
    assert!(requests.recv_timeout(Duration::from_millis(300)).is_err(), "only one is notified");
}
