//! The life of a worker's contexts and tasks, before and after its run.

use std::sync::Arc;
use std::time::Duration;

use doca::{Access, Buf, BufInventory, ErrorCode, Mmap, Pe};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::readiness::wait_until_running;
use role_common::service::WorkerSetup;
use role_common::service::endpoints::{ComchEnds, TargetEnds};

use wire::control::FEATURE_FLUSH;

use super::ZeroCopyDataPath;
use super::forward::Forwarder;
use super::lanes::{Counts, Kind, Lanes};

impl ZeroCopyDataPath {
    pub(crate) fn create(setup: WorkerSetup) -> Result<Self, Failure> {
        let count = setup.transaction_count;
        let counts = Counts::new(count);
        let messages = Messages::new(counts.lanes())?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let message_map = Mmap::register(&setup.device, Arc::clone(messages.region()), access)?;
        let inventory = BufInventory::new(counts.lanes())?;
        let pe = Pe::new()?;
        let comch = ComchEnds::start(
            &pe,
            &setup.client,
            &message_map,
            count,
            counts.producer_tasks(),
        )?;
        let target = TargetEnds::start(&pe, &setup.device, count)?;
        Ok(Self {
            forwarder: Forwarder::new(
                messages,
                counts,
                setup.features & FEATURE_FLUSH != 0,
                setup.release,
            ),
            comch: Some(comch),
            target,
            inventory,
            message_map,
            pe,
            setup,
        })
    }

    pub(super) fn prepare(
        &mut self,
        client_consumer: u32,
        within: Duration,
    ) -> Result<(), Failure> {
        let Some(comch) = &self.comch else {
            return Err(Failure::new(
                ErrorCode::BAD_STATE,
                "the worker has left Comch already",
            ));
        };
        let states = || comch.states().into_iter().chain(self.target.states());
        wait_until_running(&self.pe, within, "the Comch and RDMA contexts", states)?;
        let control = &self.target.control;
        let target = control.connection()?;
        let task = |kind, token, message: &Buf| match kind {
            Kind::ReceiveRequest => comch.consumer.post_recv_task(message, token),
            Kind::ForwardRequest => control.rdma().send_task(target, message, token),
            Kind::ReceiveResult => control.rdma().receive_task(message, token),
            Kind::ForwardResult | Kind::Refuse => {
                comch.producer.send_task(message, client_consumer, token)
            }
        };
        let counts = Counts::new(self.setup.transaction_count);
        let lanes = Lanes::allocate(counts, &self.inventory, &self.message_map, task)?;
        self.forwarder.begin(lanes)
    }

    pub(super) fn leave_comch(&mut self) -> Result<(), Failure> {
        self.forwarder.end();
        self.comch.take().map_or(Ok(()), ComchEnds::stop)
    }
}
