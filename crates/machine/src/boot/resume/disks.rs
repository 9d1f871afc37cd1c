//! The disks of a machine that is resumed: the same drives and nodes, with those of the snapshot behind
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::known::names_host;
use super::{ResumeError, Resuming};
use crate::Description;
use crate::boot::BootDisk;
use crate::boot::disks::escaped;
use crate::description::{Argument, Properties};

/// How long QEMU waits for the server of the disks to come back, in seconds.
const RECONNECT_SECONDS: u64 = 30;
/// Properties of a drive that the guest sees, or that name it.
const OF_THE_GUEST: [&str; 11] = [
    "if",
    "index",
    "bus",
    "unit",
    "id",
    "media",
    "serial",
    "werror",
    "rerror",
    "readonly",
    "read-only",
];

/// The disks of the snapshot.
pub struct Disks<'d> {
    /// Their exports, by the paths that their images had on the command line.
    exports: BTreeMap<String, &'d str>,
    /// Nodes of `-blockdev` that a device uses.
    used: Vec<String>,
    /// The files of the others, by their nodes.
    files: BTreeMap<String, String>,
    socket: &'d Path,
}

impl<'d> Disks<'d> {
    /// Those of a machine.
    pub fn of(description: &Description, boot_disks: &'d [BootDisk], socket: &'d Path) -> Self {
        let typed = Description::from_arguments(&description.arguments);
        let exports = typed.disks.into_iter().filter_map(|disk| {
            let stored = boot_disks.iter().find(|stored| stored.name == disk.name)?;
            Some((disk.path?, stored.export.as_str()))
        });
        Self { exports: exports.collect(), used: Vec::new(), files: BTreeMap::new(), socket }
    }
}

/// The short forms of `-drive`, too.
pub fn drive(argument: &Argument<'_>) -> Properties {
    let short = match argument.name {
        "hda" | "" => "index=0",
        "hdb" => "index=1",
        "hdc" => "index=2",
        "hdd" => "index=3",
        "cdrom" => "index=2,media=cdrom",
        "pflash" => "if=pflash",
        _ => return Properties::of(argument.value, ""),
    };
    let mut drive = Properties::of(short, "");
    drive.0.push(("file".to_owned(), argument.value.to_owned()));
    drive
}

impl Resuming<'_> {
    /// A drive with the disk of the snapshot.
    pub(super) fn drive(&mut self, drive: &Properties) -> Result<(), ResumeError> {
        let path = drive.get("file").or_else(|| drive.get("file.filename"));
        let path = path.unwrap_or_default().to_owned();
        let mut kept = Properties(drive.0.clone());
        kept.0.retain(|(key, _)| OF_THE_GUEST.contains(&key.as_str()));
        if names_host(&kept) {
            return Err(ResumeError::Disk { path });
        }
        let mut value: Vec<String> =
            kept.0.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
        if kept.get("if") == Some("pflash") {
            let file = self.firmware(&path)?;
            value.extend(["format=raw".to_owned(), format!("file={}", escaped(&file))]);
        } else if let Some(export) = self.disks.exports.get(&path) {
            let socket = escaped(&self.disks.socket.to_string_lossy());
            value.extend([
                "format=raw,discard=unmap,file.driver=nbd,file.server.type=unix".to_owned(),
                format!("file.server.path={socket},file.export={}", escaped(export)),
                format!("file.reconnect-delay={RECONNECT_SECONDS}"),
            ]);
        } else if kept.get("media") == Some("cdrom") || kept.get("if") == Some("floppy") {
            if !path.is_empty() {
                self.notes.push("what was in a drive for CDs or floppies is not stored".to_owned());
            }
        } else {
            return Err(ResumeError::Disk { path });
        }
        self.add("-drive", value.join(","));
        Ok(())
    }

    /// A node that has a disk of the snapshot behind it. Nodes below it are left out.
    pub(super) fn node(&mut self, node: &Properties) -> Result<(), ResumeError> {
        let Some(name) = node.owned("node-name") else { return Ok(()) };
        let own = ["filename", "file.filename", "file.file.filename"];
        let own = own.iter().find_map(|key| node.get(key)).map(str::to_owned);
        let below = || node.get("file").and_then(|below| self.disks.files.get(below)).cloned();
        let Some(path) = own.or_else(below) else { return Ok(()) };
        self.disks.files.insert(name.clone(), path.clone());
        if !self.is_used(&name) || self.disks.used.contains(&name) {
            return Ok(());
        }
        let file = match self.disks.exports.get(&path) {
            Some(export) => json!({
                "driver": "nbd",
                "server": {"type": "unix", "path": self.disks.socket.to_string_lossy()},
                "export": export,
                "reconnect-delay": RECONNECT_SECONDS,
            }),
            None => json!({"driver": "file", "filename": self.firmware(&path)?}),
        };
        let is_read_only = node.is_on("read-only") || node.is_on("readonly");
        // Always raw: of an image, QEMU would open what its header names.
        let blockdev = json!({
            "driver": "raw",
            "node-name": name,
            "read-only": is_read_only,
            "discard": "unmap",
            "file": file,
        });
        self.disks.used.push(name);
        self.add("-blockdev", blockdev.to_string());
        Ok(())
    }

    /// Whether a device or the machine has this node.
    fn is_used(&self, node: &str) -> bool {
        let typed = crate::description::split(&self.description.arguments);
        typed.iter().any(|argument| {
            let uses = |keys: &[&str]| {
                let properties = Properties::of(argument.value, "driver");
                keys.iter().any(|key| properties.get(key) == Some(node))
            };
            match argument.name {
                "device" => uses(&["drive"]),
                "machine" | "M" => uses(&["pflash0", "pflash1"]),
                _ => false,
            }
        })
    }
}
