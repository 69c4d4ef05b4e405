//! Answers on the control channel that are none, or that are the wrong ones.

use wire::control::{ErrorResponse, Message, Payload};

use super::plan::Plan;
use super::service::Service;
use crate::role::step::Step;
use crate::role::{Bench, Check, Wrong};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "error-response-to-query",
        meaning: "error_response to query_storage_request makes the initiator fail",
        play: |bench| refuse(bench, Step::Query),
    },
    Check {
        name: "error-response-to-init",
        meaning: "error_response to init_storage_request makes the initiator fail",
        play: |bench| refuse(bench, Step::Init),
    },
    Check {
        name: "error-response-to-start",
        meaning: "error_response to start_storage_request makes the initiator fail",
        play: |bench| refuse(bench, Step::Start),
    },
    Check {
        name: "error-response-to-stop",
        meaning: "error_response to stop_storage_request makes the initiator fail, although the run went well",
        play: |bench| refuse(bench, Step::Stop),
    },
    Check {
        name: "error-response-to-shutdown",
        meaning: "error_response to shutdown_request makes the initiator fail, although the run went well",
        play: |bench| refuse(bench, Step::Shutdown),
    },
    Check {
        name: "error-response-without-error",
        meaning: "error_response with error code 0 and no text makes the initiator fail nevertheless",
        play: |bench| {
            answer_bytes(bench, |request| {
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
        play: |bench| {
            answer_bytes(bench, |request| {
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
        play: |bench| ignore(bench, Step::Query),
    },
    Check {
        name: "no-answer-to-init",
        meaning: "an initiator without an answer to init_storage_request fails after --control-timeout",
        play: |bench| ignore(bench, Step::Init),
    },
    Check {
        name: "no-answer-to-start",
        meaning: "an initiator without an answer to start_storage_request fails after --control-timeout",
        play: |bench| ignore(bench, Step::Start),
    },
    Check {
        name: "no-answer-to-stop",
        meaning: "an initiator without an answer to stop_storage_request fails after --control-timeout",
        play: |bench| ignore(bench, Step::Stop),
    },
    Check {
        name: "no-answer-to-shutdown",
        meaning: "an initiator without an answer to shutdown_request fails after --control-timeout",
        play: |bench| ignore(bench, Step::Shutdown),
    },
    Check {
        name: "wrong-answer-to-query",
        meaning: "an answer of another type to query_storage_request makes the initiator fail",
        play: |bench| mistake(bench, Step::Query, Payload::InitStorageResponse),
    },
    Check {
        name: "wrong-answer-to-init",
        meaning: "an answer of another type to init_storage_request makes the initiator fail",
        play: |bench| mistake(bench, Step::Init, Payload::StartStorageResponse),
    },
    Check {
        name: "wrong-answer-to-start",
        meaning: "an answer of another type to start_storage_request makes the initiator fail",
        play: |bench| mistake(bench, Step::Start, Payload::StopStorageResponse),
    },
    Check {
        name: "wrong-answer-to-stop",
        meaning: "an answer of another type to stop_storage_request makes the initiator fail",
        play: |bench| mistake(bench, Step::Stop, Payload::ShutdownResponse),
    },
    Check {
        name: "wrong-answer-to-shutdown",
        meaning: "an answer of another type to shutdown_request makes the initiator fail",
        play: |bench| mistake(bench, Step::Shutdown, Payload::StopStorageRequest),
    },
    Check {
        name: "answer-with-another-message-id",
        meaning: "an answer with the message id of no request is none: without another, the initiator fails",
        play: |bench| {
            misnumber(bench, |answer| {
                answer.message_id = answer.message_id.wrapping_add(7);
            })
        },
    },
    Check {
        name: "answer-with-another-correlation-id",
        meaning: "an answer with another correlation id than its request's makes the initiator fail (the reference does not look)",
        play: |bench| {
            misnumber(bench, |answer| {
                answer.correlation_id = answer.correlation_id.wrapping_add(7);
            })
        },
    },
    Check {
        name: "request-to-the-initiator",
        meaning: "a request in the middle of the run, which only services answer: the initiator ends by itself, sooner or later",
        play: |bench| unasked(bench, Payload::QueryStorageRequest),
    },
    Check {
        name: "unasked-error-response",
        meaning: "error_response in the middle of the run, to no request: the initiator ends by itself, sooner or later",
        play: |bench| unasked(bench, Payload::ErrorResponse(error())),
    },
    Check {
        name: "unknown-message-type",
        meaning: "an answer of an unknown type makes the initiator fail",
        play: |bench| answer_bytes(bench, |request| frame(99, request, &[])),
    },
    Check {
        name: "frame-of-no-bytes",
        meaning: "a frame too short for its header makes the initiator fail",
        play: |bench| answer_bytes(bench, |_| vec![0; 4]),
    },
    Check {
        name: "frame-of-4-gib",
        meaning: "a frame that says it has 4294967295 bytes makes the initiator fail",
        play: |bench| {
            answer_bytes(bench, |request| {
                let mut bytes = frame(2, request, &[0; 12]);
                bytes[..4].fill(0xff);
                bytes
            })
        },
    },
    Check {
        name: "frame-without-end",
        meaning: "a frame whose last byte never comes makes the initiator fail after --control-timeout",
        play: |bench| {
            answer_bytes(bench, |request| {
                let mut bytes = frame(2, request, &[0; 12]);
                bytes.pop();
                bytes
            })
        },
    },
    Check {
        name: "payload-too-short",
        meaning: "query_storage_response with a payload of 11 bytes makes the initiator fail (the reference reads beyond it)",
        play: |bench| answer_bytes(bench, |request| frame(2, request, &query_payload()[..11])),
    },
    Check {
        name: "payload-too-long",
        meaning: "query_storage_response with a byte behind its payload makes the initiator fail (the reference does not look)",
        play: |bench| {
            answer_bytes(bench, |request| {
                frame(2, request, &[&query_payload()[..], &[0]].concat())
            })
        },
    },
    Check {
        name: "text-longer-than-its-frame",
        meaning: "error_response whose text is longer than its frame makes the initiator fail (the reference reads beyond it)",
        play: |bench| {
            answer_bytes(bench, |request| {
                frame(0, request, &[0, 0, 0, 18, 0xff, 0xff, 0xff, 0xff, b'x'])
            })
        },
    },
];

fn plan() -> Plan {
    Plan::new("read_write_data_validity_test").impatient()
}

fn error() -> ErrorResponse {
    ErrorResponse {
        // DOCA_ERROR_BAD_STATE
        error_code: 18,
        message: "refused by the check".to_owned(),
    }
}

/// An honest service to a request, which is answered otherwise, and then an honest one again: the initiator has to fail.
fn otherwise(
    bench: &Bench<'_>,
    step: Step,
    answer: impl FnOnce(&mut Service, &Message) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    let request = service.until(step)?;
    answer(&mut service, &request)?;
    service.play_on(|data, io| data.serve(&io));
    service.expect_failure()
}

fn refuse(bench: &Bench<'_>, step: Step) -> Result<(), Wrong> {
    mistake(bench, step, Payload::ErrorResponse(error()))
}

fn ignore(bench: &Bench<'_>, step: Step) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
    service.until(step)?;
    service.expect_failure()
}

fn mistake(bench: &Bench<'_>, step: Step, answer: Payload) -> Result<(), Wrong> {
    otherwise(bench, step, |service, request| {
        service.reply(&request.response(answer))
    })
}

/// The answer to start_storage_request gets other ids.
fn misnumber(bench: &Bench<'_>, change: impl FnOnce(&mut Message)) -> Result<(), Wrong> {
    otherwise(bench, Step::Start, |service, request| {
        let payload = service.perform(&request.payload)?;
        let mut answer = request.response(payload);
        change(&mut answer);
        service.reply(&answer)
    })
}

/// The answer to query_storage_request is these bytes.
fn answer_bytes(bench: &Bench<'_>, bytes: impl FnOnce(&Message) -> Vec<u8>) -> Result<(), Wrong> {
    otherwise(bench, Step::Query, |service, request| {
        service.send_bytes(&bytes(request))
    })
}

/// A message while I/O runs that answers nothing. The service stays honest.
fn unasked(bench: &Bench<'_>, payload: Payload) -> Result<(), Wrong> {
    let mut service = Service::begin(bench, plan())?;
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

/// A frame by hand, with the ids of `request`.
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
