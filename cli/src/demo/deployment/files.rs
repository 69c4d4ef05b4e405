//! The files that the roles of a session read.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use role_common::stored_block::Geometry;

use crate::demo::Error;
use crate::demo::content::Content;

/// Where the files of a deployment are. Those that only some sessions need are made before the first of these.
#[derive(Debug)]
pub(super) struct Files {
    /// The content of the storage.
    pub(super) content: PathBuf,
    directory: PathBuf,
    capacity: u64,
}

impl Files {
    pub(super) fn new(content: &Content, directory: &Path) -> Self {
        Self {
            content: content.path.clone(),
            directory: directory.to_owned(),
            capacity: content.capacity,
        }
    }

    /// The set of `.sbc` files that the content makes: data_1, data_2 and data_p.
    pub(super) fn sbc(&self, geometry: Geometry) -> [PathBuf; 3] {
        let kind = if geometry.is_compatible() {
            ""
        } else {
            "logical_"
        };
        ["data_1", "data_2", "data_p"].map(|name| self.directory.join(format!("{kind}{name}.sbc")))
    }

    /// As many bytes as the storage has, none of which compress.
    pub(super) fn noise(&self) -> PathBuf {
        self.directory.join("noise.bin")
    }

    /// Writes [`noise`](Self::noise), unless it is there.
    pub(super) fn make_noise(&self) -> Result<(), Error> {
        let path = self.noise();
        if path.exists() {
            return Ok(());
        }
        write_noise(&path, self.capacity).map_err(Error::io(format!("write {}", path.display())))
    }
}

/// The sequence of splitmix64, which passes for random and is the same in every run.
fn write_noise(path: &Path, length: u64) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let mut state = 0u64;
    let mut left = length;
    while left > 0 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^= word >> 31;
        let count = left.min(8);
        file.write_all(&word.to_le_bytes()[..count as usize])?;
        left -= count;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use role_common::stored_block::{Checksum, Encoder, Place};
    use role_common::superblock::SetId;

    use super::*;

    #[test]
    fn noise_has_the_size_of_the_storage_and_does_not_compress() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("noise");
        write_noise(&path, 8199).expect("written");
        let noise = std::fs::read(&path).expect("the file");
        assert_eq!(noise.len(), 8199);
        let mut encoder = Encoder::new(Geometry::compatible(4096), Checksum::Off);
        let place = Place {
            set: SetId::NONE,
            stripe: 0,
        };
        for block in noise.chunks_exact(4096) {
            let refused = encoder.encode(block, place).expect_err("does not compress");
            assert_eq!(refused.needed, 4100);
        }
    }
}
