//! RDMA devices of this machine: rdma-core's libibverbs, loaded when the topology file names a device that exists.
//!
//! * [`abi`] declares the used structures of `infiniband/verbs.h`, and loads the library.
//! * [`Nic`] is an open device with its protection domain; [`Region`] is memory registered there.
//! * [`QueuePair`] is a reliable connection, with its completion queue.
//!
//! The library is needed only if such a device is named. The crate `rdma-mummy-sys`, and `sideway` on top of it, also
//! load the library at run time, but need CMake, a C compiler and libclang to build.

mod abi;
mod nic;
mod queue_pair;

pub(crate) use abi::{Opcode, Sge};
pub(crate) use nic::{Buffers, Nic, Region, RemoteRights};
pub(crate) use queue_pair::{Completion, Endpoint, MOST_PIECES, QueuePair, Received, WorkRequest};

/// Identifies registered memory for peers that are connected through a device of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteKey {
    /// Number of the device within that process.
    pub(crate) nic: u16,
    pub(crate) rkey: u32,
    /// `true` if the device supports atomic operations.
    pub(crate) has_atomics: bool,
}

impl RemoteKey {
    /// Encodes the key in one word, which is never 0.
    pub(crate) fn to_word(self) -> u64 {
        let nic = u64::from(self.nic) << 32;
        let flags = VALID | if self.has_atomics { ATOMICS } else { 0 };
        flags | nic | u64::from(self.rkey)
    }

    pub(crate) fn from_word(word: u64) -> Option<RemoteKey> {
        (word & VALID != 0).then_some(RemoteKey {
            nic: (word >> 32) as u16,
            rkey: word as u32,
            has_atomics: word & ATOMICS != 0,
        })
    }
}

const VALID: u64 = 1 << 63;
const ATOMICS: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::RemoteKey;

    #[test]
    fn remote_keys_round_trip_and_0_is_none() {
        for (nic, rkey, has_atomics) in [(0, 0, false), (u16::MAX, u32::MAX, true)] {
            let key = RemoteKey {
                nic,
                rkey,
                has_atomics,
            };
            assert_eq!(RemoteKey::from_word(key.to_word()), Some(key));
        }
        assert_eq!(RemoteKey::from_word(0), None);
    }
}
