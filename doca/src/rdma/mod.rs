//! RDMA: messages and one-sided reads and writes between two instances.

mod builder;
mod connection;
mod instance;

pub use builder::RdmaBuilder;
pub use connection::RdmaConnection;
pub use instance::Rdma;
