//! Volume groups that LVM's own tools make, without the device mapper: their list of extents is
//! what ours is compared with.

use std::path::Path;

use strongroom_disk::{Finding, ReadAt, Volume, volumes};
use strongroom_testkit::skipped;

use crate::world::{Image, cannot_mount, folder, lacks, run};

const MIB: u64 = 1 << 20;

/// Loop devices over image files.
struct Loops(Vec<String>);

impl Loops {
    fn new(folder: &Path, images: &[(&str, &str)]) -> Self {
        let attach = |(name, size): &(&str, &str)| {
            let path = folder.join(name);
            run("truncate", &["-s", size, path.to_str().unwrap()]);
            run("losetup", &["-f", "--show", path.to_str().unwrap()]).trim().to_owned()
        };
        Self(images.iter().map(attach).collect())
    }

    /// Runs one of LVM's tools, which sees no other device.
    fn lvm(&self, arguments: &[&str]) -> String {
        let ours: Vec<String> = self.0.iter().map(|name| format!("\"a|^{name}$|\"")).collect();
        let config = format!(
            "devices {{ filter=[{},\"r|.*|\"] use_devicesfile=0 }} \
             activation {{ udev_sync=0 udev_rules=0 }} backup {{ backup=0 archive=0 }}",
            ours.join(",")
        );
        let common = ["--driverloaded", "n", "--config", &config];
        run("lvm", &[&arguments[..1], &common, &arguments[1..]].concat())
    }

    fn create(&self, group: &str, name: &str, arguments: &[&str]) {
        let common = ["lvcreate", "-y", "-an", "-Zn", "-Wn", "-n", name];
        self.lvm(&[&common, arguments, &[group]].concat());
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.0.iter().for_each(|device| drop(run("losetup", &["-d", device])));
    }
}

fn cannot() -> Option<&'static str> {
    cannot_mount().or(lacks(&["lvm"]))
}

/// Each MiB of a volume, as (disk, offset), by the tool's list of its segments.
fn expected(loops: &Loops, group: &str, name: &str) -> Vec<(usize, u64)> {
    let list = loops.lvm(&[
        "lvs",
        "--segments",
        "--units",
        "b",
        "--nosuffix",
        "--noheadings",
        "-O",
        "seg_start",
        "-o",
        "lv_name,seg_size,stripe_size,seg_pe_ranges",
        group,
    ]);
    let mut places = Vec::new();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] != name {
            continue;
        }
        let [bytes, stripe] = [words[1], words[2]].map(|word| word.parse::<u64>().unwrap());
        let first = |range: &str| {
            let (device, extents) = range.split_once(':').unwrap();
            let disk = loops.0.iter().position(|name| name == device).unwrap();
            // Extents have 1 MiB, and begin at 1 MiB.
            (disk, (1 + extents.split('-').next().unwrap().parse::<u64>().unwrap()) * MIB)
        };
        let stripes: Vec<_> = words[3..].iter().map(|range| first(range)).collect();
        for at in (0..bytes).step_by(MIB as usize) {
            let count = stripes.len() as u64;
            // The tool says that a linear segment has stripes of zero bytes.
            let (row, column) = at
                .checked_div(stripe)
                .map_or((at, 0), |index| (index / count * stripe, (index % count) as usize));
            places.push((stripes[column].0, stripes[column].1 + row));
        }
    }
    places
}

fn seen(volume: &Volume) -> Vec<(usize, u64)> {
    let each = (0..volume.bytes).step_by(MIB as usize);
    each.map(|at| volume.place(at).unwrap().0).map(|place| (place.disk, place.offset)).collect()
}

#[test]
fn linear_and_striped_volumes_are_where_the_tool_puts_them() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let loops = Loops::new(folder.path(), &[("a", "40M"), ("b", "60M"), ("c", "30M")]);
    let [a, b, c] = [0, 1, 2].map(|index| loops.0[index].as_str());
    loops.lvm(&["vgcreate", "-y", "-s", "1M", "my-group", a, b, c]);
    loops.create("my-group", "root", &["-L", "10M"]);
    loops.create("my-group", "striped", &["-i", "3", "-I", "64k", "-L", "30M"]);
    loops.create("my-group", "a-b", &["-l", "50"]);
    loops.lvm(&["lvextend", "-y", "-l", "+8", "my-group/root"]);
    // Enough changes for the ring of the metadata to wrap around.
    for _ in 0..12 {
        loops.create("my-group", "gone", &["-l", "1"]);
        loops.lvm(&["lvremove", "-y", "my-group/gone"]);
    }
    let images = ["a", "b", "c"].map(|name| Image::open(&folder.path().join(name)));
    let disks = [&images[0] as &dyn ReadAt, &images[1], &images[2]];
    let layout = volumes(&disks);
    assert_eq!(layout.findings, []);
    let names: Vec<_> = layout.volumes.iter().skip(3).map(|volume| &volume.name[..]).collect();
    assert_eq!(names, ["my--group-root", "my--group-striped", "my--group-a--b"]);
    for (volume, name) in layout.volumes[3..].iter().zip(["root", "striped", "a-b"]) {
        let expected = expected(&loops, "my-group", name);
        assert_eq!(seen(volume), expected, "{name}");
        assert!(expected.len() > 10 && !volume.is_shared);
    }

    let without = volumes(&disks[..2]);
    let missing = |name: &str| Finding::LvmIncomplete { name: format!("my--group-{name}") };
    assert!(without.findings.contains(&missing("striped")), "{:?}", without.findings);
    let copied = volumes(&[disks[0], disks[1], disks[2], disks[0]]);
    assert!(matches!(copied.findings[..], [Finding::LvmCopy { .. }]));
    // What one copy calls free, the other may need.
    assert!(copied.volumes.len() == 7 && copied.volumes.iter().all(|volume| volume.is_shared));
}

#[test]
fn groups_of_one_name_are_told_apart() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    for name in ["a", "b"] {
        let loops = Loops::new(folder.path(), &[(name, "40M")]);
        loops.lvm(&["vgcreate", "-y", "-s", "1M", "vg", &loops.0[0]]);
        loops.create("vg", "root", &["-L", "10M"]);
    }
    let images = ["a", "b"].map(|name| Image::open(&folder.path().join(name)));
    let layout = volumes(&[&images[0], &images[1]]);
    let names: Vec<_> = layout.volumes.iter().skip(2).map(|volume| volume.name.clone()).collect();
    assert!(names.len() == 2 && names[0] != names[1], "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("vg.") && name.ends_with("-root")));
    assert!(layout.findings.contains(&Finding::LvmNameClash { group: "vg".into() }));

    // Damaged metadata maps nothing.
    let mut bytes = std::fs::read(folder.path().join("a")).unwrap();
    bytes[4096 + 100] ^= 1;
    let damaged = volumes(&[&bytes]);
    assert_eq!(damaged.findings, [Finding::LvmDamaged { disk: 0, offset: 0 }]);
    assert_eq!(damaged.volumes.len(), 1);
}
