//! The error of all suites: expected and observed behaviour of an implementation.

use std::fmt::Display;

/// A violation: the expected and the actual behaviour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

impl Violation {
    /// Creates a violation with this description.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Creates a violation `expected X, got Y`.
    pub fn expected(expected: impl Display, got: impl Display) -> Self {
        Self(format!("expected {expected}, got {got}"))
    }

    /// Fails unless `holds`.
    ///
    /// # Errors
    ///
    /// The violation `expected X, got Y`.
    pub fn unless(holds: bool, expected: impl Display, got: impl Display) -> Result<(), Self> {
        if holds {
            Ok(())
        } else {
            Err(Self::expected(expected, got))
        }
    }
}

/// Adds context to an error.
pub trait During<T> {
    /// Prefixes the error with `when: `.
    ///
    /// # Errors
    ///
    /// The error of `self`, with the prefix.
    fn during(self, when: impl Display) -> Result<T, Violation>;
}

impl<T, E: Into<Violation>> During<T> for Result<T, E> {
    fn during(self, when: impl Display) -> Result<T, Violation> {
        self.map_err(|error| Violation(format!("{when}: {}", error.into())))
    }
}

macro_rules! from {
    ($($source:ty),*) => {$(
        impl From<$source> for Violation {
            fn from(error: $source) -> Self {
                Self(error.to_string())
            }
        }
    )*};
}

from!(
    std::io::Error,
    doca::Error,
    doca::ErrorCode,
    wire::DecodeError,
    deployment::process::Failure,
    deployment::implementation::Error,
    deployment::network::Unavailable,
    super::target::Error
);
