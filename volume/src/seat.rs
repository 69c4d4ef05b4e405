//! Messages between the control thread and the queues of a volume.

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

/// The contexts of a queue in one session, on their way between the threads that make, use and destroy them.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Endpoint<Requester>,
    /// Number of the session.
    pub(crate) session: u64,
}

// SAFETY: DOCA's objects may be used by any thread, by one at a time. The handles in an endpoint count their references without atomics; all of
// these handles are in the endpoint, and move with it: they are private to it, and no method clones one. The slots that it lends are in a `LentLane`. What it shares with others (device, connection, memory maps, memory) is `Sync`.
unsafe impl Send for Link {}

impl Link {
    pub(crate) fn new(endpoint: Endpoint<Requester>, session: u64) -> Self {
        Self { endpoint, session }
    }

    pub(crate) fn into_endpoint(self) -> Endpoint<Requester> {
        self.endpoint
    }

    /// [Begins](Endpoint::begin); the queue that owns the link keeps the lane beside it.
    pub(crate) fn begin(&mut self) -> Result<LentLane, EndpointError> {
        self.endpoint.begin().map(LentLane)
    }

    /// Takes the lane back. The link must not leave its queue before.
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

// SAFETY: only `Link::begin` makes one that is not empty. A queue has it in a private field, beside the link, so that both move together, and
// `Queue::detach`, the only way for a link out of its queue, returns it first. No other thread uses the slots, nor the contexts that they belong to.
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
    /// The session ends: return the contexts, when the requests in flight are answered if `drain`.
    Return {
        /// `true` if they may still be answered.
        drain: bool,
    },
    /// Fail all I/Os, and those to come until there is a session. No session uses the memory.
    Fail(IoError),
}

/// Data exchanged by a queue and the control thread.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// In order.
    pub(crate) commands: Vec<Command>,
    /// Contexts that are not used any more.
    pub(crate) returned: Vec<Link>,
    /// Failure of the contexts of a session.
    pub(crate) failure: Option<(u64, Failure)>,
    /// The queue was dropped.
    pub(crate) is_gone: bool,
}

/// How far a queue is, for the control thread. On cache lines of its own: the queue writes it in each poll.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Pulse {
    polls: AtomicU32,
    answers: AtomicU32,
    has_requests: AtomicBool,
    is_asleep: AtomicBool,
}

/// Published progress of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Number of polls, wrapping.
    pub(crate) polls: u32,
    /// Number of answers, wrapping.
    pub(crate) answers: u32,
    /// Requests have no answer.
    pub(crate) has_requests: bool,
    /// Its thread sleeps on its descriptor.
    pub(crate) is_asleep: bool,
}

/// One queue, as the control thread and the other queues see it.
#[derive(Debug)]
pub(crate) struct Seat {
    exchange: Mutex<Exchange>,
    /// Number of commands so far: what the queue looks at each time.
    commands: AtomicU32,
    /// The queue sleeps, and has I/Os that wait for locks.
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

    /// Tells the queue something, and wakes its thread.
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

    /// Becomes readable when the queue's thread has to wake up.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn ring(&self) {
        // It cannot be full: it counts to 2^64, and is cleared.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Publishes how far the queue is.
    #[inline]
    pub(crate) fn publish(&self, progress: Progress) {
        let (pulse, relaxed) = (&self.pulse, Ordering::Relaxed);
        pulse.polls.store(progress.polls, relaxed);
        pulse.answers.store(progress.answers, relaxed);
        pulse.has_requests.store(progress.has_requests, relaxed);
        pulse.is_asleep.store(progress.is_asleep, relaxed);
    }

    /// The progress published last; parts of it may be newer than others.
    pub(crate) fn progress(&self) -> Progress {
        let (pulse, relaxed) = (&self.pulse, Ordering::Relaxed);
        Progress {
            polls: pulse.polls.load(relaxed),
            answers: pulse.answers.load(relaxed),
            has_requests: pulse.has_requests.load(relaxed),
            is_asleep: pulse.is_asleep.load(relaxed),
        }
    }

    /// Forgets that it was rung. What it was rung for is to be looked at afterwards.
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
    /// The queue of this seat sleeps from now on, until it is awake or another queue unlocks something. It tries its locks once more
    /// afterwards.
    pub(crate) fn wait_for_locks(&self, seat: &Seat) {
        seat.is_waiting.store(true, Ordering::SeqCst);
        self.locks.sleep();
    }

    /// It does not sleep any more.
    pub(crate) fn stop_waiting(&self, seat: &Seat) {
        if seat.is_waiting.swap(false, Ordering::SeqCst) {
            self.locks.wake();
        }
    }

    /// Wakes the queues that sleep and wait for locks.
    #[cold]
    pub(crate) fn wake_waiting(&self) {
        for seat in &self.seats {
            if seat.is_waiting.load(Ordering::SeqCst) {
                seat.ring();
            }
        }
    }
}
