//! The first I/Os after a pause. Who measures is a process of its own, in the initiator's place: no initiator pauses.

use std::path::Path;
use std::process::Command;

use conformance::process::Process;
use conformance::scene::Scene;

use super::Cast;
use super::stage::Stage;
use crate::Error;
use crate::point::Point;
use crate::series::{AfterPause, Figures};

/// Runs a session with pauses. `program` is this one, which plays the initiator as `first-ios`.
///
/// # Errors
///
/// A role cannot be started, or has failed.
pub fn after_pause(
    program: &Path,
    cast: &Cast,
    point: Point,
    cpus: &[usize],
) -> Result<Figures, Error> {
    let stage = Stage {
        cast,
        point,
        operations: 0,
        cpus,
        scene: Scene::new()?,
        backing: None,
        tallies: None,
    };
    let (service, targets) = stage.start()?;
    let mut command = Command::new(program);
    stage
        .scene
        .place(&mut command)
        .args(["first-ios", "--channel", stage.scene.channel()])
        .args(["--cpu", &cpus[0].to_string()])
        .args(["--transactions", &point.transactions.to_string()]);
    let initiator = Process::spawn("initiator", command)?;
    let ended = stage.finish(initiator, service, targets)?;
    let measured: AfterPause = serde_json::from_str(&ended.stdout).map_err(|_| Error::Output {
        program: "the initiator that pauses",
        expected: "its figures as JSON",
        got: ended.stdout,
    })?;
    Ok(Figures {
        after_pause: Some(measured),
        ..Figures::of_rate(measured.steady_rate, point.block_size)
    })
}
