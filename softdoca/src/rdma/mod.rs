//! RDMA: instances that send messages to each other, and read and write each other's memory.
//!
//! * [`Rdma`] is the driver of an instance's context: its connections, its receive tasks, what has ended.
//! * [`Connection`] is one peer: what it sends, and the tasks of this side in their order.
//! * [`task`] holds the bodies of tasks; `sending` and `receiving` run them.
//! * [`blob`] is what programs carry from one peer to the other; [`handshake`] is how two instances exchange it by themselves,
//!   when one of them listens to a port (`listening`) and the other connects to its [`Address`] (`by_address`).
//! * [`transport`] moves messages between processes; `over_network` is what differs when they are on different machines.
//!
//! Reads and writes need no progress by the peer: on one machine the side that submits them does them itself, in the memory that its peer
//! has exported; over the network a thread of the peer's agent does.

mod address;
mod blob;
mod buffers;
mod by_address;
mod config;
mod connecting;
mod connection;
mod driver;
mod gid;
mod handshake;
mod listening;
mod over_network;
mod pending;
mod pools;
mod receiving;
mod sending;
mod task;
mod transport;

pub(crate) use address::Address;
pub(crate) use blob::{again as details_again, examples as example_details};
pub(crate) use config::{ConnectionCallbacks, Fabric, check_transport_type, limits};
pub(crate) use connection::Connection;
pub(crate) use driver::Rdma;
pub(crate) use gid::gids;
pub(crate) use handshake::{again as word_again, examples as example_words};
pub(crate) use task::{Arguments, Operation, Receive, Received, Work};
