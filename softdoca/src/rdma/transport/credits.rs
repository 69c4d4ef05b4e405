//! Receives that several senders share.
//!
//! An instance with one connection counts its receives in that connection's ring. With several connections any sender may
//! take any receive, so they are counted in memory that the instance shares with all of them:
//!
//! ```text
//!    0  u64 magic, u64 slots
//!   64  u64 receives posted                      written by the receiver
//!  128  u64 receives taken                       written by all senders
//!  192  slots x u64: generation (high half), receives taken by the slot's connection (low half)
//! ```
//!
//! A sender that dies may have taken receives that it never used. Its slot says how many it took, the receiver knows how
//! many messages came, and posts the difference again. A slot's generation changes then, so that a late sender
//! cannot take any more.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};

/// "SDRECV" and the version of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"SDRECV\0\x01");
const MAGIC_AT: usize = 0;
const SLOTS_AT: usize = 8;
const POSTED_AT: usize = 64;
const TAKEN_AT: usize = 128;
const FIRST_SLOT_AT: usize = 192;
/// An instance has at most as many connections.
const MAX_SLOTS: u64 = u16::MAX as u64;

/// The shared memory.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    slots: u64,
}

// SAFETY: plain shared memory that is only accessed through atomics, for as long as the value lives.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn len(slots: u64) -> usize {
        (FIRST_SLOT_AT + slots as usize * 8).next_multiple_of(4096)
    }

    fn map(memfd: &OwnedFd, slots: u64) -> Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                Mapping::len(slots),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memfd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Error::NoMemory)?;
        Ok(Mapping { base, slots })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= Mapping::len(self.slots));
        // SAFETY: one of the offsets of the layout: aligned and inside the mapping, which lives as long as self; all
        // processes access it as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn slot(&self, slot: u32) -> &AtomicU64 {
        self.word(FIRST_SLOT_AT + slot as usize * 8)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length. A failure would leave the mapping in place, which harms nobody.
        let _ = unsafe {
            rustix::mm::munmap(
                self.base.as_ptr().cast::<c_void>(),
                Mapping::len(self.slots),
            )
        };
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(super) struct ReceivePool {
    mapping: Mapping,
    memfd: OwnedFd,
    /// Which slots have a connection.
    used: Mutex<Vec<bool>>,
}

impl ReceivePool {
    /// A pool for at most `connections` senders at a time.
    pub(super) fn new(connections: u16) -> Result<ReceivePool> {
        let slots = u64::from(connections);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("softdoca-receives", flags)?;
        rustix::fs::ftruncate(&memfd, Mapping::len(slots) as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memfd, seals)?;
        let mapping = Mapping::map(&memfd, slots)?;
        mapping.word(SLOTS_AT).store(slots, Ordering::Relaxed);
        mapping.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        let used = Mutex::new(vec![false; usize::from(connections)]);
        Ok(ReceivePool {
            mapping,
            memfd,
            used,
        })
    }

    pub(super) fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// A slot for a new connection.
    ///
    /// # Errors
    /// [`Error::Full`] when there are as many as the pool was made for.
    pub(super) fn slot(self: &Arc<Self>) -> Result<Slot> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let number = used.iter().position(|used| !used).ok_or(Error::Full)?;
        used[number] = true;
        // There are at most 65535.
        let number = number as u32;
        let word = self.mapping.slot(number).load(Ordering::Relaxed);
        Ok(Slot {
            pool: Arc::clone(self),
            number,
            generation: (word >> 32) as u32,
            received: 0,
        })
    }

    /// Lets the senders take `count` more receives.
    pub(super) fn post(&self, count: u64) {
        self.mapping
            .word(POSTED_AT)
            .fetch_add(count, Ordering::Release);
    }
}

/// One connection's slot in the pool of its instance; free again when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pool: Arc<ReceivePool>,
    number: u32,
    generation: u32,
    /// Messages that have come.
    received: u32,
}

impl Slot {
    pub(super) fn pool(&self) -> &ReceivePool {
        &self.pool
    }

    /// What the sender has to know, with the memory.
    pub(super) fn encode(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// A message has come.
    pub(super) fn count_message(&mut self) {
        self.received = self.received.wrapping_add(1);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = u64::from(self.generation.wrapping_add(1)) << 32;
        let word = self
            .pool
            .mapping
            .slot(self.number)
            .swap(next, Ordering::AcqRel);
        let unused = (word as u32).wrapping_sub(self.received);
        // A faulty sender can write anything here, but not take more than there is: more is not given back.
        if (word >> 32) as u32 == self.generation && i32::try_from(unused).is_ok() {
            self.pool.post(u64::from(unused));
        }
        let mut used = self
            .pool
            .used
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        used[self.number as usize] = false;
    }
}

/// A sender's side.
#[derive(Debug)]
pub(super) struct SharedReceives {
    mapping: Mapping,
    slot: u32,
    generation: u32,
}

impl SharedReceives {
    /// Opens the pool of a peer with what [`Slot::encode`] made.
    pub(super) fn open(memfd: &OwnedFd, slot: &[u8]) -> Result<SharedReceives> {
        let invalid = || {
            Error::InvalidValue
                .because("an RDMA peer's agent gave something else than a pool of receives")
        };
        let seals = rustix::fs::fcntl_get_seals(memfd).map_err(|_| invalid())?;
        let mut header = [0; 16];
        let read = rustix::io::pread(memfd, &mut header, 0).map_err(|_| invalid())?;
        let [magic, slots] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        let size = rustix::fs::fstat(memfd).map_err(|_| invalid())?.st_size;
        let (Some(number), Some(generation)) = (slot.first_chunk::<4>(), slot.last_chunk::<4>())
        else {
            return Err(invalid());
        };
        let number = u32::from_le_bytes(*number);
        let sound = seals.contains(SealFlags::SHRINK)
            && read == header.len()
            && magic == MAGIC
            && slots <= MAX_SLOTS
            && size == Mapping::len(slots) as i64
            && u64::from(number) < slots;
        if !sound {
            return Err(invalid());
        }
        Ok(SharedReceives {
            mapping: Mapping::map(memfd, slots)?,
            slot: number,
            generation: u32::from_le_bytes(*generation),
        })
    }

    /// Takes one receive, if there is one.
    pub(super) fn take(&self) -> bool {
        // Counted in the slot first: a receive that is counted twice is given back, one that is not would be lost.
        if self.available() == 0 || !self.count(1) {
            return false;
        }
        let taken = self.mapping.word(TAKEN_AT);
        while self.available() != 0 {
            let seen = taken.load(Ordering::Relaxed);
            let posted = self.mapping.word(POSTED_AT).load(Ordering::Acquire);
            if posted != seen
                && taken
                    .compare_exchange_weak(
                        seen,
                        seen.wrapping_add(1),
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return true;
            }
        }
        self.count(u32::MAX);
        false
    }

    /// Receives that nobody has taken. A count that runs backwards is none.
    fn available(&self) -> u64 {
        let taken = self.mapping.word(TAKEN_AT).load(Ordering::Relaxed);
        let posted = self.mapping.word(POSTED_AT).load(Ordering::Acquire);
        let available = posted.wrapping_sub(taken);
        if i64::try_from(available).is_ok() {
            available
        } else {
            0
        }
    }

    /// Adds to the slot's count, wrapping. False when the connection has ended.
    fn count(&self, change: u32) -> bool {
        let slot = self.mapping.slot(self.slot);
        slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            let (generation, count) = ((word >> 32) as u32, word as u32);
            (generation == self.generation)
                .then(|| u64::from(generation) << 32 | u64::from(count.wrapping_add(change)))
        })
        .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(slot: &Slot) -> SharedReceives {
        let memfd = slot
            .pool()
            .memfd()
            .try_clone_to_owned()
            .expect("a descriptor");
        SharedReceives::open(&memfd, &slot.encode()).expect("a pool")
    }

    fn pool(connections: u16) -> Arc<ReceivePool> {
        Arc::new(ReceivePool::new(connections).expect("a pool"))
    }

    #[test]
    fn each_receive_is_taken_once_by_whoever_comes_first() {
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
    fn receives_of_a_dead_sender_are_given_back_and_it_takes_no_more() {
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
        // The next one in the same slot begins anew.
        let next = pool.slot().expect("a slot");
        pool.post(1);
        assert!(!dead.take() && open(&next).take());
    }

    #[test]
    fn foreign_memory_is_refused() {
        let memfd = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).expect("a memfd");
        rustix::fs::ftruncate(&memfd, 4096).expect("a size");
        assert!(SharedReceives::open(&memfd, &[0; 8]).is_err());
        let pool = pool(2);
        let slot = pool.slot().expect("a slot");
        let memfd = pool.memfd().try_clone_to_owned().expect("a descriptor");
        let mut beyond = slot.encode();
        beyond[0] = 2;
        for bytes in [&beyond[..], &[], &[0; 3]] {
            assert_eq!(
                SharedReceives::open(&memfd, bytes).expect_err("no slot"),
                Error::InvalidValue
            );
        }
    }
}
