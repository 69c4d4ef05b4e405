//! Messages over one connected TCP stream.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use wire::control::{FrameDecoder, Message};

use super::{ChannelEvent, Interest};
use crate::budget::Quota;
use crate::failure::Failure;

/// Keepalive: idle time before the first probe, interval between probes, and number of unanswered probes after which
/// the connection is dropped.
const ASK_AFTER: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(2);
const ASK_TIMES: u32 = 3;

fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASK_TIMES)?;
    // The same limit for a peer that does not acknowledge data.
    let patience = ASK_AFTER + ASK_EVERY * ASK_TIMES;
    sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(patience.as_millis()).unwrap_or(u32::MAX),
    )?;
    Ok(())
}

#[derive(Debug)]
pub(super) struct MessageStream {
    stream: TcpStream,
    peer: String,
    decoder: FrameDecoder,
    unsent: Vec<u8>,
    /// Limit of `unsent`.
    unsent_quota: Quota,
    /// The peer no longer receives.
    write_closed: bool,
    /// The peer sends no more.
    read_closed: bool,
}

impl MessageStream {
    pub(super) fn new(stream: TcpStream, peer: String) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        Ok(Self {
            stream,
            peer,
            decoder: FrameDecoder::new(),
            unsent: Vec::new(),
            unsent_quota: Quota::unsent_bytes(),
            write_closed: false,
            read_closed: false,
        })
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Sends a message, or queues it until the peer has read earlier ones.
    ///
    /// # Errors
    ///
    /// Too many bytes are queued.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), Failure> {
        tracing::debug!(
            peer = self.peer,
            id = message.message_id,
            "send {}",
            message.payload.message_type()
        );
        if self.write_closed {
            return Ok(());
        }
        let bytes = message.encode_to_vec();
        self.unsent_quota
            .charge(bytes.len() as u64)
            .map_err(|failure| failure.context(&self.peer))?;
        self.unsent.extend_from_slice(&bytes);
        self.write();
        Ok(())
    }

    fn write(&mut self) {
        while !self.unsent.is_empty() && !self.write_closed {
            match self.stream.write(&self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    self.unsent_quota.release(count as u64);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!(peer = self.peer, "write: {error}");
                    self.write_closed = true;
                }
            }
        }
    }

    pub(super) fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        self.write();
        loop {
            let message = self.decoder.next().map_err(|error| {
                Failure::from(error).context(format_args!("message from {}", self.peer))
            })?;
            if let Some(message) = message {
                tracing::debug!(
                    peer = self.peer,
                    id = message.message_id,
                    "received {}",
                    message.payload.message_type()
                );
                return Ok(Some(ChannelEvent::Message(message)));
            }
            if self.read_closed {
                return Ok(Some(ChannelEvent::Closed));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.read_closed = true;
                    if self.decoder.buffered() != 0 {
                        tracing::warn!(
                            peer = self.peer,
                            "the connection was closed in the middle of a message"
                        );
                    }
                }
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => {
                    tracing::debug!(peer = self.peer, "read: {error}");
                    self.read_closed = true;
                }
            }
        }
    }

    /// Returns `true` if the peer has closed the connection, even if there are unread messages from it.
    pub(super) fn has_hung_up(&self) -> bool {
        let flags = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut descriptors = [PollFd::new(&self.stream, flags)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut descriptors, Some(&now)).is_ok_and(|count| count != 0)
    }

    pub(super) fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        if !self.read_closed {
            interest.readable(self.stream.as_fd());
        }
        if !self.unsent.is_empty() && !self.write_closed {
            interest.writable(self.stream.as_fd());
        }
    }

    pub(super) fn flush(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        self.write();
        while !self.unsent.is_empty() && !self.write_closed && Instant::now() < deadline {
            let timeout = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            let _ = poll(
                &mut [PollFd::new(&self.stream, PollFlags::OUT)],
                Some(&timeout),
            );
            self.write();
        }
    }
}
