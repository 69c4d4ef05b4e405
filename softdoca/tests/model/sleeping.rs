//! Sleeping endpoints are woken. A sleep has no timeout here: a lost wake-up is a deadlock, which loom reports.

use crate::check;
use crate::processors::{self, Barriers, on, spawn};
use crate::ring::kernel::EventFd;
use crate::ring::{End, RingConsumer, RingProducer, barrier_before_sleep, pair};
use crate::words::is_weakened;

/// A thread's loop over a progress engine: polls, and if there is nothing, arms its endpoints, polls again, and sleeps.
fn progress_until<E: End, T>(
    wake: &EventFd,
    end: &mut E,
    mut look: impl FnMut(&mut E) -> Option<T>,
) -> T {
    loop {
        if let Some(found) = look(end) {
            return found;
        }
        end.arm();
        processors::falling_asleep(barrier_before_sleep);
        let stirred = wake.drain() && !is_weakened(|| "attention to a ring while arming".into());
        let found = look(end);
        if found.is_none() && !stirred {
            wake.wait();
        }
        wake.drain();
        end.disarm();
        if let Some(found) = found {
            return found;
        }
    }
}

fn all_kinds_of_barriers(scenario: fn()) {
    for barriers in [Barriers::None, Barriers::All, Barriers::Some] {
        check(barriers, scenario);
    }
}

fn receive(consumer: &mut RingConsumer) -> Option<u8> {
    consumer.receive().map(|data| data[0])
}

#[test]
fn a_consumer_is_woken_by_a_message() {
    all_kinds_of_barriers(consumer_sleeps);
}

fn consumer_sleeps() {
    let wake = EventFd::new();
    let (mut producer, mut consumer) = pair(2, 4, &wake);
    let receiver = spawn(1, move || {
        assert_eq!(progress_until(&wake, &mut consumer, receive), 1);
        assert_eq!(progress_until(&wake, &mut consumer, receive), 2);
    });
    on(0, || {
        assert!(producer.send(&[1]));
        assert!(producer.send(&[2]));
    });
    receiver.join().expect("no panic");
}

#[test]
fn a_producer_is_woken_by_space() {
    all_kinds_of_barriers(|| producer_sleeps_for_room(1));
}

/// Sends the given number of pieces through a full ring while the consumer empties it.
fn producer_sleeps_for_room(mut pieces: u32) {
    let wake = EventFd::new();
    let (mut producer, mut consumer) = pair(2, 4, &EventFd::new());
    consumer.learn(&wake);
    assert!(producer.send(&[1]) && producer.send(&[2]));
    let receiver = spawn(1, move || {
        assert_eq!(receive(&mut consumer), Some(1));
        assert_eq!(receive(&mut consumer), Some(2));
        // An endpoint sends a wake-up when it is closed, which would hide a lost one.
        consumer
    });
    on(0, || {
        progress_until(&wake, &mut producer, |producer| {
            while pieces > 0 && producer.send(&[3]) {
                pieces -= 1;
            }
            (pieces == 0).then_some(())
        });
    });
    receiver.join().expect("no panic");
}

#[test]
fn a_producer_is_woken_by_a_receive() {
    all_kinds_of_barriers(producer_sleeps_for_credit);
}

fn producer_sleeps_for_credit() {
    let wake = EventFd::new();
    let (mut producer, mut consumer) = pair(2, 4, &EventFd::new());
    let receiver = spawn(1, {
        let wake = wake.duplicate();
        move || {
            // It may have gone to sleep before its eventfd was known.
            consumer.learn(&wake);
            consumer.post(1);
            consumer
        }
    });
    on(0, || {
        let credit = |producer: &mut RingProducer| (producer.credits() > 0).then_some(());
        progress_until(&wake, &mut producer, credit);
    });
    receiver.join().expect("no panic");
}

#[test]
fn a_producer_is_woken_for_every_piece_of_a_long_message() {
    all_kinds_of_barriers(|| producer_sleeps_for_room(2));
}

#[test]
fn endpoints_of_two_rings_wake_each_other() {
    all_kinds_of_barriers(conversation);
}

fn conversation() {
    let (ask_wake, answer_wake) = (EventFd::new(), EventFd::new());
    let (mut asks, mut asked) = pair(2, 4, &answer_wake);
    let (mut answers, mut answered) = pair(2, 4, &ask_wake);
    let other = spawn(1, move || {
        assert_eq!(progress_until(&answer_wake, &mut asked, receive), 1);
        assert!(answers.send(&[2]));
    });
    on(0, || {
        assert!(asks.send(&[1]));
        assert_eq!(progress_until(&ask_wake, &mut answered, receive), 2);
    });
    other.join().expect("no panic");
}
