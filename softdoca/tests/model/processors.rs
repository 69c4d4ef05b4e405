//! A model of processors for [membarrier(2)].
//!
//! loom has no membarrier. It is modelled like the kernel's implementation: an interrupt to every other processor,
//! which executes a full barrier when it takes the interrupt, at any point of its code; the caller continues after all
//! have done so. An idle processor needs none: it executed a barrier when it became idle, and executes another when it
//! resumes.
//!
//! Interrupts are taken before accesses to [words](crate::words::Word): no other point makes a difference.
//!
//! [membarrier(2)]: https://man7.org/linux/man-pages/man2/membarrier.2.html

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread;

use crate::words::is_weakened;

/// Maximum number of threads of a model.
const PROCESSORS: usize = 3;

/// Values of a processor's word.
const IDLE: usize = 0;
const RUNNING: usize = 1;
const INTERRUPTED: usize = 2;

loom::lazy_static! {
    static ref STATES: Vec<AtomicUsize> = (0..PROCESSORS).map(|_| AtomicUsize::new(IDLE)).collect();
}

loom::thread_local! {
    static OWN: Cell<Option<usize>> = Cell::new(None);
    static FALLS_ASLEEP: Cell<bool> = Cell::new(false);
}

/// Processes that use the kernel's barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barriers {
    /// No process: the kernel does not support it, or was not asked.
    None,
    /// All processes.
    All,
    /// The processes on even processors.
    Some,
}

thread_local! {
    static BARRIERS: Cell<Barriers> = const { Cell::new(Barriers::None) };
}

/// Must be called first in a model.
pub(crate) fn power_on(barriers: Barriers) {
    BARRIERS.set(barriers);
    assert_eq!(STATES.len(), PROCESSORS);
}

/// A thread on its own processor.
pub(crate) fn spawn<T: 'static>(
    processor: usize,
    run: impl FnOnce() -> T + 'static,
) -> thread::JoinHandle<T> {
    thread::spawn(move || on(processor, run))
}

/// Runs a closure on a processor.
pub(crate) fn on<T>(processor: usize, run: impl FnOnce() -> T) -> T {
    OWN.with(|own| own.set(Some(processor)));
    enter();
    let result = run();
    leave();
    OWN.with(|own| own.set(None));
    result
}

fn own() -> Option<usize> {
    OWN.with(Cell::get)
}

fn are_used() -> bool {
    BARRIERS.get() != Barriers::None
}

fn enter() {
    if let (Some(own), true) = (own(), are_used()) {
        STATES[own].swap(RUNNING, Relaxed);
        fence(SeqCst);
    }
}

fn leave() {
    if let (Some(own), true) = (own(), are_used()) {
        fence(SeqCst);
        STATES[own].swap(IDLE, Relaxed);
    }
}

/// Runs a blocking call, during which the processor is idle.
pub(crate) fn leave_while(wait: impl FnOnce()) {
    leave();
    wait();
    enter();
}

/// A point where an interrupt may be taken.
pub(crate) fn take_interrupt() {
    if are_used()
        && let Some(own) = own()
        && STATES[own].fetch_add(0, Relaxed) == INTERRUPTED
    {
        fence(SeqCst);
        STATES[own].swap(RUNNING, Relaxed);
    }
}

pub(crate) fn uses_barriers() -> bool {
    match BARRIERS.get() {
        Barriers::None => false,
        Barriers::All => true,
        Barriers::Some => own().is_some_and(|own| own.is_multiple_of(2)),
    }
}

pub(crate) fn barrier_in_all_threads() -> bool {
    fence(SeqCst);
    if is_weakened(|| "barrier".into()) {
        return true;
    }
    let own = own();
    let interrupts = |other: &usize| {
        // Processes without barriers are not interrupted.
        let registered = BARRIERS.get() == Barriers::All || other.is_multiple_of(2);
        registered
            && Some(*other) != own
            && STATES[*other]
                .fetch_update(Relaxed, Relaxed, |state| {
                    (state != IDLE).then_some(INTERRUPTED)
                })
                .is_ok()
    };
    let interrupted: Vec<usize> = (0..PROCESSORS).filter(interrupts).collect();
    for other in interrupted {
        while STATES[other].fetch_add(0, Relaxed) == INTERRUPTED {
            thread::yield_now();
            take_interrupt();
        }
    }
    fence(SeqCst);
    true
}

/// `true` if this thread has armed its endpoints and does not sleep yet.
pub(crate) fn falls_asleep() -> bool {
    FALLS_ASLEEP.with(Cell::get)
}

/// Marks the time between arming and sleeping.
pub(crate) fn falling_asleep<T>(run: impl FnOnce() -> T) -> T {
    FALLS_ASLEEP.with(|falls| falls.set(true));
    let result = run();
    FALLS_ASLEEP.with(|falls| falls.set(false));
    result
}
