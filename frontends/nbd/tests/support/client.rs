//! A minimal NBD client, written from the specification without the crate's decoders.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Largest payload that the server advertises.
pub const MAX_PAYLOAD: u32 = 32 << 20;

pub const EXPORT_NAME: u32 = 1;
pub const ABORT: u32 = 2;
pub const LIST: u32 = 3;
pub const STARTTLS: u32 = 5;
pub const INFO: u32 = 6;
pub const GO: u32 = 7;
pub const STRUCTURED_REPLY: u32 = 8;
pub const LIST_META_CONTEXT: u32 = 9;
pub const SET_META_CONTEXT: u32 = 10;

pub const ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const REP_META_CONTEXT: u32 = 4;
pub const ERR_UNSUP: u32 = 0x8000_0001;
pub const ERR_POLICY: u32 = 0x8000_0002;
pub const ERR_INVALID: u32 = 0x8000_0003;
pub const ERR_TLS_REQD: u32 = 0x8000_0005;
pub const ERR_UNKNOWN: u32 = 0x8000_0006;
pub const ERR_TOO_BIG: u32 = 0x8000_0009;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const EOVERFLOW: u32 = 75;

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub fn info_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|it| data.extend(it.to_be_bytes()));
    data
}

/// Data of the options for metadata contexts.
pub fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// Type and data of a reply to an option.
pub type OptionReply = (u32, Vec<u8>);

/// A reply of the transmission phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Simple {
        cookie: u64,
        error: u32,
    },
    Chunk {
        cookie: u64,
        done: bool,
        kind: u16,
        data: Vec<u8>,
    },
}

/// Reads a big-endian number of `N` bytes.
pub fn number<const N: usize>(stream: &mut impl Read) -> std::io::Result<u64> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

pub fn bytes(stream: &mut impl Read, len: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub fn option_replies(stream: &mut impl Read, option: u32) -> std::io::Result<Vec<OptionReply>> {
    let mut replies = Vec::new();
    loop {
        assert_eq!(number::<8>(stream)?, 0x0003_e889_0455_65a9);
        assert_eq!(number::<4>(stream)?, u64::from(option));
        let kind = number::<4>(stream)? as u32;
        let len = number::<4>(stream)? as usize;
        assert!(len < 65536, "{len}");
        replies.push((kind, bytes(stream, len)?));
        if kind == ACK || kind >> 31 == 1 {
            return Ok(replies);
        }
    }
}

/// Reads a reply without the data of a simple read.
pub fn reply(stream: &mut impl Read) -> std::io::Result<Reply> {
    match number::<4>(stream)? {
        0x6744_6698 => {
            let error = number::<4>(stream)? as u32;
            let cookie = number::<8>(stream)?;
            Ok(Reply::Simple { cookie, error })
        }
        0x668e_33ef => {
            let flags = number::<2>(stream)?;
            assert!(flags < 2, "{flags}");
            let kind = number::<2>(stream)? as u16;
            let cookie = number::<8>(stream)?;
            let len = number::<4>(stream)? as usize;
            assert!(len <= MAX_PAYLOAD as usize + 8, "{len}");
            let data = bytes(stream, len)?;
            let done = flags == 1;
            Ok(Reply::Chunk {
                cookie,
                done,
                kind,
                data,
            })
        }
        magic => panic!("magic {magic:#x}"),
    }
}

pub fn chunk_error(data: &[u8]) -> u32 {
    u32::from_be_bytes(data[..4].try_into().expect("an error chunk"))
}

/// A client with one connection.
pub struct Client<S> {
    pub stream: S,
    cookie: u64,
}

impl Client<UnixStream> {
    /// Connects, and answers the greeting.
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the server listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time-out");
        Self::begin(stream).expect("a greeting")
    }

    /// Connects and begins the transmission phase, with or without structured replies.
    pub fn transmitting(path: &Path, structured: bool) -> Self {
        let mut client = Self::connect(path);
        if structured {
            assert_eq!(client.option(STRUCTURED_REPLY, &[]), [(ACK, vec![])]);
        }
        let replies = client.option(GO, &info_data("", &[]));
        assert_eq!(replies.last(), Some(&(ACK, vec![])));
        client
    }
}

impl<S: Read + Write> Client<S> {
    /// Reads the greeting and answers it.
    pub fn begin(mut stream: S) -> std::io::Result<Self> {
        assert_eq!(bytes(&mut stream, 16)?, b"NBDMAGICIHAVEOPT");
        assert_eq!(number::<2>(&mut stream)?, 3);
        stream.write_all(&3_u32.to_be_bytes())?;
        Ok(Self { stream, cookie: 0 })
    }

    /// Moves the client to another stream.
    pub fn over<T>(self, wrap: impl FnOnce(S) -> T) -> Client<T> {
        Client {
            stream: wrap(self.stream),
            cookie: self.cookie,
        }
    }

    pub fn option(&mut self, number: u32, data: &[u8]) -> Vec<OptionReply> {
        self.stream.write_all(&option(number, data)).expect("sent");
        option_replies(&mut self.stream, number).expect("replies")
    }

    /// Sends a request; returns its cookie.
    pub fn send(&mut self, flags: u16, command: u16, offset: u64, len: u32) -> u64 {
        self.cookie += 1;
        let bytes = request(flags, command, self.cookie, offset, len);
        self.stream.write_all(&bytes).expect("sent");
        self.cookie
    }

    pub fn send_write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u64 {
        let cookie = self.send(flags, WRITE, offset, data.len() as u32);
        self.stream.write_all(data).expect("sent");
        cookie
    }

    pub fn reply(&mut self) -> Reply {
        reply(&mut self.stream).expect("a reply")
    }

    /// Error of the reply to a request without data; 0 for success.
    pub fn result(&mut self, cookie: u64) -> u32 {
        match self.reply() {
            Reply::Simple { cookie: it, error } => {
                assert_eq!(it, cookie);
                error
            }
            Reply::Chunk {
                cookie: it,
                done,
                kind,
                data,
            } => {
                assert_eq!((it, done), (cookie, true));
                if kind == 0 { 0 } else { chunk_error(&data) }
            }
        }
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        let cookie = self.send_write(0, offset, data);
        self.result(cookie)
    }

    pub fn read_simple(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        let cookie = self.send(0, READ, offset, len);
        match self.reply() {
            Reply::Simple {
                cookie: it,
                error: 0,
            } if it == cookie => Ok(bytes(&mut self.stream, len as usize).expect("data")),
            Reply::Simple { error, .. } => Err(error),
            chunk => panic!("{chunk:?}"),
        }
    }

    /// Reads by structured replies. Returns the data, and the errors with their offsets.
    pub fn read_structured(
        &mut self,
        flags: u16,
        offset: u64,
        len: u32,
    ) -> (Vec<u8>, Vec<(u32, Option<u64>)>) {
        let cookie = self.send(flags, READ, offset, len);
        let mut all = vec![0; len as usize];
        let mut errors = Vec::new();
        loop {
            let Reply::Chunk {
                cookie: it,
                done,
                kind,
                data,
            } = self.reply()
            else {
                panic!("a simple reply to a structured read");
            };
            assert_eq!(it, cookie);
            match kind {
                0 => {}
                1 => {
                    let at = u64::from_be_bytes(data[..8].try_into().expect("an offset"));
                    let at = (at - offset) as usize;
                    all[at..at + data.len() - 8].copy_from_slice(&data[8..]);
                }
                0x8001 => errors.push((chunk_error(&data), None)),
                0x8002 => {
                    let at = data[data.len() - 8..].try_into().expect("an offset");
                    errors.push((chunk_error(&data), Some(u64::from_be_bytes(at))));
                }
                kind => panic!("chunk {kind}"),
            }
            if done {
                return (all, errors);
            }
        }
    }

    /// Returns `true` if the server closes the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
