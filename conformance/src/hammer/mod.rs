//! Random faults against a live deployment of real processes, under a load that knows what every block must hold.
//!
//! Three kinds of processes work together. Roles are what is hurt: a service and its targets, which keep their blocks in files. A
//! [`Load`] plays the initiator, and is hurt too. The [`Witness`] is never hurt: it hears of each write before it is made and of each
//! acknowledgement, and judges what every read brings. A [`Hammer`] starts them all, hurts them as a [`Plan`] says, and looks at
//! what becomes of everybody.

mod account;
mod content;
mod deployment;
mod ledger;
mod load;
mod plan;
mod redundancy;
mod resources;
mod round;
mod run;
mod sessions;
mod stranger;
mod tally;
mod witness;

pub use ledger::Counts;
pub use load::{Load, Mischief, Task};
pub use plan::{Blow, Expectation, Fault, Phase, Plan, Round, Victim};
pub use resources::Resources;
pub use run::{Actors, Hammer, Settings};
pub use stranger::Stranger;
pub use tally::{Failed, Row, Tally};
pub use witness::Witness;
