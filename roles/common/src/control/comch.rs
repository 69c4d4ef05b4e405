//! Control channels over Comch: a service on the DPU serves, an initiator on the host connects.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use doca::{
    ComchClient, ComchEvent, ComchServer, Connection, ContextId, CtxState, Device, ErrorCode,
    Event, Pe, Representor,
};
use wire::control::{ErrorResponse, FrameDecoder, Message, Payload};

use super::tcp::not_connected;
use super::{ChannelEvent, ControlChannel, Interest};
use crate::failure::Failure;

/// Time between the first two attempts to connect to a server that does not exist yet, and between later ones: the SDK
/// logs each of them as an error.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_millis(500);

/// Serves one client of a Comch server at a time.
pub struct ComchServerChannel {
    // Declared before the progress engine that it needs to stop. `None` only while it is replaced.
    server: Option<ComchServer>,
    pe: Pe,
    place: Place,
    peer: String,
    session: Session,
    /// What happened on connections and was not looked at yet.
    pending: VecDeque<ComchEvent>,
}

/// Where a server is found.
struct Place {
    device: Device,
    representor: Representor,
    name: String,
}

impl Place {
    fn start(&self, pe: &Pe) -> Result<ComchServer, Failure> {
        ComchServer::start(pe, &self.device, &self.representor, &self.name).map_err(|error| {
            Failure::from(error).context(format_args!("Comch server \"{}\"", self.name))
        })
    }
}

impl ComchServerChannel {
    /// Starts the server called `name` on `device`, for clients behind `representor`.
    ///
    /// # Errors
    ///
    /// As [`ComchServer::start`]: the name is taken, or the device cannot do it.
    pub fn start(device: &Device, representor: &Representor, name: &str) -> Result<Self, Failure> {
        let pe = Pe::new()?;
        let place = Place {
            device: device.clone(),
            representor: representor.clone(),
            name: name.to_owned(),
        };
        let server = place.start(&pe)?;
        let peer = format!("initiator on Comch \"{name}\"");
        Ok(Self {
            server: Some(server),
            pe,
            place,
            session: Session::new(peer.clone()),
            peer,
            pending: VecDeque::new(),
        })
    }

    /// Parts with the client, if there is one, so that the next one can be served. Consumers and producers on its
    /// connection must be gone.
    ///
    /// A client that `leaves` by itself, because its session came to its end, is left alone; any other is disconnected, for which
    /// the server starts anew. Clients find it again.
    ///
    /// # Errors
    ///
    /// The server could not be stopped, or not be started again.
    pub fn next_client(&mut self, leaves: bool) -> Result<(), Failure> {
        let stays = self.session.connection.is_some() && !leaves;
        self.session = Session::new(self.peer.clone());
        if stays {
            if let Some(server) = self.server.take() {
                server.stop().map_err(doca::Error::from)?;
            }
            self.pending.clear();
            while self.pe.poll().is_some() {}
            self.server = Some(self.place.start(&self.pe)?);
        }
        Ok(())
    }

    /// Looks what happened, all of it: a client that has left again before it was served is as good as none.
    fn collect(&mut self) {
        while let Some(event) = self.pe.poll() {
            match event {
                Event::Comch(ComchEvent::Disconnected(gone)) if !self.session.is_mine(&gone) => {
                    self.pending.retain(|event| connection_of(event) != &gone);
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

    /// The event to look at next: the client's before those of others, so that one that has left is no reason to refuse the next.
    fn take_pending(&mut self) -> Option<ComchEvent> {
        let mine = |event: &ComchEvent| self.session.is_mine(connection_of(event));
        match self.pending.iter().position(mine) {
            Some(index) => self.pending.remove(index),
            None => self.pending.pop_front(),
        }
    }

    /// The connection of the client, for consumers and producers.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        self.session.connection.clone()
    }

    /// A client that connects while another is served. What it sends is not for this session.
    fn refuse(&self, connection: &Connection) {
        tracing::warn!("refused a further client of the {}", self.peer);
        let message = Message {
            message_id: 0,
            correlation_id: 0,
            payload: Payload::ErrorResponse(ErrorResponse {
                error_code: ErrorCode::IN_USE.0,
                message: "this storage service serves another initiator and only one at a time"
                    .to_owned(),
            }),
        };
        let Some(server) = &self.server else { return };
        if let Err(error) = server.send(connection, &message.encode_to_vec()) {
            tracing::debug!("the refusal was not sent: {error}");
        }
    }
}

impl ControlChannel for ComchServerChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let (Some(connection), Some(server)) = (&self.session.connection, &self.server) else {
            return if self.session.closed {
                Ok(())
            } else {
                Err(not_connected(&self.peer))
            };
        };
        self.session.log("send", message);
        let sent = server.send(connection, &message.encode_to_vec());
        self.session.sent(sent)
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        self.collect();
        loop {
            if let Some(event) = self.session.next()? {
                return Ok(Some(event));
            }
            match self.take_pending() {
                None => return Ok(None),
                Some(ComchEvent::Connected(connection)) if self.session.is_taken() => {
                    self.refuse(&connection);
                }
                Some(ComchEvent::Connected(connection)) => {
                    tracing::info!("{} connected", self.peer);
                    return Ok(Some(self.session.connected(connection)));
                }
                Some(event) => {
                    if let Some(event) = self.session.handle(event)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        interest.polled();
    }

    /// Stopping the server delivers what was submitted, so there is nothing to wait for here.
    fn flush(&mut self, _within: Duration) {}
}

/// The connection that something happened on.
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

/// Connects to a Comch server, and tries again while it does not exist.
pub struct ComchClientChannel {
    state: Client,
    pe: Pe,
    device: Device,
    name: String,
    peer: String,
    session: Session,
    give_up_at: Instant,
    patience: Duration,
    retry: Duration,
}

/// Whether a server that starts later would make no difference.
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
    /// Starts to connect to the server called `name` on `device`. [`ChannelEvent::Connected`] says
    /// when it is there; polling fails when it is not `within` the time, or when no time would help.
    ///
    /// # Errors
    ///
    /// As [`Pe::new`].
    pub fn connect(device: &Device, name: &str, within: Duration) -> Result<Self, Failure> {
        let peer = format!("storage service on Comch \"{name}\"");
        let now = Instant::now();
        Ok(Self {
            state: Client::Absent { retry_at: now },
            pe: Pe::new()?,
            device: device.clone(),
            name: name.to_owned(),
            session: Session::new(peer.clone()),
            peer,
            give_up_at: now + within,
            patience: within,
            retry: FIRST_RETRY,
        })
    }

    /// The connection to the server, for consumers and producers.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        self.session.connection.clone()
    }

    fn absent(&mut self, reason: impl std::fmt::Display) {
        tracing::debug!("the {} is not there, trying again: {reason}", self.peer);
        self.state = Client::Absent {
            retry_at: Instant::now() + self.retry,
        };
        self.retry = (self.retry * 2).min(LAST_RETRY);
    }

    /// Starts a client when there is none, or when the one there was found no server.
    fn connect_again(&mut self) -> Result<(), Failure> {
        if Instant::now() >= self.give_up_at {
            return Err(Failure::timed_out(
                format_args!(
                    "the {}; start it first, with the same --command-channel-name",
                    self.peer
                ),
                self.patience,
            ));
        }
        match &self.state {
            Client::Absent { retry_at } if *retry_at <= Instant::now() => {
                match ComchClient::start(&self.pe, &self.device, &self.name) {
                    Ok(client) => self.state = Client::Started(client),
                    Err(error) if is_permanent(error.code) => {
                        return Err(Failure::from(error)
                            .context(format_args!("Comch client \"{}\"", self.name)));
                    }
                    Err(error) => self.absent(error),
                }
            }
            Client::Started(client) if client.state() == CtxState::Idle => {
                self.absent("it refused the connection")
            }
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
            match self.pe.poll() {
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
        interest.polled();
        if !self.session.is_taken() {
            interest.until(self.give_up_at);
        }
    }

    /// As for the server: stopping delivers.
    fn flush(&mut self, _within: Duration) {}
}

/// What both ends do with their one connection.
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

    /// Whether there is, or was, a peer.
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

    /// Messages that arrived before the end come before the end.
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
            // Of a peer that is gone, the end of the connection tells, after what it said last.
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

    /// What the attempt to send came to. A peer that is gone is told by [`ChannelEvent::Closed`].
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
