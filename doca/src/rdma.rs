//! RDMA: messages, and one-sided reads, writes, atomics and events, between two instances.

mod tasks;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

use doca_sys as sys;

use crate::context::{self, Context, Events, Shared, context_methods, object};
use crate::error::{c_string, call, non_null};
use crate::slots::{CompletionHandler, HandlerConf, OneBuffer, TwoBuffers, callbacks};
use crate::task::EventQueue;
use crate::{Access, ContextId, CtxState, Device, Error, ErrorCode, Pe, Result};

pub use tasks::{ReceiveTask, Received};

/// Settings of an [`Rdma`] instance. Tasks of a kind whose number is not set cannot be created.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct RdmaBuilder {
    device: Device,
    permissions: Access,
    tasks: TaskCounts,
    /// DOCA's default if `None`.
    max_connections: Option<u16>,
    /// DOCA's default if `None`.
    gid_index: Option<u32>,
    by_address: bool,
    handlers: RdmaHandlers,
}

/// The handlers of the kinds of tasks that slots can have.
#[derive(Debug, Clone, Copy, Default)]
struct RdmaHandlers {
    receive: Option<HandlerConf<sys::doca_rdma_task_receive>>,
    send: Option<HandlerConf<sys::doca_rdma_task_send>>,
    read: Option<HandlerConf<sys::doca_rdma_task_read>>,
    write: Option<HandlerConf<sys::doca_rdma_task_write>>,
}

/// Number of tasks of each kind.
#[derive(Debug, Clone, Copy, Default)]
struct TaskCounts {
    receive: u32,
    send: u32,
    send_immediate: u32,
    read: u32,
    write: u32,
    write_immediate: u32,
    compare_swap: u32,
    fetch_add: u32,
    event_get: u32,
    event_set: u32,
    event_add: u32,
}

impl TaskCounts {
    fn sum(&self) -> usize {
        let counts = [
            self.receive,
            self.send,
            self.send_immediate,
            self.read,
            self.write,
            self.write_immediate,
            self.compare_swap,
            self.fetch_add,
            self.event_get,
            self.event_set,
            self.event_add,
        ];
        counts
            .iter()
            .fold(0usize, |sum, &count| sum.saturating_add(count as usize))
    }
}

macro_rules! counts {
    ($($setter:ident: $field:ident, $what:literal;)+) => { $(
        #[doc = concat!("How many ", $what, " tasks there may be.")]
        pub fn $setter(mut self, count: u32) -> Self {
            self.tasks.$field = count;
            self
        }
    )+ };
}

impl RdmaBuilder {
    fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            permissions: Access::LOCAL_READ_WRITE,
            tasks: TaskCounts::default(),
            max_connections: None,
            gid_index: None,
            by_address: false,
            handlers: RdmaHandlers::default(),
        }
    }

    /// Sets the permissions of peers, which are also limited by those of the memory maps; none by default.
    pub fn permissions(mut self, permissions: Access) -> Self {
        self.permissions = permissions;
        self
    }

    counts! {
        receive_tasks: receive, "receive";
        send_tasks: send, "send";
        send_immediate_tasks: send_immediate, "send-with-immediate";
        read_tasks: read, "read";
        write_tasks: write, "write";
        write_immediate_tasks: write_immediate, "write-with-immediate";
        compare_swap_tasks: compare_swap, "compare-and-swap";
        fetch_add_tasks: fetch_add, "fetch-and-add";
        event_get_tasks: event_get, "remote-event get";
        event_set_tasks: event_set, "remote-event set";
        event_add_tasks: event_add, "remote-event add";
    }

    /// Sets the handler of receive tasks, which must then be tasks of [slots](Rdma::receive_into). The engine must be
    /// that of a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    pub fn receive_handler<H: CompletionHandler<Buffers = OneBuffer>>(mut self) -> Self {
        self.handlers.receive = Some(HandlerConf::of::<H>());
        self
    }

    /// Sets the handler of send tasks, which must then be tasks of [slots](Rdma::send_from). The engine must be that of
    /// a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    pub fn send_handler<H: CompletionHandler<Buffers = OneBuffer>>(mut self) -> Self {
        self.handlers.send = Some(HandlerConf::of::<H>());
        self
    }

    /// Sets the handler of read tasks, which must then be tasks of [slots](Rdma::read_into). The engine must be that of
    /// a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    pub fn read_handler<H: CompletionHandler<Buffers = TwoBuffers>>(mut self) -> Self {
        self.handlers.read = Some(HandlerConf::of::<H>());
        self
    }

    /// Sets the handler of write tasks, which must then be tasks of [slots](Rdma::write_from). The engine must be that
    /// of a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    pub fn write_handler<H: CompletionHandler<Buffers = TwoBuffers>>(mut self) -> Self {
        self.handlers.write = Some(HandlerConf::of::<H>());
        self
    }

    /// Sets the maximum number of connections; DOCA's default unless set.
    pub fn max_connections(mut self, count: u16) -> Self {
        self.max_connections = Some(count);
        self
    }

    /// Sets the index in the device's GID table, for networks that need it; DOCA's default unless set.
    pub fn gid_index(mut self, index: u32) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// Allows the instance to listen to ports and connect to addresses, and enables [`Rdma::connection_event`].
    pub fn by_address(mut self) -> Self {
        self.by_address = true;
        self
    }

    /// Starts the instance on `pe`.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the instance; [`ErrorCode::INVALID_VALUE`] if a
    /// handler's type of workers is not that of the engine.
    pub fn start(self, pe: &Pe) -> Result<Rdma> {
        Rdma::create(pe, &self)
    }
}

/// An RDMA instance.
///
/// Both sides export a connection, exchange the descriptions by any other channel, and connect; see
/// [`export`](Self::export).
///
/// ```no_run
/// use doca::{Access, Buf, Device, Event, Pe, Rdma};
///
/// /// Reads the peer's memory at `remote` into `local`.
/// fn fetch(exchange: impl Fn(&[u8]) -> Vec<u8>, remote: &Buf, local: &Buf) -> doca::Result<()> {
///     let device = Device::open("mlx5_0")?;
///     let pe = Pe::new()?;
///     let rdma = Rdma::builder(&device).permissions(Access::RDMA_READ).read_tasks(1).start(&pe)?;
///     let (description, connection) = rdma.export()?;
///     rdma.connect(&connection, &exchange(&description))?;
///
///     let task = rdma.read_task(&connection, remote, local, 1)?;
///     task.submit().expect("a new task of a running instance");
///     while task.is_in_flight() {
///         if let Some(Event::Task(completion)) = pe.poll() {
///             println!("read: {:?}", completion.result);
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Rdma {
    context: Context<sys::doca_rdma>,
    by_address: bool,
    handlers: RdmaHandlers,
}

object!(doca_rdma, doca_rdma_as_ctx, doca_rdma_destroy, Connections);

impl Rdma {
    /// Returns the settings of an instance, to be changed before it is started.
    pub fn builder(device: &Device) -> RdmaBuilder {
        RdmaBuilder::new(device)
    }

    fn create(pe: &Pe, settings: &RdmaBuilder) -> Result<Self> {
        let handlers = settings.handlers;
        if let Some(handler) = handlers.receive {
            handler.check_worker("doca_rdma_task_receive_set_conf", pe)?;
        }
        if let Some(handler) = handlers.send {
            handler.check_worker("doca_rdma_task_send_set_conf", pe)?;
        }
        if let Some(handler) = handlers.read {
            handler.check_worker("doca_rdma_task_read_set_conf", pe)?;
        }
        if let Some(handler) = handlers.write {
            handler.check_worker("doca_rdma_task_write_set_conf", pe)?;
        }
        let mut rdma = ptr::null_mut();
        // SAFETY: the device is open, the out-parameter is valid.
        unsafe { call!(doca_rdma_create(settings.device.as_ptr(), &mut rdma)) }?;
        let object = non_null("doca_rdma_create", rdma)?;
        // SAFETY: just created, and not used elsewhere.
        let context = unsafe {
            let max_tasks = settings.tasks.sum();
            Context::new(
                object,
                pe,
                Connections::new(settings.by_address),
                max_tasks,
                settings.device.clone(),
            )
        }?;
        // SAFETY: the instance is live and not started; the callbacks have the declared types.
        unsafe {
            call!(doca_rdma_set_permissions(rdma, settings.permissions.bits()))?;
            if let Some(count) = settings.max_connections {
                call!(doca_rdma_set_max_num_connections(rdma, count))?;
            }
            if let Some(index) = settings.gid_index {
                call!(doca_rdma_set_gid_index(rdma, index))?;
            }
            // Required even without connections by address: the callbacks report closed connections.
            call!(doca_rdma_set_connection_state_callbacks(
                rdma,
                Some(requested),
                Some(established),
                Some(failed),
                Some(disconnected)
            ))?;
            macro_rules! configure {
                ($($set_conf:ident: $count:ident $(, $handler:expr)?;)+) => { $(
                    if settings.tasks.$count != 0 {
                        let (completed, failed) = callbacks([$($handler)?]);
                        call!($set_conf(rdma, completed, failed, settings.tasks.$count))?;
                    }
                )+ };
            }
            configure! {
                doca_rdma_task_receive_set_conf: receive, handlers.receive;
                doca_rdma_task_send_set_conf: send, handlers.send;
                doca_rdma_task_send_imm_set_conf: send_immediate;
                doca_rdma_task_read_set_conf: read, handlers.read;
                doca_rdma_task_write_set_conf: write, handlers.write;
                doca_rdma_task_write_imm_set_conf: write_immediate;
                doca_rdma_task_atomic_cmp_swp_set_conf: compare_swap;
                doca_rdma_task_atomic_fetch_add_set_conf: fetch_add;
                doca_rdma_task_remote_net_sync_event_get_set_conf: event_get;
                doca_rdma_task_remote_net_sync_event_notify_set_set_conf: event_set;
                doca_rdma_task_remote_net_sync_event_notify_add_set_conf: event_add;
            }
        }
        context.start()?;
        let by_address = settings.by_address;
        Ok(Self {
            context,
            by_address,
            handlers,
        })
    }

    /// Creates a connection and returns it with its description, which the peer passes to its
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`] if the instance is not running; those of `doca_rdma_export`, e.g. at the maximum number
    /// of connections.
    pub fn export(&self) -> Result<(Vec<u8>, RdmaConnection)> {
        const OPERATION: &str = "doca_rdma_export";
        let (mut details, mut len, mut connection) = (ptr::null(), 0, ptr::null_mut());
        // SAFETY: the instance is live, the out-parameters are valid.
        unsafe {
            call!(doca_rdma_export(
                self.context.object(),
                &mut details,
                &mut len,
                &mut connection
            ))
        }?;
        let connection = non_null(OPERATION, connection)?;
        let connection = self.context.events().find_or_add(self.id(), connection);
        if details.is_null() {
            return Err(Error::new(OPERATION, ErrorCode::UNEXPECTED));
        }
        // SAFETY: the instance owns `len` bytes of description, at least until its next export.
        let details = unsafe { slice::from_raw_parts(details.cast::<u8>(), len) }.to_vec();
        Ok((details, connection))
    }

    /// Connects to the peer that exported `description`. Tasks may be submitted immediately: they wait until the peer
    /// has connected, too.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for a connection of another instance; those of `doca_rdma_connect`, for a
    /// description that is malformed or for another device.
    pub fn connect(&self, connection: &RdmaConnection, description: &[u8]) -> Result<()> {
        let connection = connection.for_instance("doca_rdma_connect", self.id())?;
        // SAFETY: instance and connection are live and belong together, the description is valid for its length.
        unsafe {
            call!(doca_rdma_connect(
                self.context.object(),
                description.as_ptr().cast(),
                description.len(),
                connection
            ))
        }
    }

    /// Listens for connection requests at a port of the device: [`RdmaEvent::Requested`].
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_SUPPORTED`] unless the instance was started with [`RdmaBuilder::by_address`]; those of
    /// `doca_rdma_start_listen_to_port`, e.g. if another instance listens to the port.
    pub fn listen(&self, port: u16) -> Result<()> {
        self.expect_by_address("doca_rdma_start_listen_to_port")?;
        // SAFETY: the instance is live.
        unsafe { call!(doca_rdma_start_listen_to_port(self.context.object(), port)) }
    }

    /// Stops listening at a port. Existing connections remain open.
    ///
    /// # Errors
    ///
    /// The errors of `doca_rdma_stop_listen_to_port`, e.g. if the instance does not listen to the port.
    pub fn stop_listening(&self, port: u16) -> Result<()> {
        // SAFETY: the instance is live.
        unsafe { call!(doca_rdma_stop_listen_to_port(self.context.object(), port)) }
    }

    /// Requests a connection to the instance that listens at an address. The result is reported by
    /// [`connection_event`](Self::connection_event), with the token.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_SUPPORTED`] unless the instance was started with [`RdmaBuilder::by_address`];
    /// [`ErrorCode::INVALID_VALUE`] for port 0; those of `doca_rdma_connect_to_addr`.
    pub fn connect_to(&self, address: impl Into<RdmaAddress>, token: u64) -> Result<()> {
        self.expect_by_address("doca_rdma_connect_to_addr")?;
        let address = Address::new(address.into())?;
        let addr = self.context.events().keep(address);
        let token = sys::doca_data { u64: token };
        // SAFETY: instance and address are live; the address is kept as long as the instance.
        unsafe {
            call!(doca_rdma_connect_to_addr(
                self.context.object(),
                addr,
                token
            ))
        }
    }

    /// Accepts a peer's connection request. [`RdmaEvent::Established`] follows, with the token.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::CONNECTION_ABORTED`] if the peer has disconnected, [`ErrorCode::BAD_STATE`] for a connection that
    /// was not requested.
    pub fn accept(&self, connection: &RdmaConnection, token: u64) -> Result<()> {
        let connection = connection.for_instance("doca_rdma_connection_accept", self.id())?;
        let token = sys::doca_data { u64: token };
        // SAFETY: the connection is live; no private data is passed.
        unsafe {
            call!(doca_rdma_connection_set_user_data(connection, token))?;
            call!(doca_rdma_connection_accept(connection, ptr::null_mut(), 0))
        }
    }

    /// Rejects a peer's connection request, which closes the connection.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept).
    pub fn reject(&self, connection: &RdmaConnection) -> Result<()> {
        let raw = connection.for_instance("doca_rdma_connection_reject", self.id())?;
        // SAFETY: the connection is live.
        unsafe { call!(doca_rdma_connection_reject(raw)) }?;
        self.context.events().forget(connection);
        Ok(())
    }

    /// Disconnects a connection; its tasks in flight fail. The peer is notified.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_CONNECTED`] if it is already closed, [`ErrorCode::INVALID_VALUE`] for a connection of another
    /// instance.
    pub fn disconnect(&self, connection: &RdmaConnection) -> Result<()> {
        let raw = connection.for_instance("doca_rdma_connection_disconnect", self.id())?;
        // SAFETY: the connection is live.
        unsafe { call!(doca_rdma_connection_disconnect(raw)) }?;
        connection.invalidate();
        Ok(())
    }

    /// The next connection event of an instance that was started with [`RdmaBuilder::by_address`]. Events arrive while
    /// [`Pe::poll`] makes progress.
    pub fn connection_event(&self) -> Option<RdmaEvent> {
        self.context.events().next_event()
    }

    fn expect_by_address(&self, operation: &'static str) -> Result<()> {
        if self.by_address {
            return Ok(());
        }
        let detail = "start the instance with RdmaBuilder::by_address";
        Err(Error::with_detail(
            operation,
            ErrorCode::NOT_SUPPORTED,
            detail,
        ))
    }

    context_methods!("instance");

    /// Flushes the tasks in flight, whose completions are returned by [`Pe::poll`](crate::Pe::poll), disconnects the
    /// connections and destroys the instance.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`] if it does not become idle. The instance is then leaked.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}

/// A connection of an [`Rdma`](crate::Rdma) instance. Valid for this instance only.
#[derive(Debug, Clone)]
pub struct RdmaConnection {
    context: ContextId,
    // Used only by methods of its instance, and only while the instance is alive.
    connection: NonNull<sys::doca_rdma_connection>,
    /// `false` once it is closed. Shared by the clones.
    alive: Rc<Cell<bool>>,
}

impl PartialEq for RdmaConnection {
    fn eq(&self, other: &Self) -> bool {
        // A later connection may have the address of a closed one.
        Rc::ptr_eq(&self.alive, &other.alive)
    }
}

impl Eq for RdmaConnection {}

impl RdmaConnection {
    fn new(context: ContextId, connection: NonNull<sys::doca_rdma_connection>) -> Self {
        Self {
            context,
            connection,
            alive: Rc::new(Cell::new(true)),
        }
    }

    /// The instance that the connection belongs to.
    pub fn context(&self) -> ContextId {
        self.context
    }

    /// `false` once the connection is closed: immediately if this side has disconnected it or stopped its instance, and at
    /// the next `progress` call if the peer has.
    pub fn is_alive(&self) -> bool {
        self.alive.get()
    }

    fn invalidate(&self) {
        self.alive.set(false);
    }

    fn is(&self, raw: NonNull<sys::doca_rdma_connection>) -> bool {
        self.connection == raw
    }

    /// The C object, if the connection belongs to the instance `context`.
    fn for_instance(
        &self,
        operation: &'static str,
        context: ContextId,
    ) -> Result<*mut sys::doca_rdma_connection> {
        if self.context != context {
            let detail = "the connection belongs to another RDMA instance";
            return Err(Error::with_detail(
                operation,
                ErrorCode::INVALID_VALUE,
                detail,
            ));
        }
        if !self.is_alive() {
            let detail = "the connection is closed";
            return Err(Error::with_detail(
                operation,
                ErrorCode::NOT_CONNECTED,
                detail,
            ));
        }
        Ok(self.connection.as_ptr())
    }
}

/// A change of a connection of an [`Rdma`](crate::Rdma) instance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RdmaEvent {
    /// A peer requests a connection: [`Rdma::accept`](crate::Rdma::accept) or [`Rdma::reject`](crate::Rdma::reject) it.
    Requested(RdmaConnection),
    /// The connection is established, and its tasks run.
    Established {
        /// Handle for the tasks on this connection.
        connection: RdmaConnection,
        /// The token of the accept or connect call; 0 for an exported connection.
        token: u64,
    },
    /// The connection failed: no instance listens at the address, or the peer has rejected the request or disconnected.
    Failed {
        /// The token of the accept or connect call.
        token: u64,
    },
    /// The connection was closed; its tasks fail.
    Disconnected {
        /// Handle of the closed connection; no further task can be submitted on it.
        connection: RdmaConnection,
        /// As for [`Established`](Self::Established).
        token: u64,
    },
}

/// The connections of an instance.
///
/// The methods borrow the fields, and make no calls that could re-enter them.
#[derive(Default)]
pub(crate) struct Connections {
    /// `true` if the user reads events, which would otherwise accumulate.
    tells: bool,
    known: RefCell<Vec<RdmaConnection>>,
    events: RefCell<VecDeque<RdmaEvent>>,
    /// Addresses that were connected to.
    addresses: RefCell<Vec<Address>>,
}

impl Events for Connections {
    fn state_changed(&self, _context: ContextId, _queue: &EventQueue, next: CtxState) {
        if matches!(next, CtxState::Stopping | CtxState::Idle) {
            // All connections are closed with the instance; a callback that reports it finds them already removed.
            self.known
                .borrow()
                .iter()
                .for_each(RdmaConnection::invalidate);
        }
    }

    fn closing(&self, _queue: &EventQueue) {
        for connection in self.known.borrow_mut().drain(..) {
            connection.invalidate();
        }
    }
}

impl Connections {
    /// `tells`: `true` if the user reads events.
    fn new(tells: bool) -> Self {
        Self {
            tells,
            ..Self::default()
        }
    }

    /// Finds the connection with this C object, or adds a new one.
    fn find_or_add(
        &self,
        context: ContextId,
        raw: NonNull<sys::doca_rdma_connection>,
    ) -> RdmaConnection {
        let mut known = self.known.borrow_mut();
        if let Some(connection) = known.iter().find(|connection| connection.is(raw)) {
            return connection.clone();
        }
        let connection = RdmaConnection::new(context, raw);
        known.push(connection.clone());
        connection
    }

    /// Removes a closed connection.
    fn remove(
        &self,
        context: ContextId,
        raw: NonNull<sys::doca_rdma_connection>,
    ) -> RdmaConnection {
        let connection = self.find_or_add(context, raw);
        self.known.borrow_mut().retain(|known| *known != connection);
        connection.invalidate();
        connection
    }

    /// Removes a connection that this side has disconnected or rejected, without further events.
    fn forget(&self, connection: &RdmaConnection) {
        self.known.borrow_mut().retain(|known| known != connection);
        connection.invalidate();
    }

    /// Stores an address for the lifetime of the instance, and returns its C object.
    fn keep(&self, address: Address) -> *mut sys::doca_rdma_addr {
        let addr = address.as_ptr();
        self.addresses.borrow_mut().push(address);
        addr
    }

    fn next_event(&self) -> Option<RdmaEvent> {
        self.events.borrow_mut().pop_front()
    }

    fn push(&self, event: RdmaEvent) {
        if self.tells {
            self.events.borrow_mut().push_back(event);
        }
    }
}

/// Finds the target of a callback.
///
/// # Safety
///
/// The arguments are those of a callback of a live instance.
unsafe fn find<'a>(
    connection: *mut sys::doca_rdma_connection,
    ctx_user_data: sys::doca_data,
) -> Option<(&'a Shared<Connections>, NonNull<sys::doca_rdma_connection>)> {
    // SAFETY: guaranteed by the caller; `Context::new` set the user data.
    let shared = unsafe { context::shared::<Connections>(ctx_user_data) }?;
    Some((shared, NonNull::new(connection)?))
}

unsafe extern "C" fn requested(
    connection: *mut sys::doca_rdma_connection,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA calls this for connections of the instance.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared.events.push(RdmaEvent::Requested(connection));
}

unsafe extern "C" fn established(
    connection: *mut sys::doca_rdma_connection,
    connection_user_data: sys::doca_data,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `requested`.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    // SAFETY: this crate sets only this member.
    let token = unsafe { connection_user_data.u64 };
    shared
        .events
        .push(RdmaEvent::Established { connection, token });
}

unsafe extern "C" fn failed(
    connection: *mut sys::doca_rdma_connection,
    connection_user_data: sys::doca_data,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `requested`.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    shared.events.remove(shared.id, raw);
    // SAFETY: as in `established`.
    let token = unsafe { connection_user_data.u64 };
    shared.events.push(RdmaEvent::Failed { token });
}

unsafe extern "C" fn disconnected(
    connection: *mut sys::doca_rdma_connection,
    connection_user_data: sys::doca_data,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `requested`.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    let ended = shared.events.remove(shared.id, raw);
    // SAFETY: as in `established`. DOCA requires a disconnect in response.
    let token = unsafe {
        sys::doca_rdma_connection_disconnect(connection);
        connection_user_data.u64
    };
    shared.events.push(RdmaEvent::Disconnected {
        connection: ended,
        token,
    });
}

/// Address of a listening [`Rdma`](crate::Rdma) instance.
///
/// ```
/// use std::net::SocketAddr;
/// use doca::RdmaAddress;
///
/// let by_ip: SocketAddr = "192.168.1.7:18515".parse().unwrap();
/// assert_eq!(RdmaAddress::from(by_ip), RdmaAddress::Ip(by_ip));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RdmaAddress {
    /// An IPv4 or IPv6 address, and a port.
    Ip(SocketAddr),
    /// A global identifier in network order, and a port.
    Gid([u8; 16], u16),
}

impl From<SocketAddr> for RdmaAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl RdmaAddress {
    fn parts(self) -> (sys::doca_rdma_addr_type, String, u16) {
        match self {
            Self::Ip(address) => {
                let kind = match address.ip() {
                    IpAddr::V4(_) => sys::DOCA_RDMA_ADDR_TYPE_IPv4,
                    IpAddr::V6(_) => sys::DOCA_RDMA_ADDR_TYPE_IPv6,
                };
                (kind, address.ip().to_string(), address.port())
            }
            Self::Gid(gid, port) => {
                let groups: Vec<String> = Ipv6Addr::from(gid)
                    .segments()
                    .iter()
                    .map(|group| format!("{group:04x}"))
                    .collect();
                (sys::DOCA_RDMA_ADDR_TYPE_GID, groups.join(":"), port)
            }
        }
    }
}

/// A C address object, which connections use as long as they exist.
#[derive(Debug)]
struct Address {
    addr: NonNull<sys::doca_rdma_addr>,
}

impl Address {
    fn new(address: RdmaAddress) -> Result<Self> {
        const OPERATION: &str = "doca_rdma_addr_create";
        let (kind, text, port) = address.parts();
        let text: CString = c_string(OPERATION, &text)?;
        let mut addr = ptr::null_mut();
        // SAFETY: the text is terminated, the out-parameter is valid.
        unsafe { call!(doca_rdma_addr_create(kind, text.as_ptr(), port, &mut addr)) }?;
        Ok(Self {
            addr: non_null(OPERATION, addr)?,
        })
    }

    fn as_ptr(&self) -> *mut sys::doca_rdma_addr {
        self.addr.as_ptr()
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        // SAFETY: created by `new`; the instance that used the address has been destroyed.
        if let Err(error) = unsafe { call!(doca_rdma_addr_destroy(self.as_ptr())) } {
            tracing::warn!(%error, "failed to destroy an RDMA address; leaking it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_for_its_instance_only() {
        let (own, other) = (ContextId::next(), ContextId::next());
        let connection = RdmaConnection::new(own, NonNull::dangling());
        assert!(connection.for_instance("f", own).is_ok());
        assert_eq!(
            connection.for_instance("f", other).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
        let clone = connection.clone();
        assert_eq!(connection, clone);
        assert_ne!(connection, RdmaConnection::new(own, NonNull::dangling()));
        connection.invalidate();
        assert!(!clone.is_alive());
        assert_eq!(
            clone.for_instance("f", own).unwrap_err().code,
            ErrorCode::NOT_CONNECTED
        );
    }

    #[test]
    fn addresses_are_written_as_doca_reads_them() {
        let parts = |text: &str| RdmaAddress::Ip(text.parse().unwrap()).parts();
        assert_eq!(parts("127.0.0.1:7"), (0, "127.0.0.1".to_owned(), 7));
        assert_eq!(parts("[fe80::1]:8"), (1, "fe80::1".to_owned(), 8));
        let mut gid = [0; 16];
        (gid[0], gid[15]) = (0xfe, 9);
        assert_eq!(
            RdmaAddress::Gid(gid, 9).parts(),
            (2, "fe00:0000:0000:0000:0000:0000:0000:0009".to_owned(), 9)
        );
    }
}
