//! The state of a machine's devices, given to a QEMU that waits for it (`-incoming defer`).

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::migration::{IGNORE_SHARED, await_some};
use crate::{Qmp, QmpError};

/// How long QEMU may take to read it.
const LIMIT: Duration = Duration::from_secs(60);

/// Why the state was not taken.
pub enum Incoming {
    /// QEMU refused a command.
    Refused(QmpError),
    /// QEMU did not read it to its end. It ends when the state does not fit.
    Io(io::Error),
}

impl From<QmpError> for Incoming {
    fn from(error: QmpError) -> Self {
        if error.is_refused() { Self::Refused(error) } else { Self::Io(io::Error::other(error)) }
    }
}

impl From<io::Error> for Incoming {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Gives QEMU the state by a socket that it makes, and has the machine run.
pub fn load(qmp: &Qmp, socket: &Path, state: &[u8]) -> Result<(), Incoming> {
    let leaves_out = json!([{"capability": IGNORE_SHARED, "state": true}]);
    qmp.execute("migrate-set-capabilities", json!({"capabilities": leaves_out}))?;
    let uri = format!("unix:{}", socket.display());
    qmp.execute("migrate-incoming", json!({"uri": uri}))?;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(state)?;
    drop(stream);
    let ended = await_some(LIMIT, || {
        let status = qmp.execute("query-status", Value::Null)?;
        let migration = qmp.execute("query-migrate", Value::Null)?;
        if migration["status"] == "failed" {
            let why = migration["error-desc"].as_str().unwrap_or("it gives no reason").to_owned();
            return Err(Incoming::Io(io::Error::other(why)));
        }
        Ok((status["status"] != "inmigrate").then_some(()))
    })?;
    ended.ok_or(io::Error::from(io::ErrorKind::TimedOut))?;
    qmp.execute("cont", Value::Null)?;
    Ok(())
}
