//! Which vector instructions to use, and the only way into code compiled for them.
//!
//! A loop over data is a [`Kernel`], written once, generic over a [`Backend`]. [`Path::run`]
//! compiles it once for every instruction set. Instruction sets differ only in the dozen
//! operations of `Lanes` and `Register`; every operation acts within 128-bit lanes, so the
//! 512-bit path is the 256-bit path, two side by side.
//!
//! Not for arithmetic on single elements: that is `field`.

mod lanes;
mod portable;
mod row;

#[cfg(any(target_arch = "x86_64", test))]
mod planes;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod emulated;
#[cfg(test)]
mod tests;

pub(crate) use lanes::{STRIDE_BYTES, Stride};
pub(crate) use row::{Multiplier, ROW_BYTES_MAX, Row};

/// A loop over data, to be compiled for each instruction set.
///
/// `run` must be `#[inline(always)]`, and so must all that it calls with a `Backend`'s types.
pub(crate) trait Kernel {
    type Output;

    fn run<B: Backend>(self, proof: B::Proof) -> Self::Output;
}

/// An instruction set: its types of vectors.
pub(crate) trait Backend {
    /// Evidence that this CPU has the instructions; made only by detection.
    type Proof: Copy;
    /// 64 symbols in memory order, for signatures.
    type Stride: Stride<Proof = Self::Proof>;
    /// Some symbols in the order that multiplies fastest, for the code.
    type Row: Row<Proof = Self::Proof>;
}

/// An instruction set that this CPU has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Proof),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Proof),
    /// The definition of every vector operation, at the width of AVX-512.
    #[cfg(test)]
    Emulated,
}

impl Path {
    /// The fastest path that this CPU has. Cheap: the standard library caches what it detects.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(proof) = avx512::Proof::detect() {
                return Self::Avx512(proof);
            }
            if let Some(proof) = avx2::Proof::detect() {
                return Self::Avx2(proof);
            }
        }
        Self::Portable
    }

    /// Every path that this CPU has, and the emulated one. Miri is too slow for more than one.
    #[cfg(test)]
    pub(crate) fn supported() -> Vec<Self> {
        if cfg!(miri) {
            return vec![Self::best()];
        }
        let mut paths = vec![Self::Portable, Self::Emulated];
        #[cfg(target_arch = "x86_64")]
        {
            paths.extend(avx2::Proof::detect().map(Self::Avx2));
            paths.extend(avx512::Proof::detect().map(Self::Avx512));
        }
        paths
    }

    /// Runs `kernel` with the instructions of this path.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Portable => kernel.run::<portable::Portable>(()),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof is made only where AVX2 was detected.
            Self::Avx2(proof) => unsafe { avx2::run(proof, kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the proof is made only where AVX-512 F and BW were detected.
            Self::Avx512(proof) => unsafe { avx512::run(proof, kernel) },
            #[cfg(test)]
            Self::Emulated => kernel.run::<emulated::Emulated>(()),
        }
    }
}

/// Asks for the stride at `place` to be brought into the cache. Any address will do.
#[inline(always)]
pub(crate) fn prefetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        for line in [0, STRIDE_BYTES / 2] {
            // SAFETY: every x86-64 CPU has the instruction; it accesses nothing and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(line).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
