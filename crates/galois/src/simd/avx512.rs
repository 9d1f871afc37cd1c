//! The operations of `Lanes` and `Register` in AVX-512 F and BW, 512 bits at a time.
//!
//! One operation, one intrinsic. Nothing else belongs here.

use std::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm512_add_epi16, _mm512_and_si512, _mm512_broadcast_i32x4,
    _mm512_loadu_si512, _mm512_packus_epi16, _mm512_set1_epi16, _mm512_shuffle_epi8,
    _mm512_slli_epi16, _mm512_srai_epi16, _mm512_srli_epi16, _mm512_storeu_si512,
    _mm512_unpackhi_epi8, _mm512_unpacklo_epi8, _mm512_xor_si512,
};

use super::{
    Backend, Kernel,
    lanes::{Lanes, STRIDE_BYTES},
    planes::{Planes, Register},
    row::ROW_BYTES_MAX,
};

/// Evidence that this CPU has AVX-512 F and BW.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof(());

impl Proof {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"))
            .then_some(Self(()))
    }
}

/// Runs `kernel` compiled for AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn run<K: Kernel>(proof: Proof, kernel: K) -> K::Output {
    kernel.run::<Avx512>(proof)
}

/// The instruction set.
pub(crate) struct Avx512;

impl Backend for Avx512 {
    type Proof = Proof;
    type Stride = [Vector; STRIDE_BYTES / Vector::BYTES];
    type Row = Planes<Vector>;
}

/// One register. A value is made only from a [`Proof`].
#[derive(Clone, Copy)]
pub(crate) struct Vector(__m512i);

const _: () = assert!(2 * Vector::BYTES <= ROW_BYTES_MAX);

impl Lanes for Vector {
    type Proof = Proof;

    const BYTES: usize = size_of::<__m512i>();

    #[inline(always)]
    fn splat(_: Proof, symbol: u16) -> Self {
        // SAFETY: there is a proof.
        Self(unsafe { _mm512_set1_epi16(symbol.cast_signed()) })
    }

    #[inline(always)]
    fn load(_: Proof, bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), Self::BYTES, "a load is of a whole vector");
        // SAFETY: there is a proof; the bytes are as many as the unaligned load reads.
        Self(unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), Self::BYTES, "a store is of a whole vector");
        // SAFETY: a value proves AVX-512 F and BW; the bytes are as many as the unaligned store
        // writes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_and_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_add_epi16(self.0, self.0) })
    }

    #[inline(always)]
    fn halve(self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_srli_epi16::<1>(self.0) })
    }

    #[inline(always)]
    fn sign(self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_srai_epi16::<15>(self.0) })
    }

    #[inline(always)]
    fn parity(self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_srai_epi16::<15>(_mm512_slli_epi16::<15>(self.0)) })
    }
}

impl Register for Vector {
    #[inline(always)]
    fn repeat(_: Proof, lane: &[u8; 16]) -> Self {
        // SAFETY: there is a proof; the lane has the 16 bytes that the unaligned load reads.
        Self(unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(lane.as_ptr().cast())) })
    }

    #[inline(always)]
    fn shift_right_4(self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_srli_epi16::<4>(self.0) })
    }

    #[inline(always)]
    fn shift_right_8(self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_srli_epi16::<8>(self.0) })
    }

    #[inline(always)]
    fn pack(self, other: Self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_packus_epi16(self.0, other.0) })
    }

    #[inline(always)]
    fn unpack_low(self, other: Self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_unpacklo_epi8(self.0, other.0) })
    }

    #[inline(always)]
    fn unpack_high(self, other: Self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_unpackhi_epi8(self.0, other.0) })
    }

    #[inline(always)]
    fn shuffle(self, indices: Self) -> Self {
        // SAFETY: a value proves AVX-512 F and BW.
        Self(unsafe { _mm512_shuffle_epi8(self.0, indices.0) })
    }
}
