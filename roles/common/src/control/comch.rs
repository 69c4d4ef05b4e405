//! Control channels over Comch: a service on the DPU serves, an initiator on the host connects.

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

/// Serves the first client that connects to a Comch server.
pub struct ComchServerChannel {
    // Declared before the progress engine that it needs to stop.
    server: ComchServer,
    pe: Pe,
    peer: String,
    session: Session,
}

impl ComchServerChannel {
    /// Starts the server called `name` on `device`, for clients behind `representor`.
    ///
    /// # Errors
    ///
    /// As [`ComchServer::start`]: the name is taken, or the device cannot do it.
    pub fn start(device: &Device, representor: &Representor, name: &str) -> Result<Self, Failure> {
        let pe = Pe::new()?;
        let server = ComchServer::start(&pe, device, representor, name).map_err(|error| {
            Failure::from(error).context(format_args!("Comch server \"{name}\""))
        })?;
        let peer = format!("initiator on Comch \"{name}\"");
        Ok(Self {
            server,
            pe,
            session: Session::new(peer.clone()),
            peer,
        })
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
        if let Err(error) = self.server.send(connection, &message.encode_to_vec()) {
            tracing::debug!("the refusal was not sent: {error}");
        }
    }
}

impl ControlChannel for ComchServerChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let Some(connection) = &self.session.connection else {
            return if self.session.closed {
                Ok(())
            } else {
                Err(not_connected(&self.peer))
            };
        };
        self.session.log("send", message);
        let sent = self.server.send(connection, &message.encode_to_vec());
        self.session.sent(sent)
    }

    fn poll(&mut self) -> Result<Option<ChannelEvent>, Failure> {
        loop {
            if let Some(event) = self.session.next()? {
                return Ok(Some(event));
            }
            match self.pe.poll() {
                None => return Ok(None),
                Some(Event::Comch(ComchEvent::Connected(connection)))
                    if self.session.is_taken() =>
                {
                    self.refuse(&connection);
                }
                Some(Event::Comch(ComchEvent::Connected(connection))) => {
                    tracing::info!("{} connected", self.peer);
                    return Ok(Some(self.session.connected(connection)));
                }
                Some(Event::Comch(event)) => {
                    if let Some(event) = self.session.handle(event)? {
                        return Ok(Some(event));
                    }
                }
                Some(Event::State {
                    next: CtxState::Stopping | CtxState::Idle,
                    ..
                }) => self.session.close(),
                Some(Event::State { .. } | Event::Task(_)) => {}
            }
        }
    }

    fn interest<'a>(&'a self, interest: &mut Interest<'a>) {
        interest.polled();
    }

    /// Stopping the server delivers what was submitted, so there is nothing to wait for here.
    fn flush(&mut self, _within: Duration) {}
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
