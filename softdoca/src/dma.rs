//! DMA: copies between local memory and memory exported by another process for PCIe.

use std::rc::Rc;
use std::sync::Arc;

use crate::accelerator::{self, Accelerator, BufSlot, Offload};
use crate::buffer::{BufHandle, copy_list};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

/// The DMA kind of context.
#[derive(Default)]
pub(crate) struct Dma {
    pub(crate) copies: TaskPool,
}

/// Body of a task that appends a copy of a list's data to another list's data.
pub(crate) struct Copy {
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
}

impl Dma {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Offload::context(Self::default(), device)
    }
}

impl Copy {
    pub(crate) fn new(source: Option<BufHandle>, destination: Option<BufHandle>) -> Self {
        Self {
            source: BufSlot::new(source),
            destination: BufSlot::new(destination),
        }
    }
}

impl Accelerator for Dma {
    const TAKES_LONG: bool = false;
    const FAILURE_IS_FATAL: bool = true;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        std::iter::once(&self.copies)
    }

    fn check(&self, task: &Task) -> Result<()> {
        let copy = &task.downcast::<Copy>().ok_or(Error::InvalidValue)?.body;
        let (source, destination) = (copy.source.get(), copy.destination.get());
        let (source, destination) =
            accelerator::check_bufs(source.as_deref(), destination.as_deref())?;
        match accelerator::source_len(source)? > destination.list_tail_len() {
            true => Err(Error::TooBig),
            false => Ok(()),
        }
    }

    fn run(&self, task: &Task) -> Result<usize> {
        let copy = &task.downcast::<Copy>().ok_or(Error::InvalidValue)?.body;
        let (source, destination) = (copy.source.get(), copy.destination.get());
        let (source, destination) =
            accelerator::check_bufs(source.as_deref(), destination.as_deref())?;
        accelerator::source_len(source)?;
        copy_list(destination, source)
    }
}
