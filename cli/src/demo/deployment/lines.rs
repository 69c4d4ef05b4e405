//! Command lines of the roles.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use ::deployment::sandbox::{DPU_DEVICE, HOST_DEVICE};
use role_common::stored_block::Geometry;

use crate::demo::layout::{Layout, Storage};
use crate::demo::plan::{Plain, Plan, Run};

use super::Cpus;
use super::Files;

/// Timeout of an I/O: hundreds of MiB may be queued before it, to be compressed by an unoptimised build.
const IO_TIMEOUT_SECONDS: u32 = 60;
/// Timeout of a control operation, for a loaded machine.
const CONTROL_TIMEOUT_SECONDS: u32 = 20;

/// Arguments of `doca-storage` for the roles of one session.
pub(super) struct CommandLines<'a> {
    pub(super) plan: &'a Plan,
    pub(super) files: &'a Files,
    pub(super) cpus: &'a Cpus,
    pub(super) run: &'a Run,
    /// `true` if the output is parsed by the demo, `false` if it is read by a person.
    pub(super) json: bool,
}

impl CommandLines<'_> {
    /// Generator of the gga targets' `.sbc` files.
    pub(super) fn generator(&self, geometry: Geometry, sbc: &[PathBuf; 3]) -> Vec<OsString> {
        let [data_1, data_2, data_p] = sbc.each_ref().map(|path| path.as_os_str());
        self.line("sbc-generator")
            .with("--device", DPU_DEVICE)
            .with("--original-input-data", self.files.content.as_os_str())
            .with(
                if geometry.is_compatible() {
                    "--block-size"
                } else {
                    "--logical-block-size"
                },
                self.plan.block_size,
            )
            .with("--matrix-type", self.plan.matrix_name())
            .with("--data-1", data_1)
            .with("--data-2", data_2)
            .with("--data-p", data_p)
            .0
    }

    /// Command line of target number `index`; port 0 lets it choose one.
    pub(super) fn target(&self, index: usize, port: u16) -> Vec<OsString> {
        let line = self
            .line("target")
            .with("--device", HOST_DEVICE)
            .with("--listen-port", port);
        let sized = |line: Line, block_size: u32| {
            line.with("--block-count", self.plan.block_count)
                .with("--block-size", block_size)
        };
        let line = match self.run.layout {
            Layout::ZeroCopy => sized(line, self.plan.block_size)
                .with("--binary-content", self.files.content.as_os_str()),
            Layout::Gga(gga) => match gga.storage {
                Storage::Content => line.with(
                    "--binary-content",
                    self.files.sbc(gga.geometry)[index].as_os_str(),
                ),
                Storage::Empty => sized(line, gga.geometry.half_block_size()),
            },
        };
        let (_, first) = self.run.layout.cpu_order();
        self.cpus(line, first + index)
    }

    /// Command line of the service for targets at these addresses.
    pub(super) fn service(&self, storages: &[String]) -> Vec<OsString> {
        let line = self
            .line(self.run.layout.service())
            .with("--device", DPU_DEVICE)
            .with("--representor", HOST_DEVICE)
            .with("--control-timeout", CONTROL_TIMEOUT_SECONDS);
        let mut line = std::iter::zip(self.run.layout.storage_flags(), storages)
            .fold(line, |line, (flag, storage)| {
                line.with(flag, storage.as_str())
            });
        if let Layout::Gga(gga) = self.run.layout {
            line = line
                .with("--matrix-type", self.plan.matrix_name())
                .with("--trigger-recovery-read-every-n", gga.recover_every);
            if !gga.geometry.is_compatible() {
                line = line.with("--logical-block-size", self.plan.block_size);
            }
        }
        let (service, _) = self.run.layout.cpu_order();
        self.cpus(line, service)
    }

    /// Command line of the initiator.
    pub(super) fn initiator(&self) -> Vec<OsString> {
        let plan = self.plan;
        let mut line = self
            .line("initiator")
            .with("--device", HOST_DEVICE)
            .with("--execution-strategy", self.run.strategy.name())
            .with("--run-limit-operation-count", self.run.operations)
            .with("--transaction-count", plan.transactions)
            .with("--blocks-per-io", plan.blocks_per_io)
            .with("--local-io-region-size", plan.local_io_region_size)
            .with("--control-timeout", CONTROL_TIMEOUT_SECONDS)
            .with("--io-timeout", IO_TIMEOUT_SECONDS);
        line = match self.run.plain {
            Plain::Pattern => line,
            Plain::Content => line.with("--storage-plain-content", self.files.content.as_os_str()),
            Plain::Noise => line.with("--storage-plain-content", self.files.noise().as_os_str()),
        };
        self.cpus(line, 0)
    }

    fn line(&self, role: &str) -> Line {
        let line = Line(vec![role.into()]);
        // Errors and announcements only; the demo does not use other log lines.
        if self.json {
            line.with("--output", "json").with("--log-level", 40)
        } else {
            line
        }
    }

    fn cpus(&self, line: Line, role: usize) -> Vec<OsString> {
        let roles = 2 + self.run.layout.targets().len();
        self.cpus
            .of(role, roles, self.plan.workers)
            .fold(line, |line, cpu| line.with("--cpu", cpu as u64))
            .0
    }
}

/// A command line under construction.
struct Line(Vec<OsString>);

impl Line {
    fn with(mut self, flag: &str, value: impl IntoArgument) -> Self {
        self.0.extend([flag.into(), value.into_argument()]);
        self
    }
}

trait IntoArgument {
    fn into_argument(self) -> OsString;
}

impl IntoArgument for &OsStr {
    fn into_argument(self) -> OsString {
        self.to_owned()
    }
}

macro_rules! arguments {
    ($($ty:ty)*) => { $(impl IntoArgument for $ty {
        fn into_argument(self) -> OsString {
            self.to_string().into()
        }
    })* };
}
arguments!(&str String u16 u32 u64 i32);

/// Quotes a word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("--cpu"), "--cpu");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(quoted(""), "''");
    }
}
