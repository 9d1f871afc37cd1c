//! The own record: written and read, damaged, and what it keeps.

use std::sync::Arc;

use strongroom_backend::MemoryBackend;
use strongroom_base::{FixedClock, SeededEntropy, Silent, Timestamp};
use strongroom_catalog::Recipe;

use std::fs;
use std::path::Path;

use super::*;
use crate::cache::SALT_BYTES;
use crate::keys::{KdfCost, KeySlot, NewSlot, write_slot};
use crate::repository::{InitOptions, Surroundings};

const OWNER: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";
const LAPTOP: &[u8] =
    b"strongroom-key-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a572949ae1";

/// A repository with a put-only key of the domain "laptop", opened with that key.
fn laptop(seed: u64, cache: &Path) -> Repository {
    let surroundings = Surroundings {
        backend: Arc::new(MemoryBackend::new()),
        clock: Arc::new(FixedClock(Timestamp(0))),
        entropy: Arc::new(SeededEntropy::new(seed)),
        cache: Some(cache.to_owned()),
    };
    let cost = Some(KdfCost::CHEAPEST);
    let options = InitOptions { cost, ..InitOptions::default() };
    let owner = Repository::init(surroundings.clone(), OWNER, &options).unwrap();
    let secret = owner.secret.put_only("laptop").unwrap();
    let new = NewSlot { label: String::new(), created: Timestamp(0), cost };
    let slot = KeySlot::seal(new, &secret, LAPTOP, owner.config.id, &*surroundings.entropy);
    write_slot(owner.backend(), &slot.unwrap()).unwrap();
    Repository::open(surroundings, LAPTOP).unwrap()
}

fn id(number: u8) -> SnapshotId {
    SnapshotId([number; 16])
}

fn session(number: u8, bases: &[u8]) -> KeptSession {
    let bases = bases.iter().map(|number| id(*number)).collect();
    KeptSession { id: id(number), secret: ArenaSecret([number; 32]), bases }
}

fn snapshot(number: u8, path: &str, partial: bool) -> Snapshot {
    Snapshot {
        sequence: u64::from(number),
        host: "laptop".to_owned(),
        paths: vec![path.as_bytes().to_vec()],
        root: Recipe::default(),
        partial,
        ..Snapshot::empty(id(number))
    }
}

fn needs(sessions: &[u8], bases: &[u8]) -> Needs {
    let ids = |numbers: &[u8]| numbers.iter().map(|number| id(*number)).collect();
    Needs { sessions: ids(sessions), bases: ids(bases) }
}

/// What can be compared of a record.
fn facts(record: &OwnRecord) -> (u64, Option<SnapshotId>, Vec<KeptSnapshot>, Vec<u8>) {
    let sessions = record.sessions.iter().map(|session| session.id.0[0]).collect();
    (record.sequence, record.newest, record.snapshots.clone(), sessions)
}

fn example() -> OwnRecord {
    let kept = KeptSnapshot { snapshot: snapshot(2, "/home", false), needs: vec![id(1), id(2)] };
    OwnRecord {
        sequence: 2,
        newest: Some(id(2)),
        snapshots: vec![kept],
        sessions: vec![session(1, &[]), session(2, &[1])],
    }
}

#[test]
fn what_is_written_is_read() {
    let cache = tempfile::tempdir().unwrap();
    let repository = laptop(1, cache.path());
    assert_eq!(facts(&OwnRecord::read(&repository, &Silent)), facts(&OwnRecord::default()));
    OwnRecord::update(&repository, &Silent, |record| *record = example()).unwrap();
    let read = OwnRecord::read(&repository, &Silent);
    assert_eq!(facts(&read), facts(&example()));
    assert_eq!(read.sessions[1].secret.0, [2; 32]);
    assert_eq!(read.sessions[1].bases, [id(1)]);
}

/// The file stays on disk from one version of the program to the next.
#[test]
fn the_bytes_are_frozen() {
    let record = OwnRecord { snapshots: Vec::new(), ..example() };
    let hash = blake3::hash(&pack_record(&record)).to_hex();
    assert_eq!(&hash[..16], "dc26a5b68da85e89");
    let header = pack_header(&[7; SALT_BYTES]);
    assert_eq!(&header[..12], b"SROWNREC\x01\0\0\0");
}

#[test]
fn a_damaged_or_cut_record_is_absent() {
    let cache = tempfile::tempdir().unwrap();
    let repository = laptop(2, cache.path());
    OwnRecord::update(&repository, &Silent, |record| *record = example()).unwrap();
    let path = path(&repository).unwrap();
    let whole = fs::read(&path).unwrap();
    let is_absent = || OwnRecord::read(&repository, &Silent).newest.is_none();
    assert!(!is_absent());
    for place in 0..whole.len() {
        fs::write(&path, &whole[..place]).unwrap();
        assert!(is_absent(), "cut at {place}");
        let mut changed = whole.clone();
        changed[place] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert!(is_absent(), "changed at {place}");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(is_absent(), "a directory");
}

#[test]
fn a_record_of_another_repository_or_key_is_absent() {
    let cache = tempfile::tempdir().unwrap();
    let (one, other) = (laptop(3, cache.path()), laptop(4, cache.path()));
    OwnRecord::update(&one, &Silent, |record| *record = example()).unwrap();
    let theirs = path(&other).unwrap();
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::copy(path(&one).unwrap(), &theirs).unwrap();
    assert!(OwnRecord::read(&other, &Silent).newest.is_none());
    let owner = Repository::open(one.surroundings.clone(), OWNER).unwrap();
    fs::copy(path(&one).unwrap(), path(&owner).unwrap()).unwrap_or_else(|_| {
        fs::create_dir_all(path(&owner).unwrap().parent().unwrap()).unwrap();
        fs::copy(path(&one).unwrap(), path(&owner).unwrap()).unwrap()
    });
    assert!(OwnRecord::read(&owner, &Silent).newest.is_none(), "of another domain");
}

/// No secret is in the clear.
#[test]
fn the_file_is_sealed() {
    let cache = tempfile::tempdir().unwrap();
    let repository = laptop(5, cache.path());
    OwnRecord::update(&repository, &Silent, |record| *record = example()).unwrap();
    let bytes = fs::read(path(&repository).unwrap()).unwrap();
    for secret in [&[1; 32][..], &[2; 16], b"/home", b"laptop"] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret));
    }
    let mode = fs::metadata(path(&repository).unwrap()).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}

#[test]
fn changes_at_once_are_not_lost() {
    let cache = tempfile::tempdir().unwrap();
    let repository = laptop(6, cache.path());
    std::thread::scope(|scope| {
        for number in 1..=8 {
            let repository = &repository;
            scope.spawn(move || {
                OwnRecord::update(repository, &Silent, |record| {
                    record.sessions.push(session(number, &[]));
                });
            });
        }
    });
    assert_eq!(OwnRecord::read(&repository, &Silent).sessions.len(), 8);
}

#[test]
fn a_record_keeps_what_its_snapshots_need() {
    let mut record = OwnRecord::default();
    // An aborted session, of which nothing is used.
    record.sessions.push(session(1, &[]));
    for (number, path, used, bases, kept) in [
        (2, "/home", &[2][..], &[][..], &[2][..]),
        (3, "/srv", &[3], &[], &[2, 3]),
        // Deltas of chunks that the second session wrote.
        (4, "/home", &[4], &[2], &[2, 3, 4]),
        // The bases of deltas that are still used are still needed.
        (5, "/home", &[4, 5], &[], &[2, 3, 4, 5]),
        (6, "/home", &[6], &[], &[3, 6]),
    ] {
        record.sessions.push(session(number, &[]));
        let begun = record.clone();
        record.committed(&snapshot(number, path, false), &begun, needs(used, bases));
        let (sequence, newest, _, sessions) = facts(&record);
        assert_eq!((sequence, newest), (u64::from(number), Some(id(number))));
        assert_eq!(sessions, kept, "after {number}");
    }
    let paths: Vec<_> = record.snapshots.iter().map(|kept| &kept.snapshot.paths[0][..]).collect();
    assert_eq!(paths, [&b"/srv"[..], b"/home"]);
    record.forget(&[id(3)]);
    assert_eq!(record.snapshots.len(), 1);
}

#[test]
fn an_incomplete_snapshot_does_not_displace_a_complete_one() {
    let mut record = OwnRecord::default();
    for (number, partial, newest_kept, sessions) in [
        (1, true, 1, &[1][..]),
        (2, false, 2, &[2]),
        // Its secret is kept for the next backup, which finds its chunks.
        (3, true, 2, &[2, 3]),
        (4, false, 4, &[4]),
    ] {
        record.sessions.push(session(number, &[]));
        let begun = record.clone();
        record.committed(&snapshot(number, "/home", partial), &begun, needs(&[number], &[]));
        assert_eq!(record.snapshots.len(), 1);
        assert_eq!(record.snapshots[0].snapshot.id, id(newest_kept));
        assert_eq!(facts(&record).3, sessions);
    }
}

/// A backup that commits drops what nothing needs; one that runs beside it still has its own.
#[test]
fn two_backups_at_once_keep_their_secrets() {
    let mut record = OwnRecord::default();
    record.sessions.push(session(1, &[]));
    let first = record.clone();
    record.sessions.push(session(2, &[]));
    let second = record.clone();
    record.committed(&snapshot(2, "/srv", false), &second, needs(&[2], &[]));
    assert_eq!(facts(&record).3, [2]);
    record.committed(&snapshot(1, "/home", false), &first, needs(&[1], &[]));
    assert_eq!(facts(&record).3, [2, 1]);
    assert_eq!(record.sequence, 2);
}

#[test]
fn a_record_is_bounded() {
    let many = |count: u32| -> Vec<SnapshotId> {
        let name = |number: u32| {
            SnapshotId(*blake3::hash(&number.to_le_bytes()).as_bytes().first_chunk().unwrap())
        };
        (0..count).map(name).collect()
    };
    let ids = many(20_000);
    let sessions = ids.iter().map(|id| KeptSession { id: *id, ..session(0, &[]) });
    let mut record = OwnRecord { sessions: sessions.collect(), ..OwnRecord::default() };
    let limits = SizeLimits::DEFAULT;
    record.pack_bounded(&limits);
    assert_eq!(record.sessions.len(), limits.record_sessions_max);
    assert_eq!(record.sessions.last().unwrap().id, *ids.last().unwrap(), "the oldest go");
    record.sessions[0].bases = ids[ids.len() - 1..].repeat(3 << 20);
    let packed = record.pack_bounded(&limits);
    assert!(packed.len() <= RECORD_BYTES_MAX && record.sessions.len() > 8000);
    for number in 0..20 {
        let kept = snapshot(number, &number.to_string(), false);
        record.snapshots.push(KeptSnapshot { snapshot: kept, needs: Vec::new() });
    }
    record.pack_bounded(&limits);
    assert_eq!(record.snapshots.len(), limits.record_snapshots_max);
    assert_eq!(record.snapshots[0].snapshot.id, id(4));
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    let whole = pack_record(&example());
    for cut in 0..whole.len() {
        assert!(unpack_record(&whole[..cut]).is_err(), "cut at {cut}");
    }
    assert!(unpack_record(&[&whole[..], &[0]].concat()).is_err(), "a byte is left over");
    let mut vast = whole.to_vec();
    vast[24..28].fill(0xff);
    assert!(unpack_record(&vast).is_err(), "more sessions than there are bytes");
}
