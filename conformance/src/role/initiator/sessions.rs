//! Successful sessions with services that behave correctly but unusually.

use std::time::Duration;

use wire::control::{ErrorResponse, Message, Payload};

use super::Plan;
use super::service::Service;
use crate::role::{Check, Fixture, Step};
use crate::violation::Violation;
use deployment::process::Signal;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "message-ids",
        meaning: "every request of the session has a message id of its own",
        play: message_ids,
    },
    Check {
        name: "answers-in-single-bytes",
        meaning: "answers that arrive split at every byte are understood",
        play: |fixture| with(fixture, |service| service.piece = 1),
    },
    Check {
        name: "answers-in-pieces",
        meaning: "answers that arrive split inside of a field are understood",
        play: |fixture| with(fixture, |service| service.piece = 7),
    },
    Check {
        name: "slow-answers",
        meaning: "answers that arrive within --control-timeout are waited for",
        play: |fixture| {
            with(fixture, |service| {
                service.delay = Duration::from_millis(300)
            })
        },
    },
    Check {
        name: "slow-results",
        meaning: "results that take a while are waited for",
        play: slow_results,
    },
    Check {
        name: "results-out-of-order",
        meaning: "results in another order than their requests are accepted",
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
        meaning: "a service that destroys its consumers only after shutdown_response does not affect the initiator",
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

/// A session with a service that `manner` configures.
fn with(fixture: &Fixture<'_>, manner: impl FnOnce(&mut Service)) -> Result<(), Violation> {
    let plan = plan().flags(&["--control-timeout", "2"]);
    let mut service = Service::begin(fixture, plan)?;
    manner(&mut service);
    service.succeed()
}

fn message_ids(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    service.succeed()?;
    let mut ids: Vec<u32> = service.requests.iter().map(|it| it.message_id).collect();
    let all = format!("{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    Violation::unless(ids.len() == Step::ALL.len(), "five message ids", all)
}

fn slow_results(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan().operations(3).transactions(1))?;
    service.finish_with(|data, io| {
        std::thread::sleep(Duration::from_millis(150));
        data.serve(&io)
    })?;
    service.expect_success()
}

fn results_out_of_order(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    service.finish_with(|data, _| {
        let waiting = data.in_flight().to_vec();
        if waiting.len() < 4 {
            return Ok(());
        }
        // Newest first.
        waiting.iter().rev().try_for_each(|io| data.serve(io))
    })?;
    service.expect_success()
}

fn results_with_rubbish(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    service.finish_with(|data, io| {
        data.transfer(&io)?;
        data.forget(&io);
        let mut bytes = io.bytes_of(io.request.answer(0));
        io.reserved().for_each(|at| bytes[at] = 0xff);
        data.send_bytes(io.worker, &bytes)
    })?;
    service.expect_success()
}

fn late_consumers(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    let request = service.until(Step::Init)?;
    service.reply(&request.response(Payload::InitStorageResponse))?;
    std::thread::sleep(Duration::from_millis(300));
    service.perform(&request.payload)?;
    service.succeed()
}

fn consumers_that_stay(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    let request = service.until(Step::Stop)?;
    service.reply(&request.response(Payload::StopStorageResponse))?;
    service.finish()?;
    std::thread::sleep(Duration::from_millis(200));
    service.data()?.close_channels()?;
    service.expect_success()
}

fn own_consumers(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    let request = service.until(Step::Stop)?;
    let consumers = service.control()?.consumers().len();
    Violation::unless(
        consumers == 1,
        "the initiator's consumer to be there when it sends stop_storage_request",
        format!("{consumers} consumers"),
    )?;
    service.answer(&request)?;
    // The next session checks for consumers.
    service.succeed()
}

fn requests_only_in_the_run(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    let request = service.until(Step::Start)?;
    service.expect_no_io("start_storage_response")?;
    service.answer(&request)?;
    let request = service.until(Step::Stop)?;
    let waiting = service.data()?.in_flight().len();
    Violation::unless(
        waiting == 0,
        "results to be waited for before stop_storage_request",
        format!("{waiting} requests in flight"),
    )?;
    service.expect_no_io("stop_storage_response")?;
    service.answer(&request)?;
    service.succeed()
}

fn memory_for_targets(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, plan())?;
    let request = service.until(Step::Init)?;
    service.pass_on_memory(&request.payload)?;
    service.answer(&request)?;
    service.succeed()
}

fn repeated_sessions(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for _ in 0..3 {
        Service::begin(fixture, plan())?.succeed()?;
    }
    Ok(())
}

// Malformed and wrong responses on the control channel.

pub(super) const CONTROL_FAULT_CHECKS: &[Check] = &[
    Check {
        name: "error-response-to-query",
        meaning: "error_response to query_storage_request makes the initiator fail",
        play: |fixture| refuse(fixture, Step::Query),
    },
    Check {
        name: "error-response-to-init",
        meaning: "error_response to init_storage_request makes the initiator fail",
        play: |fixture| refuse(fixture, Step::Init),
    },
    Check {
        name: "error-response-to-start",
        meaning: "error_response to start_storage_request makes the initiator fail",
        play: |fixture| refuse(fixture, Step::Start),
    },
    Check {
        name: "error-response-to-stop",
        meaning: "error_response to stop_storage_request makes the initiator fail, although the run went well",
        play: |fixture| refuse(fixture, Step::Stop),
    },
    Check {
        name: "error-response-to-shutdown",
        meaning: "error_response to shutdown_request makes the initiator fail, although the run went well",
        play: |fixture| refuse(fixture, Step::Shutdown),
    },
    Check {
        name: "error-response-without-error",
        meaning: "error_response with error code 0 and no text makes the initiator fail nevertheless",
        play: |fixture| {
            answer_bytes(fixture, |request| {
                let error = ErrorResponse {
                    error_code: 0,
                    message: String::new(),
                };
                request
                    .response(Payload::ErrorResponse(error))
                    .encode_to_vec()
            })
        },
    },
    Check {
        name: "error-response-with-odd-text",
        meaning: "error_response with a text that is not UTF-8 makes the initiator fail like any",
        play: |fixture| {
            answer_bytes(fixture, |request| {
                let text = [0xff, 0xfe, 0x00, 0xc3];
                frame(
                    0,
                    request,
                    &[&[0, 0, 0, 18, 0, 0, 0, 4], &text[..]].concat(),
                )
            })
        },
    },
    Check {
        name: "no-answer-to-query",
        meaning: "an initiator without an answer to query_storage_request fails after --control-timeout",
        play: |fixture| ignore(fixture, Step::Query),
    },
    Check {
        name: "no-answer-to-init",
        meaning: "an initiator without an answer to init_storage_request fails after --control-timeout",
        play: |fixture| ignore(fixture, Step::Init),
    },
    Check {
        name: "no-answer-to-start",
        meaning: "an initiator without an answer to start_storage_request fails after --control-timeout",
        play: |fixture| ignore(fixture, Step::Start),
    },
    Check {
        name: "no-answer-to-stop",
        meaning: "an initiator without an answer to stop_storage_request fails after --control-timeout",
        play: |fixture| ignore(fixture, Step::Stop),
    },
    Check {
        name: "no-answer-to-shutdown",
        meaning: "an initiator without an answer to shutdown_request fails after --control-timeout",
        play: |fixture| ignore(fixture, Step::Shutdown),
    },
    Check {
        name: "wrong-answer-to-query",
        meaning: "an answer of another type to query_storage_request makes the initiator fail",
        play: |fixture| mistake(fixture, Step::Query, Payload::InitStorageResponse),
    },
    Check {
        name: "wrong-answer-to-init",
        meaning: "an answer of another type to init_storage_request makes the initiator fail",
        play: |fixture| mistake(fixture, Step::Init, Payload::StartStorageResponse),
    },
    Check {
        name: "wrong-answer-to-start",
        meaning: "an answer of another type to start_storage_request makes the initiator fail",
        play: |fixture| mistake(fixture, Step::Start, Payload::StopStorageResponse),
    },
    Check {
        name: "wrong-answer-to-stop",
        meaning: "an answer of another type to stop_storage_request makes the initiator fail",
        play: |fixture| mistake(fixture, Step::Stop, Payload::ShutdownResponse),
    },
    Check {
        name: "wrong-answer-to-shutdown",
        meaning: "an answer of another type to shutdown_request makes the initiator fail",
        play: |fixture| mistake(fixture, Step::Shutdown, Payload::StopStorageRequest),
    },
    Check {
        name: "answer-with-another-message-id",
        meaning: "an answer with the message id of no request is none: without another, the initiator fails",
        play: |fixture| {
            misnumber(fixture, |answer| {
                answer.message_id = answer.message_id.wrapping_add(7);
            })
        },
    },
    Check {
        name: "answer-with-another-correlation-id",
        meaning: "an answer with another correlation id than its request's makes the initiator fail (the reference does not check)",
        play: |fixture| {
            misnumber(fixture, |answer| {
                answer.correlation_id = answer.correlation_id.wrapping_add(7);
            })
        },
    },
    Check {
        name: "request-to-the-initiator",
        meaning: "a request in the middle of the run, which only services answer: the initiator ends by itself, sooner or later",
        play: |fixture| unasked(fixture, Payload::QueryStorageRequest),
    },
    Check {
        name: "unasked-error-response",
        meaning: "error_response in the middle of the run, to no request: the initiator ends by itself, sooner or later",
        play: |fixture| unasked(fixture, Payload::ErrorResponse(error())),
    },
    Check {
        name: "unknown-message-type",
        meaning: "a response of an unknown type makes the initiator fail",
        play: |fixture| answer_bytes(fixture, |request| frame(99, request, &[])),
    },
    Check {
        name: "frame-of-no-bytes",
        meaning: "a frame too short for its header makes the initiator fail",
        play: |fixture| answer_bytes(fixture, |_| vec![0; 4]),
    },
    Check {
        name: "frame-of-4-gib",
        meaning: "a frame with a length of 4294967295 bytes makes the initiator fail",
        play: |fixture| {
            answer_bytes(fixture, |request| {
                let mut bytes = frame(2, request, &[0; 12]);
                bytes[..4].fill(0xff);
                bytes
            })
        },
    },
    Check {
        name: "frame-without-end",
        meaning: "a frame whose last byte never comes makes the initiator fail after --control-timeout",
        play: |fixture| {
            answer_bytes(fixture, |request| {
                let mut bytes = frame(2, request, &[0; 12]);
                bytes.pop();
                bytes
            })
        },
    },
    Check {
        name: "payload-too-short",
        meaning: "query_storage_response with a payload of 11 bytes makes the initiator fail (the reference reads beyond it)",
        play: |fixture| answer_bytes(fixture, |request| frame(2, request, &query_payload()[..11])),
    },
    Check {
        name: "payload-too-long",
        meaning: "query_storage_response with a byte after its payload makes the initiator fail (the reference does not check)",
        play: |fixture| {
            answer_bytes(fixture, |request| {
                frame(2, request, &[&query_payload()[..], &[0]].concat())
            })
        },
    },
    Check {
        name: "text-longer-than-its-frame",
        meaning: "error_response whose text is longer than its frame makes the initiator fail (the reference reads beyond it)",
        play: |fixture| {
            answer_bytes(fixture, |request| {
                frame(0, request, &[0, 0, 0, 18, 0xff, 0xff, 0xff, 0xff, b'x'])
            })
        },
    },
];

fn strict_plan() -> Plan {
    Plan::new("read_write_data_validity_test").impatient()
}

fn error() -> ErrorResponse {
    ErrorResponse {
        // DOCA_ERROR_BAD_STATE
        error_code: 18,
        message: "refused by the check".to_owned(),
    }
}

/// A service that is correct, except for the response to one request. The initiator must fail.
fn otherwise(
    fixture: &Fixture<'_>,
    step: Step,
    answer: impl FnOnce(&mut Service, &Message) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, strict_plan())?;
    let request = service.until(step)?;
    answer(&mut service, &request)?;
    service.play_on(|data, io| data.serve(&io));
    service.expect_failure()
}

fn refuse(fixture: &Fixture<'_>, step: Step) -> Result<(), Violation> {
    mistake(fixture, step, Payload::ErrorResponse(error()))
}

fn ignore(fixture: &Fixture<'_>, step: Step) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, strict_plan())?;
    service.until(step)?;
    service.expect_failure()
}

fn mistake(fixture: &Fixture<'_>, step: Step, answer: Payload) -> Result<(), Violation> {
    otherwise(fixture, step, |service, request| {
        service.reply(&request.response(answer))
    })
}

/// Changes the ids of the answer to start_storage_request.
fn misnumber(fixture: &Fixture<'_>, change: impl FnOnce(&mut Message)) -> Result<(), Violation> {
    otherwise(fixture, Step::Start, |service, request| {
        let payload = service.perform(&request.payload)?;
        let mut answer = request.response(payload);
        change(&mut answer);
        service.reply(&answer)
    })
}

/// Sends these bytes as the answer to query_storage_request.
fn answer_bytes(
    fixture: &Fixture<'_>,
    bytes: impl FnOnce(&Message) -> Vec<u8>,
) -> Result<(), Violation> {
    otherwise(fixture, Step::Query, |service, request| {
        service.send_bytes(&bytes(request))
    })
}

/// Sends a message during I/O that is not a response to a request, from a service that is otherwise correct.
fn unasked(fixture: &Fixture<'_>, payload: Payload) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, strict_plan())?;
    let request = service.until(Step::Start)?;
    service.answer(&request)?;
    service.reply(&Message {
        message_id: 1000,
        correlation_id: 1000,
        payload,
    })?;
    service.play_on(|data, io| data.serve(&io));
    service.expect_end()
}

/// Builds a frame with the ids of `request`.
fn frame(message_type: u32, request: &Message, payload: &[u8]) -> Vec<u8> {
    let len = 12 + payload.len() as u32;
    let header = [
        len,
        message_type,
        request.message_id,
        request.correlation_id,
    ];
    let header = header.into_iter().flat_map(u32::to_be_bytes);
    header.chain(payload.iter().copied()).collect()
}

/// A storage of 64 KiB in blocks of 4 KiB.
fn query_payload() -> [u8; 12] {
    [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x10, 0]
}

// Services that disconnect, lack a feature or are not running, and interruptions by the user.

pub(super) const DEPARTURE_CHECKS: &[Check] = &[
    Check {
        name: "no-service",
        meaning: "an initiator without a service fails after --control-timeout",
        play: |fixture| {
            Service::start(fixture, &departure_plan().impatient())?
                .expect_failure(fixture.timeout())
        },
    },
    Check {
        name: "service-gone-at-query",
        meaning: "a service that disconnects instead of answering query_storage_request makes the initiator fail",
        play: |fixture| gone_at(fixture, Step::Query),
    },
    Check {
        name: "service-gone-after-query",
        meaning: "a service that disconnects after it has answered query_storage_request makes the initiator fail",
        play: |fixture| gone_after(fixture, Step::Query),
    },
    Check {
        name: "service-gone-at-init",
        meaning: "a service that disconnects instead of answering init_storage_request makes the initiator fail",
        play: |fixture| gone_at(fixture, Step::Init),
    },
    Check {
        name: "service-gone-after-init",
        meaning: "a service that disconnects after it has answered init_storage_request makes the initiator fail",
        play: |fixture| gone_after(fixture, Step::Init),
    },
    Check {
        name: "service-gone-at-start",
        meaning: "a service that disconnects instead of answering start_storage_request makes the initiator fail",
        play: |fixture| gone_at(fixture, Step::Start),
    },
    Check {
        name: "service-gone-after-start",
        meaning: "a service that disconnects after it has answered start_storage_request makes the initiator fail",
        play: |fixture| gone_after(fixture, Step::Start),
    },
    Check {
        name: "service-gone-in-the-run",
        meaning: "a service that disconnects with requests in flight makes the initiator fail (the reference waits for results forever)",
        play: gone_in_the_run,
    },
    Check {
        name: "service-gone-at-stop",
        meaning: "a service that disconnects instead of answering stop_storage_request makes the initiator fail",
        play: |fixture| gone_at(fixture, Step::Stop),
    },
    Check {
        name: "service-gone-after-stop",
        meaning: "a service that disconnects after it has answered stop_storage_request, and was not shut down, makes the initiator fail",
        play: |fixture| gone_after(fixture, Step::Stop),
    },
    Check {
        name: "service-gone-at-shutdown",
        meaning: "a service that disconnects instead of answering shutdown_request makes the initiator fail",
        play: |fixture| gone_at(fixture, Step::Shutdown),
    },
    Check {
        name: "service-gone-after-shutdown",
        meaning: "a service that disconnects after it has answered shutdown_request is in order",
        play: gone_after_shutdown,
    },
    Check {
        name: "consumer-gone-in-the-run",
        meaning: "a service whose consumer expires with requests in flight makes the initiator fail after --io-timeout (the reference has no such flag)",
        play: consumer_gone,
    },
    Check {
        name: "too-few-consumers",
        meaning: "a service with fewer consumers than workers makes the initiator fail after --control-timeout",
        play: |fixture| consumers(fixture, 1),
    },
    Check {
        name: "too-many-consumers",
        meaning: "a service with more consumers than workers makes the initiator fail",
        play: |fixture| consumers(fixture, 3),
    },
    Check {
        name: "consumers-that-never-go",
        meaning: "a service whose consumers never expire: the initiator ends by itself (the reference waits for them forever)",
        play: consumers_that_never_go,
    },
    Check {
        name: "interrupt",
        meaning: "SIGINT during the run: the initiator stops the storage, shuts it down and exits (the reference completes the run)",
        play: |fixture| interrupt(fixture, Signal::INT),
    },
    Check {
        name: "terminate",
        meaning: "SIGTERM during the run: the initiator stops the storage, shuts it down and exits (the reference is killed)",
        play: |fixture| interrupt(fixture, Signal::TERM),
    },
];

fn departure_plan() -> Plan {
    Plan::new("read_throughput_test")
}

fn gone_at(fixture: &Fixture<'_>, step: Step) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, departure_plan())?;
    service.until(step)?;
    service.hang_up();
    service.expect_failure()
}

fn gone_after(fixture: &Fixture<'_>, step: Step) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, departure_plan())?;
    let request = service.until(step)?;
    service.answer(&request)?;
    service.hang_up();
    service.expect_failure()
}

fn gone_after_shutdown(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, departure_plan())?;
    service.finish()?;
    service.hang_up();
    service.expect_success()
}

/// Serves five requests and no more, until four are in flight.
fn into_the_run(fixture: &Fixture<'_>, plan: Plan) -> Result<Service, Violation> {
    let mut service = Service::begin(fixture, plan)?;
    let request = service.until(Step::Start)?;
    service.answer(&request)?;
    service.serve_until(|data| data.received.len() == 9, 5)?;
    Ok(service)
}

fn gone_in_the_run(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = into_the_run(fixture, departure_plan())?;
    service.hang_up();
    service.expect_failure()
}

fn consumer_gone(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = into_the_run(fixture, departure_plan().flags(&["--io-timeout", "1"]))?;
    service.data()?.close_channels()?;
    service.play_on(|data, io| data.serve(&io));
    service.expect_failure()
}

/// Answers init with `count` consumers for two workers; the initiator must fail.
fn consumers(fixture: &Fixture<'_>, count: u32) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, departure_plan().workers(2).impatient())?;
    let request = service.until(Step::Init)?;
    let _channels = service.channels(count, 4)?;
    service.reply(&request.response(Payload::InitStorageResponse))?;
    service.expect_failure()
}

fn consumers_that_never_go(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut service = Service::begin(fixture, departure_plan().impatient())?;
    let request = service.until(Step::Stop)?;
    service.reply(&request.response(Payload::StopStorageResponse))?;
    service.finish()?;
    service.expect_end()
}

fn interrupt(fixture: &Fixture<'_>, signal: Signal) -> Result<(), Violation> {
    let operations = 20_000;
    let mut service = into_the_run(fixture, departure_plan().operations(operations))?;
    service.initiator.signal(signal);
    let data = service.data()?;
    let waiting = data.in_flight().to_vec();
    waiting.iter().try_for_each(|io| data.serve(io))?;
    service.finish()?;
    service.expect_end()?;
    let received = service.received().len();
    Violation::unless(
        received < operations as usize,
        "the run to be cut short",
        format!("{received} requests"),
    )
}
