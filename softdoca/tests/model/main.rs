//! Rings, doorbells and shared receives under [loom]: every order in which threads can run, and every value that a weakly ordered
//! processor may give to a read. BlueField is Arm; x86 hides most of what could be wrong here.
//!
//! # What is modelled
//!
//! The very sources of softdoca: `src/ring/{layout,producer,consumer,bell}.rs` and `src/rdma/transport/credits/{posting,taking}.rs` are compiled
//! into this program, over memory and a kernel of the model's ([`ring::kernel`], `mapping.rs`, [`words`], [`processors`]). Rings have two slots.
//! Slots and payload are cells of loom's: a read and a write that nothing has put in an order end the model, whatever was read.
//!
//! * [`delivery`]: messages go around in their slots and beside them, credits, ends that close.
//! * [`sleeping`]: no wake is lost, with fences, with the kernel's barriers, and with one end of each kind. Sleeps have no bound here.
//! * [`senders`]: receives that several senders share, one of which may die.
//! * [`weaker`]: every order that is asked for is weakened, and a model must fail.
//!
//! # What is not
//!
//! * What an engine does between its looks ([`sleeping::progress_until`]) is written down here once more; `src/progress/pe.rs` is too large for loom.
//! * loom's fences order more than C++'s do (whatever comes before one fence comes before what follows a later one). So what words have to do is
//!   modelled where there are no fences; and fences only decide who sees whom.
//! * Stores to words that are also exchanged: see [`words::Word::exchanged`].
//! * Peers that write what they must not: that is what the tests beside the ring and the fuzzing are for.
//!
//! # Bounds
//!
//! At most 2 preemptions in each execution (switches of threads that wait are not counted): seconds in all, and enough for every failure
//! that [`weaker`] expects. `LOOM_MAX_PREEMPTIONS=5 cargo test -p softdoca --test model` takes minutes, for hundreds of thousands of
//! executions.

mod credits;
mod processors;
mod ring;
mod words;

mod delivery;
mod senders;
mod sleeping;
mod weaker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use processors::Barriers;
// Where the ring's sources look for it.
use softdoca::error;

/// Most preemptions in one execution, if `LOOM_MAX_PREEMPTIONS` does not say.
const PREEMPTIONS: usize = 2;
/// A model that makes more steps does not end.
const STEPS: usize = 10_000;

/// Runs a scenario in every way.
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
