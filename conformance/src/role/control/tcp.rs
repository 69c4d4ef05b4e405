//! A TCP control channel: between a service and a target.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use wire::control::FrameDecoder;

use super::{ControlPeer, PAUSE, Polled, SEND};
use crate::role::Wrong;

/// One end of it.
#[derive(Debug)]
pub struct TcpPeer {
    stream: TcpStream,
    decoder: FrameDecoder,
    closed: bool,
}

impl TcpPeer {
    /// Connects to a target, as a service does.
    ///
    /// # Errors
    ///
    /// Nobody takes the connection.
    pub fn connect(port: u16) -> Result<Self, Wrong> {
        Self::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)
    }

    /// Waits for a service to connect, as a target does.
    ///
    /// # Errors
    ///
    /// None has within `patience`.
    pub fn accept(listener: &TcpListener, patience: Duration) -> Result<Self, Wrong> {
        listener.set_nonblocking(true)?;
        let deadline = Instant::now() + patience;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(_) => {
                    return Err(Wrong::expected(
                        "a service to connect",
                        format!("nobody in {patience:?}"),
                    ));
                }
            }
        }
    }

    fn new(stream: TcpStream) -> Result<Self, Wrong> {
        stream.set_nonblocking(true)?;
        // Each piece is a segment of its own.
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            decoder: FrameDecoder::new(),
            closed: false,
        })
    }

    /// Sends nothing any more, but listens on.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    pub fn close_sending(&self) -> Result<(), Wrong> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// Ends the connection with a reset, as a machine does that has lost its state.
    ///
    /// # Errors
    ///
    /// The operating system does not do it.
    pub fn reset(self) -> Result<(), Wrong> {
        Ok(
            rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
                .map_err(io::Error::from)?,
        )
    }
}

impl ControlPeer for TcpPeer {
    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let deadline = Instant::now() + SEND;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(_) => {
                    return Err(Wrong::expected(
                        format!("the role to read {} bytes", bytes.len()),
                        format!("{} unread after {SEND:?}", rest.len()),
                    ));
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, Wrong> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(Polled::Message(message));
            }
            if self.closed {
                return Ok(Polled::Closed);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Polled::Nothing),
                    io::ErrorKind::ConnectionReset => self.closed = true,
                    _ => return Err(error.into()),
                },
            }
        }
    }
}
