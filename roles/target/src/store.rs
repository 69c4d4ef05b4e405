//! Storage of a worker's blocks: in memory or in a file.
//!
//! Each worker has its own [`Store`], created for the session. The store returns the next step of an I/O: a transfer
//! between the store's memory and the requester's, executed by the worker, or a wait until the disk has completed an
//! operation. RDMA accesses the blocks of a [`MemoryStore`] directly, and a staging buffer of the transaction with a
//! [`FileStore`].

mod apply;
mod file;
mod memory;
#[cfg(test)]
mod power_failure;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk_queue::Queue;
use doca::{ErrorCode, MemoryRegion};

use crate::backing::BackingFile;
use crate::versions::Version;

pub use apply::{Apply, FileApplier, FileLayout, MemoryApplier, MemoryLayout, Progress};
pub use disk_queue::{Completed, Operation as DiskOperation, Range};
pub use file::{FileStore, FileVersions, Layout, SectorLocks};
pub use memory::VersionedMemoryStore;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Transfers blocks to the requester.
    Read,
    /// Transfers one block to the requester: the newest version of the block that is lower than that of the I/O.
    ReadBefore,
    /// Transfers blocks from the requester.
    Write {
        /// Complete only when the blocks are durable.
        durable: bool,
    },
    /// Transfers one block from the requester, as a separate version.
    WriteVersion {
        /// Complete only when the block is durable.
        durable: bool,
    },
    /// Complete only when all previously completed writes are durable.
    Flush,
}

impl Operation {
    /// `true` for transfers to the requester.
    #[inline]
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::ReadBefore)
    }

    /// `true` if the written data must be durable at completion.
    #[inline]
    #[must_use]
    pub fn is_durable(self) -> bool {
        matches!(
            self,
            Self::Write { durable: true } | Self::WriteVersion { durable: true }
        )
    }
}

/// An I/O whose ranges are inside the storage and the requester's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    pub operation: Operation,
    /// First byte in the storage.
    pub storage_offset: u64,
    /// First byte in the requester's memory.
    pub requester_offset: u64,
    /// Number of bytes.
    pub size: u32,
    /// Version of the block: for [`Operation::WriteVersion`] and [`Operation::ReadBefore`]. A flush only uses the
    /// epoch.
    pub version: Version,
    /// Versions of this epoch with lower numbers are retired, and those of earlier epochs; 0 has no effect. For
    /// [`Operation::WriteVersion`] and [`Operation::Flush`], if versions were announced.
    pub retired: u64,
}

/// A range to be transferred by RDMA, in the direction of the I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// `true` if the transfer is to the requester.
    pub to_requester: bool,
    /// First byte in the store's memory.
    pub local_offset: u64,
    /// First byte in the requester's memory.
    pub requester_offset: u64,
    /// Number of bytes.
    pub len: usize,
}

/// Next step of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Transfer this range, then call [`Store::transferred`].
    Transfer(Extent),
    /// Wait: [`Store::next`] returns the next step.
    Pending,
    /// The I/O has completed with this result.
    Complete(ErrorCode),
}

/// A worker's view of the blocks. An I/O is identified by its slot: its transaction number.
pub trait Store {
    /// `true` if I/Os may wait for a disk.
    const WAITS: bool;

    /// Starts an I/O in an idle slot.
    fn begin(&mut self, slot: usize, io: Io) -> Step;

    /// Called after the slot's transfer has succeeded.
    fn transferred(&mut self, slot: usize) -> Step;

    /// Called after the slot's transfer has failed: the I/O has ended.
    fn abandon(&mut self, slot: usize);

    /// Submits disk operations and collects completions. Returns `true` if [`next`](Self::next) has a result.
    fn poll(&mut self) -> bool {
        false
    }

    /// Next I/O that can continue after a disk operation. Never returns [`Step::Pending`].
    fn next(&mut self) -> Option<(usize, Step)> {
        None
    }

    /// Descriptor that becomes readable when a disk operation completes, while an operation is in flight.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Number of I/Os that failed because of the medium.
    fn media_errors(&self) -> u64 {
        0
    }
}

/// Blocks in memory registered with the device, in a session without versions: every I/O is one transfer.
#[derive(Debug, Default)]
pub struct MemoryStore;

impl Store for MemoryStore {
    const WAITS: bool = false;

    #[inline(always)]
    fn begin(&mut self, _: usize, io: Io) -> Step {
        let to_requester = match io.operation {
            Operation::Read => true,
            Operation::Write { .. } => false,
            Operation::ReadBefore | Operation::WriteVersion { .. } => {
                return Step::Complete(ErrorCode::NOT_PERMITTED);
            }
            // A flush completes immediately, because memory is not durable.
            Operation::Flush => return Step::Complete(ErrorCode::SUCCESS),
        };
        Step::Transfer(Extent {
            to_requester,
            local_offset: io.storage_offset,
            requester_offset: io.requester_offset,
            len: io.size as usize,
        })
    }

    #[inline(always)]
    fn transferred(&mut self, _: usize) -> Step {
        Step::Complete(ErrorCode::SUCCESS)
    }

    fn abandon(&mut self, _: usize) {}
}

/// Interval between checks that the path still refers to the file.
const PATH_CHECKS: Duration = Duration::from_millis(250);

/// A queue of operations on a medium, with the interface of the real one, [`Queue`].
pub trait Disk {
    /// Queues an operation for the next submission.
    fn push(&mut self, token: u64, operation: DiskOperation);

    /// Returns `true` if there are operations to be submitted.
    fn has_pending(&self) -> bool;

    fn submit(&mut self);

    /// Fails the queued operations.
    fn fail_pending(&mut self);

    /// Collects completions; returns `true` if there are any.
    fn reap(&mut self) -> bool;

    /// Next collected completion.
    fn next(&mut self) -> Option<Completed>;

    /// Number of submitted operations whose completions have not been collected.
    fn in_flight(&self) -> usize;

    /// Waits until no operation is in flight.
    fn drain(&mut self);

    /// Descriptor that becomes readable when an operation completes, if the queue has one.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Checks that the medium is the one that was opened, with its original size.
    ///
    /// # Errors
    ///
    /// The medium was removed, replaced or truncated.
    fn verify(&mut self) -> io::Result<()>;

    /// Checks that the next process will find this medium, so that data that is durable on it survives.
    ///
    /// # Errors
    ///
    /// The medium was removed or replaced.
    fn verify_path(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A worker's queue to a backing file.
#[derive(Debug)]
pub(crate) struct FileDisk {
    queue: Queue,
    file: Arc<BackingFile>,
    path_checked: Instant,
}

impl FileDisk {
    /// Uses a separate ring, or executes operations synchronously without io_uring.
    pub(crate) fn new(file: Arc<BackingFile>, memory: &Arc<MemoryRegion>, depth: usize) -> Self {
        let blocks = file.blocks();
        let queue = Queue::io_uring(Arc::clone(blocks), Arc::clone(memory), depth).unwrap_or_else(
            |error| {
                tracing::warn!(
                    "io_uring is not available ({error}): blocks are read and written by pread and pwrite, one I/O at a time"
                );
                Queue::blocking(Arc::clone(blocks), Arc::clone(memory), depth)
            },
        );
        Self {
            queue,
            file,
            path_checked: Instant::now(),
        }
    }
}

impl Disk for FileDisk {
    #[inline]
    fn push(&mut self, token: u64, operation: DiskOperation) {
        self.queue.push(token, operation);
    }

    #[inline]
    fn has_pending(&self) -> bool {
        self.queue.has_pending()
    }

    #[inline]
    fn submit(&mut self) {
        self.queue.submit();
    }

    fn fail_pending(&mut self) {
        self.queue.fail_pending(rustix::io::Errno::IO);
    }

    #[inline]
    fn reap(&mut self) -> bool {
        self.queue.reap()
    }

    #[inline]
    fn next(&mut self) -> Option<Completed> {
        self.queue.next()
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn drain(&mut self) {
        self.queue.drain();
    }

    #[inline]
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.queue.readiness()
    }

    #[inline]
    fn verify(&mut self) -> io::Result<()> {
        self.file.verify_size()?;
        let now = Instant::now();
        if now.duration_since(self.path_checked) >= PATH_CHECKS {
            self.path_checked = now;
            self.file.verify_path()?;
        }
        Ok(())
    }

    fn verify_path(&mut self) -> io::Result<()> {
        self.file.verify_path()
    }
}

#[cfg(test)]
mod tests {
    use doca::ErrorCode;
    use wire::backing::CONTENT_OFFSET;

    use super::*;
    use crate::backing::Options;
    use crate::content::{Content, Geometry};
    use crate::store::{FileStore, Io, Layout, Operation, Step};

    /// For systems without io_uring.
    #[test]
    fn file_disk_works_without_io_uring() {
        let directory = tempfile::tempdir().expect("a directory");
        let geometry = Geometry {
            block_size: 520,
            block_count: 10,
        };
        let content = Content::open(None, geometry).expect("content");
        let path = directory.path().join("blocks");
        let file = BackingFile::open(&path, content, Options::default()).expect("made");
        let file = Arc::new(file);
        let layout = Layout::new(CONTENT_OFFSET, file.sector(), file.fs_block(), 520, 1);
        let memory = MemoryRegion::new(layout.buffer).expect("memory");
        let disk = FileDisk {
            queue: Queue::blocking(Arc::clone(file.blocks()), Arc::clone(&memory), 1),
            file: Arc::clone(&file),
            path_checked: Instant::now(),
        };
        let (written, health) = (Arc::clone(file.written()), Arc::clone(file.health()));
        let mut store = FileStore::new(disk, layout, 1, Arc::default(), written, health, None);
        let mut run = |operation, bytes: &mut [u8]| {
            let mut step = store.begin(
                0,
                Io {
                    operation,
                    storage_offset: 3 * 520,
                    requester_offset: 0,
                    size: bytes.len() as u32,
                    version: Version::NONE,
                    retired: 0,
                },
            );
            loop {
                step = match step {
                    Step::Complete(code) => return code,
                    Step::Transfer(extent) => {
                        let at = extent.local_offset as usize;
                        if extent.to_requester {
                            memory.read(at, bytes).expect("inside");
                        } else {
                            memory.write(at, bytes).expect("inside");
                        }
                        store.transferred(0)
                    }
                    Step::Pending => {
                        store.poll();
                        store.next().map_or(Step::Pending, |(_, step)| step)
                    }
                }
            }
        };
        let durable = true;
        let code = run(Operation::Write { durable }, &mut [7; 520]);
        assert_eq!(code, ErrorCode::SUCCESS);
        assert_eq!(run(Operation::Flush, &mut []), ErrorCode::SUCCESS);
        let mut bytes = [0; 520];
        assert_eq!(run(Operation::Read, &mut bytes), ErrorCode::SUCCESS);
        assert_eq!(bytes, [7; 520]);
    }
}
