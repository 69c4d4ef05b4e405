//! Handshake of two instances that connect by address, over a socket in the runtime directory.
//!
//! ```text
//!    0  6 bytes magic, u16 version
//!    8  u8 kind: 1 request, 2 acceptance, 3 rejection, 4 ready; u8 length of the data at the end
//!   10  connection details, of requests and acceptances
//!       of requests the client's address, u8 type (`doca_rdma_addr_type`) and 16 bytes; of acceptances private data
//! ```
//!
//! The client sends a request and waits; the server's program accepts or rejects; the client reports when it is
//! connected. Only then is the connection established for the server. If the socket closes before, the request was
//! rejected.

use super::address::Host;
use super::blob::ConnectionDetails;
use crate::error::{Error, Result};
use crate::runtime::Socket;

const MAGIC: [u8; 6] = *b"SDRDCM";
const VERSION: u16 = 2;
const HEAD: usize = 10;
const LONGEST: usize = HEAD + ConnectionDetails::LONGEST + u8::MAX as usize;

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    Request {
        details: ConnectionDetails,
        /// The client's address, of the same kind as the server's.
        from: Host,
    },
    Acceptance {
        details: ConnectionDetails,
        private_data: Vec<u8>,
    },
    Rejection,
    Ready,
}

/// Result of polling the socket.
#[derive(Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub(super) enum Heard {
    Nothing,
    Word(Word),
    /// The peer has disconnected, or sent a malformed message.
    Gone,
}

impl Word {
    fn encode(&self) -> Vec<u8> {
        let host;
        let (kind, details, private_data): (u8, _, &[u8]) = match self {
            Word::Request { details, from } => {
                host = from.encode();
                (1, Some(details), &host)
            }
            Word::Acceptance {
                details,
                private_data,
            } => (2, Some(details), private_data),
            Word::Rejection => (3, None, &[]),
            Word::Ready => (4, None, &[]),
        };
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        // Length limit of a u8 in the C API.
        let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        bytes.extend_from_slice(&[kind, len]);
        if let Some(details) = details {
            bytes.extend_from_slice(&details.encode());
        }
        bytes.extend_from_slice(&private_data[..usize::from(len)]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Word> {
        let (head, rest) = bytes
            .split_first_chunk::<HEAD>()
            .filter(|(head, _)| head[..6] == MAGIC)
            .ok_or(Error::InvalidValue)?;
        if head[6..8] != VERSION.to_be_bytes() {
            return Err(Error::UnsupportedVersion.because(
                "an RDMA peer connects with another version of softdoca: run the same one on both sides",
            ));
        }
        let (kind, len) = (head[8], usize::from(head[9]));
        let (details, private_data) = rest
            .len()
            .checked_sub(len)
            .map(|at| rest.split_at(at))
            .ok_or(Error::InvalidValue)?;
        match (kind, details.is_empty(), len) {
            (1, false, _) => Ok(Word::Request {
                details: ConnectionDetails::decode(details)?,
                from: Host::decode(private_data)?,
            }),
            (2, false, _) => Ok(Word::Acceptance {
                details: ConnectionDetails::decode(details)?,
                private_data: private_data.to_vec(),
            }),
            (3, true, 0) => Ok(Word::Rejection),
            (4, true, 0) => Ok(Word::Ready),
            _ => Err(Error::InvalidValue),
        }
    }
}

impl Heard {
    fn of(len: Result<Option<usize>>, bytes: &[u8]) -> Heard {
        match len {
            Err(Error::Again) => Heard::Nothing,
            Ok(Some(len)) => Word::decode(&bytes[..len]).map_or(Heard::Gone, Heard::Word),
            Ok(None) | Err(_) => Heard::Gone,
        }
    }
}

/// Sends a message. It fits in the socket buffer: no other message is in flight.
pub(super) fn say(socket: &Socket, word: &Word) -> Result<()> {
    socket.send(&word.encode(), &[])
}

/// Receives a message, without blocking.
pub(super) fn hear(socket: &Socket) -> Heard {
    let mut bytes = [0; LONGEST + 1];
    let mut fds = Vec::new();
    let len = socket.receive(&mut bytes, &mut fds);
    if !fds.is_empty() {
        return Heard::Gone;
    }
    Heard::of(len, &bytes)
}

/// Encoding of a valid message.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    Word::decode(bytes).map(|word| word.encode())
}

/// Messages of all kinds, for a nonexistent connection.
pub(crate) fn examples() -> Result<Vec<Vec<u8>>> {
    let details = ConnectionDetails::example()?;
    let acceptance = Word::Acceptance {
        details,
        private_data: vec![1, 2, 3],
    };
    let words = [
        Word::Request {
            details,
            from: Host::example(),
        },
        acceptance,
        Word::Rejection,
        Word::Ready,
    ];
    Ok(words.map(|word| word.encode()).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::agent::AgentAddress;
    use crate::runtime::Key;

    fn details() -> ConnectionDetails {
        ConnectionDetails {
            transport_type: 0,
            permissions: 7,
            agent: AgentAddress::local().expect("an address"),
            key: Key::from_bytes([3; Key::SIZE]),
            network: None,
        }
    }

    #[test]
    fn handshake_messages_pass_over_a_socket() {
        let (a, b) = Socket::pair().expect("sockets");
        assert_eq!(hear(&b), Heard::Nothing);
        for private_data in [vec![], vec![1, 2, 3], vec![9; 255]] {
            let words = [
                Word::Request {
                    details: details(),
                    from: Host::example(),
                },
                Word::Acceptance {
                    details: details(),
                    private_data,
                },
                Word::Rejection,
                Word::Ready,
            ];
            for word in words {
                say(&a, &word).expect("room");
                assert_eq!(hear(&b), Heard::Word(word));
            }
        }
        drop(a);
        assert_eq!(hear(&b), Heard::Gone);
    }

    #[test]
    fn other_versions_and_lengths_are_refused() {
        let request = Word::Request {
            details: details(),
            from: Host::example(),
        };
        let good = request.encode();
        for len in 0..good.len() {
            assert!(Word::decode(&good[..len]).is_err(), "{len} bytes");
        }
        let mut other = good.clone();
        other[7] += 1;
        assert_eq!(Word::decode(&other), Err(Error::UnsupportedVersion));
        let (a, b) = Socket::pair().expect("sockets");
        a.send(&other, &[]).expect("room");
        assert_eq!(hear(&b), Heard::Gone);
        let mut stranger = good.clone();
        stranger[HEAD + ConnectionDetails::SIZE] = 3;
        assert_eq!(Word::decode(&stranger), Err(Error::InvalidValue));
        let mut longer = Word::Ready.encode();
        longer.push(0);
        assert!(Word::decode(&longer).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_refused(tail in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut bytes = Word::Ready.encode()[..8].to_vec();
            bytes.extend(tail);
            // Must not panic for any input.
            let _ = Word::decode(&bytes);
        }
    }
}
