//! A consumer of the peer, as seen by the producers of this process.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::MAX_IMMEDIATE;
use super::connection::Connection;
use super::frame::Frame;
use super::payload::Gather;
use crate::error::{Error, Result};
use crate::ring::{BiasedLock, EventFd, RingProducer};

/// Size in bytes of the producer's id before the immediate data of a message. The id is omitted, together with empty
/// immediate data, if the previous message came from the same producer: a message of 64 bytes then takes one unit.
pub(super) const SENDER_SIZE: usize = 4;

/// The sending end of a consumer's ring, shared by all producers of this end of the connection.
///
/// Fields in the order of use.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RemoteConsumer {
    /// Size in bytes of the largest message that fits any of its buffers.
    max_message: usize,
    id: u32,
    expired: AtomicBool,
    /// Biased to the first producer: usually it is the only one.
    sender: BiasedLock<Sender>,
    /// Rung by the consumer when it grants credits or space to waiting producers; created when the first one attaches.
    credits: Mutex<Option<EventFd>>,
}

#[derive(Debug)]
struct Sender {
    ring: RingProducer,
    /// Producer of the last message.
    last_producer: u32,
}

impl RemoteConsumer {
    /// Takes the descriptors sent with the peer's announcement.
    pub(super) fn open(id: u32, max_message: u32, ring: OwnedFd, wake: OwnedFd) -> Result<Self> {
        let ring = RingProducer::open(ring, EventFd::from_peer(wake)?)?;
        let max_message = max_message as usize;
        // A message larger than the ring would be retried for ever.
        let stored = max_message.saturating_add(SENDER_SIZE + MAX_IMMEDIATE);
        if stored > ring.capacity() {
            return Err(Error::InvalidValue);
        }
        Ok(Self {
            id,
            max_message,
            expired: AtomicBool::new(false),
            sender: BiasedLock::new(Sender {
                ring,
                last_producer: 0,
            }),
            credits: Mutex::new(None),
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn max_message(&self) -> usize {
        self.max_message
    }

    pub(super) fn expire(&self) {
        self.expired.store(true, Ordering::Release);
        // Producers in other threads may sleep; the consumer wakes only attached ones.
        if let Some(bell) = &*self.credits.lock().unwrap_or_else(PoisonError::into_inner) {
            bell.ring();
        }
    }

    pub(super) fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }

    /// Returns a descriptor, for one producer to watch, that becomes readable when the consumer has credits again. The
    /// first call sends it to the consumer.
    pub(super) fn attach(&self, connection: &Connection) -> Result<OwnedFd> {
        let mut credits = self.credits.lock().unwrap_or_else(PoisonError::into_inner);
        let duplicate = |bell: &EventFd| rustix::io::fcntl_dupfd_cloexec(bell, 3);
        if let Some(bell) = &*credits {
            return Ok(duplicate(bell)?);
        }
        let bell = EventFd::new()?;
        let (theirs, ours) = (duplicate(&bell)?, duplicate(&bell)?);
        *credits = Some(bell);
        let frame = Frame::ProducerAttached {
            consumer_id: self.id,
        };
        connection.send(&frame, vec![theirs]);
        Ok(ours)
    }

    /// Clears the doorbell of the descriptor from [`Self::attach`].
    pub(super) fn drain_bell(&self) {
        if let Some(bell) = &*self.credits.lock().unwrap_or_else(PoisonError::into_inner) {
            bell.drain();
        }
    }

    /// Requests a wake-up for `producer`'s engine when the consumer grants credits or space.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push).
    pub(super) unsafe fn arm(&self, producer: u32) {
        // SAFETY: guaranteed by the caller. On failure there is no wake-up, and the engine polls again after some
        // milliseconds.
        let _ = unsafe {
            self.sender
                .with(producer.into(), |sender| sender.ring.arm())
        };
    }

    /// Cancels [`arm`](Self::arm).
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push).
    pub(super) unsafe fn disarm(&self, producer: u32) {
        // SAFETY: guaranteed by the caller. On failure there is a spurious wake-up, which is harmless.
        let _ = unsafe {
            self.sender
                .with(producer.into(), |sender| sender.ring.disarm())
        };
    }

    /// Returns `true` if [`Self::push`] of a small message would not return `Again`.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push).
    pub(super) unsafe fn is_ready(&self, producer: u32) -> bool {
        let look = |sender: &mut Sender| {
            let ring = &mut sender.ring;
            (ring.credits() > 0 && ring.has_room_for(SENDER_SIZE + MAX_IMMEDIATE + 1))
                || ring.is_closed_by_peer()
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.sender.with(producer.into(), look) }.unwrap_or(true) || self.is_expired()
    }

    /// Writes one whole message to the ring, which consumes one posted receive.
    ///
    /// Returns [`Error::Again`] if none is posted or the ring is full, and [`Error::NotFound`] if the consumer accepts
    /// no more messages; nothing is written then.
    ///
    /// # Safety
    ///
    /// `producer` is the id of a producer of this end of the connection, and the caller is the thread that uses it.
    #[inline]
    pub(super) unsafe fn push(
        &self,
        producer: u32,
        immediate: &[u8],
        payload: Gather<'_>,
    ) -> Result<()> {
        let send = |sender: &mut Sender| sender.push(producer, immediate, payload);
        // SAFETY: ids of producers are from 1 to 0xfffe, and those of one connection differ; one thread at a time uses
        // a producer, as it does all contexts, and hands it over with its engine. An id is reused only after it was
        // released under the connection's lock. The ring does not call this lock.
        unsafe { self.sender.with(producer.into(), send) }?
    }

    /// As [`push`](Self::push), for `len` bytes at `run` without immediate data: the most frequent case.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push), and `run` is readable for `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn push_run(&self, producer: u32, run: *const u8, len: usize) -> Result<()> {
        let send = |sender: &mut Sender| {
            // SAFETY: guaranteed by the caller.
            unsafe { sender.push_run(producer, run, len) }
        };
        // SAFETY: as in `push`.
        unsafe { self.sender.with(producer.into(), send) }?
    }
}

impl Sender {
    /// # Safety
    ///
    /// `run` is readable for `len` bytes.
    #[inline(always)]
    unsafe fn push_run(&mut self, producer: u32, run: *const u8, len: usize) -> Result<()> {
        if self.last_producer != producer || len > self.ring.max_fragment() {
            return self.push(producer, &[], Gather::of_run(run, len));
        }
        let ring = &mut self.ring;
        if ring.is_closed_by_peer() {
            return Err(Error::NotFound);
        }
        if ring.credits() == 0 {
            return Err(Error::Again);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { ring.push_run(run, len) }
    }

    /// Sends any kind of message.
    #[inline(never)]
    fn push(&mut self, producer: u32, immediate: &[u8], payload: Gather<'_>) -> Result<()> {
        let mut head = [0; SENDER_SIZE + MAX_IMMEDIATE];
        let mut header = None;
        if !immediate.is_empty() || self.last_producer != producer {
            head[..SENDER_SIZE].copy_from_slice(&producer.to_le_bytes());
            let head = &mut head[..SENDER_SIZE + immediate.len()];
            head[SENDER_SIZE..].copy_from_slice(immediate);
            header = Some(&*head);
        }
        let ring = &mut self.ring;
        let stored = payload.len() + header.map_or(0, <[u8]>::len);
        if ring.credits() == 0 || !ring.has_room_for(stored) {
            return Err(match ring.is_closed_by_peer() {
                true => Error::NotFound,
                false => Error::Again,
            });
        }
        if ring.is_closed_by_peer() {
            return Err(Error::NotFound);
        }
        let most = ring.max_fragment();
        let mut payload = payload;
        let mut first = true;
        // The ring has space for the whole message, and no other producer uses it meanwhile.
        while first || payload.len() > 0 {
            let header = header.take();
            let len = payload.len().min(most - header.map_or(0, <[u8]>::len));
            let more = len < payload.len();
            // SAFETY: the pieces of a gather list are readable (see `Gather`).
            unsafe {
                ring.push(header, len, first, more, |write| {
                    payload.take(len, write);
                    Ok(())
                })?;
            }
            first = false;
        }
        self.last_producer = producer;
        Ok(())
    }
}
