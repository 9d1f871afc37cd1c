//! Damaged files give an error, and no others do.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use strongroom_arena::Redundancy;
use strongroom_base::Severity;
use strongroom_repository::InitOptions;
use strongroom_testkit::noise;

use crate::fixture::{Fixture, can_mount};

/// The arenas of a repository by size, the largest first.
fn arenas(fixture: &Fixture) -> Vec<PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![fixture.folder.path().join("repository/arenas")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(entry.metadata().unwrap().len(), entry.path());
            }
        }
    }
    found.into_values().rev().collect()
}

fn damage(path: &std::path::Path, start: usize, bytes: usize) {
    let mut object = fs::read(path).unwrap();
    for byte in &mut object[start..start + bytes] {
        *byte ^= 0x55;
    }
    let mut permissions = fs::metadata(path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    fs::set_permissions(path, permissions).unwrap();
    fs::write(path, object).unwrap();
}

#[test]
fn a_damaged_chunk_is_an_error_of_its_file_alone() {
    if !can_mount() {
        return;
    }
    let init = InitOptions { redundancy: Redundancy { per_mille: 0 }, ..InitOptions::default() };
    let fixture = Fixture::with(init, None);
    for number in 0..12 {
        let bytes = noise(number + 1, 700_000);
        fs::write(fixture.source().join(format!("file {number:02}")), bytes).unwrap();
    }
    let snapshot = fixture.backup();
    damage(&arenas(&fixture)[0], 4_000_000, 10);
    let _mount = fixture.mount();
    let mounted = fixture.mounted(&snapshot, &fixture.source());
    let mut failed = Vec::new();
    for number in 0..12 {
        let name = format!("file {number:02}");
        match fs::read(mounted.join(&name)) {
            Ok(bytes) => assert!(bytes == fs::read(fixture.source().join(&name)).unwrap()),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "{error}");
                failed.push(fixture.source().join(&name));
            }
        }
    }
    assert!((1..=3).contains(&failed.len()), "{failed:?}");
    let reports = fixture.reports.take();
    for path in &failed {
        let of_it: Vec<_> = reports.iter().filter(|(_, about, _)| about == path).collect();
        assert!(!of_it.is_empty(), "{path:?} is named: {reports:?}");
        assert!(of_it.len() <= 1, "each file is named once: {of_it:?}");
        assert!(of_it.iter().all(|(severity, _, message)| {
            *severity == Severity::Damage && message.contains(&snapshot.id.short())
        }));
    }
    // The good part of a damaged file can be read: its first chunk or its last.
    let good = failed.iter().filter(|path| {
        let file = fs::File::open(mounted.join(path.file_name().unwrap())).unwrap();
        let read =
            |offset| std::os::unix::fs::FileExt::read_exact_at(&file, &mut [0; 4096], offset);
        read(0).is_ok() || read(690_000).is_ok()
    });
    assert!(good.count() > 0);
}

#[test]
fn what_parity_gives_back_is_read_and_told() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.source().join("file"), noise(1, 4 << 20)).unwrap();
    let snapshot = fixture.backup();
    damage(&arenas(&fixture)[0], 1_000_000, 10);
    let _mount = fixture.mount();
    let mounted = fixture.mounted(&snapshot, &fixture.source()).join("file");
    assert!(fs::read(mounted).unwrap() == noise(1, 4 << 20));
    let reports = fixture.reports.take();
    assert!(!reports.is_empty());
    assert!(reports.iter().all(|(severity, _, _)| *severity == Severity::Warning), "{reports:?}");
}

#[test]
fn without_its_arenas_only_the_top_can_be_seen() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.source().join("folder")).unwrap();
    let snapshot = fixture.backup();
    for arena in arenas(&fixture) {
        fs::remove_file(arena).unwrap();
    }
    let _mount = fixture.mount();
    let root = fixture.mountpoint().join("ids").join(snapshot.id.short());
    assert!(root.metadata().unwrap().is_dir());
    let error = fs::read_dir(&root).and_then(|mut entries| entries.next().unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    assert_ne!(error.kind(), ErrorKind::NotFound);
    let reports = fixture.reports.take();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].2.contains(&snapshot.id.short()));
}
