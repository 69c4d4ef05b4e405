//! A scenario from its first process to the verdict.

mod bench;
mod cast;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::binaries::Binaries;
use super::scenario::Scenario;
use bench::Bench;
use cast::Cast;

pub use cast::Transcript;

/// What became of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All processes came to their documented end, and all checks held.
    Pass,
    /// Not so, and why.
    Fail(String),
    /// It was not run: these programs are not there.
    NotFound(Vec<&'static str>),
}

/// Runs scenarios.
#[derive(Debug)]
pub struct Runner {
    /// The programs.
    pub binaries: Binaries,
    /// Directory of the DOCA libraries, put before what `LD_LIBRARY_PATH` says; `None` for what the environment has.
    pub library_path: Option<PathBuf>,
    /// How long a scenario may take.
    pub timeout: Duration,
}

impl Runner {
    /// Runs one scenario in a directory of its own, which must be empty. `interrupted` says that nobody wants the result
    /// any more.
    ///
    /// # Errors
    ///
    /// Something that is no fault of the samples: a directory cannot be made, a free port is not to be had.
    pub fn run(
        &self,
        scenario: &Scenario,
        directory: &Path,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<(Verdict, Vec<Transcript>)> {
        let missing = self.missing(scenario);
        if !missing.is_empty() {
            return Ok((Verdict::NotFound(missing), Vec::new()));
        }
        let libraries = self.library_path.as_deref();
        let bench = Bench::new(&self.binaries, libraries, scenario, directory)?;
        let mut cast = Cast::new(&bench, scenario);
        let verdict = cast
            .play(self.timeout, interrupted)
            .and_then(|()| bench.check(&scenario.checks));
        let transcripts = cast.transcripts();
        let verdict = verdict.map_or_else(Verdict::Fail, |()| Verdict::Pass);
        Ok((verdict, transcripts))
    }

    /// Samples without a program.
    fn missing(&self, scenario: &Scenario) -> Vec<&'static str> {
        let mut missing = Vec::new();
        for party in &scenario.parties {
            let found = self
                .binaries
                .find(scenario.library, party.sample, party.side);
            if found.is_none() && !missing.contains(&party.sample) {
                missing.push(party.sample);
            }
        }
        missing
    }
}
