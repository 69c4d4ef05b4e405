//! Complete sessions.

use std::time::{Duration, Instant};

use deployment::process::Signal;
use wire::control::{Payload, RdmaConnectionRole, StorageDetails};

use super::io::{read, write};
use super::{Plan, Service, Step};
use crate::role::{Check, ControlPeer as _, Fixture, Polled, TcpPeer};
use crate::violation::{During as _, Violation};

/// Time in which an incorrect target would serve a second client.
const SERVICE_WINDOW: Duration = Duration::from_millis(150);
/// Delay of a slow service before each step.
const SLOW: Duration = Duration::from_millis(150);

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "session",
        meaning: "Every step is answered with the ids of its request, I/O works, and the target ends with success",
        play: |fixture| one(fixture, &[], Plan::SMALL),
    },
    Check {
        name: "session-of-two-workers",
        meaning: "Two workers with two connections each do I/O",
        play: |fixture| {
            one(
                fixture,
                &["--cpu", "0"],
                Plan {
                    cores: 2,
                    ..Plan::SMALL
                },
            )
        },
    },
    Check {
        name: "session-of-fewer-workers",
        meaning: "A service may use fewer workers than the target has CPUs",
        play: |fixture| one(fixture, &["--cpu", "0", "--cpu", "0"], Plan::SMALL),
    },
    Check {
        name: "session-without-io",
        meaning: "A session may end before any I/O",
        play: without_io,
    },
    Check {
        name: "session-one-transaction",
        meaning: "One transaction is enough",
        play: |fixture| {
            one(
                fixture,
                &[],
                Plan {
                    transactions: 1,
                    depth: 1,
                    ..Plan::SMALL
                },
            )
        },
    },
    Check {
        name: "session-many-transactions",
        meaning: "Some hundred transactions are not too many",
        play: |fixture| {
            one(
                fixture,
                &[],
                Plan {
                    transactions: 256,
                    ..Plan::SMALL
                },
            )
        },
    },
    Check {
        name: "connections-in-any-order",
        meaning: "Workers' connections may be made from the last to the first, io_control before io_data",
        play: connections_in_any_order,
    },
    Check {
        name: "session-repeated",
        meaning: "A new target on the same port serves the next session",
        play: repeated,
    },
    Check {
        name: "second-client",
        meaning: "A second client gets no session, and does not disturb the first",
        play: second_client,
    },
    Check {
        name: "stop-with-io-in-flight",
        meaning: "A stop immediately after the last requests is answered, and so is the shutdown",
        play: stop_with_io_in_flight,
    },
    Check {
        name: "ids",
        meaning: "Answers repeat unusual ids: 0, the highest, descending, always the same",
        play: ids,
    },
    Check {
        name: "slow-service",
        meaning: "A service may take its time between its requests",
        play: slow_service,
    },
    Check {
        name: "details",
        meaning: "The storage's size is that of --block-count blocks of --block-size bytes",
        play: details,
    },
];

/// One session, with a write and a read by every worker.
fn one(fixture: &Fixture<'_>, flags: &[&str], plan: Plan) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, flags, plan, Step::Stop)?;
    every_worker_works(&mut service)?;
    service.finish(&mut running)
}

/// Writes a block with each worker, and reads it with the next one.
fn every_worker_works(service: &mut Service) -> Result<(), Violation> {
    const BLOCK: usize = 4096;
    let count = service.workers.len();
    for worker in 0..count {
        let (value, at) = (0xa1 + worker as u8, (worker * BLOCK) as u64);
        service.memory.fill(0, BLOCK, value)?;
        service.memory.fill(BLOCK, BLOCK, 0)?;
        for (worker, request) in [
            (worker, write(0, at, BLOCK)),
            ((worker + 1) % count, read(BLOCK as u64, at, BLOCK)),
        ] {
            let code = service.io(worker, &request)?;
            Violation::unless(code == 0, "a result of 0", code)
                .during(format!("worker {worker}, {}", request.message_type))?;
        }
        let mut back = [0; BLOCK];
        service.memory.read(BLOCK, &mut back)?;
        Violation::unless(
            back == [value; BLOCK],
            format!("a block of bytes {value:#x}, as it was written"),
            "other bytes",
        )?;
    }
    Ok(())
}

fn without_io(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    service.finish(&mut running)
}

fn connections_in_any_order(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let plan = Plan {
        cores: 2,
        ..Plan::SMALL
    };
    let (mut running, mut service) = Service::at(fixture, &["--cpu", "0"], plan, Step::Connect)?;
    service.make_workers()?;
    for role in [RdmaConnectionRole::IoControl, RdmaConnectionRole::IoData] {
        for index in [1, 0] {
            service.connect_one(index, role)?;
        }
    }
    for worker in &mut service.workers {
        worker.prepare()?;
    }
    service.taken(Step::Connect);
    service.go_to(Step::Stop)?;
    every_worker_works(&mut service)?;
    service.finish(&mut running)
}

fn repeated(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let port = fixture.sandbox().port()?;
    for nth in ["first", "second", "third"] {
        let play = || {
            let mut running = fixture.spawn_target(port, &[])?;
            fixture.wait_for_target(&running, port)?;
            let mut service = Service::connect(fixture, port, Plan::SMALL)?;
            service.go_to(Step::Stop)?;
            every_worker_works(&mut service)?;
            service.finish(&mut running)
        };
        play().during(format!("the {nth} session"))?;
    }
    Ok(())
}

fn second_client(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, port) = fixture.start_target(&[])?;
    let mut service = Service::connect(fixture, port, Plan::SMALL)?;
    service.go_to(Step::Init)?;
    let mut second = TcpPeer::connect(port)?;
    let query = service.request(Payload::QueryStorageRequest);
    // A client that is rejected immediately may be unable to send.
    let sent = second.send(&query);
    if sent.is_ok()
        && let Ok(Polled::Message(message)) = second.next(SERVICE_WINDOW)
    {
        let came = message.payload.message_type();
        let refused = matches!(message.payload, Payload::ErrorResponse(_));
        Violation::unless(
            refused,
            "nothing or an error_response for the second client",
            came,
        )?;
    }
    drop(second);
    service.go_to(Step::Stop)?;
    every_worker_works(&mut service)?;
    service.finish(&mut running)
}

fn stop_with_io_in_flight(fixture: &Fixture<'_>) -> Result<(), Violation> {
    // Each I/O covers the whole storage, so that the stop request arrives before the I/Os have completed.
    const STORAGE: usize = 128 * 4096;
    let plan = Plan {
        transactions: 16,
        depth: 16,
        memory: STORAGE,
        ..Plan::SMALL
    };
    let (mut running, mut service) = Service::at(fixture, &[], plan, Step::Stop)?;
    let request = write(0, 0, STORAGE).to_bytes();
    for _ in 0..plan.depth {
        service.workers[0].send(&request)?;
    }
    service.go_to(Step::Shutdown)?;
    service.finish(&mut running)
}

fn ids(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    let unusual = [
        (0, 0),
        (u32::MAX, u32::MAX),
        (u32::MAX, 0),
        (0, u32::MAX),
        (7, 0x8000_0000),
        (6, 0x8000_0000),
        (6, 0x8000_0000),
    ];
    let mut next = unusual.into_iter().cycle();
    service.ids = Box::new(move || next.next().unwrap_or_default());
    service.go_to(Step::Stop)?;
    // A refusal also repeats the ids of the refused request.
    service.ids = Box::new(|| (0, u32::MAX));
    service.finish(&mut running)
}

fn slow_service(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    for step in Step::ALL {
        std::thread::sleep(SLOW);
        service.go_to(step)?;
        if step == Step::Stop {
            std::thread::sleep(SLOW);
            every_worker_works(&mut service)?;
        }
    }
    service.finish(&mut running)
}

fn details(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for (count, size) in [(1u32, 512u32), (9, 512), (3, 65536)] {
        let (count_flag, size_flag) = (count.to_string(), size.to_string());
        let flags = ["--block-count", &count_flag, "--block-size", &size_flag];
        let (mut running, mut service) = Service::at(fixture, &flags, Plan::SMALL, Step::Query)?;
        let came = service.query()?;
        let expected = StorageDetails {
            total_size: u64::from(count) * u64::from(size),
            block_size: size,
        };
        Violation::unless(
            came == expected,
            format!("{expected:?}"),
            format!("{came:?}"),
        )?;
        service.taken(Step::Query);
        service.finish(&mut running)?;
    }
    Ok(())
}

// Services that disconnect, with or without a shutdown.

/// Time limit for a target to detect a closed RDMA connection, which it is not required to do.
const NOTICE: Duration = Duration::from_millis(100);

/// A check in which the control connection is closed before this step.
macro_rules! gone {
    ($name:literal, $when:literal, $step:ident, $reset:literal) => {
        Check {
            name: $name,
            meaning: concat!(
                $when,
                " the target ends by itself, without success (the reference does not notice, and waits forever)"
            ),
            play: |fixture| gone(fixture, Step::$step, $reset),
        }
    };
}

pub(super) const DEPARTURE_CHECKS: &[Check] = &[
    Check {
        name: "closed-before-query",
        meaning: "A connection that is closed without a request is no session: the target serves the next one (the reference waits forever)",
        play: |fixture| before_query(fixture, false),
    },
    Check {
        name: "reset-before-query",
        meaning: "A connection that is reset without a request is no session: the target serves the next one (the reference waits forever)",
        play: |fixture| before_query(fixture, true),
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
        name: "died-with-io-in-flight",
        meaning: "When the service dies with requests in flight, the target ends by itself, without success (the reference does not notice, and waits forever)",
        play: died,
    },
    Check {
        name: "rdma-lost",
        meaning: "When the RDMA connections are closed with requests in flight, the target ends without success, or exits at shutdown as usual: it neither crashes nor hangs",
        play: rdma_lost,
    },
    Check {
        name: "closed-after-shutdown",
        meaning: "A service may close its side immediately after the shutdown request: it is answered, and the target ends with success",
        play: behind_shutdown,
    },
    Check {
        name: "interrupted",
        meaning: "SIGINT in the middle of a session ends the target by itself",
        play: interrupted,
    },
];

fn gone(fixture: &Fixture<'_>, step: Step, reset: bool) -> Result<(), Violation> {
    let (mut running, service) = Service::at(fixture, &[], Plan::SMALL, step)?;
    // Only the control connection is closed.
    let _rest = service.hang_up(reset)?;
    running.expect_failure(fixture.timeout())
}

fn before_query(fixture: &Fixture<'_>, reset: bool) -> Result<(), Violation> {
    let (mut running, service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    let port = service.port;
    let _rest = service.hang_up(reset)?;
    Service::connect(fixture, port, Plan::SMALL)?.finish(&mut running)
}

fn between_connections(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Connect)?;
    service.make_workers()?;
    service.connect_one(0, wire::control::RdmaConnectionRole::IoData)?;
    let _rest = service.hang_up(false)?;
    running.expect_failure(fixture.timeout())
}

fn within_frame(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Init)?;
    let init = service.init_request()?;
    let init = service.request(Payload::InitStorageRequest(init));
    service.control.send_bytes(&init.encode_to_vec()[..30])?;
    let _rest = service.hang_up(false)?;
    running.expect_failure(fixture.timeout())
}

fn died(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Stop)?;
    with_io_in_flight(&mut service)?;
    drop(service);
    running.expect_failure(fixture.timeout())
}

/// Leaves I/Os in flight: sends requests without receiving their results.
fn with_io_in_flight(service: &mut Service) -> Result<(), Violation> {
    (0..Plan::SMALL.depth as u64)
        .try_for_each(|at| service.workers[0].send(&write(0, at * 4096, 4096).to_bytes()))
}

fn rdma_lost(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Stop)?;
    with_io_in_flight(&mut service)?;
    service.workers.clear();
    // Time for the target to detect the disconnection, which it is not required to do.
    std::thread::sleep(NOTICE);
    for payload in [Payload::StopStorageRequest, Payload::ShutdownRequest] {
        let request = service.request(payload);
        let went_on = service.control.send(&request).is_ok()
            && matches!(
                service.control.next(fixture.timeout()),
                Ok(Polled::Message(_))
            );
        if !went_on {
            return running.expect_failure(fixture.timeout());
        }
    }
    drop(service);
    running.expect_end(fixture.timeout())
}

fn behind_shutdown(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Shutdown)?;
    let request = service.request(Payload::ShutdownRequest);
    service.control.send(&request)?;
    service.control.close_sending()?;
    let answer = service.answer_to(&request)?;
    Violation::unless(
        answer == Payload::ShutdownResponse,
        "shutdown_response",
        answer.message_type(),
    )?;
    running.expect_success(fixture.timeout())
}

fn interrupted(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Stop)?;
    service.works()?;
    let started = Instant::now();
    running.signal(Signal::INT);
    running
        .expect_end(fixture.timeout())
        .during(format!("{:?} after SIGINT", started.elapsed()))
}
