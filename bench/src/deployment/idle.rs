//! What service and targets cost while nothing is asked of them.

use std::time::{Duration, Instant};

use conformance::process::{Process, Signal};
use conformance::scene::Scene;

use super::Cast;
use super::stage::Stage;
use crate::Error;
use crate::point::Point;

/// Time after which a session is in the middle of its work, and after which processes without work have calmed down.
const SETTLED: Duration = Duration::from_millis(500);

/// CPU time that service and target of a session in progress take while nothing is asked of them, in percent of one CPU, over
/// `time`. The initiator is stopped (SIGSTOP) in the middle of its work for that.
///
/// # Errors
///
/// A role cannot be started, or has ended early.
pub fn idle(cast: &Cast, cpus: &[usize], time: Duration) -> Result<f64, Error> {
    let stage = Stage {
        cast,
        point: Point::ZERO_COPY_READ,
        operations: u32::MAX.into(),
        cpus,
        scene: Scene::new()?,
        backing: None,
        tallies: None,
    };
    let (mut service, mut targets) = stage.start()?;
    let initiator = Process::spawn("initiator", stage.initiator()?)?;
    std::thread::sleep(SETTLED);
    initiator.signal(Signal::STOP);
    std::thread::sleep(SETTLED);
    let all = |service: &Process, targets: &[Process]| -> Duration {
        let roles = std::iter::once(service).chain(targets);
        roles.filter_map(Process::cpu_time).sum()
    };
    let (before, started) = (all(&service, &targets), Instant::now());
    std::thread::sleep(time);
    let used = all(&service, &targets).saturating_sub(before);
    let percent = used.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
    initiator.signal(Signal::KILL);
    if service.has_ended() {
        return Err(service.failed("ended while nothing happened").into());
    }
    if let Some(at) = targets.iter_mut().position(Process::has_ended) {
        return Err(targets
            .swap_remove(at)
            .failed("ended while nothing happened")
            .into());
    }
    Ok(percent)
}
