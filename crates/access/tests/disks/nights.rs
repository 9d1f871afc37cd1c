//! What is offered, by which name, and that every byte of it is right.

use std::fs;
use std::sync::Arc;

use strongroom_nbd::{Export, Exports};
use strongroom_testkit::Random;

use crate::fixture::{World, bytes_of, judge};

#[test]
fn the_tools_of_others_read_what_was_stored() {
    let world = World::new();
    let disk = world.disk("one.raw", 1, 24);
    world.night("vm1", 0, &[&disk]);
    let nights = world.nights(|_| {});
    let served = world.serve(&nights);
    let uri = served.uri("vm1/vda@2026-11-20");
    let listed = judge("nbdinfo", &["--list", "--json", &served.uri("")]);
    assert!(listed.contains("\"export-name\": \"vm1/vda@2026-11-20\""), "{listed}");
    let about = judge("nbdinfo", &["--json", &uri]);
    for fact in ["\"is_read_only\": true", "\"can_multi_conn\": true", "\"can_cache\": true"] {
        assert!(about.contains(fact), "{about}");
    }
    let disk_text = disk.to_str().unwrap();
    judge("qemu-img", &["compare", "-f", "raw", "-F", "raw", disk_text, &uri]);
    let copy = world.path("copy.raw");
    judge("nbdcopy", &["--requests=16", "--connections=4", &uri, copy.to_str().unwrap()]);
    assert!(bytes_of(&copy) == bytes_of(&disk), "nbdcopy");
    // Holes of the recipe are holes of the export: data is never called a hole.
    let map = judge("nbdinfo", &["--map", "--totals", "--json", &uri]);
    let totals: Vec<&str> = map.split('}').filter(|part| part.contains("\"type\"")).collect();
    assert!(totals.len() == 2 && map.contains("hole,zero"), "{map}");
    judge("qemu-io", &["-r", "-f", "raw", "-c", "read -v 512 4096", &uri]);
    assert_eq!(world.reports.take(), [""; 0]);
}

#[test]
fn names_mean_the_newest_of_a_day_the_newest_of_all_or_one() {
    let world = World::new();
    let disks: Vec<_> = (0..4).map(|n| world.disk(&format!("{n}.raw"), n, n + 1)).collect();
    let first = world.night("vm1", 0, &[&disks[0]]);
    world.night("vm1", 6, &[&disks[1]]);
    let last = world.night("vm1", 24, &[&disks[2]]);
    world.night("vm2", 48, &[&disks[3], &disks[0]]);
    let nights = world.nights(|_| {});
    let names = nights.names().unwrap();
    let expected =
        ["vm2/vda@2026-11-22", "vm2/vdb@2026-11-22", "vm1/vda@2026-11-21", "vm1/vda@2026-11-20"];
    assert_eq!(names, expected);
    let megabytes = |name: &str| nights.open(name).map(|disk| disk.size() >> 20).ok();
    for (name, size) in [
        ("vm1/vda@2026-11-20", Some(2)),
        ("vm1/vda@2026-11-21", Some(3)),
        ("vm1/vda@2026-11-22", None),
        ("vm1/vda@latest", Some(3)),
        ("vm1/vda", Some(3)),
        ("/vm1/vda", Some(3)),
        ("vm2/vdb", Some(1)),
        (&format!("vm1/vda@{}", first.id), Some(1)),
        (&format!("vm1/vda@{}", &first.id.to_string()[..12]), Some(1)),
        (&format!("vm2/vda@{}", first.id), None),
        ("vm1/vdc", None),
        ("vm1", None),
        ("", None),
        ("vm1/machine", None),
        ("../vda", None),
    ] {
        assert_eq!(megabytes(name), size, "{name}");
    }
    let found = nights.find("vm1/vda").unwrap().unwrap();
    assert_eq!((found.snapshot, found.host.as_str()), (last.id, "here"));
    assert_eq!(world.reports.take(), [""; 0], "that there is none is no problem");
}

#[test]
fn a_new_night_is_found_but_does_not_change_a_disk_that_is_in_use() {
    let world = World::new();
    let (old, new) = (world.disk("old.raw", 1, 1), world.disk("new.raw", 2, 2));
    world.night("vm1", 0, &[&old]);
    let nights = world.nights(|_| {});
    let in_use = nights.open("vm1/vda").unwrap();
    world.night("vm1", 24, &[&new]);
    assert_eq!(nights.open("vm1/vda").unwrap().size() >> 20, 1);
    assert_eq!(nights.open("vm1/vda@2026-11-21").unwrap().size() >> 20, 2);
    drop(in_use);
    assert_eq!(nights.open("vm1/vda").unwrap().size() >> 20, 2);
}

/// The second night is stored in deltas, in part.
fn changed(bytes: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..100 {
        let place = random.below(bytes.len() as u64 - 4096) as usize;
        random.fill(&mut bytes[place..place + 64]);
    }
}

#[test]
fn any_part_of_any_night_is_right_for_many_readers_at_once() {
    let world = World::new();
    let path = world.disk("one.raw", 3, 16);
    let mut nights_bytes = vec![bytes_of(&path)];
    world.night("vm1", 0, &[&path]);
    let mut bytes = bytes_of(&path);
    changed(&mut bytes, 3);
    fs::write(&path, &bytes).unwrap();
    nights_bytes.push(bytes);
    world.night("vm1", 24, &[&path]);
    // So little memory that everything is read again and again.
    let nights = world.nights(|options| {
        options.cache.block_bytes = 1 << 20;
        options.cache.summary_bytes = 0;
    });
    let disks = ["vm1/vda@2026-11-20", "vm1/vda@2026-11-21"].map(|name| nights.open(name).unwrap());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (disks, bytes) = (&disks, &nights_bytes);
            scope.spawn(move || read_at_random(seed, disks, bytes));
        }
    });
    assert_eq!(world.reports.take(), [""; 0]);
}

fn read_at_random(seed: u64, disks: &[Arc<dyn Export>; 2], bytes: &[Vec<u8>]) {
    let mut random = Random::new(seed);
    let mut next = 0;
    for _ in 0..60 {
        let night = random.below(2) as usize;
        let bytes = &bytes[night];
        let length = random.below(1 << 18) as usize;
        // Half of the requests follow the one before.
        let room = bytes.len() - length;
        let start = if random.once_in(2) { next } else { random.below(room as u64) as usize };
        let start = start.min(room);
        next = start + length;
        let range = start as u64..(start + length) as u64;
        let mut buffer = vec![0xa5];
        disks[night].append(range.clone(), &mut buffer).unwrap();
        assert!(buffer[1..] == bytes[start..start + length], "{start} {length}");
        if length > 0 {
            let mut position = start;
            for extent in disks[night].extents(range.clone()).unwrap() {
                let end = position + extent.bytes as usize;
                let zeros = bytes[position..end].iter().all(|byte| *byte == 0);
                assert!(zeros || !extent.is_hole);
                position = end;
            }
            assert!(position <= start + length);
        }
        disks[night].cache(range).unwrap();
    }
}

#[test]
fn what_is_damaged_is_an_error_and_the_rest_is_readable() {
    let world = World::new();
    let path = world.disk("one.raw", 4, 20);
    world.night("vm1", 0, &[&path]);
    let bytes = bytes_of(&path);
    // All data arenas but the first are cut to nothing: parity cannot help.
    let mut arenas: Vec<_> = walk(&world.path("repository")).into_iter().collect();
    arenas.sort_by_key(|path| fs::metadata(path).unwrap().len());
    let largest = arenas.pop().unwrap();
    fs::write(&largest, b"").unwrap();
    let nights = world.nights(|_| {});
    let Ok(disk) = nights.open("vm1/vda") else { panic!("its folders are in other arenas") };
    let (mut good, mut bad) = (0, 0);
    for start in (0..bytes.len()).step_by(256 << 10) {
        let end = (start + (256 << 10)).min(bytes.len());
        let mut buffer = Vec::new();
        match disk.append(start as u64..end as u64, &mut buffer) {
            Ok(()) => {
                good += 1;
                assert!(buffer == bytes[start..end], "nothing unverified is given out");
            }
            Err(error) => {
                bad += 1;
                assert_eq!(error.kind(), std::io::ErrorKind::Other);
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} {bad}");
    let reports = world.reports.take();
    assert!(reports.iter().any(|line| line.contains(":/vm1/vda.raw")), "{reports:?}");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(walk(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}
