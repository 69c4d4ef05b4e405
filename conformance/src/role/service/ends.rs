//! Peers that leave in the middle of a session.

use wire::control::Payload;

use super::cast::Cast;
use super::heard::Heard;
use super::point::{POINTS, at_each_point};
use super::target::Reply;
use crate::role::step::Step;
use crate::role::{Bench, Check, Wrong};

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
