//! Figures of deployments of real processes, and beside each the limit that the machine sets.
//!
//! * [`point`] what is measured: a layout, an operation, sizes and depths.
//! * [`deployment`] one session of real roles, whoever built them: rate, latencies, CPU time of every process.
//! * [`first_ios`] an initiator that pauses, for what comes first after a pause.
//! * [`limits`] what the machine could do at best, by the yardsticks.
//! * [`kernels`] compression, erasure coding and the check of stored blocks, alone.
//! * [`linkage`] which DOCA library a program runs with.
//! * [`nbd`] what people would use instead.
//! * [`series`] runs, their medians, and ratios between them; [`suite`] what is measured in turns, and the bars.

pub mod deployment;
pub mod file;
mod fio;
pub mod first_ios;
pub mod kernels;
pub mod limits;
pub mod linkage;
pub mod machine;
pub mod nbd;
pub mod point;
pub mod report;
pub mod series;
pub mod suite;

/// Why a measurement came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A role or a yardstick did not do its part.
    #[error(transparent)]
    Process(#[from] conformance::process::Failure),
    /// There is no such program.
    #[error(transparent)]
    Implementation(#[from] conformance::implementation::Error),
    /// A file, a directory or a port cannot be had.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A program printed something else than its figures.
    #[error("{program}: expected {expected}, got {got:?}")]
    Output {
        /// Which.
        program: &'static str,
        /// What it should have printed.
        expected: &'static str,
        /// What it printed.
        got: String,
    },
}
