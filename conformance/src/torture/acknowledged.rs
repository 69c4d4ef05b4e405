//! S1 to S3: promises about acknowledged writes, flushes and writes with FUA.

use std::time::{Duration, Instant};

use deployment::Part;

use super::Attack;
use super::client::{Mix, Reply};
use super::disks;
use super::run::{Run, expect_done};
use crate::matrix::Layout;
use crate::processes::joined;
use crate::violation::{During as _, Violation};

const ZERO_COPY: &[Layout] = &[Layout::ZeroCopy];
const BOTH: &[Layout] = &Layout::ALL;

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "S1",
        "kill-under-load",
        "Kills target, service, front end, or several of them under load, four times; every acknowledged write must be read back.",
        kill_under_load,
    )
    .on(BOTH),
    Attack::new(
        "S1",
        "kill-after-first-write",
        "Kills all processes right after the first acknowledged writes of a new storage.",
        kill_after_first_write,
    )
    .on(BOTH)
    .quick(),
    Attack::new(
        "S1",
        "kill-after-initiator",
        "An initiator writes a file and exits; all processes are killed; another initiator must find the file.",
        kill_after_initiator,
    )
    .on(BOTH),
    Attack::new(
        "S2",
        "power-failure",
        "Fails the power of all machines under load after a flush; each unflushed sector is old or new.",
        power_failure,
    )
    .on(BOTH)
    .with_machines(),
    Attack::new(
        "S2",
        "power-failure-after-fua",
        "Fails the power after writes with FUA among writes without; only sectors of the others may be lost.",
        power_failure_after_fua,
    )
    .on(ZERO_COPY)
    .quick()
    .with_machines(),
    Attack::new(
        "S3",
        "machine-restart",
        "Restarts the target's machine, which loses acknowledged writes, below two connected clients: the next flush of each must fail.",
        machine_restart,
    )
    .on(ZERO_COPY)
    .quick()
    .with_machines(),
    Attack::new(
        "S3",
        "older-copy",
        "Puts a copy of the disk, taken before acknowledged writes, in its place while a client is connected: the next flush must fail.",
        older_copy,
    )
    .on(ZERO_COPY),
    Attack::new(
        "S3",
        "other-storage",
        "Puts another, new disk in the place of the target's while a client is connected: it must not be accepted.",
        other_storage,
    )
    .on(ZERO_COPY),
    Attack::new(
        "S3",
        "machine-restart-of-two",
        "Restarts the machines of two targets of a set, which lose acknowledged writes: the next flush fails, or the writes are there.",
        machine_restart_of_two,
    )
    .with_machines(),
];

fn kill_under_load(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    for _ in 0..4 {
        let load = run.load(Mix::USUAL);
        load.wait_for(run.rng.u64(20..120), "under load")?;
        let mut parts = run.parts();
        run.rng.shuffle(&mut parts);
        let count = run.rng.usize(1..=parts.len());
        parts.truncate(count);
        run.deployment.kill(&parts)?;
        run.sleep(0..300);
        // The service and the front end detect the lost connections before the restart.
        run.start_processes()?;
        load.wait_for(10, "after the restart")?;
        load.stop()?;
        run.wait_until_whole()?;
        run.read_all(&format!("after kill -9 of {parts:?}"))?;
    }
    Ok(())
}

fn kill_after_first_write(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 8)?;
    run.kill_all()?;
    run.start()?;
    run.read_all("after kill -9 of all")
}

fn kill_after_initiator(run: &mut Run<'_>) -> Result<(), Violation> {
    let form = run.form();
    let mut content = vec![0; form.block_size * form.blocks as usize];
    run.rng.fill(&mut content);
    let file = run.deployment.sandbox.file("content", &content)?;
    for target in 0..form.targets() {
        run.start_part(Part::Target(target))?;
    }
    run.start_part(Part::Service)?;
    for strategy in [
        "read_write_data_validity_test",
        "read_only_data_validity_test",
    ] {
        let command = run.setup.initiator(strategy, &file)?;
        run.deployment.set_command(Part::Initiator, command);
        run.deployment.start(Part::Initiator)?;
        let limit = Instant::now() + Duration::from_secs(60);
        run.deployment
            .take(Part::Initiator)?
            .finish(limit, || false)?;
        run.kill_all()?;
        for target in 0..form.targets() {
            run.start_part(Part::Target(target))?;
        }
        run.start_part(Part::Service)?;
    }
    Ok(())
}

fn power_failure(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.remember()?;
    for _ in 0..3 {
        let load = run.load(Mix::UNFLUSHED);
        load.wait_for(run.rng.u64(10..60), "under load")?;
        let mut client = run.storage.connect()?;
        load.while_idle(|| run.flush_and_remember(&mut client))?;
        load.wait_for(run.rng.u64(0..40), "after a flush")?;
        run.kill_all()?;
        // Replies that were sent before the end are taken into account.
        load.stop()?;
        run.lose_unflushed()?;
        run.start()?;
        run.read_all("after a power failure of all machines")?;
        let mut client = run.storage.connect()?;
        run.flush_and_remember(&mut client)?;
    }
    Ok(())
}

fn power_failure_after_fua(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    run.remember()?;
    let size = run.form().block_size;
    let mut client = run.storage.connect()?;
    let mut fua = Vec::new();
    for block in 0..run.form().blocks {
        let offset = block * size as u64;
        let data = run.storage.content(&mut run.rng, offset, size);
        let is_fua = run.rng.bool();
        if let Some(reply) = client.try_write(offset, &data, is_fua)? {
            expect_done(&reply, "write")?;
            if is_fua {
                fua.push(block);
            }
        }
    }
    // Each block has its place in the file of the target.
    let now = disks::copy_of(&run.deployment.backing_file(0))?;
    for &block in &fua {
        let at = run.chunk(block).offset();
        run.keep(0, at..at + size, &now);
    }
    run.fail_power()?;
    run.start()?;
    run.read_all("after a power failure")
}

fn machine_restart(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut clients = [run.storage.connect()?, run.storage.connect()?];
    run.flush_and_remember(&mut clients[0])?;
    for _ in 0..6 {
        let which = run.rng.usize(..2);
        run.write_some(&mut clients[which], 4)?;
    }
    run.deployment.kill(&[Part::Target(0)])?;
    run.lose_unflushed_of(&[0])?;
    run.start_part(Part::Target(0))?;
    for (number, client) in clients.iter_mut().enumerate() {
        let reply = client.flush()?;
        Violation::unless(
            reply != Reply::Done,
            format!("the flush of client {number} to fail: acknowledged writes may be lost"),
            "success",
        )?;
    }
    run.read_all("after the restart of the target's machine")?;
    for client in &mut clients {
        expect_done(&client.flush()?, "flush after the failed one")?;
    }
    Ok(())
}

fn older_copy(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut client = run.storage.connect()?;
    run.flush_and_remember(&mut client)?;
    let copy = disks::copy_of(&run.deployment.backing_file(0))?;
    run.write_some(&mut client, 12)?;
    run.deployment.kill(&[Part::Target(0)])?;
    disks::put(&run.deployment.backing_file(0), &copy)?;
    run.start_part(Part::Target(0))?;
    let reply = client.flush()?;
    Violation::unless(
        reply != Reply::Done,
        "a flush to fail after an older copy of the storage was put in its place",
        "success",
    )
}

fn other_storage(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 4)?;
    run.deployment.kill(&[Part::Target(0)])?;
    let disk = run.deployment.backing_file(0);
    std::fs::rename(&disk, disk.with_extension("true"))?;
    run.start_part(Part::Target(0))?;
    // Reads may fail, now or after the front end has waited for the storage, and verify their content if not.
    let size = run.form().block_size;
    let reader = std::thread::spawn(move || client.read(0, size));
    std::thread::sleep(Duration::from_secs(4));
    run.deployment.kill(&[Part::Target(0)])?;
    std::fs::rename(disk.with_extension("true"), &disk)?;
    run.start_part(Part::Target(0))?;
    joined(reader).during("with another storage in the place of the target's")?;
    run.read_all("with the true storage again")
}

fn machine_restart_of_two(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let mut client = run.storage.connect()?;
    run.flush_and_remember(&mut client)?;
    run.write_some(&mut client, 12)?;
    let spared = run.any_target();
    let lost: Vec<usize> = (0..run.form().targets())
        .filter(|it| *it != spared)
        .collect();
    let parts: Vec<Part> = lost.iter().map(|&it| Part::Target(it)).collect();
    run.deployment.kill(&parts)?;
    // A write is in doubt from here on, unless a flush succeeds.
    let before = run.storage.oracle().clone();
    run.lose_unflushed_of(&lost)?;
    for &target in &lost {
        run.start_part(Part::Target(target))?;
    }
    if client.flush()? == Reply::Done {
        // In this case, nothing was lost.
        *run.storage.oracle() = before;
        run.read_all("after a flush that has succeeded over the restart of two machines")?;
        return run.wait_until_whole();
    }
    run.read_all("after the restart of two machines")?;
    let mut client = run.storage.connect()?;
    expect_done(&client.flush()?, "flush after the failed one")?;
    run.wait_until_whole()
}
