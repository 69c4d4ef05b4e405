//! A Comch control channel: between an initiator and a service.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use doca::{
    ComchClient, ComchEvent, ComchServer, Connection, CtxState, Device, ErrorCode, Event, Pe,
    Representor,
};
use wire::control::{FrameDecoder, Message};

use super::{ControlPeer, PAUSE, Polled, SEND};
use crate::role::Wrong;

/// One end of it: an initiator's, or a service's.
#[derive(Debug)]
pub struct ComchPeer {
    end: End,
    connection: Connection,
    decoder: FrameDecoder,
    messages: VecDeque<Message>,
    /// Consumers of the role that are there, in the order in which they came.
    consumers: Vec<u32>,
    expired: usize,
    closed: bool,
    // Last: contexts are stopped before their engine goes.
    pe: Pe,
}

#[derive(Debug)]
enum End {
    Client(ComchClient),
    Server(ComchServer),
}

impl ComchPeer {
    /// Connects to a service, as an initiator does; tries again until one is there.
    ///
    /// # Errors
    ///
    /// None is within `patience`.
    pub fn connect(device: &Device, channel: &str, patience: Duration) -> Result<Self, Wrong> {
        let deadline = Instant::now() + patience;
        loop {
            let pe = Pe::new()?;
            let client = ComchClient::start(&pe, device, channel)?;
            while client.state() != CtxState::Idle {
                if let Some(Event::Comch(ComchEvent::Connected(connection))) = pe.poll() {
                    return Ok(Self::new(End::Client(client), connection, pe));
                }
                if Instant::now() > deadline {
                    break;
                }
            }
            if Instant::now() > deadline {
                return Err(Wrong::expected(
                    format!("a service on Comch {channel:?}"),
                    format!("none in {patience:?}"),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts to listen for an initiator, as a service does.
    ///
    /// # Errors
    ///
    /// The server does not start.
    pub fn serve(
        device: &Device,
        representor: &Representor,
        channel: &str,
    ) -> Result<Listening, Wrong> {
        let pe = Pe::new()?;
        let server = ComchServer::start(&pe, device, representor, channel)?;
        Ok(Listening { server, pe })
    }

    fn new(end: End, connection: Connection, pe: Pe) -> Self {
        Self {
            end,
            connection,
            decoder: FrameDecoder::new(),
            messages: VecDeque::new(),
            consumers: Vec::new(),
            expired: 0,
            closed: false,
            pe,
        }
    }

    /// The connection, for consumers and producers.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ids of the role's consumers that are there now.
    pub fn consumers(&self) -> &[u32] {
        &self.consumers
    }

    /// How many consumers of the role have gone so far.
    pub fn expired(&self) -> usize {
        self.expired
    }

    /// Polls until `done`; messages that come meanwhile are kept for [`ControlPeer::poll`]. `what` completes "expected".
    ///
    /// # Errors
    ///
    /// Not within `patience`, or the channel has been closed before.
    pub fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), Wrong> {
        let deadline = Instant::now() + patience;
        loop {
            let is_idle = !self.take_event()?;
            if done(self) {
                return Ok(());
            }
            if self.closed {
                return Err(Wrong::expected(what, "the end of the channel"));
            }
            if Instant::now() > deadline {
                return Err(Wrong::expected(what, format!("nothing in {patience:?}")));
            }
            if is_idle {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Handles one event, if there is one.
    fn take_event(&mut self) -> Result<bool, Wrong> {
        let Some(event) = self.pe.poll() else {
            return Ok(false);
        };
        match event {
            Event::Comch(ComchEvent::Message { bytes, connection })
                if connection == self.connection =>
            {
                self.decoder.push(&bytes);
                while let Some(message) = self.decoder.next()? {
                    self.messages.push_back(message);
                }
            }
            Event::Comch(ComchEvent::ConsumerAdded { id, .. }) => self.consumers.push(id),
            Event::Comch(ComchEvent::ConsumerExpired { id, .. }) => {
                self.consumers.retain(|other| *other != id);
                self.expired += 1;
            }
            Event::Comch(ComchEvent::Disconnected(connection)) if connection == self.connection => {
                self.closed = true;
            }
            _ => {}
        }
        Ok(true)
    }
}

impl ControlPeer for ComchPeer {
    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let deadline = Instant::now() + SEND;
        loop {
            let sent = match &self.end {
                End::Client(client) => client.send(bytes),
                End::Server(server) => server.send(&self.connection, bytes),
            };
            match sent {
                // Others are still on their way.
                Err(error)
                    if matches!(error.code, ErrorCode::AGAIN | ErrorCode::NO_MEMORY)
                        && Instant::now() < deadline =>
                {
                    self.take_event()?;
                }
                sent => return Ok(sent?),
            }
        }
    }

    fn poll(&mut self) -> Result<Polled, Wrong> {
        while self.messages.is_empty() && self.take_event()? {}
        Ok(match self.messages.pop_front() {
            Some(message) => Polled::Message(message),
            None if self.closed => Polled::Closed,
            None => Polled::Nothing,
        })
    }
}

/// A server without a client.
#[derive(Debug)]
pub struct Listening {
    server: ComchServer,
    pe: Pe,
}

impl Listening {
    /// Waits for the first client. `alive` says whether the role still runs.
    ///
    /// # Errors
    ///
    /// None comes within `patience`, or before the role's end.
    pub fn accept(
        self,
        patience: Duration,
        mut alive: impl FnMut() -> bool,
    ) -> Result<ComchPeer, Wrong> {
        let deadline = Instant::now() + patience;
        loop {
            match self.pe.poll() {
                Some(Event::Comch(ComchEvent::Connected(connection))) => {
                    return Ok(ComchPeer::new(
                        End::Server(self.server),
                        connection,
                        self.pe,
                    ));
                }
                Some(_) => {}
                None if !alive() => {
                    return Err(Wrong::expected("an initiator to connect", "its end"));
                }
                None if Instant::now() < deadline => std::thread::sleep(PAUSE),
                None => {
                    return Err(Wrong::expected(
                        "an initiator to connect",
                        format!("nobody in {patience:?}"),
                    ));
                }
            }
        }
    }
}
