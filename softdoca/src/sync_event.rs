//! Sync events: 64-bit values that programs set, add to and wait for, across processes.
//!
//! * [`SyncEvent`] is the driver of an event's context; an event can also be started by itself, without one.
//! * [`value`] is where the number lives: in a page of its own, in memory of the program, or in another process.
//! * [`wait`] lets a thread wait for it.
//! * [`work`] is what tasks do with it, and `driver` runs them on a progress engine.
//! * [`blob`] is what programs carry to others; [`RemoteEvent`] is what a network peer makes of it, for RDMA tasks.

mod blob;
mod event;
mod value;

pub(crate) use blob::{again as blob_again, examples as example_blobs};
pub(crate) use event::{Kind, Location, Role, SyncEvent, Work};
pub(crate) use value::{Condition, RemoteEvent};
