//! Kernels: sums of products over memory regions, with the widest vectors of the processor.
//!
//! A [`Kernel`] applies rows of a coding matrix: each byte of an output is the sum of the bytes at the same offset in
//! all sources, each multiplied by the row's factor for that source. All kernels compute the same results; the kernel
//! is chosen once per process. The portable kernel also processes the bytes that do not fill a vector.
//!
//! The loops are generic over the width of vectors (`Vector`). They are inlined into one function per kernel that
//! enables the instructions of its vectors; called elsewhere, they are correct but slow.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::sync::OnceLock;

use super::Multiplier;

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
        &PORTABLE
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
    /// If the number of outputs is 0 or exceeds [`MOST_OUTPUTS`], there are no sources, or the number of multipliers is
    /// wrong.
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

    /// Writes the sum (exclusive or) of all sources: equivalent to [`products`](Self::products) with factors of 1.
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

static PORTABLE: Kernel = Kernel {
    name: "portable",
    products: portable_products,
    sum: portable_sum,
};

unsafe fn portable_products(
    outputs: &[*mut u8],
    sources: &[*const u8],
    multipliers: &[Multiplier],
    len: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { products_from(outputs, sources, multipliers, 0, len) }
}

unsafe fn portable_sum(output: *mut u8, sources: &[*const u8], len: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { sum_from(output, sources, 0, len) }
}

const WORD: usize = size_of::<u64>();

/// Bytes `start..len` of [`Kernel::products`], without vector instructions.
///
/// # Safety
/// As there.
unsafe fn products_from(
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
unsafe fn sum_from(output: *mut u8, sources: &[*const u8], start: usize, len: usize) {
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

/// A vector register of bytes.
///
/// # Safety
/// Implementations load and store exactly [`SIZE`](Self::SIZE) bytes, at any alignment.
unsafe trait Vector: Copy {
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

/// [`Kernel::products`] with vectors.
///
/// # Safety
/// As there, and the processor has the vector's instructions.
#[inline(always)]
unsafe fn products<V: Vector>(
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
    unsafe { products_from(outputs, sources, multipliers, done, len) }
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

/// [`Kernel::sum`] with vectors.
///
/// # Safety
/// As there, and the processor has the vector's instructions.
#[inline(always)]
unsafe fn sum<V: Vector>(output: *mut u8, sources: &[*const u8], len: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let done = sum_blocks::<V, 4>(output, sources, 0, len);
        let done = sum_blocks::<V, 1>(output, sources, done, len);
        sum_from(output, sources, done, len);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;

    /// The result by definition, independent of the kernels.
    fn expected(factors: &[u8], outputs: usize, sources: &[Vec<u8>], len: usize) -> Vec<Vec<u8>> {
        (0..outputs)
            .map(|output| {
                (0..len)
                    .map(|at| {
                        let product = |(index, source): (usize, &Vec<u8>)| {
                            engines::multiply(factors[index * outputs + output], source[at])
                        };
                        sources
                            .iter()
                            .enumerate()
                            .map(product)
                            .fold(0, |a, b| a ^ b)
                    })
                    .collect()
            })
            .collect()
    }

    /// Runs a kernel over regions at an offset of `shift` bytes in their allocations, and checks that no other bytes
    /// are written.
    fn check(kernel: &Kernel, factors: &[u8], outputs: usize, len: usize, shift: usize) {
        const GUARD: usize = 80;
        const UNTOUCHED: u8 = 0xa5;
        let count = factors.len() / outputs;
        let sources: Vec<Vec<u8>> = (0..count)
            .map(|index| contents::noise(index as u64 + 1, len))
            .collect();
        let shifted: Vec<Vec<u8>> = sources
            .iter()
            .map(|source| [vec![UNTOUCHED; shift].as_slice(), source.as_slice()].concat())
            .collect();
        let from: Vec<*const u8> = shifted
            .iter()
            .map(|source| source[shift..].as_ptr())
            .collect();
        let mut results = vec![vec![UNTOUCHED; shift + len + GUARD]; outputs];
        let to: Vec<*mut u8> = results
            .iter_mut()
            .map(|result| result[shift..].as_mut_ptr())
            .collect();
        let multipliers: Vec<Multiplier> = factors
            .iter()
            .map(|factor| Multiplier::new(*factor))
            .collect();
        // SAFETY: all regions are of `len` bytes.
        unsafe { kernel.products(&to, &from, &multipliers, len) };
        for (result, expected) in results
            .iter()
            .zip(expected(factors, outputs, &sources, len))
        {
            assert_eq!(
                result[shift..shift + len],
                expected,
                "{}, {outputs} outputs of {count} sources of {len} bytes at {shift}",
                kernel.name()
            );
            assert!(
                result[..shift]
                    .iter()
                    .chain(&result[shift + len..])
                    .all(|byte| *byte == UNTOUCHED)
            );
        }
        let mut sum = vec![UNTOUCHED; shift + len + GUARD];
        // SAFETY: as above.
        unsafe { kernel.sum(sum[shift..].as_mut_ptr(), &from, len) };
        assert_eq!(
            sum[shift..shift + len],
            self::expected(&vec![1; count], 1, &sources, len)[0]
        );
        assert!(
            sum[..shift]
                .iter()
                .chain(&sum[shift + len..])
                .all(|byte| *byte == UNTOUCHED)
        );
    }

    #[test]
    fn every_kernel_multiplies_by_every_factor() {
        for kernel in Kernel::available() {
            for factor in 0..=255 {
                check(
                    kernel,
                    &[factor],
                    1,
                    67 + usize::from(factor) % 7,
                    usize::from(factor) % 5,
                );
            }
            for first in (0..=255).step_by(3) {
                let factors: Vec<u8> = (0u8..8)
                    .map(|index| index.wrapping_mul(37) ^ first)
                    .collect();
                check(kernel, &factors, 4, 131, 1);
            }
        }
    }

    #[test]
    fn every_kernel_takes_every_length_and_alignment() {
        for kernel in Kernel::available() {
            for len in (0..300).chain([511, 512, 513, 4095, 4096, 4097]) {
                for outputs in 1..=MOST_OUTPUTS {
                    let factors = contents::noise(len as u64, outputs * 3);
                    check(kernel, &factors, outputs, len, len % 17);
                }
            }
        }
    }

    #[test]
    fn every_kernel_takes_many_sources() {
        for kernel in Kernel::available() {
            for sources in [1, 2, 5, 64, 255] {
                check(kernel, &contents::noise(9, sources * 2), 2, 200, 3);
            }
        }
    }

    #[test]
    fn the_best_kernel_is_an_available_one() {
        let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
        assert_eq!(names.first().copied(), Some(Kernel::best().name()));
        assert_eq!(names.last().copied(), Some("portable"));
    }

    /// Without GFNI, 512-bit registers lower the clock frequency.
    #[test]
    fn registers_that_lower_the_clock_are_not_preferred() {
        let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
        let place = |name| names.iter().position(|other| *other == name);
        if let (Some(avx2), Some(avx512)) = (place("avx2"), place("avx512")) {
            assert!(avx2 < avx512, "{names:?}");
        }
        assert!(place("portable") >= place("ssse3"));
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_missing_factor_is_refused() {
        let source = [0u8; 4];
        let mut output = [0u8; 4];
        let multipliers = [Multiplier::new(1)];
        // SAFETY: the regions are of 4 bytes.
        unsafe {
            let sources = [source.as_ptr(), source.as_ptr()];
            Kernel::portable().products(&[output.as_mut_ptr()], &sources, &multipliers, 4);
        }
    }
}
