//! DOCA's own samples as a test of a DOCA implementation: C programs, built elsewhere, that are started in pairs
//! according to their READMEs, given the input that they prompt for, and checked for their documented result.
//!
//! * `scenario`: the description of a run, as data, with the contents of its files; [`catalogue`]: all known runs.
//! * `binaries`: finds the programs; `run`: runs a scenario.

mod binaries;
mod catalogue;
mod run;
mod scenario;

pub use binaries::Binaries;
pub use catalogue::catalogue;
pub use run::{Runner, Transcript, Verdict};
pub use scenario::{
    Check, Content, Event, Input, Lz4, Party, Reply, Said, Scenario, Side, Step, Stream,
};
