//! RDMA: instances that exchange messages, and read and write each other's memory.
//!
//! * [`Rdma`] is the driver of an instance's context: its connections, receive tasks and completed tasks.
//! * [`Connection`] is the connection to one peer, with the queue of this side's tasks.
//! * [`task`] holds the bodies of tasks, and runs them.
//! * [`blob`] has the details that programs exchange; `by_address` exchanges them automatically when one instance
//!   listens on a port and the other connects to its [`Address`].
//! * [`transport`] moves messages between processes; `over_network` has the differences for other machines.
//!
//! Reads and writes need no progress by the peer: on one machine the submitting side performs them in the memory that
//! its peer has exported; over the network a thread of the peer's agent does.

mod address;
mod blob;
mod buffers;
mod by_address;
mod config;
mod connection;
mod driver;
mod over_network;
mod task;
mod transport;

pub(crate) use address::{Address, gids};
pub(crate) use blob::{again as details_again, examples as example_details};
pub(crate) use by_address::{again as handshake_again, examples as example_handshakes};
pub(crate) use config::{ConnectionCallbacks, Fabric, check_transport_type, limits};
pub(crate) use connection::Connection;
pub(crate) use driver::Rdma;
pub(crate) use task::{Arguments, Operation, Receive, Received, Work};
