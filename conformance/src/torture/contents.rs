//! R4 to R6: stale and damaged chunks, and sets that are new.

use std::fs;
use std::time::Duration;

use deployment::Part;
use deployment::log::LogEvent;

use super::Attack;
use super::client::Mix;
use super::disks::{self, Damage};
use super::run::{Run, expect_done};
use crate::processes::joined;
use crate::violation::{During as _, Violation};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "R4",
        "missed-writes",
        "A target misses writes; service, front end or all are killed or stopped; the target comes back and must be rebuilt before it counts.",
        missed_writes,
    ),
    Attack::new(
        "R4",
        "copy-of-earlier-session",
        "Puts a copy of a target's disk from an earlier session in its place.",
        copy_of_earlier_session,
    )
    .quick(),
    Attack::new(
        "R4",
        "copy-of-same-session",
        "Puts a copy of a target's disk, taken under load in this session, in its place, while the session goes on or not.",
        copy_of_same_session,
    ),
    Attack::new(
        "R4",
        "rebuild-flag",
        "Starts with --rebuild and a target whose chunks are valid and old: they never decide, and another target may be lost afterwards.",
        rebuild_flag,
    ),
    Attack::new(
        "R4",
        "two-old-copies",
        "Puts old copies of two disks in their place: no old content is read; with one true disk, all is read.",
        two_old_copies,
    ),
    Attack::new(
        "R5",
        "damage-of-one-member",
        "Damages one chunk of many stripes of a stopped set, in every way: all is read, repaired, and read without any one target.",
        damage_of_one_member,
    )
    .quick(),
    Attack::new(
        "R5",
        "lost-writes",
        "Lets all chunks written in a session on one target be those before it (lost writes): nothing old is read.",
        lost_writes,
    ),
    Attack::new(
        "R5",
        "garbled-disk",
        "Overwrites one target's file with random bytes behind its superblocks, in part or as a whole, after a clean stop or kill -9 of an idle set.",
        garbled_disk,
    ),
    Attack::new(
        "R5",
        "damage-with-target-offline",
        "Damages chunks of one target while another one is offline: these blocks are errors, never data.",
        damage_with_target_offline,
    ),
    Attack::new(
        "R5",
        "unreadable-chunks",
        "Truncates the file of one target in use, so that its chunks cannot be read: clients see no error.",
        unreadable_chunks,
    ),
    Attack::new(
        "R6",
        "loss-after-first-write",
        "Kills a target right after the first writes of a new set that was never scrubbed; the rest reads as zeros.",
        loss_after_first_write,
    )
    .quick(),
    Attack::new(
        "R6",
        "damage-of-new-set",
        "Damages chunks of one target of a set that was never scrubbed, written or not.",
        damage_of_new_set,
    ),
    Attack::new(
        "R6",
        "crash-of-new-set",
        "Kills all processes during the first writes of a new set, and reads without each target.",
        crash_of_new_set,
    ),
];

fn missed_writes(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let target = run.any_target();
    run.lose(target)?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 12)?;
    if run.rng.bool() {
        expect_done(&client.flush()?, "flush without a target")?;
    }
    drop(client);
    let how = run.rng.u8(..6);
    match how {
        0 => {}
        1 => run.deployment.kill(&[Part::FrontEnd])?,
        2 => run.deployment.kill(&[Part::Service])?,
        3 => drop(run.terminate(Part::Service)?),
        4 => run.kill_all()?,
        _ => run.stop_processes()?,
    }
    run.start_processes()?;
    let when = format!("after a target missed writes (case {how})");
    run.read_all(&when)?;
    run.wait_until_whole().during(&when)?;
    run.read_without_each(&when)
}

fn copy_of_earlier_session(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let copies = run.copies()?;
    run.start()?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 16)?;
    drop(client);
    if run.rng.bool() {
        run.stop()?;
    } else {
        run.kill_all_at_once()?;
    }
    let target = run.any_target();
    disks::put(&run.deployment.backing_file(target), &copies[target])?;
    let name = run.form().layout.targets()[target];
    let when = format!("with a copy of {name} from an earlier session");
    run.start_processes().during(&when)?;
    run.read_all(&when)?;
    run.wait_until_whole().during(&when)?;
    run.read_without_each(&when)
}

fn copy_of_same_session(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let target = run.any_target();
    let load = run.load(Mix::USUAL);
    load.wait_for(run.rng.u64(5..30), "before the copy")?;
    let copy = disks::copy_of(&run.deployment.backing_file(target))?;
    load.wait_for(run.rng.u64(5..60), "after the copy")?;
    let mut when = format!("with a copy of target {target} from the same session");
    match run.rng.u8(..4) {
        0 => {
            // The session continues without the target, and the copy joins it.
            run.deployment.kill(&[Part::Target(target)])?;
            if run.rng.bool() {
                load.wait_for(20, "without a target")?;
            }
            disks::put(&run.deployment.backing_file(target), &copy)?;
            run.start_part(Part::Target(target))?;
            load.wait_for(20, &when)?;
            load.expect_no_error(&when)?;
            load.stop()?;
            when += ", which goes on";
        }
        1 => {
            load.stop()?;
            run.stop()?;
            disks::put(&run.deployment.backing_file(target), &copy)?;
            when += ", after a clean stop";
        }
        2 => {
            run.kill_all_at_once()?;
            load.stop()?;
            disks::put(&run.deployment.backing_file(target), &copy)?;
            when += ", after kill -9 of all";
        }
        _ => {
            run.deployment
                .kill(&[Part::Target(target), Part::Service])?;
            disks::put(&run.deployment.backing_file(target), &copy)?;
            run.start_processes()?;
            load.wait_for(10, &when)?;
            load.stop()?;
            when += ", after kill -9 of the target and the service";
        }
    }
    run.start_processes().during(&when)?;
    run.read_all(&when)?;
    run.wait_until_whole().during(&when)?;
    run.read_without_each(&when)
}

fn rebuild_flag(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let copies = run.copies()?;
    run.start()?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 24)?;
    drop(client);
    run.stop()?;
    let target = run.any_target();
    let name = run.form().layout.targets()[target];
    // The target's superblock is current, and its chunks are valid, but old.
    let disk = run.deployment.backing_file(target);
    let mut file = disks::copy_of(&disk)?;
    file[disks::CONTENT..].copy_from_slice(&copies[target][disks::CONTENT..]);
    disks::put(&disk, &file)?;
    let flags = run.setup.service_flags.clone();
    for flag in ["--rebuild", name] {
        run.setup.service_flags.push(flag.to_owned());
    }
    run.start_processes()?;
    let when = format!("with --rebuild {name}");
    if run.rng.bool() {
        let load = run.load(Mix::USUAL);
        load.wait_for(20, &when)?;
        load.expect_no_error(&when)?;
        load.stop()?;
    }
    run.read_all(&when)?;
    run.wait_until_whole().during(&when)?;
    run.terminate(Part::Service)?;
    run.setup.service_flags = flags;
    run.start()?;
    run.read_without_each(&format!("{when}, completed"))
}

fn two_old_copies(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let copies = run.copies()?;
    run.start()?;
    let mut client = run.storage.connect()?;
    for block in 0..run.form().blocks {
        run.write_block(&mut client, block)?;
    }
    expect_done(&client.flush()?, "flush")?;
    drop(client);
    run.stop()?;
    let current = run.copies()?;
    let spared = run.any_target();
    let mut replaced: Vec<usize> = (0..run.form().targets()).collect();
    replaced.retain(|it| *it != spared);
    for &target in &replaced {
        disks::put(&run.deployment.backing_file(target), &copies[target])?;
    }
    for target in 0..run.form().targets() {
        run.start_part(Part::Target(target))?;
    }
    run.spawn(Part::Service)?;
    run.spawn(Part::FrontEnd)?;
    // Reads must fail or wait; the content of successful reads is verified.
    let (storage, size) = (run.storage.clone(), run.form().block_size);
    let reader =
        std::thread::spawn(
            move || match storage.connect_within(Duration::from_secs(3))? {
                Some(mut client) => client.read(0, size).map(Some),
                None => Ok(None),
            },
        );
    std::thread::sleep(Duration::from_secs(5));
    run.kill_all()?;
    joined(reader).during("with old copies of two targets")?;
    let restored = replaced[run.rng.usize(..2)];
    disks::put(&run.deployment.backing_file(restored), &current[restored])?;
    let when = "with the true disk of one of two targets again";
    run.start_processes().during(when)?;
    run.read_all(when)?;
    run.wait_until_whole().during(when)?;
    run.read_without_each(when)
}

/// Damages one chunk of some stripes of a stopped set, and returns descriptions.
pub(super) fn damage(
    run: &mut Run<'_>,
    old: &[Vec<u8>],
    blocks: &[u64],
    target: Option<usize>,
) -> Result<Vec<String>, Violation> {
    let mut done = Vec::new();
    // The source of a misdirected write must be undamaged.
    for &block in blocks {
        let member = target.unwrap_or_else(|| run.any_target());
        let damage = Damage::ALL[run.rng.usize(..Damage::ALL.len())];
        let (disk, other) = (
            run.deployment.backing_file(member),
            run.deployment.backing_file((member + 1) % 3),
        );
        let (chunk, count) = (run.chunk(block), run.form().blocks);
        damage.inflict(chunk, &disk, &old[member], &other, &mut run.rng, count)?;
        done.push(format!("{damage:?} of block {block} on target {member}"));
    }
    Ok(done)
}

pub(super) fn some_blocks(run: &mut Run<'_>) -> Vec<u64> {
    let mut blocks: Vec<u64> = (0..run.form().blocks).collect();
    run.rng.shuffle(&mut blocks);
    let count = run.rng.usize(1..=blocks.len());
    blocks.truncate(count);
    blocks
}

/// Scrubs the set while a session uses it.
pub(super) fn scrub(run: &mut Run<'_>) -> Result<(), Violation> {
    run.terminate(Part::Service)?;
    for flag in ["--scrub", "once"] {
        run.setup.service_flags.push(flag.to_owned());
    }
    run.start_part(Part::Service)?;
    run.read_all("during a scrub")?;
    Ok(run
        .deployment
        .wait_for_log("a scrub has completed", Duration::from_secs(60), |it| {
            it.count_events(Part::Service, |event| event == LogEvent::ScrubCompleted) > 0
        })?)
}

fn damage_of_one_member(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let old = run.copies()?;
    run.start()?;
    let mut client = run.storage.connect()?;
    for block in 0..run.form().blocks {
        run.write_block(&mut client, block)?;
    }
    drop(client);
    run.stop()?;
    let blocks = some_blocks(run);
    let done = damage(run, &old, &blocks, None)?;
    damaged_is_repaired(run).during(done.join(", "))
}

fn damaged_is_repaired(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start_processes()?;
    match run.rng.u8(..3) {
        0 => {
            let load = run.load(Mix::USUAL);
            load.wait_for(30, "with damaged chunks")?;
            load.expect_no_error("with damaged chunks")?;
            load.stop()?;
        }
        1 => run.read_all("with damaged chunks")?,
        _ => {}
    }
    run.wait_until_whole()?;
    scrub(run)?;
    run.read_all("after a scrub")?;
    run.wait_until_whole()?;
    run.read_without_each("after a scrub of damaged chunks")
}

fn lost_writes(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let old = run.copies()?;
    run.start()?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 24)?;
    drop(client);
    run.stop()?;
    let target = run.any_target();
    for block in 0..run.form().blocks {
        let chunk = run.chunk(block);
        let bytes = &old[target][chunk.offset()..chunk.offset() + chunk.size];
        chunk.write(&run.deployment.backing_file(target), bytes)?;
    }
    damaged_is_repaired(run).during(format!("all writes of a session lost on target {target}"))
}

fn garbled_disk(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 16)?;
    drop(client);
    let is_killed = run.rng.bool();
    if is_killed {
        run.kill_all_at_once()?;
    } else {
        run.stop()?;
    }
    let target = run.any_target();
    let disk = run.deployment.backing_file(target);
    let share = [0.02, 0.3, 1.0][run.rng.usize(..3)];
    disks::garble(&disk, share, &mut run.rng)?;
    let when =
        format!("{share} of the sectors of target {target} random, killed before: {is_killed}");
    damaged_is_repaired(run).during(when)
}

fn damage_with_target_offline(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.stop()?;
    let old = run.copies()?;
    run.start()?;
    let mut client = run.storage.connect()?;
    for block in 0..run.form().blocks {
        run.write_block(&mut client, block)?;
    }
    drop(client);
    run.stop()?;
    let offline = run.any_target();
    let damaged = (offline + run.rng.usize(1..3)) % 3;
    let mut blocks = some_blocks(run);
    blocks.truncate(run.form().blocks as usize / 2);
    let done = damage(run, &old, &blocks, Some(damaged))?;
    for target in 0..run.form().targets() {
        if target != offline {
            run.start_part(Part::Target(target))?;
        }
    }
    run.start_part(Part::Service)?;
    run.start_part(Part::FrontEnd)?;
    let when = format!("target {offline} offline, {}", done.join(", "));
    let failed = run.failed_reads().during(&when)?;
    run.excuse("R5", failed.len() as u64);
    Violation::unless(
        failed.iter().all(|block| blocks.contains(block)),
        format!("I/O errors of the blocks {blocks:?} only, {when}"),
        format!("I/O errors of {failed:?}"),
    )?;
    // The chunks of the target that was offline were not damaged.
    run.start_part(Part::Target(offline))?;
    let limit = Duration::from_secs(60);
    run.deployment
        .wait_for_log("the rebuild has completed", limit, |it| {
            it.redundancy().is_complete()
        })?;
    let failed = run.failed_reads().during(&when)?;
    run.excuse("R5", failed.len() as u64);
    Violation::unless(
        failed.iter().all(|block| blocks.contains(block)),
        format!("I/O errors of the blocks {blocks:?} only, {when}, and online again"),
        format!("I/O errors of {failed:?}"),
    )
}

fn unreadable_chunks(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let target = run.any_target();
    let first = run.rng.u64(..run.form().blocks);
    let length = run.chunk(first).offset() as u64;
    let file = fs::File::options()
        .write(true)
        .open(run.deployment.backing_file(target))?;
    file.set_len(length)?;
    let when = format!("with chunks from {first} on of target {target} unreadable");
    run.read_all(&when)?;
    let load = run.load(Mix::USUAL);
    load.wait_for(40, &when)?;
    load.expect_no_error(&when)?;
    load.stop()?;
    run.read_all(&when)?;
    run.deployment.kill(&[Part::Target(target)])?;
    run.read_all(&format!("{when}, and lost"))
}

fn loss_after_first_write(run: &mut Run<'_>) -> Result<(), Violation> {
    for flag in ["--scrub", "off"] {
        run.setup.service_flags.push(flag.to_owned());
    }
    run.start_processes()?;
    let mut client = run.storage.connect()?;
    let count = run.rng.usize(0..6);
    run.write_some(&mut client, count)?;
    let target = run.any_target();
    run.deployment.kill(&[Part::Target(target)])?;
    run.read_all("after the loss of a target of a new set")?;
    run.write_some(&mut client, 4)?;
    run.start_part(Part::Target(target))?;
    run.wait_until_whole()?;
    run.read_without_each("of a set that was never scrubbed")
}

fn damage_of_new_set(run: &mut Run<'_>) -> Result<(), Violation> {
    for flag in ["--scrub", "off"] {
        run.setup.service_flags.push(flag.to_owned());
    }
    run.start()?;
    let old = run.copies()?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 8)?;
    drop(client);
    run.stop()?;
    let blocks = some_blocks(run);
    let done = damage(run, &old, &blocks, None)?;
    run.start_processes()?;
    run.read_all("with damaged chunks of a new set")
        .during(done.join(", "))?;
    run.wait_until_whole()?;
    run.setup.service_flags.truncate(2);
    scrub(run).during(done.join(", "))?;
    run.read_without_each("after a scrub")
        .during(done.join(", "))
}

fn crash_of_new_set(run: &mut Run<'_>) -> Result<(), Violation> {
    for flag in ["--scrub", "off"] {
        run.setup.service_flags.push(flag.to_owned());
    }
    run.start_processes()?;
    let load = run.load(Mix::USUAL);
    load.wait_for(run.rng.u64(0..10), "of a new set")?;
    run.kill_all()?;
    load.stop()?;
    run.start()?;
    run.read_all("after a crash of a new set")?;
    run.read_without_each("after a crash of a new set")
}
