//! The sessions of a demo.

use crate::demo::layout::{Gga, Layout, Storage};

use super::Plan;

/// One session of the demo.
#[derive(Debug, Clone)]
pub struct Run {
    pub layout: Layout,
    /// What the table calls it.
    pub title: &'static str,
    /// What the initiator does.
    pub strategy: Strategy,
    /// What the initiator compares with, or writes.
    pub plain: Plain,
    /// Operations of each worker.
    pub operations: u32,
}

/// What an initiator does in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    ReadThroughput,
    WriteThroughput,
    ReadValidation,
    WriteReadValidation,
}

/// Bytes that an initiator knows or makes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Its own pattern, another one in each pass.
    Pattern,
    /// The content of the storage.
    Content,
    /// Bytes that do not compress.
    Noise,
}

impl Strategy {
    /// The value of the initiator's `--execution-strategy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadThroughput => "read_throughput_test",
            Self::WriteThroughput => "write_throughput_test",
            Self::ReadValidation => "read_only_data_validity_test",
            Self::WriteReadValidation => "read_write_data_validity_test",
        }
    }

    pub(super) fn reads(self) -> bool {
        self != Self::WriteThroughput
    }

    pub(super) fn writes(self) -> bool {
        matches!(self, Self::WriteThroughput | Self::WriteReadValidation)
    }
}

impl Plan {
    /// The sessions, those of one layout together. Each is long enough for two passes over the storage, unless the user says
    /// how long throughput tests are.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        if self.layout.has_zero_copy() {
            runs.extend(self.zero_copy_runs());
        }
        if self.layout.has_gga() {
            runs.extend(self.gga_runs());
        }
        runs
    }

    /// Every strategy.
    fn zero_copy_runs(&self) -> [Run; 5] {
        let run = |title, strategy, plain, operations| Run {
            layout: Layout::ZeroCopy,
            title,
            strategy,
            plain,
            operations,
        };
        let throughput = self.throughput_operations;
        [
            run(
                "read the file, compare",
                Strategy::ReadValidation,
                Plain::Content,
                self.pass * 2,
            ),
            run(
                "read throughput",
                Strategy::ReadThroughput,
                Plain::Pattern,
                throughput,
            ),
            run(
                "write throughput",
                Strategy::WriteThroughput,
                Plain::Pattern,
                throughput,
            ),
            run(
                "write the file, read it back",
                Strategy::WriteReadValidation,
                Plain::Content,
                self.pass * 2,
            ),
            run(
                "write a pattern, read it back",
                Strategy::WriteReadValidation,
                Plain::Pattern,
                self.pass * 3,
            ),
        ]
    }

    /// What three targets can get wrong: every half of every block is read and made anew from the others, whether the
    /// generator made it or the service.
    fn gga_runs(&self) -> [Run; 6] {
        let read = |title, recover_every| Run {
            layout: Layout::Gga(Gga {
                geometry: self.content_geometry,
                storage: Storage::Content,
                recover_every,
            }),
            title,
            strategy: Strategy::ReadValidation,
            plain: Plain::Content,
            operations: self.pass * 2,
        };
        let write = |title, geometry, storage, plain| Run {
            layout: Layout::Gga(Gga {
                geometry,
                storage,
                // Odd, so that a second pass does not recover the blocks of the first again.
                recover_every: 3,
            }),
            title,
            strategy: Strategy::WriteReadValidation,
            plain,
            operations: self.pass * 2,
        };
        [
            read("read the file, recover every block", 1),
            read("read the file, recover every 2nd", 2),
            read("read the file, recover every 10th", 10),
            write(
                "write the file, read it back",
                self.content_geometry,
                Storage::Empty,
                Plain::Content,
            ),
            write(
                "write a pattern, read it back",
                self.content_geometry,
                Storage::Content,
                Plain::Pattern,
            ),
            write(
                "write random bytes, read them back",
                self.any_geometry,
                Storage::Content,
                Plain::Noise,
            ),
        ]
    }
}
