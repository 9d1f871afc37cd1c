//! Summaries: what a writer may seal into them, and what a reader refuses.

use proptest::collection::vec;
use proptest::prelude::*;
use strongroom_arena::Redundancy;
use strongroom_arena::SummarySlot;
use strongroom_arena::format::{
    ARENA_BYTES_MAX, ArenaHead, BLOCKS_ALIGNMENT, BLOCKS_SALT_BYTES, BlockFrame, BlockHead, Codec,
    FRAME_BYTES, FormatError, HEAD_BYTES, SEALED_KEY_BYTES, SUMMARY_BYTES_MAX, SUMMARY_HEAD_BYTES,
    SUMMARY_START, Summary, SummaryBlock,
};
use strongroom_base::{ArenaId, DomainId, Fingerprint, Location};

use crate::World;

fn summary(blocks: &[(u32, u32)], bases: usize) -> Summary {
    let mut summary = Summary::default();
    let (mut first_slot, mut offset) = (0, 0);
    for (number, &(chunk_count, gap)) in (0..).zip(blocks) {
        first_slot += gap;
        let sealed_bytes = 100 + chunk_count;
        let frame = BlockFrame { number, sealed_bytes };
        let head = BlockHead { first_slot, chunk_count, raw_bytes: 9, codec: Codec::Zstd };
        summary.blocks.push(SummaryBlock { frame, head, offset });
        first_slot += chunk_count;
        offset += FRAME_BYTES as u32 + sealed_bytes;
        for place in 0..chunk_count {
            let base = Location { arena: ArenaId([1; 16]), slot: place };
            let bases = vec![base; if place == 0 { bases } else { 0 }];
            summary.slots.push(&SummarySlot {
                fingerprint: Fingerprint([place as u8; 32]),
                chunk_bytes: place,
                bases,
            });
        }
    }
    summary
}

proptest! {
    #[test]
    fn summaries_come_back(blocks in vec((1_u32..20, 0_u32..50), 0..10), bases in 0_usize..5) {
        let summary = summary(&blocks, bases);
        let mut packed = summary.pack();
        prop_assert_eq!(Summary::unpack(&packed), Ok(summary));
        packed.push(0);
        prop_assert!(Summary::unpack(&packed).is_err());
        packed.truncate(packed.len() - 2);
        prop_assert!(Summary::unpack(&packed).is_err());
    }

    /// A put-only writer's false summary must not make a reader panic.
    #[test]
    fn lying_summaries_never_panic(
        place in any::<prop::sample::Index>(),
        word in prop_oneof![any::<u32>(), 0_u32..50, Just(u32::MAX)],
    ) {
        let mut packed = summary(&[(3, 0), (4, 5), (2, 0)], 2).pack();
        let place = place.index(packed.len() / 4) * 4;
        packed[place..place + 4].copy_from_slice(&word.to_le_bytes());
        let _ = Summary::unpack(&packed);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300), counts in 0_u32..9) {
        let _ = (Summary::unpack(&bytes), ArenaHead::unpack(&bytes));
        if bytes.len() >= SUMMARY_HEAD_BYTES {
            bytes[..4].copy_from_slice(b"SUM.");
            bytes[4..SUMMARY_HEAD_BYTES].fill(0);
            bytes[8] = counts as u8;
            let _ = Summary::unpack(&bytes);
        }
    }
}

#[test]
fn summaries_whose_blocks_overlap_are_refused() {
    let whole = summary(&[(3, 0), (4, 5), (2, 0)], 0);
    assert!(Summary::unpack(&whole.pack()).is_ok());
    let cases: [fn(&mut Summary); 7] = [
        |s| s.blocks[0].head.codec = Codec::Padding,
        |s| s.blocks[1].offset -= 1,
        |s| s.blocks[2].offset = 0,
        |s| s.blocks[1].frame.number = 0,
        |s| s.blocks[1].head.first_slot = 2,
        |s| s.blocks[0].head.first_slot = u32::MAX,
        |s| s.blocks[2].head.chunk_count = 1,
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut changed = whole.clone();
        change(&mut changed);
        assert!(Summary::unpack(&changed.pack()).is_err(), "case {number}");
    }
}

#[test]
fn heads_come_back_and_lies_are_refused() {
    let head = ArenaHead {
        block_count: 3,
        blocks_bytes: 4,
        summary_bytes: (3 * BLOCKS_ALIGNMENT - SUMMARY_START) as u64,
        sealed_key: [6; SEALED_KEY_BYTES],
        domain: DomainId([7; 16]),
        salt: [8; BLOCKS_SALT_BYTES],
    };
    let packed = head.pack();
    assert_eq!(ArenaHead::unpack(&packed), Ok(head.clone()));
    // Where the blocks begin is the writer's choice.
    let odd = ArenaHead { summary_bytes: head.summary_bytes + 1, ..head.clone() };
    assert_eq!(ArenaHead::unpack(&odd.pack()), Ok(odd));
    for place in 0..HEAD_BYTES {
        let mut changed = packed;
        changed[place] ^= 1;
        assert!(ArenaHead::unpack(&changed).is_err(), "{place}");
    }
    let alignment = BLOCKS_ALIGNMENT as u64;
    for lie in [
        ArenaHead { blocks_bytes: ARENA_BYTES_MAX + 1, ..head.clone() },
        ArenaHead { blocks_bytes: u64::MAX, ..head.clone() },
        ArenaHead { summary_bytes: SUMMARY_BYTES_MAX as u64 + alignment, ..head.clone() },
        ArenaHead { summary_bytes: u64::MAX, ..head.clone() },
        ArenaHead { summary_bytes: 0, ..head },
    ] {
        assert_eq!(ArenaHead::unpack(&lie.pack()), Err(FormatError::Damaged("arena head")));
    }
    let mut newer = packed;
    newer[8] = 99;
    let checksum = crc32c::crc32c(&newer[..HEAD_BYTES - 4]);
    newer[HEAD_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(ArenaHead::unpack(&newer), Err(FormatError::Unknown("cipher suite")));
}

/// The summary's length reveals less of the number of chunks in a large arena than in a small one.
#[test]
fn blocks_begin_where_the_writer_s_rule_says() {
    for (count, alignment) in [(1, 512), (40, 512), (100, 4096)] {
        let finished = World::new().build(&crate::chunks(count), Redundancy::ARENA);
        let head = crate::head_of(&finished);
        assert_eq!(head.blocks_bytes >= 256 << 10, alignment == 4096, "{count}: {head:?}");
        assert_eq!(head.blocks_start() % alignment, 0, "{count}: {head:?}");
    }
}
