//! Kernels for x86-64: SSSE3, AVX2, AVX-512, and the last two with GFNI.
//!
//! Without GFNI, a product takes two table look-ups, one per nibble; with GFNI, one instruction.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

use super::super::Multiplier;
use super::{Kernel, Vector};

/// The kernels that this processor supports, in order of preference.
///
/// AVX-512 comes first only together with GFNI. Processors without GFNI (Skylake to Cooper Lake) lower their clock
/// frequency for almost a millisecond after each use of 512-bit registers, which slows down all other work of a storage
/// service: with 2 KiB of parity per block, LZ4 takes 13 to 20 % longer on a Cascade Lake, compared with 2 % for AVX2.
/// In return, sums of 32 KiB gain nothing, and products take 1.9 us instead of 3.1 us, next to tens of microseconds of
/// LZ4.
pub(super) fn available() -> impl Iterator<Item = &'static Kernel> {
    let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let avx2 = is_x86_feature_detected!("avx2");
    let gfni = is_x86_feature_detected!("gfni");
    [
        (avx512 && gfni, &GFNI_AVX512),
        (avx2 && gfni, &GFNI_AVX2),
        (avx2, &AVX2),
        (avx512, &AVX512),
        (is_x86_feature_detected!("ssse3"), &SSSE3),
    ]
    .into_iter()
    .filter_map(|(detected, kernel)| detected.then_some(kernel))
}

macro_rules! kernel {
    ($kernel:ident, $name:literal, $vector:ty, $features:literal) => {
        static $kernel: Kernel = {
            #[target_feature(enable = $features)]
            unsafe fn products(
                outputs: &[*mut u8],
                sources: &[*const u8],
                multipliers: &[Multiplier],
                len: usize,
            ) {
                // SAFETY: guaranteed by the caller; the features are enabled here.
                unsafe { super::products::<$vector>(outputs, sources, multipliers, len) }
            }
            #[target_feature(enable = $features)]
            unsafe fn sum(output: *mut u8, sources: &[*const u8], len: usize) {
                // SAFETY: as above.
                unsafe { super::sum::<$vector>(output, sources, len) }
            }
            Kernel {
                name: $name,
                products,
                sum,
            }
        };
    };
}

kernel!(SSSE3, "ssse3", Halves128, "ssse3");
kernel!(AVX2, "avx2", Halves256, "avx2");
kernel!(AVX512, "avx512", Halves512, "avx512f,avx512bw");
kernel!(GFNI_AVX2, "gfni+avx2", Bits256, "avx2,gfni");
kernel!(GFNI_AVX512, "gfni+avx512", Bits512, "avx512f,avx512bw,gfni");

/// The part that all vector types share: `$load`, `$store` and `$xor` are intrinsics, the rest implements
/// multiplication.
macro_rules! vector {
    (
        $name:ident($register:ty), $zero:ident, $load:ident, $store:ident, $xor:ident;
        type Prepared = $prepared:ty;
        prepare($self:ident) $prepare:block
        multiply($source:ident, $factor:ident) $multiply:block
    ) => {
        #[derive(Clone, Copy)]
        struct $name($register);

        // SAFETY: the intrinsics for unaligned memory of the register's size.
        unsafe impl Vector for $name {
            const SIZE: usize = size_of::<$register>();
            type Prepared = $prepared;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller has the instructions.
                Self(unsafe { $zero() })
            }

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: guaranteed by the caller.
                Self(unsafe { $load(from.cast()) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: guaranteed by the caller.
                unsafe { $store(to.cast(), self.0) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the caller has the instructions.
                Self(unsafe { $xor(self.0, other.0) })
            }

            #[inline(always)]
            #[allow(unused_unsafe, reason = "with GFNI there is nothing to prepare")]
            unsafe fn prepare($self) -> Self::Prepared {
                // SAFETY: the caller has the instructions.
                unsafe { $prepare }
            }

            #[inline(always)]
            unsafe fn multiply($source: Self::Prepared, $factor: &Multiplier) -> Self {
                // SAFETY: the caller has the instructions; the tables are 16 bytes each.
                Self(unsafe { $multiply })
            }
        }
    };
}

vector! {
    Halves128(__m128i), _mm_setzero_si128, _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128;
    type Prepared = (__m128i, __m128i);
    prepare(self) {
        let half = _mm_set1_epi8(0xf);
        (_mm_and_si128(self.0, half), _mm_and_si128(_mm_srli_epi64::<4>(self.0), half))
    }
    multiply(source, factor) {
        let low = _mm_loadu_si128(factor.low.as_ptr().cast());
        let high = _mm_loadu_si128(factor.high.as_ptr().cast());
        _mm_xor_si128(_mm_shuffle_epi8(low, source.0), _mm_shuffle_epi8(high, source.1))
    }
}

vector! {
    Halves256(__m256i), _mm256_setzero_si256, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256;
    type Prepared = (__m256i, __m256i);
    prepare(self) {
        let half = _mm256_set1_epi8(0xf);
        (_mm256_and_si256(self.0, half), _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), half))
    }
    multiply(source, factor) {
        let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(factor.low.as_ptr().cast()));
        let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(factor.high.as_ptr().cast()));
        _mm256_xor_si256(_mm256_shuffle_epi8(low, source.0), _mm256_shuffle_epi8(high, source.1))
    }
}

vector! {
    Halves512(__m512i), _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512;
    type Prepared = (__m512i, __m512i);
    prepare(self) {
        let half = _mm512_set1_epi8(0xf);
        (_mm512_and_si512(self.0, half), _mm512_and_si512(_mm512_srli_epi64::<4>(self.0), half))
    }
    multiply(source, factor) {
        let low = _mm512_broadcast_i32x4(_mm_loadu_si128(factor.low.as_ptr().cast()));
        let high = _mm512_broadcast_i32x4(_mm_loadu_si128(factor.high.as_ptr().cast()));
        _mm512_xor_si512(_mm512_shuffle_epi8(low, source.0), _mm512_shuffle_epi8(high, source.1))
    }
}

vector! {
    Bits256(__m256i), _mm256_setzero_si256, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256;
    type Prepared = __m256i;
    prepare(self) { self.0 }
    multiply(source, factor) {
        _mm256_gf2p8affine_epi64_epi8::<0>(source, _mm256_set1_epi64x(factor.bits.cast_signed()))
    }
}

vector! {
    Bits512(__m512i), _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512;
    type Prepared = __m512i;
    prepare(self) { self.0 }
    multiply(source, factor) {
        _mm512_gf2p8affine_epi64_epi8::<0>(source, _mm512_set1_epi64(factor.bits.cast_signed()))
    }
}
