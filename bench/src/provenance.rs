//! Origin of results: program, time, command line and machine.

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Program, start time and command line of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of the program.
    pub version: String,
    /// Commit that the program was built from; `None` if it was not built from a checkout.
    pub commit: Option<String>,
    /// Start of the measurement, UTC, as in RFC 3339.
    pub started: String,
    /// Command line, quoted for a shell.
    pub command: String,
}

impl Provenance {
    /// Provenance of this program, started now with these arguments, including the program's name.
    pub fn now(arguments: impl IntoIterator<Item = String>) -> Self {
        let arguments: Vec<_> = arguments.into_iter().collect();
        let quoted = shlex::try_join(arguments.iter().map(String::as_str));
        let commit = env!("BENCH_COMMIT");
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: (!commit.is_empty()).then(|| commit.to_owned()),
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            // Arguments with NUL bytes cannot be passed to a program.
            command: quoted.unwrap_or_else(|_| arguments.join(" ")),
        }
    }
}

/// Summary of a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the CPU model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Load average over one minute before the measurements: other load makes figures useless, and comparisons less accurate.
    pub load: f64,
}

impl Machine {
    /// Describes this machine; unknown values are empty or 0.
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| {
                Some(
                    line.strip_prefix("model name")?
                        .split_once(':')?
                        .1
                        .trim()
                        .to_owned(),
                )
            })
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let load = read("/proc/loadavg");
        Self {
            cpu,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load
                .split_ascii_whitespace()
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or_default(),
        }
    }
}
