//! Requests of the initiator that are out of order, or have invalid values.

use std::time::Duration;

use bytes::Bytes;
use wire::control::{
    ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};

use super::{BLOCK, Heard, Peers, Reply, SPLIT, TRANSACTIONS, expect_answer, presented, scripts};
use crate::role::{Check, Fixture, Step};
use crate::violation::{During as _, Violation};

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
        meaning: "requests out of order are answered with an error_response in every state, and the session continues as if they had not \
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

/// A request of each step, whether or not it is allowed in the current state.
fn requests(peers: &Peers<'_>) -> Result<Vec<(Step, Payload)>, Violation> {
    Step::ALL
        .into_iter()
        .map(|step| Ok((step, peers.payload(step)?)))
        .collect()
}

/// Sends a request that must be refused and not forwarded to the targets.
fn refused(peers: &mut Peers<'_>, payload: Payload) -> Result<(), Violation> {
    let what = payload.message_type();
    let request = peers.request(payload);
    let before = peers.asked.len();
    let answer = peers.exchange(&request, &mut |_, _| Reply::Silence)?;
    Peers::expect_error(&answer)?;
    Violation::unless(
        peers.asked.len() == before,
        format!("a refused {what} not to be forwarded"),
        "another request at a target",
    )
}

fn unexpected_first(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for step in [Step::Init, Step::Start, Step::Stop, Step::Shutdown] {
        let mut peers = Peers::start(fixture, &[])?;
        let payload = peers.payload(step)?;
        refused(&mut peers, payload)?;
        peers.expect_silence(WATCH, "after a request was refused")?;
    }
    Ok(())
}

fn unexpected_later(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    for step in Step::ALL {
        peers.prepare(step)?;
        for (other, payload) in requests(&peers)? {
            if other != step {
                refused(&mut peers, payload)?;
            }
        }
        // A step can be prepared only once.
        let payload = peers.payload(step)?;
        let request = peers.request(payload);
        let answer = peers.exchange(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    peers.expect_success()
}

fn request_before_answer(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    for step in Step::ALL {
        peers.prepare(step)?;
        let payload = peers.payload(step)?;
        let request = peers.request(payload);
        peers.say(&request)?;
        let mut held = Vec::new();
        while held.len() < peers.targets.len() {
            match peers.listen(fixture.timeout())? {
                Heard::Target(index, message) => held.push((index, message)),
                heard => return Err(Violation::expected("targets to be asked", heard.describe())),
            }
        }
        refused(&mut peers, Payload::QueryStorageRequest)?;
        for (index, message) in held {
            peers.targets[index].reply(&message, Reply::Honest)?;
        }
        let answer = peers.answer_to(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    peers.expect_success()
}

fn no_request(fixture: &Fixture<'_>) -> Result<(), Violation> {
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
        let mut peers = Peers::start(fixture, &[])?;
        refused(&mut peers, payload)?;
    }
    Ok(())
}

fn absurd_init(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    peers.take(Step::Query)?;
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
            ..peers.init()?
        };
        refused(&mut peers, Payload::InitStorageRequest(init))?;
    }
    peers.finish_from(Step::Init)
}

fn init_blob(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for blob in [&b""[..], b"none", &[0; 200], &[0xff; 512]] {
        let mut peers = Peers::start(fixture, &[])?;
        peers.take(Step::Query)?;
        let init = InitStorage {
            mmap_export_blob: Bytes::copy_from_slice(blob),
            ..peers.init()?
        };
        let request = peers.request(Payload::InitStorageRequest(init));
        peers.say(&request)?;
        peers.expect_refusal("a blob that is none")?;
    }
    Ok(())
}

// Split and merged frames, and bytes that are not frames.

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
        meaning: "an unexpected response does not become an answer to the initiator",
        play: unasked_response,
    },
];

fn targets_pieces(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    for step in Step::ALL {
        let answer = peers.step(step, &mut |_, _| Reply::Bytewise)?;
        expect_answer(step, &answer)?;
    }
    peers.expect_success()
}

fn initiators_pieces(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    for step in Step::ALL {
        peers.prepare(step)?;
        let payload = peers.payload(step)?;
        let request = peers.request(payload);
        for byte in request.encode_to_vec() {
            peers.say_bytes(&[byte])?;
        }
        let answer = peers.answer_to(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    peers.expect_success()
}

/// A session's first request and the answers to it, split at each offset in turn.
fn split_in_two(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let answer = Payload::QueryStorageResponse(presented(&scripts(fixture)));
    let longest = plain(answer).encode_to_vec().len();
    for at in 1..longest {
        let mut peers = Peers::start(fixture, &[])?;
        let request = peers.request(Payload::QueryStorageRequest);
        let bytes = request.encode_to_vec();
        let (first, second) = bytes.split_at(at.min(bytes.len() - 1));
        peers.say_bytes(first)?;
        std::thread::sleep(SPLIT);
        peers.say_bytes(second)?;
        let answer = peers.answer_to(&request, &mut |_, _| Reply::Split(at))?;
        expect_answer(Step::Query, &answer).during(format_args!("split after {at} bytes"))?;
    }
    Ok(())
}

fn several(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    let first = peers.request(Payload::StartStorageRequest);
    let second = peers.request(Payload::StopStorageRequest);
    let bytes = [first.encode_to_vec(), second.encode_to_vec()].concat();
    let (begin, end) = bytes.split_at(bytes.len() - 3);
    peers.say_bytes(begin)?;
    std::thread::sleep(SPLIT);
    peers.say_bytes(end)?;
    for request in [first, second] {
        let answer = peers.answer_to(&request, &mut |_, _| Reply::Silence)?;
        Peers::expect_error(&answer)?;
    }
    Ok(())
}

/// Invalid variants of a frame, with descriptions.
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
        ("bytes after the payload", trailing),
        ("a frame that ends a byte early", truncated),
    ]
}

fn initiators_garbage(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let count = garbage(&plain(Payload::QueryStorageRequest)).len();
    for index in 0..count {
        let mut peers = Peers::start(fixture, &[])?;
        let message = peers.request(Payload::QueryStorageRequest);
        let (what, bytes) = garbage(&message).swap_remove(index);
        peers.say_bytes(&bytes)?;
        peers.expect_refusal(what)?;
    }
    // With a payload that also contains length fields.
    for (what, offset, word) in [
        ("a blob of 4 GiB", 24, u32::MAX),
        ("a blob that is longer than the frame", 24, 5000),
    ] {
        let mut peers = Peers::start(fixture, &[])?;
        peers.take(Step::Query)?;
        let payload = peers.payload(Step::Init)?;
        let mut bytes = peers.request(payload).encode_to_vec();
        bytes[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
        peers.say_bytes(&bytes)?;
        peers.expect_refusal(what)?;
    }
    Ok(())
}

fn targets_garbage(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let details = Payload::QueryStorageResponse(StorageDetails {
        total_size: 1 << 20,
        block_size: 4096,
    });
    let count = garbage(&plain(details.clone())).len();
    for index in 0..count {
        let mut peers = Peers::start(fixture, &[])?;
        let payload = peers.payload(Step::Query)?;
        let request = peers.request(payload);
        peers.say(&request)?;
        let mut what = "";
        // A service that is terminated before it answers may exit without a response.
        let answer = peers.answer_to(&request, &mut |target, request| {
            if target > 0 {
                return Reply::Honest;
            }
            let (name, bytes) = garbage(&request.response(details.clone())).swap_remove(index);
            what = name;
            Reply::Bytes(bytes)
        });
        if let Ok(answer) = &answer {
            Peers::expect_error(answer)?;
        }
        peers
            .expect_failure()
            .map_err(|violation| Violation::new(format!("{what}: {violation}")))?;
    }
    Ok(())
}

fn unasked_response(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    let early = Message {
        message_id: 0,
        correlation_id: 0,
        payload: Payload::QueryStorageResponse(StorageDetails {
            total_size: 4096,
            block_size: 64,
        }),
    };
    peers.targets[0].say(&early.encode_to_vec())?;
    match peers.listen(Duration::from_millis(200))? {
        Heard::Initiator(message) => Peers::expect_error(&message.payload).map(|_| ()),
        Heard::Nothing | Heard::InitiatorLeft | Heard::TargetLeft(_) => Ok(()),
        heard => Err(Violation::expected("nothing", heard.describe())),
    }
}

/// A message with default ids.
fn plain(payload: Payload) -> Message {
    Message {
        message_id: 1,
        correlation_id: 2,
        payload,
    }
}
