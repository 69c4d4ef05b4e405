//! Fetching content from the initiator's memory.
//!
//! A DMA context stops when one of its tasks fails, and takes the others down with it. They did nothing
//! wrong, so they are repeated on a new context.

use doca::{Buf, BufInventory, ContextId, Device, Dma, ErrorCode, Mmap, Pe, Task};
use role_common::Failure;
use role_common::stored_block::Geometry;

use super::private_memory::PrivateMemory;
use super::token::{Kind, Token};

/// A copy of one transaction.
struct Fetch {
    task: Task,
    bufs: FetchBufs,
}

/// What it copies: from the initiator's memory to the private memory of the transaction.
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
    /// Transactions whose tasks were taken down.
    repeat: Vec<usize>,
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

    /// Whether an event is about this context, which may stop without an end of everything.
    pub(super) fn owns(&self, context: ContextId) -> bool {
        self.dma.as_ref().is_some_and(|dma| dma.id() == context)
    }

    /// Whether an event is about the context that [`restart`](Self::restart) has replaced: it means nothing any more.
    pub(super) fn has_replaced(&self, context: ContextId) -> bool {
        self.replaced == Some(context)
    }

    /// Makes the tasks.
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
            self.fetches.push(Fetch { task, bufs });
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

    /// Aims the task of a transaction at `length` bytes at `offset` of the initiator's memory.
    ///
    /// # Errors
    ///
    /// They are outside.
    pub(super) fn aim(&self, index: usize, offset: u64, length: usize) -> Result<(), ErrorCode> {
        let FetchBufs {
            source,
            destination,
        } = &self.fetches[index].bufs;
        source
            .set_data(offset, length)
            .map_err(super::tasks::refused)?;
        destination.reset_data().map_err(super::tasks::refused)
    }

    pub(super) fn get(&self, index: usize) -> &Task {
        &self.fetches[index].task
    }

    /// Whether tasks can be submitted; otherwise the transaction is to [wait](Self::postpone).
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

    /// This transaction fetches again, or at last, when there is a new context.
    #[cold]
    pub(super) fn postpone(&mut self, index: usize) {
        self.repeat.push(index);
    }

    /// A task failed, and the context stops.
    #[cold]
    pub(super) fn failed(&mut self) {
        self.broken = true;
    }

    /// Starts a new context when the old one has failed and all its tasks have ended, and returns the
    /// transactions that are to fetch again.
    #[cold]
    pub(super) fn restart(&mut self, pe: &Pe) -> Result<Vec<usize>, Failure> {
        // Completions that wait to be taken count: behind a restart they would be taken for those of the new tasks.
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
            self.fetches.push(Fetch { task, bufs });
        }
        self.broken = false;
        let repeat = self.repeat.clone();
        self.repeat.clear();
        Ok(repeat)
    }
}

#[cfg(test)]
mod tests {
    use doca::{Access, Event, MemoryRegion};

    use super::*;

    #[test]
    fn a_failed_copy_costs_the_others_a_new_context_and_nothing_else() {
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
            fetcher.aim(index, 0, 128).expect("inside");
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
        fetcher.postpone(1);
        assert_eq!(fetcher.restart(&pe).expect("a new context"), [1]);
        assert!(fetcher.is_usable());
        assert_eq!(fetcher.restart(&pe).expect("again"), [0; 0], "once");
        fetcher.aim(1, 4096 - 128, 128).expect("inside");
        assert_eq!(
            fetcher.aim(1, 4096 - 127, 128),
            Err(ErrorCode::INVALID_VALUE)
        );
    }
}
