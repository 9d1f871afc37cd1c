//! The hot kernels, each over fixed input, for counting instructions: `campaign/instructions`.
//!
//! A count is steady where a time is not: on a shared machine it changes by less than one in a
//! thousand from run to run, so a kernel that grew by some percent is seen at once.
#![expect(clippy::disallowed_methods, reason = "an example is a program")]

use std::hint::black_box;

use strongroom_arena::{
    ArenaContent, ArenaSeed, BlockDraft, BlockSealer, CompressionLevel, StoredChunk,
};
use strongroom_base::{MasterSecret, NamingSecret, SeededEntropy};
use strongroom_chunk::delta::{Basis, apply};
use strongroom_chunk::{Chunker, Key, Limits};
use strongroom_galois::{Code, signature};
use strongroom_index::{Index, Value};

/// Bytes that most kernels work on.
const BYTES: usize = 4 << 20;
const SHARD_BYTES: usize = 64 << 10;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "nothing" => drop(black_box(noise(BYTES))),
        "chunk" => chunk(&noise(BYTES)),
        "fingerprint" => fingerprint(&noise(BYTES)),
        "sign" => sign(&noise(BYTES)),
        "protect" => protect(&noise(BYTES)),
        "delta" => delta(&noise(BYTES)),
        "seal" => seal(&text(BYTES)),
        "look-up" => look_up(&noise(BYTES)),
        other => panic!("there is no kernel \"{other}\""),
    }
}

/// Bytes that look random, the same each time.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(b"kernels").finalize_xof().fill(&mut bytes);
    bytes
}

/// Bytes that compress as sources do.
fn text(length: usize) -> Vec<u8> {
    let words: Vec<String> =
        noise(4000).chunks_exact(4).map(|four| format!("{:x} ", four[0] as u32 * 7919)).collect();
    let picks = noise(length);
    let chosen = picks.iter().flat_map(|pick| words[usize::from(*pick) * 3].bytes());
    chosen.take(length).collect()
}

fn chunk(bytes: &[u8]) {
    let limits = Limits::new(32 << 10, 96 << 10).expect("limits in order");
    let chunker = Chunker::new(limits, Key::from_bytes(&[7; 8]));
    black_box(chunker.split(bytes).count());
}

fn fingerprint(bytes: &[u8]) {
    let fingerprinter = NamingSecret([5; 32]).keys().data.clone();
    for chunk in bytes.chunks(64 << 10) {
        black_box(fingerprinter.fingerprint(chunk));
    }
}

fn sign(bytes: &[u8]) {
    for shard in bytes.chunks(SHARD_BYTES) {
        black_box(signature::<2>(shard));
    }
}

fn protect(bytes: &[u8]) {
    let code = Code::new(bytes.len() / SHARD_BYTES, 2).expect("a code of 64 and 2 shards");
    let mut parity = vec![0; 2 * SHARD_BYTES];
    code.encode(bytes, SHARD_BYTES, &mut parity).expect("shards are of one length");
    black_box(&parity);
}

fn delta(bytes: &[u8]) {
    for basis in bytes.chunks(128 << 10) {
        let index = Basis::new(basis.to_vec(), vec![basis.len()]);
        let mut chunk = basis[20_000..84_000].to_vec();
        chunk.splice(30_000..30_100, *b"something else");
        chunk[50_000] ^= 1;
        let delta = index.encode(&chunk, 20_000, 30_000).expect("it is much the same");
        black_box(apply(&delta.bytes, basis, chunk.len()).expect("as it was encoded"));
    }
}

fn seal(bytes: &[u8]) {
    let keys = MasterSecret([5; 32]).keys(&NamingSecret([5; 32])).write;
    let seed = ArenaSeed::draw(ArenaContent::Data, &keys, &SeededEntropy::new(1));
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    for (number, block) in (0..).zip(bytes.chunks(1 << 20)) {
        let mut draft = BlockDraft::new(number, number * 16);
        for chunk in block.chunks(64 << 10) {
            draft.push(StoredChunk::Whole(chunk));
        }
        black_box(sealer.seal(draft, seed.id, &seed.key));
    }
}

fn look_up(bytes: &[u8]) {
    let mut index = Index::in_memory();
    let keys: Vec<[u8; 32]> =
        bytes.chunks_exact(32).map(|key| key.try_into().expect("thirty-two bytes")).collect();
    for (place, key) in keys.iter().enumerate().step_by(2) {
        index.insert(key, Value(place as u64)).expect("memory takes it");
    }
    let found = keys.iter().filter(|key| index.lookup(key).is_ok_and(|found| found.is_some()));
    assert_eq!(black_box(found.count()), keys.len() / 2);
}
