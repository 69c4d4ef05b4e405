//! Worker threads: one per `--cpu`, pinned to it, each with its own data path.
//!
//! A worker first executes commands of the main thread, and sleeps between commands. Once started, it runs its data
//! path until the run flag is cleared (or it finishes or fails), and then executes commands again. DOCA handles remain
//! on the thread that created them: a data path is created, used and dropped there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::budget::Deadline;
use control::shutdown::Waker;
use control::{Failure, FirstFailure};
use doca::ErrorCode;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::background::Attachment;

/// Time limit for workers to exit before they are abandoned. It exceeds the duration of a DOCA call to a stopped
/// process, which softdoca aborts after 3 s.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Determines whether a running data path continues.
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
    type Reply: Send + 'static;
    /// Run summary.
    type Report: Send + 'static;

    /// Executes a command.
    ///
    /// # Errors
    ///
    /// Reported to the main thread; the worker continues and takes further commands.
    fn execute(&mut self, command: Self::Command) -> Result<Self::Reply, Failure>;

    /// Runs until the flag is cleared. It must then complete I/Os in flight, in bounded time, or return immediately if
    /// the run is [abandoned](RunFlag::is_abandoned).
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

/// Handle of a worker thread, owned by the main thread. Dropping it stops the thread.
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

#[derive(Debug)]
struct Pending {
    what: &'static str,
    deadline: Deadline,
    /// The thread's [run-queue delay](run_queue_delay) already credited to the deadline.
    delay: Duration,
    /// Upper limit of all extensions.
    last: Instant,
}

/// Maximum extension of a deadline for time in which the worker's thread did not get CPU time.
const LONGEST_EXTENSION: Duration = Duration::from_secs(60);

/// Reply of a worker to [`begin_spawn`](Worker::begin_spawn), [`begin`](Worker::begin) or
/// [`begin_stop`](Worker::begin_stop).
#[derive(Debug)]
pub enum Answer<D: DataPath> {
    /// The data path was created.
    Created,
    Replied(D::Reply),
    /// Report of a stopped data path.
    Stopped(D::Report),
}

impl<D: DataPath> Worker<D> {
    /// Starts worker number `index` on `cpu` and waits until `create` has returned its data path there.
    ///
    /// # Errors
    ///
    /// The thread cannot be created, the CPU does not exist, or `create` failed or did not return `within` the time.
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

    /// Starts worker number `index` on `cpu`. Its first [answer](Self::answer) reports that `create` has created the
    /// data path on the new thread, or fails after `within`. `waker` is used when an answer is available.
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
                // Declared first, so dropped last: when the main thread is woken, the thread has finished, even after a
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

    /// Sends a command. The next [answer](Self::answer) is its reply, or fails after `within`.
    ///
    /// # Errors
    ///
    /// The worker has panicked or is running its data path.
    pub fn begin(&mut self, command: D::Command, within: Duration) -> Result<(), Failure> {
        self.order(Order::Execute(command))?;
        self.expect("a command", within);
        Ok(())
    }

    /// Stops the data path. The next [answer](Self::answer) is its report, or fails after `within`.
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
                    // A late answer would be interpreted as the answer to the next command.
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

    /// Collects the answers expected from all workers, in order of arrival, with the index of the worker; the first
    /// failure is stored in `failure`. Returns `true` if all have arrived.
    pub fn collect(
        workers: &mut [Self],
        now: Instant,
        failure: &mut FirstFailure,
        mut take: impl FnMut(usize, Answer<D>),
    ) -> bool {
        for (index, worker) in workers.iter_mut().enumerate() {
            match worker.answer(now) {
                Ok(Some(answer)) => take(index, answer),
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
    /// The command has failed, there was no reply `within` the time, or the worker has panicked or is running its data
    /// path.
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
                // A late answer would be interpreted as the answer to the next command.
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
    /// [abandoned](crate::background).
    ///
    /// # Errors
    ///
    /// A worker was abandoned, or panicked.
    pub fn end_all(workers: &mut Vec<Self>) -> Result<(), Failure> {
        // Signal all workers before waiting for the first.
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

    /// The thread's state, for users of the same memory.
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
    /// Checks the deadline. Time in which the worker was runnable but not scheduled is not counted: a peer can only
    /// delay a thread that sleeps.
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
        // A thread that has not run yet has been waiting for a CPU all the time.
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
        // The receiver was dropped if the main thread has abandoned this worker.
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
mod tests {
    use std::rc::Rc;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// The text of all failures of the data path.
    const BROKEN: &str = "broken-data-path";

    fn broken() -> Failure {
        Failure::new(ErrorCode::DRIVER, BROKEN)
    }

    /// Requires that this is [`broken`] of this worker.
    fn is_broken(failure: &Failure, worker: u32) {
        assert_eq!(failure.code, ErrorCode::DRIVER, "{failure}");
        for value in [BROKEN, &format!("worker {worker}")] {
            assert!(failure.message.contains(value), "{failure}");
        }
    }

    /// A data path with a handle that must not leave its thread, as DOCA's handles.
    struct Echo {
        calls: Rc<u32>,
        dropped: Sender<()>,
    }

    enum Command {
        Double(u32),
        Fail,
        Panic,
        Sleep(Duration),
        FailRun,
    }

    impl DataPath for Echo {
        type Command = Command;
        type Reply = u32;
        type Report = u32;

        fn execute(&mut self, command: Command) -> Result<u32, Failure> {
            match command {
                Command::Double(number) => Ok(number * 2),
                Command::Fail => Err(broken()),
                Command::Panic => panic!("{BROKEN}"),
                Command::Sleep(time) => {
                    std::thread::sleep(time);
                    Ok(0)
                }
                Command::FailRun => {
                    self.calls = Rc::new(u32::MAX);
                    Ok(0)
                }
            }
        }

        fn run(&mut self, run: &RunFlag) -> Result<u32, Failure> {
            if *self.calls == u32::MAX {
                return Err(broken());
            }
            while run.is_set() {
                std::thread::yield_now();
            }
            self.calls = Rc::new(*self.calls + 1);
            Ok(*self.calls)
        }
    }

    impl Drop for Echo {
        fn drop(&mut self) {
            let _ = self.dropped.send(());
        }
    }

    fn cpu() -> u32 {
        let cpus = rustix::thread::sched_getaffinity(None).expect("affinity");
        (0..1024)
            .find(|&cpu| cpus.is_set(cpu as usize))
            .expect("a CPU")
    }

    fn worker() -> (Worker<Echo>, Receiver<()>, Waker) {
        let (dropped, was_dropped) = channel();
        let waker = Waker::new().expect("pipe");
        let create = move || {
            Ok(Echo {
                calls: Rc::new(0),
                dropped,
            })
        };
        (
            Worker::spawn(0, cpu(), waker.clone(), TIMEOUT, create).expect("spawned"),
            was_dropped,
            waker,
        )
    }

    #[test]
    fn worker_takes_commands_before_and_after_a_run() {
        let (mut worker, dropped, _) = worker();
        assert_eq!(worker.execute(Command::Double(4), TIMEOUT), Ok(8));
        let failure = worker.execute(Command::Fail, TIMEOUT);
        is_broken(&failure.expect_err("fails"), 0);
        for run in 1..=2 {
            worker.start().expect("started");
            assert!(
                worker.execute(Command::Double(1), TIMEOUT).is_err(),
                "it runs"
            );
            assert_eq!(worker.poll(), Ok(None));
            assert_eq!(worker.stop(TIMEOUT), Ok(run));
            assert!(worker.stop(TIMEOUT).is_err(), "it runs no more");
        }
        assert_eq!(worker.execute(Command::Double(5), TIMEOUT), Ok(10));
        drop(worker);
        assert_eq!(
            dropped.try_recv(),
            Ok(()),
            "the data path is gone when the worker is"
        );
    }

    /// Answers arrive in any order, and reports are printed in the order of the workers.
    #[test]
    fn answers_are_collected_with_the_index_of_their_worker() {
        let mut workers = [worker().0, worker().0];
        for worker in &mut workers {
            worker.start().expect("started");
        }
        let mut collected = Vec::new();
        for index in [1, 0] {
            workers[index].begin_stop(TIMEOUT).expect("it runs");
            let mut failure = FirstFailure::default();
            while !Worker::collect(
                &mut workers,
                Instant::now(),
                &mut failure,
                |worker, answer| {
                    assert!(matches!(answer, Answer::Stopped(_)));
                    collected.push(worker);
                },
            ) {
                std::thread::yield_now();
            }
            failure.outcome().expect("stopped");
        }
        assert_eq!(collected, [1, 0]);
    }

    #[test]
    fn failed_run_is_reported_without_a_stop() {
        let (mut worker, _, waker) = worker();
        worker.execute(Command::FailRun, TIMEOUT).expect("prepared");
        waker.clear();
        worker.start().expect("started");
        let deadline = Instant::now() + TIMEOUT;
        let failure = loop {
            match worker.poll() {
                Ok(None) => assert!(Instant::now() < deadline, "no outcome"),
                Ok(Some(report)) => panic!("unexpected report {report}"),
                Err(failure) => break failure,
            }
            std::thread::yield_now();
        };
        is_broken(&failure, 0);
        assert_eq!(
            worker.execute(Command::Double(1), TIMEOUT),
            Ok(2),
            "it still takes commands"
        );
    }

    #[test]
    fn panic_is_reported_and_wakes_the_main_thread() {
        let (mut worker, dropped, _) = worker();
        let failure = worker
            .execute(Command::Panic, TIMEOUT)
            .expect_err("panicked");
        assert!(failure.message.contains(BROKEN), "{failure}");
        assert_eq!(dropped.try_recv(), Ok(()));
        assert!(worker.start().is_err());
        assert!(worker.poll().is_err());
    }

    #[test]
    fn waiting_for_a_worker_times_out() {
        let (mut worker, dropped, _) = worker();
        let failure = worker
            .execute(
                Command::Sleep(Duration::from_millis(200)),
                Duration::from_millis(1),
            )
            .expect_err("too slow");
        assert_eq!(failure.code, ErrorCode::TIME_OUT);
        assert!(
            worker.execute(Command::Double(1), TIMEOUT).is_err(),
            "a late answer is not mistaken for this one's"
        );
        drop(worker);
        assert_eq!(dropped.try_recv(), Ok(()));
    }

    #[test]
    fn failed_creation_and_missing_cpu_are_errors() {
        let waker = Waker::new().expect("pipe");
        let create = || -> Result<Echo, Failure> { Err(broken()) };
        let failure = Worker::spawn(3, cpu(), waker.clone(), TIMEOUT, create).expect_err("fails");
        is_broken(&failure, 3);
        let create = || -> Result<Echo, Failure> { Err(Failure::invalid("never called")) };
        let failure = Worker::spawn(0, 100_000, waker, TIMEOUT, create).expect_err("fails");
        assert!(failure.message.contains("--cpu 100000"), "{failure}");
    }

    #[test]
    fn dropping_a_running_worker_stops_it() {
        let (mut worker, dropped, _) = worker();
        worker.start().expect("started");
        drop(worker);
        assert_eq!(dropped.try_recv(), Ok(()));
    }

    /// Waits for a worker's next answer.
    fn answer(worker: &mut Worker<Echo>) -> Result<Answer<Echo>, Failure> {
        loop {
            if let Some(answer) = worker.answer(Instant::now())? {
                return Ok(answer);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn answers_are_polled_without_blocking() {
        let (mut worker, _, _) = worker();
        assert!(worker.answer(Instant::now()).expect("idle").is_none());
        worker.begin(Command::Double(4), TIMEOUT).expect("begun");
        assert!(worker.is_pending() && worker.deadline().is_some());
        assert!(matches!(answer(&mut worker), Ok(Answer::Replied(8))));
        assert!(worker.begin_stop(TIMEOUT).is_err(), "it does not run");
        worker.start().expect("started");
        worker.begin_stop(TIMEOUT).expect("it runs");
        assert!(matches!(answer(&mut worker), Ok(Answer::Stopped(1))));
        let sleep = Command::Sleep(Duration::from_millis(200));
        worker
            .begin(sleep, Duration::from_millis(1))
            .expect("begun");
        let failure = answer(&mut worker).err().expect("too late");
        assert_eq!(failure.code, ErrorCode::TIME_OUT);
        assert!(
            worker.begin(Command::Double(1), TIMEOUT).is_err(),
            "its late reply would be taken for this one's"
        );
    }

    #[test]
    fn time_without_a_cpu_extends_the_deadline() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seconds = Duration::from_secs;
        let mut pending = Pending {
            what: "it",
            deadline: Deadline::new(start, seconds(4)),
            delay: seconds(10),
            last: at(64),
        };
        let mut check = |now, delay: Option<Duration>| {
            pending
                .check(now, || delay, format_args!("it"))
                .map(|()| pending.deadline.at())
        };
        assert_eq!(check(at(3), None), Ok(at(4)), "not asked for");
        assert_eq!(check(at(4), Some(seconds(13))), Ok(at(7)), "3 s of it");
        assert_eq!(check(at(7), None), Ok(at(8)), "it has not run yet");
        let late = check(at(8), Some(seconds(14))).expect_err("it sleeps");
        assert_eq!(late.code, ErrorCode::TIME_OUT);
        let late = check(at(64), Some(seconds(1000))).expect_err("for too long");
        assert_eq!(late.code, ErrorCode::TIME_OUT);
    }

    #[test]
    fn run_queue_delay_is_read_from_the_kernel() {
        let (worker, _, _) = worker();
        assert!(run_queue_delay(&worker.tid).is_some());
        assert_eq!(run_queue_delay(&AtomicI32::new(0)), None);
    }
}
