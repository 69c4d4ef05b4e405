//! The kernel for 64-bit Arm: NEON, which is part of the architecture.

use std::arch::aarch64::*;

use super::super::Multiplier;
use super::{Kernel, Vector};

pub(super) static NEON: Kernel = Kernel {
    name: "neon",
    products,
    sum,
};

unsafe fn products(
    outputs: &[*mut u8],
    sources: &[*const u8],
    multipliers: &[Multiplier],
    len: usize,
) {
    // SAFETY: guaranteed by the caller; NEON is part of the architecture.
    unsafe { super::products::<Halves>(outputs, sources, multipliers, len) }
}

unsafe fn sum(output: *mut u8, sources: &[*const u8], len: usize) {
    // SAFETY: as above.
    unsafe { super::sum::<Halves>(output, sources, len) }
}

#[derive(Clone, Copy)]
struct Halves(uint8x16_t);

// SAFETY: the intrinsics for unaligned memory of the register's size.
unsafe impl Vector for Halves {
    const SIZE: usize = size_of::<uint8x16_t>();
    type Prepared = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is part of the architecture.
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: guaranteed by the caller.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: guaranteed by the caller.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: NEON is part of the architecture.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn prepare(self) -> Self::Prepared {
        // SAFETY: NEON is part of the architecture.
        unsafe { (vandq_u8(self.0, vdupq_n_u8(0xf)), vshrq_n_u8::<4>(self.0)) }
    }

    #[inline(always)]
    unsafe fn multiply(source: Self::Prepared, factor: &Multiplier) -> Self {
        // SAFETY: NEON is part of the architecture; the tables are 16 bytes each.
        Self(unsafe {
            let (low, high) = (
                vld1q_u8(factor.low.as_ptr()),
                vld1q_u8(factor.high.as_ptr()),
            );
            veorq_u8(vqtbl1q_u8(low, source.0), vqtbl1q_u8(high, source.1))
        })
    }
}
