//! Words and cells of shared memory.
//!
//! An order can be weakened from outside (`MODEL_WEAKEN`), which must make a model fail. This shows that the models
//! detect it, and that the order is needed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{self, AtomicU64};

use crate::processors;

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

/// A word shared by several processes.
#[derive(Debug)]
pub(crate) struct Word {
    name: &'static str,
    value: AtomicU64,
    /// Some accesses are exchanges.
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
    /// keeps in one order. Loads stay as weak as before.
    pub(crate) fn exchanged(name: &'static str) -> Self {
        Self {
            is_exchanged: true,
            ..Self::new(name)
        }
    }

    fn order(&self, access: &'static str, order: Ordering) -> Ordering {
        processors::take_interrupt();
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

/// A fence between words.
pub(crate) fn fence(order: Ordering) {
    let whose = if processors::falls_asleep() {
        "sleeper"
    } else {
        "waker"
    };
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
        // SAFETY: loom runs one thread at a time; an unordered access fails the model before it happens.
        self.0.with(|value| read(unsafe { &*value }))
    }

    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as in `read`.
        self.0.with_mut(|value| write(unsafe { &mut *value }))
    }
}

// SAFETY: loom runs all threads on one thread, and checks every access.
unsafe impl<T: Send> Sync for Cell<T> {}
