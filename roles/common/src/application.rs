//! Common start-up and exit of every program: flags, banner, logs, signals, exit code. Also consecutive sessions
//! ([`serve`]): their limit and their results.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::ExitCode;
use std::sync::Once;
use std::time::{Duration, Instant};

use clap::Args;
use control::Failure;
use control::Waiter;
use control::budget::{LOG_LINES_PER_SECOND, LogBudget};
use control::shutdown::Shutdown;
use doca::ErrorCode;
use metrics::{Metrics, MetricsAddress};

use crate::console::{self, Console};
use crate::errln;
use crate::flags::{self, FlagsError, RoleFlags};
use crate::signals;

pub use crate::flags::SessionLimit;

/// Resources of a program in addition to its flags.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Console for the program's output.
    pub console: Console,
    /// Shutdown request, set by signals.
    pub shutdown: Shutdown,
    /// Metrics served with `--metrics`.
    pub metrics: Metrics,
}

impl Environment {
    /// Announces on the console, and to a service manager, that the program is ready for its peers.
    pub fn announce_ready(&self, line: impl std::fmt::Display) {
        self.console.announce(line);
        notify_ready();
    }
}

/// Runs the program called `name`: reads its flags from `args`, starts logs and signal handling,
/// and calls `body`. Exit codes: 0 for success, help and version, 1 for a failure, [`console::EXIT_USAGE`] for wrong usage, which is 1 in the
/// reference.
pub fn run<F: RoleFlags>(
    name: &'static str,
    args: impl IntoIterator<Item = OsString>,
    body: impl FnOnce(F, Environment) -> Result<(), Failure>,
) -> ExitCode {
    let banner = format!("{name}: v{}", env!("CARGO_PKG_VERSION"));
    let flags: F = match flags::read(name, args) {
        Ok(flags) => flags,
        Err(outcome) => {
            Console::default().announce(banner);
            let code = match outcome {
                FlagsError::Information(text) => {
                    if !text.is_empty() {
                        Console::default().announce(text.trim_end());
                    }
                    ExitCode::SUCCESS
                }
                FlagsError::Usage(text) => {
                    let priority = console::priority(tracing::Level::ERROR);
                    errln!("{priority}{}", text.trim_end());
                    ExitCode::from(console::EXIT_USAGE)
                }
            };
            return console::conclude(name, code);
        }
    };
    let output = flags.output().clone();
    let console = Console::new(output.output);
    console.announce(banner);
    if let Err(failure) = flags.check().and_then(|()| check_variables()) {
        report_error(name, &failure);
        return console::conclude(name, ExitCode::from(console::EXIT_USAGE));
    }
    console::start_logs(flags.general(), output.log_format);
    for cpu in repeated(flags.cpu()) {
        tracing::warn!("--cpu {cpu} is given more than once: its worker threads share this CPU");
    }
    let result = environment(name, console, output.metrics.as_ref())
        .and_then(|environment| body(flags, environment));
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report_error(name, &failure);
            ExitCode::FAILURE
        }
    };
    console::conclude_role(name, code)
}

fn report_error(name: &str, failure: &Failure) {
    let priority = console::priority(tracing::Level::ERROR);
    errln!("{priority}{name}: error: {failure}");
}

/// Returns the CPUs that are given more than once. The reference accepts repetitions, so they are not an error.
fn repeated(cpus: &[u32]) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    cpus.iter()
        .copied()
        .filter(|&cpu| !seen.insert(cpu))
        .collect()
}

/// Values of `SOFTDOCA_LOG`. softdoca itself, in other programs, only warns of an unknown value.
const SOFTDOCA_LEVELS: [&str; 7] = [
    "critical", "error", "warning", "warn", "info", "debug", "trace",
];

fn check_variables() -> Result<(), Failure> {
    match std::env::var_os("SOFTDOCA_LOG") {
        Some(level) if !SOFTDOCA_LEVELS.iter().any(|it| level == *it) => {
            Err(Failure::invalid(format!(
                "SOFTDOCA_LOG: expected critical, error, warning, info, debug or trace, got {:?}",
                level.display().to_string()
            )))
        }
        _ => Ok(()),
    }
}

fn environment(
    name: &'static str,
    console: Console,
    address: Option<&MetricsAddress>,
) -> Result<Environment, Failure> {
    let shutdown = signals::shutdown().map_err(|error| {
        Failure::new(
            doca::ErrorCode::INITIALIZATION,
            format!("signal handlers: {error}"),
        )
    })?;
    let mut metrics = Metrics::default();
    if let Some(address) = address {
        let local;
        (metrics, local) = Metrics::serve(name, address)?;
        console.announce(format_args!("metrics at http://{local}/metrics"));
    }
    Ok(Environment {
        console,
        shutdown,
        metrics,
    })
}

// Readiness notification for a service manager such as systemd: the protocol of `sd_notify(3)`, one datagram.

/// Notifies the socket named by `NOTIFY_SOCKET`, if set, that the program is ready. Further calls have no effect.
fn notify_ready() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
            && let Err(error) = send(&socket, b"READY=1")
        {
            tracing::warn!("NOTIFY_SOCKET {}: {error}", socket.display());
        }
    });
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    // Do not block on a manager that does not read.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(message, &address).map(|_| ())
}

/// First and longest interval between attempts to prepare a session.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Flag of all programs that serve sessions.
#[derive(Debug, Clone, Copy, Args)]
pub struct SessionFlags {
    /// Sessions to serve, one after the other, before the program ends: a number, or forever
    #[arg(long, value_name = "N|forever", default_value = "1")]
    pub sessions: SessionLimit,
}

/// Reason why a session failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// Before the session began: no peer was connected, or shutdown was requested.
    Before(Failure),
    /// After a peer had connected.
    During(Failure),
}

impl Broken {
    #[must_use]
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Before(failure) | Self::During(failure) => failure,
        }
    }
}

/// Calls `session` repeatedly until `limit` sessions have ended or shutdown is requested.
///
/// With a limit of one, the session's result, or the failure that prevented it, is the result. Otherwise each session's
/// result is printed on the console, and if preparing a session fails, it is retried after a pause.
///
/// # Errors
///
/// A session failed; shutdown was requested before `limit` sessions. Without a limit, only the session that was
/// interrupted by the shutdown counts: peers may fail at any time, and each failure was reported when its session
/// ended. The state of a disk is not checked here.
pub fn serve(
    limit: SessionLimit,
    environment: &Environment,
    mut session: impl FnMut() -> Result<(), Broken>,
) -> Result<(), Failure> {
    let mut session = || {
        let outcome = session();
        if !matches!(outcome, Err(Broken::Before(_))) {
            environment.metrics.session_ended(outcome.is_ok());
        }
        outcome
    };
    if limit.is_single() {
        return session().map_err(Broken::into_failure);
    }
    let mut results = Results::default();
    let mut lines = LogBudget::new(LOG_LINES_PER_SECOND);
    let mut pause = FIRST_PAUSE;
    while !limit.is_reached_by(results.ended()) && !environment.shutdown.is_requested() {
        let number = results.ended() + 1;
        match session() {
            Ok(()) => results.completed += 1,
            Err(Broken::During(failure)) => {
                // Before the failure is announced: a user may end the program as soon as it is.
                let is_ignored =
                    limit == SessionLimit::Forever && !environment.shutdown.is_requested();
                // Limited, because a sequence of clients that fail immediately would fill the log.
                let now = Instant::now();
                for ((), count) in lines.take_suppressed(now) {
                    let text = format_args!("{count} more sessions have failed");
                    environment.console.announce(text);
                }
                if lines.charge(now, ()) {
                    environment
                        .console
                        .announce(format_args!("session {number} has failed: {failure}"));
                }
                results.failed += 1;
                if !is_ignored {
                    results.last = Some(failure);
                }
                pause = FIRST_PAUSE;
                continue;
            }
            Err(Broken::Before(failure)) => {
                if !environment.shutdown.is_requested() {
                    tracing::warn!("not ready for session {number} yet: {failure}");
                    rest(environment, pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                continue;
            }
        }
        pause = FIRST_PAUSE;
        environment
            .console
            .announce(format_args!("session {number} has completed"));
    }
    results.conclude(limit)
}

/// Waits for `pause` or a shutdown request.
fn rest(environment: &Environment, pause: Duration) {
    let end = Instant::now() + pause;
    let mut waiter = Waiter::new(environment.shutdown.clone());
    while Instant::now() < end && !environment.shutdown.is_requested() {
        waiter.wait(&[], Some(end));
    }
}

/// Results of the sessions so far.
#[derive(Debug, Default)]
struct Results {
    completed: u64,
    failed: u64,
    /// Failure of the last session that failed and is not ignored.
    last: Option<Failure>,
}

impl Results {
    fn ended(&self) -> u64 {
        self.completed + self.failed
    }

    fn conclude(self, limit: SessionLimit) -> Result<(), Failure> {
        let ended = self.ended();
        match (self.last, limit) {
            (Some(last), _) => Err(Failure::new(
                last.code,
                format!(
                    "{} of {ended} sessions have failed, the last of these: {}",
                    self.failed, last.message
                ),
            )),
            (None, SessionLimit::Count(count)) if ended < u64::from(count) => Err(Failure::new(
                ErrorCode::CONNECTION_ABORTED,
                format!("aborted by a signal after {ended} of {count} sessions"),
            )),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repeated_cpu_is_named_once() {
        assert!(repeated(&[0, 1, 2]).is_empty());
        assert!(repeated(&[3, 1, 3, 3, 1, 0]).into_iter().eq([1, 3]));
    }

    #[test]
    fn ready_message_reaches_path_and_abstract_sockets() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let name = format!("softdoca notify test {}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).expect("an address");
        for (receiver, socket) in [
            (UnixDatagram::bind(&path), path.as_os_str().to_owned()),
            (
                UnixDatagram::bind_addr(&abstract_address),
                format!("@{name}").into(),
            ),
        ] {
            let receiver = receiver.expect("bound");
            send(&socket, b"READY=1").expect("sent");
            let mut bytes = [0; 64];
            let length = receiver.recv(&mut bytes).expect("received");
            assert_eq!(&bytes[..length], b"READY=1");
        }
        assert!(send(directory.path().join("none").as_os_str(), b"x").is_err());
    }

    fn environment() -> Environment {
        Environment {
            console: Console::default(),
            shutdown: Shutdown::new().expect("a pipe"),
            metrics: Metrics::default(),
        }
    }

    fn broken(text: &str) -> Failure {
        Failure::new(ErrorCode::CONNECTION_RESET, text)
    }

    /// Serves sessions with these results; returns the number served, and the result.
    fn serve_all(
        limit: SessionLimit,
        ends: Vec<Result<(), Broken>>,
    ) -> (usize, Result<(), Failure>) {
        let environment = environment();
        let (mut ends, mut count) = (ends.into_iter(), 0);
        let result = serve(limit, &environment, || {
            count += 1;
            let end = ends.next().expect("no more sessions than there are");
            if ends.len() == 0 {
                environment.shutdown.request();
            }
            end
        });
        (count, result)
    }

    #[test]
    fn result_of_a_single_session_is_the_result() {
        let one = SessionLimit::Count(1);
        assert_eq!(serve_all(one, vec![Ok(())]), (1, Ok(())));
        for end in [Broken::Before, Broken::During] {
            let (count, result) = serve_all(one, vec![Err(end(broken("it"))), Ok(())]);
            assert_eq!((count, result), (1, Err(broken("it"))));
        }
    }

    #[test]
    fn failed_sessions_do_not_stop_serving_but_fail_the_program() {
        let during = |text| Err(Broken::During(broken(text)));
        let ends = vec![Ok(()), during("first"), Ok(()), during("second"), Ok(())];
        let (count, result) = serve_all(SessionLimit::Count(5), ends);
        let failure = result.expect_err("two have failed");
        assert_eq!((count, failure.code), (5, ErrorCode::CONNECTION_RESET));
        assert_eq!(
            failure.message,
            "2 of 5 sessions have failed, the last of these: second"
        );
        assert_eq!(
            serve_all(SessionLimit::Count(2), vec![Ok(()), Ok(())]),
            (2, Ok(()))
        );
    }

    #[test]
    fn session_that_never_began_is_not_counted() {
        let before = || Err(Broken::Before(broken("no client")));
        let ends = vec![before(), Ok(()), before(), Ok(())];
        assert_eq!(serve_all(SessionLimit::Count(2), ends), (4, Ok(())));
    }

    #[test]
    fn without_a_limit_shutdown_is_success() {
        let before = || Err(Broken::Before(Failure::aborted("waiting")));
        let ends = vec![Ok(()), Ok(()), before()];
        assert_eq!(serve_all(SessionLimit::Forever, ends), (3, Ok(())));
        let ends = vec![Ok(()), before()];
        let (_, result) = serve_all(SessionLimit::Count(3), ends);
        let failure = result.expect_err("two more were wanted");
        assert!(failure.message.contains("1 of 3"), "{failure}");
        let interrupted = vec![Err(Broken::During(Failure::aborted("serving")))];
        let (_, result) = serve_all(SessionLimit::Forever, interrupted);
        assert!(result.is_err(), "a client was being served");
        let failed = || Err(Broken::During(broken("first")));
        let is_success = |limit, last| {
            let (_, result) = serve_all(limit, vec![failed(), Ok(()), last]);
            result.is_ok()
        };
        assert!(is_success(SessionLimit::Forever, before()));
        assert!(!is_success(SessionLimit::Forever, failed()));
        assert!(!is_success(SessionLimit::Count(3), Ok(())));
    }

    #[test]
    fn limits_are_numbers_or_forever() {
        assert_eq!("1".parse(), Ok(SessionLimit::Count(1)));
        assert_eq!("forever".parse(), Ok(SessionLimit::Forever));
        assert!(SessionLimit::Count(1).is_single() && !SessionLimit::Forever.is_single());
        for wrong in ["0", "-1", "", "always", "4294967296"] {
            let message = wrong.parse::<SessionLimit>().expect_err(wrong);
            assert!(message.contains("forever"), "{message}");
        }
    }
}
