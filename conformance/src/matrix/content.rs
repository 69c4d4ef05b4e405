//! Contents of the storage.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use wire::sbc::HEADER_SIZE;

use super::mix::{Member, Mix};
use deployment::implementation::Layout;
use deployment::implementation::Role;
use deployment::process::Process;
use deployment::sandbox::{DPU_DEVICE, Sandbox};

/// Number of blocks of the storage, as presented to the initiator.
pub(super) const BLOCKS: usize = 256;
/// Block size in bytes, as presented to the initiator.
pub(super) const BLOCK_SIZE: usize = 4096;
/// Block size in bytes on each target of a gga deployment.
pub(super) const HALF_BLOCK_SIZE: usize = BLOCK_SIZE / 2;
/// Number of the corrupt block, in checks that have one.
pub(super) const CORRUPT: usize = 13;

/// Number of bytes at the start of each block that occur nowhere else, so that LZ4 encoders cannot refer to earlier data.
const UNIQUE: usize = 128;
/// Offset of the changed byte in a corrupt block, plain or stored. In a stored block it is after the header (8 bytes), the size of
/// the LZ4 block (4) and the token with the length of its first literals (2), so it is one of these literals: the block
/// decompresses to data with one wrong byte. A block that cannot be decompressed would be another test.
const PLACE: usize = 60;

/// Contents of the storage: compressible blocks that are all different.
pub(super) fn plain() -> Vec<u8> {
    let mut word = 1u64;
    let mut content = Vec::with_capacity(BLOCKS * BLOCK_SIZE);
    for block in 0..BLOCKS {
        for _ in 0..UNIQUE {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            content.push((word >> 56) as u8);
        }
        let line = format!("block {block} of the storage\n");
        content.extend(line.bytes().cycle().take(BLOCK_SIZE - UNIQUE));
    }
    content
}

/// Changes one byte of block [`CORRUPT`] of `stored`, whose blocks have `block_size` bytes.
pub(super) fn corrupt(stored: &mut [u8], block_size: usize) {
    stored[CORRUPT * block_size + PLACE] ^= 0x20;
}

// Initial contents of the targets.

/// Contents of the files of one session.
#[derive(Debug, Clone)]
pub(super) struct Files {
    /// Contents of the storage, as presented to the initiator.
    pub(super) plain: Vec<u8>,
    /// Initial contents of each target: plain bytes, or a `.sbc` file.
    pub(super) targets: Vec<Vec<u8>>,
    /// Size of a target's block in bytes. In gga, half of the initiator's; for generators of versions 3.0 and 3.1 of
    /// the reference, all of it.
    pub(super) block_size: usize,
}

/// The three `.sbc` files of a generator, or its failure.
type Generated = Result<Vec<Vec<u8>>, String>;

/// Files that are generated once for all sessions.
#[derive(Debug)]
pub(super) struct Library {
    plain: Vec<u8>,
    /// By name of the generator's implementation.
    generated: Mutex<BTreeMap<String, Generated>>,
    /// Time limit of a generator.
    timeout: Duration,
}

impl Library {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            plain: plain(),
            generated: Mutex::default(),
            timeout,
        }
    }

    /// Returns the files of a mix.
    ///
    /// # Errors
    ///
    /// They could not be generated.
    pub(super) fn of(&self, mix: &Mix<'_>, cpu: usize) -> Result<Files, String> {
        let plain = self.plain.clone();
        let targets = match (mix.layout, mix.generator) {
            (Layout::ZeroCopy, _) => vec![plain.clone()],
            (Layout::Gga, None) => {
                return Err(format!("no implementation has a {}", Role::SbcGenerator));
            }
            (Layout::Gga, Some(member)) => {
                // Locked while the generator runs, so that no other session generates the same files.
                let mut generated = self
                    .generated
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                generated
                    .entry(member.name().to_owned())
                    .or_insert_with(|| self.generate(member, cpu))
                    .clone()?
            }
        };
        let block_size = match mix.layout {
            Layout::ZeroCopy => BLOCK_SIZE,
            Layout::Gga => (targets[0].len() - HEADER_SIZE) / BLOCKS,
        };
        Ok(Files {
            plain,
            targets,
            block_size,
        })
    }

    fn generate(&self, member: &Member, cpu: usize) -> Generated {
        let io = |error: io::Error| format!("{}'s generator: {error}", member.name());
        let sandbox = Sandbox::new().map_err(io)?;
        let original = sandbox.file("original", &self.plain).map_err(io)?;
        let mut command = member
            .command(Role::SbcGenerator, cpu)
            .map_err(|error| error.to_string())?;
        command
            .args(["--device", DPU_DEVICE])
            .arg("--original-input-data")
            .arg(original)
            .args(["--block-size", &BLOCK_SIZE.to_string()]);
        let files = Layout::Gga.targets().iter().map(|name| sandbox.path(name));
        let files: Vec<_> = files.collect();
        for (flag, path) in std::iter::zip(["--data-1", "--data-2", "--data-p"], &files) {
            command.arg(flag).arg(path);
        }
        sandbox.place(&mut command);
        Process::spawn(Role::SbcGenerator.name(), command)
            .and_then(|process| process.finish(Instant::now() + self.timeout, || false))
            .map_err(|failure| format!("{}'s {failure}", member.name()))?;
        let read = |path| std::fs::read(path).map_err(io);
        let files: Vec<_> = files.iter().map(read).collect::<Result<_, _>>()?;
        let expected = [HALF_BLOCK_SIZE, BLOCK_SIZE].map(|size| HEADER_SIZE + BLOCKS * size);
        let length = files[0].len();
        let is_wrong = |file: &&Vec<u8>| file.len() != length || !expected.contains(&length);
        match files.iter().find(is_wrong) {
            Some(file) => Err(format!(
                "{}'s generator: expected files of {} bytes each, or of {}, got one of {}",
                member.name(),
                expected[0],
                expected[1],
                file.len()
            )),
            None => Ok(files),
        }
    }
}

impl Files {
    /// Corrupts a block of the first target.
    pub(super) fn corrupt(&mut self, layout: Layout) {
        let file = &mut self.targets[0];
        match layout {
            Layout::ZeroCopy => corrupt(file, BLOCK_SIZE),
            Layout::Gga => corrupt(&mut file[HEADER_SIZE..], self.block_size),
        }
    }

    /// Rotates the contents by one block, so that the blocks that a session writes differ from the initial ones, and
    /// a missing write is detected.
    pub(super) fn shift(&mut self, layout: Layout) {
        for file in &mut self.targets {
            match layout {
                Layout::ZeroCopy => file.rotate_left(BLOCK_SIZE),
                Layout::Gga => file[HEADER_SIZE..].rotate_left(self.block_size),
            }
        }
    }

    /// Contents of the first target, without the file header.
    pub(super) fn first_content(&self, layout: Layout) -> &[u8] {
        match layout {
            Layout::ZeroCopy => &self.targets[0],
            Layout::Gga => &self.targets[0][HEADER_SIZE..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_hits_a_literal() {
        let content = plain();
        assert_eq!(content.len(), BLOCKS * BLOCK_SIZE);
        let block = &content[CORRUPT * BLOCK_SIZE..][..BLOCK_SIZE];
        let mut stored = vec![0; 12];
        stored.extend(lz4_flex::block::compress(block));
        assert!(stored.len() < BLOCK_SIZE - 4);
        stored[PLACE] ^= 0x20;
        let read = lz4_flex::block::decompress(&stored[12..], BLOCK_SIZE).expect("still LZ4");
        let wrong = std::iter::zip(block, &read).filter(|(a, b)| a != b).count();
        assert_eq!((read.len(), wrong), (BLOCK_SIZE, 1));
    }

    #[test]
    fn corruption_changes_one_byte() {
        let content = plain();
        let mut changed = content.clone();
        corrupt(&mut changed, BLOCK_SIZE);
        let wrong: Vec<_> = (0..content.len())
            .filter(|&i| content[i] != changed[i])
            .collect();
        assert_eq!(wrong, [CORRUPT * BLOCK_SIZE + PLACE]);
    }
}
