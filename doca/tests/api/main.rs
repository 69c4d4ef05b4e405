//! The Rust API over softdoca: one test binary, because each has to be linked.

#[path = "../support/mod.rs"]
mod support;

mod accelerators;
mod comch;
mod memory;
mod notification;
mod peer_death;
mod rdma;
mod sync_event;
