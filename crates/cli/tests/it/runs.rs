//! A profile's run: its steps, its hooks, who hears of it, and what the machine remembers.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Run, World, skipped};

/// A world whose only profile is this; `HERE` is its folder.
pub fn with_profile(text: &str) -> World {
    let world = World::with_tree(1);
    fs::write(world.path("passphrase"), crate::world::PASSPHRASE).unwrap();
    fs::set_permissions(world.path("passphrase"), fs::Permissions::from_mode(0o600)).unwrap();
    write_profile(&world, text);
    world
}

pub fn write_profile(world: &World, text: &str) {
    let folder = world.path(".config/strongroom");
    fs::create_dir_all(&folder).unwrap();
    let here = world.folder.path().display().to_string();
    let head = "[default]\nrepo = \"HERE/repository\"\npassword-file = \"~/passphrase\"\n";
    fs::write(folder.join("config.toml"), format!("{head}{text}").replace("HERE", &here)).unwrap();
}

pub fn bare(world: &World, words: &str) -> Command {
    let mut command = world.command(words.split_whitespace());
    command.env_remove("STRONGROOM_REPOSITORY").env_remove("STRONGROOM_PASSWORD");
    command
}

pub fn say(world: &World, words: &str) -> Run {
    Run::of(bare(world, words).output().unwrap())
}

pub const STEPS: &str = r#"
[default.backup]
paths = ["~/tree"]
[default.forget]
keep-last = 3
[default.prune]
[default.replicate]
targets = ["HERE/copy"]
[default.verify]
sample = "100%"
"#;

/// A server for webhooks that gives these answers, one after another, and what it was asked.
pub fn webhook(answers: &'static [&'static str]) -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
            let (head, body) = loop {
                let count = stream.read(&mut buffer).unwrap();
                seen.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&seen).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| {
                    line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
                });
                if body.len() >= length.unwrap_or(0) || count == 0 {
                    break (head.to_owned(), body.to_owned());
                }
            };
            let answer =
                format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            sender.send((head.lines().next().unwrap().to_owned(), body)).unwrap();
        }
    });
    (address, requests)
}

pub fn next(requests: &Receiver<(String, String)>) -> (String, String) {
    requests.recv_timeout(Duration::from_secs(20)).expect("a request")
}

#[test]
fn a_night_does_all_that_the_profile_says() {
    let world = with_profile(STEPS);
    say(&world, "status").exits(1).says("was never run here");
    let dry = say(&world, "run --dry-run").exits(0);
    let steps: Vec<&str> = dry.out.lines().filter_map(|line| line.split(' ').nth(3)).collect();
    assert_eq!(steps, ["backup", "forget", "prune", "replicate", "verify"]);
    // What is typed by hand does what the run would do.
    dry.says("strongroom --profile default forget --series-of SNAPSHOT\n");
    let run = say(&world, "run").exits(0);
    assert!(run.out.contains("profile default: all done"), "{}", run.out);
    say(
        &world,
        "snapshots --repo HERE/copy"
            .replace("HERE", world.folder.path().to_str().unwrap())
            .as_str(),
    );
    assert!(world.path("copy/snapshots").is_dir());
    say(&world, "status --max-age 1d").exits(0).says("last good backup").says("last verified");
    say(&world, "status --format nagios").exits(0).says("STRONGROOM OK - default: all done");
    say(&world, "status --format prometheus")
        .exits(0)
        .says("strongroom_last_run_verdict{profile=\"default\"} 0");
    let status = say(&world, "status --json").exits(0).summary();
    assert_eq!(status["state"], "good");
    assert_eq!(status["last_run"]["steps"].as_array().unwrap().len(), 5);
    // One step of it, for programs.
    let summary = say(&world, "run verify --json").exits(0).summary();
    assert_eq!(
        (&summary["verdict"], &summary["steps"][0]["step"]),
        (&"good".into(), &"verify".into())
    );
    say(&world, "run drill").exits(1).warns("does not say how to drill").warns("[default.drill]");
    // What is typed for all goes to each step.
    say(&world, "run verify --password-file /nowhere").exits(5).warns("/nowhere");
}

#[test]
fn a_step_that_fails_leaves_the_others_and_is_said() {
    let world = with_profile(&STEPS.replace("~/tree", "/nowhere/at/all"));
    let (hook, requests) = webhook(&["200 OK"]);
    let notify = format!("--notify {hook}/hook");
    let run = say(&world, &format!("run {notify}")).exits(1);
    for line in
        ["backup     failed after", "forget     left out: the backup failed", "verify     done"]
    {
        assert!(run.out.contains(line), "no {line:?}\n{}", run.out);
    }
    let (line, body) = next(&requests);
    assert!(line.starts_with("POST /hook"), "{line}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["verdict"], "failed");
    assert_eq!(body["steps"][1]["outcome"], "left out");
    crate::json::is_a_notice(&body);
    assert!(body["text"].as_str().unwrap().contains("/nowhere/at/all"), "{body}");
    assert!(body["subject"].as_str().unwrap().ends_with("failed: backup"), "{body}");
    say(&world, "status --format nagios").exits(2).says("CRITICAL").says("no good backup yet");
    // Each of the others, alone.
    fs::remove_dir_all(world.path("copy")).unwrap();
    for (step, section, exit) in [
        ("replicate", "[default.replicate]\ntargets = [\"HERE/passphrase\"]\n", 1),
        ("verify", "[default.verify]\nsample = \"100%\"\nreplica = [\"/nowhere\"]\n", 2),
        ("forget", "[default.forget]\nkeep-last = 0\n", 2),
        ("prune", "[default.prune]\nmax-rewrite = \"many\"\n", 1),
    ] {
        write_profile(&world, section);
        let (hook, requests) = webhook(&["200 OK"]);
        let run = say(&world, &format!("run --notify {hook}"));
        assert!(run.code != Some(0), "{step} {exit}: {}", run.out);
        let body: Value = serde_json::from_str(&next(&requests).1).unwrap();
        assert_eq!(body["verdict"], "failed", "{body}");
        assert!(body["subject"].as_str().unwrap().ends_with(&format!("failed: {step}")), "{body}");
    }
}

#[test]
fn a_damaged_repository_is_said_with_its_own_code() {
    let world = with_profile("[default.verify]\ndata = true\n");
    world.backup().exits(0);
    for arena in strongroom_testkit::damage::files_below(&world.path("repository/arenas")) {
        fs::write(&arena, b"lost").unwrap();
    }
    let (hook, requests) = webhook(&["200 OK"]);
    say(&world, &format!("run --notify {hook}")).exits(4);
    assert!(next(&requests).1.contains("damage"));
}

#[test]
fn hooks_run_around_and_cannot_stop_a_backup() {
    let world = with_profile(&format!(
        "{STEPS}\n[default.run]\nbefore = [\"echo one >> HERE/log\", \"echo two >> HERE/log; exit 9\"]\n\
         after = \"cat > HERE/after; echo $STRONGROOM_PROFILE $STRONGROOM_VERDICT >> HERE/log\"\n\
         on-warning = \"echo warning >> HERE/log\"\non-failure = \"echo failure >> HERE/log\"\n"
    ));
    say(&world, "run backup").exits(1).says("the hook before").says("exit code 9");
    let log = fs::read_to_string(world.path("log")).unwrap();
    assert_eq!(log, "one\ntwo\nfailure\ndefault failed\n");
    let report = fs::read_to_string(world.path("after")).unwrap();
    assert!(report.contains("done, but a hook failed") && report.contains("snapshot"), "{report}");
    assert_eq!(
        world.say("snapshots --json").exits(0).out.matches("\"event\":\"snapshot\"").count(),
        1
    );
    // One that hangs, and one that floods.
    let mut command = bare(&world, "run verify --hook-patience 1s");
    command.args(["--before", "sleep 60 & sleep 60", "--after", "yes | head -c 300000"]);
    let started = Instant::now();
    let run = Run::of(command.output().unwrap()).exits(1);
    assert!(run.out.contains("took too long and was ended"), "{}", run.out);
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert!(
        fs::metadata(world.path(".local/state/strongroom/default.json")).unwrap().len() < 200_000
    );
}

#[test]
fn warnings_are_said_if_that_is_wanted() {
    let world = with_profile("[default.backup]\npaths = [\"~/tree\", \"/nowhere/at/all\"]\n");
    let (hook, requests) = webhook(&["200 OK"]);
    say(&world, &format!("run --notify {hook} --notify-on failure")).exits(3);
    assert!(requests.recv_timeout(Duration::from_millis(100)).is_err());
    say(&world, &format!("run --notify {hook}")).exits(3).says("done, with warnings");
    assert!(next(&requests).1.contains("\"verdict\":\"warning\""));
    say(&world, "status").exits(3);
    say(&world, "status --format nagios").exits(1).says("WARNING");
}

#[test]
fn a_passphrase_that_others_can_read_is_said() {
    let world = with_profile("[default.verify]\n");
    say(&world, "profile check").exits(0);
    fs::set_permissions(world.path("passphrase"), fs::Permissions::from_mode(0o644)).unwrap();
    say(&world, "profile check").exits(3).warns("chmod 600");
    say(&world, "run").exits(3).warns("others can read the passphrase").says("done, with warnings");
}

#[test]
fn a_step_that_would_ask_for_a_passphrase_fails() {
    let world = with_profile("[default.verify]\n");
    let file = world.path(".config/strongroom/config.toml");
    let text = fs::read_to_string(&file).unwrap().replace("password-file = \"~/passphrase\"\n", "");
    fs::write(&file, text).unwrap();
    let run = say(&world, "run").exits(5).warns("no passphrase was given");
    let all = format!("{}{}", run.err, run.out);
    assert_eq!(all.matches("no passphrase").count(), 2, "{all}");
    assert_eq!(all.matches("STRONGROOM_PASSWORD").count(), 1, "{all}");
    assert!(run.out.contains("not tried: there is no passphrase"), "{all}");
    // The record, which is read without that, has it.
    say(&world, "status").exits(1).says("STRONGROOM_PASSWORD");
}

#[test]
fn services_hear_in_their_own_words() {
    let world = with_profile("[default.verify]\n");
    // The first attempt fails, and is repeated.
    let (check, requests) = webhook(&["200 OK", "503 Busy", "200 OK"]);
    say(&world, &format!("run --notify healthchecks:{check}/ping/id")).exits(0);
    assert!(next(&requests).0.starts_with("POST /ping/id/start "));
    for _ in 0..2 {
        let (line, body) = next(&requests);
        assert!(line.starts_with("POST /ping/id ") && body.contains("all done"), "{line}\n{body}");
    }
    let (topic, requests) = webhook(&["200 OK"]);
    say(&world, &format!("run --notify ntfy:{topic}/topic --notify-on success")).exits(0);
    let (line, _) = next(&requests);
    assert!(
        line.starts_with("POST /topic?title=strongroom") && line.contains("priority=low"),
        "{line}"
    );
    // What refuses is not asked again, and what is away keeps nothing from being done.
    let (hook, _requests) = webhook(&["404 Gone"]);
    say(&world, &format!("run --notify {hook} --notify-on success")).exits(3).warns("404");
    // One who is sent elsewhere comes there without the notice.
    let (hook, _requests) = webhook(&["302 Found\r\nlocation: /login", "200 OK"]);
    say(&world, &format!("run --notify {hook} --notify-on success")).exits(3).warns("302");
    for (wrong, why) in [
        ("gopher://x", "is no recipient"),
        ("mailto:x", "is no address of mail"),
        ("ntfy:topic", "is no address of the web"),
    ] {
        say(&world, &format!("run --notify {wrong}")).exits(2).warns(why);
    }
}

/// A real mail server (aiosmtpd), which keeps what it takes in a folder.
struct MailServer {
    child: Child,
    port: u16,
}

impl MailServer {
    fn start(folder: &Path, tls: Option<(&Path, &Path)>) -> Self {
        let script = r#"
import os, socket, ssl, sys
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
class Keep:
    count = 0
    async def handle_DATA(self, server, session, envelope):
        Keep.count += 1
        with open(os.path.join(sys.argv[1], f"{Keep.count}.tmp"), "wb") as mail:
            mail.write(f"{envelope.mail_from} {envelope.rcpt_tos} {session.ssl is not None}\n".encode())
            mail.write(envelope.content)
        os.rename(os.path.join(sys.argv[1], f"{Keep.count}.tmp"), os.path.join(sys.argv[1], f"{Keep.count}.mail"))
        return "250 kept"
def login(server, session, envelope, mechanism, data):
    success = data.login == b"anna" and data.password == b"secret"
    return AuthResult(success=success, handled=False)
options = {}
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    options = dict(tls_context=context, require_starttls=True, authenticator=login, auth_required=True)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
controller = Controller(Keep(), hostname="127.0.0.1", port=port, **options)
controller.start()
print(port, flush=True)
sys.stdin.read()
"#;
        let python = std::env::var("STRONGROOM_TEST_PYTHON").unwrap_or("python3".to_owned());
        let mut command = Command::new(python);
        command.args(["-c", script]).arg(folder);
        if let Some((certificate, key)) = tls {
            command.arg(certificate).arg(key);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let port = line.trim().parse().expect("aiosmtpd is installed: ./test does it");
        Self { child, port }
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn mail_goes_to_a_real_server() {
    let world = with_profile(&STEPS.replace("~/tree", "/nowhere/at/all"));
    let folder = world.path("mails");
    fs::create_dir(&folder).unwrap();
    let server = MailServer::start(&folder, None);
    let smtp = format!("--smtp smtp://127.0.0.1:{}", server.port);
    say(&world, &format!("run {smtp} --notify mailto:anna@example.org")).exits(1);
    let mail = fs::read_to_string(folder.join("1.mail")).unwrap();
    for part in [
        "anna@example.org",
        "Subject: strongroom: default on",
        "failed: backup",
        "X-Priority: 1",
        "/nowhere/at/all",
    ] {
        assert!(mail.contains(part), "no {part:?} in\n{mail}");
    }
    // To one that is away: said, and the run is as it is.
    drop(server);
    say(&world, &format!("run verify {smtp} --notify mailto:anna@example.org --notify-on success"))
        .exits(3)
        .warns("no notice to anna@example.org");
}

#[test]
fn a_password_for_mail_goes_only_over_tls() {
    let world = with_profile("[default.verify]\n");
    let folder = world.path("mails");
    fs::create_dir(&folder).unwrap();
    let (certificate, key) = (world.path("cert.pem"), world.path("key.pem"));
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,DNS:localhost -addext basicConstraints=critical,CA:FALSE";
    let mut openssl = Command::new("openssl");
    openssl.args(words.split(' ')).arg("-out").arg(&certificate).arg("-keyout").arg(&key);
    assert!(openssl.stderr(Stdio::null()).status().unwrap().success());
    let server = MailServer::start(&folder, Some((&certificate, &key)));
    let run = |password: &str, trusted: bool| {
        let smtp = format!("smtp://anna@localhost:{}", server.port);
        let mut command = bare(&world, "run --notify mailto:bert@example.org --notify-on success");
        command.args(["--smtp", &smtp]).env("SMTP_PASSWORD", password);
        if trusted {
            command.env("STRONGROOM_CA_FILE", &certificate);
        }
        Run::of(command.output().unwrap())
    };
    run("secret", true).exits(0);
    let mail = fs::read_to_string(folder.join("1.mail")).unwrap();
    assert!(
        mail.starts_with(&format!("{}@", whoami()))
            && mail.lines().next().unwrap().ends_with("True"),
        "{mail}"
    );
    run("wrong", true).exits(3).warns("no notice to bert@example.org").warns("535");
    run("secret", false).exits(3).warns("no notice to bert@example.org");
    run("", true).exits(3).warns("set SMTP_PASSWORD");
    let inline = "run --smtp smtp://anna:secret@localhost --notify mailto:bert@example.org";
    say(&world, inline).exits(2).warns("there is a password in the address");
}

fn whoami() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn two_runs_of_a_profile_are_not_at_once() {
    let world =
        with_profile(&format!("{STEPS}[default.run]\nbefore = \"touch HERE/begun; sleep 5\"\n"));
    let mut first = bare(&world, "run backup").stdout(Stdio::null()).spawn().unwrap();
    wait_for(&world.path("begun"));
    say(&world, "run").exits(1).warns("is being run already, by process");
    say(&world, "status").says("it is being run by process");
    // Stopped: the step that is on ends, the rest is left out, and it is remembered.
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&first),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130));
    let status = say(&world, "status --json").exits(1).summary();
    assert_eq!(status["last_run"]["verdict"], "stopped");
    assert_eq!(status["running"], Value::Null);
}

pub fn wait_for(path: &Path) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed() < Duration::from_secs(20), "no {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_record_that_is_lost_or_damaged_loses_no_backup() {
    let world = with_profile(STEPS);
    let folder = world.path(".local/state/strongroom");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("default.json"), b"{\"runs\": 7}").unwrap();
    say(&world, "status").exits(1).warns("default.json");
    say(&world, "run backup").exits(3).warns("default.json");
    say(&world, "run backup").exits(0);
    say(&world, "status").exits(0);
    // No folder for it.
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, b"a file").unwrap();
    say(&world, "run backup").exits(3).warns("cannot lock").says("backup     done");
}

#[test]
fn it_is_due_once_a_time() {
    let world = with_profile("[default.verify]\n");
    let count = || {
        let status = say(&world, "status --json").summary();
        status["runs"].as_array().unwrap().len()
    };
    say(&world, "run --due daily").exits(0);
    assert_eq!(count(), 1);
    say(&world, "run --due daily").exits(0);
    say(&world, "run --due monthly --jitter 1h").exits(0);
    assert_eq!(count(), 1);
    // Some of the steps are not all of them.
    write_profile(&world, STEPS);
    say(&world, "run verify --due daily").exits(0);
    assert_eq!(count(), 1);
    say(&world, "run --due daily").exits(0).says("backup     done");
    assert_eq!(count(), 2);
    say(&world, "run --due daily").exits(0);
    assert_eq!(count(), 2);
    say(&world, "run --due *-*-01").exits(1).warns("only systemd understands");
    say(&world, "run --due sometimes").exits(2).warns("is no calendar");
}

/// A good run of some steps is no answer to a failed one of others.
#[test]
fn what_failed_stays_failed_until_it_is_tried_again() {
    let world = with_profile(STEPS);
    say(&world, "run").exits(0);
    fs::rename(world.tree(), world.path("aside")).unwrap();
    say(&world, "run backup").exits(1);
    say(&world, "run verify").exits(0);
    say(&world, "status").exits(1).says("backup: failed").says("was not tried since");
    let nagios = say(&world, "status --format nagios").exits(2);
    nagios.says("CRITICAL").says("backup: failed");
    fs::rename(world.path("aside"), world.tree()).unwrap();
    say(&world, "run backup").exits(0);
    say(&world, "status").exits(0);
}

/// A run that takes long is said once, by the first look behind the moment when the next one is due.
#[test]
fn a_run_that_is_on_is_not_begun_again_by_the_clock() {
    let world =
        with_profile("[default.verify]\n[default.run]\nbefore = \"touch HERE/begun; sleep 5\"\n");
    let mut first = bare(&world, "run").stdout(Stdio::null()).spawn().unwrap();
    wait_for(&world.path("begun"));
    say(&world, "run --due hourly").exits(0);
    first.wait().unwrap();
}

#[test]
fn variables_of_a_profile_are_set_for_it() {
    let world = with_profile("[default.environment]\nSTRONGROOM_PASSWORD = \"wrong\"\n");
    let file = world.path(".config/strongroom/config.toml");
    say(&world, "snapshots").exits(1).warns("others may read this file").warns("chmod 600");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // The file of the passphrase comes before.
    say(&world, "snapshots").exits(0);
    let text = fs::read_to_string(&file).unwrap().replace("password-file = \"~/passphrase\"\n", "");
    fs::write(&file, text).unwrap();
    say(&world, "snapshots").exits(5);
    let mut command = bare(&world, "snapshots");
    command.env("STRONGROOM_PASSWORD", crate::world::PASSPHRASE);
    Run::of(command.output().unwrap()).exits(0);
    say(&world, "profile show").exits(0).says("STRONGROOM_PASSWORD = …");
}

#[test]
fn what_would_be_scheduled_can_be_seen() {
    let world = with_profile(STEPS);
    let table = say(&world, "schedule -n --cron --at 02:30 --system").exits(0);
    assert!(table.out.contains("--due 02:30 --jitter 60min"), "{}", table.out);
    // The file is read from another folder.
    let mut command = bare(&world, "schedule -n --cron --profile default --config config.toml");
    command.current_dir(world.path(".config/strongroom"));
    Run::of(command.output().unwrap()).exits(0).says("/.config/strongroom/config.toml run");
    say(&world, "schedule --at sometimes").exits(2).warns("is no calendar");
    say(&world, "schedule -n --cron --at *-*-01").exits(1).warns("only systemd");
    let file = world.path(".config/strongroom/config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let warned = |text: &str| {
        fs::write(&file, text).unwrap();
        let run = say(&world, "schedule -n --cron").exits(0);
        run.err.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(warned(&text), "");
    let without = text.replace("password-file = \"~/passphrase\"\n", "");
    let said = warned(&without);
    assert!(said.contains("its runs will fail") && said.contains("password-credential"), "{said}");
    assert!(said.contains("for backup, forget, prune, verify:"), "{said}");
    let by_variable = "[default.environment]\nSTRONGROOM_PASSWORD_COMMAND = \"true\"\n";
    assert_eq!(warned(&format!("{without}{by_variable}")), "");
    assert!(warned(&text.replace("~/tree", "~/gone")).contains("there is no"));
    write_profile(&world, "[default.backup]\nexclude-cache = true\n");
    say(&world, "schedule -n").exits(1).warns("exclude-caches");
    write_profile(&world, "");
    say(&world, "schedule -n").exits(1).warns("has no step to run");
}

/// What a link leads to is another file after an update.
#[test]
fn the_program_is_scheduled_by_the_name_that_it_was_called_by() {
    let world = with_profile(STEPS);
    let link = world.path("strongroom of today");
    std::os::unix::fs::symlink(crate::world::program(), &link).unwrap();
    for in_path in [false, true] {
        let called = if in_path { link.file_name().unwrap() } else { link.as_os_str() };
        let mut command = Command::new(called);
        command.args(["schedule", "-n", "--cron", "--system"]);
        world.surround(&mut command);
        command.env("PATH", world.folder.path());
        command.env_remove("STRONGROOM_REPOSITORY").env_remove("STRONGROOM_PASSWORD");
        let run = Run::of(command.output().unwrap()).exits(0);
        assert!(run.out.contains(&*link.to_string_lossy()), "{}", run.out);
    }
}

fn has_cron() -> bool {
    let names = fs::read_dir("/proc").unwrap().flatten();
    names
        .filter_map(|process| fs::read_to_string(process.path().join("comm")).ok())
        .any(|name| ["cron\n", "crond\n", "fcron\n"].contains(&&*name))
}

/// A program `crontab` that answers as busybox's does.
#[test]
fn a_table_of_cron_keeps_its_other_lines() {
    let world = with_profile(STEPS);
    let programs = world.path("programs");
    fs::create_dir(&programs).unwrap();
    let table = world.path("table");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = -l ]; then\n  [ -e {0} ] || {{ echo \"crontab: can't open 'me': No such \
         file or directory\" >&2; exit 1; }}\n  cat {0}\nelse\n  cat > {0}\nfi\n",
        table.display()
    );
    fs::write(programs.join("crontab"), script).unwrap();
    fs::set_permissions(programs.join("crontab"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let say = |words: &str| Run::of(bare(&world, words).env("PATH", &path).output().unwrap());
    let run = say("schedule --cron --user --at 02:30").exits(0).says("your table of cron");
    assert!(run.out.contains("when: 02:30, and up to 1 h"), "{}", run.out);
    // It never ran: cron starts it at the next quarter of an hour.
    assert!(run.out.contains("next run: ") && run.out.contains(":00\n"), "{}", run.out);
    // A program of this name is what makes tables of cron run.
    let here = "cron runs already on this machine";
    if !skipped("a machine without cron", has_cron().then_some(here)) {
        run.warns("nothing runs the profile yet");
        fs::copy("/bin/sleep", programs.join("crond")).unwrap();
        let mut crond = Command::new(programs.join("crond")).arg("60").spawn().unwrap();
        let run = say("schedule --cron --user --at 02:30").exits(0);
        crond.kill().unwrap();
        crond.wait().unwrap();
        assert!(!run.err.contains("nothing runs"), "{}", run.err);
    }
    let own = fs::read_to_string(&table).unwrap();
    assert!(own.contains("run --due 02:30") && own.lines().count() == 1, "{own}");
    fs::write(&table, format!("5 4 * * * other\n{own}")).unwrap();
    say("schedule --cron --user --at 03:30").exits(0);
    let both = fs::read_to_string(&table).unwrap();
    assert!(both.starts_with("5 4 * * * other\n") && both.contains("--due 03:30"), "{both}");
    assert_eq!(both.lines().count(), 2, "{both}");
    say("schedule --show --user").exits(0).says("cron: ").says("cron runs it next on ");
    // Another file's profile of the same name would take its place.
    let file = world.path(".config/strongroom/config.toml");
    fs::copy(&file, world.path("it's another.toml")).unwrap();
    for words in ["schedule --cron --user", "schedule --show --user", "schedule --remove --user"] {
        let mut command = bare(&world, words);
        command.env("STRONGROOM_CONFIG", world.path("it's another.toml")).env("PATH", &path);
        let run = Run::of(command.output().unwrap()).exits(1);
        run.warns("of another file").warns("config.toml").warns("another name");
    }
    assert_eq!(fs::read_to_string(&table).unwrap(), both);
    // Once it was run, the next time is tomorrow's at the latest.
    say("run").code.unwrap();
    let shown = say("schedule --show --user").exits(0).out;
    let next = shown.lines().find_map(|line| line.strip_prefix("cron runs it next on ")).unwrap();
    assert!(matches!(&next[15..17], "03" | "04") && next.ends_with(":00"), "{shown}");
    say("schedule --remove --user").exits(0).says("removed: your table of cron");
    assert_eq!(fs::read_to_string(&table).unwrap(), "5 4 * * * other\n");
}

/// Both disks have an empty mount point while they are away.
#[test]
fn a_run_makes_nothing_anew_on_a_disk_that_is_not_mounted() {
    let world = with_profile(
        "[default.backup]\npaths = [\"~/tree\"]\ninit = true\nkdf-memory = \"8MiB\"\n\
         [default.replicate]\ntargets = [\"HERE/disk/copy\"]\n",
    );
    fs::create_dir(world.path("disk")).unwrap();
    say(&world, "run").exits(0);
    let (disk, away) = (world.path("disk"), world.path("away"));
    fs::rename(&disk, &away).unwrap();
    fs::create_dir(&disk).unwrap();
    say(&world, "run").exits(6).warns("is gone").warns("mount its disk").warns("replicate --init");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0, "nothing is made below a mount point");
    let copy = disk.join("copy").display().to_string();
    say(&world, &format!("replicate {copy}")).exits(6).warns("none is made in its place");
    say(&world, &format!("replicate -n {copy}")).exits(0);
    // Said by a person, it is made.
    say(&world, &format!("replicate --init {copy}")).exits(0);
    fs::remove_dir_all(&disk).unwrap();
    fs::rename(&away, &disk).unwrap();
    say(&world, "run").exits(0);

    fs::rename(world.repository(), world.path("elsewhere")).unwrap();
    fs::create_dir(world.repository()).unwrap();
    let run = say(&world, "run").exits(6);
    run.warns("the repository that was at").warns("`strongroom init`");
    assert_eq!(fs::read_dir(world.repository()).unwrap().count(), 0, "no other repository");
    fs::remove_dir(world.repository()).unwrap();
    fs::rename(world.path("elsewhere"), world.repository()).unwrap();
    say(&world, "run").exits(0);
}

/// How many snapshots there are of a host and of a path that ends so.
fn count_of(world: &World, host: &str, path: &str) -> usize {
    let listed = say(world, "snapshots --json").exits(0).events("snapshot");
    let is_one = |event: &&Value| {
        let paths = event["paths"].as_array().unwrap();
        event["host"] == host && paths.iter().any(|one| one.as_str().unwrap().ends_with(path))
    };
    listed.iter().filter(is_one).count()
}

const TWO_PROFILES: &str = r#"
[default.backup]
paths = ["~/tree"]
host = "laptop"
[default.forget]
keep-last = 60
[default.prune]

[photos]
extends = "default"
[photos.backup]
paths = ["~/photos"]
[photos.forget]
keep-last = 1
"#;

/// A world of two profiles, with three nights of the first, and two of another machine.
fn two_profiles(photos: &str) -> World {
    let world = with_profile(&TWO_PROFILES.replace("keep-last = 1\n", photos));
    fs::create_dir(world.path("photos")).unwrap();
    fs::write(world.path("photos/one"), "one").unwrap();
    for _ in 0..3 {
        say(&world, "run").exits(0);
    }
    for _ in 0..2 {
        say(&world, "backup --host server").exits(0);
    }
    world
}

/// What is left of the profile's own nights, of those of `default`, and of those of the other machine.
fn left(world: &World) -> [usize; 3] {
    [("laptop", "/photos"), ("laptop", "/tree"), ("server", "/tree")]
        .map(|(host, path)| count_of(world, host, path))
}

#[test]
fn rules_of_a_run_are_for_what_its_own_backup_makes() {
    let world = two_profiles("keep-last = 1\n");
    say(&world, "--profile photos run").exits(0);
    let run = say(&world, "--profile photos run").exits(0);
    run.says("5 snapshots stay: these rules are not for their host or paths");
    assert_eq!(left(&world), [1, 3, 2]);
    // A run of the step alone: the last run that made a snapshot says which are its own.
    say(&world, "--profile photos run backup").exits(0);
    assert_eq!(left(&world), [2, 3, 2]);
    say(&world, "--profile photos run forget prune").exits(0);
    assert_eq!(left(&world), [1, 3, 2]);
    // Also if that snapshot is forgotten meanwhile.
    let photos = world.path("photos").display().to_string();
    for _ in 0..2 {
        say(&world, "--profile photos run backup").exits(0);
    }
    say(&world, &format!("forget --path {photos} latest")).exits(0);
    say(&world, "--profile photos run forget").exits(0);
    assert_eq!(left(&world), [1, 3, 2]);
    // Nothing else is remembered: then nothing is forgotten, and that is said.
    fs::remove_file(world.path(".local/state/strongroom/photos.json")).unwrap();
    let run = say(&world, "--profile photos run forget").exits(1);
    run.says("run `strongroom --profile photos run backup`").says("all-series = true");
    assert_eq!(left(&world), [1, 3, 2]);
}

#[test]
fn rules_of_a_run_are_for_all_if_the_profile_says_so() {
    for (rules, expected) in [
        ("keep-last = 1\nall-series = true\n", [1, 1, 1]),
        ("keep-last = 1\nhost = \"server\"\n", [2, 3, 1]),
        ("keep-last = 1\npath = \"~/tree\"\n", [2, 1, 1]),
        ("keep-last = 1\nlabel = \"none\"\n", [2, 3, 2]),
    ] {
        let world = two_profiles(rules);
        say(&world, "profile check").exits(0);
        say(&world, "--profile photos run").exits(0);
        let run = say(&world, "--profile photos run").exits(0);
        assert!(!run.out.contains("not for their host"), "{}", run.out);
        assert_eq!(left(&world), expected, "{rules}");
        // A name puts aside the rules, and what is said about them.
        if rules.contains("all-series") {
            say(&world, "--profile photos forget --host server latest").exits(0);
        }
    }
}

/// A machine that makes no backups itself, and thins those of all others.
#[test]
fn rules_of_a_profile_without_a_backup_are_for_all() {
    let world = two_profiles("keep-last = 1\n");
    write_profile(&world, "[default.forget]\nkeep-last = 1\n[default.prune]\n");
    say(&world, "run --dry-run").exits(0).says("strongroom --profile default forget\n");
    say(&world, "run").exits(0);
    assert_eq!(left(&world), [0, 1, 1]);
}
