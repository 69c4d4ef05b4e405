//! Things that are measured.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::deployment::{Cast, cpu_of, measure};
use crate::limits::Yardsticks;
use crate::nbd;
use crate::point::{Layout, Point};
use crate::series::Figures;

/// One thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// The bare ring.
    Ring {
        /// With blocks and depth of this.
        point: Point,
    },
    /// memcpy.
    Copy {
        /// With memories of this.
        point: Point,
    },
    /// A deployment of real roles.
    Deployment {
        /// What it does.
        point: Point,
        /// Who plays: a name that the runner knows.
        cast: String,
    },
    /// nbdkit's memory plugin under fio.
    Nbd {
        /// With blocks and depth of this.
        point: Point,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring { point } => write!(f, "bare ring: {point}"),
            Self::Copy { point } => write!(f, "memcpy: {point}"),
            Self::Deployment { point, cast } => write!(f, "{cast}: {point}"),
            Self::Nbd { point } => write!(f, "nbdkit + fio: {point}"),
        }
    }
}

/// Measures subjects.
#[derive(Debug)]
pub struct Runner {
    /// The yardsticks.
    pub yardsticks: Yardsticks,
    /// Who plays, by name. `rust` is ours.
    pub casts: BTreeMap<String, Cast>,
    /// CPUs to use.
    pub cpus: Vec<usize>,
}

/// How often a session with programs of the reference is repeated after a crash: their workers race with their own start, and on
/// few CPUs half of the starts are lost.
const START_RACES: u32 = 20;

/// A process was killed by SIGSEGV.
fn is_crash(error: &Error) -> bool {
    matches!(error, Error::Process(failure) if failure.to_string().contains("signal: 11"))
}

/// The cast that is ours.
pub const OURS: &str = "rust";

impl Runner {
    /// Our roles.
    ///
    /// # Panics
    ///
    /// There is no cast of this name, which whoever made the runner has forgotten.
    pub fn ours(&self) -> &Cast {
        self.casts.get(OURS).expect("a cast called rust")
    }

    /// One run of about `time`; of `operations` where the program counts them.
    pub(super) fn run(
        &self,
        subject: &Subject,
        operations: u64,
        time: Duration,
    ) -> Result<Figures, Error> {
        match subject {
            Subject::Ring { point } => {
                let cpu = |role| self.cpus[cpu_of(Layout::ZeroCopy, role, 0, 3) % self.cpus.len()];
                self.yardsticks
                    .ring(*point, operations, [cpu(0), cpu(1), cpu(2)])
            }
            Subject::Copy { point } => self.yardsticks.copy(*point, time),
            Subject::Deployment { point, cast } => {
                let cast = self
                    .casts
                    .get(cast)
                    .ok_or_else(|| std::io::Error::other(format!("there is no cast {cast:?}")))?;
                let mut races = 0;
                loop {
                    match measure(cast, *point, operations, &self.cpus) {
                        Err(error) if !cast.is_ours && races < START_RACES && is_crash(&error) => {
                            races += 1;
                        }
                        result => return result,
                    }
                }
            }
            Subject::Nbd { point } => nbd::measure(*point, time, &self.cpus),
        }
    }
}
