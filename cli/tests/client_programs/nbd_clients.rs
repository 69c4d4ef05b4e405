//! Checks of programs that speak NBD themselves.

use std::fs;
use std::time::{Duration, Instant};

use deployment::Part;
use deployment::log::LogEvent;
use deployment::process::Process;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::disk::{Disk, SIZE, source_tree};
use crate::program::{TIMEOUT, expect_equal, run};

pub fn unwritten_disk_reads_as_zeros(disk: &mut Disk) -> Result<(), Failed> {
    disk.expect_content("/dev/zero")
}

pub fn first_scrub_initializes_all_stripes(disk: &mut Disk) -> Result<(), Failed> {
    let deployment = &disk.deployment;
    Ok(
        deployment.wait_for_log("a scrub has completed", TIMEOUT, |it| {
            it.count_events(Part::Service, |event| event == LogEvent::ScrubCompleted) != 0
        })?,
    )
}

pub fn nbdinfo_shows_size_flush_fua_and_multi_conn(disk: &mut Disk) -> Result<(), Failed> {
    let info: Value = serde_json::from_str(&run(&format!("nbdinfo --json {}", disk.uri))?)?;
    let export = &info["exports"][0];
    expect_equal("export-size", &json!(SIZE), &export["export-size"])?;
    for flag in ["can_flush", "can_fua", "can_multi_conn"] {
        expect_equal(flag, &json!(true), &export[flag])?;
    }
    Ok(())
}

pub fn nbdcopy_copies_there_and_back_over_4_connections(disk: &mut Disk) -> Result<(), Failed> {
    let random = disk.random(1)?;
    disk.fill(&random)?;
    disk.expect_content(&random)
}

/// The client is another server, which forwards the requests of its own clients.
pub fn nbdkit_is_a_proxy(disk: &mut Disk) -> Result<(), Failed> {
    let (random, copy, uri) = (disk.random(1)?, disk.path("copy"), &disk.uri);
    run(&format!(
        "nbdkit -U - nbd {uri} shared=true --run \
         'nbdcopy --flush --connections=4 {random} \"$uri\" && nbdcopy \"$uri\" {copy}'"
    ))?;
    run(&format!("cmp {random} {copy}"))?;
    disk.expect_content(&random)
}

pub fn fio_verifies_unaligned_writes(disk: &mut Disk) -> Result<(), Failed> {
    run(&format!(
        "fio --name=verify --ioengine=nbd --uri={} --rw=randwrite --bsrange=512-200k --bs_unaligned=1 --iodepth=16 --size={SIZE} \
         --io_size={} --verify=crc32c --verify_fatal=1 --verify_state_save=0 --fsync=64 --randrepeat=1",
        disk.uri,
        SIZE / 2
    ))?;
    Ok(())
}

pub fn qemu_img_converts_compares_and_checks(disk: &mut Disk) -> Result<(), Failed> {
    let (random, image, uri) = (disk.random(1)?, disk.path("image.qcow2"), &disk.uri);
    run(&format!("qemu-img create -q -f qcow2 {image} {SIZE}"))?;
    run(&format!(
        "qemu-img convert -f raw -O qcow2 {random} {image}"
    ))?;
    run(&format!(
        "qemu-img convert -n -f qcow2 -O raw {image} {uri}"
    ))?;
    run(&format!("qemu-img compare -f qcow2 -F raw {image} {uri}"))?;
    // An image format directly on the device, over random bytes.
    run(&format!("qemu-img create -q -f qcow2 {uri} 32M"))?;
    let output = run(&format!(
        "qemu-io -f qcow2 -c 'write -P 7 1M 3M' -c 'write -z 2M 64k' -c flush -c 'read -P 7 1M 1M' -c 'read -P 0 2M 64k' {uri}"
    ))?;
    if output.contains("Pattern") || output.contains("failed") {
        return Err(
            format!("qemu-io: expected the patterns that were written, got:\n{output}").into(),
        );
    }
    run(&format!("qemu-img check -f qcow2 {uri}"))?;
    Ok(())
}

/// Sources of this project as a file system: made by mkfs.ext4, copied to the device, read back, checked and compared.
pub fn ext4_image_is_copied_checked_and_compared(disk: &mut Disk) -> Result<(), Failed> {
    let [image, copy, extracted] = ["image", "copy", "extracted"].map(|name| disk.path(name));
    let tree = source_tree(&disk.deployment.sandbox)?;
    fs::File::create(&image)?.set_len(SIZE as u64)?;
    run(&format!("mkfs.ext4 -q -F -d {tree} {image}"))?;
    // The image is sparse: its zeros must replace what was there.
    disk.fill(&disk.random(1)?)?;
    run(&format!("nbdcopy --flush {image} {}", disk.uri))?;
    disk.expect_content(&image)?;
    run(&format!("e2fsck -fn {copy}"))?;
    fs::create_dir(&extracted)?;
    run(&format!("debugfs -R 'rdump / {extracted}' {copy}"))?;
    fs::remove_dir_all(format!("{extracted}/lost+found"))?;
    run(&format!("diff -r {tree} {extracted}"))?;
    Ok(())
}

/// The copy waits for the next service and is complete.
pub fn copy_survives_a_killed_service(disk: &mut Disk) -> Result<(), Failed> {
    let random = disk.random(1)?;
    let copy = disk.kill_under_copy(&random, Part::Service)?;
    disk.deployment.start(Part::Service)?;
    copy.succeed()?;
    disk.expect_content(&random)
}

/// A target goes offline during a copy, and data is copied to the device and back without it. Then it rejoins and is rebuilt, and another one goes
/// offline.
pub fn copies_survive_two_targets_lost_one_after_the_other(disk: &mut Disk) -> Result<(), Failed> {
    let [first, second] = [disk.random(1)?, disk.random(2)?];
    disk.deployment.wait_until_complete()?;
    let copy = disk.kill_under_copy(&first, Part::Target(1))?;
    copy.succeed()?;
    disk.deployment.wait_until_offline(1)?;
    disk.expect_content(&first)?;
    disk.fill(&second)?;
    disk.expect_content(&second)?;
    disk.deployment.start(Part::Target(1))?;
    disk.deployment.wait_until_complete()?;
    disk.deployment.kill(&[Part::Target(0)])?;
    disk.expect_content(&second)?;
    disk.deployment.wait_until_offline(0)?;
    disk.deployment.start(Part::Target(0))?;
    Ok(disk.deployment.wait_until_complete()?)
}

/// Less than a tenth of a CPU, after it has served requests.
pub fn server_without_requests_uses_no_cpu_time(disk: &mut Disk) -> Result<(), Failed> {
    disk.fill(&disk.random(1)?)?;
    let cpu_time = || {
        let server = disk.deployment.process(Part::FrontEnd);
        server
            .and_then(Process::cpu_time)
            .ok_or("expected a running NBD server")
    };
    std::thread::sleep(Duration::from_secs(1));
    let (before, began) = (cpu_time()?, Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let (used, passed) = (cpu_time()? - before, began.elapsed());
    if used * 10 >= passed {
        return Err(
            format!("expected less than a tenth of {passed:?} CPU time, got {used:?}").into(),
        );
    }
    Ok(())
}
