//! Connections: two directions, each with its own transport endpoint; their establishment from exported
//! details ([`ConnectionDetails`]), and their end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doca_abi::{doca_data, doca_rdma_connection};

use super::by_address::{Address, Handshake, Watched};
use super::over_network::Remote;
use super::task::{Assembly, Stage, Work};
use super::transport::{ConnectionInbox, ConnectionOutbox, Inbox as _, Peer};
use super::{Change, Connecting, Rdma};
use crate::agent::{AgentAddress, NetworkOffer, Route, is_held_up};
use crate::error::{Error, Result};
use crate::progress::{Ctx, CtxState, Task, Urgency};
use crate::runtime::Key;

/// A completed task whose completion has not been delivered.
pub(super) type Done = (NonNull<Task>, Result<()>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The details are exported; the peer may already send.
    Exported,
    /// Being established by address: no data arrives before both sides have been notified.
    Negotiating,
    Connected,
    /// Ended: tasks fail.
    Ended,
}

/// A connection, owned by its instance. A `struct doca_rdma_connection *` points to a `Connection`.
pub(crate) struct Connection {
    /// Identifies the connection within its instance.
    pub(super) id: u32,
    /// The instance's context, which outlives its connections.
    ctx: NonNull<Ctx>,
    user_data: Cell<doca_data>,
    state: Cell<State>,
    /// The exported details, which the program reads through a pointer.
    details: Box<[u8]>,
    /// Address to which it was connected, released at the end of the connection, after which the program may destroy
    /// it. For a connection requested by a peer, the peer's address, which is kept.
    address: RefCell<Option<Arc<Address>>>,
    /// Maximum number of tasks in the send queue.
    send_queue_size: u32,
    /// Tasks of this side that were submitted, and whose completions the program has not received.
    in_send_queue: Cell<u32>,
    /// Time for which a message waits for a receive of the peer; `None` for ever.
    patience: Option<Duration>,
    /// A task has failed such that the context stops.
    is_fatal: Cell<bool>,
    pub(super) handshake: RefCell<Option<Handshake>>,
    pub(super) parts: RefCell<Parts>,
}

/// State that changes while a connection is in use.
pub(super) struct Parts {
    /// Receiving endpoint; `None` after the end.
    pub(super) inbox: Option<Box<ConnectionInbox>>,
    /// Sending endpoint; `None` before it is connected and after the end.
    pub(super) outbox: Option<Box<ConnectionOutbox>>,
    /// Rights granted by the peer's instance, `doca_access_flag` values.
    pub(super) peer_permissions: u32,
    /// Tasks in the order of their submission, all in flight.
    pub(super) queue: VecDeque<NonNull<Task>>,
    /// The message being received.
    pub(super) assembly: Option<Assembly>,
    /// The peer has exited, or a message was incomplete: received data is delivered, and then the connection ends.
    pub(super) broken: bool,
    /// A task of this side failed because the peer no longer exists.
    failed: bool,
    not_ready: NotReady,
    /// Requests to memory on another machine.
    pub(super) remote: Remote,
}

/// A message of this side that waits for a receive of the peer. It starts to wait when it is the first task of the queue.
#[derive(Default)]
struct NotReady {
    since: Option<Instant>,
}

impl NotReady {
    /// Returns `true` if a message that finds no receive `now` has waited for the time.
    fn has_waited(&mut self, patience: Duration, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) >= patience
    }
}

/// Result of an attempt to run a submitted task.
pub(super) enum Attempt {
    /// The task waits for a receive of the peer or for space.
    Waits,
    /// The request of the task was sent; the task completes with the reply.
    Issued,
    Done(Result<()>),
}

/// Result of polling a connection.
pub(super) enum News {
    /// No event for the program; tasks of this side may have completed.
    None,
    /// A receive task has completed.
    Received(Done),
    /// The peer has closed the connection.
    Closed,
    /// The peer has exited or violated the protocol.
    Lost,
    /// A task of this side has failed such that the context stops.
    Fatal,
}

impl Connection {
    pub(super) fn new(
        id: u32,
        ctx: &Ctx,
        details: &ConnectionDetails,
        inbox: Box<ConnectionInbox>,
        tasks: usize,
        (send_queue_size, patience): (u32, Option<Duration>),
        by_address: bool,
    ) -> Self {
        let state = if by_address {
            State::Negotiating
        } else {
            State::Exported
        };
        Self {
            id,
            ctx: NonNull::from(ctx),
            user_data: Cell::new(doca_data { u64: 0 }),
            state: Cell::new(state),
            details: details.encode().into(),
            address: RefCell::default(),
            send_queue_size,
            in_send_queue: Cell::new(0),
            patience,
            is_fatal: Cell::new(false),
            handshake: RefCell::default(),
            parts: RefCell::new(Parts {
                inbox: Some(inbox),
                outbox: None,
                peer_permissions: 0,
                queue: VecDeque::with_capacity(tasks.min(send_queue_size as usize)),
                assembly: None,
                broken: false,
                failed: false,
                not_ready: NotReady::default(),
                remote: Remote::default(),
            }),
        }
    }

    pub(crate) fn ctx(&self) -> &Ctx {
        // SAFETY: the context owns its driver, which owns its connections; tasks that refer to a connection are freed
        // before their context is.
        unsafe { self.ctx.as_ref() }
    }

    pub(crate) fn details(&self) -> &[u8] {
        &self.details
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.get() == State::Ended
    }

    /// The address to which it was connected, or the address of the requesting peer.
    pub(crate) fn address(&self) -> Option<Arc<Address>> {
        self.address.borrow().clone()
    }

    pub(super) fn set_address(&self, address: Arc<Address>) {
        self.address.replace(Some(address));
    }

    /// Identifies the connection within its instance.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn user_data(&self) -> doca_data {
        self.user_data.get()
    }

    pub(crate) fn set_user_data(&self, data: doca_data) {
        self.user_data.set(data);
    }

    pub(super) fn connect(&self, outbox: Box<ConnectionOutbox>, peer_permissions: u32) {
        let mut parts = self.parts.borrow_mut();
        parts.outbox = Some(outbox);
        parts.peer_permissions = peer_permissions;
        self.state.set(State::Connected);
    }

    /// Queues a task of this side; runs it immediately if the queue is empty.
    ///
    /// Of several copies, only the first one runs immediately: while the program has completions to reap, and will
    /// therefore make progress soon, further copies are queued, and their sources prefetched. A single copy is complete
    /// when this returns, so that its effect is visible to a program that then waits for another event, as with a
    /// device.
    ///
    /// # Errors
    /// [`Error::Full`] if the send queue is full: completed tasks leave it when the program receives their completions.
    pub(super) fn submit(&self, task: &Task, work: &Work, done: &mut VecDeque<Done>) -> Result<()> {
        let in_send_queue = self.in_send_queue.get();
        if in_send_queue >= self.send_queue_size {
            return Err(Error::Full);
        }
        self.in_send_queue.set(in_send_queue + 1);
        work.stage.set(Stage::Waiting);
        work.set_progress(0);
        let mut parts = self.parts.borrow_mut();
        let parts = &mut *parts;
        let task = NonNull::from(task);
        // The queue of an ended connection is not polled.
        let waits = work.operation.copies()
            && (!done.is_empty() || is_held_up())
            && !self.has_ended()
            && !parts.is_remote();
        if waits {
            super::buffers::prefetch(work.source.get().as_deref());
        }
        if waits || !parts.queue.is_empty() {
            parts.queue.push_back(task);
            return Ok(());
        }
        match self.attempt(task, work, parts) {
            Attempt::Done(result) => done.push_back((task, result)),
            Attempt::Waits => parts.queue.push_back(task),
            Attempt::Issued => {}
        }
        Ok(())
    }

    /// Called when the completion of a task of this side is delivered.
    #[inline]
    pub(super) fn leave_send_queue(&self) {
        self.in_send_queue
            .set(self.in_send_queue.get().saturating_sub(1));
    }

    /// Runs tasks of this side until one must wait, or one has copied data: its completion must not wait for other
    /// copies.
    fn run(&self, parts: &mut Parts, done: &mut VecDeque<Done>) {
        while let Some(&head) = parts.queue.front() {
            // SAFETY: queued tasks are in flight, and tasks in flight are not freed.
            let task = unsafe { head.as_ref() };
            let (attempt, copies) = match task.downcast::<Work>() {
                Some(work) => (
                    self.attempt(head, &work.body, parts),
                    work.body.operation.copies(),
                ),
                None => (Attempt::Done(Err(Error::Unexpected)), false),
            };
            let result = match attempt {
                Attempt::Waits => return,
                Attempt::Issued => {
                    parts.queue.pop_front();
                    continue;
                }
                Attempt::Done(result) => result,
            };
            parts.queue.pop_front();
            done.push_back((head, result));
            if copies {
                return;
            }
        }
    }

    /// `true` if a task has failed such that the context stops.
    #[inline]
    pub(super) fn is_fatal(&self) -> bool {
        self.is_fatal.get()
    }

    /// Handles a failure after which the context stops: no further task is run.
    #[cold]
    pub(super) fn fail(&self, parts: &mut Parts) {
        self.is_fatal.set(true);
        parts.broken = true;
    }

    /// Time at which the message that waits for a receive of the peer fails.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let since = self.parts.borrow().not_ready.since?;
        since.checked_add(self.patience?)
    }

    /// Runs a task of this side, if the queue is empty.
    #[inline]
    fn attempt(&self, task: NonNull<Task>, work: &Work, parts: &mut Parts) -> Attempt {
        let attempt = self.attempt_once(task, work, parts);
        match (&attempt, self.patience) {
            (Attempt::Done(Err(_)), _) if work.operation.is_atomic() && !self.has_ended() => {
                self.fail(parts);
            }
            (_, None) => {}
            (Attempt::Waits, Some(patience)) => {
                if self.has_no_receive(work, parts)
                    && parts.not_ready.has_waited(patience, Instant::now())
                {
                    self.fail(parts);
                    return Attempt::Done(Err(Error::IoFailed.because(
                        "the RDMA peer has not posted a receive within the retries (doca_rdma_set_rnr_retry_count)",
                    )));
                }
            }
            _ => parts.not_ready.since = None,
        }
        attempt
    }

    /// Returns `true` if a task that cannot run lacks a receive of the peer.
    #[cold]
    fn has_no_receive(&self, work: &Work, parts: &mut Parts) -> bool {
        let can_start = !parts.broken && !parts.remote.is_waiting();
        work.operation.needs_receive()
            && work.stage.get() == Stage::Waiting
            && can_start
            && (parts.outbox.as_deref_mut()).is_some_and(|outbox| !outbox.reserve_receive())
    }

    /// As [`attempt`](Self::attempt), without the consequences of a failure for the context.
    #[inline]
    fn attempt_once(&self, task: NonNull<Task>, work: &Work, parts: &mut Parts) -> Attempt {
        if self.state.get() == State::Ended {
            return Attempt::Done(Err(Error::ConnectionReset));
        }
        if parts.broken {
            return Attempt::Waits;
        }
        let Some(outbox) = parts.outbox.as_deref_mut() else {
            return Attempt::Waits;
        };
        if outbox.peer() != Peer::Present {
            parts.failed = true;
            return Attempt::Done(Err(Error::ConnectionReset));
        }
        let ConnectionOutbox::Shared(outbox) = outbox else {
            return self.attempt_remote(task, work, parts);
        };
        match super::task::run(work, outbox, parts.peer_permissions) {
            Err(Error::Again) => Attempt::Waits,
            Err(error) if work.stage.get() == Stage::Sending => {
                // The peer expects the remaining fragments, and would interpret the next message as these.
                parts.broken = true;
                Attempt::Done(Err(error))
            }
            result => Attempt::Done(result),
        }
    }

    /// Delivers a received message, or continues with tasks of this side.
    pub(super) fn advance(
        &self,
        receives: &mut VecDeque<NonNull<Task>>,
        done: &mut VecDeque<Done>,
    ) -> News {
        if matches!(self.state.get(), State::Ended | State::Negotiating) {
            return News::None;
        }
        let mut parts = self.parts.borrow_mut();
        let parts = &mut *parts;
        if let Some(ConnectionInbox::Shared(inbox)) = parts.inbox.as_deref()
            && let Some(stream) = inbox.take_stream()
            && self.adopt(parts, stream, receives.len()).is_err()
        {
            return News::Lost;
        }
        match super::task::receive(self, parts, receives) {
            Ok(Some(received)) => return News::Received(received),
            Ok(None) => {}
            Err(_) => return News::Lost,
        }
        if parts.is_remote() && self.take_replies(parts, done).is_err() {
            parts.broken = true;
        }
        if !parts.queue.is_empty() {
            self.run(parts, done);
        }
        if self.is_fatal() {
            return News::Fatal;
        }
        let can_receive = parts.assembly.is_some() || !receives.is_empty();
        parts.peer(can_receive)
    }

    /// Ends the connection: the peer sees it closed, and every task on it fails with `error`. Returns `true` if any
    /// task failed.
    pub(super) fn end(&self, error: Error, done: &mut VecDeque<Done>) -> bool {
        self.state.set(State::Ended);
        self.address
            .borrow_mut()
            .take_if(|address| !address.is_peer());
        let mut parts = self.parts.borrow_mut();
        let before = done.len();
        parts.inbox = None;
        parts.outbox = None;
        let assembly = parts.assembly.take().map(|assembly| assembly.task);
        // The connection is kept for its handle; the memory of its queue is released.
        let queue = std::mem::take(&mut parts.queue);
        let outstanding = parts.remote.give_up();
        let tasks = assembly.into_iter().chain(outstanding).chain(queue);
        done.extend(tasks.map(|task| (task, Err(error))));
        parts.failed || done.len() > before
    }
}

impl Parts {
    /// State change of the peer, if no other event has to be reported.
    fn peer(&mut self, can_receive: bool) -> News {
        let sender = self.inbox.as_mut().map(|inbox| inbox.peer());
        let receiver = self.outbox.as_ref().map(|outbox| outbox.peer());
        let receiver = self.end_of_sender(receiver);
        let news = match (sender, receiver) {
            (Some(Peer::Closed), _) | (_, Some(Peer::Closed)) => News::Closed,
            (Some(Peer::Lost), _) | (_, Some(Peer::Lost)) => News::Lost,
            _ if self.broken => News::Lost,
            _ => return News::None,
        };
        // Data sent before the disconnection is delivered first. Checked after the disconnection was detected, so no
        // further data can arrive.
        match self.inbox.as_mut().map(|inbox| inbox.peek()) {
            Some(Ok(Some(_))) if can_receive || matches!(news, News::Closed) => News::None,
            Some(Err(_)) => News::Lost,
            _ => news,
        }
    }
}

/// Reason for the end of a connection, as reported to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Requested by this side, or closed by the peer.
    Orderly,
    /// The peer has exited or violated the protocol.
    Failure,
}

impl Rdma {
    /// Creates a connection whose details the peer can use immediately. An instance with one connection creates it once
    /// for each start.
    ///
    /// # Errors
    /// [`Error::BadState`] before the start, [`Error::Full`] if the instance has its maximum number of connections.
    pub(crate) fn export(&self, ctx: &Ctx) -> Result<Rc<Connection>> {
        if self.connecting == Connecting::WhileStarting {
            expect_running(ctx, "a connection is made")?;
            let state = self.state.borrow();
            if let Some(connection) = state.connections.iter().chain(&state.ended).next() {
                return Ok(Rc::clone(connection));
            }
        }
        self.offer(ctx, false).map(|(connection, _)| connection)
    }

    /// Creates a connection that any peer with its details can use.
    pub(super) fn offer(
        &self,
        ctx: &Ctx,
        by_address: bool,
    ) -> Result<(Rc<Connection>, ConnectionDetails)> {
        expect_running(ctx, "a connection is made")?;
        let mut state = self.state.borrow_mut();
        let (open, max) = (state.connections.len(), self.config.max_connections.get());
        if open >= usize::from(max) {
            return Err(Error::Full.because(format_args!(
                "the RDMA instance has {open} connections, and was configured for {max} (doca_rdma_set_max_num_connections)"
            )));
        }
        let transport = state.transport()?;
        let (inbox, nic) = (transport.offer(state.receives.len())?, transport.nic());
        let details = ConnectionDetails {
            // One of two small numbers, validated when it was set.
            transport_type: self.config.transport_type.get() as u16,
            permissions: self.config.permissions.get(),
            agent: AgentAddress::local()?,
            key: inbox.key(),
            network: NetworkOffer::of(inbox.key())?.map(|mut offer| {
                offer.verbs = nic.is_some();
                offer
            }),
        };
        let connection = Rc::new(Connection::new(
            state.next_id,
            ctx,
            &details,
            Box::new(ConnectionInbox::Shared(inbox)),
            self.pools.work_limit(),
            (self.send_queue_size(), self.config.fabric.patience()),
            by_address,
        ));
        state.next_id = (state.next_id + 1) % Watched::NUMBERS;
        state.connections.push(Rc::clone(&connection));
        Ok((connection, details))
    }

    /// Returns the connection of a handle, if it belongs to this instance; for NULL, the connection of an instance with
    /// a single one.
    pub(crate) fn connection(
        &self,
        ctx: &Ctx,
        handle: *const Connection,
    ) -> Result<Rc<Connection>> {
        if handle.is_null() && self.connecting == Connecting::WhileStarting {
            return self.export(ctx);
        }
        let state = self.state.borrow();
        let all = state.connections.iter().chain(&state.ended);
        all.into_iter()
            .find(|connection| Rc::as_ptr(connection) == handle)
            .cloned()
            .ok_or_else(|| {
                Error::InvalidValue
                    .because("expected a connection of this RDMA instance, got another pointer")
            })
    }

    /// Connects to the peer that exported `details`. The peer's program may be asleep. With dynamic connections, the
    /// peer need not connect, either: it only receives messages, and its memory is read and written.
    ///
    /// # Errors
    /// [`Error::ConnectionAborted`] for malformed details, and if the peer no longer exists; [`Error::UnsupportedVersion`];
    /// [`Error::InvalidValue`] for details of another transport type, [`Error::BadState`] if the connection is already
    /// connected, [`Error::AlreadyExist`] if another peer has used the details.
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
        let details = ConnectionDetails::decode(details).map_err(|error| match error {
            // The documented error of corrupted details.
            Error::InvalidValue => Error::ConnectionAborted,
            error => error,
        })?;
        let own = self.config.transport_type.get();
        if u32::from(details.transport_type) != own {
            return Err(Error::InvalidValue.because(format_args!(
                "expected details of an RDMA instance of transport type {own}, as this one is, got {}: set the same on both sides",
                details.transport_type
            )));
        }
        let outbox = self.claim(&details)?;
        self.establish(ctx, connection, outbox, details.permissions)
    }

    /// Creates the sending side of a connection from the peer's details.
    pub(super) fn claim(&self, details: &ConnectionDetails) -> Result<ConnectionOutbox> {
        let claimed = match details.route()? {
            Route::Local => self
                .state
                .borrow()
                .transport()?
                .claim(&details.agent, details.key)
                .map(ConnectionOutbox::Shared),
            Route::Network(offer) => {
                let nic = self.state.borrow().transport()?.nic();
                super::transport::verbs::connect(&offer, nic)
            }
        };
        claimed.map_err(|error| match error {
            Error::AlreadyExist => error.because(
                "the RDMA connection details were used already: each connection needs an export of its own",
            ),
            Error::NotFound | Error::ConnectionReset => Error::ConnectionAborted
                .because("the RDMA peer has gone, or has ended the connection"),
            error => error,
        })
    }

    /// Marks the connection as connected: tasks of this side can run.
    pub(super) fn establish(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        outbox: ConnectionOutbox,
        permissions: u32,
    ) -> Result<()> {
        let pe = ctx.pe()?;
        let token = Watched::Liveness.token(connection.id);
        pe.watch(outbox.liveness(), ctx, token, Urgency::Liveness)?;
        for socket in outbox.sockets().into_iter().flatten() {
            let token = Watched::Outbox.token(connection.id);
            pe.watch(socket, ctx, token, outbox.urgency())?;
        }
        connection.connect(Box::new(outbox), permissions);
        let callback = self.config.callbacks.get().established;
        self.call_later(ctx, connection, callback);
        if self.connecting == Connecting::WhileStarting {
            self.state.borrow_mut().change = Some(Change::Started);
        }
        // Tasks submitted before run with the next progress.
        pe.wake().ring();
        Ok(())
    }

    /// Ends a connection: its tasks fail. Has no effect if the connection has already ended: programs disconnect in
    /// response to a disconnection event, some of them more than once, and librdmacm allows it.
    pub(crate) fn disconnect(&self, ctx: &Ctx, connection: &Rc<Connection>) {
        if !connection.has_ended() {
            self.end(ctx, connection, Ending::Orderly);
        }
    }

    /// Ends a connection without further events for the program.
    pub(super) fn forget(&self, ctx: &Ctx, connection: &Rc<Connection>) {
        self.close(ctx, connection, Ending::Orderly);
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
            // SAFETY: the program gave the callback for connections of this instance, which is alive.
            unsafe { callback(handle, connection.user_data(), user_data) };
        }));
    }

    pub(super) fn end(&self, ctx: &Ctx, connection: &Rc<Connection>, ending: Ending) {
        let was_connected = connection.state() == State::Connected;
        self.close(ctx, connection, ending);
        let callbacks = self.config.callbacks.get();
        let callback = if was_connected {
            callbacks.disconnection
        } else if self.config.expect_reliable().is_ok() {
            callbacks.failure
        } else {
            // The target of a dynamic connection was not notified when it was established.
            None
        };
        self.call_later(ctx, connection, callback);
    }

    fn close(&self, ctx: &Ctx, connection: &Rc<Connection>, ending: Ending) {
        self.unwatch(ctx, connection);
        {
            let state = &mut *self.state.borrow_mut();
            let error = match ending {
                Ending::Orderly => Error::ConnectionReset,
                Ending::Failure => Error::ConnectionAborted,
            };
            // A task that fails for lack of a peer is fatal, as on a reliable connection in hardware.
            let failed = connection.end(error, &mut state.done) || ending == Ending::Failure;
            let place = state
                .connections
                .iter()
                .position(|other| Rc::ptr_eq(other, connection));
            if let Some(place) = place {
                // The program may still use the handle.
                state.ended.push(state.connections.remove(place));
            }
            // The connection may have returned receives to the shared pool, for which senders on other connections are
            // waiting.
            for other in &state.connections {
                if let Some(inbox) = &mut other.parts.borrow_mut().inbox {
                    inbox.post(0);
                }
            }
            if failed && state.connections.is_empty() {
                state.change = Some(Change::Broken);
            }
        }
    }

    pub(super) fn unwatch(&self, ctx: &Ctx, connection: &Connection) {
        drop(self.take_handshake(ctx, connection));
        connection.unwatch_sockets();
        let parts = connection.parts.borrow();
        if let (Some(outbox), Ok(pe)) = (&parts.outbox, ctx.pe()) {
            pe.unwatch(outbox.liveness(), Urgency::Liveness);
        }
    }
}

pub(super) fn expect_running(ctx: &Ctx, what: &str) -> Result<()> {
    match ctx.state() {
        CtxState::Starting | CtxState::Running => Ok(()),
        state => Err(Error::BadState.because(format_args!(
            "{what} only while the context is running; its state is {state:?}"
        ))),
    }
}

const MAGIC: [u8; 6] = *b"SDRDMA";
/// Sizes without and with a network offer.
const VERSIONS: [u16; 2] = [1, 2];
/// Transport: rings in shared memory, or equivalent frames over TCP.
const SHARED_MEMORY: u16 = 1;

/// Connection details: the opaque bytes of `doca_rdma_export` that the program sends to its peer.
///
/// ```text
///    0  6 bytes magic, u16 version
///    8  u16 transport
///   10  u16 transport type (`doca_rdma_transport_type`) of the exporting instance
///   12  u32 permissions (`doca_access_flag`) of the exporting instance
///   16  address of the exporter's agent (boot id, key)
///   48  key of the connection
///   64  in version 2: offer to the network ([`NetworkOffer`])
/// ```
///
/// Integers are big endian. No process id is included: knowledge of the key grants the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionDetails {
    /// Transport type of the exporting instance; the peer's instance must have the same.
    pub transport_type: u16,
    /// Rights granted to the peer, `doca_access_flag` values.
    pub permissions: u32,
    /// Agent from which the transport is requested.
    pub agent: AgentAddress,
    /// Key of the transport; can be used once.
    pub key: Key,
    /// Offer for a peer on another machine.
    pub network: Option<NetworkOffer>,
}

impl ConnectionDetails {
    /// Encoded size in bytes without a network offer.
    pub(super) const SIZE: usize = 16 + AgentAddress::SIZE + Key::SIZE;
    /// Largest encoded size in bytes. Programs have buffers of 512.
    pub(super) const LONGEST: usize = Self::SIZE + NetworkOffer::LONGEST;

    /// Route to the peer from this process.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for another machine without a network offer.
    pub(super) fn route(&self) -> Result<Route> {
        self.agent.route(self.network.as_ref())
    }

    pub(super) fn example() -> Result<Self> {
        Ok(Self {
            transport_type: 1,
            permissions: 7,
            agent: AgentAddress::local()?,
            key: Key::from_bytes([7; Key::SIZE]),
            network: None,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        bytes[0..6].copy_from_slice(&MAGIC);
        let version = VERSIONS[usize::from(self.network.is_some())];
        bytes[6..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..10].copy_from_slice(&SHARED_MEMORY.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.transport_type.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.permissions.to_be_bytes());
        bytes[16..16 + AgentAddress::SIZE].copy_from_slice(&self.agent.encode());
        bytes[16 + AgentAddress::SIZE..].copy_from_slice(&self.key.to_bytes());
        if let Some(network) = &self.network {
            bytes.extend_from_slice(&network.encode());
        }
        bytes
    }

    /// Decodes untrusted details.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for malformed details, [`Error::UnsupportedVersion`] for another version,
    /// [`Error::NotSupported`] for another transport or another machine.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let Some((head, rest)) = bytes
            .split_first_chunk::<16>()
            .filter(|(head, _)| head[0..6] == MAGIC)
        else {
            return Err(Error::InvalidValue.because(format_args!(
                "expected RDMA connection details (from doca_rdma_export), got {} other bytes",
                bytes.len()
            )));
        };
        let version = u16::from_be_bytes([head[6], head[7]]);
        if !VERSIONS.contains(&version) {
            return Err(Error::UnsupportedVersion.because(format_args!(
                "the RDMA connection details are of version {version}, expected one of {VERSIONS:?}: run the same softdoca on both sides"
            )));
        }
        let transport = u16::from_be_bytes([head[8], head[9]]);
        if transport != SHARED_MEMORY {
            return Err(Error::NotSupported.because(format_args!(
                "the peer offers RDMA transport {transport}, expected {SHARED_MEMORY} (shared memory)"
            )));
        }
        let whole = |()| {
            Error::InvalidValue.because(format_args!(
                "expected RDMA connection details of {} bytes, and an offer to the network in version 2, got {} bytes",
                Self::SIZE,
                bytes.len()
            ))
        };
        let (rest, offer) = rest
            .split_at_checked(Self::SIZE - head.len())
            .unwrap_or((rest, &[]));
        let network = match version == VERSIONS[1] {
            true => Some(
                NetworkOffer::decode(offer)
                    .ok_or(())
                    .map_err(|()| whole(()))?,
            ),
            false if offer.is_empty() => None,
            false => return Err(whole(())),
        };
        let (agent, key) = rest
            .split_at_checked(AgentAddress::SIZE)
            .unwrap_or((rest, &[]));
        let agent = AgentAddress::decode(agent.try_into().map_err(|_| whole(()))?);
        let key = Key::from_bytes(key.try_into().map_err(|_| whole(()))?);
        agent.route(network.as_ref())?;
        Ok(Self {
            transport_type: u16::from_be_bytes([head[10], head[11]]),
            permissions: u32::from_be_bytes([head[12], head[13], head[14], head[15]]),
            agent,
            key,
            network,
        })
    }
}

/// Decodes connection details and encodes them again.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    ConnectionDetails::decode(bytes).map(|details| details.encode())
}

/// Valid details of a nonexistent connection.
pub(crate) fn examples() -> Result<Vec<Vec<u8>>> {
    let local = ConnectionDetails::example()?;
    let remote = ConnectionDetails {
        network: Some(NetworkOffer::example()),
        ..local
    };
    Ok(vec![local.encode(), remote.encode()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn message_fails_when_it_has_waited_for_all_retries() {
        let (mut not_ready, start) = (NotReady::default(), Instant::now());
        let [at_once, short] = [Duration::ZERO, Duration::from_millis(655)];
        assert!(!not_ready.has_waited(short, start));
        assert!(!not_ready.has_waited(short, start + short / 2));
        assert!(not_ready.has_waited(short, start + short));
        // The next message of the queue waits from its own start.
        not_ready.since = None;
        assert!(!not_ready.has_waited(short, start + short));
        assert!(not_ready.has_waited(short, start + 2 * short));
        not_ready.since = None;
        assert!(not_ready.has_waited(at_once, start), "without retries");
    }

    fn details() -> ConnectionDetails {
        ConnectionDetails {
            transport_type: 1,
            permissions: 0x0000_0007,
            agent: AgentAddress::local().expect("an address"),
            key: Key::from_bytes([7; Key::SIZE]),
            network: None,
        }
    }

    #[test]
    fn connection_details_round_trip_within_512_bytes() {
        let bytes = details().encode();
        assert_eq!(ConnectionDetails::decode(&bytes), Ok(details()));
        const { assert!(ConnectionDetails::LONGEST <= 512) };
        let remote = ConnectionDetails {
            network: Some(NetworkOffer::example()),
            ..details()
        };
        let mut bytes = remote.encode();
        assert_eq!(ConnectionDetails::decode(&bytes), Ok(remote));
        bytes[17] ^= 1;
        let elsewhere = ConnectionDetails::decode(&bytes).expect("it is reached over the network");
        assert!(matches!(elsewhere.route(), Ok(Route::Network(_))));
        bytes.pop();
        assert_eq!(ConnectionDetails::decode(&bytes), Err(Error::InvalidValue));
    }

    #[test]
    fn errors_distinguish_kinds_of_wrong_details() {
        let bytes = details().encode();
        let changed = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            ConnectionDetails::decode(&bytes)
        };
        assert_eq!(changed(0), Err(Error::InvalidValue));
        assert_eq!(changed(7), Err(Error::UnsupportedVersion));
        assert_eq!(changed(9), Err(Error::NotSupported));
        assert_eq!(
            changed(16),
            Err(Error::NotSupported),
            "another machine's boot id"
        );
        for len in 0..bytes.len() {
            assert_eq!(
                ConnectionDetails::decode(&bytes[..len]),
                Err(Error::InvalidValue),
                "{len} bytes"
            );
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(ConnectionDetails::decode(&longer), Err(Error::InvalidValue));
    }

    proptest! {
        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ConnectionDetails::decode(&bytes).is_err());
        }
    }
}
