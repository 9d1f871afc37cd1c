//! Every role tries every verb in every folder.

use std::sync::Arc;

use strongroom_arena::envelope::format::ObjectKind;
use strongroom_backend::{AgreedBackend, Backend, BackendError, ObjectName, Refusal};
use strongroom_base::{DomainId, OsEntropy, SystemClock, Timestamp};
use strongroom_repository::{InitOptions, Repository, Surroundings};
use strongroom_serve::{Checks, Role};

use crate::world::{World, object, refusal_of};

/// A folder, and a kind of object in it.
const FOLDERS: [(&str, ObjectKind); 9] = [
    ("", ObjectKind::Config),
    ("keys", ObjectKind::KeySlot),
    ("snapshots", ObjectKind::Snapshot),
    ("sessions", ObjectKind::Session),
    ("arenas", ObjectKind::DataArena),
    ("collections", ObjectKind::Plan),
    ("forgotten", ObjectKind::Wish),
    ("remarks", ObjectKind::Remark),
    ("vouchers", ObjectKind::Vouchers),
];

/// The name and the bytes of an object with this number.
fn object_in(folder: &str, kind: ObjectKind, number: u8) -> (ObjectName, Vec<u8>) {
    let mut id = [number; 16];
    // The first bit says what an arena holds.
    id[0] &= 0x7f;
    if matches!(kind, ObjectKind::KeySlot | ObjectKind::Plan) {
        id[8..].fill(0);
    }
    let bytes = object(kind, id, &[number; 300]);
    let header = strongroom_arena::envelope::peek(&bytes).unwrap();
    let name = strongroom_repository::objects::rightful_name(&header).unwrap();
    assert_eq!(name.folder(), folder);
    (name, bytes)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Done,
    Forbidden,
    Other,
}

fn outcome<T>(result: Result<T, BackendError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(BackendError::Refused { refusal: Refusal::Right, .. }) => Outcome::Forbidden,
        Err(_) => Outcome::Other,
    }
}

#[test]
fn every_role_does_what_it_may_and_nothing_else() {
    let world = World::open(Checks::Envelopes);
    let admin = world.token("room", Role::Admin, None);
    let owner = world.place(&admin).create(&world.settings(&admin)).unwrap();
    let mut number = 0;
    for role in Role::ALL {
        let key = world.token("room", role, None);
        let backend = world.place(&key).open(&world.settings(&key)).unwrap().unwrap();
        for (folder, kind) in FOLDERS {
            number += 1;
            let (name, bytes) = object_in(folder, kind, number);
            let _ = owner.remove(&name);
            let is_vital = ["", "keys"].contains(&folder);
            let is_backup = ["arenas", "sessions", "snapshots"].contains(&folder);
            let allowed = |is: bool| if is { Outcome::Done } else { Outcome::Forbidden };
            let (keeps, owns) = (role == Role::Keep && !is_vital, role == Role::Admin);
            let stores = is_backup && matches!(role, Role::PutOnly | Role::Append);
            let reads = folder != "arenas" || !matches!(role, Role::PutOnly | Role::Audit);
            let say = format!("{role} {name}");
            assert_eq!(
                outcome(backend.create(&name, &bytes)),
                allowed(keeps || owns || stores),
                "{say}"
            );
            if !(keeps || owns || stores) {
                assert!(owner.size(&name).unwrap_err().is_not_found(), "{say}: it is there");
                owner.create(&name, &bytes).unwrap();
            }
            assert_eq!(outcome(backend.list(folder)), Outcome::Done, "{say}");
            assert_eq!(outcome(backend.size(&name)), Outcome::Done, "{say}");
            let challenge = [vec![1], vec![7; 32]].concat();
            assert_eq!(outcome(backend.prove(&name, &challenge)), Outcome::Done, "{say}");
            assert_eq!(outcome(backend.read(&name, 0, 1000)), allowed(reads), "{say}");
            assert_eq!(outcome(backend.replace(&name, &bytes)), allowed(keeps || owns), "{say}");
            let locked = outcome(backend.retain(&name, Timestamp(9)));
            let expected = if keeps || owns { Outcome::Other } else { Outcome::Forbidden };
            assert_eq!(locked, expected, "{say}");
            let copied = outcome(backend.copy(&name, &ObjectName::new("keys", "x")));
            assert_eq!(copied, if owns { Outcome::Other } else { Outcome::Forbidden }, "{say}");
            // A session is removed by those who began it.
            let own = stores && folder == "sessions";
            assert_eq!(outcome(backend.remove(&name)), allowed(keeps || owns || own), "{say}");
            assert_eq!(owner.size(&name).is_ok(), !(keeps || owns || own), "{say}");
        }
    }
}

/// What a client that may not read blocks gets of an arena is all that it asked for, or nothing.
#[test]
fn kept_1_3_the_front_of_an_arena_is_sent_whole_or_not_at_all() {
    use strongroom_arena::format::{ArenaHead, SUMMARY_START};

    let world = World::open(Checks::Envelopes);
    let admin = world.token("room", Role::Admin, None);
    let owner = world.place(&admin).create(&world.settings(&admin)).unwrap();
    // Only the head matters: it says where the blocks begin.
    let head = ArenaHead {
        block_count: 1,
        blocks_bytes: 3000,
        summary_bytes: 500,
        sealed_key: [7; _],
        domain: DomainId([7; _]),
        salt: [0; _],
    };
    let blocks_start = head.blocks_start();
    let mut body = head.pack().to_vec();
    body.resize(head.body_bytes() as usize, 7);
    let bytes = object(ObjectKind::DataArena, [5; 16], &body);
    let name = ObjectName::new("arenas", format!("{}.0", "05".repeat(16)));
    owner.create(&name, &bytes).unwrap();
    for role in [Role::PutOnly, Role::Audit] {
        let key = world.token("room", role, None);
        let backend = world.place(&key).open(&world.settings(&key)).unwrap().unwrap();
        let read = |offset: u64, length: u64| backend.read(&name, offset, length as usize);
        for (offset, length) in
            [(0, SUMMARY_START as u64), (0, blocks_start), (blocks_start - 1, 1), (10, 20)]
        {
            let sent = read(offset, length).unwrap();
            assert_eq!(sent, bytes[offset as usize..(offset + length) as usize], "{role}");
        }
        for (offset, length) in
            [(0, blocks_start + 1), (0, 1 << 20), (blocks_start - 1, 2), (blocks_start, 1)]
        {
            assert_eq!(outcome(read(offset, length)), Outcome::Forbidden, "{role} {offset}");
        }
    }
    // The next generation takes the place of the first: only who may replace creates it.
    for role in [Role::PutOnly, Role::Append] {
        let key = world.token("room", role, None);
        let backend = world.place(&key).open(&world.settings(&key)).unwrap().unwrap();
        let next = ObjectName::new("arenas", format!("{}.1", "05".repeat(16)));
        assert_eq!(outcome(backend.create(&next, &bytes)), Outcome::Forbidden, "{role}");
    }
}

#[test]
fn sessions_of_others_stay() {
    let world = World::open(Checks::Envelopes);
    let [one, other] = [1, 2].map(|_| world.token("room", Role::PutOnly, None));
    let [one, other] =
        [one, other].map(|key| world.place(&key).open(&world.settings(&key)).unwrap().unwrap());
    let session = ObjectName::new("sessions", "05".repeat(16));
    one.create(&session, &object(ObjectKind::Session, [5; 16], b"a")).unwrap();
    // Neither by removing it, nor by taking the name under which it would commit.
    assert_eq!(outcome(other.remove(&session)), Outcome::Forbidden);
    let end = object(ObjectKind::Tombstone, [5; 16], b"a");
    let commit = ObjectName::new("snapshots", "05".repeat(16));
    assert_eq!(outcome(other.create(&commit, &end)), Outcome::Forbidden);
    assert!(one.size(&commit).unwrap_err().is_not_found());
    // Nor by storing the same bytes, as a client does whose answer was lost.
    let bytes = one.read(&session, 0, 1000).unwrap();
    other.create(&session, &bytes).unwrap();
    assert_eq!(outcome(other.remove(&session)), Outcome::Forbidden);
    assert_eq!(outcome(other.create(&commit, &end)), Outcome::Forbidden);
    assert!(one.size(&commit).unwrap_err().is_not_found());
    // A retry by its owner changes nothing.
    one.create(&session, &bytes).unwrap();
    one.remove(&session).unwrap();
}

/// As a replica of a repository from a place without exclusive create.
#[test]
fn a_repository_whose_users_agree_is_kept() {
    let world = World::open(Checks::Envelopes);
    let open = |role| {
        let key = world.token("room", role, None);
        world.place(&key).open(&world.settings(&key)).unwrap().unwrap()
    };
    let owner = open(Role::Admin);
    let surroundings = Surroundings {
        backend: owner.clone(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        cache: None,
    };
    let options = InitOptions { agreed: true, ..InitOptions::default() };
    Repository::init(surroundings, &[b'x'; 40], &options).unwrap();
    let agreed = |role| AgreedBackend::new(open(role), |_| false, Arc::new(OsEntropy));
    // In a note, and in a draft.
    for length in [300, 40_000] {
        let id = [length as u8; 16];
        let body = vec![7; length];
        let name = ObjectName::new("snapshots", format!("{:02x}", id[0]).repeat(16));
        let bytes = object(ObjectKind::Snapshot, id, &body);
        for role in [Role::PutOnly, Role::Append] {
            assert_eq!(outcome(agreed(role).create(&name, &bytes)), Outcome::Forbidden, "{role}");
        }
        agreed(Role::Keep).create(&name, &bytes).unwrap();
        let other = agreed(Role::Admin).create(&name, &bytes[1..]);
        assert!(matches!(other, Err(BackendError::AlreadyExists { .. })), "{other:?}");
    }
    // About what a role may not change, it leaves no notes; nor may their bytes be others.
    let round = "00000009-0123456789abcdef";
    let note =
        |stem: &str, end: &str| ObjectName::new("agreed-07", format!("{stem}.{round}.{end}"));
    let keep = open(Role::Keep);
    for stem in ["top.config", "keys.07"] {
        assert_eq!(outcome(keep.replace(&note(stem, "1"), b"")), Outcome::Forbidden, "{stem}");
    }
    for (end, bytes) in [("1", &b"x"[..]), ("2", b""), ("2", b"rubbish"), ("x", b"")] {
        let refused = keep.replace(&note("snapshots.07", end), bytes);
        assert_eq!(refusal_of(refused), Refusal::Content, "{end}");
    }
    // The draft of an arena has all of its blocks.
    let arena = object(ObjectKind::DataArena, [5; 16], &[7; 300]);
    let hash = &blake3::hash(&arena).to_hex()[..32];
    let draft = ObjectName::new("agreed-07", format!("arenas.{}.1.{hash}.draft", "05".repeat(16)));
    keep.replace(&draft, &arena).unwrap();
    for role in [Role::PutOnly, Role::Audit] {
        assert_eq!(outcome(open(role).read(&draft, 0, 1000)), Outcome::Forbidden, "{role}");
    }
    assert!(open(Role::Append).read(&draft, 0, 9999).unwrap() == arena);
    let rubbish = [7; 300];
    let hash = &blake3::hash(&rubbish).to_hex()[..32];
    let draft = ObjectName::new("agreed-07", format!("snapshots.07.{hash}.draft"));
    assert_eq!(refusal_of(keep.replace(&draft, &rubbish)), Refusal::Content);
}
