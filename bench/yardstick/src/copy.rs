//! memcpy, block by block, to memory that another process can read.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use crate::arena::Arena;

/// Returns the bytes per second at which blocks of `block_size` bytes are copied from `blocks` private blocks to
/// `slots` shared ones, each in order and repeatedly, for about `time`.
///
/// # Errors
///
/// There is not enough memory.
pub fn bandwidth(
    block_size: usize,
    blocks: usize,
    slots: usize,
    time: Duration,
) -> io::Result<f64> {
    if block_size == 0 || blocks == 0 || slots == 0 {
        return Err(io::Error::other(
            "expected at least one byte, block and slot",
        ));
    }
    let shared = Arena::create(block_size * slots)?;
    let private = vec![0x5a_u8; block_size * blocks];
    let started = Instant::now();
    let mut copied = 0;
    loop {
        // The clock is read once per 64 blocks.
        for _ in 0..64 {
            let from = &black_box(&private)[copied % blocks * block_size..][..block_size];
            // SAFETY: within the arena, which is not accessed otherwise.
            unsafe {
                shared
                    .at(copied % slots * block_size)
                    .copy_from_nonoverlapping(from.as_ptr(), block_size);
            }
            copied += 1;
        }
        let passed = started.elapsed();
        if passed >= time {
            return Ok((copied * block_size) as f64 / passed.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_positive() {
        let rate = bandwidth(4096, 4, 3, Duration::from_millis(1)).expect("memory");
        assert!(rate > 1e6, "{rate}");
        assert!(bandwidth(0, 1, 1, Duration::ZERO).is_err());
    }
}
