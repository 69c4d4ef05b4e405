//! Comch: control messages between host and DPU, and the fast path of consumers and producers over the same connection.

mod client;
mod connection;
mod consumer;
mod producer;
mod server;

pub use client::ComchClient;
pub use connection::Connection;
pub use consumer::{Consumer, PostRecvTask, ReceivedMessage};
pub use producer::Producer;
pub use server::ComchServer;

use crate::{Device, ErrorCode, Pe, Representor, Result};

/// An event of a control path.
#[derive(Debug)]
pub enum ComchEvent {
    /// A client connected to the server, or the client is connected.
    Connected(Connection),
    /// The connection was closed: the peer disconnected or died, or the client was stopped.
    Disconnected(Connection),
    /// A control message arrived.
    Message {
        /// Source of the message.
        connection: Connection,
        /// The whole message: messages are neither split nor merged.
        bytes: Vec<u8>,
    },
    /// The peer started a consumer: a [`Producer`] on this connection can send to it.
    ConsumerAdded {
        /// The connection.
        connection: Connection,
        /// Id of the consumer.
        id: u32,
    },
    /// A consumer of the peer expired.
    ConsumerExpired {
        /// The connection.
        connection: Connection,
        /// Id of the consumer.
        id: u32,
    },
    /// A control message that `send` accepted could not be delivered.
    SendFailed {
        /// Destination of the message.
        connection: Connection,
        /// Reason of the failure.
        code: ErrorCode,
    },
}

/// Default number of control messages that may be in flight.
const DEFAULT_SEND_TASKS: u32 = 64;

/// Settings common to servers and clients.
#[derive(Debug, Clone)]
struct Settings {
    name: String,
    send_tasks: u32,
    /// In messages; DOCA's default if `None`.
    max_message_size: Option<u32>,
    /// In messages; DOCA's default if `None`.
    receive_queue_size: Option<u32>,
}

impl Settings {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            send_tasks: DEFAULT_SEND_TASKS,
            max_message_size: None,
            receive_queue_size: None,
        }
    }
}

macro_rules! common_settings {
    () => {
        /// Sets the number of control messages that may be in flight; 64 by default.
        pub fn send_tasks(mut self, count: u32) -> Self {
            self.settings.send_tasks = count;
            self
        }

        /// Sets the maximum length of a control message in bytes; DOCA's default unless set. The peer needs the same
        /// value.
        pub fn max_message_size(mut self, bytes: u32) -> Self {
            self.settings.max_message_size = Some(bytes);
            self
        }

        /// Sets the number of received control messages that are queued for progress; DOCA's default unless set.
        pub fn receive_queue_size(mut self, count: u32) -> Self {
            self.settings.receive_queue_size = Some(count);
            self
        }
    };
}

/// Settings of a [`ComchServer`].
///
/// ```no_run
/// # fn main() -> doca::Result<()> {
/// # let pe = doca::Pe::new()?;
/// let device = doca::Device::open("03:00.0")?;
/// let representor = device.open_representor("3b:00.0")?;
/// let server = doca::ComchServer::builder(&device, &representor, "storage").send_tasks(8).start(&pe)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct ComchServerBuilder {
    device: Device,
    representor: Representor,
    settings: Settings,
}

impl ComchServerBuilder {
    fn new(device: &Device, representor: &Representor, name: &str) -> Self {
        Self {
            device: device.clone(),
            representor: representor.clone(),
            settings: Settings::new(name),
        }
    }

    common_settings!();

    /// Starts the server on `pe`.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the server, e.g. if the name is in use.
    pub fn start(self, pe: &Pe) -> Result<ComchServer> {
        ComchServer::create(pe, self.device, self.representor, &self.settings)
    }
}

/// Settings of a [`ComchClient`].
///
/// ```no_run
/// # fn main() -> doca::Result<()> {
/// # let pe = doca::Pe::new()?;
/// let device = doca::Device::open("3b:00.0")?;
/// let client = doca::ComchClient::builder(&device, "storage").max_message_size(1024).start(&pe)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct ComchClientBuilder {
    device: Device,
    settings: Settings,
}

impl ComchClientBuilder {
    fn new(device: &Device, name: &str) -> Self {
        Self {
            device: device.clone(),
            settings: Settings::new(name),
        }
    }

    common_settings!();

    /// Starts the client on `pe`. It is connected when [`ComchEvent::Connected`](crate::ComchEvent::Connected) comes.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the client.
    pub fn start(self, pe: &Pe) -> Result<ComchClient> {
        ComchClient::create(pe, self.device, &self.settings)
    }
}
