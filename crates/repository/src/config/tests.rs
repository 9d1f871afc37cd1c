//! A configuration's bytes are exactly a configuration.

use strongroom_base::MasterSecret;

use super::*;

fn packed() -> Vec<u8> {
    let config = Config {
        id: RepositoryId([7; 16]),
        created: Timestamp(8),
        chunk_limits: Limits::DEFAULT,
        arena_bytes: ARENA_BYTES_DEFAULT,
        parity_per_mille: 30,
    };
    let keys = MasterSecret([1; 32]).keys().write;
    let bytes = config.pack(&keys);
    assert!(config.is_authentic(&bytes, &keys));
    assert_eq!(Config::unpack(&bytes), Ok(config));
    bytes
}

#[test]
fn nothing_may_be_missing_or_left_over() {
    let bytes = packed();
    for length in 0..bytes.len() {
        assert!(Config::unpack(&bytes[..length]).is_err(), "{length}");
    }
    // Found by fuzzing.
    let error = Config::unpack(&[&bytes[..], &[0]].concat()).unwrap_err();
    assert_eq!(error.detail, "bytes are left over");
}

#[test]
fn a_chunker_is_an_array_of_three() {
    let bytes = packed();
    let chunker = bytes.iter().position(|byte| *byte == 0x83).unwrap();
    for head in [0x82, 0x84, 0x9f] {
        let mut bytes = bytes.clone();
        bytes[chunker] = head;
        assert!(Config::unpack(&bytes).is_err(), "{head:x}");
    }
}
