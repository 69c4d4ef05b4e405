//! One session of real roles.

mod content;
mod counted;
mod figures;
mod idle;
mod paused;
mod stage;

use std::path::Path;

use conformance::implementation::{Implementation, Role};
use conformance::scene::Scene;
use conformance::usage::Usage;

use crate::Error;
use crate::point::Point;
use crate::series::{CpuTime, Figures};
use stage::Stage;

pub use content::content;
pub use counted::{cannot_count, system_calls};
pub use idle::idle;
pub use paused::after_pause;
pub use stage::cpu_of;

/// Whose programs play which role.
#[derive(Debug, Clone)]
pub struct Cast {
    /// The initiator.
    pub initiator: Implementation,
    /// The service.
    pub service: Implementation,
    /// All targets.
    pub target: Implementation,
    /// Makes the gga targets' content.
    pub generator: Implementation,
    /// The initiator is one of ours, which prints JSON when it is told to.
    pub prints_json: bool,
    /// The initiator's flag for the number of I/Os in flight.
    pub transactions_flag: &'static str,
    /// All are ours.
    pub is_ours: bool,
}

impl Cast {
    /// One implementation in all roles. Of theirs, the initiator is asked for its flags; one that does not answer is taken for that of 3.2.
    pub fn of(implementation: &Implementation, is_ours: bool) -> Self {
        let usage = if is_ours {
            Usage::default()
        } else {
            Usage::of(implementation, Role::Initiator).unwrap_or_default()
        };
        Self {
            transactions_flag: usage.transactions_flag(),
            prints_json: is_ours,
            is_ours,
            initiator: implementation.clone(),
            service: implementation.clone(),
            target: implementation.clone(),
            generator: implementation.clone(),
        }
    }
}

/// As [`measure`], with the blocks of the only target in a file. With `flush`, every write is flushed, and the latency is that of the flushes.
///
/// # Errors
///
/// As [`measure`].
pub fn measure_file(
    cast: &Cast,
    point: Point,
    operations: u64,
    cpus: &[usize],
    (file, flush): (&Path, bool),
) -> Result<Figures, Error> {
    let stage = Stage {
        cast,
        point,
        operations,
        cpus,
        scene: Scene::new()?,
        backing: Some((file, flush)),
        tallies: None,
    };
    let ended = stage.run()?;
    if flush {
        figures::parse_flushes(&ended.stdout, point)
    } else {
        figures::parse(&ended.stdout, point)
    }
}

/// Runs one session of this many operations on these CPUs.
///
/// # Errors
///
/// A role cannot be started, has failed, or has printed no figures.
pub fn measure(
    cast: &Cast,
    point: Point,
    operations: u64,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let stage = Stage {
        cast,
        point,
        operations,
        cpus,
        scene: Scene::new()?,
        backing: None,
        tallies: None,
    };
    let ended = stage.run()?;
    let mut figures = figures::parse(&ended.stdout, point)?;
    let [initiator, service, targets] = ended
        .cpu
        .map(|time| time.as_nanos() as f64 / stage.all_operations() as f64);
    figures.cpu_ns = Some(CpuTime {
        initiator,
        service,
        targets,
    });
    Ok(figures)
}
