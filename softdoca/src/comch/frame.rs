//! Frames on the socket of a connection, and the initial handshake. One frame is one message of the `SOCK_SEQPACKET`,
//! little endian.
//!
//! ```text
//! u32 kind, then by kind
//!   1 hello              u32 magic, u32 version, u32 largest message, u8 length + PCI address, u8 length + server name
//!                        descriptors: lifeline
//!   2 accept             u32 largest message
//!   3 refuse             u32 doca_error_t, reason as UTF-8 up to the end
//!   4 message            the bytes of a control message, at least one
//!   5 consumer added     u32 id, u32 largest message of the fast path; descriptors: ring, eventfd of the consumer's engine
//!   6 consumer expired   u32 id
//!   7 producer attached  u32 consumer id; descriptors: eventfd of the producers
//! ```
//!
//! The client sends a hello and the server accepts or refuses it; the other kinds follow on an established connection.
//! All frames use one socket, so they arrive in the order in which they were sent: for example, the expiry of a
//! consumer before messages that were sent after it.

use std::os::fd::{AsFd, OwnedFd};

use super::MAX_MESSAGE_SIZE;
use crate::error::{Error, Result};
use crate::runtime::{Socket, is_unix_socket, named_socket};

/// "SDCC"; other frames do not come from a Comch client of softdoca.
const MAGIC: u32 = u32::from_be_bytes(*b"SDCC");
/// Must change with every change of the frames or of the meaning of their descriptors.
pub(super) const VERSION: u32 = 1;

const HELLO: u32 = 1;
const ACCEPT: u32 = 2;
const REFUSE: u32 = 3;
const MESSAGE: u32 = 4;
const CONSUMER_ADDED: u32 = 5;
const CONSUMER_EXPIRED: u32 = 6;
const PRODUCER_ATTACHED: u32 = 7;

/// Maximum length of the reason in a refusal, in bytes.
const MAX_REASON: usize = 256;

/// Maximum length of a frame in bytes; a receive buffer of this size holds every valid frame.
pub(super) const MAX_FRAME: usize = MAX_MESSAGE_SIZE as usize + 1024;

/// A decoded frame. Its descriptors are passed separately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// First frame of a client.
    Hello(Hello<'a>),
    /// First frame of a server: the connection is established.
    Accept { max_message: u32 },
    /// First and last frame of a server: the connection is refused.
    Refuse { code: u32, reason: &'a str },
    /// A control message.
    Message(&'a [u8]),
    /// A new consumer of the sender.
    ConsumerAdded { id: u32, max_message: u32 },
    /// A consumer of the sender accepts no more messages.
    ConsumerExpired { id: u32 },
    /// Producers of the sender send to one of the receiver's consumers.
    ProducerAttached { consumer_id: u32 },
}

/// The client's first frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello<'a> {
    pub version: u32,
    /// Maximum size of control messages in bytes, as configured by the client.
    pub max_message: u32,
    /// PCI address of the client's function.
    pub function: &'a str,
    /// Name of the requested server.
    pub server: &'a str,
}

/// A frame that no correct peer of this version sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("expected a frame of at least {expected} bytes, got {found}")]
    Short { expected: usize, found: usize },
    #[error("{0} bytes follow the end of a frame")]
    Trailing(usize),
    #[error("expected a frame of kind 1 to 7, got {0}")]
    Kind(u32),
    #[error("expected the magic of a Comch client, got {0:#010x}")]
    Magic(u32),
    #[error("a control message has 1 to {MAX_MESSAGE_SIZE} bytes, got {0}")]
    MessageLength(usize),
    #[error("a text of the frame is not UTF-8 or too long")]
    Text,
}

impl Frame<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let mut word = |value: u32| out.extend_from_slice(&value.to_le_bytes());
        match self {
            Frame::Hello(hello) => {
                [HELLO, MAGIC, hello.version, hello.max_message]
                    .into_iter()
                    .for_each(word);
                for text in [hello.function, hello.server] {
                    // Names are checked when the client is created (`check_name`).
                    let text = &text.as_bytes()[..text.len().min(u8::MAX.into())];
                    out.push(text.len() as u8);
                    out.extend_from_slice(text);
                }
            }
            Frame::Accept { max_message } => [ACCEPT, *max_message].into_iter().for_each(word),
            Frame::Refuse { code, reason } => {
                [REFUSE, *code].into_iter().for_each(word);
                out.extend_from_slice(truncate(reason, MAX_REASON).as_bytes());
            }
            Frame::Message(bytes) => {
                word(MESSAGE);
                out.extend_from_slice(bytes);
            }
            Frame::ConsumerAdded { id, max_message } => {
                [CONSUMER_ADDED, *id, *max_message]
                    .into_iter()
                    .for_each(word);
            }
            Frame::ConsumerExpired { id } => [CONSUMER_EXPIRED, *id].into_iter().for_each(word),
            Frame::ProducerAttached { consumer_id } => {
                [PRODUCER_ATTACHED, *consumer_id].into_iter().for_each(word);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> std::result::Result<Frame<'_>, Malformed> {
        let mut rest = Reader(bytes);
        let frame = match rest.word()? {
            HELLO => Frame::Hello(Hello {
                version: {
                    let magic = rest.word()?;
                    if magic != MAGIC {
                        return Err(Malformed::Magic(magic));
                    }
                    rest.word()?
                },
                max_message: rest.word()?,
                function: rest.text()?,
                server: rest.text()?,
            }),
            ACCEPT => Frame::Accept {
                max_message: rest.word()?,
            },
            REFUSE => Frame::Refuse {
                code: rest.word()?,
                reason: rest.remaining_text()?,
            },
            MESSAGE => {
                let message = rest.remaining();
                if message.is_empty() || message.len() > MAX_MESSAGE_SIZE as usize {
                    return Err(Malformed::MessageLength(message.len()));
                }
                Frame::Message(message)
            }
            CONSUMER_ADDED => Frame::ConsumerAdded {
                id: rest.word()?,
                max_message: rest.word()?,
            },
            CONSUMER_EXPIRED => Frame::ConsumerExpired { id: rest.word()? },
            PRODUCER_ATTACHED => Frame::ProducerAttached {
                consumer_id: rest.word()?,
            },
            kind => return Err(Malformed::Kind(kind)),
        };
        match rest.0.len() {
            0 => Ok(frame),
            trailing => Err(Malformed::Trailing(trailing)),
        }
    }
}

/// Decodes a frame and encodes it again.
pub(crate) fn again(bytes: &[u8]) -> std::result::Result<Vec<u8>, impl std::error::Error> {
    Frame::decode(bytes).map(|frame| frame.encode())
}

/// Frames of all kinds.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let hello = Hello {
        version: VERSION,
        max_message: MAX_MESSAGE_SIZE,
        function: "0000:3b:00.0",
        server: "name",
    };
    let (code, max_message) = (9, 4080);
    let frames = [
        Frame::Hello(hello),
        Frame::Accept { max_message },
        Frame::Refuse {
            code,
            reason: "the reason",
        },
        Frame::Message(b"a control message"),
        Frame::ConsumerAdded { id: 1, max_message },
        Frame::ConsumerExpired { id: 1 },
        Frame::ProducerAttached { consumer_id: 1 },
    ];
    frames.map(|frame| frame.encode()).into()
}

/// The bytes of the frame that have not been read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> std::result::Result<&'a [u8], Malformed> {
        let (front, back) = self.0.split_at_checked(len).ok_or(Malformed::Short {
            expected: len,
            found: self.0.len(),
        })?;
        self.0 = back;
        Ok(front)
    }

    fn word(&mut self) -> std::result::Result<u32, Malformed> {
        let (word, _) = self.take(4)?.split_first_chunk().ok_or(Malformed::Text)?;
        Ok(u32::from_le_bytes(*word))
    }

    fn text(&mut self) -> std::result::Result<&'a str, Malformed> {
        let len = usize::from(self.take(1)?[0]);
        std::str::from_utf8(self.take(len)?).map_err(|_| Malformed::Text)
    }

    fn remaining(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn remaining_text(&mut self) -> std::result::Result<&'a str, Malformed> {
        let bytes = self.remaining();
        if bytes.len() > MAX_REASON {
            return Err(Malformed::Text);
        }
        std::str::from_utf8(bytes).map_err(|_| Malformed::Text)
    }
}

/// The longest prefix of at most `most` bytes that ends between characters.
fn truncate(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// Size of the receive buffer in bytes; no frame of a handshake is as long.
const SCRATCH: usize = 1024;

/// Result of waiting for the peer's first frame.
#[derive(Debug)]
pub(super) enum Arrival<T> {
    Waiting,
    /// The peer has closed the connection without sending a frame.
    Gone,
    /// The frame received is invalid or not expected here.
    Faulty(String),
    Received(T),
}

/// A client that requests a connection.
#[derive(Debug)]
pub(super) struct Caller {
    pub version: u32,
    pub max_message: u32,
    pub function: String,
    pub server: String,
    pub lifeline: OwnedFd,
}

/// The server's reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted { max_message: u32 },
    Refused { code: u32, reason: String },
}

/// Name of the socket on which the server `name` listens for clients on the function at PCI address `function`.
pub(super) fn socket_name(function: &str, name: &str) -> String {
    named_socket("comch", &[function, name])
}

/// Sends the client's hello. Returns the client's end of the lifeline.
pub(super) fn send_hello(
    socket: &Socket,
    function: &str,
    server: &str,
    max_message: u32,
) -> Result<OwnedFd> {
    let (ours, theirs) = Socket::pair()?;
    let hello = Frame::Hello(Hello {
        version: VERSION,
        max_message,
        function,
        server,
    });
    socket.send(&hello.encode(), &[theirs.as_fd()])?;
    Ok(rustix::io::fcntl_dupfd_cloexec(&ours, 3)?)
}

/// Receives a client's hello, without blocking.
pub(super) fn receive_hello(socket: &Socket) -> Arrival<Caller> {
    receive(socket, |frame, mut descriptors| {
        let Frame::Hello(hello) = frame else {
            return Err("expected a hello as the first frame".into());
        };
        let lifeline = match (descriptors.pop(), descriptors.is_empty()) {
            // A descriptor that never hangs up would hide the exit of the peer.
            (Some(lifeline), true) if is_unix_socket(&lifeline) => lifeline,
            _ => return Err("expected one socket with the hello".into()),
        };
        Ok(Caller {
            version: hello.version,
            max_message: hello.max_message,
            function: hello.function.to_owned(),
            server: hello.server.to_owned(),
            lifeline,
        })
    })
}

pub(super) fn accept(socket: &Socket, max_message: u32) -> Result<()> {
    socket.send(&Frame::Accept { max_message }.encode(), &[])
}

/// Refuses a client with a reason.
pub(super) fn refuse(socket: &Socket, error: Error, reason: &str) {
    let code = error.code();
    // Ignored: a client that has disconnected needs no reply.
    let _ = socket.send(&Frame::Refuse { code, reason }.encode(), &[]);
}

/// Receives the server's reply, without blocking.
pub(super) fn receive_answer(socket: &Socket) -> Arrival<Answer> {
    receive(socket, |frame, descriptors| match frame {
        Frame::Accept { max_message } if descriptors.is_empty() => {
            Ok(Answer::Accepted { max_message })
        }
        Frame::Refuse { code, reason } if descriptors.is_empty() => Ok(Answer::Refused {
            code,
            reason: reason.to_owned(),
        }),
        _ => Err("expected the answer to a hello as the first frame".into()),
    })
}

fn receive<T>(
    socket: &Socket,
    take: impl FnOnce(Frame<'_>, Vec<OwnedFd>) -> std::result::Result<T, String>,
) -> Arrival<T> {
    let mut scratch = [0; SCRATCH];
    let mut descriptors = Vec::new();
    let len = match socket.receive(&mut scratch, &mut descriptors) {
        Ok(Some(len)) => len,
        Ok(None) => return Arrival::Gone,
        Err(Error::Again) => return Arrival::Waiting,
        Err(error) => return Arrival::Faulty(error.to_string()),
    };
    match Frame::decode(&scratch[..len]) {
        Ok(frame) => match take(frame, descriptors) {
            Ok(value) => Arrival::Received(value),
            Err(reason) => Arrival::Faulty(reason),
        },
        Err(malformed) => Arrival::Faulty(malformed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_round_trip() {
        let message = vec![7; MAX_MESSAGE_SIZE as usize];
        let frames = [
            Frame::Hello(Hello {
                version: VERSION,
                max_message: 4080,
                function: "0000:3b:00.0",
                server: "a server",
            }),
            Frame::Accept { max_message: 4080 },
            Frame::Refuse {
                code: 19,
                reason: "too old",
            },
            Frame::Message(&message),
            Frame::Message(b"x"),
            Frame::ConsumerAdded {
                id: 3,
                max_message: 1 << 20,
            },
            Frame::ConsumerExpired { id: 3 },
            Frame::ProducerAttached { consumer_id: 4 },
        ];
        for frame in frames {
            let bytes = frame.encode();
            assert!(bytes.len() <= MAX_FRAME);
            assert_eq!(Frame::decode(&bytes), Ok(frame));
        }
    }

    #[test]
    fn malformed_frames_are_refused() {
        let word = |value: u32| value.to_le_bytes().to_vec();
        assert_eq!(
            Frame::decode(&[]),
            Err(Malformed::Short {
                expected: 4,
                found: 0
            })
        );
        assert_eq!(Frame::decode(&word(0)), Err(Malformed::Kind(0)));
        assert_eq!(Frame::decode(&word(8)), Err(Malformed::Kind(8)));
        assert_eq!(Frame::decode(&word(4)), Err(Malformed::MessageLength(0)));
        let mut long = word(4);
        long.resize(4 + MAX_MESSAGE_SIZE as usize + 1, 0);
        assert_eq!(
            Frame::decode(&long),
            Err(Malformed::MessageLength(MAX_MESSAGE_SIZE as usize + 1))
        );
        let mut trailing = Frame::ConsumerExpired { id: 1 }.encode();
        trailing.push(0);
        assert_eq!(Frame::decode(&trailing), Err(Malformed::Trailing(1)));
        let mut hello = Frame::Hello(Hello {
            version: VERSION,
            max_message: 1,
            function: "f",
            server: "s",
        })
        .encode();
        hello[4] ^= 1;
        assert!(matches!(Frame::decode(&hello), Err(Malformed::Magic(_))));
        assert_eq!(
            Frame::decode(&[word(3), word(1), vec![0xff]].concat()),
            Err(Malformed::Text)
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = "ä".repeat(200);
        let bytes = Frame::Refuse {
            code: 1,
            reason: &reason,
        }
        .encode();
        assert_eq!(
            Frame::decode(&bytes),
            Ok(Frame::Refuse {
                code: 1,
                reason: &"ä".repeat(128)
            })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_an_error(kind in 0u32..10, tail in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = [kind.to_le_bytes().to_vec(), tail].concat();
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(frame.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_client_is_accepted_or_refused() {
        let (client, server) = Socket::pair().unwrap();
        assert!(matches!(receive_hello(&server), Arrival::Waiting));
        let lifeline = send_hello(&client, "0000:3b:00.0", "name", 100).unwrap();
        let Arrival::Received(caller) = receive_hello(&server) else {
            panic!("a hello was sent");
        };
        assert_eq!((caller.version, caller.max_message), (VERSION, 100));
        assert_eq!(
            (caller.function.as_str(), caller.server.as_str()),
            ("0000:3b:00.0", "name")
        );
        drop(caller);
        let mut poll = [rustix::event::PollFd::new(
            &lifeline,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(rustix::event::poll(&mut poll, None), Ok(1), "it hangs up");

        accept(&server, 100).unwrap();
        refuse(&server, Error::Full, "full");
        drop(server);
        assert!(matches!(
            receive_answer(&client),
            Arrival::Received(Answer::Accepted { max_message: 100 })
        ));
        let Arrival::Received(Answer::Refused { code, reason }) = receive_answer(&client) else {
            panic!("a refusal was sent");
        };
        assert_eq!((code, reason.as_str()), (Error::Full.code(), "full"));
        assert!(matches!(receive_answer(&client), Arrival::Gone));
    }

    #[test]
    fn frames_other_than_the_handshakes_are_refused() {
        let (client, server) = Socket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let hello = Frame::Hello(Hello {
            version: VERSION,
            max_message: 1,
            function: "f",
            server: "s",
        })
        .encode();
        client.send(b"?", &[]).unwrap();
        client.send(&hello, &[]).unwrap();
        client.send(&hello, &[file.as_fd()]).unwrap();
        client.send(&Frame::Message(b"x").encode(), &[]).unwrap();
        for _ in 0..4 {
            assert!(matches!(receive_hello(&server), Arrival::Faulty(_)));
        }
        server.send(&hello, &[]).unwrap();
        assert!(matches!(receive_answer(&client), Arrival::Faulty(_)));
    }
}
