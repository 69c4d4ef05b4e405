//! Asynchronous reads, writes and syncs for a file store.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk_queue::Queue;
pub use disk_queue::{Completed, Operation, Range};
use doca::MemoryRegion;

use crate::backing::BackingFile;

/// Interval between checks that the file is still the one at its path.
const PATH_CHECKS: Duration = Duration::from_millis(250);

/// A queue of operations on a medium, with the interface of [`Queue`], the real one.
pub trait Disk {
    /// Queues an operation for the next submission.
    fn push(&mut self, token: u64, operation: Operation);

    /// Returns `true` if there are operations to be submitted.
    fn has_pending(&self) -> bool;

    /// Submits the queued operations.
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

    /// Descriptor that becomes readable when an operation completes, if there is one.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Checks that the medium is the one that was opened, with its original size.
    ///
    /// # Errors
    ///
    /// It was removed, replaced or truncated.
    fn verify(&mut self) -> io::Result<()>;
}

/// A worker's queue to a backing file.
#[derive(Debug)]
pub(crate) struct FileDisk {
    queue: Queue,
    file: Arc<BackingFile>,
    path_checked: Instant,
}

impl FileDisk {
    /// Uses a ring of its own, or executes one operation after the other without io_uring.
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
    fn push(&mut self, token: u64, operation: Operation) {
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
}

#[cfg(test)]
mod tests {
    use doca::ErrorCode;
    use wire::backing::CONTENT_OFFSET;

    use super::*;
    use crate::backing::Options;
    use crate::content::{Content, Geometry};
    use crate::store::{FileStore, Io, Layout, Operation as IoOperation, Step, Store as _};

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
        let mut store = FileStore::new(disk, layout, 1, Arc::default(), written, health);
        let mut run = |operation, bytes: &mut [u8]| {
            let mut step = store.begin(
                0,
                Io {
                    operation,
                    storage_offset: 3 * 520,
                    requester_offset: 0,
                    size: bytes.len() as u32,
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
        let code = run(IoOperation::Write { durable }, &mut [7; 520]);
        assert_eq!(code, ErrorCode::SUCCESS);
        assert_eq!(run(IoOperation::Flush, &mut []), ErrorCode::SUCCESS);
        let mut bytes = [0; 520];
        assert_eq!(run(IoOperation::Read, &mut bytes), ErrorCode::SUCCESS);
        assert_eq!(bytes, [7; 520]);
    }
}
