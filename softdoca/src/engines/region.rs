//! Kernels: sums of products over regions of memory, with the widest vectors that the processor has.
//!
//! A [`Kernel`] computes what a row of a coding matrix says: each byte of an output is the sum of the bytes at the same place
//! in all sources, each multiplied by the row's factor for that source. All kernels compute the same; which one runs is
//! chosen once per process.

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

/// Outputs that one pass over the sources can make.
pub const MOST_OUTPUTS: usize = 4;

/// An implementation of the two operations.
#[derive(Debug)]
pub struct Kernel {
    name: &'static str,
    products: unsafe fn(&[*mut u8], &[*const u8], &[Multiplier], usize),
    sum: unsafe fn(*mut u8, &[*const u8], usize),
}

impl Kernel {
    /// What it is made of, for example `avx2`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The kernel that uses no special instructions, and that the others are measured against.
    pub fn portable() -> &'static Kernel {
        &portable::KERNEL
    }

    /// The kernels that this processor can run, in the order of preference.
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

    /// Writes sums of products: byte `i` of output `o` becomes the sum over all sources `s` of byte `i` of the source times
    /// `multipliers[s * outputs.len() + o]`.
    ///
    /// The outputs are written in ascending order of `i` in steps of whole vectors; one that overlaps a source gives
    /// unspecified bytes.
    ///
    /// # Panics
    /// When there are no outputs or more than [`MOST_OUTPUTS`], no sources, or not one multiplier for each pair.
    ///
    /// # Safety
    /// Each source can be read and each output written for `len` bytes, by raw pointers: others may access the bytes at the
    /// same time, and then find, or leave here, unspecified ones.
    pub unsafe fn products(
        &self,
        outputs: &[*mut u8],
        sources: &[*const u8],
        multipliers: &[Multiplier],
        len: usize,
    ) {
        assert!((1..=MOST_OUTPUTS).contains(&outputs.len()) && !sources.is_empty());
        assert_eq!(multipliers.len(), outputs.len() * sources.len());
        // SAFETY: the caller's promise; the processor has the instructions, or the kernel would not be available.
        unsafe { (self.products)(outputs, sources, multipliers, len) }
    }

    /// Writes the sum (the exclusive or) of all sources, what [`products`](Self::products) makes of factors of 1.
    ///
    /// # Panics
    /// When there are no sources.
    ///
    /// # Safety
    /// As [`products`](Self::products).
    pub unsafe fn sum(&self, output: *mut u8, sources: &[*const u8], len: usize) {
        assert!(!sources.is_empty());
        // SAFETY: as above.
        unsafe { (self.sum)(output, sources, len) }
    }
}
