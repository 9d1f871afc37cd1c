//! Runs `virsh`, which every host with libvirt has: no library of libvirt is linked in.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;

/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How often a program is asked whether it has ended.
const TICK: Duration = Duration::from_millis(5);

/// Why `virsh` did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum VirshError {
    /// It cannot be started.
    #[error("cannot run virsh, by which machines of libvirt are reached: {0}")]
    Start(std::io::Error),
    /// It said no.
    #[error("libvirt refused {command}: {said}")]
    Refused {
        /// Its subcommand.
        command: String,
        /// Its words.
        said: String,
    },
    /// It was ended from outside. What it was to do may be done or not.
    #[error("virsh was ended while libvirt was asked for {command}")]
    Ended {
        /// Its subcommand.
        command: String,
    },
    /// It took too long.
    #[error("libvirt did not answer {command} within {limit:?}")]
    Slow {
        /// Its subcommand.
        command: String,
        /// How long it could take.
        limit: Duration,
    },
}

impl VirshError {
    /// Whether libvirt says one of these things.
    pub fn says(&self, words: &[&str]) -> bool {
        match self {
            Self::Refused { said, .. } => words.iter().any(|words| said.contains(words)),
            _ => false,
        }
    }
}

/// A connection to libvirt: each command makes its own.
#[derive(Debug, Clone)]
pub struct Virsh {
    /// Which libvirt; what `virsh` takes by default if it is none.
    pub uri: Option<String>,
}

impl Virsh {
    /// What a command says.
    pub fn run(&self, arguments: &[&str], limit: Duration) -> Result<String, VirshError> {
        let mut command = Command::new("virsh");
        command.arg("--quiet").env("LC_ALL", "C");
        if let Some(uri) = &self.uri {
            command.args(["--connect", uri]);
        }
        // A terminal's Ctrl-C is for us: what was begun is undone in order.
        command.process_group(0);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(VirshError::Start)?;
        let (answer, said) = (read(child.stdout.take()), read(child.stderr.take()));
        let name = || arguments.first().copied().unwrap_or_default().to_owned();
        let begun = Stopwatch::start();
        let status = loop {
            match child.try_wait().map_err(VirshError::Start)? {
                Some(status) => break status,
                None if begun.elapsed() > limit => {
                    end(&mut child);
                    return Err(VirshError::Slow { command: name(), limit });
                }
                None => std::thread::sleep(TICK),
            }
        };
        let (answer, said) = (answer.join().unwrap_or_default(), said.join().unwrap_or_default());
        if status.success() {
            return Ok(answer);
        }
        if status.code().is_none() {
            return Err(VirshError::Ended { command: name() });
        }
        // What went wrong is in the last line: "error: Domain not found: ...".
        let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> =
            lines.map(|line| line.strip_prefix("error: ").unwrap_or(line)).collect();
        Err(VirshError::Refused { command: name(), said: lines.join(": ") })
    }
}

fn read<R: Read + Send + 'static>(pipe: Option<R>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(ANSWER_BYTES_MAX).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
