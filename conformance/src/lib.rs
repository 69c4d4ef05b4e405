//! Black-box tests of implementations of the DOCA storage protocol.
//!
//! * [`layout`]: the bytes of the wire format, checked with golden vectors.
//! * [`role`]: one role of any implementation between scripted peers.
//! * [`target`]: a scripted storage target that injects faults. Like all scripted peers, it uses TCP, Comch and RDMA
//!   without any code of the roles, so that it does not share their bugs.
//! * [`matrix`]: every combination of implementations, in one deployment each.
//! * [`faults`]: roles that crash or stop, and connections that end, at every phase of a session.
//! * [`hammer`]: random faults in a deployment under a load that verifies every block.
//! * [`network`]: network faults in a deployment on several machines, whose links can be cut, slow or lossy.
//! * [`torture`]: attacks on each promise to users of the storage, on deployments of real processes.
//! * [`hostile`]: attacks on one role, and their cost.
//! * [`transcript`]: recording, display and replay of control connections.
//! * [`samples`]: DOCA's own samples, run to their documented result.
//! * [`violation`]: the error type of all these suites.
//! * [`report`]: results of checks, for terminals and as JUnit XML.
//!
//! Processes are started by the [`deployment`] crate.
#![forbid(unsafe_code)]

pub mod faults;
pub mod hammer;
pub mod hostile;
pub mod layout;
pub mod matrix;
mod nbd;
pub mod network;
mod processes;
pub mod report;
pub mod role;
pub mod samples;
mod stall;
pub mod target;
pub mod torture;
pub mod transcript;
pub mod violation;
