//! Reads the data to store, block by block.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use role_common::Failure;
use role_common::stored_block::Geometry;
use wire::sbc;

use crate::io_failure;

/// Size of a read from the file in bytes, if blocks are smaller.
const READ_AHEAD: usize = 1 << 20;

/// An input file, split into blocks; the last one is padded with zeros.
#[derive(Debug)]
pub(crate) struct Input {
    name: String,
    reader: BufReader<File>,
    /// Bytes not yet read.
    left: u64,
    block: Vec<u8>,
    block_count: u32,
}

impl Input {
    /// Opens the file, and checks that its half blocks fit into a `.sbc` file.
    pub(crate) fn open(path: &Path, geometry: Geometry) -> Result<Self, Failure> {
        let name = format!("--original-input-data {}", path.display());
        let failed = |error| io_failure(&name, &error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Failure::invalid(format!("{name}: expected a regular file")));
        }
        let block_count =
            block_count(metadata.len(), geometry).map_err(|failure| failure.context(&name))?;
        Ok(Self {
            name,
            reader: BufReader::with_capacity(READ_AHEAD, file),
            left: metadata.len(),
            block: vec![0; geometry.logical_block_size as usize],
            block_count,
        })
    }

    /// Number of blocks, at least 1.
    pub(crate) fn block_count(&self) -> u32 {
        self.block_count
    }

    /// Returns the next block, of logical block size. May be called [`block_count`](Self::block_count) times.
    pub(crate) fn next_block(&mut self) -> Result<&[u8], Failure> {
        let length =
            usize::try_from(self.left).map_or(self.block.len(), |left| left.min(self.block.len()));
        self.reader
            .read_exact(&mut self.block[..length])
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Failure::unexpected(format!(
                    "{}: the file became shorter while it was read; run the generator again when nobody writes it",
                    self.name
                )),
                _ => io_failure(&self.name, &error),
            })?;
        self.block[length..].fill(0);
        self.left -= length as u64;
        Ok(&self.block)
    }
}

fn block_count(length: u64, geometry: Geometry) -> Result<u32, Failure> {
    if length == 0 {
        return Err(Failure::invalid(
            "expected content for at least one block, the file is empty",
        ));
    }
    let block_size = geometry.logical_block_size;
    let blocks = length.div_ceil(u64::from(block_size));
    // Each file has half of each stored block.
    let largest = sbc::MAX_CONTENT / u64::from(geometry.half_block_size());
    match u32::try_from(blocks) {
        Ok(count) if blocks <= largest => Ok(count),
        _ => Err(Failure::invalid(format!(
            "expected at most {largest} blocks of {block_size} bytes, since a .sbc file holds at most {} bytes of content, \
             found {blocks}; split the file, or store its first part only",
            sbc::MAX_CONTENT
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn blocks(length: u64, block_size: u32) -> Result<u32, Failure> {
        block_count(length, Geometry::compatible(block_size))
    }

    #[test]
    fn last_block_is_padded_with_zeros() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[9; 300]).expect("written");
        let mut input = Input::open(file.path(), Geometry::compatible(256)).expect("opened");
        assert_eq!(input.block_count(), 2);
        assert_eq!(input.next_block().expect("full"), [9; 256]);
        let mut expected = [0; 256];
        expected[..44].fill(9);
        assert_eq!(input.next_block().expect("filled up"), expected);
    }

    #[test]
    fn shrinking_file_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[9; 512]).expect("written");
        let mut input = Input::open(file.path(), Geometry::compatible(256)).expect("opened");
        file.as_file().set_len(300).expect("shrunk");
        input.next_block().expect("the first is whole");
        let failure = input.next_block().expect_err("the second is not");
        assert!(failure.to_string().contains("became shorter"), "{failure}");
    }

    #[test]
    fn set_has_at_least_one_block_and_at_most_2_gib_per_file() {
        assert_eq!(blocks(1, 4096), Ok(1));
        assert_eq!(blocks(4096, 4096), Ok(1));
        assert_eq!(blocks(4097, 4096), Ok(2));
        assert_eq!(blocks(4 << 30, 4096), Ok(1 << 20));
        assert_eq!(blocks(4 << 30, 128), Ok(1 << 25));
        for wrong in [0, (4 << 30) + 1, u64::MAX] {
            let failure = blocks(wrong, 4096).expect_err("refused");
            assert!(failure.message.starts_with("expected"), "{failure}");
        }
        // The files are larger than the content, because stored blocks are.
        let logical = Geometry::for_logical(4096).expect("small");
        let most = sbc::MAX_CONTENT / 2112;
        assert_eq!(block_count(most * 4096, logical), Ok(1_016_800));
        assert!(block_count(most * 4096 + 1, logical).is_err());
        // A partial block does not fit.
        assert_eq!(blocks(4 << 30, 384), blocks((4 << 30) + 1, 384));
    }
}
