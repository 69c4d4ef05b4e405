//! Network faults: a deployment over machines whose cables are cut, slow or lossy, under sessions that validate all they read.
//!
//! The machines are network namespaces, and each target's machine is connected to that of the service by a `Cable`: a process that carries
//! the frames between two TAP devices and drops or delays them. A [`Run`] injects one [`Fault`] after the other while an initiator runs
//! `read_write_data_validity_test`, session after session. A session of a gga deployment has to go on whichever target is affected, unless it is
//! just being set up; one of a zero-copy deployment may fail. None may read wrong data, and after the fault the next one has to succeed.

mod cable;
mod deployment;
mod fault;
mod run;

pub use cable::{Condition, relay};
pub use fault::Fault;
pub use run::{Run, Settings, Summary};

pub(crate) use cable::Cable;
