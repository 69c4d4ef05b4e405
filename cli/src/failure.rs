//! Errors of commands, and their exit status: 1 for failures, 2 for wrong usage.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use deployment::implementation::{self, Implementation};
use role_common::console::EXIT_USAGE;
use role_common::errln;

/// Result of a command.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Invalid or inconsistent flags; the text says what was expected.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// Creates an error of wrong usage.
pub fn usage(message: impl Into<String>) -> Box<dyn Error> {
    Box::new(UsageError(message.into()))
}

/// Finds the implementation given by a flag's `NAME=DIR`.
pub fn implementation(text: &str) -> Result<Implementation> {
    Implementation::parse(text).map_err(|error| match error {
        implementation::Error::Syntax(_) => usage(error.to_string()),
        _ => error.into(),
    })
}

/// Reports the error of `doca-storage <command>`, and returns its exit status.
pub fn conclude(command: &str, error: &(dyn Error + 'static)) -> ExitCode {
    errln!("doca-storage {command}: error: {error}");
    if error.is::<UsageError>() {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::FAILURE
    }
}
