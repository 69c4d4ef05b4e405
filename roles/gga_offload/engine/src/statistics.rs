//! Counts of one engine.

use std::fmt;

use serde::Serialize;

use crate::request::Operation;

/// Counters of one worker's engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EngineStatistics {
    /// Answered requests.
    #[serde(skip)]
    pub operation_count: u64,
    /// Recovery reads, as requested by `--trigger-recovery-read-every-n`.
    pub recovery_count: u64,
    /// I/O operations that failed.
    pub failed_count: u64,
    /// Refused requests, which are also counted as failed.
    #[serde(skip)]
    pub refused: Occurrences,
    /// Writes of content that does not compress, which are also counted as failed.
    #[serde(skip)]
    pub incompressible: Occurrences,
    /// Unexpected results of targets.
    #[serde(skip)]
    pub unasked: Occurrences,
    /// Events that the state of the engine did not allow: bugs.
    #[serde(skip)]
    pub impossible_events: Occurrences,
    #[serde(flatten)]
    pub corruption: Corruption,
    /// With `--degraded on` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<DegradedCounts>,
    /// Only for metrics.
    #[serde(skip)]
    pub traffic: BlockTraffic,
}

/// Number of requests by kind, and number of blocks of successful requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockTraffic {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub read_blocks: u64,
    pub written_blocks: u64,
}

impl BlockTraffic {
    /// Counts an answered request, successful or not.
    #[inline]
    pub fn answered(&mut self, operation: Operation) {
        match operation {
            Operation::Read => self.reads += 1,
            Operation::Write => self.writes += 1,
            Operation::Flush => self.flushes += 1,
        }
    }

    /// Counts the blocks of a successful request.
    #[inline]
    pub fn succeeded(&mut self, operation: Operation, blocks: u64) {
        match operation {
            Operation::Read => self.read_blocks += blocks,
            Operation::Write => self.written_blocks += blocks,
            Operation::Flush => {}
        }
    }
}

/// Counts of operations without a failed target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DegradedCounts {
    /// Reads of blocks for which a chunk was recovered.
    pub reads: u64,
    /// Writes of blocks to the remaining two targets.
    pub writes: u64,
    /// Chunk reads that data_1, data_2 and data_p answered with an error.
    pub failed_reads: [Occurrences; 3],
    /// Blocks that failed because too few targets were available.
    pub impossible: Occurrences,
}

impl DegradedCounts {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.impossible.0 += other.impossible.0;
        for (sum, count) in self.failed_reads.iter_mut().zip(other.failed_reads) {
            sum.0 += count.0;
        }
    }
}

/// Number of occurrences of an event of which only some are logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Occurrences(pub u64);

impl Occurrences {
    /// Counts one occurrence. Returns `true` if it has to be logged, which is the case whenever the number has doubled.
    pub fn count(&mut self) -> bool {
        self.0 += 1;
        self.0.is_power_of_two()
    }
}

impl fmt::Display for Occurrences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts of corrupt blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Corruption {
    /// Corrupt chunks of data_1, data_2 and data_p that were recovered from the other two.
    pub corrected: [Occurrences; 3],
    /// Blocks that could not be recovered from any two chunks.
    pub uncorrectable: Occurrences,
}

impl Corruption {
    /// Returns `true` if there were no occurrences.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_occurrences_are_twenty_log_lines() {
        let mut often = Occurrences::default();
        let lines = (0..1_000_000).filter(|_| often.count()).count();
        assert_eq!((lines, often.0), (20, 1_000_000));
    }
}
