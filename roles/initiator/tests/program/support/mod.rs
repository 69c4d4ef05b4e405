//! A storage service that is scripted, in the test's process, and the real initiator as a process beside it.
//!
//! It speaks control messages and I/O messages as a service does, and transfers no data: what happens to data is tested with
//! the real service and faulty targets elsewhere.

mod initiator;
mod service;

pub use initiator::{Initiator, usable_cpu};
pub use service::{Io, Script, Service};
