//! RDMA through its C functions: two instances in one thread, and processes against each other.

mod connections;
mod memory;
mod messages;
mod side;
