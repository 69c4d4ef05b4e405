//! Data path of one worker thread of the zero-copy service.
//!
//! Requests arrive from the initiator (Comch consumer) and leave to the target (RDMA send) from the
//! same buffer; results arrive from the target (RDMA receive) and leave to the initiator (Comch
//! producer) likewise, unchanged. A request that is none is answered here. The second RDMA context
//! carries blocks on behalf of the target; nothing is submitted to it here.

mod contexts;
mod forward;
pub mod message;
mod refusals;
mod turns;

use doca::{BufInventory, Mmap, WorkerPe};
use role_common::Failure;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use role_common::service::{Command, Reply, WorkerSetup};
use role_common::statistics::CoreStatistics;
use role_common::turns::run_to_end;
use role_common::worker::{DataPath, RunFlag};

use forward::Forwarder;

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct ZeroCopyDataPath {
    forwarder: Forwarder,
    /// `None` after [`Command::LeaveComch`].
    comch: Option<ComchEnds>,
    target: TargetEnds,
    inventory: BufInventory,
    message_map: Mmap,
    pe: WorkerPe<Forwarder>,
    setup: WorkerSetup,
}

impl DataPath for ZeroCopyDataPath {
    type Command = Command;
    type Reply = Reply;
    type Report = CoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            // The only target has number 0.
            Command::Export { role, .. } => {
                return self.target.endpoint(role).export().map(Reply::Exported);
            }
            Command::Connect { role, details, .. } => {
                self.target.endpoint(role).connect(&details)?;
            }
            Command::Prepare { consumer, within } => self.prepare(consumer, within)?,
            Command::LeaveComch => self.leave_comch()?,
        }
        Ok(Reply::Done)
    }

    fn run(&mut self, run: &RunFlag) -> Result<CoreStatistics, Failure> {
        self.forwarder.run(run);
        let calls = run_to_end(self, run)?;
        self.forwarder.warn();
        Ok(CoreStatistics {
            core: self.setup.core,
            operation_count: self.forwarder.operations(),
            pe_hit_count: calls.hits,
            pe_miss_count: calls.misses,
            media_errors: 0,
        })
    }
}
