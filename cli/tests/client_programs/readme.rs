//! The lines of the README that put ext4 on a gga deployment and its disk into a virtual machine, executed as they are printed but for paths and
//! ports: those of this run, so that nothing else on the machine is in the way.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

use deployment::log::LogEvent;
use deployment::process::Signal;
use deployment::sandbox::Sandbox;
use libtest_mimic::Failed;

use crate::disk::{PROGRAM, source_tree};
use crate::file_system::{Method, Mounts};
use crate::program::{Program, TIMEOUT, path, run};

/// Parts of the QEMU monitor's answers to [`MONITOR`].
const READ: &str = "read 1/1 bytes";
const MISMATCH: &str = "Pattern verification failed";
/// Commands that compare the magic number of ext4 on the machine's disk.
const MONITOR: &str = r#"info block
qemu-io virtio0 "read -P 0x53 1080 1"
qemu-io virtio0 "read -P 0xef 1081 1"
quit
"#;

pub fn printed_lines_make_ext4_and_the_disk_of_a_machine() -> Result<(), Failed> {
    let sandbox = Sandbox::new()?;
    let ports = [sandbox.port()?, sandbox.port()?, sandbox.port()?];
    let lines = lines(&sandbox, ports)?;
    symlink(PROGRAM, sandbox.path("doca-storage"))?;
    let deadline = || Instant::now() + TIMEOUT;

    let targets = in_background(&sandbox, &lines[0])?;
    for port in ports {
        let listening = LogEvent::Listening { port };
        targets.process.wait_for_event(listening, 1, deadline())?;
    }
    let service = in_background(&sandbox, &lines[1])?;
    let waiting = LogEvent::WaitingForInitiator;
    service.process.wait_for_event(waiting, 1, deadline())?;
    let mut server = in_background(&sandbox, &lines[2])?;
    let serving = format!("Serving {} bytes", 262_144 * 4096);
    server.process.wait_for("served", TIMEOUT, |line| {
        line.contains(&serving).then_some(())
    })?;
    let nbdfuse = in_background(&sandbox, &lines[3])?;
    let mounts = Mounts::new(&sandbox)?;
    mounts.wait_until_attached()?;
    Program::spawn(&lines[4], shell(&sandbox, &lines[4]))?.succeed()?;
    mounts.expect_mounted()?;
    let (tree, copy) = (source_tree(&sandbox)?, mounts.path("mount/tree"));
    run(&format!("cp -r {tree} {copy}"))?;
    run(&format!("diff -r {tree} {copy}"))?;
    mounts.unmount_and_check()?;

    // Without an operating system on the disk.
    sandbox.file("monitor", MONITOR.as_bytes())?;
    let (machine, _comment) = lines[5].split_once('#').unwrap_or((&lines[5], ""));
    let machine = format!("{machine} -display none -monitor stdio <monitor");
    let output = Program::spawn(&machine, shell(&sandbox, &machine))?.succeed()?;
    if output.matches(READ).count() != 2 || output.contains(MISMATCH) {
        return Err(
            format!("expected two reads of the magic number of ext4, got:\n{output}").into(),
        );
    }

    // Clients end before their servers.
    mounts.detach()?;
    for group in [nbdfuse, server, service, targets] {
        group.end(Signal::TERM)?;
    }
    Ok(())
}

/// The six commands, with paths and ports of this run.
fn lines(sandbox: &Sandbox, ports: [u16; 3]) -> Result<Vec<String>, Failed> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"))?;
    let blocks = readme.split("```console\n").skip(1);
    let mut blocks = blocks.filter_map(|text| Some(text.split_once("```")?.0));
    let block = blocks
        .find(|block| block.contains("nbdfuse"))
        .ok_or("expected a console block with nbdfuse in README.md")?;
    let here = |line: &str| {
        let directory = sandbox.path("").display().to_string();
        let mut line = line
            .replace("/tmp/", &directory)
            .replace("/mnt", &format!("{directory}mount"));
        for (printed, port) in ["12345", "12346", "12347"].into_iter().zip(ports) {
            line = line.replace(printed, &port.to_string());
        }
        if Mounts::method() == Ok(Method::Fuse2fs) {
            // As the README says of who is not root.
            line = line.replace("mount -o loop", "fuse2fs -o fakeroot,rw");
        }
        line
    };
    let commands = block.lines().filter_map(|line| line.strip_prefix("$ "));
    let lines: Vec<_> = commands.map(here).collect();
    if lines.len() != 6 {
        return Err(format!("expected six commands in README.md, got {}", lines.len()).into());
    }
    Ok(lines)
}

/// A shell that executes a line in the directory of the program.
fn shell(sandbox: &Sandbox, line: &str) -> Command {
    let mut shell = Command::new("bash");
    sandbox.place(shell.args(["-c", line]).env("PATH", path()));
    shell
}

/// Executes a line that starts processes in the background. A signal to the shell ends all of them.
fn in_background(sandbox: &Sandbox, line: &str) -> Result<Program, Failed> {
    let script = format!("trap 'trap \"\" TERM; kill 0; wait' TERM\n{line}\nwait");
    let mut shell = shell(sandbox, &script);
    shell.process_group(0);
    Program::spawn(line, shell)
}
