//! Prefetch of memory that will be copied soon.

use super::mmap::Mmap;
use crate::prefetch::{self, LINE};

/// Maximum number of lines to prefetch. The hardware's prefetchers continue once a copy has begun; only their start is
/// slow, and more lines delay other loads (measured: 16 are not better than 8, and 64 are worse than none).
const LINES: usize = 8;

impl Mmap {
    /// Prefetches the `len` bytes at `addr`. A hint: no effect on memory that is not mapped here.
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
