//! Requests of the initiator that are out of order, or ask for what cannot be.

use std::time::Duration;

use bytes::Bytes;
use wire::control::{
    ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};

use super::cast::{Cast, Heard, Reply, SPLIT, TRANSACTIONS, expect_answer};
use super::{BLOCK, presented, scripts};
use crate::role::{Bench, Check, During as _, Step, Wrong};

const WATCH: Duration = Duration::from_millis(60);

pub(super) const CHECKS: [Check; 6] = [
    Check {
        name: "unexpected-first-request",
        meaning: "any request but query_storage_request at the beginning is answered with an error_response, and asks the targets for \
                  nothing",
        play: unexpected_first,
    },
    Check {
        name: "unexpected-requests-leave-the-state",
        meaning: "requests out of order are answered with an error_response in every state, and the session goes on as if they had not \
                  come; the reference takes each for the end of the state",
        play: unexpected_later,
    },
    Check {
        name: "request-before-the-answer",
        meaning: "a request that comes while another is processed is refused, and the other one answered; the reference takes it for the \
                  next one",
        play: request_before_answer,
    },
    Check {
        name: "what-is-no-request",
        meaning: "a response, an error_response or a connection request of an initiator is answered with an error_response",
        play: no_request,
    },
    Check {
        name: "absurd-init",
        meaning: "init with no cores, more than the service has CPUs, no or absurdly many transactions is refused, and may be repeated; \
                  the reference tries, and takes the refusal for the end of the state",
        play: absurd_init,
    },
    Check {
        name: "init-blob-of-none",
        meaning: "a memory export that is none is answered with an error_response, or ends the service with an exit status other than 0",
        play: init_blob,
    },
];

/// A request of each step, whether it is due or not.
fn requests(cast: &Cast<'_>) -> Result<Vec<(Step, Payload)>, Wrong> {
    Step::ALL
        .into_iter()
        .map(|step| Ok((step, cast.payload(step)?)))
        .collect()
}

/// Says this, expects an error, and that nobody hears of it.
fn refused(cast: &mut Cast<'_>, payload: Payload) -> Result<(), Wrong> {
    let what = payload.message_type();
    let request = cast.request(payload);
    let before = cast.asked.len();
    let answer = cast.exchange(&request, &mut |_, _| Reply::Silence)?;
    Cast::expect_error(&answer)?;
    Wrong::unless(
        cast.asked.len() == before,
        format!("a refused {what} to be forwarded to nobody"),
        "another request at a target",
    )
}

fn unexpected_first(bench: &Bench<'_>) -> Result<(), Wrong> {
    for step in [Step::Init, Step::Start, Step::Stop, Step::Shutdown] {
        let mut cast = Cast::start(bench, &[])?;
        let payload = cast.payload(step)?;
        refused(&mut cast, payload)?;
        cast.expect_silence(WATCH, "after a request was refused")?;
    }
    Ok(())
}

fn unexpected_later(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        cast.prepare(step)?;
        for (other, payload) in requests(&cast)? {
            if other != step {
                refused(&mut cast, payload)?;
            }
        }
        // What is prepared is not prepared twice.
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        let answer = cast.exchange(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

fn request_before_answer(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        cast.prepare(step)?;
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        cast.say(&request)?;
        let mut held = Vec::new();
        while held.len() < cast.targets.len() {
            match cast.listen(bench.patience())? {
                Heard::Target(index, message) => held.push((index, message)),
                heard => return Err(Wrong::expected("targets to be asked", heard.describe())),
            }
        }
        refused(&mut cast, Payload::QueryStorageRequest)?;
        for (index, message) in held {
            cast.targets[index].reply(&message, Reply::Honest)?;
        }
        let answer = cast.answer_to(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

fn no_request(bench: &Bench<'_>) -> Result<(), Wrong> {
    let details = RdmaConnectionDetails {
        context_index: 0,
        role: RdmaConnectionRole::IoData,
        connection_details: Bytes::from_static(b"none"),
    };
    for payload in [
        Payload::QueryStorageResponse(StorageDetails {
            total_size: BLOCK as u64,
            block_size: BLOCK as u32,
        }),
        Payload::ErrorResponse(ErrorResponse {
            error_code: 17,
            message: "no request".to_owned(),
        }),
        Payload::CreateRdmaConnectionRequest(details),
        Payload::ShutdownResponse,
    ] {
        let mut cast = Cast::start(bench, &[])?;
        refused(&mut cast, payload)?;
    }
    Ok(())
}

fn absurd_init(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    cast.take(Step::Query)?;
    for (transaction_count, core_count) in [
        (TRANSACTIONS, 0),
        (TRANSACTIONS, 2),
        (TRANSACTIONS, u32::MAX),
        (0, 1),
        (1 << 20, 1),
        (1 << 31, 1),
        (u32::MAX, 1),
    ] {
        let init = InitStorage {
            transaction_count,
            core_count,
            ..cast.init()?
        };
        refused(&mut cast, Payload::InitStorageRequest(init))?;
    }
    cast.finish_from(Step::Init)
}

fn init_blob(bench: &Bench<'_>) -> Result<(), Wrong> {
    for blob in [&b""[..], b"none", &[0; 200], &[0xff; 512]] {
        let mut cast = Cast::start(bench, &[])?;
        cast.take(Step::Query)?;
        let init = InitStorage {
            mmap_export_blob: Bytes::copy_from_slice(blob),
            ..cast.init()?
        };
        let request = cast.request(Payload::InitStorageRequest(init));
        cast.say(&request)?;
        cast.expect_refusal("a blob that is none")?;
    }
    Ok(())
}

// Frames in pieces, several at once, and bytes that are no frames.

pub(super) const FRAME_CHECKS: [Check; 7] = [
    Check {
        name: "targets-frames-in-pieces",
        meaning: "every byte of a session's frames from the targets may be a segment of its own",
        play: targets_pieces,
    },
    Check {
        name: "initiators-frames-in-pieces",
        meaning: "every byte of a session's frames from the initiator may be a Comch message of its own",
        play: initiators_pieces,
    },
    Check {
        name: "frames-split-in-two",
        meaning: "a request of the initiator and the answers of the targets may be split anywhere, their halves 1 ms apart",
        play: split_in_two,
    },
    Check {
        name: "several-frames-at-once",
        meaning: "two requests in one Comch message, and the rest of the second in the next, are two requests",
        play: several,
    },
    Check {
        name: "initiators-garbage",
        meaning: "bytes from the initiator that are no frame are answered with an error_response, or end the service with an exit status \
                  other than 0; the reference reads beyond some of them",
        play: initiators_garbage,
    },
    Check {
        name: "targets-garbage",
        meaning: "bytes from a target that are no frame end the service with an exit status other than 0; the reference reads beyond some \
                  of them",
        play: targets_garbage,
    },
    Check {
        name: "unasked-response",
        meaning: "a response that nobody asked for does not become an answer to the initiator",
        play: unasked_response,
    },
];

fn targets_pieces(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        let answer = cast.step(step, &mut |_, _| Reply::Bytewise)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

fn initiators_pieces(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        cast.prepare(step)?;
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        for byte in request.encode_to_vec() {
            cast.say_bytes(&[byte])?;
        }
        let answer = cast.answer_to(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

/// A session's first request and the answers to it, with one split after the other.
fn split_in_two(bench: &Bench<'_>) -> Result<(), Wrong> {
    let answer = Payload::QueryStorageResponse(presented(&scripts(bench)));
    let longest = plain(answer).encode_to_vec().len();
    for at in 1..longest {
        let mut cast = Cast::start(bench, &[])?;
        let request = cast.request(Payload::QueryStorageRequest);
        let bytes = request.encode_to_vec();
        let (first, second) = bytes.split_at(at.min(bytes.len() - 1));
        cast.say_bytes(first)?;
        std::thread::sleep(SPLIT);
        cast.say_bytes(second)?;
        let answer = cast.answer_to(&request, &mut |_, _| Reply::Split(at))?;
        expect_answer(Step::Query, &answer).during(format_args!("split after {at} bytes"))?;
    }
    Ok(())
}

fn several(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    let first = cast.request(Payload::StartStorageRequest);
    let second = cast.request(Payload::StopStorageRequest);
    let bytes = [first.encode_to_vec(), second.encode_to_vec()].concat();
    let (begin, end) = bytes.split_at(bytes.len() - 3);
    cast.say_bytes(begin)?;
    std::thread::sleep(SPLIT);
    cast.say_bytes(end)?;
    for request in [first, second] {
        let answer = cast.answer_to(&request, &mut |_, _| Reply::Silence)?;
        Cast::expect_error(&answer)?;
    }
    Ok(())
}

/// Bytes that are no frame, made from one, and what is wrong with them.
fn garbage(message: &Message) -> Vec<(&'static str, Vec<u8>)> {
    let bytes = message.encode_to_vec();
    let with = |offset: usize, word: u32| {
        let mut bytes = bytes.clone();
        bytes[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
        bytes
    };
    let length = bytes.len() as u32 - 4;
    let mut trailing = with(0, length + 5);
    trailing.extend([0xee; 5]);
    let mut truncated = with(0, length - 1);
    truncated.pop();
    vec![
        ("length 0", with(0, 0)),
        ("a length that holds no header", with(0, 11)),
        ("a length of 4 GiB", with(0, u32::MAX)),
        ("an unknown type", with(4, 13)),
        ("a type of 0xffffffff", with(4, u32::MAX)),
        ("bytes behind the payload", trailing),
        ("a frame that ends a byte early", truncated),
    ]
}

fn initiators_garbage(bench: &Bench<'_>) -> Result<(), Wrong> {
    let count = garbage(&plain(Payload::QueryStorageRequest)).len();
    for index in 0..count {
        let mut cast = Cast::start(bench, &[])?;
        let message = cast.request(Payload::QueryStorageRequest);
        let (what, bytes) = garbage(&message).swap_remove(index);
        cast.say_bytes(&bytes)?;
        cast.expect_refusal(what)?;
    }
    // With a payload, which has lengths of its own.
    for (what, offset, word) in [
        ("a blob of 4 GiB", 24, u32::MAX),
        ("a blob that is longer than the frame", 24, 5000),
    ] {
        let mut cast = Cast::start(bench, &[])?;
        cast.take(Step::Query)?;
        let payload = cast.payload(Step::Init)?;
        let mut bytes = cast.request(payload).encode_to_vec();
        bytes[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
        cast.say_bytes(&bytes)?;
        cast.expect_refusal(what)?;
    }
    Ok(())
}

fn targets_garbage(bench: &Bench<'_>) -> Result<(), Wrong> {
    let details = Payload::QueryStorageResponse(StorageDetails {
        total_size: 1 << 20,
        block_size: 4096,
    });
    let count = garbage(&plain(details.clone())).len();
    for index in 0..count {
        let mut cast = Cast::start(bench, &[])?;
        let payload = cast.payload(Step::Query)?;
        let request = cast.request(payload);
        cast.say(&request)?;
        let mut what = "";
        // A service that was told to end before it could answer may just end.
        let answer = cast.answer_to(&request, &mut |target, request| {
            if target > 0 {
                return Reply::Honest;
            }
            let (name, bytes) = garbage(&request.response(details.clone())).swap_remove(index);
            what = name;
            Reply::Bytes(bytes)
        });
        if let Ok(answer) = &answer {
            Cast::expect_error(answer)?;
        }
        cast.expect_failure()
            .map_err(|wrong| Wrong::new(format!("{what}: {wrong}")))?;
    }
    Ok(())
}

fn unasked_response(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    let early = Message {
        message_id: 0,
        correlation_id: 0,
        payload: Payload::QueryStorageResponse(StorageDetails {
            total_size: 4096,
            block_size: 64,
        }),
    };
    cast.targets[0].say(&early.encode_to_vec())?;
    match cast.listen(Duration::from_millis(200))? {
        Heard::Initiator(message) => Cast::expect_error(&message.payload).map(|_| ()),
        Heard::Nothing | Heard::InitiatorLeft | Heard::TargetLeft(_) => Ok(()),
        heard => Err(Wrong::expected("nothing", heard.describe())),
    }
}

/// A message for its form.
fn plain(payload: Payload) -> Message {
    Message {
        message_id: 1,
        correlation_id: 2,
        payload,
    }
}
