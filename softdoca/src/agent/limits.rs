//! Limits of agents: of other processes' agents for this process, and of this process's agent for its clients.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

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
pub(super) const COPY_RATE: u64 = 64 << 20;

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
}
