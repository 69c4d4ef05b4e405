//! A session over its control channel, for volumes and the initiator.

use std::time::Instant;

use doca::{Connection, Device, ErrorCode};
use role_common::Failure;
use role_common::control::{ChannelEvent, ComchClientChannel, ControlChannel as _, Waiter};
use wire::control::Message;

use crate::endpoint::Contexts;
use crate::session::{Event, Session, SessionConfig};

/// A [`Session`] and its control channel. The owner executes the actions of [`Session::poll_action`].
pub struct Driver {
    channel: ComchClientChannel,
    /// `true` while the channel may have events.
    is_open: bool,
    /// The state machine.
    pub session: Session,
}

impl Driver {
    /// Starts to connect to the service with this name.
    ///
    /// # Errors
    /// A DOCA call failed.
    pub fn connect(device: &Device, service: &str, config: SessionConfig) -> Result<Self, Failure> {
        Ok(Self {
            channel: ComchClientChannel::connect(device, service, config.control_timeout)?,
            is_open: true,
            session: Session::new(config),
        })
    }

    /// Passes an event to the session.
    pub fn handle(&mut self, event: Event) {
        self.session.handle(event, Instant::now());
    }

    /// Sends a message to the service.
    ///
    /// # Errors
    /// The channel is broken.
    pub fn send(&mut self, message: &Message) -> Result<(), Failure> {
        self.channel.send(message)
    }

    /// Passes the events of the channel to the session; returns `true` if there were any.
    pub fn poll(&mut self) -> bool {
        let mut happened = false;
        while self.is_open {
            match self.channel.poll() {
                Ok(None) => break,
                Ok(Some(event)) => {
                    self.is_open = event != ChannelEvent::Closed;
                    self.handle(event.into());
                }
                Err(failure) => {
                    // Reported in addition to the failure: the channel cannot be used any more.
                    self.handle(Event::Failed(failure));
                    self.disconnect();
                }
            }
            happened = true;
        }
        happened
    }

    /// Handles an unresponsive service as disconnected.
    pub fn disconnect(&mut self) {
        self.is_open = false;
        self.handle(Event::Disconnected);
    }

    /// Returns the device and the connection for the contexts of a worker.
    ///
    /// # Errors
    /// There is no connection.
    pub fn contexts(&self, device: &Device) -> Result<Contexts, Failure> {
        let connection: Option<Connection> = self.channel.connection();
        Ok(Contexts {
            device: device.clone(),
            connection: connection
                .ok_or_else(|| Failure::new(ErrorCode::NOT_CONNECTED, "the service is gone"))?,
        })
    }

    /// Waits for an event of the channel or of the waiter, for the session's deadline, or for the earliest of `deadlines`.
    pub fn wait(&self, waiter: &mut Waiter, deadlines: &[Option<Instant>]) {
        let deadlines = deadlines.iter().copied();
        let deadline = deadlines
            .chain([self.session.poll_timeout()])
            .flatten()
            .min();
        if self.is_open {
            waiter.wait(&[&self.channel], deadline);
        } else {
            waiter.wait(&[], deadline);
        }
    }

    /// Returns the channel, which the contexts of the session need until they are destroyed.
    pub(crate) fn into_channel(self) -> ComchClientChannel {
        self.channel
    }
}
