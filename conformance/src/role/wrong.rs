//! What was wrong with a role.

use std::fmt::Display;

use crate::process::Failure;

/// What was expected, and what came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

impl Wrong {
    /// In these words.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// `expected X, got Y`.
    pub fn expected(expected: impl Display, got: impl Display) -> Self {
        Self(format!("expected {expected}, got {got}"))
    }

    /// Fails unless it `holds`.
    ///
    /// # Errors
    ///
    /// It does not; the text says what was expected and what came.
    pub fn unless(holds: bool, expected: impl Display, got: impl Display) -> Result<(), Self> {
        if holds {
            Ok(())
        } else {
            Err(Self::expected(expected, got))
        }
    }
}

/// Says when it went wrong.
pub trait During<T> {
    /// `when`: and then the error.
    ///
    /// # Errors
    ///
    /// The error of `self`, with this before it.
    fn during(self, when: impl Display) -> Result<T, Wrong>;
}

impl<T, E: Into<Wrong>> During<T> for Result<T, E> {
    fn during(self, when: impl Display) -> Result<T, Wrong> {
        self.map_err(|error| Wrong(format!("{when}: {}", error.into())))
    }
}

macro_rules! from {
    ($($source:ty),*) => {$(
        impl From<$source> for Wrong {
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
    Failure,
    crate::implementation::Error,
    crate::target::Error
);
