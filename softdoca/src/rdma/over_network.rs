//! Connections to peers on other machines: differences from connections on one machine.
//!
//! A read or write of memory on another machine is sent over the connection's [`Lane`] and completes with the reply;
//! several may be outstanding, and complete in order. All other tasks of the connection wait for them: a message sent
//! after a write is received after it. If both sides have an RDMA device with which the memory is registered, the
//! access is a request to the device instead, with the same ordering.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use super::by_address::Watched;
use super::connection::{Attempt, Connection, Done, Parts};
use super::task;
use super::task::{Operation, Stage, Work};
use super::transport::network::{NetworkInbox, NetworkOutbox};
use super::transport::shared_memory::Arrival;
use super::transport::verbs::{VerbsInbox, VerbsOutbox};
use super::transport::{ConnectionInbox, ConnectionOutbox, Outbox as _, Peer};
use crate::agent::Lane;
use crate::error::{Error, Result};
use crate::progress::{Task, Urgency};
use crate::verbs::Opcode;

/// Number of parts of requests that are batched before they are sent.
const ENOUGH: usize = 48;

/// Requests to memory on another machine.
#[derive(Default)]
pub(super) struct Remote {
    lane: Option<Lane>,
    /// Outstanding requests, in order: all over the lane, or all through the RDMA device.
    sent: VecDeque<Sent>,
    by_device: bool,
    /// `true` if the last request must complete before any other task starts; its task is still at the head of the
    /// connection's queue.
    barrier: bool,
    /// Sockets watched for output: the sender's and the lane's.
    blocked: [bool; 2],
}

struct Sent {
    task: NonNull<Task>,
    /// Size of its payload in bytes.
    len: usize,
}

impl Remote {
    /// Returns `true` if requests are outstanding.
    pub(super) fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Takes the tasks of outstanding requests, which have failed.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = NonNull<Task>> {
        // After the lane is closed, no further data is written to memory.
        self.lane = None;
        let is_queued = std::mem::take(&mut self.barrier);
        let mut sent = std::mem::take(&mut self.sent);
        if is_queued {
            sent.pop_back();
        }
        sent.into_iter().map(|sent| sent.task)
    }
}

impl Parts {
    /// Returns `true` if the peer is on another machine.
    #[inline]
    pub(super) fn is_remote(&self) -> bool {
        let outbox = self.outbox.as_deref();
        matches!(
            outbox,
            Some(ConnectionOutbox::Network(_) | ConnectionOutbox::Verbs(_))
        )
    }

    fn network_outbox(&mut self) -> Option<&mut NetworkOutbox> {
        match self.outbox.as_deref_mut() {
            Some(ConnectionOutbox::Network(outbox)) => Some(outbox),
            _ => None,
        }
    }

    /// End of the connection, from that of the sending direction. A clean end takes effect only once the peer's
    /// messages have also ended.
    pub(super) fn end_of_sender(&mut self, receiver: Option<Peer>) -> Option<Peer> {
        match (receiver, &self.inbox) {
            (Some(Peer::Closed), Some(inbox)) if !inbox.has_ended() => None,
            (receiver, _) => receiver,
        }
    }
}

impl Connection {
    /// Returns `true` if the peer that has accepted the offer is on another machine.
    #[cold]
    pub(super) fn adopt(&self, parts: &mut Parts, arrival: Arrival, posted: usize) -> Result<()> {
        let Some(inbox) = parts.inbox.take() else {
            return Ok(());
        };
        let ConnectionInbox::Shared(offered) = *inbox else {
            return Err(Error::Unexpected);
        };
        let (offered, stream, granted) = (Box::new(offered), arrival.stream, arrival.granted);
        let inbox = match arrival.verbs {
            None => {
                let inbox = NetworkInbox::new(offered, (stream, granted), posted)?;
                ConnectionInbox::Network(inbox)
            }
            Some(accepted) => {
                let inbox = VerbsInbox::new(offered, stream, granted, accepted, posted)?;
                ConnectionInbox::Verbs(inbox)
            }
        };
        let ctx = self.ctx();
        for socket in inbox.sockets().into_iter().flatten() {
            let token = Watched::Inbox.token(self.id);
            ctx.pe()?.watch(socket, ctx, token, inbox.urgency())?;
        }
        parts.inbox = Some(Box::new(inbox));
        Ok(())
    }

    /// Completes a pending connection of a peer, if there is one. Called before another receive is posted; `posted` is
    /// the number of receives posted so far.
    pub(super) fn adopt_waiting(&self, posted: usize) {
        let mut parts = self.parts.borrow_mut();
        let parts = &mut *parts;
        if let Some(ConnectionInbox::Shared(inbox)) = parts.inbox.as_deref()
            && let Some(stream) = inbox.take_stream()
            && self.adopt(parts, stream, posted).is_err()
        {
            parts.broken = true;
        }
    }

    /// Runs a task of this side, as [`attempt`](Connection::attempt).
    #[inline(never)]
    pub(super) fn attempt_remote(
        &self,
        task: NonNull<Task>,
        work: &Work,
        parts: &mut Parts,
    ) -> Attempt {
        if parts.remote.barrier {
            return Attempt::Waits;
        }
        let permissions = parts.peer_permissions;
        if work.stage.get() == Stage::Waiting {
            match self.issue(task, work, parts, permissions) {
                Ok(true) => return Attempt::Issued,
                Ok(false) => {}
                Err(Error::Again) => return Attempt::Waits,
                // Completions are in order.
                Err(_) if !parts.remote.sent.is_empty() => return Attempt::Waits,
                Err(error) => return Attempt::Done(Err(error)),
            }
        }
        if !parts.remote.sent.is_empty() {
            return Attempt::Waits;
        }
        let run = match parts.outbox.as_deref_mut() {
            Some(ConnectionOutbox::Network(outbox)) => task::run(work, outbox, permissions),
            Some(ConnectionOutbox::Verbs(outbox)) => task::run(work, outbox, permissions),
            _ => return Attempt::Waits,
        };
        match run {
            Err(Error::Again) => Attempt::Waits,
            Err(error) => {
                // The peer expects the remaining fragments of a message, and would interpret the next message as these.
                parts.broken |= work.stage.get() == Stage::Sending;
                Attempt::Done(Err(error))
            }
            Ok(()) => Attempt::Done(Ok(())),
        }
    }

    /// Sends a request for memory on another machine; returns `false` for any other task, and for
    /// atomics over TCP.
    fn issue(
        &self,
        task: NonNull<Task>,
        work: &Work,
        parts: &mut Parts,
        permissions: u32,
    ) -> Result<bool> {
        if let Some(ConnectionOutbox::Verbs(outbox)) = parts.outbox.as_deref_mut() {
            if issue_to_device(task, work, outbox, &mut parts.remote, permissions)? {
                return Ok(true);
            }
            let remote = &mut parts.remote;
            if remote.by_device && remote.is_waiting() {
                return Err(Error::Again);
            }
            remote.by_device = false;
        }
        let Some(access) = task::remote_access(work, permissions)? else {
            return Ok(false);
        };
        let has_immediate = work.operation == Operation::WriteImmediate;
        if has_immediate {
            if !parts.remote.sent.is_empty() {
                return Err(Error::Again);
            }
            // As in hardware, no data is written before the peer can receive the immediate value.
            let outbox = parts.outbox.as_deref_mut();
            if !outbox.is_some_and(ConnectionOutbox::reserve_receive) {
                return Err(Error::Again);
            }
        }
        let remote = &mut parts.remote;
        if let Some(lane) = &remote.lane
            && !access.offer.is_of(lane.process())
        {
            // Memory of another process than that of the previous requests.
            if !remote.sent.is_empty() {
                return Err(Error::Again);
            }
            self.close_lane(remote);
        }
        if remote.lane.is_none() {
            let lane = Lane::open(&access.offer).map_err(|error| match error {
                Error::ConnectionReset => Error::NotFound,
                error => error,
            })?;
            let ctx = self.ctx();
            let token = Watched::Lane.token(self.id);
            ctx.pe()?
                .watch(lane.as_fd(), ctx, token, Urgency::Message)?;
            remote.lane = Some(lane);
        }
        let lane = remote.lane.as_mut().ok_or(Error::Unexpected)?;
        // SAFETY: the task and its bufs are in flight until the reply or the end of the lane.
        unsafe { access.send(lane) };
        remote.sent.push_back(Sent {
            task,
            len: access.len,
        });
        if has_immediate {
            remote.barrier = true;
            // The task remains in the queue for its message.
            return Err(Error::Again);
        }
        if lane.unsent() >= ENOUGH {
            // An error is reported by the next reply.
            let _ = lane.flush();
        }
        Ok(true)
    }

    fn close_lane(&self, remote: &mut Remote) {
        if let (Some(lane), Ok(pe)) = (remote.lane.take(), self.ctx().pe()) {
            pe.unwatch(lane.as_fd(), Urgency::Message);
        }
    }

    /// Handles replies. An error ends the connection.
    pub(super) fn take_replies(&self, parts: &mut Parts, done: &mut VecDeque<Done>) -> Result<()> {
        let mut is_fatal = false;
        let remote = &mut parts.remote;
        if let Some(ConnectionOutbox::Verbs(outbox)) = parts.outbox.as_deref_mut() {
            // This also polls completions of messages.
            outbox.poll();
            while let Some(reply) = outbox.next_reply() {
                let sent = remote.sent.pop_front().ok_or(Error::Unexpected)?;
                // SAFETY: tasks with outstanding requests are in flight, and tasks in flight are not freed.
                let work = unsafe { sent.task.as_ref() }.downcast::<Work>();
                let work = &work.ok_or(Error::Unexpected)?.body;
                let result = reply.and_then(|value| task::finish_access(work, sent.len, value));
                is_fatal |= result.is_err() && work.operation.is_atomic();
                done.push_back((sent.task, result));
            }
        }
        if is_fatal {
            self.fail(parts);
            return Ok(());
        }
        let Some(lane) = &mut remote.lane else {
            return Ok(());
        };
        while let Some(reply) = lane.next_reply()? {
            let Some(sent) = remote.sent.pop_front() else {
                return Err(Error::Unexpected);
            };
            // SAFETY: tasks with outstanding requests are in flight, and tasks in flight are not freed.
            let work = unsafe { sent.task.as_ref() }.downcast::<Work>();
            let work = &work.ok_or(Error::Unexpected)?.body;
            let result = reply.and_then(|value| task::finish_access(work, sent.len, value));
            if work.operation == Operation::WriteImmediate {
                remote.barrier = false;
                if result.is_ok() {
                    work.stage.set(Stage::Written);
                    continue;
                }
                parts.queue.pop_front();
            }
            done.push_back((sent.task, result));
        }
        Ok(())
    }

    /// Sends queued output, and watches sockets that are full.
    pub(super) fn send_queued(&self, parts: &mut Parts) {
        if let Some(inbox) = &mut parts.inbox {
            inbox.flush();
        }
        let mut blocked = [false; 2];
        if let Some(outbox) = parts.network_outbox() {
            blocked[0] = !outbox.flush();
        }
        if let Some(lane) = &mut parts.remote.lane {
            // An error is reported by the next reply.
            blocked[1] = !lane.flush().unwrap_or(true);
        }
        if blocked != parts.remote.blocked
            && let Ok(pe) = self.ctx().pe()
        {
            let (ctx, before) = (self.ctx(), parts.remote.blocked);
            let socket = parts.network_outbox().and_then(|outbox| outbox.socket());
            if let (Some(socket), true) = (socket, blocked[0] != before[0]) {
                pe.watch_output(socket, ctx, Watched::Outbox.token(self.id), blocked[0]);
            }
            if let (Some(lane), true) = (&parts.remote.lane, blocked[1] != before[1]) {
                pe.watch_output(lane.as_fd(), ctx, Watched::Lane.token(self.id), blocked[1]);
            }
            parts.remote.blocked = blocked;
        }
    }

    /// Handles readiness of a socket of the connection.
    pub(super) fn on_socket(&self, watched: Watched) {
        let mut parts = self.parts.borrow_mut();
        let parts = &mut *parts;
        let pe = self.ctx().pe();
        // Level-triggered, so its end would be reported repeatedly.
        let unwatch = |socket: Option<BorrowedFd<'_>>, urgency: Urgency| {
            if let (Ok(pe), Some(socket)) = (&pe, socket) {
                pe.unwatch(socket, urgency);
            }
        };
        match watched {
            Watched::Inbox => {
                if let Some(inbox) = &mut parts.inbox {
                    let urgency = inbox.urgency();
                    unwatch(inbox.set_readable(), urgency);
                }
            }
            Watched::Outbox => {
                if let Some(outbox) = &mut parts.outbox {
                    let urgency = outbox.urgency();
                    unwatch(outbox.set_readable(), urgency);
                }
            }
            Watched::Lane => {
                if let Some(lane) = &mut parts.remote.lane {
                    lane.set_readable();
                    // Without outstanding requests, only the end of the lane can be received.
                    if lane.outstanding() == 0 && lane.is_closed() {
                        self.close_lane(&mut parts.remote);
                    }
                }
            }
            _ => {
                if let Some(inbox) = &mut parts.inbox {
                    inbox.set_readable();
                }
                if let Some(outbox) = &mut parts.outbox {
                    outbox.set_readable();
                }
            }
        }
        self.send_queued(parts);
    }

    /// Removes the sockets of an ending connection from the engine.
    pub(super) fn unwatch_sockets(&self) {
        let mut parts = self.parts.borrow_mut();
        let parts = &mut *parts;
        let Ok(pe) = self.ctx().pe() else { return };
        if let Some(inbox) = &parts.inbox {
            for socket in inbox.sockets().into_iter().flatten() {
                pe.unwatch(socket, inbox.urgency());
            }
        }
        if let Some(outbox) = &parts.outbox {
            for socket in outbox.sockets().into_iter().flatten() {
                pe.unwatch(socket, outbox.urgency());
            }
        }
        if let Some(lane) = &parts.remote.lane {
            pe.unwatch(lane.as_fd(), Urgency::Message);
        }
    }
}

/// As [`Connection::issue`], to the RDMA device; returns `false` if the memory is not registered with the device.
fn issue_to_device(
    task: NonNull<Task>,
    work: &Work,
    outbox: &mut VerbsOutbox,
    remote: &mut Remote,
    permissions: u32,
) -> Result<bool> {
    // Requests over the lane are processed first.
    let is_free = remote.by_device || !remote.is_waiting();
    let len = if let Some(change) = task::remote_change(work, permissions)? {
        if !outbox.reaches(&change.offer, change.key) {
            return Ok(false);
        }
        if !is_free {
            return Err(Error::Again);
        }
        outbox.change(
            change.opcode,
            change.operands,
            (change.addr, change.key.rkey),
        )?;
        0
    } else if let Some(access) = task::remote_access(work, permissions)? {
        let Some(request) = access.for_device(outbox) else {
            return Ok(false);
        };
        // As in hardware, no data is written before the peer can receive the immediate value.
        let has_immediate = work.operation == Operation::WriteImmediate;
        if !is_free || has_immediate && !outbox.reserve_receive() {
            return Err(Error::Again);
        }
        let (opcode, immediate) = match work.operation {
            Operation::Read => (Opcode::Read, 0),
            Operation::WriteImmediate => (Opcode::WriteImmediate, work.immediate.get()),
            _ => (Opcode::Write, 0),
        };
        // SAFETY: the task and its bufs are in flight until the reply or the end of the connection.
        unsafe { outbox.access(opcode, request.pieces(), immediate, request.remote) }?;
        access.len
    } else {
        return Ok(false);
    };
    remote.by_device = true;
    remote.sent.push_back(Sent { task, len });
    Ok(true)
}
