//! The model's machine: words and cells of shared memory, and processors with [membarrier(2)].
//!
//! An order can be weakened from outside (`MODEL_WEAKEN`), which must make a model fail. This shows that the models
//! detect the error, and that the order is needed.
//!
//! loom has no membarrier. It is modelled like the kernel's implementation: an interrupt to every other processor,
//! which executes a full barrier when it takes the interrupt, at any point of its code; the caller continues after all
//! of them have executed the barrier. An idle processor needs no interrupt: it executed a barrier when it became idle,
//! and executes another when it resumes. Interrupts are taken before accesses to [words](Word): other points are
//! equivalent.
//!
//! [membarrier(2)]: https://man7.org/linux/man-pages/man2/membarrier.2.html

use std::cell::{self, RefCell};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{self, AtomicU64, AtomicUsize};
use loom::thread;

/// Names the order to weaken: "load of WORD", "store of WORD", "fence of the sleeper", "fence of the waker", "barrier".
pub(crate) const WEAKEN: &str = "MODEL_WEAKEN";

pub(crate) fn is_weakened(what: impl FnOnce() -> String) -> bool {
    static WEAKENED: OnceLock<Option<String>> = OnceLock::new();
    WEAKENED
        .get_or_init(|| std::env::var(WEAKEN).ok())
        .as_ref()
        .is_some_and(|weakened| *weakened == what())
}

thread_local! {
    /// Accesses with an order stronger than relaxed, and their words.
    static ASKED: RefCell<BTreeSet<(&'static str, &'static str)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Orders used by this thread's models.
pub(crate) fn asked() -> Vec<String> {
    let name = |(access, word): &(&str, &str)| format!("{access} of {word}");
    ASKED.with_borrow(|asked| asked.iter().map(name).collect())
}

#[derive(Debug)]
pub(crate) struct Word {
    name: &'static str,
    value: AtomicU64,
    /// `true` if the word is also accessed by atomic exchanges.
    is_exchanged: bool,
}

impl Word {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            value: AtomicU64::new(0),
            is_exchanged: false,
        }
    }

    /// A word that is exchanged as well as loaded and stored.
    ///
    /// An exchange is atomic; loom violates that in the presence of plain stores, and then reports lost wake-ups for a
    /// store by the same thread that is older than the exchange. Stores to such words are exchanges here, which loom
    /// keeps in one order. Loads keep their memory order.
    pub(crate) fn exchanged(name: &'static str) -> Self {
        Self {
            is_exchanged: true,
            ..Self::new(name)
        }
    }

    fn order(&self, access: &'static str, order: Ordering) -> Ordering {
        take_interrupt();
        if order == Ordering::Relaxed {
            return order;
        }
        let what = || format!("{access} of {}", self.name);
        ASKED.with_borrow_mut(|asked| asked.insert((access, self.name)));
        if is_weakened(what) {
            Ordering::Relaxed
        } else {
            order
        }
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.value.load(self.order("load", order))
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        let order = self.order("store", order);
        if self.is_exchanged {
            self.value.swap(value, order);
        } else {
            self.value.store(value, order);
        }
    }

    pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.value.swap(value, self.order("swap", order))
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.value.fetch_add(value, self.order("addition", order))
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let success = self.order("exchange", success);
        self.value
            .compare_exchange_weak(current, new, success, failure)
    }

    pub(crate) fn fetch_update(
        &self,
        success: Ordering,
        failure: Ordering,
        update: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let success = self.order("update", success);
        self.value.fetch_update(success, failure, update)
    }
}

pub(crate) fn fence(order: Ordering) {
    let whose = if falls_asleep() { "sleeper" } else { "waker" };
    if is_weakened(|| format!("fence of the {whose}")) {
        atomic::fence(Ordering::AcqRel);
    } else {
        atomic::fence(order);
    }
}

/// Bytes of shared memory, to be used by one process at a time.
#[derive(Debug)]
pub(crate) struct Cell<T>(UnsafeCell<T>);

impl<T> Cell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: loom runs one thread at a time; an unordered access fails the model before it is executed.
        self.0.with(|value| read(unsafe { &*value }))
    }

    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `read`.
        self.0.with_mut(|value| write(unsafe { &mut *value }))
    }
}

// SAFETY: loom runs all threads on one thread, and checks every access.
unsafe impl<T: Send> Sync for Cell<T> {}

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
    static OWN: cell::Cell<Option<usize>> = cell::Cell::new(None);
    static FALLS_ASLEEP: cell::Cell<bool> = cell::Cell::new(false);
}

/// Processes that use the kernel's barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barriers {
    /// No process uses barriers: the kernel does not support them, or they were not requested.
    None,
    All,
    /// The processes on even processors.
    Some,
}

thread_local! {
    static BARRIERS: cell::Cell<Barriers> = const { cell::Cell::new(Barriers::None) };
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
    OWN.with(cell::Cell::get)
}

fn are_used() -> bool {
    BARRIERS.get() != Barriers::None
}

fn enter() {
    if let (Some(own), true) = (own(), are_used()) {
        STATES[own].swap(RUNNING, Relaxed);
        atomic::fence(SeqCst);
    }
}

fn leave() {
    if let (Some(own), true) = (own(), are_used()) {
        atomic::fence(SeqCst);
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
        atomic::fence(SeqCst);
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
    atomic::fence(SeqCst);
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
    atomic::fence(SeqCst);
    true
}

/// `true` if this thread has armed its endpoints and is not sleeping yet.
pub(crate) fn falls_asleep() -> bool {
    FALLS_ASLEEP.with(cell::Cell::get)
}

/// Marks the time between arming and sleeping.
pub(crate) fn falling_asleep<T>(run: impl FnOnce() -> T) -> T {
    FALLS_ASLEEP.with(|falls| falls.set(true));
    let result = run();
    FALLS_ASLEEP.with(|falls| falls.set(false));
    result
}
