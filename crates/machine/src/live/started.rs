//! Disks in iothreads: whether the guest's driver has started them.
//!
//! Before version 9, QEMU moves a virtio disk from its main thread to the disk's iothread when the
//! guest's driver starts. It ends if the disk is offered by FUSE then, and it ends later if the move
//! is refused (seen with 7.2). So only a disk that is in its iothread already is offered, and it is
//! kept there while it is: a pause and a restart of the guest change nothing then. A disk of
//! `virtio-scsi` is in its iothread from the beginning.

use std::time::Duration;

use serde_json::{Value, json};
use strongroom_base::Stopwatch;

use super::{Night, Undoing};
use crate::drives::Drive;
use crate::error::MachineError;
use crate::qmp::Qmp;
use crate::remains::{self, Names};

/// The first version of QEMU whose NBD server does not crash beside an iothread.
pub const IOTHREAD_SAFE: u64 = 9;

/// How often QEMU is asked.
const TICK: Duration = Duration::from_millis(100);

/// True if a client of the NBD server may leave while a disk is served by an iothread.
pub fn has_safe_server(qmp: &Qmp) -> bool {
    qmp.version().0 >= IOTHREAD_SAFE
}

/// The iothread of a disk that must be kept in it while it is offered.
pub fn kept_in<'d>(qmp: &Qmp, drive: &'d Drive) -> Option<&'d str> {
    drive.iothread.as_deref().filter(|_| !has_safe_server(qmp))
}

/// Waits until each disk with an iothread is in it. The server of the disks has been started.
///
/// # Errors
///
/// A disk is not in its iothread after the time that the night has for it, or at once if the machine
/// is paused.
pub fn wait(undoing: &Undoing, night: &Night<'_>) -> Result<(), MachineError> {
    let limit = if undoing.intent.is_pausing { night.start_limit } else { Duration::ZERO };
    let waited = Stopwatch::start();
    for (number, drive) in undoing.drives.iter().enumerate() {
        let Some(iothread) = kept_in(&undoing.qmp, drive) else { continue };
        while !is_there(&undoing.qmp, drive, &Names::of(number), iothread)? {
            if waited.elapsed() >= limit || night.cancel.is_cancelled() {
                return Err(MachineError::NotStarted { disk: drive.name.clone() });
            }
            std::thread::sleep(TICK);
        }
    }
    Ok(())
}

/// Nothing says in which thread a disk is. But an export that is to be in that thread, and may not be
/// moved, can be made only then: a device does not follow.
fn is_there(qmp: &Qmp, drive: &Drive, names: &Names, iothread: &str) -> Result<bool, MachineError> {
    let export = json!({
        "type": "nbd",
        "id": names.export,
        "node-name": drive.node,
        "name": names.export,
        "iothread": iothread,
        "fixed-iothread": true,
    });
    match qmp.execute("block-export-add", export) {
        Ok(_) => remains::remove_exports(qmp).map(|_| true),
        Err(error) if error.is_refused() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What keeps an export in an iothread.
pub fn keep_in(export: &mut Value, iothread: &str) {
    export["iothread"] = json!(iothread);
    export["fixed-iothread"] = json!(true);
}
