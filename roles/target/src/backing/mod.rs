//! `--backing-file`: blocks that outlive the target.
//!
//! The blocks are a shared mapping of the file: what was written is in the file as soon as it is acknowledged, and survives
//! the end of the process, even by `kill -9`. A clean stop, and nothing before it, makes it survive the end of the machine.

mod header;
pub mod set_record;

pub use crate::identity::Boot;
pub use header::{Identity, check, emit};
pub use set_record::Noted;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use doca::{ErrorCode, MemoryRegion};
use role_common::Failure;
use wire::backing::{CONTENT_OFFSET, HEADER_SIZE, RECORD_OFFSET, RECORD_SIZE};

use crate::content::{Content, Geometry, io_failure};

/// An open backing file. Nobody else opens it as one meanwhile.
#[derive(Debug)]
pub struct BackingFile {
    file: File,
    name: String,
    region: Arc<MemoryRegion>,
    /// What is before the blocks.
    head: Arc<MemoryRegion>,
    identity: Identity,
}

impl BackingFile {
    /// Opens the file, or makes it and gives it this content, which is read for nothing else.
    ///
    /// # Errors
    ///
    /// The file is in use by another target, has another geometry than `content`, or is no backing file; it cannot be made, or
    /// not be read.
    pub fn open(path: &Path, content: Content) -> Result<Self, Failure> {
        let name = format!("--backing-file {}", path.display());
        let failed = |error: io::Error| io_failure(&name, &error);
        // Before it is opened: to open a pipe waits for its other end.
        match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(Failure::invalid(format!("{name}: expected a regular file")));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    ErrorCode::IN_USE,
                    format!(
                        "{name}: another target uses it; two would overwrite each other's blocks"
                    ),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let length = file.metadata().map_err(failed)?.len();
        let geometry = content.geometry;
        let identity = if length == 0 {
            create(&file, &name, content)?
        } else {
            let mut start = [0; HEADER_SIZE];
            let came = HEADER_SIZE.min(usize::try_from(length).unwrap_or(HEADER_SIZE));
            file.read_exact_at(&mut start[..came], 0).map_err(failed)?;
            let identity = check(&start[..came], length, geometry)
                .map_err(|failure| failure.context(&name))?;
            tracing::info!("{name}: content {identity}, of an earlier run");
            identity
        };
        let region = map(&file, &name, geometry)?;
        let head = MemoryRegion::map_file(&file, 0, CONTENT_OFFSET as usize)
            .map_err(|error| Failure::from(error).context(&name))?;
        Ok(Self {
            file,
            name,
            region,
            head,
            identity,
        })
    }

    /// The blocks.
    #[must_use]
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// What tells this content from any other.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The superblock of the target. A damaged one is logged and counts as none, so that a service rebuilds the blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read_superblock(&self) -> Result<Option<Noted>, Failure> {
        let mut bytes = [0; RECORD_SIZE];
        self.file
            .read_exact_at(&mut bytes, RECORD_OFFSET)
            .map_err(|error| io_failure(&self.name, &error))?;
        Ok(set_record::parse(&bytes).unwrap_or_else(|damage| {
            tracing::warn!("{}: the superblock is damaged: {damage}", self.name);
            None
        }))
    }

    /// Writes the superblock, and waits until it is on the disk, which takes no longer because blocks are on their way there, too.
    ///
    /// # Errors
    ///
    /// The disk failed.
    pub fn write_superblock(&self, noted: &Noted) -> Result<(), Failure> {
        // By one call of the system, which no signal ends in the middle.
        let written = self
            .file
            .write_all_at(&set_record::emit(noted), RECORD_OFFSET);
        written
            .map_err(|error| io_failure("its superblock", &error))
            .and_then(|()| self.head.sync().map_err(Failure::from))
            .map_err(|failure| failure.context(&self.name))
    }

    /// Waits until the blocks are on the disk.
    ///
    /// # Errors
    ///
    /// They are not all there: the disk failed.
    pub fn sync(&self) -> Result<(), Failure> {
        let synced = self.region.sync().map_err(Failure::from).and_then(|()| {
            self.file
                .sync_all()
                .map_err(|error| io_failure("sync", &error))
        });
        synced.map_err(|failure| failure.context(&self.name))?;
        tracing::info!("{}: all blocks are on the disk", self.name);
        Ok(())
    }
}

/// Makes a new file of this content. The header comes last: a file that was not finished has none.
fn create(file: &File, name: &str, content: Content) -> Result<Identity, Failure> {
    let failed = |error: io::Error| io_failure(name, &error);
    let geometry = content.geometry;
    let length = CONTENT_OFFSET
        .checked_add(geometry.capacity())
        .filter(|&length| i64::try_from(length).is_ok())
        .ok_or_else(|| Failure::invalid(format!("{name}: no file has so many bytes")))?;
    reserve(file, length).map_err(failed)?;
    let region = map(file, name, geometry)?;
    let mut written = Ok(());
    content.copy_to(|offset, piece| {
        // The offset is below the capacity, which fits.
        let result = region.write(usize::try_from(offset).unwrap_or(usize::MAX), piece);
        if written.is_ok() {
            written = result;
        }
    })?;
    written?;
    region.sync()?;
    file.sync_all().map_err(failed)?;
    let identity = Identity::random()?;
    file.write_all_at(&emit(geometry, identity), 0)
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    tracing::info!("{name}: made, content {identity}");
    Ok(identity)
}

/// Makes the file so long, and takes the room for it on the disk: a write to a page for which there is none ends the process.
fn reserve(file: &File, length: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            tracing::warn!(
                "the file system cannot reserve {length} bytes; see to it that it does not become full"
            );
            file.set_len(length)
        }
        Err(error) => {
            // Not finished, and not in the way of a next attempt.
            let _ = file.set_len(0);
            Err(error.into())
        }
    }
}

fn map(file: &File, name: &str, geometry: Geometry) -> Result<Arc<MemoryRegion>, Failure> {
    let capacity = usize::try_from(geometry.capacity())
        .map_err(|_| Failure::invalid(format!("{name}: too large for this machine's addresses")))?;
    MemoryRegion::map_file(file, CONTENT_OFFSET, capacity)
        .map_err(|error| Failure::from(error).context(name))
}

#[cfg(test)]
mod tests;
