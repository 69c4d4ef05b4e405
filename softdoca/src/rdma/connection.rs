//! A connection: two directions, each with its own transport endpoint.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use doca_abi::doca_data;

use super::address::Address;
use super::blob::ConnectionDetails;
use super::over_network::Remote;
use super::pending::Handshake;
use super::receiving::Assembly;
use super::task::{Stage, Work};
use super::transport::{ConnectionInbox, ConnectionOutbox, Inbox as _, Peer};
use crate::agent::is_held_up;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task};

/// A completed task whose completion has not been delivered.
pub(super) type Done = (NonNull<Task>, Result<()>);

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its details are exported; the peer may already send.
    Exported,
    /// Being established by address: nothing arrives before both sides know of it.
    Negotiating,
    /// Connected.
    Connected,
    /// Ended: tasks fail.
    Ended,
}

/// A connection of an instance, which owns it. A `struct doca_rdma_connection *` points to one.
pub(crate) struct Connection {
    /// Identifies the connection within its instance.
    pub(super) id: u32,
    /// The instance's context, which outlives its connections.
    ctx: NonNull<Ctx>,
    user_data: Cell<doca_data>,
    state: Cell<State>,
    /// The exported details; the program reads them through a pointer.
    details: Box<[u8]>,
    /// Address it was connected to, released at its end, after which the program may destroy it. For a connection
    /// requested by a peer, the peer's address, which is kept.
    address: RefCell<Option<Arc<Address>>>,
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
    /// The peer has died, or a message was incomplete: received data is delivered, and then the connection ends.
    pub(super) broken: bool,
    /// A task of this side failed because the peer no longer exists.
    failed: bool,
    /// Requests to memory on another machine.
    pub(super) remote: Remote,
}

/// Result of an attempt to run a submitted task.
pub(super) enum Attempt {
    /// The task waits for a receive of the peer or for space.
    Waits,
    /// Its request was sent: it completes with the reply.
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
    /// The peer has died or violated the protocol.
    Lost,
}

impl Connection {
    pub(super) fn new(
        id: u32,
        ctx: &Ctx,
        details: &ConnectionDetails,
        inbox: Box<ConnectionInbox>,
        queue_size: usize,
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
            handshake: RefCell::default(),
            parts: RefCell::new(Parts {
                inbox: Some(inbox),
                outbox: None,
                peer_permissions: 0,
                queue: VecDeque::with_capacity(queue_size),
                assembly: None,
                broken: false,
                failed: false,
                remote: Remote::default(),
            }),
        }
    }

    pub(crate) fn ctx(&self) -> &Ctx {
        // SAFETY: the context owns its driver, which owns its connections; tasks that refer to a connection are freed
        // before their context is.
        unsafe { self.ctx.as_ref() }
    }

    /// The exported details.
    pub(crate) fn details(&self) -> &[u8] {
        &self.details
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.get() == State::Ended
    }

    /// The address it was connected to, or that of the requesting peer.
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

    /// Queues a task of this side; runs it at once if the queue is empty.
    ///
    /// Of several copies, only the first runs at once: while the program has completions to collect, and so will make
    /// progress soon, further ones are queued, and their sources prefetched. A single copy is complete when this
    /// returns, so that a program that then waits for another event sees the effect, as with a device.
    pub(super) fn submit(&self, task: &Task, work: &Work, done: &mut VecDeque<Done>) {
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
            return;
        }
        match self.attempt(task, work, parts) {
            Attempt::Done(result) => done.push_back((task, result)),
            Attempt::Waits => parts.queue.push_back(task),
            Attempt::Issued => {}
        }
    }

    /// Runs tasks of this side until one must wait, or one has copied: its completion must not wait for the other
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

    /// Runs a task of this side, if the queue is empty.
    #[inline]
    pub(super) fn attempt(&self, task: NonNull<Task>, work: &Work, parts: &mut Parts) -> Attempt {
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
        match super::sending::run(work, outbox, parts.peer_permissions) {
            Err(Error::Again) => Attempt::Waits,
            Err(error) if work.stage.get() == Stage::Sending => {
                // The peer waits for the rest, and would take the next message for it.
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
        match super::receiving::receive(self, parts, receives) {
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
        let can_receive = parts.assembly.is_some() || !receives.is_empty();
        parts.peer(can_receive)
    }

    /// Ends the connection: the peer sees it closed, and every task on it fails with `error`. Returns `true` if any
    /// task failed.
    /// failed by its end.
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
    /// State change of the peer, if there is nothing else to report.
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
        // Data sent before the disconnection is delivered first. Checked after the disconnection was seen, so no more
        // can arrive.
        match self.inbox.as_mut().map(|inbox| inbox.peek()) {
            Some(Ok(Some(_))) if can_receive || matches!(news, News::Closed) => News::None,
            Some(Err(_)) => News::Lost,
            _ => news,
        }
    }
}
