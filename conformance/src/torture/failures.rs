//! S4: disks that fail or are full, and files that are changed below a target.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use deployment::Part;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::Attack;
use super::client::{Client, Reply};
use super::disks::{self, CONTENT};
use super::run::Run;
use crate::matrix::Layout;
use crate::violation::{During as _, Violation};

const ZERO_COPY: &[Layout] = &[Layout::ZeroCopy];

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "S4",
        "file-changed-below",
        "Truncates, removes or replaces the backing file below a target: affected I/Os fail, none is wrong, and the exit status is 1.",
        file_changed_below,
    )
    .on(ZERO_COPY)
    .quick(),
    Attack::new(
        "S4",
        "file-changed-below-set",
        "Truncates, removes or replaces the backing file of one target of a set, and restarts the service: clients see no error, and the exit status is 1.",
        file_changed_below_set,
    ),
    Attack::new(
        "S4",
        "file-size-limit",
        "Lets writes beyond a part of the file fail (RLIMIT_FSIZE): these are I/O errors, no signal, and the exit status is 1.",
        file_size_limit,
    )
    .on(ZERO_COPY),
    Attack::new(
        "S4",
        "full-disk",
        "Writes to holes of a file on a full file system: these are I/O errors, and the exit status is 1.",
        full_disk,
    )
    .on(ZERO_COPY)
    .with_machines(),
    Attack::new(
        "S4",
        "no-space-for-the-file",
        "Starts a target whose file does not fit: it refuses with exit status 1.",
        no_space_for_the_file,
    )
    .on(ZERO_COPY)
    .with_machines(),
];

#[derive(Debug, Clone, Copy)]
enum Change {
    Truncate,
    TruncateToNothing,
    Remove,
    ReplaceByCopy,
    ReplaceByOlderCopy,
    ReplaceByDirectory,
    ReplaceByEmptyFile,
}

const CHANGES: [Change; 7] = [
    Change::Truncate,
    Change::TruncateToNothing,
    Change::Remove,
    Change::ReplaceByCopy,
    Change::ReplaceByOlderCopy,
    Change::ReplaceByDirectory,
    Change::ReplaceByEmptyFile,
];

impl Change {
    /// Changes the backing file of a target; the original file is kept as `NAME.true` unless it was renamed or removed.
    fn make(self, run: &Run<'_>, target: usize, old: &[u8]) -> Result<(), Violation> {
        let disk = run.deployment.backing_file(target);
        let aside = disk.with_extension("true");
        let half = CONTENT as u64 + run.form().blocks / 2 * run.form().chunk_size() as u64;
        let truncate = |length| fs::File::options().write(true).open(&disk)?.set_len(length);
        match self {
            Self::Truncate => truncate(half)?,
            Self::TruncateToNothing => truncate(0)?,
            Self::Remove => fs::remove_file(&disk)?,
            Self::ReplaceByCopy => {
                let now = disks::copy_of(&disk)?;
                fs::rename(&disk, aside)?;
                disks::put(&disk, &now)?;
            }
            Self::ReplaceByOlderCopy => {
                fs::rename(&disk, aside)?;
                disks::put(&disk, old)?;
            }
            Self::ReplaceByDirectory => {
                fs::rename(&disk, aside)?;
                fs::create_dir(&disk)?;
            }
            Self::ReplaceByEmptyFile => {
                fs::rename(&disk, aside)?;
                fs::write(&disk, "")?;
                fs::set_permissions(&disk, fs::Permissions::from_mode(0o600))?;
            }
        }
        Ok(())
    }
}

/// Reads and writes blocks; returns the numbers of successes and failures. The content of reads is verified.
fn use_blocks(
    run: &mut Run<'_>,
    client: &mut Client,
    count: usize,
) -> Result<(u64, u64), Violation> {
    let size = run.form().block_size;
    let (mut done, mut failed) = (0, 0);
    for _ in 0..count {
        let block = run.rng.u64(..run.form().blocks);
        let offset = block * size as u64;
        let reply = if run.rng.bool() {
            client.read(offset, size)?
        } else {
            let data = run.storage.content(&mut run.rng, offset, size);
            client.write(offset, &data)?
        };
        match reply {
            Reply::Done => done += 1,
            Reply::Failed(_) => failed += 1,
            Reply::Lost => return Err(Violation::new("the front end closed a connection")),
        }
    }
    Ok((done, failed))
}

/// Stops the target, which must exit with status 1.
fn expect_failure_of(run: &mut Run<'_>, target: usize, why: &str) -> Result<(), Violation> {
    let status = run.terminate(Part::Target(target))?;
    Violation::unless(
        status.code() == Some(1),
        format!("exit status 1 of the target after {why}"),
        status,
    )
}

fn file_changed_below(run: &mut Run<'_>) -> Result<(), Violation> {
    let change = CHANGES[run.rng.usize(..CHANGES.len())];
    changed_below(run, change).during(format!("{change:?}"))
}

fn changed_below(run: &mut Run<'_>, change: Change) -> Result<(), Violation> {
    run.start()?;
    let old = disks::copy_of(&run.deployment.backing_file(0))?;
    run.fill()?;
    run.read_all("before the change")?;
    let mut client = run.storage.connect()?;
    change.make(run, 0, &old)?;
    let (_, mut failed) = use_blocks(run, &mut client, 24)?;
    if client.flush()? != Reply::Done {
        failed += 1;
    }
    Violation::unless(
        failed > 0,
        "an I/O error or a failed flush",
        "24 I/Os and a flush that succeeded",
    )?;
    run.terminate(Part::FrontEnd)?;
    run.terminate(Part::Service)?;
    expect_failure_of(run, 0, "I/O errors")
}

fn file_changed_below_set(run: &mut Run<'_>) -> Result<(), Violation> {
    let change = CHANGES[run.rng.usize(..CHANGES.len())];
    changed_below_set(run, change).during(format!("{change:?}"))
}

fn changed_below_set(run: &mut Run<'_>, change: Change) -> Result<(), Violation> {
    run.start()?;
    let target = run.any_target();
    let old = disks::copy_of(&run.deployment.backing_file(target))?;
    run.fill()?;
    let mut client = run.storage.connect()?;
    change.make(run, target, &old)?;
    let (_, failed) = use_blocks(run, &mut client, 48)?;
    Violation::unless(failed == 0, "no I/O error with two good targets", failed)?;
    let flushed = client.flush()?;
    Violation::unless(
        flushed == Reply::Done,
        "a flush to succeed with two good targets",
        format!("{flushed:?}"),
    )?;
    run.read_all("with a changed file of one target")?;
    drop(client);
    // The target's process is still running, and serves the sessions that follow.
    restart_service(run)?;
    run.read_all("in a session that began with a changed file of one target")?;
    let mut client = run.storage.connect()?;
    run.write_some(&mut client, 8)?;
    drop(client);
    expect_failure_of(run, target, "I/O errors")?;
    run.read_all("without this target")
}

/// Restarts the service after one of the ways of stopping it. The front end continues or is also restarted.
fn restart_service(run: &mut Run<'_>) -> Result<(), Violation> {
    if run.rng.bool() {
        run.terminate(Part::FrontEnd)?;
    }
    if run.rng.bool() {
        run.terminate(Part::Service)?;
    } else {
        run.deployment.kill(&[Part::Service])?;
    }
    run.start_part(Part::Service)?;
    run.start_part(Part::FrontEnd)
}

/// Overwrites all blocks, and returns the number of failed writes.
fn overwrite(run: &mut Run<'_>) -> Result<u64, Violation> {
    let mut client = run.storage.connect()?;
    let size = run.form().block_size;
    let mut failed = 0;
    for block in 0..run.form().blocks {
        let offset = block * size as u64;
        let data = random(run, size);
        match client.write(offset, &data)? {
            Reply::Done => {}
            Reply::Failed(_) => failed += 1,
            Reply::Lost => return Err(Violation::new("the front end closed a connection")),
        }
    }
    Ok(failed)
}

fn random(run: &mut Run<'_>, size: usize) -> Vec<u8> {
    let mut data = vec![0; size];
    run.rng.fill(&mut data);
    data
}

/// Ends a deployment whose target has had failed writes, and fails unless its exit status is 1.
fn end_after_failed_writes(run: &mut Run<'_>, failed: u64, why: &str) -> Result<(), Violation> {
    Violation::unless(failed > 0, format!("errors of {why}"), "none")?;
    // Blocks that can be read must have the right content.
    let unread = run.failed_reads()?;
    run.excuse("S4", failed + unread.len() as u64);
    run.terminate(Part::FrontEnd)?;
    run.terminate(Part::Service)?;
    expect_failure_of(run, 0, why)
}

fn file_size_limit(run: &mut Run<'_>) -> Result<(), Violation> {
    run.start()?;
    run.fill()?;
    let half = CONTENT as u64 + run.form().blocks / 2 * run.form().block_size as u64;
    let id = run.id(Part::Target(0))?;
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    let limit = Rlimit {
        current: Some(half),
        maximum: None,
    };
    prlimit(id, Resource::Fsize, limit).map_err(std::io::Error::from)?;
    let failed = overwrite(run)?;
    end_after_failed_writes(run, failed, "writes beyond a limit")?;
    run.start()?;
    run.read_all("without the limit")
}

fn full_disk(run: &mut Run<'_>) -> Result<(), Violation> {
    // The file is on a file system that only the target can access, and that is filled after holes were punched in the
    // file.
    run.setup.target_script = Some(
        "mkdir -p small && mount -t tmpfs -o size=120m tmpfs small && exec \"$@\" --backing-file \"$PWD/small/disk\""
            .to_owned(),
    );
    run.setup.has_disk_of_script = true;
    run.start()?;
    let mut client = run.storage.connect()?;
    run.write_block(&mut client, 0)?;
    drop(client);
    let id = run.id(Part::Target(0))?;
    let small = run.deployment.sandbox.path("small");
    let small = format!("/proc/{id}/root{}", small.display());
    let disk = fs::File::options()
        .write(true)
        .open(format!("{small}/disk"))?;
    let form = run.form();
    // Blocks from the second on, in whole pages of the file system.
    let from = (CONTENT + form.block_size).next_multiple_of(4096) as u64;
    let length = (form.blocks - 1) * form.block_size as u64;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&disk, hole, from, length).map_err(std::io::Error::from)?;
    let mut rest = fs::File::create(format!("{small}/rest"))?;
    while rest.write_all(&[1; 4096]).is_ok() {}
    let failed = overwrite(run)?;
    end_after_failed_writes(run, failed, "writes to a full disk")
}

fn no_space_for_the_file(run: &mut Run<'_>) -> Result<(), Violation> {
    // A file system for half of the file. The empty file requires --initialise, so it is not created before the mount.
    let form = run.form();
    let size = (CONTENT + form.block_size * form.blocks as usize) / 2048;
    run.setup.target_script = Some(format!(
        "mkdir -p small && mount -t tmpfs -o size={size}k tmpfs small && exec \"$@\" --backing-file \"$PWD/small/disk\""
    ));
    run.setup.has_disk_of_script = true;
    let status = run
        .spawn(Part::Target(0))
        .and_then(|()| run.exit_of(Part::Target(0)))?;
    Violation::unless(status.code() == Some(1), "exit status 1", status)
}
