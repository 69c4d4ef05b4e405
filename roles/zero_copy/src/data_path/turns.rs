//! Turns of a worker: ends of tasks go to its [`Forwarder`](super::forward::Forwarder).

use doca::PeStats;
use role_common::Failure;
use role_common::ends;
use role_common::metrics::{Counts, WorkerMetrics};
use role_common::turns::{Limits, Turns};
use role_common::worker::RunFlag;

use super::ZeroCopyDataPath;

impl Turns for ZeroCopyDataPath {
    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        ends::turn(
            &mut self.pe,
            &mut self.forwarder,
            run,
            "a Comch or RDMA connection was lost: the initiator or the storage target is gone",
        )
    }

    fn in_flight(&self) -> usize {
        self.forwarder.in_flight()
    }

    fn finished(&self) -> u64 {
        self.forwarder.operations()
    }

    fn pe_stats(&self) -> PeStats {
        self.pe.stats()
    }

    fn limits(&self) -> Limits {
        self.setup.limits
    }

    fn metrics(&self) -> Option<&WorkerMetrics> {
        self.setup.metrics.as_deref()
    }

    fn counts(&self) -> Counts {
        self.forwarder.counts()
    }

    fn suspect(&self) -> &'static str {
        self.forwarder.suspect()
    }
}
