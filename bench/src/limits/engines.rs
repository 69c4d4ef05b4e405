//! Kernels that need softdoca: the verification of blocks, and erasure coding by its engine and by ISA-L.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use role_formats::stored_block::{Encoder, Geometry, inspect};
use softdoca::engines::Multiplier;
use softdoca::engines::matrix::{Matrix, MatrixType};
use softdoca::engines::region::Kernel;
use wire::stored_block::Header;
use yardstick::IsaL;

use crate::limits::{ErasureCoding, speed};

// Cost of verifying a stored block before it is used, compared with using it unverified.
//
// A service that trusts its targets has the device decompress a block directly from the memory that they wrote: its CPU
// loads only the compressed bytes. Ours copies the whole block to private memory, verifies its sizes, and has the
// verified copy decompressed.

/// Blocks that are written and used together, like the I/Os in flight of a deployment.
const BLOCKS: usize = 64;
/// Minimum number of batches of each kind.
const FEWEST: usize = 8;

#[derive(Clone)]
struct BlockBuffers {
    /// The verified copy, from which the device decompresses.
    private: Vec<u8>,
    /// The device's source buffer, into which the block is first copied.
    source: Vec<u8>,
}

/// Uses blocks directly, or verified copies of them.
struct User {
    geometry: Geometry,
    places: Vec<BlockBuffers>,
    /// Buffer of the block to verify.
    stored: Vec<u8>,
    compressed: std::ops::Range<usize>,
}

impl User {
    /// Uses blocks without verification, like a service that trusts its targets.
    fn trust(&mut self, blocks: &[u8]) {
        let blocks = blocks.chunks(self.stored.len());
        for (block, place) in blocks.zip(&mut self.places) {
            place
                .source
                .copy_from_slice(&block[self.compressed.clone()]);
            black_box(&mut place.source);
        }
    }

    /// Uses blocks after verification, like our service.
    fn check(&mut self, blocks: &[u8]) {
        let blocks = blocks.chunks(self.stored.len());
        for (block, place) in blocks.zip(&mut self.places) {
            self.stored.copy_from_slice(block);
            let header = inspect(black_box(&self.stored), self.geometry);
            assert!(header.is_ok(), "what was encoded here: {header:?}");
            let checked = &self.stored[self.compressed.clone()];
            place.private.copy_from_slice(checked);
            place.source.copy_from_slice(black_box(&place.private));
            black_box(&mut place.source);
        }
    }
}

/// Additional nanoseconds for verifying a block of this content that another CPU has just written. The first CPU uses
/// blocks, the second one writes them. `None` if the content does not compress.
///
/// # Errors
///
/// A CPU does not exist.
pub(crate) fn cost(content: &[u8], cpus: [usize; 2], time: Duration) -> io::Result<Option<f64>> {
    let Ok(size) = u32::try_from(content.len()) else {
        return Ok(None);
    };
    let geometry = Geometry::compatible(size);
    let mut encoder = Encoder::new(geometry);
    let Ok(stored) = encoder.encode(content).map(<[u8]>::to_vec) else {
        return Ok(None);
    };
    let header = inspect(&stored, geometry).map_err(io::Error::other)?;
    let compressed = Header::SIZE..Header::SIZE + header.compressed_size as usize;
    let place = BlockBuffers {
        private: vec![0; compressed.len()],
        source: vec![0; compressed.len()],
    };
    let mut user = User {
        geometry,
        places: vec![place; BLOCKS],
        stored: vec![0; stored.len()],
        compressed,
    };
    let memory = vec![0; BLOCKS * stored.len()];
    let [using, writing] = cpus;
    thread::scope(|scope| {
        let (used, to_write) = channel();
        let (written, to_use) = channel();
        let writer = scope.spawn(move || -> io::Result<()> {
            yardstick::pin(writing)?;
            write(&stored, &to_write, &written);
            Ok(())
        });
        let reader = scope.spawn(move || -> io::Result<Option<f64>> {
            yardstick::pin(using)?;
            Ok(compare(&mut user, memory, &used, &to_use, time))
        });
        let panicked = |_| io::Error::other("a thread of the bench panicked");
        let cost = reader.join().map_err(panicked)?;
        writer.join().map_err(panicked)??;
        cost
    })
}

/// Writes blocks into each buffer that is received, until the channel is closed.
fn write(stored: &[u8], to_write: &Receiver<Vec<u8>>, written: &Sender<Vec<u8>>) {
    while let Some(mut memory) = next(to_write) {
        for block in memory.chunks_mut(stored.len()) {
            block.copy_from_slice(black_box(stored));
        }
        if written.send(memory).is_err() {
            return;
        }
    }
}

/// Difference between the medians of both variants, in nanoseconds per block.
fn compare(
    user: &mut User,
    memory: Vec<u8>,
    used: &Sender<Vec<u8>>,
    to_use: &Receiver<Vec<u8>>,
    time: Duration,
) -> Option<f64> {
    let ways: [fn(&mut User, &[u8]); 2] = [User::trust, User::check];
    let mut times = [Vec::new(), Vec::new()];
    let started = Instant::now();
    used.send(memory).ok()?;
    while started.elapsed() < time || times[1].len() < FEWEST {
        for (way, times) in ways.iter().zip(&mut times) {
            let memory = next(to_use)?;
            let begun = Instant::now();
            way(user, &memory);
            times.push(begun.elapsed().as_nanos() as f64 / BLOCKS as f64);
            used.send(memory).ok()?;
        }
    }
    let [trusting, checking] = times.map(crate::series::median);
    Some(checking? - trusting?)
}

/// Receives the next message without sleeping, because a CPU is slow after a sleep. `None` when the channel is closed.
fn next(channel: &Receiver<Vec<u8>>) -> Option<Vec<u8>> {
    loop {
        match channel.try_recv() {
            Ok(memory) => return Some(memory),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => thread::yield_now(),
        }
    }
}

// Erasure coding with softdoca's engine, and with ISA-L.

/// Matrices for two halves and one parity: creation, and recovery of the first half.
fn matrices(matrix_type: MatrixType) -> [Matrix; 2] {
    let coding = Matrix::coding(matrix_type, 2, 1).expect("a matrix of three blocks");
    let recovery = coding
        .recover(&[0])
        .expect("one lost block can be recovered");
    [coding, recovery]
}

fn factors(matrix: &Matrix) -> Vec<u8> {
    (0..matrix.inputs())
        .map(|input| matrix.factor(input, 0))
        .collect()
}

/// Measures softdoca's best kernel for this CPU; for Vandermonde that is a sum.
pub(crate) fn ours(half: usize, matrix_type: MatrixType, time: Duration) -> ErasureCoding {
    let kernel = Kernel::best();
    let (a, b) = (vec![0x35_u8; half], vec![0xc6_u8; half]);
    let mut result = vec![0; half];
    let [create, recover] = matrices(matrix_type).map(|matrix| {
        let factors = factors(&matrix);
        let multipliers: Vec<_> = factors.iter().map(|&f| Multiplier::new(f)).collect();
        speed(half * 2, time, || {
            let sources = [black_box(&a).as_ptr(), b.as_ptr()];
            // SAFETY: all three have `half` bytes and are not accessed otherwise.
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

/// Measures ISA-L with the same coefficients.
pub(crate) fn isal(
    library: &IsaL,
    half: usize,
    matrix_type: MatrixType,
    time: Duration,
) -> ErasureCoding {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_measured() {
        let time = Duration::from_micros(100);
        let content: Vec<u8> = (0..8192_u32).map(|byte| (byte / 64) as u8).collect();
        let speeds = crate::limits::lz4(&content, time).expect("it compresses");
        assert!(speeds.compress.bandwidth > 1e5 && speeds.decompress.bandwidth > 1e5);
    }
}

#[cfg(test)]
mod check_tests {
    use super::*;

    #[test]
    fn verification_is_measured() {
        let content: Vec<u8> = (0..4096_u32).map(|byte| (byte / 64) as u8).collect();
        let time = Duration::from_millis(20);
        let cost = cost(&content, [0, 0], time).expect("a CPU");
        assert!(cost.expect("it compresses") > 0.0, "{cost:?}");
    }

    #[test]
    fn incompressible_content_is_refused() {
        let cost = cost(&contents::noise(1, 4096), [0, 0], Duration::ZERO).expect("a CPU");
        assert_eq!(cost, None);
    }

    #[test]
    fn nonexistent_cpu_is_refused() {
        let content = [7; 4096];
        cost(&content, [0, usize::MAX], Duration::ZERO).expect_err("no such CPU");
        cost(&content, [usize::MAX, 0], Duration::ZERO).expect_err("no such CPU");
    }
}

#[cfg(test)]
mod erasure_coding_tests {
    use super::*;

    #[test]
    fn both_matrices_are_measured() {
        let time = Duration::from_micros(100);
        for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
            let speeds = ours(4096, matrix_type, time);
            assert!(speeds.create.bandwidth > 1e6 && speeds.recover.bandwidth > 1e6);
        }
    }
}
