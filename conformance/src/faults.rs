//! Faults in a live deployment: roles that crash or stop, connections that are closed or carry malformed messages.
//!
//! * A [`Case`] is one fault: the role of a deployment that gets a signal at a phase of a session. [`run`] starts the deployment with real
//!   processes, brings the session to that phase, injects the fault, and checks the other roles, the data, and the next session.
//! * [`relay`] finds the phase: every step of a session passes a connection between service and target.

mod aftermath;
mod case;
mod deployment;
pub mod relay;
mod sweep;

pub use case::{Case, Fault, Mode, Part, Phase};
pub use sweep::{Interrupted, Settings, Tried, run};
