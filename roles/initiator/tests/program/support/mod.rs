//! A scripted storage service in the test's process, and the real initiator as a process.
//!
//! The service handles control messages and I/O messages as a real one does, but transfers no data: data is tested
//! with the real service and faulty targets elsewhere.

mod initiator;
mod service;

pub use initiator::{Initiator, usable_cpu};
pub use service::{Io, Script, Service};
