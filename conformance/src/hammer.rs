//! Random faults against a live deployment of real processes, under a load that knows what every block must hold.
//!
//! Three kinds of processes work together. Roles are what is hurt: a service and its targets, which keep their blocks in files. A
//! [`Load`] plays the initiator, and is hurt too. The [`Witness`] is never hurt: it hears of each write before it is made and of each
//! acknowledgement, and judges what every read brings. A [`Hammer`] starts them all, hurts them as a [`Plan`] says, and looks at
//! what becomes of everybody.

mod deployment;
mod ledger;
mod load;
mod plan;
mod round;
mod run;
mod witness;

pub use deployment::Resources;
pub use ledger::Counts;
pub use load::{Load, Mischief, Stranger, Task};
pub use plan::{Blow, Expectation, Fault, Phase, Plan, Round, Victim};
pub use run::{Actors, Failed, Hammer, Row, Settings, Tally};
pub use witness::Witness;
