//! Messages over one connected TCP stream.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustix::event::{PollFd, PollFlags, poll};
use softdoca_net::is_tls;
use wire::control::{FrameDecoder, Message};

use super::transport::Transport;
use crate::budget::Quota;
use crate::failure::Failure;
use crate::{ChannelEvent, Interest};

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
    // The same limit applies to a peer that does not acknowledge data.
    let timeout = ASK_AFTER + ASK_EVERY * ASK_TIMES;
    sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    )?;
    Ok(())
}

#[derive(Debug)]
pub(super) struct MessageStream {
    transport: Transport,
    peer: String,
    /// `true` until data was received.
    is_new: bool,
    decoder: FrameDecoder,
    unsent: Vec<u8>,
    unsent_quota: Quota,
    /// `true` once the peer has stopped receiving.
    write_closed: bool,
    /// `true` once the peer has stopped sending.
    read_closed: bool,
}

impl MessageStream {
    pub(super) fn new(transport: Transport, peer: String) -> std::io::Result<Self> {
        let socket = &transport.socket;
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        keep_alive(socket)?;
        Ok(Self {
            transport,
            peer,
            is_new: true,
            decoder: FrameDecoder::new(),
            unsent: Vec::new(),
            unsent_quota: Quota::unsent_bytes(),
            write_closed: false,
            read_closed: false,
        })
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &TcpStream {
        &self.transport.socket
    }

    /// Continues the TLS handshake, if TLS is used. Returns `true` once it is complete.
    pub(super) fn handshake(&mut self) -> io::Result<bool> {
        self.transport.handshake()
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
            match self.transport.write(&self.unsent) {
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
        if let Err(error) = self.transport.send_held_back() {
            tracing::debug!(peer = self.peer, "write: {error}");
            self.write_closed = true;
        }
    }

    /// Returns `true` if there are bytes that the socket has not accepted.
    fn is_sending(&self) -> bool {
        !self.write_closed && (!self.unsent.is_empty() || self.transport.holds_back())
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
            match self.transport.read(&mut bytes) {
                Ok(0) => {
                    self.read_closed = true;
                    if self.decoder.buffered() != 0 {
                        tracing::warn!(
                            peer = self.peer,
                            "the connection was closed in the middle of a message"
                        );
                    }
                }
                Ok(count) => {
                    let is_first = std::mem::take(&mut self.is_new);
                    // As the length of a control frame, these bytes exceed every valid length.
                    if is_first && self.transport.is_plain() && is_tls(&bytes[..count]) {
                        return Err(Failure::new(
                            ErrorCode::CONNECTION_ABORTED,
                            format!(
                                "the {} uses TLS, and this program does not: use --tls on both sides or on neither",
                                self.peer
                            ),
                        ));
                    }
                    self.decoder.push(&bytes[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Err(Failure::new(
                        ErrorCode::CONNECTION_ABORTED,
                        format!("connection to the {}: {error}", self.peer),
                    ));
                }
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
        let mut descriptors = [PollFd::new(&self.transport.socket, flags)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut descriptors, Some(&now)).is_ok_and(|count| count != 0)
    }

    pub(super) fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        if !self.read_closed {
            interest.readable(self.transport.socket.as_fd());
        }
        if self.is_sending() {
            interest.writable(self.transport.socket.as_fd());
        }
    }

    pub(super) fn flush(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        self.write();
        while self.is_sending() && Instant::now() < deadline {
            let timeout = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 10_000_000,
            };
            let _ = poll(
                &mut [PollFd::new(&self.transport.socket, PollFlags::OUT)],
                Some(&timeout),
            );
            self.write();
        }
    }
}
