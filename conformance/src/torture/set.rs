//! R7 and R9: sets are used only with their original configuration, and are removed completely.

use std::time::{Duration, Instant};

use deployment::Part;
use deployment::log::{self, LogEvent};

use super::Attack;
use super::client::Mix;
use super::disks;
use super::run::Run;
use crate::matrix::Layout;
use crate::processes::{TICK, joined};
use crate::violation::{During as _, Violation};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "R7",
        "other-use",
        "Starts services with another matrix, block size, order of targets, a target of another set, or zero-copy: refused, and no byte changes.",
        other_use,
    )
    .quick(),
    Attack::new(
        "R9",
        "stop-without-client",
        "Terminates a service without a client; the next session has nothing to do.",
        stop_without_client,
    ),
    Attack::new(
        "R9",
        "stop-with-client",
        "Terminates a service with an idle client, or under load, and starts it again: no I/O fails, and the next session has nothing to do.",
        stop_with_client,
    )
    .quick(),
    Attack::new(
        "R9",
        "stop-degraded",
        "Terminates a service with a target offline: exit status 0, and the next session repeats only what the target missed.",
        stop_degraded,
    ),
    Attack::new(
        "R9",
        "move-after-stop",
        "Stops all, copies backing files to other machines, and starts targets there, at other ports, below a front end that waits: no I/O fails, and there is nothing to do.",
        move_after_stop,
    )
    .with_machines(),
    Attack::new(
        "R9",
        "rolling-restart",
        "Terminates and starts each target, the service and the front end in random order under load, waiting for full redundancy after each: a later clean stop leaves nothing to do.",
        rolling_restart,
    ),
];

/// Time within which a wrong configuration must be refused.
const REFUSAL: Duration = Duration::from_secs(40);

/// Ways to use a set with a configuration other than its original one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Matrix,
    BlockSize,
    NoBlockSize,
    Order(usize, usize),
    OtherSet(usize),
    ZeroCopy(usize),
}

const USES: [Use; 13] = [
    Use::Matrix,
    Use::BlockSize,
    Use::NoBlockSize,
    Use::Order(0, 1),
    Use::Order(1, 2),
    Use::Order(0, 2),
    Use::OtherSet(0),
    Use::OtherSet(1),
    Use::OtherSet(2),
    Use::ZeroCopy(0),
    Use::ZeroCopy(1),
    Use::ZeroCopy(2),
    // Listed twice, so that it is twice as likely as the others.
    Use::Matrix,
];

impl Use {
    /// Texts of the expected and of the found value.
    fn values(self, run: &Run<'_>, matrix: &str) -> (String, String) {
        let names = run.form().layout.targets();
        let size = run.form().block_size;
        let (expected, found) = match self {
            Self::Matrix => {
                let other = other_matrix(matrix);
                return (matrix.to_owned(), other.to_owned());
            }
            Self::BlockSize => return (size.to_string(), (size / 2).to_string()),
            Self::NoBlockSize => return (size.to_string(), "--logical-block-size".to_owned()),
            Self::Order(a, b) => (names[a], names[b]),
            Self::OtherSet(target) => (names[target], "set "),
            Self::ZeroCopy(_) => ("expected", "set"),
        };
        (expected.to_owned(), found.to_owned())
    }
}

fn other_matrix(matrix: &str) -> &'static str {
    if matrix == "cauchy" {
        "vandermonde"
    } else {
        "cauchy"
    }
}

fn other_use(run: &mut Run<'_>) -> Result<(), Violation> {
    let matrix = ["vandermonde", "cauchy"][run.rng.usize(..2)];
    for flag in ["--matrix-type", matrix] {
        run.setup.service_flags.push(flag.to_owned());
    }
    run.start()?;
    // The disks of a first set, with the same geometry as the second.
    run.write_some_new()?;
    run.stop()?;
    let foreign = run.copies()?;
    for target in 0..run.form().targets() {
        std::fs::remove_file(run.deployment.backing_file(target))?;
    }
    run.renew();
    run.start()?;
    run.fill()?;
    run.stop()?;
    let mut uses = USES.to_vec();
    run.rng.shuffle(&mut uses);
    uses.truncate(3);
    for way in uses {
        misuse(run, way, matrix, &foreign).during(format!("{way:?}"))?;
    }
    run.start()?;
    run.read_all("as the set was created")?;
    run.read_without_each("as the set was created")
}

fn misuse(run: &mut Run<'_>, way: Use, matrix: &str, foreign: &[Vec<u8>]) -> Result<(), Violation> {
    let before = run.copies()?;
    let flags = run.setup.service_flags.clone();
    let mut expected = before.clone();
    match way {
        Use::Matrix => {
            let other = other_matrix(matrix);
            if let Some(last) = run.setup.service_flags.last_mut() {
                other.clone_into(last);
            }
        }
        Use::BlockSize => {
            let half = run.form().block_size / 2;
            run.setup.logical_block_size = Some(half);
        }
        Use::NoBlockSize => {
            run.setup.logical_block_size = None;
            // `--degraded` is refused without a block size before the set is looked at.
            run.setup.service_flags = ["--matrix-type", matrix].map(str::to_owned).to_vec();
        }
        Use::Order(a, b) => run.setup.order.swap(a, b),
        Use::OtherSet(target) => {
            disks::put(&run.deployment.backing_file(target), &foreign[target])?;
            expected[target].clone_from(&foreign[target]);
        }
        Use::ZeroCopy(target) => {
            run.setup.service_layout = Some(Layout::ZeroCopy);
            run.setup.order = vec![target];
            run.setup.service_flags.clear();
        }
    }
    for target in 0..run.form().targets() {
        run.start_part(Part::Target(target))?;
    }
    let said = run.deployment.log_of_all_starts(Part::FrontEnd).len();
    run.spawn(Part::Service)?;
    // A set with another block size has another size, so a client's connection to it is also a violation.
    run.spawn(Part::FrontEnd)?;
    let storage = run.storage.clone();
    let user = std::thread::spawn(move || {
        let Some(mut client) = storage.connect_within(Duration::from_secs(10))? else {
            return Ok(());
        };
        client.read(0, 512).map(drop)
    });
    let (expected_text, found_text) = way.values(run, matrix);
    let is_refused = |run: &Run<'_>| {
        let log = run.deployment.log(Part::Service)
            + &run.deployment.log_of_all_starts(Part::FrontEnd)[said..];
        log.contains(&expected_text) && log.contains(&found_text)
    };
    let deadline = Instant::now() + REFUSAL;
    while !is_refused(run) && Instant::now() < deadline {
        std::thread::sleep(TICK);
    }
    // Time for a service that would continue after the refusal.
    run.sleep(500..1500);
    let is_refused = is_refused(run);
    let log = run.deployment.log(Part::Service)
        + &run.deployment.log_of_all_starts(Part::FrontEnd)[said..];
    let status = run.deployment.started();
    run.kill_somehow()?;
    // Data of one target of another set must not be read either.
    joined(user)?;
    Violation::unless(
        is_refused,
        format!("a refusal with the values {expected_text:?} and {found_text:?}"),
        format!("processes {status:?} and this log: {}", tail(&log)),
    )?;
    for (target, expected) in expected.iter().enumerate() {
        let now = disks::copy_of(&run.deployment.backing_file(target))?;
        Violation::unless(
            now == *expected,
            format!("no byte of target {target} to change"),
            format!("changes at {:?}", changes(expected, &now)),
        )?;
        disks::put(&run.deployment.backing_file(target), &before[target])?;
    }
    run.setup.service_flags = flags;
    run.setup.logical_block_size = Some(run.form().block_size);
    run.setup.order = (0..run.form().targets()).collect();
    run.setup.service_layout = None;
    Ok(())
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(6)..].join("\n  ")
}

/// First offsets at which files differ.
fn changes(before: &[u8], now: &[u8]) -> Vec<usize> {
    let differing = before.iter().zip(now).enumerate();
    let offsets = differing.filter(|(_, (a, b))| a != b).map(|(at, _)| at);
    offsets.take(8).collect()
}

/// Fails if the current session of the service has stripes to rebuild or to verify.
fn expect_nothing_to_do(run: &mut Run<'_>, when: &str) -> Result<(), Violation> {
    run.wait_until_whole()?;
    let log = run.deployment.log(Part::Service);
    let is_work = |event: &LogEvent<'_>| {
        matches!(
            event,
            LogEvent::RebuildStarted { .. }
                | LogEvent::ResyncStarted { .. }
                | LogEvent::TargetMissing(_)
                | LogEvent::TargetDetached(_)
        )
    };
    let work: Vec<LogEvent<'_>> = log::events(&log).filter(is_work).collect();
    Violation::unless(
        work.is_empty(),
        format!("nothing to rebuild or resync {when}"),
        format!("{work:?}"),
    )
}

fn expect_success(run: &mut Run<'_>, part: Part, when: &str) -> Result<(), Violation> {
    let status = run.terminate(part)?;
    Violation::unless(
        status.success(),
        format!("exit status 0 of {part:?} after SIGTERM {when}"),
        status,
    )
}

fn stop_without_client(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.terminate(Part::FrontEnd)?;
    if run.rng.bool() {
        expect_success(run, Part::Service, "right after its client")?;
        run.start_part(Part::Service)?;
    }
    run.sleep(0..300);
    expect_success(run, Part::Service, "without a client")?;
    if run.rng.bool() {
        for target in 0..run.form().targets() {
            expect_success(run, Part::Target(target), "without a service")?;
        }
    }
    run.start_processes()?;
    expect_nothing_to_do(run, "after SIGTERM without a client")?;
    run.read_all("after a clean stop")
}

fn stop_with_client(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    for _ in 0..2 {
        let is_idle = run.rng.u8(..3) == 0;
        let when = if is_idle {
            "with an idle client"
        } else {
            "under load"
        };
        let load = run.load(Mix::USUAL);
        load.wait_for(run.rng.u64(1..40), "before SIGTERM")?;
        if is_idle {
            load.while_idle(|| expect_success(run, Part::Service, when))?;
        } else {
            expect_success(run, Part::Service, when)?;
        }
        if run.rng.bool() {
            for target in 0..run.form().targets() {
                run.terminate(Part::Target(target))?;
            }
        }
        run.start_processes()?;
        load.wait_for(10, "after SIGTERM")?;
        load.expect_no_error("over a clean stop of the service")?;
        load.stop()?;
        expect_nothing_to_do(run, &format!("after SIGTERM {when}"))?;
        run.read_all("after a clean stop")?;
    }
    run.read_without_each("after clean stops")
}

fn stop_degraded(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let target = run.any_target();
    run.lose(target)?;
    let mut client = run.storage.connect()?;
    let mut missed = run.write_some(&mut client, 3)?;
    drop(client);
    missed.sort_unstable();
    missed.dedup();
    expect_success(run, Part::Service, "with a target offline")?;
    run.start_part(Part::Target(target))?;
    run.start_part(Part::Service)?;
    run.read_all("after a clean stop with a target offline")?;
    run.wait_until_whole()?;
    let log = run.deployment.log(Part::Service);
    let resync = log::events(&log).find(|it| matches!(it, LogEvent::ResyncStarted { .. }));
    Violation::unless(
        resync.is_none(),
        "no resync after a clean stop",
        format!("{resync:?}"),
    )?;
    run.read_without_each("after a clean stop with a target offline")
}

fn move_after_stop(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    // Without flushes: a volume that is connected cannot know that the files were copied completely.
    let load = run.load(Mix::UNFLUSHED);
    load.wait_for(run.rng.u64(1..40), "before SIGTERM")?;
    let has_idle_client = run.rng.bool();
    if has_idle_client {
        load.while_idle(|| expect_success(run, Part::Service, "with an idle client"))?;
    } else {
        expect_success(run, Part::Service, "under load")?;
    }
    let mut moved = Vec::new();
    for target in 0..run.form().targets() {
        run.terminate(Part::Target(target))?;
        if run.rng.u8(..3) > 0 {
            let disk = run.deployment.backing_file(target);
            disks::put(&disk, &disks::copy_of(&disk)?)?;
            run.deployment.move_target(target)?;
            run.setup.restart_machine(target);
            moved.push(target);
        }
    }
    let when = format!("after targets {moved:?} were moved, idle before: {has_idle_client}");
    run.start_processes()?;
    load.wait_for(20, &when)?;
    load.expect_no_error(&when)?;
    load.stop()?;
    expect_nothing_to_do(run, &when)?;
    run.read_all(&when)?;
    run.read_without_each(&when)
}

fn rolling_restart(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut parts = run.parts();
    run.rng.shuffle(&mut parts);
    let load = run.load(Mix::USUAL);
    for &part in &parts {
        load.wait_for(run.rng.u64(1..30), "before a restart")?;
        let when = format!("{part:?} of {parts:?}");
        if part == Part::Service {
            expect_success(run, part, &when)?;
        } else {
            // The exit status of a target also reflects its session, which the service has not closed.
            run.terminate(part)?;
        }
        run.sleep(0..300);
        run.start_part(part)?;
        load.wait_for(5, &when)?;
        run.wait_until_whole().during(&when)?;
    }
    load.expect_no_error(&format!("over restarts of {parts:?}"))?;
    expect_success(run, Part::Service, "after restarts of all")?;
    run.start_part(Part::Service)?;
    load.wait_for(10, "after the last SIGTERM")?;
    load.expect_no_error("over the last SIGTERM")?;
    load.stop()?;
    expect_nothing_to_do(run, &format!("after restarts of {parts:?}"))?;
    run.read_all("after restarts of all")?;
    run.read_without_each("after restarts of all")
}
