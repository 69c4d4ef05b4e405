//! One connection of a client and a server.
//!
//! Its context (server or client) receives on it, in one thread. All other operations may be called from any thread:
//! consumers and producers are created, started and stopped in any threads of the program. The lock protects only state
//! of the control path; the data path looks up its endpoints once and then reads two flags. Frames about a consumer of
//! this process pass through its [`LocalConsumer`] to the consumer's thread.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doca_abi::doca_data;

use super::control::Traffic;
use super::frame::Frame;
use super::producer::RemoteConsumer;
use super::{MAX_CONSUMERS, MAX_ID, max_remote_consumers};
use crate::device::DeviceKey;
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

/// State shared by the connections of one context: `true` if frames are pending because a socket is full.
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

    /// Returns `true` once after a connection has queued frames.
    pub(super) fn take_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) && self.stalled.swap(false, Ordering::Acquire)
    }
}

/// Send state of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendState {
    Waiting,
    Sent,
    /// The connection was closed first.
    Failed,
}

/// A connection. A `struct doca_comch_connection *` points to a `Connection`.
#[derive(Debug)]
pub(crate) struct Connection {
    side: Side,
    socket: Socket,
    /// One end of a socket pair that is never written to: it hangs up when the peer exits or closes it, which notifies
    /// threads that do not read messages from [`Self::socket`].
    lifeline: OwnedFd,
    /// The server's or client's context; NULL after that was destroyed.
    ctx: AtomicPtr<Ctx>,
    /// The device of this end.
    device: DeviceKey,
    user_data: AtomicU64,
    /// Largest control message in bytes.
    max_message: AtomicU32,
    /// The peer has disconnected, or this end was closed.
    lost: AtomicBool,
    /// The end of the connection has been reported to the program, or will never be reported.
    reported: AtomicBool,
    /// Number of frames written to the socket.
    sent: AtomicU64,
    /// `true` while the engine watches the socket for becoming writable.
    waits_for_room: AtomicBool,
    traffic: Traffic,
    outbound: Arc<Outbound>,
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Frames that did not fit into the socket, oldest first.
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Number of frames passed to [`Connection::send`].
    queued: u64,
    /// Consumers of the peer, by id.
    remote: HashMap<u32, Arc<RemoteConsumer>>,
    /// Running consumers of this end, by id.
    local: HashMap<u32, Arc<LocalConsumer>>,
    /// Ids allocated to consumers and producers of this end.
    ids: HashSet<u32>,
    /// Number of consumers and producers of this end that are not idle.
    active: usize,
    next_id: u32,
}

/// Handles may be used from any thread.
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
        device: DeviceKey,
        max_message: u32,
        outbound: &Arc<Outbound>,
    ) -> Arc<Self> {
        Arc::new(Self {
            side,
            socket,
            lifeline,
            ctx: AtomicPtr::new(std::ptr::from_ref(ctx).cast_mut()),
            device,
            user_data: AtomicU64::new(0),
            max_message: AtomicU32::new(max_message),
            lost: AtomicBool::new(false),
            reported: AtomicBool::new(false),
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
                active: 0,
                next_id: first_id(side),
            }),
        })
    }

    /// The context of this connection if it is on that side; NULL otherwise.
    pub(crate) fn ctx_of(&self, side: Side) -> *mut Ctx {
        if self.side == side {
            self.ctx.load(Ordering::Acquire)
        } else {
            std::ptr::null_mut()
        }
    }

    /// Clears the pointer to the context, which is about to be destroyed.
    pub(super) fn forget_ctx(&self) {
        self.ctx.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Records that the end of the connection is now reported to the program, or will never be reported.
    pub(super) fn set_reported(&self) {
        self.reported.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the end of the connection was reported to the program. Until then, the program may use the
    /// handle to look up its context.
    pub(super) fn is_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
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

    /// Updates the counters that the program reads.
    pub(crate) fn update_traffic(&self) -> Result<()> {
        if self.is_lost() {
            return Err(Error::ConnectionAborted.because("the connection has ended"));
        }
        self.traffic.update();
        Ok(())
    }

    /// The device of this end.
    #[inline]
    pub(super) fn device(&self) -> DeviceKey {
        self.device
    }

    /// Closes the connection cleanly: both contexts detect it and notify their programs.
    pub(crate) fn disconnect(&self) -> Result<()> {
        let shared = self.lock();
        if shared.active != 0 {
            return Err(Error::InUse.because(format_args!(
                "the connection has {} active consumers and producers; stop them first",
                shared.active
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

    /// Returns a duplicate descriptor that hangs up when the connection is closed.
    pub(super) fn lifeline(&self) -> Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.lifeline, 3)?)
    }

    /// Returns `true` if the connection is closed: no further message is received or sent.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Marks the connection as closed for all threads. Messages that have arrived in the socket can still be read.
    pub(super) fn lose(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            // Wakes all consumers and producers of this process and of the peer.
            let _ = rustix::net::shutdown(&self.lifeline, rustix::net::Shutdown::Both);
        }
    }

    /// Closes the connection for both processes, including its contexts.
    pub(super) fn shut_down(&self) {
        self.lose();
        self.socket.shut_down();
    }

    /// Closes the connection and discards unsent frames.
    pub(super) fn close(&self) {
        self.shut_down();
        self.lock().outbox.clear();
    }

    /// Queues a frame and sends as many as the socket accepts. Returns the frame's number for [`Self::state_of`].
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
            // The context's thread retries, but may be asleep; it is woken, because this may be another thread.
            self.outbound.wake.ring();
        }
        shared.queued
    }

    /// Retries frames that did not fit into the socket. While some remain, the engine watches the socket (with `token`)
    /// for becoming writable, so that a sleeping engine does not delay frames.
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

    /// Send state of the frame with this number.
    pub(super) fn state_of(&self, number: u64) -> SendState {
        if self.sent.load(Ordering::Acquire) >= number {
            SendState::Sent
        } else if self.is_lost() {
            // `sent` is read again after `lost`: the frame may have been sent just before the close.
            match self.sent.load(Ordering::Acquire) >= number {
                true => SendState::Sent,
                false => SendState::Failed,
            }
        } else {
            SendState::Waiting
        }
    }

    /// Returns `true` if no frame waits for space in the socket.
    pub(super) fn is_flushed(&self) -> bool {
        self.lock().outbox.is_empty()
    }

    /// Allocates an id for a consumer or producer of this end. Servers use odd ids and clients even ones, so ids of the
    /// two ends are distinct.
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

    /// Counts a consumer or producer that starts.
    pub(super) fn endpoint_started(&self) {
        self.lock().active += 1;
    }

    /// Counts a consumer or producer that has become idle.
    pub(super) fn endpoint_stopped(&self) {
        self.lock().active -= 1;
    }

    pub(super) fn release_id(&self, id: u32) {
        self.lock().ids.remove(&id);
    }

    /// Announces a consumer of this end to the peer. `descriptors` are its ring and its engine's eventfd.
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

    /// Notifies the peer that a consumer of this end accepts no more messages.
    pub(super) fn retract(&self, id: u32) {
        let mut shared = self.lock();
        if shared.local.remove(&id).is_some() && !self.is_lost() {
            self.send_locked(&mut shared, &Frame::ConsumerExpired { id }, Vec::new());
        }
    }

    pub(super) fn local_consumer(&self, id: u32) -> Option<Arc<LocalConsumer>> {
        self.lock().local.get(&id).cloned()
    }

    /// Looks up a consumer of the peer that accepts messages.
    pub(super) fn remote_consumer(&self, id: u32) -> Option<Arc<RemoteConsumer>> {
        self.lock().remote.get(&id).cloned()
    }

    /// Checks that the peer may add a consumer with this id.
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

    /// Removes a consumer of the peer. Returns `false` if the id is unknown.
    pub(super) fn expire_remote(&self, id: u32) -> bool {
        let consumer = self.lock().remote.remove(&id);
        consumer.is_some_and(|consumer| {
            consumer.expire();
            true
        })
    }

    /// Removes all consumers of the peer; returns their ids in ascending order.
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
        // Panics while the lock is held do not leave the state inconsistent.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// First id of a side: servers allocate 1, 3, 5 …, clients 2, 4, 6 …
fn first_id(side: Side) -> u32 {
    match side {
        Side::Server => 1,
        Side::Client => 2,
    }
}

/// Passes the peer's frames about a consumer from the connection's thread to the consumer's.
#[derive(Debug)]
pub(super) struct LocalConsumer {
    id: u32,
    /// The eventfd of the consumer's engine.
    wake: Arc<EventFd>,
    has_mail: AtomicBool,
    /// Wakes the peer's producers.
    producer: Mutex<Option<OwnedFd>>,
}

impl LocalConsumer {
    pub(super) fn new(id: u32, wake: Arc<EventFd>) -> Arc<Self> {
        Arc::new(Self {
            id,
            wake,
            has_mail: AtomicBool::new(false),
            producer: Mutex::new(None),
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Stores the eventfd that wakes the peer's producers.
    pub(super) fn producer_attached(&self, wake: OwnedFd) {
        *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        self.has_mail.store(true, Ordering::Release);
        self.wake.ring();
    }

    /// Takes the descriptor passed to [`Self::producer_attached`]; `None` after the first call.
    pub(super) fn take_producer(&self) -> Option<OwnedFd> {
        if !self.has_mail.load(Ordering::Relaxed) {
            return None;
        }
        self.has_mail.store(false, Ordering::Relaxed);
        self.producer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
