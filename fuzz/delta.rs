//! Deltas: any bytes are a delta of the basis or are refused, within the memory of the chunk; what
//! the encoder makes of any chunk and any basis gives the chunk again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use strongroom_chunk::delta::{Basis, apply};
use strongroom_fuzz::{Input, write_seeds_if_asked};

const BASIS_BYTES_MAX: usize = 32 << 10;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 {
        let chunk_bytes = usize::from(input.u16());
        let basis_bytes = usize::from(input.u8());
        let basis = input.bytes(basis_bytes).to_vec();
        let delta = input.bytes(usize::MAX).to_vec();
        if let Ok(chunk) = apply(&delta, &basis, chunk_bytes) {
            assert_eq!(chunk.len(), chunk_bytes);
            // Copies make a chunk of one length; differences are of any length that has room.
            assert!(delta[0] == 1 || apply(&delta, &basis, chunk_bytes + 1).is_err());
        }
    } else {
        check_encoder(&mut input);
    }
});

/// Pieces of the basis, of new bytes, and of bytes that are close to either.
fn check_encoder(input: &mut Input<'_>) {
    let basis_bytes = usize::from(input.u16()) & (BASIS_BYTES_MAX - 1);
    let basis = input.expanded(basis_bytes);
    let in_place = input.u16();
    let mut chunk = Vec::new();
    while !input.is_empty() && chunk.len() < BASIS_BYTES_MAX {
        let (from, length) = (usize::from(input.u16()), usize::from(input.u8()));
        let from = from.min(basis.len());
        match input.u8() % 3 {
            0 => chunk.extend_from_slice(input.bytes(length)),
            1 => chunk.extend_from_slice(&basis[from..(from + length * 16).min(basis.len())]),
            _ => {
                let end = (from + length).min(basis.len());
                chunk.extend(basis[from..end].iter().map(|byte| byte ^ u8::from(byte % 7 == 0)));
            }
        }
    }
    let in_place = usize::from(in_place);
    let half = basis.len() / 2;
    let index = Basis::new(basis.clone(), vec![half, basis.len()]);
    let delta =
        index.encode(&chunk, in_place, usize::MAX).expect("without a bound there is a delta");
    assert!(delta.bytes.len() <= chunk.len() + 64 + chunk.len() / 4);
    let parts = [&basis[..half], &basis[half..]][delta.chunks].concat();
    assert_eq!(apply(&delta.bytes, &parts, chunk.len()).expect("as it was encoded"), chunk);
    let bound = delta.bytes.len() / 2;
    let shorter = index.encode(&chunk, in_place, bound);
    assert!(shorter.is_none_or(|shorter| shorter.bytes.len() <= bound));
}

fn seeds() -> Vec<Vec<u8>> {
    let copy = [&[0, 16, 0, 16][..], b"sixteen bytes ok", &[0, 3, 0, 16, 0]].concat();
    let literal = [&[0, 3, 0, 0][..], &[0, 2, 3, 0], b"abc"].concat();
    let differences =
        [&[0, 16, 0, 16][..], b"sixteen bytes ok", &[1, 0, 4, 3, 2, 5, 1, 1, 2, 3]].concat();
    let encoder = [&[1, 0, 16, 0, 0][..], &[7; 200]].concat();
    vec![copy, literal, differences, encoder]
}
