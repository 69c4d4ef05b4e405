//! Compression of a block into a stored block, and decompression, with contents like the bench's.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use role_formats::stored_block::{Encoder, Geometry};

/// Block sizes in bytes.
const BLOCKS: [usize; 2] = [4 << 10, 64 << 10];

fn blocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("LZ4");
    for size in BLOCKS {
        let content = bench::deployment::content(size);
        group.throughput(Throughput::Bytes(size as u64));
        let mut encoder = Encoder::new(Geometry::compatible(size as u32));
        group.bench_function(BenchmarkId::new("stored block", size), |bencher| {
            bencher.iter(|| {
                let stored = encoder.encode(black_box(&content));
                black_box(stored.expect("it compresses").len())
            });
        });
        let compressed = lz4_flex::block::compress(&content);
        let mut plain = vec![0; size];
        group.bench_function(BenchmarkId::new("decompress", size), |bencher| {
            bencher.iter(|| {
                lz4_flex::block::decompress_into(black_box(&compressed), &mut plain)
                    .expect("what was compressed here")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, blocks);
criterion_main!(benches);
