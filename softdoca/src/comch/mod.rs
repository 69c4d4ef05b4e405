//! Comch: messages between programs on the host and on the DPU.
//!
//! * [`server`] and [`client`] are the two ends of the control path; [`control`] is their common state. They exchange
//!   [`frame`]s over a [`connection`].
//! * [`consumer`] and [`producer`] are the two ends of the fast path. A consumer owns a ring in shared memory;
//!   [`remote_consumer`] is the producers' end of it.
//! * [`payload`] moves bytes between the program's buffers and the rings.
//!
//! The constants are the limits that capability queries report.

mod client;
mod connection;
mod consumer;
mod control;
mod frame;
mod payload;
mod producer;
mod remote_consumer;
mod server;

pub(crate) use client::Client;
pub(crate) use connection::{Connection, Side};
pub(crate) use consumer::{Consumer, PostRecv};
pub(crate) use control::{ControlPath, Counter};
pub(crate) use frame::{again as frame_again, examples as example_frames};
pub(crate) use producer::{Producer, SendTask as ProducerSendTask};
pub(crate) use server::Server;

use crate::error::{Error, Result};

/// Maximum, and default, size of a control message in bytes.
pub(crate) const MAX_MESSAGE_SIZE: u32 = 4080;
/// Maximum length of a server name in bytes, without the terminating NUL.
pub(crate) const MAX_NAME_LEN: usize = 119;
/// Maximum number of received control messages queued for the program.
pub(crate) const MAX_RECV_QUEUE: u32 = 8192;
/// Default number of received control messages queued for the program.
const DEFAULT_RECV_QUEUE: u32 = 256;
/// Maximum number of clients of one server if the descriptor limit is high enough: see [`max_clients`].
const MAX_CLIENTS: usize = 512;
/// Maximum number of accepted connections that have not sent a hello.
const MAX_PENDING_CLIENTS: usize = 64;
/// Maximum number of tasks of one pool.
pub(crate) const MAX_TASKS: u32 = 8192;
/// Maximum number of consumers of one end of a connection.
pub(crate) const MAX_CONSUMERS: usize = 512;
/// Maximum size of a fast-path message in bytes.
pub(crate) const MAX_BUF_SIZE: usize = 1 << 20;
/// Maximum size of immediate data of the fast path in bytes.
pub(crate) const MAX_IMMEDIATE: usize = 32;
/// Maximum length of a list of bufs that a consumer receives into.
pub(crate) const RECEIVE_LIST_LEN: u32 = 1;
/// Reported maximum length of a list of bufs that a producer sends; longer lists are sent, too.
pub(crate) const SEND_LIST_LEN: u32 = 64;
/// Maximum number of consumers of the peer on one connection: each takes two descriptors of this process, or four when
/// it is sent to, and a peer must not exhaust them.
fn max_remote_consumers() -> usize {
    eighth_of(descriptors(), MAX_CONSUMERS)
}

/// Maximum number of clients of one server: each takes two descriptors of this process, and clients must not exhaust
/// them.
pub(crate) fn max_clients() -> usize {
    eighth_of(descriptors(), MAX_CLIENTS)
}

/// Descriptor limit of this process at the first call: the limits derived from it stay constant.
fn descriptors() -> u64 {
    static LIMIT: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.unwrap_or(u64::MAX)
    })
}

/// An eighth of the descriptors, at least 1 and at most `most`.
fn eighth_of(descriptors: u64, most: usize) -> usize {
    usize::try_from(descriptors / 8).map_or(most, |eighth| eighth.clamp(1, most))
}

/// Maximum id of consumers and producers; the minimum is 1. Programs use 0 and 0xffff for "none".
pub(crate) const MAX_ID: u32 = 0xfffe;

/// Checks the name of a server.
fn check_name(name: &str) -> Result<()> {
    match name.len() {
        1..=MAX_NAME_LEN => Ok(()),
        len => Err(Error::InvalidValue.because(format_args!(
            "a server name has 1 to {MAX_NAME_LEN} bytes, got {len}"
        ))),
    }
}

/// Checks that a configured value is in the device's range.
fn check_range(what: &str, value: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::InvalidValue.because(format_args!(
        "expected a {what} of 1 to {most}, got {value}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_consumers_of_peers_leave_descriptors_for_the_program() {
        for (descriptors, most) in [(0, 1), (256, 32), (1024, 128), (u64::MAX, 512)] {
            assert_eq!(eighth_of(descriptors, 512), most);
        }
    }
}
