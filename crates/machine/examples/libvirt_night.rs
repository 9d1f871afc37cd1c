//! Backs up the disks of a machine of libvirt to nowhere: for tests in which `virsh` is a program of
//! theirs.
//!
//! ```sh
//! libvirt_night FOLDER STATE [required]
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program for tests"
)]

use std::path::PathBuf;
use std::time::Duration;

use strongroom_base::Cancel;
use strongroom_machine::{Consistency, LibvirtMachine, Night, RunningMachine as _, StoreLimits};

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let machine = LibvirtMachine::find(None, "vm1").unwrap();
    let night = Night {
        snapshot: "S",
        parent: None,
        set: "test",
        without: &[],
        beside: &[],
        store_folder: &arguments[0],
        store_limits: StoreLimits { bytes_max: None, reserve: 0 },
        state_folder: &arguments[1],
        agent: None,
        consistency: match arguments.len() {
            2 => Consistency::Preferred,
            _ => Consistency::Required,
        },
        freeze_limit: Duration::from_millis(500),
        start_limit: Duration::from_secs(5),
        watched: Duration::ZERO,
        share: None,
        connections: 2,
        cancel: Cancel::new(),
    };
    match machine.freeze_disks(&night) {
        Ok(live) => drop(live.finish(true).unwrap()),
        Err(error) => println!("{error}"),
    }
}
