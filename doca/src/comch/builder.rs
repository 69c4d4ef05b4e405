//! Settings of servers and clients.

use super::{ComchClient, ComchServer};
use crate::{Device, Pe, Representor, Result};

/// Control messages that may be on their way out at a time, unless the builder says otherwise.
const DEFAULT_SEND_TASKS: u32 = 64;

/// Settings that servers and clients have in common.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) send_tasks: u32,
    /// DOCA's default when absent.
    pub(super) max_message_size: Option<u32>,
    /// DOCA's default when absent.
    pub(super) receive_queue_size: Option<u32>,
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
        /// How many control messages may be on their way out at a time: 64 unless set.
        pub fn send_tasks(mut self, count: u32) -> Self {
            self.settings.send_tasks = count;
            self
        }

        /// Largest control message in bytes; DOCA's default unless set. The peer must have the same.
        pub fn max_message_size(mut self, bytes: u32) -> Self {
            self.settings.max_message_size = Some(bytes);
            self
        }

        /// How many received control messages may wait for progress; DOCA's default unless set.
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
    pub(super) fn new(device: &Device, representor: &Representor, name: &str) -> Self {
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
    /// Whatever `doca_ctx_start` and the functions before it return, e.g. when there is a server of that name.
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
    pub(super) fn new(device: &Device, name: &str) -> Self {
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
    /// Whatever `doca_ctx_start` and the functions before it return.
    pub fn start(self, pe: &Pe) -> Result<ComchClient> {
        ComchClient::create(pe, self.device, &self.settings)
    }
}
