//! RDMA through its C functions: two instances in one thread, and processes against each other.

mod access;
mod connections;
mod memory;
mod messages;
mod processes;
mod several;
mod side;
mod waking;
