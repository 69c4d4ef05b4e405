use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::thread;

use super::Access::{Read, Write};
use super::*;

#[test]
fn readers_share_and_a_writer_is_alone() {
    let order = StripeOrder::new();
    assert!(order.try_take(5, Read) && order.try_take(5, Read));
    assert!(!order.try_take(5, Write));
    order.release(5, Read);
    assert!(!order.try_take(5, Write), "a reader is left");
    order.release(5, Read);
    assert!(order.try_take(5, Write));
    assert!(!order.try_take(5, Read) && !order.try_take(5, Write));
    assert!(order.try_take(6, Write), "another slot");
    order.release(5, Write);
}

#[test]
fn a_waiting_writer_comes_before_later_readers() {
    let order = StripeOrder::new();
    assert!(order.try_take(0, Read));
    assert!(!order.try_take(0, Write));
    assert!(!order.try_take(0, Read), "it would wait for ever otherwise");
    order.release(0, Read);
    assert!(order.try_take(0, Write));
    order.release(0, Write);
    assert!(order.try_take(0, Read), "nobody waits any more");
}

#[test]
fn a_writer_that_waits_for_a_writer_is_not_forgotten() {
    let order = StripeOrder::new();
    assert!(order.try_take(0, Write) && !order.try_take(0, Write));
    order.release(0, Write);
    assert!(!order.try_take(0, Read));
    assert!(order.try_take(0, Write));
}

#[test]
fn neighbours_have_different_slots() {
    for stride in [1, 2, 1024, 1 << 20] {
        let slots: HashSet<usize> = (0..1024)
            .map(|stripe| StripeOrder::slot(stripe * stride))
            .collect();
        assert!(slots.len() > 900, "{} slots at {stride}", slots.len());
        assert!(slots.iter().all(|&slot| slot < SLOTS));
    }
}

#[test]
fn threads_never_see_a_half_written_pair() {
    let order = StripeOrder::new();
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let take = |access| {
        while !order.try_take(1, access) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for writer in 0..2 {
            let (pair, order, take) = (&pair, &order, &take);
            scope.spawn(move || {
                for round in 0..2000 {
                    take(Write);
                    pair[0].store(writer << 32 | round, Ordering::Relaxed);
                    thread::yield_now();
                    pair[1].store(writer << 32 | round, Ordering::Relaxed);
                    order.release(1, Write);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    take(Read);
                    let seen = [&pair[0], &pair[1]].map(|half| half.load(Ordering::Relaxed));
                    order.release(1, Read);
                    assert_eq!(seen[0], seen[1]);
                }
            });
        }
    });
}
