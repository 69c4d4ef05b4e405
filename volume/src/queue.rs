//! Submission and completion of I/Os, on one thread per queue.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use doca::{ErrorCode, MemoryRegion};
use role_common::Failure;
use role_common::metrics::WorkerMetrics;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use wire::io_message::SIZE;
use wire::release::{Release, Release3_1, Release3_2};

use crate::asynchronous::AsyncQueue;
use crate::blocking::BlockingQueue;
use crate::buffer::{Buffer, Pool};
use crate::endpoint::{Client, EndpointError, Lane};
use crate::engine::{Engine, Submission};
use crate::io::{Completion, Io, IoError};
use crate::metered::Metered;
use crate::requests::{BadAnswer, Completed};
use crate::seat::{Command, LentLane, Link, Progress, Seat, Shared};

/// Maximum number of progress calls in one [`Queue::poll`]. Each may complete several tasks.
const BATCH: u32 = 16;

/// Consecutive idle polls after which the progress engine is armed, and progressed only when its descriptor is
/// readable: progress of an idle engine would sleep. softdoca does so after 400 idle calls, and on a busy machine
/// after 20.
const IDLE_POLLS: u32 = 16;

/// Time for which dropping a queue waits for outstanding answers.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// A queue of a [`Volume`](crate::Volume), for one thread: submits I/Os to the service's worker with the same number,
/// and reaps them.
///
/// It makes progress during calls only. A thread either calls [`poll`](Self::poll) continually, or sleeps on the
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
    pool: Arc<Pool>,
    seat: Arc<Seat>,
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
    /// Readable when the progress engine or the seat's wake-up is.
    epoll: OwnedFd,
    /// `Some` with metrics.
    metered: Option<Metered>,
}

/// Requests of a queue: handles completions.
#[derive(Debug)]
pub(crate) struct Requester {
    engine: Engine,
    /// Empty between sessions.
    lane: LentLane,
    region: Arc<MemoryRegion>,
    release: Release,
    /// Number of answered requests, wrapping.
    answers: u32,
    /// First failure of the contexts.
    failure: Option<EndpointError>,
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
            .completed(request.number, request.result, &*self.region);
    }

    #[cold]
    fn failed(&mut self, error: EndpointError) {
        self.failure.get_or_insert(error);
    }
}

/// Components of a queue.
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) depth: u32,
    pub(crate) pool: Arc<Pool>,
    pub(crate) region: Arc<MemoryRegion>,
    pub(crate) release: Release,
    pub(crate) seat: Arc<Seat>,
    pub(crate) shared: Arc<Shared>,
}

impl Queue {
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            parts.seat.bell(),
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            link: None,
            requester: Requester {
                engine: parts.engine,
                lane: LentLane::default(),
                region: parts.region,
                release: parts.release,
                answers: 0,
                failure: None,
            },
            buffers: (0..parts.depth).map(|_| None).collect(),
            pool: parts.pool,
            seat: parts.seat,
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

    /// Converts to a queue with blocking calls. No I/O may be in flight: its completion would be taken for that of a blocking call.
    #[must_use]
    pub fn into_blocking(self) -> BlockingQueue {
        BlockingQueue::new(self)
    }

    /// Converts to a queue whose I/Os are futures. No I/O may be in flight.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn into_async(self) -> std::io::Result<AsyncQueue> {
        AsyncQueue::new(self)
    }

    /// Returns a free buffer of `len` bytes. `None` if all are in use until further completions, or if `len` exceeds
    /// [`largest_transfer`](Self::largest_transfer).
    pub fn buffer(&mut self, len: usize) -> Option<Buffer> {
        self.pool.take(len)
    }

    /// Registers a waker for the next freed buffer.
    pub(crate) fn wait_for_buffer(&self, waker: &Waker) {
        self.pool.wait(waker);
    }

    /// Size of a buffer, and so maximum size of a read or a write, in bytes.
    #[must_use]
    pub fn largest_transfer(&self) -> u32 {
        self.pool.size()
    }

    /// Submits an I/O. [`poll`](Self::poll) returns its [`Completion`], including the error of an invalid I/O.
    ///
    /// # Errors
    /// Returns the I/O if [`Config::depth`](crate::Config::depth) of them are in flight; it can be submitted again
    /// after a completion.
    pub fn submit(&mut self, io: Io) -> Result<(), Io> {
        let buffer = io.buffer.as_ref().filter(|buffer| buffer.is_of(&self.pool));
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

    /// Makes progress: sends requests, and passes completed I/Os to `done`. Returns their number. Does not block, but may
    /// yield the CPU when idle.
    pub fn poll(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        if self.seat.commands() != self.commands {
            self.obey();
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
        self.seat.publish(Progress {
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
            });
        }
        count
    }

    /// Descriptor to sleep on, with `poll` or `epoll`, after [`arm`](Self::arm): readable when there is an event. Do
    /// not read from it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Arms the [`descriptor`](Self::descriptor) to become readable with the next event. Returns `false` if there is one already:
    /// call [`poll`](Self::poll). After the sleep, call [`disarm`](Self::disarm) and `poll`. Nothing may be submitted in between.
    pub fn arm(&mut self) -> bool {
        if self.seat.commands() != self.commands
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
            self.shared.wait_for_locks(&self.seat);
            if self.requester.engine.retry_locks() {
                self.shared.stop_waiting(&self.seat);
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
        self.shared.stop_waiting(&self.seat);
        self.seat.clear();
        self.publish(false);
    }

    /// Arms the progress engine; `false` if it has events.
    fn arm_engine(&mut self) -> bool {
        if self.is_armed {
            return true;
        }
        let Some(link) = &self.link else {
            // The seat's wake-up announces the next session.
            return true;
        };
        self.is_armed = matches!(link.endpoint().arm(), Ok(true));
        self.is_armed
    }

    /// Clears a wake-up of the progress engine while no request is outstanding; `false` if there was an event
    /// instead. A peer that saw the engine armed may wake it after it was disarmed, and the descriptor would stay
    /// readable until the next request: a thread that sleeps on it would spin.
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

    /// Makes progress up to [`BATCH`] times, until the engine is idle. Returns the number of calls that found work.
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

    /// Handles a failure after which the contexts cannot be used any more.
    #[cold]
    fn failed(&mut self, failure: Failure) {
        if let Some(link) = self.detach() {
            tracing::debug!("queue: {failure}");
            let mut exchange = self.seat.exchange();
            exchange.failure = Some((link.session, failure));
            exchange.returned.push(link);
            drop(exchange);
            self.shared.control.wake();
        }
    }

    /// Takes the contexts out of use.
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
            self.seat.exchange().returned.push(link);
            self.shared.control.wake();
        }
    }

    /// Executes the commands of the control thread.
    #[cold]
    fn obey(&mut self) {
        let commands = {
            let mut exchange = self.seat.exchange();
            self.commands = self.seat.commands();
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
                Command::Fail(error) => {
                    self.give_back();
                    self.requester.engine.fail_all(error);
                    self.refuses = Some(error);
                }
            }
        }
    }

    fn attach(&mut self, mut link: Link) {
        let watched = epoll::add(
            &self.epoll,
            link.endpoint(),
            epoll::EventData::new_u64(1),
            epoll::EventFlags::IN,
        );
        // Before the link can be returned again.
        let posted = link.begin().map(|lane| self.requester.lane = lane);
        self.link = Some(link);
        self.refuses = None;
        self.requester.engine.restart();
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
        self.shared.stop_waiting(&self.seat);
        if let Some(link) = self.detach() {
            self.seat.exchange().returned.push(link);
        }
        self.seat.exchange().is_gone = true;
        self.requester.engine.unlock_all();
        self.shared.wake_waiting();
        self.shared.control.wake();
    }
}
