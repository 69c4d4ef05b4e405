//! What gga computes, alone: compression, decompression and erasure coding of blocks that lie in the caches.

use std::hint::black_box;
use std::time::{Duration, Instant};

use role_common::stored_block::{Checksum, Encoder, Geometry};
use serde::Serialize;
use softdoca::engines::galois::Multiplier;
use softdoca::engines::matrix::{Matrix, MatrixType};
use softdoca::engines::region::Kernel;
use yardstick::isal::IsaL;

/// Bytes that a kernel takes or makes in a second, and the time of one block.
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

/// The matrices of two halves and one parity: coding, and recovery of the first half.
fn matrices(matrix_type: MatrixType) -> [Matrix; 2] {
    let coding = Matrix::coding(matrix_type, 2, 1).expect("a matrix of three blocks");
    let recovery = coding
        .recover(&[0])
        .expect("one lost block can be made anew");
    [coding, recovery]
}

fn factors(matrix: &Matrix) -> Vec<u8> {
    (0..matrix.inputs())
        .map(|input| matrix.factor(input, 0))
        .collect()
}

/// Ours, with the best kernel of this CPU.
pub fn ours(half: usize, matrix_type: MatrixType, time: Duration) -> ErasureCoding {
    let kernel = Kernel::best();
    let (a, b) = (vec![0x35_u8; half], vec![0xc6_u8; half]);
    let mut result = vec![0; half];
    let [create, recover] = matrices(matrix_type).map(|matrix| {
        let factors = factors(&matrix);
        let multipliers: Vec<_> = factors.iter().map(|&f| Multiplier::new(f)).collect();
        speed(half * 2, time, || {
            let sources = [black_box(&a).as_ptr(), b.as_ptr()];
            // SAFETY: all three have `half` bytes, and nobody else uses them.
            unsafe {
                if factors == [1, 1] {
                    kernel.sum(result.as_mut_ptr(), &sources, half);
                } else {
                    kernel.products(&[result.as_mut_ptr()], &sources, &multipliers, half);
                }
            }
            black_box(&mut result);
        })
    });
    ErasureCoding { create, recover }
}

/// ISA-L's, with the same coefficients.
pub fn isal(library: &IsaL, half: usize, matrix_type: MatrixType, time: Duration) -> ErasureCoding {
    let (a, b) = (vec![0x35_u8; half], vec![0xc6_u8; half]);
    let mut result = vec![0; half];
    let [create, recover] = matrices(matrix_type).map(|matrix| {
        let mut coder = library.coder(2, &factors(&matrix));
        speed(half * 2, time, || {
            coder.code(&[black_box(&a), &b], &mut [&mut result]);
            black_box(&mut result);
        })
    });
    ErasureCoding { create, recover }
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
    encoder.encode(content).ok()?;
    let compress = speed(content.len(), time, || {
        black_box(encoder.encode(black_box(content)).is_ok());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kernels_have_a_speed() {
        let time = Duration::from_micros(100);
        for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
            let speeds = ours(4096, matrix_type, time);
            assert!(speeds.create.bandwidth > 1e6 && speeds.recover.bandwidth > 1e6);
        }
        let content: Vec<u8> = (0..8192_u32).map(|byte| (byte / 64) as u8).collect();
        let speeds = lz4(&content, time).expect("it compresses");
        assert!(speeds.compress.bandwidth > 1e5 && speeds.decompress.bandwidth > 1e5);
    }
}
