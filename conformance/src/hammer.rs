//! Random faults in a live deployment of real processes, under a load that verifies every block.
//!
//! The faults are injected into a service, its targets, which store their blocks in files, and the [`Load`], which
//! acts as the initiator; never into the [`Verifier`], which is informed of each write before it is submitted and of
//! each acknowledgement, and checks the result of every read. With [`LoadKind::Nbd`], clients access the service
//! through an NBD server, which is restarted as well, and no I/O may fail. A [`Hammer`] starts these processes,
//! injects the faults of a [`Plan`], and checks the consequences.

mod deployment;
mod ledger;
mod load;
mod nbd;
mod plan;
mod round;
mod run;
mod verifier;

pub use deployment::Resources;
pub(crate) use deployment::{Redundancy, of_log};
pub use ledger::Counts;
pub use load::{Intruder, Load, Malformed, Task};
pub use plan::{Expectation, Fault, FaultyRole, Injection, LoadKind, Phase, Plan, Round};
pub use run::{Commands, Failed, Hammer, Row, Settings, Totals};
pub use verifier::Verifier;
