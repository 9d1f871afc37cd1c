//! What a report of a backup of a machine says besides what all say.

use std::time::Duration;

use serde_json::json;
use strongroom_base::units::{bytes_text, count_text, counted};
use strongroom_engine::{MachineOutcome, RegionCounts};
use strongroom_machine::{LiveDisks, Reached};

/// What a report says besides.
pub struct Facts {
    reached: Reached,
    pause: Duration,
    bytes_read: u64,
    store_bytes: u64,
    memory: Option<RegionCounts>,
}

impl Facts {
    /// Those of a backup.
    pub fn of(live: &LiveDisks, outcome: Option<&MachineOutcome>) -> Self {
        Self {
            memory: outcome.and_then(|outcome| outcome.memory),
            reached: live.reached.clone(),
            pause: live.pause,
            bytes_read: live.disks.iter().map(|disk| disk.image.bytes_read()).sum(),
            store_bytes: live.store_bytes(),
        }
    }

    /// In words.
    pub fn line(&self) -> String {
        let reached = match &self.reached {
            Reached::Frozen(1) => "1 file system of the guest was frozen".to_owned(),
            Reached::Frozen(count) => format!("{count} file systems of the guest were frozen"),
            Reached::Paused { why: None } if self.memory.is_some() => {
                "its memory and its disks are of one instant".to_owned()
            }
            Reached::Paused { why: None } => {
                "the guest was not frozen: its disks are as after a power failure".to_owned()
            }
            Reached::Paused { why: Some(why) } => format!(
                "the guest could not be frozen ({why}): its disks are as after a power failure"
            ),
            Reached::AtRest => "the machine was not running".to_owned(),
        };
        let memory = self.memory.map(|memory| {
            let pages = counted(memory.pages, "page", "pages");
            format!("; {} of {pages} of its memory changed", count_text(memory.pages_changed))
        });
        format!(
            "{reached}; paused for {} ms; {} read, {} kept of what the guest overwrote{}",
            self.pause.as_millis(),
            bytes_text(self.bytes_read),
            bytes_text(self.store_bytes),
            memory.unwrap_or_default(),
        )
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let consistency = match self.reached {
            Reached::Frozen(_) => "frozen",
            Reached::Paused { .. } => "paused",
            Reached::AtRest => "at rest",
        };
        json!({
            "consistency": consistency,
            "pause_seconds": self.pause.as_secs_f64(),
            "bytes_read": self.bytes_read,
            "store_bytes": self.store_bytes,
            "memory_pages": self.memory.map(|memory| memory.pages),
            "memory_pages_changed": self.memory.map(|memory| memory.pages_changed),
        })
    }
}
