//! Subjects, measurements and limits of one bench run; subjects are measured alternately.

mod subject;
mod thresholds;

use std::time::Duration;

use serde::Serialize;

use super::Error;
use super::baseline::Comparison;
use super::kernels::ErasureCoding;
use super::point::{Layout, Operation, Point};
use super::provenance::{Machine, Provenance};
use super::series::{BlockKernels, Figures, Series};

pub use subject::{EXCHANGED, Exchanged, OURS, Runner, Subject, THEIRS};
pub use thresholds::{Sense, Threshold, thresholds};

/// I/Os of the calibration run, which determines the number of I/Os of a run.
const FIRST_OPERATIONS: u64 = 4000;
/// Minimum and maximum number of I/Os of a run.
const FEWEST: u64 = 500;
const MOST: u64 = 20_000_000;

/// A subject and its runs.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// Measured subject.
    pub subject: Subject,
    /// Runs of the subject.
    pub series: Series,
    /// I/Os per run.
    pub operations: u64,
    /// Number of sessions repeated because a program of the reference crashed.
    pub crashes: u32,
    /// The error that ended its runs, if any.
    pub failure: Option<String>,
}

/// Erasure coding kernels alone.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Kernels {
    /// Our erasure coding of two halves of 32 KiB, Cauchy.
    pub ours: Option<ErasureCoding>,
    /// ISA-L's, for the same halves and matrix.
    pub isal: Option<ErasureCoding>,
}

/// Results of one bench run.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// Summary of the results.
    pub verdict: Verdict,
    /// Program, time and command line.
    pub provenance: Provenance,
    /// Measured machine.
    pub machine: Machine,
    /// Requested rounds.
    pub rounds: usize,
    /// Completed rounds.
    pub rounds_completed: usize,
    /// `true` if the run was interrupted.
    pub interrupted: bool,
    /// Alternated measurements.
    pub measurements: Vec<Measurement>,
    /// Figures of the kernels alone.
    pub kernels: Kernels,
    /// CPU time of a started deployment without I/O, in percent of one CPU, of all processes together.
    pub idle_percent: Option<f64>,
    /// Required relations between measurements.
    pub thresholds: Vec<Threshold>,
    /// Measurements that were left out, with the reason.
    pub left_out: Vec<String>,
    /// Comparison with an earlier run, if one was given.
    pub comparison: Option<Comparison>,
}

/// Summary of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All thresholds hold.
    Pass,
    /// A threshold does not hold, or a measurement has failed.
    Fail,
    /// The bare ring, or the bare TCP connection, was too slow for any figure to be meaningful.
    Void,
    /// All measured thresholds hold, but at least one was not measured.
    Incomplete,
}

impl Results {
    /// Results that consist of these measurements only.
    #[cfg(test)]
    pub(crate) fn of_measurements(measurements: Vec<Measurement>) -> Self {
        Self {
            verdict: Verdict::Incomplete,
            provenance: Provenance::now(["bench".to_owned()]),
            machine: Machine::this(),
            rounds: 3,
            rounds_completed: 3,
            interrupted: false,
            measurements,
            kernels: Kernels::default(),
            idle_percent: None,
            thresholds: Vec::new(),
            left_out: Vec::new(),
            comparison: None,
        }
    }

    /// Computes the verdict on these thresholds and measurements.
    pub fn judge(&self) -> Verdict {
        let missed = self
            .thresholds
            .iter()
            .any(|threshold| threshold.holds() == Some(false));
        let failed = self.measurements.iter().any(|one| one.failure.is_some());
        let unknown = self
            .thresholds
            .iter()
            .any(|threshold| threshold.holds().is_none());
        if thresholds::is_void(self) {
            Verdict::Void
        } else if missed || failed {
            Verdict::Fail
        } else if unknown || self.interrupted || !self.left_out.is_empty() {
            Verdict::Incomplete
        } else {
            Verdict::Pass
        }
    }

    /// Numbers of thresholds that hold, that do not hold, and that were not measured.
    pub fn counts(&self) -> [usize; 3] {
        [Some(true), Some(false), None].map(|wanted| {
            self.thresholds
                .iter()
                .filter(|threshold| threshold.holds() == wanted)
                .count()
        })
    }

    /// The measurement of a subject.
    pub fn of(&self, subject: &Subject) -> Option<&Measurement> {
        self.measurements
            .iter()
            .find(|measurement| measurement.subject == *subject)
    }
}

/// Observer of a measurement in progress.
pub trait Observer {
    /// Called before a run of the subject in this round, counted from 1.
    fn run_begins(&self, subject: &Subject, round: usize);

    /// Called after each round with the number of completed rounds.
    fn round_completed(&self, rounds: usize, measurements: &[Measurement]);

    /// Returns `true` if the measurement is to be stopped.
    fn is_interrupted(&self) -> bool;
}

/// Measures the subjects alternately, for `rounds` rounds and about `time` per run. Returns the measurements, and the
/// number of completed rounds.
pub fn measure(
    runner: &Runner,
    subjects: &[Subject],
    rounds: usize,
    time: Duration,
    observer: &dyn Observer,
) -> (Vec<Measurement>, usize) {
    let mut measurements: Vec<Measurement> = subjects
        .iter()
        .map(|subject| Measurement {
            subject: subject.clone(),
            series: Series::new(subject.to_string()),
            operations: 0,
            crashes: 0,
            failure: None,
        })
        .collect();
    for round in 1..=rounds {
        for measurement in &mut measurements {
            if observer.is_interrupted() || measurement.failure.is_some() {
                continue;
            }
            observer.run_begins(&measurement.subject, round);
            let result = measurement.run(runner, time);
            match result {
                Ok(figures) => measurement.series.runs.push(figures),
                // An interrupt of this program may have interrupted its roles, too.
                Err(_) if observer.is_interrupted() => {}
                Err(error) => measurement.failure = Some(error),
            }
        }
        if observer.is_interrupted() {
            return (measurements, round - 1);
        }
        observer.round_completed(round, &measurements);
    }
    (measurements, rounds)
}

impl Measurement {
    /// Runs the subject once. Before its first run, a short one determines the number of I/Os that take about `time`.
    fn run(&mut self, runner: &Runner, time: Duration) -> Result<Figures, String> {
        let mut once = |operations| {
            let (result, crashes) = runner.run(&self.subject, operations, time);
            self.crashes += crashes;
            result.map_err(|error| match crashes {
                0 => error.to_string(),
                _ => format!("{error} (after {crashes} crashes)"),
            })
        };
        if self.operations == 0 {
            self.operations = if self.subject.is_counted() {
                enough(&once(FIRST_OPERATIONS)?, time)
            } else {
                FIRST_OPERATIONS
            };
        }
        once(self.operations)
    }
}

fn enough(figures: &Figures, time: Duration) -> u64 {
    ((figures.rate * time.as_secs_f64()) as u64).clamp(FEWEST, MOST)
}

/// Times of gga's kernels for a block, each measured for about a fifth of `time`. The first CPU is used like a
/// service's, the second like a target's.
///
/// # Errors
///
/// The kernels or CPUs are not available.
#[cfg(not(doca_sdk))]
fn block_kernels(time: Duration, cpus: [usize; 2]) -> Result<Figures, Error> {
    use softdoca::engines::matrix::MatrixType::Vandermonde;

    const BLOCK: usize = 4096;
    let time = time / 5;
    let content = super::deployment::content(BLOCK);
    let incompressible = || std::io::Error::other("expected content that can be compressed");
    let lz4 = crate::kernels::lz4(&content, time).ok_or_else(incompressible)?;
    let check = super::kernels::engines::cost(&content, cpus, time)?;
    let parity = super::kernels::engines::ours(BLOCK / 2, Vandermonde, time);
    Ok(Figures {
        kernels: Some(BlockKernels {
            compress_ns: lz4.compress.block_ns,
            decompress_ns: lz4.decompress.block_ns,
            create_ns: parity.create.block_ns,
            recover_ns: parity.recover.block_ns,
            check_ns: check.ok_or_else(incompressible)?,
        }),
        ..Figures::without_rate()
    })
}

#[cfg(doca_sdk)]
fn block_kernels(_: Duration, _: [usize; 2]) -> Result<Figures, Error> {
    Err(std::io::Error::other("this program is linked to NVIDIA's SDK, and has no kernels").into())
}

/// Erasure coding of softdoca and ISA-L, each measured for about `time`. Unavailable kernels are added to `left_out`.
#[cfg(not(doca_sdk))]
pub fn kernels(time: Duration, left_out: &mut Vec<String>) -> Kernels {
    use softdoca::engines::matrix::MatrixType::Cauchy;

    use super::kernels::engines::{isal, ours};

    const HALF: usize = 32 << 10;
    let isal = match yardstick::isal::IsaL::load() {
        Ok(library) => Some(isal(&library, HALF, Cauchy, time)),
        Err(error) => {
            left_out.push(error.to_string());
            None
        }
    };
    Kernels {
        ours: Some(ours(HALF, Cauchy, time)),
        isal,
    }
}

/// Returns no kernels, and adds them to `left_out`.
#[cfg(doca_sdk)]
pub fn kernels(_: Duration, left_out: &mut Vec<String>) -> Kernels {
    left_out.push("erasure coding in software: this program is linked to NVIDIA's SDK".to_owned());
    Kernels::default()
}

/// CPU time of a started deployment without I/O, in percent of one CPU, over `time`.
///
/// # Errors
///
/// A role cannot be started.
pub fn idle(runner: &Runner, time: Duration) -> Result<f64, Error> {
    super::deployment::idle(runner.ours(), &runner.cpus, time)
}

// Rate that the kernels, copies and ring hops of gga would allow if everything else were free.

/// Time per I/O in nanoseconds, by part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GgaLimit {
    /// Compression or decompression, in the service.
    pub lz4_ns: f64,
    /// Erasure coding, in the service.
    pub parity_ns: f64,
    /// Copies of content and stored block, in the service.
    pub service_copies_ns: f64,
    /// Copies between targets and service, in the targets.
    pub target_copies_ns: f64,
    /// All ring hops, each in the process that receives the message.
    pub hops_ns: f64,
    /// Ring hops in the service.
    pub service_hops_ns: f64,
    /// I/Os per second that these times allow on the given CPUs: the limit of a single process, or of all CPUs together.
    pub rate: f64,
}

/// Limits of the machine, as measured in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// I/Os per second of the bare ring with blocks of 4 KiB.
    pub ring: f64,
    /// Copies of blocks of 4 KiB per second.
    pub copies: f64,
    /// Times of gga's kernels.
    pub kernels: BlockKernels,
}

/// Limit of an operation on blocks of 4 KiB.
pub fn gga_limit(limits: Limits, operation: Operation, cpus: usize) -> GgaLimit {
    let Limits {
        ring,
        copies,
        kernels,
    } = limits;
    // Time of copying a block of 4 KiB.
    let copy_ns = 1e9 / copies;
    // The ring's three processes share the CPUs: the time without the copy is that of four hops.
    let ring_cpus = cpus.min(3) as f64;
    let hop_ns = ((ring_cpus * 1e9 / ring - copy_ns) / 4.0).max(0.0);

    // Both directions between initiator and service, and between the service and each target involved.
    let targets = match operation {
        Operation::Read | Operation::RecoveryRead => 2.0,
        Operation::Write => 3.0,
    };
    let hops_ns = (2.0 + 2.0 * targets) * hop_ns;
    let service_hops_ns = (1.0 + targets) * hop_ns;
    // Each target copies half a block.
    let target_copies_ns = targets * copy_ns / 2.0;
    // Copies of the stored block and of the content.
    let service_copies_ns = 2.0 * copy_ns;
    let (lz4_ns, parity_ns) = match operation {
        Operation::Read => (kernels.decompress_ns, 0.0),
        Operation::RecoveryRead => (kernels.decompress_ns, kernels.recover_ns),
        Operation::Write => (kernels.compress_ns, kernels.create_ns),
    };
    let service = lz4_ns + parity_ns + service_copies_ns + service_hops_ns;
    let all = lz4_ns + parity_ns + service_copies_ns + target_copies_ns + hops_ns;
    GgaLimit {
        lz4_ns,
        parity_ns,
        service_copies_ns,
        target_copies_ns,
        hops_ns,
        service_hops_ns,
        rate: 1e9 / service.max(all / cpus.min(5) as f64),
    }
}

/// Point that a limit is compared with.
fn gga_point(operation: Operation) -> Point {
    Point {
        layout: Layout::Gga,
        operation,
        ..Point::ZERO_COPY_READ
    }
}
