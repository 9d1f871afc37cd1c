//! Our process is killed before each command that it sends to QEMU. What it has left is undone, by
//! `undo` or by the next backup, and the guest is healthy.
//!
//! The process sends its commands through a relay, which kills it when the last of them has passed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use strongroom_machine::{MachineError, Reached, RunningMachine, undo};

use crate::world::{Agent, Guest, check_same, night, plan};

/// The program that is killed.
#[expect(clippy::disallowed_methods, reason = "examples are beside the tests")]
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/one_night");
    assert!(program.exists(), "{} is missing: cargo test builds it", program.display());
    program
}

/// Runs the program until it has sent the command that `is_last` says; the command and its number.
/// Returns true if it came to its end before.
pub fn run_until(guest: &Guest, agent: Option<&Path>, is_last: impl Fn(&str) -> bool) -> bool {
    let socket = guest.folder().join("relay");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let monitor = guest.monitor();
    let mut command = Command::new(program());
    command.arg(&socket).args([guest.folder(), &guest.state()]).args(agent);
    command.current_dir(guest.folder());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (stream, _) = listener.accept().unwrap();
    if relay(&stream, &monitor, &is_last) {
        child.kill().unwrap();
    }
    child.wait().unwrap().success()
}

/// Passes on commands until the last one. Returns false if it did not come.
fn relay(stream: &UnixStream, monitor: &Path, is_last: &dyn Fn(&str) -> bool) -> bool {
    let mut qemu = UnixStream::connect(monitor).unwrap();
    let mut answers = qemu.try_clone().unwrap();
    let mut back = stream.try_clone().unwrap();
    std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        writeln!(qemu, "{line}").unwrap();
        let command: Value = serde_json::from_str(&line).unwrap();
        if is_last(command["execute"].as_str().unwrap()) {
            // QEMU carries out what it was sent.
            let _ = qemu.shutdown(std::net::Shutdown::Write);
            return true;
        }
    }
    let _ = qemu.shutdown(std::net::Shutdown::Write);
    false
}

/// Says that the last command is the one that changes the machine for this many times.
fn changes(count: usize) -> impl Fn(&str) -> bool {
    let left = AtomicUsize::new(count);
    move |command| {
        let changes = !command.starts_with("query-") && command != "qom-get";
        changes && left.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

#[test]
fn nothing_is_left_after_any_death() {
    let plans = [plan("vda", "virtio-blk-pci", "qcow2", 1), plan("sda", "ide-hd", "raw", 1)];
    let mut guest = Guest::start(&plans, &[]);
    guest.write("vda", 0, 1 << 20, 3);
    let mut count = 1;
    while !run_until(&guest, None, changes(count)) {
        guest.write("vda", 4096, 4096, count as u8 + 1);
        if count % 2 == 0 {
            undo(Some(&guest.monitor()), None, &guest.state()).unwrap();
        } else {
            let (folder, state) = (guest.folder().to_owned(), guest.state());
            let then = guest.disks["vda"].clone();
            let live = guest.connect().freeze_disks(&night("S", &folder, &state)).unwrap();
            check_same(&live.disks[0], &then, None);
            live.finish(false).unwrap();
        }
        guest.check_healthy();
        count += 1;
    }
    assert!(count > 20, "{count}");
    assert!(undo(Some(&guest.monitor()), None, &guest.state()).unwrap().is_nothing());
}

#[test]
fn a_machine_runs_on_even_if_its_migration_cannot_be_set_back() {
    let guest = Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &[]);
    guest.ask("stop", Value::Null);
    let intent = json!({
        "monitor": guest.monitor(), "snapshot": "S", "agent": null, "is_pausing": true, "disks": [],
        "migration": {"capabilities": ["what-no-qemu-has"], "bandwidth": null},
    });
    std::fs::create_dir_all(guest.state()).unwrap();
    std::fs::write(guest.state().join("machine.intent"), intent.to_string()).unwrap();
    let error = undo(Some(&guest.monitor()), None, &guest.state()).unwrap_err();
    assert!(error.to_string().contains("what-no-qemu-has"), "{error}");
    assert_eq!(guest.ask("query-status", Value::Null)["status"], "running");
}

#[test]
fn a_machine_runs_on_after_a_death_while_its_memory_is_stored() {
    let plans = [plan("vda", "virtio-blk-pci", "qcow2", 1), plan("sda", "ide-hd", "raw", 1)];
    let mut guest = Guest::start(&plans, &[]);
    guest.write("vda", 0, 1 << 20, 3);
    let capabilities = guest.ask("query-migrate-capabilities", Value::Null);
    let bandwidth = guest.ask("query-migrate-parameters", Value::Null)["max-bandwidth"].clone();
    let memory = Path::new("memory");
    let mut count = 1;
    while !run_until(&guest, Some(memory), changes(count)) {
        guest.write("vda", 4096, 4096, count as u8 + 1);
        if count % 2 == 0 {
            undo(Some(&guest.monitor()), None, &guest.state()).unwrap();
        } else {
            let (folder, state) = (guest.folder().to_owned(), guest.state());
            let then = guest.disks["vda"].clone();
            let (night, mut settled) = (night("S", &folder, &state), 0);
            let mut settle = || {
                settled += 1;
                Ok(())
            };
            let live = guest.connect().freeze_with_memory(&night, &mut settle).unwrap();
            assert!(live.device_state.as_ref().is_some_and(|state| state.len() > 10_000));
            check_same(&live.disks[0], &then, None);
            live.finish(false).unwrap();
            assert_eq!(settled, 1);
        }
        guest.check_healthy();
        assert_eq!(guest.ask("query-migrate-capabilities", Value::Null), capabilities);
        let parameters = guest.ask("query-migrate-parameters", Value::Null);
        assert_eq!(parameters["max-bandwidth"], bandwidth);
        count += 1;
    }
    assert!(count > 25, "{count}");
    assert!(undo(Some(&guest.monitor()), None, &guest.state()).unwrap().is_nothing());
}

#[test]
fn a_death_beside_an_iothread_leaves_nothing() {
    let more = ["-object", "iothread,id=io", "-device", "virtio-scsi-pci,id=scsi,iothread=io"];
    let mut guest = Guest::start(&[plan("sda", "scsi-hd,bus=scsi.0", "raw", 1)], &more);
    for last in ["qom-set", "cont", "block-export-add", "block-export-del", "nbd-server-stop"] {
        assert!(!run_until(&guest, None, |command| command == last));
        undo(Some(&guest.monitor()), None, &guest.state()).unwrap();
        guest.check_healthy();
    }
}

#[test]
fn a_guest_that_was_frozen_is_thawed() {
    let mut guest = Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &[]);
    let agent = Agent::start(guest.folder());
    let monitor = guest.monitor();
    for (last, is_paused) in [("stop", true), ("block-export-add", false)] {
        assert!(!run_until(&guest, Some(&agent.socket), |command| command == last));
        assert!(agent.is_frozen());
        let undone = undo(Some(&monitor), None, &guest.state()).unwrap();
        assert_eq!((undone.is_thawed, undone.is_resumed), (true, is_paused), "{undone:?}");
        assert!(!agent.is_frozen());
        guest.check_healthy();
    }

    // In a night that goes well it is thawed long before the end.
    assert!(!run_until(&guest, Some(&agent.socket), |command| command == "block-export-del"));
    assert!(!agent.is_frozen());
    let undone = undo(Some(&monitor), None, &guest.state()).unwrap();
    assert!(!undone.is_thawed && !undone.is_resumed, "{undone:?}");
    guest.check_healthy();
}

/// A guest with an agent that a run has frozen that died. The agent cannot be reached as long as its
/// socket has the other name.
fn left_frozen(sockets: &Path) -> (Guest, Agent, PathBuf) {
    let chardev =
        format!("socket,id=a,path={},server=on,wait=off", sockets.join("agent").display());
    let guest = Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &["-chardev", &chardev]);
    let agent = Agent::start(guest.folder());
    assert!(!run_until(&guest, Some(&agent.socket), |command| command == "stop"));
    assert!(agent.is_frozen());
    let hidden = agent.socket.with_file_name("hidden");
    std::fs::rename(&agent.socket, &hidden).unwrap();
    (guest, agent, hidden)
}

#[test]
fn a_guest_that_is_not_thawed_is_not_forgotten_by_the_next_nights() {
    let sockets = tempfile::tempdir().unwrap();
    let (mut guest, agent, hidden) = left_frozen(sockets.path());
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    for snapshot in ["S1", "S2"] {
        // They name no agent.
        let live = guest.connect().freeze_disks(&night(snapshot, &folder, &state)).unwrap();
        check_same(&live.disks[0], &guest.disks["vda"], None);
        let error = live.finish(true).unwrap_err();
        assert!(matches!(error, MachineError::NotThawed(_)), "{error}");
        assert!(agent.is_frozen());
    }
    std::fs::rename(&hidden, &agent.socket).unwrap();
    let live = guest.connect().freeze_disks(&night("S3", &folder, &state)).unwrap();
    assert!(!agent.is_frozen());
    live.finish(true).unwrap();
    guest.check_healthy();
}

#[test]
fn a_guest_that_an_earlier_night_has_frozen_is_not_another_programs() {
    let sockets = tempfile::tempdir().unwrap();
    let (mut guest, agent, hidden) = left_frozen(sockets.path());
    let (folder, state, machine) = (guest.folder().to_owned(), guest.state(), guest.connect());
    let mut tonight = night("S1", &folder, &state);
    tonight.agent = Some(&agent.socket);
    tonight.watched = Duration::from_secs(3);
    let live = std::thread::scope(|scope| {
        let frozen = scope.spawn(|| machine.freeze_disks(&tonight));
        let intent = || std::fs::read_to_string(state.join("machine.intent")).unwrap();
        while !intent().contains("\"S1\"") {
            std::thread::sleep(Duration::from_millis(5));
        }
        // What was left is undone. It answers again before the instant.
        std::fs::rename(&hidden, &agent.socket).unwrap();
        frozen.join().unwrap().unwrap()
    });
    assert!(matches!(live.reached, Reached::Frozen(1)), "{:?}", live.reached);
    assert!(!agent.is_frozen());
    live.finish(true).unwrap();
    guest.check_healthy();
}

/// The run that died and the one that undoes it are in different folders.
#[test]
fn a_guest_is_thawed_by_an_agent_whose_socket_was_named_from_another_folder() {
    let mut guest = Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &[]);
    let agent = Agent::start(guest.folder());
    assert!(!run_until(&guest, Some(Path::new("agent")), |command| command == "stop"));
    assert!(agent.is_frozen());
    let undone = undo(Some(&guest.monitor()), None, &guest.state()).unwrap();
    assert!(undone.is_thawed && !agent.is_frozen(), "{undone:?}");
    guest.check_healthy();
}

#[test]
fn an_agent_that_cannot_be_reached_is_no_thawed_guest() {
    let chardev =
        |folder: &Path| format!("socket,id=a,path={},server=on,wait=off", folder.display());
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("qga");
    let more = chardev(&socket);
    let mut guest =
        Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &["-chardev", &more]);
    let intent = |agent: &Path| {
        let intent = json!({
            "monitor": guest.monitor(), "snapshot": "S", "agent": agent, "is_pausing": true,
            "disks": [],
        });
        std::fs::create_dir_all(guest.state()).unwrap();
        std::fs::write(guest.state().join("machine.intent"), intent.to_string()).unwrap();
    };
    // QEMU has it, and it cannot be connected to.
    std::fs::remove_file(&socket).unwrap();
    intent(&socket);
    let error = undo(None, None, &guest.state()).unwrap_err();
    assert!(matches!(error, MachineError::NotThawed(_)), "{error}");
    assert!(guest.state().join("machine.intent").exists());
    // It was written down by a run in another folder.
    intent(Path::new("qga"));
    assert!(matches!(undo(None, None, &guest.state()), Err(MachineError::NotThawed(_))));
    // This QEMU has no such agent.
    intent(&sockets.path().join("of-an-earlier-start"));
    undo(None, None, &guest.state()).unwrap();
    guest.check_healthy();
}

#[test]
fn what_no_state_folder_knows_can_be_undone() {
    let mut guest = Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &[]);
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    assert!(!run_until(&guest, None, |command| command == "block-export-add"));
    let elsewhere = folder.join("elsewhere");
    let error = guest.connect().freeze_disks(&night("S", &folder, &elsewhere)).err().unwrap();
    assert!(matches!(error, MachineError::LeftBehind { .. }), "{error}");
    std::fs::remove_dir_all(&state).unwrap();
    let undone = undo(Some(&guest.monitor()), None, &state).unwrap();
    assert!(!undone.removed.is_empty(), "{undone:?}");
    guest.check_healthy();
}

#[test]
fn a_pause_of_which_nothing_is_written_down_is_named() {
    let mut guest = Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &[]);
    assert!(!run_until(&guest, None, |command| command == "stop"));
    let elsewhere = guest.folder().join("elsewhere");
    let undone = undo(Some(&guest.monitor()), None, &elsewhere).unwrap();
    assert!(undone.is_paused && undone.is_of_unknown_run() && !undone.is_resumed, "{undone:?}");
    // Who paused it is known in the other folder.
    let undone = undo(Some(&guest.monitor()), None, &guest.state()).unwrap();
    assert!(undone.is_resumed && !undone.is_paused, "{undone:?}");
    guest.check_healthy();
}

#[test]
fn a_machine_that_ended_has_nothing_to_undo() {
    let mut guest = Guest::start(&[plan("vda", "virtio-blk-pci", "qcow2", 1)], &[]);
    assert!(!run_until(&guest, None, |command| command == "blockdev-add"));
    guest.restart(false);
    guest.kill();
    let undone = undo(None, None, &guest.state()).unwrap();
    assert!(undone.is_gone, "{undone:?}");
    guest.restart(false);
    guest.check_healthy();
}
