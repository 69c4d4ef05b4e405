//! Output of a failed run.

use std::fmt;

use serde::Serialize;

use super::RULE;
use crate::cli::{NAME, Strategy};
use crate::data_path::Mismatch;

/// A failed run: the reference's block, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureReport {
    /// Name of the program.
    pub application: &'static str,
    /// "failed", to distinguish it from a [`Report`](super::Report).
    pub result: &'static str,
    /// Test that was run.
    pub execution_strategy: Strategy,
    /// Reason of the failure.
    pub error: String,
    /// The first wrong byte, for a validation failure.
    pub mismatch: Option<Mismatch>,
    /// Seed of the validation pattern, if one was written.
    pub seed: Option<u64>,
}

impl FailureReport {
    /// Creates the report of a failure.
    #[must_use]
    pub const fn new(
        strategy: Strategy,
        seed: Option<u64>,
        error: String,
        mismatch: Option<Mismatch>,
    ) -> Self {
        Self {
            application: NAME,
            result: "failed",
            execution_strategy: strategy,
            error,
            mismatch,
            seed,
        }
    }
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{RULE}\n| Test failed!!")?;
        match &self.mismatch {
            Some(mismatch) => writeln!(f, "| First mismatch: {mismatch}")?,
            None => writeln!(f, "| {}", self.error)?,
        }
        if let Some(seed) = self.seed {
            writeln!(f, "| Seed: {seed}")?;
        }
        writeln!(f, "{RULE}")
    }
}
