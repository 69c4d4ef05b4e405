//! Sessions as they should be: their order, their ids, what is asked of the targets.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wire::control::{MessageType, Payload, RdmaConnectionRole};

use super::answers::{POINTS, at_each_point};
use super::cast::{Cast, Heard, Reply, TRANSACTIONS, describe, expect_answer};
use super::{presented, scripts};
use crate::role::{Bench, Check, Step, Wrong};

/// How long it is watched that nothing happens.
const WATCH: Duration = Duration::from_millis(120);

pub(super) const CHECKS: [Check; 13] = [
    Check {
        name: "session",
        meaning: "a session of one worker without I/O is answered step by step and ends with exit status 0",
        play: session,
    },
    Check {
        name: "storage-details",
        meaning: "the initiator is told the capacity and block size of the target, or twice those of each of three",
        play: storage_details,
    },
    Check {
        name: "ids",
        meaning: "answers repeat both ids of their requests; targets get the correlation id, and message ids that were not used before",
        play: ids,
    },
    Check {
        name: "unusual-ids",
        meaning: "ids of 0, of 0xffffffff, repeated and descending ones are ids like others",
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

fn session(bench: &Bench<'_>) -> Result<(), Wrong> {
    Cast::start(bench, &[])?.finish_from(Step::Query)
}

fn storage_details(bench: &Bench<'_>) -> Result<(), Wrong> {
    let scripts = scripts(bench);
    let mut cast = Cast::with(bench, &[], &scripts)?;
    let answer = cast.step(Step::Query, &mut |_, _| Reply::Honest)?;
    let expected = Payload::QueryStorageResponse(presented(&scripts));
    Wrong::unless(
        answer == expected,
        format!("{expected:?}"),
        format!("{answer:?}"),
    )?;
    cast.finish_from(Step::Init)
}

/// The ids of a whole session: [`Cast`] has checked those of the answers.
fn check_ids(cast: &mut Cast<'_>) -> Result<(), Wrong> {
    let mut used = HashSet::new();
    for step in Step::ALL {
        cast.prepare(step)?;
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        let before = cast.asked.len();
        let answer = cast.exchange(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
        for (target, asked) in &cast.asked[before..] {
            let what = asked.payload.message_type();
            let (came, expected) = (asked.correlation_id, request.correlation_id);
            Wrong::unless(
                came == expected,
                format!("correlation id {expected:#x} in the {what} to target {target}"),
                format!("{came:#x}"),
            )?;
            let id = asked.message_id;
            Wrong::unless(
                used.insert((*target, id)),
                format!("a message id of its own in the {what} to target {target}"),
                format!("{id:#x} again"),
            )?;
        }
    }
    cast.expect_success()
}

fn ids(bench: &Bench<'_>) -> Result<(), Wrong> {
    check_ids(&mut Cast::start(bench, &[])?)
}

fn unusual_ids(bench: &Bench<'_>) -> Result<(), Wrong> {
    const LARGEST: u32 = u32::MAX;
    for ids in [
        [(0, 0), (LARGEST, LARGEST), (5, 0), (4, LARGEST), (3, 7)],
        [(0, LARGEST); 5],
    ] {
        let mut cast = Cast::start(bench, &[])?;
        cast.ids = ids.into_iter().rev().collect();
        check_ids(&mut cast)?;
    }
    Ok(())
}

fn init_of_targets(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &["--cpu", "0"])?;
    cast.workers = 2;
    // An honest target imports the memory.
    cast.take_until(Step::Start)?;
    let mut inits = 0;
    for (target, asked) in &cast.asked {
        if let Payload::InitStorageRequest(init) = &asked.payload {
            inits += 1;
            let came = (init.transaction_count, init.core_count);
            Wrong::unless(
                came == (2 * TRANSACTIONS, 2),
                format!(
                    "target {target} to be asked for {} transactions on 2 cores",
                    2 * TRANSACTIONS
                ),
                format!("{} on {}", came.0, came.1),
            )?;
        }
    }
    let targets = cast.targets.len();
    Wrong::unless(inits == targets, format!("{targets} inits"), inits)?;
    cast.finish_from(Step::Start)
}

fn order_of_connections(bench: &Bench<'_>) -> Result<(), Wrong> {
    use RdmaConnectionRole::{IoControl, IoData};
    let mut cast = Cast::start(bench, &["--cpu", "0"])?;
    cast.workers = 2;
    cast.take_until(Step::Start)?;
    let targets = cast.targets.len();
    // Requests that are made of all targets at once come in any order.
    let mut waves: Vec<Vec<String>> = Vec::new();
    for (target, asked) in &cast.asked {
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
    Wrong::unless(
        waves == expected,
        format!("{expected:?}"),
        format!("{waves:?}"),
    )?;
    cast.finish_from(Step::Start)
}

fn step_by_step(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        cast.prepare(step)?;
        cast.expect_silence(
            WATCH / 2,
            &format!("before the initiator asks for {step:?}"),
        )?;
        cast.take(step)?;
    }
    cast.expect_success()
}

fn answers_wait_for_targets(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        cast.prepare(step)?;
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        cast.say(&request)?;
        // All but the last target answer to what they are asked first.
        let mut held = None;
        for _ in 0..cast.targets.len() {
            match cast.listen(bench.patience())? {
                Heard::Target(index, message) if index + 1 == cast.targets.len() => {
                    held = Some((index, message));
                }
                Heard::Target(index, message) => {
                    cast.targets[index].reply(&message, Reply::Honest)?;
                }
                heard => {
                    return Err(Wrong::expected(
                        format!("every target to be asked because of {step:?}"),
                        heard.describe(),
                    ));
                }
            }
        }
        cast.expect_silence(
            WATCH / 2,
            &format!("before the last target has answered to {step:?}"),
        )?;
        if let Some((index, message)) = held {
            cast.targets[index].reply(&message, Reply::Honest)?;
        }
        let answer = cast.answer_to(&request, &mut |_, _| Reply::Honest)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

fn slow_targets(bench: &Bench<'_>) -> Result<(), Wrong> {
    const SLOW: Duration = Duration::from_millis(300);
    let mut cast = Cast::start(bench, &[])?;
    for step in Step::ALL {
        let last = cast.targets.len() - 1;
        let mut late = |index: usize, _: &_| {
            if index == last {
                Reply::Late(SLOW)
            } else {
                Reply::Honest
            }
        };
        let answer = cast.step(step, &mut late)?;
        expect_answer(step, &answer)?;
    }
    cast.expect_success()
}

fn start_waits_for_consumers(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    cast.take_until(Step::Start)?;
    let request = cast.request(Payload::StartStorageRequest);
    cast.say(&request)?;
    let end = Instant::now() + WATCH;
    while Instant::now() < end {
        match cast.listen(end.saturating_duration_since(Instant::now()))? {
            Heard::Target(index, message) => {
                cast.targets[index].reply(&message, Reply::Honest)?;
            }
            Heard::Nothing => {}
            heard => {
                return Err(Wrong::expected(
                    "no answer to start without consumers of the initiator",
                    heard.describe(),
                ));
            }
        }
    }
    cast.prepare(Step::Start)?;
    let answer = cast.answer_to(&request, &mut |_, _| Reply::Honest)?;
    Wrong::unless(
        answer == Payload::StartStorageResponse,
        Step::Start.answer(),
        describe(&answer),
    )?;
    cast.finish_from(Step::Stop)
}

fn stop_destroys_consumers(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &["--cpu", "0"])?;
    cast.workers = 2;
    cast.take_until(Step::Stop)?;
    cast.take(Step::Stop)?;
    // Events come in their order: what expired after the answer has not been seen yet.
    let left = cast
        .initiator
        .as_ref()
        .map_or(0, |initiator| initiator.consumers().len());
    Wrong::unless(
        left == 0,
        "no consumer of the service when stop is answered",
        left,
    )?;
    cast.finish_from(Step::Shutdown)
}

fn shutdown_waits_for_consumers(bench: &Bench<'_>) -> Result<(), Wrong> {
    let mut cast = Cast::start(bench, &[])?;
    cast.take_until(Step::Shutdown)?;
    let request = cast.request(Payload::ShutdownRequest);
    cast.say(&request)?;
    cast.expect_silence(WATCH, "while a consumer of the initiator is there")?;
    cast.close_io()?;
    let answer = cast.answer_to(&request, &mut |_, _| Reply::Honest)?;
    Wrong::unless(
        answer == Payload::ShutdownResponse,
        Step::Shutdown.answer(),
        describe(&answer),
    )?;
    cast.expect_success()
}

fn repeated_sessions(bench: &Bench<'_>) -> Result<(), Wrong> {
    let scripts = scripts(bench);
    let listeners = scripts
        .iter()
        .map(|_| std::net::TcpListener::bind(("127.0.0.1", 0)))
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..3 {
        Cast::at(bench, &[], &scripts, &listeners)?.finish_from(Step::Query)?;
    }
    Ok(())
}

// Peers that leave in the middle of a session.

const CLOSES: [Check; 6] = at_each_point!(
    "target-closes-on",
    "a target that closes its connection instead of answering ends the service with an exit status other than 0; the reference goes on",
    closes
);

const RESETS: [Check; 6] = at_each_point!(
    "target-resets-on",
    "a target that resets its connection instead of answering ends the service with an exit status other than 0; the reference goes on",
    resets
);

const OWN: [Check; 3] = [
    Check {
        name: "target-leaves-between-steps",
        meaning: "a target that leaves while the service waits for the initiator ends the service; the reference goes on",
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

pub(super) fn checks() -> Vec<Check> {
    [&CLOSES[..], &RESETS, &OWN].concat()
}

fn closes<const POINT: usize>(bench: &Bench<'_>) -> Result<(), Wrong> {
    leaves(bench, POINT, || Reply::Close)
}

fn resets<const POINT: usize>(bench: &Bench<'_>) -> Result<(), Wrong> {
    leaves(bench, POINT, || Reply::Reset)
}

fn leaves(bench: &Bench<'_>, point: usize, how: fn() -> Reply) -> Result<(), Wrong> {
    let point = POINTS[point];
    let mut cast = Cast::start(bench, &[])?;
    cast.take_until(point.step)?;
    let targets = cast.targets.len();
    let answer = cast.step(point.step, &mut point.wrong(targets, |_| how()))?;
    Cast::expect_error(&answer)?;
    cast.expect_failure()
}

fn target_leaves(bench: &Bench<'_>) -> Result<(), Wrong> {
    for step in Step::ALL {
        let mut cast = Cast::start(bench, &[])?;
        cast.take_until(step)?;
        cast.prepare(step)?;
        let last = cast.targets.len() - 1;
        cast.targets[last].reply(&ignored(), Reply::Close)?;
        cast.expect_failure()?;
    }
    Ok(())
}

fn initiator_leaves(bench: &Bench<'_>) -> Result<(), Wrong> {
    for step in Step::ALL {
        let mut cast = Cast::start(bench, &[])?;
        cast.take_until(step)?;
        cast.prepare(step)?;
        if step == Step::Query {
            // No session has begun: the next initiator has one.
            cast.replace_initiator()?;
            cast.finish_from(step)?;
            continue;
        }
        cast.leave();
        cast.expect_end()?;
    }
    Ok(())
}

fn initiator_leaves_early(bench: &Bench<'_>) -> Result<(), Wrong> {
    for step in Step::ALL {
        let mut cast = Cast::start(bench, &[])?;
        cast.take_until(step)?;
        cast.prepare(step)?;
        let payload = cast.payload(step)?;
        let request = cast.request(payload);
        cast.say(&request)?;
        match cast.listen(bench.patience())? {
            Heard::Target(..) => {}
            heard => {
                return Err(Wrong::expected("a target to be asked", heard.describe()));
            }
        }
        cast.leave();
        cast.expect_end()?;
    }
    Ok(())
}

/// A request that nobody made, for replies that do not look at it.
fn ignored() -> wire::control::Message {
    wire::control::Message {
        message_id: 0,
        correlation_id: 0,
        payload: Payload::QueryStorageRequest,
    }
}
