//! Memory advice: a task that invalidates the cache of a buf's memory.
//!
//! The memory of processes on one machine is coherent, so there is nothing to invalidate. The task only orders
//! accesses: writes that happened before it are visible after its completion.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::accelerator::{self, Accelerator, BufSlot, MAX_BUF_SIZE, Offload};
use crate::buffer::BufHandle;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

/// The mmap-advise kind of context.
#[derive(Default)]
pub(crate) struct Advise {
    pub(crate) invalidations: TaskPool,
}

/// Body of a task that invalidates the cache of a buf's memory.
pub(crate) struct Invalidate {
    pub(crate) buf: BufSlot,
}

impl Advise {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Offload::context(Self::default(), device)
    }
}

impl Invalidate {
    pub(crate) fn new(buf: Option<BufHandle>) -> Self {
        Self {
            buf: BufSlot::new(buf),
        }
    }
}

impl Accelerator for Advise {
    const TAKES_LONG: bool = false;
    const FAILURE_IS_FATAL: bool = false;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        std::iter::once(&self.invalidations)
    }

    fn check(&self, task: &Task) -> Result<()> {
        let body = &task
            .downcast::<Invalidate>()
            .ok_or(Error::InvalidValue)?
            .body;
        let buf = body.buf.get();
        let list = accelerator::check_list(buf.as_deref())?;
        for buf in list.list() {
            accelerator::check_reach(&*buf.mmap()?)?;
            if buf.capacity() > MAX_BUF_SIZE {
                return Err(Error::InvalidValue);
            }
        }
        Ok(())
    }

    fn run(&self, task: &Task) -> Result<usize> {
        self.check(task)?;
        fence(Ordering::SeqCst);
        Ok(0)
    }
}
