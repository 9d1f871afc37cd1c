//! The settings of QEMU's migration, which gives the state of the devices: what is changed of them, and
//! set back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strongroom_base::Stopwatch;

use crate::error::MachineError;
use crate::qmp::Qmp;

/// Leaves out memory that is shared.
pub const IGNORE_SHARED: &str = "x-ignore-shared";
/// As fast as can be: the machine is paused.
const BANDWIDTH: u64 = 1 << 40;
/// How long a migration may take to end when it is asked to.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Settings as they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationSettings {
    /// Abilities that were switched on.
    pub capabilities: Vec<String>,
    /// Bytes a second.
    pub bandwidth: Option<u64>,
}

impl MigrationSettings {
    /// Those of a machine, which is not being migrated and can be.
    pub fn of(qmp: &Qmp) -> Result<Self, MachineError> {
        let migration = qmp.execute("query-migrate", Value::Null)?;
        if let Some(reason) = migration["blocked-reasons"][0].as_str() {
            return Err(MachineError::StateBlocked { reason: reason.to_owned() });
        }
        if is_under_way(&migration) {
            return Err(MachineError::State { state: "being migrated".to_owned() });
        }
        let known = qmp.execute("query-migrate-capabilities", Value::Null)?;
        let known = known.as_array().cloned().unwrap_or_default();
        if !known.iter().any(|known| known["capability"] == IGNORE_SHARED) {
            return Err(MachineError::Unable { missing: "migration without shared memory" });
        }
        let on = known.iter().filter(|known| known["state"] == true);
        let on = on.filter_map(|known| Some(known["capability"].as_str()?.to_owned()));
        let parameters = qmp.execute("query-migrate-parameters", Value::Null)?;
        Ok(Self { capabilities: on.collect(), bandwidth: parameters["max-bandwidth"].as_u64() })
    }

    /// Sets what is needed, and nothing else.
    pub fn change(&self, qmp: &Qmp) -> Result<(), MachineError> {
        set_capabilities(qmp, &self.capabilities, &[IGNORE_SHARED.to_owned()])?;
        qmp.execute("migrate-set-parameters", json!({"max-bandwidth": BANDWIDTH}))?;
        Ok(())
    }

    /// Sets what was set before. A migration of ours that is under way is ended.
    pub fn restore(&self, qmp: &Qmp) -> Result<(), MachineError> {
        let ended = await_some(LIMIT, || {
            let is_under_way = is_under_way(&qmp.execute("query-migrate", Value::Null)?);
            if is_under_way {
                qmp.execute("migrate_cancel", Value::Null)?;
            }
            Ok::<_, MachineError>((!is_under_way).then_some(()))
        })?;
        ended.ok_or(MachineError::Slow { what: "end its migration", limit: LIMIT })?;
        set_capabilities(qmp, &[IGNORE_SHARED.to_owned()], &self.capabilities)?;
        if let Some(bandwidth) = self.bandwidth {
            qmp.execute("migrate-set-parameters", json!({"max-bandwidth": bandwidth}))?;
        }
        Ok(())
    }
}

/// Switches some abilities off, and then others on.
fn set_capabilities(qmp: &Qmp, off: &[String], on: &[String]) -> Result<(), MachineError> {
    let set = |name: &String, state: bool| json!({"capability": name, "state": state});
    let off = off.iter().filter(|name| !on.contains(name)).map(|name| set(name, false));
    let all: Vec<Value> = off.chain(on.iter().map(|name| set(name, true))).collect();
    qmp.execute("migrate-set-capabilities", json!({"capabilities": all}))?;
    Ok(())
}

/// Looks again and again until there is something to see; `None` if there is nothing in time.
pub fn await_some<T, E>(
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let begun = Stopwatch::start();
    loop {
        let found = look()?;
        if found.is_some() || begun.elapsed() > limit {
            return Ok(found);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn is_under_way(migration: &Value) -> bool {
    const ENDED: [&str; 5] = ["", "none", "completed", "failed", "cancelled"];
    !ENDED.contains(&migration["status"].as_str().unwrap_or_default())
}
