//! Setting, adding, waiting.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::*;
use super::fixture::{Se, ok};
use crate::error::Error;

#[test]
fn values_are_set_added_to_and_told() {
    let event = Se::started();
    assert_eq!(event.get(), 0);
    event.set(40);
    assert_eq!(event.get(), 40);
    assert_eq!(event.add(2), 40);
    assert_eq!(event.get(), 42);
    assert_eq!(event.add(u64::MAX), 42);
    assert_eq!(event.get(), 41, "adding wraps around");
    let invalid = Error::InvalidValue.code();
    let mut value = 0;
    // SAFETY: live handles and valid out-parameters, or NULL.
    unsafe {
        assert_eq!(doca_sync_event_get(event.0, null_mut()), invalid);
        assert_eq!(doca_sync_event_get(null_mut(), &mut value), invalid);
        assert_eq!(doca_sync_event_update_set(null_mut(), 1), invalid);
        assert_eq!(
            doca_sync_event_update_add(null_mut(), 1, &mut value),
            invalid
        );
        assert_eq!(doca_sync_event_update_add(event.0, 1, null_mut()), invalid);
    }
    assert_eq!(event.get(), 41);
}

#[test]
fn additions_of_several_threads_are_all_there() {
    let event = Se::started();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    event.add(1);
                }
            });
        }
    });
    assert_eq!(event.get(), 3000);
}

/// Every function that waits: it returns at once when it need not wait, and later when another thread changes the value.
#[test]
fn waits_end_when_the_masked_value_fulfils_their_condition() {
    type Wait = unsafe extern "C" fn(*mut doca_abi::doca_sync_event, u64, u64) -> u32;
    // The function, what it waits for of the low byte, a value that is not it, one that is.
    let cases: [(Wait, u64, u64, u64); 6] = [
        (doca_sync_event_wait_eq, 5, 0x0104, 0x0305),
        (doca_sync_event_wait_eq_yield, 5, 0x0106, 0x0205),
        (doca_sync_event_wait_neq, 5, 0x0105, 0x0204),
        (doca_sync_event_wait_neq_yield, 5, 0x0205, 0x0206),
        (doca_sync_event_wait_gt, 5, 0x0105, 0x0106),
        (doca_sync_event_wait_gt_yield, 5, 0x0304, 0x01ff),
    ];
    for (number, (wait, operand, before, after)) in cases.into_iter().enumerate() {
        let event = Se::started();
        event.set(before);
        let waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: a live handle, which the scope keeps.
                ok(unsafe { wait(event.raw(), operand, 0xff) });
                waited.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waited.load(Ordering::SeqCst), "case {number}");
            event.set(after);
            waiter.join().expect("the wait ends");
        });
        // SAFETY: a live handle.
        ok(unsafe { wait(event.0, operand, 0xff) });
        // SAFETY: NULL.
        let none = unsafe { wait(null_mut(), operand, 0xff) };
        assert_eq!(none, Error::InvalidValue.code());
    }
}

#[test]
fn an_event_that_is_not_started_has_no_value() {
    let event = Se::local();
    let (mut value, state) = (0, Error::BadState.code());
    let check = |value: &mut u64| {
        // SAFETY: a live handle and a valid out-parameter.
        unsafe {
            assert_eq!(doca_sync_event_get(event.0, value), state);
            assert_eq!(doca_sync_event_update_set(event.0, 1), state);
            assert_eq!(doca_sync_event_update_add(event.0, 1, value), state);
            assert_eq!(doca_sync_event_wait_gt(event.0, 0, u64::MAX), state);
        }
    };
    check(&mut value);
    event.start();
    event.set(9);
    // SAFETY: a live handle.
    unsafe {
        assert_eq!(doca_sync_event_start(event.0), state, "a second time");
        assert_eq!(doca_sync_event_destroy(event.0), state, "it is started");
        ok(doca_sync_event_stop(event.0));
        assert_eq!(doca_sync_event_stop(event.0), state, "a second time");
    }
    check(&mut value);
    event.start();
    assert_eq!(event.get(), 0, "it begins anew");
}
