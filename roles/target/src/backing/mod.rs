//! `--backing-file`: blocks in a regular file or on a block device, which outlive the target.
//!
//! What was acknowledged survives the end of the process, even by `kill -9`. What was flushed, written with FUA, or written before a clean stop
//! survives a power failure.

mod header;
pub mod superblock;

pub use crate::identity::Boot;
pub use header::{Identity, check, emit};
pub use superblock::Noted;

use std::fmt;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use doca::ErrorCode;
use role_common::Failure;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use wire::backing::{CONTENT_OFFSET, HEADER_SIZE, RECORD_OFFSETS, RECORD_SIZE};

use crate::content::{Content, Geometry, io_failure};
use crate::store::Health;
use superblock::Places;

/// Alignment of direct I/O where the file system does not say what it wants, and the largest that is supported.
const LARGEST_SECTOR: u64 = 4096;

/// Bytes that are zeroed at a time where the system cannot do it.
const PIECE: usize = 1 << 20;

/// How blocks get to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum BackingIo {
    /// Direct I/O where the file system has it, else buffered
    #[default]
    Auto,
    /// Past the page cache of the kernel (O_DIRECT)
    Direct,
    /// Through the page cache of the kernel
    Buffered,
}

/// What may be done to have a backing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// How blocks get to the disk.
    pub io: BackingIo,
    /// `true` if an existing file that is no backing file becomes one.
    pub initialise: bool,
}

/// An open backing file. No other target opens it meanwhile.
pub struct BackingFile {
    /// Where the header and the superblocks are read and written, through the page cache.
    file: File,
    /// Where the blocks are.
    blocks: Arc<File>,
    path: PathBuf,
    name: String,
    /// Reads and writes of [`Self::blocks`] begin and end at multiples of this.
    sector: u64,
    /// Bytes that it has at least.
    length: u64,
    /// Device and inode.
    inode: (u64, u64),
    is_device: bool,
    /// `true` if all its bytes have their place on the disk, as far as the file system says.
    is_reserved: bool,
    identity: Identity,
    places: Mutex<Places>,
    health: Arc<Health>,
}

impl fmt::Debug for BackingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackingFile")
            .field("name", &self.name)
            .field("sector", &self.sector)
            .field("length", &self.length)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl BackingFile {
    /// Opens the file, or makes it and gives it this content, which is read for nothing else. Its space on the disk is reserved.
    ///
    /// # Errors
    ///
    /// The file is in use by another target, has another geometry than `content`, or is no backing file; it cannot be made or read; the
    /// disk has no space for it; it cannot be used with the kind of I/O that is asked for. A file that was made is removed again.
    pub fn open(path: &Path, content: Content, options: Options) -> Result<Self, Failure> {
        let name = format!("--backing-file {}", path.display());
        let failed = |error: io::Error| io_failure(&name, &error);
        match std::fs::metadata(path) {
            Ok(metadata) => Self::open_existing(path, name, &metadata, content, options),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)
                    .map_err(failed)?;
                let made = lock(&file, &name)
                    .and_then(|()| Self::make(file, path, &name, false, content, options.io));
                if made.is_err() {
                    // It is of no use, and in the way of a next attempt.
                    if let Err(error) = std::fs::remove_file(path) {
                        tracing::warn!("{name}: cannot be removed: {error}");
                    }
                }
                made
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn open_existing(
        path: &Path,
        name: String,
        metadata: &Metadata,
        content: Content,
        options: Options,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| io_failure(&name, &error);
        let is_device = metadata.file_type().is_block_device();
        // Before it is opened: to open a pipe waits for its other end.
        if !is_device && !metadata.is_file() {
            return Err(Failure::invalid(format!(
                "{name}: expected a regular file or a block device"
            )));
        }
        // Of a block device: one that is mounted is in use.
        let flags = if is_device {
            OFlags::EXCL
        } else {
            OFlags::empty()
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(
                |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::BUSY) => in_use(&name),
                    _ => failed(error),
                },
            )?;
        lock(&file, &name)?;
        let length = size(&file).map_err(failed)?;
        let mut start = [0; HEADER_SIZE];
        let came = HEADER_SIZE.min(usize::try_from(length).unwrap_or(HEADER_SIZE));
        file.read_exact_at(&mut start[..came], 0).map_err(failed)?;
        let start = &start[..came];
        if !header::is_header(start) && options.initialise {
            return Self::make(file, path, &name, is_device, content, options.io);
        }
        let geometry = content.geometry;
        let identity = check(start, length, geometry).map_err(|mut failure| {
            if !header::is_header(start) {
                failure.message += "; --initialise makes it one, and what it holds is lost";
            }
            failure.context(&name)
        })?;
        tracing::info!("{name}: content {identity}, of an earlier run");
        Self::finish(file, path, &name, is_device, geometry, identity, options.io)
    }

    /// Makes a backing file of this content. The header comes last: a file that was not finished has none.
    fn make(
        file: File,
        path: &Path,
        name: &str,
        is_device: bool,
        content: Content,
        io: BackingIo,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| io_failure(name, &error);
        let geometry = content.geometry;
        if is_device {
            let (has, needed) = (size(&file).map_err(failed)?, length_of(name, geometry, 1)?);
            if has < needed {
                return Err(Failure::invalid(format!(
                    "{name}: expected a device of at least {needed} bytes, found {has}"
                )));
            }
            zero(&file, needed).map_err(failed)?;
        } else {
            file.set_len(0).map_err(failed)?;
            reserve(&file, name, length_of(name, geometry, LARGEST_SECTOR)?)?;
        }
        let mut written = Ok(());
        content.copy_to(|offset, piece| {
            if written.is_ok() {
                written = file.write_all_at(piece, CONTENT_OFFSET + offset);
            }
        })?;
        written.and_then(|()| file.sync_all()).map_err(failed)?;
        let identity = Identity::random()?;
        file.write_all_at(&emit(geometry, identity), 0)
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        if !is_device {
            // Else a power failure may take the name of the file, and with it all of it.
            File::open(directory.unwrap_or(Path::new(".")))
                .and_then(|directory| directory.sync_all())
                .map_err(failed)?;
        }
        tracing::info!("{name}: made, content {identity}");
        Self::finish(file, path, name, is_device, geometry, identity, io)
    }

    /// Opens what the blocks are read and written through, and reserves their space.
    fn finish(
        file: File,
        path: &Path,
        name: &str,
        is_device: bool,
        geometry: Geometry,
        identity: Identity,
        io: BackingIo,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| io_failure(name, &error);
        let (blocks, sector) = open_blocks(&file, path, name, io)?;
        let length = length_of(name, geometry, sector)?;
        if !is_device {
            reserve(&file, name, length)?;
        }
        let metadata = file.metadata().map_err(failed)?;
        if is_device && size(&file).map_err(failed)? < length {
            return Err(Failure::invalid(format!(
                "{name}: expected a device of at least {length} bytes, in whole sectors of {sector}"
            )));
        }
        let mut places = [[0; RECORD_SIZE]; 2];
        for (bytes, offset) in places.iter_mut().zip(RECORD_OFFSETS) {
            file.read_exact_at(bytes, offset).map_err(failed)?;
        }
        let places = Places::new(&places, |why| {
            tracing::warn!("{name}: a superblock is damaged: {why}");
        });
        Ok(Self {
            path: path.to_owned(),
            blocks: Arc::new(blocks),
            name: name.to_owned(),
            sector,
            length,
            inode: (metadata.dev(), metadata.ino()),
            is_device,
            is_reserved: !is_device && metadata.blocks().saturating_mul(512) >= length,
            identity,
            places: Mutex::new(places),
            health: Arc::new(Health::new(name)),
            file,
        })
    }

    /// What the blocks are read and written through: from [`CONTENT_OFFSET`] on, in whole [sectors](Self::sector).
    #[must_use]
    pub fn blocks(&self) -> &Arc<File> {
        &self.blocks
    }

    /// Alignment of reads and writes of the blocks; 1 with buffered I/O.
    #[must_use]
    pub fn sector(&self) -> u64 {
        self.sector
    }

    /// What is known of the medium.
    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// What tells this content from any other.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The superblock of the target. A damaged one was logged and counts as none, so that a service rebuilds the blocks.
    #[must_use]
    pub fn superblock(&self) -> Option<Noted> {
        self.places().superblock()
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the superblock, and waits until it is durable. The one before it stays until then.
    ///
    /// # Errors
    ///
    /// The disk failed. Either one may be found at the next start; this file takes no further ones.
    pub fn write_superblock(&self, noted: &Noted) -> Result<(), Failure> {
        self.check_health()?;
        let mut places = self.places();
        let written = self
            .verify_size()
            .and_then(|()| places.write(&self.file, noted));
        if let Err(error) = written {
            self.health.fail(format_args!("the superblock: {error}"));
            return Err(io_failure("the superblock", &error).context(&self.name));
        }
        Ok(())
    }

    /// Waits until the blocks are durable.
    ///
    /// # Errors
    ///
    /// They are not all there: the disk failed, now or before, or the file is gone from its path.
    pub fn sync(&self) -> Result<(), Failure> {
        let synced = self
            .verify_size()
            .and_then(|()| self.verify_path())
            .and_then(|()| self.file.sync_all());
        if let Err(error) = synced {
            self.health.fail(&error);
            return Err(io_failure(&self.name, &error));
        }
        self.check_health()?;
        tracing::info!("{}: all blocks are on the disk", self.name);
        Ok(())
    }

    /// Checks that no I/O has failed because of the medium.
    ///
    /// # Errors
    ///
    /// One has: a part of what was written may be missing.
    pub fn check_health(&self) -> Result<(), Failure> {
        if self.health.is_good() {
            return Ok(());
        }
        let errors = self.health.errors();
        let message = format!("{}: the medium failed, {errors} I/Os with it", self.name);
        Err(Failure::new(ErrorCode::IO_FAILED, message))
    }

    /// Checks that the file is linked, and as large as it was.
    pub(crate) fn verify_size(&self) -> io::Result<()> {
        if self.is_device {
            // It cannot be removed or truncated; I/Os beyond its end fail.
            return Ok(());
        }
        let stat = rustix::fs::fstat(&self.file)?;
        if stat.st_nlink == 0 {
            return Err(io::Error::other("the file was removed or replaced"));
        }
        let size = stat.st_size as u64;
        if size < self.length {
            let expected = self.length;
            return Err(io::Error::other(format!(
                "the file was truncated: expected {expected} bytes, found {size}"
            )));
        }
        // A file that was truncated, and then written beyond its new end, is as long as before.
        if self.is_reserved && (stat.st_blocks as u64).saturating_mul(512) < self.length {
            return Err(io::Error::other(
                "a part of the file's space was given up: it was truncated, or holes were punched into it",
            ));
        }
        Ok(())
    }

    /// Checks that the file is the one at its path.
    pub(crate) fn verify_path(&self) -> io::Result<()> {
        let found = std::fs::metadata(&self.path)?;
        if (found.dev(), found.ino()) == self.inode {
            Ok(())
        } else {
            Err(io::Error::other("another file is at its path"))
        }
    }
}

fn in_use(name: &str) -> Failure {
    Failure::new(
        ErrorCode::IN_USE,
        format!("{name}: another target uses it; two would overwrite each other's blocks"),
    )
}

fn lock(file: &File, name: &str) -> Result<(), Failure> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(in_use(name)),
        Err(TryLockError::Error(error)) => Err(io_failure(name, &error)),
    }
}

/// Bytes of a file or block device.
fn size(file: &File) -> io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Bytes of a file with these blocks, in whole sectors.
fn length_of(name: &str, geometry: Geometry, sector: u64) -> Result<u64, Failure> {
    CONTENT_OFFSET
        .checked_add(geometry.capacity())
        .and_then(|length| length.checked_next_multiple_of(sector))
        .filter(|&length| i64::try_from(length).is_ok())
        .ok_or_else(|| Failure::invalid(format!("{name}: no file has so many bytes")))
}

/// Makes the file so long, if it is shorter, and takes the space for it on the disk, so that no write fails because there is none.
fn reserve(file: &File, name: &str, length: u64) -> Result<(), Failure> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => {
            tracing::warn!(
                "{name}: the file system cannot reserve {length} bytes; writes fail when it becomes full"
            );
            let is_shorter = file.metadata().map(|metadata| metadata.len() < length);
            match is_shorter {
                Ok(true) => file.set_len(length),
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            }
            .map_err(|error| io_failure(name, &error))
        }
        Err(error) => {
            let failure = io_failure(name, &error.into());
            Err(failure.context(format_args!(
                "{length} bytes cannot be reserved on the disk"
            )))
        }
    }
}

/// Zeroes the beginning of a block device.
fn zero(file: &File, length: u64) -> io::Result<()> {
    if rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, 0, length).is_ok() {
        return Ok(());
    }
    let zeros = vec![0; PIECE];
    let mut offset = 0;
    while offset < length {
        let count = zeros
            .len()
            .min(usize::try_from(length - offset).unwrap_or(PIECE));
        file.write_all_at(&zeros[..count], offset)?;
        offset += count as u64;
    }
    Ok(())
}

/// Opens the file once more, for its blocks, and returns the sector of the I/O. Says which kind it is.
///
/// Not as a duplicate of `file`: a ring may keep what is registered with it for some time after the end of the process, and with it the lock.
fn open_blocks(
    file: &File,
    path: &Path,
    name: &str,
    io: BackingIo,
) -> Result<(File, u64), Failure> {
    let why = if io == BackingIo::Buffered {
        String::new()
    } else {
        match open_direct(file, path) {
            Ok((blocks, sector)) => {
                tracing::info!("{name}: direct I/O, in sectors of {sector} bytes");
                return Ok((blocks, sector));
            }
            Err(error) if io == BackingIo::Direct => {
                return Err(io_failure(name, &error)
                    .context("--backing-io direct is not possible, use buffered or auto"));
            }
            Err(error) => format!(", as there is no direct I/O: {error}"),
        }
    };
    let blocks =
        open_again(file, path, OFlags::empty()).map_err(|error| io_failure(name, &error))?;
    tracing::info!("{name}: buffered I/O{why}");
    Ok((blocks, 1))
}

fn open_again(file: &File, path: &Path, flags: OFlags) -> io::Result<File> {
    let again = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let (one, other) = (file.metadata()?, again.metadata()?);
    if (one.dev(), one.ino()) != (other.dev(), other.ino()) {
        return Err(io::Error::other("the file was replaced meanwhile"));
    }
    Ok(again)
}

fn open_direct(file: &File, path: &Path) -> io::Result<(File, u64)> {
    let blocks = open_again(file, path, OFlags::DIRECT)?;
    // Linux 6.1 says what it wants. Before, every disk takes 4096 bytes.
    const STATX_DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);
    let said = rustix::fs::statx(&blocks, "", AtFlags::EMPTY_PATH, STATX_DIOALIGN)
        .ok()
        .filter(|said| said.stx_mask & STATX_DIOALIGN.bits() != 0);
    let sector = match said {
        None => LARGEST_SECTOR,
        Some(said) => match u64::from(said.stx_dio_offset_align.max(said.stx_dio_mem_align)) {
            0 => return Err(io::Error::other("the file system has none")),
            wanted if wanted <= LARGEST_SECTOR => wanted.max(512).next_power_of_two(),
            wanted => {
                return Err(io::Error::other(format!(
                    "it wants an alignment of {wanted} bytes, more than {LARGEST_SECTOR}"
                )));
            }
        },
    };
    Ok((blocks, sector))
}

#[cfg(test)]
mod tests;
