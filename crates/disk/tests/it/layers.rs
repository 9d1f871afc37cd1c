//! Layers that are not what they seem: disks of Windows' volume managers.

use strongroom_disk::{Layout, volumes};
use strongroom_testkit::skipped;

use crate::world::{folder, lacks, run};

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
