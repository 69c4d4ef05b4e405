//! Random faults in a live deployment of real processes, under a load that verifies every block.
//!
//! The faults hit a service and its targets, which keep their blocks in files, and the [`Load`], which plays the initiator. They never
//! hit the [`Witness`], which is told of each write before it is submitted and of each acknowledgement, and judges the result of every read.
//! A [`Hammer`] starts these processes, injects the faults of a [`Plan`], and checks the consequences.

mod deployment;
mod ledger;
mod load;
mod plan;
mod round;
mod run;
mod witness;

pub use deployment::Resources;
pub(crate) use deployment::{Redundancy, of_log};
pub use ledger::Counts;
pub use load::{Load, Mischief, Stranger, Task};
pub use plan::{Blow, Expectation, Fault, Phase, Plan, Round, Victim};
pub use run::{Actors, Failed, Hammer, Row, Settings, Tally};
pub use witness::Witness;
