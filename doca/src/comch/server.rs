use std::ptr;

use doca_sys as sys;

use super::Settings;
use super::connection::{self, Endpoint, Side};
use super::{ComchServerBuilder, Connection};
use crate::context::{Context, ContextId, CtxState, Object};
use crate::device::{c_string, non_null};
use crate::error::call;
use crate::{Device, Error, ErrorCode, Pe, Representor, Result, StopError};

/// A Comch server on the DPU, for clients on the host.
///
/// ```no_run
/// use doca::{ComchEvent, ComchServer, Device, Event, Pe};
///
/// # fn main() -> doca::Result<()> {
/// let device = Device::open("03:00.0")?;
/// let representor = device.open_representor("3b:00.0")?;
/// let pe = Pe::new()?;
/// let server = ComchServer::start(&pe, &device, &representor, "echo")?;
/// loop {
///     match pe.poll() {
///         Some(Event::Comch(ComchEvent::Message { connection, bytes })) => server.send(&connection, &bytes)?,
///         Some(Event::Comch(ComchEvent::Disconnected(_))) => break,
///         _ => {}
///     }
/// }
/// server.stop()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ComchServer {
    context: Context<sys::doca_comch_server>,
}

// SAFETY: both functions are those of this type.
unsafe impl Object for sys::doca_comch_server {
    type Events = Endpoint;
    const DESTROY: &'static str = "doca_comch_server_destroy";

    unsafe fn as_ctx(object: *mut Self) -> *mut sys::doca_ctx {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_server_as_ctx(object) }
    }

    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_server_destroy(object) }
    }
}

// SAFETY: the function is that of this type.
unsafe impl Side for sys::doca_comch_server {
    unsafe fn of_connection(connection: *const sys::doca_comch_connection) -> *mut Self {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_server_get_server_ctx(connection) }
    }
}

impl ComchServer {
    /// Starts a server called `name` with default settings.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the server, e.g. if the name is in use.
    pub fn start(pe: &Pe, device: &Device, representor: &Representor, name: &str) -> Result<Self> {
        Self::builder(device, representor, name).start(pe)
    }

    /// Returns the settings of a server, to be changed before it is started.
    pub fn builder(device: &Device, representor: &Representor, name: &str) -> ComchServerBuilder {
        ComchServerBuilder::new(device, representor, name)
    }

    pub(super) fn create(
        pe: &Pe,
        device: Device,
        representor: Representor,
        settings: &Settings,
    ) -> Result<Self> {
        let name = c_string("doca_comch_server_create", &settings.name)?;
        let mut server = ptr::null_mut();
        // SAFETY: device and representor are open, the name is terminated, the out-parameter is valid.
        unsafe {
            call!(doca_comch_server_create(
                device.as_ptr(),
                representor.as_ptr(),
                name.as_ptr(),
                &mut server
            ))
        }?;
        let object = non_null("doca_comch_server_create", server)?;
        // Control messages are queued only if they fail, so nothing is reserved for them.
        // SAFETY: just created, and not used elsewhere.
        let context =
            unsafe { Context::new(object, pe, Endpoint::server(), 0, (device, representor)) }?;
        // SAFETY: the server is live and not started; the callbacks have the declared types and are for this side.
        unsafe {
            call!(doca_comch_server_task_send_set_conf(
                server,
                Some(connection::sent),
                Some(connection::failed),
                settings.send_tasks
            ))?;
            call!(doca_comch_server_event_msg_recv_register(
                server,
                Some(connection::message_received::<sys::doca_comch_server>)
            ))?;
            call!(doca_comch_server_event_connection_status_changed_register(
                server,
                Some(connection::connected::<sys::doca_comch_server>),
                Some(connection::disconnected::<sys::doca_comch_server>)
            ))?;
            call!(doca_comch_server_event_consumer_register(
                server,
                Some(connection::consumer_added::<sys::doca_comch_server>),
                Some(connection::consumer_expired::<sys::doca_comch_server>)
            ))?;
            if let Some(size) = settings.max_message_size {
                call!(doca_comch_server_set_max_msg_size(server, size))?;
            }
            if let Some(size) = settings.receive_queue_size {
                call!(doca_comch_server_set_recv_queue_size(server, size))?;
            }
        }
        context.start()?;
        Ok(Self { context })
    }

    /// Sends a control message to a client. If the delivery fails later,
    /// [`ComchEvent::SendFailed`](crate::ComchEvent::SendFailed) is reported.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_CONNECTED`] if the client is gone, [`ErrorCode::INVALID_VALUE`] for a connection of another
    /// server or a message that is too long, [`ErrorCode::NO_MEMORY`] or [`ErrorCode::AGAIN`] if too many messages are
    /// in flight.
    pub fn send(&self, connection: &Connection, message: &[u8]) -> Result<()> {
        const OPERATION: &str = "doca_comch_server_task_send_alloc_init";
        if connection.is_connected() && !self.context.events().owns(connection) {
            let detail = "the connection belongs to another server or client";
            return Err(Error::with_detail(
                OPERATION,
                ErrorCode::INVALID_VALUE,
                detail,
            ));
        }
        connection::send(
            OPERATION,
            self.context.queue(),
            connection,
            message,
            |raw, bytes, len, task| {
                // SAFETY: server and connection are live and belong together, the bytes are valid until the task completes.
                unsafe {
                    call!(doca_comch_server_task_send_alloc_init(
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

    /// Disconnects one client. [`ComchEvent::Disconnected`](crate::ComchEvent::Disconnected) follows.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::IN_USE`] while consumers or producers on the connection exist, in any thread; [`ErrorCode::AGAIN`]
    /// while messages to the client are in flight; [`ErrorCode::NOT_CONNECTED`] if the client is gone,
    /// [`ErrorCode::INVALID_VALUE`] for a connection of another server or a client.
    pub fn disconnect(&self, connection: &Connection) -> Result<()> {
        const OPERATION: &str = "doca_comch_server_disconnect";
        if connection.is_connected() && !self.context.events().owns(connection) {
            let detail = "the connection belongs to another server or client";
            return Err(Error::with_detail(
                OPERATION,
                ErrorCode::INVALID_VALUE,
                detail,
            ));
        }
        connection.with(OPERATION, |raw| {
            // SAFETY: server and connection are live and belong together.
            unsafe { call!(doca_comch_server_disconnect(self.context.object(), raw)) }
        })
    }

    /// Identifies the server in [`Event::State`](crate::Event::State) and [`Connection::context`].
    pub fn id(&self) -> ContextId {
        self.context.id()
    }

    /// State of the server.
    pub fn state(&self) -> CtxState {
        self.context.state()
    }

    /// Delivers pending messages, disconnects all clients and destroys the server.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::IN_USE`] while consumers or producers on its connections exist, in any thread: the server is
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
