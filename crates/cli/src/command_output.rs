//! What a command writes, read to its end: a command that fails has no end.

use std::io::{self, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::exit::{CliError, Exit};

/// The standard output of a command.
pub struct CommandOutput {
    text: String,
    child: Child,
    output: ChildStdout,
}

impl CommandOutput {
    /// Starts a command with a shell.
    pub fn start(text: &str) -> Result<Self, CliError> {
        let fail = |error: io::Error| {
            let message = format!("cannot run {text:?}: {error}");
            CliError::new(Exit::Failed, message, "check --stdin-from-command")
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(fail)?;
        let output = child.stdout.take().expect("it was asked for");
        Ok(Self { text: text.to_owned(), child, output })
    }
}

impl Read for CommandOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.output.read(buffer)?;
        if bytes == 0 {
            let status = self.child.wait()?;
            if !status.success() {
                let Self { text, .. } = self;
                return Err(io::Error::other(format!("{text:?} failed ({status})")));
            }
        }
        Ok(bytes)
    }
}

impl Drop for CommandOutput {
    fn drop(&mut self) {
        // It may have ended long ago; what it still wants to write has no reader.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
