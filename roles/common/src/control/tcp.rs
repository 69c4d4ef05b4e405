//! Control channels over TCP: a target listens, a service connects.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use softdoca_net::tls::is_no_tls;
use softdoca_net::{is_temporary, is_tls};
use wire::control::{ErrorResponse, FrameDecoder, Message, MessageType, Payload};

use super::{ChannelEvent, ControlChannel, Interest, Opens};
use crate::budget::{self, Connections, Deadline, Quota};
use crate::metrics::{REFUSED_CONNECTIONS, REFUSED_REQUESTS};
use crate::network::{self, Host, HostPort, Lookup};
use crate::protocol::{Failure, unexpected};

/// Interval between attempts to connect to a server that does not listen yet.
const RETRY: Duration = Duration::from_millis(100);

/// Interval between polls of a lookup that has no answer yet.
const RESOLVER_POLL: Duration = Duration::from_millis(5);

/// Timeout of an attempt to connect to one of several addresses of a name. The last one has the caller's timeout.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Pause of a listening socket after `accept` has failed, e.g. for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of connections accepted per call of `poll`.
const ACCEPTS_PER_POLL: usize = 64;

/// Listens, and serves one client at a time: the first that sends a request which begins a session.
///
/// Connections that have not sent such a request wait side by side, so that a port probe or an idle connection does
/// not lock out a client; their number is limited, and further ones displace the oldest. [`ChannelEvent::Connected`]
/// reports that one of them has begun a session. Other connections are refused during that session.
#[derive(Debug)]
pub struct TcpServerChannel {
    listener: TcpListener,
    opens: Opens,
    first_request_within: Option<Duration>,
    client: Option<MessageStream>,
    /// The request that began the session, until it is polled.
    first_request: Option<Message>,
    waiting: Vec<Waiting>,
    /// `true` while the client's messages are not read.
    is_paused: bool,
    connections: Connections,
    accept_again_at: Option<Instant>,
    tls: Option<Arc<ServerConfig>>,
}

/// An accepted connection that has not begun a session.
#[derive(Debug)]
struct Waiting {
    stream: MessageStream,
    address: IpAddr,
    deadline: Option<Deadline>,
    refused: Quota,
}

impl Waiting {
    /// Returns the request that begins the session, if it has arrived. Other requests are refused.
    fn first_request(&mut self, opens: Opens, now: Instant) -> Result<Option<Message>, Failure> {
        loop {
            match self.stream.poll()? {
                Some(ChannelEvent::Message(request)) if opens(&request.payload) => {
                    return Ok(Some(request));
                }
                Some(ChannelEvent::Message(request)) => {
                    REFUSED_REQUESTS.increment();
                    self.refused.charge(1)?;
                    let failure = unexpected(&request.payload, MessageType::QueryStorageRequest);
                    tracing::warn!("{}: refused: {failure}", self.stream.peer());
                    self.stream.send(&failure.response_to(&request))?;
                }
                Some(ChannelEvent::Closed) => {
                    return Err(Failure::new(
                        ErrorCode::CONNECTION_RESET,
                        "it was closed without a request",
                    ));
                }
                Some(_) => {}
                None => {
                    if let Some(deadline) = &self.deadline {
                        deadline.check(now, "its first request")?;
                    }
                    return Ok(None);
                }
            }
        }
    }
}

impl TcpServerChannel {
    /// Listens on `port` of all IPv4 addresses; port 0 selects a free one.
    ///
    /// # Errors
    ///
    /// The port is in use or privileged.
    pub fn listen(port: u16, opens: Opens) -> Result<Self, Failure> {
        Self::listen_at(&Host::Ip(Ipv4Addr::UNSPECIFIED.into()), port, opens)
    }

    /// Listens on one address of this machine, the first of the host's addresses that is usable; port 0 selects a free one.
    ///
    /// # Errors
    ///
    /// The machine does not have the address, the port is in use or privileged, or the name is unknown.
    pub fn listen_at(host: &Host, port: u16, opens: Opens) -> Result<Self, Failure> {
        let listen = || {
            let addresses = HostPort::new(host, port).resolve()?;
            let listener = TcpListener::bind(&addresses[..])?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|error: io::Error| {
            let flags = match host {
                Host::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => format!("--listen-port {port}"),
                host => format!("--listen-address {host} --listen-port {port}"),
            };
            Failure::new(
                ErrorCode::IO_FAILED,
                format!("{flags}: cannot listen: {error}"),
            )
        })?;
        Ok(Self {
            listener,
            opens,
            first_request_within: None,
            client: None,
            first_request: None,
            waiting: Vec::new(),
            is_paused: false,
            connections: Connections::new(
                budget::WAITING_CONNECTIONS,
                budget::WAITING_CONNECTIONS_PER_ADDRESS,
            ),
            accept_again_at: None,
            tls: None,
        })
    }

    /// Requires TLS of all clients.
    #[must_use]
    pub fn with_tls(mut self, config: Option<Arc<ServerConfig>>) -> Self {
        self.tls = config;
        self
    }

    /// Closes connections that send no first request `within` the time. By default there is no limit, because a
    /// service without an initiator sends nothing.
    #[must_use]
    pub fn first_request_within(mut self, within: Option<Duration>) -> Self {
        self.first_request_within = within;
        self
    }

    /// Port that the socket listens on.
    ///
    /// # Errors
    ///
    /// The socket has no address; a listening socket always has one.
    pub fn port(&self) -> Result<u16, Failure> {
        let address = self.listener.local_addr().map_err(|error| {
            Failure::new(
                ErrorCode::IO_FAILED,
                format!("address of the listening socket: {error}"),
            )
        })?;
        Ok(address.port())
    }

    /// Stops reading the client's messages while a request of it is processed, or resumes. Other clients are handled
    /// in either case.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Disconnects the client, if there is one, so that the next can be served. Waits up to `within` for sent messages
    /// to leave first.
    pub fn next_client(&mut self, within: Duration) {
        self.flush(within);
        self.client = None;
        self.first_request = None;
        self.is_paused = false;
    }

    /// Accepts a connection, if there is one: it waits for its first request, or is refused while a client is connected.
    /// Returns `true` if there was one.
    fn accept(&mut self) -> bool {
        let now = Instant::now();
        if self.accept_again_at.is_some_and(|at| now < at) {
            return false;
        }
        self.accept_again_at = None;
        let (stream, address) = match self.listener.accept() {
            // A socket that listens on IPv4 and IPv6 reports mapped addresses: converted to IPv4.
            Ok((stream, address)) => {
                let ip = address.ip().to_canonical();
                (stream, SocketAddr::new(ip, address.port()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // The client disconnected before it was accepted, or no descriptor is free.
            Err(error) => {
                tracing::warn!("accept: {error}");
                self.accept_again_at = Some(now + ACCEPT_PAUSE);
                return false;
            }
        };
        let peer = format!("service at {address}");
        let stream = match Transport::server(stream, self.tls.as_ref())
            .and_then(|transport| MessageStream::new(transport, peer))
        {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!("client {address}: {error}");
                return true;
            }
        };
        // The session of a client that has disconnected is about to end: the next client waits for that. The client
        // may have disconnected since it was polled.
        if self
            .client
            .as_ref()
            .is_some_and(|client| !client.has_hung_up())
        {
            refuse(stream);
            return true;
        }
        let address = address.ip();
        if let Some(from) = self.connections.admit(address) {
            self.displace(from);
        }
        tracing::info!("{} connected", stream.peer());
        let deadline = |within| Deadline::new(now, within);
        self.waiting.push(Waiting {
            stream,
            address,
            deadline: self.first_request_within.map(deadline),
            refused: Quota::refused_requests(),
        });
        true
    }

    /// Closes the oldest waiting connection from this address: a client sends its request as soon as it is connected.
    fn displace(&mut self, address: IpAddr) {
        // In order of arrival: see `begin`.
        let mut waiting = self.waiting.iter();
        if let Some(index) = waiting.position(|waiting| waiting.address == address) {
            let message = "expected a request that begins a session, got none before too many further connections";
            let failure = Failure::new(ErrorCode::FULL, message);
            self.end_waiting(index, &failure);
        }
    }

    /// Reports to a waiting connection why it is not served, and closes it.
    fn end_waiting(&mut self, index: usize, failure: &Failure) {
        // `remove`, not `swap_remove`: the others stay in order.
        let waiting = self.waiting.remove(index);
        self.connections.release(waiting.address);
        tracing::info!("{}: {failure}", waiting.stream.peer());
        reject(waiting.stream, failure);
    }

    /// Makes the first waiting connection that has sent a session-opening request the client, if there is none.
    fn begin(&mut self) -> Option<ChannelEvent> {
        if self.client.is_some() {
            return None;
        }
        let now = Instant::now();
        let mut index = 0;
        while let Some(waiting) = self.waiting.get_mut(index) {
            match waiting.first_request(self.opens, now) {
                Ok(None) => index += 1,
                Ok(Some(request)) => {
                    let waiting = self.waiting.swap_remove(index);
                    self.connections.release(waiting.address);
                    self.client = Some(waiting.stream);
                    self.first_request = Some(request);
                    for other in self.waiting.drain(..) {
                        self.connections.release(other.address);
                        refuse(other.stream);
                    }
                    return Some(ChannelEvent::Connected);
                }
                Err(failure) => self.end_waiting(index, &failure),
            }
        }
        None
    }
}

/// Reports to a further client that another one is being served.
fn refuse(client: MessageStream) {
    let message = "this storage target serves another client and only one at a time";
    tracing::warn!("refused a further client: {}", client.peer());
    reject(client, &Failure::new(ErrorCode::IN_USE, message));
}

/// Sends an error without a request, and closes the connection.
fn reject(mut client: MessageStream, failure: &Failure) {
    REFUSED_CONNECTIONS.increment();
    tracing::debug!("{}: {failure}", client.peer());
    let message = Message {
        message_id: 0,
        correlation_id: 0,
        payload: Payload::ErrorResponse(ErrorResponse {
            error_code: failure.code.0,
            message: failure.message.clone(),
        }),
    };
    if let Err(failure) = client.send(&message) {
        tracing::debug!("{}: {failure}", client.peer());
    }
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
        client.send(message)
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        if let Some(request) = self.first_request.take() {
            return Ok(Some(ChannelEvent::Message(request)));
        }
        // The client first: if it has disconnected, the next one need not be refused.
        if let Some(client) = &mut self.client
            && !self.is_paused
            && let Some(event) = client.poll()?
        {
            return Ok(Some(event));
        }
        // Waiting connections are checked before each further one: some may have been closed.
        for _ in 0..ACCEPTS_PER_POLL {
            if let Some(event) = self.begin() {
                return Ok(Some(event));
            }
            if !self.accept() {
                break;
            }
        }
        Ok(self.begin())
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        let client = self.client.as_ref();
        match self.accept_again_at {
            Some(at) => interest.until(at),
            None => interest.readable(self.listener.as_fd()),
        }
        if let Some(client) = client.filter(|_| !self.is_paused) {
            client.interest(interest);
        }
        // Their requests are read once there is no client.
        for waiting in self.waiting.iter().filter(|_| client.is_none()) {
            waiting.stream.interest(interest);
            if let Some(deadline) = &waiting.deadline {
                interest.until(deadline.at());
            }
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
    Connected(MessageStream),
}

/// Addresses to try if the current attempt fails.
#[derive(Debug)]
struct Untried {
    addresses: std::vec::IntoIter<SocketAddr>,
    /// `true` if an earlier address has refused the connection: the server may be starting there.
    was_refused: bool,
    /// Time at which the current attempt is abandoned; `None` if there is no further address.
    next_at: Option<Instant>,
}

impl Untried {
    fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses: addresses.into_iter(),
            was_refused: false,
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
        }
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

    /// Continues with the TLS handshake, if there is one. Returns `true` once it is complete.
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
        self.state = match is_complete {
            true => Client::Connected(stream),
            false => Client::Handshaking(stream),
        };
        if is_complete {
            self.trouble = None;
            tracing::info!("connected to the {}", self.peer);
        }
        Ok(is_complete)
    }

    /// Returns `true` if the connection was established.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, Client::Connected(_))
    }

    /// Returns `true` if the last attempt failed because the server did not listen, or because its name could not be
    /// resolved at that time.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.state, Client::Refused { .. })
    }

    /// Failure of the last attempt, until there is a connection.
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
    fn start_first(&mut self, mut untried: Untried) -> Result<(), Failure> {
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
                    untried.was_refused |= error.kind() == io::ErrorKind::ConnectionRefused;
                    last = error;
                }
            }
        }
        self.exhausted(untried.was_refused, last)
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
        untried.was_refused |= error.kind() == io::ErrorKind::ConnectionRefused;
        if untried.addresses.as_slice().is_empty() {
            return self.exhausted(untried.was_refused, error);
        }
        tracing::debug!("{}: {error}; trying its next address", self.peer);
        self.start_first(untried)
    }

    /// Handles the failure of the last address. A refused connection is retried, because the server may be starting.
    ///
    /// # Errors
    ///
    /// Any other error is final.
    fn exhausted(&mut self, was_refused: bool, error: io::Error) -> Result<(), Failure> {
        if !was_refused {
            return Err(self.failure(error));
        }
        self.try_again("nothing listens at this address: start it first, or correct the address");
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

/// Returns `true` if a socket is connected to itself. Connecting to a local port without a listener can, about once
/// in ten thousand attempts, use that port as the client's own: TCP then connects the socket to itself.
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
        stream.send(message)
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        match &mut self.state {
            Client::Connected(stream) => return stream.poll(),
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
            Client::Handshaking(stream) | Client::Connected(stream) => stream.interest(interest),
        }
    }

    fn flush(&mut self, within: Duration) {
        if let Client::Connected(stream) = &mut self.state {
            stream.flush(within);
        }
    }
}

// Messages over one connected TCP stream.

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
    let timeout = ASK_AFTER + ASK_EVERY * ASK_TIMES;
    sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    )?;
    Ok(())
}

/// Maximum number of bytes that rustls buffers for a socket that accepts no more.
const TLS_BUFFER: usize = 64 * 1024;

/// A non-blocking socket, with or without TLS.
pub(in crate::control) struct Transport {
    socket: TcpStream,
    tls: Option<Box<rustls::Connection>>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("socket", &self.socket)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

impl Transport {
    pub(in crate::control) fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    fn server(socket: TcpStream, config: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = config else {
            return Ok(Self::plain(socket));
        };
        let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Self::over(socket, session))
    }

    fn client(
        socket: TcpStream,
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Self::over(socket, session))
    }

    fn over(socket: TcpStream, session: impl Into<rustls::Connection>) -> Self {
        let mut session = Box::new(session.into());
        session.set_buffer_limit(Some(TLS_BUFFER));
        Self {
            socket,
            tls: Some(session),
        }
    }

    /// Continues with the handshake. Returns `true` once it is complete.
    fn handshake(&mut self) -> io::Result<bool> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            match self.receive() {
                Ok(0) => return Err(no_handshake()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.send_held_back()?;
        Ok(true)
    }

    /// Reads TLS records. Returns the number of bytes.
    fn receive(&mut self) -> io::Result<usize> {
        self.send_held_back()?;
        let Some(tls) = &mut self.tls else {
            return Ok(0);
        };
        let received = tls.read_tls(&mut &self.socket)?;
        if let Err(error) = tls.process_new_packets() {
            // The alert reports the reason to the peer.
            let _ = self.send_held_back();
            return Err(io::Error::new(ErrorKind::InvalidData, Refused { error }));
        }
        self.send_held_back()?;
        Ok(received)
    }

    /// Sends the data buffered by TLS, until the socket accepts no more.
    fn send_held_back(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn holds_back(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else {
                return (&self.socket).read(bytes);
            };
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The connection was closed without close_notify: only complete messages count anyway.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            if self.receive()? == 0 {
                let is_early = self.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
                return if is_early { Err(no_handshake()) } else { Ok(0) };
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return (&self.socket).write(bytes);
        };
        let taken = tls.writer().write(bytes)?;
        self.send_held_back()?;
        match taken {
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // Without blocking.
            let _ = self.send_held_back();
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("TLS: {error}{}", hint(.error))]
struct Refused {
    error: rustls::Error,
}

/// The remedy, as the end of a message.
fn hint(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    match error {
        error if is_no_tls(error) => {
            "; the peer does not use TLS: use --tls on both sides or on neither"
        }
        Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "; no authority of this side's --tls-ca (or --tls-client-ca) has signed the peer's certificate"
        }
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "; name the target by the host name or address that its certificate is for",
        Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        ) => "; renew the peer's certificate, or correct the clock",
        Error::AlertReceived(Alert::CertificateRequired) => {
            "; the peer has --tls-client-ca: give this side --tls-certificate and --tls-key"
        }
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::DecryptError,
        ) => {
            "; the peer has refused this side's --tls-certificate: no authority of its --tls-ca or --tls-client-ca has signed it"
        }
        _ => "",
    }
}

fn no_handshake() -> io::Error {
    let text = "the peer has closed the connection during the TLS handshake; does it use --tls?";
    io::Error::new(ErrorKind::InvalidData, text)
}

#[derive(Debug)]
pub(in crate::control) struct MessageStream {
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
    pub(in crate::control) fn new(transport: Transport, peer: String) -> std::io::Result<Self> {
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
    pub(in crate::control) fn stream(&self) -> &TcpStream {
        &self.transport.socket
    }

    /// Continues with the TLS handshake, if there is one. Returns `true` once it is complete.
    fn handshake(&mut self) -> io::Result<bool> {
        self.transport.handshake()
    }

    pub(in crate::control) fn peer(&self) -> &str {
        &self.peer
    }

    /// Sends a message, or queues it until the peer has read earlier ones.
    ///
    /// # Errors
    ///
    /// Too many bytes are queued.
    pub(in crate::control) fn send(&mut self, message: &Message) -> Result<(), Failure> {
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

    pub(in crate::control) fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
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
                    if is_first && self.transport.tls.is_none() && is_tls(&bytes[..count]) {
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
    pub(in crate::control) fn has_hung_up(&self) -> bool {
        let flags = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut descriptors = [PollFd::new(&self.transport.socket, flags)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut descriptors, Some(&now)).is_ok_and(|count| count != 0)
    }

    pub(in crate::control) fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        if !self.read_closed {
            interest.readable(self.transport.socket.as_fd());
        }
        if self.is_sending() {
            interest.writable(self.transport.socket.as_fd());
        }
    }

    pub(in crate::control) fn flush(&mut self, within: Duration) {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv6Addr, SocketAddrV4};

    use wire::control::FrameDecoder;

    use super::*;
    use crate::control::Waiter;
    use crate::shutdown::Shutdown;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn opens(payload: &Payload) -> bool {
        *payload == Payload::QueryStorageRequest
    }

    fn server() -> (TcpServerChannel, SocketAddrV4) {
        let server = TcpServerChannel::listen(0, opens).expect("a free port");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, server.port().expect("port"));
        assert_ne!(address.port(), 0);
        (server, address)
    }

    fn next(channel: &mut dyn ControlChannel) -> Result<ChannelEvent, Failure> {
        let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(event) = channel.poll()? {
                return Ok(event);
            }
            assert!(Instant::now() < deadline, "nothing happened on the channel");
            waiter.wait(&[channel], Some(deadline));
        }
    }

    /// Begins a session with this request, and waits until the server serves it.
    fn begin(client: &mut TcpClientChannel, server: &mut TcpServerChannel, message_id: u32) {
        assert_eq!(next(client), Ok(ChannelEvent::Connected));
        client.send(&request(message_id)).expect("sent");
        assert_eq!(next(server), Ok(ChannelEvent::Connected));
        let first = ChannelEvent::Message(request(message_id));
        assert_eq!(server.poll(), Ok(Some(first)));
    }

    /// Messages that the server sends to a connection until it is closed; asserts that the server reports no event
    /// meanwhile.
    fn received(server: &mut TcpServerChannel, mut stream: TcpStream) -> Vec<Payload> {
        stream.set_nonblocking(true).expect("non-blocking");
        let deadline = Instant::now() + TIMEOUT;
        let (mut decoder, mut bytes) = (FrameDecoder::new(), [0; 1024]);
        let mut payloads = Vec::new();
        loop {
            assert!(
                Instant::now() < deadline,
                "the connection stays: {payloads:?}"
            );
            assert_eq!(server.poll(), Ok(None), "other peers are not affected");
            match stream.read(&mut bytes) {
                Ok(0) => return payloads,
                Ok(count) => decoder.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return payloads;
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
            while let Some(message) = decoder.next().expect("a frame") {
                payloads.push(message.payload);
            }
        }
    }

    fn error_codes(payloads: &[Payload]) -> Vec<u32> {
        let code = |payload: &Payload| match payload {
            Payload::ErrorResponse(error) => error.error_code,
            other => panic!("{other:?}"),
        };
        payloads.iter().map(code).collect()
    }

    fn request(message_id: u32) -> Message {
        Message {
            message_id,
            correlation_id: 7,
            payload: Payload::QueryStorageRequest,
        }
    }

    #[test]
    fn messages_pass_both_ways_and_disconnection_is_reported() {
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        assert!(client.send(&request(0)).is_err(), "not connected yet");
        begin(&mut client, &mut server, 0);
        for id in [1, 2] {
            client.send(&request(id)).expect("sent");
        }
        for id in [1, 2] {
            assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(id))));
        }
        let answer = request(2).response(Payload::ShutdownResponse);
        server.send(&answer).expect("sent");
        drop(server);
        assert_eq!(
            next(&mut client),
            Ok(ChannelEvent::Message(answer)),
            "what was sent before the end arrives"
        );
        assert_eq!(next(&mut client), Ok(ChannelEvent::Closed));
        client
            .send(&request(3))
            .expect("no error, but the event again");
        assert_eq!(next(&mut client), Ok(ChannelEvent::Closed));
    }

    #[test]
    fn client_retries_until_server_listens() {
        let (server, address) = server();
        drop(server);
        let mut client = TcpClientChannel::connect(address);
        let start = Instant::now();
        let mut waiter = Waiter::new(Shutdown::new().expect("pipe"));
        while start.elapsed() < RETRY * 2 {
            assert_eq!(client.poll(), Ok(None));
            waiter.wait(&[&client], None);
        }
        let mut server =
            TcpServerChannel::listen(address.port(), opens).expect("the port is free again");
        begin(&mut client, &mut server, 0);
    }

    #[test]
    fn second_client_gets_an_error_with_the_reason() {
        let (mut server, address) = server();
        let mut first = TcpClientChannel::connect(address);
        begin(&mut first, &mut server, 0);
        let second = TcpStream::connect(address).expect("connected");
        let codes = error_codes(&received(&mut server, second));
        assert_eq!(codes, [ErrorCode::IN_USE.0]);
    }

    /// A client may disconnect between being polled and the accept of the next one.
    #[test]
    fn client_that_is_accepted_after_the_last_has_hung_up_is_served() {
        let (mut server, address) = server();
        let mut first = TcpClientChannel::connect(address);
        begin(&mut first, &mut server, 0);
        drop(first);
        let deadline = Instant::now() + TIMEOUT;
        while !server.client.as_ref().expect("a client").has_hung_up() {
            assert!(Instant::now() < deadline, "its end does not arrive");
        }
        let mut second = TcpClientChannel::connect(address);
        assert_eq!(next(&mut second), Ok(ChannelEvent::Connected));
        second.send(&request(1)).expect("sent");
        assert!(server.accept());
        assert_eq!(server.begin(), None, "the first session has not ended");
        assert_eq!(next(&mut server), Ok(ChannelEvent::Closed));
        server.next_client(Duration::ZERO);
        assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
        let first_request = ChannelEvent::Message(request(1));
        assert_eq!(server.poll(), Ok(Some(first_request)));
    }

    #[test]
    fn idle_connections_neither_begin_a_session_nor_block_clients() {
        let (mut server, address) = server();
        let probe = TcpStream::connect(address).expect("connected");
        assert_eq!(server.poll(), Ok(None));
        drop(probe);
        let mut garbage = TcpStream::connect(address).expect("connected");
        garbage.write_all(&[0xff; 64]).expect("written");
        let codes = error_codes(&received(&mut server, garbage));
        assert_eq!(codes, [ErrorCode::INVALID_VALUE.0]);
        let mut early = TcpStream::connect(address).expect("connected");
        let stop = Message {
            payload: Payload::StopStorageRequest,
            ..request(1)
        };
        early.write_all(&stop.encode_to_vec()).expect("written");
        early
            .shutdown(std::net::Shutdown::Write)
            .expect("half closed");
        let codes = error_codes(&received(&mut server, early));
        let ends = [ErrorCode::UNEXPECTED.0, ErrorCode::CONNECTION_RESET.0];
        assert_eq!(codes, ends);

        let idle = TcpStream::connect(address).expect("connected");
        assert_eq!(server.poll(), Ok(None));
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 9);
        let codes = error_codes(&received(&mut server, idle));
        assert_eq!(codes, [ErrorCode::IN_USE.0], "another one was first");
    }

    #[test]
    fn idle_connections_are_limited_in_number_and_time() {
        let (server, address) = server();
        let within = Duration::from_millis(200);
        let mut server = server.first_request_within(Some(within));
        let start = Instant::now();
        let mut idle: VecDeque<_> = (0..=budget::WAITING_CONNECTIONS_PER_ADDRESS)
            .map(|_| TcpStream::connect(address).expect("connected"))
            .collect();
        let oldest = idle.pop_front().expect("the first");
        let codes = error_codes(&received(&mut server, oldest));
        assert_eq!(codes, [ErrorCode::FULL.0], "displaced by the last");
        for stream in idle {
            let codes = error_codes(&received(&mut server, stream));
            assert_eq!(codes, [ErrorCode::TIME_OUT.0]);
        }
        assert!(start.elapsed() >= within);
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 1);
    }

    /// Idle connections may wait indefinitely, because a service without an initiator sends nothing.
    #[test]
    fn idle_connections_do_not_block_a_client_of_the_same_address() {
        let (mut server, address) = server();
        let mut idle = VecDeque::new();
        for _ in 0..2 * budget::WAITING_CONNECTIONS_PER_ADDRESS {
            idle.push_back(TcpStream::connect(address).expect("connected"));
            assert_eq!(server.poll(), Ok(None));
        }
        let mut client = TcpClientChannel::connect(address);
        assert_eq!(next(&mut client), Ok(ChannelEvent::Connected));
        for _ in 1..budget::WAITING_CONNECTIONS_PER_ADDRESS {
            idle.push_back(TcpStream::connect(address).expect("connected"));
            assert_eq!(server.poll(), Ok(None));
        }
        client.send(&request(3)).expect("sent");
        assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
        assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(3))));
    }

    #[test]
    fn client_that_reads_no_answers_exceeds_its_budget() {
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 0);
        let answer = request(0).response(Payload::ErrorResponse(ErrorResponse {
            error_code: 1,
            message: "x".repeat(1000),
        }));
        // The kernel buffers some MiB in addition.
        let failure = (0..64 << 10)
            .find_map(|_| server.send(&answer).err())
            .expect("64 MiB are too much");
        assert_eq!(failure.code, ErrorCode::FULL);
    }

    #[test]
    fn fragments_are_reassembled_and_garbage_is_an_error() {
        let (mut server, address) = server();
        let mut client = TcpStream::connect(address).expect("connected");
        client.set_nodelay(true).expect("nodelay");
        let frame = request(9).encode_to_vec();
        for (piece, expected) in [
            (&frame[..5], None),
            (&frame[5..], Some(ChannelEvent::Connected)),
        ] {
            client.write_all(piece).expect("written");
            match expected {
                None => assert_eq!(server.poll(), Ok(None)),
                Some(event) => assert_eq!(next(&mut server), Ok(event)),
            }
        }
        assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(9))));
        client.write_all(&[0xff; 64]).expect("written");
        let failure = next(&mut server).expect_err("garbage");
        assert!(
            failure.message.contains("127.0.0.1"),
            "the message names the peer: {failure}"
        );
    }

    #[test]
    fn error_for_a_port_in_use_names_the_flag() {
        let (_server, address) = server();
        let failure = TcpServerChannel::listen(address.port(), opens).expect_err("in use");
        assert!(failure.message.contains("--listen-port"), "{failure}");
    }

    #[test]
    fn clients_are_served_one_after_the_other() {
        let (mut server, address) = server();
        let mut first = TcpClientChannel::connect(address);
        begin(&mut first, &mut server, 4);
        drop(first);
        // Connected before the server has seen that the first has disconnected.
        let mut second = TcpClientChannel::connect(address);
        assert_eq!(next(&mut second), Ok(ChannelEvent::Connected));
        assert_eq!(next(&mut server), Ok(ChannelEvent::Closed));
        server.next_client(TIMEOUT);
        second.send(&request(5)).expect("sent");
        assert_eq!(next(&mut server), Ok(ChannelEvent::Connected));
        assert_eq!(next(&mut server), Ok(ChannelEvent::Message(request(5))));
        // A client that does not disconnect is disconnected.
        server.next_client(TIMEOUT);
        assert_eq!(next(&mut second), Ok(ChannelEvent::Closed));
    }

    #[test]
    fn server_listens_on_the_given_address_only() {
        let here = Ipv4Addr::new(127, 0, 0, 2);
        let host = Host::Ip(here.into());
        let server = TcpServerChannel::listen_at(&host, 0, opens).expect("a free port");
        let port = server.port().expect("port");
        assert!(TcpStream::connect((here, port)).is_ok());
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        // 192.0.2.0/24 is reserved for documentation.
        for other in ["192.0.2.1", "no-such-host.invalid"] {
            let host = other.parse().expect("a host");
            let failure =
                TcpServerChannel::listen_at(&host, 0, opens).expect_err("another machine's");
            assert!(
                failure
                    .message
                    .contains(&format!("--listen-address {other}")),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_server_is_reached_by_name_and_by_ipv6_address() {
        for (listens, reached) in [
            ("127.0.0.1", "localhost"),
            ("localhost", "localhost"),
            ("::1", "[::1]"),
            // If the name has addresses of both families, the first refuses the connection.
            ("::1", "localhost"),
            ("::", "127.0.0.1"),
        ] {
            let host = listens.parse().expect("a host");
            let mut server = TcpServerChannel::listen_at(&host, 0, opens).expect("a free port");
            let port = server.port().expect("port");
            let address: HostPort = format!("{reached}:{port}").parse().expect("an address");
            let has_it = |ip: IpAddr| {
                address
                    .resolve()
                    .is_ok_and(|all| all.iter().any(|it| it.ip() == ip))
            };
            if listens == "::1" && !has_it(Ipv6Addr::LOCALHOST.into()) {
                assert_eq!(reached, "localhost", "it is an address");
                continue;
            }
            let mut client = TcpClientChannel::connect(address);
            begin(&mut client, &mut server, 0);
            let peer = server.client.as_ref().expect("a client").peer();
            assert!(!peer.contains("ffff"), "{peer}");
        }
    }

    #[test]
    fn an_unknown_name_is_final_and_a_refusing_one_is_tried_again() {
        let unknown: HostPort = "no-such-host.invalid:7".parse().expect("an address");
        let failure = next(&mut TcpClientChannel::connect(unknown)).expect_err("unknown");
        assert!(
            failure.message.contains("no-such-host.invalid:7"),
            "{failure}"
        );

        let (server, address) = server();
        let port = address.port();
        drop(server);
        let name: HostPort = format!("localhost:{port}").parse().expect("an address");
        let mut client = TcpClientChannel::connect(name);
        let deadline = Instant::now() + TIMEOUT;
        let mut was_tried = false;
        // Initially the state is that of a refused connection.
        while !(was_tried && client.is_refused()) {
            assert_eq!(client.poll(), Ok(None));
            was_tried |= !client.is_refused();
            assert!(Instant::now() < deadline, "{client:?}");
        }
        let host = Host::Ip(Ipv4Addr::LOCALHOST.into());
        let mut server = TcpServerChannel::listen_at(&host, port, opens).expect("the same port");
        begin(&mut client, &mut server, 1);
    }

    /// A listening socket whose backlog is full: the kernel does not answer further connections.
    fn deaf() -> (std::os::fd::OwnedFd, SocketAddr, Vec<TcpStream>) {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        rustix::net::bind(&socket, &any).expect("a free port");
        rustix::net::listen(&socket, 0).expect("listening");
        let address = rustix::net::getsockname(&socket).expect("an address");
        let address = SocketAddr::try_from(address).expect("of IPv4");
        let mut held = Vec::new();
        let within = Duration::from_millis(300);
        while let Ok(stream) = TcpStream::connect_timeout(&address, within) {
            held.push(stream);
            assert!(held.len() < 64, "expected a full queue");
        }
        (socket, address, held)
    }

    #[test]
    fn an_address_that_does_not_answer_is_given_up_for_the_next() {
        let (_socket, silent, _held) = deaf();
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        client
            .start_first(Untried::new(vec![silent, address.into()]))
            .expect("an attempt");
        begin(&mut client, &mut server, 0);
    }

    #[test]
    fn keepalive_is_enabled() {
        use rustix::net::sockopt;
        let (mut server, address) = server();
        let mut client = TcpClientChannel::connect(address);
        begin(&mut client, &mut server, 0);
        let stream = server.client.as_ref().expect("a client").stream();
        assert_eq!(sockopt::socket_keepalive(stream), Ok(true));
        let longest = sockopt::tcp_keepidle(stream).expect("supported")
            + sockopt::tcp_keepintvl(stream).expect("supported")
                * sockopt::tcp_keepcnt(stream).expect("supported");
        assert!(longest < Duration::from_secs(15), "{longest:?}");
    }
}
