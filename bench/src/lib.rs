//! Performance of deployments of real processes, compared with limits of the machine.
//!
//! * [`deployment`]: one session of real roles of any implementation: rate, latencies, CPU time of every process; the DOCA library that a program loads.
//! * [`first_ios`]: an initiator that pauses, for the first I/Os after a pause.
//! * [`limits`]: limits of the machine, as the yardsticks measure them; compression, erasure coding and verification of stored blocks, alone.
//! * [`front_ends`], [`mod@file`]: comparisons with nbdkit, qemu-storage-daemon and fio.
//! * [`baseline`]: origin of results, and comparison with an earlier run; [`report`]: the page.
//! * [`series`]: measured points, repeated runs and their medians; [`suite`]: subjects that are measured alternately, and the required relations
//!   between them.

pub mod baseline;
pub mod deployment;
pub mod file;
pub mod first_ios;
pub mod front_ends;
pub mod limits;
pub mod report;
pub mod series;
pub mod suite;

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
        program: &'static str,
        expected: &'static str,
        got: String,
    },
}
