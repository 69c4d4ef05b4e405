//! Worker threads: one per `--cpu`, pinned to it, each with a data path of its own.
//!
//! A worker first takes commands from the main thread, sleeping in between. Started, it runs its
//! data path until the run flag is cleared (or it is done, or fails), and then takes commands again.
//! DOCA's handles stay on the thread that made them: a data path is created, used and dropped there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use doca::ErrorCode;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::failure::Failure;
use crate::shutdown::Waker;

/// How long a worker that is dropped may take to end before it is left behind. More than a call into DOCA takes that asks a process
/// which is stopped: softdoca gives that up after 3 s.
const FAREWELL: Duration = Duration::from_secs(5);

/// Tells a running data path whether to go on.
#[derive(Debug, Clone, Default)]
pub struct RunFlag(Arc<Run>);

#[derive(Debug, Default)]
struct Run {
    goes_on: AtomicBool,
    is_abandoned: AtomicBool,
}

impl RunFlag {
    /// Whether the data path is to go on. One relaxed load: affordable in every turn of a loop.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.goes_on.load(Ordering::Relaxed)
    }

    /// Whether nobody waits any more for what is in flight: the session has failed, or the worker is not needed.
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

/// What one worker thread does.
pub trait DataPath: Sized + 'static {
    /// What the main thread may ask for while the data path does not run.
    type Command: Send + 'static;
    /// The answer to a command.
    type Reply: Send + 'static;
    /// What is known after a run.
    type Report: Send + 'static;

    /// Carries out a command.
    ///
    /// # Errors
    ///
    /// Goes to the main thread; the worker stays and takes further commands.
    fn execute(&mut self, command: Self::Command) -> Result<Self::Reply, Failure>;

    /// Runs until the flag is cleared. It is expected to finish what is in flight, in bounded time; and at once when the run is
    /// [abandoned](RunFlag::is_abandoned).
    ///
    /// # Errors
    ///
    /// Goes to the main thread, and wakes it.
    fn run(&mut self, run: &RunFlag) -> Result<Self::Report, Failure>;
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

/// A worker thread, seen from the main thread. Dropping it ends the thread.
pub struct Worker<D: DataPath> {
    name: String,
    run: RunFlag,
    /// `None` from the moment on that the thread is to end.
    orders: Option<Sender<Order<D>>>,
    outcomes: Receiver<Result<Outcome<D>, Failure>>,
    thread: Option<JoinHandle<()>>,
    running: bool,
}

impl<D: DataPath> Worker<D> {
    /// Starts worker number `index` on `cpu` and waits until `create` made its data path there.
    ///
    /// # Errors
    ///
    /// No thread, no such CPU, the failure of `create`, or no answer `within` the time.
    pub fn spawn(
        index: u32,
        cpu: u32,
        waker: Waker,
        within: Duration,
        create: impl FnOnce() -> Result<D, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let name = format!("worker {index} on CPU {cpu}");
        let run = RunFlag::default();
        let (orders, received_orders) = channel();
        let (sent_outcomes, outcomes) = channel();
        let thread = {
            let run = run.clone();
            let body = move || {
                // Declared first, so dropped last: the main thread wakes up to a finished thread,
                // also after a panic.
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
            running: false,
        };
        worker.outcome(within, "creation")?;
        Ok(worker)
    }

    /// Has a command carried out and waits for the reply.
    ///
    /// # Errors
    ///
    /// The command's failure, no reply `within` the time, or a worker that panicked or runs its
    /// data path.
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
    /// The worker panicked, or runs already.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.run.set(true);
        self.order(Order::Run)?;
        self.running = true;
        Ok(())
    }

    /// Whether the data path was started and its end was not seen yet.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// The report of a data path that ended by itself, and `None` while it runs (or never started).
    /// The waker is used when there is something to see here.
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

    /// Clears the run flag of the data path. With several workers, do this for all before waiting
    /// for the first.
    pub fn request_stop(&self) {
        self.run.set(false);
    }

    /// Stops the data path and waits for its report.
    ///
    /// # Errors
    ///
    /// The data path failed, panicked, was not running, or did not end `within` the time.
    pub fn stop(&mut self, within: Duration) -> Result<D::Report, Failure> {
        self.request_stop();
        if !self.running {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                format!("{}: the data path does not run", self.name),
            ));
        }
        let outcome = self.outcome(within, "the end of the data path")?;
        self.finished(Ok(outcome))
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
                // Its late answer would be taken for the answer to the next order.
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
        Failure::unexpected(format!("{}: an answer to another order came", self.name))
    }

    /// Why the thread is gone.
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
    /// Tells all workers to end, and waits until they have.
    ///
    /// # Errors
    ///
    /// A worker does not end, and is left behind with whatever it uses, or panicked.
    pub fn end_all(workers: &mut Vec<Self>) -> Result<(), Failure> {
        // All before the first is waited for.
        for worker in workers.iter_mut() {
            worker.run.abandon();
            worker.orders = None;
        }
        let ends: Vec<_> = workers.drain(..).map(|mut worker| worker.end()).collect();
        ends.into_iter().collect()
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.run.abandon();
        self.orders = None;
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        // The channel is disconnected when the thread is about to end; late outcomes come before.
        loop {
            match self.outcomes.recv_timeout(FAREWELL) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::timed_out(
                        format_args!("the end of {}, which is left behind", self.name),
                        FAREWELL,
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
        if let Err(failure) = self.end() {
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
        // Nobody listens when the main thread gave this worker up.
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
