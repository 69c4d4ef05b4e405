//! The kernel for any processor, which also processes the bytes that do not fill a vector.

use super::Kernel;
use crate::engines::galois::Multiplier;

pub(super) static KERNEL: Kernel = Kernel {
    name: "portable",
    products,
    sum,
};

unsafe fn products(
    outputs: &[*mut u8],
    sources: &[*const u8],
    multipliers: &[Multiplier],
    len: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { products_from(outputs, sources, multipliers, 0, len) }
}

unsafe fn sum(output: *mut u8, sources: &[*const u8], len: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { sum_from(output, sources, 0, len) }
}

const WORD: usize = size_of::<u64>();

/// Bytes `start..len` of [`Kernel::products`], without vector instructions.
///
/// # Safety
/// As there.
pub(super) unsafe fn products_from(
    outputs: &[*mut u8],
    sources: &[*const u8],
    multipliers: &[Multiplier],
    start: usize,
    len: usize,
) {
    for (index, output) in outputs.iter().enumerate() {
        let factors = || multipliers.iter().skip(index).step_by(outputs.len());
        let mut at = start;
        while len - at >= WORD {
            let sum = sources
                .iter()
                .zip(factors())
                .fold(0, |sum, (source, factor)| {
                    // SAFETY: a word at `at` ends within `len`, guaranteed by the caller.
                    sum ^ multiply_word(factor, unsafe {
                        source.add(at).cast::<u64>().read_unaligned()
                    })
                });
            // SAFETY: as above.
            unsafe { output.add(at).cast::<u64>().write_unaligned(sum) };
            at += WORD;
        }
        for at in at..len {
            let sum = sources
                .iter()
                .zip(factors())
                .fold(0, |sum, (source, factor)| {
                    // SAFETY: `at` is below `len`.
                    sum ^ factor.apply(unsafe { source.add(at).read() })
                });
            // SAFETY: as above.
            unsafe { output.add(at).write(sum) };
        }
    }
}

/// Products of a factor and each byte of a word; faster than a table look-up per byte.
#[inline]
fn multiply_word(factor: &Multiplier, word: u64) -> u64 {
    const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;
    // One bit of each byte at a time: a byte of 0 or 1 times the bit's product does not overflow into the next byte.
    let part = |shift: u32, product: u8| (word >> shift & LOWEST_BITS) * u64::from(product);
    let (low, high) = (&factor.low, &factor.high);
    (part(0, low[1]) ^ part(1, low[2]) ^ part(2, low[4]) ^ part(3, low[8]))
        ^ (part(4, high[1]) ^ part(5, high[2]) ^ part(6, high[4]) ^ part(7, high[8]))
}

/// Bytes `start..len` of [`Kernel::sum`], without vector instructions.
///
/// # Safety
/// As there.
pub(super) unsafe fn sum_from(output: *mut u8, sources: &[*const u8], start: usize, len: usize) {
    let mut at = start;
    while len - at >= WORD {
        let sum = sources.iter().fold(0, |sum, source| {
            // SAFETY: a word at `at` ends within `len`, guaranteed by the caller.
            sum ^ unsafe { source.add(at).cast::<u64>().read_unaligned() }
        });
        // SAFETY: as above.
        unsafe { output.add(at).cast::<u64>().write_unaligned(sum) };
        at += WORD;
    }
    for at in at..len {
        let sum = sources.iter().fold(0, |sum, source| {
            // SAFETY: `at` is below `len`.
            sum ^ unsafe { source.add(at).read() }
        });
        // SAFETY: as above.
        unsafe { output.add(at).write(sum) };
    }
}
