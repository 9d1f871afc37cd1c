//! What damage an envelope survives, that it names the damage exactly, and that it never returns
//! bytes that were not sealed.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use strongroom_base::SnapshotId;
use strongroom_testkit::noise;

use super::format::{SIGNATURE_BYTES, VERSION};
use super::*;

const IDENTITY: Identity = Identity {
    kind: ObjectKind::DataArena,
    id: *b"sixteen bytes id",
    generation: 7,
    origin: Origin { session: SnapshotId([0x5e; 16]), sequence: 0x0102_0304_0506_0708 },
};

fn sealed(body: &[u8], per_mille: u32) -> Vec<u8> {
    let mut object = vec![0; HEADROOM];
    object.extend_from_slice(body);
    seal(object, IDENTITY, Redundancy { per_mille })
}

fn layout_of(object: &[u8]) -> (Header, Layout) {
    let header = peek(object).unwrap();
    let layout = header.layout();
    (header, layout)
}

/// How a shard is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Zeroed,
    Flipped(usize),
    Garbage(u64),
}

impl Loss {
    fn apply(self, shard: &mut [u8]) {
        match self {
            Self::Zeroed => shard.fill(0),
            Self::Flipped(bit) => shard[bit / 8 % shard.len()] ^= 1 << (bit % 8),
            Self::Garbage(seed) => shard.copy_from_slice(&noise(seed, shard.len())),
        }
    }
}

fn any_loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::Zeroed),
        any::<usize>().prop_map(Loss::Flipped),
        any::<u64>().prop_map(Loss::Garbage),
    ]
}

/// Damages shards and returns those whose bytes have changed.
fn lose(object: &mut [u8], losses: &[(usize, Loss)]) -> Vec<usize> {
    let (header, layout) = layout_of(object);
    let mut lost = Vec::new();
    for &(shard, loss) in losses {
        let range = shard_range(&header, &layout, shard);
        let before = object[range.clone()].to_vec();
        loss.apply(&mut object[range.clone()]);
        if object[range] != before {
            lost.push(shard);
        }
    }
    lost
}

/// An object, and losses of as many of its shards as `count` says.
fn damaged_object(
    count: impl Fn(usize) -> std::ops::RangeInclusive<usize> + Copy,
) -> impl Strategy<Value = (Vec<u8>, Vec<(usize, Loss)>)> {
    (1_usize..20_000, 1_u32..=1000, any::<u64>()).prop_flat_map(move |(bytes, rate, seed)| {
        let object = sealed(&noise(seed, bytes), rate);
        let (header, _) = layout_of(&object);
        let all: Vec<usize> = (0..header.shards()).collect();
        let shards = subsequence(all, count(header.parity_shards as usize));
        let losses = shards.prop_flat_map(|shards| {
            let each: Vec<_> = shards.into_iter().map(|s| (Just(s), any_loss())).collect();
            each
        });
        (Just(object), losses)
    })
}

proptest! {
    #[test]
    fn up_to_p_lost_shards_are_named_and_repaired(
        (object, losses) in damaged_object(|parity| 1..=parity)
    ) {
        let mut damaged = object.clone();
        let lost = lose(&mut damaged, &losses);
        let inspection = inspect(&damaged).unwrap();
        prop_assert_eq!(&inspection.lost_shards, &lost);
        prop_assert!(!inspection.frame_damaged);
        prop_assert_eq!(repair(&damaged).unwrap(), object);
    }

    #[test]
    fn more_than_p_lost_shards_are_never_made_up(
        (object, losses) in damaged_object(|parity| parity + 1..=parity + 1)
    ) {
        let (header, _) = layout_of(&object);
        let mut damaged = object.clone();
        let lost = lose(&mut damaged, &losses);
        prop_assume!(lost.len() == losses.len() && lost[0] < header.data_shards());
        prop_assert_eq!(&inspect(&damaged).unwrap().lost_shards, &lost);
        let error = EnvelopeError::BeyondRepair {
            lost: lost.len(),
            shards: header.shards(),
            parity: header.parity_shards as usize,
        };
        prop_assert_eq!(repair(&damaged), Err(error));
        prop_assert_eq!(open(&damaged, IDENTITY.kind, None), Err(error));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(b"STRONGRM");
        }
        check_all(&bytes);
    }

    /// Headers that are well formed and false.
    #[test]
    fn lying_headers_never_panic_nor_give_other_bytes(
        bytes in 1_usize..5000,
        rate in 0_u32..=1000,
        (shard_bytes_log2, kind) in (0_u8..20, 0_u8..18),
        body_bytes in prop_oneof![0_u64..6000, any::<u64>(), (0_u32..40).prop_map(|n| 1 << n)],
        parity_shards in prop_oneof![0_u32..70, any::<u32>(), (0_u32..32).prop_map(|n| 1 << n)],
        places in 1_u8..4,
        fields in 0_u8..16,
        cut in prop_oneof![Just(usize::MAX), 0_usize..6000],
    ) {
        let object = sealed(&noise(3, bytes), rate);
        let (mut header, layout) = layout_of(&object);
        let mut lie = |bit: u8, change: &dyn Fn(&mut Header)| if fields & bit != 0 { change(&mut header) };
        lie(1, &|header| header.shard_bytes_log2 = shard_bytes_log2);
        lie(2, &|header| header.body_bytes = body_bytes);
        lie(4, &|header| header.parity_shards = parity_shards);
        let mut packed = header.pack();
        if fields & 8 != 0 {
            packed[10] = kind;
            fix_checksum(&mut packed);
        }
        let mut lying = object.clone();
        if places & 1 != 0 {
            lying[..HEADER_BYTES].copy_from_slice(&packed);
        }
        if places & 2 != 0 {
            lying[layout.trailer..].copy_from_slice(&packed);
        }
        lying.truncate(cut);
        check_all(&lying);
        if let Ok(repaired) = repair(&lying) {
            let (header, layout) = layout_of(&repaired);
            prop_assert_eq!(&repaired[HEADROOM..layout.first_table], noise(3, bytes));
            prop_assert_eq!(header.body_bytes(), bytes);
        }
    }

    #[test]
    fn any_change_of_a_byte_is_noticed_and_undone(
        bytes in 1_usize..3000,
        place in any::<prop::sample::Index>(),
        change in 1_u8..=255,
    ) {
        let object = sealed(&noise(1, bytes), 30);
        let mut damaged = object.clone();
        damaged[place.index(object.len())] ^= change;
        prop_assert!(!inspect(&damaged).unwrap().is_whole());
        prop_assert_eq!(repair(&damaged).unwrap(), object);
    }
}

/// Calls everything that reads objects on these bytes.
fn check_all(bytes: &[u8]) {
    let _ = (peek(bytes), inspect(bytes), salvage(bytes));
    for kind in ObjectKind::KNOWN {
        let _ = open(bytes, kind, None);
    }
    if let Ok(repaired) = repair(bytes) {
        assert!(inspect(&repaired).unwrap().is_whole());
    }
}

fn fix_checksum(packed: &mut [u8; HEADER_BYTES]) {
    let checksum = crc32c::crc32c(&packed[..HEADER_BYTES - 4]);
    packed[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_sealed_object_is_whole_and_opens() {
    for (bytes, rate) in [(1, 0), (1, 1000), (255, 30), (256, 30), (40_000, 30), (9 << 20, 30)] {
        let body = noise(9, bytes);
        let object = sealed(&body, rate);
        assert!(inspect(&object).unwrap().is_whole(), "{bytes}");
        assert_eq!(repair(&object).unwrap(), object);
        let (header, opened, healed) = open(&object, IDENTITY.kind, Some(&IDENTITY.id)).unwrap();
        assert_eq!((header.generation, opened == body, healed), (7, true, false));
        assert_eq!((header.kind, header.id), (IDENTITY.kind, IDENTITY.id));
        assert_eq!((header.origin, header.required_features), (IDENTITY.origin, 0));
        assert_eq!(salvage(&object).unwrap().body, body);
        let least = (header.data_shards() as u64 * u64::from(rate)).div_ceil(1000);
        assert_eq!(u64::from(header.parity_shards), least);
    }
}

#[test]
fn another_object_is_told() {
    let object = sealed(b"body", 1000);
    let swapped = |kind| Err(EnvelopeError::Swapped { wanted: kind, found: ObjectKind::DataArena });
    assert_eq!(open(&object, ObjectKind::Config, None), swapped(ObjectKind::Config));
    assert_eq!(open(&object, IDENTITY.kind, Some(&[0; 16])), swapped(IDENTITY.kind));
}

/// What is done to an object, and whether that can be undone.
type Case = (&'static str, fn(&mut Vec<u8>, &Layout), Outcome);

#[derive(Debug, PartialEq)]
enum Outcome {
    Repaired,
    BeyondRepair,
    NotAnObject,
}

#[test]
fn each_structure_damaged() {
    use Outcome::*;
    let cases: &[Case] = &[
        ("header", |o, _| o[..HEADER_BYTES].fill(0), Repaired),
        ("trailer", |o, l| o[l.trailer..].fill(0), Repaired),
        ("both headers", |o, l| (o[..HEADER_BYTES].fill(0), o[l.trailer..].fill(0)).0, NotAnObject),
        ("table 1", |o, l| o[l.first_table..l.parity].fill(1), Repaired),
        ("table 2", |o, l| o[l.second_table..l.trailer].fill(1), Repaired),
        ("both tables", |o, l| damage_tables(o, l), Repaired),
        ("both tables and the parity", |o, l| o[l.first_table..l.trailer].fill(0x5a), Repaired),
        (
            "both tables and one byte",
            |o, l| {
                damage_tables(o, l);
                o[HEADROOM] ^= 1;
            },
            BeyondRepair,
        ),
        (
            "header, table 1 and a shard",
            |o, l| {
                o[..HEADROOM + 256].fill(0);
                o[l.first_table] ^= 1;
            },
            Repaired,
        ),
        ("all parity", |o, l| o[l.parity..l.second_table].fill(0), Repaired),
        ("cut before the trailer", |o, l| o.truncate(l.trailer), Repaired),
        ("cut in table 2", |o, l| o.truncate(l.second_table + 3), Repaired),
        ("cut before table 2", |o, l| o.truncate(l.second_table), Repaired),
        ("cut in the parity", |o, l| o.truncate(l.parity + 100), Repaired),
        ("cut before the parity", |o, l| o.truncate(l.parity), Repaired),
        ("cut before table 1", |o, l| o.truncate(l.first_table), Repaired),
        ("cut in the body", |o, l| o.truncate(l.first_table - 1), BeyondRepair),
        ("cut after the header", |o, _| o.truncate(HEADER_BYTES), BeyondRepair),
        ("cut in the header", |o, _| o.truncate(HEADER_BYTES - 1), NotAnObject),
        ("empty", |o, _| o.clear(), NotAnObject),
        ("zeros", |o, _| o.fill(0), NotAnObject),
        ("bytes appended", |o, _| o.extend_from_slice(&[7; 1000]), Repaired),
        (
            "bytes appended, trailer gone",
            |o, l| {
                o.truncate(l.trailer);
                o.extend_from_slice(&[7; 1000]);
            },
            Repaired,
        ),
    ];
    let object = sealed(&noise(5, 10_000), 100);
    let (_, layout) = layout_of(&object);
    for (name, damage, expected) in cases {
        let mut damaged = object.clone();
        damage(&mut damaged, &layout);
        assert!(inspect(&damaged).map_or(true, |found| !found.is_whole()), "{name}");
        let found = match repair(&damaged) {
            Ok(repaired) => {
                assert_eq!(repaired, object, "{name}");
                Repaired
            }
            Err(EnvelopeError::BeyondRepair { .. }) => BeyondRepair,
            Err(EnvelopeError::Header(HeaderError::NotAnObject)) => NotAnObject,
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(&found, expected, "{name}");
    }
}

fn damage_tables(object: &mut [u8], layout: &Layout) {
    object[layout.first_table] ^= 1;
    object[layout.second_table] ^= 1;
}

#[test]
fn without_parity_damage_is_named_but_stays() {
    let mut object = sealed(&noise(5, 10_000), 0);
    object[HEADROOM + 300] ^= 1;
    assert_eq!(inspect(&object).unwrap().lost_shards, [1]);
    let error = EnvelopeError::BeyondRepair { lost: 1, shards: 40, parity: 0 };
    assert_eq!(repair(&object), Err(error));
    let salvage = salvage(&object).unwrap();
    assert_eq!((salvage.body.len(), salvage.header.generation), (10_000, 7));
}

#[test]
fn a_forged_table_never_makes_bytes() {
    let object = sealed(&noise(5, 10_000), 100);
    let (header, layout) = layout_of(&object);
    let mut forged = object.clone();
    forged[HEADROOM] ^= 1;
    let shards = forged[HEADROOM..layout.first_table].chunks(header.shard_bytes());
    let parity = object[layout.parity..layout.second_table].chunks(header.shard_bytes());
    let table = pack_table(&shards.chain(parity).map(signature::<2>).collect::<Vec<_>>());
    forged[layout.first_table..layout.parity].copy_from_slice(&table);
    forged[layout.second_table..layout.trailer].copy_from_slice(&table);
    assert_eq!(inspect(&forged).unwrap().lost_shards.len(), header.shards());
    assert!(matches!(repair(&forged), Err(EnvelopeError::BeyondRepair { .. })));
}

#[test]
fn a_newer_version_is_told() {
    let mut object = sealed(b"body", 0);
    let mut packed = *object.first_chunk::<HEADER_BYTES>().unwrap();
    packed[8] = VERSION.to_le_bytes()[0] + 1;
    fix_checksum(&mut packed);
    object[..HEADER_BYTES].copy_from_slice(&packed);
    let error = HeaderError::NewerVersion { version: VERSION + 1 };
    assert_eq!(inspect(&object), Err(error.into()));
}

/// What is changed, whether it is unknown then, and the change.
type NewerCase = (&'static str, bool, fn(&mut Header));

/// Kinds that this program does not know, features that it must know, and bytes that have no
/// meaning to it: the envelope is checked and repaired as any other, and nothing in it is lost.
#[test]
fn what_a_newer_program_made_is_unknown_and_repaired_as_it_was() {
    let whole = sealed(&noise(5, 10_000), 100);
    let (header, layout) = layout_of(&whole);
    let cases: [NewerCase; 5] = [
        ("no change", false, |_| {}),
        ("a kind that is reserved", true, |h| h.kind = ObjectKind::Unknown(12)),
        ("the last kind", true, |h| h.kind = ObjectKind::from_number(255)),
        ("a required feature", true, |h| h.required_features = 1 << 31),
        ("bytes that mean nothing yet", false, |h| h.proof = [9; PROOF_BYTES]),
    ];
    for (name, is_unknown, change) in cases {
        let mut newer = header.clone();
        change(&mut newer);
        assert_eq!(Header::unpack(&newer.pack()), Ok(newer.clone()), "{name}");
        assert_eq!(newer.is_unknown(), is_unknown, "{name}");
        let mut object = whole.clone();
        object[..HEADER_BYTES].copy_from_slice(&newer.pack());
        object[layout.trailer..].copy_from_slice(&newer.pack());
        assert!(inspect(&object).unwrap().is_whole(), "{name}");
        let opened = open(&object, IDENTITY.kind, None).map(|(header, ..)| header);
        let expected = if is_unknown { Err(EnvelopeError::Unknown) } else { Ok(newer) };
        assert_eq!(opened, expected, "{name}");
        let mut damaged = object.clone();
        damaged[HEADROOM + 300] ^= 1;
        damaged[layout.trailer..].fill(0);
        assert_eq!(inspect(&damaged).unwrap().lost_shards, [1], "{name}");
        assert_eq!(repair(&damaged).unwrap(), object, "{name}");
    }
}

#[test]
fn numbers_and_kinds_belong_together() {
    let known = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 17, 18, 19];
    for (number, kind) in known.into_iter().zip(ObjectKind::KNOWN) {
        assert_eq!((kind.number(), ObjectKind::from_number(number)), (number, kind));
    }
    for number in (0..=255).filter(|number| !known.contains(number)) {
        assert_eq!(ObjectKind::from_number(number), ObjectKind::Unknown(number));
        assert_eq!(ObjectKind::Unknown(number).number(), number);
    }
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let header = layout_of(&sealed(&noise(1, 1000), 1000)).0;
    let cases: [fn(&mut Header); 6] = [
        |h| h.body_bytes = 0,
        |h| h.body_bytes = u64::MAX,
        |h| h.shard_bytes_log2 = 5,
        |h| h.shard_bytes_log2 = 17,
        |h| h.parity_shards = 5,
        |h| h.parity_shards = u32::MAX,
    ];
    assert_eq!(Header::unpack(&header.pack()), Ok(header.clone()));
    for change in cases {
        let mut changed = header.clone();
        change(&mut changed);
        assert_eq!(Header::unpack(&changed.pack()), Err(HeaderError::Damaged), "{changed:?}");
    }
}

/// A program that has only the table can check that the shards fit together.
#[test]
fn signatures_of_parity_are_the_parity_of_signatures() {
    for (bytes, rate) in [(10_000, 30), (10_000, 1000), (1, 1000), (3_000_001, 70)] {
        let object = sealed(&noise(2, bytes), rate);
        let (header, layout) = layout_of(&object);
        let table = unpack_table(&object[layout.second_table..layout.trailer]).unwrap();
        assert_eq!(table.len() * SIGNATURE_BYTES + 4, layout.table_bytes);
        let (data, parity) = table.split_at(header.data_shards());
        assert_eq!(code_of(&header).parity_of_signatures(data), parity, "{bytes}");
    }
}
