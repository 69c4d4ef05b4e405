//! Numbers of releases.

use std::fmt;
use std::str::FromStr;

use doca_abi::{VERSIONS, Version};

/// A release whose changes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseNumber(Version);

impl ReleaseNumber {
    /// All releases, oldest first.
    pub fn all() -> impl Iterator<Item = Self> {
        VERSIONS.iter().copied().map(Self)
    }

    pub(crate) fn version(self) -> Version {
        self.0
    }
}

impl fmt::Display for ReleaseNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Releases that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseError {
    /// A release that is not in the tables.
    Unknown(String),
    /// The first release is not older than the second.
    Order(ReleaseNumber, ReleaseNumber),
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                let known: Vec<String> = ReleaseNumber::all().map(|it| it.to_string()).collect();
                write!(f, "expected one of {}, got {text}", known.join(", "))
            }
            Self::Order(from, to) => write!(f, "expected a release before {to}, got {from}"),
        }
    }
}

impl std::error::Error for ReleaseError {}

impl FromStr for ReleaseNumber {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all()
            .find(|release| release.to_string() == text)
            .ok_or_else(|| ReleaseError::Unknown(text.to_owned()))
    }
}

/// The release for which a program is written, and the release for which it is to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Releases {
    from: ReleaseNumber,
    to: ReleaseNumber,
}

impl Releases {
    /// Two releases.
    ///
    /// # Errors
    ///
    /// The first release is not older than the second.
    pub fn new(from: ReleaseNumber, to: ReleaseNumber) -> Result<Self, ReleaseError> {
        if from < to {
            Ok(Self { from, to })
        } else {
            Err(ReleaseError::Order(from, to))
        }
    }

    /// The release that the program is written for.
    pub fn from(self) -> ReleaseNumber {
        self.from
    }

    /// The release that the program is to be changed for.
    pub fn to(self) -> ReleaseNumber {
        self.to
    }
}
