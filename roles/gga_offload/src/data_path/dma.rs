//! Fetching content from the initiator's memory.
//!
//! A DMA context stops when one of its tasks fails, and the others are flushed. They are repeated on a new context.

use doca::{Buf, BufInventory, ContextId, Device, Dma, ErrorCode, Mmap, Pe, Task};
use role_common::Failure;
use role_common::stored_block::Geometry;

use super::memory::PrivateMemory;
use super::tasks::{Kind, Token};

/// The copy of one slot.
struct Fetch {
    task: Task,
    bufs: FetchBufs,
    /// Where it copies from, in the initiator's memory.
    offset: u64,
}

/// Its source in the initiator's memory, and its destination in the private memory of the slot.
#[derive(Clone)]
struct FetchBufs {
    source: Buf,
    destination: Buf,
}

/// The DMA context of a worker, and its tasks. Fields are in the order in which they must be dropped.
pub(super) struct Fetcher {
    fetches: Vec<Fetch>,
    dma: Option<Dma>,
    device: Device,
    count: u32,
    /// Whether a task failed, and the context with it.
    broken: bool,
    /// Slots whose tasks were flushed or could not be submitted, and what they are to copy from.
    repeat: Vec<(usize, u64)>,
    /// The context before this one: the last changes of its state are delivered late.
    replaced: Option<ContextId>,
}

impl Fetcher {
    /// Starts the context, for as many transactions.
    pub(super) fn start(pe: &Pe, device: &Device, count: u32) -> Result<Self, Failure> {
        Ok(Self {
            fetches: Vec::new(),
            dma: Some(Dma::start(pe, device, count)?),
            device: device.clone(),
            count,
            broken: false,
            repeat: Vec::new(),
            replaced: None,
        })
    }

    pub(super) fn state(&self) -> doca::CtxState {
        let state = self.dma.as_ref().map(Dma::state);
        state.unwrap_or(doca::CtxState::Idle)
    }

    /// Whether an event is about this context, which may stop while the session goes on.
    pub(super) fn owns(&self, context: ContextId) -> bool {
        self.dma.as_ref().is_some_and(|dma| dma.id() == context)
    }

    /// Whether an event is about the context that [`restart`](Self::restart) has replaced.
    pub(super) fn has_replaced(&self, context: ContextId) -> bool {
        self.replaced == Some(context)
    }

    /// Allocates the tasks.
    pub(super) fn prepare(
        &mut self,
        inventory: &BufInventory,
        initiator: &Mmap,
        private: &PrivateMemory,
        geometry: Geometry,
    ) -> Result<(), Failure> {
        for index in 0..self.count as usize {
            let length = geometry.logical_block_size as usize;
            let bufs = FetchBufs {
                source: inventory.buf(initiator, 0, 1)?,
                destination: private.destination(inventory, index, length)?,
            };
            let task = self.task(index, &bufs)?;
            let offset = 0;
            self.fetches.push(Fetch { task, bufs, offset });
        }
        self.repeat.reserve(self.fetches.len());
        Ok(())
    }

    fn task(&self, index: usize, bufs: &FetchBufs) -> Result<Task, Failure> {
        let dma = self.dma.as_ref();
        let dma = dma.ok_or_else(|| Failure::unexpected("the DMA context was stopped"))?;
        let token = Token::new(index, Kind::Fetch).0;
        Ok(dma.copy_task(&bufs.source, &bufs.destination, token)?)
    }

    /// Sets the range that the task of a slot copies: `length` bytes at `offset` of the initiator's memory.
    ///
    /// # Errors
    ///
    /// They are outside of it.
    pub(super) fn set_range(
        &mut self,
        index: usize,
        offset: u64,
        length: usize,
    ) -> Result<(), ErrorCode> {
        let fetch = &mut self.fetches[index];
        fetch.offset = offset;
        let FetchBufs {
            source,
            destination,
        } = &fetch.bufs;
        source
            .set_data(offset, length)
            .map_err(|error| error.code)?;
        destination.reset_data().map_err(|error| error.code)
    }

    /// Where the task of a slot copies from.
    #[cold]
    pub(super) fn offset(&self, index: usize) -> u64 {
        self.fetches[index].offset
    }

    pub(super) fn get(&self, index: usize) -> &Task {
        &self.fetches[index].task
    }

    /// Whether tasks can be submitted; otherwise the copy is to be [postponed](Self::postpone).
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        // The context stops before the completion of the task that failed is taken.
        !self.broken && self.state() == doca::CtxState::Running
    }

    /// Whether a task failed, and there is no new context yet.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The copy of this slot, from this offset, is to be submitted when there is a new context.
    #[cold]
    pub(super) fn postpone(&mut self, slot: usize, offset: u64) {
        self.repeat.push((slot, offset));
    }

    /// A task failed, and the context stops.
    #[cold]
    pub(super) fn failed(&mut self) {
        self.broken = true;
    }

    /// Starts a new context when the old one has failed and all its tasks have completed, and returns the postponed copies.
    #[cold]
    pub(super) fn restart(&mut self, pe: &Pe) -> Result<Vec<(usize, u64)>, Failure> {
        // Completions that were not reaped count: behind a restart they would be taken for those of the new tasks.
        if self.fetches.iter().any(|fetch| fetch.task.is_in_flight()) {
            return Ok(Vec::new());
        }
        let bufs: Vec<FetchBufs> = self.fetches.drain(..).map(|fetch| fetch.bufs).collect();
        if let Some(old) = self.dma.take() {
            self.replaced = Some(old.id());
            old.stop()?;
        }
        self.dma = Some(Dma::start(pe, &self.device, self.count)?);
        for (index, bufs) in bufs.into_iter().enumerate() {
            let task = self.task(index, &bufs)?;
            let offset = 0;
            self.fetches.push(Fetch { task, bufs, offset });
        }
        self.broken = false;
        Ok(std::mem::take(&mut self.repeat))
    }
}

#[cfg(test)]
mod tests {
    use doca::{Access, Event, MemoryRegion};

    use super::*;

    #[test]
    fn a_failed_copy_restarts_the_context_and_the_others_are_repeated() {
        let device = Device::open("mlx5_0").expect("device");
        let pe = Pe::new().expect("engine");
        let geometry = Geometry::compatible(128);
        let map = |access| {
            let region = MemoryRegion::new(4096).expect("memory");
            Mmap::register(&device, region, access).expect("map")
        };
        let readable = map(Access::LOCAL_READ_WRITE);
        let read_only = PrivateMemory::read_only(&device, geometry, 2);
        let inventory = BufInventory::new(8).expect("bufs");
        let mut fetcher = Fetcher::start(&pe, &device, 2).expect("started");
        // Copies into memory that must not be written fail.
        fetcher
            .prepare(&inventory, &readable, &read_only, geometry)
            .expect("tasks");
        for index in 0..2 {
            fetcher.set_range(index, 0, 128).expect("inside");
            fetcher.get(index).submit().expect("submitted");
        }
        let mut results = Vec::new();
        while results.len() < 2 {
            if let Some(Event::Task(completion)) = pe.poll() {
                results.push((Token(completion.token).parts().0, completion.result));
            }
        }
        assert_eq!(
            results,
            [
                (0, Err(ErrorCode::NOT_PERMITTED)),
                (1, Err(ErrorCode::SHUTDOWN))
            ]
        );
        assert!(!fetcher.is_usable());
        fetcher.failed();
        fetcher.postpone(1, 7);
        assert_eq!(fetcher.restart(&pe).expect("a new context"), [(1, 7)]);
        assert!(fetcher.is_usable());
        assert_eq!(fetcher.restart(&pe).expect("again"), [], "once");
        fetcher.set_range(1, 4096 - 128, 128).expect("inside");
        assert_eq!(
            fetcher.set_range(1, 4096 - 127, 128),
            Err(ErrorCode::INVALID_VALUE)
        );
    }
}
