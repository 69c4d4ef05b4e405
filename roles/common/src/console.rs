//! Standard output of a role: text for people, or one JSON document for programs.

use std::io::Write as _;

use serde::Serialize;

use crate::flags::OutputFormat;

/// Where a role prints. Failures to print (a closed pipe) are no reason to fail a storage session.
#[derive(Debug, Clone, Copy, Default)]
pub struct Console {
    format: OutputFormat,
}

impl Console {
    /// A console for the chosen format.
    #[must_use]
    pub fn new(format: OutputFormat) -> Self {
        Self { format }
    }

    /// The chosen format.
    #[must_use]
    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// Prints a line that people read while the program runs: on standard output, or, where that
    /// belongs to a JSON document, on standard error.
    pub fn announce(&self, line: impl std::fmt::Display) {
        let _ = match self.format {
            OutputFormat::Text => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{line}").and_then(|()| out.flush())
            }
            OutputFormat::Json => writeln!(std::io::stderr().lock(), "{line}"),
        };
    }

    /// Prints the result of the program: its text, or the same as JSON.
    pub fn report<R: Serialize + std::fmt::Display>(&self, report: &R) {
        let mut out = std::io::stdout().lock();
        let _ = match self.format {
            OutputFormat::Text => write!(out, "{report}").and_then(|()| out.flush()),
            OutputFormat::Json => serde_json::to_writer(&mut out, report)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(out))
                .and_then(|()| out.flush()),
        };
    }
}
