//! Worker threads: one per `--cpu`, pinned to it, each with its own data path.
//!
//! A worker first executes commands of the main thread, sleeping in between. Once started, it runs its data path until
//! the run flag is cleared (or it finishes or fails), and then executes commands again. DOCA handles stay on the
//! thread that created them: a data path is created, used and dropped there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doca::ErrorCode;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::abandoned::Attachment;
use crate::budget::Deadline;
use crate::failure::{Failure, FirstFailure};
use crate::shutdown::Waker;

/// Time for workers to exit before they are abandoned. It exceeds the duration of a DOCA call to a stopped process,
/// which softdoca gives up after 3 s.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells a running data path whether to continue.
#[derive(Debug, Clone, Default)]
pub struct RunFlag(Arc<Run>);

#[derive(Debug, Default)]
struct Run {
    goes_on: AtomicBool,
    is_abandoned: AtomicBool,
}

impl RunFlag {
    /// Returns `true` while the data path is to run. A relaxed load: cheap enough for every poll iteration.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.goes_on.load(Ordering::Relaxed)
    }

    /// Returns `true` if in-flight I/Os need not be awaited: the session has failed, or the worker is not needed.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned.load(Ordering::Relaxed)
    }

    fn set(&self, value: bool) {
        self.0.goes_on.store(value, Ordering::Relaxed);
    }

    pub(crate) fn abandon(&self) {
        self.0.is_abandoned.store(true, Ordering::Relaxed);
        self.set(false);
    }
}

/// The work of a worker thread.
pub trait DataPath: 'static {
    /// Command of the main thread, executed while the data path does not run.
    type Command: Send + 'static;
    /// Reply to a command.
    type Reply: Send + 'static;
    /// Run summary.
    type Report: Send + 'static;

    /// Executes a command.
    ///
    /// # Errors
    ///
    /// Reported to the main thread; the worker continues and takes further commands.
    fn execute(&mut self, command: Self::Command) -> Result<Self::Reply, Failure>;

    /// Runs until the flag is cleared. It must then complete I/Os in flight, in bounded time, or return at once if the
    /// run is [abandoned](RunFlag::is_abandoned).
    ///
    /// # Errors
    ///
    /// Reported to the main thread, which is woken.
    fn run(&mut self, run: &RunFlag) -> Result<Self::Report, Failure>;
}

impl<D: DataPath + ?Sized> DataPath for Box<D> {
    type Command = D::Command;
    type Reply = D::Reply;
    type Report = D::Report;

    fn execute(&mut self, command: Self::Command) -> Result<Self::Reply, Failure> {
        (**self).execute(command)
    }

    fn run(&mut self, run: &RunFlag) -> Result<Self::Report, Failure> {
        (**self).run(run)
    }
}

enum Order<D: DataPath> {
    Execute(D::Command),
    Run,
}

enum Outcome<D: DataPath> {
    Created,
    Executed(Result<D::Reply, Failure>),
    Finished(Result<D::Report, Failure>),
}

/// A worker thread, as seen from the main thread. Dropping it stops the thread.
pub struct Worker<D: DataPath> {
    name: String,
    run: RunFlag,
    /// `None` once the thread has been asked to exit.
    orders: Option<Sender<Order<D>>>,
    outcomes: Receiver<Result<Outcome<D>, Failure>>,
    thread: Option<JoinHandle<()>>,
    attachment: Attachment,
    running: bool,
    /// Kernel thread id; 0 until the thread runs.
    tid: Arc<AtomicI32>,
    pending: Option<Pending>,
}

/// An expected answer.
#[derive(Debug)]
struct Pending {
    what: &'static str,
    deadline: Deadline,
    /// The thread's [run-queue delay](run_queue_delay) already credited to the deadline.
    delay: Duration,
    /// Upper limit of all extensions.
    last: Instant,
}

/// Maximum extension of a deadline for time in which the worker's thread gets no CPU.
const LONGEST_EXTENSION: Duration = Duration::from_secs(60);

/// Answer of a worker to [`begin_spawn`](Worker::begin_spawn), [`begin`](Worker::begin) or
/// [`begin_stop`](Worker::begin_stop).
#[derive(Debug)]
pub enum Answer<D: DataPath> {
    /// The data path was created.
    Created,
    /// Reply to a command.
    Replied(D::Reply),
    /// Report of a stopped data path.
    Stopped(D::Report),
}

impl<D: DataPath> Worker<D> {
    /// Starts worker number `index` on `cpu` and waits until `create` has returned its data path there.
    ///
    /// # Errors
    ///
    /// The thread cannot be created, the CPU does not exist, `create` failed, or did not return `within` the time.
    pub fn spawn(
        index: u32,
        cpu: u32,
        waker: Waker,
        within: Duration,
        create: impl FnOnce() -> Result<D, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let mut worker = Self::begin_spawn(index, cpu, waker, within, create)?;
        worker.pending = None;
        worker.outcome(within, "creation")?;
        Ok(worker)
    }

    /// Starts worker number `index` on `cpu`. Its first [answer](Self::answer) reports that `create` has returned its
    /// data path there, or fails after `within`. `waker` is used when there is an answer.
    ///
    /// # Errors
    ///
    /// The thread cannot be created.
    pub fn begin_spawn(
        index: u32,
        cpu: u32,
        waker: Waker,
        within: Duration,
        create: impl FnOnce() -> Result<D, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let name = format!("worker {index} on CPU {cpu}");
        let run = RunFlag::default();
        let attachment = Attachment::default();
        let tid = Arc::new(AtomicI32::new(0));
        let (orders, received_orders) = channel();
        let (sent_outcomes, outcomes) = channel();
        let thread = {
            let run = run.clone();
            let guard = attachment.guard();
            let tid = Arc::clone(&tid);
            let body = move || {
                let _guard = guard;
                let id = rustix::thread::gettid().as_raw_nonzero().get();
                tid.store(id, Ordering::Relaxed);
                // Declared first, so dropped last: when the main thread wakes, the thread has finished, also after a
                // panic.
                let _farewell = WakeOnDrop(waker.clone());
                let outcomes = Outcomes {
                    sender: sent_outcomes,
                    waker,
                };
                match pin(cpu).and_then(|()| create()) {
                    Ok(data_path) => serve(data_path, &received_orders, &outcomes, &run),
                    Err(failure) => outcomes.send(Err(failure)),
                }
            };
            std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(body)
        };
        let thread = thread.map_err(|error| {
            Failure::new(
                ErrorCode::OPERATING_SYSTEM,
                format!("thread of {name}: {error}"),
            )
        })?;
        let mut worker = Self {
            name,
            run,
            orders: Some(orders),
            outcomes,
            thread: Some(thread),
            attachment,
            running: false,
            tid,
            pending: None,
        };
        worker.expect("creation", within);
        Ok(worker)
    }

    /// Gives a command, whose reply is the next [answer](Self::answer), or fails after `within`.
    ///
    /// # Errors
    ///
    /// The worker has panicked or is running its data path.
    pub fn begin(&mut self, command: D::Command, within: Duration) -> Result<(), Failure> {
        self.order(Order::Execute(command))?;
        self.expect("a command", within);
        Ok(())
    }

    /// Stops the data path, whose report is the next [answer](Self::answer), or fails after `within`.
    ///
    /// # Errors
    ///
    /// The data path is not running.
    pub fn begin_stop(&mut self, within: Duration) -> Result<(), Failure> {
        self.request_stop();
        self.check_running()?;
        self.expect("the end of the data path", within);
        Ok(())
    }

    fn expect(&mut self, what: &'static str, within: Duration) {
        let now = Instant::now();
        self.pending = Some(Pending {
            what,
            deadline: Deadline::new(now, within),
            delay: run_queue_delay(&self.tid).unwrap_or_default(),
            last: now + within + LONGEST_EXTENSION,
        });
    }

    /// Returns `true` if an answer is expected.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Time by which the expected answer must arrive.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| pending.deadline.at())
    }

    /// Returns the expected answer if it has arrived.
    ///
    /// # Errors
    ///
    /// The operation failed or timed out, or the worker panicked.
    pub fn answer(&mut self, now: Instant) -> Result<Option<Answer<D>>, Failure> {
        let Some(pending) = &mut self.pending else {
            return Ok(None);
        };
        let outcome = match self.outcomes.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Disconnected) => {
                self.pending = None;
                return Err(self.gone());
            }
            Err(TryRecvError::Empty) => {
                let what = pending.what;
                let waiting = format_args!("{}: {what}", self.name);
                let in_time = pending.check(now, || run_queue_delay(&self.tid), waiting);
                if in_time.is_err() {
                    // A late answer would be taken for the next one.
                    self.orders = None;
                    self.pending = None;
                }
                return in_time.map(|()| None);
            }
        };
        self.pending = None;
        let named = |failure: Failure| failure.context(&self.name);
        let answer = match outcome.map_err(named)? {
            Outcome::Created => Answer::Created,
            Outcome::Executed(reply) => Answer::Replied(reply.map_err(named)?),
            Outcome::Finished(report) => {
                self.running = false;
                Answer::Stopped(report.map_err(|failure| failure.context(&self.name))?)
            }
        };
        Ok(Some(answer))
    }

    /// Collects the answers expected from all workers; the first failure is stored in `failure`. Returns `true` if all
    /// have arrived.
    pub fn collect(
        workers: &mut [Self],
        now: Instant,
        failure: &mut FirstFailure,
        mut take: impl FnMut(Answer<D>),
    ) -> bool {
        for worker in workers.iter_mut() {
            match worker.answer(now) {
                Ok(Some(answer)) => take(answer),
                Ok(None) => {}
                Err(why) => failure.keep(why),
            }
        }
        !workers.iter().any(Self::is_pending)
    }

    /// Executes a command and waits for the reply.
    ///
    /// # Errors
    ///
    /// The command's failure, no reply `within` the time, or a worker that has panicked or is running its data path.
    pub fn execute(&mut self, command: D::Command, within: Duration) -> Result<D::Reply, Failure> {
        self.order(Order::Execute(command))?;
        match self.outcome(within, "a command")? {
            Outcome::Executed(result) => result.map_err(|failure| failure.context(&self.name)),
            Outcome::Created | Outcome::Finished(_) => Err(self.out_of_step()),
        }
    }

    /// Starts the data path.
    ///
    /// # Errors
    ///
    /// The worker has panicked or is running already.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.run.set(true);
        self.order(Order::Run)?;
        self.running = true;
        Ok(())
    }

    /// Returns `true` if the data path was started and its end has not been polled.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Returns the report of a data path that ended by itself, and `None` while it runs (or was never started). The
    /// waker is used when this changes.
    ///
    /// # Errors
    ///
    /// The data path failed or panicked.
    pub fn poll(&mut self) -> Result<Option<D::Report>, Failure> {
        match self.outcomes.try_recv() {
            Ok(outcome) => self.finished(outcome).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.gone()),
        }
    }

    /// Clears the run flag of the data path. With several workers, call this for all before waiting for the first.
    pub fn request_stop(&self) {
        self.run.set(false);
    }

    /// Stops the data path and waits for its report.
    ///
    /// # Errors
    ///
    /// The data path failed, panicked, was not running, or did not stop `within` the time.
    pub fn stop(&mut self, within: Duration) -> Result<D::Report, Failure> {
        self.request_stop();
        self.check_running()?;
        let outcome = self.outcome(within, "the end of the data path")?;
        self.finished(Ok(outcome))
    }

    fn check_running(&self) -> Result<(), Failure> {
        if self.running {
            return Ok(());
        }
        Err(Failure::new(
            ErrorCode::BAD_STATE,
            format!("{}: the data path does not run", self.name),
        ))
    }

    fn order(&mut self, order: Order<D>) -> Result<(), Failure> {
        if self.running {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                format!("{}: the data path runs", self.name),
            ));
        }
        let sent = self
            .orders
            .as_ref()
            .is_some_and(|orders| orders.send(order).is_ok());
        if sent { Ok(()) } else { Err(self.gone()) }
    }

    fn outcome(&mut self, within: Duration, what: &str) -> Result<Outcome<D>, Failure> {
        match self.outcomes.recv_timeout(within) {
            Ok(outcome) => outcome.map_err(|failure| failure.context(&self.name)),
            Err(RecvTimeoutError::Timeout) => {
                // A late answer would be taken for the next one.
                self.orders = None;
                Err(Failure::timed_out(
                    format_args!("{}: {what}", self.name),
                    within,
                ))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    fn finished(&mut self, outcome: Result<Outcome<D>, Failure>) -> Result<D::Report, Failure> {
        self.running = false;
        match outcome? {
            Outcome::Finished(result) => result.map_err(|failure| failure.context(&self.name)),
            Outcome::Created | Outcome::Executed(_) => Err(self.out_of_step()),
        }
    }

    fn out_of_step(&self) -> Failure {
        Failure::unexpected(format!(
            "{}: unexpected answer to another command",
            self.name
        ))
    }

    /// Failure with the reason why the thread has exited.
    fn gone(&mut self) -> Failure {
        self.running = false;
        self.orders = None;
        let reason = match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .map_or("panicked".to_owned(), |text| format!("panicked: {text}")),
            Some(Ok(())) | None => "its thread has ended".to_owned(),
        };
        Failure::unexpected(format!("{}: {reason}", self.name))
    }
}

impl<D: DataPath> Worker<D> {
    /// Stops all workers and waits for them. Those that do not exit in time are blocked by a peer, and are
    /// [abandoned](crate::abandoned).
    ///
    /// # Errors
    ///
    /// A worker was abandoned, or panicked.
    pub fn end_all(workers: &mut Vec<Self>) -> Result<(), Failure> {
        // Signal all of them before waiting for the first.
        for worker in workers.iter_mut() {
            worker.run.abandon();
            worker.orders = None;
        }
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let ends: Vec<_> = workers
            .drain(..)
            .map(|mut worker| worker.end(deadline))
            .collect();
        ends.into_iter().collect()
    }

    /// The thread's state, for others that use the same memory.
    #[must_use]
    pub fn attachment(&self) -> Attachment {
        self.attachment.clone()
    }

    fn end(&mut self, deadline: Instant) -> Result<(), Failure> {
        self.run.abandon();
        self.orders = None;
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        // The channel is disconnected just before the thread exits; late outcomes are received first.
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.outcomes.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.attachment.abandon();
                    return Err(Failure::timed_out(
                        format_args!("the end of {}, which is abandoned", self.name),
                        EXIT_TIMEOUT,
                    ));
                }
            }
        }
        thread
            .join()
            .map_err(|_| Failure::unexpected(format!("{} panicked", self.name)))
    }
}

impl<D: DataPath> Drop for Worker<D> {
    fn drop(&mut self) {
        if let Err(failure) = self.end(Instant::now() + EXIT_TIMEOUT) {
            tracing::error!("{failure}");
        }
    }
}

impl<D: DataPath> std::fmt::Debug for Worker<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.name)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Pending {
    /// Checks the deadline. Time in which the worker was runnable but got no CPU is not counted: a peer can only hold
    /// up a thread that sleeps.
    fn check(
        &mut self,
        now: Instant,
        run_queue_delay: impl FnOnce() -> Option<Duration>,
        waiting: std::fmt::Arguments<'_>,
    ) -> Result<(), Failure> {
        let late = match self.deadline.check(now, waiting) {
            Ok(()) => return Ok(()),
            Err(late) => late,
        };
        // A thread that has not run yet has spent all the time waiting for a CPU.
        let delay = run_queue_delay().unwrap_or(self.delay + Duration::from_secs(1));
        let extension = delay.saturating_sub(self.delay);
        let at = self.deadline.at() + extension;
        if now >= at.min(self.last) {
            return Err(late);
        }
        self.delay = delay;
        self.deadline.extend(extension);
        Ok(())
    }
}

/// Time that a thread of this process has waited for a CPU; `None` if it has not run yet, or the kernel does not
/// report it.
fn run_queue_delay(tid: &AtomicI32) -> Option<Duration> {
    let tid = tid.load(Ordering::Relaxed);
    let statistics = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    let delay = statistics.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(delay))
}

struct WakeOnDrop(Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

struct Outcomes<D: DataPath> {
    sender: Sender<Result<Outcome<D>, Failure>>,
    waker: Waker,
}

impl<D: DataPath> Outcomes<D> {
    fn send(&self, outcome: Result<Outcome<D>, Failure>) {
        // The receiver is gone if the main thread has given up this worker.
        let _ = self.sender.send(outcome);
        self.waker.wake();
    }
}

fn serve<D: DataPath>(
    mut data_path: D,
    orders: &Receiver<Order<D>>,
    outcomes: &Outcomes<D>,
    run: &RunFlag,
) {
    outcomes.send(Ok(Outcome::Created));
    while let Ok(order) = orders.recv() {
        let outcome = match order {
            Order::Execute(command) => Outcome::Executed(data_path.execute(command)),
            Order::Run => Outcome::Finished(data_path.run(run)),
        };
        outcomes.send(Ok(outcome));
    }
}

fn pin(cpu: u32) -> Result<(), Failure> {
    let mut cpus = CpuSet::new();
    let index = usize::try_from(cpu)
        .ok()
        .filter(|&index| index < CpuSet::MAX_CPU);
    let pinned = index.ok_or(rustix::io::Errno::INVAL).and_then(|index| {
        cpus.set(index);
        sched_setaffinity(None, &cpus)
    });
    pinned.map_err(|error| Failure::invalid(format!("--cpu {cpu}: cannot run there: {error}")))
}

#[cfg(test)]
mod tests;
