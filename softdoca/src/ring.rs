//! Single-producer, single-consumer message rings in shared memory.
//!
//! A ring carries messages of up to a few megabytes from one process to another without a system call while both sides
//! are awake. The consumer creates the ring (a memfd, sealed so that it cannot shrink under a reader) and passes it to
//! the producer together with an eventfd that wakes the consumer.
//!
//! * [`layout`] defines the layout of the shared memory and the format of descriptors.
//! * [`endpoints`] contains the producer and the consumer, the doorbells that wake them, and the lock with which
//!   several producers of a process send into one ring.
//! * This file owns the shared memory ([`Mapping`], the only code with raw pointers into it), and contains the system
//!   calls: eventfds, and barriers in other threads.
//!
//! The files `layout` and `endpoints` are also compiled in `tests/model`, with loom's memory and a model of the kernel: of
//! the standard library's atomics they use only [`Ordering`] and compiler fences.
//!
//! # Trust
//!
//! The other endpoint is another process and may write anything at any time. Words are atomics, payloads are copied
//! with raw copies, every index is masked into the ring, and an invalid descriptor is reported as [`Corrupt`] instead
//! of being followed.

mod endpoints;
mod layout;

pub(crate) use endpoints::{BiasedLock, Message, RingConsumer, RingProducer, barrier_before_sleep};
pub(crate) use layout::Geometry;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};
use std::thread::yield_now;

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::error::{Error, Result};
use crate::memory::{prefetch_to_read, prefetch_to_write};
use crate::runtime::{is_eventfd, sealed_memory_len};
use layout::{CONSUMER_BARRIERS_AT, INLINE, MAGIC, MAGIC_AT, SLOTS_AT, UNIT, UNITS_AT};

/// The peer wrote data into the ring that violates the protocol; the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the shared ring holds {found}, expected {expected}: the peer is faulty or of another version"
)]
pub(crate) struct Corrupt {
    pub expected: &'static str,
    pub found: u64,
}

impl RingConsumer {
    pub(crate) fn create(geometry: Geometry) -> Result<Self> {
        Ok(Self::over(Arc::new(Mapping::create(geometry)?)))
    }

    /// The file descriptor to pass to the producer.
    pub(crate) fn memfd(&self) -> BorrowedFd<'_> {
        self.mapping().memfd()
    }

    /// Sets the eventfd that wakes the producer.
    pub(crate) fn set_producer(&mut self, wake: OwnedFd) -> Result<()> {
        self.attach(EventFd::from_peer(wake)?);
        Ok(())
    }
}

impl RingProducer {
    /// Opens the ring that a peer created; `wake` is the eventfd of the peer's progress engine.
    pub(crate) fn open(memfd: OwnedFd, wake: EventFd) -> Result<Self> {
        Ok(Self::over(Arc::new(Mapping::open(memfd)?), wake))
    }
}

/// A word shared by both processes.
type Word = AtomicU64;

/// Minimum number of slots, and of units of payload, of a ring: a page of each.
const FEWEST_UNITS: u64 = 64;

/// The mapping of a ring. Shared between the threads of a process behind an `Arc`; all words are atomics.
#[derive(Debug)]
struct Mapping {
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
    fn create(geometry: Geometry) -> Result<Self> {
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

    /// Maps a ring created by another process, after checking that it is a ring and cannot shrink.
    fn open(memfd: OwnedFd) -> Result<Self> {
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
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The file descriptor to pass to the producer's process.
    fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// The shared word at byte offset `at`, one of the offsets of [`layout`].
    #[inline]
    fn word(&self, at: usize) -> &Word {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.geometry.mapping_len());
        // SAFETY: `at` is an offset of the layout, 8-byte aligned and inside the mapping, which lives as long as self;
        // every access of any process to this word is atomic.
        unsafe { Word::from_ptr(self.base.as_ptr().add(at).cast::<u64>()) }
    }

    /// Prefetches the slot at `at` for reading.
    #[inline(always)]
    fn will_read_slot(&self, at: usize) {
        prefetch_to_read(self.base.as_ptr().wrapping_add(at));
    }

    /// Prefetches the slot at `at` for writing.
    #[inline(always)]
    fn will_write_slot(&self, at: usize) {
        prefetch_to_write(self.base.as_ptr().wrapping_add(at));
    }

    /// Writes the inline bytes of the slot at `at`.
    ///
    /// # Safety
    ///
    /// The slot must belong to the caller's end.
    #[inline]
    unsafe fn write_slot(&self, at: usize, bytes: &[u8; INLINE]) {
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
    fn read_slot(&self, at: usize) -> [u8; UNIT] {
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
    unsafe fn copy_in(&self, offset: usize, src: *const u8, len: usize) {
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
    unsafe fn copy_out(&self, offset: usize, dst: *mut u8, len: usize) {
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
        // SAFETY: base and length are those of the mapping created in `map`, and no pointer into it remains. On failure
        // the mapping leaks, which is harmless.
        let _ = unsafe {
            rustix::mm::munmap(
                self.base.as_ptr().cast::<c_void>(),
                self.geometry.mapping_len(),
            )
        };
    }
}

/// An eventfd that wakes one progress engine.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> Result<Self> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|_| Error::OperatingSystem)
    }

    /// Accepts an eventfd received from a peer. Any other descriptor is refused: a write to a pipe or socket whose
    /// other end is closed raises SIGPIPE, which terminates C programs, and a file system in user space may block a
    /// write forever.
    pub(crate) fn from_peer(fd: OwnedFd) -> Result<Self> {
        if is_eventfd(&fd) {
            Ok(Self(fd))
        } else {
            Err(Error::InvalidValue
                .because("expected an eventfd from a peer, got another descriptor"))
        }
    }

    /// Adds 1 to the counter; never blocks.
    pub(crate) fn ring(&self) {
        // The flag is shared with the peer, which can clear it: a write to a full counter would then block.
        let Ok(flags) = fcntl_getfl(&self.0) else {
            return;
        };
        if !flags.contains(OFlags::NONBLOCK)
            && fcntl_setfl(&self.0, flags | OFlags::NONBLOCK).is_err()
        {
            return;
        }
        // A full counter (EAGAIN) is already readable; a peer that has exited needs no wake-up.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the counter; never blocks, even if peers have changed the shared flags.
    pub(crate) fn drain(&self) {
        let mut count = [0u8; 8];
        let mut buffers = [IoSliceMut::new(&mut count)];
        let nowait = ReadWriteFlags::NOWAIT;
        match preadv2(&self.0, &mut buffers, u64::MAX, nowait) {
            // EAGAIN: the counter is 0.
            Ok(_) | Err(Errno::AGAIN) => {}
            // Linux before 5.8 refuses positioned reads of an eventfd; sandboxes and emulators may refuse or not
            // implement the call. In this case, the flag that a peer may have cleared is set again.
            Err(_) => {
                let _ = fcntl_setfl(&self.0, OFlags::RDWR | OFlags::NONBLOCK);
                let _ = rustix::io::read(&self.0, &mut count);
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `true` if this process is registered for the kernel's barriers and issues them.
fn uses_barriers() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // Missing before Linux 4.16 and in some sandboxes. A process that can register can also issue the barrier.
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok() && barrier_in_all_threads()
    })
}

/// Executes a full barrier in every thread of all processes that [use barriers](uses_barriers), this one included.
/// Returns `false` if the kernel does not support it (any more).
fn barrier_in_all_threads() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// A mutex without a value, for the biased lock. In `tests/model`, loom's types replace this one and [`Contents`].
#[derive(Debug, Default)]
struct Mutex(std::sync::Mutex<()>);

impl Mutex {
    fn lock(&self) -> MutexGuard<'_, ()> {
        // The mutex protects no value that a panic could have left inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new word that is private to this process. The model uses the names of words in its messages.
const fn word(_name: &'static str) -> Word {
    Word::new(0)
}

/// A value that one thread at a time uses.
#[derive(Debug)]
struct Contents<T>(UnsafeCell<T>);

impl<T> Contents<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    ///
    /// No other call for the same value is active, in any thread.
    #[inline(always)]
    unsafe fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: guaranteed by the caller.
        action(unsafe { &mut *self.0.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(messages: usize, largest: usize) -> (RingProducer, RingConsumer) {
        let consumer =
            RingConsumer::create(Geometry::for_messages(messages, largest)).expect("a ring");
        let memfd = consumer.memfd().try_clone_to_owned().expect("a descriptor");
        let producer = RingProducer::open(memfd, EventFd::new().expect("an eventfd"))
            .expect("the ring is valid");
        (producer, consumer)
    }

    fn push(
        producer: &mut RingProducer,
        immediate: Option<&[u8]>,
        data: &[u8],
        more: bool,
    ) -> Result<()> {
        // SAFETY: a slice is readable for its length.
        unsafe {
            producer.push(immediate, data.len(), true, more, |write| {
                let (front, back) = data.split_at(data.len() / 3);
                write(front.as_ptr(), front.len());
                write(back.as_ptr(), back.len());
                Ok(())
            })
        }
    }

    fn pop(consumer: &mut RingConsumer) -> Option<(Option<Vec<u8>>, Vec<u8>, bool)> {
        let message = consumer.peek().expect("the ring is sound")?;
        let mut data = vec![0; message.len()];
        // SAFETY: the vector is writable for its length.
        unsafe { consumer.read(&message, 0, data.as_mut_ptr(), data.len()) };
        let immediate = message.immediate_len().map(|len| {
            let mut immediate = vec![0; len];
            consumer.read_immediate(&message, &mut immediate);
            immediate
        });
        consumer.advance(&message);
        Some((immediate, data, message.more()))
    }

    #[test]
    fn messages_of_all_lengths_wrap_around_many_times() {
        let (mut producer, mut consumer) = pair(64, 0);
        for round in 0..2000usize {
            let data: Vec<u8> = (0..round % 900).map(|i| (i * 7 + round) as u8).collect();
            let immediate: Vec<u8> = (0..round % 64).map(|i| i as u8).collect();
            let immediate = (round % 2 == 0).then_some(&immediate[..]);
            assert_eq!(
                push(&mut producer, immediate, &data, round % 5 == 0),
                Ok(())
            );
            let (got_immediate, got, more) = pop(&mut consumer).expect("a message");
            assert_eq!(got_immediate.as_deref(), immediate);
            assert_eq!(got, data);
            assert_eq!(more, round % 5 == 0);
            assert!(pop(&mut consumer).is_none());
        }
    }

    #[test]
    fn a_full_ring_returns_again_and_loses_no_message() {
        let (mut producer, mut consumer) = pair(64, 0);
        let mut sent = 0u8;
        while push(&mut producer, None, &[sent; 64], false).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 64, "64 slots hold 64 messages of 64 bytes");
        assert_eq!(push(&mut producer, None, &[0; 1], false), Err(Error::Again));
        for expected in 0..sent {
            assert_eq!(pop(&mut consumer), Some((None, vec![expected; 64], false)));
        }
        assert_eq!(push(&mut producer, None, &[9; 3], false), Ok(()));
    }

    #[test]
    fn payload_can_be_full_before_the_slots_are() {
        let (mut producer, mut consumer) = pair(64, 0);
        let large = vec![7; producer.max_fragment()];
        let mut sent = 0;
        while push(&mut producer, None, &large, false).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 4, "a fragment is a quarter of the payload");
        assert!(!producer.has_room_for(57) && producer.has_room_for(56));
        assert_eq!(
            push(&mut producer, None, &[1; 57], false),
            Err(Error::Again)
        );
        // An inline fragment needs no payload space, and keeps its order.
        assert_eq!(push(&mut producer, None, &[1; 56], false), Ok(()));
        for _ in 0..sent {
            assert_eq!(pop(&mut consumer), Some((None, large.clone(), false)));
        }
        assert_eq!(pop(&mut consumer), Some((None, vec![1; 56], false)));
        assert!(producer.has_room_for(57));
    }

    #[test]
    fn trailing_zeros_need_no_payload_unit() {
        let (mut producer, mut consumer) = pair(64, 0);
        let taken = |consumer: &RingConsumer| consumer.units();
        let mut message = [5; 64];
        push(&mut producer, None, &message, false).expect("room");
        assert_eq!(pop(&mut consumer), Some((None, message.to_vec(), false)));
        assert_eq!(taken(&consumer), 1);
        message[56..].fill(0);
        // SAFETY: an array is readable for its length.
        unsafe { producer.push_run(message.as_ptr(), 64) }.expect("room");
        assert_eq!(pop(&mut consumer), Some((None, message.to_vec(), false)));
        push(&mut producer, Some(&message[..4]), &message[4..], true).expect("room");
        assert_eq!(
            pop(&mut consumer),
            Some((Some(message[..4].to_vec()), message[4..].to_vec(), true))
        );
        assert_eq!(taken(&consumer), 1, "both lay in their slots");
    }

    #[test]
    fn credits_count_posted_receives_and_started_messages() {
        let (mut producer, mut consumer) = pair(64, 0);
        assert_eq!(producer.credits(), 0);
        consumer.post(2);
        assert_eq!(producer.credits(), 2);
        push(&mut producer, None, b"one", false).expect("room");
        push(&mut producer, None, b"two", false).expect("room");
        assert_eq!(producer.credits(), 0);
        consumer.post(1);
        assert_eq!(producer.credits(), 1);
    }

    #[test]
    fn a_fragment_larger_than_a_quarter_is_refused() {
        let (mut producer, _consumer) = pair(64, 0);
        let most = producer.max_fragment();
        assert_eq!(most, 2048);
        assert_eq!(
            push(&mut producer, None, &vec![0; most + 1], false),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            push(&mut producer, Some(&[0; 64]), &[], false),
            Err(Error::InvalidValue)
        );
    }

    #[test]
    fn either_endpoint_detects_that_the_other_closed() {
        let (producer, consumer) = pair(64, 0);
        assert!(!consumer.is_closed_by_peer());
        drop(producer);
        assert!(consumer.is_closed_by_peer());
        let (producer, consumer) = pair(64, 0);
        drop(consumer);
        assert!(producer.is_closed_by_peer());
    }

    #[test]
    fn a_sleeping_endpoint_is_woken_once_and_an_awake_one_never() {
        let consumer = RingConsumer::create(Geometry::for_messages(64, 0)).expect("a ring");
        let wake = EventFd::new().expect("an eventfd");
        let rung = || {
            let mut count = [0u8; 8];
            rustix::io::read(&wake, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
        };
        let memfd = consumer.memfd().try_clone_to_owned().expect("a descriptor");
        let theirs = EventFd::from_peer(wake.as_fd().try_clone_to_owned().expect("a descriptor"))
            .expect("an eventfd");
        let mut producer = RingProducer::open(memfd, theirs).expect("the ring is valid");

        push(&mut producer, None, b"awake", false).expect("room");
        assert_eq!(rung(), 0);
        consumer.arm();
        push(&mut producer, None, b"asleep", false).expect("room");
        push(&mut producer, None, b"rung already", false).expect("room");
        assert_eq!(rung(), 1);
        // The race between a wake-up and the transition to sleep is covered by the process tests of Comch and RDMA.
        consumer.arm();
        super::barrier_before_sleep();
        push(&mut producer, None, b"to a sleeper", false).expect("room");
        assert_eq!(rung(), 1);
        consumer.arm();
        consumer.disarm();
        push(&mut producer, None, b"awake again", false).expect("room");
        assert_eq!(rung(), 0);
    }

    #[test]
    fn foreign_descriptors_are_refused() {
        let file = tempfile::tempfile().expect("a file");
        assert!(RingProducer::open(file.into(), EventFd::new().expect("an eventfd")).is_err());
        let memfd =
            rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::ALLOW_SEALING).expect("a memfd");
        rustix::fs::ftruncate(&memfd, 8192).expect("a size");
        assert!(RingProducer::open(memfd, EventFd::new().expect("an eventfd")).is_err());
    }

    /// A peer has a duplicate of each eventfd and clears its O_NONBLOCK flag.
    #[test]
    fn a_peer_cannot_make_ringing_or_draining_block() {
        let (done, finished) = std::sync::mpsc::channel();
        let blocking = |initial: u32| {
            let fd = rustix::event::eventfd(initial, EventfdFlags::CLOEXEC).expect("an eventfd");
            EventFd(fd)
        };
        let thread = std::thread::spawn(move || {
            blocking(0).drain();
            let full = blocking(0);
            rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).expect("room for it");
            full.ring();
            done.send(()).expect("a listener");
        });
        finished
            .recv_timeout(std::time::Duration::from_secs(10))
            .expect("neither call blocks");
        thread.join().expect("no panic");
    }

    /// The kernel answers `preadv2` with ENOSYS, as sandboxes and QEMU's user emulation do. A counter that is not reset
    /// would prevent its engine from sleeping.
    #[test]
    fn a_counter_is_drained_without_preadv2() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

        let filter = SeccompFilter::new(
            [(libc::SYS_preadv2, Vec::new())].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS as u32),
            TargetArch::try_from(std::env::consts::ARCH).expect("a known machine"),
        )
        .expect("a filter");
        let program = BpfProgram::try_from(filter).expect("a program");
        let event = EventFd::new().expect("an eventfd");
        let ring_and_drain = || {
            // Applies only to this thread. The emulator does not support filters, either, but fails the call by itself.
            let _ = seccompiler::apply_filter(&program);
            event.ring();
            let mut count = [0; 8];
            let read = preadv2(
                &event.0,
                &mut [IoSliceMut::new(&mut count)],
                u64::MAX,
                ReadWriteFlags::NOWAIT,
            );
            assert_eq!(read, Err(Errno::NOSYS));
            event.drain();
        };
        std::thread::scope(|scope| scope.spawn(ring_and_drain).join()).expect("no panic");
        assert_eq!(
            rustix::io::read(&event.0, &mut [0; 8]),
            Err(Errno::AGAIN),
            "the counter is 0"
        );
    }

    #[test]
    fn only_eventfds_are_rung() {
        let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
        let file: OwnedFd = tempfile::tempfile().expect("a file").into();
        let memfd = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC);
        for fd in [pipe, file, memfd.expect("a memfd")] {
            assert_eq!(EventFd::from_peer(fd).err(), Some(Error::InvalidValue));
        }
    }
}
