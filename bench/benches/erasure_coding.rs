//! Erasure coding of two halves by every kernel that this CPU supports: the parity that gga computes for a block.

#[cfg(not(doca_sdk))]
mod kernels {
    use criterion::{BenchmarkId, Criterion, Throughput};
    use softdoca::engines::Multiplier;
    use softdoca::engines::region::Kernel;

    /// Sizes of a half in bytes: of blocks of 4 KiB, and of the bench's erasure coding thresholds.
    const HALVES: [usize; 2] = [2 << 10, 32 << 10];

    pub(super) fn parities(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("erasure coding");
        for half in HALVES {
            let (a, b) = (vec![0x35_u8; half], vec![0xc6_u8; half]);
            let mut parity = vec![0_u8; half];
            let sources = [a.as_ptr(), b.as_ptr()];
            // Coefficients other than 0 and 1, for which kernels may have special cases.
            let factors = [Multiplier::new(0x8e), Multiplier::new(0xf4)];
            group.throughput(Throughput::Bytes(2 * half as u64));
            for kernel in Kernel::available() {
                let id = |what: &str| BenchmarkId::new(format!("{what}, {}", kernel.name()), half);
                group.bench_function(id("products"), |bencher| {
                    bencher.iter(|| {
                        // SAFETY: all three have `half` bytes and are not accessed otherwise.
                        unsafe { kernel.products(&[parity.as_mut_ptr()], &sources, &factors, half) }
                    });
                });
                group.bench_function(id("sum"), |bencher| {
                    bencher.iter(|| {
                        // SAFETY: as above.
                        unsafe { kernel.sum(parity.as_mut_ptr(), &sources, half) }
                    });
                });
            }
        }
        group.finish();
    }
}

/// Excluded if the program is linked to NVIDIA's SDK, and not to softdoca.
#[cfg(doca_sdk)]
mod kernels {
    pub(super) fn parities(_: &mut criterion::Criterion) {}
}

use criterion::{criterion_group, criterion_main};
use kernels::parities;

criterion_group!(benches, parities);
criterion_main!(benches);
