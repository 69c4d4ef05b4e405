//! Ctrl-C, SIGTERM and SIGHUP, which request shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control::shutdown::Shutdown;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::errln;

/// A signal repeated within this time counts as one signal (a terminal signals a whole process group, and a supervisor
/// in it forwards the signal); a later repetition means that the user does not want to wait.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Exit code of a program that is forced to exit without cleanup, as shells report SIGINT.
const EXIT_IMPATIENT: i32 = 130;

/// Creates a shutdown that is requested by SIGINT, SIGTERM and SIGHUP. A repeated signal makes the program exit
/// immediately, without cleanup. A program started with SIGHUP ignored, by nohup(1) for example, continues to ignore
/// it.
///
/// # Errors
///
/// The signal handlers or their thread could not be set up.
pub fn shutdown() -> std::io::Result<Shutdown> {
    let shutdown = Shutdown::new()?;
    let mut wanted = vec![SIGINT, SIGTERM];
    if !is_hangup_ignored() {
        wanted.push(SIGHUP);
    }
    // The handler itself sets the request: on a busy machine, the thread may run only after the main thread has
    // answered several more messages.
    for &signal in &wanted {
        flag::register(signal, Arc::clone(shutdown.flag()))?;
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

    /// Signal handlers remain for the lifetime of the process, so the test runs in a separate process; otherwise,
    /// SIGTERM would be ignored in the process of the unit tests.
    #[test]
    fn a_signal_is_a_request_as_soon_as_it_is_delivered() {
        const NAME: &str = "signals::tests::a_signal_is_a_request_as_soon_as_it_is_delivered";
        const CHILD: &str = "ROLE_COMMON_TEST_CHILD";
        /// Not 0, which is also the exit code of a run in which no test was selected.
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
        let shutdown = shutdown().expect("handlers and a thread");
        // Returns after the handler has run on this thread, independently of the other thread.
        signal_hook::low_level::raise(SIGTERM).expect("a signal");
        assert!(shutdown.is_requested());
        process::exit(PASSED);
    }
}
