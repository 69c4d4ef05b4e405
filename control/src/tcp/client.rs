//! Connection to a TCP server that may not be listening yet.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::ClientConfig;
use softdoca_net::is_temporary;
use wire::control::Message;

use super::stream::MessageStream;
use super::transport::Transport;
use crate::failure::Failure;
use crate::network::{self, HostPort, Lookup};
use crate::reservation::{Holder, Step};
use crate::{ChannelEvent, ControlChannel, Interest, not_connected};

/// Interval between attempts to connect to a server that does not listen yet.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// Interval between polls of a lookup that has no answer yet.
const RESOLVER_POLL: Duration = Duration::from_millis(5);

/// Interval between polls of a connection that waits for other targets to be reserved.
const RESERVATION_POLL: Duration = Duration::from_millis(10);

/// Timeout of an attempt to connect to one of several addresses of a name. The last address has the caller's timeout.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Connects to a server, with retries while it refuses connections or the resolver is temporarily unavailable. A host
/// name is resolved for each attempt, on another thread, and its addresses are tried in order.
#[derive(Debug)]
pub struct TcpClientChannel {
    address: HostPort,
    peer: String,
    state: Client,
    /// Failure of the last attempt.
    trouble: Option<Failure>,
    tls: Option<Arc<ClientConfig>>,
    /// The holder of the target's reservation, and the target's number, if targets are reserved.
    reserves: Option<(Arc<Holder>, usize)>,
}

/// A connected target of a holder of reservations.
#[derive(Debug)]
struct Presence {
    holder: Arc<Holder>,
    target: usize,
}

impl Presence {
    fn new((holder, target): (Arc<Holder>, usize)) -> Self {
        holder.connected(target);
        Self { holder, target }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.holder.disconnected(self.target);
    }
}

#[derive(Debug)]
enum Client {
    Refused {
        retry_at: Instant,
    },
    Resolving(Arc<Lookup>),
    Connecting(TcpStream, Untried),
    /// The TLS handshake is not complete.
    Handshaking(MessageStream),
    /// The target is not reserved yet, or other targets are not.
    Reserving {
        stream: MessageStream,
        presence: Presence,
        /// `true` while the answer to a request is outstanding.
        is_asked: bool,
        /// Earliest time of the next request.
        next_at: Instant,
    },
    /// With the presence of a reserved target.
    Connected(
        MessageStream,
        #[expect(dead_code, reason = "dropped with the connection")] Option<Presence>,
    ),
}

/// Addresses to try if the current attempt fails.
#[derive(Debug)]
pub(super) struct Untried {
    addresses: std::vec::IntoIter<SocketAddr>,
    /// Why an attempt at an earlier address failed, if the server may be reachable there later.
    obstacle: Option<&'static str>,
    /// Time at which the current attempt is abandoned; `None` for the last address.
    next_at: Option<Instant>,
}

impl Untried {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses: addresses.into_iter(),
            obstacle: None,
            next_at: None,
        }
    }
}

impl TcpClientChannel {
    /// Starts to connect to the server at `address`. [`ChannelEvent::Connected`] reports success.
    #[must_use]
    pub fn connect(address: impl Into<HostPort>) -> Self {
        let address = address.into();
        Self {
            peer: format!("storage target at {address}"),
            address,
            state: Client::Refused {
                retry_at: Instant::now(),
            },
            trouble: None,
            tls: None,
            reserves: None,
        }
    }

    /// Reserves the server, which is the target with this number of the holder, before [`ChannelEvent::Connected`] is reported.
    #[must_use]
    pub fn reserving(mut self, holder: Arc<Holder>, target: usize) -> Self {
        self.reserves = Some((holder, target));
        self
    }

    /// Uses TLS; the server's certificate must be for the host of the address.
    #[must_use]
    pub fn with_tls(mut self, config: Option<Arc<ClientConfig>>) -> Self {
        self.tls = config;
        self
    }

    fn connected(&mut self, stream: TcpStream) -> Result<(), Failure> {
        let transport = match &self.tls {
            None => Ok(Transport::plain(stream)),
            Some(config) => {
                let name =
                    network::server_name(&self.address).map_err(|error| self.failure(error))?;
                Transport::client(stream, config, name)
            }
        };
        let stream = transport.and_then(|it| MessageStream::new(it, self.peer.clone()));
        self.state = Client::Handshaking(stream.map_err(|error| self.failure(error))?);
        Ok(())
    }

    /// Continues the TLS handshake, if TLS is used, and reserves the target, if targets are reserved. Returns `true` once
    /// both are complete.
    fn shake_hands(&mut self) -> Result<bool, Failure> {
        let retry_at = Instant::now();
        let state = std::mem::replace(&mut self.state, Client::Refused { retry_at });
        let mut stream = match state {
            Client::Handshaking(stream) => stream,
            other => {
                self.state = other;
                return Ok(false);
            }
        };
        let is_complete = stream.handshake().map_err(|error| self.failure(error))?;
        if !is_complete {
            self.state = Client::Handshaking(stream);
            return Ok(false);
        }
        tracing::info!("connected to the {}", self.peer);
        match self.reserves.clone().map(Presence::new) {
            None => {
                self.state = Client::Connected(stream, None);
                self.trouble = None;
                Ok(true)
            }
            Some(presence) => {
                self.state = Client::Reserving {
                    stream,
                    presence,
                    is_asked: false,
                    next_at: Instant::now(),
                };
                self.reserve()
            }
        }
    }

    /// Continues the reservation of the target. Returns `true` once the connection may be used.
    fn reserve(&mut self) -> Result<bool, Failure> {
        let Client::Reserving {
            stream,
            presence,
            is_asked,
            next_at,
        } = &mut self.state
        else {
            return Ok(false);
        };
        loop {
            // Also read without a request: the target may have disconnected.
            match stream.poll()? {
                Some(ChannelEvent::Message(answer)) => {
                    *is_asked = false;
                    let answered = presence.holder.answered(presence.target, answer);
                    let pause = answered.map_err(|failure| failure.context(stream.peer()))?;
                    *next_at = Instant::now() + pause;
                }
                Some(ChannelEvent::Closed) => {
                    let message = format!("the {} disconnected before it was reserved", self.peer);
                    return Err(Failure::new(ErrorCode::CONNECTION_RESET, message));
                }
                Some(_) => {}
                None if *is_asked || Instant::now() < *next_at => return Ok(false),
                None => match presence.holder.next(presence.target) {
                    Step::Reserve(request) => {
                        stream.send(&request)?;
                        *is_asked = true;
                    }
                    Step::Wait => return Ok(false),
                    Step::Use => break,
                },
            }
        }
        let state = std::mem::replace(
            &mut self.state,
            Client::Refused {
                retry_at: Instant::now(),
            },
        );
        if let Client::Reserving {
            stream, presence, ..
        } = state
        {
            self.state = Client::Connected(stream, Some(presence));
        }
        self.trouble = None;
        Ok(true)
    }

    /// Returns `true` if the connection was established.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, Client::Connected(..))
    }

    /// Returns `true` if the last attempt failed because the server did not listen, or because its name could not be
    /// resolved at that time.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.state, Client::Refused { .. })
    }

    /// Failure of the last attempt, until a connection is established.
    #[must_use]
    pub fn trouble(&self) -> Option<&Failure> {
        self.trouble.as_ref()
    }

    /// Disconnects from the server. The next poll starts another attempt.
    pub fn disconnect(&mut self) {
        self.state = Client::Refused {
            retry_at: Instant::now(),
        };
    }

    /// Drops an attempt that has failed for this reason, and starts another one after a pause.
    pub fn retry_after(&mut self, trouble: Failure) {
        self.trouble = Some(trouble);
        self.state = Client::Refused {
            retry_at: Instant::now() + RETRY,
        };
    }

    /// Starts an attempt to connect.
    fn start(&mut self) -> Result<(), Failure> {
        if let Some(address) = self.address.literal() {
            return self.start_first(Untried::new(vec![address]));
        }
        let lookup = Lookup::start(&self.address).map_err(|error| self.failure(error))?;
        self.state = Client::Resolving(lookup);
        Ok(())
    }

    /// Starts to connect to the first of these addresses that can be tried.
    pub(super) fn start_first(&mut self, mut untried: Untried) -> Result<(), Failure> {
        let mut last = io::Error::other("the host has no address");
        while let Some(address) = untried.addresses.next() {
            match start_at(address) {
                Ok(stream) => {
                    let has_others = !untried.addresses.as_slice().is_empty();
                    untried.next_at = has_others.then(|| Instant::now() + ATTEMPT);
                    self.state = Client::Connecting(stream, untried);
                    return Ok(());
                }
                Err(error) => {
                    untried.obstacle = untried.obstacle.or(obstacle(&error));
                    last = error;
                }
            }
        }
        self.exhausted(untried.obstacle, last)
    }

    /// Handles a failed attempt: tries the next address.
    ///
    /// # Errors
    ///
    /// As [`exhausted`](Self::exhausted).
    fn failed(&mut self, error: io::Error) -> Result<(), Failure> {
        let retry_at = Instant::now();
        let state = std::mem::replace(&mut self.state, Client::Refused { retry_at });
        let Client::Connecting(_, mut untried) = state else {
            return Err(self.failure(error));
        };
        untried.obstacle = untried.obstacle.or(obstacle(&error));
        if untried.addresses.as_slice().is_empty() {
            return self.exhausted(untried.obstacle, error);
        }
        tracing::debug!("{}: {error}; trying its next address", self.peer);
        self.start_first(untried)
    }

    /// Handles the failure of the last address. All addresses are tried again if the server may be reachable later at
    /// one of them.
    ///
    /// # Errors
    ///
    /// Any other error is final.
    fn exhausted(
        &mut self,
        obstacle: Option<&'static str>,
        error: io::Error,
    ) -> Result<(), Failure> {
        let Some(obstacle) = obstacle else {
            return Err(self.failure(error));
        };
        self.try_again(obstacle);
        Ok(())
    }

    fn try_again(&mut self, reason: impl std::fmt::Display) {
        let trouble = self.failure(reason);
        tracing::debug!("{}; trying again", trouble.message);
        self.retry_after(trouble);
    }

    fn failure(&self, error: impl std::fmt::Display) -> Failure {
        Failure::new(
            ErrorCode::CONNECTION_ABORTED,
            format!("cannot connect to the {}: {error}", self.peer),
        )
    }
}

/// Why the server could not be reached, and what to do, if it may be reachable later: it or its machine may be starting.
fn obstacle(error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
        TimedOut,
    };
    match error.kind() {
        ConnectionRefused => {
            Some("nothing listens at this address: start it first, or correct the address")
        }
        HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut | ConnectionReset => Some(
            "its machine cannot be reached: start it, connect it to the network, or correct the address",
        ),
        _ => None,
    }
}

/// Creates a socket and starts to connect it to the address.
fn start_at(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Returns `true` if a socket is connected to itself. When a client connects to a local port without a listener, the
/// kernel may select the same port for the client, about once in ten thousand attempts: TCP then connects the socket to
/// itself.
fn is_self_connected(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

impl ControlChannel for TcpClientChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let Client::Connected(stream, _) = &mut self.state else {
            return Err(not_connected(&self.peer));
        };
        stream.send(message)
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        match &mut self.state {
            Client::Connected(stream, _) => return stream.poll(),
            Client::Reserving { .. } => {
                return Ok(self.reserve()?.then_some(ChannelEvent::Connected));
            }
            Client::Refused { retry_at } if *retry_at <= Instant::now() => self.start()?,
            Client::Resolving(lookup) => match lookup.answer() {
                Some(Ok(addresses)) => self.start_first(Untried::new(addresses))?,
                Some(Err(error)) if is_temporary(&error) => {
                    self.try_again(format_args!(
                        "its name could not be resolved, which may be temporary: {error}"
                    ));
                }
                Some(Err(error)) => return Err(self.failure(error)),
                None => {}
            },
            Client::Connecting(_, Untried { next_at, .. })
                if next_at.is_some_and(|at| at <= Instant::now()) =>
            {
                self.failed(io::ErrorKind::TimedOut.into())?;
            }
            Client::Refused { .. } | Client::Connecting(..) | Client::Handshaking(_) => {}
        }
        if let Client::Connecting(stream, _) = &self.state {
            let connected = match stream.take_error() {
                Ok(None) if is_self_connected(stream) => {
                    Err(io::ErrorKind::ConnectionRefused.into())
                }
                Ok(None) => stream
                    .peer_addr()
                    .is_ok()
                    .then(|| stream.try_clone())
                    .transpose(),
                Ok(Some(error)) | Err(error) => Err(error),
            };
            match connected {
                Ok(None) => {}
                Ok(Some(stream)) => self.connected(stream)?,
                Err(error) => self.failed(error)?,
            }
        }
        Ok(self.shake_hands()?.then_some(ChannelEvent::Connected))
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        match &self.state {
            Client::Refused { retry_at } => interest.until(*retry_at),
            Client::Resolving(_) => interest.until(Instant::now() + RESOLVER_POLL),
            Client::Connecting(stream, untried) => {
                interest.writable(stream.as_fd());
                if let Some(at) = untried.next_at {
                    interest.until(at);
                }
            }
            Client::Handshaking(stream) | Client::Connected(stream, _) => {
                stream.interest(interest);
            }
            Client::Reserving {
                stream, is_asked, ..
            } => {
                stream.interest(interest);
                if !is_asked {
                    interest.until(Instant::now() + RESERVATION_POLL);
                }
            }
        }
    }

    fn flush(&mut self, within: Duration) {
        if let Client::Connected(stream, _) = &mut self.state {
            stream.flush(within);
        }
    }
}
