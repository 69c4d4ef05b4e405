//! The life of a worker's contexts and tasks, before and after its run.

use std::sync::Arc;
use std::time::Duration;

use doca::{Access, BufInventory, Compress, ErasureCoding, ErrorCode, Mmap, Pe};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::readiness::wait_until_running;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use role_common::stored_block::Encoder;
use role_common::submit::DeferredTasks;

use super::dma::Fetcher;
use super::idle::IdleTransactions;
use super::private_memory::PrivateMemory;
use super::stripes::WaitingForStripe;
use super::survival::Survival;
use super::tasks::{self, Maker, Tasks};
use super::token::Kind;
use super::transaction::Transaction;
use super::{GgaDataPath, Setup, all_transactions};
use crate::statistics::GgaCoreStatistics;
use crate::target::Target;

/// Tasks of each transaction that can be deferred at once: at most one per target and one more, and the
/// receives of results.
const DEFERRED: usize = 3 + 1 + 3;

impl GgaDataPath {
    pub(crate) fn create(setup: Setup) -> Result<Self, Failure> {
        let (worker, geometry) = (&setup.worker, setup.volume.geometry);
        let of_initiator = worker.transaction_count as usize;
        let count = all_transactions(worker.transaction_count, setup.survival.is_some());
        let transactions = count as usize;
        let messages = Messages::new(tasks::messages(transactions))?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let message_map = Mmap::register(&worker.device, Arc::clone(messages.region()), access)?;
        let private = PrivateMemory::allocate(&worker.device, geometry, transactions)?;
        let inventory = BufInventory::new(tasks::bufs(transactions))?;
        let pe = Pe::new()?;
        let comch = ComchEnds::start(&pe, &worker.client, &message_map, count, count)?;
        let ends = || TargetEnds::start(&pe, &worker.device, count);
        let targets = [Some(ends()?), Some(ends()?), Some(ends()?)];
        let recoveries = count.saturating_mul(2);
        let coding = ErasureCoding::builder(&worker.device)
            .create_tasks(count)
            .recover_tasks(recoveries)
            .start(&pe)?;
        let decompressor = Compress::builder(&worker.device)
            .decompress_lz4_stream_tasks(count)
            .start(&pe)?;
        let fetcher = Fetcher::start(&pe, &worker.device, count)?;
        Ok(Self {
            tasks: Tasks::default(),
            fetcher,
            comch: Some(comch),
            targets,
            coding,
            decompressor,
            inventory,
            message_map,
            messages,
            private,
            pe,
            transactions: (0..transactions).map(|_| Transaction::new()).collect(),
            idle: IdleTransactions::new(of_initiator),
            waiting: WaitingForStripe::with_capacity(transactions),
            deferred: DeferredTasks::with_capacity(transactions * DEFERRED),
            encoder: Encoder::new(geometry, setup.checksum.written()),
            content: vec![0; geometry.logical_block_size as usize],
            stored: vec![0; geometry.stored_block_size as usize],
            recovered: vec![0; geometry.half_block_size() as usize],
            in_flight: 0,
            until_recovery: setup.recover_every,
            statistics: GgaCoreStatistics {
                degraded: setup.survival.is_some().then(Default::default),
                ..GgaCoreStatistics::default()
            },
            survival: (setup.survival.as_ref())
                .map(|survival| Survival::new(survival, of_initiator..transactions)),
            setup,
        })
    }

    pub(super) fn target_ends(&mut self, target: usize) -> Result<&mut TargetEnds, Failure> {
        self.targets
            .get_mut(target)
            .and_then(Option::as_mut)
            .ok_or_else(|| Failure::invalid(format!("there is no target {target}")))
    }

    pub(super) fn prepare(
        &mut self,
        initiator_consumer: u32,
        within: Duration,
    ) -> Result<(), Failure> {
        let Some(comch) = &self.comch else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "the worker has left Comch already",
            ));
        };
        let states = || {
            let targets = self.targets.iter().flatten();
            let accelerators = [self.coding.state(), self.decompressor.state()];
            comch
                .states()
                .into_iter()
                .chain(targets.flat_map(TargetEnds::states))
                .chain([self.fetcher.state()])
                .chain(accelerators)
        };
        let what = "the Comch, RDMA and accelerator contexts";
        wait_until_running(&self.pe, within, what, states)?;
        let setup = &self.setup;
        let geometry = setup.volume.geometry;
        let transactions = self.transactions.len();
        let first_chunk = u64::from(setup.worker.index) * transactions as u64;
        let encoding = self.coding.matrix(setup.matrix_type.into(), 2, 1)?;
        let recovery = |lost: Target| {
            self.coding
                .recover_matrix(&encoding, &[lost.number() as u32])
        };
        let recoveries = [recovery(Target::Data1)?, recovery(Target::Data2)?];
        let maker = Maker {
            comch,
            initiator_consumer,
            targets: &self.targets,
            coding: &self.coding,
            encoding,
            recoveries,
            decompressor: &self.decompressor,
            inventory: &self.inventory,
            messages: &self.message_map,
            local: &setup.local.mmap,
            private: &self.private,
            private_parity: self.survival.is_some(),
            initiator: &setup.initiator,
            geometry,
            first_chunk,
        };
        let doing = format_args!("{transactions} transactions");
        self.tasks =
            Tasks::allocate(&maker, transactions).map_err(|failure| failure.context(doing))?;
        self.fetcher
            .prepare(&self.inventory, &setup.initiator, &self.private, geometry)?;
        for index in 0..transactions {
            for target in Target::ALL {
                self.must_submit(index, Kind::ReceiveResult(target))?;
            }
        }
        for index in 0..self.setup.worker.transaction_count as usize {
            self.must_submit(index, Kind::ReceiveRequest)?;
        }
        Ok(())
    }

    pub(super) fn leave_comch(&mut self) -> Result<(), Failure> {
        self.tasks = Tasks::default();
        self.comch.take().map_or(Ok(()), ComchEnds::stop)
    }
}
