use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::thread;

use super::Access::{Read, Write};
use super::*;

/// An I/O on slot 5.
#[derive(Debug)]
struct Io<'a> {
    order: &'a StripeLocks,
    ticket: Ticket,
    access: Access,
}

impl<'a> Io<'a> {
    fn new(order: &'a StripeLocks, access: Access) -> Self {
        let ticket = order.queue(5);
        Self {
            order,
            ticket,
            access,
        }
    }

    fn begins(&self) -> bool {
        self.order.try_lock(5, self.ticket, self.access)
    }

    fn ends(self) {
        self.order.unlock(5, self.ticket, self.access);
    }
}

#[test]
fn reads_share_a_lock_and_writes_are_exclusive() {
    for workers in [1, 2] {
        let order = StripeLocks::new(workers, 64);
        let [first, second] = [Read, Read].map(|access| Io::new(&order, access));
        assert!(first.begins() && second.begins());
        let writer = Io::new(&order, Write);
        assert!(!writer.begins());
        second.ends();
        assert!(!writer.begins(), "a reader is left");
        first.ends();
        assert!(writer.begins());
        let [reader, other] = [Read, Write].map(|access| Io::new(&order, access));
        assert!(!reader.begins() && !other.begins());
        let elsewhere = order.queue(6);
        assert!(order.try_lock(6, elsewhere, Write), "another slot");
        writer.ends();
        assert!(reader.begins() && !other.begins());
        reader.ends();
        assert!(other.begins());
    }
}

#[test]
fn locks_are_granted_in_order_of_arrival() {
    for workers in [1, 2] {
        let order = StripeLocks::new(workers, 64);
        let running = Io::new(&order, Read);
        assert!(running.begins());
        let waiting = [Write, Read, Read, Write, Read].map(|access| Io::new(&order, access));
        let begins = |waiting: &[Io<'_>]| waiting.iter().map(Io::begins).collect::<Vec<_>>();
        assert_eq!(begins(&waiting), [false; 5], "no reader passes a writer");
        running.ends();
        let [writer, rest @ ..] = waiting;
        assert!(writer.begins());
        assert_eq!(begins(&rest), [false; 4]);
        writer.ends();
        assert_eq!(begins(&rest), [true, true, false, false]);
        let [first, second, writer, last] = rest;
        first.ends();
        second.ends();
        assert!(writer.begins() && !last.begins());
        writer.ends();
        assert!(last.begins());
    }
}

#[test]
fn tickets_wrap() {
    for workers in [1, 2] {
        let order = StripeLocks::new(workers, 64);
        let slot = &order.locks[5];
        for word in [&slot.next, &slot.readers, &slot.writers] {
            word.store(u32::MAX, Ordering::Relaxed);
        }
        for access in [Read, Write, Read, Read, Write] {
            let io = Io::new(&order, access);
            assert!(io.begins());
            io.ends();
        }
    }
}

#[test]
fn number_of_locks_covers_all_transactions_within_bounds() {
    let slots = |transactions| StripeLocks::new(1, transactions).locks.len();
    assert_eq!(slots(1), 1 << 10);
    assert_eq!(slots(64), 1 << 10);
    assert_eq!(slots(65), 1 << 11);
    assert_eq!(slots(512), 1 << 13);
    assert_eq!(slots(u64::MAX), 1 << 16);
}

#[test]
fn neighbouring_stripes_have_different_locks() {
    let order = StripeLocks::new(1, 1024);
    for stride in [1, 2, 1024, 1 << 20] {
        let slots: HashSet<usize> = (0..1024).map(|stripe| order.of(stripe * stride)).collect();
        assert!(slots.len() > 900, "{} slots at {stride}", slots.len());
        assert!(slots.iter().all(|&slot| slot < order.locks.len()));
    }
}

#[test]
fn threads_never_see_a_half_written_pair() {
    let order = StripeLocks::new(4, 64);
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let begin = |access| {
        let io = Io::new(&order, access);
        while !io.begins() {
            thread::yield_now();
        }
        io
    };
    thread::scope(|scope| {
        for writer in 0..2 {
            let (pair, begin) = (&pair, &begin);
            scope.spawn(move || {
                for round in 0..2000 {
                    let io = begin(Write);
                    pair[0].store(writer << 32 | round, Ordering::Relaxed);
                    thread::yield_now();
                    pair[1].store(writer << 32 | round, Ordering::Relaxed);
                    io.ends();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let io = begin(Read);
                    let seen = [&pair[0], &pair[1]].map(|half| half.load(Ordering::Relaxed));
                    io.ends();
                    assert_eq!(seen[0], seen[1]);
                }
            });
        }
    });
}

#[test]
fn no_ticket_is_lost() {
    let order = StripeLocks::new(4, 64);
    thread::scope(|scope| {
        for seed in 0..4u64 {
            let order = &order;
            scope.spawn(move || {
                let mut random = seed;
                for _ in 0..50_000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let access = if random >> 60 < 3 { Read } else { Write };
                    let io = Io::new(order, access);
                    let mut asked = 0u32;
                    while !io.begins() {
                        asked += 1;
                        assert!(asked < 100_000_000, "the turn of {io:?} never comes");
                        if asked.is_multiple_of(64) {
                            thread::yield_now();
                        }
                    }
                    io.ends();
                }
            });
        }
    });
    let slot = &order.locks[5];
    let words = [&slot.next, &slot.readers, &slot.writers].map(|word| word.load(Ordering::Relaxed));
    assert_eq!(words, [200_000; 3]);
}
