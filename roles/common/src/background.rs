//! Calls that may wait for a peer, each on a separate thread and with a deadline, and threads that are abandoned
//! because they missed their deadline.
//!
//! A thread that waits in a call for a peer's answer cannot be cancelled. When its deadline has passed, its session
//! ends and the thread is abandoned: it keeps its stack, its descriptors, and the memory and DOCA objects that it uses,
//! none of which is used for another session, until the call returns and the thread exits. At most
//! [`ABANDONED_THREADS`] may be abandoned at a time; until one of them returns, further sessions are refused. The
//! resources of a thread are bounded by the limits of its session: see [`InitLimits`](crate::init_limits::InitLimits).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use control::Failure;
use control::budget::Deadline;
use control::shutdown::Waker;
use doca::ErrorCode;

/// Number of abandoned threads at which new sessions are refused.
pub const ABANDONED_THREADS: usize = 16;

static ABANDONED: AtomicUsize = AtomicUsize::new(0);

const RUNNING: u8 = 0;
const ABANDONED_STATE: u8 = 1;
const RETURNED: u8 = 2;

/// State of a thread: running, abandoned or returned. Clones refer to the same thread.
#[derive(Debug, Clone, Default)]
pub struct Attachment(Arc<AtomicU8>);

impl Attachment {
    /// Returns the guard that the thread holds while it runs.
    pub(crate) fn guard(&self) -> Guard {
        Guard(Arc::clone(&self.0))
    }

    /// Abandons the thread, unless it has returned.
    pub(crate) fn abandon(&self) {
        let exchanged = self.0.compare_exchange(
            RUNNING,
            ABANDONED_STATE,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if exchanged.is_ok() {
            ABANDONED.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns `true` if the thread was abandoned and has not returned.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Acquire) == ABANDONED_STATE
    }
}

/// Held by a thread: dropped when it returns or panics.
pub(crate) struct Guard(Arc<AtomicU8>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.swap(RETURNED, Ordering::AcqRel) == ABANDONED_STATE {
            ABANDONED.fetch_sub(1, Ordering::AcqRel);
            tracing::info!("an abandoned thread has returned");
        }
    }
}

/// Checks that another session may be served.
///
/// # Errors
///
/// `AGAIN`: the maximum number of threads is blocked by peers of earlier sessions.
pub(crate) fn check_abandoned() -> Result<(), Failure> {
    let count = ABANDONED.load(Ordering::Acquire);
    if count < ABANDONED_THREADS {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::AGAIN,
        format!(
            "{count} threads are held by peers of earlier sessions, expected fewer than {ABANDONED_THREADS}; try again later"
        ),
    ))
}

/// A call that runs on a separate thread. If the value is dropped, or past the deadline, the thread is
/// [abandoned](self) with everything that it uses, and drops the result itself.
#[derive(Debug)]
pub struct Background<T> {
    what: &'static str,
    result: Receiver<T>,
    deadline: Deadline,
    attachment: Attachment,
    has_returned: bool,
}

impl<T: Send + 'static> Background<T> {
    /// Starts a call with a time limit of `within`. `waker` is used when the call has returned.
    ///
    /// # Errors
    ///
    /// The operating system cannot create a thread.
    pub fn start(
        what: &'static str,
        within: Duration,
        waker: Waker,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, Failure> {
        let attachment = Attachment::default();
        let guard = attachment.guard();
        let (sender, result) = channel();
        let body = move || {
            let _guard = guard;
            // If the receiver was dropped, the result is dropped here.
            let _ = sender.send(call());
            waker.wake();
        };
        std::thread::Builder::new()
            .name("background".to_owned())
            .spawn(body)
            .map_err(|error| {
                Failure::new(
                    ErrorCode::OPERATING_SYSTEM,
                    format!("thread for {what}: {error}"),
                )
            })?;
        Ok(Self {
            what,
            result,
            deadline: Deadline::new(Instant::now(), within),
            attachment,
            has_returned: false,
        })
    }

    /// Returns the result if the call has returned.
    ///
    /// # Errors
    ///
    /// The deadline has passed, or the call panicked.
    pub fn poll(&mut self, now: Instant) -> Result<Option<T>, Failure> {
        match self.result.try_recv() {
            Ok(result) => {
                self.has_returned = true;
                Ok(Some(result))
            }
            Err(TryRecvError::Disconnected) => {
                self.has_returned = true;
                Err(Failure::unexpected(format!("{} panicked", self.what)))
            }
            Err(TryRecvError::Empty) => self.deadline.check(now, self.what).map(|()| None),
        }
    }

    /// Time by which the call must return.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline.at()
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        if !self.has_returned {
            self.attachment.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn result<T: Send + 'static>(background: &mut Background<T>) -> Result<T, Failure> {
        loop {
            if let Some(result) = background.poll(Instant::now())? {
                return Ok(result);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A single test, because the number of abandoned threads is per process.
    #[test]
    fn call_past_its_deadline_is_abandoned_and_counted() {
        let waker = Waker::new().expect("a pipe");
        let mut quick = Background::start("it", TIMEOUT, waker.clone(), || 7).expect("started");
        assert_eq!(result(&mut quick), Ok(7));
        let mut panics = Background::start("it", TIMEOUT, waker.clone(), || panic!("asked to"))
            .expect("started");
        let failure = result::<()>(&mut panics).expect_err("it panics");
        assert_eq!(failure.code, ErrorCode::UNEXPECTED);

        let (release, held) = channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let short = Duration::from_millis(1);
        for _ in 0..ABANDONED_THREADS {
            check_abandoned().expect("not too many yet");
            let held = std::sync::Arc::clone(&held);
            let call = move || drop(held.lock().map(|held| held.recv()));
            let mut stuck = Background::start("it", short, waker.clone(), call).expect("started");
            let failure = result(&mut stuck).expect_err("it is held");
            assert_eq!(failure.code, ErrorCode::TIME_OUT);
        }
        let failure = check_abandoned().expect_err("too many");
        assert_eq!(failure.code, ErrorCode::AGAIN);
        drop(release);
        let deadline = Instant::now() + TIMEOUT;
        while check_abandoned().is_err() {
            assert!(Instant::now() < deadline, "they do not return");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
