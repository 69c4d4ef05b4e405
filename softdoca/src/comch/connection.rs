//! One connection of a client and a server.
//!
//! The context that made it (server or client) receives for it, on one thread. Everything else may be done by any
//! thread: consumers and producers are created, started and stopped wherever the program likes. The lock guards only
//! what the control path changes; the data path takes its endpoints out once and looks at two flags.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doca_abi::doca_data;

use super::frame::Frame;
use super::limits::{MAX_CONSUMERS, MAX_ID, max_remote_consumers};
use super::local_consumer::LocalConsumer;
use super::remote_consumer::RemoteConsumer;
use super::traffic::Traffic;
use crate::error::{Error, Result};
use crate::progress::Ctx;
use crate::ring::EventFd;
use crate::runtime::Socket;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// State that the connections of one context share: it records that frames wait for a full socket.
#[derive(Debug)]
pub(super) struct Outbound {
    /// The eventfd of the context's engine.
    wake: Arc<EventFd>,
    stalled: AtomicBool,
}

impl Outbound {
    pub(super) fn new(wake: Arc<EventFd>) -> Arc<Self> {
        Arc::new(Self {
            wake,
            stalled: AtomicBool::new(false),
        })
    }

    /// True once after a connection kept frames back.
    pub(super) fn take_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) && self.stalled.swap(false, Ordering::Acquire)
    }
}

/// Progress of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendState {
    Waiting,
    Sent,
    /// The connection ended first.
    Failed,
}

/// A connection. A `struct doca_comch_connection *` points to one.
#[derive(Debug)]
pub(crate) struct Connection {
    side: Side,
    socket: Socket,
    /// One end of a socket pair that nobody ever writes to: it hangs up when the peer dies or closes, and so tells
    /// threads that have no business with the messages on [`Self::socket`].
    lifeline: OwnedFd,
    /// The server's or client's context; null when that has been destroyed.
    ctx: AtomicPtr<Ctx>,
    user_data: AtomicU64,
    /// Largest control message in bytes.
    max_message: AtomicU32,
    /// The peer has gone, or this end has closed.
    lost: AtomicBool,
    /// The program has been told of its end, or is not going to be.
    told: AtomicBool,
    /// Frames handed to the socket.
    sent: AtomicU64,
    /// `true` if the engine looks at the socket when it can be written.
    waits_for_room: AtomicBool,
    traffic: Traffic,
    outbound: Arc<Outbound>,
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Frames that the socket has not taken, oldest first.
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Frames given to [`Connection::send`] so far.
    queued: u64,
    /// Consumers of the peer, by id.
    remote: HashMap<u32, Arc<RemoteConsumer>>,
    /// Running consumers of this end, by id.
    local: HashMap<u32, Arc<LocalConsumer>>,
    /// Ids given to consumers and producers of this end.
    ids: HashSet<u32>,
    next_id: u32,
}

/// Handles are used by any thread.
const _: () = {
    const fn assert_shared<T: Send + Sync>() {}
    assert_shared::<Connection>();
};

impl Connection {
    pub(super) fn new(
        side: Side,
        socket: Socket,
        lifeline: OwnedFd,
        ctx: &Ctx,
        max_message: u32,
        outbound: &Arc<Outbound>,
    ) -> Arc<Self> {
        Arc::new(Self {
            side,
            socket,
            lifeline,
            ctx: AtomicPtr::new(std::ptr::from_ref(ctx).cast_mut()),
            user_data: AtomicU64::new(0),
            max_message: AtomicU32::new(max_message),
            lost: AtomicBool::new(false),
            told: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            waits_for_room: AtomicBool::new(false),
            traffic: Traffic::default(),
            outbound: Arc::clone(outbound),
            shared: Mutex::new(Shared {
                outbox: VecDeque::new(),
                queued: 0,
                remote: HashMap::new(),
                local: HashMap::new(),
                ids: HashSet::new(),
                next_id: first_id(side),
            }),
        })
    }

    /// The context of this connection if it is of that side; null otherwise.
    pub(crate) fn ctx_of(&self, side: Side) -> *mut Ctx {
        if self.side == side {
            self.ctx.load(Ordering::Acquire)
        } else {
            std::ptr::null_mut()
        }
    }

    /// The context is about to go away.
    pub(super) fn forget_ctx(&self) {
        self.ctx.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// The program is about to be told that the connection has ended, or is not going to be.
    pub(super) fn set_told(&self) {
        self.told.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the program knows that the connection has ended. Until then it may use the handle, and looks for its context.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    pub(crate) fn user_data(&self) -> doca_data {
        doca_data {
            u64: self.user_data.load(Ordering::Acquire),
        }
    }

    pub(crate) fn set_user_data(&self, data: doca_data) {
        // SAFETY: both fields are eight plain bytes, and every bit pattern is an integer.
        self.user_data.store(unsafe { data.u64 }, Ordering::Release);
    }

    /// Counters of messages sent and received.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Updates what the program sees of [`Self::traffic`].
    pub(crate) fn update_traffic(&self) -> Result<()> {
        if self.is_lost() {
            return Err(Error::ConnectionAborted.because("the connection has ended"));
        }
        self.traffic.update();
        Ok(())
    }

    /// Ends the connection in good order: both contexts find it ended, and tell their programs.
    pub(crate) fn disconnect(&self) -> Result<()> {
        let shared = self.lock();
        if !shared.ids.is_empty() {
            return Err(Error::InUse.because(format_args!(
                "the connection has {} consumers and producers; destroy them first",
                shared.ids.len()
            )));
        }
        if !shared.outbox.is_empty() {
            return Err(Error::Again);
        }
        drop(shared);
        self.shut_down();
        Ok(())
    }

    pub(super) fn max_message(&self) -> u32 {
        self.max_message.load(Ordering::Relaxed)
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// A descriptor of its own that hangs up when the connection ends.
    pub(super) fn lifeline(&self) -> Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.lifeline, 3)?)
    }

    /// The connection is over: nothing will be received or sent any more.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Ends the connection for everybody who uses it, in every thread. What has arrived on the socket can still be read.
    pub(super) fn lose(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            // Wakes all consumers and producers of this process, and the peer's.
            let _ = rustix::net::shutdown(&self.lifeline, rustix::net::Shutdown::Both);
        }
    }

    /// Ends the connection for everybody, in both processes: its context, too, will find it ended.
    pub(super) fn shut_down(&self) {
        self.lose();
        self.socket.shut_down();
    }

    /// Ends the connection and forgets what was still to be sent.
    pub(super) fn close(&self) {
        self.shut_down();
        self.lock().outbox.clear();
    }

    /// Sends a frame after all others, now or when the socket takes it. Answers the number that [`Self::state_of`]
    /// takes.
    pub(super) fn send(&self, frame: &Frame<'_>, descriptors: Vec<OwnedFd>) -> u64 {
        let mut shared = self.lock();
        self.send_locked(&mut shared, frame, descriptors)
    }

    fn send_locked(
        &self,
        shared: &mut Shared,
        frame: &Frame<'_>,
        descriptors: Vec<OwnedFd>,
    ) -> u64 {
        shared.outbox.push_back((frame.encode(), descriptors));
        shared.queued += 1;
        self.flush_locked(shared);
        if !shared.outbox.is_empty() {
            // The context's thread tries again, and may sleep: another thread's frame must not wait for that.
            self.outbound.wake.ring();
        }
        shared.queued
    }

    /// Tries again to send what a full socket did not take. As long as it takes no more, the engine looks at the socket,
    /// which is watched with `token`, when it can be written: an engine that sleeps must not keep frames back.
    pub(super) fn flush(&self, ctx: &Ctx, token: u32) {
        let mut shared = self.lock();
        self.flush_locked(&mut shared);
        let waits = !shared.outbox.is_empty() && !self.is_lost();
        drop(shared);
        if self.waits_for_room.swap(waits, Ordering::Relaxed) != waits
            && let Ok(pe) = ctx.pe()
        {
            pe.watch_output(self.socket.as_fd(), ctx, token, waits);
        }
    }

    fn flush_locked(&self, shared: &mut Shared) {
        while let Some((bytes, descriptors)) = shared.outbox.front() {
            let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            match self.socket.send(bytes, &descriptors) {
                Ok(()) => {
                    shared.outbox.pop_front();
                    self.sent.fetch_add(1, Ordering::Release);
                }
                Err(Error::Again | Error::NoMemory) => {
                    self.outbound.stalled.store(true, Ordering::Release);
                    return;
                }
                Err(_) => {
                    shared.outbox.clear();
                    self.lose();
                }
            }
        }
    }

    /// Progress of the frame with this number.
    pub(super) fn state_of(&self, number: u64) -> SendState {
        if self.sent.load(Ordering::Acquire) >= number {
            SendState::Sent
        } else if self.is_lost() {
            // Lost first, sent then: a frame may have gone out just before the end.
            match self.sent.load(Ordering::Acquire) >= number {
                true => SendState::Sent,
                false => SendState::Failed,
            }
        } else {
            SendState::Waiting
        }
    }

    /// Nothing waits for room in the socket.
    pub(super) fn is_flushed(&self) -> bool {
        self.lock().outbox.is_empty()
    }

    /// A new id for a consumer or producer of this end. Ids of the two ends never meet: servers give odd ones.
    pub(super) fn allocate_id(&self) -> Result<u32> {
        let mut shared = self.lock();
        if shared.ids.len() >= 2 * MAX_CONSUMERS {
            return Err(Error::NoMemory.because(format_args!(
                "the connection has {} consumers and producers already",
                shared.ids.len()
            )));
        }
        loop {
            let id = shared.next_id;
            shared.next_id = match id + 2 {
                next if next <= MAX_ID => next,
                _ => first_id(self.side),
            };
            if shared.ids.insert(id) {
                return Ok(id);
            }
        }
    }

    pub(super) fn release_id(&self, id: u32) {
        self.lock().ids.remove(&id);
    }

    /// Makes a consumer of this end known to the peer. `descriptors` are its ring and its engine's eventfd.
    pub(super) fn announce(
        &self,
        consumer: &Arc<LocalConsumer>,
        max_message: usize,
        descriptors: Vec<OwnedFd>,
    ) -> Result<()> {
        if self.is_lost() {
            return Err(Error::NotConnected.because("the connection has ended"));
        }
        let mut shared = self.lock();
        if shared.local.len() >= MAX_CONSUMERS {
            return Err(Error::NoMemory.because(format_args!(
                "the connection has {MAX_CONSUMERS} consumers already"
            )));
        }
        shared.local.insert(consumer.id(), Arc::clone(consumer));
        let frame = Frame::ConsumerAdded {
            id: consumer.id(),
            max_message: u32::try_from(max_message).unwrap_or(u32::MAX),
        };
        self.send_locked(&mut shared, &frame, descriptors);
        Ok(())
    }

    /// Tells the peer that a consumer of this end takes no more messages.
    pub(super) fn retract(&self, id: u32) {
        let mut shared = self.lock();
        if shared.local.remove(&id).is_some() && !self.is_lost() {
            self.send_locked(&mut shared, &Frame::ConsumerExpired { id }, Vec::new());
        }
    }

    pub(super) fn local_consumer(&self, id: u32) -> Option<Arc<LocalConsumer>> {
        self.lock().local.get(&id).cloned()
    }

    /// A consumer of the peer that takes messages.
    pub(super) fn remote_consumer(&self, id: u32) -> Option<Arc<RemoteConsumer>> {
        self.lock().remote.get(&id).cloned()
    }

    /// Checks that the peer may add a consumer of this id.
    pub(super) fn check_new_remote(&self, id: u32) -> std::result::Result<(), String> {
        let remote = &self.lock().remote;
        let peers_ids_are_odd = self.side == Side::Client;
        if !(1..=MAX_ID).contains(&id) || (id % 2 == 1) != peers_ids_are_odd {
            return Err(format!("{id} cannot be the id of one of its consumers"));
        }
        if remote.contains_key(&id) {
            return Err(format!("its consumer {id} is announced twice"));
        }
        let most = max_remote_consumers();
        if remote.len() >= most {
            return Err(format!(
                "it has more than {most} consumers, which the limit of descriptors of this process allows"
            ));
        }
        Ok(())
    }

    pub(super) fn add_remote(&self, consumer: Arc<RemoteConsumer>) {
        self.lock().remote.insert(consumer.id(), consumer);
    }

    /// A consumer of the peer expires. False when there is none of this id.
    pub(super) fn expire_remote(&self, id: u32) -> bool {
        let consumer = self.lock().remote.remove(&id);
        consumer.is_some_and(|consumer| {
            consumer.expire();
            true
        })
    }

    /// All consumers of the peer expire; their ids in ascending order.
    pub(super) fn expire_all_remote(&self) -> Vec<u32> {
        let remote = std::mem::take(&mut self.lock().remote);
        let mut ids: Vec<u32> = remote
            .into_values()
            .map(|consumer| {
                consumer.expire();
                consumer.id()
            })
            .collect();
        ids.sort_unstable();
        ids
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing under the lock can leave it half changed.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Servers count 1, 3, 5 …, clients 2, 4, 6 …
fn first_id(side: Side) -> u32 {
    match side {
        Side::Server => 1,
        Side::Client => 2,
    }
}
