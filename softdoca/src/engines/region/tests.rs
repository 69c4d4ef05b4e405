use super::super::galois;
use super::*;

/// Pseudorandom bytes; different for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// The result by definition, independent of the kernels.
fn expected(factors: &[u8], outputs: usize, sources: &[Vec<u8>], len: usize) -> Vec<Vec<u8>> {
    (0..outputs)
        .map(|output| {
            (0..len)
                .map(|at| {
                    let product = |(index, source): (usize, &Vec<u8>)| {
                        galois::multiply(factors[index * outputs + output], source[at])
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

/// Runs a kernel over regions at an offset of `shift` bytes in their allocations, and checks that it writes nothing
/// else.
fn check(kernel: &Kernel, factors: &[u8], outputs: usize, len: usize, shift: usize) {
    const GUARD: usize = 80;
    const UNTOUCHED: u8 = 0xa5;
    let count = factors.len() / outputs;
    let sources: Vec<Vec<u8>> = (0..count)
        .map(|index| noise(index as u64 + 1, len))
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
                let factors = noise(len as u64, outputs * 3);
                check(kernel, &factors, outputs, len, len % 17);
            }
        }
    }
}

#[test]
fn every_kernel_takes_many_sources() {
    for kernel in Kernel::available() {
        for sources in [1, 2, 5, 64, 255] {
            check(kernel, &noise(9, sources * 2), 2, 200, 3);
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
