//! Comch: messages between programs on the host and on the DPU.
//!
//! * [`server`] and [`client`] are the two ends of the control path; [`control`] is their common state, [`events`]
//!   their callbacks, [`handshake`] establishes a [`connection`], and [`frame`] encodes the messages on its socket.
//! * [`consumer`] and [`producer`] are the two ends of the fast path. A consumer owns a ring in shared memory;
//!   [`remote_consumer`] is the producers' end of it; [`local_consumer`] passes frames from the connection's thread to
//!   the consumer's.
//! * [`payload`] moves bytes between the program's buffers and the rings.
//! * [`traffic`] counts messages.
//! * [`limits`] defines the maximum numbers and sizes.

mod client;
mod connection;
mod consumer;
mod control;
mod events;
mod frame;
mod handshake;
mod limits;
mod local_consumer;
mod payload;
mod producer;
mod remote_consumer;
mod server;
mod traffic;

pub(crate) use client::Client;
pub(crate) use connection::{Connection, Side};
pub(crate) use consumer::{Consumer, PostRecv};
pub(crate) use control::ControlPath;
pub(crate) use frame::{again as frame_again, examples as example_frames};
pub(crate) use limits::{
    MAX_BUF_SIZE, MAX_CONSUMERS, MAX_IMMEDIATE, MAX_MESSAGE_SIZE, MAX_NAME_LEN, MAX_RECV_QUEUE,
    MAX_TASKS, RECEIVE_LIST_LEN, SEND_LIST_LEN, max_clients,
};
pub(crate) use producer::{Producer, SendTask as ProducerSendTask};
pub(crate) use server::Server;
pub(crate) use traffic::Counter;
