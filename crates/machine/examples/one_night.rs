//! Backs up the disks of a machine to nowhere: for tests that kill it.
//!
//! ```sh
//! one_night MONITOR FOLDER STATE [AGENT | memory]
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
use strongroom_disk::ReadAt;
use strongroom_machine::{Consistency, Machine, Night, RunningMachine as _, StoreLimits};

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let machine = Machine::connect(&arguments[0]).unwrap();
    let has_memory = arguments.get(3).is_some_and(|word| word.as_os_str() == "memory");
    let night = Night {
        snapshot: "killed",
        parent: None,
        set: "test",
        without: &[],
        beside: &[],
        store_folder: &arguments[1],
        store_limits: StoreLimits { bytes_max: None, reserve: 0 },
        state_folder: &arguments[2],
        agent: arguments.get(3).map(PathBuf::as_path).filter(|_| !has_memory),
        consistency: Consistency::Preferred,
        freeze_limit: Duration::from_secs(5),
        start_limit: Duration::from_secs(5),
        watched: Duration::ZERO,
        share: None,
        connections: 2,
        cancel: Cancel::new(),
    };
    let live = match has_memory {
        true => machine.freeze_with_memory(&night, &mut || Ok(())).unwrap(),
        false => machine.freeze_disks(&night).unwrap(),
    };
    println!("The machine was paused for {:?}.", live.pause);
    for disk in &live.disks {
        let mut bytes = vec![0; disk.image.size() as usize];
        disk.image.read_at(0, &mut bytes).unwrap();
    }
    live.finish(true).unwrap();
}
