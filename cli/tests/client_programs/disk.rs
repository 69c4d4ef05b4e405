//! A deployment with an NBD server: its disk, and files with the contents that clients put on it.

use std::fs;
use std::path::Path;
use std::process::Command;

use deployment::implementation::{Implementation, Layout, Role};
use deployment::process::Signal;
use deployment::sandbox::Sandbox;
use deployment::{Deployment, Form, Part};
use libtest_mimic::Failed;

use crate::program::{Program, TIMEOUT, expect_equal, run, wait_until};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_doca-storage");

/// Size of the disk in bytes.
pub const SIZE: usize = 64 << 20;
/// Number of last lines of each log in the error of a failed check.
const LOGGED: usize = 20;

pub struct Disk {
    pub deployment: Deployment,
    /// NBD URI of the disk.
    pub uri: String,
}

impl Disk {
    /// Runs a check on a new disk, and stops the deployment. The error has the ends of all logs.
    pub fn check(layout: Layout, check: fn(&mut Self) -> Result<(), Failed>) -> Result<(), Failed> {
        let mut disk = Self::serve(layout)?;
        let result = check(&mut disk).and_then(|()| disk.stop());
        result.map_err(|failed| {
            let message = failed.message().unwrap_or_default();
            format!("{message}\n{}", logs(&disk.deployment)).into()
        })
    }

    fn serve(layout: Layout) -> Result<Self, Failed> {
        let sandbox = Sandbox::new()?;
        let mut deployment = deployment(sandbox, layout, SIZE, 1)?;
        let socket = deployment.sandbox.path("disk");
        let mut server = Command::new(PROGRAM);
        server
            .args(["nbd", "--cpu", "0", "--output", "json", "--socket"])
            .arg(&socket)
            .args(["--control-timeout", "60", "--reconnect-timeout", "300"]);
        deployment.set_command(Part::FrontEnd, server);
        deployment.start_all()?;
        Ok(Self {
            uri: format!("nbd+unix:///?socket={}", socket.display()),
            deployment,
        })
    }

    /// Path of a file of the check.
    pub fn path(&self, name: &str) -> String {
        self.deployment.sandbox.path(name).display().to_string()
    }

    /// A file of the disk's size with random bytes, which differ between seeds.
    pub fn random(&self, seed: u64) -> Result<String, Failed> {
        let file = self.path(&format!("random_{seed}"));
        if !Path::new(&file).exists() {
            fs::write(&file, contents::noise(seed, SIZE))?;
        }
        Ok(file)
    }

    /// Copies a file to the disk.
    pub fn fill(&self, file: &str) -> Result<(), Failed> {
        run(&format!(
            "nbdcopy --flush --connections=4 {file} {}",
            self.uri
        ))?;
        Ok(())
    }

    /// Compares the disk with a file.
    pub fn expect_content(&self, file: &str) -> Result<(), Failed> {
        let (copy, uri) = (self.path("copy"), &self.uri);
        run(&format!("nbdcopy --connections=4 {uri} {copy}"))?;
        run(&format!("cmp -n {SIZE} {copy} {file}"))?;
        Ok(())
    }

    /// Starts to copy a file to the disk, with up to 256 KiB in flight, and kills a process meanwhile. Returns the copy, which is running.
    pub fn kill_under_copy(&mut self, file: &str, part: Part) -> Result<Program, Failed> {
        let line = format!(
            "nbdcopy --flush --requests=4 --connections=1 --request-size=65536 {file} {}",
            self.uri
        );
        // On a busy machine, a copy may complete before this thread runs again.
        for _ in 0..20 {
            let copy = Program::start(&line)?;
            wait_until("nbdcopy to be copying", || {
                Ok(copy.process.has_ended() || bytes_read(copy.process.id()) >= SIZE / 16)
            })?;
            if !copy.process.has_ended() {
                self.deployment.kill(&[part])?;
                return Ok(copy);
            }
            copy.succeed()?;
        }
        Err("expected a copy that is running when it has read 1/16 of its file".into())
    }

    fn stop(&mut self) -> Result<(), Failed> {
        let server = self.deployment.end(Part::FrontEnd, Signal::TERM)?;
        expect_equal("exit code of the NBD server", Some(0), server.code())?;
        // Only the absence of a crash: the exit status of targets and services reports the interrupted sessions.
        self.deployment.stop()?;
        Ok(())
    }
}

/// Targets with backing files, and a service, all with this number of workers; not yet started.
pub fn deployment(
    sandbox: Sandbox,
    layout: Layout,
    size: usize,
    workers: usize,
) -> Result<Deployment, Failed> {
    let form = Form {
        layout,
        block_size: 4096,
        blocks: (size / 4096) as u64,
    };
    let ours = Implementation::of_binary("rust", Role::Target, Path::new(PROGRAM));
    let placement = |_| vec![0; workers];
    let mut deployment = Deployment::serving(sandbox, &ours, form, &placement, TIMEOUT)?;
    for target in 0..deployment.targets() {
        deployment.add_flags(Part::Target(target), ["--backing-io", "buffered"]);
    }
    deployment.add_flags(Part::Service, ["--control-timeout", "60"]);
    Ok(deployment)
}

/// Makes a directory in the sandbox with sources of this project, for comparisons; returns its path.
pub fn source_tree(sandbox: &Sandbox) -> Result<String, Failed> {
    let tree = sandbox.path("tree").display().to_string();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    fs::create_dir(&tree)?;
    run(&format!("cp -r {root}/proto {root}/docs {tree}/"))?;
    Ok(tree)
}

/// The last lines of the logs of all parts.
pub fn logs(deployment: &Deployment) -> String {
    let targets = (0..deployment.targets()).map(Part::Target);
    let parts = [Part::FrontEnd, Part::Service].into_iter().chain(targets);
    let tail = |part: Part| {
        let log = deployment.log_of_all_starts(part);
        let lines: Vec<_> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOGGED)..];
        format!(
            "{}:\n    {}\n",
            part.name(deployment.layout()),
            last.join("\n    ")
        )
    };
    parts.map(tail).collect()
}

/// Number of bytes that a process has read from files.
fn bytes_read(process: u32) -> usize {
    let counts = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let count = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}
