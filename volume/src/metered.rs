//! Counters of a queue, published for the metrics of its program.

use std::sync::Arc;

use role_common::metrics::{Count, Traffic, WorkerMetrics};

use crate::io::{IoError, Operation};

/// Completions between updates of a busy queue's published counters; an idle queue publishes before it sleeps.
const INTERVAL: u32 = 64;

/// Counters of a queue's I/Os. Only the published copy is atomic.
#[derive(Debug)]
pub(crate) struct Metered {
    metrics: Arc<WorkerMetrics>,
    traffic: Traffic,
    failed: u64,
    in_flight: u64,
    hits: u64,
    misses: u64,
    /// Operation and length in bytes of the I/O in each of the engine's slots.
    started: Box<[(Operation, u32)]>,
    /// Completions since the last update of the published counters.
    unpublished: u32,
}

impl Metered {
    pub(crate) fn new(metrics: Arc<WorkerMetrics>, depth: usize) -> Self {
        Self {
            metrics,
            traffic: Traffic::default(),
            failed: 0,
            in_flight: 0,
            hits: 0,
            misses: 0,
            started: vec![(Operation::Read, 0); depth].into(),
            unpublished: 0,
        }
    }

    #[inline]
    pub(crate) fn started(&mut self, slot: usize, operation: Operation, len: u32) {
        self.started[slot] = (operation, len);
        self.in_flight += 1;
    }

    #[inline]
    pub(crate) fn completed(&mut self, slot: usize, result: &Result<(), IoError>) {
        let (operation, len) = self.started[slot];
        // Operations are counted with and without errors, bytes without.
        let bytes = result.as_ref().map_or(0, |()| u64::from(len));
        match operation {
            Operation::Read => self.traffic.read(bytes),
            Operation::Flush => self.traffic.flush(),
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard => {
                self.traffic.write(bytes);
            }
        }
        self.failed += u64::from(result.is_err());
        self.in_flight -= 1;
        self.unpublished += 1;
    }

    /// Counts a call of the progress engine.
    #[inline]
    pub(crate) fn polled(&mut self, found: bool) {
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
        if self.unpublished >= INTERVAL {
            self.publish();
        }
    }

    pub(crate) fn publish(&mut self) {
        self.unpublished = 0;
        let counts = self
            .traffic
            .counts()
            .with(Count::Failed, self.failed)
            .with(Count::InFlight, self.in_flight)
            .with(Count::ProgressHits, self.hits)
            .with(Count::ProgressMisses, self.misses);
        self.metrics.publish(&counts);
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.publish();
    }
}
