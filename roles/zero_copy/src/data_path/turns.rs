//! Worker loop: dispatches completions to the worker's [`Forwarder`](super::forward::Forwarder).

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
        let others = self.pe.progress(&mut self.forwarder);
        self.forwarder.outcome()?;
        if others {
            ends::happened(
                &self.pe,
                run,
                "a Comch or RDMA connection was lost: the initiator or the storage target is gone",
            )?;
        }
        self.forwarder.retry()
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
