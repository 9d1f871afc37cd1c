//! What each vector operation means, byte by byte, at the width of AVX-512.
//!
//! The intrinsics are tested against it where the CPU has them, and as a path of its own it takes
//! the 512-bit geometry (loops, tails, planes) through every test on any CPU.

use super::{
    Backend,
    lanes::{Lanes, STRIDE_BYTES},
    planes::{Planes, Register},
};

/// The instruction set that exists only here.
pub(crate) struct Emulated;

impl Backend for Emulated {
    type Proof = ();
    type Stride = [Bytes<4>; STRIDE_BYTES / 64];
    type Row = Planes<Bytes<4>>;
}

/// A register of `LANES` lanes of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bytes<const LANES: usize>(pub(crate) [[u8; 16]; LANES]);

impl<const LANES: usize> Bytes<LANES> {
    fn symbols(self, change: impl Fn(u16) -> u16) -> Self {
        Self(self.0.map(|mut lane| {
            for pair in lane.as_chunks_mut().0 {
                *pair = change(u16::from_le_bytes(*pair)).to_le_bytes();
            }
            lane
        }))
    }

    fn bytes(self, other: Self, byte: impl Fn(&[u8; 16], &[u8; 16], usize) -> u8) -> Self {
        let mut joined = self;
        for (joined, (a, b)) in joined.0.iter_mut().zip(self.0.iter().zip(&other.0)) {
            *joined = std::array::from_fn(|at| byte(a, b, at));
        }
        joined
    }
}

impl<const LANES: usize> Lanes for Bytes<LANES> {
    type Proof = ();

    const BYTES: usize = 16 * LANES;

    fn splat((): (), symbol: u16) -> Self {
        Self([[0; 16]; LANES]).symbols(|_| symbol)
    }

    fn load((): (), bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::BYTES);
        let mut register = Self([[0; 16]; LANES]);
        register.0.as_flattened_mut().copy_from_slice(bytes);
        register
    }

    fn store(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self.0.as_flattened());
    }

    fn xor(self, other: Self) -> Self {
        self.bytes(other, |a, b, at| a[at] ^ b[at])
    }

    fn and(self, other: Self) -> Self {
        self.bytes(other, |a, b, at| a[at] & b[at])
    }

    fn double(self) -> Self {
        self.symbols(|symbol| symbol << 1)
    }

    fn halve(self) -> Self {
        self.symbols(|symbol| symbol >> 1)
    }

    fn sign(self) -> Self {
        self.symbols(|symbol| if symbol >> 15 == 1 { 0xffff } else { 0 })
    }

    fn parity(self) -> Self {
        self.symbols(|symbol| if symbol & 1 == 1 { 0xffff } else { 0 })
    }
}

impl<const LANES: usize> Register for Bytes<LANES> {
    fn repeat((): (), lane: &[u8; 16]) -> Self {
        Self([*lane; LANES])
    }

    fn shift_right_4(self) -> Self {
        self.symbols(|symbol| symbol >> 4)
    }

    fn shift_right_8(self) -> Self {
        self.symbols(|symbol| symbol >> 8)
    }

    fn pack(self, other: Self) -> Self {
        self.bytes(other, |a, b, at| {
            let (source, symbol) = if at < 8 { (a, at) } else { (b, at - 8) };
            assert_eq!(source[2 * symbol + 1], 0, "only symbols below 256 are packed");
            source[2 * symbol]
        })
    }

    fn unpack_low(self, other: Self) -> Self {
        self.bytes(other, |a, b, at| if at % 2 == 0 { a[at / 2] } else { b[at / 2] })
    }

    fn unpack_high(self, other: Self) -> Self {
        self.bytes(other, |a, b, at| if at % 2 == 0 { a[8 + at / 2] } else { b[8 + at / 2] })
    }

    fn shuffle(self, indices: Self) -> Self {
        self.bytes(indices, |table, indices, at| table[usize::from(indices[at])])
    }
}
