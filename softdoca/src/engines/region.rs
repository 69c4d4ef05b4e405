//! Kernels: sums of products over memory regions, with the widest vectors of the processor.
//!
//! A [`Kernel`] applies rows of a coding matrix: each byte of an output is the sum of the bytes at the same offset in
//! all sources, each multiplied by the row's factor for that source. All kernels compute the same results; the kernel
//! is chosen once per process.

mod portable;
mod vector;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use super::galois::Multiplier;

/// Maximum number of outputs of one pass over the sources.
pub const MOST_OUTPUTS: usize = 4;

/// An implementation of the two operations.
#[derive(Debug)]
pub struct Kernel {
    name: &'static str,
    products: unsafe fn(&[*mut u8], &[*const u8], &[Multiplier], usize),
    sum: unsafe fn(*mut u8, &[*const u8], usize),
}

impl Kernel {
    /// The instruction set, for example `avx2`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The kernel without special instructions; the reference for the others.
    pub fn portable() -> &'static Kernel {
        &portable::KERNEL
    }

    /// The kernels that this processor supports, in order of preference.
    pub fn available() -> impl Iterator<Item = &'static Kernel> {
        #[cfg(target_arch = "x86_64")]
        let special = x86_64::available();
        #[cfg(target_arch = "aarch64")]
        let special = std::iter::once(&aarch64::NEON);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let special = std::iter::empty();
        special.chain(std::iter::once(Kernel::portable()))
    }

    /// The first of [`available`](Self::available), looked up once.
    pub fn best() -> &'static Kernel {
        static BEST: OnceLock<&'static Kernel> = OnceLock::new();
        BEST.get_or_init(|| Kernel::available().next().unwrap_or(Kernel::portable()))
    }

    /// Writes sums of products: byte `i` of output `o` becomes the sum over all sources `s` of byte `i` of the source
    /// times `multipliers[s * outputs.len() + o]`.
    ///
    /// The outputs are written in ascending order of `i` in steps of whole vectors; an output that overlaps a source
    /// gets unspecified bytes.
    ///
    /// # Panics
    /// If there are no outputs or more than [`MOST_OUTPUTS`], no sources, or not one multiplier for each pair.
    ///
    /// # Safety
    /// Each source can be read and each output written for `len` bytes, by raw pointers: other threads and processes
    /// may access them concurrently, and the bytes that either side reads are unspecified then.
    pub unsafe fn products(
        &self,
        outputs: &[*mut u8],
        sources: &[*const u8],
        multipliers: &[Multiplier],
        len: usize,
    ) {
        assert!((1..=MOST_OUTPUTS).contains(&outputs.len()) && !sources.is_empty());
        assert_eq!(multipliers.len(), outputs.len() * sources.len());
        // SAFETY: guaranteed by the caller; the processor has the instructions, or the kernel would not be available.
        unsafe { (self.products)(outputs, sources, multipliers, len) }
    }

    /// Writes the sum (exclusive or) of all sources: the same as [`products`](Self::products) with factors of 1.
    ///
    /// # Panics
    /// If there are no sources.
    ///
    /// # Safety
    /// As [`products`](Self::products).
    pub unsafe fn sum(&self, output: *mut u8, sources: &[*const u8], len: usize) {
        assert!(!sources.is_empty());
        // SAFETY: as above.
        unsafe { (self.sum)(output, sources, len) }
    }
}
