//! Split and merged frames, and bytes that are not frames.

use std::time::Duration;

use bytes::Bytes;
use wire::control::{
    InitStorage, Message, MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole,
};

use super::{Plan, Service, Step, describe, is_error, one_of_each};
use crate::role::{Check, ControlPeer as _, Fixture, Polled, Running, TcpPeer};
use crate::violation::{During as _, Violation};

/// Time between two segments in which a target can read the first one.
const APART: Duration = Duration::from_micros(200);
/// The same for several segments, with a safety margin.
const FAR_APART: Duration = Duration::from_millis(20);
/// Size of length, type and ids in bytes.
const HEADER: usize = 16;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "frames-byte-by-byte",
        meaning: "A session whose every byte is a segment of its own works",
        play: |fixture| session(fixture, byte_by_byte),
    },
    Check {
        name: "frames-cut-in-two",
        meaning: "A session whose frames are cut in two at different places, with a pause between, works",
        play: |fixture| session(fixture, in_two),
    },
    Check {
        name: "frames-together",
        meaning: "Several requests in one segment are answered in their order",
        play: together,
    },
    Check {
        name: "frames-one-and-a-half",
        meaning: "A request and the first bytes of the next in one segment are both answered",
        play: one_and_a_half,
    },
    Check {
        name: "frame-length-too-small",
        meaning: "A length that the header does not fit into is refused, or ends the target (the reference reads beyond it)",
        play: |fixture| {
            broken(
                fixture,
                &[
                    &[0, 0, 0, 0],
                    &[0, 0, 0, 11, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
                ],
            )
        },
    },
    Check {
        name: "frame-length-huge",
        meaning: "A length of 4 GiB is refused, or ends the target (the reference waits for the bytes)",
        play: |fixture| broken(fixture, &[&header(u32::MAX, 1), &header(0x7fff_ffff, 3)]),
    },
    Check {
        name: "frame-of-unknown-type",
        meaning: "A frame of an unknown type is refused, or ends the target",
        play: |fixture| broken(fixture, &[&header(12, 13), &header(12, u32::MAX)]),
    },
    Check {
        name: "frame-payload-cut-off",
        meaning: "A request whose payload ends within a field is refused, or ends the target (the reference reads beyond it)",
        play: payload_cut_off,
    },
    Check {
        name: "frame-blob-beyond-frame",
        meaning: "A blob that is longer than its frame is refused, or ends the target (the reference reads beyond it)",
        play: blob_beyond_frame,
    },
    Check {
        name: "frame-trailing-bytes",
        meaning: "Bytes after the last field are refused, end the target, or are ignored: they are never the next frame",
        play: trailing_bytes,
    },
    Check {
        name: "connection-of-unknown-role",
        meaning: "An RDMA connection of an unknown role is refused, or ends the target (the reference takes it for io_control)",
        play: unknown_role,
    },
];

/// A complete session whose frames `deliver` sends.
fn session(
    fixture: &Fixture<'_>,
    deliver: fn(&mut TcpPeer, &[u8], usize) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    let mut nth = 0;
    service.deliver = Box::new(move |peer, bytes| {
        nth += 1;
        deliver(peer, bytes, nth)
    });
    service.go_to(Step::Stop)?;
    service.works()?;
    service.finish(&mut running)
}

fn byte_by_byte(peer: &mut TcpPeer, bytes: &[u8], _: usize) -> Result<(), Violation> {
    bytes.chunks(1).try_for_each(|byte| {
        std::thread::sleep(APART);
        peer.send_bytes(byte)
    })
}

/// Splits each frame at a different offset: within the length, after it, within the ids, before the last byte.
fn in_two(peer: &mut TcpPeer, bytes: &[u8], nth: usize) -> Result<(), Violation> {
    let places = [1, 4, HEADER, bytes.len() - 1, 7, bytes.len() / 2, 3];
    let (first, second) = bytes.split_at(places[nth % places.len()].min(bytes.len() - 1));
    peer.send_bytes(first)?;
    std::thread::sleep(FAR_APART);
    peer.send_bytes(second)
}

fn together(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    let init = service.init_request()?;
    let answers = all_at_once(
        &mut service,
        vec![
            Payload::QueryStorageRequest,
            Payload::InitStorageRequest(init),
        ],
    )?;
    are(&answers, "query and init", |answers| {
        matches!(
            answers,
            [
                Payload::QueryStorageResponse(_),
                Payload::InitStorageResponse
            ]
        )
    })?;

    service.make_workers()?;
    let roles = [RdmaConnectionRole::IoData, RdmaConnectionRole::IoControl];
    let mut requests = Vec::new();
    for role in roles {
        let details = service.connection_request(0, role)?;
        requests.push(Payload::CreateRdmaConnectionRequest(details));
    }
    requests.push(Payload::StartStorageRequest);
    let mut answers = all_at_once(&mut service, requests)?;
    let started = answers.pop();
    are(started.as_slice(), "start", |answers| {
        matches!(answers, [Payload::StartStorageResponse])
    })?;
    for (role, answer) in roles.into_iter().zip(answers) {
        service.connected(0, role, answer)?;
    }
    service.workers[0].prepare()?;
    service.works()?;

    let answers = all_at_once(
        &mut service,
        vec![Payload::StopStorageRequest, Payload::ShutdownRequest],
    )?;
    are(&answers, "stop and shutdown", |answers| {
        matches!(
            answers,
            [Payload::StopStorageResponse, Payload::ShutdownResponse]
        )
    })?;
    service.taken(Step::Shutdown);
    service.finish(&mut running)
}

/// Sends requests as one segment, and returns their answers.
fn all_at_once(service: &mut Service, payloads: Vec<Payload>) -> Result<Vec<Payload>, Violation> {
    let requests: Vec<Message> = payloads
        .into_iter()
        .map(|payload| service.request(payload))
        .collect();
    let bytes: Vec<u8> = requests.iter().flat_map(Message::encode_to_vec).collect();
    service.control.send_bytes(&bytes)?;
    requests
        .iter()
        .map(|request| service.answer_to(request))
        .collect()
}

fn are(
    answers: &[Payload],
    what: &str,
    right: impl Fn(&[Payload]) -> bool,
) -> Result<(), Violation> {
    let came: Vec<_> = answers.iter().map(Payload::message_type).collect();
    Violation::unless(
        right(answers),
        format!("the answers to {what}"),
        format!("{came:?}"),
    )
}

fn one_and_a_half(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    let query = service.request(Payload::QueryStorageRequest);
    let init = service.init_request()?;
    let init = service.request(Payload::InitStorageRequest(init));
    let frames = [query.encode_to_vec(), init.encode_to_vec()].concat();
    let (first, second) = frames.split_at(query.encode_to_vec().len() + 6);
    service.control.send_bytes(first)?;
    let details = service.answer_to(&query)?;
    are(&[details], "query", |answers| {
        matches!(answers, [Payload::QueryStorageResponse(_)])
    })?;
    service.control.send_bytes(second)?;
    let answer = service.answer_to(&init)?;
    are(&[answer], "init", |answers| {
        matches!(answers, [Payload::InitStorageResponse])
    })?;
    service.taken(Step::Init);
    service.finish(&mut running)
}

/// Header of a frame with this length and type, and default ids.
fn header(length: u32, message_type: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (place, value) in bytes.chunks_exact_mut(4).zip([length, message_type, 1, 1]) {
        place.copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// Sends each of these byte strings as the first bytes to a separate target.
fn broken(fixture: &Fixture<'_>, all: &[&[u8]]) -> Result<(), Violation> {
    all.iter()
        .try_for_each(|bytes| broken_at(fixture, Step::Query, bytes))
}

/// Sends these bytes instead of the request of `step`. The target must refuse them.
fn broken_at(fixture: &Fixture<'_>, step: Step, bytes: &[u8]) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, step)?;
    refuses(fixture, &mut running, &mut service, bytes)
}

/// Sends bytes that must be refused, or make the target exit with a failure.
fn refuses(
    fixture: &Fixture<'_>,
    running: &mut Running,
    service: &mut Service,
    bytes: &[u8],
) -> Result<(), Violation> {
    service.control.send_bytes(bytes)?;
    let what = match service.control.next(fixture.timeout() / 4)? {
        Polled::Closed => return closed(fixture, running, service),
        Polled::Message(message) if is_error(&message.payload) => return Ok(()),
        Polled::Message(message) => describe(&message.payload),
        Polled::Nothing => "nothing".to_owned(),
    };
    let shown: Vec<_> = bytes.iter().take(HEADER).collect();
    let expected = "an error_response or the end of the connection";
    Err(Violation::expected(expected, what)).during(format!(
        "{} bytes that begin with {shown:02x?}",
        bytes.len()
    ))
}

/// Checks that the target has closed the connection, and either exits with a failure or, if no session had begun,
/// serves another service.
fn closed(
    fixture: &Fixture<'_>,
    running: &mut Running,
    service: &Service,
) -> Result<(), Violation> {
    if service.due == Step::Query
        && let Ok(another) = Service::connect(fixture, service.port, Plan::SMALL)
        && another.finish(running).is_ok()
    {
        return Ok(());
    }
    running.expect_failure(fixture.timeout())
}

/// Sends requests without their last bytes, and with the corrected length.
fn payload_cut_off(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for rest in [0, 3, 9, 11] {
        let mut frame = header(12 + rest, 3).to_vec();
        frame.extend(
            [0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0]
                .iter()
                .take(rest as usize),
        );
        broken_at(fixture, Step::Init, &frame)?;
    }
    Ok(())
}

fn blob_beyond_frame(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for length in [1, 0x7fff, u32::MAX] {
        let mut frame = header(12 + 12, 3).to_vec();
        frame.extend([0, 0, 0, 4, 0, 0, 0, 1]);
        frame.extend(length.to_be_bytes());
        broken_at(fixture, Step::Init, &frame)?;
    }
    Ok(())
}

fn trailing_bytes(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    // The remaining bytes would be another query.
    let longer = [header(12 + 16, 1), header(12, 1)].concat();
    service.control.send_bytes(&longer)?;
    match service.control.next(fixture.timeout() / 4)? {
        Polled::Closed => closed(fixture, &mut running, &service),
        Polled::Message(message) if is_error(&message.payload) => Ok(()),
        Polled::Message(Message {
            payload: Payload::QueryStorageResponse(_),
            ..
        }) => {
            service.taken(Step::Query);
            service.finish(&mut running)
        }
        other => Err(Violation::expected(
            "an answer or the end of the connection",
            format!("{other:?}"),
        )),
    }
}

fn unknown_role(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Connect)?;
    service.make_workers()?;
    let details = service.connection_request(0, RdmaConnectionRole::IoControl)?;
    let mut frame = service
        .request(Payload::CreateRdmaConnectionRequest(details))
        .encode_to_vec();
    // The bytes after the context index.
    frame[HEADER + 4..HEADER + 8].copy_from_slice(&7u32.to_be_bytes());
    refuses(fixture, &mut running, &mut service, &frame)
}

// Requests that are out of order, or have invalid values.

/// Bytes that are not an export.
const GARBAGE: Bytes = Bytes::from_static(&[0xa5; 300]);

pub(super) const REFUSAL_CHECKS: &[Check] = &[
    Check {
        name: "unexpected-before-query",
        meaning: "A request that comes before the query gets an error_response with its ids",
        play: |fixture| unexpected(fixture, Step::Query, Payload::StartStorageRequest),
    },
    Check {
        name: "unexpected-before-init",
        meaning: "A second query gets an error_response with its ids",
        play: |fixture| unexpected(fixture, Step::Init, Payload::QueryStorageRequest),
    },
    Check {
        name: "unexpected-before-connections",
        meaning: "A start without connections gets an error_response with its ids",
        play: |fixture| unexpected(fixture, Step::Connect, Payload::StartStorageRequest),
    },
    Check {
        name: "unexpected-before-start",
        meaning: "A shutdown without a start gets an error_response with its ids",
        play: |fixture| unexpected(fixture, Step::Start, Payload::ShutdownRequest),
    },
    Check {
        name: "unexpected-before-stop",
        meaning: "A second start gets an error_response with its ids",
        play: |fixture| unexpected(fixture, Step::Stop, Payload::StartStorageRequest),
    },
    Check {
        name: "unexpected-before-shutdown",
        meaning: "A second stop gets an error_response with its ids",
        play: |fixture| unexpected(fixture, Step::Shutdown, Payload::StopStorageRequest),
    },
    Check {
        name: "responses-are-no-requests",
        meaning: "An error_response or another answer from a service gets an error_response, and no other answer",
        play: responses,
    },
    Check {
        name: "refusals-leave-the-session",
        meaning: "After any message that is not due the session continues in the same state (the reference takes the next step instead)",
        play: leave_the_session,
    },
    Check {
        name: "cores-too-many",
        meaning: "More workers than the target has CPUs are refused, or end the target",
        play: |fixture| refused_init(fixture, |init| init.core_count = 2),
    },
    Check {
        name: "cores-absurd",
        meaning: "4294967295 workers are refused, or end the target",
        play: |fixture| refused_init(fixture, |init| init.core_count = u32::MAX),
    },
    Check {
        name: "cores-none",
        meaning: "0 workers are refused, or end the target (the reference takes them)",
        play: |fixture| refused_init(fixture, |init| init.core_count = 0),
    },
    Check {
        name: "transactions-none",
        meaning: "0 transactions are refused, or end the target",
        play: |fixture| refused_init(fixture, |init| init.transaction_count = 0),
    },
    Check {
        name: "transactions-absurd",
        meaning: "4294967295 transactions are refused, or end the target",
        play: |fixture| refused_init(fixture, |init| init.transaction_count = u32::MAX),
    },
    Check {
        name: "memory-empty",
        meaning: "An empty memory map export is refused, or ends the target",
        play: |fixture| refused_init(fixture, |init| init.mmap_export_blob = Bytes::new()),
    },
    Check {
        name: "memory-garbage",
        meaning: "Bytes that are no memory map export are refused, or end the target",
        play: |fixture| refused_init(fixture, |init| init.mmap_export_blob = GARBAGE),
    },
    Check {
        name: "memory-cut-off",
        meaning: "Half a memory map export is refused, or ends the target",
        play: |fixture| {
            refused_init(fixture, |init| {
                init.mmap_export_blob
                    .truncate(init.mmap_export_blob.len() / 2);
            })
        },
    },
    Check {
        name: "context-next",
        meaning: "A connection of the context after the last one is refused, or ends the target (the reference uses memory that is no worker)",
        play: |fixture| refused_connection(fixture, |details| details.context_index = 1),
    },
    Check {
        name: "context-absurd",
        meaning: "A connection of context 4294967295 is refused, or ends the target",
        play: |fixture| refused_connection(fixture, |details| details.context_index = u32::MAX),
    },
    Check {
        name: "connection-garbage",
        meaning: "Bytes that are no connection export are refused, or end the target",
        play: |fixture| refused_connection(fixture, |details| details.connection_details = GARBAGE),
    },
    Check {
        name: "connection-empty",
        meaning: "An empty connection export is refused, or ends the target",
        play: |fixture| {
            refused_connection(fixture, |details| details.connection_details = Bytes::new())
        },
    },
    Check {
        name: "connection-twice",
        meaning: "A second connection of the same context and role is refused, or ends the target",
        play: connection_twice,
    },
    Check {
        name: "impossible-requests-leave-the-session",
        meaning: "After impossible and repeated requests the session continues in the same state, and I/O works (the reference takes the next step instead)",
        play: impossible,
    },
];

fn unexpected(fixture: &Fixture<'_>, step: Step, request: Payload) -> Result<(), Violation> {
    // Kept until the end, because the target runs until its peer disconnects.
    let (_running, mut service) = Service::at(fixture, &[], Plan::SMALL, step)?;
    service.refused(request)
}

fn responses(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let [error, answer] = [
        MessageType::ErrorResponse,
        MessageType::QueryStorageResponse,
    ]
    .map(|message_type| {
        one_of_each()
            .into_iter()
            .find(|payload| payload.message_type() == message_type)
    });
    // The two steps that need no RDMA: a target may consider a refused step as executed.
    let (_running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    error
        .into_iter()
        .chain(answer)
        .try_for_each(|payload| service.refused(payload))
}

fn leave_the_session(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Query)?;
    for (step, due) in [
        (Step::Query, MessageType::QueryStorageRequest),
        (Step::Init, MessageType::InitStorageRequest),
        (Step::Connect, MessageType::CreateRdmaConnectionRequest),
        (Step::Start, MessageType::StartStorageRequest),
        (Step::Stop, MessageType::StopStorageRequest),
        (Step::Shutdown, MessageType::ShutdownRequest),
    ] {
        service.go_to(step)?;
        for payload in one_of_each() {
            if payload.message_type() != due {
                service
                    .refused(payload)
                    .during(format!("where {due} is due"))?;
            }
        }
        if step == Step::Stop {
            service.works()?;
        }
    }
    service.finish(&mut running)
}

fn refused_init(fixture: &Fixture<'_>, spoil: fn(&mut InitStorage)) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Init)?;
    let mut init = service.init_request()?;
    spoil(&mut init);
    service.refused_or_over(Payload::InitStorageRequest(init), &mut running)
}

fn refused_connection(
    fixture: &Fixture<'_>,
    spoil: fn(&mut RdmaConnectionDetails),
) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Connect)?;
    service.make_workers()?;
    let mut details = service.connection_request(0, RdmaConnectionRole::IoData)?;
    spoil(&mut details);
    service.refused_or_over(Payload::CreateRdmaConnectionRequest(details), &mut running)
}

fn connection_twice(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Connect)?;
    service.make_workers()?;
    service.connect_one(0, RdmaConnectionRole::IoData)?;
    let details = service.connection_request(0, RdmaConnectionRole::IoData)?;
    service.refused_or_over(Payload::CreateRdmaConnectionRequest(details), &mut running)
}

fn impossible(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let (mut running, mut service) = Service::at(fixture, &[], Plan::SMALL, Step::Init)?;
    let spoilt: [fn(&mut InitStorage); 5] = [
        |init| init.core_count = 0,
        |init| init.core_count = 2,
        |init| init.transaction_count = 0,
        |init| init.transaction_count = u32::MAX,
        |init| init.mmap_export_blob = GARBAGE,
    ];
    for spoil in spoilt {
        let mut init = service.init_request()?;
        spoil(&mut init);
        service.refused(Payload::InitStorageRequest(init))?;
    }
    service.go_to(Step::Connect)?;
    service.make_workers()?;
    for role in [RdmaConnectionRole::IoData, RdmaConnectionRole::IoControl] {
        let right = service.connection_request(0, role)?;
        for (context_index, blob) in [(1, None), (0, Some(GARBAGE))] {
            let mut details = right.clone();
            details.context_index = context_index;
            if let Some(blob) = blob {
                details.connection_details = blob;
            }
            service.refused(Payload::CreateRdmaConnectionRequest(details))?;
        }
        let request = Payload::CreateRdmaConnectionRequest(right);
        let answer = service.ask(request.clone())?;
        service.connected(0, role, answer)?;
        service
            .refused(request)
            .during("the same connection again")?;
    }
    service.workers[0].prepare()?;
    service.taken(Step::Connect);
    service.go_to(Step::Stop)?;
    service.works()?;
    service.finish(&mut running)
}
