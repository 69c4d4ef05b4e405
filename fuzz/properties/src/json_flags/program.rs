//! The programs, by their flags.

use std::ffi::OsString;
use std::sync::LazyLock;

use clap::{Command, CommandFactory as _};
use role_common::flags::FlagsError;

use super::described;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the roles")]
pub enum Program {
    Target,
    ZeroCopy,
    GgaOffload,
    Initiator,
    SbcGenerator,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Target,
        Self::ZeroCopy,
        Self::GgaOffload,
        Self::Initiator,
        Self::SbcGenerator,
    ];

    /// Its flags, as it describes them.
    #[must_use]
    pub fn command(self) -> &'static Command {
        // Making them takes as long as reading flags.
        static COMMANDS: LazyLock<[Command; 5]> = LazyLock::new(|| {
            [
                role_target::cli::Flags::command(),
                role_zero_copy::cli::Flags::command(),
                role_gga_offload::cli::Flags::command(),
                role_initiator::cli::Flags::command(),
                role_sbc_generator::cli::Flags::command(),
            ]
        });
        &COMMANDS[self as usize]
    }

    /// Reads its flags; says what they are, but for the file that they come from.
    pub(super) fn configuration(self, arguments: Vec<OsString>) -> Result<String, FlagsError> {
        match self {
            Self::Target => {
                let forget = |flags: &mut role_target::cli::Flags| flags.general.json = None;
                let flags = described(role_target::NAME, arguments, forget)?;
                Ok(format!("{flags:?}"))
            }
            Self::ZeroCopy => {
                let forget = |flags: &mut role_zero_copy::cli::Flags| flags.general.json = None;
                let flags = described(role_zero_copy::NAME, arguments, forget)?;
                Ok(format!("{flags:?}"))
            }
            Self::GgaOffload => {
                let forget = |flags: &mut role_gga_offload::cli::Flags| flags.general.json = None;
                let flags = described(role_gga_offload::NAME, arguments, forget)?;
                Ok(format!("{flags:?}, {:?}", flags.checksum.written()))
            }
            Self::Initiator => {
                let forget = |flags: &mut role_initiator::cli::Flags| flags.general.json = None;
                let flags = described(role_initiator::cli::NAME, arguments, forget)?;
                Ok(format!("{flags:?}, {:?}", flags.check()))
            }
            Self::SbcGenerator => {
                let forget = |flags: &mut role_sbc_generator::cli::Flags| flags.general.json = None;
                let flags = described(role_sbc_generator::NAME, arguments, forget)?;
                Ok(format!("{flags:?}, {:?}", flags.geometry()))
            }
        }
    }
}
