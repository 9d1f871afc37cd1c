//! A configuration's bytes are exactly a configuration.

use super::*;

fn config() -> Config {
    Config {
        id: RepositoryId([7; 16]),
        created: Timestamp(8),
        chunkers: Config::chunkers(Limits::DEFAULT),
        arena_bytes: ARENA_BYTES_DEFAULT,
        parity_per_mille: 30,
        naming: NAMING_FINGERPRINT,
        padding: false,
        store: STORE_EXCLUSIVE,
    }
}

fn authority() -> AuthorityKey {
    AuthorityKey::new([1; 32])
}

#[test]
fn it_comes_back_and_is_signed() {
    let bytes = config().pack(&authority());
    assert_eq!(Config::unpack(&bytes), Ok(config()));
    assert!(Config::is_authentic(&bytes, &authority().public()));
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        assert!(!Config::is_authentic(&changed, &authority().public()), "{place}");
    }
}

#[test]
fn nothing_may_be_missing_or_left_over() {
    let bytes = config().pack(&authority());
    for length in 0..bytes.len() {
        assert!(Config::unpack(&bytes[..length]).is_err(), "{length}");
    }
    // Found by fuzzing.
    assert!(Config::unpack(&[&bytes[..], &[0]].concat()).is_err());
}

/// The signature is over the bytes, so a newer program may add a key.
#[test]
fn a_key_of_a_newer_program_is_passed_over() {
    let mut map = config().encode();
    map[0] += 1;
    map.extend_from_slice(&[0x18, 99, 0x01]);
    let signature = authority().sign(SIGNATURE_CONTEXT, &map);
    let bytes = [&map[..], &signature].concat();
    assert_eq!(Config::unpack(&bytes), Ok(config()));
    assert!(Config::is_authentic(&bytes, &authority().public()));
}

/// Such a repository can be read, and streams of other kinds can be stored.
#[test]
fn an_unknown_chunker_leaves_the_configuration_readable() {
    let mut newer = config();
    newer.chunkers[StreamKind::Images as usize].algorithm = 77;
    newer.naming = 1;
    assert_eq!(Config::unpack(&newer.pack(&authority())), Ok(newer));
}

#[test]
fn a_chunker_is_an_array_of_three() {
    let bytes = config().pack(&authority());
    let chunker = bytes.iter().position(|byte| *byte == 0x83).unwrap();
    for head in [0x82, 0x84, 0x9f] {
        let mut bytes = bytes.clone();
        bytes[chunker] = head;
        assert!(Config::unpack(&bytes).is_err(), "{head:x}");
    }
}
