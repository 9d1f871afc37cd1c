//! Disks that are written to: the repository keeps what it has.

use std::fs;

use strongroom_nbd::Exports;

use crate::fixture::{World, bytes_of, judge};

#[test]
fn what_a_client_writes_is_kept_beside_the_night() {
    let world = World::new();
    let disk = world.disk("one.raw", 5, 8);
    let snapshot = world.night("vm1", 0, &[&disk]);
    let folder = world.path("overlays");
    fs::create_dir(&folder).unwrap();
    let mut expected = bytes_of(&disk);
    {
        let nights = world.nights(|options| options.overlays = Some(folder.clone()));
        let served = world.serve(&nights);
        let uri = served.uri("vm1/vda");
        judge("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 1M 100k", "-c", "flush", &uri]);
        expected[1 << 20..(1 << 20) + (100 << 10)].fill(0x5a);
        // By another name of the same night.
        let exact = served.uri(&format!("vm1/vda@{}", snapshot.id));
        judge("qemu-io", &["-f", "raw", "-c", "read -P 0x5a 1M 100k", &exact]);
    }
    let nights = world.nights(|options| options.overlays = Some(folder.clone()));
    let range = 0..expected.len() as u64;
    let mut again = Vec::new();
    // A child that another test is starting has our locks until it runs its program.
    let opened = (0..50).find_map(|_| {
        let opened = nights.open("vm1/vda@2026-11-20").ok();
        if opened.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        opened
    });
    opened.expect("the lock of the server is gone").append(range.clone(), &mut again).unwrap();
    assert!(again == expected, "it is there the next time");
    let mut stored = Vec::new();
    world.nights(|_| {}).open("vm1/vda").unwrap().append(range, &mut stored).unwrap();
    assert!(stored == bytes_of(&disk), "the night is as it was");
    let kept = |machine| strongroom_access::kept_overlays(&folder, machine).unwrap();
    assert_eq!((kept("vm1"), kept("vm")), (vec![snapshot.id], vec![]));
    // A second process does not write to the same overlay.
    let other = world.nights(|options| options.overlays = Some(folder.clone()));
    assert!(other.open("vm1/vda").is_err());
    let reports = world.reports.take();
    assert!(reports.iter().any(|line| line.contains("cannot be opened")), "{reports:?}");
}

#[test]
fn what_a_start_asks_for_is_recorded_once_and_fetched_later() {
    let world = World::new();
    let disk = world.disk("one.raw", 6, 8);
    world.night("vm1", 0, &[&disk]);
    let folder = world.path("profiles");
    fs::create_dir(&folder).unwrap();
    let start = |offset| {
        let nights = world.nights(|options| options.profiles = Some(folder.clone()));
        let disk = nights.open("vm1/vda").unwrap();
        disk.append(offset..offset + 512, &mut Vec::new()).unwrap();
        nights.keep_profiles();
        fs::read(folder.join("vm1%2Fvda")).unwrap()
    };
    let first = start(3 << 20);
    assert_eq!(first.len(), 8 + 8 + 32, "one unit");
    assert_eq!(start(5 << 20), first, "a later start records nothing");
    fs::write(folder.join("vm1%2Fvda"), b"nonsense").unwrap();
    assert_eq!(start(3 << 20), first, "what is no profile is replaced");
}
