//! What is tried with each mix.

use serde::Serialize;

/// What an initiator does in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Reads, and looks at no content.
    ReadThroughput,
    /// Writes, and looks at no content.
    WriteThroughput,
    /// Reads what the targets began with, and compares.
    ReadValidation,
    /// Writes, reads it back, and compares.
    WriteReadValidation,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::ReadThroughput,
        Self::WriteThroughput,
        Self::ReadValidation,
        Self::WriteReadValidation,
    ];

    /// The value of the initiator's `--execution-strategy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadThroughput => "read_throughput_test",
            Self::WriteThroughput => "write_throughput_test",
            Self::ReadValidation => "read_only_data_validity_test",
            Self::WriteReadValidation => "read_write_data_validity_test",
        }
    }

    /// Reads of each operation.
    pub(super) fn reads(self) -> u64 {
        u64::from(self != Self::WriteThroughput)
    }

    /// Writes of each operation.
    pub(super) fn writes(self) -> u64 {
        u64::from(matches!(
            self,
            Self::WriteThroughput | Self::WriteReadValidation
        ))
    }

    /// Whether the initiator compares content, and so has to know it.
    pub(super) fn validates(self) -> bool {
        matches!(self, Self::ReadValidation | Self::WriteReadValidation)
    }
}

/// One session with a mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Everybody does as well as they can.
    Strategy(Strategy),
    /// A target fails one I/O for no reason that the others could know.
    FailingIo,
    /// The initiator is made to ask for a block behind the end of the targets, which they cannot do.
    IoPastEnd,
    /// A target holds a block with one wrong byte.
    CorruptBlock,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Strategy(Strategy::ReadThroughput),
        Self::Strategy(Strategy::WriteThroughput),
        Self::Strategy(Strategy::ReadValidation),
        Self::Strategy(Strategy::WriteReadValidation),
        Self::FailingIo,
        Self::IoPastEnd,
        Self::CorruptBlock,
    ];

    /// The strategy's name, `failing_io`, `io_past_end` or `corrupt_block`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strategy(strategy) => strategy.name(),
            Self::FailingIo => "failing_io",
            Self::IoPastEnd => "io_past_end",
            Self::CorruptBlock => "corrupt_block",
        }
    }

    /// What it proves.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Strategy(Strategy::ReadThroughput | Strategy::WriteThroughput) => {
                "every I/O is answered with success, all roles count the same number of I/Os, end well and leave nothing behind; \
                 nobody looks at the bytes"
            }
            Self::Strategy(Strategy::ReadValidation) => {
                "as with throughput, and every block read is what the target's file (of the generator, in gga) says"
            }
            Self::Strategy(Strategy::WriteReadValidation) => {
                "as with throughput, and every block read back is what was written before"
            }
            Self::FailingIo => {
                "a scripted target in place of the mix's only, or first, one answers one I/O with DOCA_ERROR_IO_FAILED: the \
                 initiator fails and says so, unless a role of the mix is known to hide it"
            }
            Self::IoPastEnd => {
                "relays between service and targets tell of one block more than there is, so that the mix's own targets get an I/O \
                 that they cannot do: the initiator fails and says so, unless a role of the mix is known to hide it"
            }
            Self::CorruptBlock => {
                "a byte of one block in the target's (in gga, data_1's) file is wrong: the initiator's comparison finds it, or \
                 the gga service makes the block anew from its parity"
            }
        }
    }
}
