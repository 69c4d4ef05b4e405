//! Subjects, measurements and limits of one bench run; subjects are measured alternately.

mod thresholds;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::baseline::{Comparison, Machine, Provenance};
use crate::deployment::{Mix, after_pause, cpu_of, system_calls};
use crate::file::Work;
use crate::limits::{ErasureCoding, Yardsticks};
use crate::series::{BlockKernels, Figures, Layout, Operation, Point, Series};
use crate::{Error, file, front_ends, series};

pub use thresholds::{Sense, Threshold, thresholds};

/// I/Os of the calibration run, which determines the number of I/Os of a run.
const FIRST_OPERATIONS: u64 = 4000;
/// Minimum and maximum number of I/Os of a run.
const FEWEST: u64 = 500;
const MOST: u64 = 20_000_000;

/// A subject and its runs.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    pub subject: Subject,
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
    /// ISA-L's kernels, for the same halves and matrix.
    pub isal: Option<ErasureCoding>,
}

/// Results of one bench run.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    pub verdict: Verdict,
    /// Program, time and command line.
    pub provenance: Provenance,
    pub machine: Machine,
    /// Requested rounds.
    pub rounds: usize,
    pub rounds_completed: usize,
    /// `true` if the run was interrupted.
    pub interrupted: bool,
    pub measurements: Vec<Measurement>,
    /// Figures of the kernels alone.
    pub kernels: Kernels,
    /// CPU time of a started deployment without I/O, in percent of one CPU, of all processes together.
    pub idle_percent: Option<f64>,
    /// Required relations between measurements.
    pub thresholds: Vec<Threshold>,
    /// Measurements that were skipped, with the reason.
    pub left_out: Vec<String>,
    /// Comparison with an earlier run, if one was given.
    pub comparison: Option<Comparison>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All thresholds hold.
    Pass,
    /// A threshold does not hold, or a measurement has failed.
    Fail,
    /// The bare ring, or the bare TCP connection, was so slow that no figure is meaningful.
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
    let lz4 = crate::limits::lz4(&content, time).ok_or_else(incompressible)?;
    let check = crate::limits::engines::cost(&content, cpus, time)?;
    let parity = crate::limits::engines::ours(BLOCK / 2, Vandermonde, time);
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

    use crate::limits::engines::{isal, ours};

    const HALF: usize = 32 << 10;
    let isal = match yardstick::IsaL::load() {
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

/// Without softdoca's kernels: returns none, and adds them to `left_out`.
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
    /// Time for copying content and stored block in the service, in nanoseconds.
    pub service_copies_ns: f64,
    /// Copies between targets and service, in the targets.
    pub target_copies_ns: f64,
    /// All ring hops, each in the process that receives the message.
    pub hops_ns: f64,
    /// Ring hops in the service.
    pub service_hops_ns: f64,
    /// I/Os per second that these times permit on the given CPUs: the limit of a single process, or of all CPUs
    /// together.
    pub rate: f64,
}

/// Limits of the machine, as measured in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// I/Os per second of the bare ring with blocks of 4 KiB.
    pub ring: f64,
    /// Copies of blocks of 4 KiB per second.
    pub copies: f64,
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

/// Measured point that a limit is compared with.
fn gga_point(operation: Operation) -> Point {
    Point {
        layout: Layout::Gga,
        operation,
        ..Point::ZERO_COPY_READ
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// The bare ring.
    Ring {
        /// Block size and depth.
        point: Point,
    },
    /// memcpy.
    Copy {
        /// Sizes of the memories.
        point: Point,
    },
    /// Kernels of gga for a block of 4 KiB.
    Kernels,
    /// Wake-up of a thread on an idle CPU.
    WakeUp,
    /// A deployment of real roles.
    Deployment {
        point: Point,
        /// Name of the mix in the runner.
        mix: String,
    },
    /// The system calls of our roles in a deployment.
    SystemCalls { point: Point },
    /// The first I/Os of our service and targets after a pause.
    FirstIos {
        /// Block size and depth.
        point: Point,
    },
    /// A deployment of our roles with its blocks in a file.
    File { work: Work },
    /// fio on the same file.
    Fio { work: Work },
    /// Our NBD server with a deployment, under fio.
    NbdServer {
        /// Block size and depth.
        point: Point,
    },
    /// A deployment of our roles on two machines.
    Hosts { point: Point },
    /// A bare TCP connection between two machines.
    BareTcp {
        /// Block size and depth.
        point: Point,
    },
    /// nbdkit's memory plugin on one machine under fio on another.
    NbdTcp {
        /// Block size and depth.
        point: Point,
    },
    /// nbdkit's memory plugin under fio.
    Nbd {
        /// Block size and depth.
        point: Point,
    },
    /// Our vhost-user-blk back end with a deployment, under libblkio.
    VhostUserBlk {
        /// Block size and depth.
        point: Point,
    },
    /// A null disk of qemu-storage-daemon under libblkio.
    NullDisk {
        /// Block size and depth.
        point: Point,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring { point } => write!(f, "bare ring: {point}"),
            Self::Copy { point } => write!(f, "memcpy: {point}"),
            Self::Kernels => f.write_str("kernels of gga"),
            Self::WakeUp => f.write_str("waking up a CPU"),
            Self::Deployment { point, mix } => write!(f, "{mix}: {point}"),
            Self::SystemCalls { point } => write!(f, "system calls: {point}"),
            Self::FirstIos { point } => write!(f, "after a pause: {point}"),
            Self::File { work } => write!(f, "{OURS}: {work}"),
            Self::Fio { work } => write!(f, "fio: {work}"),
            Self::NbdServer { point } => write!(f, "{OURS} NBD server + fio: {point}"),
            Self::Hosts { point } => write!(f, "{OURS}, 2 hosts: {point}"),
            Self::BareTcp { point } => write!(f, "bare TCP: {point}"),
            Self::NbdTcp { point } => write!(f, "nbdkit over TCP + fio: {point}"),
            Self::Nbd { point } => write!(f, "nbdkit + fio: {point}"),
            Self::VhostUserBlk { point } => write!(f, "{OURS} vhost-user-blk + libblkio: {point}"),
            Self::NullDisk { point } => write!(f, "qemu null disk + libblkio: {point}"),
        }
    }
}

impl Subject {
    /// Returns `true` if its rate is a result, and not that of a session for another measurement.
    pub fn has_rate(&self) -> bool {
        !matches!(
            self,
            Self::SystemCalls { .. } | Self::FirstIos { .. } | Self::Kernels | Self::WakeUp
        )
    }

    /// Returns `true` if its number of I/Os can be set.
    fn is_counted(&self) -> bool {
        !matches!(
            self,
            Self::FirstIos { .. }
                | Self::Kernels
                | Self::WakeUp
                | Self::Fio { .. }
                | Self::NbdServer { .. }
                | Self::NbdTcp { .. }
                | Self::Nbd { .. }
                | Self::VhostUserBlk { .. }
                | Self::NullDisk { .. }
        )
    }
}

#[derive(Debug)]
pub struct Runner {
    /// This program, which provides initiators and yardsticks.
    pub program: PathBuf,
    pub yardsticks: Yardsticks,
    /// Mixes by name. `rust` is ours.
    pub mixes: BTreeMap<String, Mix>,
    /// File for the blocks of the measurements on a disk, if any.
    pub backing: Option<PathBuf>,
    pub cpus: Vec<usize>,
}

/// Maximum number of repetitions of a session with programs of the reference after a crash: their workers have a race
/// at start-up, which crashes half of the starts on few CPUs.
const START_RACES: u32 = 20;

/// Returns `true` if a process was killed by SIGSEGV.
fn is_crash(error: &Error) -> bool {
    matches!(error, Error::Process(failure) if failure.to_string().contains("signal: 11"))
}

/// Name of the mix with our roles only.
pub const OURS: &str = "rust";
/// Name of the mix with the reference's programs only.
pub const THEIRS: &str = "cpp";
/// Roles that are exchanged for their counterparts.
pub const EXCHANGED: [&str; 3] = ["initiator", "service", "target"];

/// A mix in which one role is of another implementation than the other roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    /// One of [`EXCHANGED`].
    pub role: &'static str,
    /// `true` for our role among theirs, `false` for their role among ours.
    pub among_theirs: bool,
}

impl Exchanged {
    pub fn all() -> impl Iterator<Item = Self> {
        [true, false]
            .into_iter()
            .flat_map(|among_theirs| EXCHANGED.map(|role| Self { role, among_theirs }))
    }

    /// Parses the name of a mix; `None` for a mix without an exchanged role.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|exchanged| exchanged.to_string() == name)
    }
}

impl fmt::Display for Exchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, one) = if self.among_theirs {
            (THEIRS, OURS)
        } else {
            (OURS, THEIRS)
        };
        write!(f, "{most} + {one} {}", self.role)
    }
}

impl Runner {
    /// The mix of our roles only.
    ///
    /// # Panics
    ///
    /// If the runner was created without it.
    pub fn ours(&self) -> &Mix {
        self.mixes.get(OURS).expect("a mix called rust")
    }

    /// Runs the subject for about `time`, or for `operations` if the program counts them. Returns its figures, and
    /// the number of repetitions after crashes of a program of the reference.
    fn run(
        &self,
        subject: &Subject,
        operations: u64,
        time: Duration,
    ) -> (Result<Figures, Error>, u32) {
        let mut crashes = 0;
        loop {
            let result = self.once(subject, operations, time);
            match &result {
                Err(error)
                    if self.has_theirs(subject) && crashes < START_RACES && is_crash(error) =>
                {
                    crashes += 1;
                }
                _ => return (result, crashes),
            }
        }
    }

    /// Returns `true` if the subject includes programs of the reference.
    fn has_theirs(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Deployment { mix, .. } => self.mixes.get(mix).is_some_and(|mix| !mix.is_ours),
            _ => false,
        }
    }

    /// CPU of a zero-copy role, or of its counterpart in the bare ring.
    fn cpu_of(&self, role: usize) -> usize {
        self.cpus[cpu_of(Layout::ZeroCopy, role, 0, self.cpus.len())]
    }

    fn backing(&self) -> Result<&Path, Error> {
        let none = || std::io::Error::other("there is no file to measure").into();
        self.backing.as_deref().ok_or_else(none)
    }

    fn once(&self, subject: &Subject, operations: u64, time: Duration) -> Result<Figures, Error> {
        match subject {
            Subject::Ring { point } => {
                self.yardsticks
                    .ring(*point, operations, [0, 1, 2].map(|role| self.cpu_of(role)))
            }
            Subject::Copy { point } => self.yardsticks.copy(*point, time),
            Subject::Kernels => {
                let cpus = [1, 2].map(|role| cpu_of(Layout::Gga, role, 0, self.cpus.len()));
                block_kernels(time, cpus.map(|cpu| self.cpus[cpu]))
            }
            Subject::WakeUp => self
                .yardsticks
                .wake_up([1, 2].map(|role| self.cpu_of(role))),
            Subject::Deployment { point, mix } => {
                let mix = self
                    .mixes
                    .get(mix)
                    .ok_or_else(|| std::io::Error::other(format!("there is no mix {mix:?}")))?;
                crate::deployment::measure(mix, *point, operations, &self.cpus)
            }
            Subject::SystemCalls { point } => {
                system_calls(self.ours(), *point, operations, &self.cpus)
            }
            Subject::FirstIos { point } => {
                after_pause(&self.program, self.ours(), *point, &self.cpus)
            }
            Subject::File { work } => {
                let file = self.backing()?;
                file::deployment(self.ours(), file, *work, operations, &self.cpus)
            }
            Subject::Fio { work } => file::fio(self.backing()?, *work, time, &self.cpus),
            Subject::NbdServer { point } => {
                front_ends::measure_nbd(&self.program, self.ours(), *point, time, &self.cpus)
            }
            Subject::Hosts { point } => crate::deployment::measure_over(
                series::two_machines()?,
                self.ours(),
                *point,
                operations,
                &self.cpus,
            ),
            Subject::BareTcp { point } => {
                // CPUs of a service and a target.
                let cpus = [1, 2].map(|role| self.cpu_of(role));
                self.yardsticks
                    .tcp(*point, operations, cpus, &series::two_machines()?)
            }
            Subject::NbdTcp { point } => {
                front_ends::measure_nbdkit_over(&series::two_machines()?, *point, time, &self.cpus)
            }
            Subject::Nbd { point } => front_ends::measure_nbdkit(*point, time, &self.cpus),
            Subject::VhostUserBlk { point } => front_ends::measure_vhost_user_blk(
                &self.program,
                self.ours(),
                *point,
                time,
                &self.cpus,
            ),
            Subject::NullDisk { point } => {
                front_ends::measure_storage_daemon(*point, time, &self.cpus)
            }
        }
    }
}
