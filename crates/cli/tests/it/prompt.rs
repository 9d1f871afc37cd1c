//! The passphrase, asked for on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::world::{PASSPHRASE, World, has_program, program, skipped};

/// A terminal: the side of the person, and the side of the program.
struct Tty {
    person: File,
    program: File,
    /// All that was shown.
    shown: String,
    /// How much of that was waited for.
    seen: usize,
}

impl Tty {
    fn open() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let program = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        Self { person: File::from(person), program, shown: String::new(), seen: 0 }
    }

    /// The program at this terminal, without any other source of the passphrase.
    fn start(&self, world: &World, words: &str) -> Child {
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program()).args(words.split(' '));
        world.surround(&mut command);
        let side = || Stdio::from(self.program.try_clone().unwrap());
        command.env_remove("STRONGROOM_PASSWORD").stdin(side()).stdout(side()).stderr(side());
        command.spawn().unwrap()
    }

    fn wait_for(&mut self, text: &str) {
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let mut buffer = [0; 1024];
            let count = self.person.read(&mut buffer).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    fn types(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).unwrap();
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.program).unwrap().local_modes.contains(LocalModes::ECHO)
    }
}

fn cannot() -> Option<&'static str> {
    (!has_program("setsid")).then_some("setsid is not installed")
}

#[test]
fn what_is_typed_is_never_shown() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_repository();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "snapshots");
    tty.wait_for("Passphrase of ");
    assert!(!tty.echoes());
    tty.types(&format!("{PASSPHRASE}\n"));
    tty.wait_for("there are no snapshots yet");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(tty.echoes());
    assert!(!tty.shown.contains(PASSPHRASE), "{}", tty.shown);
}

#[test]
fn a_new_passphrase_is_asked_for_until_it_is_the_same_twice() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::empty();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "init --kdf-memory 32KiB");
    tty.wait_for("New passphrase: ");
    tty.types("\n");
    tty.wait_for("protects nothing");
    for (second, reply) in [("another", "differ"), (PASSPHRASE, "created repository")] {
        tty.wait_for("New passphrase: ");
        tty.types(&format!("{PASSPHRASE}\n"));
        tty.wait_for("The same again: ");
        tty.types(&format!("{second}\n"));
        tty.wait_for(reply);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    world.say("snapshots").exits(0);
}

#[test]
fn ctrl_c_gives_the_terminal_back() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_repository();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "snapshots");
    tty.wait_for("Passphrase of ");
    tty.types("half of it\x03");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(tty.echoes());
}

#[test]
fn an_archive_is_not_written_to_a_terminal() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_repository();
    let mut tty = Tty::open();
    let mut child = tty.start(&world, "dump latest");
    tty.wait_for("such as `strongroom dump");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn progress_leaves_nothing_behind() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = World::with_tree(22);
    let mut tty = Tty::open();
    std::fs::write(world.path("word"), PASSPHRASE).unwrap();
    let words = format!(
        "backup --password-file {} {}",
        world.path("word").display(),
        world.tree().display()
    );
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait"]).arg(program()).args(words.split(' '));
    world.surround(&mut command);
    let side = || Stdio::from(tty.program.try_clone().unwrap());
    command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side());
    let mut child = command.spawn().unwrap();
    tty.wait_for("grew by");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // What was on its line before the summary was cleared.
    let (before, _) = tty.shown.split_once("snapshot ").unwrap();
    assert!(
        before.is_empty() || before.ends_with("\x1b[2K") || before.ends_with('\r'),
        "{before:?}"
    );
}
