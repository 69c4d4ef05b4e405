//! What an honest service does for the requests, and what it looks at there.

use std::time::{Duration, Instant};

use doca::Mmap;
use wire::control::{InitStorage, Payload};
use wire::release::Release;

use super::Service;
use crate::role::initiator::data_path::{Bounds, DataPath};
use crate::role::initiator::host_memory::HostMemory;
use crate::role::{During as _, IoChannel, Wrong};

/// An init_storage_request of any release, and the batch size of that of 3.0.
fn init_of(request: &Payload) -> Result<(InitStorage, Option<u32>), Wrong> {
    let init = request.as_init_storage();
    init.ok_or_else(|| Wrong::expected("memory", request.message_type()))
}

impl Service {
    /// Does what a request asks for; the answer to it.
    pub(in crate::role::initiator) fn perform(
        &mut self,
        request: &Payload,
    ) -> Result<Payload, Wrong> {
        Ok(match request {
            Payload::QueryStorageRequest => {
                Payload::QueryStorageResponse(self.plan.details.clone())
            }
            Payload::InitStorageRequest(_) | Payload::BatchedInitStorageRequest(_) => {
                let (init, batch_size) = init_of(request)?;
                Wrong::unless(
                    batch_size.is_some() == (self.release == Release::V3_0),
                    format!(
                        "the init_storage_request of {}, see --protocol",
                        self.release
                    ),
                    format!("batch size {batch_size:?}"),
                )?;
                self.init(&init)?;
                Payload::InitStorageResponse
            }
            Payload::StartStorageRequest => {
                self.meet_consumers()?;
                Payload::StartStorageResponse
            }
            Payload::StopStorageRequest => {
                self.data()?.close_channels()?;
                Payload::StopStorageResponse
            }
            Payload::ShutdownRequest => {
                // Those of the workers, which would write into a service that is going.
                Wrong::unless(
                    self.control()?.consumers().is_empty(),
                    "an initiator that has destroyed its consumers before shutdown_request",
                    format!("consumers {:?}", self.control()?.consumers()),
                )?;
                Payload::ShutdownResponse
            }
            other => return Err(Wrong::expected("a request", other.message_type())),
        })
    }

    /// Exports the initiator's memory again, as a service does for its targets.
    pub(in crate::role::initiator) fn pass_on_memory(
        &self,
        request: &Payload,
    ) -> Result<(), Wrong> {
        let (init, _) = init_of(request)?;
        let memory = Mmap::import(&self.device, &init.mmap_export_blob)?;
        let blob = memory
            .export_rdma(&self.device)
            .during("exporting the initiator's memory for RDMA")?;
        // Which is also how a target reaches it.
        let len = Mmap::import(&self.device, &blob)?.len();
        Wrong::unless(len == memory.len(), format!("{} bytes", memory.len()), len)
    }

    /// For a while, no request for I/O may come, because it has to come after `what`.
    pub(in crate::role::initiator) fn expect_no_io(&mut self, what: &str) -> Result<(), Wrong> {
        let deadline = Instant::now() + Duration::from_millis(150);
        while Instant::now() < deadline {
            if let Some(io) = self.data()?.next()? {
                return Err(Wrong::expected(
                    format!("no request before {what}"),
                    format!("{io:?}"),
                ));
            }
        }
        Ok(())
    }

    /// Looks at what init_storage_request says, and makes this side of the data path.
    fn init(&mut self, init: &InitStorage) -> Result<(), Wrong> {
        let plan = &self.plan;
        Wrong::unless(
            init.core_count == plan.workers,
            format!("core count {}, one for each --cpu", plan.workers),
            init.core_count,
        )?;
        Wrong::unless(
            (1..=plan.transactions).contains(&init.transaction_count),
            format!("a transaction count of 1 to {}", plan.transactions),
            init.transaction_count,
        )?;
        let host = HostMemory::import(&self.device, &init.mmap_export_blob)
            .during("the export blob in init_storage_request")?;
        let channels = self.channels(plan.workers, init.transaction_count)?;
        self.data = Some(self.data_path(channels, host, init));
        Ok(())
    }

    /// Consumers and producers of this side, one pair for a worker.
    pub(in crate::role::initiator) fn channels(
        &self,
        count: u32,
        transactions: u32,
    ) -> Result<Vec<IoChannel>, Wrong> {
        let Some(control) = &self.control else {
            return Err(Wrong::new("the check has closed the channel"));
        };
        let channel = |_| IoChannel::start(&self.device, control, transactions * 2, self.patience);
        (0..count).map(channel).collect()
    }

    fn data_path(
        &self,
        channels: Vec<IoChannel>,
        host: HostMemory,
        init: &InitStorage,
    ) -> DataPath {
        let bounds = Bounds {
            storage: self.plan.details.clone(),
            transactions: init.transaction_count,
            io_size: self
                .plan
                .details
                .block_size
                .saturating_mul(self.plan.blocks_per_io),
        };
        let storage = self.plan.storage.clone();
        DataPath::new(channels, host, bounds, self.release, storage, self.patience)
    }

    /// Waits for the initiator's consumers: the n-th belongs to the n-th worker.
    fn meet_consumers(&mut self) -> Result<(), Wrong> {
        let (count, patience) = (self.plan.workers as usize, self.patience);
        let control = self.control()?;
        let what = format!("{count} consumers of the initiator");
        control.wait_until(&what, patience, |control| {
            control.consumers().len() >= count
        })?;
        let consumers = control.consumers().to_vec();
        Wrong::unless(consumers.len() == count, what, consumers.len())?;
        self.data()?.send_to(&consumers)
    }
}
