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
        // SAFETY: the caller's promise.
        unsafe { sys::doca_comch_server_as_ctx(object) }
    }

    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_comch_server_destroy(object) }
    }
}

// SAFETY: the function is that of this type.
unsafe impl Side for sys::doca_comch_server {
    unsafe fn of_connection(connection: *const sys::doca_comch_connection) -> *mut Self {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_comch_server_get_server_ctx(connection) }
    }
}

impl ComchServer {
    /// Starts a server called `name` with default settings.
    ///
    /// # Errors
    ///
    /// Whatever `doca_ctx_start` and the functions before it return, e.g. when there is a server of that name.
    pub fn start(pe: &Pe, device: &Device, representor: &Representor, name: &str) -> Result<Self> {
        Self::builder(device, representor, name).start(pe)
    }

    /// Settings to start a server with.
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
        // SAFETY: device and representor are open, the name is terminated, the result has a place.
        unsafe {
            call!(doca_comch_server_create(
                device.as_ptr(),
                representor.as_ptr(),
                name.as_ptr(),
                &mut server
            ))
        }?;
        let object = non_null("doca_comch_server_create", server)?;
        // Control messages leave something in the queue only when they fail, so they need no room there.
        // SAFETY: just created, known to nobody else.
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

    /// Sends a control message to a client. When it cannot be delivered later, [`ComchEvent::SendFailed`](crate::ComchEvent::SendFailed) comes.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_CONNECTED`] when the client is gone, [`ErrorCode::INVALID_VALUE`] for a connection of another server or a
    /// message that is too long, [`ErrorCode::NO_MEMORY`] or [`ErrorCode::AGAIN`] when too many messages are on their way.
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
    /// [`ErrorCode::IN_USE`] while consumers or producers on the connection exist, in any thread; [`ErrorCode::AGAIN`] while messages to
    /// the client wait to be sent; [`ErrorCode::NOT_CONNECTED`] when the client is gone, [`ErrorCode::INVALID_VALUE`] for a connection of
    /// another server or a client.
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

    /// Names the server in [`Event::State`](crate::Event::State) and [`Connection::context`].
    pub fn id(&self) -> ContextId {
        self.context.id()
    }

    /// State of the server.
    pub fn state(&self) -> CtxState {
        self.context.state()
    }

    /// Delivers the messages that were sent, disconnects all clients and destroys the server.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::IN_USE`] while consumers or producers on its connections exist, in any thread: the server comes back, and no more of them can
    /// be made. [`ErrorCode::TIME_OUT`] when it does not become idle; it stays in memory then, out of reach. Inside of a handler of
    /// completions [`ErrorCode::IN_PROGRESS`], see [`Pe::progress_each`].
    pub fn stop(self) -> std::result::Result<(), StopError<Self>> {
        if let Err(error) = self.context.check_unused() {
            return Err(StopError::new(error, Some(self)));
        }
        let closed = self.context.close();
        closed.map_err(|error| StopError::new(error, None))
    }
}
