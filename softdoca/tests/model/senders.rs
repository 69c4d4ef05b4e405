//! Several senders share the receives of one receiver.

use loom::thread::{spawn, yield_now};

use crate::check;
use crate::credits::{pool, sender};
use crate::processors::Barriers;
use crate::words::Cell;

#[test]
fn no_receive_is_taken_twice() {
    check(Barriers::None, || {
        let pool = pool(2);
        let slots: Vec<_> = (0..2).map(|_| pool.slot().expect("a slot")).collect();
        pool.post(1);
        let (greedy, modest) = (sender(&slots[0]), sender(&slots[1]));
        let others = spawn(move || u64::from(greedy.take()) + u64::from(greedy.take()));
        let another = spawn(move || u64::from(modest.take()));
        pool.post(1);
        let taken = others.join().expect("no panic") + another.join().expect("no panic");
        assert!(taken <= 2, "{taken} of 2 receives were taken");
        // The remaining receives are still there, and no more.
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
        let late = spawn(move || late.take());
        // The receiver closes the connection while its sender takes a receive that it will never use.
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
        let other = spawn(move || {
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
