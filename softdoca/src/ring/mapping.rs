//! The shared memory of a ring: the only module with raw pointers into it.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::Corrupt;
use super::kernel::uses_barriers;
use super::layout::{
    CONSUMER_BARRIERS_AT, Geometry, INLINE, MAGIC, MAGIC_AT, SLOTS_AT, UNIT, UNITS_AT,
};
use crate::error::{Error, Result};
use crate::prefetch;
use crate::runtime::sealed_memory_len;

/// The fence between accesses to words: the standard library's.
pub(super) use std::sync::atomic::fence;

/// A word shared by both processes.
pub(super) type Word = AtomicU64;

/// Minimum number of slots, and of units of payload, of a ring: a page of each.
pub(super) const FEWEST_UNITS: u64 = 64;

/// The mapping of a ring. Shared between the threads of a process behind an `Arc`; all words are atomics.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    geometry: Geometry,
    memfd: OwnedFd,
}

// SAFETY: the mapping is plain shared memory for the lifetime of the value; words are accessed as atomics and payload
// bytes only with raw copies, each unit by the endpoint that owns it at that time.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method gives out a reference to payload bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a sealed, zeroed ring.
    pub(super) fn create(geometry: Geometry) -> Result<Self> {
        let memfd = rustix::fs::memfd_create(
            "softdoca-ring",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(|_| Error::NoMemory)?;
        rustix::fs::ftruncate(&memfd, geometry.mapping_len() as u64)
            .map_err(|_| Error::NoMemory)?;
        rustix::fs::fcntl_add_seals(
            &memfd,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )
        .map_err(|_| Error::OperatingSystem)?;
        let mapping = Self::map(memfd, geometry)?;
        for (at, value) in [
            (SLOTS_AT, geometry.slots()),
            (UNITS_AT, geometry.units()),
            (CONSUMER_BARRIERS_AT, u64::from(uses_barriers())),
        ] {
            mapping.word(at).store(value, Ordering::Relaxed);
        }
        mapping.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(mapping)
    }

    /// Maps a ring created by another process, after checking that it is one and cannot shrink.
    pub(super) fn open(memfd: OwnedFd) -> Result<Self> {
        let size = sealed_memory_len(&memfd)?;
        let mut header = [0u8; 24];
        let read = rustix::io::pread(&memfd, &mut header, 0).map_err(|_| Error::InvalidValue)?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        if read != header.len() || word(MAGIC_AT) != MAGIC {
            return Err(Error::NotSupported);
        }
        let geometry = Geometry::from_counts(word(SLOTS_AT), word(UNITS_AT))
            .map_err(|_: Corrupt| Error::InvalidValue)?;
        if size != geometry.mapping_len() as u64 {
            return Err(Error::InvalidValue);
        }
        Self::map(memfd, geometry)
    }

    fn map(memfd: OwnedFd, geometry: Geometry) -> Result<Self> {
        // SAFETY: a fresh mapping at an address chosen by the kernel; it aliases no Rust object.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                geometry.mapping_len(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memfd,
                0,
            )
        }
        .map_err(|_| Error::NoMemory)?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Error::NoMemory)?;
        Ok(Self {
            base,
            geometry,
            memfd,
        })
    }

    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The file descriptor to pass to the producer's process.
    pub(super) fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// The shared word at byte offset `at`, one of the offsets of [`super::layout`].
    #[inline]
    pub(super) fn word(&self, at: usize) -> &Word {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.geometry.mapping_len());
        // SAFETY: `at` is an offset of the layout, 8-byte aligned and inside the mapping, which lives as long as self;
        // every access of any process to this word is atomic.
        unsafe { Word::from_ptr(self.base.as_ptr().add(at).cast::<u64>()) }
    }

    /// Prefetches the slot at `at` for reading.
    #[inline(always)]
    pub(super) fn will_read_slot(&self, at: usize) {
        prefetch::to_read(self.base.as_ptr().wrapping_add(at));
    }

    /// Prefetches the slot at `at` for writing.
    #[inline(always)]
    pub(super) fn will_write_slot(&self, at: usize) {
        prefetch::to_write(self.base.as_ptr().wrapping_add(at));
    }

    /// Writes the inline bytes of the slot at `at`.
    ///
    /// # Safety
    ///
    /// The slot must belong to the caller's end.
    #[inline]
    pub(super) unsafe fn write_slot(&self, at: usize, bytes: &[u8; INLINE]) {
        debug_assert!(at.is_multiple_of(UNIT) && at + UNIT <= self.geometry.mapping_len());
        // SAFETY: the bytes after the descriptor of a slot, inside the mapping, and owned by the caller. Whole words,
        // aligned.
        unsafe {
            let to = self.base.as_ptr().add(at + UNIT - INLINE);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, INLINE);
        }
    }

    /// Reads the inline bytes of the slot at `at`, padded with zeros to 64 bytes.
    #[inline]
    pub(super) fn read_slot(&self, at: usize) -> [u8; UNIT] {
        debug_assert!(at.is_multiple_of(UNIT) && at + UNIT <= self.geometry.mapping_len());
        let mut bytes = [0; UNIT];
        // SAFETY: the bytes after the descriptor of a slot, inside the mapping; a raw copy, as the producer may write them.
        unsafe {
            let from = self.base.as_ptr().add(at + UNIT - INLINE);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), INLINE);
        }
        bytes
    }

    /// Copies `len` private bytes at `src` to the payload area, starting at byte `offset` and wrapping around.
    ///
    /// # Safety
    ///
    /// `src` must be readable for `len` bytes, and the units written must belong to the caller's end.
    pub(super) unsafe fn copy_in(&self, offset: usize, src: *const u8, len: usize) {
        self.split(offset, len, |at, done, part| {
            // SAFETY: `at..at + part` lies in the mapping (see `split`), `src` is readable for `len >= done + part`.
            unsafe {
                std::ptr::copy_nonoverlapping(src.add(done), self.base.as_ptr().add(at), part)
            }
        });
    }

    /// Copies `len` payload bytes, starting at byte `offset` and wrapping around, to private memory at `dst`.
    ///
    /// # Safety
    ///
    /// `dst` must be writable for `len` bytes.
    pub(super) unsafe fn copy_out(&self, offset: usize, dst: *mut u8, len: usize) {
        self.split(offset, len, |at, done, part| {
            // SAFETY: `at..at + part` lies in the mapping (see `split`), `dst` is writable for `len >= done + part`.
            unsafe {
                std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), dst.add(done), part)
            }
        });
    }

    /// Calls `copy(offset in mapping, bytes done, bytes of this part)` for the one or two parts of a wrapping range.
    fn split(&self, offset: usize, len: usize, mut copy: impl FnMut(usize, usize, usize)) {
        let size = self.geometry.payload_len();
        assert!(len <= size, "a fragment is at most a quarter of the ring");
        let offset = offset & (size - 1);
        let first = len.min(size - offset);
        copy(self.geometry.payload_at() + offset, 0, first);
        if first < len {
            copy(self.geometry.payload_at(), first, len - first);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of the mapping created in `map`, and no pointer into it is left. On failure
        // the mapping leaks, which is harmless.
        let _ = unsafe {
            rustix::mm::munmap(
                self.base.as_ptr().cast::<c_void>(),
                self.geometry.mapping_len(),
            )
        };
    }
}
