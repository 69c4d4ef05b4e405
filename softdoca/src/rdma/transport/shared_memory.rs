//! Transport between processes on one machine: a ring in shared memory per direction.
//!
//! The receiver creates the ring and offers it at its agent under the connection's key. The sender requests it from
//! that agent, and gets the ring and the receiver's eventfd in exchange for its own eventfd. The agent responds
//! without the receiver's program, which may be asleep. The connection to the agent stays open: its end signals the
//! end of the other process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::credits::{ReceivePool, SharedReceives, Slot};
use super::verbs::Accepted;
use super::{Fill, Fragment, Inbox, Outbox, Peer};
use crate::agent::{
    self, AgentAddress, AgentConnection, NetworkGuard, PublishGuard, Reply, Request, Stream,
};
use crate::error::{Error, Result};
use crate::ring::{EventFd, Geometry, Message, RingConsumer, RingProducer};
use crate::runtime::Key;
use crate::verbs::Nic;

/// Greeting of the sender to the agent, with a version.
const CLAIM: [u8; 8] = *b"SDRDMA\0\x01";

/// Space for messages larger than small ones, in bytes: a ring holds two of these, or fragments of them.
const LARGE_MESSAGE: usize = 32 * 1024;

/// State shared by the connections of an instance.
pub(crate) struct SharedMemory {
    /// Signalled for events while the engine sleeps.
    wake: Arc<EventFd>,
    /// Capacity of a ring in small messages.
    messages: usize,
    /// Shared receive counters, if there may be several connections.
    pool: Option<Arc<ReceivePool>>,
    /// The RDMA device over which senders on other machines may connect.
    nic: Option<&'static Nic>,
}

impl SharedMemory {
    /// Creates the state for at most `connections` connections and `receives` receive tasks.
    pub(crate) fn new(
        connections: u16,
        receives: usize,
        wake: &Arc<EventFd>,
        nic: Option<&'static Nic>,
    ) -> Result<Self> {
        let pool = match connections {
            0 | 1 => None,
            _ => Some(Arc::new(ReceivePool::new(connections)?)),
        };
        Ok(Self {
            wake: Arc::clone(wake),
            messages: receives,
            pool,
            nic,
        })
    }

    pub(crate) fn nic(&self) -> Option<&'static Nic> {
        self.nic
    }

    /// Counts a posted receive; the [`Inbox::post`] of every connection follows.
    pub(crate) fn post(&self) {
        if let Some(pool) = &self.pool {
            pool.post(1);
        }
    }

    /// Creates a receiving side, offered at this process's agent. `posted` receives are posted already.
    pub(crate) fn offer(&self, posted: usize) -> Result<SharedInbox> {
        let slot = self.pool.as_ref().map(ReceivePool::slot).transpose()?;
        let mut inbox = SharedInbox::offer(self.messages, &self.wake, slot, self.nic)?;
        inbox.post(posted as u64);
        Ok(inbox)
    }

    /// Creates the sending side of the ring that a peer offers under `key`.
    ///
    /// # Errors
    /// [`Error::AlreadyExist`] if another peer has claimed it, [`Error::NotFound`] if the peer has exited or withdrawn
    /// it, [`Error::UnsupportedVersion`] for a peer of another version.
    pub(crate) fn claim(&self, agent: &AgentAddress, key: Key) -> Result<SharedOutbox> {
        let (agent, slot, mut fds) = agent::request(agent, key, &CLAIM, &[self.wake.as_fd()])?;
        let receives = match (slot.as_slice(), fds.len()) {
            ([], 2) => None,
            (slot, 3) => fds
                .pop()
                .map(|pool| SharedReceives::open(pool, slot))
                .transpose()?,
            _ => None,
        };
        let Ok([ring, receiver]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(Error::InvalidValue.because(
                "expected a ring and an eventfd from the RDMA peer's agent, got something else",
            ));
        };
        Ok(SharedOutbox {
            ring: RingProducer::open(ring, EventFd::from_peer(receiver)?)?,
            receives,
            reserved: false,
            agent,
        })
    }
}

/// The offered ring, shared with the agent thread.
struct Offer {
    ring: OwnedFd,
    /// The pool of receives and the connection's slot in it.
    receives: Option<(OwnedFd, [u8; 8])>,
    /// Wakes the receiving engine.
    wake: Arc<EventFd>,
    /// The sender's eventfd, until the receiver takes it.
    sender: Mutex<Option<OwnedFd>>,
    /// The connection of a sender on another machine, until the receiver takes it.
    network: Mutex<Option<Arrival>>,
    nic: Option<&'static Nic>,
    messages: usize,
    /// Receives posted before a sender connected, if they are not shared with other connections.
    posted: AtomicU64,
    state: AtomicU32,
    /// The sender's process has disconnected.
    gone: AtomicBool,
}

/// A sender on another machine.
pub(crate) struct Arrival {
    pub(crate) stream: Stream,
    /// Number of receives granted to the sender.
    pub(crate) granted: u64,
    /// The sender's messages arrive by RDMA devices.
    pub(crate) verbs: Option<Accepted>,
}

/// Values of [`Offer::state`].
const OPEN: u32 = 0;
const CLAIMED: u32 = 1;
/// Being accepted by a sender on another machine.
const RESERVED: u32 = 2;
/// [`Offer::network`] is set.
const CONNECTED: u32 = 3;

impl Offer {
    fn claim(self: &Arc<Self>, mut request: Request<'_>) -> Result<Reply> {
        if request.payload != CLAIM {
            return Err(Error::UnsupportedVersion);
        }
        let (Some(sender), true) = (request.fds.pop(), request.fds.is_empty()) else {
            return Err(Error::InvalidValue);
        };
        let mut fds = vec![duplicate(&self.ring)?, duplicate(&*self.wake)?];
        let mut payload = Vec::new();
        if let Some((pool, slot)) = &self.receives {
            fds.push(duplicate(pool)?);
            payload.extend_from_slice(slot);
        }
        {
            let mut slot = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
            if self.state.load(Ordering::Relaxed) != OPEN {
                return Err(Error::AlreadyExist);
            }
            *slot = Some(sender);
            self.state.store(CLAIMED, Ordering::Release);
        }
        self.wake.ring();
        let offer = Arc::clone(self);
        Ok(Reply {
            payload,
            fds,
            on_close: Some(Box::new(move || {
                offer.gone.store(true, Ordering::Release);
                offer.wake.ring();
            })),
        })
    }
}

impl Offer {
    /// Assigns the offer to a sender on another machine.
    fn reserve(self: &Arc<Self>) -> Result<agent::Deliver> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::Relaxed) != OPEN {
            return Err(Error::AlreadyExist);
        }
        self.state.store(RESERVED, Ordering::Release);
        drop(sender);
        let offer = Arc::clone(self);
        Ok(Box::new(move |stream| {
            // The sender is not required to wait until the receiver's program makes progress.
            let Ok(verbs) = super::verbs::accept(offer.nic, offer.messages, &stream) else {
                // The sender may try again.
                return offer.state.store(OPEN, Ordering::Release);
            };
            let mut slot = offer.network.lock().unwrap_or_else(PoisonError::into_inner);
            let posted = offer.posted.load(Ordering::Relaxed);
            let granted = match &verbs {
                Some(accepted) => accepted.answer(&stream, posted),
                None => super::network::grant(&stream, posted),
            };
            *slot = Some(Arrival {
                stream,
                granted,
                verbs,
            });
            drop(slot);
            offer.state.store(CONNECTED, Ordering::Release);
            offer.wake.ring();
        }))
    }
}

fn duplicate(fd: &impl AsFd) -> Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

/// Receives from a ring created by this process.
pub(crate) struct SharedInbox {
    ring: RingConsumer,
    current: Option<Message>,
    /// A message is incomplete.
    within_message: bool,
    slot: Option<Slot>,
    offer: Arc<Offer>,
    /// `true` once the sender's eventfd has been taken over.
    attached: bool,
    /// Last field: the ring is marked as closed before the sender's connection to the agent ends.
    publication: PublishGuard,
    /// Absent when this process does not use the network.
    _network: Option<NetworkGuard>,
}

impl SharedInbox {
    fn offer(
        messages: usize,
        wake: &Arc<EventFd>,
        slot: Option<Slot>,
        nic: Option<&'static Nic>,
    ) -> Result<Self> {
        // An instance that never receives needs no space.
        let largest = if messages == 0 { 0 } else { LARGE_MESSAGE };
        let ring = RingConsumer::create(Geometry::for_messages(messages, largest))?;
        let receives = match &slot {
            Some(slot) => Some((duplicate(&slot.pool().memfd())?, slot.encode())),
            None => None,
        };
        let offer = Arc::new(Offer {
            ring: duplicate(&ring.memfd())?,
            receives,
            wake: Arc::clone(wake),
            sender: Mutex::new(None),
            network: Mutex::new(None),
            nic,
            messages,
            posted: AtomicU64::new(0),
            state: AtomicU32::new(OPEN),
            gone: AtomicBool::new(false),
        });
        let handler = Arc::clone(&offer);
        let publication = agent::publish(
            Key::random()?,
            Arc::new(move |request: Request<'_>| handler.claim(request)),
        )?;
        let handler = Arc::clone(&offer);
        let network = agent::serve(publication.key(), Arc::new(move || handler.reserve()))?;
        Ok(Self {
            ring,
            current: None,
            within_message: false,
            slot,
            offer,
            attached: false,
            publication,
            _network: network,
        })
    }

    /// Takes the connection of a sender on another machine that has accepted the offer.
    #[inline]
    pub(crate) fn take_stream(&self) -> Option<Arrival> {
        if self.attached || self.offer.state.load(Ordering::Relaxed) != CONNECTED {
            return None;
        }
        let network = &self.offer.network;
        network
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The pool of receives as seen by this connection's sender, if there is one.
    pub(super) fn shared_receives(&self) -> Result<Option<SharedReceives>> {
        let open =
            |slot: &Slot| SharedReceives::open(duplicate(&slot.pool().memfd())?, &slot.encode());
        self.slot.as_ref().map(open).transpose()
    }

    /// Counts a message that has taken a receive of the pool.
    pub(super) fn count_message(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.count_message();
        }
    }

    /// Key under which the offer is published.
    pub(crate) fn key(&self) -> Key {
        self.publication.key()
    }

    /// Takes over the sender's eventfd, once it has connected.
    #[inline]
    fn attach(&mut self) {
        if !self.attached && self.offer.state.load(Ordering::Acquire) == CLAIMED {
            self.attach_now();
        }
    }

    #[cold]
    fn attach_now(&mut self) {
        self.attached = true;
        let sender = self
            .offer
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(sender) = sender {
            // An invalid eventfd only means that the sender is not woken, and polls after some milliseconds.
            let _ = self.ring.set_producer(sender);
            // The sender may have been asleep since before its eventfd was received.
            self.ring.post(0);
        }
    }
}

impl Inbox for SharedInbox {
    #[inline]
    fn post(&mut self, count: u64) {
        self.attach();
        // With a pool, the ring is used only to wake the sender.
        let count = if self.slot.is_some() { 0 } else { count };
        if !self.attached {
            self.offer.posted.fetch_add(count, Ordering::Relaxed);
        }
        self.ring.post(count);
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<Fragment>> {
        self.attach();
        self.current = self.ring.peek().map_err(|corrupt| {
            Error::ConnectionAborted.because(format_args!("an RDMA peer broke the ring: {corrupt}"))
        })?;
        Ok(self.current.as_ref().map(|message| Fragment {
            len: message.len(),
            immediate_len: message.immediate_len(),
            more: message.more(),
        }))
    }

    fn read_immediate(&self, to: &mut [u8]) {
        if let Some(message) = &self.current {
            self.ring.read_immediate(message, to);
        }
    }

    #[inline]
    unsafe fn read(&self, from: usize, dst: *mut u8, len: usize) {
        if let Some(message) = &self.current {
            // SAFETY: the caller's guarantee.
            unsafe { self.ring.read(message, from, dst, len) };
        }
    }

    #[inline]
    fn advance(&mut self) {
        if let Some(message) = self.current.take() {
            if let (Some(slot), false) = (&mut self.slot, self.within_message) {
                slot.count_message();
            }
            self.within_message = message.more();
            self.ring.advance(&message);
        }
    }

    #[inline]
    fn peer(&mut self) -> Peer {
        self.attach();
        if self.ring.is_closed_by_peer() {
            Peer::Closed
        } else if self.offer.gone.load(Ordering::Acquire) {
            Peer::Lost
        } else if self.attached {
            Peer::Present
        } else {
            Peer::Expected
        }
    }

    fn arm(&mut self) {
        self.ring.arm();
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }
}

/// Sends into a ring created by the peer.
pub(crate) struct SharedOutbox {
    ring: RingProducer,
    /// Counters of the peer's receives, if this is not its only connection.
    receives: Option<SharedReceives>,
    /// `true` if a receive has been taken for the next message.
    reserved: bool,
    /// Last field: the ring is marked as closed before the receiver sees this connection end.
    agent: AgentConnection,
}

impl Outbox for SharedOutbox {
    #[inline]
    fn reserve_receive(&mut self) -> bool {
        match &self.receives {
            None => self.ring.credits() > 0,
            Some(receives) => {
                self.reserved = self.reserved || receives.take();
                self.reserved
            }
        }
    }

    fn max_fragment(&self) -> usize {
        self.ring.max_fragment()
    }

    #[inline]
    unsafe fn send_small(&mut self, src: *const u8, len: usize) -> Result<()> {
        if !self.reserve_receive() {
            return Err(Error::Again);
        }
        // SAFETY: the caller's guarantee.
        unsafe { self.ring.push_run(src, len) }?;
        self.reserved = false;
        Ok(())
    }

    unsafe fn push(
        &mut self,
        immediate: Option<&[u8]>,
        len: usize,
        first: bool,
        more: bool,
        fill: Fill<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's guarantee.
        unsafe {
            self.ring
                .push(immediate, len, first, more, |write| fill(write))
        }?;
        self.reserved &= !first;
        Ok(())
    }

    #[inline]
    fn peer(&self) -> Peer {
        if self.ring.is_closed_by_peer() {
            Peer::Closed
        } else {
            Peer::Present
        }
    }

    fn liveness(&self) -> BorrowedFd<'_> {
        self.agent.as_fd()
    }

    fn arm(&mut self) {
        self.ring.arm();
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }
}
