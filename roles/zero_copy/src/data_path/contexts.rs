//! The life of a worker's contexts and tasks, before and after its run.

use std::time::Duration;

use doca::{
    Access, Buf, BufInventory, Consumer, CtxState, ErrorCode, MemoryRegion, Mmap, Pe, Producer,
    Rdma,
};
use role_common::Failure;
use role_common::rdma::RdmaEndpoint;
use role_common::submit::DeferredTasks;
use wire::control::RdmaConnectionRole;
use wire::io_message;

use super::lanes::{Counts, Kind, Lanes};
use super::refusals::Refusals;
use super::{Comch, Setup, ZeroCopyDataPath};

impl ZeroCopyDataPath {
    pub(crate) fn create(setup: Setup) -> Result<Self, Failure> {
        let count = setup.transaction_count;
        let counts = Counts::new(count);
        let region = MemoryRegion::new(counts.lanes() * io_message::SIZE)?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let messages = Mmap::register(&setup.device, region.clone(), access)?;
        let inventory = BufInventory::new(counts.lanes())?;
        let pe = Pe::new()?;
        let consumer = Consumer::start(&pe, &setup.client, &messages, count)?;
        let producer = Producer::start(&pe, &setup.client, counts.producer_tasks())?;
        let permissions = Access::LOCAL_READ_WRITE | Access::RDMA_READ | Access::RDMA_WRITE;
        let builder = || Rdma::builder(&setup.device).permissions(permissions);
        let control = builder()
            .receive_tasks(count)
            .send_tasks(count)
            .start(&pe)?;
        let data = builder().start(&pe)?;
        Ok(Self {
            lanes: Lanes::default(),
            comch: Some(Comch { consumer, producer }),
            control: RdmaEndpoint::new(RdmaConnectionRole::IoControl, control),
            data: RdmaEndpoint::new(RdmaConnectionRole::IoData, data),
            inventory,
            messages,
            pe,
            region,
            // At any time, one task of each lane is under way.
            deferred: DeferredTasks::with_capacity(counts.lanes()),
            refusals: Refusals::default(),
            setup,
            in_flight: 0,
            operations: 0,
        })
    }

    pub(super) fn endpoint(&mut self, role: RdmaConnectionRole) -> &mut RdmaEndpoint {
        match role {
            RdmaConnectionRole::IoData => &mut self.data,
            RdmaConnectionRole::IoControl => &mut self.control,
        }
    }

    pub(super) fn prepare(
        &mut self,
        client_consumer: u32,
        within: Duration,
    ) -> Result<(), Failure> {
        let Some(Comch { consumer, producer }) = &self.comch else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "the worker has left Comch already",
            ));
        };
        let ready = || {
            let states = [
                consumer.state(),
                producer.state(),
                self.control.rdma().state(),
                self.data.rdma().state(),
            ];
            states.iter().all(|&state| state == CtxState::Running)
        };
        if !self.pe.progress_until(within, ready) {
            return Err(Failure::timed_out(
                "the Comch and RDMA contexts to be ready",
                within,
            ));
        }
        let target = self.control.connection()?;
        let task = |kind, token, message: &Buf| match kind {
            Kind::ReceiveRequest => consumer.post_recv_task(message, token),
            Kind::ForwardRequest => self.control.rdma().send_task(target, message, token),
            Kind::ReceiveResult => self.control.rdma().receive_task(message, token),
            Kind::ForwardResult | Kind::Refuse => {
                producer.send_task(message, client_consumer, token)
            }
        };
        let counts = Counts::new(self.setup.transaction_count);
        self.lanes = Lanes::allocate(counts, &self.inventory, &self.messages, task)?;
        self.refusals = Refusals::new(self.lanes.refusals(), self.lanes.transactions());
        for lane in 0..self.lanes.transactions() {
            for kind in [Kind::ReceiveResult, Kind::ReceiveRequest] {
                self.submit(lane, kind)
                    .map_err(|code| Failure::new(code, format!("first {kind:?}")))?;
            }
        }
        Ok(())
    }

    pub(super) fn leave_comch(&mut self) -> Result<(), Failure> {
        self.lanes = Lanes::default();
        let Some(Comch { consumer, producer }) = self.comch.take() else {
            return Ok(());
        };
        // Both are stopped, whatever comes of the first.
        let results = [consumer.stop(), producer.stop()];
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}
