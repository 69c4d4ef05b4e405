//! What is measured in one run of the bench, in turns, and what must come out.

mod bars;
mod limit;
mod subject;

use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::kernels::{ErasureCoding, Lz4};
use crate::machine::Machine;
use crate::series::{Figures, Series};

pub use bars::{Bar, Sense, bars};
pub use limit::{GgaLimit, gga_limit};
pub use subject::{EXCHANGED, Exchanged, OURS, Runner, Subject, THEIRS};

/// I/Os of the run that finds out how many are enough.
const FIRST_OPERATIONS: u64 = 4000;
/// Fewest and most I/Os of a run.
const FEWEST: u64 = 500;
const MOST: u64 = 20_000_000;

/// A subject and its runs.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// What was measured.
    pub subject: Subject,
    /// Its runs.
    pub series: Series,
    /// I/Os of each.
    pub operations: u64,
    /// Sessions that were lost because a program of the reference crashed, and begun again.
    pub crashes: u32,
    /// Why there are no more runs.
    pub failure: Option<String>,
}

/// The kernels alone.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Kernels {
    /// LZ4 of a block of 4 KiB.
    pub lz4: Option<Lz4>,
    /// Our erasure coding of two halves of 2 KiB, as gga has them for blocks of 4 KiB.
    pub parity: Option<ErasureCoding>,
    /// Our erasure coding of two halves of 32 KiB, Cauchy.
    pub ours: Option<ErasureCoding>,
    /// ISA-L's of the same.
    pub isal: Option<ErasureCoding>,
}

/// All that one run of the bench found out.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// On what.
    pub machine: Machine,
    /// Rounds that were run.
    pub rounds: usize,
    /// Everything that was run in turns.
    pub measurements: Vec<Measurement>,
    /// The kernels.
    pub kernels: Kernels,
    /// CPU time of a started deployment without I/O, in percent of one CPU, all processes together.
    pub idle_percent: Option<f64>,
    /// What must come out.
    pub bars: Vec<Bar>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

impl Results {
    /// The bare ring was so slow that the machine did something else: no bar means anything.
    pub fn is_void(&self) -> bool {
        bars::is_void(self)
    }

    /// The measurement of a subject.
    pub fn of(&self, subject: &Subject) -> Option<&Measurement> {
        self.measurements
            .iter()
            .find(|measurement| measurement.subject == *subject)
    }
}

/// Measures the subjects `rounds` times in turns, each run of about `time`. `told` gets the subject before each run;
/// `interrupted` ends it all.
pub fn measure(
    runner: &Runner,
    subjects: &[Subject],
    rounds: usize,
    time: Duration,
    told: &dyn Fn(&Subject),
    interrupted: &dyn Fn() -> bool,
) -> Vec<Measurement> {
    let mut measurements: Vec<Measurement> = subjects
        .iter()
        .map(|subject| Measurement {
            subject: subject.clone(),
            series: Series::new(subject.to_string()),
            operations: FIRST_OPERATIONS,
            crashes: 0,
            failure: None,
        })
        .collect();
    // Round 0 only says how many I/Os take about as long as they should.
    for round in 0..=rounds {
        for measurement in &mut measurements {
            let needless = round == 0 && !measurement.subject.is_counted();
            if interrupted() || measurement.failure.is_some() || needless {
                continue;
            }
            told(&measurement.subject);
            let (result, crashes) = runner.run(&measurement.subject, measurement.operations, time);
            measurement.crashes += crashes;
            match result {
                Ok(figures) if round == 0 => measurement.operations = enough(&figures, time),
                Ok(figures) => measurement.series.runs.push(figures),
                // Whoever interrupts this program may have interrupted its roles, too.
                Err(_) if interrupted() => {}
                Err(error) if crashes > 0 => {
                    measurement.failure = Some(format!("{error} (after {crashes} crashes)"));
                }
                Err(error) => measurement.failure = Some(error.to_string()),
            }
        }
    }
    measurements
}

fn enough(figures: &Figures, time: Duration) -> u64 {
    ((figures.rate * time.as_secs_f64()) as u64).clamp(FEWEST, MOST)
}

/// Bytes of the block whose kernels limit gga.
const BLOCK: usize = 4096;

/// The kernels, each for about `time`; what cannot be used is told.
pub fn kernels(time: Duration, left_out: &mut Vec<String>) -> Kernels {
    let lz4 = crate::kernels::lz4(&crate::deployment::content(BLOCK), time);
    Kernels {
        lz4,
        ..erasure_coding(time, left_out)
    }
}

#[cfg(not(doca_sdk))]
fn erasure_coding(time: Duration, left_out: &mut Vec<String>) -> Kernels {
    use softdoca::engines::matrix::MatrixType::{Cauchy, Vandermonde};

    use crate::kernels::erasure_coding::{isal, ours};

    const HALF: usize = 32 << 10;
    let isal = match yardstick::isal::IsaL::load() {
        Ok(library) => Some(isal(&library, HALF, Cauchy, time)),
        Err(error) => {
            left_out.push(error.to_string());
            None
        }
    };
    Kernels {
        lz4: None,
        parity: Some(ours(BLOCK / 2, Vandermonde, time)),
        ours: Some(ours(HALF, Cauchy, time)),
        isal,
    }
}

#[cfg(doca_sdk)]
fn erasure_coding(_: Duration, left_out: &mut Vec<String>) -> Kernels {
    left_out.push("erasure coding in software: this program is linked to NVIDIA's SDK".to_owned());
    Kernels::default()
}

/// CPU time of a started deployment without I/O, in percent of one CPU, over `time`.
///
/// # Errors
///
/// A role cannot be started.
pub fn idle(runner: &Runner, time: Duration) -> Result<f64, Error> {
    crate::deployment::idle(runner.ours(), &runner.cpus, time)
}
