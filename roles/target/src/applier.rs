//! The thread that applies versions concurrently with the workers: when half of the slots are used, and on request.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::thread::JoinHandle;
use std::time::Duration;

use control::Failure;

use crate::store::{Apply, Progress};
use crate::versions::Versions;

/// Longest sleep of the thread, which is woken when a batch is wanted.
const IDLE: Duration = Duration::from_millis(500);

/// Interval between checks of whether reads of workers have completed.
const READS: Duration = Duration::from_micros(50);

/// Time limit of a request, so that a worker whose read is blocked by its peer does not also block the session.
const PATIENCE: Duration = Duration::from_secs(4);

/// The thread, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Applier {
    /// `None` while the value is being dropped.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    /// Reply to a request that timed out, but will still be executed.
    late: RefCell<Option<Receiver<io::Result<()>>>>,
    /// Time limit of a request.
    patience: Duration,
}

struct Request {
    what: What,
    answer: SyncSender<io::Result<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Apply { all: bool },
    Forget,
}

impl Applier {
    /// Starts the thread, on which `create` creates the applier.
    pub(crate) fn start<A: Apply>(
        versions: &Arc<Versions>,
        create: impl FnOnce() -> Result<A, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (requests, receiver) = channel();
        let (created, is_created) = sync_channel(1);
        let shared = Arc::clone(versions);
        let thread = std::thread::Builder::new()
            .name("versions".to_owned())
            .spawn(move || match create() {
                Ok(apply) => {
                    let _ = created.send(Ok(()));
                    run(&shared, apply, &receiver);
                }
                Err(failure) => {
                    let _ = created.send(Err(failure));
                }
            })
            .map_err(|error| Failure::unexpected(format!("thread for versions: {error}")))?;
        versions.set_applier(thread.thread().clone());
        let this = Self {
            requests: Some(requests),
            thread: Some(thread),
            late: RefCell::default(),
            patience: PATIENCE,
        };
        is_created.recv().map_err(|_| ended())??;
        Ok(this)
    }

    /// Applies all retired versions, or `all` versions, and waits until they have been applied.
    pub(crate) fn apply(&self, all: bool) -> Result<(), Failure> {
        self.request(What::Apply { all })
    }

    /// Discards all versions durably.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        self.request(What::Forget)
    }

    /// Waits for a request that was not answered in time, if there is one. It may apply or discard versions that are
    /// written before it has completed.
    pub(crate) fn await_late(&self) -> Result<(), Failure> {
        match self.late.take() {
            Some(answered) => self.await_answer(answered),
            None => Ok(()),
        }
    }

    fn request(&self, what: What) -> Result<(), Failure> {
        self.await_late()?;
        let (answer, answered) = sync_channel(1);
        let requests = self.requests.as_ref().ok_or_else(ended)?;
        requests
            .send(Request { what, answer })
            .map_err(|_| ended())?;
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        self.await_answer(answered)
    }

    fn await_answer(&self, answered: Receiver<io::Result<()>>) -> Result<(), Failure> {
        match answered.recv_timeout(self.patience) {
            Ok(result) => result.map_err(|error| {
                Failure::new(
                    doca::ErrorCode::IO_FAILED,
                    format!("versions of blocks: {error}"),
                )
            }),
            Err(RecvTimeoutError::Timeout) => {
                self.late.replace(Some(answered));
                Err(Failure::timed_out(
                    "versions of blocks to be applied",
                    self.patience,
                ))
            }
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread for versions has panicked");
            }
        }
    }
}

fn ended() -> Failure {
    Failure::unexpected("the thread for versions of blocks has ended")
}

fn run(versions: &Versions, mut apply: impl Apply, requests: &Receiver<Request>) {
    // Failures are logged once, by the medium's health; afterwards, all I/Os fail.
    let mut has_failed = false;
    loop {
        match requests.try_recv() {
            Ok(Request { what, answer }) => {
                let result = match what {
                    What::Apply { all } => apply_to_end(&mut apply, all),
                    What::Forget => finish_batch(&mut apply).and_then(|()| apply.forget()),
                };
                has_failed |= result.is_err();
                // The requester may have stopped waiting.
                let _ = answer.send(result);
                continue;
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        if !has_failed && (versions.wants_apply() || !apply.is_between_batches()) {
            has_failed = one_batch(&mut apply, false).is_err();
            continue;
        }
        std::thread::park_timeout(IDLE);
    }
}

/// Finishes the current batch, if there is one, and applies a new one.
fn one_batch(apply: &mut impl Apply, all: bool) -> io::Result<Progress> {
    finish_batch(apply)?;
    let begun = apply.step(all)?;
    finish_batch(apply)?;
    Ok(begun)
}

fn apply_to_end(apply: &mut impl Apply, all: bool) -> io::Result<()> {
    while one_batch(apply, all)? != Progress::Idle {}
    Ok(())
}

fn finish_batch(apply: &mut impl Apply) -> io::Result<()> {
    while !apply.is_between_batches() {
        match apply.step(false)? {
            Progress::Reads => std::thread::sleep(READS),
            Progress::Disk => apply.wait(),
            Progress::Idle => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::versions::Log;

    /// A medium that is blocked until the other end of the channel is dropped, and that records the requests to it.
    struct Blocked {
        until: Receiver<()>,
        forgotten: Arc<Mutex<u32>>,
    }

    impl Apply for Blocked {
        fn step(&mut self, _: bool) -> io::Result<Progress> {
            Ok(Progress::Idle)
        }

        fn is_between_batches(&self) -> bool {
            true
        }

        fn forget(&mut self) -> io::Result<()> {
            let _ = self.until.recv();
            *self.forgotten.lock().expect("no panic") += 1;
            Ok(())
        }
    }

    #[test]
    fn late_request_is_waited_for_before_the_next_one() {
        let versions = Versions::new(Log::new(1));
        let forgotten = Arc::new(Mutex::new(0));
        let (unblock, until) = channel();
        let blocked = Blocked {
            until,
            forgotten: Arc::clone(&forgotten),
        };
        let mut applier = Applier::start(&versions, || Ok(blocked)).expect("started");
        applier.patience = Duration::from_millis(100);
        let timed_out = |result: Result<(), Failure>| {
            let failure = result.expect_err("blocked");
            assert_eq!(failure.code, doca::ErrorCode::TIME_OUT);
        };
        timed_out(applier.forget());
        // Further requests are not started while the first one may still be executing.
        timed_out(applier.await_late());
        drop(unblock);
        assert_eq!(applier.await_late().map_err(|it| it.code), Ok(()));
        assert_eq!(*forgotten.lock().expect("no panic"), 1);
        assert_eq!(applier.await_late().map_err(|it| it.code), Ok(()));
        assert_eq!(applier.apply(true).map_err(|it| it.code), Ok(()));
    }
}
