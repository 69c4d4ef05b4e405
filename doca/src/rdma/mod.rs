//! RDMA: messages, and one-sided reads, writes, atomics and events, between two instances.

mod address;
mod builder;
mod connection;
mod connections;
mod instance;
mod received;
mod tasks;

pub use address::RdmaAddress;
pub use builder::RdmaBuilder;
pub use connection::RdmaConnection;
pub use connections::RdmaEvent;
pub use instance::Rdma;
pub use received::{ReceiveTask, Received};
