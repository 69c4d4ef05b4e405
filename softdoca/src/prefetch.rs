//! Prefetch hints for single cache lines. They affect only timing, for any address.

/// Assumed size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Prefetches the line at `address` for reading.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn to_read(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch does not access memory architecturally; an invalid address has no effect.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Prefetches the line at `address` for writing, exclusively to this CPU.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn to_write(address: *const u8) {
    // Not the intrinsic, which prefetches for reading unless the whole program is compiled for CPUs with `prefetchw`.
    // On CPUs without it (Intel before 2014) the instruction has no effect.
    // SAFETY: as for reading; the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!(
            "prefetchw [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// Prefetches the line at `address` for reading.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn to_read(address: *const u8) {
    // SAFETY: as on x86-64; the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// Prefetches the line at `address` for writing, exclusively to this CPU.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn to_write(address: *const u8) {
    // SAFETY: as for reading.
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// No effect on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn to_read(_address: *const u8) {}

/// No effect on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn to_write(_address: *const u8) {}
