//! Control channels over TCP: a target listens, a service connects.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use wire::control::{ErrorResponse, Message, Payload};

use super::stream::MessageStream;
use super::{ChannelEvent, ControlChannel, Interest};
use crate::failure::Failure;

/// Time between two attempts to connect to a server that does not listen yet.
const RETRY: Duration = Duration::from_millis(100);

/// Listens, and serves one client at a time.
#[derive(Debug)]
pub struct TcpServerChannel {
    listener: TcpListener,
    client: Option<MessageStream>,
}

impl TcpServerChannel {
    /// Listens on `port` of all IPv4 addresses; port 0 stands for any free one.
    ///
    /// # Errors
    ///
    /// The port is in use or reserved.
    pub fn listen(port: u16) -> Result<Self, Failure> {
        Self::listen_at(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
    }

    /// Listens on one address of this machine; port 0 stands for any free one.
    ///
    /// # Errors
    ///
    /// The address is none of this machine's, or the port is in use there, or reserved.
    pub fn listen_at(address: SocketAddrV4) -> Result<Self, Failure> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|error: std::io::Error| {
            let port = address.port();
            let flags = match *address.ip() {
                Ipv4Addr::UNSPECIFIED => format!("--listen-port {port}"),
                ip => format!("--listen-address {ip} --listen-port {port}"),
            };
            Failure::new(
                ErrorCode::IO_FAILED,
                format!("{flags}: cannot listen: {error}"),
            )
        })?;
        Ok(Self {
            listener,
            client: None,
        })
    }

    /// The port that it listens on.
    ///
    /// # Errors
    ///
    /// The socket has no address, which a listening one always has.
    pub fn port(&self) -> Result<u16, Failure> {
        let address = self.listener.local_addr().map_err(|error| {
            Failure::new(
                ErrorCode::IO_FAILED,
                format!("address of the listening socket: {error}"),
            )
        })?;
        Ok(address.port())
    }

    /// Parts with the client, if there is one, so that the next one can be served. What was sent to it leaves first, if it does so
    /// `within` the time.
    pub fn next_client(&mut self, within: Duration) {
        self.flush(within);
        self.client = None;
    }

    fn accept(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        loop {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                // A client that was gone before it was accepted, or no descriptor for one.
                Err(error) => {
                    tracing::warn!("accept: {error}");
                    return Ok(None);
                }
            };
            let peer = format!("service at {address}");
            match MessageStream::new(stream, peer) {
                Ok(client) if self.client.is_none() => {
                    tracing::info!("{} connected", client.peer());
                    self.client = Some(client);
                    return Ok(Some(ChannelEvent::Connected));
                }
                Ok(client) => refuse(client, address),
                Err(error) => tracing::warn!("client {address}: {error}"),
            }
        }
    }
}

/// Tells a further client why it is not served.
fn refuse(mut client: MessageStream, address: SocketAddr) {
    tracing::warn!("refused a further client at {address}");
    client.send(&Message {
        message_id: 0,
        correlation_id: 0,
        payload: Payload::ErrorResponse(ErrorResponse {
            error_code: ErrorCode::IN_USE.0,
            message: "this storage target serves another client and only one at a time".to_owned(),
        }),
    });
}

impl ControlChannel for TcpServerChannel {
    fn peer(&self) -> &str {
        self.client.as_ref().map_or("service", MessageStream::peer)
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let client = self
            .client
            .as_mut()
            .ok_or_else(|| not_connected("service"))?;
        client.send(message);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        // The client first: one that has left is no reason to refuse the next.
        if let Some(client) = &mut self.client
            && let Some(event) = client.poll()?
        {
            return Ok(Some(event));
        }
        self.accept()
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        interest.readable(self.listener.as_fd());
        if let Some(client) = &self.client {
            client.interest(interest);
        }
    }

    fn flush(&mut self, within: Duration) {
        if let Some(client) = &mut self.client {
            client.flush(within);
        }
    }
}

pub(super) fn not_connected(peer: &str) -> Failure {
    Failure::new(
        ErrorCode::NOT_CONNECTED,
        format!("no {peer} is connected yet"),
    )
}

/// Connects to a server, and tries again while nobody listens there.
#[derive(Debug)]
pub struct TcpClientChannel {
    address: SocketAddrV4,
    peer: String,
    state: Client,
}

#[derive(Debug)]
enum Client {
    Refused { retry_at: Instant },
    Connecting(TcpStream),
    Connected(MessageStream),
}

impl TcpClientChannel {
    /// Starts to connect to the server at `address`. [`ChannelEvent::Connected`] says when it is there.
    #[must_use]
    pub fn connect(address: SocketAddrV4) -> Self {
        Self {
            address,
            peer: format!("storage target at {address}"),
            state: Client::Refused {
                retry_at: Instant::now(),
            },
        }
    }

    /// Whether the connection was established.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, Client::Connected(_))
    }

    /// Whether nobody listened at the last attempt to connect.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.state, Client::Refused { .. })
    }

    /// Leaves the server. What comes next is another attempt to connect.
    pub fn disconnect(&mut self) {
        self.state = Client::Refused {
            retry_at: Instant::now(),
        };
    }

    /// Gives up an attempt to connect that has failed for good, and makes another one after a pause.
    pub fn retry_later(&mut self) {
        self.state = Client::Refused {
            retry_at: Instant::now() + RETRY,
        };
    }

    fn start(&mut self) -> Result<(), Failure> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket: OwnedFd =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
                .map_err(|error| self.failure(error.into()))?;
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                self.state = Client::Connecting(TcpStream::from(socket))
            }
            Err(error) => self.failed(error.into())?,
        }
        Ok(())
    }

    /// A refused connection is tried again, the server may be starting; anything else is final.
    fn failed(&mut self, error: std::io::Error) -> Result<(), Failure> {
        if error.kind() != std::io::ErrorKind::ConnectionRefused {
            return Err(self.failure(error));
        }
        tracing::debug!("nobody listens at {}, trying again", self.address);
        self.state = Client::Refused {
            retry_at: Instant::now() + RETRY,
        };
        Ok(())
    }

    fn failure(&self, error: std::io::Error) -> Failure {
        Failure::new(
            ErrorCode::CONNECTION_ABORTED,
            format!("cannot connect to the {}: {error}", self.peer),
        )
    }
}

/// Trying a local port that nobody listens on can, once in some ten thousand times, be given that
/// very port as the client's own: TCP then connects the socket to itself.
fn is_self_connected(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

impl ControlChannel for TcpClientChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let Client::Connected(stream) = &mut self.state else {
            return Err(not_connected(&self.peer));
        };
        stream.send(message);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        match &mut self.state {
            Client::Connected(stream) => return stream.poll(),
            Client::Refused { retry_at } if *retry_at <= Instant::now() => self.start()?,
            Client::Refused { .. } | Client::Connecting(_) => {}
        }
        let Client::Connecting(stream) = &self.state else {
            return Ok(None);
        };
        let connected = match stream.take_error() {
            Ok(None) if is_self_connected(stream) => {
                Err(std::io::ErrorKind::ConnectionRefused.into())
            }
            Ok(None) => stream
                .peer_addr()
                .is_ok()
                .then(|| stream.try_clone())
                .transpose(),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match connected {
            Ok(None) => Ok(None),
            Ok(Some(stream)) => {
                let stream = MessageStream::new(stream, self.peer.clone())
                    .map_err(|error| self.failure(error))?;
                self.state = Client::Connected(stream);
                tracing::info!("connected to the {}", self.peer);
                Ok(Some(ChannelEvent::Connected))
            }
            Err(error) => {
                self.failed(error)?;
                Ok(None)
            }
        }
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        match &self.state {
            Client::Refused { retry_at } => interest.until(*retry_at),
            Client::Connecting(stream) => interest.writable(stream.as_fd()),
            Client::Connected(stream) => stream.interest(interest),
        }
    }

    fn flush(&mut self, within: Duration) {
        if let Client::Connected(stream) = &mut self.state {
            stream.flush(within);
        }
    }
}

#[cfg(test)]
mod tests;
