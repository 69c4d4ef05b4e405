//! Services that go away, with and without a word.

use std::time::{Duration, Instant};

use wire::control::Payload;

use super::io::write;
use super::plan::{Plan, Step};
use super::service::Service;
use crate::process::Signal;
use crate::role::{Bench, Check, ControlPeer as _, During as _, Polled, Wrong};

/// Time in which a lost RDMA connection is noticed, where it is.
const NOTICE: Duration = Duration::from_millis(100);

/// A check in which the control connection goes where a step is due.
macro_rules! gone {
    ($name:literal, $when:literal, $step:ident, $reset:literal) => {
        Check {
            name: $name,
            meaning: concat!(
                $when,
                " the target ends by itself, without success (the reference does not notice, and waits forever)"
            ),
            play: |bench| gone(bench, Step::$step, $reset),
        }
    };
}

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "closed-before-query",
        meaning: "A connection that is closed without a request is no session: the target serves the next one (the reference waits forever)",
        play: |bench| before_query(bench, false),
    },
    Check {
        name: "reset-before-query",
        meaning: "A connection that is reset without a request is no session: the target serves the next one (the reference waits forever)",
        play: |bench| before_query(bench, true),
    },
    gone!(
        "closed-after-query",
        "When the service closes the connection after the query,",
        Init,
        false
    ),
    gone!(
        "closed-after-init",
        "When the service closes the connection after init,",
        Connect,
        false
    ),
    gone!(
        "closed-after-connections",
        "When the service closes the connection before start,",
        Start,
        false
    ),
    gone!(
        "closed-after-start",
        "When the service closes the connection while the data path runs,",
        Stop,
        false
    ),
    gone!(
        "closed-after-stop",
        "When the service closes the connection before shutdown,",
        Shutdown,
        false
    ),
    gone!(
        "reset-after-init",
        "When the connection is reset after init,",
        Connect,
        true
    ),
    gone!(
        "reset-after-start",
        "When the connection is reset while the data path runs,",
        Stop,
        true
    ),
    gone!(
        "reset-after-stop",
        "When the connection is reset before shutdown,",
        Shutdown,
        true
    ),
    Check {
        name: "closed-between-connections",
        meaning: "When the service closes the connection between its two RDMA connections, the target ends by itself, without success (the reference does not notice, and waits forever)",
        play: between_connections,
    },
    Check {
        name: "closed-within-frame",
        meaning: "When the service closes the connection in the middle of a frame, the target ends by itself, without success (the reference does not notice, and waits forever)",
        play: within_frame,
    },
    Check {
        name: "died-with-io-under-way",
        meaning: "When the service dies with requests under way, the target ends by itself, without success (the reference does not notice, and waits forever)",
        play: died,
    },
    Check {
        name: "rdma-lost",
        meaning: "When the RDMA connections go with requests under way, the target ends without success, or ends at shutdown as ever: it neither crashes nor hangs",
        play: rdma_lost,
    },
    Check {
        name: "closed-behind-shutdown",
        meaning: "A service may close its side right behind the shutdown request: it is answered, and the target ends with success",
        play: behind_shutdown,
    },
    Check {
        name: "interrupted",
        meaning: "SIGINT in the middle of a session ends the target by itself",
        play: interrupted,
    },
];

fn gone(bench: &Bench<'_>, step: Step, reset: bool) -> Result<(), Wrong> {
    let (mut running, service) = Service::at(bench, &[], Plan::SMALL, step)?;
    // Only the control connection goes.
    let _rest = service.hang_up(reset)?;
    running.expect_failure(bench.patience())
}

fn before_query(bench: &Bench<'_>, reset: bool) -> Result<(), Wrong> {
    let (mut running, service) = Service::at(bench, &[], Plan::SMALL, Step::Query)?;
    let port = service.port;
    let _rest = service.hang_up(reset)?;
    Service::connect(bench, port, Plan::SMALL)?.finish(&mut running)
}

fn between_connections(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Connect)?;
    service.make_workers()?;
    service.connect_one(0, wire::control::RdmaConnectionRole::IoData)?;
    let _rest = service.hang_up(false)?;
    running.expect_failure(bench.patience())
}

fn within_frame(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Init)?;
    let init = service.init_request()?;
    let init = service.request(Payload::InitStorageRequest(init));
    service.control.send_bytes(&init.encode_to_vec()[..30])?;
    let _rest = service.hang_up(false)?;
    running.expect_failure(bench.patience())
}

fn died(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Stop)?;
    with_io_under_way(&mut service)?;
    drop(service);
    running.expect_failure(bench.patience())
}

/// Sends requests, whose results nobody is going to take.
fn with_io_under_way(service: &mut Service) -> Result<(), Wrong> {
    (0..Plan::SMALL.depth as u64)
        .try_for_each(|at| service.workers[0].send(&write(0, at * 4096, 4096).to_bytes()))
}

fn rdma_lost(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Stop)?;
    with_io_under_way(&mut service)?;
    service.workers.clear();
    // Time to notice; which nobody has to.
    std::thread::sleep(NOTICE);
    for payload in [Payload::StopStorageRequest, Payload::ShutdownRequest] {
        let request = service.request(payload);
        let went_on = service.control.send(&request).is_ok()
            && matches!(
                service.control.next(bench.patience()),
                Ok(Polled::Message(_))
            );
        if !went_on {
            return running.expect_failure(bench.patience());
        }
    }
    drop(service);
    running.expect_end(bench.patience())
}

fn behind_shutdown(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Shutdown)?;
    let request = service.request(Payload::ShutdownRequest);
    service.control.send(&request)?;
    service.control.close_sending()?;
    let answer = service.answer_to(&request)?;
    Wrong::unless(
        answer == Payload::ShutdownResponse,
        "shutdown_response",
        answer.message_type(),
    )?;
    running.expect_success(bench.patience())
}

fn interrupted(bench: &Bench<'_>) -> Result<(), Wrong> {
    let (mut running, mut service) = Service::at(bench, &[], Plan::SMALL, Step::Stop)?;
    service.works()?;
    let started = Instant::now();
    running.signal(Signal::INT);
    running
        .expect_end(bench.patience())
        .during(format!("{:?} after SIGINT", started.elapsed()))
}
