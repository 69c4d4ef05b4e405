//! Command line flags.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use role_common::flags::{GeneralFlags, OutputFlags, RoleFlags, size_u32};
use role_common::stored_block::{
    Checksum, Geometry, HALF_ALIGNMENT, MatrixType, STORED_ALIGNMENT, logical_block_size,
};

const EXAMPLES: &str = "\
Examples:
  Three files for three targets with half blocks of 2048 bytes:
    doca_storage_gga_offload_sbc_generator -d 03:00.0 --original-input-data data.txt \\
        --data-1 data_1.sbc --data-2 data_2.sbc --data-p data_p.sbc
  Larger blocks, and parity by a Cauchy matrix; the service needs the same --matrix-type:
    doca_storage_gga_offload_sbc_generator -d 03:00.0 --original-input-data data.txt \\
        --block-size 65536 --matrix-type cauchy \\
        --data-1 data_1.sbc --data-2 data_2.sbc --data-p data_p.sbc
  Data that does not compress, such as photos; the service needs the same --logical-block-size:
    doca_storage_gga_offload_sbc_generator -d 03:00.0 --original-input-data photos.tar \
        --logical-block-size 4096 \
        --data-1 data_1.sbc --data-2 data_2.sbc --data-p data_p.sbc";

/// Creates the initial data of the three targets of a gga_offload deployment from a file
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// DOCA device that computes the parity: PCI address, RDMA device name or network interface name
    #[arg(short, long, value_name = "DEVICE")]
    pub device: String,

    /// File with the data to store
    #[arg(long, value_name = "FILE")]
    pub original_input_data: PathBuf,

    /// Size of each block, both stored and of the data, in bytes or with a unit such as 4k: a multiple of 128. The data must compress;
    /// its last block is padded with zeros
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = block_size)]
    block_size: u32,

    /// Size of each block of the data, which need not compress: blocks in the storage are larger (by 128 bytes for
    /// 4096). Replaces --block-size
    #[arg(long, value_name = "BYTES", value_parser = logical_block_size, conflicts_with = "block_size")]
    logical_block_size: Option<u32>,

    /// Checksum in the trailer of each stored block; off writes the bytes of programs without checksums
    #[arg(long, value_enum, value_name = "KIND", default_value = "crc32c")]
    pub checksum: Checksum,

    /// Type of the erasure coding matrix
    #[arg(long, value_enum, value_name = "TYPE", default_value = "vandermonde")]
    pub matrix_type: MatrixType,

    /// .sbc file to create with the data_1 chunks
    #[arg(long = "data-1", value_name = "FILE")]
    pub data_1: PathBuf,

    /// .sbc file to create with the data_2 chunks
    #[arg(long = "data-2", value_name = "FILE")]
    pub data_2: PathBuf,

    /// .sbc file to create with the parity chunks
    #[arg(long, value_name = "FILE")]
    pub data_p: PathBuf,

    /// Show a progress line on standard error: auto shows it on a terminal
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub progress: ProgressMode,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Condition for showing the progress line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// If standard error is a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Flags {
    /// Sizes of data blocks and stored blocks.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        match self.logical_block_size {
            Some(size) => Geometry::for_logical(size).expect("the flag accepts no larger size"),
            None => Geometry::compatible(self.block_size),
        }
    }
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }
}

fn block_size(text: &str) -> Result<u32, String> {
    match size_u32(text) {
        Ok(size) if size != 0 && size.is_multiple_of(STORED_ALIGNMENT) => Ok(size),
        _ => Err(format!(
            "expected bytes or a size such as 4k, a multiple of {STORED_ALIGNMENT}: erasure coding needs half blocks that are multiples of \
             {HALF_ALIGNMENT}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use role_common::flags;
    use role_common::flags::FlagsError;

    use super::*;

    const MANDATORY: &str = "-d 03:00.0 --original-input-data in --data-1 a --data-2 b --data-p p";

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(Into::into),
        )
    }

    fn refusal(args: &str) -> String {
        match parse(args) {
            Err(FlagsError::Usage(text)) => text,
            other => panic!("{args}: {other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let flags = parse(MANDATORY).expect("flags");
        assert_eq!(flags.geometry(), Geometry::compatible(4096));
        assert_eq!(flags.matrix_type, MatrixType::Vandermonde);
        assert_eq!(flags.checksum, Checksum::Crc32c);
        assert_eq!(flags.data_p, PathBuf::from("p"));
        let flags = parse(&format!("{MANDATORY} --matrix-type cauchy --block-size 4k"));
        let flags = flags.expect("flags");
        assert_eq!(flags.geometry(), Geometry::compatible(4096));
        assert_eq!(flags.matrix_type, MatrixType::Cauchy);
    }

    #[test]
    fn errors_name_each_missing_mandatory_flag() {
        for flag in [
            "-d",
            "--original-input-data",
            "--data-1",
            "--data-2",
            "--data-p",
        ] {
            let mut words: Vec<&str> = MANDATORY.split(' ').collect();
            let at = words.iter().position(|word| *word == flag).expect("there");
            words.drain(at..at + 2);
            let name = if flag == "-d" { "--device" } else { flag };
            let text = refusal(&words.join(" "));
            assert!(text.contains(name), "{flag}: {text}");
        }
    }

    #[test]
    fn block_sizes_that_cannot_be_halved_and_encoded_are_refused() {
        for wrong in ["0", "64", "4160", "100", "-4096", "4294967296", "4q"] {
            let text = refusal(&format!("{MANDATORY} --block-size {wrong}"));
            assert!(text.contains("a multiple of 128"), "{wrong}: {text}");
        }
    }

    #[test]
    fn logical_block_size_sets_the_stored_block_size() {
        let flags = parse(&format!(
            "{MANDATORY} --logical-block-size 4096 --checksum off"
        ));
        let flags = flags.expect("flags");
        assert_eq!(flags.geometry().logical_block_size, 4096);
        assert_eq!(flags.geometry().stored_block_size, 4224);
        assert_eq!(flags.checksum, Checksum::Off);
        let text = refusal(&format!(
            "{MANDATORY} --logical-block-size 4096 --block-size 4096"
        ));
        assert!(
            text.contains(
                "'--logical-block-size <BYTES>' cannot be used with '--block-size <BYTES>'"
            ),
            "{text}"
        );
        let text = refusal(&format!("{MANDATORY} --logical-block-size 4294967295"));
        assert!(text.contains("or a size such as 4k, 1 to"), "{text}");
    }

    #[test]
    fn unknown_matrices_are_refused_with_the_known_ones() {
        let text = refusal(&format!("{MANDATORY} --matrix-type reed-solomon"));
        assert!(
            text.contains("cauchy") && text.contains("vandermonde"),
            "{text}"
        );
    }
}
