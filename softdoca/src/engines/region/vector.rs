//! The kernel loops, generic over the width of vectors.
//!
//! They are inlined into one function per kernel that enables the instructions of its vectors; called from elsewhere
//! they are correct but slow.

use super::portable;
use crate::engines::galois::Multiplier;

/// A vector register of bytes.
///
/// # Safety
/// Implementations load and store exactly [`SIZE`](Self::SIZE) bytes, at any alignment.
pub(super) unsafe trait Vector: Copy {
    /// Size of the register in bytes.
    const SIZE: usize;
    /// A source, preprocessed for several multiplications.
    type Prepared: Copy;

    /// # Safety
    /// The processor has the vector's instructions, as for all functions here.
    unsafe fn zero() -> Self;
    /// # Safety
    /// `SIZE` bytes at `from` can be read.
    unsafe fn load(from: *const u8) -> Self;
    /// # Safety
    /// `SIZE` bytes at `to` can be written.
    unsafe fn store(self, to: *mut u8);
    /// # Safety
    /// See [`Self::zero`].
    unsafe fn add(self, other: Self) -> Self;
    /// # Safety
    /// See [`Self::zero`].
    unsafe fn prepare(self) -> Self::Prepared;
    /// # Safety
    /// See [`Self::zero`].
    unsafe fn multiply(source: Self::Prepared, factor: &Multiplier) -> Self;
}

/// [`super::Kernel::products`] with vectors.
///
/// # Safety
/// As there, and the processor has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn products<V: Vector>(
    outputs: &[*mut u8],
    sources: &[*const u8],
    multipliers: &[Multiplier],
    len: usize,
) {
    // Several vectors at a time while registers are free: a factor's tables are loaded once for all of them.
    // SAFETY: guaranteed by the caller.
    let done = unsafe {
        match *outputs {
            [a] => blocks::<V, 1, 4>([a], sources, multipliers, 0, len),
            [a, b] => blocks::<V, 2, 2>([a, b], sources, multipliers, 0, len),
            [a, b, c] => blocks::<V, 3, 1>([a, b, c], sources, multipliers, 0, len),
            [a, b, c, d] => blocks::<V, 4, 1>([a, b, c, d], sources, multipliers, 0, len),
            _ => 0,
        }
    };
    // SAFETY: guaranteed by the caller.
    let done = unsafe {
        match *outputs {
            [a] => blocks::<V, 1, 1>([a], sources, multipliers, done, len),
            [a, b] => blocks::<V, 2, 1>([a, b], sources, multipliers, done, len),
            _ => done,
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { portable::products_from(outputs, sources, multipliers, done, len) }
}

/// Computes `N` outputs, `M` vectors of each at a time, from byte `start`. Returns the offset where it stopped, less
/// than `M` vectors before `len`.
#[allow(
    clippy::needless_range_loop,
    reason = "indices over constant ranges say best what is unrolled"
)]
#[inline(always)]
unsafe fn blocks<V: Vector, const N: usize, const M: usize>(
    outputs: [*mut u8; N],
    sources: &[*const u8],
    multipliers: &[Multiplier],
    start: usize,
    len: usize,
) -> usize {
    let mut at = start;
    while len - at >= M * V::SIZE {
        // SAFETY: guaranteed by the caller; `at + M * SIZE` is at most `len`.
        unsafe {
            let mut sums = [[V::zero(); M]; N];
            for (source, factors) in sources.iter().zip(multipliers.as_chunks::<N>().0) {
                for m in 0..M {
                    let source = V::load(source.add(at + m * V::SIZE)).prepare();
                    for n in 0..N {
                        sums[n][m] = sums[n][m].add(V::multiply(source, &factors[n]));
                    }
                }
            }
            for n in 0..N {
                for m in 0..M {
                    sums[n][m].store(outputs[n].add(at + m * V::SIZE));
                }
            }
        }
        at += M * V::SIZE;
    }
    at
}

/// [`super::Kernel::sum`] with vectors.
///
/// # Safety
/// As there, and the processor has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn sum<V: Vector>(output: *mut u8, sources: &[*const u8], len: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let done = sum_blocks::<V, 4>(output, sources, 0, len);
        let done = sum_blocks::<V, 1>(output, sources, done, len);
        portable::sum_from(output, sources, done, len);
    }
}

#[inline(always)]
unsafe fn sum_blocks<V: Vector, const M: usize>(
    output: *mut u8,
    sources: &[*const u8],
    start: usize,
    len: usize,
) -> usize {
    let mut at = start;
    while len - at >= M * V::SIZE {
        // SAFETY: as in `blocks`.
        unsafe {
            let mut sums = [V::zero(); M];
            for source in sources {
                for (m, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.add(V::load(source.add(at + m * V::SIZE)));
                }
            }
            for (m, sum) in sums.iter().enumerate() {
                sum.store(output.add(at + m * V::SIZE));
            }
        }
        at += M * V::SIZE;
    }
    at
}
