//! The state of a machine's devices: a migration that leaves out shared memory (`x-ignore-shared`),
//! to this process.
//!
//! A migration that has ended well leaves the disks to another QEMU: their nodes are inactive, and
//! their persistent bitmaps are only in the images. An export of a node makes QEMU use it again (that
//! is how its targets of migrations work), so each gets one for a moment. After that the bitmaps are
//! back, filters can be put in, and the machine is still stopped at the same instant.
//!
//! ```text
//! stop ─▶ migrate ─▶ inactive ─▶ exports ─▶ active, stopped ─▶ filters ─▶ cont
//! ```
//!
//! With a filter in place a migration fails, as the filter goes on to write to its store. So this
//! comes first.

use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bitmaps::{PREFIX, ignore_refusal};
use crate::error::{MachineError, file_error};
use crate::intent::{StateFolder, give_to};
use crate::migration::await_some;
use crate::qmp::{Qmp, QmpError};

/// How long all of it may take: the machine is paused.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The state of devices is shorter: some megabytes, of which most is the memory of its screen.
pub const STATE_BYTES_MAX: u64 = 512 << 20;

/// Takes the state of the devices of a machine that is stopped, and has QEMU use `nodes` again. The
/// server of the disks must run.
pub fn take(
    qmp: &Qmp,
    state: &StateFolder,
    owner: Option<(u32, u32)>,
    nodes: &[String],
) -> Result<Vec<u8>, MachineError> {
    let socket = state.prepare_state_socket()?;
    let listen = || {
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        give_to(&socket, owner)?;
        Ok(listener)
    };
    let listener = listen().map_err(file_error(&socket))?;
    let uri = format!("unix:{}", socket.display());
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = has_ended.clone();
    // QEMU answers nothing while what it sends is not read.
    let receiver = std::thread::spawn(move || receive(&listener, &ended));
    let sent = qmp.execute("migrate", json!({"uri": uri})).map_err(MachineError::from);
    let sent = sent.and_then(|_| await_end(qmp));
    if sent.is_err() {
        // Or the receiver would wait for what a migration that hangs does not send.
        let _ = qmp.execute("migrate_cancel", Value::Null);
    }
    has_ended.store(true, Ordering::Release);
    let received = receiver.join().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
    let _ = std::fs::remove_file(&socket);
    sent?;
    let received = received.map_err(file_error(&socket))?.ok_or_else(state_is_missing)?;
    wake(qmp, nodes)?;
    Ok(received)
}

/// Waits until the migration has ended well.
fn await_end(qmp: &Qmp) -> Result<(), MachineError> {
    let ended = await_some(LIMIT, || {
        let migration = qmp.execute("query-migrate", Value::Null)?;
        match migration["status"].as_str() {
            Some("completed") => Ok(Some(())),
            Some("failed" | "cancelled") => {
                let reason = migration["error-desc"].as_str();
                let reason = reason.unwrap_or("it gives no reason, its log may").to_owned();
                Err(MachineError::DeviceState { reason })
            }
            _ => Ok(None),
        }
    })?;
    ended.ok_or(MachineError::Slow { what: "give its devices' state", limit: LIMIT })
}

/// Receives what QEMU sends; nothing, if it has not come until all has ended.
fn receive(listener: &UnixListener, has_ended: &AtomicBool) -> io::Result<Option<Vec<u8>>> {
    loop {
        let is_last = has_ended.load(Ordering::Acquire);
        match listener.accept() {
            Ok((stream, _)) => return read_all(stream).map(Some),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if is_last => return Ok(None),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn state_is_missing() -> QmpError {
    QmpError::Answer { command: "migrate".to_owned(), missing: "the state of the devices" }
}

fn read_all(stream: UnixStream) -> io::Result<Vec<u8>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut bytes = Vec::new();
    stream.take(STATE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > STATE_BYTES_MAX {
        return Err(io::Error::other("the state of the devices is longer than 512 MiB"));
    }
    Ok(bytes)
}

/// Has QEMU use nodes again that a migration has left to another one.
fn wake(qmp: &Qmp, nodes: &[String]) -> Result<(), MachineError> {
    for (number, node) in nodes.iter().enumerate() {
        let id = format!("{PREFIX}wake-{number}");
        let export = json!({"type": "nbd", "id": id, "node-name": node, "name": id});
        qmp.execute("block-export-add", export)?;
        // One that is on its way out refuses.
        ignore_refusal(qmp.execute("block-export-del", json!({"id": id, "mode": "hard"})))?;
    }
    Ok(())
}
