//! Compression: deflate compression and decompression, and LZ4 decompression.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use crate::accelerator::{self, Accelerator, Appender, BufSlot, Offload};
use crate::buffer::{Buf, BufHandle};
use crate::device::Device;
use crate::engines::deflate::Codec;
use crate::engines::lz4::{Decompressor, Lz4Checksums, StreamFormat};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

/// Scratch memory above this size is freed after the task that needed it.
const SCRATCH_KEPT: usize = 4 << 20;

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) compress_deflate: TaskPool,
    pub(crate) decompress_deflate: TaskPool,
    pub(crate) decompress_lz4_stream: TaskPool,
    pub(crate) decompress_lz4_block: TaskPool,
}

/// Compress contexts.
#[derive(Default)]
pub(crate) struct Compress {
    pub(crate) pools: Pools,
    engine: RefCell<Engine>,
}

/// Working memory.
#[derive(Default)]
struct Engine {
    source: Vec<u8>,
    deflate: Codec,
    lz4: Decompressor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CompressDeflate,
    DecompressDeflate,
    DecompressLz4Stream,
    DecompressLz4Block,
}

/// Body of a task; the result is appended to the destination's data.
pub(crate) struct Work {
    operation: Operation,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// LZ4 streams: nonzero if a checksum follows each block. Unchecked.
    pub(crate) has_block_checksum: Cell<u8>,
    /// LZ4 streams: nonzero if no block refers to another. Unchecked.
    pub(crate) are_blocks_independent: Cell<u8>,
    last: RefCell<LastChecksums>,
}

impl Compress {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Offload::context(Self::default(), device)
    }
}

impl Work {
    pub(crate) fn new(
        operation: Operation,
        source: Option<BufHandle>,
        destination: Option<BufHandle>,
    ) -> Self {
        Self {
            operation,
            source: BufSlot::new(source),
            destination: BufSlot::new(destination),
            has_block_checksum: Cell::new(0),
            are_blocks_independent: Cell::new(1),
            last: RefCell::default(),
        }
    }

    /// Checksums of the last run; zeros before the first run and after a failure.
    pub(crate) fn checksums(&self) -> Checksums {
        self.last.borrow_mut().checksums()
    }

    /// Format of an LZ4 task's source, from the flags that the program has set.
    fn lz4_source(&self) -> Lz4Source {
        match self.operation {
            Operation::DecompressLz4Block => Lz4Source::Block,
            _ => Lz4Source::Stream(StreamFormat {
                block_checksums: self.has_block_checksum.get() != 0,
                independent_blocks: self.are_blocks_independent.get() != 0,
            }),
        }
    }
}

impl Engine {
    /// Returns the lengths of source and result in bytes.
    fn run(&mut self, work: &Work) -> Result<usize> {
        let (source, destination) = (work.source.get(), work.destination.get());
        let source = accelerator::check_list(source.as_deref())?;
        let output = Appender::new(accelerator::check_list(destination.as_deref())?)?;
        let mut last = work.last.borrow_mut();
        match work.operation {
            Operation::CompressDeflate | Operation::DecompressDeflate => {
                self.deflate(work.operation, source, output, &mut last)
            }
            Operation::DecompressLz4Stream | Operation::DecompressLz4Block => {
                self.lz4(work.lz4_source(), source, output, &mut last)
            }
        }
    }

    fn deflate(
        &mut self,
        operation: Operation,
        source: &Buf,
        mut output: Appender<'_>,
        last: &mut LastChecksums,
    ) -> Result<usize> {
        last.store(Checksums::default());
        let source = accelerator::read_source(source, &mut self.source)?;
        let room = output.room();
        let sink = |data: &[u8]| output.write(data);
        let done = if operation == Operation::CompressDeflate {
            self.deflate.compress(source, room, sink)?
        } else {
            self.deflate.decompress(source, room, sink)?
        };
        let len = source.len() + done.len;
        output.finish()?;
        last.store(Checksums {
            crc32: done.checksums.crc32(),
            second: done.checksums.adler32(),
        });
        Ok(len)
    }

    fn lz4(
        &mut self,
        how: Lz4Source,
        source: &Buf,
        mut output: Appender<'_>,
        last: &mut LastChecksums,
    ) -> Result<usize> {
        let memory = last.begin(source.list_data_len());
        let mut checksums = memory.is_none().then(Lz4Checksums::default);
        let source = accelerator::read_source(source, memory.unwrap_or(&mut self.source))?;
        let room = output.room();
        let made = how.decompress(&mut self.lz4, source, room, |data| {
            if let Some(checksums) = &mut checksums {
                checksums.update(data);
            }
            output.write(data)
        })?;
        let read = source.len();
        output.finish()?;
        match &checksums {
            Some(checksums) => last.store(checksums.into()),
            None => last.defer(how, read, made),
        }
        Ok(read + made)
    }
}

impl Accelerator for Compress {
    const TAKES_LONG: bool = true;
    const FAILURE_IS_FATAL: bool = false;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        let pools = &self.pools;
        [
            &pools.compress_deflate,
            &pools.decompress_deflate,
            &pools.decompress_lz4_stream,
            &pools.decompress_lz4_block,
        ]
        .into_iter()
    }

    fn bufs(&self, task: &Task) -> Result<[Option<BufHandle>; 2]> {
        let task = task.downcast::<Work>().ok_or(Error::InvalidValue)?;
        Ok([task.body.source.get(), task.body.destination.get()])
    }

    fn check(&self, task: &Task) -> Result<()> {
        let work = &task.downcast::<Work>().ok_or(Error::InvalidValue)?.body;
        let (source, destination) = (work.source.get(), work.destination.get());
        let (source, _) = accelerator::check_bufs(source.as_deref(), destination.as_deref())?;
        accelerator::source_len(source).map(|_| ())
    }

    fn run(&self, task: &Task) -> Result<usize> {
        let work = &task.downcast::<Work>().ok_or(Error::InvalidValue)?.body;
        let mut engine = self.engine.borrow_mut();
        let result = engine.run(work);
        if engine.source.len() > SCRATCH_KEPT {
            engine.source = Vec::new();
        }
        result
    }
}

/// Sources up to this size are kept in the task's memory; checksums of larger ones are computed immediately.
const KEPT: usize = 64 << 10;

/// Checksums of the uncompressed data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksums {
    pub(crate) crc32: u32,
    /// Adler-32 of a deflate task; xxHash-32 of an LZ4 task.
    pub(crate) second: u32,
}

/// Format of the source of an LZ4 task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lz4Source {
    Stream(StreamFormat),
    Block,
}

impl Lz4Source {
    /// Decompresses a source and passes the data to `sink`, at most `room` bytes. Returns their number.
    fn decompress(
        self,
        lz4: &mut Decompressor,
        source: &[u8],
        room: usize,
        sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<usize> {
        match self {
            Self::Stream(format) => lz4.stream(source, format, room, sink),
            Self::Block => lz4.single_block(source, room, sink),
        }
    }
}

/// Checksums of a task's last run; zeros before the first run and after a failure.
///
/// Hardware computes checksums at no cost; in software they take a third of the time of the decompression, and few
/// programs read them, so the checksums of LZ4 tasks are computed on demand: the task keeps its source (the private copy that
/// it decompressed), which is decompressed again when the checksums are read. The result does not depend on the
/// destination, which may have changed.
#[derive(Default)]
struct LastChecksums {
    /// Starts with the source of the last run while its checksums are deferred.
    source: Vec<u8>,
    state: State,
}

enum State {
    Computed(Checksums),
    /// Not computed yet; the first `source` bytes of the kept source decompress to `made` bytes.
    Deferred {
        how: Lz4Source,
        source: usize,
        made: usize,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Computed(Checksums::default())
    }
}

impl LastChecksums {
    /// Starts a run. Returns memory for a source of `len` bytes, if it is to be kept.
    fn begin(&mut self, len: usize) -> Option<&mut Vec<u8>> {
        self.state = State::default();
        (len <= KEPT).then_some(&mut self.source)
    }

    /// Stores the checksums of a successful run.
    fn store(&mut self, checksums: Checksums) {
        self.state = State::Computed(checksums);
    }

    /// Defers the checksums of a successful run whose source was kept.
    fn defer(&mut self, how: Lz4Source, source: usize, made: usize) {
        self.state = State::Deferred { how, source, made };
    }

    /// Returns the checksums; computes deferred ones.
    fn checksums(&mut self) -> Checksums {
        let checksums = match mem::take(&mut self.state) {
            State::Computed(checksums) => checksums,
            State::Deferred { how, source, made } => {
                let mut checksums = Lz4Checksums::default();
                let source = &self.source[..source];
                let again = how.decompress(&mut Decompressor::default(), source, made, |data| {
                    checksums.update(data);
                    Ok(())
                });
                debug_assert_eq!(again, Ok(made), "it was decompressed before");
                Checksums::from(&checksums)
            }
        };
        self.state = State::Computed(checksums);
        checksums
    }
}

impl From<&Lz4Checksums> for Checksums {
    fn from(checksums: &Lz4Checksums) -> Self {
        Self {
            crc32: checksums.crc32(),
            // Programs compare it with the word at the end of a frame after swapping that word's bytes.
            second: checksums.xxh32().swap_bytes(),
        }
    }
}
