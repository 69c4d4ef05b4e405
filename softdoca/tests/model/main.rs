//! Rings, doorbells and shared receives under [loom]: every order in which threads can run, and every value that a
//! weakly ordered processor may give to a read. BlueField is Arm; x86 hides most of what could be wrong here.
//!
//! # What is modelled
//!
//! softdoca's own sources: `src/ring/{layout,producer,consumer,bell,biased_lock}.rs` and
//! `src/rdma/transport/credits/{posting,taking}.rs` are compiled into this program, with the model's memory and kernel
//! ([`ring::kernel`], `mapping.rs`, [`words`], [`processors`]). Rings have two slots. Slots and payload are loom cells:
//! an unordered read and write fail the model, whatever was read.
//!
//! * [`delivery`]: messages in slots and in payload units, credits, closing endpoints.
//! * [`sleeping`]: no wake-up is lost, with fences, with the kernel's barriers, and with one endpoint of each kind.
//!   Sleeps have no timeout here.
//! * [`senders`]: receives shared by several senders, one of which may die.
//! * [`bias`]: producers of one process that share a ring.
//! * [`weaker`]: every memory order is weakened, and a model must fail.
//!
//! # What is not modelled
//!
//! * The engine's loop ([`sleeping::progress_until`]) is reimplemented here; `src/progress/pe.rs` is too large for
//!   loom.
//! * loom's fences order more than C++'s (everything before one fence precedes everything after a later one). So the
//!   orders of words are modelled where there are no fences, and fences only where they decide visibility.
//! * Stores to words that are also exchanged: see [`words::Word::exchanged`].
//! * Malicious peers: these are covered by the ring's tests and by fuzzing.
//!
//! # Bounds
//!
//! At most 2 preemptions in each execution (switches of waiting threads are not counted): seconds in total, and
//! sufficient for every failure that [`weaker`] expects. `LOOM_MAX_PREEMPTIONS=5 cargo test -p softdoca --test model`
//! takes minutes, for hundreds of thousands of executions.

mod credits;
mod processors;
mod ring;
mod words;

mod bias;
mod delivery;
mod senders;
mod sleeping;
mod weaker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use processors::Barriers;
// Where the ring's sources expect it.
use softdoca::error;

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
        processors::power_on(barriers);
        scenario();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!(
        "barriers {barriers:?}: {executions} executions, {:?}",
        began.elapsed()
    );
    println!("{}{}", weaker::ORDERS, words::asked().join(", "));
    assert!(executions > 1, "one execution is no model");
}
