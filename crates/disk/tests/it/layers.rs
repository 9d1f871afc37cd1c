//! Layers that are not what they seem: logical volumes in partitions that no longer count, and disks
//! of Windows' volume managers.

use strongroom_disk::{Layout, volumes};
use strongroom_testkit::lvm::{group_text, physical_volume};
use strongroom_testkit::skipped;

use crate::world::{folder, lacks, run};

const MIB: usize = 1 << 20;

/// A disk of 32 MiB with partitions by a script of `sfdisk`.
fn partitioned(script: &str) -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("disk");
    let name = path.to_str().unwrap();
    run("truncate", &["-s", "32M", name]);
    run("bash", &["-c", &format!("printf '{script}' | sfdisk -q {name}")]);
    std::fs::read(&path).unwrap()
}

fn is_shared(layout: &Layout, name: &str) -> bool {
    layout.volumes.iter().find(|volume| volume.name == name).unwrap().is_shared
}

#[test]
fn kept_1_7_logical_volumes_are_as_doubtful_as_what_they_are_in() {
    if skipped(lacks(&["sfdisk"])) {
        return;
    }
    let group = physical_volume(&group_text("vg", &[("swap", 0, 2), ("root", 2, 4)]), 10 * MIB);
    let put = |disk: &mut [u8], at: usize| disk[at..at + group.len()].copy_from_slice(&group);
    let are_shared = |disk: &Vec<u8>| {
        let layout = volumes(&[disk]);
        ["vg-swap", "vg-root"].map(|name| is_shared(&layout, name))
    };
    let gpt = "label: gpt\\nstart=2048,size=20480\\nstart=30720,size=8192\\n";
    let mut disk = partitioned(gpt);
    put(&mut disk, MIB);
    assert_eq!(are_shared(&disk), [false; 2]);
    let mut seen = Vec::new();
    // The disk has another use now, and only the second copy of the table is left.
    let mut reused = disk.clone();
    reused[..MIB].fill(0);
    seen.push(("reused", are_shared(&reused)));
    // Another partition has a part of the physical volume.
    let mut overlap = disk.clone();
    overlap[..512].fill(0);
    for (slot, start, sectors) in [(0, 2048_u32, 20480_u32), (1, 20480, 8192)] {
        let at = 446 + 16 * slot;
        overlap[at + 4] = 0x8e;
        overlap[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        overlap[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    overlap[510..512].copy_from_slice(&[0x55, 0xaa]);
    seen.push(("overlap", are_shared(&overlap)));
    // Another owner came, and left LVM's label.
    for (name, at, mark) in
        [("Btrfs", MIB + 65_600, &b"_BHRfS_M"[..]), ("LUKS", MIB, b"LUKS\xba\xbe")]
    {
        let mut taken = disk.clone();
        taken[at..at + mark.len()].copy_from_slice(mark);
        seen.push((name, are_shared(&taken)));
    }
    let wrong: Vec<_> = seen.iter().filter(|(_, shared)| *shared != [true; 2]).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A volume of Windows' volume managers can be on several partitions, in any order: a partition that
/// begins with a file system is not that file system.
#[test]
fn nothing_is_free_in_partitions_of_other_volume_managers() {
    if skipped(lacks(&["sfdisk"])) {
        return;
    }
    let mut seen = Vec::new();
    let mut look = |disk: &Vec<u8>, kind: &'static str| {
        let layout = volumes(&[disk]);
        let said: Vec<_> =
            layout.findings.iter().map(|finding| finding.describe(&["vda"])).collect();
        let is_named = said.iter().any(|text| text.contains("p1"));
        seen.push((kind, is_shared(&layout, "p1"), is_shared(&layout, "p2"), is_named));
    };
    let mbr = "label: dos\\nstart=2048,size=20480,type=42\\nstart=30720,size=8192,type=83\\n";
    look(&partitioned(mbr), "42");
    for kind in [
        "5808C8AA-7E8F-42E0-85D2-E1E90434CFB3",
        "AF9B60A0-1431-4F62-BC68-3311714A69AD",
        "E75CAF8F-F680-4CEE-AFA3-B001E56EFC2D",
    ] {
        let gpt =
            format!("label: gpt\\nstart=2048,size=20480,type={kind}\\nstart=30720,size=8192\\n");
        look(&partitioned(&gpt), kind);
    }
    let wrong: Vec<_> =
        seen.iter().filter(|seen| (seen.1, seen.2, seen.3) != (true, false, true)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
