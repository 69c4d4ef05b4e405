//! Copies between private memory and memory that devices, other processes and other threads access concurrently.
//!
//! In Rust's memory model, an ordinary copy of such memory is a data race, regardless of the hardware. Therefore each
//! byte of it is accessed atomically, with relaxed ordering. Blocks are copied by inline assembly, which is opaque to
//! the compiler and as fast as `memcpy` in the most relevant case, data in the cache of another core. Words of eight
//! bytes are not an alternative: accesses of different sizes to the same bytes are also a race, and half as fast.
//!
//! The C library's `memcpy` is not an alternative for large pieces, either: it uses `rep movsb`, which is 15 to 25
//! times slower on AMD's Zen 3 and Zen 4 if the page offset of the destination is up to 63 bytes higher than that of
//! the source. That is common here: `malloc` places large buffers 16 bytes after the start of a page, and regions start
//! at the start of a page.
//!
//! This file depends only on the standard library: `tests/races` also compiles it for ThreadSanitizer.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Memory that devices, other processes and other threads access concurrently.
#[derive(Debug)]
pub(crate) struct SharedBytes {
    start: NonNull<u8>,
    len: usize,
}

/// A range is not inside the memory; nothing was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

// SAFETY: the bytes are accessed by atomic copies through raw pointers only; no thread holds a reference to them.
unsafe impl Send for SharedBytes {}
// SAFETY: see above. Two threads that copy to overlapping ranges at once leave a mixture of their bytes, as if the
// other writer were a device: the accesses are atomic, and bytes have no invalid bit patterns.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// The `len` bytes starting at `start`.
    ///
    /// # Safety
    ///
    /// They can be read and written as long as this value exists, and all other accesses to them are atomic, as far as the language
    /// knows of them.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes at `offset` to `into`.
    #[inline]
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Outside> {
        let from = self.range(offset, into.len())?;
        // SAFETY: `range` checked that the bytes are inside the memory; `into` is borrowed exclusively and does not
        // overlap it, as there are no references into the memory, whose bytes are accessed atomically.
        unsafe { load(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Outside> {
        let to = self.range(offset, bytes.len())?;
        // SAFETY: as in `read`, with the roles exchanged.
        unsafe { store(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Sets `len` bytes at `offset` to `value`.
    pub(crate) fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), Outside> {
        self.range(offset, len)?;
        let bytes = [value; PIECE];
        pieces(len).try_for_each(|(done, piece)| self.write(offset + done, &bytes[..piece]))
    }

    /// Copies `len` bytes from `source_offset` of `source` to `offset`. The ranges may overlap.
    pub(crate) fn copy_from(
        &self,
        offset: usize,
        source: &Self,
        source_offset: usize,
        len: usize,
    ) -> Result<(), Outside> {
        let (from, to) = (source.range(source_offset, len)?, self.range(offset, len)?);
        let mut bytes = [0; PIECE];
        let mut copy = |(done, piece)| {
            let bytes = &mut bytes[..piece];
            source.read(source_offset + done, bytes)?;
            self.write(offset + done, bytes)
        };
        // If the ranges overlap, bytes must be copied before they are overwritten.
        if to <= from {
            pieces(len).try_for_each(copy)
        } else {
            pieces(len)
                .rev()
                .try_for_each(|piece: (usize, usize)| copy(piece))
        }
    }

    #[inline]
    fn range(&self, offset: usize, len: usize) -> Result<*mut u8, Outside> {
        match offset.checked_add(len) {
            // SAFETY: `offset` is at most the length of the memory.
            Some(end) if end <= self.len => Ok(unsafe { self.start.as_ptr().add(offset) }),
            _ => Err(Outside { offset, len }),
        }
    }
}

/// Bytes staged on the stack at a time.
pub(crate) const PIECE: usize = 1024;

/// Offsets and lengths of the pieces of `len` bytes.
fn pieces(len: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    (0..len.div_ceil(PIECE)).map(move |number| (number * PIECE, PIECE.min(len - number * PIECE)))
}

/// Copies from shared memory.
///
/// # Safety
///
/// `from` can be read and `to` written for `len` bytes, which do not overlap; those at `to` are used by nothing else. All other accesses to
/// those at `from` meanwhile are atomic, as far as the language knows of them.
#[inline]
pub(crate) unsafe fn load(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: guaranteed by the caller.
    let done = unsafe { move_blocks(from, to, len) };
    if done < len {
        // SAFETY: the rest of the guarantee of the caller.
        unsafe { load_bytes(from.add(done), to.add(done), len - done) };
    }
}

/// Copies to shared memory.
///
/// # Safety
///
/// As for [`load`], with the roles exchanged.
#[inline]
pub(crate) unsafe fn store(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: guaranteed by the caller.
    let done = unsafe { move_blocks(from, to, len) };
    if done < len {
        // SAFETY: the rest of the guarantee of the caller.
        unsafe { store_bytes(from.add(done), to.add(done), len - done) };
    }
}

/// Copies the bytes up to the last multiple of 16. Returns their number. For the language, it copies byte by byte, with
/// relaxed atomic loads and stores.
///
/// # Safety
///
/// `from` can be read and `to` written for `len` bytes, which do not overlap; all other accesses to them meanwhile are
/// atomic.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_blocks(from: *const u8, to: *mut u8, len: usize) -> usize {
    use std::arch::asm;
    const LONG: usize = 64;
    const SHORT: usize = 16;
    let wide = if len >= WIDE_FROM && is_x86_feature_detected!("avx") {
        // SAFETY: guaranteed by the caller, and the CPU has AVX.
        unsafe { move_wide_blocks(from, to, len) }
    } else {
        0
    };
    let (long, all) = (len - (len - wide) % LONG, len - len % SHORT);
    if long != wide {
        // SAFETY: reads and writes from `wide` to `long`, at least one block; the registers are declared. The loads of
        // a block precede its stores, which is one of the orders that relaxed accesses may have.
        unsafe {
            asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + 32], {c}",
                "movdqu [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "sub {left}, 64",
                "jnz 2b",
                from = inout(reg) from.add(wide) => _,
                to = inout(reg) to.add(wide) => _,
                left = inout(reg) long - wide => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    for done in (long..all).step_by(SHORT) {
        // SAFETY: the 16 bytes end within the `len` of the guarantee of the caller.
        unsafe {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu [{to}], {a}",
                from = in(reg) from.add(done),
                to = in(reg) to.add(done),
                a = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
    all
}

/// Shorter copies do not gain from a second loop.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WIDE_FROM: usize = 256;

/// Copies the bytes up to the last multiple of 128, like [`move_blocks`]. Returns their number. Wider loads keep more
/// cache lines from another core in flight.
///
/// # Safety
///
/// As for [`move_blocks`], `len` is at least 128, and the CPU has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_wide_blocks(from: *const u8, to: *mut u8, len: usize) -> usize {
    const WIDE: usize = 128;
    let wide = len - len % WIDE;
    // SAFETY: reads and writes the first `wide` bytes, at least one block; the registers are declared; all vector
    // registers are clobbered, as their upper halves are zeroed at the end.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "vmovdqu ymm2, [rsi + 64]",
            "vmovdqu ymm3, [rsi + 96]",
            "vmovdqu [rdi], ymm0",
            "vmovdqu [rdi + 32], ymm1",
            "vmovdqu [rdi + 64], ymm2",
            "vmovdqu [rdi + 96], ymm3",
            "sub rsi, -128",
            "sub rdi, -128",
            "sub rdx, 128",
            "jnz 2b",
            "vzeroupper",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rdx") wide => _,
            clobber_abi("C"),
            options(nostack),
        );
    }
    wide
}

/// As in the version for x86-64.
///
/// # Safety
///
/// As on x86-64.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
unsafe fn move_blocks(from: *const u8, to: *mut u8, len: usize) -> usize {
    use std::arch::asm;
    const BLOCK: usize = 16;
    let all = len - len % BLOCK;
    if all != 0 {
        // SAFETY: reads and writes the first `all` bytes, at least one block; the registers are declared.
        unsafe {
            asm!(
                "2:",
                "ldr {block:q}, [{from}], #16",
                "subs {left}, {left}, #16",
                "str {block:q}, [{to}], #16",
                "b.ne 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                left = inout(reg) all => _,
                block = out(vreg) _,
                options(nostack),
            );
        }
    }
    all
}

/// Moves no bytes, because the processor has no such instructions: the caller copies all of them individually.
///
/// # Safety
///
/// Safe for any arguments; `unsafe` only to match the other implementations.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[inline(always)]
unsafe fn move_blocks(_from: *const u8, _to: *mut u8, _len: usize) -> usize {
    0
}

/// # Safety
///
/// As for [`load`].
unsafe fn load_bytes(from: *const u8, to: *mut u8, len: usize) {
    for at in 0..len {
        // SAFETY: one of the `len` bytes; the other accesses to it are atomic.
        let value = unsafe { AtomicU8::from_ptr(from.cast_mut().add(at)) }.load(Relaxed);
        // SAFETY: one of the `len` bytes, which the caller owns.
        unsafe { to.add(at).write(value) };
    }
}

/// # Safety
///
/// As for [`store`].
unsafe fn store_bytes(from: *const u8, to: *mut u8, len: usize) {
    for at in 0..len {
        // SAFETY: one of the `len` bytes that the caller can read.
        let value = unsafe { from.add(at).read() };
        // SAFETY: one of the `len` bytes; the other accesses to it are atomic.
        unsafe { AtomicU8::from_ptr(to.add(at)) }.store(value, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies by blocks, and only by bytes.
    #[test]
    fn all_bytes_and_no_others_arrive() {
        type Copy = unsafe fn(*const u8, *mut u8, usize);
        let copies: [Copy; 4] = [load, store, load_bytes, store_bytes];
        let source: Vec<u8> = (0..400).map(|at| (at % 251) as u8 + 1).collect();
        for (number, copy) in copies.into_iter().enumerate() {
            for (from, to) in (0..17).flat_map(|from| (0..17).map(move |to| (from, to))) {
                for len in (0..40).chain([63, 64, 65, 127, 128, 200, 255, 256, 300, 380]) {
                    let mut room = vec![0; 400];
                    // SAFETY: both are longer than 17 + 380 bytes.
                    unsafe { copy(source.as_ptr().add(from), room.as_mut_ptr().add(to), len) };
                    assert_eq!(
                        room[to..to + len],
                        source[from..from + len],
                        "{number}: {len} bytes from {from} to {to}"
                    );
                    let others = room[..to].iter().chain(&room[to + len..]);
                    assert!(others.into_iter().all(|byte| *byte == 0), "{number}");
                }
            }
        }
    }
}
