//! What one worker thread of the gga_offload service does.
//!
//! A request of the initiator becomes a transaction, which does its blocks one after the other: it takes
//! the block's stripe, `read`s or `write`s it, gives the stripe back, and answers when there is no
//! further block. What targets sent wrongly is found and made good for in `heal`. Every step is a task
//! of the device or a message to targets; `events` brings its completion back to the transaction, and
//! an error in any step ends that transaction with an error result and nothing else. `survival` is what
//! happens instead where the loss of a target does not end everything, `errands` take a target back, and `rebuild` makes what
//! it has missed.

mod contexts;
mod dma;
mod errands;
mod events;
mod finish;
mod heal;
mod idle;
mod private_memory;
mod read;
mod rebuild;
pub mod request;
mod seal;
mod silence;
mod storage;
mod stripes;
mod survival;
mod tasks;
mod token;
mod transaction;
mod write;

use std::sync::Arc;
use std::time::Duration;

use doca::{BufInventory, Compress, ErasureCoding, Mmap, Pe};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use role_common::service::{Command, Reply, WorkerSetup};
use role_common::stored_block::{Encoder, Geometry, MatrixType};
use role_common::submit::DeferredTasks;
use role_common::turns::run_to_end;
use role_common::worker::{DataPath, RunFlag};

use crate::cli::ChecksumPolicy;
use crate::local_memory::LocalMemory;
use crate::redundancy::Shared;
use crate::statistics::GgaCoreStatistics;
use crate::stripe_order::StripeOrder;
use dma::Fetcher;
use idle::IdleTransactions;
use private_memory::PrivateMemory;
use stripes::WaitingForStripe;
use survival::Survival;
use tasks::Tasks;
use transaction::Transaction;

/// The storage as the initiator sees it, and how it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    /// Sizes of stored blocks and of their content.
    pub geometry: Geometry,
    /// Number of blocks; as many bytes of content are a number of 64 bits.
    pub block_count: u64,
}

/// Transactions of each worker, when those of the initiator are so many. With `survives`, some are the worker's own.
pub(crate) fn all_transactions(of_initiator: u32, survives: bool) -> u32 {
    of_initiator + if survives { rebuild::AT_ONCE } else { 0 }
}

/// What a worker is made from.
pub(crate) struct Setup {
    pub(crate) worker: WorkerSetup,
    pub(crate) local: LocalMemory,
    pub(crate) initiator: Mmap,
    pub(crate) stripe_order: Arc<StripeOrder>,
    pub(crate) volume: Volume,
    pub(crate) matrix_type: MatrixType,
    pub(crate) checksum: ChecksumPolicy,
    pub(crate) recover_every: u32,
    /// `None` where the loss of a target ends everything.
    pub(crate) survival: Option<SurvivalSetup>,
}

/// What the loss of a target is survived with.
pub(crate) struct SurvivalSetup {
    pub(crate) shared: Arc<Shared>,
    /// A target that owes an answer for so long is lost.
    pub(crate) silence: Duration,
}

/// The data path of one worker. Fields are in the order in which they must be dropped.
pub(crate) struct GgaDataPath {
    tasks: Tasks,
    fetcher: Fetcher,
    /// `None` once the service has left it.
    comch: Option<ComchEnds>,
    /// `None` when the target is lost.
    targets: [Option<TargetEnds>; 3],
    coding: ErasureCoding,
    decompressor: Compress,
    inventory: BufInventory,
    message_map: Mmap,
    messages: Messages,
    private: PrivateMemory,
    pe: Pe,
    transactions: Vec<Transaction>,
    /// Those of the initiator that wait for a request.
    idle: IdleTransactions,
    waiting: WaitingForStripe,
    deferred: DeferredTasks,
    encoder: Encoder,
    /// Room to look at what lies in memory of the device: content that is to be compressed, a stored block
    /// that is to be checked, and a half of it that was recovered.
    content: Vec<u8>,
    stored: Vec<u8>,
    recovered: Vec<u8>,
    survival: Option<Survival>,
    setup: Setup,
    /// Requests that were received and whose results have not been sent.
    in_flight: usize,
    /// Reads until the next one does without one of the halves; 0 for never.
    until_recovery: u32,
    statistics: GgaCoreStatistics,
}

impl DataPath for GgaDataPath {
    type Command = Command;
    type Reply = Reply;
    type Report = GgaCoreStatistics;

    fn execute(&mut self, command: Command) -> Result<Reply, Failure> {
        match command {
            Command::Export { target, role } => {
                let export = self.target_ends(target)?.endpoint(role).export()?;
                return Ok(Reply::Exported(export));
            }
            Command::Connect {
                target,
                role,
                details,
            } => self.target_ends(target)?.endpoint(role).connect(&details)?,
            Command::Prepare { consumer, within } => self.prepare(consumer, within)?,
            Command::LeaveComch => self.leave_comch()?,
        }
        Ok(Reply::Done)
    }

    fn run(&mut self, run: &RunFlag) -> Result<GgaCoreStatistics, Failure> {
        let calls = run_to_end(self, run)?;
        let core = &mut self.statistics.core;
        core.core = self.setup.worker.core;
        core.pe_hit_count = calls.hits;
        core.pe_miss_count = calls.misses;
        Ok(self.statistics)
    }
}
