//! Tests of an implementation from the outside.
//!
//! * [`target`] Scripted peers for the DOCA storage protocol: they speak TCP, Comch and RDMA as a role would, and misbehave on
//!   request, so that a test sees what the real role at the other end makes of it. Nothing here uses the roles' code: a peer
//!   that shared it would share its mistakes.
//! * [`samples`] DOCA's own samples, which somebody has built, run to their documented end.
//! * [`role`] one role, between scripted peers.
//! * [`layout`] what the wire's bytes are.
//! * [`implementation`] somebody's binaries of the roles, [`process`] one of them as a process of its own, [`scene`] where they
//!   meet without meeting anybody else.
//! * [`transcript`] what was said on control connections: recorded, shown, replayed.
//! * [`matrix`] every mix of implementations, in one deployment each.
//! * [`faults`] roles that die, and connections that end, at every place of a session.
//! * [`hammer`] random faults against a deployment under a load that knows what every block must hold.
//! * [`hostile`] an attacker against one role, and what it may cost.
//! * [`report`] what all checks report, for people and as JUnit XML.
#![forbid(unsafe_code)]

pub mod faults;
pub mod hammer;
pub mod hostile;
pub mod implementation;
pub mod layout;
pub mod matrix;
pub mod port;
pub mod process;
pub mod report;
pub mod role;
pub mod samples;
pub mod scene;
pub mod target;
pub mod transcript;
pub mod usage;
