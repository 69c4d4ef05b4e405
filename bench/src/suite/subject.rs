//! Measured subjects.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::deployment::{Mix, after_pause, cpu_of, measure, measure_over, system_calls};
use crate::file::Work;
use crate::limits::Yardsticks;
use crate::point::{self, Layout, Point};
use crate::series::Figures;
use crate::{Error, file, nbd, vhost_user_blk};

/// A measured subject.
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
        /// Measured point.
        point: Point,
        /// Name of the mix in the runner.
        mix: String,
    },
    /// The system calls of our roles in a deployment.
    SystemCalls {
        /// Measured point.
        point: Point,
    },
    /// The first I/Os of our service and targets after a pause.
    FirstIos {
        /// Block size and depth.
        point: Point,
    },
    /// A deployment of our roles with its blocks in a file.
    File {
        /// Workload on the file.
        work: Work,
    },
    /// fio on the same file.
    Fio {
        /// Workload on the file.
        work: Work,
    },
    /// Our NBD server with a deployment, under fio.
    NbdServer {
        /// Block size and depth.
        point: Point,
    },
    /// A deployment of our roles on two machines.
    Hosts {
        /// The point.
        point: Point,
    },
    /// A bare TCP connection between two machines.
    BareTcp {
        /// With the block size and depth of this point.
        point: Point,
    },
    /// nbdkit's memory plugin on one machine under fio on another.
    NbdTcp {
        /// With the block size and depth of this point.
        point: Point,
    },
    /// nbdkit's memory plugin under fio.
    Nbd {
        /// Block size and depth.
        point: Point,
    },
    /// Our vhost-user-blk back end with a deployment, under libblkio.
    VhostUserBlk {
        /// With the block size and depth of this point.
        point: Point,
    },
    /// A null disk of qemu-storage-daemon under libblkio.
    NullDisk {
        /// With the block size and depth of this point.
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
    pub(super) fn is_counted(&self) -> bool {
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

/// Measures subjects.
#[derive(Debug)]
pub struct Runner {
    /// This program, which provides initiators and yardsticks.
    pub program: PathBuf,
    /// The yardsticks.
    pub yardsticks: Yardsticks,
    /// Mixes by name. `rust` is ours.
    pub mixes: BTreeMap<String, Mix>,
    /// File for the blocks of the measurements on a disk, if any.
    pub backing: Option<PathBuf>,
    /// CPUs to use.
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

/// A mix in which one role is of another implementation than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    /// One of [`EXCHANGED`].
    pub role: &'static str,
    /// `true` for our role among theirs, `false` for their role among ours.
    pub among_theirs: bool,
}

impl Exchanged {
    /// All exchanges.
    pub fn all() -> impl Iterator<Item = Self> {
        [true, false]
            .into_iter()
            .flat_map(|among_theirs| EXCHANGED.map(|role| Self { role, among_theirs }))
    }

    /// Parses the name of a mix; `None` for one without an exchange.
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
    /// Our roles.
    ///
    /// # Panics
    ///
    /// If there is no mix of this name.
    pub fn ours(&self) -> &Mix {
        self.mixes.get(OURS).expect("a mix called rust")
    }

    /// Runs the subject for about `time`, or for `operations` if the program counts them. Returns its figures, and
    /// the number of repetitions after crashes of a program of the reference.
    pub(super) fn run(
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
                super::block_kernels(time, cpus.map(|cpu| self.cpus[cpu]))
            }
            Subject::WakeUp => self
                .yardsticks
                .wake_up([1, 2].map(|role| self.cpu_of(role))),
            Subject::Deployment { point, mix } => {
                let mix = self
                    .mixes
                    .get(mix)
                    .ok_or_else(|| std::io::Error::other(format!("there is no mix {mix:?}")))?;
                measure(mix, *point, operations, &self.cpus)
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
                nbd::measure_ours(&self.program, self.ours(), *point, time, &self.cpus)
            }
            Subject::Hosts { point } => measure_over(
                point::network()?,
                self.ours(),
                *point,
                operations,
                &self.cpus,
            ),
            Subject::BareTcp { point } => {
                // CPUs of a service and a target.
                let cpus = [1, 2].map(|role| self.cpu_of(role));
                self.yardsticks
                    .tcp(*point, operations, cpus, &point::network()?)
            }
            Subject::NbdTcp { point } => {
                nbd::measure_over(&point::network()?, *point, time, &self.cpus)
            }
            Subject::Nbd { point } => nbd::measure(*point, time, &self.cpus),
            Subject::VhostUserBlk { point } => {
                vhost_user_blk::measure_ours(&self.program, self.ours(), *point, time, &self.cpus)
            }
            Subject::NullDisk { point } => vhost_user_blk::measure(*point, time, &self.cpus),
        }
    }
}
