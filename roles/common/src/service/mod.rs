//! What the storage services share: between one initiator and one or more storage targets.
//!
//! [`session`] is the control state machine, [`run`] drives it over real channels and workers, and
//! [`endpoints`] are the ends of the data path that every worker has. What a service does with its
//! I/Os, and how it makes one storage of its targets, is its own: a [`Service`].

mod app;
mod command;
pub mod endpoints;
mod flags;
pub mod session;
mod superblocks;
mod survival;

pub use app::{Service, run};
pub use command::{Command, Reply, WorkerCommand, WorkerSetup};
pub use flags::ServiceFlags;
pub use survival::Survival;
