//! The contexts and slots of a worker, before and after its run.

use std::sync::Arc;
use std::time::Duration;

use doca::{Access, BufInventory, Consumer, ErrorCode, Mmap, Producer, Slots, WorkerPe};
use role_common::Failure;
use role_common::messages::Messages;
use role_common::readiness::wait_until_running;
use role_common::service::WorkerSetup;
use role_common::service::endpoints::{ComchEnds, TargetEnds};
use wire::control::FEATURE_FLUSH;
use wire::io_message;

use super::ZeroCopyDataPath;
use super::forward::{
    Forwarder, Purpose, RECEIVE, RequestReceived, RequestSent, ResultReceived, ResultSent, SEND,
};

/// Number of refusals that can be in flight. There are few: each takes one of the producer's tasks, of which devices have
/// a limited number.
const REFUSALS: u32 = 16;

/// Numbers of objects of a worker.
#[derive(Debug, Clone, Copy)]
struct Counts {
    transactions: u32,
}

impl Counts {
    fn refusals(self) -> u32 {
        REFUSALS.min(self.transactions)
    }

    /// Number of the producer's tasks: results and refusals.
    fn producer_tasks(self) -> u32 {
        self.transactions + self.refusals()
    }

    /// Number of slots, each with a buffer for one message.
    fn slots(self) -> usize {
        self.transactions as usize * 2 + self.refusals() as usize
    }
}

impl ZeroCopyDataPath {
    pub(crate) fn create(setup: WorkerSetup) -> Result<Self, Failure> {
        let transactions = setup.transaction_count;
        let counts = Counts { transactions };
        let messages = Messages::new(counts.slots())?;
        let access = Access::LOCAL_READ_WRITE | Access::PCI_READ_WRITE;
        let message_map = Mmap::register(&setup.device, Arc::clone(messages.region()), access)?;
        let inventory = BufInventory::new(counts.slots())?;
        let pe = WorkerPe::new()?;
        let (client, sends) = (&setup.client, counts.producer_tasks());
        let comch = ComchEnds {
            consumer: Consumer::start_with::<RequestReceived>(
                &pe,
                client,
                &message_map,
                transactions,
            )?,
            producer: Producer::start_with::<ResultSent>(&pe, client, sends)?,
        };
        let target = TargetEnds::start(&pe, &setup.device, transactions, |control| {
            control
                .receive_handler::<ResultReceived>()
                .send_handler::<RequestSent>()
        })?;
        Ok(Self {
            forwarder: Forwarder::new(
                counts.slots(),
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
        let target = (
            self.target.control.rdma(),
            self.target.control.connection()?,
        );
        let [requests, results, refusals] =
            self.allocate(comch, client_consumer, target)
                .map_err(|error| {
                    let transactions = self.setup.transaction_count;
                    Failure::from(error).context(format_args!("{transactions} transactions"))
                })?;
        self.forwarder.begin(requests, results, refusals)
    }

    /// Allocates the slots of requests, results and refusals.
    fn allocate(
        &self,
        comch: &ComchEnds,
        client_consumer: u32,
        (rdma, target): (&doca::Rdma, &doca::RdmaConnection),
    ) -> doca::Result<[Slots<Purpose>; 3]> {
        let counts = Counts {
            transactions: self.setup.transaction_count,
        };
        let transactions = counts.transactions as usize;
        let slots = |first: usize, count, purpose| {
            let place = (Messages::offset(first), io_message::SIZE as u32, count);
            Slots::new(&self.pe, &self.inventory, &self.message_map, place, |_| {
                purpose
            })
        };
        let requests = slots(0, transactions, Purpose::Request)?;
        comch
            .consumer
            .receive_into::<RECEIVE, RequestReceived>(&requests)?;
        rdma.send_from::<SEND, RequestSent>(&requests, target)?;
        let results = slots(transactions, transactions, Purpose::Result)?;
        rdma.receive_into::<RECEIVE, ResultReceived>(&results)?;
        comch
            .producer
            .send_from::<SEND, ResultSent>(&results, client_consumer)?;
        let refusals = slots(
            2 * transactions,
            counts.refusals() as usize,
            Purpose::Refusal,
        )?;
        comch
            .producer
            .send_from::<SEND, ResultSent>(&refusals, client_consumer)?;
        Ok([requests, results, refusals])
    }

    pub(super) fn leave_comch(&mut self) -> Result<(), Failure> {
        self.forwarder.end();
        self.comch.take().map_or(Ok(()), ComchEnds::stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_worker_has_fewer_refusals() {
        let counts = |transactions| Counts { transactions };
        assert_eq!(counts(2).slots(), 6);
        assert_eq!(counts(2).producer_tasks(), 4);
        assert_eq!(counts(128).producer_tasks(), 128 + REFUSALS);
    }
}
