//! Control channels without softdoca: TCP of a target, Comch messages of a service.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::control::{FrameDecoder, Message, Payload};

use super::attack::End;
use super::bytes::Bytes;
use super::raw::{Packets, comch_socket, hello, words};

/// The function of the host in softdoca's built-in topology.
pub(super) const FUNCTION: &str = "0000:3b:00.0";
/// Kinds of Comch frames.
const MESSAGE: u32 = 4;
const CONSUMER_ADDED: u32 = 5;
/// Longest Comch message.
const LONGEST: usize = 4080;
/// Time for which the role may leave bytes unread before the attacker continues.
const STALL: Duration = Duration::from_millis(300);

/// The endpoint on which a role accepts clients.
#[derive(Debug, Clone, Copy)]
pub(super) enum ControlEndpoint<'a> {
    Tcp(u16),
    Comch { runtime: &'a Path, channel: &'a str },
}

/// A Comch connection.
pub(super) struct Comch {
    pub(super) socket: Packets,
    pub(super) lifeline: Option<Packets>,
    /// Rings of the role's consumers.
    pub(super) rings: Vec<OwnedFd>,
}

impl Comch {
    /// A bare connection: nothing was said.
    pub(super) fn bare(runtime: &Path, channel: &str) -> io::Result<Self> {
        Ok(Self {
            socket: Packets::connect(&runtime.join(comch_socket(FUNCTION, channel)))?,
            lifeline: None,
            rings: Vec::new(),
        })
    }

    /// One that the role has accepted.
    pub(super) fn open(runtime: &Path, channel: &str, timeout: Duration) -> io::Result<Self> {
        let mut comch = Self::bare(runtime, channel)?;
        let (ours, theirs) = Packets::pair()?;
        let hello = hello(FUNCTION, channel);
        comch.socket.send(&hello, &[theirs.as_fd()])?;
        comch.lifeline = Some(ours);
        match comch.socket.receive(timeout)? {
            Some((answer, _)) if answer.starts_with(&words(&[2])) => Ok(comch),
            other => Err(io::Error::other(format!(
                "expected to be accepted, got {other:?}"
            ))),
        }
    }
}

/// An attacker's end of a control channel.
pub(super) enum Channel {
    Tcp(TcpStream),
    Comch(Comch),
}

impl Channel {
    pub(super) fn open(endpoint: ControlEndpoint<'_>) -> io::Result<Self> {
        Self::open_within(endpoint, Duration::from_secs(2))
    }

    /// The same; a service has so long to accept or refuse.
    pub(super) fn open_within(
        endpoint: ControlEndpoint<'_>,
        timeout: Duration,
    ) -> io::Result<Self> {
        match endpoint {
            ControlEndpoint::Tcp(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(stream))
            }
            ControlEndpoint::Comch { runtime, channel } => {
                Comch::open(runtime, channel, timeout).map(Self::Comch)
            }
        }
    }

    /// Sends these bytes; gives up when the role does not read them.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                let (mut rest, mut deadline) = (bytes, Instant::now() + STALL);
                while !rest.is_empty() {
                    match stream.write(rest) {
                        Ok(count) => {
                            rest = &rest[count..];
                            deadline = Instant::now() + STALL;
                        }
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                            return Err(error);
                        }
                        Err(error) if Instant::now() > deadline => return Err(error),
                        Err(_) => std::thread::sleep(Duration::from_millis(1)),
                    }
                }
                Ok(())
            }
            Self::Comch(comch) => bytes.chunks(LONGEST).try_for_each(|chunk| {
                let frame = [&words(&[MESSAGE]), chunk].concat();
                let deadline = Instant::now() + STALL;
                loop {
                    match comch.socket.send(&frame, &[]) {
                        Err(error)
                            if error.kind() == io::ErrorKind::WouldBlock
                                && Instant::now() < deadline =>
                        {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        sent => return sent,
                    }
                }
            }),
        }
    }

    /// Bytes of control messages that have come within `timeout`; `None` at the end of the channel.
    pub(super) fn read(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Tcp(stream) => {
                let (mut bytes, deadline) = (vec![0; 65_536], Instant::now() + timeout);
                loop {
                    match stream.read(&mut bytes) {
                        Ok(0) => return Ok(None),
                        Ok(count) => {
                            bytes.truncate(count);
                            return Ok(Some(bytes));
                        }
                        Err(error)
                            if error.kind() == io::ErrorKind::WouldBlock
                                && Instant::now() < deadline =>
                        {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Self::Comch(comch) => {
                let Some((frame, mut descriptors)) = comch.socket.receive(timeout)? else {
                    return Ok(None);
                };
                let kind = frame.get(..4).unwrap_or_default().to_vec();
                if kind == words(&[CONSUMER_ADDED]) && !descriptors.is_empty() {
                    comch.rings.push(descriptors.swap_remove(0));
                }
                let is_message = kind == words(&[MESSAGE]);
                Ok(Some(frame[4..].to_vec())
                    .filter(|_| is_message)
                    .or(Some(Vec::new())))
            }
        }
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, payload: Payload, timeout: Duration) -> io::Result<Payload> {
        let (message_id, correlation_id) = (7, 7);
        let request = Message {
            message_id,
            correlation_id,
            payload,
        };
        self.send(&request.encode_to_vec())?;
        let (mut decoder, deadline) = (FrameDecoder::new(), Instant::now() + timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.read(left)? {
                Some(bytes) => decoder.push(&bytes),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            if let Some(message) = decoder.next().map_err(io::Error::other)? {
                return Ok(message.payload);
            }
        }
    }

    /// Ends it.
    pub(super) fn end(self, end: End, hold: Duration) {
        if let Self::Tcp(stream) = &self {
            // The role may have ended it before.
            let _ = match end {
                End::Close => Ok(()),
                End::HalfClose => stream.shutdown(Shutdown::Write),
                End::Reset => rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))
                    .map_err(io::Error::from),
            };
        }
        std::thread::sleep(hold);
    }
}

// A client that connects repeatedly during an attack. It may be refused, but without delay.

/// Pause between connections.
const PROBE_PAUSE: Duration = Duration::from_millis(300);
/// Limit of the wait for a reaction.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects repeatedly until stopped.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Probe {
    pub(super) fn start(endpoint: ControlEndpoint<'_>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, endpoint) = (Arc::clone(&stop), OwnedControlEndpoint::from(endpoint));
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begin = Instant::now();
                // Any answer is a reaction, and so is a closed connection.
                let _ = probe(endpoint.borrow());
                longest = longest.max(begin.elapsed());
                std::thread::sleep(PROBE_PAUSE);
            }
            longest
        });
        Self { stop, thread }
    }

    /// Ends the connections, and returns the longest time that the role took to react.
    pub(super) fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(PROBE_TIMEOUT)
    }
}

fn probe(endpoint: ControlEndpoint<'_>) -> io::Result<()> {
    match Channel::open_within(endpoint, PROBE_TIMEOUT)? {
        // A service has answered the hello already.
        Channel::Comch(_) => Ok(()),
        mut channel => {
            channel.send(&Bytes::Query.make())?;
            channel.read(PROBE_TIMEOUT).map(drop)
        }
    }
}

/// An owned [`ControlEndpoint`], for another thread.
pub(super) enum OwnedControlEndpoint {
    Tcp(u16),
    Comch { runtime: PathBuf, channel: String },
}

impl From<ControlEndpoint<'_>> for OwnedControlEndpoint {
    fn from(endpoint: ControlEndpoint<'_>) -> Self {
        match endpoint {
            ControlEndpoint::Tcp(port) => Self::Tcp(port),
            ControlEndpoint::Comch { runtime, channel } => Self::Comch {
                runtime: runtime.to_owned(),
                channel: channel.to_owned(),
            },
        }
    }
}

impl OwnedControlEndpoint {
    pub(super) fn borrow(&self) -> ControlEndpoint<'_> {
        match self {
            Self::Tcp(port) => ControlEndpoint::Tcp(*port),
            Self::Comch { runtime, channel } => ControlEndpoint::Comch { runtime, channel },
        }
    }
}
