//! Compression: deflate both ways, and LZ4 back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::accelerator::{self, Accelerator, Appender, BufSlot, Offload};
use crate::buffer::BufHandle;
use crate::device::Device;
use crate::engines::deflate::Codec;
use crate::engines::lz4::{Decompressor, StreamFormat};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

/// Private memory above this size is given back after the task that needed it.
const SCRATCH_KEPT: usize = 4 << 20;

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) compress_deflate: TaskPool,
    pub(crate) decompress_deflate: TaskPool,
    pub(crate) decompress_lz4_stream: TaskPool,
    pub(crate) decompress_lz4_block: TaskPool,
}

/// What a compress context can do.
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

/// What a task does with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CompressDeflate,
    DecompressDeflate,
    DecompressLz4Stream,
    DecompressLz4Block,
}

/// Checksums of the uncompressed data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksums {
    pub(crate) crc32: u32,
    /// Adler-32 of a deflate task; xxHash-32 of an LZ4 task.
    pub(crate) second: u32,
}

/// Body of a task; it appends its result to the destination's data.
pub(crate) struct Work {
    operation: Operation,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// Of an LZ4 stream: whether a checksum follows each block. As the program gave it.
    pub(crate) has_block_checksum: Cell<u8>,
    /// Of an LZ4 stream: whether no block refers to another. As the program gave it.
    pub(crate) are_blocks_independent: Cell<u8>,
    checksums: Cell<Checksums>,
}

impl Compress {
    /// A context for an instance on `device`.
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
            checksums: Cell::default(),
        }
    }

    /// Those of the last run that succeeded; zero before.
    pub(crate) fn checksums(&self) -> Checksums {
        self.checksums.get()
    }
}

impl Engine {
    /// Answers the number of bytes of source and result, and the checksums.
    fn run(&mut self, work: &Work) -> Result<(usize, Checksums)> {
        let (source, destination) = (work.source.get(), work.destination.get());
        let source = accelerator::check_list(source.as_deref())?;
        let mut output = Appender::new(accelerator::check_list(destination.as_deref())?)?;
        let source = accelerator::read_source(source, &mut self.source)?;
        let room = output.room();
        let sink = |data: &[u8]| output.write(data);
        let (made, checksums) = match work.operation {
            Operation::CompressDeflate | Operation::DecompressDeflate => {
                let done = if work.operation == Operation::CompressDeflate {
                    self.deflate.compress(source, room, sink)?
                } else {
                    self.deflate.decompress(source, room, sink)?
                };
                (done.len, (done.checksums.crc32(), done.checksums.adler32()))
            }
            Operation::DecompressLz4Stream | Operation::DecompressLz4Block => {
                let format = StreamFormat {
                    block_checksums: work.has_block_checksum.get() != 0,
                    independent_blocks: work.are_blocks_independent.get() != 0,
                };
                let done = if work.operation == Operation::DecompressLz4Stream {
                    self.lz4.stream(source, format, room, sink)?
                } else {
                    self.lz4.single_block(source, room, sink)?
                };
                // Programs compare it with the word at the end of a frame, whose bytes they have turned round.
                (
                    done.len,
                    (done.checksums.crc32(), done.checksums.xxh32().swap_bytes()),
                )
            }
        };
        let len = source.len() + made;
        output.finish()?;
        let (crc32, second) = checksums;
        Ok((len, Checksums { crc32, second }))
    }
}

impl Accelerator for Compress {
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
        let (len, checksums) = result?;
        work.checksums.set(checksums);
        Ok(len)
    }
}
