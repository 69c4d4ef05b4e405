//! The checksum in the trailer.

use clap::ValueEnum;
use serde::Serialize;

/// What is written into the trailer of a stored block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checksum {
    /// CRC-32C of the bytes before the trailer
    #[default]
    Crc32c,
    /// 0, as the reference writes it
    Off,
}

/// The trailer for a stored block whose other bytes are `bytes_before`: their CRC-32C (Castagnoli), or 1 where that is
/// 0, because 0 says that there is none.
#[must_use]
pub fn checksum_of(bytes_before: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes_before).max(1)
}
