//! Submission and completion of I/Os, on one thread per queue.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use control::Failure;
use doca::ErrorCode;
use metrics::{Count, Traffic, WorkerMetrics};
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use wire::release::{Release, Release3_1, Release3_2};

use crate::buffer::{Buffer, Pool};
use crate::engine::{Engine, IoError, Operation, Submission};
use crate::link::{Command, LentLane, Link, Progress, QueueState, Requester, Shared};
use crate::unflushed::WriteLosses;

/// An I/O to submit, with a buffer of a [`Queue`] or of another [`BlockQueue`](crate::BlockQueue).
#[derive(Debug)]
pub struct Io<B = Buffer> {
    /// Returned in the [`Completion`].
    pub tag: u64,
    /// Kind of I/O, which determines whether `offset`, `len` and `buffer` are used.
    pub operation: Operation,
    /// Offset in the volume in bytes.
    pub offset: u64,
    /// Length in bytes. Reads and writes use this number of bytes, from the start of the buffer.
    pub len: u32,
    /// Data of a read or a write, from [`Queue::buffer`](crate::Queue::buffer) of the queue that it is submitted to.
    /// Other operations ignore and return it.
    pub buffer: Option<B>,
}

/// A completed I/O.
#[derive(Debug)]
pub struct Completion<B = Buffer> {
    /// The I/O's tag.
    pub tag: u64,
    /// Result. After an error, the contents of a read's buffer are unspecified, and a write may have been performed partially.
    pub result: Result<(), IoError>,
    /// The I/O's buffer.
    pub buffer: Option<B>,
    /// [Number of losses](WriteLosses::count) of acknowledged writes so far.
    pub losses: u64,
}

/// Maximum number of progress calls in one [`Queue::poll`]. Each may complete several tasks.
const BATCH: u32 = 16;

/// Consecutive idle polls after which the progress engine is armed, and progressed only when its descriptor is
/// readable, because progress of an idle engine would sleep: in softdoca, after 400 idle calls, or after 20 on a busy
/// machine.
const IDLE_POLLS: u32 = 16;

/// Time limit for outstanding responses when a queue is dropped.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// A queue of a [`Volume`](crate::Volume), for one thread: submits I/Os to the service's worker with the same number,
/// and reaps them.
///
/// It makes progress only during calls. A thread either calls [`poll`](Self::poll) continually, or sleeps on the
/// [`descriptor`](Self::descriptor) after [`arm`](Self::arm).
///
/// Dropping a queue waits up to 5 s for I/Os in flight; their completions are dropped.
#[derive(Debug)]
pub struct Queue {
    /// `None` between sessions.
    link: Option<Link>,
    requester: Requester,
    /// Buffers of I/Os in flight, by the engine's slot.
    buffers: Box<[Option<Buffer>]>,
    /// Former pools with buffers that the program has; mostly empty.
    former_pools: Vec<Arc<Pool>>,
    state: Arc<QueueState>,
    shared: Arc<Shared>,
    /// Number of executed commands of the control thread.
    commands: u32,
    /// `true` if the contexts are to be returned once no request is in flight.
    is_draining: bool,
    /// Error of new I/Os; `None` while I/Os are accepted.
    refuses: Option<IoError>,
    /// `true` while the progress engine is armed.
    is_armed: bool,
    /// Consecutive polls without an event.
    idle: u32,
    polls: u32,
    /// Readable when the progress engine or the queue's wake-up descriptor is.
    epoll: OwnedFd,
    /// `Some` with metrics.
    metered: Option<Metered>,
}

/// Components of a queue.
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) depth: u32,
    pub(crate) pool: Arc<Pool>,
    pub(crate) release: Release,
    pub(crate) state: Arc<QueueState>,
    pub(crate) shared: Arc<Shared>,
}

impl Queue {
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            parts.state.wakeup(),
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            link: None,
            requester: Requester {
                engine: parts.engine,
                lane: LentLane::default(),
                pool: parts.pool,
                release: parts.release,
                answers: 0,
                failure: None,
            },
            buffers: (0..parts.depth).map(|_| None).collect(),
            former_pools: Vec::new(),
            state: parts.state,
            shared: parts.shared,
            commands: 0,
            is_draining: false,
            refuses: None,
            is_armed: false,
            idle: 0,
            polls: 0,
            epoll,
            metered: None,
        })
    }

    /// Publishes the queue's counters as its program's metrics: I/Os and their bytes, failures, I/Os in flight. Zeroing and
    /// discards count as writes. Must be called before the first I/O.
    pub fn publish_to(&mut self, metrics: Arc<WorkerMetrics>) {
        self.metered = Some(Metered::new(metrics, self.buffers.len()));
    }

    /// Returns a free buffer of `len` bytes. `None` if all are in use until further completions, or if `len` exceeds
    /// [`largest_transfer`](Self::largest_transfer).
    pub fn buffer(&mut self, len: usize) -> Option<Buffer> {
        if !self.former_pools.is_empty() && !self.has_spare_buffer() {
            return None;
        }
        self.requester.pool.take(len)
    }

    /// Returns `true` if there is a free buffer for each buffer of former pools that the program has, and another one.
    #[cold]
    fn has_spare_buffer(&mut self) -> bool {
        self.former_pools.retain(|pool| pool.taken() != 0);
        let reserved: usize = self.former_pools.iter().map(|pool| pool.taken()).sum();
        self.requester.pool.free() > reserved
    }

    /// Registers a waker for the next freed buffer.
    pub(crate) fn wait_for_buffer(&self, waker: &Waker) {
        for pool in self.former_pools.iter().chain([&self.requester.pool]) {
            pool.wait(waker);
        }
    }

    /// Size of a buffer, and so maximum size of a read or a write, in bytes.
    #[must_use]
    pub fn largest_transfer(&self) -> u32 {
        self.requester.pool.size()
    }

    /// Submits an I/O. [`poll`](Self::poll) returns its [`Completion`], including the error of an invalid I/O.
    ///
    /// # Errors
    /// Returns the I/O if [`Config::depth`](crate::Config::depth) of them are in flight; it can be submitted again
    /// after a completion.
    pub fn submit(&mut self, mut io: Io) -> Result<(), Io> {
        if !self.former_pools.is_empty() {
            self.exchange_former_buffer(&mut io.buffer);
        }
        let pool = &self.requester.pool;
        let buffer = io.buffer.as_ref().filter(|buffer| buffer.is_of(pool));
        let submission = Submission {
            tag: io.tag,
            operation: io.operation,
            offset: io.offset,
            len: io.len,
            memory: buffer.map_or(0, Buffer::offset),
            memory_len: buffer.map_or(0, |buffer| buffer.len() as u32),
        };
        let Some(slot) = self.requester.engine.submit(&submission) else {
            return Err(io);
        };
        self.buffers[slot] = io.buffer;
        if let Some(metered) = &mut self.metered {
            metered.started(slot, io.operation, io.len);
        }
        if let Some(error) = self.refuses {
            self.requester.engine.fail_all(error);
        }
        self.send();
        Ok(())
    }

    /// Makes progress: sends requests, and passes completed I/Os to `done`. Returns the number of completed I/Os. Does
    /// not block, but may yield the CPU when idle.
    pub fn poll(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        if self.state.commands() != self.commands {
            self.execute_commands();
        }
        if self.requester.engine.has_waiting() && self.requester.engine.retry_locks() {
            self.send();
        }
        let has_progressed = self.progress();
        if let Some(metered) = &mut self.metered {
            metered.polled(has_progressed);
        }
        if has_progressed {
            self.idle = 0;
            self.send();
        } else {
            self.idle = self.idle.saturating_add(1);
        }
        if self.requester.engine.take_is_awaited() {
            self.shared.wake_waiting();
        }
        if self.requester.engine.has_waiting() && self.requester.engine.retry_locks() {
            self.send();
        }
        if self.is_draining && !self.requester.engine.has_requests() {
            self.give_back();
        }
        self.polls = self.polls.wrapping_add(1);
        self.publish(false);
        self.deliver(done)
    }

    #[inline]
    fn publish(&self, is_asleep: bool) {
        self.state.publish(Progress {
            polls: self.polls,
            answers: self.requester.answers,
            has_requests: self.requester.engine.has_requests(),
            is_asleep,
        });
    }

    fn deliver(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let mut count = 0;
        while let Some(io) = self.requester.engine.poll_done() {
            count += 1;
            if let Some(metered) = &mut self.metered {
                metered.completed(io.slot, &io.result);
            }
            done(Completion {
                tag: io.tag,
                result: io.result,
                buffer: self.buffers[io.slot].take(),
                losses: self.requester.engine.unflushed().count(),
            });
        }
        count
    }

    /// Losses of acknowledged writes of all queues of the volume.
    #[must_use]
    pub fn losses(&self) -> WriteLosses {
        self.requester.engine.unflushed().losses()
    }

    /// Descriptor to sleep on, with `poll` or `epoll`, after [`arm`](Self::arm): readable when there is an event. Do
    /// not read from it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Arms the [`descriptor`](Self::descriptor) to become readable with the next event. Returns `false` if an event is
    /// already pending; call [`poll`](Self::poll) in this case. After the sleep, call [`disarm`](Self::disarm) and
    /// `poll`. I/Os must not be submitted in between.
    pub fn arm(&mut self) -> bool {
        if self.state.commands() != self.commands
            || self.requester.engine.has_done()
            || self.has_deferred()
        {
            return false;
        }
        let is_ready = if self.requester.engine.has_requests() {
            self.arm_engine()
        } else {
            self.settle_engine()
        };
        if !is_ready {
            return false;
        }
        if self.requester.engine.has_waiting() {
            self.shared.wait_for_locks(&self.state);
            if self.requester.engine.retry_locks() {
                self.shared.stop_waiting(&self.state);
                self.send();
                return false;
            }
        }
        self.idle = 0;
        if let Some(metered) = &mut self.metered {
            metered.publish();
        }
        self.publish(true);
        true
    }

    /// Reverts [`arm`](Self::arm).
    pub fn disarm(&mut self) {
        self.shared.stop_waiting(&self.state);
        self.state.clear();
        self.publish(false);
    }

    /// Arms the progress engine; `false` if it has events.
    fn arm_engine(&mut self) -> bool {
        if self.is_armed {
            return true;
        }
        let Some(link) = &self.link else {
            // The wake-up announces the next session.
            return true;
        };
        self.is_armed = matches!(link.endpoint().arm(), Ok(true));
        self.is_armed
    }

    /// Clears a wake-up of the progress engine while no request is outstanding; returns `false` if there was an event
    /// instead. A peer that saw that the engine was armed may wake it after it was disarmed; the descriptor would then
    /// remain readable until the next request, and a thread that waits on it would busy-wait.
    fn settle_engine(&mut self) -> bool {
        if !self.is_readable() {
            return true;
        }
        self.disarm_engine();
        if self.poll_engine() != 0 {
            return false;
        }
        // This also clears wake-ups of the engine's own descriptors.
        self.arm_engine()
    }

    /// Disarms the progress engine before it is used, so that the resulting events are polled for.
    #[inline]
    fn touch(&mut self) {
        if self.is_armed {
            self.disarm_engine();
        }
    }

    #[cold]
    fn disarm_engine(&mut self) {
        self.is_armed = false;
        if let Some(link) = &self.link {
            // Fails for an engine without notifications, which was not armed.
            let _ = link.endpoint().disarm();
        }
    }

    fn has_deferred(&self) -> bool {
        self.requester.lane.get().has_deferred()
    }

    /// Handles completions of tasks; returns `true` if there were any.
    fn progress(&mut self) -> bool {
        if self.link.is_none() || !self.requester.engine.has_requests() {
            return false;
        }
        if self.is_armed {
            if !self.is_readable() {
                if self.idle > IDLE_POLLS {
                    // Called repeatedly without a sleep: the storage may need the CPU.
                    std::thread::yield_now();
                }
                return false;
            }
            self.touch();
        }
        let count = self.poll_engine();
        if count == 0 && self.idle > IDLE_POLLS && !self.has_deferred() {
            self.arm_engine();
        }
        count != 0
    }

    /// Makes progress up to [`BATCH`] times, until the engine is idle. Returns the number of calls that processed
    /// events.
    #[inline]
    fn poll_engine(&mut self) -> u32 {
        let mut count = 0;
        while count < BATCH {
            let Some(link) = &mut self.link else {
                break;
            };
            if !link.endpoint_mut().poll(&mut self.requester) {
                break;
            }
            if let Some(error) = self.requester.failure.take() {
                self.failed(error.into());
            }
            count += 1;
        }
        count
    }

    /// Returns `true` if the progress engine's descriptor is readable.
    fn is_readable(&self) -> bool {
        let Some(link) = &self.link else {
            return false;
        };
        let mut fds = [PollFd::new(link.endpoint(), PollFlags::IN)];
        // Interrupted by a signal: treated as readable.
        rustix::event::poll(&mut fds, Some(&Timespec::default())) != Ok(0)
    }

    /// Sends requests while there are free transactions.
    #[inline]
    fn send(&mut self) {
        if self.is_draining {
            return;
        }
        while let Some(link) = &mut self.link
            && let Some((number, request)) = self.requester.engine.poll_request()
        {
            if self.is_armed {
                self.is_armed = false;
                let _ = link.endpoint().disarm();
            }
            let lane = self.requester.lane.get_mut();
            let sent = match self.requester.release {
                Release::V3_1 => lane.send(Release3_1, number, &request),
                Release::V3_0 | Release::V3_2 => lane.send(Release3_2, number, &request),
            };
            if let Err(error) = sent {
                return self.failed(error.into());
            }
        }
    }

    /// Handles a failure after which the contexts can no longer be used.
    #[cold]
    fn failed(&mut self, failure: Failure) {
        if let Some(link) = self.detach() {
            tracing::debug!("queue: {failure}");
            let mut exchange = self.state.exchange();
            exchange.failure = Some((link.session, failure));
            exchange.returned.push(link);
            drop(exchange);
            self.shared.control.wake();
        }
    }

    /// Removes the contexts from the queue.
    fn detach(&mut self) -> Option<Link> {
        self.touch();
        let mut link = self.link.take()?;
        link.end(std::mem::take(&mut self.requester.lane));
        self.requester.failure = None;
        self.is_draining = false;
        if let Err(error) = epoll::delete(&self.epoll, link.endpoint()) {
            tracing::error!("the descriptor of a progress engine stays in an epoll: {error}");
        }
        Some(link)
    }

    /// Returns the contexts to the control thread.
    fn give_back(&mut self) {
        if let Some(link) = self.detach() {
            self.state.exchange().returned.push(link);
            self.shared.control.wake();
        }
    }

    /// Executes the commands of the control thread.
    #[cold]
    fn execute_commands(&mut self) {
        let commands = {
            let mut exchange = self.state.exchange();
            self.commands = self.state.commands();
            std::mem::take(&mut exchange.commands)
        };
        for command in commands {
            match command {
                Command::Start(link) => {
                    self.give_back();
                    self.attach(*link);
                }
                Command::Return { drain } => {
                    if drain && self.link.is_some() && self.requester.engine.has_requests() {
                        self.is_draining = true;
                    } else {
                        self.give_back();
                    }
                }
                Command::Move(pool) => {
                    self.give_back();
                    self.move_to(pool);
                }
                Command::Fail(error) => {
                    self.give_back();
                    self.requester.engine.fail_all(error);
                    self.refuses = Some(error);
                }
            }
        }
    }

    /// Moves the I/Os in progress to other memory, with the data that they have transferred so far.
    fn move_to(&mut self, pool: Arc<Pool>) {
        let Self {
            requester,
            buffers,
            former_pools,
            ..
        } = self;
        let former = std::mem::replace(&mut requester.pool, pool);
        let pool = &requester.pool;
        requester.engine.move_buffers(|slot| {
            let buffer = buffers[slot].as_mut()?;
            if buffer.is_of(&former) {
                *buffer = pool.copy_of(buffer)?;
            }
            Some(buffer.offset())
        });
        let block_size = requester.engine.block_size();
        for offset in requester.engine.edges_in_use() {
            // Both regions have the same layout.
            let _ = pool.region().copy_from(
                offset as usize,
                former.region(),
                offset as usize,
                block_size,
            );
        }
        // Futures that wait for a buffer of the former pool.
        former.wake();
        if former.taken() != 0 {
            former_pools.push(former);
        }
    }

    /// Exchanges a buffer of a former pool for a copy in the current one.
    #[cold]
    fn exchange_former_buffer(&self, buffer: &mut Option<Buffer>) {
        if let Some(former) = buffer
            && self.former_pools.iter().any(|pool| former.is_of(pool))
            // Always: see `has_spare_buffer`.
            && let Some(copy) = self.requester.pool.copy_of(former)
        {
            *buffer = Some(copy);
        }
    }

    fn attach(&mut self, mut link: Link) {
        let watched = epoll::add(
            &self.epoll,
            link.endpoint(),
            epoll::EventData::new_u64(1),
            epoll::EventFlags::IN,
        );
        // Before the link may be returned again.
        let posted = link.begin().map(|lane| self.requester.lane = lane);
        let incarnation = link.incarnation;
        self.link = Some(link);
        self.refuses = None;
        self.requester.engine.restart(incarnation);
        if let Err(error) = watched {
            return self.failed(Failure::new(
                ErrorCode::OPERATING_SYSTEM,
                format!("watching a progress engine: {error}"),
            ));
        }
        if let Err(error) = posted {
            return self.failed(error.into());
        }
        self.send();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let deadline = Instant::now() + DROP_TIMEOUT;
        while self.link.is_some()
            && self.requester.engine.has_requests()
            && Instant::now() < deadline
        {
            self.poll(&mut drop);
        }
        self.shared.stop_waiting(&self.state);
        if let Some(link) = self.detach() {
            self.state.exchange().returned.push(link);
        }
        self.state.exchange().is_gone = true;
        self.requester.engine.unlock_all();
        self.shared.wake_waiting();
        self.shared.control.wake();
    }
}

/// Completions between updates of a busy queue's published counters; an idle queue publishes before it sleeps.
const INTERVAL: u32 = 64;

/// Counters of a queue's I/Os. Only the published copy is atomic.
#[derive(Debug)]
pub(crate) struct Metered {
    metrics: Arc<WorkerMetrics>,
    traffic: Traffic,
    failed: u64,
    in_flight: u64,
    hits: u64,
    misses: u64,
    /// Operation and length in bytes of the I/O in each of the engine's slots.
    started: Box<[(Operation, u32)]>,
    /// Completions since the last update of the published counters.
    unpublished: u32,
}

impl Metered {
    pub(crate) fn new(metrics: Arc<WorkerMetrics>, depth: usize) -> Self {
        Self {
            metrics,
            traffic: Traffic::default(),
            failed: 0,
            in_flight: 0,
            hits: 0,
            misses: 0,
            started: vec![(Operation::Read, 0); depth].into(),
            unpublished: 0,
        }
    }

    #[inline]
    pub(crate) fn started(&mut self, slot: usize, operation: Operation, len: u32) {
        self.started[slot] = (operation, len);
        self.in_flight += 1;
    }

    #[inline]
    pub(crate) fn completed(&mut self, slot: usize, result: &Result<(), IoError>) {
        let (operation, len) = self.started[slot];
        // Operations are counted with and without errors, bytes without.
        let bytes = result.as_ref().map_or(0, |()| u64::from(len));
        match operation {
            Operation::Read => self.traffic.read(bytes),
            Operation::Flush => self.traffic.flush(),
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard => {
                self.traffic.write(bytes);
            }
        }
        self.failed += u64::from(result.is_err());
        self.in_flight -= 1;
        self.unpublished += 1;
    }

    /// Counts a call of the progress engine.
    #[inline]
    pub(crate) fn polled(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
        if self.unpublished >= INTERVAL {
            self.publish();
        }
    }

    pub(crate) fn publish(&mut self) {
        self.unpublished = 0;
        let counts = self
            .traffic
            .counts()
            .with(Count::Failed, self.failed)
            .with(Count::InFlight, self.in_flight)
            .with(Count::ProgressHits, self.hits)
            .with(Count::ProgressMisses, self.misses);
        self.metrics.publish(&counts);
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.publish();
    }
}
