//! R1 to R3 and R8: targets that go offline and rejoin, and crashes of all kinds.

use std::fs;
use std::time::Duration;

use deployment::Part;
use deployment::log::LogEvent;
use deployment::process::Signal;

use super::Attack;
use super::client::{Mix, Reply};
use super::disks::Damage;
use super::run::{Run, expect_done};
use super::setup::IO_TIMEOUT;
use crate::violation::{During as _, Violation};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "R1",
        "loss-under-load",
        "Kills, terminates or stops each target in turn under load, partly with the service: no I/O fails, and all is read back.",
        loss_under_load,
    ),
    Attack::new(
        "R1",
        "loss-for-good",
        "Removes the disk of a target that is down, and starts it with a new one: it is rebuilt, and another target may be lost.",
        loss_for_good,
    ),
    Attack::new(
        "R1",
        "loss-with-default-flags",
        "Kills a target of a service with no other flag than --logical-block-size: reads and writes continue.",
        loss_with_default_flags,
    )
    .quick(),
    Attack::new(
        "R1",
        "start-without-target",
        "Starts a session without one target: acknowledged writes are read back, and writes continue.",
        start_without_target,
    ),
    Attack::new(
        "R2",
        "kill-all-under-load",
        "Kills all processes under load at random moments; every block is old or new, also without any one target.",
        kill_all_under_load,
    )
    .quick(),
    Attack::new(
        "R2",
        "power-failure-under-load",
        "Fails the power of all machines under load; every block is as at some moment since the last flush, also without any one target.",
        power_failure_under_load,
    )
    .with_machines(),
    Attack::new(
        "R2",
        "crash-with-target-offline",
        "Kills all processes, or fails the power of all machines, under load while a target is offline.",
        crash_with_target_offline,
    )
    .with_machines(),
    Attack::new(
        "R2",
        "parts-of-untouched-content",
        "Fails the power while a part of each block is overwritten: the flushed rest of each block is there.",
        parts_of_untouched_content,
    )
    .quick()
    .with_machines(),
    Attack::new(
        "R3",
        "reads-after-crash",
        "After crashes under load, reads once with one set of targets, and then with each other one: all agree.",
        reads_after_crash,
    ),
    Attack::new(
        "R3",
        "random-failures",
        "Random failures of one target at a time, of the service, of the front end, and of all, with short sessions between.",
        random_failures,
    )
    .with_machines(),
    Attack::new(
        "R8",
        "two-or-three-restarted",
        "Restarts two or three targets at once below a connected client: the I/Os wait, none fails, and the session goes on.",
        two_or_three_restarted,
    )
    .quick(),
    Attack::new(
        "R8",
        "one-after-the-other",
        "Restarts all targets one after the other, without a pause, under load.",
        one_after_the_other,
    ),
    Attack::new(
        "R8",
        "rebuild-over-unreadable-chunks",
        "Rebuilds a target while chunks of another one are corrupt: the rebuild completes, and only these blocks are errors.",
        rebuild_over_unreadable_chunks,
    ),
];

/// Ways to lose a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Kill,
    Terminate,
    Stop,
}

fn loss_under_load(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut targets: Vec<usize> = (0..run.form().targets()).collect();
    run.rng.shuffle(&mut targets);
    for target in targets {
        let loss = [Loss::Kill, Loss::Terminate, Loss::Stop][run.rng.usize(..3)];
        let with_service = run.rng.u8(..3) == 0;
        let name = run.form().layout.targets()[target];
        lose_under_load(run, target, loss, with_service).during(format!(
            "{loss:?} of {name}, service killed: {with_service}"
        ))?;
    }
    Ok(())
}

fn lose_under_load(
    run: &mut Run<'_>,
    target: usize,
    loss: Loss,
    with_service: bool,
) -> Result<(), Violation> {
    let part = Part::Target(target);
    let load = run.load(Mix::USUAL);
    load.wait_for(20, "with all targets")?;
    match loss {
        Loss::Kill => run.deployment.kill(&[part])?,
        Loss::Terminate => drop(run.terminate(part)?),
        Loss::Stop => run.deployment.signal(part, Signal::STOP),
    }
    if with_service {
        run.sleep(0..200);
        run.deployment.kill(&[Part::Service])?;
        run.start_part(Part::Service)?;
    }
    load.wait_for(60, "without a target")?;
    load.expect_no_error("without one target")?;
    load.stop()?;
    run.read_all("without a target")?;
    if loss == Loss::Stop {
        run.deployment.signal(part, Signal::CONT);
    } else {
        run.start_part(Part::Target(target))?;
    }
    let load = run.load(Mix::USUAL);
    load.wait_for(30, "while a target rejoins")?;
    run.wait_until_whole()
        .during("after a target has rejoined")?;
    load.expect_no_error("while a target rejoins")?;
    load.stop()?;
    run.read_all("after a target has rejoined")
}

fn loss_for_good(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let target = run.any_target();
    run.lose(target)?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 10)?;
    fs::remove_file(run.deployment.backing_file(target))?;
    if run.rng.bool() {
        // The service is also restarted.
        run.terminate(Part::Service)?;
        run.start_part(Part::Target(target))?;
        run.start_part(Part::Service)?;
    } else {
        run.start_part(Part::Target(target))?;
    }
    run.read_all("while a new disk is being rebuilt")?;
    run.wait_until_whole().during("rebuild of a new disk")?;
    run.read_without_each("after the rebuild of a new disk")
}

fn loss_with_default_flags(run: &mut Run<'_>) -> Result<(), Violation> {
    run.setup.service_flags.clear();
    run.start()?;
    run.fill()?;
    let load = run.load(Mix::USUAL);
    load.wait_for(10, "with all targets")?;
    let target = run.any_target();
    run.deployment.kill(&[Part::Target(target)])?;
    load.wait_for(30, "without a target")?;
    load.expect_no_error("without one target")?;
    load.stop()?;
    run.read_all("without a target")
}

fn start_without_target(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    if run.rng.bool() {
        run.stop()?;
    } else {
        run.kill_all_at_once()?;
    }
    let target = run.any_target();
    let others = (0..run.form().targets()).filter(|it| *it != target);
    for other in others.collect::<Vec<_>>() {
        run.start_part(Part::Target(other))?;
    }
    run.start_part(Part::Service)?;
    run.start_part(Part::FrontEnd)?;
    run.read_all("in a session that began without a target")?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 10)?;
    expect_done(&client.flush()?, "flush without a target")?;
    run.read_all("after writes without a target")?;
    run.start()?;
    run.read_without_each("after a session began without a target")
}

fn kill_all_under_load(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    for _ in 0..3 {
        let load = run.load(Mix::USUAL);
        load.wait_for(run.rng.u64(5..60), "under load")?;
        run.sleep(0..20);
        run.kill_all()?;
        load.stop()?;
        run.start()?;
        run.read_all("after kill -9 of all")?;
    }
    run.read_without_each("after kill -9 of all")
}

fn power_failure_under_load(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.remember()?;
    for _ in 0..2 {
        let load = run.load(Mix::UNFLUSHED);
        let mut client = run.storage.connect()?;
        for _ in 0..run.rng.usize(1..3) {
            load.wait_for(run.rng.u64(5..40), "under load")?;
            load.while_idle(|| run.flush_and_remember(&mut client))?;
        }
        load.wait_for(run.rng.u64(1..40), "after a flush")?;
        run.kill_all()?;
        load.stop()?;
        run.lose_unflushed()?;
        run.start_processes()?;
        run.read_all("after a power failure of all machines")?;
        run.wait_until_whole()?;
        let mut client = run.storage.connect()?;
        run.flush_and_remember(&mut client)?;
        run.read_without_each("after a power failure of all machines")?;
        run.flush_and_remember(&mut client)?;
    }
    Ok(())
}

fn crash_with_target_offline(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let target = run.any_target();
    run.lose(target)?;
    let loses_power = run.rng.bool();
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 6)?;
    run.flush_and_remember(&mut client)?;
    let load = run.load(Mix::UNFLUSHED);
    load.wait_for(run.rng.u64(1..50), "with a target offline")?;
    run.kill_all()?;
    load.stop()?;
    if loses_power {
        run.lose_unflushed()?;
    }
    let when = if loses_power {
        "after a power failure with a target offline"
    } else {
        "after kill -9 of all with a target offline"
    };
    if run.rng.bool() {
        // The target initially stays offline.
        let others = (0..run.form().targets()).filter(|it| *it != target);
        for other in others.collect::<Vec<_>>() {
            run.start_part(Part::Target(other))?;
        }
        run.start_part(Part::Service)?;
        run.start_part(Part::FrontEnd)?;
        run.read_all(when)?;
        let mut client = run.storage.connect()?;
        run.write_some(&mut client, 6)?;
    }
    run.start_processes()?;
    run.read_all(when)?;
    run.wait_until_whole().during(when)?;
    run.read_without_each(when)
}

fn parts_of_untouched_content(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut client = run.storage.connect()?;
    run.flush_and_remember(&mut client)?;
    let size = run.form().block_size;
    for block in 0..run.form().blocks {
        let sector = run.rng.usize(..size / 512);
        let mut data = vec![0; 512];
        run.rng.fill(&mut data);
        let offset = block * size as u64 + sector as u64 * 512;
        expect_done(&client.write(offset, &data)?, "write")?;
    }
    run.fail_power()?;
    run.start()?;
    run.read_all("after a power failure while parts of blocks were written")
}

fn reads_after_crash(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    for _ in 0..2 {
        let load = run.load(Mix::USUAL);
        load.wait_for(run.rng.u64(5..60), "under load")?;
        let missing = run.any_target();
        if run.rng.bool() {
            // The target misses the last writes.
            run.deployment.kill(&[Part::Target(missing)])?;
            load.wait_for(run.rng.u64(0..20), "without a target")?;
        }
        run.kill_all()?;
        load.stop()?;
        let others = (0..run.form().targets()).filter(|it| *it != missing);
        for other in others.collect::<Vec<_>>() {
            run.start_part(Part::Target(other))?;
        }
        run.start_part(Part::Service)?;
        run.start_part(Part::FrontEnd)?;
        run.read_all("after a crash, without a target")?;
        if run.rng.bool() {
            run.deployment.kill(&[Part::Service])?;
            run.start_part(Part::Service)?;
            run.read_all("after kill -9 of the service, without a target")?;
        }
        run.start()?;
        run.read_without_each("after what reads have returned")?;
    }
    Ok(())
}

/// A failure of `random_failures`.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Target,
    StopTarget,
    Service,
    StopService,
    FrontEnd,
    ServiceAndFrontEnd,
    All,
    Power,
    CleanStop,
    TargetAndService,
}

const FAILURES: [Failure; 10] = [
    Failure::Target,
    Failure::StopTarget,
    Failure::Service,
    Failure::StopService,
    Failure::FrontEnd,
    Failure::ServiceAndFrontEnd,
    Failure::All,
    Failure::Power,
    Failure::CleanStop,
    Failure::TargetAndService,
];

fn random_failures(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    if run.rng.bool() {
        run.fill()?;
    }
    let mut client = run.storage.connect()?;
    run.flush_and_remember(&mut client)?;
    drop(client);
    let mut story = Vec::new();
    for _ in 0..run.rng.usize(4..9) {
        let failure = FAILURES[run.rng.usize(..FAILURES.len())];
        story.push(failure);
        random_failure(run, failure).during(format!("failures {story:?}"))?;
    }
    run.wait_until_whole()?;
    run.read_without_each("at the end")
        .during(format!("failures {story:?}"))
}

fn random_failure(run: &mut Run<'_>, failure: Failure) -> Result<(), Violation> {
    let mix = Mix {
        clients: run.rng.u64(1..4),
        parts: [0, 50, 100][run.rng.usize(..3)],
        flushes: !matches!(failure, Failure::Power),
        ..Mix::USUAL
    };
    if matches!(failure, Failure::Power) {
        // Known to be durable before the unflushed writes.
        let mut client = run.storage.connect()?;
        run.flush_and_remember(&mut client)?;
    }
    let load = run.load(mix);
    // Some sessions are short.
    load.wait_for(run.rng.u64(0..40), "before the failure")?;
    let target = run.any_target();
    match failure {
        Failure::Target => {
            run.deployment.kill(&[Part::Target(target)])?;
            load.wait_for(run.rng.u64(0..40), "without a target")?;
        }
        Failure::TargetAndService => {
            run.deployment
                .kill(&[Part::Target(target), Part::Service])?;
            run.start_part(Part::Service)?;
            load.wait_for(run.rng.u64(0..40), "without a target")?;
        }
        Failure::StopTarget => {
            run.deployment.signal(Part::Target(target), Signal::STOP);
            load.wait_for(run.rng.u64(0..40), "with a stopped target")?;
            run.deployment.signal(Part::Target(target), Signal::CONT);
        }
        Failure::Service => run.deployment.kill(&[Part::Service])?,
        Failure::StopService => {
            run.deployment.signal(Part::Service, Signal::STOP);
            run.sleep(0..1500);
            run.deployment.signal(Part::Service, Signal::CONT);
        }
        Failure::FrontEnd => run.deployment.kill(&[Part::FrontEnd])?,
        Failure::ServiceAndFrontEnd => {
            run.deployment.kill(&[Part::Service, Part::FrontEnd])?;
        }
        Failure::CleanStop => {
            load.stop()?;
            run.stop()?;
            run.start()?;
            return run.read_all("after a clean stop");
        }
        Failure::All | Failure::Power => {
            run.kill_all()?;
            load.stop()?;
            if matches!(failure, Failure::Power) {
                run.lose_unflushed()?;
            }
            run.start_processes()?;
            run.read_all("after a crash of all")?;
            return run.wait_until_whole();
        }
    }
    run.start_processes()?;
    load.wait_for(5, "after the failure")?;
    load.expect_no_error("during a failure that leaves two targets")?;
    load.stop()?;
    run.read_all("after the failure")?;
    run.wait_until_whole()
}

fn two_or_three_restarted(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let before = run
        .deployment
        .count_events(Part::Service, |it| it == LogEvent::WaitingForInitiator);
    let load = run.load(Mix::USUAL);
    load.wait_for(10, "with all targets")?;
    let mut targets: Vec<usize> = (0..run.form().targets()).collect();
    run.rng.shuffle(&mut targets);
    targets.truncate(run.rng.usize(2..=3));
    let parts: Vec<Part> = targets.iter().map(|&it| Part::Target(it)).collect();
    if run.rng.bool() {
        run.deployment.kill(&parts)?;
    } else {
        for &part in &parts {
            run.deployment.signal(part, Signal::TERM);
        }
        for &part in &parts {
            run.deployment.wait(part)?;
        }
    }
    let pause = run.rng.u64(0..IO_TIMEOUT * 1000 * 3 / 5);
    std::thread::sleep(Duration::from_millis(pause));
    for &target in &targets {
        run.start_part(Part::Target(target))?;
    }
    let when = format!("after a restart of targets {targets:?} within {pause} ms");
    load.wait_for(30, &when)?;
    load.expect_no_error(&when)?;
    load.stop()?;
    run.read_all(&when)?;
    let sessions = run
        .deployment
        .count_events(Part::Service, |it| it == LogEvent::WaitingForInitiator);
    Violation::unless(
        sessions == before,
        format!("the session to go on {when}"),
        format!("{} further sessions", sessions - before),
    )?;
    run.wait_until_whole().during(when)
}

fn one_after_the_other(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let load = run.load(Mix::USUAL);
    for target in 0..run.form().targets() {
        load.wait_for(5, "before a restart")?;
        run.terminate(Part::Target(target))?;
        run.start_part(Part::Target(target))?;
    }
    load.wait_for(40, "after the restarts")?;
    load.expect_no_error("after targets were restarted one after the other")?;
    load.stop()?;
    run.read_all("after the restarts")?;
    run.wait_until_whole()?;
    run.read_without_each("after the restarts")
}

fn rebuild_over_unreadable_chunks(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let (rebuilt, damaged) = two_targets(run);
    let mut bad = Vec::new();
    for _ in 0..run.rng.usize(1..4) {
        let block = run.rng.u64(..run.form().blocks);
        let disk = run.deployment.backing_file(damaged);
        let (chunk, blocks) = (run.chunk(block), run.form().blocks);
        Damage::Sector.inflict(chunk, &disk, &[], &disk, &mut run.rng, blocks)?;
        bad.push(block);
    }
    fs::remove_file(run.deployment.backing_file(rebuilt))?;
    run.start_processes()?;
    let failed = run.failed_reads()?;
    run.excuse("R5", failed.len() as u64);
    let is_bad = |block: &u64| bad.contains(block);
    Violation::unless(
        failed.iter().all(is_bad),
        format!("I/O errors of the blocks {bad:?} only"),
        format!("I/O errors of {failed:?}"),
    )?;
    let is_up_to_date = |it: &deployment::Deployment| it.redundancy().is_complete();
    run.deployment
        .wait_for_log(
            "the rebuild has completed",
            Duration::from_secs(60),
            is_up_to_date,
        )
        .during(format!("rebuild with the corrupt chunks {bad:?}"))?;
    let mut client = run.storage.connect()?;
    let size = run.form().block_size;
    for &block in &bad {
        let data = run.storage.content(&mut run.rng, block * size as u64, size);
        let reply = client.write(block * size as u64, &data)?;
        Violation::unless(
            reply == Reply::Done,
            "a block that cannot be read to be written as a whole",
            format!("{reply:?}"),
        )?;
    }
    run.read_all("after the unreadable blocks were written")
}

/// Two different targets.
pub(super) fn two_targets(run: &mut Run<'_>) -> (usize, usize) {
    let first = run.any_target();
    let second = (first + run.rng.usize(1..3)) % 3;
    (first, second)
}
