//! Hints to the CPU about single cache lines. They have no effect but on time, whatever the address.

/// Bytes of a cache line, as far as hints are concerned.
pub(crate) const LINE: usize = 64;

/// The line at `address` will be read soon.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn to_read(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch follows no pointer as far as the program can see: an address that cannot be read has no effect.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// The line at `address` will be written soon, and is to be this CPU's alone until then.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn to_write(address: *const u8) {
    // Not the intrinsic, which is a prefetch for reading unless the whole program is built for CPUs that have this one. Those that do not
    // have it do nothing (Intel before 2014).
    // SAFETY: as for reading; the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!(
            "prefetchw [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// The line at `address` will be read soon.
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

/// The line at `address` will be written soon, and is to be this CPU's alone until then.
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

/// The line at `address` will be read soon.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn to_read(_address: *const u8) {}

/// The line at `address` will be written soon.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn to_write(_address: *const u8) {}
