//! Partition tables as `sfdisk` makes them, and as damage leaves them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_disk::{Finding, Layout, ReadAt, VolumeKind, volumes};
use strongroom_testkit::skipped;

use crate::world::{Image, folder, lacks, run};

fn partitioned(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("disk");
    run("truncate", &["-s", "64M", path.to_str().unwrap()]);
    let mut tool = Command::new("sfdisk");
    tool.args(["-q", path.to_str().unwrap()]).stdin(Stdio::piped());
    let mut child = tool.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    path
}

fn layout(path: &Path) -> Layout {
    let image = Image::open(path);
    volumes(&[&image])
}

/// Name, offset and bytes of each partition, as the tool lists them.
fn listed(path: &Path) -> Vec<(String, u64, u64)> {
    let dump = run("sfdisk", &["-d", path.to_str().unwrap()]);
    let lines = dump.lines().filter(|line| line.contains("start="));
    let field = |line: &str, name: &str| {
        let after = line.split(name).nth(1).unwrap().trim_start();
        after.split(',').next().unwrap().trim().to_owned()
    };
    let all = lines.map(|line| {
        let number = line.split(" :").next().unwrap().trim().rsplit("disk").next().unwrap();
        let [start, size] =
            ["start=", "size="].map(|n| field(line, n).parse::<u64>().unwrap() * 512);
        (format!("p{number}"), start, size, field(line, "type="))
    });
    let real = all.filter(|(_, _, _, kind)| kind != "5");
    real.map(|(name, start, size, _)| (name, start, size)).collect()
}

fn seen(layout: &Layout) -> Vec<(String, u64, u64)> {
    let each = layout.volumes.iter();
    each.map(|v| (v.name.clone(), v.place(0).unwrap().0.offset, v.bytes)).collect()
}

const MBR: &str = "label: dos\nstart=2048,size=20480,type=83\nstart=22528,size=80000,type=5\n\
                   start=110592,size=2048,type=82\nstart=24576,size=4096,type=83\n\
                   start=30720,size=8192,type=83\nstart=40960,size=2048,type=8e\n";
const GPT: &str =
    "label: gpt\nstart=2048,size=20480,name=one\nstart=40960,size=8192,name=\"zwei ü\"\n";

#[test]
fn an_mbr_with_logical_partitions_is_read_as_the_tool_lists_it() {
    if skipped(lacks(&["sfdisk"])) {
        return;
    }
    let folder = folder();
    let path = partitioned(folder.path(), MBR);
    let layout = layout(&path);
    assert_eq!(seen(&layout), listed(&path));
    assert_eq!(layout.volumes.len(), 5);
    assert_eq!(layout.volumes[1].kind, VolumeKind::Mbr { type_id: 0x82 });
    assert_eq!(layout.findings, []);
}

#[test]
fn a_chain_that_leads_back_ends() {
    if skipped(lacks(&["sfdisk"])) {
        return;
    }
    let folder = folder();
    let path = partitioned(folder.path(), MBR);
    let before = layout(&path);
    // The last link of the chain leads to the first.
    let image = File::options().read(true).write(true).open(&path).unwrap();
    let mut found = 0;
    for sector in 22529..110_592 {
        let mut bytes = [0; 512];
        image.read_exact_at(&mut bytes, sector * 512).unwrap();
        if bytes[510..] == [0x55, 0xaa] && bytes[466] == 0 {
            bytes[466] = 5;
            bytes[470..474].fill(0);
            bytes[474] = 1;
            image.write_all_at(&bytes, sector * 512).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
    let after = layout(&path);
    assert_eq!(seen(&after), seen(&before));
    assert_eq!(after.findings, [Finding::ChainDamaged { disk: 0, offset: 22528 * 512 }]);
}

#[test]
fn each_copy_of_a_gpt_is_enough_and_differences_are_found() {
    if skipped(lacks(&["sfdisk"])) {
        return;
    }
    let folder = folder();
    let path = partitioned(folder.path(), GPT);
    let whole = layout(&path);
    assert_eq!(seen(&whole), listed(&path));
    assert_eq!(whole.findings, []);
    let VolumeKind::Gpt { name, .. } = &whole.volumes[1].kind else { panic!() };
    assert_eq!(name, "zwei ü");

    let bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    let changed = |places: &[usize]| {
        let mut bytes = bytes.clone();
        places.iter().for_each(|place| bytes[*place] ^= 1);
        volumes(&[&bytes])
    };
    let first = changed(&[1024 + 70]);
    assert_eq!(seen(&first), seen(&whole));
    assert_eq!(first.findings, [Finding::GptFirstCopyDamaged { disk: 0 }]);
    let second = changed(&[end - 512 + 30]);
    assert_eq!(seen(&second), seen(&whole));
    assert_eq!(second.findings, [Finding::GptSecondCopyDamaged { disk: 0 }]);
    let both = changed(&[520, end - 512 + 30]);
    assert_eq!(
        (both.volumes.len(), &both.findings[..]),
        (0, &[Finding::GptDamaged { disk: 0 }][..])
    );
    let unprotected = changed(&[510]);
    assert_eq!(seen(&unprotected), seen(&whole));
    assert_eq!(unprotected.findings, [Finding::GptUnprotected { disk: 0 }]);

    // A disk that has grown: only the first copy knows where the second is.
    let mut grown = bytes.clone();
    grown.resize(end + (1 << 20), 0);
    assert_eq!(volumes(&[&grown]).findings, []);
    // A disk that was cut off.
    let mut short = bytes[..23000 * 512].to_vec();
    let cut = volumes(&[&short]);
    let outside = Finding::OutsideOfDisk { disk: 0, name: "p2".into() };
    assert_eq!(cut.findings, [Finding::GptSecondCopyDamaged { disk: 0 }, outside]);
    assert_eq!(seen(&cut), seen(&whole)[..1]);

    // Two copies, each intact, of different tables.
    let other = partitioned(
        folder.path(),
        &GPT.replace("8192", "4096")
            .replace("label: gpt", "label: gpt\nlabel-id: 01234567-89AB-CDEF-0123-456789ABCDEF"),
    );
    short = std::fs::read(other).unwrap();
    short[end - 33 * 512..].copy_from_slice(&bytes[end - 33 * 512..]);
    let differing = volumes(&[&short]);
    assert_eq!(differing.findings, [Finding::GptCopiesDisagree { disk: 0 }]);
    assert_eq!(differing.volumes[1].bytes, 4096 * 512);
}

#[test]
fn a_disk_without_a_table_is_one_volume() {
    let mut disk = vec![0_u8; 1 << 16];
    assert_eq!(seen(&volumes(&[&disk])), [("whole".into(), 0, 1 << 16)]);
    // A boot sector of FAT has a mark like an MBR, and text where the table would be.
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[..3].copy_from_slice(&[0xeb, 0x3c, 0x90]);
    disk[54..62].copy_from_slice(b"FAT16   ");
    disk[450] = 6;
    disk[458] = 9;
    assert_eq!(seen(&volumes(&[&disk])), [("whole".into(), 0, 1 << 16)]);
    let tiny = vec![1_u8; 3];
    assert_eq!(seen(&volumes(&[&tiny])), [("whole".into(), 0, 3)]);
}

#[test]
fn partitions_that_share_bytes_are_marked() {
    let mut disk = vec![0_u8; 1 << 16];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (slot, (start, sectors)) in [(1_u8, 40_u8), (30, 20), (60, 5)].into_iter().enumerate() {
        let entry = &mut disk[446 + slot * 16..][..16];
        (entry[4], entry[8], entry[12]) = (0x83, start, sectors);
    }
    let layout = volumes(&[&disk]);
    let overlaps: Vec<_> = layout.volumes.iter().map(|volume| volume.is_shared).collect();
    assert_eq!(overlaps, [true, true, false]);
    let finding = Finding::Overlap { first: "p1".into(), second: "p2".into() };
    assert_eq!(layout.findings, [finding]);
}

#[test]
fn a_disk_that_cannot_be_read_does_not_hide_the_others() {
    struct Broken;
    impl ReadAt for Broken {
        fn size(&self) -> u64 {
            1 << 20
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
            Err(std::io::Error::other("broken"))
        }
    }
    let disk = vec![0_u8; 1 << 16];
    let layout = volumes(&[&Broken, &disk]);
    assert_eq!(layout.volumes.len(), 2);
    assert_eq!(layout.findings, [Finding::Unreadable { disk: 0, offset: 0 }]);
}
