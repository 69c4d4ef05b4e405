//! Tests of an implementation from the outside.
//!
//! * [`target`] Scripted peers for the DOCA storage protocol: they speak TCP, Comch and RDMA as a role would, and misbehave on
//!   request, so that a test sees what the real role at the other end makes of it. Nothing here uses the roles' code: a peer
//!   that shared it would share its mistakes.
//! * [`samples`] DOCA's own samples, which somebody has built, run to their documented end.
//! * [`layout`] what the wire's bytes are; [`process`] a role as a process of its own.
#![forbid(unsafe_code)]

pub mod layout;
pub mod process;
pub mod samples;
pub mod target;
