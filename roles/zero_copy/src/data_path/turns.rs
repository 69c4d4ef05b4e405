//! Turns of a worker: ends of tasks go to its [`Forwarder`](super::forward::Forwarder), the rest is looked at here.

use doca::{CtxState, ErrorCode, Event, PeStats};
use role_common::Failure;
use role_common::turns::{Limits, Turns};
use role_common::worker::RunFlag;

use super::ZeroCopyDataPath;

impl Turns for ZeroCopyDataPath {
    #[inline]
    fn turn(&mut self, run: &RunFlag) -> Result<(), Failure> {
        let Self { pe, forwarder, .. } = self;
        let others = pe.progress_each(|completion| forwarder.ended(completion, run));
        forwarder.outcome()?;
        if others {
            self.happened(run)?;
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

    fn suspect(&self) -> &'static str {
        self.forwarder.suspect()
    }
}

impl ZeroCopyDataPath {
    /// Something that is no end of a task.
    #[cold]
    fn happened(&mut self, run: &RunFlag) -> Result<(), Failure> {
        match self.pe.poll() {
            Some(Event::State {
                next: CtxState::Stopping | CtxState::Idle,
                ..
            }) if run.is_set() => Err(Failure::new(
                ErrorCode::CONNECTION_RESET,
                "a Comch or RDMA connection was lost: the initiator or the storage target is gone",
            )),
            _ => Ok(()),
        }
    }
}
