//! DOCA's own samples as a test of a DOCA implementation: programs in C that somebody else has built, started in pairs as
//! their READMEs say, fed what they ask for, and held to their documented end.
//!
//! * `scenario` what a run consists of, as data; [`catalogue`] all runs that are known; `content` their files;
//! * `binaries` where the programs are; `program` one of them running; `run` a scenario from start to verdict.

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
