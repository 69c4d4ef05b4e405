//! Receives shared by several senders.
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
//! A sender that dies may have taken receives that it never used. Its slot has the number taken, the receiver knows
//! the number of messages received, and posts the difference again. The slot's generation changes then, so that a late
//! sender cannot take any more.
//!
//! `posting` and `taking` are compiled a second time in `tests/model`, over memory instrumented by loom.

mod handover;
mod memory;
mod posting;
mod taking;

pub(super) use posting::{ReceivePool, Slot};
pub(super) use taking::SharedReceives;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::error::Error;

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
        // The next one in the same slot starts over.
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
