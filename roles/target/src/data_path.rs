//! What one worker thread of the target does.
//!
//! A request arrives in a message buffer (RDMA receive), the blocks move between the service's
//! client and the storage (RDMA write for a read, RDMA read for a write), and the answer leaves from
//! the same message buffer (RDMA send), which then waits for the next request. The two RDMA contexts
//! keep answers from queueing behind other transfers.

mod execution;
pub mod request;
mod transfers;

use std::sync::Arc;
use std::time::Duration;

use doca::{Access, BufInventory, Device, Mmap, Pe, PeStats, Rdma};
use role_common::Failure;
use role_common::ends;
use role_common::messages::Messages;
use role_common::rdma::RdmaEndpoint;
use role_common::readiness::wait_until_running;
use role_common::statistics::CoreStatistics;
use role_common::turns::{Limits, Turns, run_to_end};
use role_common::worker::{DataPath, RunFlag};
use wire::control::RdmaConnectionRole;
use wire::io_message::{self, Repr};

use crate::quarantine::{Quarantine, Writes};
use execution::Executor;
use transfers::Transfers;

pub(crate) fn permissions() -> Access {
    Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE
}

/// What a worker is made from.
pub(crate) struct Setup {
    pub(crate) core: u32,
    pub(crate) device: Device,
    /// The blocks.
    pub(crate) storage: Mmap,
    /// The memory of the service's client.
    pub(crate) requester: Mmap,
    pub(crate) transaction_count: u32,
    /// How long there may be nothing to do, or nobody who takes results.
    pub(crate) idle_timeout: Option<Duration>,
    /// Where its writes in flight are published; one for each transaction.
    pub(crate) writes: Arc<Writes>,
    /// Blocks that abandoned workers may still write to.
    pub(crate) quarantine: Quarantine,
}

/// What the main thread may ask for.
pub(crate) enum Command {
    /// Export a connection and connect it to the other end's export.
    Connect {
        role: RdmaConnectionRole,
        details: Vec<u8>,
    },
    /// Wait, at most this long, for the contexts to be ready; then wait for requests.
    Prepare(Duration),
}

/// Answer to a [`Command`].
pub(crate) enum Reply {
    /// The export of the local end.
    Exported(Vec<u8>),
    /// Requests may come.
    Prepared,
}

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct TargetDataPath {
    executor: Executor,
    control: RdmaEndpoint,
    data: RdmaEndpoint,
    inventory: BufInventory,
    message_map: Mmap,
    pe: Pe,
    setup: Setup,
}

impl TargetDataPath {
    pub(crate) fn create(setup: Setup) -> Result<Self, Failure> {
        let count = setup.transaction_count;
        let slots = count as usize;
        let messages = Messages::new(slots)?;
        let message_map =
            Mmap::register(&setup.device, Arc::clone(messages.region()), permissions())?;
        // One buffer for the messages of a transfer, one for either end of its blocks.
        let inventory = BufInventory::new(slots * 3)?;
        let pe = Pe::new()?;
        let builder = || Rdma::builder(&setup.device).permissions(permissions());
        let control = builder()
            .receive_tasks(count)
            .send_tasks(count)
            .start(&pe)?;
        let data = builder().read_tasks(count).write_tasks(count).start(&pe)?;
        let limits = request::Limits {
            storage: setup.storage.len(),
            requester: setup.requester.len(),
        };
        Ok(Self {
            executor: Executor::new(messages, limits, slots, &setup),
            control: RdmaEndpoint::new(RdmaConnectionRole::IoControl, control),
            data: RdmaEndpoint::new(RdmaConnectionRole::IoData, data),
            inventory,
            message_map,
            pe,
            setup,
        })
    }

    fn connect(&mut self, role: RdmaConnectionRole, details: &[u8]) -> Result<Vec<u8>, Failure> {
        let endpoint = match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        };
        let export = endpoint.export()?;
        endpoint.connect(details)?;
        Ok(export)
    }

    fn prepare(&mut self, within: Duration) -> Result<(), Failure> {
        let states = || [self.control.rdma().state(), self.data.rdma().state()];
        wait_until_running(&self.pe, within, "the RDMA contexts", states)?;
        let transfers = Transfers::allocate(
            self.setup.transaction_count,
            &self.inventory,
            [
                &self.message_map,
                &self.setup.storage,
                &self.setup.requester,
            ],
            (self.control.rdma(), self.control.connection()?),
            (self.data.rdma(), self.data.connection()?),
        )?;
        self.executor.begin(transfers)
    }
}

impl Turns for TargetDataPath {
    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        ends::turn(
            &mut self.pe,
            &mut self.executor,
            run,
            "an RDMA connection was lost: the service is gone, or its device failed",
        )
    }

    fn in_flight(&self) -> usize {
        self.executor.in_flight()
    }

    fn finished(&self) -> u64 {
        self.executor.operations()
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        Limits {
            io: self.setup.idle_timeout,
            idle: self.setup.idle_timeout,
        }
    }

    fn client(&self) -> &'static str {
        "service"
    }

    fn suspect(&self) -> &'static str {
        "the service takes no results"
    }
}

impl DataPath for TargetDataPath {
    type Command = Command;
    type Reply = Reply;
    type Report = CoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Connect { role, details } => self.connect(role, &details).map(Reply::Exported),
            Command::Prepare(within) => self.prepare(within).map(|()| Reply::Prepared),
        }
    }

    fn run(&mut self, run: &RunFlag) -> Result<CoreStatistics, Failure> {
        let calls = run_to_end(self, run)?;
        self.executor.warn();
        Ok(CoreStatistics {
            core: self.setup.core,
            operation_count: self.executor.operations(),
            pe_hit_count: calls.hits,
            pe_miss_count: calls.misses,
        })
    }
}

/// A result without an I/O, for transfers that have not seen one yet.
const NO_REQUEST: Repr = Repr {
    message_type: io_message::IoMessageType::Result,
    user_data: 0,
    result: 0,
    size: 0,
    requester_offset: 0,
    storage_offset: 0,
};
