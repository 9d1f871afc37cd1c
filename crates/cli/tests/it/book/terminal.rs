//! A terminal at which a person types the passphrase when asked.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::tty;

const QUESTIONS: [&str; 3] = ["New passphrase: ", "The same again: ", "Passphrase of "];
/// Longer than the slowest chapter takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The terminal, with a program at it.
pub struct Terminal {
    person: File,
    shown: Receiver<Vec<u8>>,
    /// All that was shown.
    pub text: String,
    /// How much of it was looked at for a question.
    answered: usize,
}

impl Terminal {
    /// Starts this program as the leader of a session at a new terminal. What it prints goes there.
    pub fn start(mut command: Command) -> (Self, std::process::Child) {
        let (person, program) = tty::open();
        let side = || Stdio::from(program.try_clone().unwrap());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let mut reader = person.try_clone().unwrap();
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It ends with an error when no program has the terminal any more.
            while let Ok(count) = reader.read(&mut buffer) {
                if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        (Self { person, shown, text: String::new(), answered: 0 }, child)
    }

    pub fn types(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).unwrap();
    }

    /// Types the passphrase at each question, until this is shown, or the program has ended.
    pub fn answer_until(&mut self, end: &str, passphrase: &str) {
        while !self.text[self.answered..].contains(end) {
            let bytes = match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => bytes,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                Err(error) => panic!("nothing is shown any more ({error}):\n{}", self.text),
            };
            self.text.push_str(&String::from_utf8_lossy(&bytes));
            let line = self.text[self.answered..].rsplit(['\n', '\r']).next().unwrap_or_default();
            if line.ends_with(": ") && QUESTIONS.iter().any(|question| line.contains(question)) {
                self.answered = self.text.len();
                self.types(&format!("{passphrase}\n"));
            }
        }
    }
}
