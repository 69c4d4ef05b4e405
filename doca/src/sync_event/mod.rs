//! Sync events: 64-bit values that programs set, add to and wait for, also across processes and machines.

mod builder;
mod context;
mod event;
mod remote;

pub use builder::SyncEventBuilder;
pub use context::SyncEventContext;
pub use event::SyncEvent;
pub use remote::RemoteSyncEvent;
