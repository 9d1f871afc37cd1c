//! Images that we write: QEMU finds nothing wrong with them, and reads what was put into them.

use std::fs::File;

use strongroom_disk::Qcow2Writer;
use strongroom_testkit::{Random, skipped};

use super::{Images, TOOLS, assert_same};
use crate::world::{lacks, run};

fn new_file(images: &Images) -> File {
    drop(std::fs::remove_file(images.path("disk")));
    File::options().read(true).write(true).create_new(true).open(images.path("disk")).unwrap()
}

/// Writes the disk in parts, compares, and returns the size of the file.
fn check(disk: &[u8], random: &mut Random, in_order: bool) -> u64 {
    let images = Images::new();
    let mut writer = Qcow2Writer::create(new_file(&images), disk.len() as u64).unwrap();
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < disk.len() {
        let longest = if random.once_in(3) { 400_000 } else { 70_000 };
        let count = (1 + random.below(longest) as usize).min(disk.len() - at);
        parts.push(at..at + count);
        at += count;
    }
    if !in_order {
        for last in (1..parts.len()).rev() {
            parts.swap(last, random.below(last as u64 + 1) as usize);
        }
    }
    parts.iter().for_each(|part| writer.write_at(part.start as u64, &disk[part.clone()]).unwrap());
    let file = writer.finish().unwrap();
    let said = run("qemu-img", &["check", "-f", "qcow2", &images.name("disk")]);
    assert!(said.contains("No errors were found"), "{said}");
    assert!(!said.contains("leaked"), "{said}");
    std::fs::write(images.path("raw"), disk).unwrap();
    let (ours, raw) = (images.name("disk"), images.name("raw"));
    run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &ours, &raw]);
    let mut padded = disk.to_vec();
    padded.resize(disk.len().next_multiple_of(512), 0);
    assert_same(&*images.open("disk").image, &padded, random, "ours");
    images.judge("disk", "qcow2", random);
    file.metadata().unwrap().len()
}

#[test]
fn disks_of_every_kind() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let size = random.below(6 << 20) as usize + if seed == 0 { 0 } else { 1 };
        let mut disk = vec![0; size];
        for _ in 0..random.below(10) {
            let from = random.below(size as u64) as usize;
            let count = random.below(500_000).min((size - from) as u64) as usize;
            disk[from..from + count].copy_from_slice(&random.noise(count));
        }
        check(&disk, &mut random, seed % 2 == 0);
    }
    assert!(check(&[], &mut Random::new(1), true) < 400_000);
    assert!(check(&vec![0; 5 << 20], &mut Random::new(1), true) < 400_000);
}

#[test]
fn a_large_disk_whose_tables_do_not_fit_into_memory() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    let reach = 512 << 20;
    let disk_bytes = 200 * reach;
    let mut writer = Qcow2Writer::create(new_file(&images), disk_bytes).unwrap();
    for round in 0..3 {
        for table in 0..200 {
            let at = table * reach + (table * 7 + round * 300) * 65536 % reach;
            writer.write_at(at, &[1 + round as u8; 5000]).unwrap();
        }
    }
    drop(writer.finish().unwrap());
    let said = run("qemu-img", &["check", "-f", "qcow2", &images.name("disk")]);
    assert!(said.contains("No errors were found"), "{said}");
    let image = images.open("disk").image;
    for round in 0..3 {
        for table in 0..200 {
            let at = table * reach + (table * 7 + round * 300) * 65536 % reach;
            let mut bytes = [9; 2];
            image.read_at(at + 4999, &mut bytes).unwrap();
            assert_eq!(bytes, [1 + round as u8, 0]);
        }
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let images = Images::new();
    let mut writer = Qcow2Writer::create(new_file(&images), 1000).unwrap();
    writer.write_at(1024, &[]).unwrap();
    assert!(writer.write_at(1024, &[1]).is_err());
    assert!(writer.write_at(u64::MAX, &[1, 2]).is_err());
    drop(writer.finish().unwrap());
    let finished = File::options().read(true).write(true).open(images.path("disk")).unwrap();
    assert!(Qcow2Writer::create(finished, 1000).is_err());
    assert!(Qcow2Writer::create(new_file(&images), u64::MAX).is_err());
}
