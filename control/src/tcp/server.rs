//! Server that serves one TCP client at a time.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustls::ServerConfig;
use wire::control::{ErrorResponse, Message, Payload};

use super::stream::MessageStream;
use super::transport::Transport;
use crate::budget::{self, Connections, Deadline, Quota};
use crate::counts::REFUSED_CONNECTIONS;
use crate::failure::Failure;
use crate::network::{Host, HostPort};
use crate::{ChannelEvent, ControlChannel, Interest, Opens, not_connected, refusal};

/// Pause of a listening socket after `accept` has failed, e.g. for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of connections accepted per call of `poll`.
const ACCEPTS_PER_POLL: usize = 64;

/// Listens, and serves one client at a time: the first client that sends a request which begins a session.
///
/// Connections that have not sent such a request wait concurrently, so that a port probe or an idle connection does not
/// lock out a client; their number is limited, and further ones displace the oldest. [`ChannelEvent::Connected`]
/// reports that one of them has begun a session. Other connections are refused during that session.
#[derive(Debug)]
pub struct TcpServerChannel {
    listener: TcpListener,
    opens: Opens,
    first_request_within: Option<Duration>,
    pub(super) client: Option<MessageStream>,
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
                    let answer = refusal(&request, &mut self.refused, self.stream.peer())?;
                    self.stream.send(&answer)?;
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

    /// Listens on the first usable address of the host, which must be this machine; port 0 selects a free one.
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

    /// Disconnects the client, if there is one, so that the next client can be served. First waits up to `within` until
    /// sent messages have left the process.
    pub fn next_client(&mut self, within: Duration) {
        self.flush(within);
        self.client = None;
        self.first_request = None;
        self.is_paused = false;
    }

    /// Accepts a pending connection, which waits for its first request, or is refused while a client is connected.
    /// Returns `true` if a connection was pending.
    pub(super) fn accept(&mut self) -> bool {
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
        // Connections are in order of arrival: see `begin`.
        let mut waiting = self.waiting.iter();
        if let Some(index) = waiting.position(|waiting| waiting.address == address) {
            let message = "expected a request that begins a session, got none before too many further connections";
            let failure = Failure::new(ErrorCode::FULL, message);
            self.end_waiting(index, &failure);
        }
    }

    /// Reports to a waiting connection why it is not served, and closes it.
    fn end_waiting(&mut self, index: usize, failure: &Failure) {
        // `remove`, not `swap_remove`, to keep the order of the other connections.
        let waiting = self.waiting.remove(index);
        self.connections.release(waiting.address);
        tracing::info!("{}: {failure}", waiting.stream.peer());
        reject(waiting.stream, failure);
    }

    /// Makes the first waiting connection that has sent a session-opening request the client, if there is none.
    pub(super) fn begin(&mut self) -> Option<ChannelEvent> {
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

/// Informs another client that a client is already being served.
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
        // The client is polled first: if it has disconnected, the next client need not be refused.
        if let Some(client) = &mut self.client
            && !self.is_paused
            && let Some(event) = client.poll()?
        {
            return Ok(Some(event));
        }
        // Waiting connections are checked before each accept: some may have been closed.
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
        // Requests of other connections are read once there is no client.
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
