//! Receives shared by several senders.
//!
//! An instance with one connection counts its receives in that connection's ring. With several connections, any sender
//! may take any receive, so they are counted in memory that the instance shares with all senders:
//!
//! ```text
//!    0  u64 magic, u64 slots
//!   64  u64 receives posted                      written by the receiver
//!  128  u64 receives taken                       written by all senders
//!  192  slots x u64: generation (high half), receives taken by the slot's connection (low half)
//! ```
//!
//! A sender that exits may have taken receives that it never used. Its slot contains the number of receives taken; the
//! receiver knows the number of messages received, and posts the difference again. It also changes the slot's
//! generation, so that a late sender cannot take further receives.
//!
//! A sender on another machine cannot use this memory: [`Grants`] counts the receives announced to it in messages.
//!
//! `pool` is compiled a second time in `tests/model`, over memory instrumented by loom.

mod pool;

pub(super) use pool::{ReceivePool, SharedReceives, Slot};

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::runtime::sealed_memory_len;

impl ReceivePool {
    /// Creates a pool for at most `connections` concurrent senders.
    pub(super) fn new(connections: u16) -> Result<ReceivePool> {
        Ok(Self::over(Mapping::create(connections)?))
    }

    pub(super) fn memfd(&self) -> BorrowedFd<'_> {
        self.mapping().memfd()
    }
}

impl Slot {
    /// Encodes the information that the sender needs in addition to the memory.
    pub(super) fn encode(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.number().to_le_bytes());
        bytes[4..].copy_from_slice(&self.generation().to_le_bytes());
        bytes
    }
}

impl SharedReceives {
    /// Opens a peer's pool from the bytes of [`Slot::encode`].
    pub(super) fn open(memfd: OwnedFd, slot: &[u8]) -> Result<SharedReceives> {
        let invalid = || {
            Error::InvalidValue
                .because("an RDMA peer's agent gave something else than a pool of receives")
        };
        let (Some(number), Some(generation)) = (slot.first_chunk::<4>(), slot.last_chunk::<4>())
        else {
            return Err(invalid());
        };
        let number = u32::from_le_bytes(*number);
        let mapping = Mapping::open(memfd)?.ok_or_else(invalid)?;
        if u64::from(number) >= mapping.slots() {
            return Err(invalid());
        }
        Ok(Self::over(mapping, number, u32::from_le_bytes(*generation)))
    }
}

/// Receives granted to a sender on another machine, to which they are announced in messages.
pub(super) struct Grants {
    /// Receives that have not been announced to the sender yet.
    available: u64,
    /// Receives that the sender may use.
    granted: u64,
    /// The sender has a message and no receive.
    wanted: bool,
    /// The receives that several senders share.
    receives: Option<SharedReceives>,
}

impl Grants {
    /// For a sender to which `granted` receives have been announced.
    pub(super) fn new(granted: u64, receives: Option<SharedReceives>) -> Grants {
        Grants {
            available: 0,
            granted,
            wanted: false,
            receives,
        }
    }

    pub(super) fn post(&mut self, count: u64) {
        self.available += count;
    }

    /// Records that the sender waits for a receive.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Number of receives to announce to the sender now. While messages are being received (`goes_on`), receives are
    /// announced only when the sender may have used half of those it has.
    pub(super) fn take(&mut self, goes_on: bool) -> Option<u32> {
        let count = match &self.receives {
            None if self.available > 0 && (self.available >= self.granted || !goes_on) => {
                std::mem::take(&mut self.available)
            }
            None => return None,
            // Only for a waiting message, because a receive granted to one sender is not available to the others.
            Some(receives) if self.wanted && receives.take() => {
                self.wanted = false;
                1
            }
            Some(_) => return None,
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.granted += u64::from(count);
        Some(count)
    }

    /// Returns `true` if the sender may send a message.
    pub(super) fn has_receive(&self) -> bool {
        self.granted > 0
    }

    /// Subtracts a receive used by a message.
    pub(super) fn use_one(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }
}

/// A word accessed by all processes.
type Word = AtomicU64;

/// "SDRECV" and the version of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"SDRECV\0\x01");
const MAGIC_AT: usize = 0;
const SLOTS_AT: usize = 8;
const POSTED_AT: usize = 64;
const TAKEN_AT: usize = 128;
const FIRST_SLOT_AT: usize = 192;
/// Maximum number of connections of an instance.
const MAX_SLOTS: u64 = u16::MAX as u64;

#[derive(Debug)]
struct Mapping {
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
    fn create(slots: u16) -> Result<Mapping> {
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
    fn open(memfd: OwnedFd) -> Result<Option<Mapping>> {
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
        // SAFETY: one of the layout's offsets: aligned and inside the mapping, which exists as long as self; all
        // processes access it as an atomic.
        unsafe { Word::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Descriptor for senders.
    fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    fn slots(&self) -> u64 {
        self.slots
    }

    /// Number of receives posted.
    fn posted(&self) -> &Word {
        self.word(POSTED_AT)
    }

    /// Number of receives taken.
    fn taken(&self) -> &Word {
        self.word(TAKEN_AT)
    }

    /// Word of a connection's slot, which must exist.
    fn slot(&self, slot: u32) -> &Word {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn open(slot: &Slot) -> SharedReceives {
        let memfd = slot
            .pool()
            .memfd()
            .try_clone_to_owned()
            .expect("a descriptor");
        SharedReceives::open(memfd, &slot.encode()).expect("a pool")
    }

    fn pool(connections: u16) -> Arc<ReceivePool> {
        Arc::new(ReceivePool::new(connections).expect("a pool"))
    }

    #[test]
    fn each_receive_is_taken_once() {
        let pool = pool(3);
        let slots: Vec<_> = (0..3).map(|_| pool.slot().expect("a slot")).collect();
        let taken: u64 = std::thread::scope(|scope| {
            let senders: Vec<_> = slots
                .iter()
                .map(|slot| {
                    let sender = open(slot);
                    scope.spawn(move || {
                        let mut taken = 0;
                        let end = std::time::Instant::now() + std::time::Duration::from_millis(100);
                        while std::time::Instant::now() < end {
                            taken += u64::from(sender.take());
                        }
                        taken
                    })
                })
                .collect();
            for _ in 0..10_000 {
                pool.post(3);
            }
            senders
                .into_iter()
                .map(|sender| sender.join().expect("a sender"))
                .sum()
        });
        let left = std::iter::from_fn(|| open(&slots[0]).take().then_some(())).count();
        assert_eq!(taken + left as u64, 30_000);
    }

    #[test]
    fn receives_of_a_dead_sender_are_returned_and_it_takes_no_more() {
        let pool = pool(2);
        let (mut dying, other) = (pool.slot().expect("a slot"), pool.slot().expect("a slot"));
        assert_eq!(pool.slot().expect_err("two slots"), Error::Full);
        let (dead, alive) = (open(&dying), open(&other));
        pool.post(3);
        assert!(dead.take() && dead.take() && dead.take() && !dead.take() && !alive.take());
        dying.count_message();
        drop(dying);
        assert!(!dead.take(), "it comes too late");
        assert!(
            alive.take() && alive.take() && !alive.take(),
            "two were unused"
        );
        // The next sender in the same slot starts with new counts.
        let next = pool.slot().expect("a slot");
        pool.post(1);
        assert!(!dead.take() && open(&next).take());
    }

    #[test]
    fn foreign_memory_is_refused() {
        let memfd = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).expect("a memfd");
        rustix::fs::ftruncate(&memfd, 4096).expect("a size");
        assert!(SharedReceives::open(memfd, &[0; 8]).is_err());
        let pool = pool(2);
        let slot = pool.slot().expect("a slot");
        let memfd = || pool.memfd().try_clone_to_owned().expect("a descriptor");
        let mut beyond = slot.encode();
        beyond[0] = 2;
        for bytes in [&beyond[..], &[], &[0; 3]] {
            assert_eq!(
                SharedReceives::open(memfd(), bytes).expect_err("no slot"),
                Error::InvalidValue
            );
        }
    }
}
