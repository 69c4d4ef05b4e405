//! An RDMA instance: the driver of its context.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::{doca_data, doca_rdma_transport_type};

use super::by_address::{Reception, Watched};
use super::config::{Config, ConnectionCallbacks, Fabric};
use super::connection::{Connection, Done, Ending, News};
use super::task::{Arguments, Operation, Pools, Receive, Work};
use super::transport::Inbox as _;
use super::transport::shared_memory::SharedMemory;
use crate::agent::{is_held_up, is_in_progress, nic_for_connections, uses_network};
use crate::buffer::BufHandle;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Driver, Event, Started, Task, TaskOf};

/// The driver of RDMA contexts.
pub(crate) struct Rdma {
    /// Open for the lifetime of the instance.
    pub(super) device: Arc<Device>,
    pub(super) config: Config,
    pub(super) pools: Pools,
    pub(super) state: RefCell<Instance>,
}

/// State that changes while an instance runs.
#[derive(Default)]
pub(super) struct Instance {
    /// `None` before the first start.
    transport: Option<SharedMemory>,
    pub(super) connections: Vec<Rc<Connection>>,
    /// Ended connections, kept for the program's handles. Released when the instance starts again or is destroyed.
    pub(super) ended: Vec<Rc<Connection>>,
    pub(super) next_id: u32,
    /// Posted receive tasks, for any connection.
    pub(super) receives: VecDeque<NonNull<Task>>,
    /// Completed tasks.
    pub(super) done: VecDeque<Done>,
    /// Pending connection callbacks of the program.
    pub(super) calls: VecDeque<Box<dyn FnOnce()>>,
    /// Listening ports.
    pub(super) reception: Reception,
    /// The last connection has failed.
    pub(super) broken: bool,
    /// `true` if there may be a connection to another machine, with queued output.
    pub(super) uses_network: bool,
    /// Connection that is polled first, for fairness.
    turn: usize,
}

impl Instance {
    /// Sends queued output to peers on other machines.
    #[cold]
    fn send_queued(&mut self) {
        for connection in &self.connections {
            connection.send_queued(&mut connection.parts.borrow_mut());
        }
    }

    pub(super) fn transport(&self) -> Result<&SharedMemory> {
        self.transport.as_ref().ok_or(Error::BadState)
    }
}

impl Rdma {
    /// Creates a context for an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Ctx::new(Self {
            device,
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

    /// Maximum length of the local list of a task that acts on a connection.
    pub(crate) fn send_list_len(&self) -> u32 {
        self.config.send_list_len.get()
    }

    pub(crate) fn set_send_list_len(&self, ctx: &Ctx, len: u32) -> Result<()> {
        ctx.expect_idle("the length of lists is set")?;
        self.config.set_send_list_len(len)
    }

    /// Maximum length of the list of a receive.
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
        let work = Work::new(operation, self.connection(connection)?, arguments);
        self.pools.of(operation).allocate(ctx, work, user_data)
    }

    /// Creates a receive task.
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
                    // Avoids a division: this runs for every message.
                    if index >= count {
                        index = 0;
                    }
                    let connection = &state.connections[index];
                    match connection.advance(&mut state.receives, &mut state.done) {
                        // Waits for agents of other processes have taken too long: the other connections are first
                        // next time.
                        News::None if is_held_up() => {
                            state.turn = index + 1;
                            return None;
                        }
                        News::None => {}
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

    #[inline]
    fn take_pending(&self) -> Option<Event> {
        let mut state = self.state.borrow_mut();
        if state.calls.is_empty() && !state.broken {
            let (task, result) = state.done.pop_front()?;
            return Some(Event::Task(task, result));
        }
        if let Some(call) = state.calls.pop_front() {
            return Some(Event::Connection(call));
        }
        // Before the failed tasks: a program that submits them again then gets the error that the context is stopping.
        if std::mem::take(&mut state.broken) {
            return Some(Event::Broken);
        }
        let (task, result) = state.done.pop_front()?;
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
        let mut state = self.state.borrow_mut();
        // Connections of the last run were kept until now for their handles.
        *state = Instance {
            transport: Some(transport),
            uses_network: uses_network()?,
            // Avoids allocation on the data path.
            receives: VecDeque::with_capacity(receives),
            done: VecDeque::with_capacity(receives + self.pools.work_limit()),
            next_id: state.next_id,
            ..Instance::default()
        };
        Ok(Started::Running)
    }

    fn submit(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(work) = task.downcast::<Work>() {
            work.body.check_lists(self.config.send_list_len.get())?;
            let done = &mut state.done;
            work.body
                .with_connection(|connection| connection.submit(task, &work.body, done))
                .ok_or(Error::Unexpected)?;
            if state.uses_network && !is_in_progress() {
                state.send_queued();
            }
            return Ok(());
        }
        let receive = &task.downcast::<Receive>().ok_or(Error::InvalidValue)?.body;
        receive.check_list(self.config.receive_list_len.get())?;
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
        state.broken = false;
    }

    fn finish_stop(&self, _ctx: &Ctx) -> bool {
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
                // Level-triggered: one report is enough.
                self.unwatch(ctx, &connection);
                connection.parts.borrow_mut().broken = true;
            }
        }
    }

    fn arm(&self) {
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
