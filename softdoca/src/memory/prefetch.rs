//! Hints to the CPU about memory that will be copied soon.

use super::mmap::Mmap;

/// Bytes of a cache line.
const LINE: usize = 64;
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
            prefetch_line(start.wrapping_add(offset));
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch follows no pointer as far as the program can see: an address that cannot be read has no effect.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    // SAFETY: as on x86-64; the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn prefetch_line(_address: *const u8) {}
