//! Command lines of a deployment under attack, and where its processes run.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use deployment::implementation::Role;
use deployment::sandbox::entries;
use deployment::{Deployment, Form, Part};

use super::Settings;
use crate::matrix::Layout;
use crate::processes::{self, FrontEndTimeouts};
use crate::violation::Violation;

/// Seconds without a response after which a service considers a peer failed.
const CONTROL_TIMEOUT: &str = "8";
/// Seconds after which a service fails I/Os.
pub(super) const IO_TIMEOUT: u64 = 20;
/// Seconds after which a front end considers a service failed, and for which its I/Os wait for the next one.
const FRONT_END_CONTROL_TIMEOUT: &str = "30";
const RECONNECT_TIMEOUT: &str = "60";
/// softdoca's environment variables for the runtime directory and the address of a machine.
const RUNTIME_DIR: &str = "SOFTDOCA_RUNTIME_DIR";
const ADDRESS: (&str, &str) = ("SOFTDOCA_ADDRESS", "127.0.0.1");
/// Mounts a file over the machine's boot identifier, and becomes the program that follows.
const BOOT: &str = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// Flags and machines of a deployment's processes, which an attack may change before their next start.
pub(super) struct Setup<'a> {
    settings: &'a Settings,
    pub(super) form: Form,
    /// Flags of the service in addition to those of the form.
    pub(super) service_flags: Vec<String>,
    /// Order in which the targets are given to the service.
    pub(super) order: Vec<usize>,
    /// Ports at which the service reaches the targets, such as those of a relay; `None` for those of the targets.
    pub(super) reached: Option<Vec<u16>>,
    /// Layout of the service, if it is not that of the targets.
    pub(super) service_layout: Option<Layout>,
    /// Value of `--logical-block-size`.
    pub(super) logical_block_size: Option<usize>,
    /// Seconds for which I/Os of a front end wait for a service.
    pub(super) reconnect_timeout: &'static str,
    /// Script that becomes the target, as `sh -c SCRIPT sh PROGRAM ...`.
    pub(super) target_script: Option<String>,
    /// `true` if the script adds the flag for the backing file.
    pub(super) has_disk_of_script: bool,
    /// Boot identifiers of the targets' machines, if each target runs on a separate machine: with its own boot
    /// identifier and runtime directory, and RDMA over loopback.
    boots: Option<Vec<u128>>,
}

impl<'a> Setup<'a> {
    pub(super) fn new(settings: &'a Settings, form: Form, has_machines: bool) -> Self {
        let boots = (0..form.targets() as u128).map(|index| 0xb007 << 64 | index);
        Self {
            settings,
            form,
            service_flags: Vec::new(),
            order: (0..form.targets()).collect(),
            reached: None,
            service_layout: None,
            logical_block_size: (form.layout == Layout::Gga).then_some(form.block_size),
            reconnect_timeout: RECONNECT_TIMEOUT,
            target_script: None,
            has_disk_of_script: false,
            boots: has_machines.then(|| boots.collect()),
        }
    }

    /// Adds these flags to the processes of a deployment, from their next start on.
    pub(super) fn apply_to(&self, deployment: &mut Deployment) -> Result<(), Violation> {
        for target in 0..self.form.targets() {
            let command = self.target(target, deployment)?;
            deployment.set_command(Part::Target(target), command);
        }
        let layout = self.service_layout.unwrap_or(self.form.layout);
        let reached = self.reached.as_deref().unwrap_or(deployment.ports());
        let ports = self.order.iter().map(|&it| reached[it]).collect();
        deployment.reach_targets_at(layout, ports);
        deployment.set_command(Part::Service, self.service(layout)?);
        deployment.set_command(Part::FrontEnd, self.front_end(&socket(deployment)));
        Ok(())
    }

    fn target(&self, target: usize, deployment: &Deployment) -> Result<Command, Violation> {
        let mut command = self.settings.implementation.command(Role::Target)?;
        command
            .args(["--cpu", &self.settings.cpu(target)])
            .args(["--listen-address", "127.0.0.1"])
            .args(["--block-count", &self.form.blocks.to_string()])
            .args(["--block-size", &self.form.chunk_size().to_string()])
            .args(["--sessions", "forever", "--output", "json"]);
        if !self.has_disk_of_script {
            let file = deployment.backing_file(target);
            command.arg("--backing-file").arg(file);
        }
        if let Some(script) = &self.target_script {
            command = deployment::wrap("sh", ["-c", script, "sh"], &command);
        }
        if let Some(boots) = &self.boots {
            let runtime = runtime_of(target, deployment);
            if !runtime.exists() {
                fs::DirBuilder::new().mode(0o700).create(&runtime)?;
            }
            command.env(RUNTIME_DIR, runtime).env(ADDRESS.0, ADDRESS.1);
            let (name, text) = (format!("boot-{target}"), uuid(boots[target]));
            let file = deployment.sandbox.file(&name, text.as_bytes())?;
            let file = file.to_string_lossy().into_owned();
            command = deployment::wrap("unshare", ["-m", "sh", "-c", BOOT, &file], &command);
        }
        Ok(command)
    }

    fn service(&self, layout: Layout) -> Result<Command, Violation> {
        let mut command = self.settings.implementation.command(layout.service())?;
        command
            .args(["--cpu", &self.settings.cpu(1)])
            .args(["--control-timeout", CONTROL_TIMEOUT])
            .args(["--io-timeout", &IO_TIMEOUT.to_string()])
            .args(["--sessions", "forever", "--output", "json"])
            .args(&self.service_flags);
        if layout == Layout::Gga
            && let Some(size) = self.logical_block_size
        {
            command.args(["--logical-block-size", &size.to_string()]);
        }
        Ok(self.on_machine_of_service(command))
    }

    /// Complete commands of a second service, with another channel, that reaches the same targets at these ports, and of
    /// its front end, which serves at this socket.
    pub(super) fn second_service(
        &self,
        deployment: &Deployment,
        ports: &[u16],
        socket: &Path,
    ) -> Result<(Command, Command), Violation> {
        let channel = format!("{}-second", deployment.sandbox.channel());
        Ok((
            self.service_at(deployment, ports, &channel)?,
            self.front_end_at(deployment, socket, &channel),
        ))
    }

    /// Complete command of a service with this channel that reaches the targets at these ports.
    pub(super) fn service_at(
        &self,
        deployment: &Deployment,
        ports: &[u16],
        channel: &str,
    ) -> Result<Command, Violation> {
        let (layout, service) = (self.form.layout, self.service(self.form.layout)?);
        Ok(deployment.sandbox.service(service, layout, ports, channel))
    }

    /// Complete command of a front end of the service with this channel, which serves at this socket.
    pub(super) fn front_end_at(
        &self,
        deployment: &Deployment,
        socket: &Path,
        channel: &str,
    ) -> Command {
        let command = self.front_end(socket);
        deployment.sandbox.initiator(command, channel)
    }

    /// `doca-storage set`, for commands to the service with this control socket.
    pub(super) fn control(&self, words: &[&str], socket: &Path) -> Command {
        let mut command = Command::new(&self.settings.front_end);
        command.arg("set").args(words).arg("--socket").arg(socket);
        command
    }

    fn front_end(&self, socket: &Path) -> Command {
        let mut command = Command::new(&self.settings.front_end);
        command.arg("nbd");
        let cpu = self.settings.cpu(0);
        let timeouts = FrontEndTimeouts {
            control: FRONT_END_CONTROL_TIMEOUT,
            reconnect: self.reconnect_timeout,
        };
        processes::complete_front_end(&mut command, &cpu, timeouts, socket);
        self.on_machine_of_service(command)
    }

    /// Command of an initiator with the execution strategy and the expected content.
    pub(super) fn initiator(&self, strategy: &str, content: &Path) -> Result<Command, Violation> {
        let mut command = self.settings.implementation.command(Role::Initiator)?;
        command
            .args(["--cpu", &self.settings.cpu(0)])
            .args(["--control-timeout", "30", "--io-timeout", "30"])
            .args(["--execution-strategy", strategy])
            .arg("--storage-plain-content")
            .arg(content)
            .args(["--run-limit-operation-count", &self.form.blocks.to_string()]);
        Ok(self.on_machine_of_service(command))
    }

    /// Runs a command on the machine of service and clients.
    fn on_machine_of_service(&self, mut command: Command) -> Command {
        if self.boots.is_some() {
            command.env(ADDRESS.0, ADDRESS.1);
        }
        command
    }

    /// Changes the boot identifier of a target's machine, from the target's next start on.
    pub(super) fn restart_machine(&mut self, target: usize) {
        if let Some(boots) = &mut self.boots {
            boots[target] += 1 << 32;
        }
    }
}

/// Socket of the front end.
pub(super) fn socket(deployment: &Deployment) -> PathBuf {
    deployment.sandbox.path("nbd.socket")
}

/// Runtime directory of a target's machine.
fn runtime_of(target: usize, deployment: &Deployment) -> PathBuf {
    deployment.sandbox.path(&format!("run-{target}"))
}

/// Removes the content of the runtime directories, as a restart of all machines does.
pub(super) fn clear_runtime_directories(deployment: &Deployment) -> Result<(), Violation> {
    let mut left = deployment.sandbox.leftovers()?;
    for target in 0..deployment.targets() {
        let runtime = runtime_of(target, deployment);
        if runtime.exists() {
            left.extend(entries(&runtime)?);
        }
    }
    // Sockets and files only.
    left.iter().try_for_each(fs::remove_file)?;
    Ok(())
}

fn uuid(value: u128) -> String {
    let digits = format!("{value:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    parts.join("-") + "\n"
}

/// Returns `true` if processes can be started with separate boot identifiers.
pub(super) fn has_machines() -> bool {
    let Ok(file) = tempfile::NamedTempFile::new() else {
        return false;
    };
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", BOOT]).arg(file.path());
    command
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success())
}
