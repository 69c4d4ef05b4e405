//! The kernels of gga, alone: compression, decompression and erasure coding of cached blocks, and the verification of blocks.
//!
//! Erasure coding is softdoca's own: a program that is linked to NVIDIA's SDK has no softdoca in it, and does not measure it.

#[cfg(not(doca_sdk))]
pub(crate) mod engines;

use std::hint::black_box;
use std::time::{Duration, Instant};

use role_common::stored_block::{Checksum, Encoder, Geometry, Place};
use role_common::superblock::SetId;
use serde::Serialize;

/// Bytes per second of a kernel, and its time for one block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Bytes of content a second.
    pub bandwidth: f64,
    /// Nanoseconds for one block.
    pub block_ns: f64,
}

/// Calls `work` on one block after the other for about `time`.
fn speed(block_size: usize, time: Duration, mut work: impl FnMut()) -> Speed {
    let started = Instant::now();
    let mut blocks = 0_u64;
    loop {
        // A clock is read once for many blocks.
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

/// Erasure coding of two halves: the parity, and a half from the other one and the parity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ErasureCoding {
    /// Two halves in, the parity out.
    pub create: Speed,
    /// A half and the parity in, the other half out.
    pub recover: Speed,
}

/// Compression and decompression of blocks as gga stores them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lz4 {
    /// Content in, stored block with its checksum out.
    pub compress: Speed,
    /// LZ4 data in, content out, without looking at checksums.
    pub decompress: Speed,
}

/// LZ4 of blocks of the content that the initiator writes, or `None` where these do not compress.
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
