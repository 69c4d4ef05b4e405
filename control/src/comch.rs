//! Control channels over Comch: a service on the DPU is the server, an initiator on the host the client.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use doca::{
    ComchClient, ComchEvent, ComchServer, Connection, ContextId, CtxState, Device, ErrorCode,
    Event, Pe, Representor,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::control::{FrameDecoder, Message};

use super::{ChannelEvent, ControlChannel, Interest, Opens, not_connected, refusal};
use crate::budget::{Deadline, Quota, WAITING_CONNECTIONS};
use crate::counts::REFUSED_CONNECTIONS;
use crate::failure::Failure;

/// First and longest interval between attempts to connect to a server that does not exist yet.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_millis(500);

/// Time within which a client must send its first request. Initiators send it as soon as they are connected.
const FIRST_REQUEST: Duration = Duration::from_secs(30);

/// Maximum number of events taken from the progress engine before the first of them is handled.
const PENDING_EVENTS: usize = 256;

/// Time limit for a client to disconnect by itself after the end of its session.
const LEAVE: Duration = Duration::from_secs(1);

/// Serves one client of a Comch server at a time: the first client that sends a request which begins a session.
///
/// As with [`TcpServerChannel`](super::TcpServerChannel), clients that have not sent such a request wait concurrently,
/// and [`ChannelEvent::Connected`] reports that one of them has begun a session.
pub struct ComchServerChannel {
    // Declared before the progress engine that it needs to stop.
    server: ComchServer,
    pe: Engine,
    peer: String,
    opens: Opens,
    session: Session,
    /// Events of the client from before its session.
    early: VecDeque<ChannelEvent>,
    waiting: Vec<Waiting>,
    /// Clients that are no longer served, with the time at which they are disconnected.
    leaving: Vec<(Connection, Instant)>,
    pending: VecDeque<ComchEvent>,
}

/// A client that has not begun a session.
struct Waiting {
    session: Session,
    /// Events of the client other than messages.
    early: VecDeque<ChannelEvent>,
    early_quota: Quota,
    deadline: Deadline,
    refused: Quota,
}

impl Waiting {
    fn new(peer: String, connection: Connection, now: Instant) -> Self {
        let mut session = Session::new(peer);
        session.connected(connection);
        Self {
            session,
            early: VecDeque::new(),
            early_quota: Quota::early_events(),
            deadline: Deadline::new(now, FIRST_REQUEST),
            refused: Quota::refused_requests(),
        }
    }

    /// Stores an event for the session that the client may begin.
    ///
    /// # Errors
    ///
    /// The maximum number of events has been reached.
    fn keep(&mut self, event: ChannelEvent) -> Result<(), Failure> {
        self.early_quota.charge(1)?;
        self.early.push_back(event);
        Ok(())
    }

    /// Returns the request that begins the session, if it has arrived. Other requests are refused.
    fn first_request(
        &mut self,
        server: &ComchServer,
        pe: &Engine,
        opens: Opens,
        now: Instant,
    ) -> Result<Option<Message>, Failure> {
        loop {
            match self.session.next()? {
                Some(ChannelEvent::Message(request)) if opens(&request.payload) => {
                    return Ok(Some(request));
                }
                Some(ChannelEvent::Message(request)) => {
                    let answer = refusal(&request, &mut self.refused, &self.session.peer)?;
                    pe.touch();
                    self.session.send(server, &answer)?;
                }
                Some(_) => {
                    return Err(Failure::new(
                        ErrorCode::CONNECTION_RESET,
                        "it disconnected without a request",
                    ));
                }
                None => {
                    self.deadline.check(now, "its first request")?;
                    return Ok(None);
                }
            }
        }
    }
}

impl ComchServerChannel {
    /// Starts the server called `name` on `device`, for clients behind `representor`. `opens` returns `true` for
    /// requests that begin a session.
    ///
    /// # Errors
    ///
    /// As [`ComchServer::start`]: the name is taken, or the device has no Comch server.
    pub fn start(
        device: &Device,
        representor: &Representor,
        name: &str,
        opens: Opens,
    ) -> Result<Self, Failure> {
        let pe = Engine::new()?;
        let server =
            ComchServer::start(pe.touch(), device, representor, name).map_err(|error| {
                Failure::from(error).context(format_args!("Comch server \"{name}\""))
            })?;
        let peer = format!("initiator on Comch \"{name}\"");
        Ok(Self {
            server,
            pe,
            session: Session::new(peer.clone()),
            peer,
            opens,
            early: VecDeque::new(),
            waiting: Vec::new(),
            leaving: Vec::new(),
            pending: VecDeque::new(),
        })
    }

    /// Ends the client's session, if there is one, so that the next client can be served. Consumers and producers on
    /// its connection must have been destroyed, otherwise the client remains connected until they are.
    ///
    /// A client that `leaves` by itself, because its session is complete, has a second to do so; any other client is
    /// disconnected immediately.
    pub fn next_client(&mut self, leaves: bool) {
        let session = std::mem::replace(&mut self.session, Session::new(self.peer.clone()));
        self.early.clear();
        if let Some(connection) = session.connection {
            let grace = if leaves { LEAVE } else { Duration::ZERO };
            self.leaving.push((connection, Instant::now() + grace));
            self.disconnect_leaving(Instant::now());
        }
    }

    /// Disconnects clients whose time has passed and that have received everything sent to them.
    fn disconnect_leaving(&mut self, now: Instant) {
        let (server, pe) = (&self.server, &self.pe);
        self.leaving.retain(|(connection, at)| {
            if *at > now {
                return true;
            }
            pe.touch();
            match server.disconnect(connection) {
                // Retried later: messages are in flight, or an abandoned thread has a consumer on the connection.
                Err(error) if matches!(error.code, ErrorCode::AGAIN | ErrorCode::IN_USE) => true,
                Err(error) if error.code != ErrorCode::NOT_CONNECTED => {
                    tracing::warn!("a client cannot be disconnected: {error}");
                    false
                }
                Ok(()) | Err(_) => false,
            }
        });
    }

    /// Collects all pending events: a client that has disconnected before it was served is ignored.
    fn collect(&mut self) {
        // Events beyond this limit wait in softdoca's queue, and then in the client's socket.
        while self.pending.len() < PENDING_EVENTS
            && let Some(event) = self.pe.poll()
        {
            match event {
                Event::Comch(ComchEvent::Disconnected(gone)) if !self.session.is_mine(&gone) => {
                    self.pending.retain(|event| connection_of(event) != &gone);
                    self.leaving.retain(|(connection, _)| connection != &gone);
                    if let Some(index) = self.waiting_index(&gone) {
                        self.waiting[index].session.close();
                    }
                }
                Event::Comch(event) => self.pending.push_back(event),
                Event::State {
                    next: CtxState::Stopping | CtxState::Idle,
                    ..
                } => self.session.close(),
                Event::State { .. } | Event::Task(_) => {}
            }
        }
    }

    fn waiting_index(&self, connection: &Connection) -> Option<usize> {
        let mut waiting = self.waiting.iter();
        waiting.position(|waiting| waiting.session.is_mine(connection))
    }

    /// Takes the next event. Events of the client come before those of other connections, so that a client that has
    /// disconnected does not cause the next one to be refused.
    fn take_pending(&mut self) -> Option<ComchEvent> {
        let mine = |event: &ComchEvent| self.session.is_mine(connection_of(event));
        match self.pending.iter().position(mine) {
            Some(index) => self.pending.remove(index),
            None => self.pending.pop_front(),
        }
    }

    /// Returns `true` if a client has begun a session, or has disconnected from it.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.session.is_taken()
    }

    /// Connection of the client, for consumers and producers.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        self.session.connection.clone()
    }

    /// Accepts a new connection, which waits for its first request unless a client is being served. When too many
    /// connections wait, the oldest is rejected: an initiator sends its request as soon as it is connected.
    fn admit(&mut self, connection: Connection) {
        if self.session.is_taken() {
            return self.refuse(connection);
        }
        if self.waiting.len() >= WAITING_CONNECTIONS {
            let message = format!(
                "{WAITING_CONNECTIONS} connections wait to send their first request already"
            );
            // Connections are in order of arrival: see `begin`.
            let oldest = self.waiting.remove(0);
            if let Some(oldest) = oldest.session.connection {
                self.reject(oldest, &Failure::new(ErrorCode::FULL, message));
            }
        }
        tracing::info!("{} connected", self.peer);
        let waiting = Waiting::new(self.peer.clone(), connection, Instant::now());
        self.waiting.push(waiting);
    }

    /// Makes the first waiting connection that has sent a session-opening request the client.
    fn begin(&mut self, now: Instant) -> Option<ChannelEvent> {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get_mut(index) {
            match waiting.first_request(&self.server, &self.pe, self.opens, now) {
                Ok(None) => index += 1,
                Ok(Some(request)) => {
                    let waiting = self.waiting.swap_remove(index);
                    self.session = waiting.session;
                    self.early = waiting.early;
                    self.early.push_back(ChannelEvent::Message(request));
                    for other in std::mem::take(&mut self.waiting) {
                        if let Some(connection) = other.session.connection {
                            self.refuse(connection);
                        }
                    }
                    return Some(ChannelEvent::Connected);
                }
                Err(failure) => {
                    // `remove`, not `swap_remove`, to keep the order of the other connections.
                    let waiting = self.waiting.remove(index);
                    self.end_waiting(waiting, &failure);
                }
            }
        }
        None
    }

    /// Reports to a waiting client why it is not served.
    fn end_waiting(&mut self, waiting: Waiting, failure: &Failure) {
        tracing::info!("{}: {failure}", self.peer);
        if let Some(connection) = waiting.session.connection {
            self.reject(connection, failure);
        }
    }

    /// Informs another client that a client is already being served.
    fn refuse(&mut self, connection: Connection) {
        tracing::warn!("refused a further client of the {}", self.peer);
        let message = "this storage service serves another initiator and only one at a time";
        self.reject(connection, &Failure::new(ErrorCode::IN_USE, message));
    }

    /// Sends an unsolicited error. The client has a short time to disconnect by itself.
    fn reject(&mut self, connection: Connection, failure: &Failure) {
        REFUSED_CONNECTIONS.increment();
        let message = failure.unsolicited();
        self.pe.touch();
        if let Err(error) = self.server.send(&connection, &message.encode_to_vec()) {
            tracing::debug!("the refusal was not sent: {error}");
        }
        self.leaving.push((connection, Instant::now() + LEAVE));
    }
}

impl ControlChannel for ComchServerChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        self.pe.touch();
        self.session.send(&self.server, message)
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        if let Some(event) = self.early.pop_front() {
            return Ok(Some(event));
        }
        self.collect();
        loop {
            if let Some(event) = self.session.next()? {
                return Ok(Some(event));
            }
            let Some(event) = self.take_pending() else {
                break;
            };
            if let ComchEvent::Connected(connection) = event {
                self.admit(connection);
            } else if let Some(index) = self.waiting_index(connection_of(&event)) {
                let waiting = &mut self.waiting[index];
                let kept = match waiting.session.handle(event) {
                    Ok(Some(event)) => waiting.keep(event),
                    Ok(None) => Ok(()),
                    Err(failure) => {
                        tracing::debug!("{failure}");
                        Ok(())
                    }
                };
                if let Err(failure) = kept {
                    let waiting = self.waiting.remove(index);
                    self.end_waiting(waiting, &failure);
                }
            } else if let Some(event) = self.session.handle(event)? {
                return Ok(Some(event));
            }
        }
        let now = Instant::now();
        self.disconnect_leaving(now);
        Ok(self.begin(now))
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        self.pe.interest(interest);
        for waiting in &self.waiting {
            interest.until(waiting.deadline.at());
        }
        let now = Instant::now();
        for (_, at) in &self.leaving {
            if *at > now {
                interest.until(*at);
            } else {
                // The connection could not be disconnected yet, and no event will report when it can be.
                interest.polled();
            }
        }
    }

    /// Stopping the server delivers submitted messages, so this does not wait.
    fn flush(&mut self, _within: Duration) {}
}

/// Connection to which an event belongs.
fn connection_of(event: &ComchEvent) -> &Connection {
    match event {
        ComchEvent::Connected(connection)
        | ComchEvent::Disconnected(connection)
        | ComchEvent::Message { connection, .. }
        | ComchEvent::ConsumerAdded { connection, .. }
        | ComchEvent::ConsumerExpired { connection, .. }
        | ComchEvent::SendFailed { connection, .. } => connection,
    }
}

/// Connects to a Comch server, with retries while it does not exist.
pub struct ComchClientChannel {
    state: Client,
    pe: Engine,
    device: Device,
    name: String,
    peer: String,
    session: Session,
    give_up_at: Instant,
    timeout: Duration,
    retry: Duration,
    /// `false` to fail if the server does not exist.
    waits: bool,
    /// Reason of the last failed attempt that the SDK has explained: the SDK limits the rate of its messages.
    reason: Option<String>,
    /// The first failure to connect was logged.
    is_announced: bool,
}

/// Returns `true` if a retry cannot succeed.
fn is_permanent(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::INVALID_VALUE | ErrorCode::NOT_SUPPORTED | ErrorCode::NOT_PERMITTED
    )
}

enum Client {
    Absent { retry_at: Instant },
    Started(ComchClient),
}

impl ComchClientChannel {
    /// Starts to connect to the server called `name` on `device`. [`ChannelEvent::Connected`] reports success; polling
    /// fails if the connection is not established `within` the time, or on a permanent error.
    ///
    /// # Errors
    ///
    /// As [`doca::Pe::new`].
    pub fn connect(device: &Device, name: &str, within: Duration) -> Result<Self, Failure> {
        let peer = format!("storage service on Comch \"{name}\"");
        let now = Instant::now();
        Ok(Self {
            state: Client::Absent { retry_at: now },
            pe: Engine::new()?,
            device: device.clone(),
            name: name.to_owned(),
            session: Session::new(peer.clone()),
            peer,
            give_up_at: now + within,
            timeout: within,
            retry: FIRST_RETRY,
            waits: true,
            reason: None,
            is_announced: false,
        })
    }

    /// Fails at once if the server does not exist, instead of waiting for it. A server that exists still has the whole
    /// time to accept the connection.
    #[must_use]
    pub fn without_waiting(self) -> Self {
        Self {
            waits: false,
            ..self
        }
    }

    /// Connection to the server, for consumers and producers.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        self.session.connection.clone()
    }

    /// Makes a call that may fail because the server does not exist yet, without its messages in the log. Stores the
    /// reason.
    fn attempt<R>(&mut self, call: impl FnOnce(&mut Self) -> R) -> R {
        let (result, reason) = doca::without_sdk_messages(|| doca::with_sdk_reason(|| call(self)));
        if reason.is_some() {
            self.reason = reason;
        }
        result
    }

    fn reason(&self) -> &str {
        // The SDK may not have logged a reason.
        self.reason.as_deref().unwrap_or(
            "no service with this name is reached through this device; start it first, with the same --command-channel-name, and this device's \
             PCI address as its --representor",
        )
    }

    fn absent(&mut self) -> Result<(), Failure> {
        let (peer, reason) = (&self.peer, self.reason());
        if !self.waits {
            return Err(Failure::new(
                ErrorCode::NOT_FOUND,
                format!("the {peer} is not available: {reason}"),
            ));
        }
        if self.is_announced {
            tracing::debug!("the {peer} is not available, trying again: {reason}");
        } else {
            tracing::warn!(
                "the {peer} is not available, trying again for {:?}: {reason}",
                self.timeout
            );
        }
        self.is_announced = true;
        self.state = Client::Absent {
            retry_at: Instant::now() + self.retry,
        };
        self.retry = (self.retry * 2).min(LAST_RETRY);
        Ok(())
    }

    fn timed_out(&self) -> Failure {
        // Not refused immediately: a device may be able to connect although it does not report that capability.
        let wrong_device = self
            .device
            .info()
            .ok()
            .filter(|info| !info.capabilities.comch_client);
        let reason = match (&self.state, wrong_device) {
            (Client::Absent { .. }, Some(info)) => {
                return Failure::timed_out(
                    format_args!(
                        "the {}; expected the device of a host, got that of a DPU, {}: choose another one with --device ({})",
                        self.peer,
                        info.pci_address,
                        self.reason()
                    ),
                    self.timeout,
                );
            }
            (Client::Absent { .. }, None) => self.reason(),
            (Client::Started(_), _) => {
                "it exists, but does not answer: it is stopped, or its targets are not available; see its log"
            }
        };
        Failure::timed_out(format_args!("the {}: {reason}", self.peer), self.timeout)
    }

    /// Creates a client if none exists, or if the previous one found no server.
    fn connect_again(&mut self) -> Result<(), Failure> {
        if Instant::now() >= self.give_up_at {
            return Err(self.timed_out());
        }
        match &self.state {
            Client::Absent { retry_at } if *retry_at <= Instant::now() => {
                let start =
                    |this: &mut Self| ComchClient::start(this.pe.touch(), &this.device, &this.name);
                match self.attempt(start) {
                    Ok(client) => self.state = Client::Started(client),
                    Err(error) if is_permanent(error.code) => {
                        let mut failure = Failure::from(error)
                            .context(format_args!("Comch client \"{}\"", self.name));
                        if let Some(reason) = &self.reason {
                            failure.message = format!("{}: {reason}", failure.message);
                        }
                        return Err(failure);
                    }
                    Err(error) => {
                        self.reason.get_or_insert_with(|| error.to_string());
                        self.absent()?;
                    }
                }
            }
            Client::Started(client) if client.state() == CtxState::Idle => self.absent()?,
            Client::Absent { .. } | Client::Started(_) => {}
        }
        Ok(())
    }

    fn is_mine(&self, context: ContextId) -> bool {
        matches!(&self.state, Client::Started(client) if client.id() == context)
    }
}

impl ControlChannel for ComchClientChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        match &self.state {
            _ if self.session.closed => Ok(()),
            Client::Started(client) if self.session.is_taken() => {
                self.session.log("send", message);
                self.pe.touch();
                let sent = client.send(&message.encode_to_vec());
                self.session.sent(sent)
            }
            _ => Err(not_connected(&self.peer)),
        }
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        loop {
            if let Some(event) = self.session.next()? {
                return Ok(Some(event));
            }
            let event = match self.session.is_taken() {
                true => self.pe.poll(),
                false => self.attempt(|this| this.pe.poll()),
            };
            match event {
                None => {
                    if !self.session.is_taken() {
                        self.connect_again()?;
                    }
                    return Ok(None);
                }
                Some(Event::Comch(ComchEvent::Connected(connection)))
                    if !self.session.is_taken() =>
                {
                    tracing::info!("connected to the {}", self.peer);
                    return Ok(Some(self.session.connected(connection)));
                }
                Some(Event::Comch(event)) => {
                    if let Some(event) = self.session.handle(event)? {
                        return Ok(Some(event));
                    }
                }
                Some(Event::State {
                    context,
                    next: CtxState::Stopping | CtxState::Idle,
                    ..
                }) if self.is_mine(context) => {
                    self.session.close();
                }
                Some(Event::State { .. } | Event::Task(_)) => {}
            }
        }
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        if self.session.is_taken() {
            return self.pe.interest(interest);
        }
        // The server may be too busy to accept the connection: progress retries.
        interest.polled();
        interest.until(self.give_up_at);
    }

    /// As for the server: stopping delivers submitted messages.
    fn flush(&mut self, _within: Duration) {}
}

/// State common to server and client: the connection to the peer.
struct Session {
    peer: String,
    connection: Option<Connection>,
    decoder: FrameDecoder,
    closed: bool,
}

impl Session {
    fn new(peer: String) -> Self {
        Self {
            peer,
            connection: None,
            decoder: FrameDecoder::new(),
            closed: false,
        }
    }

    /// Returns `true` if a peer is or was connected.
    fn is_taken(&self) -> bool {
        self.connection.is_some() || self.closed
    }

    fn connected(&mut self, connection: Connection) -> ChannelEvent {
        self.connection = Some(connection);
        ChannelEvent::Connected
    }

    fn close(&mut self) {
        if self.connection.take().is_some() {
            self.closed = true;
        }
    }

    fn is_mine(&self, connection: &Connection) -> bool {
        self.connection.as_ref() == Some(connection)
    }

    /// Sends a message to this session's client of `server`. A client that has disconnected is reported by
    /// [`ChannelEvent::Closed`].
    fn send(&self, server: &ComchServer, message: &Message) -> Result<(), Failure> {
        let Some(connection) = &self.connection else {
            return if self.closed {
                Ok(())
            } else {
                Err(not_connected(&self.peer))
            };
        };
        self.log("send", message);
        self.sent(server.send(connection, &message.encode_to_vec()))
    }

    /// Returns the next event. Messages received before the disconnection are returned before [`ChannelEvent::Closed`].
    fn next(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        let message = self.decoder.next().map_err(|error| {
            Failure::from(error).context(format_args!("message from the {}", self.peer))
        })?;
        match message {
            Some(message) => {
                self.log("received", &message);
                Ok(Some(ChannelEvent::Message(message)))
            }
            None if self.closed => Ok(Some(ChannelEvent::Closed)),
            None => Ok(None),
        }
    }

    fn handle(&mut self, event: ComchEvent) -> Result<Option<ChannelEvent>, Failure> {
        match event {
            ComchEvent::Message { connection, bytes } if self.is_mine(&connection) => {
                self.decoder.push(&bytes)
            }
            ComchEvent::Message { .. } => {
                tracing::debug!("ignored a message from a client that was refused")
            }
            ComchEvent::ConsumerAdded { connection, id } if self.is_mine(&connection) => {
                return Ok(Some(ChannelEvent::ConsumerAdded(id)));
            }
            ComchEvent::ConsumerExpired { connection, id } if self.is_mine(&connection) => {
                return Ok(Some(ChannelEvent::ConsumerExpired(id)));
            }
            ComchEvent::Disconnected(connection) if self.is_mine(&connection) => self.close(),
            // The disconnection reports a lost peer, after the last message received from it.
            ComchEvent::SendFailed { connection, code }
                if self.is_mine(&connection) && connection.is_connected() =>
            {
                return Err(Failure::new(
                    code,
                    format!("a control message to the {} was not delivered", self.peer),
                ));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Converts the result of a send. A peer that has disconnected is reported by [`ChannelEvent::Closed`].
    fn sent(&self, result: doca::Result<()>) -> Result<(), Failure> {
        match result {
            Err(error) if error.code == ErrorCode::NOT_CONNECTED => {
                tracing::debug!(peer = self.peer, "not sent: {error}");
                Ok(())
            }
            Err(error) => {
                Err(Failure::from(error).context(format_args!("message to the {}", self.peer)))
            }
            Ok(()) => Ok(()),
        }
    }

    fn log(&self, what: &str, message: &Message) {
        tracing::debug!(
            peer = self.peer,
            id = message.message_id,
            "{what} {}",
            message.payload.message_type()
        );
    }
}

// A progress engine among the other event sources of the main thread.

/// A progress engine that is waited for by its notification descriptor. Polling it does not sleep.
///
/// `doca_pe_progress` sleeps up to 50 ms when it has nothing to do, and for this engine only. The main thread also
/// waits for workers, sockets and signals: each of the few dozen steps of a session's init would take that long.
/// Therefore the engine is armed before the thread waits, and progressed only when its descriptor is readable or its
/// contexts have been used since.
pub(crate) struct Engine {
    pe: Pe,
    armed: Cell<bool>,
}

impl Engine {
    pub(crate) fn new() -> doca::Result<Self> {
        Ok(Self {
            pe: Pe::new()?,
            armed: Cell::new(false),
        })
    }

    /// Returns the engine, for starting or using its contexts, and polls it afterwards.
    pub(crate) fn touch(&self) -> &Pe {
        if self.armed.replace(false) {
            // Fails for an engine without notifications, which was not armed.
            let _ = self.pe.disarm();
        }
        &self.pe
    }

    /// Returns the next event, if there is one.
    pub(crate) fn poll(&self) -> Option<Event> {
        if self.armed.get() && !self.is_readable() {
            return None;
        }
        self.touch().poll()
    }

    /// Registers interest in the next event.
    pub(crate) fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        if !self.armed.get() {
            match self.pe.arm() {
                Ok(true) => self.armed.set(true),
                // Events are pending.
                Ok(false) => return interest.until(Instant::now()),
                // Events are pending, or the engine has no notifications.
                Err(_) => return interest.polled(),
            }
        }
        interest.readable(self.pe.as_fd());
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.pe, PollFlags::IN)];
        // Interrupted by a signal: treated as readable.
        poll(&mut fds, Some(&Timespec::default())) != Ok(0)
    }
}
