//! Several producers of one process send into one ring: the first has the bias until the second sends.

use loom::sync::Arc;

use crate::check;
use crate::processors::{Barriers, on, spawn};
use crate::ring::BiasedLock;

/// Adds 1, as a user with this number.
fn add(lock: &BiasedLock<u32>, user: u64) {
    // SAFETY: each thread of a model has a number of its own.
    unsafe { lock.with(user, |value| *value += 1) }.expect("barriers are executed");
}

fn two_users() {
    let lock = Arc::new(BiasedLock::new(0));
    // The first use gives the bias, before there is another user.
    on(0, || add(&lock, 1));
    let theirs = Arc::clone(&lock);
    let other = spawn(1, move || {
        add(&theirs, 2);
        add(&theirs, 2);
    });
    on(0, || {
        add(&lock, 1);
        add(&lock, 1);
    });
    other.join().expect("no panic");
    // SAFETY: as in `add`; there is no other thread any more.
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
        let lock = Arc::new(BiasedLock::new(0));
        let theirs = Arc::clone(&lock);
        let other = spawn(1, move || add(&theirs, 2));
        on(0, || {
            add(&lock, 1);
            add(&lock, 1);
        });
        other.join().expect("no panic");
        // SAFETY: as in `add`; there is no other thread any more.
        assert_eq!(unsafe { lock.with(1, |value| *value) }, Ok(3));
    });
}
