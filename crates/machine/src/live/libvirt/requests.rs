//! The documents that libvirt gets: a backup, and the checkpoint that begins with it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::domain::{DomainDisk, escaped};
use crate::bitmaps::PREFIX;

/// The formats of images that keep checkpoints.
pub const KEEPS_CHECKPOINTS: &str = "qcow2";
/// What a bitmap is called in an export.
pub const CHANGED: &str = "changed";

/// What is noted since the parent.
pub struct Since {
    /// The checkpoint that notes it.
    pub checkpoint: String,
    /// Of these disks.
    pub targets: Vec<String>,
}

impl Since {
    /// Whether it is known of a disk.
    pub fn has(&self, disk: &DomainDisk) -> bool {
        self.targets.contains(&disk.target)
    }
}

/// Which image a disk is: its name, and the file, by its number if it can be seen from here.
pub fn identity_of(disk: &DomainDisk) -> String {
    let source = disk.source.as_deref().unwrap_or_default();
    let number = std::fs::metadata(source).ok();
    let number = number.map(|found| format!("{}:{}", found.dev(), found.ino()));
    format!("{} {} {source}", disk.target, number.unwrap_or_default())
}

/// The backup: the chosen disks, offered at the socket, and where what is overwritten goes.
pub fn backup_xml(
    socket: &Path,
    stores: &[PathBuf],
    (all, chosen): (&[DomainDisk], &[DomainDisk]),
    since: Option<&Since>,
) -> String {
    let mut disks = String::new();
    for disk in all {
        let name = escaped(&disk.target);
        let Some(number) = chosen.iter().position(|other| other.target == disk.target) else {
            disks.push_str(&format!("<disk name='{name}' backup='no'/>"));
            continue;
        };
        let mode = match since.filter(|since| since.has(disk)) {
            Some(since) => format!(
                "backupmode='incremental' incremental='{}' exportbitmap='{CHANGED}'",
                escaped(&since.checkpoint)
            ),
            None => "backupmode='full'".to_owned(),
        };
        let file = escaped(&stores[number].to_string_lossy());
        disks.push_str(&format!(
            "<disk name='{name}' backup='yes' type='file' exportname='{name}' {mode}>\
             <scratch file='{file}'/></disk>"
        ));
    }
    let socket = escaped(&socket.to_string_lossy());
    format!(
        "<domainbackup mode='pull'><server transport='unix' socket='{socket}'/>\
         <disks>{disks}</disks></domainbackup>"
    )
}

/// The checkpoint that begins at the same instant; none if no disk can keep one.
pub fn checkpoint_xml(name: &str, all: &[DomainDisk], chosen: &[DomainDisk]) -> Option<String> {
    let keeps = |disk: &DomainDisk| {
        disk.format == KEEPS_CHECKPOINTS && chosen.iter().any(|other| other.target == disk.target)
    };
    all.iter().any(keeps).then(|| {
        let disk = |disk: &DomainDisk| {
            let kind = if keeps(disk) { "bitmap" } else { "no" };
            format!("<disk name='{}' checkpoint='{kind}'/>", escaped(&disk.target))
        };
        let disks: String = all.iter().map(disk).collect();
        let of: Vec<String> = all.iter().filter(|disk| keeps(disk)).map(identity_of).collect();
        let (name, of) = (escaped(name), escaped(&of.join("\n")));
        format!(
            "<domaincheckpoint><name>{name}</name><description>{of}</description>\
             <disks>{disks}</disks></domaincheckpoint>"
        )
    })
}

/// The checkpoint that notes what is written after a snapshot.
pub fn checkpoint_name(set: &str, snapshot: &str) -> String {
    format!("{PREFIX}{set}-{snapshot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(target: &str, format: &str) -> DomainDisk {
        DomainDisk {
            target: target.to_owned(),
            bus: crate::description::DiskBus::Virtio,
            alias: None,
            serial: None,
            format: format.to_owned(),
            source: None,
            has_iothread: false,
        }
    }

    #[test]
    fn only_disks_that_keep_checkpoints_have_one() {
        let all = [disk("vda", "qcow2"), disk("vdb", "raw"), disk("vd&c", "qcow2")];
        let made = checkpoint_xml("strongroom-set-S1", &all, &all[..2]).unwrap();
        assert_eq!(
            made,
            "<domaincheckpoint><name>strongroom-set-S1</name><description>vda  </description><disks>\
             <disk name='vda' checkpoint='bitmap'/><disk name='vdb' checkpoint='no'/>\
             <disk name='vd&amp;c' checkpoint='no'/></disks></domaincheckpoint>"
        );
        assert_eq!(checkpoint_xml("a", &all, &all[1..2]), None);
    }
}
