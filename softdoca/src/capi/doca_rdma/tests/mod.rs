//! RDMA through its C functions: two instances in one thread, and processes against each other.

mod access;
mod accessors;
mod across;
mod addresses;
mod atomics;
mod callers;
mod connections;
mod copies;
mod dynamic;
mod hostile;
mod memory;
mod messages;
mod over_network;
mod processes;
mod properties;
mod remote_events;
mod several;
mod side;
mod waking;
