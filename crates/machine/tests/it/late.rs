//! QEMU and agents that do what they are asked for long after nothing waits for it any more.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use strongroom_machine::{Consistency, Machine, MachineError, RunningMachine};

use crate::world::{Agent, Guest, night, usual};

/// A monitor that gives nothing back for a while after it was asked to stop the machine: QEMU flushes
/// all disks before it answers. Later connections wait as well.
fn monitor_that_stalls(guest: &Guest, stall: Duration) -> PathBuf {
    let socket = guest.folder().join("stalls");
    let listener = UnixListener::bind(&socket).unwrap();
    let monitor = guest.monitor();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            pass_on(&stream.unwrap(), &monitor, stall);
        }
    });
    socket
}

fn pass_on(stream: &UnixStream, monitor: &Path, stall: Duration) {
    static IS_STOPPING: AtomicBool = AtomicBool::new(false);
    let mut qemu = UnixStream::connect(monitor).unwrap();
    let (mut answers, mut back) = (qemu.try_clone().unwrap(), stream.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = answers.read(&mut bytes) {
            if IS_STOPPING.swap(false, Ordering::SeqCst) {
                std::thread::sleep(stall);
            }
            if back.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
    for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
        if line.contains("\"stop\"") {
            IS_STOPPING.store(true, Ordering::SeqCst);
        }
        if writeln!(qemu, "{line}").is_err() {
            return;
        }
    }
    let _ = qemu.shutdown(std::net::Shutdown::Write);
}

#[test]
fn a_machine_that_pauses_late_runs_again() {
    let mut guest = Guest::start(&usual(), &[]);
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    // Longer than the pause is waited for, and another command after it.
    let monitor = monitor_that_stalls(&guest, Duration::from_secs(53));
    let machine = Machine::connect(&monitor).unwrap();
    let error = machine.freeze_disks(&night("S", &folder, &state)).err().unwrap();
    assert!(error.to_string().contains("did not answer stop"), "{error}");
    drop(machine);
    guest.check_healthy();
}

#[test]
fn a_guest_that_freezes_late_is_thawed_before_the_end() {
    let mut guest = Guest::start(&usual(), &[]);
    let agent = Agent::slow(guest.folder(), Duration::from_secs(38));
    let (folder, state) = (guest.folder().to_owned(), guest.state());
    let mut tonight = night("S", &folder, &state);
    tonight.agent = Some(&agent.socket);
    tonight.consistency = Consistency::Required;
    let error = guest.connect().freeze_disks(&tonight).err().unwrap();
    assert!(matches!(error, MachineError::Agent(_)), "{error}");
    assert!(!agent.is_frozen());
    guest.check_healthy();
}
