//! A libvirt whose agent freezes the guest long after nothing waits for it any more. `virsh` is a script
//! that answers as libvirt does, and refuses the backup itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use strongroom_base::Stopwatch;

const VIRSH: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
say_no() {
    echo "error: $1" >&2
    exit 1
}
case $2 in
uri) echo qemu:///session ;;
dumpxml)
    echo "<domain type='kvm'><name>vm1</name><uuid>U</uuid><devices><disk type='file' device='disk'>
        <driver type='qcow2'/><source file='/a'/><target dev='vda' bus='virtio'/></disk></devices>
        </domain>"
    ;;
domblkinfo) echo "Capacity: 1048576" ;;
domstate) echo running ;;
backup-begin) say_no "there is no room" ;;
backup-dumpxml) say_no "no domain backup job" ;;
domfsfreeze)
    [ -e frozen ] && say_no "The command guest-fsfreeze-freeze has been disabled for this instance"
    [ -e willing ] && touch frozen && exec echo "Froze 1 filesystem(s)"
    [ -e absent ] && say_no "QEMU guest agent is not connected"
    [ -e unable ] && say_no "The command guest-fsfreeze-freeze has not been found"
    touch freezing
    # libvirt goes on when its client is gone.
    (sleep 5; mv freezing frozen) > /dev/null 2>&1 &
    [ -e slow ] && exec sleep 60
    say_no "Guest agent is not responding: guest agent command timed out"
    ;;
domfsthaw)
    [ -e once ] && rm once && say_no "Timed out during operation: cannot acquire state change lock"
    [ -e absent ] && say_no "QEMU guest agent is not connected"
    [ -e unable ] && say_no "The command guest-fsfreeze-freeze has not been found"
    [ -e freezing ] && say_no "Timed out during operation: cannot acquire state change lock"
    [ -e frozen ] && mv frozen thawed
    echo "Thawed 1 filesystem(s)"
    ;;
esac
"#;

/// The folder of such a libvirt, with these files.
fn libvirt(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("virsh"), VIRSH).unwrap();
    fs::set_permissions(path("virsh"), fs::Permissions::from_mode(0o755)).unwrap();
    files.iter().for_each(|file| fs::write(path(file), "").unwrap());
    folder
}

/// A night with it. Returns what the night said.
#[expect(
    clippy::disallowed_methods,
    reason = "programs are looked for where they were before, too"
)]
fn night_of(folder: &Path, more: &[&str]) -> String {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let before = std::env::split_paths(&before);
    let programs: Vec<PathBuf> = [folder.to_owned()].into_iter().chain(before).collect();
    let mut command = Command::new(program());
    command.arg(folder).arg(folder.join("state")).args(more);
    command.env("PATH", std::env::join_paths(programs).unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same, with a libvirt of its own.
fn night(how: &str, more: &[&str]) -> (tempfile::TempDir, String) {
    let folder = libvirt(&[how]);
    let said = night_of(folder.path(), more);
    (folder, said)
}

#[expect(clippy::disallowed_methods, reason = "examples are beside the tests")]
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/libvirt_night");
    assert!(program.exists(), "{} is missing: cargo test builds it", program.display());
    program
}

#[test]
fn kept_1_7_a_guest_of_libvirt_that_freezes_late_goes_on() {
    for (how, more) in
        [("slow", &[][..]), ("refused", &[]), ("slow", &["required"]), ("refused", &["required"])]
    {
        let (folder, said) = night(how, more);
        let has = |name: &str| folder.path().join(name).exists();
        let outcome = (has("freezing"), has("frozen"), has("thawed"));
        assert_eq!(outcome, (false, false, true), "{how} {more:?}: {said}");
        let why = if more.is_empty() { "there is no room" } else { "frozen" };
        assert!(said.contains(why) && !said.contains("after:"), "{how} {more:?}: {said}");
    }
}

#[test]
fn an_agent_that_cannot_freeze_is_not_waited_for() {
    for (how, more, why) in [
        ("absent", &[][..], "there is no room"),
        ("absent", &["required"], "not connected"),
        ("unable", &[], "there is no room"),
        ("unable", &["required"], "has not been found"),
    ] {
        let begun = Stopwatch::start();
        let (_folder, said) = night(how, more);
        assert!(said.contains(why) && !said.contains("after:"), "{more:?}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{more:?}: {:?}", begun.elapsed());
    }
}

/// What a run leaves that dies while the guest is frozen.
const INTENT: &str = r#"{"snapshot": "S0", "is_freezing": true, "stores": []}"#;

fn left_frozen(files: &[&str]) -> tempfile::TempDir {
    let folder = libvirt(files);
    fs::create_dir(folder.path().join("state")).unwrap();
    fs::write(folder.path().join("state/machine.intent"), INTENT).unwrap();
    folder
}

#[test]
fn a_guest_of_libvirt_that_is_not_thawed_is_not_forgotten_by_the_next_nights() {
    let folder = left_frozen(&["frozen", "absent"]);
    let has = |name: &str| folder.path().join(name).exists();
    for _ in 0..2 {
        let begun = Stopwatch::start();
        let said = night_of(folder.path(), &[]);
        assert!(said.contains("thawed") && said.contains("there is no room"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert!(has("frozen") && has("state/machine.intent"));
    }
    fs::remove_file(folder.path().join("absent")).unwrap();
    fs::write(folder.path().join("willing"), "").unwrap();
    let said = night_of(folder.path(), &[]);
    assert!(said.contains("there is no room") && !said.contains("after:"), "{said}");
    assert!(has("thawed") && !has("frozen") && !has("state/machine.intent"));
}

#[test]
fn a_guest_of_libvirt_that_an_earlier_night_has_frozen_is_not_another_programs() {
    let folder = left_frozen(&["frozen", "willing", "once"]);
    let has = |name: &str| folder.path().join(name).exists();
    let said = night_of(folder.path(), &["required"]);
    assert!(said.contains("there is no room") && !said.contains("after:"), "{said}");
    assert!(has("thawed") && !has("frozen") && !has("state/machine.intent"));
}
