//! Erasure coding: redundancy is created, updated, and used to recover lost data.
//!
//! All kinds of tasks apply their matrix to a sequence of blocks and append the resulting blocks to the destination's
//! data. They differ in their pools and in the data that programs pass.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::accelerator::{self, Accelerator, BufSlot, Gathered, MAX_BUF_SIZE, Offload};
use crate::buffer::BufHandle;
use crate::device::Device;
use crate::engines::matrix::Matrix;
use crate::engines::region::Kernel;
use crate::engines::stripe::{Coder, Striper};
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

/// Block lengths are multiples of this number of bytes.
pub(crate) const BLOCK_ALIGNMENT: usize = 64;

/// A matrix with its compiled form. Shared with tasks: the program may destroy the matrix before them.
pub(crate) struct CodingMatrix {
    matrix: Matrix,
    coder: Coder,
}

impl CodingMatrix {
    pub(crate) fn new(matrix: Matrix) -> Arc<Self> {
        let coder = Coder::new(&matrix);
        Arc::new(Self { matrix, coder })
    }

    pub(crate) fn matrix(&self) -> &Matrix {
        &self.matrix
    }
}

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) galois_mul: TaskPool,
    pub(crate) create: TaskPool,
    pub(crate) update: TaskPool,
    pub(crate) recover: TaskPool,
}

/// The erasure-coding kind of context.
#[derive(Default)]
pub(crate) struct ErasureCoding {
    pub(crate) pools: Pools,
    engine: RefCell<Engine>,
}

/// Buffers that tasks are gathered into and computed in, reused from task to task.
#[derive(Default)]
struct Engine {
    source: Gathered,
    destination: Gathered,
    striper: Striper,
}

/// Body of a task.
pub(crate) struct Work {
    pub(crate) matrix: RefCell<Arc<CodingMatrix>>,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
}

impl ErasureCoding {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Offload::context(Self::default(), device)
    }
}

impl Work {
    pub(crate) fn new(
        matrix: Arc<CodingMatrix>,
        source: Option<BufHandle>,
        destination: Option<BufHandle>,
    ) -> Self {
        Self {
            matrix: RefCell::new(matrix),
            source: BufSlot::new(source),
            destination: BufSlot::new(destination),
        }
    }
}

/// Block length for a source of `len` bytes.
fn block_len(len: usize, coder: &Coder) -> Result<usize> {
    let block = len / coder.inputs();
    if block * coder.inputs() != len || !block.is_multiple_of(BLOCK_ALIGNMENT) || block == 0 {
        return Err(Error::InvalidValue.because(format_args!(
            "expected {} blocks, each a multiple of {BLOCK_ALIGNMENT} bytes long, got {len} bytes",
            coder.inputs()
        )));
    }
    Ok(block)
}

/// Block length for a source of `len` bytes, and the total length of the resulting blocks.
fn sizes(len: usize, coder: &Coder) -> Result<(usize, usize)> {
    let block = block_len(len, coder)?;
    if block > MAX_BUF_SIZE {
        return Err(Error::InvalidValue);
    }
    let made = block.checked_mul(coder.outputs()).ok_or(Error::TooBig)?;
    Ok((block, made))
}

impl Engine {
    fn run(&mut self, work: &Work) -> Result<usize> {
        let matrix = Arc::clone(&work.matrix.borrow());
        let coder = &matrix.coder;
        let (source, destination) = (work.source.get(), work.destination.get());
        let (source, destination) =
            accelerator::check_bufs(source.as_deref(), destination.as_deref())?;
        let source_len = source.list_data_len();
        let (block, made) = sizes(source_len, coder)?;
        let from = self.source.source(source)?;
        let to = self.destination.destination(destination, made)?;
        // SAFETY: the extents are readable and writable memory of the task's bufs, whose maps stay started meanwhile:
        // no code of the program runs in this thread, and other threads must not touch a task's bufs.
        unsafe { self.striper.apply(Kernel::best(), coder, from, to, block) };
        self.destination.write_back(destination, made)?;
        Ok(source_len + made)
    }
}

impl Accelerator for ErasureCoding {
    const TAKES_LONG: bool = false;
    const FAILURE_IS_FATAL: bool = false;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        let pools = &self.pools;
        [
            &pools.galois_mul,
            &pools.create,
            &pools.update,
            &pools.recover,
        ]
        .into_iter()
    }

    fn check(&self, task: &Task) -> Result<()> {
        let work = &task.downcast::<Work>().ok_or(Error::InvalidValue)?.body;
        let (source, destination) = (work.source.get(), work.destination.get());
        let (source, destination) =
            accelerator::check_bufs(source.as_deref(), destination.as_deref())?;
        let (_, made) = sizes(source.list_data_len(), &work.matrix.borrow().coder)?;
        match made > destination.list_tail_len() {
            true => Err(Error::TooBig),
            false => Ok(()),
        }
    }

    fn run(&self, task: &Task) -> Result<usize> {
        let work = &task.downcast::<Work>().ok_or(Error::InvalidValue)?.body;
        let mut engine = self.engine.borrow_mut();
        let result = engine.run(work);
        engine.source.clear();
        engine.destination.clear();
        result
    }
}
