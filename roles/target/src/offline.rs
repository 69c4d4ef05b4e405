//! Read-only access to a backing file without a target, for tools that examine and verify sets.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::Path;

use control::Failure;
use doca::ErrorCode;
use role_formats::superblock::Superblock;
use wire::backing::{CONTENT_OFFSET, HEADER_SIZE};

use crate::backing::{FileHeader, parse_header, read_superblocks, read_versions, size};
use crate::content::io_failure;
use crate::metadata::Boot;
use crate::versions::{Log, Version};

/// A backing file, opened for reading.
#[derive(Debug)]
pub struct OfflineFile {
    file: File,
    name: String,
    header: FileHeader,
    superblock: Option<Superblock>,
    log: Log,
}

impl OfflineFile {
    /// Opens a file that a target may be using: superblock and header are consistent, but versions may change.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not an intact backing file.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        Self::of(file_at(path, &name)?, name)
    }

    /// Opens a file that no target uses, and prevents targets from opening it until this value is dropped.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), or a target is using it.
    pub fn open_locked(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = file_at(path, &name)?;
        match file.try_lock_shared() {
            Ok(()) => Self::of(file, name),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                ErrorCode::IN_USE,
                format!(
                    "{name}: expected a file that no target uses, got one in use; stop the target first"
                ),
            )),
            Err(TryLockError::Error(error)) => Err(io_failure(&name, &error)),
        }
    }

    fn of(file: File, name: String) -> Result<Self, Failure> {
        let failed = |error: io::Error| io_failure(&name, &error);
        let length = size(&file).map_err(failed)?;
        let mut start = [0; HEADER_SIZE];
        let available = HEADER_SIZE.min(usize::try_from(length).unwrap_or(HEADER_SIZE));
        let start = &mut start[..available];
        file.read_exact_at(start, 0).map_err(failed)?;
        let header = parse_header(start, length).map_err(|failure| failure.context(&name))?;
        let boot = Boot::now()?;
        let superblock = read_superblocks(&file, &name)?.newest();
        let block_size = header.geometry.block_size;
        let (log, _) = read_versions(&file, &name, header.slots, block_size)?;
        Ok(Self {
            file,
            name,
            header,
            superblock: superblock.map(|it| it.reported(boot)),
            log,
        })
    }

    /// Geometry, identity and place of the versions.
    #[must_use]
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// The superblock that a target on this machine would report; `None` if the file does not belong to a set.
    #[must_use]
    pub fn superblock(&self) -> Option<Superblock> {
        self.superblock
    }

    /// The newest version that was written; [`Version::NONE`] if there is none.
    #[must_use]
    pub fn last(&self) -> Version {
        self.log.last()
    }

    /// Versions below this one are complete and durable on all members of the set, according to the file.
    #[must_use]
    pub fn retired(&self) -> Version {
        self.log.retired()
    }

    /// Numbers of the blocks with a version that is not retired, in ascending order.
    #[must_use]
    pub fn unretired(&self) -> Vec<u64> {
        self.log.unretired()
    }

    /// Reads the newest version of a block into `bytes`, which has the size of a block.
    ///
    /// # Errors
    ///
    /// The block cannot be read.
    ///
    /// # Panics
    ///
    /// If the block does not exist, or `bytes` has another size.
    pub fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        let geometry = self.header.geometry;
        assert!(
            block < u64::from(geometry.block_count) && bytes.len() == geometry.block_size as usize
        );
        let offset = match self.log.find(block, None) {
            Some(slot) => self.header.slots.offset_of(slot),
            None => CONTENT_OFFSET + block * u64::from(geometry.block_size),
        };
        let read = self.file.read_exact_at(bytes, offset);
        read.map_err(|error| io_failure(&self.name, &error).context(format_args!("block {block}")))
    }
}

fn file_at(path: &Path, name: &str) -> Result<File, Failure> {
    let failed = |error: io::Error| io_failure(name, &error);
    // Checked before opening, because opening a pipe blocks until its other end is opened.
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        let message = format!("{name}: expected a regular file or a block device");
        return Err(Failure::invalid(message));
    }
    OpenOptions::new().read(true).open(path).map_err(failed)
}
