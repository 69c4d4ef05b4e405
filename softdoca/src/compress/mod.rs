//! Compression: deflate both ways, and LZ4 back.

mod checksums;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::accelerator::{self, Accelerator, Appender, BufSlot, Offload};
use crate::buffer::{Buf, BufHandle};
use crate::device::Device;
use crate::engines::checksum::Lz4Checksums;
use crate::engines::deflate::Codec;
use crate::engines::lz4::{Decompressor, StreamFormat};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

pub(crate) use checksums::Checksums;
use checksums::{Kept, Lz4Source};

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

/// Body of a task; it appends its result to the destination's data.
pub(crate) struct Work {
    operation: Operation,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// Of an LZ4 stream: whether a checksum follows each block. As the program gave it.
    pub(crate) has_block_checksum: Cell<u8>,
    /// Of an LZ4 stream: whether no block refers to another. As the program gave it.
    pub(crate) are_blocks_independent: Cell<u8>,
    kept: RefCell<Kept>,
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
            kept: RefCell::default(),
        }
    }

    /// Those of the last run; zero before it, and when it has failed.
    pub(crate) fn checksums(&self) -> Checksums {
        self.kept.borrow_mut().checksums()
    }

    /// How the source of an LZ4 task is to be read, as the program has said by now.
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
    /// Answers the number of bytes of source and result.
    fn run(&mut self, work: &Work) -> Result<usize> {
        let (source, destination) = (work.source.get(), work.destination.get());
        let source = accelerator::check_list(source.as_deref())?;
        let output = Appender::new(accelerator::check_list(destination.as_deref())?)?;
        let mut kept = work.kept.borrow_mut();
        match work.operation {
            Operation::CompressDeflate | Operation::DecompressDeflate => {
                self.deflate(work.operation, source, output, &mut kept)
            }
            Operation::DecompressLz4Stream | Operation::DecompressLz4Block => {
                self.lz4(work.lz4_source(), source, output, &mut kept)
            }
        }
    }

    fn deflate(
        &mut self,
        operation: Operation,
        source: &Buf,
        mut output: Appender<'_>,
        kept: &mut Kept,
    ) -> Result<usize> {
        kept.know(Checksums::default());
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
        kept.know(Checksums {
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
        kept: &mut Kept,
    ) -> Result<usize> {
        let memory = kept.begin(source.list_data_len());
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
            Some(checksums) => kept.know(checksums.into()),
            None => kept.owe(how, read, made),
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
