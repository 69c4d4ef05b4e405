//! Frames in pieces, several at once, and bytes that are no frames.

use std::time::Duration;

use wire::control::{Message, Payload, StorageDetails};

use super::cast::Cast;
use super::heard::{Heard, expect_answer};
use super::layout::{presented, scripts};
use super::target::{Reply, SPLIT};
use crate::role::step::Step;
use crate::role::{Bench, Check, During as _, Wrong};

pub(super) const CHECKS: [Check; 7] = [
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
