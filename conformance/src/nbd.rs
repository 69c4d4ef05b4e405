//! A client of the NBD protocol for one export: fixed newstyle negotiation, simple replies.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, and no padding after an export's description.
const CLIENT_FLAGS: u32 = 3;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const FLAG_FUA: u16 = 1;
/// Transmission flags of an export with flush and FUA.
const SEND_FLUSH_AND_FUA: u16 = 1 << 2 | 1 << 3;

/// Commands with their numbers in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
}

/// A request, without its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) fua: bool,
    /// Chosen by the client, and repeated in the reply.
    pub(crate) cookie: u64,
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) length: u32,
}

/// A connection to the export with the empty name.
pub(crate) struct Connection {
    stream: UnixStream,
    /// Size of the export in bytes.
    pub(crate) size: u64,
    /// `true` if flush and FUA are offered.
    pub(crate) can_flush: bool,
}

fn array<const N: usize>(stream: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Connection {
    /// Connects and selects the export. `limit` is the timeout of each later read and write of the socket.
    pub(crate) fn open(socket: &Path, limit: Duration) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let magics = [array(&mut stream)?, array(&mut stream)?].map(u64::from_be_bytes);
        let _flags: [u8; 2] = array(&mut stream)?;
        if magics != [INIT_MAGIC, OPTION_MAGIC] {
            return Err(invalid("expected newstyle negotiation"));
        }
        let mut hello = CLIENT_FLAGS.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(OPTION_GO.to_be_bytes());
        // An empty name, and no information requests.
        hello.extend(6u32.to_be_bytes());
        hello.extend([0; 6]);
        stream.write_all(&hello)?;
        let (mut size, mut flags) = (0, 0);
        loop {
            let magic = u64::from_be_bytes(array(&mut stream)?);
            let _option: [u8; 4] = array(&mut stream)?;
            let [kind, length] = [array(&mut stream)?, array(&mut stream)?].map(u32::from_be_bytes);
            if magic != OPTION_REPLY_MAGIC || length > 4096 {
                return Err(invalid("expected the reply to an option"));
            }
            let mut data = vec![0; length as usize];
            stream.read_exact(&mut data)?;
            match (kind, data.as_slice()) {
                (REPLY_ACK, _) => {
                    let can_flush = flags & SEND_FLUSH_AND_FUA == SEND_FLUSH_AND_FUA;
                    return Ok(Self {
                        stream,
                        size,
                        can_flush,
                    });
                }
                (REPLY_INFO, &[0, 0, a, b, c, d, e, f, g, h, high, low]) => {
                    size = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                    flags = u16::from_be_bytes([high, low]);
                }
                (REPLY_INFO, _) => {}
                _ => return Err(invalid("the export was refused")),
            }
        }
    }

    /// Sends a request; `payload` is empty except for a write.
    pub(crate) fn send(&mut self, request: Request, payload: &[u8]) -> io::Result<()> {
        let flags = if request.fua { FLAG_FUA } else { 0 };
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend((request.command as u16).to_be_bytes());
        bytes.extend(request.cookie.to_be_bytes());
        bytes.extend(request.offset.to_be_bytes());
        bytes.extend(request.length.to_be_bytes());
        bytes.extend(payload);
        self.stream.write_all(&bytes)
    }

    /// Receives a reply: its cookie and its error number. The payload of a successful read follows.
    pub(crate) fn reply(&mut self) -> io::Result<(u64, u32)> {
        let [magic, error] =
            [array(&mut self.stream)?, array(&mut self.stream)?].map(u32::from_be_bytes);
        if magic != REPLY_MAGIC {
            return Err(invalid("expected a simple reply"));
        }
        Ok((u64::from_be_bytes(array(&mut self.stream)?), error))
    }

    /// Receives the payload of a read.
    pub(crate) fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(into)
    }
}

/// Returns `true` for the error of a socket's timeout.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
