//! Origin of results: program, time and command line.

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
