//! A terminal, and the program at it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::world::{World, has_program, program};

/// A new terminal: the side of the person, and the side of the program.
pub fn open() -> (File, File) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let program = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (File::from(person), program)
}

/// A terminal: the side of the person, and the side of the program.
pub struct Tty {
    pub person: File,
    pub program: File,
    /// All that was shown.
    pub shown: String,
    /// How much of that was waited for.
    seen: usize,
}

impl Tty {
    pub fn open() -> Self {
        let (person, program) = open();
        Self { person, program, shown: String::new(), seen: 0 }
    }

    /// The program at this terminal, without any other source of the passphrase.
    pub fn start(&self, world: &World, words: &str) -> Child {
        self.start_with(world, words, |command| {
            command.env_remove("STRONGROOM_PASSWORD");
        })
    }

    /// The program at this terminal.
    pub fn start_with(
        &self,
        world: &World,
        words: &str,
        change: impl FnOnce(&mut Command),
    ) -> Child {
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program()).args(words.split(' '));
        world.surround(&mut command);
        change(&mut command);
        let side = || Stdio::from(self.program.try_clone().unwrap());
        command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap()
    }

    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&self.person, PollFlags::IN)], Some(&limit));
            assert_eq!(ready, Ok(1), "no {text:?} in\n{}", self.shown);
            let mut buffer = [0; 1024];
            let count = self.person.read(&mut buffer).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    /// Shows all that comes until the program has ended, with this exit code.
    #[track_caller]
    pub fn read_to_end(&mut self, mut child: Child, code: i32) {
        loop {
            let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let ready = poll(&mut [PollFd::new(&self.person, PollFlags::IN)], Some(&limit));
            if ready.unwrap() > 0 {
                let mut buffer = [0; 4096];
                let count = self.person.read(&mut buffer).unwrap();
                self.shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
            } else if let Some(status) = child.try_wait().unwrap() {
                assert_eq!(status.code(), Some(code), "{}", self.shown);
                return;
            }
        }
    }

    pub fn types(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).unwrap();
    }

    pub fn echoes(&self) -> bool {
        tcgetattr(&self.program).unwrap().local_modes.contains(LocalModes::ECHO)
    }
}

pub fn cannot() -> Option<&'static str> {
    (!has_program("setsid")).then_some("setsid is not installed")
}
