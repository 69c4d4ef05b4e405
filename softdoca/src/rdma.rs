//! RDMA: instances that exchange messages, and read and write each other's memory.
//!
//! * [`Rdma`] is the driver of an instance's context: its properties ([`Config`]), connections, receive tasks and completed
//!   tasks.
//! * [`Connection`] is the connection to one peer, with the queue of this side's tasks, established from the details that
//!   programs exchange.
//! * [`task`] holds the bodies of tasks, and runs them.
//! * `by_address` exchanges the details automatically when one instance listens on a port and the other connects to its
//!   [`Address`].
//! * [`transport`] moves messages between processes; `over_network` contains the differences for other machines.
//!
//! Reads and writes need no progress by the peer: on one machine the submitting side performs them in the memory that
//! its peer has exported; over the network a thread of the peer's agent does.

mod buffers;
mod by_address;
mod connection;
mod over_network;
mod task;
mod transport;

pub(crate) use by_address::{
    Address, again as handshake_again, examples as example_handshakes, gids,
};
pub(crate) use connection::{Connection, again as details_again, examples as example_details};
pub(crate) use task::{Arguments, Operation, Receive, Received, Work};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca_abi::{
    DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, DOCA_ACCESS_FLAG_RDMA_ATOMIC, DOCA_ACCESS_FLAG_RDMA_READ,
    DOCA_ACCESS_FLAG_RDMA_WRITE, DOCA_MTU_SIZE_1K_BYTES, DOCA_MTU_SIZE_4K_BYTES,
    DOCA_RDMA_TRANSPORT_TYPE_DC, DOCA_RDMA_TRANSPORT_TYPE_RC, doca_data, doca_mtu_size,
    doca_rdma_connection_disconnection_cb_t, doca_rdma_connection_established_cb_t,
    doca_rdma_connection_failure_cb_t, doca_rdma_connection_request_cb_t, doca_rdma_transport_type,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::agent::{is_held_up, is_in_progress, nic_for_connections, uses_network};
use crate::buffer::BufHandle;
use crate::device::{Device, DeviceUse};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, Event, Started, Task, TaskOf, Urgency};
use by_address::{Reception, Watched};
use connection::{Done, Ending, News};
use task::Pools;
use transport::Inbox as _;
use transport::shared_memory::SharedMemory;

/// Size of a queue that the program has not set, in tasks.
const DEFAULT_QUEUE_SIZE: u32 = 128;

/// Way in which an instance is connected to peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connecting {
    /// Any number of connections, established while the context runs.
    WhileRunning,
    /// One connection, established while the context starts, which then runs: DOCA 2.5 and 2.6. Programs refer to the
    /// connection by NULL.
    WhileStarting,
}

/// The driver of RDMA contexts.
pub(crate) struct Rdma {
    device: Arc<Device>,
    connecting: Connecting,
    config: Config,
    pools: Pools,
    state: RefCell<Instance>,
}

/// State that changes while an instance runs.
#[derive(Default)]
struct Instance {
    /// `None` before the first start.
    transport: Option<SharedMemory>,
    connections: Vec<Rc<Connection>>,
    /// Ended connections, kept for the program's handles. Released when the instance starts again or is destroyed.
    ended: Vec<Rc<Connection>>,
    next_id: u32,
    /// Posted receive tasks, for any connection.
    receives: VecDeque<NonNull<Task>>,
    done: VecDeque<Done>,
    /// Pending connection callbacks of the program.
    calls: VecDeque<Box<dyn FnOnce()>>,
    /// Listening ports.
    reception: Reception,
    /// Pending change of the context's state.
    change: Option<Change>,
    /// Wakes the engine when a message has waited for a receive of its peer for as long as configured; `None` if messages
    /// wait for ever.
    timer: Option<OwnedFd>,
    /// `true` if there may be a connection to another machine with queued output.
    uses_network: bool,
    /// Connection that is polled first, for fairness.
    turn: usize,
}

/// The connection on which a completed task has acted has a free place in its send queue again.
#[inline]
fn leave_send_queue(task: NonNull<Task>) {
    // SAFETY: a task whose completion has not been delivered is in flight, and tasks in flight are not freed.
    if let Some(work) = unsafe { task.as_ref() }.downcast::<Work>() {
        work.body.with_connection(Connection::leave_send_queue);
    }
}

/// A change of the context's state that an instance causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The connection for which the start waited was established.
    Started,
    /// The last connection, or a task, has failed.
    Broken,
}

impl Instance {
    /// Sends queued output to peers on other machines.
    #[cold]
    fn send_queued(&mut self) {
        for connection in &self.connections {
            connection.send_queued(&mut connection.parts.borrow_mut());
        }
    }

    fn transport(&self) -> Result<&SharedMemory> {
        self.transport.as_ref().ok_or(Error::BadState)
    }
}

impl Rdma {
    /// Creates a context for an instance on `device`.
    pub(crate) fn context(device: Arc<Device>, connecting: Connecting) -> Rc<Ctx> {
        Ctx::new(Self {
            device,
            connecting,
            config: Config::default(),
            pools: Pools::default(),
            state: RefCell::default(),
        })
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Sets the rights of peers.
    pub(crate) fn set_permissions(&self, ctx: &Ctx, permissions: u32) -> Result<()> {
        ctx.expect_idle("permissions are set")?;
        self.config.set_permissions(permissions)
    }

    pub(crate) fn set_transport_type(
        &self,
        ctx: &Ctx,
        transport_type: doca_rdma_transport_type,
    ) -> Result<()> {
        ctx.expect_idle("the transport type is set")?;
        self.config.set_transport_type(transport_type)
    }

    /// Network properties. Their setters require an idle instance.
    pub(crate) fn fabric(&self) -> &Fabric {
        &self.config.fabric
    }

    pub(crate) fn permissions(&self) -> u32 {
        self.config.permissions.get()
    }

    pub(crate) fn transport_type(&self) -> doca_rdma_transport_type {
        self.config.transport_type.get()
    }

    pub(crate) fn max_connections(&self) -> u16 {
        self.config.max_connections.get()
    }

    /// Size of the send queue of each connection, in tasks.
    pub(crate) fn send_queue_size(&self) -> u32 {
        let fabric = &self.config.fabric;
        fabric.send_queue_size.get().unwrap_or_else(|| {
            // The default does not limit the configured tasks.
            let tasks = u32::try_from(self.pools.work_limit()).unwrap_or(u32::MAX);
            DEFAULT_QUEUE_SIZE.max(tasks.checked_next_power_of_two().unwrap_or(u32::MAX))
        })
    }

    /// Maximum number of bufs in the local list of a task on a connection.
    pub(crate) fn send_list_len(&self) -> u32 {
        self.config.send_list_len.get()
    }

    pub(crate) fn set_send_list_len(&self, ctx: &Ctx, len: u32) -> Result<()> {
        ctx.expect_idle("the length of lists is set")?;
        self.config.set_send_list_len(len)
    }

    /// Maximum number of bufs in the list of a receive task.
    pub(crate) fn receive_list_len(&self) -> u32 {
        self.config.receive_list_len.get()
    }

    pub(crate) fn set_receive_list_len(&self, ctx: &Ctx, len: u32) -> Result<()> {
        ctx.expect_idle("the length of lists is set")?;
        self.config.set_receive_list_len(len)
    }

    pub(crate) fn set_max_connections(&self, ctx: &Ctx, max_connections: u16) -> Result<()> {
        ctx.expect_idle("the number of connections is set")?;
        self.config.set_max_connections(max_connections)
    }

    pub(crate) fn set_callbacks(&self, ctx: &Ctx, callbacks: ConnectionCallbacks) -> Result<()> {
        ctx.expect_idle("connection callbacks are set")?;
        self.config.callbacks.set(callbacks);
        Ok(())
    }

    /// Creates a task that acts on a connection.
    pub(crate) fn allocate_work(
        &self,
        ctx: &Ctx,
        connection: *const Connection,
        operation: Operation,
        arguments: Arguments,
        user_data: doca_data,
    ) -> Result<NonNull<TaskOf<Work>>> {
        let mut work = Work::new(operation, self.connection(ctx, connection)?, arguments);
        // NVIDIA's programs of these releases poll a sync event with one buf of 8 bytes.
        work.replaces_value = self.connecting == Connecting::WhileStarting;
        self.pools.of(operation).allocate(ctx, work, user_data)
    }

    pub(crate) fn allocate_receive(
        &self,
        ctx: &Ctx,
        destination: Option<BufHandle>,
        user_data: doca_data,
    ) -> Result<NonNull<TaskOf<Receive>>> {
        self.pools
            .receive
            .allocate(ctx, Receive::new(destination), user_data)
    }

    /// Polls connections until one has an event; `None` after polling each once.
    #[inline(always)]
    fn look(&self, ctx: &Ctx) -> Option<Event> {
        loop {
            let (connection, news) = {
                let mut state = self.state.borrow_mut();
                let state = &mut *state;
                let count = state.connections.len();
                let mut found = None;
                let mut index = state.turn;
                for _ in 0..count {
                    // Avoids a division, because this runs for every message.
                    if index >= count {
                        index = 0;
                    }
                    let connection = &state.connections[index];
                    match connection.advance(&mut state.receives, &mut state.done) {
                        // Waits for agents of other processes have taken too long: next time, the other connections are
                        // polled first.
                        News::None if is_held_up() => {
                            state.turn = index + 1;
                            return None;
                        }
                        News::None => {}
                        News::Fatal => {
                            state.change = Some(Change::Broken);
                            return None;
                        }
                        News::Received((task, result)) => {
                            state.turn = index + 1;
                            return Some(Event::Task(task, result));
                        }
                        news => {
                            found = Some((Rc::clone(connection), news));
                            break;
                        }
                    }
                    index += 1;
                }
                found?
            };
            let ending = match news {
                News::Lost => Ending::Failure,
                _ => Ending::Orderly,
            };
            self.end(ctx, &connection, ending);
        }
    }

    /// Sets the timer to the first time at which a message fails for lack of a receive.
    fn start_timer(&self) {
        let state = self.state.borrow();
        let Some(timer) = &state.timer else { return };
        let deadlines = state.connections.iter().filter_map(|it| it.deadline());
        if let Some(deadline) = deadlines.min() {
            let after = deadline.saturating_duration_since(Instant::now());
            // A time of 0 would stop the timer.
            set_timer(timer, after.max(Duration::from_nanos(1)));
        }
    }

    fn stop_timer(&self) {
        if let Some(timer) = &self.state.borrow().timer {
            set_timer(timer, Duration::ZERO);
        }
    }

    #[inline]
    fn take_pending(&self) -> Option<Event> {
        let mut state = self.state.borrow_mut();
        if !state.calls.is_empty() || state.change.is_some() {
            if let Some(call) = state.calls.pop_front() {
                return Some(Event::Connection(call));
            }
            // Reported before the failed tasks: a program that resubmits them then gets the error that the context is
            // stopping.
            match state.change.take() {
                Some(Change::Started) => return Some(Event::Started),
                Some(Change::Broken) => return Some(Event::Broken),
                None => {}
            }
        }
        let (task, result) = state.done.pop_front()?;
        leave_send_queue(task);
        Some(Event::Task(task, result))
    }
}

impl Driver for Rdma {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        let receives = self.pools.receive.limit() as usize;
        let connections = self.config.max_connections.get();
        let transport = SharedMemory::new(
            connections,
            receives,
            ctx.pe()?.wake(),
            nic_for_connections(self.device.model())?,
        )?;
        let timer = match self.config.fabric.patience() {
            Some(_) => Some(new_timer(ctx)?),
            None => None,
        };
        let mut state = self.state.borrow_mut();
        // Connections of the last run were kept until now because of their handles.
        *state = Instance {
            transport: Some(transport),
            timer,
            uses_network: uses_network()?,
            // Avoids allocation on the data path.
            receives: VecDeque::with_capacity(receives),
            done: VecDeque::with_capacity(receives + self.pools.work_limit()),
            next_id: state.next_id,
            ..Instance::default()
        };
        Ok(match self.connecting {
            Connecting::WhileRunning => Started::Running,
            Connecting::WhileStarting => Started::InProgress,
        })
    }

    fn submit(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(work) = task.downcast::<Work>() {
            work.body.check_lists(self.config.send_list_len.get())?;
            work.body.check_device(self.device.key())?;
            let done = &mut state.done;
            let submit = |connection: &Connection| -> Result<bool> {
                connection.submit(task, &work.body, done)?;
                Ok(connection.is_fatal())
            };
            let submitted = work.body.with_connection(submit);
            if submitted.ok_or(Error::Unexpected)?? {
                state.change = Some(Change::Broken);
            }
            if state.uses_network && !is_in_progress() {
                state.send_queued();
            }
            return Ok(());
        }
        let receive = &task.downcast::<Receive>().ok_or(Error::InvalidValue)?.body;
        receive.check_list(self.config.receive_list_len.get())?;
        receive.check_device(self.device.key())?;
        if state.uses_network {
            for connection in &state.connections {
                connection.adopt_waiting(state.receives.len());
            }
        }
        state.receives.push_back(NonNull::from(task));
        state.transport()?.post();
        for connection in &state.connections {
            if let Some(inbox) = &mut connection.parts.borrow_mut().inbox {
                inbox.post(1);
            }
        }
        if state.uses_network && !is_in_progress() {
            state.send_queued();
        }
        Ok(())
    }

    #[inline(always)]
    fn next_event(&self, ctx: &Ctx) -> Option<Event> {
        if let pending @ Some(_) = self.take_pending() {
            return pending;
        }
        if let received @ Some(_) = self.look(ctx) {
            return received;
        }
        // Tasks of this side, and connection events, are pending now.
        if let pending @ Some(_) = self.take_pending() {
            return pending;
        }
        if self.state.borrow().uses_network {
            self.state.borrow_mut().send_queued();
        }
        None
    }

    fn devices(&self) -> Vec<DeviceUse> {
        vec![DeviceUse::of_device(&self.device)]
    }

    fn flush(&self, ctx: &Ctx) {
        let reception = std::mem::take(&mut self.state.borrow_mut().reception);
        self.close_reception(ctx, reception);
        let state = &mut *self.state.borrow_mut();
        for connection in state.connections.drain(..) {
            self.unwatch(ctx, &connection);
            connection.end(Error::ConnectionAborted, &mut state.done);
            state.ended.push(connection);
        }
        state.done.extend(
            state
                .receives
                .drain(..)
                .map(|task| (task, Err(Error::ConnectionAborted))),
        );
        state.change = None;
    }

    fn finish_stop(&self, ctx: &Ctx) -> bool {
        let timer = self.state.borrow_mut().timer.take();
        if let (Some(timer), Ok(pe)) = (timer, ctx.pe()) {
            pe.unwatch(timer.as_fd(), Urgency::Liveness);
        }
        true
    }

    fn on_ready(&self, ctx: &Ctx, token: u32) {
        let (watched, number) = Watched::of(token);
        match watched {
            Watched::Liveness
            | Watched::Handshake
            | Watched::Inbox
            | Watched::Outbox
            | Watched::Lane => {}
            // The next poll finds the messages whose time is over.
            Watched::Timer => return self.stop_timer(),
            Watched::Port => return self.on_port(ctx, number),
            Watched::Caller => return self.on_caller(ctx, number),
        }
        let found = self
            .state
            .borrow()
            .connections
            .iter()
            .find(|connection| connection.id == number)
            .cloned();
        let Some(connection) = found else { return };
        match watched {
            Watched::Handshake => self.on_handshake(ctx, &connection),
            Watched::Inbox | Watched::Outbox | Watched::Lane => connection.on_socket(watched),
            _ => {
                connection.on_socket(watched);
                // Level-triggered: a single report is sufficient.
                self.unwatch(ctx, &connection);
                connection.parts.borrow_mut().broken = true;
            }
        }
    }

    fn arm(&self) {
        self.start_timer();
        for connection in &self.state.borrow().connections {
            let mut parts = connection.parts.borrow_mut();
            let waiting = !parts.queue.is_empty() || parts.remote.is_waiting();
            if let Some(inbox) = &mut parts.inbox {
                inbox.arm();
            }
            if let Some(outbox) = parts.outbox.as_mut().filter(|_| waiting) {
                outbox.arm();
            }
        }
    }

    fn disarm(&self) {
        self.stop_timer();
        for connection in &self.state.borrow().connections {
            let mut parts = connection.parts.borrow_mut();
            if let Some(inbox) = &mut parts.inbox {
                inbox.disarm();
            }
            if let Some(outbox) = &mut parts.outbox {
                outbox.disarm();
            }
        }
    }
}

/// Creates a timer that wakes the context's engine.
fn new_timer(ctx: &Ctx) -> Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let token = Watched::Timer.token(0);
    ctx.pe()?
        .watch(timer.as_fd(), ctx, token, Urgency::Liveness)?;
    Ok(timer)
}

/// Sets a timer; zero stops it.
fn set_timer(timer: &OwnedFd, after: Duration) {
    let never = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = Itimerspec {
        it_interval: never,
        it_value: Timespec::try_from(after).unwrap_or(never),
    };
    // Cannot fail for a valid timer and time. Without it the engine sleeps for its usual milliseconds.
    let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
}

/// Callbacks of the program for connection events.
#[derive(Clone, Copy, Default)]
pub(crate) struct ConnectionCallbacks {
    pub(crate) request: doca_rdma_connection_request_cb_t,
    pub(crate) established: doca_rdma_connection_established_cb_t,
    pub(crate) failure: doca_rdma_connection_failure_cb_t,
    pub(crate) disconnection: doca_rdma_connection_disconnection_cb_t,
}

/// All properties. The caller must check that the instance is idle.
struct Config {
    /// Rights of peers, `doca_access_flag` values.
    permissions: Cell<u32>,
    transport_type: Cell<doca_rdma_transport_type>,
    max_connections: Cell<u16>,
    /// Maximum number of bufs in the local list of a task that acts on a connection.
    send_list_len: Cell<u32>,
    /// Maximum number of bufs in the list of a receive.
    receive_list_len: Cell<u32>,
    fabric: Fabric,
    callbacks: Cell<ConnectionCallbacks>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            permissions: Cell::new(DOCA_ACCESS_FLAG_LOCAL_READ_WRITE),
            transport_type: Cell::new(DOCA_RDMA_TRANSPORT_TYPE_RC),
            max_connections: Cell::new(1),
            send_list_len: Cell::new(limits::BUF_LIST_LEN),
            receive_list_len: Cell::new(limits::BUF_LIST_LEN),
            fabric: Fabric::default(),
            callbacks: Cell::default(),
        }
    }
}

/// Network properties. Most have no effect without a network: they are validated, stored, and returned by the getters.
pub(crate) struct Fabric {
    pub(crate) gid_index: Cell<u32>,
    /// As set by the program.
    pub(super) send_queue_size: Cell<Option<u32>>,
    pub(crate) recv_queue_size: Cell<u32>,
    pub(crate) mtu: Cell<doca_mtu_size>,
    pub(crate) grh_enabled: Cell<u8>,
    pub(crate) service_level: Cell<u32>,
    pub(crate) rnr_retry_count: Cell<u8>,
    /// Milliseconds.
    pub(crate) request_timeout: Cell<u16>,
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            gid_index: Cell::new(0),
            send_queue_size: Cell::new(None),
            recv_queue_size: Cell::new(DEFAULT_QUEUE_SIZE),
            mtu: Cell::new(DOCA_MTU_SIZE_1K_BYTES),
            grh_enabled: Cell::new(1),
            service_level: Cell::new(0),
            rnr_retry_count: Cell::new(limits::RNR_RETRIES),
            request_timeout: Cell::new(2000),
        }
    }
}

impl Config {
    fn set_permissions(&self, permissions: u32) -> Result<()> {
        const ALLOWED: u32 = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
            | DOCA_ACCESS_FLAG_RDMA_READ
            | DOCA_ACCESS_FLAG_RDMA_WRITE
            | DOCA_ACCESS_FLAG_RDMA_ATOMIC;
        if permissions & !ALLOWED != 0 {
            return Err(Error::InvalidValue.because(format_args!(
                "expected local and RDMA access flags ({ALLOWED:#x} at most) as permissions of an RDMA instance, got {permissions:#x}"
            )));
        }
        self.permissions.set(permissions);
        Ok(())
    }

    fn set_transport_type(&self, transport_type: doca_rdma_transport_type) -> Result<()> {
        check_transport_type(transport_type)?;
        self.transport_type.set(transport_type);
        Ok(())
    }

    /// Checks that connections are established by address.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for dynamic connections, which use exported details.
    fn expect_reliable(&self) -> Result<()> {
        if self.transport_type.get() == DOCA_RDMA_TRANSPORT_TYPE_RC {
            return Ok(());
        }
        Err(Error::NotSupported.because(
            "RDMA instances with dynamic connections (DOCA_RDMA_TRANSPORT_TYPE_DC) connect by doca_rdma_export and doca_rdma_connect, not by address",
        ))
    }

    fn set_send_list_len(&self, len: u32) -> Result<()> {
        self.send_list_len.set(list_len(len)?);
        Ok(())
    }

    fn set_receive_list_len(&self, len: u32) -> Result<()> {
        self.receive_list_len.set(list_len(len)?);
        Ok(())
    }

    fn set_max_connections(&self, max_connections: u16) -> Result<()> {
        if max_connections == 0 {
            return Err(
                Error::NotSupported.because("expected room for at least 1 connection, got 0")
            );
        }
        self.max_connections.set(max_connections);
        Ok(())
    }
}

/// Checks that the transport type is supported.
///
/// # Errors
/// [`Error::NotSupported`] for any but reliable and dynamic connections.
pub(crate) fn check_transport_type(transport_type: doca_rdma_transport_type) -> Result<()> {
    if matches!(
        transport_type,
        DOCA_RDMA_TRANSPORT_TYPE_RC | DOCA_RDMA_TRANSPORT_TYPE_DC
    ) {
        return Ok(());
    }
    Err(Error::NotSupported.because(format_args!(
        "softdoca has RDMA transport types {DOCA_RDMA_TRANSPORT_TYPE_RC} (reliable connection) and {DOCA_RDMA_TRANSPORT_TYPE_DC} (dynamic connection), not {transport_type}"
    )))
}

impl Fabric {
    pub(crate) fn set_gid_index(&self, index: u32) -> Result<()> {
        self.gid_index
            .set(at_most("a GID index", index, limits::GIDS - 1)?);
        Ok(())
    }

    pub(crate) fn set_send_queue_size(&self, size: u32) -> Result<()> {
        self.send_queue_size.set(Some(queue_size(size)?));
        Ok(())
    }

    pub(crate) fn set_recv_queue_size(&self, size: u32) -> Result<()> {
        self.recv_queue_size.set(queue_size(size)?);
        Ok(())
    }

    pub(crate) fn set_mtu(&self, mtu: doca_mtu_size) -> Result<()> {
        self.mtu
            .set(at_most("a doca_mtu_size", mtu, DOCA_MTU_SIZE_4K_BYTES)?);
        Ok(())
    }

    pub(crate) fn set_grh_enabled(&self, enabled: u8) -> Result<()> {
        if enabled == 0 {
            return Err(Error::NotSupported.because(
                "the emulated devices are on Ethernet, where packets have a global routing header",
            ));
        }
        self.grh_enabled.set(at_most("0 or 1", enabled, 1)?);
        Ok(())
    }

    pub(crate) fn set_service_level(&self, level: u32) -> Result<()> {
        self.service_level
            .set(at_most("a service level", level, limits::SERVICE_LEVEL)?);
        Ok(())
    }

    pub(crate) fn set_rnr_retry_count(&self, count: u8) -> Result<()> {
        self.rnr_retry_count
            .set(at_most("a retry count", count, limits::RNR_RETRIES)?);
        Ok(())
    }

    /// Time for which a message waits for a receive of its peer; `None` for ever.
    pub(super) fn patience(&self) -> Option<Duration> {
        match self.rnr_retry_count.get() {
            limits::RNR_RETRIES => None,
            count => Some(limits::RNR_TIMER * u32::from(count)),
        }
    }

    pub(crate) fn set_request_timeout(&self, milliseconds: u16) -> Result<()> {
        self.request_timeout.set(milliseconds);
        Ok(())
    }
}

fn at_most<T: PartialOrd + Display + Copy>(what: &str, value: T, limit: T) -> Result<T> {
    if value > limit {
        return Err(Error::InvalidValue.because(format_args!(
            "expected {what}, at most {limit}, got {value}"
        )));
    }
    Ok(value)
}

fn queue_size(size: u32) -> Result<u32> {
    if size == 0 || size > limits::QUEUE_SIZE {
        let error = match size {
            0 => Error::InvalidValue,
            _ => Error::NotSupported,
        };
        return Err(error.because(format_args!(
            "expected a queue size between 1 and {}, got {size}",
            limits::QUEUE_SIZE
        )));
    }
    Ok(size.next_power_of_two())
}

fn list_len(len: u32) -> Result<u32> {
    if len == 0 || len > limits::BUF_LIST_LEN {
        return Err(Error::InvalidValue.because(format_args!(
            "expected between 1 and {} bufs in a list, got {len}",
            limits::BUF_LIST_LEN
        )));
    }
    Ok(len)
}

/// Limits of every emulated device.
pub(crate) mod limits {
    use std::time::Duration;

    /// Maximum number of bufs in a list.
    pub(crate) const BUF_LIST_LEN: u32 = 32;
    /// Maximum message size in bytes, according to the guide.
    pub(crate) const MESSAGE_SIZE: u32 = 1 << 31;
    pub(crate) const QUEUE_SIZE: u32 = 1 << 15;
    /// Size of the GID table: the link-local GID, and that of the IPv4 address.
    pub(crate) const GIDS: u32 = 2;
    pub(super) const SERVICE_LEVEL: u32 = 15;
    /// Retries without end, as defined by InfiniBand.
    pub(super) const RNR_RETRIES: u8 = 7;
    /// Time between retries: the longest that InfiniBand defines, because a process that posts receives may have to wait
    /// for a CPU.
    pub(super) const RNR_TIMER: Duration = Duration::from_micros(655_360);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused() {
        let config = Config::default();
        assert_eq!(config.set_permissions(0b1111), Ok(()));
        assert_eq!(config.set_permissions(0b1_0000), Err(Error::InvalidValue));
        assert_eq!(config.permissions.get(), 0b1111);
        assert_eq!(config.set_transport_type(2), Err(Error::NotSupported));
        assert_eq!(config.set_max_connections(0), Err(Error::NotSupported));
        assert_eq!(config.max_connections.get(), 1);
        let fabric = &config.fabric;
        assert_eq!(fabric.set_gid_index(2), Err(Error::InvalidValue));
        assert_eq!(fabric.set_send_queue_size(0), Err(Error::InvalidValue));
        assert_eq!(fabric.set_recv_queue_size(32_769), Err(Error::NotSupported));
        assert_eq!(fabric.set_mtu(5), Err(Error::InvalidValue));
        assert_eq!(fabric.set_grh_enabled(0), Err(Error::NotSupported));
        assert_eq!(fabric.set_grh_enabled(2), Err(Error::InvalidValue));
        assert_eq!(fabric.set_service_level(16), Err(Error::InvalidValue));
        assert_eq!(fabric.set_rnr_retry_count(8), Err(Error::InvalidValue));
        assert_eq!(config.set_send_list_len(33), Err(Error::InvalidValue));
        assert_eq!(config.set_receive_list_len(0), Err(Error::InvalidValue));
    }
}
