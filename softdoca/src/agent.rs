//! The agent: a thread of an exporting process that serves its peers while the program is busy.
//!
//! It hands out the shared memory behind exports, copies memory that cannot be shared, performs atomics on it, and
//! passes calls (RDMA connects) to published services. It runs while there are exports or services, on one socket in
//! the runtime directory, which it removes afterwards. Peers on other machines use TCP instead, if enabled by the
//! environment: `network`.
//!
//! # Limits
//!
//! [`Limits`] holds for other processes' agents in this process, and for this process's agent. Memory that is not mapped in
//! this process is copied by its exporter's agent while the thread that executes the task waits. An agent may be slow, and
//! that thread has other work: a [`WaitScope`] around a call of progress, or around a submission outside of one, bounds the
//! total wait in it, for any number of tasks, segments and agents.

mod client;
mod network;
mod protocol;
mod server;

pub use client::{AgentConnection, RemoteBacking, RemoteRegion, RemoteSegment, request};
#[cfg(all(test, feature = "tls"))]
pub(crate) use network::Authority;
#[cfg(test)]
pub(crate) use network::stream_pair;
pub(crate) use network::{
    Deliver, Lane, Link, Memory, NetworkGuard, NetworkOffer, NetworkRegion, Piece, Route, Stream,
    call, close_after_delivery, expose, nic_for_connections, nic_of, receive_within,
    requires_verbs, send_within, serve, uses_network,
};
pub use protocol::{AgentAddress, Backing, Export, MAX_PAYLOAD, Rights, Segment, SharedWord};
pub(crate) use protocol::{again as request_again, examples as example_requests};
pub use server::{
    ConnectionId, ExportGuard, Handler, OnClose, PublishGuard, Reply, Request, export, publish,
};

use std::cell::Cell;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Limits set by the environment. `SEMANTICS.md` has the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Timeout of an import of memory including all its requests, or of a call of a service.
    pub request: Duration,
    /// Total timeout of a task's copies by agents, plus a time per byte: see [`COPY_RATE`].
    pub copy: Duration,
    /// Maximum number of segments of an import, each of which may be a mapping.
    pub segments: u64,
    /// Maximum size of an import in bytes.
    pub import_bytes: u64,
    /// Maximum number of connections to this process's agent.
    pub connections: usize,
    /// Maximum number of connections to it from one process.
    pub connections_per_process: usize,
    /// Time after which a connection without a granted request is closed.
    pub idle: Duration,
}

/// Minimum copy rate of an agent in bytes per second, beyond each task's base timeout: a thousandth of the rate on an
/// idle machine.
const COPY_RATE: u64 = 64 << 20;

const REQUEST: &str = "SOFTDOCA_AGENT_TIMEOUT_MS";
const COPY: &str = "SOFTDOCA_COPY_TIMEOUT_MS";
const SEGMENTS: &str = "SOFTDOCA_IMPORT_SEGMENTS";
const IMPORT_MIB: &str = "SOFTDOCA_IMPORT_MIB";
const CONNECTIONS: &str = "SOFTDOCA_AGENT_CONNECTIONS";
const PER_PROCESS: &str = "SOFTDOCA_AGENT_CONNECTIONS_PER_PROCESS";
const IDLE: &str = "SOFTDOCA_AGENT_IDLE_MS";

impl Limits {
    /// Limits of this process: read once, on first use.
    ///
    /// # Errors
    /// [`Error::BadConfig`] if a variable is not a number in its range.
    pub(crate) fn get() -> Result<&'static Limits> {
        static LIMITS: OnceLock<Result<Limits>> = OnceLock::new();
        LIMITS
            .get_or_init(|| {
                // "Unlimited" exceeds any number of connections.
                let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile)
                    .current
                    .unwrap_or(u64::MAX);
                Limits::read(|name| std::env::var_os(name), descriptors)
            })
            .as_ref()
            .map_err(|error| *error)
    }

    /// `variable` looks up a variable; `descriptors` is the process's descriptor limit.
    fn read(variable: impl Fn(&str) -> Option<OsString>, descriptors: u64) -> Result<Limits> {
        let number = |name: &str, default: u64, least: u64, most: u64| {
            match variable(name) {
            None => Ok(default),
            Some(text) => text
                .to_str()
                .and_then(|text| text.parse().ok())
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| {
                    Error::BadConfig.because(format_args!(
                        "expected a number of {least} to {most} in the environment variable {name}, got {text:?}"
                    ))
                }),
        }
        };
        let milliseconds =
            |name, default| number(name, default, 10, 600_000).map(Duration::from_millis);
        let connections = number(CONNECTIONS, (descriptors / 2).clamp(4, 4096), 1, 65_536)?;
        let per_process = number(PER_PROCESS, (connections / 2).max(1), 1, 65_536)?;
        Ok(Limits {
            request: milliseconds(REQUEST, 3_000)?,
            copy: milliseconds(COPY, 2_000)?,
            segments: number(SEGMENTS, 1_024, 1, 32_768)?,
            import_bytes: number(IMPORT_MIB, 1 << 20, 1, 1 << 27)? << 20,
            connections: connections as usize,
            connections_per_process: per_process as usize,
            idle: milliseconds(IDLE, 5_000)?,
        })
    }
}

/// Deadline of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::agent) struct Deadline(Instant);

impl Deadline {
    fn after(time: Duration) -> Deadline {
        Deadline(Instant::now() + time)
    }

    /// Time left; 0 after the deadline.
    fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Total wait in a scope after which no further task is started in it.
const ENOUGH: Duration = Duration::from_millis(50);
/// Minimum time for a copy, even if another agent has used up the scope's.
const LEAST: Duration = Duration::from_millis(100);

/// Time that the copies of a scope have waited.
#[derive(Clone, Copy)]
struct Waited {
    deadline: Deadline,
    time: Duration,
}

/// A scope is open.
const OPEN: u8 = 1;
/// The waits in it have taken at least [`ENOUGH`].
const HELD_UP: u8 = 2;
/// The scope belongs to a submission outside of a progress call.
const LONE: u8 = 4;

thread_local! {
    /// Checked for every event and submission: a byte, separate from the state that only copies need.
    static FLAGS: Cell<u8> = const { Cell::new(0) };
    /// State of the open scope, once one of its copies has used an agent.
    static WAITED: Cell<Option<Waited>> = const { Cell::new(None) };
    /// `true` if [`WAITED`] is set; checked by scopes, as it is small.
    static HAS_WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Bounds the waits of this thread for agents until it is dropped.
#[must_use = "it ends when it is dropped"]
pub(crate) struct WaitScope {
    /// State to restore; `None` for a scope that shares the outer one.
    outer: Option<(u8, Option<Waited>)>,
}

impl WaitScope {
    /// Opens a scope for a call of progress. One inside a callback has its own limit.
    #[inline]
    pub(crate) fn of_progress() -> WaitScope {
        WaitScope {
            outer: Some((FLAGS.replace(OPEN), take_waited())),
        }
    }

    /// Opens a scope for a submission: inside a call of progress it shares that call's limit.
    #[inline]
    pub(crate) fn of_submission() -> WaitScope {
        if FLAGS.get() & OPEN != 0 {
            return WaitScope { outer: None };
        }
        WaitScope {
            outer: Some((FLAGS.replace(OPEN | LONE), take_waited())),
        }
    }
}

impl Drop for WaitScope {
    #[inline]
    fn drop(&mut self) {
        if let Some((flags, waited)) = self.outer {
            FLAGS.set(flags);
            if waited.is_some() || HAS_WAITED.get() {
                set_waited(waited);
            }
        }
    }
}

#[inline]
fn take_waited() -> Option<Waited> {
    if !HAS_WAITED.get() {
        return None;
    }
    HAS_WAITED.set(false);
    WAITED.take()
}

#[cold]
fn set_waited(waited: Option<Waited>) {
    HAS_WAITED.set(waited.is_some());
    WAITED.set(waited);
}

/// Returns `true` if waits for agents have taken so long that the rest of the work is left to the next call of
/// progress.
#[inline(always)]
pub(crate) fn is_held_up() -> bool {
    FLAGS.get() & HELD_UP != 0
}

/// Returns `true` if this thread is in a call of progress, which continues after the current operation.
#[inline]
pub(crate) fn is_in_progress() -> bool {
    FLAGS.get() & (OPEN | LONE) == OPEN
}

/// Waits for an agent until a copy of `len` bytes is done or times out: `action` gets the deadline.
fn within_scope<T>(len: usize, action: impl FnOnce(Deadline) -> Result<T>) -> Result<T> {
    let limits = Limits::get()?;
    let (begin, before) = (Instant::now(), WAITED.get());
    let Deadline(from) = before.map_or(Deadline(begin + limits.copy), |waited| waited.deadline);
    let by_size = Duration::from_micros(len as u64 * 1_000_000 / COPY_RATE);
    let deadline = Deadline((from + by_size).max(begin + LEAST));
    let result = action(deadline);
    if FLAGS.get() & OPEN != 0 {
        let time = before.map_or(Duration::ZERO, |waited| waited.time) + begin.elapsed();
        set_waited(Some(Waited { deadline, time }));
        if time >= ENOUGH {
            FLAGS.set(FLAGS.get() | HELD_UP);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_program() {
        let of = |descriptors| Limits::read(|_| None, descriptors).unwrap();
        let connections = |limits: Limits| (limits.connections, limits.connections_per_process);
        assert_eq!(connections(of(256)), (128, 64));
        assert_eq!(connections(of(1024)), (512, 256));
        assert_eq!(connections(of(u64::MAX)), (4096, 2048));
        assert_eq!(connections(of(0)), (4, 2));
    }

    #[test]
    fn variables_are_numbers_in_a_range() {
        let with = |name: &'static str, value: &'static str| {
            Limits::read(move |asked| (asked == name).then(|| value.into()), 1024)
        };
        let limits = with(REQUEST, "250").unwrap();
        assert_eq!(limits.request, Duration::from_millis(250));
        assert_eq!(with(IMPORT_MIB, "3").unwrap().import_bytes, 3 << 20);
        for (name, value) in [
            (REQUEST, "9"),
            (REQUEST, "600001"),
            (SEGMENTS, "0"),
            (CONNECTIONS, "many"),
            (COPY, ""),
            (IMPORT_MIB, "18446744073709551616"),
        ] {
            assert_eq!(with(name, value), Err(Error::BadConfig), "{name}={value}");
        }
    }

    fn deadline() -> Deadline {
        within_scope(0, Ok).unwrap()
    }

    #[test]
    fn copies_in_a_scope_share_a_deadline() {
        let progress = WaitScope::of_progress();
        let first = deadline();
        assert_eq!(deadline(), first);
        {
            let _submission = WaitScope::of_submission();
            assert_eq!(deadline(), first, "inside of progress");
            let _callback = WaitScope::of_progress();
            assert!(deadline() > first, "progress of a callback");
        }
        assert_eq!(deadline(), first);
        drop(progress);
        assert_ne!(deadline(), deadline(), "each by itself");
    }

    #[test]
    fn slow_copy_fails_only_its_own_call() {
        let progress = WaitScope::of_progress();
        let slow = |_: Deadline| {
            std::thread::sleep(ENOUGH);
            Ok(())
        };
        assert!(!is_held_up());
        within_scope(0, slow).unwrap();
        assert!(is_held_up());
        {
            let _callback = WaitScope::of_progress();
            assert!(!is_held_up());
        }
        assert!(is_held_up());
        drop(progress);
        assert!(!is_held_up());
        within_scope(0, slow).unwrap();
        assert!(!is_held_up(), "no scope");
    }

    #[test]
    fn deadline_grows_with_the_size_of_a_copy() {
        let _progress = WaitScope::of_progress();
        let first = deadline();
        let large = within_scope(COPY_RATE as usize, Ok).unwrap();
        assert_eq!(large.0 - first.0, Duration::from_secs(1));
    }
}
