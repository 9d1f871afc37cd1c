//! The repository's configuration, and what a session says of its writer, from any bytes.
//!
//! What unpacks is within its bounds, has used every byte, and packs and unpacks to the same; only
//! what the owner signed is authentic.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use strongroom_base::seal::AuthorityKey;
use strongroom_base::{RepositoryId, Timestamp};
use strongroom_chunk::{Chunker, Key, Limits};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};
use strongroom_repository::SessionHead;
use strongroom_repository::config::{ARENA_BYTES_MAX, CHUNK_BYTES_MAX, Config};

static AUTHORITY: LazyLock<AuthorityKey> = LazyLock::new(|| AuthorityKey::new([1; 32]));

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 { check_bytes(input.rest()) } else { round(&mut input) }
});

fn check_bytes(bytes: &[u8]) {
    check_session(bytes);
    let unpacked = measure(|| Config::unpack(bytes));
    // Skipped fields may be nested, and take memory for each level.
    assert!(unpacked.peak_bytes <= 64 * bytes.len() + 4096, "it took {}", unpacked.peak_bytes);
    let Ok(config) = unpacked.value else { return };
    for chunker in config.chunkers {
        assert!(chunker.limits.min() >= Limits::MIN_BYTES);
        assert!(chunker.limits.min() <= chunker.limits.max());
        assert!(chunker.limits.max() <= CHUNK_BYTES_MAX);
        assert_eq!(Chunker::new(chunker.limits, Key::PUBLIC).limits(), chunker.limits);
    }
    assert!(config.arena_bytes <= ARENA_BYTES_MAX);
    assert!(config.parity_per_mille <= 1000);
    let packed = config.pack(&AUTHORITY);
    assert!(Config::is_authentic(&packed, &AUTHORITY.public()));
    assert_eq!(Config::unpack(&packed).as_ref(), Ok(&config));
    assert!(Config::unpack(&[bytes, &[0]].concat()).is_err(), "a byte is left over");
    assert!(Config::unpack(&bytes[..bytes.len() - 1]).is_err(), "a byte is missing");
}

fn check_session(bytes: &[u8]) {
    let unpacked = measure(|| SessionHead::unpack(bytes));
    assert!(unpacked.peak_bytes <= 64 * bytes.len() + 4096, "it took {}", unpacked.peak_bytes);
    let Ok(head) = unpacked.value else { return };
    assert_eq!(SessionHead::unpack(&head.pack()), Ok(head));
    assert!(SessionHead::unpack(&[bytes, &[0]].concat()).is_err(), "a byte is left over");
}

fn round(input: &mut Input<'_>) {
    let (min, max) = (input.u32() as usize, input.u32() as usize);
    let Ok(limits) = Limits::new(min & 0x7f_ffff, max & 0x7f_ffff) else { return };
    let config = Config {
        id: RepositoryId(input.array()),
        created: Timestamp(input.u64().cast_signed()),
        chunkers: Config::chunkers(limits),
        arena_bytes: input.u32() & 0x7fff_ffff,
        parity_per_mille: u32::from(input.u16() & 0x7ff),
        naming: input.u8(),
        padding: input.u8() & 1 == 0,
        store: input.u8(),
    };
    let is_bounded = limits.max() <= CHUNK_BYTES_MAX
        && config.arena_bytes <= ARENA_BYTES_MAX
        && config.parity_per_mille <= 1000;
    let mut packed = config.pack(&AUTHORITY);
    assert!(Config::is_authentic(&packed, &AUTHORITY.public()));
    assert_eq!(Config::unpack(&packed).ok(), is_bounded.then_some(config.clone()));
    let at = input.below(packed.len());
    packed[at] ^= 1 << (input.u8() & 7);
    assert!(!Config::is_authentic(&packed, &AUTHORITY.public()));
}

fn seeds() -> Vec<Vec<u8>> {
    let config = Config {
        id: RepositoryId([7; 16]),
        created: Timestamp(8),
        chunkers: Config::chunkers(Limits::DEFAULT),
        arena_bytes: 16 << 20,
        parity_per_mille: 30,
        naming: 0,
        padding: false,
        store: 1,
    };
    let after = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    let limits = [0, 1, 0, 0, 0, 2, 0, 0];
    let session =
        SessionHead { started: Timestamp(5), host: "host".to_owned(), domain: "web".to_owned() };
    vec![
        after(0, &session.pack()),
        after(0, &config.pack(&AUTHORITY)),
        after(1, &limits),
        after(1, &[limits; 6].concat()),
    ]
}
