//! What is asked of libvirt about one machine, and what its answers mean.

use std::path::Path;
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::domain::{Domain, escaped};
use crate::bitmaps::PREFIX;
use crate::error::MachineError;
use crate::passed_through::HostDevices;
use crate::virsh::{Virsh, VirshError};

/// How long libvirt may take for a question.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to end a backup, and to remove a checkpoint.
pub const CHANGE_LIMIT: Duration = Duration::from_secs(120);
/// How long a backup is waited for that may begin after all, or that is about to end.
pub const LATE_LIMIT: Duration = Duration::from_secs(30);
pub const LATE_TICK: Duration = Duration::from_millis(100);
/// What libvirt says if there is no backup.
pub const NO_JOB: [&str; 2] = ["no domain backup job", "backup job id not found"];
/// What it says if the machine is off, or gone.
pub const NO_MACHINE: [&str; 3] = ["is not running", "Domain not found", "failed to get domain"];

/// What is said to libvirt of one machine.
#[derive(Debug, Clone)]
pub struct Connection {
    /// How libvirt is reached.
    pub virsh: Virsh,
    /// The machine.
    pub name: String,
}

impl Connection {
    /// Runs a command about the machine: its name comes behind the command's.
    pub fn ask(&self, command: &[&str], limit: Duration) -> Result<String, VirshError> {
        let (first, rest) = command.split_first().expect("a command has a name");
        let arguments: Vec<&str> =
            [*first, "--domain", &self.name].into_iter().chain(rest.iter().copied()).collect();
        self.virsh.run(&arguments, limit)
    }

    /// What the machine is made of.
    pub fn domain(&self) -> Result<Domain, MachineError> {
        Domain::parse(&self.ask(&["dumpxml"], ANSWER_LIMIT)?, &HostDevices::default())
    }

    /// The checkpoints of ours.
    pub fn checkpoints(&self, start: &str) -> Result<Vec<String>, MachineError> {
        let listed = self.ask(&["checkpoint-list", "--name"], ANSWER_LIMIT)?;
        let names = listed.lines().map(str::trim).filter(|name| name.starts_with(start));
        Ok(names.map(str::to_owned).collect())
    }

    /// Removes the checkpoints of a set, except one. What cannot be removed stays: it costs the guest
    /// a little for each write, and is tried again the next night.
    pub fn remove_checkpoints(&self, set: &str, kept: Option<&str>) -> Result<(), MachineError> {
        let start = format!("{PREFIX}{set}-");
        for name in self.checkpoints(&start)? {
            if Some(name.as_str()) != kept {
                match self.ask(&["checkpoint-delete", "--checkpointname", &name], CHANGE_LIMIT) {
                    Ok(_) | Err(VirshError::Refused { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Whether a backup runs whose disks are offered at this socket.
    pub fn is_at_work(&self, socket: &Path) -> Result<bool, VirshError> {
        match self.ask(&["backup-dumpxml"], ANSWER_LIMIT) {
            Ok(xml) => Ok(xml.contains(&escaped(&socket.to_string_lossy()))),
            Err(error) if error.says(&NO_JOB) || error.says(&NO_MACHINE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends the backup at a socket, if it runs. Returns whether it did.
    pub fn end(&self, socket: &Path) -> Result<bool, MachineError> {
        if !self.is_at_work(socket)? {
            return Ok(false);
        }
        let asked = self.ask(&["domjobabort"], CHANGE_LIMIT);
        // It goes on to end when that has been answered.
        let waited = Stopwatch::start();
        while self.is_at_work(socket)? {
            if waited.elapsed() > LATE_LIMIT {
                let why = asked.err().map(|error| error.to_string());
                let why = why.unwrap_or_else(|| "libvirt's backup job does not end".to_owned());
                return Err(MachineError::NotUndone(why));
            }
            std::thread::sleep(LATE_TICK);
        }
        Ok(true)
    }
}
