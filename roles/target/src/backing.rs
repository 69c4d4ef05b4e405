//! `--backing-file`: persistent blocks in a regular file or on a block device.
//!
//! Acknowledged writes survive the end of the process, even by `kill -9`. Flushed writes, FUA writes, and all writes
//! before a clean shutdown survive a power failure.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use control::Failure;
use control::reservation::Reservation;
use control::verifier::{Incarnation, StorageId, derived};
use doca::ErrorCode;
use role_common::superblock::no_random_number;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, OFlags, StatxFlags, makedev};
use rustix::io::Errno;
use wire::backing::{CONTENT_OFFSET, HEADER_SIZE, Header, LOSS_OFFSET, Loss, RECORD_OFFSETS};

use crate::content::{Content, Geometry, io_failure};
use crate::metadata::{Boot, Medium, Places, Record, StoredSuperblock, checksum};
use crate::reservation::{self, StoredReservation};
use crate::versions::{Log, SlotArea, Tail, parse_slot};

/// Alignment of direct I/O if the file system does not report it; also the largest supported alignment.
const LARGEST_SECTOR: u64 = 4096;

/// Bytes zeroed per write, if the system cannot zero a range itself.
const PIECE: usize = 1 << 20;

/// I/O mode of a backing file.
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

/// Options for opening a backing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    pub io: BackingIo,
    /// `true` to turn an existing file of another format into a backing file.
    pub initialise: bool,
}

/// An open backing file, locked against other targets.
pub struct BackingFile {
    /// For the header and the superblocks, accessed through the page cache.
    file: File,
    /// For the blocks.
    blocks: Arc<File>,
    path: PathBuf,
    name: String,
    /// Alignment of reads and writes of [`Self::blocks`] in bytes.
    sector: u64,
    /// Unit of read-modify-writes in bytes.
    fs_block: u64,
    written: Arc<WrittenBlocks>,
    /// Minimum length in bytes.
    length: u64,
    /// Device and inode; of a block device, its number and 0.
    inode: (u64, u64),
    /// Number of the last loss of acknowledged writes, by this process or an earlier one; zeros without a loss.
    loss: [u8; Loss::SIZE],
    is_device: bool,
    /// `true` if the file system has allocated space for the whole file.
    is_reserved: bool,
    identity: Identity,
    slots: SlotArea,
    places: Mutex<Places<StoredSuperblock>>,
    reservations: Mutex<Places<StoredReservation>>,
    health: Arc<Health>,
}

impl fmt::Debug for BackingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackingFile")
            .field("name", &self.name)
            .field("sector", &self.sector)
            .field("fs_block", &self.fs_block)
            .field("length", &self.length)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl BackingFile {
    /// Opens the file, or creates it with this initial data, which is not used otherwise. Its disk space is reserved.
    ///
    /// # Errors
    ///
    /// The file is in use by another target, has another geometry than `content`, or is not a backing file; it cannot
    /// be created or read; there is no disk space for it; the requested I/O mode is not available. A newly created
    /// file is removed on error.
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
                    // The file is unusable, and would prevent the next attempt.
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
        // Checked before opening, because opening a pipe blocks until its other end is opened.
        if !is_device && !metadata.is_file() {
            return Err(Failure::invalid(format!(
                "{name}: expected a regular file or a block device"
            )));
        }
        // O_EXCL fails for a mounted block device.
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
        let may_be_made = !has_magic(start);
        if may_be_made && options.initialise {
            return Self::make(file, path, &name, is_device, content, options.io);
        }
        let geometry = content.geometry;
        let header = check(start, length, geometry).map_err(|mut failure| {
            if may_be_made {
                failure.message += "; --initialise makes it one, and what it holds is lost";
            } else if !is_header(start) {
                failure.message += "; it holds or held blocks, so that --initialise does not overwrite it: use another file, or delete it";
            }
            failure.context(&name)
        })?;
        tracing::info!("{name}: content {}, of an earlier run", header.identity);
        Self::finish(file, path, &name, is_device, header, options.io)
    }

    /// Creates a backing file with this data. The header is written last: an unfinished file has none.
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
        let header = FileHeader {
            identity: Identity::random()?,
            geometry,
            slots: SlotArea::new(geometry, CONTENT_OFFSET),
        };
        if is_device {
            let (has, needed) = (size(&file).map_err(failed)?, length_of(name, header, 1)?);
            if has < needed {
                let SlotArea {
                    slot_size, count, ..
                } = header.slots;
                return Err(Failure::invalid(format!(
                    "{name}: expected a device of at least {needed} bytes, for {} blocks of {} bytes and {count} slots of {slot_size} bytes for versions of blocks, \
                     found {has}",
                    geometry.block_count, geometry.block_size
                )));
            }
            zero(&file, needed).map_err(failed)?;
        } else {
            file.set_len(0).map_err(failed)?;
            reserve(&file, name, length_of(name, header, LARGEST_SECTOR)?)?;
        }
        let mut written = Ok(());
        content.copy_to(|offset, piece| {
            if written.is_ok() {
                written = file.write_all_at(piece, CONTENT_OFFSET + offset);
            }
        })?;
        written.and_then(|()| file.sync_all()).map_err(failed)?;
        let identity = header.identity;
        file.write_all_at(&emit(header), 0)
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        if !is_device {
            // Otherwise, a power failure may lose the file's directory entry.
            File::open(directory.unwrap_or(Path::new(".")))
                .and_then(|directory| directory.sync_all())
                .map_err(failed)?;
        }
        tracing::info!("{name}: made, content {identity}");
        Self::finish(file, path, name, is_device, header, io)
    }

    /// Opens the file for the blocks, and reserves their space.
    fn finish(
        file: File,
        path: &Path,
        name: &str,
        is_device: bool,
        header: FileHeader,
        io: BackingIo,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| io_failure(name, &error);
        let (blocks, sector) = open_blocks(&file, path, name, io)?;
        let metadata = blocks.metadata().map_err(failed)?;
        let fs_block = if is_device || sector == 1 {
            // Partial writes are merged by the disk or the page cache.
            sector
        } else {
            fs_block(metadata.blksize(), sector)
        };
        let length = length_of(name, header, fs_block)?;
        if !is_device {
            reserve(&file, name, length)?;
        }
        let metadata = file.metadata().map_err(failed)?;
        if is_device && size(&file).map_err(failed)? < length {
            return Err(Failure::invalid(format!(
                "{name}: expected a device of at least {length} bytes, in whole sectors of {sector}"
            )));
        }
        let places = read_superblocks(&file, name)?;
        let reservations = reservation::read(&file, name)?;
        let mut loss = [0; Loss::SIZE];
        file.read_exact_at(&mut loss, LOSS_OFFSET).map_err(failed)?;
        let recorder = file.try_clone().map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            blocks: Arc::new(blocks),
            name: name.to_owned(),
            sector,
            fs_block,
            written: Arc::new(WrittenBlocks::new(length, sector, fs_block)),
            length,
            inode: if is_device {
                (metadata.rdev(), 0)
            } else {
                (metadata.dev(), metadata.ino())
            },
            loss,
            is_device,
            is_reserved: !is_device && metadata.blocks().saturating_mul(512) >= length,
            identity: header.identity,
            slots: header.slots,
            places: Mutex::new(places),
            reservations: Mutex::new(reservations),
            health: Arc::new(Health::recording(name, recorder)),
            file,
        })
    }

    /// File for the blocks: they start at [`CONTENT_OFFSET`], and are accessed in whole [sectors](Self::sector).
    #[must_use]
    pub fn blocks(&self) -> &Arc<File> {
        &self.blocks
    }

    /// Alignment of reads and writes of the blocks in bytes; 1 with buffered I/O.
    #[must_use]
    pub fn sector(&self) -> u64 {
        self.sector
    }

    /// Unit of read-modify-writes in bytes, a power of 2: the file system's block, at least a sector and at most 4096
    /// bytes.
    #[must_use]
    pub fn fs_block(&self) -> u64 {
        self.fs_block
    }

    /// Blocks of the file system that have been written completely.
    #[must_use]
    pub fn written(&self) -> &Arc<WrittenBlocks> {
        &self.written
    }

    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Identity of the blocks.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Slots for versions of blocks.
    #[must_use]
    pub fn slots(&self) -> SlotArea {
        self.slots
    }

    /// Reads the versions that are in the slots.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read_versions(&self, block_size: u32) -> Result<(Log, Places<Tail>), Failure> {
        let (log, places) = read_versions(&self.file, &self.name, self.slots, block_size)?;
        let versions = log.unretired().len();
        if versions != 0 {
            tracing::info!(
                "{}: {versions} blocks have versions that are not retired",
                self.name
            );
        }
        Ok((log, places))
    }

    /// The target's superblock. A corrupt superblock was logged, and is treated as missing, so that a service rebuilds
    /// the blocks.
    #[must_use]
    pub fn superblock(&self) -> Option<StoredSuperblock> {
        self.places().newest()
    }

    /// Returns this boot of the machine or, after a loss of acknowledged writes during it, another one: a loss is
    /// equivalent to a restart of the machine.
    #[must_use]
    pub fn boot_since_loss(&self, boot: Boot) -> Boot {
        if self.loss == [0; Loss::SIZE] {
            return boot;
        }
        Boot(derived(&[&boot.0.to_be_bytes(), &self.loss]))
    }

    /// Incarnation of the blocks in this boot of the machine. A restart of the process does not change it: acknowledged writes are in the
    /// page cache or on the disk. It differs after a [loss](Self::boot_since_loss), and for another file, such as a copy of this one.
    #[must_use]
    pub fn incarnation(&self, boot: Boot) -> Incarnation {
        let (device, inode) = self.inode;
        let Boot(boot) = self.boot_since_loss(boot);
        Incarnation(derived(&[
            &boot.to_be_bytes(),
            &device.to_be_bytes(),
            &inode.to_be_bytes(),
        ]))
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places<StoredSuperblock>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the superblock durably. The previous superblock remains valid until then.
    ///
    /// # Errors
    ///
    /// The medium failed. Either superblock may be found at the next start; no further ones are accepted.
    pub fn write_superblock(&self, stored: &StoredSuperblock) -> Result<(), Failure> {
        self.write_record("the superblock", &mut self.places(), stored)
    }

    /// Stores a record durably. A failure is one of the medium.
    fn write_record<R: Record>(
        &self,
        what: &str,
        places: &mut Places<R>,
        record: &R,
    ) -> Result<(), Failure> {
        self.check_medium()?;
        let written = self
            .verify_size()
            .and_then(|()| places.write(&self.file, record))
            .and_then(|()| self.verify_path());
        written.map_err(|error| {
            self.health.fail(format_args!("{what}: {error}"));
            io_failure(what, &error).context(&self.name)
        })
    }

    /// The reservation of the storage, if it was ever reserved.
    #[must_use]
    pub fn reservation(&self) -> Option<Reservation> {
        let stored = self.reservations().newest()?;
        stored.reservation()
    }

    fn reservations(&self) -> std::sync::MutexGuard<'_, Places<StoredReservation>> {
        // A panic under the lock leaves consistent data.
        self.reservations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a reservation durably.
    ///
    /// # Errors
    ///
    /// The medium has failed.
    pub fn write_reservation(&self, reservation: &Reservation) -> Result<(), Failure> {
        let stored = StoredReservation::new(reservation);
        self.write_record("the reservation", &mut self.reservations(), &stored)
    }

    /// Makes all blocks durable.
    ///
    /// # Errors
    ///
    /// Some blocks are not durable: the medium has failed, or the file was removed from its path.
    pub fn sync(&self) -> Result<(), Failure> {
        self.make_durable()?;
        self.check_health()?;
        tracing::info!("{}: all blocks are on the disk", self.name);
        Ok(())
    }

    /// Makes durable all blocks that were written without an error.
    ///
    /// # Errors
    ///
    /// The medium failed, or the file was removed from its path.
    pub fn make_durable(&self) -> Result<(), Failure> {
        let synced = self
            .verify_size()
            .and_then(|()| self.file.sync_all())
            .and_then(|()| self.verify_path());
        if let Err(error) = synced {
            self.health.fail(&error);
            return Err(io_failure(&self.name, &error));
        }
        Ok(())
    }

    /// Checks that I/Os are possible: the medium has not failed as a whole.
    ///
    /// # Errors
    ///
    /// All I/Os fail until the target is restarted.
    pub fn check_medium(&self) -> Result<(), Failure> {
        if !self.health.has_failed() {
            return Ok(());
        }
        let message = format!(
            "{}: the medium has failed; all I/Os fail until the target is restarted",
            self.name
        );
        Err(Failure::new(ErrorCode::IO_FAILED, message))
    }

    /// Checks that no I/O has failed because of the medium.
    ///
    /// # Errors
    ///
    /// An I/O has failed, so acknowledged data may be missing.
    pub fn check_health(&self) -> Result<(), Failure> {
        if self.health.is_good() {
            return Ok(());
        }
        let errors = self.health.errors();
        let message = format!("{}: the medium failed, {errors} I/Os with it", self.name);
        Err(Failure::new(ErrorCode::IO_FAILED, message))
    }

    /// Checks that the file is still linked, and has not shrunk.
    pub(crate) fn verify_size(&self) -> io::Result<()> {
        if self.is_device {
            // A device cannot be removed or truncated, and I/Os beyond its end fail.
            return Ok(());
        }
        // The times of the file are not requested: after they have been read, Linux (6.13) updates them with the next
        // write, and the file system writes the inode with the next sync, which then takes twice as long.
        let wanted = StatxFlags::NLINK | StatxFlags::SIZE | StatxFlags::BLOCKS;
        let stat = rustix::fs::statx(&self.file, "", AtFlags::EMPTY_PATH, wanted)?;
        if stat.stx_nlink == 0 {
            return Err(io::Error::other("the file was removed or replaced"));
        }
        let size = stat.stx_size;
        if size < self.length {
            let expected = self.length;
            return Err(io::Error::other(format!(
                "the file was truncated: expected {expected} bytes, found {size}"
            )));
        }
        // A file that was truncated and then written beyond its new end has its old length again.
        if self.is_reserved && stat.stx_blocks.saturating_mul(512) < self.length {
            return Err(io::Error::other(
                "a part of the file's space was given up: it was truncated, or holes were punched into it",
            ));
        }
        Ok(())
    }

    /// Checks that the path still refers to this file or block device, so that the next process will find the data
    /// written before.
    pub(crate) fn verify_path(&self) -> io::Result<()> {
        // The times are not requested: see [`verify_size`](Self::verify_size).
        let wanted = StatxFlags::INO | StatxFlags::TYPE;
        let found = rustix::fs::statx(CWD, &self.path, AtFlags::empty(), wanted)?;
        let is_device = FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice;
        let inode = if is_device {
            // The directory entry of a device may have been recreated.
            (makedev(found.stx_rdev_major, found.stx_rdev_minor), 0)
        } else {
            (
                makedev(found.stx_dev_major, found.stx_dev_minor),
                found.stx_ino,
            )
        };
        if (is_device, inode) == (self.is_device, self.inode) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} was replaced: expected the file that this target has opened, found another one; restore it and restart the target",
            self.path.display()
        )))
    }
}

/// For records outside the blocks, through the page cache.
impl Medium for Arc<BackingFile> {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.verify_size()?;
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
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

/// Reads the superblocks of a file.
///
/// # Errors
///
/// The file cannot be read, or both superblocks are damaged.
pub(crate) fn read_superblocks(
    file: &File,
    name: &str,
) -> Result<Places<StoredSuperblock>, Failure> {
    let mut damaged = 0;
    let places = Places::read(file, |why| {
        damaged += 1;
        tracing::warn!("{name}: a superblock is damaged: {why}");
    })
    .map_err(|error| io_failure(name, &error))?;
    if damaged == RECORD_OFFSETS.len() {
        // Not treated as blank, because targets without superblocks form a new set.
        return Err(Failure::invalid(format!(
            "{name}: both superblocks are damaged, or of another version: what the blocks are is unknown; use a new backing file, which the set rebuilds"
        )));
    }
    Ok(places)
}

/// Reads the versions that are in the slots of a file with blocks of this size in bytes.
///
/// # Errors
///
/// The file cannot be read.
pub(crate) fn read_versions(
    file: &File,
    name: &str,
    slots: SlotArea,
    block_size: u32,
) -> Result<(Log, Places<Tail>), Failure> {
    let failed = |error: io::Error| io_failure(name, &error);
    let places = Places::<Tail>::read(file, |why| {
        tracing::warn!("{name}: a tail of versions is damaged: {why}");
    })
    .map_err(failed)?;
    let tail = places.newest().unwrap_or_default();
    let (slot_size, count) = (slots.slot_size as usize, slots.count);
    let mut found = Vec::new();
    let most = (PIECE / slot_size.max(1)).max(1);
    let mut piece = vec![0; most.min(count as usize) * slot_size];
    let mut first = 0;
    while first < count {
        let now = (count - first).min(most as u32);
        let bytes = &mut piece[..now as usize * slot_size];
        file.read_exact_at(bytes, slots.offset_of(first))
            .map_err(failed)?;
        for (slot, bytes) in (first..).zip(bytes.chunks_exact(slot_size)) {
            found.extend(parse_slot(slot, bytes, block_size as usize));
        }
        first += now;
    }
    Ok((Log::restore(count, tail, &found), places))
}

/// Size of a file or block device in bytes.
pub(crate) fn size(file: &File) -> io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Size of a file with these blocks and slots in bytes, in whole sectors.
fn length_of(name: &str, header: FileHeader, sector: u64) -> Result<u64, Failure> {
    CONTENT_OFFSET
        .checked_add(header.geometry.capacity())
        .and_then(|length| Some(length.max(header.slots.end()?)))
        .and_then(|length| length.checked_next_multiple_of(sector))
        .filter(|&length| i64::try_from(length).is_ok())
        .ok_or_else(|| Failure::invalid(format!("{name}: no file has so many bytes")))
}

/// Extends the file to this length if it is shorter, and allocates its disk space, so that no write fails for lack of
/// space.
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

/// Zeroes the start of a block device.
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

/// Opens the file again, for its blocks, and returns the I/O alignment. Logs the I/O mode.
///
/// A duplicate of `file` is not sufficient: a ring may keep its registered file, and thereby the lock, for some time
/// after the process has exited.
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

/// Unit of read-modify-writes for this `st_blksize`, which is a preferred size: network file systems report more than
/// a block.
fn fs_block(reported: u64, sector: u64) -> u64 {
    if reported.is_power_of_two() {
        reported.clamp(sector, LARGEST_SECTOR)
    } else {
        sector
    }
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
    // Reported since Linux 6.1. On earlier versions, 4096 bytes are correct for every disk.
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
                    "it requires an alignment of {wanted} bytes, more than {LARGEST_SECTOR}"
                )));
            }
        },
    };
    Ok((blocks, sector))
}

/// Identity of a backing file's blocks: random, generated with the file, and never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// Generates a random identity.
    ///
    /// # Errors
    ///
    /// The operating system provides no random numbers.
    pub fn random() -> Result<Self, Failure> {
        role_formats::superblock::random()
            .map(Self)
            .map_err(no_random_number)
    }
}

impl From<Identity> for StorageId {
    fn from(Identity(bytes): Identity) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Parsed header of a backing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    pub geometry: Geometry,
    pub identity: Identity,
    /// Slots for versions of blocks.
    pub slots: SlotArea,
}

/// Encodes the header of a file.
#[must_use]
pub fn emit(values: FileHeader) -> [u8; HEADER_SIZE] {
    let FileHeader {
        geometry,
        identity,
        slots,
    } = values;
    let number = u128::from_be_bytes(identity.0);
    let mut header = Header {
        block_size: geometry.block_size,
        block_count: geometry.block_count,
        identity_high: (number >> 64) as u64,
        identity_low: number as u64,
        version_slots: slots.count,
        slot_size: slots.slot_size,
        slots_offset: slots.offset,
        checksum: 0,
    };
    header.checksum = checksum(&header.emit());
    header.emit()
}

/// Returns `true` if a file starts like a backing file of any version, even with a damaged header: it may contain
/// blocks.
fn has_magic(start: &[u8]) -> bool {
    start.starts_with(&Header::MAGIC.to_be_bytes())
}

/// Returns `true` if a file starts with a complete header, of any geometry: it contains or contained blocks.
#[must_use]
pub fn is_header(start: &[u8]) -> bool {
    Header::parse(start).is_ok_and(|header| header.checksum == checksum(&start[..HEADER_SIZE]))
}

/// Checks the start of a file of `length` bytes, at most [`HEADER_SIZE`] bytes of it, and returns the parsed header.
///
/// # Errors
///
/// As for [`parse_header`], or the file has another geometry. The text contains the expected and the actual value.
pub fn check(start: &[u8], length: u64, expected: Geometry) -> Result<FileHeader, Failure> {
    let header = intact_header(start)?;
    let found = geometry_of(&header);
    if found != expected {
        return Err(Failure::invalid(format!(
            "expected {} blocks of {} bytes, as --block-count and --block-size or the .sbc file say, found {} blocks of {} bytes",
            expected.block_count, expected.block_size, found.block_count, found.block_size
        )));
    }
    complete_header(&header, length)
}

/// Parses the header of a file of `length` bytes that starts with these bytes, at most [`HEADER_SIZE`].
///
/// # Errors
///
/// The file has another format or version, a corrupt header, is too short, or its creation was interrupted. The text
/// contains the expected and the actual value.
pub fn parse_header(start: &[u8], length: u64) -> Result<FileHeader, Failure> {
    complete_header(&intact_header(start)?, length)
}

fn intact_header(start: &[u8]) -> Result<Header, Failure> {
    if start.iter().all(|&byte| byte == 0) {
        return Err(Failure::invalid(
            "expected the header of a backing file, found zeros: its creation was cut short, or it is no backing file",
        ));
    }
    let header = Header::parse(start).map_err(|error| {
        Failure::from(error).context("expected the header of a backing file of this version")
    })?;
    let (said, is) = (header.checksum, checksum(&start[..HEADER_SIZE]));
    if said != is {
        return Err(Failure::invalid(format!(
            "the header is damaged: expected the checksum {is:#010x}, found {said:#010x}"
        )));
    }
    Ok(header)
}

fn geometry_of(header: &Header) -> Geometry {
    Geometry {
        block_size: header.block_size,
        block_count: header.block_count,
    }
}

fn complete_header(header: &Header, length: u64) -> Result<FileHeader, Failure> {
    let geometry = geometry_of(header);
    let slots = SlotArea {
        offset: header.slots_offset,
        slot_size: header.slot_size,
        count: header.version_slots,
    };
    if !slots.fits(geometry, CONTENT_OFFSET) {
        return Err(Failure::invalid(format!(
            "expected slots for versions of blocks behind the blocks, or none, found {slots:?}"
        )));
    }
    let content_end = CONTENT_OFFSET.saturating_add(geometry.capacity());
    let needed = content_end.max(slots.end().unwrap_or(u64::MAX));
    if length < needed {
        return Err(Failure::invalid(format!(
            "expected {needed} bytes, found {length}: the file was cut off"
        )));
    }
    let number = u128::from(header.identity_high) << 64 | u128::from(header.identity_low);
    Ok(FileHeader {
        geometry,
        identity: Identity(number.to_be_bytes()),
        slots,
    })
}

/// Maximum number of blocks with a separate bit: 8 MiB of bits, for 256 GiB in blocks of 4096 bytes.
const MOST_BITS: u64 = 1 << 26;

/// The blocks of a file that this process has written, shared by all workers.
///
/// Space that was reserved for a file is not initialised. With direct I/O, a partial write of a file-system block then
/// makes the file system zero the remaining part of the block, with the file locked: ext4 completes 200 to 350 such
/// writes per second, compared with 7,000 writes of the same size to initialised blocks. Therefore the first partial
/// write of a block is converted to a write of the whole block.
///
/// This state only selects the faster of two correct ways to write, so it may be inaccurate: it does not include writes
/// of earlier processes, and in large files, blocks share bits.
#[derive(Debug)]
pub struct WrittenBlocks {
    /// Size of a block in bytes.
    block: u64,
    /// Empty if all writes cover whole blocks.
    bits: Box<[AtomicU64]>,
}

impl WrittenBlocks {
    /// For a file of `length` bytes, written in units of `sector` bytes, on a file system with blocks of `fs_block`
    /// bytes.
    #[must_use]
    pub fn new(length: u64, sector: u64, fs_block: u64) -> Self {
        let blocks = if fs_block > sector {
            length.div_ceil(fs_block).min(MOST_BITS)
        } else {
            0
        };
        Self {
            block: fs_block.max(1),
            bits: (0..blocks.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// Returns `true` if this range should be written unchanged, because all blocks that it covers partially have been
    /// written.
    #[inline]
    pub(super) fn permit(&self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        self.bits.is_empty()
            || (offset.is_multiple_of(self.block) || self.is_written(offset / self.block))
                && (end.is_multiple_of(self.block) || self.is_written(end / self.block))
    }

    /// Records a completed write of a range.
    #[inline]
    pub(super) fn record(&self, offset: u64, len: u64) {
        if self.bits.is_empty() {
            return;
        }
        for block in offset.div_ceil(self.block)..(offset + len) / self.block {
            let (word, bit) = self.place(block);
            // The bit is usually set, in which case the cache line stays shared.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    fn is_written(&self, block: u64) -> bool {
        let (word, bit) = self.place(block);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn place(&self, block: u64) -> (&AtomicU64, u64) {
        let word = block / 64 % self.bits.len() as u64;
        (&self.bits[word as usize], 1 << (block % 64))
    }
}

/// The health of a medium, shared by its users. It never recovers.
#[derive(Debug)]
pub struct Health {
    name: String,
    errors: AtomicU64,
    is_reported: AtomicBool,
    has_failed: AtomicBool,
    /// File to which a [`Loss`] is written.
    recorder: Option<File>,
}

impl Health {
    /// Health of a medium without errors, called `name` in the log.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            errors: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            recorder: None,
        }
    }

    /// As [`new`](Self::new), but after total failure, the file has another [incarnation](BackingFile::incarnation) for
    /// the next process.
    fn recording(name: &str, file: File) -> Self {
        Self {
            recorder: Some(file),
            ..Self::new(name)
        }
    }

    /// Counts an I/O that failed because of the medium. Only the first one is logged, because a failed disk can cause
    /// millions.
    #[cold]
    pub fn io_failed(&self, why: impl fmt::Display) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if !self.has_failed() && !self.is_reported.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "{}: {why}; the I/O failed, and further ones will not be logged",
                self.name
            );
        }
    }

    /// Records total failure: all I/Os fail from now on, and data that is not durable is lost. The reason is logged
    /// once.
    #[cold]
    pub fn fail(&self, why: impl fmt::Display) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::error!("{}: {why}; all I/Os fail from now on", self.name);
            if let Some(file) = &self.recorder
                && let Err(error) = record_loss(file)
            {
                tracing::error!(
                    "{}: the loss of writes cannot be recorded in the file, so clients cannot be told of it after a restart: {error}",
                    self.name
                );
            }
        }
    }

    /// Returns `true` after total failure.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Number of I/Os that failed because of the medium.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns `true` if there were no errors.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.has_failed() && self.errors() == 0
    }
}

/// Writes a random [`Loss`], at least to the page cache: it must survive the process, and another boot changes the
/// incarnation anyway, so a failed sync is acceptable.
fn record_loss(file: &File) -> io::Result<()> {
    let number = Identity::random().map_err(|failure| io::Error::other(failure.message))?;
    let number = u128::from_be_bytes(number.0);
    let loss = Loss {
        number_high: (number >> 64) as u64,
        number_low: number as u64,
    };
    file.write_all_at(&loss.emit(), LOSS_OFFSET)?;
    if let Err(error) = file.sync_data() {
        tracing::debug!("the record of the loss is not durable: {error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block_size: 512,
        block_count: 4,
    };

    fn write(file: &BackingFile, offset: u64, bytes: &[u8]) {
        let written = file.file.write_all_at(bytes, CONTENT_OFFSET + offset);
        written.expect("written");
    }

    fn read(file: &BackingFile, offset: u64, bytes: &mut [u8]) {
        let read = file.file.read_exact_at(bytes, CONTENT_OFFSET + offset);
        read.expect("read");
    }

    fn zeros() -> Content {
        Content::open(None, GEOMETRY).expect("content")
    }

    #[test]
    fn backing_file_is_created_once_and_reopened() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("blocks");
        let first = BackingFile::open(&path, zeros(), Options::default()).expect("made");
        write(&first, 700, b"kept");
        let identity = first.identity();
        first.sync().expect("synced");
        drop(first);
        let again = BackingFile::open(&path, zeros(), Options::default()).expect("there");
        let mut bytes = [0; 4];
        read(&again, 700, &mut bytes);
        assert_eq!((&bytes, again.identity()), (b"kept", identity));
    }

    #[test]
    fn initial_data_is_loaded_into_a_new_file_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, content) = (
            directory.path().join("blocks"),
            directory.path().join("content"),
        );
        std::fs::write(&content, [7; 2048]).expect("written");
        let open = || Content::open(Some(&content), GEOMETRY).expect("content");
        let first = BackingFile::open(&path, open(), Options::default()).expect("made");
        let byte = |file: &BackingFile| {
            let mut byte = [0];
            read(file, 2047, &mut byte);
            byte[0]
        };
        assert_eq!(byte(&first), 7);
        write(&first, 2047, &[8]);
        drop(first);
        assert_eq!(
            byte(&BackingFile::open(&path, open(), Options::default()).expect("there")),
            8
        );
    }

    #[test]
    fn file_in_use_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("blocks");
        let first = BackingFile::open(&path, zeros(), Options::default()).expect("made");
        let failure = BackingFile::open(&path, zeros(), Options::default()).expect_err("in use");
        assert_eq!(failure.code, ErrorCode::IN_USE);
        let name = path.display().to_string();
        assert!(failure.message.contains(&name), "{failure}");
        drop(first);
        BackingFile::open(&path, zeros(), Options::default()).expect("free");
    }

    #[test]
    fn other_files_and_geometries_are_refused_unchanged() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("letter");
        std::fs::write(
            &path,
            "Dear all, this is no backing file, and it must not become one.",
        )
        .expect("written");
        let before = std::fs::read(&path).expect("there");
        let failure = BackingFile::open(&path, zeros(), Options::default()).expect_err("a letter");
        assert!(
            failure.message.contains("letter") && failure.message.contains("magic"),
            "{failure}"
        );
        assert_eq!(std::fs::read(&path).expect("there"), before);

        let path = directory.path().join("blocks");
        drop(BackingFile::open(&path, zeros(), Options::default()).expect("made"));
        let other = Geometry {
            block_count: 5,
            ..GEOMETRY
        };
        let content = Content::open(None, other).expect("content");
        let failure = BackingFile::open(&path, content, Options::default()).expect_err("larger");
        assert!(failure.message.contains(" 5 "), "{failure}");
        assert!(BackingFile::open(Path::new("/"), zeros(), Options::default()).is_err());
        let nowhere = directory.path().join("no/such/folder");
        assert_eq!(
            BackingFile::open(&nowhere, zeros(), Options::default())
                .expect_err("nowhere")
                .code,
            ErrorCode::NOT_FOUND
        );
    }

    #[test]
    fn slots_that_overlap_blocks_or_are_unaligned_are_refused() {
        let good = slots();
        let (offset, slot_size) = (good.offset, good.slot_size);
        for wrong in [
            SlotArea {
                offset: offset - 4096,
                ..good
            },
            SlotArea {
                offset: offset + 512,
                ..good
            },
            SlotArea {
                slot_size: slot_size - 512,
                ..good
            },
            SlotArea {
                slot_size: 0,
                ..good
            },
            SlotArea { count: 0, ..good },
            SlotArea {
                offset: u64::MAX - 4095,
                ..good
            },
        ] {
            let header = FileHeader {
                slots: wrong,
                ..header()
            };
            let failure = check(&emit(header), u64::MAX, THREE_BLOCKS).expect_err("wrong");
            assert!(failure.message.contains("slots"), "{failure}");
        }
    }

    const BOOT: Boot = Boot(1);

    #[test]
    fn incarnation_is_kept_by_a_restart_and_not_by_a_boot_a_copy_or_a_loss() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("blocks");
        let open = |path: &Path| BackingFile::open(path, zeros(), Options::default()).expect("it");
        let first = open(&path);
        let was = first.incarnation(BOOT);
        assert_ne!(was, first.incarnation(Boot(2)));
        drop(first);
        let again = open(&path);
        assert_eq!(again.incarnation(BOOT), was);
        again.health().io_failed("one sector");
        drop(again);
        let again = open(&path);
        assert_eq!(again.incarnation(BOOT), was, "one I/O was an error");

        let copy = directory.path().join("copy");
        std::fs::copy(&path, &copy).expect("copied");
        let copy = open(&copy);
        assert_eq!(copy.identity(), again.identity());
        assert_ne!(copy.incarnation(BOOT), was);

        again.health().fail("a sync");
        assert_eq!(again.incarnation(BOOT), was, "that of the session");
        drop(again);
        let after = open(&path);
        assert_ne!(after.incarnation(BOOT), was);
        assert_eq!(after.identity(), copy.identity());
    }

    #[test]
    fn replaced_file_is_not_synced() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link, aside) = (
            directory.path().join("blocks"),
            directory.path().join("link"),
            directory.path().join("aside"),
        );
        drop(BackingFile::open(&path, zeros(), Options::default()).expect("made"));
        symlink(&path, &link).expect("a link");
        let file = BackingFile::open(&link, zeros(), Options::default()).expect("it");
        file.verify_path().expect("there");
        std::fs::rename(&path, &aside).expect("renamed");
        assert!(file.verify_path().is_err(), "the link leads nowhere");
        std::fs::copy(&aside, &path).expect("copied");
        let error = file.verify_path().expect_err("a copy");
        assert!(error.to_string().contains("replaced"), "{error}");
        std::fs::remove_file(&link).expect("removed");
        symlink(&aside, &link).expect("a link");
        file.verify_path().expect("the same file by another link");
        file.sync().expect("synced");
        std::fs::remove_file(&link).expect("removed");
        symlink(&path, &link).expect("a link");
        let failure = file.sync().expect_err("the copy");
        assert_eq!(failure.code, ErrorCode::IO_FAILED);
        assert!(file.health().has_failed());
    }

    #[test]
    fn requested_io_mode_is_used_or_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("blocks");
        let open = |io| {
            let options = Options {
                io,
                initialise: false,
            };
            BackingFile::open(&path, zeros(), options)
        };
        assert_eq!(open(BackingIo::Buffered).expect("made").sector(), 1);
        let auto = open(BackingIo::Auto).expect("there").sector();
        match open(BackingIo::Direct) {
            Ok(direct) => {
                assert_eq!(direct.sector(), auto);
                assert!(auto >= 512, "{auto}");
            }
            Err(failure) => {
                assert_eq!(auto, 1, "{failure}");
                assert!(failure.message.contains("buffered"), "{failure}");
            }
        }
    }

    #[test]
    fn backing_file_of_another_version_or_with_damage_is_kept_even_with_initialise() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("blocks");
        let open = |initialise| {
            let io = BackingIo::Buffered;
            let options = Options { io, initialise };
            BackingFile::open(&path, zeros(), options)
                .map(|it| it.places.lock().expect("no panic").newest())
        };
        assert_eq!(open(false).map_err(|it| it.code), Ok(None));
        let whole = fs::read(&path).expect("there");
        let superblocks = RECORD_OFFSETS.map(|offset| offset as usize + 8);
        // The version, the checksum, and both superblocks.
        for places in [&[11][..], &[Header::SIZE - 1], &superblocks] {
            let mut changed = whole.clone();
            places.iter().for_each(|&place| changed[place] ^= 1);
            fs::write(&path, &changed).expect("written");
            for initialise in [false, true] {
                let failure = open(initialise).expect_err("not readable");
                assert_eq!(failure.code, ErrorCode::INVALID_VALUE, "{places:?}");
                assert!(fs::read(&path).expect("there") == changed, "{places:?}");
            }
        }
        // A damaged superblock, with the other slot empty: the first superblock was being written.
        let mut changed = whole;
        changed[superblocks[1]] ^= 1;
        fs::write(&path, &changed).expect("written");
        assert_eq!(open(false).map_err(|it| it.code), Ok(None));
    }

    const THREE_BLOCKS: Geometry = Geometry {
        block_size: 512,
        block_count: 3,
    };
    /// 64 KiB before the blocks, a page with them, and 1024 slots of 4096 bytes.
    const LENGTH: u64 = CONTENT_OFFSET + 4096 + 1024 * 4096;

    fn slots() -> SlotArea {
        SlotArea::new(THREE_BLOCKS, CONTENT_OFFSET)
    }

    fn header() -> FileHeader {
        FileHeader {
            geometry: THREE_BLOCKS,
            identity: identity(),
            slots: slots(),
        }
    }

    fn identity() -> Identity {
        Identity(*b"0123456789abcdef")
    }

    #[test]
    fn emitted_header_is_accepted() {
        for slots in [slots(), SlotArea::default()] {
            let header = FileHeader { slots, ..header() };
            assert_eq!(check(&emit(header), LENGTH, THREE_BLOCKS), Ok(header));
        }
        assert_eq!(identity().to_string(), "30313233343536373839616263646566");
        assert_ne!(Identity::random(), Identity::random());
    }

    #[test]
    fn every_flipped_bit_of_the_header_is_found() {
        let bytes = emit(header());
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&wrong, LENGTH, THREE_BLOCKS).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(check(&bytes[..length], length as u64, THREE_BLOCKS).is_err());
        }
    }

    #[test]
    fn geometry_error_has_expected_and_found_geometry() {
        let bytes = emit(header());
        let expected = Geometry {
            block_size: 4096,
            block_count: 128,
        };
        let failure = check(&bytes, LENGTH, expected).expect_err("another");
        for value in [" 128 ", " 4096 ", "--block-count", " 3 ", " 512 "] {
            assert!(failure.message.contains(value), "{failure}");
        }
        let failure = check(&bytes, LENGTH - 1, THREE_BLOCKS).expect_err("cut off");
        for value in ["4263936", "4263935"] {
            assert!(failure.message.contains(value), "{failure}");
        }
        let failure = check(&[0; HEADER_SIZE], LENGTH, THREE_BLOCKS).expect_err("zeros");
        assert!(failure.message.contains("zeros"), "{failure}");
    }

    #[test]
    fn parts_of_blocks_are_permitted_once_the_blocks_are_written() {
        let written = WrittenBlocks::new(1 << 20, 512, 4096);
        assert!(written.permit(0, 4096));
        assert!(written.permit(4096, 3 * 4096));
        for (offset, len) in [(0, 512), (512, 3584), (2048, 4096), (4096, 4608)] {
            assert!(!written.permit(offset, len), "{offset} {len}");
        }
        // A part of block 0, block 1, and a part of block 2.
        written.record(512, 3 * 4096 - 1024);
        assert!(written.permit(4096, 512));
        assert!(!written.permit(2048, 4096));
        assert!(!written.permit(4608, 4096));
        written.record(0, 4096);
        assert!(written.permit(2048, 4096));
        assert!(!written.permit(4608, 4096));
    }

    #[test]
    fn blocks_of_a_huge_file_share_bits() {
        let written = WrittenBlocks::new(1 << 50, 512, 4096);
        assert!(!written.permit(512, 512));
        written.record((1 << 50) - 4096, 4096);
        assert!(written.permit((1 << 50) - 512, 512));
        assert!(!written.permit(512, 512));
        written.record(MOST_BITS * 4096, 4096);
        assert!(written.permit(512, 512));
    }

    #[test]
    fn every_write_is_permitted_where_sectors_are_blocks() {
        for sector in [1, 512, 4096] {
            let written = WrittenBlocks::new(1 << 20, sector, sector);
            assert!(written.permit(sector, 7 * sector));
            written.record(0, 1 << 20);
        }
    }
}
