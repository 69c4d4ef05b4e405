//! Regular sessions: order, ids, and requests to the targets; targets that answer with errors, incorrectly, late, or not at all.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doca::ErrorCode;
use wire::control::{
    ErrorResponse, Message, MessageType, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    StorageDetails,
};

use super::{Heard, Peers, Reply, TRANSACTIONS, describe, expect_answer, presented, scripts};
use crate::role::{Check, Fixture, Step};
use crate::violation::Violation;

/// Time for which no event may occur.
const WATCH: Duration = Duration::from_millis(120);

pub(super) const CHECKS: [Check; 13] = [
    Check {
        name: "session",
        meaning: "a session of one worker without I/O is answered step by step and ends with exit status 0",
        play: session,
    },
    Check {
        name: "storage-details",
        meaning: "the initiator receives the capacity and block size of the target, or twice those of each of three",
        play: storage_details,
    },
    Check {
        name: "ids",
        meaning: "answers repeat both ids of their requests; targets get the correlation id, and message ids that were not used before",
        play: ids,
    },
    Check {
        name: "unusual-ids",
        meaning: "ids of 0, of 0xffffffff, repeated and descending ones are valid ids",
        play: unusual_ids,
    },
    Check {
        name: "init-of-targets",
        meaning: "targets are asked for twice the initiator's transactions, for as many cores, and get memory that they can reach",
        play: init_of_targets,
    },
    Check {
        name: "order-of-connections",
        meaning: "each worker in turn has each target make io_data and then io_control, after all targets have answered to init",
        play: order_of_connections,
    },
    Check {
        name: "step-by-step",
        meaning: "targets are asked for nothing that the initiator has not asked for",
        play: step_by_step,
    },
    Check {
        name: "answers-wait-for-targets",
        meaning: "the initiator is answered when all targets have answered, and not before",
        play: answers_wait_for_targets,
    },
    Check {
        name: "slow-targets",
        meaning: "targets that take 300 ms for each answer are waited for",
        play: slow_targets,
    },
    Check {
        name: "start-waits-for-consumers",
        meaning: "start is answered when every worker's consumer of the initiator is there",
        play: start_waits_for_consumers,
    },
    Check {
        name: "stop-destroys-consumers",
        meaning: "at stop the service destroys its consumers before it answers",
        play: stop_destroys_consumers,
    },
    Check {
        name: "shutdown-waits-for-consumers",
        meaning: "shutdown is forwarded when the initiator's consumers have expired, and not before",
        play: shutdown_waits_for_consumers,
    },
    Check {
        name: "repeated-sessions",
        meaning: "a service that is started again serves the same channel and the same targets",
        play: repeated_sessions,
    },
];

fn session(fixture: &Fixture<'_>) -> Result<(), Violation> {
    Peers::start(fixture, &[])?.finish_from(Step::Query)
}

fn storage_details(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let scripts = scripts(fixture);
    let mut peers = Peers::with(fixture, &[], &scripts)?;
    let answer = peers.step(Step::Query, &mut |_, _| Reply::Honest)?;
    let expected = Payload::QueryStorageResponse(presented(&scripts));
    Violation::unless(
        answer == expected,
        format!("{expected:?}"),
        format!("{answer:?}"),
    )?;
    peers.finish_from(Step::Init)
}

/// Checks the ids of a whole session; [`Peers`] has checked those of the responses.
fn check_ids(peers: &mut Peers<'_>) -> Result<(), Violation> {
    let mut used = HashSet::new();
    for step in Step::ALL {
        peers.prepare(step)?;
        let payload = peers.payload(step)?;
        let request = peers.request(payload);
        let before = peers.asked.len();
        let answer = peers.exchange(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
        for (target, asked) in &peers.asked[before..] {
            let what = asked.payload.message_type();
            let (came, expected) = (asked.correlation_id, request.correlation_id);
            Violation::unless(
                came == expected,
                format!("correlation id {expected:#x} in the {what} to target {target}"),
                format!("{came:#x}"),
            )?;
            let id = asked.message_id;
            Violation::unless(
                used.insert((*target, id)),
                format!("a message id of its own in the {what} to target {target}"),
                format!("{id:#x} again"),
            )?;
        }
    }
    peers.expect_success()
}

fn ids(fixture: &Fixture<'_>) -> Result<(), Violation> {
    check_ids(&mut Peers::start(fixture, &[])?)
}

fn unusual_ids(fixture: &Fixture<'_>) -> Result<(), Violation> {
    const LARGEST: u32 = u32::MAX;
    for ids in [
        [(0, 0), (LARGEST, LARGEST), (5, 0), (4, LARGEST), (3, 7)],
        [(0, LARGEST); 5],
    ] {
        let mut peers = Peers::start(fixture, &[])?;
        peers.ids = ids.into_iter().rev().collect();
        check_ids(&mut peers)?;
    }
    Ok(())
}

fn init_of_targets(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &["--cpu", "0"])?;
    peers.workers = 2;
    // A correct target imports the memory.
    peers.take_until(Step::Start)?;
    let mut inits = 0;
    for (target, asked) in &peers.asked {
        if let Payload::InitStorageRequest(init) = &asked.payload {
            inits += 1;
            let came = (init.transaction_count, init.core_count);
            Violation::unless(
                came == (2 * TRANSACTIONS, 2),
                format!(
                    "target {target} to be asked for {} transactions on 2 cores",
                    2 * TRANSACTIONS
                ),
                format!("{} on {}", came.0, came.1),
            )?;
        }
    }
    let targets = peers.targets.len();
    Violation::unless(inits == targets, format!("{targets} inits"), inits)?;
    peers.finish_from(Step::Start)
}

fn order_of_connections(fixture: &Fixture<'_>) -> Result<(), Violation> {
    use RdmaConnectionRole::{IoControl, IoData};
    let mut peers = Peers::start(fixture, &["--cpu", "0"])?;
    peers.workers = 2;
    peers.take_until(Step::Start)?;
    let targets = peers.targets.len();
    // Concurrent requests to all targets may arrive in any order.
    let mut waves: Vec<Vec<String>> = Vec::new();
    for (target, asked) in &peers.asked {
        let what = match &asked.payload {
            Payload::CreateRdmaConnectionRequest(details) => {
                format!(
                    "{} of worker {} at target {target}",
                    details.role, details.context_index
                )
            }
            other => format!("{} at target {target}", other.message_type()),
        };
        match waves.last_mut() {
            Some(wave) if wave.len() < targets => wave.push(what),
            _ => waves.push(vec![what]),
        }
    }
    let mut expected = vec![
        MessageType::QueryStorageRequest.to_string(),
        MessageType::InitStorageRequest.to_string(),
    ];
    for worker in 0..2 {
        for role in [IoData, IoControl] {
            expected.push(format!("{role} of worker {worker}"));
        }
    }
    let expected: Vec<Vec<String>> = expected
        .iter()
        .map(|what| {
            (0..targets)
                .map(|target| format!("{what} at target {target}"))
                .collect()
        })
        .collect();
    waves.iter_mut().for_each(|wave| wave.sort());
    Violation::unless(
        waves == expected,
        format!("{expected:?}"),
        format!("{waves:?}"),
    )?;
    peers.finish_from(Step::Start)
}

fn step_by_step(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    for step in Step::ALL {
        peers.prepare(step)?;
        peers.expect_silence(
            WATCH / 2,
            &format!("before the initiator asks for {step:?}"),
        )?;
        peers.take(step)?;
    }
    peers.expect_success()
}

fn answers_wait_for_targets(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    for step in Step::ALL {
        peers.prepare(step)?;
        let payload = peers.payload(step)?;
        let request = peers.request(payload);
        peers.say(&request)?;
        // All targets but the last answer their first request.
        let mut held = None;
        for _ in 0..peers.targets.len() {
            match peers.listen(fixture.timeout())? {
                Heard::Target(index, message) if index + 1 == peers.targets.len() => {
                    held = Some((index, message));
                }
                Heard::Target(index, message) => {
                    peers.targets[index].reply(&message, Reply::Honest)?;
                }
                heard => {
                    return Err(Violation::expected(
                        format!("every target to be asked because of {step:?}"),
                        heard.describe(),
                    ));
                }
            }
        }
        peers.expect_silence(
            WATCH / 2,
            &format!("before the last target has answered to {step:?}"),
        )?;
        if let Some((index, message)) = held {
            peers.targets[index].reply(&message, Reply::Honest)?;
        }
        let answer = peers.answer_to(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    peers.expect_success()
}

fn slow_targets(fixture: &Fixture<'_>) -> Result<(), Violation> {
    const SLOW: Duration = Duration::from_millis(300);
    let mut peers = Peers::start(fixture, &[])?;
    for step in Step::ALL {
        let last = peers.targets.len() - 1;
        let mut late = |index: usize, _: &_| {
            if index == last {
                Reply::Late(SLOW)
            } else {
                Reply::Honest
            }
        };
        let answer = peers.step(step, &mut late)?;
        expect_answer(step, &answer)?;
    }
    peers.expect_success()
}

fn start_waits_for_consumers(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    peers.take_until(Step::Start)?;
    let request = peers.request(Payload::StartStorageRequest);
    peers.say(&request)?;
    let end = Instant::now() + WATCH;
    while Instant::now() < end {
        match peers.listen(end.saturating_duration_since(Instant::now()))? {
            Heard::Target(index, message) => {
                peers.targets[index].reply(&message, Reply::Honest)?;
            }
            Heard::Nothing => {}
            heard => {
                return Err(Violation::expected(
                    "no answer to start without consumers of the initiator",
                    heard.describe(),
                ));
            }
        }
    }
    peers.prepare(Step::Start)?;
    let answer = peers.answer_to(&request, &mut |_, _| Reply::Honest)?;
    Violation::unless(
        answer == Payload::StartStorageResponse,
        Step::Start.answer(),
        describe(&answer),
    )?;
    peers.finish_from(Step::Stop)
}

fn stop_destroys_consumers(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &["--cpu", "0"])?;
    peers.workers = 2;
    peers.take_until(Step::Stop)?;
    peers.take(Step::Stop)?;
    // Events are in order: an expiry after the response has not been handled yet.
    let left = peers
        .initiator
        .as_ref()
        .map_or(0, |initiator| initiator.consumers().len());
    Violation::unless(
        left == 0,
        "no consumer of the service when stop is answered",
        left,
    )?;
    peers.finish_from(Step::Shutdown)
}

fn shutdown_waits_for_consumers(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let mut peers = Peers::start(fixture, &[])?;
    peers.take_until(Step::Shutdown)?;
    let request = peers.request(Payload::ShutdownRequest);
    peers.say(&request)?;
    peers.expect_silence(WATCH, "while a consumer of the initiator is there")?;
    peers.close_io()?;
    let answer = peers.answer_to(&request, &mut |_, _| Reply::Honest)?;
    Violation::unless(
        answer == Payload::ShutdownResponse,
        Step::Shutdown.answer(),
        describe(&answer),
    )?;
    peers.expect_success()
}

fn repeated_sessions(fixture: &Fixture<'_>) -> Result<(), Violation> {
    let scripts = scripts(fixture);
    let listeners = scripts
        .iter()
        .map(|_| std::net::TcpListener::bind(("127.0.0.1", 0)))
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..3 {
        Peers::at(fixture, &[], &scripts, &listeners)?.finish_from(Step::Query)?;
    }
    Ok(())
}

// Requests during which a target may fail.

/// A request to a target, and the initiator's step that causes it.
#[derive(Debug, Clone, Copy)]
struct Point {
    step: Step,
    request: MessageType,
    /// Index of the faulty one of three targets.
    target: usize,
}

/// The control requests that a target receives in a session, in order, each tested at another target.
const POINTS: [Point; 6] = [
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
    /// Makes a target answer with `reply` at this point; the other targets are correct.
    fn wrong(
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

/// Checks of peers that fail: targets that answer incorrectly or not at all, and peers that disconnect.
pub(super) fn fault_checks() -> Vec<Check> {
    [
        &ERRORS[..],
        &OTHERS,
        &SILENCE,
        &ANSWER_CHECKS,
        &CLOSES,
        &RESETS,
        &DEPARTURE_CHECKS,
    ]
    .concat()
}

// Peers that disconnect during a session.

const CLOSES: [Check; 6] = at_each_point!(
    "target-closes-on",
    "a target that closes its connection instead of answering ends the service with an exit status other than 0; the reference continues",
    closes
);

const RESETS: [Check; 6] = at_each_point!(
    "target-resets-on",
    "a target that resets its connection instead of answering ends the service with an exit status other than 0; the reference continues",
    resets
);

const DEPARTURE_CHECKS: [Check; 3] = [
    Check {
        name: "target-leaves-between-steps",
        meaning: "a target that leaves while the service waits for the initiator ends the service; the reference continues",
        play: target_leaves,
    },
    Check {
        name: "initiator-leaves-between-steps",
        meaning: "an initiator that disconnects between two steps ends the service, and one that disconnects before its query does not; the reference waits forever",
        play: initiator_leaves,
    },
    Check {
        name: "initiator-leaves-without-answer",
        meaning: "an initiator that disconnects before it is answered ends the service; the reference waits forever",
        play: initiator_leaves_early,
    },
];

fn closes<const POINT: usize>(fixture: &Fixture<'_>) -> Result<(), Violation> {
    leaves(fixture, POINT, || Reply::Close)
}

fn resets<const POINT: usize>(fixture: &Fixture<'_>) -> Result<(), Violation> {
    leaves(fixture, POINT, || Reply::Reset)
}

fn leaves(fixture: &Fixture<'_>, point: usize, how: fn() -> Reply) -> Result<(), Violation> {
    let point = POINTS[point];
    let mut peers = Peers::start(fixture, &[])?;
    peers.take_until(point.step)?;
    let targets = peers.targets.len();
    let answer = peers.step(point.step, &mut point.wrong(targets, |_| how()))?;
    Peers::expect_error(&answer)?;
    peers.expect_failure()
}

fn target_leaves(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for step in Step::ALL {
        let mut peers = Peers::start(fixture, &[])?;
        peers.take_until(step)?;
        peers.prepare(step)?;
        let last = peers.targets.len() - 1;
        peers.targets[last].reply(&ignored(), Reply::Close)?;
        peers.expect_failure()?;
    }
    Ok(())
}

fn initiator_leaves(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for step in Step::ALL {
        let mut peers = Peers::start(fixture, &[])?;
        peers.take_until(step)?;
        peers.prepare(step)?;
        if step == Step::Query {
            // No session has started, so the next initiator can start one.
            peers.replace_initiator()?;
            peers.finish_from(step)?;
            continue;
        }
        peers.leave();
        peers.expect_end()?;
    }
    Ok(())
}

fn initiator_leaves_early(fixture: &Fixture<'_>) -> Result<(), Violation> {
    for step in Step::ALL {
        let mut peers = Peers::start(fixture, &[])?;
        peers.take_until(step)?;
        peers.prepare(step)?;
        let payload = peers.payload(step)?;
        let request = peers.request(payload);
        peers.say(&request)?;
        match peers.listen(fixture.timeout())? {
            Heard::Target(..) => {}
            heard => {
                return Err(Violation::expected(
                    "a target to be asked",
                    heard.describe(),
                ));
            }
        }
        peers.leave();
        peers.expect_end()?;
    }
    Ok(())
}

/// Placeholder for replies that do not depend on the request.
fn ignored() -> wire::control::Message {
    wire::control::Message {
        message_id: 0,
        correlation_id: 0,
        payload: Payload::QueryStorageRequest,
    }
}

// Targets that answer with errors, incorrectly, late, or not at all.

/// Flags for a timeout of one second.
const SHORT: [&str; 2] = ["--control-timeout", "1"];
/// Flags for a timeout that allows for the earlier steps on a loaded machine.
const STEADY: [&str; 2] = ["--control-timeout", "3"];
/// Time limit for a service with a timeout of one second to report it, on a loaded machine.
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

const ANSWER_CHECKS: [Check; 7] = [
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
