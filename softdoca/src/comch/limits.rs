//! Limits of Comch, as reported by capability queries.

use crate::error::{Error, Result};

/// Largest control message in bytes, and what servers and clients are set to at first.
pub(crate) const MAX_MESSAGE_SIZE: u32 = 4080;
/// Longest server name in bytes, without the terminating NUL.
pub(crate) const MAX_NAME_LEN: usize = 119;
/// Largest number of received control messages that may wait for the program.
pub(crate) const MAX_RECV_QUEUE: u32 = 8192;
/// Default of the same.
pub(super) const DEFAULT_RECV_QUEUE: u32 = 256;
/// Clients of one server, where the limit of descriptors is high enough: see [`max_clients`].
const MAX_CLIENTS: usize = 512;
/// Connections that have been accepted and have not said hello.
pub(super) const MAX_STRANGERS: usize = 64;
/// Tasks of one pool.
pub(crate) const MAX_TASKS: u32 = 8192;
/// Consumers of one end of a connection.
pub(crate) const MAX_CONSUMERS: usize = 512;
/// Largest message of the fast path in bytes.
pub(crate) const MAX_BUF_SIZE: usize = 1 << 20;
/// Largest immediate data of the fast path in bytes.
pub(crate) const MAX_IMMEDIATE: usize = 32;
/// Longest list of bufs that a consumer receives into.
pub(crate) const RECEIVE_LIST_LEN: u32 = 1;
/// Longest list of bufs that every producer sends; it takes longer ones too.
pub(crate) const SEND_LIST_LEN: u32 = 64;
/// Consumers of the peer that one connection may announce: each takes two descriptors of this process, or four when it is sent to, and the
/// peer is not to have them all.
pub(super) fn max_remote_consumers() -> usize {
    eighth_of(descriptors(), MAX_CONSUMERS)
}

/// Clients that one server may have: each takes two descriptors of this process, and they are not to have them all.
pub(crate) fn max_clients() -> usize {
    eighth_of(descriptors(), MAX_CLIENTS)
}

/// Descriptors that this process may have, as of the first call: the limits that follow from it do not change while it runs.
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

/// Ids of consumers and producers are 1 to this: programs use 0 and 0xffff for "none".
pub(crate) const MAX_ID: u32 = 0xfffe;

/// Checks the name of a server.
pub(super) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        1..=MAX_NAME_LEN => Ok(()),
        len => Err(Error::InvalidValue.because(format_args!(
            "a server name has 1 to {MAX_NAME_LEN} bytes, got {len}"
        ))),
    }
}

/// Checks a configured number against what the device can do.
pub(super) fn check_range(what: &str, value: u32, most: u32) -> Result<()> {
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
