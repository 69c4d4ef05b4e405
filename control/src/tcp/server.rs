//! Server that serves one TCP client at a time.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustls::ServerConfig;
use wire::control::{Message, Payload, StorageDetails};

use super::stream::MessageStream;
use super::transport::Transport;
use crate::budget::{self, Connections, Deadline, Quota};
use crate::counts::REFUSED_CONNECTIONS;
use crate::failure::Failure;
use crate::network::{Host, HostPort};
use crate::reservation::Reservation;
use crate::{ChannelEvent, ControlChannel, Interest, Opens, not_connected, refusal};

/// Pause of a listening socket after `accept` has failed, e.g. for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time within which a connection that is made during another client's session must reserve the storage. Services that
/// take over do so at once.
const RESERVE_WITHIN: Duration = Duration::from_secs(1);

/// Maximum number of connections accepted per call of `poll`.
const ACCEPTS_PER_POLL: usize = 64;

/// Listens, and serves one client at a time: the first client that sends a request which begins a session.
///
/// Connections that have not sent such a request wait concurrently, so that a port probe or an idle connection does not
/// lock out a client; their number is limited, and further ones displace the oldest. [`ChannelEvent::Connected`]
/// reports that one of them has begun a session. Other connections are refused during that session, unless they
/// [reserve](Self::with_reservations) the storage.
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
    reservations: Option<Reservations>,
}

/// Reservations of the server's storage.
#[derive(Debug)]
struct Reservations {
    storage: StorageDetails,
    in_force: Option<Reservation>,
}

/// An accepted connection that has not begun a session.
#[derive(Debug)]
struct Waiting {
    stream: MessageStream,
    address: IpAddr,
    deadline: Option<Deadline>,
    refused: Quota,
    /// The reservation that the connection has made.
    reserved: Option<Reservation>,
    /// A request for a reservation that is to come into force, and is answered then.
    requested: Option<(Message, Reservation)>,
}

impl Waiting {
    /// Returns the request that begins the session, if it has arrived. Other requests are refused.
    fn first_request(
        &mut self,
        opens: Opens,
        reservations: Option<&Reservations>,
        now: Instant,
    ) -> Result<Option<Message>, Failure> {
        loop {
            if self.requested.is_some() {
                return Ok(None);
            }
            match self.stream.poll()? {
                Some(ChannelEvent::Message(request)) if opens(&request.payload) => {
                    let in_force = reservations.and_then(|it| it.in_force.as_ref());
                    match in_force {
                        Some(in_force) if self.reserved.as_ref() != Some(in_force) => {
                            let failure = in_force.refusal();
                            self.stream.send(&failure.response_to(&request))?;
                            return Err(failure);
                        }
                        _ => return Ok(Some(request)),
                    }
                }
                Some(ChannelEvent::Message(request)) if reservations.is_some() => {
                    if let (Payload::ReserveStorageRequest(reservation), Some(reservations)) =
                        (&request.payload, reservations)
                    {
                        let reservation = Reservation::of_request(reservation);
                        self.asked_to_reserve(request, reservation, reservations)?;
                    } else {
                        let answer = refusal(&request, &mut self.refused, self.stream.peer())?;
                        self.stream.send(&answer)?;
                    }
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

    /// Handles a request for a reservation: answers it, unless the reservation is to come into force.
    fn asked_to_reserve(
        &mut self,
        request: Message,
        reservation: Option<Reservation>,
        reservations: &Reservations,
    ) -> Result<(), Failure> {
        let in_force = reservations.in_force.as_ref();
        if let Some(reservation) = reservation.filter(|it| it.replaces(in_force)) {
            self.requested = Some((request, reservation));
            return Ok(());
        }
        // Charged like other refused requests.
        self.refused.charge(1)?;
        let answer = Reservation::answer(in_force, &reservations.storage);
        let answer = request.response(Payload::ReservedStorageResponse(answer));
        self.stream.send(&answer)
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
            reservations: None,
        })
    }

    /// Lets clients reserve this storage, for which the reservation `in_force` was made earlier. Connections with another
    /// reservation, or none, begin no session.
    #[must_use]
    pub fn with_reservations(
        mut self,
        storage: StorageDetails,
        in_force: Option<Reservation>,
    ) -> Self {
        self.reservations = Some(Reservations { storage, in_force });
        self
    }

    /// The first requested reservation that replaces the one in force. It comes into force with [`reserve`](Self::reserve),
    /// once no session is in progress.
    #[must_use]
    pub fn requested_reservation(&self) -> Option<&Reservation> {
        let mut requested = self.waiting.iter().filter_map(|it| it.requested.as_ref());
        requested.next().map(|(_, reservation)| reservation)
    }

    /// Puts the [requested reservation](Self::requested_reservation) in force, answers the request, and disconnects the
    /// earlier holder. `persist` stores a new reservation durably; if it fails, the earlier one stays in force.
    pub fn reserve(&mut self, persist: impl FnOnce(&Reservation) -> Result<(), Failure>) {
        let Some(reservations) = &mut self.reservations else {
            return;
        };
        let mut waiting = self.waiting.iter_mut();
        let requested = waiting.find_map(|it| it.requested.take().map(|requested| (it, requested)));
        let Some((waiting, (request, reservation))) = requested else {
            return;
        };
        let is_new = reservations.in_force.as_ref() != Some(&reservation);
        let stored = if is_new {
            persist(&reservation)
        } else {
            Ok(())
        };
        let answer = match stored {
            Ok(()) => {
                if is_new {
                    tracing::info!("reserved for {reservation}");
                }
                waiting.reserved = Some(reservation.clone());
                reservations.in_force = Some(reservation);
                let answer =
                    Reservation::answer(reservations.in_force.as_ref(), &reservations.storage);
                request.response(Payload::ReservedStorageResponse(answer))
            }
            Err(failure) => {
                tracing::error!("the reservation for {reservation} cannot be stored: {failure}");
                failure.response_to(&request)
            }
        };
        if let Err(failure) = waiting.stream.send(&answer) {
            tracing::debug!("{}: {failure}", waiting.stream.peer());
        }
        self.dismiss_earlier_holders();
    }

    /// Disconnects clients that wait with a reservation that is no longer in force, and answers requests for one that
    /// does not replace it.
    fn dismiss_earlier_holders(&mut self) {
        let Some(reservations) = &self.reservations else {
            return;
        };
        let Some(in_force) = reservations.in_force.clone() else {
            return;
        };
        for waiting in &mut self.waiting {
            let requested = waiting.requested.take();
            if let Some((request, reservation)) = requested
                && let Err(failure) =
                    waiting.asked_to_reserve(request, Some(reservation), reservations)
            {
                tracing::debug!("{}: {failure}", waiting.stream.peer());
            }
        }
        let is_earlier = |it: &Waiting| it.reserved.as_ref().is_some_and(|it| *it != in_force);
        while let Some(index) = self.waiting.iter().position(is_earlier) {
            self.end_waiting(index, &in_force.preemption());
        }
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

    /// Reports to the client why its session ends.
    pub fn reject_client(&mut self, failure: &Failure) {
        if let Some(client) = &mut self.client
            && let Err(failure) = client.send(&failure.unsolicited())
        {
            tracing::debug!("{}: {failure}", client.peer());
        }
    }

    /// Disconnects the client, if there is one, so that the next client can be served. First waits up to `within` until
    /// sent messages have left the process.
    pub fn next_client(&mut self, within: Duration) {
        self.flush(within);
        self.client = None;
        self.first_request = None;
        self.is_paused = false;
        // Connections made during the session may begin the next one.
        let now = Instant::now();
        for waiting in &mut self.waiting {
            let deadline = |within| Deadline::new(now, within);
            waiting.deadline = self.first_request_within.map(deadline);
        }
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
        let is_further = self.serves();
        if is_further && self.reservations.is_none() {
            refuse(stream);
            return true;
        }
        let address = address.ip();
        if let Some(from) = self.connections.admit(address) {
            self.displace(from);
        }
        tracing::info!("{} connected", stream.peer());
        let within = if is_further {
            Some(RESERVE_WITHIN)
        } else {
            self.first_request_within
        };
        self.waiting.push(Waiting {
            stream,
            address,
            deadline: within.map(|within| Deadline::new(now, within)),
            refused: Quota::refused_requests(),
            reserved: None,
            requested: None,
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
        let stream = self.remove_waiting(index);
        tracing::info!("{}: {failure}", stream.peer());
        reject(stream, failure);
    }

    fn remove_waiting(&mut self, index: usize) -> MessageStream {
        // `remove`, not `swap_remove`, to keep the order of the other connections.
        let waiting = self.waiting.remove(index);
        self.connections.release(waiting.address);
        waiting.stream
    }

    /// Returns `true` while there is a client that has not disconnected.
    fn serves(&self) -> bool {
        (self.client.as_ref()).is_some_and(|client| !client.has_hung_up())
    }

    /// Makes the first waiting connection that has sent a session-opening request the client, if there is none. During the
    /// session of a client, refuses such requests, and connections that do not reserve the storage in time.
    pub(super) fn begin(&mut self) -> Option<ChannelEvent> {
        let has_client = self.client.is_some();
        // The session of a client that has disconnected is about to end: other clients wait for that.
        if self.waiting.is_empty() || has_client && !self.serves() {
            return None;
        }
        let now = Instant::now();
        let mut index = 0;
        while let Some(waiting) = self.waiting.get_mut(index) {
            match waiting.first_request(self.opens, self.reservations.as_ref(), now) {
                Ok(None) => index += 1,
                Ok(Some(_)) if has_client => refuse(self.remove_waiting(index)),
                Err(failure) if has_client && failure.code == ErrorCode::TIME_OUT => {
                    refuse(self.remove_waiting(index));
                }
                Ok(Some(request)) => {
                    let waiting = self.waiting.swap_remove(index);
                    self.connections.release(waiting.address);
                    self.client = Some(waiting.stream);
                    self.first_request = Some(request);
                    let is_refused = |it: &mut Waiting| it.requested.is_none();
                    for other in self.waiting.extract_if(.., is_refused) {
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
    if let Err(failure) = client.send(&failure.unsolicited()) {
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
        let heard = |it: &&Waiting| it.requested.is_none();
        for waiting in self.waiting.iter().filter(heard) {
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
