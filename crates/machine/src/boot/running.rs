//! A machine that was started, until its end.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::json;
use strongroom_base::Stopwatch;

use super::console::OnLine;
use super::incoming::{self, Incoming};
use super::tpm::RunningTpm;
use super::{BootPlan, Console, picture};
use crate::{Qmp, QmpError};

/// How long QEMU may take until its monitor answers.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long QEMU may take to end when it is asked to.
const QUIT_LIMIT: Duration = Duration::from_secs(10);
/// How long a picture of the screen may take.
const PICTURE_LIMIT: Duration = Duration::from_secs(30);
/// What is kept of QEMU's errors.
const COMPLAINT_BYTES_MAX: usize = 8 << 10;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What QEMU finds strange: the gateway at a wire of its own, without a card.
const NO_CARD: &str = "hub 0 with no nics";

/// Why a machine does not start, or does not do what it is asked to.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The emulator cannot be run.
    #[error("cannot run {}: {error}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The emulator ended before the machine ran.
    #[error("QEMU ended at once ({status}): {complaint}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// What it said.
        complaint: String,
    },
    /// The monitor does not do what it is asked to.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// What was stored of the machine's devices does not fit this QEMU.
    #[error("QEMU does not take the state of the machine's devices: {complaint}")]
    State {
        /// What it said.
        complaint: String,
    },
    /// The picture of the screen cannot be made.
    #[error("cannot make a picture of the screen: {0}")]
    Picture(io::Error),
}

/// A machine that runs. Dropping it ends it.
pub struct Running {
    child: Child,
    /// How it ended, once it did.
    status: Option<ExitStatus>,
    pub(super) qmp: Qmp,
    monitor: PathBuf,
    pub(super) agent: Option<PathBuf>,
    /// Its serial port.
    pub console: Console,
    listener: Option<JoinHandle<()>>,
    complaint: Option<JoinHandle<String>>,
    _tpm: Option<RunningTpm>,
}

/// An emulator that has no monitor yet: it is ended unless it becomes a [`Running`].
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    /// Starts a machine, and looks for `words` on its serial port, whose lines `on_line` hears. It
    /// ends with the thread that starts it, however that ends.
    ///
    /// # Errors
    ///
    /// QEMU cannot be run, or ends at once, or its monitor does not answer.
    pub fn start(plan: &BootPlan, words: &[String], on_line: OnLine) -> Result<Self, BootError> {
        let failed = |error| BootError::Start { program: plan.program.clone(), error };
        let tpm = plan.tpm.as_ref().map(RunningTpm::start).transpose();
        let tpm = tpm.map_err(|error| BootError::Start { program: "swtpm".into(), error })?;
        let mut command = Command::new(&plan.program);
        command.args(&plan.arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let wire = plan.wire.clone();
        let end_with_us_and_keep_the_wire = move || {
            if let Some(wire) = &wire {
                wire.let_inherit()?;
            }
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        };
        // SAFETY: between fork and exec, it makes three system calls, and no more.
        unsafe { command.pre_exec(end_with_us_and_keep_the_wire) };
        let mut child = command.spawn().map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut starting = Starting(Some(child));
        let console = Console::look_for(words);
        let listening = console.clone();
        let listener =
            stdout.map(|stdout| std::thread::spawn(move || listening.listen(stdout, on_line)));
        let complaint = stderr.map(|stderr| std::thread::spawn(move || complaint_in(stderr)));
        let qmp = loop_until_monitor(&mut starting, plan);
        let qmp = match qmp {
            Ok(qmp) => qmp,
            Err(Gone::Ended(status)) => {
                let complaint = complaint.and_then(|thread| thread.join().ok()).unwrap_or_default();
                return Err(BootError::Ended { status, complaint });
            }
            Err(Gone::Io(error)) => return Err(failed(error)),
            Err(Gone::Silent(error)) => return Err(error.into()),
        };
        let Some(child) = starting.0.take() else {
            return Err(failed(io::ErrorKind::NotFound.into()));
        };
        let agent = plan.agent.clone();
        let monitor = plan.monitor.clone();
        Ok(Self {
            child,
            status: None,
            qmp,
            monitor,
            agent,
            console,
            listener,
            complaint,
            _tpm: tpm,
        })
    }

    /// Gives a machine that waits for it the state of its devices, and has it go on. Its memory is what
    /// it was.
    ///
    /// # Errors
    ///
    /// QEMU refuses the state: then it has ended, and says why.
    pub fn resume(&mut self, state: &[u8]) -> Result<(), BootError> {
        let socket = self.monitor.with_file_name("state");
        match incoming::load(&self.qmp, &socket, state) {
            Ok(()) => Ok(()),
            Err(Incoming::Refused(error)) => Err(BootError::State { complaint: error.to_string() }),
            Err(Incoming::Io(error)) => Err(BootError::State { complaint: self.last_words(error) }),
        }
    }

    /// What QEMU complained about before it ended, or else an error.
    fn last_words(&mut self, error: io::Error) -> String {
        let begun = Stopwatch::start();
        while matches!(self.ended(), Ok(None)) && begun.elapsed() < QUIT_LIMIT {
            std::thread::sleep(LOOK_EVERY);
        }
        let has_ended = matches!(self.ended(), Ok(Some(_)));
        let complaint = self.complaint.take().filter(|_| has_ended);
        let words = complaint.and_then(|thread| thread.join().ok()).unwrap_or_default();
        if words.is_empty() { error.to_string() } else { words }
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Writes a picture of its screen as PNG.
    ///
    /// # Errors
    ///
    /// It has no screen, or the file cannot be written.
    pub fn picture(&self, path: &Path) -> Result<(), BootError> {
        let mut arguments = json!({"filename": path.to_string_lossy(), "format": "png"});
        let taken = self.qmp.execute_within("screendump", arguments.clone(), PICTURE_LIMIT);
        match taken {
            Ok(_) => Ok(()),
            // Before QEMU 7.1, or without its library for PNG.
            Err(QmpError::Refused { .. }) => {
                if let Some(arguments) = arguments.as_object_mut() {
                    arguments.remove("format");
                }
                self.qmp.execute_within("screendump", arguments, PICTURE_LIMIT)?;
                picture::convert(path).map_err(BootError::Picture)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the processor runs by KVM.
    pub fn is_kvm(&self) -> bool {
        let answer = self.qmp.execute("query-kvm", serde_json::Value::Null);
        answer.is_ok_and(|answer| answer["enabled"] == true)
    }

    /// Whether KVM met something that it cannot do. Then the machine is paused for good.
    pub fn has_kvm_failed(&self) -> bool {
        let answer = self.qmp.execute("query-status", serde_json::Value::Null);
        answer.is_ok_and(|answer| answer["status"] == "internal-error")
    }

    /// Asks the machine to power off, as its button does. It need not obey.
    pub fn press_power_button(&self) -> Result<(), BootError> {
        self.qmp.execute("system_powerdown", serde_json::Value::Null)?;
        Ok(())
    }

    /// Ends it, and returns what QEMU complained about; empty if nothing.
    pub fn end(mut self) -> String {
        self.stop();
        self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    /// Ends it.
    pub fn stop(&mut self) {
        if self.ended().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        // With this, its disks are closed in order; if it does not answer, it is killed.
        let _ = self.qmp.execute_within("quit", serde_json::Value::Null, QUIT_LIMIT);
        let begun = Stopwatch::start();
        while begun.elapsed() < QUIT_LIMIT {
            if !matches!(self.ended(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        self.status = self.child.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.listener.take() {
            let _ = thread.join();
        }
    }
}

/// A monitor that greets wrongly this many times is none of QEMU's.
const FAILURES_MAX: u32 = 100;

/// Why there is no monitor.
enum Gone {
    Ended(ExitStatus),
    Io(io::Error),
    Silent(QmpError),
}

fn loop_until_monitor(starting: &mut Starting, plan: &BootPlan) -> Result<Qmp, Gone> {
    let begun = Stopwatch::start();
    let mut failures = 0;
    loop {
        if let Some(child) = &mut starting.0
            && let Some(status) = child.try_wait().map_err(Gone::Io)?
        {
            return Err(Gone::Ended(status));
        }
        let left = START_LIMIT.saturating_sub(begun.elapsed());
        match Qmp::connect(&plan.monitor, left.max(LOOK_EVERY)) {
            Ok(qmp) => return Ok(qmp),
            Err(error @ QmpError::Connect { .. }) if left.is_zero() => {
                return Err(Gone::Silent(error));
            }
            Err(QmpError::Connect { .. }) => std::thread::sleep(LOOK_EVERY),
            // It may be ending, which is the reason then.
            Err(error) if failures >= FAILURES_MAX || left.is_zero() => {
                return Err(Gone::Silent(error));
            }
            Err(_) => {
                failures += 1;
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

/// The beginning of what QEMU says on its standard error. The rest is read and dropped.
fn complaint_in(mut stream: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 {
            break;
        }
        let room = COMPLAINT_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..length.min(room)]);
    }
    let said = String::from_utf8_lossy(&kept);
    let lines = said.lines().filter(|line| !line.ends_with(NO_CARD));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}
