//! Delivery of messages and ownership of memory. No thread sleeps, so there is no fence that could hide a missing order
//! of the words.

use loom::thread::yield_now;

use crate::check;
use crate::processors::{Barriers, on, spawn};
use crate::ring::kernel::EventFd;
use crate::ring::{RingConsumer, pair};
use crate::words::Cell;

/// Placement of a message in the ring.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// In its slot.
    Small,
    /// In its slot, whose trailing zeros need not fit: a message of the storage protocol.
    Line,
    /// In a unit of payload.
    Large,
}

use Kind::{Large, Line, Small};

/// The message with this number.
fn message(number: usize, kind: Kind) -> Vec<u8> {
    let byte = number as u8 + 1;
    match kind {
        Small => vec![byte; 8],
        Line => [[byte; 56].as_slice(), &[0; 8]].concat(),
        Large => vec![byte; 64],
    }
}

/// Waits for a message.
fn take(consumer: &mut RingConsumer) -> Vec<u8> {
    loop {
        if let Some(data) = consumer.receive() {
            return data;
        }
        yield_now();
    }
}

/// Sends messages of these kinds, when there is space, to a consumer that checks them. The first `before` are there
/// already.
fn in_order(slots: u64, units: u64, kinds: &'static [Kind], before: usize) {
    check(Barriers::All, move || {
        let (mut producer, mut consumer) = pair(slots, units, &EventFd::new());
        for (number, kind) in kinds[..before].iter().enumerate() {
            assert!(producer.send(&message(number, *kind)));
        }
        let receiver = spawn(1, move || {
            for (number, kind) in kinds.iter().enumerate() {
                assert_eq!(take(&mut consumer), message(number, *kind));
            }
        });
        on(0, || {
            for (number, kind) in kinds.iter().enumerate().skip(before) {
                while !producer.send(&message(number, *kind)) {
                    yield_now();
                }
            }
        });
        receiver.join().expect("no panic");
    });
}

#[test]
fn small_messages_wrap_around() {
    in_order(2, 4, &[Small, Line, Line, Small], 0);
}

#[test]
fn large_messages_wrap_around() {
    in_order(2, 4, &[Large, Line, Large, Large], 0);
}

#[test]
fn payload_is_used_again_after_it_was_read() {
    in_order(8, 4, &[Large; 5], 4);
}

#[test]
fn data_read_before_a_receive_was_posted_may_be_overwritten() {
    check(Barriers::All, || {
        let (mut producer, mut consumer) = pair(2, 4, &EventFd::new());
        let memory = loom::sync::Arc::new(Cell::new(1));
        let theirs = loom::sync::Arc::clone(&memory);
        let receiver = spawn(1, move || {
            assert_eq!(memory.read(|value| *value), 1);
            consumer.post(1);
        });
        on(0, || {
            while producer.credits() == 0 {
                yield_now();
            }
            theirs.write(|value| *value = 2);
        });
        receiver.join().expect("no panic");
    });
}

#[test]
fn messages_sent_before_the_producer_closed_are_received() {
    check(Barriers::All, || {
        let (mut producer, mut consumer) = pair(2, 4, &EventFd::new());
        let receiver = spawn(1, move || {
            while !consumer.is_closed_by_peer() {
                yield_now();
            }
            assert_eq!(consumer.receive(), Some(message(0, Line)));
            assert_eq!(consumer.receive(), Some(message(1, Large)));
            assert_eq!(consumer.receive(), None);
        });
        on(0, || {
            assert!(producer.send(&message(0, Line)));
            assert!(producer.send(&message(1, Large)));
            drop(producer);
        });
        receiver.join().expect("no panic");
    });
}

#[test]
fn releases_before_the_consumer_closed_are_visible() {
    check(Barriers::All, || {
        let (producer, consumer) = pair(2, 4, &EventFd::new());
        let memory = loom::sync::Arc::new(Cell::new(0));
        let theirs = loom::sync::Arc::clone(&memory);
        let receiver = spawn(1, move || {
            memory.write(|value| *value = 1);
            drop(consumer);
        });
        on(0, || {
            while !producer.is_closed_by_peer() {
                yield_now();
            }
            assert_eq!(theirs.read(|value| *value), 1);
        });
        receiver.join().expect("no panic");
    });
}
