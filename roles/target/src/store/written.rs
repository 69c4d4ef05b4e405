//! File-system blocks that were written as a whole.
//!
//! Space that was reserved for a file is not initialised. With direct I/O, a write of a part of a file-system block then
//! makes the file system zero the rest of the block, alone with the file: ext4 does 200 to 350 such writes a second
//! where it does 7,000 writes of the same size to initialised blocks. So the first write of a part of a block is made
//! a write of the block.

use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of blocks with a bit of their own: 8 MiB of bits, for 256 GiB in blocks of 4096 bytes.
const MOST_BITS: u64 = 1 << 26;

/// The blocks of a file that this process has written, shared by all workers.
///
/// It chooses the faster of two correct ways to write, so it may be wrong: it does not know what earlier processes have
/// written, and in large files blocks share bits.
#[derive(Debug)]
pub struct WrittenBlocks {
    /// Size of a block in bytes.
    block: u64,
    /// Empty if no write is smaller than a block.
    bits: Box<[AtomicU64]>,
}

impl WrittenBlocks {
    /// For a file of `length` bytes, written in units of `sector` bytes, on a file system with blocks of `fs_block`
    /// bytes.
    #[must_use]
    pub fn new(length: u64, sector: u64, fs_block: u64) -> Self {
        let blocks = if fs_block > sector {
            length.div_ceil(fs_block).min(MOST_BITS)
        } else {
            0
        };
        Self {
            block: fs_block.max(1),
            bits: (0..blocks.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// Returns `true` if this range should be written as it is: the blocks that it covers in part are written.
    #[inline]
    pub(super) fn permit(&self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        self.bits.is_empty()
            || (offset.is_multiple_of(self.block) || self.is_written(offset / self.block))
                && (end.is_multiple_of(self.block) || self.is_written(end / self.block))
    }

    /// Records a completed write of a range.
    #[inline]
    pub(super) fn record(&self, offset: u64, len: u64) {
        if self.bits.is_empty() {
            return;
        }
        for block in offset.div_ceil(self.block)..(offset + len) / self.block {
            let (word, bit) = self.place(block);
            // The bit is usually set, and then the cache line stays shared.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    fn is_written(&self, block: u64) -> bool {
        let (word, bit) = self.place(block);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn place(&self, block: u64) -> (&AtomicU64, u64) {
        let word = block / 64 % self.bits.len() as u64;
        (&self.bits[word as usize], 1 << (block % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_blocks_are_permitted_once_the_blocks_are_written() {
        let written = WrittenBlocks::new(1 << 20, 512, 4096);
        assert!(written.permit(0, 4096));
        assert!(written.permit(4096, 3 * 4096));
        for (offset, len) in [(0, 512), (512, 3584), (2048, 4096), (4096, 4608)] {
            assert!(!written.permit(offset, len), "{offset} {len}");
        }
        // A part of block 0, block 1, and a part of block 2.
        written.record(512, 3 * 4096 - 1024);
        assert!(written.permit(4096, 512));
        assert!(!written.permit(2048, 4096));
        assert!(!written.permit(4608, 4096));
        written.record(0, 4096);
        assert!(written.permit(2048, 4096));
        assert!(!written.permit(4608, 4096));
    }

    #[test]
    fn blocks_of_a_huge_file_share_bits() {
        let written = WrittenBlocks::new(1 << 50, 512, 4096);
        assert!(!written.permit(512, 512));
        written.record((1 << 50) - 4096, 4096);
        assert!(written.permit((1 << 50) - 512, 512));
        assert!(!written.permit(512, 512));
        written.record(MOST_BITS * 4096, 4096);
        assert!(written.permit(512, 512));
    }

    #[test]
    fn every_write_is_permitted_where_sectors_are_blocks() {
        for sector in [1, 512, 4096] {
            let written = WrittenBlocks::new(1 << 20, sector, sector);
            assert!(written.permit(sector, 7 * sector));
            written.record(0, 1 << 20);
        }
    }
}
