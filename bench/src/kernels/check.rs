//! What it costs to check a stored block before it is used, against using it as it is.
//!
//! The service that trusts its targets has the device decompress from where they put a block: only the compressed bytes are ever brought
//! to its CPU. Ours takes the whole block out of their reach, calculates its checksum, and has what was checked decompressed.

use std::hint::black_box;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use role_common::stored_block::{self, Checksum, Encoder, Geometry, Verdict, inspect};
use role_common::superblock::SetId;
use wire::stored_block::Header;

/// Blocks that are written and used together, as a deployment has so many I/Os under way.
const BLOCKS: usize = 64;
/// Batches of each kind at least.
const FEWEST: usize = 8;

/// The place that all blocks are stored for.
const AT: stored_block::Place = stored_block::Place {
    set: SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080),
    stripe: 5,
};

/// What has to be there for each block in use.
#[derive(Clone)]
struct Place {
    /// What was checked, as the device finds it.
    private: Vec<u8>,
    /// What the device decompresses from: it copies its source first.
    source: Vec<u8>,
}

/// Uses blocks in one of both ways.
struct User {
    geometry: Geometry,
    places: Vec<Place>,
    /// Room for the block that is looked at.
    stored: Vec<u8>,
    compressed: std::ops::Range<usize>,
}

impl User {
    /// As the service that trusts its targets.
    fn trust(&mut self, blocks: &[u8]) {
        let blocks = blocks.chunks(self.stored.len());
        for (block, place) in blocks.zip(&mut self.places) {
            place
                .source
                .copy_from_slice(&block[self.compressed.clone()]);
            black_box(&mut place.source);
        }
    }

    /// As ours.
    fn check(&mut self, blocks: &[u8]) {
        let blocks = blocks.chunks(self.stored.len());
        for (block, place) in blocks.zip(&mut self.places) {
            self.stored.copy_from_slice(block);
            let verdict = inspect(black_box(&self.stored), self.geometry, black_box(AT));
            assert!(
                matches!(verdict, Ok((_, Verdict::Bound))),
                "what was encoded here: {verdict:?}"
            );
            let checked = &self.stored[self.compressed.clone()];
            place.private.copy_from_slice(checked);
            place.source.copy_from_slice(black_box(&place.private));
            black_box(&mut place.source);
        }
    }
}

/// Nanoseconds that a CPU needs more for a block of this content that another CPU has just written, when it is checked. The first CPU is
/// the one that uses blocks, the second the one that writes them. `None` where the content does not compress.
///
/// # Errors
///
/// There are no such CPUs.
pub(crate) fn cost(content: &[u8], cpus: [usize; 2], time: Duration) -> io::Result<Option<f64>> {
    let Ok(size) = u32::try_from(content.len()) else {
        return Ok(None);
    };
    let geometry = Geometry::compatible(size);
    let mut encoder = Encoder::new(geometry, Checksum::Crc32c);
    let Ok(stored) = encoder.encode(content, AT).map(<[u8]>::to_vec) else {
        return Ok(None);
    };
    let (header, _) = inspect(&stored, geometry, AT).map_err(io::Error::other)?;
    let compressed = Header::SIZE..Header::SIZE + header.compressed_size as usize;
    let place = Place {
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

/// Writes blocks into all memory that comes, until none does.
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

/// The difference of the medians of both ways, in nanoseconds of a block.
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

/// The next that comes, without going to sleep: a CPU that sleeps is slow at first. `None` when nothing will.
fn next(channel: &Receiver<Vec<u8>>) -> Option<Vec<u8>> {
    loop {
        match channel.try_recv() {
            Ok(memory) => return Some(memory),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_costs_something() {
        let content: Vec<u8> = (0..4096_u32).map(|byte| (byte / 64) as u8).collect();
        let time = Duration::from_millis(20);
        let cost = cost(&content, [0, 0], time).expect("a CPU");
        assert!(cost.expect("it compresses") > 0.0, "{cost:?}");
    }

    #[test]
    fn what_does_not_compress_has_no_cost() {
        // High bytes of a linear congruential generator.
        let content: Vec<u8> = std::iter::successors(Some(1_u64), |state| {
            let next = state.wrapping_mul(6_364_136_223_846_793_005);
            Some(next.wrapping_add(1_442_695_040_888_963_407))
        })
        .map(|state| (state >> 56) as u8)
        .take(4096)
        .collect();
        let cost = cost(&content, [0, 0], Duration::ZERO).expect("a CPU");
        assert_eq!(cost, None);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let content = [7; 4096];
        cost(&content, [0, usize::MAX], Duration::ZERO).expect_err("no such CPU");
        cost(&content, [usize::MAX, 0], Duration::ZERO).expect_err("no such CPU");
    }
}
