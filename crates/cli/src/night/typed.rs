//! A passphrase that a person types once for a whole run, and that each step without a source of its
//! own gets.
//!
//! A step finds it in a pipe that it inherits: other users can see arguments, and what a step starts
//! sees its environment. Hooks get neither.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::Command;

use strongroom_base::Severity;

use super::{Night, Progress, StepRecord};
use crate::child::inherit;
use crate::exit::Exit;
use crate::passphrase::Passphrase;

/// What a pipe takes before its reader is there, on every machine.
const BYTES_MAX: usize = 4096;

/// The steps that get it.
#[derive(Debug, Clone, Default)]
pub struct Typed {
    /// Steps without a file, command, credential or variable that has the passphrase.
    pub steps: BTreeSet<&'static str>,
    /// Whether one of them may create the repository: a new passphrase is asked for twice.
    pub may_be_new: bool,
}

/// What became of the question.
#[derive(Default)]
pub(super) enum Answer {
    /// It was not needed, or the steps say themselves what is missing.
    #[default]
    None,
    /// It was typed.
    Typed(Passphrase),
    /// There was no terminal, or nothing was typed at it: the error, with the next step.
    Missing(String),
}

impl Night<'_> {
    /// Asks for the passphrase, if a step needs it.
    pub(super) fn ask(&self, progress: &mut Progress) -> Answer {
        if self.typed_passphrase.steps.is_empty() {
            return Answer::None;
        }
        match self.context.passphrase_of_run(self.typed_passphrase.may_be_new) {
            Ok(passphrase) => Answer::Typed(passphrase),
            Err(error) if error.is_of_passphrase() => {
                let message = error.in_full();
                self.context.terminal.problem(Severity::Warning, &message);
                progress.failures.push(message.clone());
                Answer::Missing(message)
            }
            // A request to stop, or no repository.
            Err(_) => Answer::None,
        }
    }

    /// Why a step need not even be tried.
    pub(super) fn has_no_passphrase(
        &self,
        step: &'static str,
        progress: &Progress,
    ) -> Option<StepRecord> {
        let is_one = |step: &str| self.typed_passphrase.steps.contains(step);
        let is_refused = |record: &StepRecord| {
            is_one(&record.step) && record.exit == Some(i32::from(Exit::Passphrase as u8))
        };
        let why = match &progress.passphrase {
            Answer::Missing(_) if is_one(step) => "there is no passphrase",
            Answer::Typed(_) if is_one(step) && progress.steps.iter().any(is_refused) => {
                "the passphrase is wrong, as above"
            }
            _ => return None,
        };
        Some(StepRecord {
            step: step.to_owned(),
            outcome: "failed".to_owned(),
            exit: Some(i32::from(Exit::Passphrase as u8)),
            seconds: 0.0,
            ended: None,
            output: format!("not tried: {why}\n"),
        })
    }

    /// Gives the passphrase to a step that needs it.
    pub(super) fn hand_over(
        &self,
        step: &'static str,
        progress: &Progress,
        command: &mut Command,
    ) -> io::Result<()> {
        match &progress.passphrase {
            Answer::Typed(passphrase) if self.typed_passphrase.steps.contains(step) => {
                let file = piped(passphrase, command)?;
                command.arg(format!("--password-file={file}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Puts text into a pipe that only this command inherits; gives its name there.
fn piped(text: &[u8], command: &mut Command) -> io::Result<String> {
    if text.len() > BYTES_MAX {
        return Err(io::Error::other("the passphrase is longer than 4096 bytes"));
    }
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(text)?;
    let name = format!("/dev/fd/{}", reader.as_raw_fd());
    inherit(command, reader);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn only_the_command_itself_inherits_it() {
        let shell = |text: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", text]).stderr(Stdio::null());
            command
        };
        let mut command = shell("");
        let name = piped(b"secret", &mut command).unwrap();
        let mut command = shell(&format!("cat {name}"));
        let name = piped(b"secret", &mut command).unwrap();
        let mut other = shell(&format!("cat {name}"));
        assert_eq!(other.output().unwrap().stdout, b"");
        let mut command = shell("cat /dev/fd/$0");
        let name = piped(b"secret", &mut command).unwrap();
        command.arg(name.rsplit('/').next().unwrap());
        assert_eq!(command.output().unwrap().stdout, b"secret");
        assert!(piped(&vec![b'x'; BYTES_MAX + 1], &mut command).is_err());
    }
}
