//! Commands, contexts and progress between the control thread and the queues of a volume.

#![allow(
    unsafe_code,
    reason = "contexts are made by one thread and used by another"
)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::Failure;
use control::shutdown::Waker;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::io_message::SIZE;
use wire::release::{Release, Release3_1, Release3_2};

use crate::buffer::Pool;
use crate::endpoint::{BadAnswer, Client, Completed, Endpoint, EndpointError, Lane};
use crate::engine::{Engine, IoError};
use crate::range_lock::RangeLocks;
use crate::unflushed::UnflushedWrites;

/// Requests of a queue: handles completions.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) engine: Engine,
    /// Empty between sessions.
    pub(crate) lane: LentLane,
    pub(crate) pool: Arc<Pool>,
    pub(crate) release: Release,
    /// Number of answered requests, wrapping.
    pub(crate) answers: u32,
    /// First failure of the contexts.
    pub(crate) failure: Option<EndpointError>,
}

impl Client for Requester {
    #[inline(always)]
    fn lane(&mut self) -> &mut Lane {
        self.lane.get_mut()
    }

    #[inline(always)]
    fn answered(
        &mut self,
        bytes: &[u8; SIZE],
        length: usize,
    ) -> Result<Option<Completed>, BadAnswer> {
        match self.release {
            Release::V3_1 => self.lane.get_mut().answered(Release3_1, bytes, length),
            Release::V3_0 | Release::V3_2 => {
                self.lane.get_mut().answered(Release3_2, bytes, length)
            }
        }
    }

    #[inline(always)]
    fn completed(&mut self, request: Completed) {
        self.answers = self.answers.wrapping_add(1);
        self.engine
            .completed(request.number, request.result, self.pool.region());
    }

    #[cold]
    fn failed(&mut self, error: EndpointError) {
        self.failure.get_or_insert(error);
    }
}

/// The contexts of a queue in one session. Moves from the control thread to the queue and back.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Endpoint<Requester>,
    /// Number of the session.
    pub(crate) session: u64,
    /// Number of the storage's incarnation.
    pub(crate) incarnation: u32,
}

// SAFETY: DOCA's objects may be used by any thread, but only by one at a time. The handles in an endpoint count their
// references without atomics; all of these handles are in the endpoint, and move with it: they are private to it, and
// no method clones one. The slots that it lends are in a `LentLane`. All objects that it shares with others (device,
// connection, memory maps, memory) are `Sync`.
unsafe impl Send for Link {}

impl Link {
    pub(crate) fn new(endpoint: Endpoint<Requester>, session: u64, incarnation: u32) -> Self {
        Self {
            endpoint,
            session,
            incarnation,
        }
    }

    pub(crate) fn into_endpoint(self) -> Endpoint<Requester> {
        self.endpoint
    }

    /// [Begins](Endpoint::begin) the endpoint. The queue that owns the link stores the lane next to it.
    pub(crate) fn begin(&mut self) -> Result<LentLane, EndpointError> {
        self.endpoint.begin().map(LentLane)
    }

    /// Takes the lane back. Must be called before the queue gives up the link.
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

/// The lane of a [`Link`] that a queue uses. Empty by default.
#[derive(Debug, Default)]
pub(crate) struct LentLane(Lane);

// SAFETY: only `Link::begin` creates a lane that is not empty. A queue stores it in a private field next to the link,
// so that both move together, and `Queue::detach`, the only way to take a link out of its queue, first returns the
// lane. No other thread uses the slots or the contexts to which they belong.
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
    /// A session has started: use these contexts, and resend all unanswered requests.
    Start(Box<Link>),
    /// Return the contexts: immediately or, with `drain`, once the requests in flight have been answered.
    Return {
        /// `true` if requests in flight may still be answered.
        drain: bool,
    },
    /// Use this memory from now on, because others may still access the former one.
    Move(Arc<Pool>),
    /// Fail all I/Os, including later ones, until the next session. The memory is not exported.
    Fail(IoError),
}

/// Data exchanged by a queue and the control thread.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Commands not yet executed, in order.
    pub(crate) commands: Vec<Command>,
    /// Contexts that the queue no longer uses.
    pub(crate) returned: Vec<Link>,
    /// Failure of the contexts of a session.
    pub(crate) failure: Option<(u64, Failure)>,
    /// `true` once the queue was dropped.
    pub(crate) is_gone: bool,
}

/// Progress of a queue, for the control thread. On separate cache lines, because the queue writes it in each poll.
#[derive(Debug, Default)]
#[repr(align(128))]
struct AtomicProgress {
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
pub(crate) struct QueueState {
    exchange: Mutex<Exchange>,
    /// Number of commands so far; the queue reads it in each poll.
    commands: AtomicU32,
    /// `true` while the queue sleeps and has I/Os that wait for locks.
    is_waiting: AtomicBool,
    /// Readable from [`QueueState::wake`] to [`QueueState::clear`].
    wakeup: OwnedFd,
    progress: AtomicProgress,
}

impl QueueState {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            exchange: Mutex::default(),
            commands: AtomicU32::new(0),
            is_waiting: AtomicBool::new(false),
            wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            progress: AtomicProgress::default(),
        })
    }

    pub(crate) fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command to the queue, and wakes its thread.
    pub(crate) fn send(&self, command: Command) {
        self.exchange().commands.push(command);
        self.commands.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Number of commands so far.
    #[inline]
    pub(crate) fn commands(&self) -> u32 {
        self.commands.load(Ordering::Acquire)
    }

    /// Descriptor that becomes readable to wake the queue's thread.
    pub(crate) fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    fn wake(&self) {
        // Cannot block: the counter has a range of 2^64, and is cleared.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    /// Publishes the queue's progress.
    #[inline]
    pub(crate) fn publish(&self, progress: Progress) {
        let (published, relaxed) = (&self.progress, Ordering::Relaxed);
        published.polls.store(progress.polls, relaxed);
        published.answers.store(progress.answers, relaxed);
        published.has_requests.store(progress.has_requests, relaxed);
        published.is_asleep.store(progress.is_asleep, relaxed);
    }

    /// The last published progress; its fields may be from different updates.
    pub(crate) fn progress(&self) -> Progress {
        let (progress, relaxed) = (&self.progress, Ordering::Relaxed);
        Progress {
            polls: progress.polls.load(relaxed),
            answers: progress.answers.load(relaxed),
            has_requests: progress.has_requests.load(relaxed),
            is_asleep: progress.is_asleep.load(relaxed),
        }
    }

    /// Clears the wake-up. Check for commands and released locks afterwards.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
    }
}

/// State shared by all threads of a volume.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) queues: Vec<Arc<QueueState>>,
    pub(crate) locks: Arc<RangeLocks>,
    pub(crate) unflushed: Arc<UnflushedWrites>,
    /// Wakes the control thread.
    pub(crate) control: Waker,
    pub(crate) is_closing: AtomicBool,
}

impl Shared {
    /// Registers the queue of this state for wake-ups when locks are released. Afterwards, the queue must retry its
    /// locks once more.
    pub(crate) fn wait_for_locks(&self, state: &QueueState) {
        state.is_waiting.store(true, Ordering::SeqCst);
        self.locks.sleep();
    }

    /// Ends [`wait_for_locks`](Self::wait_for_locks).
    pub(crate) fn stop_waiting(&self, state: &QueueState) {
        if state.is_waiting.swap(false, Ordering::SeqCst) {
            self.locks.wake();
        }
    }

    /// Wakes sleeping queues that wait for locks.
    #[cold]
    pub(crate) fn wake_waiting(&self) {
        for state in &self.queues {
            if state.is_waiting.load(Ordering::SeqCst) {
                state.wake();
            }
        }
    }
}
