//! Shared memory of the receive counters.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::runtime::sealed_memory_len;

/// A word accessed by all processes.
pub(super) type Word = AtomicU64;

/// "SDRECV" and the version of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"SDRECV\0\x01");
const MAGIC_AT: usize = 0;
const SLOTS_AT: usize = 8;
const POSTED_AT: usize = 64;
const TAKEN_AT: usize = 128;
const FIRST_SLOT_AT: usize = 192;
/// Maximum number of connections of an instance.
const MAX_SLOTS: u64 = u16::MAX as u64;

/// The shared memory, mapped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    slots: u64,
    memfd: OwnedFd,
}

// SAFETY: plain shared memory that is only accessed through atomics, for as long as the value lives.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates sealed, zeroed memory with this many slots.
    pub(super) fn create(slots: u16) -> Result<Mapping> {
        let slots = u64::from(slots);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("softdoca-receives", flags)?;
        rustix::fs::ftruncate(&memfd, Mapping::len(slots) as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memfd, seals)?;
        let mapping = Mapping::map(memfd, slots)?;
        mapping.word(SLOTS_AT).store(slots, Ordering::Relaxed);
        mapping.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(mapping)
    }

    /// Maps memory that another process created, after checking that it is valid and cannot shrink; `None` otherwise.
    pub(super) fn open(memfd: OwnedFd) -> Result<Option<Mapping>> {
        let Ok(size) = sealed_memory_len(&memfd) else {
            return Ok(None);
        };
        let mut header = [0; 16];
        let read = rustix::io::pread(&memfd, &mut header, 0).unwrap_or(0);
        let [magic, slots] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        let sound = read == header.len()
            && magic == MAGIC
            && slots <= MAX_SLOTS
            && size == Mapping::len(slots) as u64;
        sound.then(|| Mapping::map(memfd, slots)).transpose()
    }

    fn len(slots: u64) -> usize {
        (FIRST_SLOT_AT + slots as usize * 8).next_multiple_of(4096)
    }

    fn map(memfd: OwnedFd, slots: u64) -> Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                Mapping::len(slots),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memfd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Error::NoMemory)?;
        Ok(Mapping { base, slots, memfd })
    }

    fn word(&self, at: usize) -> &Word {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= Mapping::len(self.slots));
        // SAFETY: one of the layout's offsets: aligned and inside the mapping, which lives as long as self; all
        // processes access it as an atomic.
        unsafe { Word::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Descriptor for senders.
    pub(super) fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Number of receives posted.
    pub(super) fn posted(&self) -> &Word {
        self.word(POSTED_AT)
    }

    /// Number of receives taken.
    pub(super) fn taken(&self) -> &Word {
        self.word(TAKEN_AT)
    }

    /// Word of a connection's slot, which must exist.
    pub(super) fn slot(&self, slot: u32) -> &Word {
        self.word(FIRST_SLOT_AT + slot as usize * 8)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length. A failure would leave the mapping in place, which is harmless.
        let _ = unsafe {
            rustix::mm::munmap(
                self.base.as_ptr().cast::<c_void>(),
                Mapping::len(self.slots),
            )
        };
    }
}
