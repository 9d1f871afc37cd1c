//! Which sequence a backup gets, and who may decide that: machines of its own domain alone.

use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, HEADROOM, Identity};
use strongroom_backend::{Backend, read_all};
use strongroom_base::{Silent, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_engine::EngineError;
use strongroom_repository::{
    Repository, RepositoryError, Session, list_sessions, list_snapshots, session_object,
    snapshot_object,
};
use strongroom_upkeep::{NewAccess, add_key};

use crate::world::{World, options, run};

const LAPTOP: &[u8] = b"LAPTOP";
const PHONE: &[u8] = b"PHONE";

fn put_only(world: &World, domain: &str, passphrase: &[u8]) -> Repository {
    add_key(&world.open(), passphrase, domain, NewAccess::PutOnly(domain), None).unwrap();
    Repository::open(world.surroundings(), passphrase).unwrap()
}

/// Anybody who may store can write a header with any sequence.
#[test]
fn engine_forged_sequences_of_any_size_change_nothing() {
    let world = World::new(960);
    let laptop = put_only(&world, "laptop", LAPTOP);
    let first = run(&laptop, &options(&world.tree()), &Silent).unwrap().snapshot;
    // A phone's snapshot, which counts in its own domain alone.
    let phone = put_only(&world, "phone", PHONE);
    let mut session = Session::begin(&phone, "phone").unwrap();
    session.sequence = u64::MAX;
    let of_phone = Snapshot { sequence: u64::MAX, ..Snapshot::empty(session.id) };
    session.commit(&of_phone).unwrap();
    let honest = read_all(&*world.objects, &snapshot_object(first.id)).unwrap();
    let body = honest[HEADROOM..][..envelope::peek(&honest).unwrap().body_bytes as usize].to_vec();
    for (number, sequence, body) in [
        (1, u64::MAX, b"rubbish".to_vec()),
        (2, 1 << 20, b"rubbish".to_vec()),
        // The claim of an honest one, under another sequence.
        (3, first.sequence + 5, body),
    ] {
        let id = SnapshotId([number; 16]);
        let origin = Origin { session: id, sequence };
        let identity = Identity { kind: ObjectKind::Snapshot, id: id.0, generation: 0, origin };
        let object = envelope::seal_small(&body, identity);
        world.objects.create(&snapshot_object(id), &object).unwrap();
    }
    let open_laptop = || Repository::open(world.surroundings(), LAPTOP).unwrap();
    let mut next = first.sequence;
    for repository in [open_laptop(), world.open(), open_laptop()] {
        let made = run(&repository, &options(&world.tree()), &Silent).unwrap().snapshot;
        let is_laptop = !repository.keys.can_read();
        next += u64::from(is_laptop);
        assert_eq!(made.sequence, if is_laptop { next } else { 1 });
    }
    let list = list_snapshots(&world.open()).unwrap();
    assert_eq!((list.snapshots.len(), list.unreadable.len()), (5, 3), "{:?}", list.unreadable);
    for (_, error) in &list.unreadable {
        assert!(matches!(error, RepositoryError::Forged { .. }), "{error}");
    }
}

/// Another header over an honest snapshot: its order is what its own domain made it.
#[test]
fn a_sequence_changed_in_the_header_is_forged() {
    let world = World::new(961);
    let first = world.backup().snapshot;
    let name = snapshot_object(first.id);
    let mut object = read_all(&*world.objects, &name).unwrap();
    let mut header = envelope::peek(&object).unwrap();
    let trailer = header.layout().trailer;
    header.origin.sequence += 1;
    object[..HEADROOM].copy_from_slice(&header.pack());
    object[trailer..].copy_from_slice(&header.pack());
    world.objects.replace(&name, &object).unwrap();
    let list = list_snapshots(&world.open()).unwrap();
    assert!(matches!(list.unreadable[..], [(_, RepositoryError::Forged { .. })]));
}

/// A machine of the own domain can use the numbers up. That is said, and no number is used twice.
#[test]
fn the_last_sequence_is_an_error_that_names_the_domain() {
    for (seed, domain) in [(962, ""), (963, "laptop")] {
        let world = World::new(seed);
        let open = || match domain {
            "" => world.open(),
            domain => put_only(&world, domain, LAPTOP),
        };
        let repository = open();
        let mut session = Session::begin(&repository, "host").unwrap();
        session.sequence = u64::MAX;
        let last = Snapshot { sequence: u64::MAX, ..Snapshot::empty(session.id) };
        session.commit(&last).unwrap();
        let before = world.objects.snapshot();
        let failure = run(&repository, &options(&world.tree()), &Silent).unwrap_err();
        let EngineError::Repository(RepositoryError::SequenceUsedUp { domain: named }) = &failure
        else {
            panic!("{failure}");
        };
        assert_eq!(named, domain);
        assert!(world.objects.snapshot() == before, "neither a session nor an arena is left");
    }
}

#[test]
fn sessions_are_listed_with_what_their_domain_says() {
    let world = World::new(964);
    let laptop = put_only(&world, "laptop", LAPTOP);
    let owner = world.open();
    let by_owner = Session::begin(&owner, "server").unwrap();
    let by_laptop = Session::begin(&laptop, "laptop").unwrap();
    // In the name of the owner, without its keys.
    let id = SnapshotId([3; 16]);
    let origin = Origin { session: id, sequence: 0 };
    let identity = Identity { kind: ObjectKind::Session, id: id.0, generation: 0, origin };
    let object = envelope::seal_small(&[0; 60], identity);
    world.objects.create(&session_object(id), &object).unwrap();
    let said = |repository: &Repository, id| {
        let sessions = list_sessions(repository).unwrap();
        sessions.into_iter().find(|session| session.id == id).unwrap().head
    };
    let head = said(&owner, by_owner.id).unwrap();
    assert_eq!((head.host.as_str(), head.domain.as_str()), ("server", ""));
    for repository in [&owner, &laptop] {
        let head = said(repository, by_laptop.id).unwrap();
        assert_eq!((head.host.as_str(), head.domain.as_str()), ("laptop", "laptop"));
        assert!(head.started.0 > 0);
    }
    assert!(matches!(said(&owner, id), Err(RepositoryError::Forged { .. })));
    assert!(matches!(said(&laptop, by_owner.id), Err(RepositoryError::PutOnly)));
    let (server, laptop_id) = (by_owner.id, by_laptop.id);
    drop((by_owner, by_laptop));
    let left: Vec<SnapshotId> = list_sessions(&owner).unwrap().iter().map(|s| s.id).collect();
    assert_eq!(left, [id], "{server} and {laptop_id} ended");
}
