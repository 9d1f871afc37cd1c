//! What is put into a block comes out of it, and nothing else does.

use proptest::collection::vec;
use proptest::prelude::*;
use strongroom_base::Location;

use super::*;
use crate::format::DIRECTORY_ENTRY_BYTES;

const ARENA: ArenaId = ArenaId([3; 16]);

fn key() -> SealKey {
    SealKey::new(&[9; 32])
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_le_bytes()).finalize_xof().fill(&mut noise);
    noise
}

fn sealed(chunks: &[Vec<u8>], number: u32, first_slot: u32) -> SealedBlock {
    let mut draft = BlockDraft::new(number, first_slot);
    for chunk in chunks {
        draft.push(StoredChunk::Whole(chunk));
    }
    BlockSealer::new(CompressionLevel::DEFAULT).seal(draft, ARENA, &key())
}

fn open(bytes: &[u8]) -> Result<OpenBlock, BlockError> {
    open_block(bytes, ARENA, &key())
}

proptest! {
    #[test]
    fn chunks_come_back(
        chunks in vec(prop_oneof![vec(any::<u8>(), 0..300), vec(Just(7), 0..3000)], 1..40),
        number in any::<u32>(),
        first_slot in 0..u32::MAX - 100,
        behind in vec(any::<u8>(), 0..50),
    ) {
        let SealedBlock { frame, mut bytes, .. } = sealed(&chunks, number, first_slot);
        prop_assert_eq!(bytes.len(), FRAME_BYTES + frame.sealed_bytes as usize);
        bytes.extend(behind);
        let opened = open(&bytes).unwrap();
        prop_assert_eq!(opened.slots(), first_slot..first_slot + chunks.len() as u32);
        for (slot, chunk) in (first_slot..).zip(&chunks) {
            prop_assert_eq!(opened.chunk(slot), Some(StoredChunk::Whole(chunk)));
        }
        prop_assert_eq!(opened.chunk(opened.slots().end), None);
        prop_assert_eq!(opened.chunk(first_slot.wrapping_sub(1)), None);
    }

    #[test]
    fn any_change_is_noticed(place in any::<prop::sample::Index>(), change in 1_u8..=255) {
        let mut bytes = sealed(&[noise(500), vec![1; 5000]], 4, 40).bytes;
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        prop_assert!(open(&bytes).is_err());
        if place < FRAME_BYTES - 4 {
            // Even if the checksum is made right again.
            fix_checksum(&mut bytes);
            prop_assert!(open(&bytes).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..400), is_frame in any::<bool>()) {
        if is_frame && bytes.len() >= FRAME_BYTES {
            bytes[..4].copy_from_slice(b"BLK.");
            fix_checksum(&mut bytes);
        }
        prop_assert!(open(&bytes).is_err());
        for chunk_count in [0, 1, 2, 30, u32::MAX] {
            let _ = unpack_directory(&bytes, chunk_count);
        }
    }

    #[test]
    fn directories_come_back(
        chunks in vec((0_u32..50, 0_u32..=CHUNK_BYTES_MAX as u32, vec(any::<(u128, u32)>(), 0..5)), 1..20)
    ) {
        let entries: Vec<DirectoryEntry> = chunks
            .into_iter()
            .map(|(stored_bytes, chunk_bytes, bases)| DirectoryEntry {
                stored_bytes,
                chunk_bytes: if bases.is_empty() { stored_bytes } else { chunk_bytes },
                bases: bases
                    .into_iter()
                    .map(|(arena, slot)| Location { arena: ArenaId(arena.to_le_bytes()), slot })
                    .collect(),
            })
            .collect();
        let mut payload = pack_directory(&entries);
        let directory_bytes = payload.len();
        payload.resize(
            directory_bytes + entries.iter().map(|entry| entry.stored_bytes as usize).sum::<usize>(),
            0,
        );
        let count = entries.len() as u32;
        prop_assert_eq!(unpack_directory(&payload, count), Ok((entries, directory_bytes)));
        payload.push(0);
        prop_assert!(unpack_directory(&payload, count).is_err());
    }
}

fn fix_checksum(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[..FRAME_BYTES - 4]);
    bytes[FRAME_BYTES - 4..FRAME_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn what_does_not_compress_is_kept_as_it_is() {
    let raw = sealed(&[noise(5000)], 0, 0);
    assert_eq!(raw.head.codec, Codec::Raw);
    assert_eq!(raw.bytes.len(), PAYLOAD_START + DIRECTORY_ENTRY_BYTES + 5000 + TAG_BYTES);
    let compressed = sealed(&[vec![5; 5000]], 0, 0);
    assert_eq!(compressed.head.codec, Codec::Zstd);
    assert!(compressed.bytes.len() < 200);
}

#[test]
fn the_wrong_key_arena_or_number_opens_nothing() {
    let block = sealed(&[noise(100)], 4, 40);
    let damaged = |number| Err(BlockError::Damaged { number });
    let failed = |opened: Result<OpenBlock, BlockError>| opened.map(|_| ());
    assert_eq!(failed(open_block(&block.bytes, ArenaId([4; 16]), &key())), damaged(4));
    assert_eq!(failed(open_block(&block.bytes, ARENA, &SealKey::new(&[8; 32]))), damaged(4));
    let mut moved = block.bytes.clone();
    moved[..FRAME_BYTES].copy_from_slice(&BlockFrame { number: 5, ..block.frame }.pack());
    assert_eq!(failed(open(&moved)), damaged(5));
    for cut in [FRAME_BYTES, FRAME_BYTES + 16, block.bytes.len() - 1] {
        assert_eq!(failed(open(&block.bytes[..cut])), damaged(4), "{cut}");
    }
    assert!(matches!(open(&block.bytes[..FRAME_BYTES - 1]), Err(BlockError::Format(_))));
}

/// Blocks that a program with the arena's key can seal, but that no writer seals.
#[test]
fn heads_that_lie_are_refused() {
    let payload =
        pack_directory(&[DirectoryEntry { stored_bytes: 0, chunk_bytes: 0, bases: vec![] }]);
    let raw_bytes = payload.len() as u32;
    let right = BlockHead { first_slot: 7, chunk_count: 1, raw_bytes, codec: Codec::Raw };
    let open_with = |head: &[u8]| {
        let mut bytes = vec![0; FRAME_BYTES];
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(&payload);
        let sealed_bytes = (bytes.len() - FRAME_BYTES + TAG_BYTES) as u32;
        let frame = BlockFrame { number: 1, sealed_bytes };
        bytes[..FRAME_BYTES].copy_from_slice(&frame.pack());
        key().seal_from(FRAME_BYTES, 1, &frame.aad(ARENA), &mut bytes);
        open(&bytes).map(|opened| opened.head())
    };
    assert_eq!(open_with(&right.pack()), Ok(right));
    let lies: [fn(&mut BlockHead); 5] = [
        |head| head.chunk_count = 0,
        |head| head.chunk_count = 2,
        |head| head.first_slot = u32::MAX,
        |head| head.raw_bytes += 1,
        |head| head.codec = Codec::Padding,
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut head = right;
        lie(&mut head);
        assert!(open_with(&head.pack()).is_err(), "lie {number}");
    }
    let mut newer = right.pack();
    newer[12] = 77;
    let unknown = BlockError::Format(FormatError::Unknown("codec"));
    assert_eq!(open_with(&newer), Err(unknown), "a codec of a newer program is no damage");
}

#[test]
fn padding_opens_as_no_chunk() {
    for length in [PADDING_BYTES_MIN, 5000, PADDING_BYTES_MAX] {
        let padding = seal_padding(9, length, ARENA, &key());
        assert_eq!(padding.bytes.len(), length);
        let opened = open(&padding.bytes).unwrap();
        assert_eq!((opened.head(), opened.slots()), (BlockHead::PADDING, 0..0));
        assert_eq!(opened.chunk(0), None);
    }
}

#[test]
fn a_delta_is_told_with_its_bases() {
    let bases = vec![Location { arena: ArenaId([8; 16]), slot: 5 }; 2];
    let mut draft = BlockDraft::new(0, 10);
    draft.push(StoredChunk::Whole(b"whole"));
    let delta = StoredChunk::Delta { instructions: b"ins", bases: &bases, chunk_bytes: 70 };
    assert_eq!(draft.push(delta), 11);
    let block = BlockSealer::new(CompressionLevel::DEFAULT).seal(draft, ARENA, &key());
    let opened = open(&block.bytes).unwrap();
    assert_eq!(opened.chunk(10), Some(StoredChunk::Whole(b"whole")));
    assert_eq!(opened.chunk(11), Some(delta));
}

#[test]
fn directories_that_lie_are_refused() {
    let entry = |stored_bytes, chunk_bytes, bases: usize| DirectoryEntry {
        stored_bytes,
        chunk_bytes,
        bases: vec![Location { arena: ARENA, slot: 0 }; bases],
    };
    for (name, entry, data_bytes) in [
        ("too few bytes", entry(5, 5, 0), 4),
        ("too many bytes", entry(5, 5, 0), 6),
        ("a whole chunk of two lengths", entry(5, 6, 0), 5),
        ("too many bases", entry(5, 6, BASES_MAX + 1), 5),
        ("a delta of too long a chunk", entry(5, CHUNK_BYTES_MAX as u32 + 1, 1), 5),
        ("more than there can be", entry(u32::MAX, u32::MAX, 0), 5),
    ] {
        let mut payload = pack_directory(&[entry]);
        payload.resize(payload.len() + data_bytes, 0);
        assert!(unpack_directory(&payload, 1).is_err(), "{name}");
    }
}

#[test]
fn a_draft_knows_when_it_is_full() {
    let mut draft = BlockDraft::new(0, 0);
    assert!(!draft.is_full_for(10_000, 100), "a chunk has room in an empty block");
    draft.push(StoredChunk::Whole(&[0; 60]));
    assert!(!draft.is_full_for(40, 100));
    assert!(draft.is_full_for(41, 100));
    let mut many = BlockDraft::new(0, 7);
    for place in 0..BLOCK_CHUNKS_MAX as u32 {
        assert!(!many.is_full_for(1, 1 << 20));
        assert_eq!(many.push(StoredChunk::Whole(&[1])), 7 + place);
    }
    assert!(many.is_full_for(0, 1 << 20));
    let block = BlockSealer::new(CompressionLevel::DEFAULT).seal(many, ARENA, &key());
    assert_eq!(open(&block.bytes).unwrap().slots().len(), BLOCK_CHUNKS_MAX);
}

#[test]
fn the_largest_block_opens() {
    for length in [CHUNK_BYTES_MAX, BLOCK_RAW_BYTES_MAX - DIRECTORY_ENTRY_BYTES] {
        for chunk in [noise(length), vec![3; length]] {
            let block = sealed(std::slice::from_ref(&chunk), 1, 1);
            assert_eq!(open(&block.bytes).unwrap().chunk(1), Some(StoredChunk::Whole(&chunk)));
        }
    }
}

#[test]
fn what_looks_random_is_not_compressed() {
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    let random = noise(300_000);
    assert!(sealer.looks_random(&random));
    let text = b"what people write has some letters more often than others. ".repeat(5000);
    assert!(!sealer.looks_random(&text));
    // Base64 of noise: no match, but six bits a byte.
    let base64: Vec<u8> = random.iter().map(|byte| b'A' + byte % 64).collect();
    assert!(!sealer.looks_random(&base64));
    assert!(!sealer.looks_random(&random[..1000]), "what is short is tried");
    assert_eq!(sealed(&[random], 0, 0).head.codec, Codec::Raw);
    assert_eq!(sealed(&[base64], 0, 0).head.codec, Codec::Zstd);
}
