//! An RDMA instance: what its context does.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::{doca_data, doca_rdma_connection, doca_rdma_transport_type};

use super::blob::ConnectionDetails;
use super::config::{Config, ConnectionCallbacks};
use super::connection::{Connection, Done, News, State};
use super::task::{Operation, Receive, Work};
use super::transport::shared_memory::{SharedInbox, SharedOutbox};
use crate::agent::AgentAddress;
use crate::buffer::BufHandle;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, CtxState, Driver, Event, Started, Task, TaskOf, TaskPool, Urgency};

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) receive: TaskPool,
    pub(crate) send: TaskPool,
    pub(crate) send_immediate: TaskPool,
    pub(crate) read: TaskPool,
    pub(crate) write: TaskPool,
    pub(crate) write_immediate: TaskPool,
}

impl Pools {
    fn of(&self, operation: Operation, immediate: bool) -> &TaskPool {
        match (operation, immediate) {
            (Operation::Send, false) => &self.send,
            (Operation::Send, true) => &self.send_immediate,
            (Operation::Read, _) => &self.read,
            (Operation::Write, false) => &self.write,
            (Operation::Write, true) => &self.write_immediate,
        }
    }

    /// Tasks of this side that can be in flight.
    fn work_limit(&self) -> usize {
        [
            &self.send,
            &self.send_immediate,
            &self.read,
            &self.write,
            &self.write_immediate,
        ]
        .iter()
        .map(|pool| pool.limit() as usize)
        .sum()
    }
}

/// The driver of RDMA contexts.
pub(crate) struct Rdma {
    /// Stays open as long as the instance exists.
    _device: Arc<Device>,
    config: Config,
    pools: Pools,
    state: RefCell<Instance>,
}

/// What changes while an instance runs.
#[derive(Default)]
struct Instance {
    connections: Vec<Rc<Connection>>,
    next_id: u32,
    /// Receive tasks that wait for a message, of whatever connection.
    receives: VecDeque<NonNull<Task>>,
    /// Tasks that have ended.
    done: VecDeque<Done>,
    /// Calls of the program's functions about connections.
    calls: VecDeque<Box<dyn FnOnce()>>,
    /// The last connection has failed.
    broken: bool,
    /// Which connection is looked at first, so that none starves the others.
    turn: usize,
}

/// How a connection ends, as far as the program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// This side wants it, or the peer has ended it in good order.
    Orderly,
    /// The peer has died or broken the protocol.
    Failure,
}

impl Rdma {
    /// A context for an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Ctx::new(Self {
            _device: device,
            config: Config::default(),
            pools: Pools::default(),
            state: RefCell::default(),
        })
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Sets what peers may do.
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

    pub(crate) fn set_gid_index(&self, ctx: &Ctx, gid_index: u32) -> Result<()> {
        ctx.expect_idle("the GID index is set")?;
        self.config.gid_index.set(gid_index);
        Ok(())
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

    /// Makes a connection whose details the peer can use at once.
    ///
    /// # Errors
    /// [`Error::BadState`] before the start, [`Error::Full`] when the instance has all its connections.
    pub(crate) fn export(&self, ctx: &Ctx) -> Result<Rc<Connection>> {
        expect_running(ctx, "a connection is exported")?;
        let pe = ctx.pe()?;
        let mut state = self.state.borrow_mut();
        let open = state
            .connections
            .iter()
            .filter(|connection| connection.state() != State::Ended)
            .count();
        let max = usize::from(self.config.max_connections.get());
        if open >= max {
            return Err(Error::Full.because(format_args!(
                "the RDMA instance has {open} connections, and was configured for {max} (doca_rdma_set_max_num_connections)"
            )));
        }
        let mut inbox = SharedInbox::offer(self.pools.receive.limit() as usize, pe.wake())?;
        let details = ConnectionDetails {
            permissions: self.config.permissions.get(),
            agent: AgentAddress::local()?,
            key: inbox.key(),
        };
        super::transport::Inbox::post(&mut inbox, state.receives.len() as u64);
        let connection = Rc::new(Connection::new(
            state.next_id,
            ctx,
            &details,
            Box::new(inbox),
            self.pools.work_limit(),
        ));
        state.next_id = state.next_id.wrapping_add(1);
        state.connections.push(Rc::clone(&connection));
        Ok(connection)
    }

    /// The connection behind a handle, if it is one of this instance.
    pub(crate) fn connection(&self, handle: *const Connection) -> Result<Rc<Connection>> {
        self.state
            .borrow()
            .connections
            .iter()
            .find(|connection| Rc::as_ptr(connection) == handle)
            .cloned()
            .ok_or_else(|| {
                Error::InvalidValue
                    .because("expected a connection of this RDMA instance, got another pointer")
            })
    }

    /// Connects with the peer that exported `details`. Its program need not be awake.
    ///
    /// # Errors
    /// Those of [`ConnectionDetails::decode`], [`Error::BadState`] when the connection is connected,
    /// [`Error::AlreadyExist`] when another peer has used the details, [`Error::ConnectionAborted`] when the peer has
    /// gone.
    pub(crate) fn connect(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        details: &[u8],
    ) -> Result<()> {
        expect_running(ctx, "a connection is made")?;
        if connection.state() != State::Exported {
            return Err(Error::BadState.because(format_args!(
                "expected a fresh connection from doca_rdma_export, its state is {:?}",
                connection.state()
            )));
        }
        let details = ConnectionDetails::decode(details)?;
        let pe = ctx.pe()?;
        let outbox = SharedOutbox::claim(&details.agent, details.key, pe.wake()).map_err(
            |error| match error {
                Error::AlreadyExist => error.because(
                    "the RDMA connection details were used already: each connection needs an export of its own",
                ),
                Error::NotFound | Error::ConnectionReset => Error::ConnectionAborted
                    .because("the RDMA peer has gone, or has ended the connection"),
                error => error,
            },
        )?;
        pe.watch(
            super::transport::Outbox::liveness(&outbox),
            ctx,
            connection.id,
            Urgency::Liveness,
        )?;
        connection.connect(Box::new(outbox), details.permissions);
        let callback = self.config.callbacks.get().established;
        self.call_later(ctx, connection, callback);
        // What was submitted before runs with the next progress.
        pe.wake().ring();
        Ok(())
    }

    /// Ends a connection: its tasks fail.
    pub(crate) fn disconnect(&self, ctx: &Ctx, connection: &Rc<Connection>) -> Result<()> {
        if connection.state() == State::Ended {
            return Err(Error::NotConnected.because("the connection has ended already"));
        }
        self.end(ctx, connection, Ending::Orderly);
        Ok(())
    }

    fn call_later(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        callback: Option<unsafe extern "C" fn(*mut doca_rdma_connection, doca_data, doca_data)>,
    ) {
        let Some(callback) = callback else { return };
        let (connection, user_data) = (Rc::clone(connection), ctx.user_data());
        self.state.borrow_mut().calls.push_back(Box::new(move || {
            let handle = Rc::as_ptr(&connection).cast_mut().cast();
            // SAFETY: the program gave the callback for connections of this instance; this one lives.
            unsafe { callback(handle, connection.user_data(), user_data) };
        }));
    }

    fn end(&self, ctx: &Ctx, connection: &Rc<Connection>, ending: Ending) {
        self.unwatch(ctx, connection);
        let was_connected = connection.state() == State::Connected;
        {
            let mut state = self.state.borrow_mut();
            let error = match ending {
                Ending::Orderly => Error::ConnectionReset,
                Ending::Failure => Error::ConnectionAborted,
            };
            // A task that fails for want of a peer is fatal, as on a reliable connection of hardware.
            let failed = connection.end(error, &mut state.done) || ending == Ending::Failure;
            let alone = state
                .connections
                .iter()
                .all(|connection| connection.state() == State::Ended);
            state.broken |= failed && alone;
        }
        let callbacks = self.config.callbacks.get();
        let callback = if was_connected {
            callbacks.disconnection
        } else {
            callbacks.failure
        };
        self.call_later(ctx, connection, callback);
    }

    fn unwatch(&self, ctx: &Ctx, connection: &Connection) {
        let parts = connection.parts.borrow();
        if let (Some(outbox), Ok(pe)) = (&parts.outbox, ctx.pe()) {
            pe.unwatch(outbox.liveness(), Urgency::Liveness);
        }
    }

    /// A task that acts on a connection.
    pub(crate) fn allocate_work(
        &self,
        ctx: &Ctx,
        connection: *const Connection,
        operation: Operation,
        (source, destination): (Option<BufHandle>, Option<BufHandle>),
        immediate: Option<u32>,
        user_data: doca_data,
    ) -> Result<NonNull<TaskOf<Work>>> {
        let connection = self.connection(connection)?;
        let work = Work::new(operation, connection, source, destination, immediate);
        self.pools
            .of(operation, immediate.is_some())
            .allocate(ctx, work, user_data)
    }

    /// A task that waits for a message.
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

    /// The next connection that has news. Ends in `None` after one look at each.
    fn look(&self, ctx: &Ctx) -> Option<Event> {
        loop {
            let (connection, news) = {
                let mut state = self.state.borrow_mut();
                let state = &mut *state;
                let count = state.connections.len();
                let mut found = None;
                for step in 0..count {
                    let index = (state.turn + step) % count;
                    let connection = &state.connections[index];
                    match connection.advance(&mut state.receives, &mut state.done) {
                        News::None => {}
                        News::Received((task, result)) => {
                            state.turn = (index + 1) % count;
                            return Some(Event::Task(task, result));
                        }
                        news => {
                            found = Some((Rc::clone(connection), news));
                            break;
                        }
                    }
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

    fn take_pending(&self) -> Option<Event> {
        let mut state = self.state.borrow_mut();
        // First: a program that resubmits failed tasks is then told that the context stops.
        if std::mem::take(&mut state.broken) {
            return Some(Event::Broken);
        }
        if let Some((task, result)) = state.done.pop_front() {
            return Some(Event::Task(task, result));
        }
        state.calls.pop_front().map(Event::Call)
    }
}

fn expect_running(ctx: &Ctx, what: &str) -> Result<()> {
    match ctx.state() {
        CtxState::Starting | CtxState::Running => Ok(()),
        state => Err(Error::BadState.because(format_args!(
            "{what} while the context runs; its state is {state:?}"
        ))),
    }
}

impl Driver for Rdma {
    fn start(&self, _ctx: &Ctx) -> Result<Started> {
        let receives = self.pools.receive.limit() as usize;
        let mut state = self.state.borrow_mut();
        // Connections of the last run have kept their handles until here.
        *state = Instance {
            // Nothing is allocated on the data path.
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
            work.body
                .connection
                .submit(task, &work.body, &mut state.done);
            return Ok(());
        }
        if task.downcast::<Receive>().is_none() {
            return Err(Error::InvalidValue);
        }
        state.receives.push_back(NonNull::from(task));
        for connection in &state.connections {
            if let Some(inbox) = &mut connection.parts.borrow_mut().inbox {
                inbox.post(1);
            }
        }
        Ok(())
    }

    fn next_event(&self, ctx: &Ctx) -> Option<Event> {
        self.take_pending().or_else(|| {
            // Tasks of this side, and ends of connections, are pending afterwards.
            self.look(ctx).or_else(|| self.take_pending())
        })
    }

    fn flush(&self, ctx: &Ctx) {
        let connections = self.state.borrow().connections.clone();
        for connection in connections {
            self.unwatch(ctx, &connection);
            connection.end(Error::ConnectionAborted, &mut self.state.borrow_mut().done);
        }
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
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
        let found = self
            .state
            .borrow()
            .connections
            .iter()
            .find(|connection| connection.id == token)
            .cloned();
        if let Some(connection) = found {
            // It hangs up for good: one report is enough.
            self.unwatch(ctx, &connection);
            connection.parts.borrow_mut().peer_lost = true;
        }
    }

    fn arm(&self) {
        for connection in &self.state.borrow().connections {
            let mut parts = connection.parts.borrow_mut();
            let waiting = !parts.queue.is_empty();
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
