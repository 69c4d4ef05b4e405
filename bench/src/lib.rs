//! Performance of deployments of real processes, compared with limits of the machine.
//!
//! * [`point`]: layout, operation, sizes and depths of a measurement; those over two machines, compared with a bare TCP connection and nbdkit.
//! * [`deployment`]: one session of real roles of any implementation: rate, latencies, CPU time of every process.
//! * [`first_ios`]: an initiator that pauses, for the first I/Os after a pause.
//! * [`limits`]: limits of the machine, as the yardsticks measure them.
//! * [`kernels`]: compression, erasure coding and verification of stored blocks, alone.
//! * [`linkage`]: the DOCA library that a program loads.
//! * [`nbd`], [`vhost_user_blk`], [`mod@file`]: comparisons with nbdkit, qemu-storage-daemon and fio.
//! * [`provenance`]: origin of results; [`baseline`]: comparison with an earlier run; [`report`]: the page.
//! * [`series`]: repeated runs and their medians; [`suite`]: subjects that take turns, and the required relations between them.

pub mod baseline;
pub mod deployment;
pub mod file;
mod fio;
pub mod first_ios;
pub mod kernels;
pub mod limits;
pub mod linkage;
pub mod nbd;
pub mod point;
pub mod provenance;
pub mod report;
pub mod series;
pub mod suite;
pub mod vhost_user_blk;

/// Failure of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A role or a yardstick has failed.
    #[error(transparent)]
    Process(#[from] ::deployment::process::Failure),
    /// A program was not found.
    #[error(transparent)]
    Implementation(#[from] ::deployment::implementation::Error),
    /// Several machines could not be created.
    #[error(transparent)]
    Network(#[from] ::deployment::network::Unavailable),
    /// Error of a file, a directory or a port.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A program has printed something other than its figures.
    #[error("{program}: expected {expected}, got {got:?}")]
    Output {
        /// Name of the program.
        program: &'static str,
        /// The expected output.
        expected: &'static str,
        /// The actual output.
        got: String,
    },
}
