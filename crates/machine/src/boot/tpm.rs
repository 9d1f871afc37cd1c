//! The TPM of a machine that is started again: an emulator of its own (swtpm), with the state that it
//! had. What the guest has sealed opens as it did.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use strongroom_base::Stopwatch;

use super::TpmPlan;

/// How long it may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// An emulated TPM. Dropping it ends it.
pub struct RunningTpm(Child);

/// Whether there is an emulator.
pub fn is_here() -> bool {
    let mut command = Command::new("swtpm");
    command.arg("--version");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl RunningTpm {
    /// Starts it, and waits until it listens.
    pub fn start(plan: &TpmPlan) -> io::Result<Self> {
        match fs::create_dir(&plan.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for file in &plan.state {
            let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            fs::copy(file, plan.folder.join(name))?;
        }
        let _ = fs::remove_file(&plan.socket);
        let mut command = Command::new("swtpm");
        command.arg("socket").args(plan.is_version_2.then_some("--tpm2"));
        command.arg("--tpmstate").arg(format!("dir={}", plan.folder.display()));
        command.arg("--ctrl").arg(format!("type=unixio,path={}", plan.socket.display()));
        command.arg("--terminate").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let end_with_us = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: between fork and exec, it makes one system call.
        unsafe { command.pre_exec(end_with_us) };
        let mut running = Self(command.spawn()?);
        let begun = Stopwatch::start();
        while !plan.socket.exists() {
            if let Some(status) = running.0.try_wait()? {
                return Err(io::Error::other(format!("swtpm ended at once ({status})")));
            }
            if begun.elapsed() > START_LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(running)
    }
}

impl Drop for RunningTpm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
