//! Rings, doorbells and shared receives under [loom]: every order in which threads can run, and every value that a
//! weakly ordered processor may give to a read. BlueField is Arm; x86 hides most errors of this kind.
//!
//! # What is modelled
//!
//! softdoca's own sources: `src/ring/{layout,endpoints}.rs` and `src/rdma/transport/credits/pool.rs` are compiled into
//! this program, with the model's memory and kernel ([`ring`], [`credits`], [`machine`]). Rings have two slots. Slots
//! and payload are loom cells: an unordered read and write fail the model, regardless of the value read.
//!
//! * Messages in slots and in payload units, credits, closing endpoints.
//! * Sleeping endpoints: no wake-up is lost, with fences, with the kernel's barriers, and with one endpoint of each
//!   kind. Sleeps have no timeout in the model: a lost wake-up is a deadlock, which loom reports.
//! * Receives shared by several senders, one of which may exit.
//! * Producers of one process that share a ring: the first has the bias until the second sends.
//! * [`weaker`]: every memory order is weakened, and a model must fail.
//!
//! # What is not modelled
//!
//! * The engine's loop ([`progress_until`]) is reimplemented here; `src/progress.rs` is too large for loom.
//! * loom's fences order more than C++'s (everything before one fence precedes everything after a later one). Therefore
//!   the orders of words are modelled where there are no fences, and fences only where they determine visibility.
//! * Stores to words that are also exchanged: see [`machine::Word::exchanged`].
//! * Malicious peers: these are covered by the ring's tests and by fuzzing.
//!
//! # Bounds
//!
//! At most 2 preemptions in each execution (switches of waiting threads are not counted): seconds in total, and
//! sufficient for every failure that [`weaker`] expects. `LOOM_MAX_PREEMPTIONS=5 cargo test -p softdoca --test model`
//! takes minutes, for hundreds of thousands of executions.

mod credits;
mod machine;
mod ring;
mod weaker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

// At the path expected by the ring's sources.
use loom::thread::{self, yield_now};
use softdoca::error;

use credits::{pool, sender};
use machine::{Barriers, Cell, is_weakened, on, spawn};
use ring::{BiasedLock, End, EventFd, RingConsumer, RingProducer, barrier_before_sleep, pair};

/// Maximum number of preemptions in one execution, unless `LOOM_MAX_PREEMPTIONS` is set.
const PREEMPTIONS: usize = 2;
/// A model that takes more steps does not terminate.
const STEPS: usize = 10_000;

/// Runs a scenario in all interleavings.
fn check(barriers: Barriers, scenario: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(PREEMPTIONS));
    model.max_branches = STEPS;
    let executions = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executions);
    let began = Instant::now();
    model.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        machine::power_on(barriers);
        scenario();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!(
        "barriers {barriers:?}: {executions} executions, {:?}",
        began.elapsed()
    );
    println!("{}{}", weaker::ORDERS, machine::asked().join(", "));
    assert!(executions > 1, "one execution is no model");
}

// Delivery: no thread sleeps in these models, so there is no fence that could hide a missing order of the words.

/// Placement of a message in the ring.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Stored in its slot.
    Small,
    /// Stored in its slot, without its trailing zeros: a message of the storage protocol.
    Line,
    /// Stored in a unit of payload.
    Large,
}

use Kind::{Large, Line, Small};

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

/// Sends messages of these kinds, when there is space, to a consumer that checks them. The first `before` messages have
/// already been sent.
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

/// A thread's loop over a progress engine: polls and, without events, arms its endpoints, polls again, and sleeps.
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
        machine::falling_asleep(barrier_before_sleep);
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
        // An endpoint sends a wake-up when it is closed, which would hide a lost wake-up.
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
            // The producer may have gone to sleep before its eventfd was known.
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

#[test]
fn no_receive_is_taken_twice() {
    check(Barriers::None, || {
        let pool = pool(2);
        let slots: Vec<_> = (0..2).map(|_| pool.slot().expect("a slot")).collect();
        pool.post(1);
        let (greedy, modest) = (sender(&slots[0]), sender(&slots[1]));
        let others = thread::spawn(move || u64::from(greedy.take()) + u64::from(greedy.take()));
        let another = thread::spawn(move || u64::from(modest.take()));
        pool.post(1);
        let taken = others.join().expect("no panic") + another.join().expect("no panic");
        assert!(taken <= 2, "{taken} of 2 receives were taken");
        // The remaining receives are still available, and no others.
        let left = (0..3).filter(|_| sender(&slots[0]).take()).count();
        assert_eq!(taken + left as u64, 2);
    });
}

#[test]
fn no_receive_is_lost_with_its_sender() {
    check(Barriers::None, || {
        let pool = pool(2);
        let (dying, other) = (pool.slot().expect("a slot"), pool.slot().expect("a slot"));
        let (late, survivor) = (sender(&dying), sender(&other));
        pool.post(1);
        let late = thread::spawn(move || late.take());
        // The receiver closes the connection while its sender takes a receive that the sender will never use.
        drop(dying);
        late.join().expect("no panic");
        assert!(survivor.take(), "the receive went with the sender");
    });
}

#[test]
fn a_taken_receive_may_overwrite_data_read_before() {
    check(Barriers::None, || {
        let pool = pool(2);
        let slot = pool.slot().expect("a slot");
        let sender = sender(&slot);
        let memory = loom::sync::Arc::new(Cell::new(1));
        let theirs = loom::sync::Arc::clone(&memory);
        let other = thread::spawn(move || {
            while !sender.take() {
                yield_now();
            }
            theirs.write(|value| *value = 2);
        });
        assert_eq!(memory.read(|value| *value), 1);
        pool.post(1);
        other.join().expect("no panic");
    });
}

/// Adds 1, as a user with this number.
fn add(lock: &BiasedLock<u32>, user: u64) {
    // SAFETY: each thread of a model has a number of its own.
    unsafe { lock.with(user, |value| *value += 1) }.expect("barriers are executed");
}

fn two_users() {
    let lock = loom::sync::Arc::new(BiasedLock::new(0));
    // The first use acquires the bias, before there is another user.
    on(0, || add(&lock, 1));
    let theirs = loom::sync::Arc::clone(&lock);
    let other = spawn(1, move || {
        add(&theirs, 2);
        add(&theirs, 2);
    });
    on(0, || {
        add(&lock, 1);
        add(&lock, 1);
    });
    other.join().expect("no panic");
    // SAFETY: as in `add`; all other threads have ended.
    let sum = unsafe { lock.with(1, |value| *value) };
    assert_eq!(sum, Ok(5), "a use was lost");
}

#[test]
fn the_second_user_waits_for_the_biased_one() {
    for barriers in [Barriers::None, Barriers::All] {
        check(barriers, two_users);
    }
}

#[test]
fn concurrent_first_users_exclude_each_other() {
    check(Barriers::All, || {
        let lock = loom::sync::Arc::new(BiasedLock::new(0));
        let theirs = loom::sync::Arc::clone(&lock);
        let other = spawn(1, move || add(&theirs, 2));
        on(0, || {
            add(&lock, 1);
            add(&lock, 1);
        });
        other.join().expect("no panic");
        // SAFETY: as in `add`; all other threads have ended.
        assert_eq!(unsafe { lock.with(1, |value| *value) }, Ok(3));
    });
}
