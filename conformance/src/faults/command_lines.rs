//! The command lines of the roles.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::case::{Fault, Mode, Part};
use super::content::{BLOCK_SIZE, BLOCKS};
use super::stage::Stage;
use crate::implementation::Role;
use crate::matrix::Layout;
use crate::scene::{DPU_DEVICE, HOST_DEVICE};

/// I/Os that an initiator has in flight.
const TRANSACTIONS: &str = "32";
/// Operations of a run that comes to an end: each block is written and read at least twice.
const OPERATIONS: &str = "256";
/// Operations of one that does not.
const ENDLESS: &str = "2000000000";

/// What an initiator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Write all blocks and read them back, for ever.
    Endless,
    /// The same, twice over.
    WriteAndRead,
    /// Read all blocks, and compare with what an earlier one wrote.
    Read,
}

impl Stage<'_> {
    /// Seconds that roles wait for each other.
    fn timeout(&self) -> Duration {
        match self.case.fault {
            Fault::Stop if !self.is_calm => self.settings.timeout,
            // Who is gone is noticed by its connections, and not because time has passed.
            _ => self.settings.notice * 3,
        }
    }

    fn command(&self, role: Role, part: Part) -> Result<Command, String> {
        let implementation = &self.settings.implementation;
        let mut command = implementation
            .command(role)
            .map_err(|error| error.to_string())?;
        let cpus = &self.settings.cpus;
        let index = match part {
            Part::Initiator => self.number,
            Part::Service => self.number + 1,
            Part::Target(index) => self.number + 2 + index,
        };
        let cpu = cpus[index % cpus.len()];
        command.args(["--cpu", &cpu.to_string(), "--output", "json"]);
        self.scene.place(&mut command);
        Ok(command)
    }

    /// The file that a target keeps its blocks in. A second one has its own.
    pub(super) fn backing_file(&self, index: usize, generation: u32) -> PathBuf {
        self.scene.path(&format!("blocks-{index}-{generation}"))
    }

    pub(super) fn target(
        &self,
        index: usize,
        port: u16,
        generation: u32,
    ) -> Result<Command, String> {
        let size = match self.case.layout {
            Layout::ZeroCopy => BLOCK_SIZE,
            Layout::Gga => BLOCK_SIZE / 2,
        };
        let mut command = self.command(Role::Target, Part::Target(index))?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--listen-port", &port.to_string()])
            .arg("--backing-file")
            .arg(self.backing_file(index, generation))
            .args(["--block-count", &BLOCKS.to_string()])
            .args(["--block-size", &size.to_string()]);
        if self.case.fault == Fault::Stop && !self.is_calm {
            let idle = 2 * self.settings.timeout.as_secs();
            command.args(["--idle-timeout", &idle.to_string()]);
        }
        self.add_sessions(&mut command, Part::Target(index));
        Ok(command)
    }

    /// Whoever is not hit may serve on; one who is hit has nothing left to serve.
    fn add_sessions(&self, command: &mut Command, part: Part) {
        let is_hit = part == self.case.victim && !self.is_struck;
        if self.case.mode == Mode::Serving && !is_hit {
            command.args(["--sessions", "forever"]);
        }
    }

    pub(super) fn service(&self, ports: &[u16], channel: &str) -> Result<Command, String> {
        let layout = self.case.layout;
        let seconds = self.timeout().as_secs().to_string();
        let mut command = self.command(layout.service(), Part::Service)?;
        command
            .args(["--device", DPU_DEVICE])
            .args(["--representor", HOST_DEVICE])
            .args(["--command-channel-name", channel])
            .args(["--control-timeout", &seconds])
            .args(["--io-timeout", &seconds]);
        for (flag, port) in std::iter::zip(layout.storage_flags(), ports) {
            command.args([flag, format!("127.0.0.1:{port}").as_str()]);
        }
        if self.case.fault == Fault::Stop && !self.is_calm {
            let idle = 2 * self.settings.timeout.as_secs();
            command.args(["--idle-timeout", &idle.to_string()]);
        }
        if self.case.mode == Mode::Degraded {
            command.args(["--degraded", "on"]);
        }
        self.add_sessions(&mut command, Part::Service);
        Ok(command)
    }

    pub(super) fn initiator(&self, work: Work, channel: &str) -> Result<Command, String> {
        let seconds = self.timeout().as_secs().to_string();
        let strategy = match work {
            Work::Endless | Work::WriteAndRead => "read_write_data_validity_test",
            Work::Read => "read_only_data_validity_test",
        };
        let operations = match work {
            Work::Endless => ENDLESS,
            Work::WriteAndRead | Work::Read => OPERATIONS,
        };
        let mut command = self.command(Role::Initiator, Part::Initiator)?;
        command
            .args(["--device", HOST_DEVICE])
            .args(["--command-channel-name", channel])
            .args(["--control-timeout", &seconds])
            .args(["--io-timeout", &seconds])
            .args(["--execution-strategy", strategy])
            .args(["--run-limit-operation-count", operations])
            .args(["--transaction-count", TRANSACTIONS])
            .arg("--storage-plain-content")
            .arg(self.scene.path(super::stage::CONTENT));
        if work == Work::Endless {
            command.args(["--progress", "always"]);
        }
        Ok(command)
    }
}
