//! Commands, contexts and progress between the control thread and the queues of a volume.

#![allow(
    unsafe_code,
    reason = "contexts are made by one thread and used by another"
)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use role_common::Failure;
use role_common::shutdown::Waker;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::endpoint::{Endpoint, EndpointError, Lane};
use crate::io::IoError;
use crate::queue::Requester;
use crate::range_lock::RangeLocks;

/// The contexts of a queue in one session. Moves from the control thread to the queue and back.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Endpoint<Requester>,
    /// Number of the session.
    pub(crate) session: u64,
}

// SAFETY: DOCA's objects may be used by any thread, but only by one at a time. The handles in an endpoint count their
// references without atomics; all of these handles are in the endpoint, and move with it: they are private to it, and
// no method clones one. The slots that it lends are in a `LentLane`. Everything that it shares with others (device,
// connection, memory maps, memory) is `Sync`.
unsafe impl Send for Link {}

impl Link {
    pub(crate) fn new(endpoint: Endpoint<Requester>, session: u64) -> Self {
        Self { endpoint, session }
    }

    pub(crate) fn into_endpoint(self) -> Endpoint<Requester> {
        self.endpoint
    }

    /// [Begins](Endpoint::begin) the endpoint. The queue that owns the link keeps the lane beside it.
    pub(crate) fn begin(&mut self) -> Result<LentLane, EndpointError> {
        self.endpoint.begin().map(LentLane)
    }

    /// Takes the lane back. Must be called before the link leaves its queue.
    pub(crate) fn end(&mut self, lane: LentLane) {
        self.endpoint.end(lane.0);
    }

    #[inline(always)]
    pub(crate) fn endpoint(&self) -> &Endpoint<Requester> {
        &self.endpoint
    }

    #[inline(always)]
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint<Requester> {
        &mut self.endpoint
    }
}

/// The lane of a [`Link`] in use. Empty by default.
#[derive(Debug, Default)]
pub(crate) struct LentLane(Lane);

// SAFETY: only `Link::begin` creates one that is not empty. A queue has it in a private field, beside the link, so
// that both move together, and `Queue::detach`, the only way to take a link out of its queue, returns it first. No
// other thread uses the slots or the contexts that they belong to.
unsafe impl Send for LentLane {}

impl LentLane {
    #[inline(always)]
    pub(crate) fn get(&self) -> &Lane {
        &self.0
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self) -> &mut Lane {
        &mut self.0
    }
}

/// Command of the control thread to a queue.
#[derive(Debug)]
pub(crate) enum Command {
    /// A session has begun: use these contexts, and send all unanswered requests again.
    Start(Box<Link>),
    /// Return the contexts: at once, or with `drain` once the requests in flight are answered.
    Return {
        /// `true` if requests in flight may still be answered.
        drain: bool,
    },
    /// Fail all I/Os, and later ones until the next session. The memory is not exported.
    Fail(IoError),
}

/// Data exchanged by a queue and the control thread.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Commands not yet executed, in order.
    pub(crate) commands: Vec<Command>,
    /// Contexts that the queue does not use any more.
    pub(crate) returned: Vec<Link>,
    /// Failure of the contexts of a session.
    pub(crate) failure: Option<(u64, Failure)>,
    /// `true` once the queue was dropped.
    pub(crate) is_gone: bool,
}

/// Progress of a queue, for the control thread. On cache lines of its own, because the queue writes it in each poll.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Pulse {
    polls: AtomicU32,
    answers: AtomicU32,
    has_requests: AtomicBool,
    is_asleep: AtomicBool,
}

/// Snapshot of a queue's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Number of polls, wrapping.
    pub(crate) polls: u32,
    /// Number of answers, wrapping.
    pub(crate) answers: u32,
    /// `true` if requests are outstanding.
    pub(crate) has_requests: bool,
    /// `true` if the queue's thread sleeps on its descriptor.
    pub(crate) is_asleep: bool,
}

/// State of one queue that is shared with the control thread and other queues.
#[derive(Debug)]
pub(crate) struct Seat {
    exchange: Mutex<Exchange>,
    /// Number of commands so far; the queue reads it in each poll.
    commands: AtomicU32,
    /// `true` while the queue sleeps and has I/Os that wait for locks.
    is_waiting: AtomicBool,
    /// Readable from [`Seat::ring`] to [`Seat::clear`].
    bell: OwnedFd,
    pulse: Pulse,
}

impl Seat {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            exchange: Mutex::default(),
            commands: AtomicU32::new(0),
            is_waiting: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            pulse: Pulse::default(),
        })
    }

    pub(crate) fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command to the queue, and wakes its thread.
    pub(crate) fn tell(&self, command: Command) {
        self.exchange().commands.push(command);
        self.commands.fetch_add(1, Ordering::Release);
        self.ring();
    }

    /// Number of commands so far.
    #[inline]
    pub(crate) fn commands(&self) -> u32 {
        self.commands.load(Ordering::Acquire)
    }

    /// Descriptor that becomes readable to wake the queue's thread.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn ring(&self) {
        // Cannot block: the counter has a range of 2^64, and is cleared.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Publishes the queue's progress.
    #[inline]
    pub(crate) fn publish(&self, progress: Progress) {
        let (pulse, relaxed) = (&self.pulse, Ordering::Relaxed);
        pulse.polls.store(progress.polls, relaxed);
        pulse.answers.store(progress.answers, relaxed);
        pulse.has_requests.store(progress.has_requests, relaxed);
        pulse.is_asleep.store(progress.is_asleep, relaxed);
    }

    /// The last published progress; its fields may be from different updates.
    pub(crate) fn progress(&self) -> Progress {
        let (pulse, relaxed) = (&self.pulse, Ordering::Relaxed);
        Progress {
            polls: pulse.polls.load(relaxed),
            answers: pulse.answers.load(relaxed),
            has_requests: pulse.has_requests.load(relaxed),
            is_asleep: pulse.is_asleep.load(relaxed),
        }
    }

    /// Clears the wake-up. Check for commands and released locks afterwards.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }
}

/// State shared by all threads of a volume.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) seats: Vec<Arc<Seat>>,
    pub(crate) locks: Arc<RangeLocks>,
    /// Wakes the control thread.
    pub(crate) control: Waker,
    pub(crate) is_closing: AtomicBool,
}

impl Shared {
    /// Registers the queue of this seat for wake-ups when locks are released. It must retry its locks once more
    /// afterwards.
    pub(crate) fn wait_for_locks(&self, seat: &Seat) {
        seat.is_waiting.store(true, Ordering::SeqCst);
        self.locks.sleep();
    }

    /// Ends [`wait_for_locks`](Self::wait_for_locks).
    pub(crate) fn stop_waiting(&self, seat: &Seat) {
        if seat.is_waiting.swap(false, Ordering::SeqCst) {
            self.locks.wake();
        }
    }

    /// Wakes sleeping queues that wait for locks.
    #[cold]
    pub(crate) fn wake_waiting(&self) {
        for seat in &self.seats {
            if seat.is_waiting.load(Ordering::SeqCst) {
                seat.ring();
            }
        }
    }
}
