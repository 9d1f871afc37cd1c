//! Blocks sealed with the right key by an attacker: any frame, any payload, any zstd stream.
//!
//! So the fuzzer's bytes pass the authentication and reach decompression and directory. What opens
//! is exactly what its frame and directory say; what a sealer made opens as what went in.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_arena::block::{BlockError, open_block};
use strongroom_arena::format::{
    BLOCK_RAW_BYTES_MAX, BlockFrame, BlockHead, Codec, DirectoryEntry, FRAME_BYTES, pack_directory,
    unpack_directory,
};
use strongroom_arena::{BlockDraft, BlockSealer, CompressionLevel, OpenBlock, StoredChunk};
use strongroom_base::seal::{SealKey, TAG_BYTES};
use strongroom_base::{ArenaId, Location};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};

const ARENA: ArenaId = ArenaId([4; 16]);
const KEY: [u8; 32] = [6; 32];

/// What the payload is.
const PAYLOAD_AS_IT_IS: u8 = 0;
const PAYLOAD_IN_A_DIRECTORY: u8 = 1;
const PAYLOAD_EXPANDED: u8 = 2;
const SEALER: u8 = 3;
/// The payload is compressed by the target.
const COMPRESS: u8 = 4;
/// The head says that it is compressed.
const SAY_ZSTD: u8 = 8;
/// Frame and head say the lengths that are right.
const RIGHT_LENGTHS: u8 = 16;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    let mode = input.u8();
    if mode & 3 == SEALER { check_sealed(&mut input) } else { check_hostile(mode, &mut input) }
});

fn check_hostile(mode: u8, input: &mut Input<'_>) {
    let (number, first_slot) = (input.u32(), input.u32());
    let (mut chunk_count, mut raw_bytes, sealed_error) = (input.u32(), input.u32(), input.u8());
    let payload = match mode & 3 {
        PAYLOAD_IN_A_DIRECTORY => {
            let (count, payload) = directory_payload(input);
            chunk_count = count;
            payload
        }
        PAYLOAD_EXPANDED => {
            // Seldom as long as a block may be, because that is slow.
            let is_long = input.u8() == 0xff;
            let longest = if is_long { BLOCK_RAW_BYTES_MAX + 1 } else { 0xffff };
            let length = input.u32() as usize % (longest + 1);
            let head = input.array::<24>();
            let mut payload = input.expanded(length);
            let head = &head[..payload.len().min(24)];
            payload[..head.len()].copy_from_slice(head);
            payload
        }
        _ => input.rest().to_vec(),
    };
    let kept = if mode & COMPRESS != 0 {
        zstd::bulk::compress(&payload, 1).expect("zstd compresses anything")
    } else {
        payload.clone()
    };
    let is_right = mode & RIGHT_LENGTHS != 0;
    if is_right {
        raw_bytes = u32::try_from(payload.len()).expect("a payload is short");
    }
    let codec = if mode & SAY_ZSTD != 0 { Codec::Zstd } else { Codec::Raw };
    let head = BlockHead { first_slot, chunk_count, raw_bytes, codec };
    let mut sealed = [&head.pack()[..], &kept].concat();
    let mut sealed_bytes = u32::try_from(sealed.len() + TAG_BYTES).expect("a payload is short");
    if !is_right {
        sealed_bytes = sealed_bytes.wrapping_add(u32::from(sealed_error)).wrapping_sub(128);
    }
    let frame = BlockFrame { number, sealed_bytes };
    let key = SealKey::new(&KEY);
    key.seal(u64::from(number), &frame.aad(ARENA), &mut sealed);
    let bytes = [&frame.pack()[..], &sealed].concat();
    let opened = measure(|| open_block(&bytes, ARENA, &key));
    // The ciphertext, the payload, and its directory, which takes six times its bytes at most.
    let bound = bytes.len() + 7 * (raw_bytes as usize).min(BLOCK_RAW_BYTES_MAX) + 4096;
    assert!(opened.peak_bytes <= bound, "opening took {}", opened.peak_bytes);
    let is_known_codec = (mode & COMPRESS != 0) == (codec == Codec::Zstd);
    match opened.value {
        Ok(block) => {
            let is_mine = is_known_codec.then_some(&payload[..]);
            assert_eq!(block.head(), head);
            check_open(&block, is_mine);
            check_bound_to_place(bytes, &key);
        }
        Err(_) => {
            let is_sound = is_right
                && is_known_codec
                && BlockFrame::unpack(&frame.pack()).is_ok()
                && BlockHead::unpack(&head.pack()).is_ok()
                && unpack_directory(&payload, chunk_count).is_ok();
            assert!(!is_sound, "a sound block is refused");
        }
    }
}

/// A payload whose directory fits its data, unless the fuzzer's last bytes spoil it.
fn directory_payload(input: &mut Input<'_>) -> (u32, Vec<u8>) {
    let mut entries = Vec::new();
    let mut stored = 0;
    for _ in 0..1 + input.u8() % 40 {
        let base_count = usize::from(input.u8() & 3);
        let bases: Vec<Location> = (0..base_count)
            .map(|_| Location { arena: ArenaId([input.u8(); 16]), slot: input.u32() })
            .collect();
        let stored_bytes = u32::from(input.u16() & 0x3ff);
        let chunk_bytes = if bases.is_empty() { stored_bytes } else { input.u32() };
        stored += stored_bytes as usize;
        entries.push(DirectoryEntry { stored_bytes, chunk_bytes, bases });
    }
    let mut payload = pack_directory(&entries);
    payload.extend(input.expanded(stored));
    for _ in 0..input.u8() & 3 {
        let at = input.u32() as usize % payload.len();
        payload[at] = input.u8();
    }
    (u32::try_from(entries.len()).expect("at most forty"), payload)
}

/// An opened block is what its head and its directory say.
fn check_open(block: &OpenBlock, payload: Option<&[u8]>) {
    let head = block.head();
    assert_eq!(block.slots(), head.slots());
    assert_eq!(block.chunk(head.slots().end), None);
    assert!(head.first_slot == 0 || block.chunk(head.first_slot - 1).is_none());
    let mut stored = Vec::new();
    for slot in block.slots() {
        match block.chunk(slot).expect("the block holds its slots") {
            StoredChunk::Whole(bytes) => stored.extend_from_slice(bytes),
            StoredChunk::Delta { instructions, bases, .. } => {
                assert!(!bases.is_empty());
                stored.extend_from_slice(instructions);
            }
        }
    }
    assert!(stored.len() < head.raw_bytes as usize);
    if let Some(payload) = payload {
        assert!(payload.ends_with(&stored));
        let (entries, directory_bytes) =
            unpack_directory(payload, head.chunk_count).expect("the block opened");
        assert_eq!(entries.len(), head.chunk_count as usize);
        assert_eq!(directory_bytes + stored.len(), payload.len());
    }
}

/// The same bytes in another arena, under another key, or with a bit changed, do not open.
fn check_bound_to_place(mut bytes: Vec<u8>, key: &SealKey) {
    assert!(open_block(&bytes, ArenaId([5; 16]), key).is_err());
    assert!(open_block(&bytes, ARENA, &SealKey::new(&[7; 32])).is_err());
    let number = BlockFrame::unpack(&bytes).expect("it was just opened").number;
    let middle = FRAME_BYTES + (bytes.len() - FRAME_BYTES) / 2;
    let end = FRAME_BYTES + BlockFrame::unpack(&bytes).expect("the same").sealed_bytes as usize;
    if middle < end {
        bytes[middle] ^= 1;
        let refused = open_block(&bytes, ARENA, key).err();
        assert_eq!(refused, Some(BlockError::Damaged { number }));
    }
}

/// What a sealer made opens as what went in.
fn check_sealed(input: &mut Input<'_>) {
    let (number, first_slot) = (input.u32(), input.u32() >> 1);
    let level = CompressionLevel::new(i32::from(input.u8() % 6) - 2).expect("within bounds");
    let mut draft = BlockDraft::new(number, first_slot);
    let mut chunks = Vec::new();
    for _ in 0..1 + input.u8() % 20 {
        let length = usize::from(input.u16() & 0xfff);
        let chunk = input.expanded(length);
        assert_eq!(
            draft.push(StoredChunk::Whole(&chunk)) as usize,
            first_slot as usize + chunks.len()
        );
        chunks.push(chunk);
    }
    let key = SealKey::new(&KEY);
    let sealed = BlockSealer::new(level).seal(draft, ARENA, &key);
    let block = open_block(&sealed.bytes, ARENA, &key).expect("what was sealed opens");
    assert_eq!(block.head(), sealed.head);
    check_open(&block, None);
    for (slot, chunk) in block.slots().zip(&chunks) {
        assert_eq!(block.chunk(slot), Some(StoredChunk::Whole(chunk)));
    }
    check_bound_to_place(sealed.bytes, &key);
}

fn seeds() -> Vec<Vec<u8>> {
    let numbers = [1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 15, 0, 0, 0, 128];
    let entry = DirectoryEntry { stored_bytes: 3, chunk_bytes: 3, bases: Vec::new() };
    let payload = [&pack_directory(&[entry])[..], b"abc"].concat();
    let compressed = zstd::bulk::compress(&payload, 1).expect("zstd compresses anything");
    let seed = |mode: u8, rest: &[u8]| [&[mode], &numbers[..], rest].concat();
    let ramp: Vec<u8> = (0..90).collect();
    let bomb = [&[0xff, 0, 0, 0x40, 0][..], &[0; 24], &[0]].concat();
    vec![
        seed(RIGHT_LENGTHS, &payload),
        seed(PAYLOAD_AS_IT_IS, &payload),
        seed(RIGHT_LENGTHS | SAY_ZSTD | COMPRESS, &payload),
        seed(SAY_ZSTD, &compressed),
        seed(PAYLOAD_IN_A_DIRECTORY | RIGHT_LENGTHS, &ramp),
        seed(PAYLOAD_IN_A_DIRECTORY | RIGHT_LENGTHS | SAY_ZSTD | COMPRESS, &ramp),
        seed(PAYLOAD_EXPANDED | RIGHT_LENGTHS | SAY_ZSTD | COMPRESS, &bomb),
        seed(SEALER, &ramp),
    ]
}
