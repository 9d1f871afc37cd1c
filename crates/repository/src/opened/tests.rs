//! What was opened before: taken from the cache, and the cache damaged.

use std::fs;
use std::sync::Arc;

use strongroom_backend::{Backend, MemoryBackend};
use strongroom_base::{FixedClock, SeededEntropy, Silent, Timestamp};
use strongroom_catalog::Snapshot;

use super::*;
use crate::keys::KdfCost;
use crate::repository::{InitOptions, Surroundings};
use crate::session::{Session, snapshot_object};
use crate::snapshots::{list_known_snapshots, list_snapshots};

const PASSPHRASE: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

fn repository(seed: u64, cache: &Path) -> (Repository, Arc<MemoryBackend>) {
    let objects = Arc::new(MemoryBackend::new());
    let surroundings = Surroundings {
        backend: objects.clone(),
        clock: Arc::new(FixedClock(Timestamp(0))),
        entropy: Arc::new(SeededEntropy::new(seed)),
        cache: Some(cache.to_owned()),
    };
    let options = InitOptions { cost: Some(KdfCost::CHEAPEST), ..InitOptions::default() };
    (Repository::init(surroundings, PASSPHRASE, &options).unwrap(), objects)
}

fn commit(repository: &Repository, sequence: u64) -> SnapshotId {
    let mut session = Session::begin(repository, "host").unwrap();
    session.sequence = sequence;
    let (id, host) = (session.id, format!("host {sequence}"));
    session.commit(&Snapshot { sequence, host, ..Snapshot::empty(id) }).unwrap();
    id
}

fn known(repository: &Repository) -> Vec<Snapshot> {
    let collections = crate::collections::Collections::read(repository).unwrap();
    list_known_snapshots(repository, &Silent).unwrap().left_by(&collections).snapshots
}

fn file(repository: &Repository) -> std::path::PathBuf {
    repository.cache_folder().unwrap().join(FILE)
}

/// Makes the object unreadable, without a change of its length.
fn spoil(objects: &MemoryBackend, id: SnapshotId) {
    let name = snapshot_object(id);
    let bytes = objects.size(&name).unwrap();
    objects.replace(&name, &vec![0; bytes as usize]).unwrap();
}

#[test]
fn what_was_opened_once_is_not_opened_again() {
    let cache = tempfile::tempdir().unwrap();
    let (repository, objects) = repository(1, cache.path());
    let ids = [1, 2, 3].map(|sequence| commit(&repository, sequence));
    let fresh = list_snapshots(&repository).unwrap().snapshots;
    assert_eq!(known(&repository), fresh);
    let first = fs::read(file(&repository)).unwrap();
    assert_eq!(known(&repository), fresh);
    assert_eq!(fs::read(file(&repository)).unwrap(), first, "nothing was new");

    let fourth = commit(&repository, 4);
    ids.iter().for_each(|id| spoil(&objects, *id));
    let found = known(&repository);
    assert_eq!((&found[..3], found[3].id), (&fresh[..], fourth));
    let second = fs::read(file(&repository)).unwrap();
    assert!(second.starts_with(&first) && second.len() > first.len(), "a batch more");
    assert_eq!(list_snapshots(&repository).unwrap().unreadable.len(), 3);

    // One whose length has changed is opened.
    objects.replace(&snapshot_object(ids[1]), b"short").unwrap();
    assert!(!known(&repository).iter().any(|snapshot| snapshot.id == ids[1]));
}

#[test]
fn what_is_gone_leaves_the_file() {
    let cache = tempfile::tempdir().unwrap();
    let (repository, objects) = repository(2, cache.path());
    let ids = [1, 2, 3].map(|sequence| commit(&repository, sequence));
    assert_eq!(known(&repository).len(), 3);
    let three = fs::read(file(&repository)).unwrap().len();
    for id in &ids[..2] {
        objects.remove(&snapshot_object(*id)).unwrap();
    }
    assert_eq!(known(&repository).len(), 1);
    assert!(fs::read(file(&repository)).unwrap().len() < three / 2);
    spoil(&objects, ids[2]);
    assert_eq!(known(&repository).len(), 1, "what stays is still known");
}

#[test]
fn a_damaged_or_cut_file_counts_as_absent_from_there_on() {
    let cache = tempfile::tempdir().unwrap();
    let (repository, _) = repository(3, cache.path());
    commit(&repository, 1);
    known(&repository);
    commit(&repository, 2);
    let fresh = known(&repository);
    let whole = fs::read(file(&repository)).unwrap();
    let check = |what: &str, bytes: &[u8]| {
        fs::write(file(&repository), bytes).unwrap();
        assert_eq!(known(&repository), fresh, "{what}");
        let read = OpenedSnapshots::read(&repository, &Silent);
        assert_eq!((read.places.len(), read.is_whole), (2, true), "{what}: it is mended");
    };
    for place in 0..whole.len() {
        check(&format!("cut at {place}"), &whole[..place]);
        let mut changed = whole.clone();
        changed[place] ^= 1;
        check(&format!("changed at {place}"), &changed);
    }
    check("something behind", &[&whole[..], b"behind"].concat());
    fs::remove_file(file(&repository)).unwrap();
    fs::create_dir(file(&repository)).unwrap();
    assert_eq!(known(&repository), fresh, "a directory");
}

#[test]
fn opened_snapshots_are_sealed() {
    let cache = tempfile::tempdir().unwrap();
    let (repository, _) = repository(6, cache.path());
    let id = commit(&repository, 1);
    known(&repository);
    let file = fs::read(file(&repository)).unwrap();
    for secret in [&b"host 1"[..], &id.0] {
        assert!(!file.windows(secret.len()).any(|window| window == secret));
    }
}

#[test]
fn a_file_of_another_repository_is_absent() {
    let cache = tempfile::tempdir().unwrap();
    let ((one, _), (other, _)) = (repository(4, cache.path()), repository(5, cache.path()));
    commit(&one, 1);
    known(&one);
    known(&other);
    fs::create_dir_all(other.cache_folder().unwrap()).unwrap();
    fs::copy(file(&one), file(&other)).unwrap();
    assert!(OpenedSnapshots::read(&other, &Silent).places.is_empty());
}

/// The file stays on disk from one version of the program to the next.
#[test]
fn the_bytes_are_frozen() {
    let mut body = Vec::new();
    let claimed = (DomainId([2; 16]), 0x0304);
    pack(
        SnapshotId([1; 16]),
        &Opened { object_bytes: 0x0506, claimed, plain: b"plain" },
        &mut body,
    );
    let fields: [&[u8]; 6] = [
        &[1; 16],
        &[6, 5, 0, 0, 0, 0, 0, 0],
        &[2; 16],
        &[4, 3, 0, 0, 0, 0, 0, 0],
        &[5, 0, 0, 0],
        b"plain",
    ];
    assert_eq!(body, fields.concat());
    assert_eq!(body.len(), SNAPSHOT_BYTES + 5);
    let header = pack_header(&[7; SALT_BYTES], 9);
    assert_eq!(header, [b"SROPENED\x01\0\0\0", &[7; 32][..], &[9, 0, 0, 0, 0, 0, 0, 0]].concat());
    assert_eq!(header.len(), HEADER_BYTES);
}

/// One snapshot must not take a gibibyte from everybody who lists them.
#[test]
fn a_snapshot_of_endless_paths_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let (repository, objects) = repository(9, cache.path());
    let session = Session::begin(&repository, "host").unwrap();
    let id = session.id;
    let paths = vec![Vec::new(); 5 << 20];
    let snapshot = Snapshot { paths, sequence: 1, ..Snapshot::empty(id) };
    let signed = crate::authorship::sign(&repository, &snapshot);
    let claimed = (DomainId::ZERO, 1);
    let read = crate::authorship::check(&repository, id, &signed, claimed);
    assert!(read.is_err_and(|error| error.to_string().contains("too long")));
    let refused = session.commit(&snapshot).unwrap_err();
    assert!(refused.to_string().contains("more than any object of its kind"), "{refused}");
    assert!(objects.list("sessions").unwrap().is_empty() && known(&repository).is_empty());
}
