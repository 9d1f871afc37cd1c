//! QEMU's objects: where devices are among them, and their properties.

use serde_json::{Value, json};

use crate::error::MachineError;
use crate::qmp::Qmp;

/// At most this many drives are looked at.
pub const DRIVES_MAX: usize = 1024;

/// The path of a device. Some are called by their id alone.
pub fn device_path(qdev: &str) -> String {
    if qdev.starts_with('/') { qdev.to_owned() } else { format!("{PERIPHERAL}{qdev}") }
}

/// Where devices are that were given an id.
pub const PERIPHERAL: &str = "/machine/peripheral/";

/// A property that is text. `None` if there is no such property or object.
pub fn property(qmp: &Qmp, path: &str, name: &str) -> Result<Option<String>, MachineError> {
    Ok(value(qmp, path, name)?.and_then(|value| value.as_str().map(str::to_owned)))
}

/// A property. `None` if there is no such property or object.
pub fn value(qmp: &Qmp, path: &str, name: &str) -> Result<Option<Value>, MachineError> {
    match qmp.execute("qom-get", json!({"path": path, "property": name})) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_refused() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
