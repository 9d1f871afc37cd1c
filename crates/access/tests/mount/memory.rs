//! What is walked through is not remembered for ever, and what was let go comes back.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_base::Stopwatch;

use crate::fixture::{Fixture, can_mount, tight};

/// Every path below, with inode number and size, directories first opened by name.
fn walk(path: &Path, found: &mut Vec<(PathBuf, u64, u64)>) {
    let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let stat = entry.metadata().unwrap();
        found.push((entry.path(), stat.ino(), stat.len()));
        if stat.is_dir() {
            walk(&entry.path(), found);
        }
    }
}

fn walked(path: &Path) -> Vec<(PathBuf, u64, u64)> {
    let mut found = Vec::new();
    walk(path, &mut found);
    found
}

/// Directories that are nested and many, with hard links across them.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    for number in 0..300 {
        let folder = fixture.source().join(format!("{}/{}/{number}", number % 7, number % 60));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), number.to_string()).unwrap();
        fs::hard_link(folder.join("file"), fixture.source().join(format!("0/link {number}")))
            .unwrap();
    }
    fixture
}

/// A record of some 500 bytes was kept for each directory that the kernel had ever seen.
#[test]
fn engine_22_the_kernel_is_asked_to_forget_what_was_walked_through() {
    if !can_mount() {
        return;
    }
    let fixture = fixture();
    let snapshot = fixture.backup();
    let mount = fixture.mount_with(|options| options.nodes_max = 100);
    let top = fixture.mounted(&snapshot, &fixture.source());
    // In use all the time, by descriptor and by name.
    let open = fs::File::open(top.join("0/0/0/file")).unwrap();
    let all = walked(&top);
    assert!(all.len() > 1200, "{}", all.len());
    let begun = Stopwatch::start();
    while mount.nodes_remembered() > 100 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", mount.nodes_remembered());
        // Anything that the kernel asks for is an occasion to look.
        fs::read_dir(&top).unwrap().for_each(drop);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(std::io::read_to_string(open).unwrap(), "0");
    assert_eq!(walked(&top), all, "the same numbers, too");
}

/// What is known of a directory but its place is read again when it is needed.
#[test]
fn directories_come_back_after_they_were_evicted() {
    if !can_mount() {
        return;
    }
    let fixture = fixture();
    let snapshot = fixture.backup();
    let top = fixture.mounted(&snapshot, &fixture.source());
    let relaxed = fixture.mount();
    let names = |found: Vec<(PathBuf, u64, u64)>| -> Vec<_> {
        found.into_iter().map(|(path, _, bytes)| (path, bytes)).collect()
    };
    let expected = names(walked(&top));
    drop(relaxed);
    let _mount = fixture.mount_with(tight);
    assert_eq!(names(walked(&top)), expected);
    for (path, _) in expected.iter().rev().filter(|(path, _)| path.is_file()) {
        assert!(!fs::read(path).unwrap().is_empty(), "{}", path.display());
    }
}
