//! Ctrl-C, SIGTERM and SIGHUP: a flag, and a wake-up for the main thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::errln;

/// A signal repeated within this time counts as one (a terminal signals a whole process group, and a supervisor in it
/// passes the signal on); a later one means that the user does not want to wait.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Exit code of a program that is forced to exit without cleanup, as shells report SIGINT.
const EXIT_IMPATIENT: i32 = 130;

/// Wakes the main thread from [`Waiter::wait`](crate::control::Waiter::wait). Cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct Waker {
    pipe: Arc<(OwnedFd, OwnedFd)>,
}

impl Waker {
    /// Creates a waker with its own pipe.
    ///
    /// # Errors
    ///
    /// The process or the system has too many open files.
    pub fn new() -> std::io::Result<Self> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            pipe: Arc::new(pipe),
        })
    }

    /// Makes the current or the next wait return. If the pipe is full, a wake-up is already pending.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.pipe.1, &[1]);
    }

    /// Discards pending wake-ups.
    pub(crate) fn clear(&self) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.pipe.0, &mut bytes).is_ok_and(|count| count == bytes.len()) {}
    }

    /// Descriptor that is readable after a wake-up, for threads that also wait for other descriptors.
    #[must_use]
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.pipe.0.as_fd()
    }
}

/// Shutdown request of the program, and the waker of its main thread.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: Arc<AtomicBool>,
    waker: Waker,
}

impl Shutdown {
    /// Creates a shutdown that only [`request`](Self::request) triggers.
    ///
    /// # Errors
    ///
    /// As [`Waker::new`].
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            requested: Arc::default(),
            waker: Waker::new()?,
        })
    }

    /// As [`new`](Self::new), and SIGINT, SIGTERM and SIGHUP request shutdown as well. A signal repeated because the
    /// program does not exit makes it exit at once, without cleanup. A program started with SIGHUP ignored, by
    /// nohup(1) for example, continues to ignore it.
    ///
    /// # Errors
    ///
    /// The signal handlers or their thread could not be set up.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new()?;
        let mut wanted = vec![SIGINT, SIGTERM];
        if !is_hangup_ignored() {
            wanted.push(SIGHUP);
        }
        // The handler itself sets the request: on a busy machine, the thread may run only after the main thread has
        // answered several more messages.
        for &signal in &wanted {
            flag::register(signal, Arc::clone(&shutdown.requested))?;
        }
        let mut signals = Signals::new(&wanted)?;
        let requested = shutdown.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let mut first: Option<Instant> = None;
                for _ in signals.forever() {
                    requested.request();
                    if first.get_or_insert_with(Instant::now).elapsed() > IMPATIENCE {
                        errln!("second signal: leaving without cleanup");
                        std::process::exit(EXIT_IMPATIENT);
                    }
                }
            })?;
        Ok(shutdown)
    }

    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns `true` if shutdown was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Waker of the main thread, for worker threads to clone.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// Returns `true` if this process and its children ignore SIGHUP, as under nohup(1); `false` if the kernel does not report it.
#[must_use]
pub fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    mask >> (SIGHUP - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::{self, Command};

    use super::*;

    /// Signal handlers remain for the life of the process, so the test runs in a process of its own: otherwise SIGTERM would be
    /// ignored in the process of the unit tests from then on.
    #[test]
    fn a_signal_is_a_request_as_soon_as_it_is_delivered() {
        const NAME: &str = "shutdown::tests::a_signal_is_a_request_as_soon_as_it_is_delivered";
        const CHILD: &str = "ROLE_COMMON_TEST_CHILD";
        /// Not 0, which is also the exit code of a run without any test.
        const PASSED: i32 = 42;
        if env::var_os(CHILD).is_none() {
            let status = Command::new(env::current_exe().expect("a path"))
                .args([NAME, "--exact", "--nocapture"])
                .env(CHILD, "1")
                .status()
                .expect("a process");
            assert_eq!(status.code(), Some(PASSED), "{status}");
            return;
        }
        let shutdown = Shutdown::on_signals().expect("handlers and a thread");
        // Returns once the handler has run on this thread, whether or not the other thread has.
        signal_hook::low_level::raise(SIGTERM).expect("a signal");
        assert!(shutdown.is_requested());
        process::exit(PASSED);
    }
}
