//! What one worker thread of the zero copy service does.
//!
//! Requests arrive from the initiator (Comch consumer) and leave to the target (RDMA send) from the
//! same buffer; results arrive from the target (RDMA receive) and leave to the initiator (Comch
//! producer) likewise, unchanged. A request that is none is answered here. The second RDMA context
//! carries blocks on behalf of the target; nothing is submitted to it here.

mod contexts;
mod forward;
mod lanes;
pub mod message;
mod refusals;

use doca::{BufInventory, Mmap, Pe};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use role_common::service::{Command, Reply, WorkerSetup};
use role_common::statistics::CoreStatistics;
use role_common::submit::DeferredTasks;
use role_common::turns::run_to_end;
use role_common::worker::{DataPath, RunFlag};

use lanes::Lanes;
use refusals::Refusals;

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct ZeroCopyDataPath {
    lanes: Lanes,
    /// `None` once the service has left it.
    comch: Option<ComchEnds>,
    target: TargetEnds,
    inventory: BufInventory,
    message_map: Mmap,
    pe: Pe,
    messages: Messages,
    deferred: DeferredTasks,
    setup: WorkerSetup,
    /// Requests that were received and whose results have not been sent.
    in_flight: usize,
    operations: u64,
    /// Requests that the target owes a result for.
    awaited: usize,
    /// Results that nobody waited for.
    unasked: u64,
    refusals: Refusals,
}

impl DataPath for ZeroCopyDataPath {
    type Command = Command;
    type Reply = Reply;
    type Report = CoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            // There is one target.
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
        let calls = run_to_end(self, run)?;
        if self.refusals.count() != 0 {
            tracing::warn!("{} messages were refused", self.refusals.count());
        }
        if self.unasked != 0 {
            tracing::warn!(
                "{} results that nobody waited for were ignored",
                self.unasked
            );
        }
        Ok(CoreStatistics {
            core: self.setup.core,
            operation_count: self.operations,
            pe_hit_count: calls.hits,
            pe_miss_count: calls.misses,
        })
    }
}
