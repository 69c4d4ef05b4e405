//! Single-producer, single-consumer message rings in shared memory.
//!
//! A ring carries messages of up to a few megabytes from one process to another without a system call while both sides
//! are awake. The consumer creates the ring (a memfd, sealed so that it cannot shrink under a reader) and passes it to
//! the producer together with an eventfd that wakes the consumer.
//!
//! * [`layout`] defines the layout of the shared memory and the format of descriptors.
//! * [`mapping`] owns the shared memory and is the only module with raw pointers into it.
//! * [`kernel`] contains the other system calls: eventfds, and barriers in other threads.
//! * [`producer`] and [`consumer`] are the two endpoints.
//! * [`biased_lock`] lets several producers of a process send into one ring.
//! * [`bell`] wakes an endpoint that sleeps; it makes no system call if the endpoint is awake.
//!
//! The files `layout`, `producer`, `consumer`, `bell` and `biased_lock` are also compiled in `tests/model`, with loom's
//! memory and a model of the kernel: of the standard library's atomics they use only
//! [`Ordering`](std::sync::atomic::Ordering) and compiler fences.
//!
//! # Trust
//!
//! The other endpoint is another process and may write anything at any time. Words are atomics, payloads are copied
//! with raw copies, every index is masked into the ring, and an invalid descriptor is reported as [`Corrupt`] instead
//! of being followed.

mod bell;
mod biased_lock;
mod consumer;
mod exclusion;
mod kernel;
mod layout;
mod mapping;
mod producer;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub(crate) use bell::barrier_before_sleep;
pub(crate) use biased_lock::BiasedLock;
pub(crate) use consumer::{Message, RingConsumer};
pub(crate) use kernel::EventFd;
pub(crate) use layout::Geometry;
pub(crate) use producer::RingProducer;

use self::mapping::Mapping;
use crate::error::Result;

/// The peer wrote something into the ring that no correct peer writes; the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the shared ring holds {found}, expected {expected}: the peer is faulty or of another version"
)]
pub(crate) struct Corrupt {
    pub expected: &'static str,
    pub found: u64,
}

impl RingConsumer {
    /// Creates a ring.
    pub(crate) fn create(geometry: Geometry) -> Result<Self> {
        Ok(Self::over(Arc::new(Mapping::create(geometry)?)))
    }

    /// The file descriptor to hand to the producer.
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

#[cfg(test)]
mod tests {
    //! Both endpoints of a ring in one process.

    use std::os::fd::AsFd;

    use super::{EventFd, Geometry, RingConsumer, RingProducer};
    use crate::error::Error;

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
    ) -> Result<(), Error> {
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
        // The race of a wake-up with falling asleep is covered by the process tests of Comch and RDMA.
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
}
