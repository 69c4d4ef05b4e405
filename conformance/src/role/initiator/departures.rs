//! A service that goes, that lacks something, or that is not there; and a user who has seen enough.

use wire::control::Payload;

use super::plan::Plan;
use super::service::Service;
use crate::process::Signal;
use crate::role::step::Step;
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "no-service",
        meaning: "an initiator without a service fails after --control-timeout",
        play: |bench| Service::start(bench, &plan().impatient())?.expect_failure(bench.patience()),
    },
    Check {
        name: "service-gone-at-query",
        meaning: "a service that goes instead of answering query_storage_request makes the initiator fail",
        play: |bench| gone_at(bench, Step::Query),
    },
    Check {
        name: "service-gone-after-query",
        meaning: "a service that goes when it has answered query_storage_request makes the initiator fail",
        play: |bench| gone_after(bench, Step::Query),
    },
    Check {
        name: "service-gone-at-init",
        meaning: "a service that goes instead of answering init_storage_request makes the initiator fail",
        play: |bench| gone_at(bench, Step::Init),
    },
    Check {
        name: "service-gone-after-init",
        meaning: "a service that goes when it has answered init_storage_request makes the initiator fail",
        play: |bench| gone_after(bench, Step::Init),
    },
    Check {
        name: "service-gone-at-start",
        meaning: "a service that goes instead of answering start_storage_request makes the initiator fail",
        play: |bench| gone_at(bench, Step::Start),
    },
    Check {
        name: "service-gone-after-start",
        meaning: "a service that goes when it has answered start_storage_request makes the initiator fail",
        play: |bench| gone_after(bench, Step::Start),
    },
    Check {
        name: "service-gone-in-the-run",
        meaning: "a service that goes with requests in flight makes the initiator fail (the reference waits for results forever)",
        play: gone_in_the_run,
    },
    Check {
        name: "service-gone-at-stop",
        meaning: "a service that goes instead of answering stop_storage_request makes the initiator fail",
        play: |bench| gone_at(bench, Step::Stop),
    },
    Check {
        name: "service-gone-after-stop",
        meaning: "a service that goes when it has answered stop_storage_request, and was not shut down, makes the initiator fail",
        play: |bench| gone_after(bench, Step::Stop),
    },
    Check {
        name: "service-gone-at-shutdown",
        meaning: "a service that goes instead of answering shutdown_request makes the initiator fail",
        play: |bench| gone_at(bench, Step::Shutdown),
    },
    Check {
        name: "service-gone-after-shutdown",
        meaning: "a service that goes when it has answered shutdown_request is in order",
        play: gone_after_shutdown,
    },
    Check {
        name: "consumer-gone-in-the-run",
        meaning: "a service whose consumer goes with requests in flight makes the initiator fail after --io-timeout (the reference has no such flag)",
        play: consumer_gone,
    },
    Check {
        name: "too-few-consumers",
        meaning: "a service with fewer consumers than workers makes the initiator fail after --control-timeout",
        play: |bench| consumers(bench, 1),
    },
    Check {
        name: "too-many-consumers",
        meaning: "a service with more consumers than workers makes the initiator fail",
        play: |bench| consumers(bench, 3),
    },
    Check {
        name: "consumers-that-never-go",
        meaning: "a service whose consumers never go: the initiator ends by itself (the reference waits for them forever)",
        play: consumers_that_never_go,
    },
    Check {
        name: "interrupt",
        meaning: "SIGINT in the run: the initiator stops the storage, shuts it down and ends (the reference runs on to its end)",
        play: |bench| interrupt(bench, Signal::INT),
    },
    Check {
        name: "terminate",
        meaning: "SIGTERM in the run: the initiator stops the storage, shuts it down and ends (the reference dies of it)",
        play: |bench| interrupt(bench, Signal::TERM),
    },
];

fn plan() -> Plan {
    Plan::new("read_throughput_test")
}

fn gone_at(bench: &Bench<'_>, step: Step) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    service.until(step)?;
    service.hang_up();
    service.expect_failure()
}

fn gone_after(bench: &Bench<'_>, step: Step) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    let request = service.until(step)?;
    service.answer(&request)?;
    service.hang_up();
    service.expect_failure()
}

fn gone_after_shutdown(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    service.finish()?;
    service.hang_up();
    service.expect_success()
}

/// Serves five requests and no more, until four are in flight.
fn into_the_run(bench: &Bench<'_>, plan: Plan) -> Result<Service, Wrong> {
    let mut service = Service::begin(bench, plan)?;
    let request = service.until(Step::Start)?;
    service.answer(&request)?;
    service.serve_until(|data| data.seen.len() == 9, 5)?;
    Ok(service)
}

fn gone_in_the_run(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = into_the_run(bench, plan())?;
    service.hang_up();
    service.expect_failure()
}

fn consumer_gone(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = into_the_run(bench, plan().flags(&["--io-timeout", "1"]))?;
    service.data()?.close_channels()?;
    service.play_on(|data, io| data.serve(&io));
    service.expect_failure()
}

/// For two workers.
fn consumers(bench: &Bench<'_>, count: u32) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan().workers(2).impatient())?;
    let request = service.until(Step::Init)?;
    let _channels = service.channels(count, 4)?;
    service.reply(&request.response(Payload::InitStorageResponse))?;
    service.expect_failure()
}

fn consumers_that_never_go(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan().impatient())?;
    let request = service.until(Step::Stop)?;
    service.reply(&request.response(Payload::StopStorageResponse))?;
    service.finish()?;
    service.expect_end()
}

fn interrupt(bench: &Bench<'_>, signal: Signal) -> Result<(), Wrong> {
    let operations = 20_000;
    let mut service = into_the_run(bench, plan().operations(operations))?;
    service.initiator.signal(signal);
    let data = service.data()?;
    let waiting = data.in_flight().to_vec();
    waiting.iter().try_for_each(|io| data.serve(io))?;
    service.finish()?;
    service.expect_end()?;
    let seen = service.seen().len();
    Wrong::unless(
        seen < operations as usize,
        "the run to be cut short",
        format!("{seen} requests"),
    )
}
