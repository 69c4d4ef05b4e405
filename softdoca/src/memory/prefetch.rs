//! Hints to the CPU about memory that will be copied soon.

use super::mmap::Mmap;
use crate::prefetch::{self, LINE};

/// Most lines that are asked for. The hardware's own prefetchers follow once a copy has begun; it is their start that a copy waits
/// for, and more lines would keep the CPU from other loads meanwhile (measured: 16 are not better than 8, and 64 are worse than none).
const LINES: usize = 8;

impl Mmap {
    /// Tells the CPU that the `len` bytes at `addr` will be read soon. A hint: nothing happens for memory that is not mapped here.
    #[inline]
    pub fn prefetch(&self, addr: u64, len: usize) {
        let len = len.min(LINES * LINE);
        let Some(start) = self.local_ptr(addr, len as u64) else {
            return;
        };
        for offset in (0..len).step_by(LINE) {
            prefetch::to_read(start.wrapping_add(offset));
        }
    }
}
