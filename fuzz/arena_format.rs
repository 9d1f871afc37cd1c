//! An arena's head, block frames, chunk directories and summaries, as bytes and as values.
//!
//! What unpacks packs to the same bytes, except those that the documents call zero (they are not
//! read). The first byte gives the structure and whether the target sets checksums right.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_arena::format::{
    ARENA_BYTES_MAX, ArenaHead, BASE_BYTES, BASES_MAX, BLOCK_CHUNKS_MAX, BLOCK_HEAD_BYTES,
    BLOCK_RAW_BYTES_MAX, BLOCKS_ALIGNMENT, BlockFrame, BlockHead, CHUNK_BYTES_MAX, Codec,
    DIRECTORY_ENTRY_BYTES, DirectoryEntry, FRAME_BYTES, HEAD_BYTES, HEAD_MAGIC, SEALED_BYTES_MAX,
    SEALED_KEY_BYTES, SUITE, SUMMARY_BYTES_MAX, SUMMARY_HEAD_BYTES, SUMMARY_START, Summary,
    SummaryBlock, pack_directory, unpack_directory,
};
use strongroom_arena::{Slots, SummarySlot};
use strongroom_base::{ArenaId, DomainId, Fingerprint, Location};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};

const FIX: u8 = 0x80;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    let mode = input.u8();
    let is_fixed = mode & FIX != 0;
    match mode & 7 {
        0 => check_head(input.rest().to_vec(), is_fixed),
        1 => check_frame(input.rest().to_vec(), is_fixed),
        2 => check_directory(&mut input),
        3 => check_summary(input.rest()),
        4 => round_directory(&mut input),
        5 => round_summary(&mut input),
        6 => round_head_and_frame(&mut input),
        _ => check_block_head(input.rest()),
    }
});

/// Makes the last four of the first `length` bytes the checksum of those before.
fn fix_crc(bytes: &mut Vec<u8>, length: usize) {
    if bytes.len() < length {
        bytes.resize(length, 0);
    }
    let checksum = crc32c::crc32c(&bytes[..length - 4]).to_le_bytes();
    bytes[length - 4..length].copy_from_slice(&checksum);
}

fn check_head(mut bytes: Vec<u8>, is_fixed: bool) {
    if is_fixed {
        fix_crc(&mut bytes, HEAD_BYTES);
        bytes[..8].copy_from_slice(&HEAD_MAGIC);
        bytes[8] = SUITE;
        fix_crc(&mut bytes, HEAD_BYTES);
    }
    let Ok(head) = ArenaHead::unpack(&bytes) else { return };
    assert!(head.summary_bytes <= SUMMARY_BYTES_MAX as u64);
    assert!(head.blocks_bytes <= ARENA_BYTES_MAX);
    bytes[9..12].fill(0);
    fix_crc(&mut bytes, HEAD_BYTES);
    assert_eq!(head.pack(), bytes[..HEAD_BYTES]);
}

fn check_frame(mut bytes: Vec<u8>, is_fixed: bool) {
    if is_fixed {
        fix_crc(&mut bytes, FRAME_BYTES);
    }
    let Ok(frame) = BlockFrame::unpack(&bytes) else { return };
    let sealed_bytes = frame.sealed_bytes as usize;
    assert!((BLOCK_HEAD_BYTES + 16..=SEALED_BYTES_MAX).contains(&sealed_bytes));
    assert_eq!(frame.pack(), bytes[..FRAME_BYTES]);
    assert_eq!(frame.aad(ArenaId([3; 16]))[..FRAME_BYTES - 4], bytes[..FRAME_BYTES - 4]);
}

fn check_block_head(bytes: &[u8]) {
    let Ok(head) = BlockHead::unpack(bytes) else { return };
    check_block_head_bounds(&head);
    assert_eq!(head.pack()[..13], bytes[..13]);
}

fn check_block_head_bounds(head: &BlockHead) {
    if head.codec == Codec::Padding {
        assert_eq!(*head, BlockHead::PADDING);
        return;
    }
    assert!(head.raw_bytes as usize <= BLOCK_RAW_BYTES_MAX);
    assert!((1..=BLOCK_CHUNKS_MAX).contains(&(head.chunk_count as usize)));
    assert!(head.first_slot.checked_add(head.chunk_count).is_some());
}

fn check_directory(input: &mut Input<'_>) {
    let chunk_count = input.u32();
    let payload = input.rest();
    let unpacked = measure(|| unpack_directory(payload, chunk_count));
    // An entry in memory is less than four times as long as on disk; for a list of bases that
    // proves to be cut short, memory was reserved for the whole list.
    let bound = 4 * payload.len() + 2 * BASES_MAX * BASE_BYTES;
    assert!(unpacked.peak_bytes <= bound, "it took {}", unpacked.peak_bytes);
    let Ok((entries, directory_bytes)) = unpacked.value else { return };
    assert_eq!(entries.len(), chunk_count as usize);
    assert_eq!(pack_directory(&entries), payload[..directory_bytes]);
    let stored: u64 = entries.iter().map(|entry| u64::from(entry.stored_bytes)).sum();
    assert_eq!(directory_bytes as u64 + stored, payload.len() as u64);
    for entry in &entries {
        assert!(entry.bases.len() <= BASES_MAX);
        assert!(!entry.bases.is_empty() || entry.stored_bytes == entry.chunk_bytes);
    }
}

fn check_summary(bytes: &[u8]) {
    let unpacked = measure(|| Summary::unpack(bytes));
    // Columns as on the medium.
    let bound = bytes.len() + 4096;
    assert!(unpacked.peak_bytes <= bound, "it took {}", unpacked.peak_bytes);
    let Ok(summary) = unpacked.value else { return };
    check_summary_bounds(&summary);
    let packed = summary.pack();
    assert_eq!(Summary::unpack(&packed).as_ref(), Ok(&summary));
    assert_eq!(packed.len(), bytes.len());
    assert_eq!(packed[8..], bytes[8..]);
}

fn check_summary_bounds(summary: &Summary) {
    let mut chunks = 0;
    for block in &summary.blocks {
        assert!(block.head.codec != Codec::Padding);
        check_block_head_bounds(&block.head);
        chunks += block.head.chunk_count as usize;
    }
    assert_eq!(chunks, summary.slots.len());
    for pair in summary.blocks.windows(2) {
        let [before, after] = [&pair[0], &pair[1]];
        assert!(before.frame.number < after.frame.number);
        assert!(before.head.slots().end <= after.head.first_slot);
        let end =
            u64::from(before.offset) + FRAME_BYTES as u64 + u64::from(before.frame.sealed_bytes);
        assert!(end <= u64::from(after.offset));
    }
}

fn bases(input: &mut Input<'_>) -> Vec<Location> {
    let count = usize::from(input.u8() & 0x4f).min(BASES_MAX);
    (0..count)
        .map_while(|_| {
            let more = !input.is_empty();
            more.then(|| Location { arena: ArenaId(input.array()), slot: input.u32() })
        })
        .collect()
}

/// A directory as a value: what is packed unpacks the same, whichever data follow.
fn round_directory(input: &mut Input<'_>) {
    let mut entries = Vec::new();
    let mut stored = 0;
    while !input.is_empty() && entries.len() < 200 {
        let bases = bases(input);
        let stored_bytes = u32::from(input.u8());
        let chunk_bytes = match bases.is_empty() {
            true => stored_bytes,
            false => input.u32() % (CHUNK_BYTES_MAX as u32 + 1),
        };
        stored += stored_bytes as usize;
        entries.push(DirectoryEntry { stored_bytes, chunk_bytes, bases });
    }
    let mut payload = pack_directory(&entries);
    let directory_bytes = payload.len();
    assert!(directory_bytes >= entries.len() * DIRECTORY_ENTRY_BYTES);
    payload.resize(directory_bytes + stored, 0xaa);
    let count = u32::try_from(entries.len()).expect("at most 200");
    assert_eq!(unpack_directory(&payload, count), Ok((entries, directory_bytes)));
    payload.push(0);
    assert!(unpack_directory(&payload, count).is_err(), "a byte is left over");
}

/// A summary as a value: what is packed unpacks the same, and cut or longer bytes do not.
fn round_summary(input: &mut Input<'_>) {
    let mut summary = Summary::default();
    let (mut number, mut slot, mut offset) = (0_u32, 0_u32, 0_u32);
    while !input.is_empty() && summary.blocks.len() < 50 {
        number += u32::from(input.u8());
        slot += u32::from(input.u8());
        offset += u32::from(input.u8());
        let chunk_count = 1 + u32::from(input.u8() & 7);
        let head = BlockHead { first_slot: slot, chunk_count, ..block_head(input) };
        let frame = BlockFrame { number, sealed_bytes: sealed_bytes(input) };
        summary.blocks.push(SummaryBlock { frame, head, offset });
        number += 1;
        slot += chunk_count;
        offset += FRAME_BYTES as u32 + frame.sealed_bytes;
        for _ in 0..chunk_count {
            let fingerprint = Fingerprint([input.u8(); 32]);
            let chunk_bytes = input.u32();
            summary.slots.push(&SummarySlot { fingerprint, chunk_bytes, bases: bases(input) });
        }
    }
    let mut packed = summary.pack();
    assert_eq!(Summary::unpack(&packed), Ok(summary));
    assert!(Summary::unpack(&packed[..packed.len() - 1]).is_err());
    packed.push(0);
    assert!(Summary::unpack(&packed).is_err());
}

fn sealed_bytes(input: &mut Input<'_>) -> u32 {
    32 + input.u32() % (BLOCK_RAW_BYTES_MAX as u32 + 1)
}

fn block_head(input: &mut Input<'_>) -> BlockHead {
    BlockHead {
        first_slot: input.u32() >> 1,
        chunk_count: 1 + input.u32() % BLOCK_CHUNKS_MAX as u32,
        raw_bytes: input.u32() % (BLOCK_RAW_BYTES_MAX as u32 + 1),
        codec: if input.u8() & 1 == 0 { Codec::Raw } else { Codec::Zstd },
    }
}

fn round_head_and_frame(input: &mut Input<'_>) {
    let mut sealed_key = [0; SEALED_KEY_BYTES];
    sealed_key[..16].copy_from_slice(&input.array::<16>());
    let head = ArenaHead {
        block_count: input.u32(),
        blocks_bytes: u64::from(input.u32()),
        summary_bytes: summary_bytes(1 + usize::from(input.u16()) % 1000),
        sealed_key,
        domain: DomainId(input.array()),
        salt: input.array(),
    };
    assert_eq!(ArenaHead::unpack(&head.pack()), Ok(head));
    let block = block_head(input);
    assert_eq!(BlockHead::unpack(&block.pack()), Ok(block));
    let frame = BlockFrame { number: input.u32(), sealed_bytes: sealed_bytes(input) };
    let mut packed = frame.pack();
    assert_eq!(BlockFrame::unpack(&packed), Ok(frame));
    packed[usize::from(input.u8()) % FRAME_BYTES] ^= 1 << (input.u8() & 7);
    assert!(BlockFrame::unpack(&packed).is_err(), "one bit is always noticed");
}

/// A length of a summary after which the blocks begin at `times` times their alignment.
fn summary_bytes(times: usize) -> u64 {
    (times * BLOCKS_ALIGNMENT - SUMMARY_START) as u64
}

fn seeds() -> Vec<Vec<u8>> {
    let head = ArenaHead {
        block_count: 2,
        blocks_bytes: 900,
        summary_bytes: summary_bytes(1),
        sealed_key: [5; SEALED_KEY_BYTES],
        domain: DomainId([6; 16]),
        salt: [7; 12],
    };
    let frame = BlockFrame { number: 1, sealed_bytes: 200 };
    let block = BlockHead { first_slot: 4, chunk_count: 2, raw_bytes: 300, codec: Codec::Zstd };
    let base = Location { arena: ArenaId([9; 16]), slot: 3 };
    let entries = [
        DirectoryEntry { stored_bytes: 3, chunk_bytes: 3, bases: Vec::new() },
        DirectoryEntry { stored_bytes: 2, chunk_bytes: 70, bases: vec![base, base] },
    ];
    let slot = |bases| SummarySlot { fingerprint: Fingerprint([8; 32]), chunk_bytes: 9, bases };
    let mut slots = Slots::default();
    slots.extend([slot(vec![base]), slot(vec![base, base])]);
    let summary = Summary { blocks: vec![SummaryBlock { frame, head: block, offset: 40 }], slots };
    assert!(summary.pack().len() > SUMMARY_HEAD_BYTES);
    let directory = [&[2, 2, 0, 0, 0][..], &pack_directory(&entries), b"abcde"].concat();
    let ramp: Vec<u8> = (1..120).collect();
    let after = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    vec![
        after(0, &head.pack()),
        after(FIX, &head.pack()),
        after(1, &frame.pack()),
        after(1 | FIX, &frame.pack()),
        directory,
        after(3, &summary.pack()),
        after(4, &ramp),
        after(5, &ramp),
        after(6, &ramp),
        after(7, &block.pack()),
        after(7, &BlockHead::PADDING.pack()),
    ]
}
