//! Kernels of gga alone: compression, decompression and erasure coding of cached blocks, and the verification of blocks.
//!
//! Erasure coding is softdoca's own: a program that is linked to NVIDIA's SDK does not contain it, and does not measure it.

#[cfg(not(doca_sdk))]
pub(crate) mod engines;

use std::hint::black_box;
use std::time::{Duration, Instant};

use role_common::stored_block::{Checksum, Encoder, Geometry, Place};
use role_common::superblock::SetId;
use serde::Serialize;

/// Throughput of a kernel, and its time per block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Bytes of content per second.
    pub bandwidth: f64,
    /// Nanoseconds per block.
    pub block_ns: f64,
}

/// Calls `work` repeatedly for about `time`.
fn speed(block_size: usize, time: Duration, mut work: impl FnMut()) -> Speed {
    let started = Instant::now();
    let mut blocks = 0_u64;
    loop {
        // The clock is read once per 32 blocks.
        for _ in 0..32 {
            work();
        }
        blocks += 32;
        let passed = started.elapsed();
        if passed >= time {
            let block_ns = passed.as_nanos() as f64 / blocks as f64;
            return Speed {
                bandwidth: block_size as f64 * 1e9 / block_ns,
                block_ns,
            };
        }
    }
}

/// Erasure coding of two halves: creation of the parity, and recovery of a half from the other one and the parity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ErasureCoding {
    /// Parity from two halves.
    pub create: Speed,
    /// A half from the other one and the parity.
    pub recover: Speed,
}

/// Compression and decompression of blocks as gga stores them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lz4 {
    /// From content to a stored block with its checksum.
    pub compress: Speed,
    /// From LZ4 data to content, without verifying checksums.
    pub decompress: Speed,
}

/// LZ4 of blocks of the initiator's content; `None` if it does not compress.
pub fn lz4(content: &[u8], time: Duration) -> Option<Lz4> {
    let size = u32::try_from(content.len()).ok()?;
    let mut encoder = Encoder::new(Geometry::compatible(size), Checksum::Crc32c);
    let place = Place {
        set: SetId::NONE,
        stripe: 0,
    };
    encoder.encode(content, place).ok()?;
    let compress = speed(content.len(), time, || {
        black_box(encoder.encode(black_box(content), place).is_ok());
    });
    let compressed: Vec<Vec<u8>> = content
        .chunks(64 << 10)
        .map(lz4_flex::block::compress)
        .collect();
    let mut plain = vec![0; content.len()];
    let decompress = speed(content.len(), time, || {
        for (piece, to) in compressed.iter().zip(plain.chunks_mut(64 << 10)) {
            let len = lz4_flex::block::decompress_into(black_box(piece), to);
            assert_eq!(len.ok(), Some(to.len()), "what was compressed here");
        }
        black_box(&mut plain);
    });
    Some(Lz4 {
        compress,
        decompress,
    })
}
