//! Targets that answer with errors, incorrectly, late, or not at all.

use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{
    ErrorResponse, Message, MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};

use super::peers::{Peers, Reply, describe};
use crate::role::{Check, Fixture, Step, Violation};

// Requests during which a target may fail.

/// A request to a target, and the initiator's step that causes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) step: Step,
    pub(super) request: MessageType,
    /// Index of the faulty one of three targets.
    target: usize,
}

/// All requests to a target, in order.
pub(super) const POINTS: [Point; 6] = [
    point(Step::Query, MessageType::QueryStorageRequest, 0),
    point(Step::Init, MessageType::InitStorageRequest, 1),
    point(Step::Init, MessageType::CreateRdmaConnectionRequest, 2),
    point(Step::Start, MessageType::StartStorageRequest, 0),
    point(Step::Stop, MessageType::StopStorageRequest, 1),
    point(Step::Shutdown, MessageType::ShutdownRequest, 2),
];

const fn point(step: Step, request: MessageType, target: usize) -> Point {
    Point {
        step,
        request,
        target,
    }
}

impl Point {
    /// Makes one of the targets answer with `reply` at this point; the others are correct.
    pub(super) fn wrong(
        self,
        targets: usize,
        wrong: impl Fn(&Message) -> Reply,
    ) -> impl FnMut(usize, &Message) -> Reply {
        move |index, message| {
            let is_here = message.payload.message_type() == self.request;
            if is_here && index == self.target % targets {
                wrong(message)
            } else {
                Reply::Honest
            }
        }
    }
}

/// One check for each of [`POINTS`].
macro_rules! at_each_point {
    ($prefix:literal, $meaning:literal, $play:ident) => {
        [
            at_each_point!(@one $prefix, "query", $meaning, $play::<0>),
            at_each_point!(@one $prefix, "init", $meaning, $play::<1>),
            at_each_point!(@one $prefix, "connection", $meaning, $play::<2>),
            at_each_point!(@one $prefix, "start", $meaning, $play::<3>),
            at_each_point!(@one $prefix, "stop", $meaning, $play::<4>),
            at_each_point!(@one $prefix, "shutdown", $meaning, $play::<5>),
        ]
    };
    (@one $prefix:literal, $point:literal, $meaning:literal, $play:expr) => {
        $crate::role::Check {
            name: concat!($prefix, "-", $point),
            meaning: $meaning,
            play: $play,
        }
    };
}

pub(super) use at_each_point;

// The checks.

/// Flags for a timeout of one second.
const SHORT: [&str; 2] = ["--control-timeout", "1"];
/// Flags for a timeout that allows for the earlier steps on a loaded machine.
const STEADY: [&str; 2] = ["--control-timeout", "3"];
/// Time in which a service with a timeout of one second must report it, on a loaded machine.
const LATEST: Duration = Duration::from_millis(3500);

/// An error code that services do not generate themselves.
const CODE: u32 = ErrorCode::NOT_PERMITTED.0;

const ERRORS: [Check; 6] = at_each_point!(
    "target-error-on",
    "an error_response of a target reaches the initiator: its code, with the ids of the initiator's request",
    error
);

const OTHERS: [Check; 6] = at_each_point!(
    "wrong-answer-on",
    "a target's response of another type is an error_response to the initiator",
    other
);

const SILENCE: [Check; 6] = at_each_point!(
    "silent-target-on",
    "a target that never answers becomes an error_response to the initiator",
    silence
);

const OWN: [Check; 7] = [
    Check {
        name: "target-error-ends-it",
        meaning: "after an error_response of a target to anything, the service ends with an exit status other than 0; the \
                  reference waits for the next request",
        play: error_ends_it,
    },
    Check {
        name: "control-timeout-is-kept",
        meaning: "with --control-timeout 1, a silent target becomes an error within 3.5 s, and the service ends; the reference waits \
                  5 s whatever the flag says, and goes on",
        play: control_timeout,
    },
    Check {
        name: "wrong-answer-id",
        meaning: "a response with an id that was not asked for is not taken for the answer",
        play: wrong_id,
    },
    Check {
        name: "wrong-connection",
        meaning: "a create_rdma_connection_response for another worker or role is an error; the reference does not check",
        play: wrong_connection,
    },
    Check {
        name: "connection-blob-of-none",
        meaning: "connection details that are none are an error_response to the initiator",
        play: connection_blob,
    },
    Check {
        name: "unasked-error",
        meaning: "an error_response of a target that was asked for nothing ends the service; the reference takes it for a request of the \
                  initiator",
        play: unasked_error,
    },
    Check {
        name: "absurd-storage",
        meaning: "a target with blocks of 0 bytes, or of 2^32 - 1, is an error, or an answer that is as absurd: no crash; the gga_offload \
                  reference divides by 0",
        play: absurd_storage,
    },
];

pub(super) fn checks() -> Vec<Check> {
    [&ERRORS[..], &OTHERS, &SILENCE, &OWN].concat()
}

fn refusal() -> Payload {
    Payload::ErrorResponse(ErrorResponse {
        error_code: CODE,
        message: "no".to_owned(),
    })
}

fn error<const POINT: usize>(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let point = POINTS[POINT];
    let mut peers = Peers::start(fixture, &[])?;
    peers.take_until(point.step)?;
    let targets = peers.targets.len();
    let answer = peers.step(
        point.step,
        &mut point.wrong(targets, |_| Reply::Say(refusal())),
    )?;
    let code = Peers::expect_error(&answer)?;
    Violation::unless(code == CODE, format!("error {CODE}"), describe(&answer))
}

fn other<const POINT: usize>(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let point = POINTS[POINT];
    let mut peers = Peers::start(fixture, &[])?;
    peers.take_until(point.step)?;
    let targets = peers.targets.len();
    let other = |request: &Message| {
        Reply::Say(match request.payload {
            Payload::StopStorageRequest => Payload::StartStorageResponse,
            _ => Payload::StopStorageResponse,
        })
    };
    let answer = peers.step(point.step, &mut point.wrong(targets, other))?;
    Peers::expect_error(&answer).map(|_| ())
}

fn silence<const POINT: usize>(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let point = POINTS[POINT];
    let timeout = if POINT == 0 { &SHORT } else { &STEADY };
    let mut peers = Peers::start(fixture, timeout)?;
    peers.take_until(point.step)?;
    let targets = peers.targets.len();
    let answer = peers.step(point.step, &mut point.wrong(targets, |_| Reply::Silence))?;
    Peers::expect_error(&answer).map(|_| ())
}

fn error_ends_it(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for point in POINTS {
        let mut peers = Peers::start(fixture, &[])?;
        peers.take_until(point.step)?;
        let targets = peers.targets.len();
        let answer = peers.step(
            point.step,
            &mut point.wrong(targets, |_| Reply::Say(refusal())),
        )?;
        Peers::expect_error(&answer)?;
        peers.expect_failure()?;
    }
    Ok(())
}

fn control_timeout(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &SHORT)?;
    let begin = Instant::now();
    let answer = peers.step(Step::Query, &mut |_, _| Reply::Silence)?;
    Peers::expect_error(&answer)?;
    let took = begin.elapsed();
    Violation::unless(
        (Duration::from_millis(800)..LATEST).contains(&took),
        format!("an error after 1 s, at most {LATEST:?}"),
        format!("one after {took:?}"),
    )?;
    peers.expect_failure()
}

fn wrong_id(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &SHORT)?;
    let answer = peers.step(Step::Query, &mut |_, request| {
        let answer = Payload::QueryStorageResponse(StorageDetails {
            total_size: 4096,
            block_size: 64,
        });
        let mut response = request.response(answer);
        response.message_id ^= 0x4000_0000;
        Reply::Bytes(response.encode_to_vec())
    })?;
    Peers::expect_error(&answer).map(|_| ())
}

fn wrong_connection(fixture: &Fixture<'_>) -> Result<(), Violation> {
    use RdmaConnectionRole::{IoControl, IoData};
    let swap = |details: &mut RdmaConnectionDetails| {
        details.role = match details.role {
            IoData => IoControl,
            IoControl => IoData,
        };
    };
    let wrongs: [&dyn Fn(&mut RdmaConnectionDetails); 2] =
        [&|details| details.context_index += 1, &swap];
    for wrong in wrongs {
        let answer = init_with(fixture, wrong)?;
        Peers::expect_error(&answer)?;
    }
    Ok(())
}

fn connection_blob(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for blob in [&b""[..], b"none", &[0xff; 300]] {
        let wrong = |details: &mut RdmaConnectionDetails| {
            details.connection_details = Bytes::copy_from_slice(blob);
        };
        let answer = init_with(fixture, &wrong)?;
        Peers::expect_error(&answer)?;
    }
    Ok(())
}

/// Answer to init if the first target answers with other connection details.
fn init_with(
    fixture: &Fixture<'_>,
    wrong: &dyn Fn(&mut RdmaConnectionDetails),
) -> Result<Payload, Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    peers.take(Step::Query)?;
    peers.step(Step::Init, &mut |index, request| match &request.payload {
        Payload::CreateRdmaConnectionRequest(details) if index == 0 => {
            let mut details = details.clone();
            wrong(&mut details);
            Reply::Say(Payload::CreateRdmaConnectionResponse(details))
        }
        _ => Reply::Honest,
    })
}

fn unasked_error(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for before in [Step::Query, Step::Start] {
        let mut peers = Peers::start(fixture, &[])?;
        peers.take_until(before)?;
        let message = Message {
            message_id: 0,
            correlation_id: 0,
            payload: refusal(),
        };
        peers.targets[0].say(&message.encode_to_vec())?;
        peers.expect_failure()?;
    }
    Ok(())
}

fn absurd_storage(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for (total_size, block_size) in [(0, 0), (4096, 0), (u64::MAX, u32::MAX), (1, 4096)] {
        let mut peers = Peers::start(fixture, &[])?;
        let details = StorageDetails {
            total_size,
            block_size,
        };
        let answer = peers.step(Step::Query, &mut |_, _| {
            Reply::Say(Payload::QueryStorageResponse(details.clone()))
        })?;
        match answer {
            Payload::QueryStorageResponse(_) => {
                let answer = peers.step(Step::Init, &mut |_, _| Reply::Honest)?;
                if answer != Payload::InitStorageResponse {
                    Peers::expect_error(&answer)?;
                }
            }
            other => {
                Peers::expect_error(&other)?;
            }
        }
    }
    Ok(())
}
