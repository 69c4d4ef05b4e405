//! Copies that avoid a slow case of `rep movsb`.

use super::mmap::Mmap;
use crate::prefetch::LINE;

/// C libraries use `rep movsb` for copies of at least this length only.
const LONG: usize = 2048;
/// Long copies are cut into pieces of this length.
const PIECE: usize = 1024;
/// A page, to which addresses are compared by the CPUs concerned.
const PAGE: usize = 4096;

/// As [`std::ptr::copy`], for bytes. The ranges may overlap.
///
/// The C library copies more than 2 to 4 KiB with `rep movsb`. AMD's Zen 3 and Zen 4 do that 15 to 25 times slower if
/// the destination starts up to 63 bytes after the source, modulo the page size, as is the case for a page copied to
/// any large buffer from `malloc`. (glibc 2.39 avoids it; Debian 12 and Ubuntu 22.04 are older.) Pieces are copied
/// with loads and stores, at full speed.
///
/// # Safety
///
/// `from` must be valid for reading and `to` for writing `len` bytes.
#[inline]
pub(super) unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    if len < LONG || !is_slow(from.addr(), to.addr(), len) {
        // SAFETY: the caller's guarantee.
        unsafe { std::ptr::copy(from, to, len) };
        return;
    }
    for done in (0..len).step_by(PIECE) {
        let piece = PIECE.min(len - done);
        // SAFETY: the piece ends within the `len` bytes, and `is_slow` holds for ranges that do not overlap only.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), piece) };
    }
}

/// Returns `true` if `rep movsb` may be slow for these ranges. Overlapping ranges are copied without it.
#[inline]
fn is_slow(from: usize, to: usize, len: usize) -> bool {
    let behind = to.wrapping_sub(from) % PAGE;
    (1..64).contains(&behind) && from.abs_diff(to) >= len
}

// Prefetch of memory that will be copied soon.

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
            crate::prefetch::to_read(start.wrapping_add(offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 5 * PAGE;

    #[test]
    fn all_bytes_are_moved_for_any_ranges() {
        let original: Vec<u8> = (0..ROOM).map(|at| (at % 251) as u8).collect();
        for len in [
            0,
            1,
            LONG - 1,
            LONG,
            LONG + 1,
            PAGE - 1,
            PAGE,
            PAGE + PIECE / 2,
        ] {
            for (from, to) in [
                (0, 2 * PAGE),
                (0, 2 * PAGE + 1),
                (0, 2 * PAGE + 63),
                (0, 2 * PAGE + 64),
                (2 * PAGE, 16),
                (2 * PAGE, 0),
                // Overlapping, either way.
                (0, 16),
                (16, 0),
                (0, PIECE),
                (7, 7),
            ] {
                let mut bytes = original.clone();
                let start = bytes.as_mut_ptr();
                // SAFETY: both ranges lie in the vector.
                unsafe { move_bytes(start.add(from), start.add(to), len) };
                let mut expected = original.clone();
                expected.copy_within(from..from + len, to);
                assert!(bytes == expected, "{len} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn slow_destinations_are_those_just_behind_in_their_page() {
        for (to, slow) in [
            (0, false),
            (1, true),
            (16, true),
            (63, true),
            (64, false),
            (PAGE - 16, false),
        ] {
            assert_eq!(is_slow(8 * PAGE, 16 * PAGE + to, PAGE), slow, "{to}");
            assert_eq!(is_slow(16 * PAGE, 8 * PAGE + to, PAGE), slow, "{to}");
        }
        assert!(!is_slow(0, 16, PAGE), "they overlap");
        assert!(!is_slow(PAGE, 16, PAGE), "they overlap by 16 bytes");
    }
}
