//! Hints to the CPU about what will be needed soon.

/// Brings the cache line that something begins in closer, when there is time. A hint: any address will do, and nothing is read as far as
/// the program can tell.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch_line<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction changes no register and no memory, and has no effect for an address that cannot be read.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn prefetch_line<T>(address: *const T) {
    // SAFETY: as on x86-64.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn prefetch_line<T>(_address: *const T) {}
