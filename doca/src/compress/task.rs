use std::fmt;
use std::ops::Deref;

use crate::Task;

/// A [`Task`] that also tells checksums of the uncompressed data.
pub struct CompressTask<C> {
    task: Task,
    read: Box<dyn Fn() -> C>,
}

/// Checksums of a deflate task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateChecksums {
    /// CRC-32 as in gzip.
    pub crc32: u32,
    /// Adler-32 as in zlib.
    pub adler32: u32,
}

/// Checksums of an LZ4 task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lz4Checksums {
    /// CRC-32 as in gzip.
    pub crc32: u32,
    /// xxHash-32 with seed 0: the word that an LZ4 frame ends in, read as little endian.
    pub xxh32: u32,
}

impl<C> CompressTask<C> {
    /// `read` reads the checksums of the C task; it is called only when that is allocated and has succeeded.
    pub(super) fn new(task: Task, read: impl Fn() -> C + 'static) -> Self {
        Self {
            task,
            read: Box::new(read),
        }
    }

    /// Checksums of the uncompressed data. `None` unless the last completion that was taken from the progress engine was a
    /// success, and none is to come.
    pub fn checksums(&self) -> Option<C> {
        self.task.has_succeeded().then(|| (self.read)())
    }
}

impl<C> Deref for CompressTask<C> {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl<C> fmt::Debug for CompressTask<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressTask")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
