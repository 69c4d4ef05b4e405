//! R8 and its limit: two targets that are lost at different times, for too long, or stopped, and targets that come back
//! with damaged chunks.

use std::time::{Duration, Instant};

use deployment::Part;
use deployment::log::LogEvent;
use deployment::process::Signal;

use super::Attack;
use super::client::Mix;
use super::contents::{damage, scrub, some_blocks};
use super::disks::{Damage, garble};
use super::loss::two_targets;
use super::run::Run;
use super::setup::IO_TIMEOUT;
use crate::processes::joined;
use crate::violation::{During as _, Violation};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "R8",
        "two-lost-in-turn",
        "Loses a target, which misses writes, and then a second one; they come back in any order: the I/Os wait, none fails, and the session goes on.",
        two_lost_in_turn,
    ),
    Attack::new(
        "R8",
        "two-lost-for-longer",
        "Loses two targets for longer than I/Os wait: they fail, not before four fifths of the time, and succeed in the same session when the targets are back.",
        two_lost_for_longer,
    ),
    Attack::new(
        "R8",
        "two-unresponsive",
        "Stops two targets with SIGSTOP, for less or for longer than --io-timeout: no I/O fails when they continue within the client's reconnect timeout.",
        two_unresponsive,
    ),
    Attack::new(
        "R8",
        "damaged-when-back",
        "Damages chunks of a target while it is down, with another one or alone: nothing damaged is read; if it was refused, the next session rebuilds it, else a scrub repairs it.",
        damaged_when_back,
    ),
];

/// Time for which I/Os wait for targets.
const WAIT: Duration = Duration::from_secs(IO_TIMEOUT * 4 / 5);
/// Time for scheduling, and for a service to find that a target is lost.
const SLACK: Duration = Duration::from_secs(3);
/// Time in which a target that is back is admitted, if it is at all.
const ADMISSION: Duration = Duration::from_secs(10);

/// Number of sessions that the service has waited for.
fn sessions(run: &Run<'_>) -> usize {
    run.deployment
        .count_events(Part::Service, |it| it == LogEvent::WaitingForInitiator)
}

fn expect_same_session(run: &Run<'_>, before: usize, when: &str) -> Result<(), Violation> {
    let sessions = sessions(run);
    Violation::unless(
        sessions == before,
        format!("the session to go on {when}"),
        format!("{} further sessions", sessions.saturating_sub(before)),
    )
}

/// Kills or terminates a process.
fn end(run: &mut Run<'_>, part: Part) -> Result<(), Violation> {
    if run.rng.bool() {
        Ok(run.deployment.kill(&[part])?)
    } else {
        run.terminate(part).map(drop)
    }
}

fn two_lost_in_turn(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let (first, second) = two_targets(run);
    run.lose(first)?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 12)?;
    drop(client);
    let before = sessions(run);
    let load = run.load(Mix::USUAL);
    load.wait_for(run.rng.u64(1..30), "with a target offline")?;
    end(run, Part::Target(second))?;
    // The first target has missed writes. If it is back before the second one, the I/Os have to wait on.
    let mut back = [first, second];
    run.rng.shuffle(&mut back);
    for target in back {
        run.sleep(0..4000);
        run.start_part(Part::Target(target))?;
    }
    let when = format!("after targets {first} and {second} were lost and are back as {back:?}");
    load.wait_for(30, &when)?;
    load.expect_no_error(&when)?;
    load.stop()?;
    run.read_all(&when)?;
    expect_same_session(run, before, &when)?;
    run.wait_until_whole().during(&when)?;
    run.read_without_each(&when)
}

fn two_lost_for_longer(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let (first, second) = two_targets(run);
    let before = sessions(run);
    let is_in_turn = run.rng.bool();
    if is_in_turn {
        run.lose(first)?;
        let mut client = run.storage.connect()?;
        run.write_some(&mut client, 6)?;
    }
    let load = run.load(Mix::USUAL);
    load.wait_for(10, "before the loss of two targets")?;
    let lost = Instant::now();
    run.deployment
        .kill(&[Part::Target(first), Part::Target(second)])?;
    let sleep_until = |time: Duration| {
        std::thread::sleep(time.saturating_sub(lost.elapsed()));
    };
    sleep_until(WAIT.saturating_sub(SLACK));
    load.expect_no_error("while I/Os wait for two targets")?;
    sleep_until(WAIT + SLACK);
    run.sleep(0..5000);
    Violation::unless(
        !load.errors().is_empty(),
        format!("I/Os to fail after {WAIT:?} without two targets"),
        format!("none that has failed within {:?}", lost.elapsed()),
    )?;
    let mut back = [first, second];
    run.rng.shuffle(&mut back);
    for target in back {
        run.start_part(Part::Target(target))?;
        run.sleep(0..1000);
    }
    let when = format!(
        "after targets {first} and {second} were lost, in turn: {is_in_turn}, and are back after {:?}",
        lost.elapsed()
    );
    load.stop()?;
    run.read_all(&when)?;
    let load = run.load(Mix::USUAL);
    load.wait_for(30, &when)?;
    load.expect_no_error(&when)?;
    load.stop()?;
    expect_same_session(run, before, &when)?;
    run.wait_until_whole().during(&when)?;
    run.read_without_each(&when)
}

fn two_unresponsive(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let (first, second) = two_targets(run);
    let before = sessions(run);
    let is_long = run.rng.bool();
    let load = run.load(Mix::USUAL);
    load.wait_for(run.rng.u64(1..30), "with all targets")?;
    let stopped = Instant::now();
    run.deployment.signal(Part::Target(first), Signal::STOP);
    run.sleep(0..2000);
    run.deployment.signal(Part::Target(second), Signal::STOP);
    if is_long {
        let limit = Duration::from_secs(IO_TIMEOUT) + 2 * SLACK;
        std::thread::sleep(limit);
        Violation::unless(
            sessions(run) > before,
            "the session to end after --io-timeout with two unresponsive targets",
            format!("no further session within {limit:?}"),
        )?;
    }
    run.sleep(0..12_000);
    run.deployment.signal(Part::Target(second), Signal::CONT);
    run.sleep(0..1000);
    run.deployment.signal(Part::Target(first), Signal::CONT);
    let when = format!(
        "after targets {first} and {second} were stopped for {:?}",
        stopped.elapsed()
    );
    load.wait_for(30, &when)?;
    load.expect_no_error(&when)?;
    load.stop()?;
    run.read_all(&when)?;
    if !is_long {
        expect_same_session(run, before, &when)?;
    }
    run.wait_until_whole().during(&when)?;
    run.read_without_each(&when)
}

fn damaged_when_back(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let old = run.copies()?;
    run.start()?;
    let mut client = run.storage.connect()?;
    for block in 0..run.form().blocks {
        run.write_block(&mut client, block)?;
    }
    // Writes of this session are also in the targets' logs, from which they would repair their chunks.
    let is_settled = run.rng.bool();
    if is_settled {
        drop(client);
        run.stop()?;
        run.start()?;
        client = run.storage.connect()?;
    }
    let (damaged, other) = two_targets(run);
    let others = [None, Some(false), Some(true)][run.rng.usize(..3)];
    // Blocks that another target misses.
    let mut missed = Vec::new();
    let mut lost = vec![Part::Target(damaged)];
    if let Some(is_stale) = others {
        lost.push(Part::Target(other));
        if is_stale {
            run.lose(other)?;
            missed = run.write_some(&mut client, 6)?;
        }
    }
    drop(client);
    // No I/O is in flight: the members of a stripe that is being written may differ.
    run.deployment.kill(&lost)?;
    let blocks = some_blocks(run);
    let done = if !missed.is_empty() {
        // Two members that have lost the same write may cost it, but not if one of them is only unreadable.
        for &block in &blocks {
            let disk = run.deployment.backing_file(damaged);
            let (chunk, count) = (run.chunk(block), run.form().blocks);
            Damage::Sector.inflict(chunk, &disk, &[], &disk, &mut run.rng, count)?;
        }
        format!("a sector of the blocks {blocks:?}")
    } else if run.rng.bool() {
        damage(run, &old, &blocks, Some(damaged))?.join(", ")
    } else {
        let share = [0.02, 0.3, 1.0][run.rng.usize(..3)];
        garble(&run.deployment.backing_file(damaged), share, &mut run.rng)?;
        format!("{share} of the sectors random")
    };
    let when = format!(
        "target {damaged} down and damaged, another one too, and stale: {others:?}, in a new session: {is_settled}; {done}"
    );
    come_back(run, lost, (&blocks, &missed)).during(when)
}

/// Starts the lost targets, the first of which is damaged, and then the next session. `missed` are the blocks that
/// another one of them has missed.
fn come_back(
    run: &mut Run<'_>,
    mut lost: Vec<Part>,
    (blocks, missed): (&[u64], &[u64]),
) -> Result<(), Violation> {
    let (storage, size, count) = (
        run.storage.clone(),
        run.form().block_size,
        run.form().blocks,
    );
    let reader = std::thread::spawn(move || {
        let mut client = storage.connect()?;
        let block = count / 2;
        client.read(block * size as u64, size)
    });
    run.sleep(0..3000);
    run.rng.shuffle(&mut lost);
    for &target in &lost {
        run.start_part(target)?;
        run.sleep(0..500);
    }
    joined(reader)?;
    let is_whole = |it: &deployment::Deployment| it.redundancy().is_complete();
    let what = "the target is admitted";
    let is_admitted = run.deployment.wait_for_log(what, ADMISSION, is_whole);
    let is_admitted = is_admitted.is_ok();
    let is_lost = |block: &u64| blocks.contains(block) && missed.contains(block);
    if missed.is_empty() {
        // All blocks are on the two other targets, both of which are back with all contents.
        run.read_all("in the same session")?;
    }
    end(run, Part::Service)?;
    run.start_part(Part::Service)?;
    let when = format!("in the next session, admitted before: {is_admitted}");
    if !missed.is_empty() {
        let failed = run.failed_reads()?;
        run.excuse("R5", failed.len() as u64);
        Violation::unless(
            failed.iter().all(is_lost),
            format!("I/O errors {when} of blocks that are damaged and were missed, {missed:?}"),
            format!("I/O errors of {failed:?}"),
        )?;
        let mut client = run.storage.connect()?;
        for block in failed {
            let data = run.storage.content(&mut run.rng, block * size as u64, size);
            client.write(block * size as u64, &data)?;
        }
    } else if is_admitted {
        run.read_all(&when)?;
    }
    run.wait_until_whole().during(&when)?;
    if is_admitted {
        // Damage that was not found when the target came back is repaired by a scrub: reads need no parity chunks.
        scrub(run).during(&when)?;
        run.wait_until_whole().during(&when)?;
    }
    run.read_without_each(&when)
}
