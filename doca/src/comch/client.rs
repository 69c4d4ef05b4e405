use std::ptr;

use doca_sys as sys;

use super::Settings;
use super::connection::{self, Endpoint, Side};
use super::{ComchClientBuilder, Connection};
use crate::context::{Context, ContextId, CtxState, Object};
use crate::device::{c_string, non_null};
use crate::error::call;
use crate::{Device, Error, ErrorCode, Pe, Result, StopError};

/// A Comch client on the host, connected to a server on the DPU.
///
/// ```no_run
/// use doca::{ComchClient, ComchEvent, Device, Event, Pe};
///
/// # fn main() -> doca::Result<()> {
/// let pe = Pe::new()?;
/// let client = ComchClient::start(&pe, &Device::open("3b:00.0")?, "echo")?;
/// loop {
///     match pe.poll() {
///         Some(Event::Comch(ComchEvent::Connected(_))) => client.send(b"ping")?,
///         Some(Event::Comch(ComchEvent::Message { bytes, .. })) => break assert_eq!(bytes, b"ping"),
///         _ => {}
///     }
/// }
/// client.stop()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ComchClient {
    context: Context<sys::doca_comch_client>,
}

// SAFETY: both functions are those of this type.
unsafe impl Object for sys::doca_comch_client {
    type Events = Endpoint;
    const DESTROY: &'static str = "doca_comch_client_destroy";

    unsafe fn as_ctx(object: *mut Self) -> *mut sys::doca_ctx {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_client_as_ctx(object) }
    }

    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_client_destroy(object) }
    }
}

// SAFETY: the function is that of this type.
unsafe impl Side for sys::doca_comch_client {
    unsafe fn of_connection(connection: *const sys::doca_comch_connection) -> *mut Self {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_client_get_client_ctx(connection) }
    }
}

impl ComchClient {
    /// Starts a client of the server called `name` with default settings.
    ///
    /// It is connected once [`ComchEvent::Connected`](crate::ComchEvent::Connected) arrives; if it cannot connect, its
    /// state returns to [`CtxState::Idle`].
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the client.
    pub fn start(pe: &Pe, device: &Device, name: &str) -> Result<Self> {
        Self::builder(device, name).start(pe)
    }

    /// Returns the settings of a client, to be changed before it is started.
    pub fn builder(device: &Device, name: &str) -> ComchClientBuilder {
        ComchClientBuilder::new(device, name)
    }

    pub(super) fn create(pe: &Pe, device: Device, settings: &Settings) -> Result<Self> {
        let name = c_string("doca_comch_client_create", &settings.name)?;
        let mut client = ptr::null_mut();
        // SAFETY: the device is open, the name is terminated, the out-parameter is valid.
        unsafe {
            call!(doca_comch_client_create(
                device.as_ptr(),
                name.as_ptr(),
                &mut client
            ))
        }?;
        let object = non_null("doca_comch_client_create", client)?;
        // SAFETY: just created, and not used elsewhere.
        let context = unsafe { Context::new(object, pe, Endpoint::client(object), 0, device) }?;
        // SAFETY: the client is live and not started; the callbacks have the declared types and are for this side.
        unsafe {
            call!(doca_comch_client_task_send_set_conf(
                client,
                Some(connection::sent),
                Some(connection::failed),
                settings.send_tasks
            ))?;
            call!(doca_comch_client_event_msg_recv_register(
                client,
                Some(connection::message_received::<sys::doca_comch_client>)
            ))?;
            call!(doca_comch_client_event_consumer_register(
                client,
                Some(connection::consumer_added::<sys::doca_comch_client>),
                Some(connection::consumer_expired::<sys::doca_comch_client>)
            ))?;
            if let Some(size) = settings.max_message_size {
                call!(doca_comch_client_set_max_msg_size(client, size))?;
            }
            if let Some(size) = settings.receive_queue_size {
                call!(doca_comch_client_set_recv_queue_size(client, size))?;
            }
        }
        context.start()?;
        Ok(Self { context })
    }

    /// The connection, from [`ComchEvent::Connected`](crate::ComchEvent::Connected) to [`ComchEvent::Disconnected`](crate::ComchEvent::Disconnected).
    pub fn connection(&self) -> Option<Connection> {
        self.context.events().first()
    }

    /// Sends a control message to the server. If the delivery fails later,
    /// [`ComchEvent::SendFailed`](crate::ComchEvent::SendFailed) is reported.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_CONNECTED`] without a connection, [`ErrorCode::INVALID_VALUE`] for a message that is too long,
    /// [`ErrorCode::NO_MEMORY`] or [`ErrorCode::AGAIN`] if too many messages are in flight.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        const OPERATION: &str = "doca_comch_client_task_send_alloc_init";
        let connection = self.connection().ok_or_else(|| {
            Error::with_detail(
                OPERATION,
                ErrorCode::NOT_CONNECTED,
                "the client is not connected",
            )
        })?;
        connection::send(
            OPERATION,
            self.context.queue(),
            &connection,
            message,
            |raw, bytes, len, task| {
                // SAFETY: client and connection are live and belong together, the bytes are valid until the task completes.
                unsafe {
                    call!(doca_comch_client_task_send_alloc_init(
                        self.context.object(),
                        raw,
                        bytes,
                        len,
                        task
                    ))
                }
            },
        )
    }

    /// Identifies the client in [`Event::State`](crate::Event::State) and [`Connection::context`].
    pub fn id(&self) -> ContextId {
        self.context.id()
    }

    /// State of the client.
    pub fn state(&self) -> CtxState {
        self.context.state()
    }

    /// Delivers pending messages, disconnects and destroys the client.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::IN_USE`] while consumers or producers on its connection exist, in any thread: the client is
    /// returned, but no further ones can be created. [`ErrorCode::TIME_OUT`] if it does not become idle; it is leaked
    /// then. Inside a completion handler [`ErrorCode::IN_PROGRESS`], see [`WorkerPe::progress`](crate::WorkerPe::progress).
    pub fn stop(self) -> std::result::Result<(), StopError<Self>> {
        if let Err(error) = self.context.check_unused() {
            return Err(StopError::new(error, Some(self)));
        }
        let closed = self.context.close();
        closed.map_err(|error| StopError::new(error, None))
    }
}
