//! Sessions that go well, with a service that does it in its own way.

use std::time::Duration;

use wire::control::Payload;

use super::plan::Plan;
use super::service::Service;
use crate::role::step::Step;
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "message-ids",
        meaning: "every request of the session has a message id of its own",
        play: message_ids,
    },
    Check {
        name: "answers-in-single-bytes",
        meaning: "answers that come split at every byte are understood",
        play: |bench| with(bench, |service| service.piece = 1),
    },
    Check {
        name: "answers-in-pieces",
        meaning: "answers that come split inside of a field are understood",
        play: |bench| with(bench, |service| service.piece = 7),
    },
    Check {
        name: "slow-answers",
        meaning: "answers that come within --control-timeout are waited for",
        play: |bench| with(bench, |service| service.delay = Duration::from_millis(300)),
    },
    Check {
        name: "slow-results",
        meaning: "results that take a while are waited for",
        play: slow_results,
    },
    Check {
        name: "results-out-of-order",
        meaning: "results that come in another order than their requests are taken",
        play: results_out_of_order,
    },
    Check {
        name: "results-with-rubbish",
        meaning: "bytes of a result that belong to no field are ignored",
        play: results_with_rubbish,
    },
    Check {
        name: "late-consumers",
        meaning: "consumers of the service that appear after init_storage_response are waited for",
        play: late_consumers,
    },
    Check {
        name: "consumers-that-stay",
        meaning: "a service that destroys its consumers only after shutdown_response does the initiator no harm",
        play: consumers_that_stay,
    },
    Check {
        name: "own-consumers-go-before-shutdown",
        meaning: "the initiator has destroyed its consumers when it sends shutdown_request, not before the storage is stopped",
        play: own_consumers,
    },
    Check {
        name: "requests-only-in-the-run",
        meaning: "I/O is asked for after start_storage_response and not before, and every request has its result when stop_storage_request comes",
        play: requests_only_in_the_run,
    },
    Check {
        name: "memory-for-targets",
        meaning: "the memory that init_storage_request exports can be passed on to targets, which read and write it by RDMA",
        play: memory_for_targets,
    },
    Check {
        name: "repeated-sessions",
        meaning: "an initiator can be started again on the same channel as soon as the one before it has ended",
        play: repeated_sessions,
    },
];

fn plan() -> Plan {
    Plan::new("read_write_data_validity_test")
}

/// A session with a service of this manner.
fn with(bench: &Bench<'_>, manner: impl FnOnce(&mut Service)) -> Result<(), Wrong> {
    let plan = plan().flags(&["--control-timeout", "2"]);
    let mut service = Service::begin(bench, plan)?;
    manner(&mut service);
    service.succeed()
}

fn message_ids(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    service.succeed()?;
    let mut ids: Vec<u32> = service.requests.iter().map(|it| it.message_id).collect();
    let all = format!("{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    Wrong::unless(ids.len() == Step::ALL.len(), "five message ids", all)
}

fn slow_results(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan().operations(3).transactions(1))?;
    service.finish_with(|data, io| {
        std::thread::sleep(Duration::from_millis(150));
        data.serve(&io)
    })?;
    service.expect_success()
}

fn results_out_of_order(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    service.finish_with(|data, _| {
        let waiting = data.in_flight().to_vec();
        if waiting.len() < 4 {
            return Ok(());
        }
        // The last first.
        waiting.iter().rev().try_for_each(|io| data.serve(io))
    })?;
    service.expect_success()
}

fn results_with_rubbish(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    service.finish_with(|data, io| {
        data.transfer(&io)?;
        data.forget(&io);
        let mut bytes = io.bytes_of(io.request.answer(0));
        io.reserved().for_each(|at| bytes[at] = 0xff);
        data.send_bytes(io.worker, &bytes)
    })?;
    service.expect_success()
}

fn late_consumers(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    let request = service.until(Step::Init)?;
    service.reply(&request.response(Payload::InitStorageResponse))?;
    std::thread::sleep(Duration::from_millis(300));
    service.perform(&request.payload)?;
    service.succeed()
}

fn consumers_that_stay(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    let request = service.until(Step::Stop)?;
    service.reply(&request.response(Payload::StopStorageResponse))?;
    service.finish()?;
    std::thread::sleep(Duration::from_millis(200));
    service.data()?.close_channels()?;
    service.expect_success()
}

fn own_consumers(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    let request = service.until(Step::Stop)?;
    let consumers = service.control()?.consumers().len();
    Wrong::unless(
        consumers == 1,
        "the initiator's consumer to be there when it sends stop_storage_request",
        format!("{consumers} consumers"),
    )?;
    service.answer(&request)?;
    // Which looks for consumers.
    service.succeed()
}

fn requests_only_in_the_run(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    let request = service.until(Step::Start)?;
    service.expect_no_io("start_storage_response")?;
    service.answer(&request)?;
    let request = service.until(Step::Stop)?;
    let waiting = service.data()?.in_flight().len();
    Wrong::unless(
        waiting == 0,
        "results to be waited for before stop_storage_request",
        format!("{waiting} requests in flight"),
    )?;
    service.expect_no_io("stop_storage_response")?;
    service.answer(&request)?;
    service.succeed()
}

fn memory_for_targets(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    let request = service.until(Step::Init)?;
    service.pass_on_memory(&request.payload)?;
    service.answer(&request)?;
    service.succeed()
}

fn repeated_sessions(bench: &Bench<'_>) -> Result<(), Wrong> {
    for _ in 0..3 {
        Service::begin(bench, plan())?.succeed()?;
    }
    Ok(())
}
