//! The command lines of the roles.

use std::path::PathBuf;
use std::process::Command;

use super::{Running, Stage};
use crate::implementation::Role;
use crate::matrix::content::{BLOCK_SIZE, BLOCKS};
use crate::matrix::member::{IO_TIMEOUT, Member, PROTOCOL, Traits};
use crate::matrix::mix::Layout;
use crate::process::Process;
use crate::scene::{DPU_DEVICE, HOST_DEVICE};

/// Seconds that control operations may take, where a program can be told.
const CONTROL_TIMEOUT: &str = "20";
/// I/Os that an initiator has in flight.
const TRANSACTIONS: &str = "32";
/// The I/O that a scripted target fails, counted from 0, and its result, `DOCA_ERROR_IO_FAILED`.
const FAULT: &str = "fail-io:21:17";

impl Stage<'_> {
    /// A CPU for role number `index`, counted from the service; the initiator has one of its own where there are two.
    fn cpu(&self, index: usize) -> usize {
        let cpus = &self.settings.cpus;
        cpus[index % cpus.len()]
    }

    fn command(&self, member: &Member, role: Role, cpu: usize) -> Result<Command, String> {
        let mut command = member
            .command(role, cpu)
            .map_err(|error| error.to_string())?;
        command.args(["--cpu", &cpu.to_string()]);
        if let Some(protocol) = &self.settings.protocol
            && member.traits(role).protocol
        {
            command.args([PROTOCOL, protocol]);
        }
        self.scene.place(&mut command);
        Ok(command)
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        self.scene
            .file(name, content)
            .map_err(|error| format!("{name}: {error}"))
    }

    pub(super) fn target(
        &self,
        member: &Member,
        index: usize,
        port: u16,
    ) -> Result<Command, String> {
        let label = self.mix.layout.targets()[index];
        let content = self.file(label, &self.files.targets[index])?;
        let mut command = self.command(member, Role::Target, self.cpu(index))?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--listen-port", &port.to_string()])
            .arg("--binary-content")
            .arg(content);
        if self.mix.layout == Layout::ZeroCopy {
            command
                .args(["--block-count", &BLOCKS.to_string()])
                .args(["--block-size", &BLOCK_SIZE.to_string()]);
        }
        Ok(command)
    }

    pub(super) fn start_scripted(&self, label: &'static str, port: u16) -> Result<Running, String> {
        let layout = self.mix.layout;
        let content = self.file(label, self.files.first_content(layout))?;
        let block_size = self.files.block_size;
        let [program, arguments @ ..] = &self.settings.scripted_target[..] else {
            return Err("there is no scripted target".to_owned());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["--device", HOST_DEVICE])
            .args(["--listen-port", &port.to_string()])
            .args(["--block-size", &block_size.to_string()])
            .args(["--fault", FAULT])
            .arg("--content")
            .arg(content);
        if let Some(protocol) = &self.settings.protocol {
            command.args([PROTOCOL, protocol]);
        }
        self.scene.place(&mut command);
        Ok(Running {
            label,
            name: "scripted".to_owned(),
            traits: Traits::OURS,
            process: Process::spawn(label, command).map_err(|failure| failure.to_string())?,
            status: None,
        })
    }

    pub(super) fn service(&self, ports: &[u16]) -> Result<Command, String> {
        let layout = self.mix.layout;
        let mut command = self.command(self.mix.service, layout.service(), self.cpu(0))?;
        command
            .args(["--device", DPU_DEVICE])
            .args(["--representor", HOST_DEVICE])
            .args(["--command-channel-name", self.scene.channel()])
            .args(["--control-timeout", CONTROL_TIMEOUT]);
        for (flag, port) in std::iter::zip(layout.storage_flags(), ports) {
            command.args([flag, format!("127.0.0.1:{port}").as_str()]);
        }
        if layout == Layout::Gga {
            let every = self.plan.recover_every.to_string();
            command.args(["--trigger-recovery-read-every-n", &every]);
        }
        Ok(command)
    }

    pub(super) fn initiator(&self) -> Result<Command, String> {
        let traits = self.mix.initiator.traits(Role::Initiator);
        let mut command = self.command(self.mix.initiator, Role::Initiator, self.cpu(1))?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--command-channel-name", self.scene.channel()])
            .args(["--control-timeout", CONTROL_TIMEOUT])
            .args(["--execution-strategy", self.plan.strategy.name()])
            .args([
                "--run-limit-operation-count",
                &self.plan.operations.to_string(),
            ])
            .args([traits.transactions_flag, TRANSACTIONS]);
        if traits.io_timeout {
            // On a busy machine an answer may take its time: that is not what is checked.
            let seconds = self.settings.timeout.as_secs().to_string();
            command.args([IO_TIMEOUT, &seconds]);
        }
        if self.plan.strategy.validates() {
            let plain = self.file("plain", &self.files.plain)?;
            command.arg("--storage-plain-content").arg(plain);
        }
        Ok(command)
    }
}
