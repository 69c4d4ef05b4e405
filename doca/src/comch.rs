//! Comch: control messages between host and DPU, and the fast path of consumers and producers over the same connection.

mod fast_path;

use std::cell::RefCell;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use doca_sys as sys;

use crate::context::{self, Context, Events, Object, Shared, object};
use crate::error::{c_string, call, non_null};
use crate::sdk_log::explained;
use crate::task::EventQueue;
use crate::{
    ComchEvent, Connection, ContextId, CtxState, Device, Error, ErrorCode, Event, Pe, Representor,
    Result, StopError,
};

pub use fast_path::{Consumer, PostRecvTask, Producer, ReceivedMessage};

/// Default number of control messages that may be in flight.
const DEFAULT_SEND_TASKS: u32 = 64;

/// Settings common to servers and clients.
#[derive(Debug, Clone)]
struct Settings {
    name: String,
    send_tasks: u32,
    /// Maximum length of a message in bytes; DOCA's default if `None`.
    max_message_size: Option<u32>,
    /// Maximum length of a message in bytes; DOCA's default if `None`.
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
        explained(|| ComchServer::create(pe, self.device, self.representor, &self.settings))
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

    /// Starts the client on `pe`. It is connected once [`ComchEvent::Connected`](crate::ComchEvent::Connected) is
    /// returned.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the client.
    pub fn start(self, pe: &Pe) -> Result<ComchClient> {
        explained(|| ComchClient::create(pe, self.device, &self.settings))
    }
}

/// A server or a client, as the owner of a connection.
///
/// # Safety
///
/// `of_connection` returns the live object of this kind that the connection belongs to, or null.
pub(crate) unsafe trait Side: Object<Events = Endpoint> {
    /// The server or client of a connection.
    unsafe fn of_connection(connection: *const sys::doca_comch_connection) -> *mut Self;
}

/// The connections of a server or client.
///
/// The methods borrow the fields, and make no calls that could re-enter them.
pub(crate) struct Endpoint {
    connections: RefCell<Vec<Connection>>,
    /// Set for a client, whose connection exists while the client is running. Connections of a server are added by
    /// events.
    client: Option<NonNull<sys::doca_comch_client>>,
    /// Number of consumers and producers on the connections, in all threads.
    users: Arc<AtomicUsize>,
}

impl Endpoint {
    pub(crate) fn server() -> Self {
        Self {
            connections: RefCell::default(),
            client: None,
            users: Arc::default(),
        }
    }

    pub(crate) fn client(client: NonNull<sys::doca_comch_client>) -> Self {
        Self {
            connections: RefCell::default(),
            client: Some(client),
            users: Arc::default(),
        }
    }

    /// The only connection of a client.
    pub(crate) fn first(&self) -> Option<Connection> {
        self.connections.borrow().first().cloned()
    }

    pub(crate) fn owns(&self, connection: &Connection) -> bool {
        self.connections.borrow().contains(connection)
    }

    /// Finds the connection with this C object, or adds a new one.
    fn find_or_add(
        &self,
        context: ContextId,
        raw: NonNull<sys::doca_comch_connection>,
    ) -> Connection {
        let mut connections = self.connections.borrow_mut();
        if let Some(connection) = connections.iter().find(|connection| connection.is(raw)) {
            return connection.clone();
        }
        let connection = Connection::new(context, raw, Arc::clone(&self.users));
        connections.push(connection.clone());
        connection
    }

    fn remove(&self, raw: NonNull<sys::doca_comch_connection>) -> Option<Connection> {
        let mut connections = self.connections.borrow_mut();
        let index = connections
            .iter()
            .position(|connection| connection.is(raw))?;
        Some(connections.swap_remove(index))
    }

    /// Invalidates all connections and reports it to the user.
    fn remove_all(&self, queue: &EventQueue) {
        let connections = std::mem::take(&mut *self.connections.borrow_mut());
        for connection in connections {
            connection.invalidate();
            queue.push(Event::Comch(ComchEvent::Disconnected(connection)));
        }
    }
}

impl Events for Endpoint {
    fn state_changed(&self, context: ContextId, queue: &EventQueue, next: CtxState) {
        let Some(client) = self.client else { return };
        match next {
            CtxState::Running => {
                let mut connection = ptr::null_mut();
                // SAFETY: this is called from a callback of the client: it is live.
                let code = unsafe {
                    sys::doca_comch_client_get_connection(client.as_ptr(), &mut connection)
                };
                if let (sys::DOCA_SUCCESS, Some(raw)) = (code, NonNull::new(connection)) {
                    let connection = self.find_or_add(context, raw);
                    queue.push(Event::Comch(ComchEvent::Connected(connection)));
                }
            }
            CtxState::Stopping | CtxState::Idle => self.remove_all(queue),
            CtxState::Starting => {}
        }
    }

    fn may_stop(&self, queue: &EventQueue) -> std::result::Result<(), ErrorCode> {
        // First, so that other threads create no further users.
        self.remove_all(queue);
        match self.users.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(ErrorCode::IN_USE),
        }
    }

    fn closing(&self, queue: &EventQueue) {
        self.remove_all(queue);
    }
}

/// Finds the server or client of a connection, and the connection for its C object.
///
/// # Safety
///
/// `connection` is what DOCA passed to a callback of an object of the kind `S`, which is running.
unsafe fn find<'a, S: Side>(
    connection: *mut sys::doca_comch_connection,
) -> Option<(&'a Shared<Endpoint>, NonNull<sys::doca_comch_connection>)> {
    let raw = NonNull::new(connection)?;
    // SAFETY: guaranteed by the caller; the object is live during its callback, and its user data is that of
    // `Context::new`.
    let shared = unsafe {
        let object = S::of_connection(connection);
        if object.is_null() {
            return None;
        }
        context::shared::<Endpoint>(context::user_data(S::as_ctx(object)))?
    };
    Some((shared, raw))
}

/// Callback for a received control message.
unsafe extern "C" fn message_received<S: Side>(
    _event: *mut sys::doca_comch_event_msg_recv,
    buffer: *mut u8,
    len: u32,
    connection: *mut sys::doca_comch_connection,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let bytes = match NonNull::new(buffer) {
        // SAFETY: DOCA passes `len` bytes that are valid until this function returns.
        Some(buffer) => unsafe { slice::from_raw_parts(buffer.as_ptr(), len as usize) }.to_vec(),
        None => Vec::new(),
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::Message { connection, bytes }));
}

/// Callback for a connected client.
unsafe extern "C" fn connected<S: Side>(
    _event: *mut sys::doca_comch_event_connection_status_changed,
    connection: *mut sys::doca_comch_connection,
    change_successful: u8,
) {
    if change_successful == 0 {
        return;
    }
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::Connected(connection)));
}

/// Callback for a disconnected client. The C object becomes invalid when the callback returns.
unsafe extern "C" fn disconnected<S: Side>(
    _event: *mut sys::doca_comch_event_connection_status_changed,
    connection: *mut sys::doca_comch_connection,
    _change_successful: u8,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    if let Some(connection) = shared.events.remove(raw) {
        connection.invalidate();
        shared
            .queue
            .push(Event::Comch(ComchEvent::Disconnected(connection)));
    }
}

/// Callback for a consumer that the peer has started.
unsafe extern "C" fn consumer_added<S: Side>(
    _event: *mut sys::doca_comch_event_consumer,
    connection: *mut sys::doca_comch_connection,
    id: u32,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::ConsumerAdded { connection, id }));
}

/// Callback for an expired consumer of the peer.
unsafe extern "C" fn consumer_expired<S: Side>(
    _event: *mut sys::doca_comch_event_consumer,
    connection: *mut sys::doca_comch_connection,
    id: u32,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::ConsumerExpired { connection, id }));
}

/// A message in flight; freed by the callback of its task.
struct Outgoing {
    // DOCA reads the bytes until the task completes.
    message: Box<[u8]>,
    connection: Connection,
    queue: Rc<EventQueue>,
}

type TaskSend = sys::doca_comch_task_send;

/// Sends `message`: `allocate` creates the task for its bytes.
fn send(
    operation: &'static str,
    queue: &Rc<EventQueue>,
    connection: &Connection,
    message: &[u8],
    allocate: impl FnOnce(
        *mut sys::doca_comch_connection,
        *const sys::c_void,
        u32,
        *mut *mut TaskSend,
    ) -> Result<()>,
) -> Result<()> {
    let len = u32::try_from(message.len()).map_err(|_| {
        crate::Error::with_detail(
            operation,
            ErrorCode::TOO_BIG,
            format!("a message of {} bytes", message.len()),
        )
    })?;
    connection.with(operation, |raw| {
        let outgoing = Box::new(Outgoing {
            message: message.into(),
            connection: connection.clone(),
            queue: Rc::clone(queue),
        });
        let mut task = std::ptr::null_mut();
        allocate(raw, outgoing.message.as_ptr().cast(), len, &mut task)?;
        let task = non_null(operation, task)?;
        let outgoing = Box::into_raw(outgoing);
        // SAFETY: the task was just allocated and is submitted once. The message lives until its callback frees it, or
        // until the lines below do if it was not submitted and has no callback.
        unsafe {
            let task = sys::doca_comch_task_send_as_task(task.as_ptr());
            sys::doca_task_set_user_data(
                task,
                sys::doca_data {
                    ptr: outgoing.cast(),
                },
            );
            let result = crate::error::check("doca_task_submit", sys::doca_task_submit(task));
            if result.is_err() {
                sys::doca_task_free(task);
                drop(Box::from_raw(outgoing));
            }
            result
        }
    })
}

/// Callback for a delivered message.
unsafe extern "C" fn sent(
    task: *mut TaskSend,
    user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA calls this once for a task of `send`, with the user data set there; the task is then owned by this
    // crate again.
    unsafe {
        let outgoing = Box::from_raw(user_data.ptr.cast::<Outgoing>());
        sys::doca_task_free(sys::doca_comch_task_send_as_task(task));
        drop(outgoing);
    }
}

/// Callback for a message that could not be delivered.
unsafe extern "C" fn failed(
    task: *mut TaskSend,
    user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `sent`.
    let (outgoing, code) = unsafe {
        let outgoing = Box::from_raw(user_data.ptr.cast::<Outgoing>());
        let task = sys::doca_comch_task_send_as_task(task);
        let code = ErrorCode(sys::doca_task_get_status(task));
        sys::doca_task_free(task);
        (outgoing, code)
    };
    let Outgoing {
        connection, queue, ..
    } = *outgoing;
    // The error callback must not report success.
    let code = if code == ErrorCode::SUCCESS {
        ErrorCode::UNKNOWN
    } else {
        code
    };
    queue.push(Event::Comch(ComchEvent::SendFailed { connection, code }));
}

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

object!(
    doca_comch_client,
    doca_comch_client_as_ctx,
    doca_comch_client_destroy,
    Endpoint
);

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

    fn create(pe: &Pe, device: Device, settings: &Settings) -> Result<Self> {
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
                Some(sent),
                Some(failed),
                settings.send_tasks
            ))?;
            call!(doca_comch_client_event_msg_recv_register(
                client,
                Some(message_received::<sys::doca_comch_client>)
            ))?;
            call!(doca_comch_client_event_consumer_register(
                client,
                Some(consumer_added::<sys::doca_comch_client>),
                Some(consumer_expired::<sys::doca_comch_client>)
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
        send(
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
    /// returned, but no further consumers or producers can be created. [`ErrorCode::TIME_OUT`] if it does not become
    /// idle; it is then leaked. Inside a completion handler [`ErrorCode::IN_PROGRESS`], see
    /// [`WorkerPe::progress`](crate::WorkerPe::progress).
    pub fn stop(self) -> std::result::Result<(), StopError<Self>> {
        if let Err(error) = self.context.check_unused() {
            return Err(StopError::new(error, Some(self)));
        }
        let closed = self.context.close();
        closed.map_err(|error| StopError::new(error, None))
    }
}

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

object!(
    doca_comch_server,
    doca_comch_server_as_ctx,
    doca_comch_server_destroy,
    Endpoint
);

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

    fn create(
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
        // Space is not reserved for control messages, because they are queued only if they fail. SAFETY: just created,
        // and not used elsewhere.
        let context =
            unsafe { Context::new(object, pe, Endpoint::server(), 0, (device, representor)) }?;
        // SAFETY: the server is live and not started; the callbacks have the declared types and are for this side.
        unsafe {
            call!(doca_comch_server_task_send_set_conf(
                server,
                Some(sent),
                Some(failed),
                settings.send_tasks
            ))?;
            call!(doca_comch_server_event_msg_recv_register(
                server,
                Some(message_received::<sys::doca_comch_server>)
            ))?;
            call!(doca_comch_server_event_connection_status_changed_register(
                server,
                Some(connected::<sys::doca_comch_server>),
                Some(disconnected::<sys::doca_comch_server>)
            ))?;
            call!(doca_comch_server_event_consumer_register(
                server,
                Some(consumer_added::<sys::doca_comch_server>),
                Some(consumer_expired::<sys::doca_comch_server>)
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
    /// [`ErrorCode::NOT_CONNECTED`] if the client has disconnected, [`ErrorCode::INVALID_VALUE`] for a connection of
    /// another server or a message that is too long, [`ErrorCode::NO_MEMORY`] or [`ErrorCode::AGAIN`] if too many
    /// messages are in flight.
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
        send(
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
    /// while messages to the client are in flight; [`ErrorCode::NOT_CONNECTED`] if the client has disconnected,
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
    /// returned, but no further consumers or producers can be created. [`ErrorCode::TIME_OUT`] if it does not become
    /// idle; it is then leaked. Inside a completion handler [`ErrorCode::IN_PROGRESS`], see
    /// [`WorkerPe::progress`](crate::WorkerPe::progress).
    pub fn stop(self) -> std::result::Result<(), StopError<Self>> {
        if let Err(error) = self.context.check_unused() {
            return Err(StopError::new(error, Some(self)));
        }
        let closed = self.context.close();
        closed.map_err(|error| StopError::new(error, None))
    }
}
