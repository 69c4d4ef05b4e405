//! Sync events: 64-bit values that programs set, add to and wait for, across processes.
//!
//! * [`SyncEvent`] is the driver of an event's context; an event can also be started without a context.
//! * [`value`] holds the number: in a page of its own, in memory of the program, or in another process; threads can
//!   wait for it.
//! * [`Work`] is the body of the tasks, which the driver runs.
//! * [`blob`] exports events to other processes; [`RemoteEvent`] is an event imported from a network peer, for RDMA
//!   tasks.

mod blob;
mod event;
mod value;

pub(crate) use blob::{again as blob_again, examples as example_blobs};
pub(crate) use event::{Kind, Location, Role, SyncEvent, Work};
pub(crate) use value::{Condition, RemoteEvent};
