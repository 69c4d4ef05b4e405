//! The transport between processes of one machine: a ring in shared memory per direction.
//!
//! The receiver creates the ring and offers it at its agent under the connection's key. The sender asks that agent, and gets
//! the ring and the receiver's eventfd for its own eventfd. The agent answers without the receiver's program, which may
//! sleep meanwhile. The connection to the agent stays open: its end is the other process's end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Fill, Fragment, Inbox, Outbox, Peer};
use crate::agent::{self, AgentAddress, AgentConnection, PublishGuard, Reply, Request};
use crate::error::{Error, Result};
use crate::ring::{EventFd, Geometry, Message, RingConsumer, RingProducer};
use crate::runtime::Key;

/// What the sender says to the agent: a greeting and the version of this exchange.
const CLAIM: [u8; 8] = *b"SDRDMA\0\x01";

/// Room for messages that are larger than small ones, in bytes: a ring holds two of these, or fragments of them.
const LARGE_MESSAGE: usize = 32 * 1024;

/// The ring on offer, shared with the agent thread.
struct Offer {
    ring: OwnedFd,
    /// Wakes the receiving engine.
    wake: Arc<EventFd>,
    /// The sender's eventfd on its way to the receiver.
    sender: Mutex<Option<OwnedFd>>,
    state: AtomicU32,
    /// The sender's process has hung up.
    gone: AtomicBool,
}

/// Values of [`Offer::state`].
const OPEN: u32 = 0;
const CLAIMED: u32 = 1;

impl Offer {
    fn claim(self: &Arc<Self>, mut request: Request<'_>) -> Result<Reply> {
        if request.payload != CLAIM {
            return Err(Error::UnsupportedVersion);
        }
        let (Some(sender), true) = (request.fds.pop(), request.fds.is_empty()) else {
            return Err(Error::InvalidValue);
        };
        let fds = vec![duplicate(&self.ring)?, duplicate(&*self.wake)?];
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
            payload: Vec::new(),
            fds,
            on_close: Some(Box::new(move || {
                offer.gone.store(true, Ordering::Release);
                offer.wake.ring();
            })),
        })
    }
}

fn duplicate(fd: &impl AsFd) -> Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

/// Receives from a ring that this process made.
pub(crate) struct SharedInbox {
    ring: RingConsumer,
    current: Option<Message>,
    offer: Arc<Offer>,
    /// The sender's eventfd was taken over.
    attached: bool,
    /// Last: the ring is marked as closed before the sender's connection to the agent ends.
    publication: PublishGuard,
}

impl SharedInbox {
    /// Makes a ring for `messages` small messages at a time and offers it at this process's agent. `wake` is rung when
    /// the engine sleeps and something arrives.
    pub(crate) fn offer(messages: usize, wake: &Arc<EventFd>) -> Result<Self> {
        // Who never receives needs no room.
        let largest = if messages == 0 { 0 } else { LARGE_MESSAGE };
        let ring = RingConsumer::create(Geometry::for_messages(messages, largest))?;
        let offer = Arc::new(Offer {
            ring: duplicate(&ring.memfd())?,
            wake: Arc::clone(wake),
            sender: Mutex::new(None),
            state: AtomicU32::new(OPEN),
            gone: AtomicBool::new(false),
        });
        let handler = Arc::clone(&offer);
        let publication = agent::publish(
            Key::random()?,
            Arc::new(move |request: Request<'_>| handler.claim(request)),
        )?;
        Ok(Self {
            ring,
            current: None,
            offer,
            attached: false,
            publication,
        })
    }

    /// What the sender has to know.
    pub(crate) fn key(&self) -> Key {
        self.publication.key()
    }

    /// Learns how to wake the sender, once it has come.
    fn attach(&mut self) {
        if self.attached || self.offer.state.load(Ordering::Acquire) != CLAIMED {
            return;
        }
        self.attached = true;
        let sender = self
            .offer
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(sender) = sender {
            // Whatever else it sent as its eventfd will not wake it; it looks by itself after some milliseconds.
            let _ = self.ring.set_producer(sender);
            // It may sleep since before its eventfd was known here.
            self.ring.post(0);
        }
    }
}

impl Inbox for SharedInbox {
    fn post(&mut self, count: u64) {
        self.attach();
        self.ring.post(count);
    }

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

    unsafe fn read(&self, from: usize, dst: *mut u8, len: usize) {
        if let Some(message) = &self.current {
            // SAFETY: the caller's promise.
            unsafe { self.ring.read(message, from, dst, len) };
        }
    }

    fn advance(&mut self) {
        if let Some(message) = self.current.take() {
            self.ring.advance(&message);
        }
    }

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

/// Sends into a ring that the peer made.
pub(crate) struct SharedOutbox {
    ring: RingProducer,
    /// Last: the ring is marked as closed before the receiver sees this connection end.
    agent: AgentConnection,
}

impl SharedOutbox {
    /// Claims the ring that is offered under `key`.
    ///
    /// # Errors
    /// [`Error::AlreadyExist`] when another peer has it, [`Error::NotFound`] when the peer has ended or withdrawn it,
    /// [`Error::UnsupportedVersion`] for a peer of another version.
    pub(crate) fn claim(agent: &AgentAddress, key: Key, wake: &EventFd) -> Result<Self> {
        let (agent, _, fds) = agent::request(agent, key, &CLAIM, &[wake.as_fd()])?;
        let Ok([ring, receiver]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(Error::InvalidValue.because(
                "expected a ring and an eventfd from the RDMA peer's agent, got something else",
            ));
        };
        Ok(Self {
            ring: RingProducer::open(ring, EventFd::from_peer(receiver)?)?,
            agent,
        })
    }
}

impl Outbox for SharedOutbox {
    fn has_receive(&mut self) -> bool {
        self.ring.credits() > 0
    }

    fn max_fragment(&self) -> usize {
        self.ring.max_fragment()
    }

    unsafe fn push(
        &mut self,
        immediate: Option<&[u8]>,
        len: usize,
        first: bool,
        more: bool,
        fill: Fill<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            self.ring
                .push(immediate, len, first, more, |write| fill(write))
        }
    }

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
