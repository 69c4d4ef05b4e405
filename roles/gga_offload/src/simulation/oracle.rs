//! Oracle for reads: checks that the history of each block is linearizable.

use std::time::Duration;

/// A write of a block. Its version is unique among the writes of the block.
#[derive(Debug, Clone, Copy)]
struct Write {
    version: u64,
    invoked: Duration,
    /// Latest time at which it took effect: it was acknowledged, or first returned by a read.
    effective: Option<Duration>,
    /// Time at which it was acknowledged, or its outcome became permanently unknown.
    ended: Option<Duration>,
    is_acknowledged: bool,
    /// `true` if a power failure cannot undo it: all of its stored chunks are durable.
    is_settled: bool,
    /// Completion time of the first read that returned it.
    observed: Option<Duration>,
    /// Completion time of the first read that returned another version after this one had been observed.
    superseded: Option<Duration>,
}

/// The writes of a block.
#[derive(Debug, Clone)]
pub(super) struct BlockHistory {
    writes: Vec<Write>,
    /// Number of writes that have neither been acknowledged nor failed.
    in_flight: u32,
    /// `true` if the last completed write was acknowledged while no other one was in flight.
    is_certain: bool,
    /// Time at which chunks of another block were last stored in its location, unless it was written since.
    damaged: Option<Duration>,
    /// Time at which a chunk was last repaired or rebuilt, unless that was flushed since.
    rewritten: Option<Duration>,
    /// Time at which the outcome of a write last became unknown, unless another one was acknowledged since.
    torn: Option<Duration>,
}

impl BlockHistory {
    /// History of a block with version 0.
    pub(super) fn new() -> Self {
        let first = Write {
            version: 0,
            invoked: Duration::ZERO,
            effective: Some(Duration::ZERO),
            ended: Some(Duration::ZERO),
            is_acknowledged: true,
            is_settled: true,
            observed: None,
            superseded: None,
        };
        Self {
            writes: vec![first],
            in_flight: 0,
            is_certain: false,
            damaged: None,
            rewritten: None,
            torn: None,
        }
    }

    /// Records the invocation of a write. Returns its version.
    pub(super) fn write(&mut self, now: Duration) -> u64 {
        let version = self.writes.last().map_or(0, |write| write.version) + 1;
        self.in_flight += 1;
        self.writes.push(Write {
            version,
            invoked: now,
            effective: None,
            ended: None,
            is_acknowledged: false,
            is_settled: false,
            observed: None,
            superseded: None,
        });
        version
    }

    /// Records that a write was acknowledged, or that its outcome is permanently unknown: it may have taken effect, or take effect later.
    pub(super) fn written(&mut self, version: u64, now: Duration, is_acknowledged: bool) {
        self.in_flight -= 1;
        self.is_certain = is_acknowledged && self.in_flight == 0;
        if let Some(write) = self.of(version) {
            write.ended = Some(now);
            write.is_acknowledged = is_acknowledged;
        }
        if !is_acknowledged {
            self.torn = Some(now);
            return;
        }
        if let Some(write) = self.of(version) {
            write.effective = Some(write.effective.map_or(now, |effective| effective.min(now)));
            let invoked = write.invoked;
            self.damaged = self.damaged.filter(|&damaged| damaged >= invoked);
            self.torn = self.torn.filter(|&torn| torn >= invoked);
        }
    }

    /// Records that a write was durable when it was acknowledged.
    pub(super) fn made_durable(&mut self, version: u64) {
        if let Some(write) = self.of(version) {
            write.is_settled = true;
        }
    }

    /// Records the success of a flush that was invoked at this time.
    pub(super) fn flushed(&mut self, invoked: Duration) {
        self.rewritten = self.rewritten.filter(|&at| at >= invoked);
        for write in &mut self.writes {
            write.is_settled |= write.ended.is_some_and(|ended| ended < invoked);
        }
    }

    /// Records a power failure of all targets: any subset of the data written since the last durable write may survive, and the block may
    /// be torn.
    pub(super) fn lose_power(&mut self, now: Duration) {
        let durable = |write: &&Write| write.is_settled && write.is_acknowledged;
        let last = self.writes.iter().filter(durable);
        let last = last.map(|it| it.invoked).max().unwrap_or_default();
        let mut may_be_torn = self.in_flight != 0;
        for write in &mut self.writes {
            if write.is_settled || write.effective.is_some_and(|effective| effective < last) {
                continue;
            }
            may_be_torn = true;
            write.is_acknowledged = false;
            // Sectors that are on the disks now stay there.
            write.is_settled = true;
            write.effective = None;
            write.observed = None;
            write.superseded = None;
        }
        for write in &mut self.writes {
            write.superseded = write.superseded.filter(|_| !may_be_torn);
        }
        if may_be_torn {
            self.is_certain = false;
        }
        // If a repair is lost, the damage remains, and the block is unreadable once another chunk is missing.
        if may_be_torn || self.rewritten.is_some() {
            self.damage(now);
        }
    }

    /// Records that a chunk was repaired or rebuilt.
    pub(super) fn rewrite(&mut self, now: Duration) {
        self.rewritten = Some(now);
    }

    /// Records that a chunk of another block was stored in its location.
    pub(super) fn damage(&mut self, now: Duration) {
        self.damaged = Some(now);
    }

    /// Returns `true` if its chunks may belong to different writes, one of them with unknown outcome.
    pub(super) fn is_torn(&self) -> bool {
        self.torn.is_some()
    }

    /// Returns `true` if its chunks may belong to another block: until it is written again, reads of it may fail.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.is_some()
    }

    fn of(&mut self, version: u64) -> Option<&mut Write> {
        self.writes
            .iter_mut()
            .find(|write| write.version == version)
    }

    /// Returns `true` if the last write was acknowledged while no other one was in flight: the block must stay readable.
    pub(super) fn is_certain(&self) -> bool {
        self.is_certain && self.in_flight == 0 && !self.is_damaged()
    }

    /// Returns `true` if a write is in flight.
    pub(super) fn is_being_written(&self) -> bool {
        self.in_flight != 0
    }

    /// Returns the reason why a read that was invoked at this time must not return this version now; `None` if it may.
    pub(super) fn objection(&self, version: u64, invoked: Duration) -> Option<String> {
        let Some(write) = self.writes.iter().find(|write| write.version == version) else {
            return Some(format!("version {version} is stale, or was never written"));
        };
        let later = self.writes.iter().find(|later| {
            let is_later = write
                .effective
                .is_some_and(|effective| later.invoked > effective);
            is_later && later.effective.is_some_and(|effective| effective < invoked)
        });
        if let Some(later) = later {
            return Some(format!(
                "version {version} is stale: version {} was acknowledged or read before",
                later.version
            ));
        }
        let was_superseded = write
            .superseded
            .is_some_and(|superseded| superseded < invoked);
        was_superseded
            .then(|| format!("version {version} is stale: another one was read since it was"))
    }

    /// Records that a read has returned this version.
    pub(super) fn read(&mut self, version: u64, invoked: Duration, now: Duration) {
        for write in &mut self.writes {
            if write.version == version {
                write.effective.get_or_insert(now);
                write.observed.get_or_insert(now);
            } else if write.observed.is_some_and(|observed| observed < invoked) {
                write.superseded.get_or_insert(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_acknowledged_write_hides_what_was_before() {
        let mut block = BlockHistory::new();
        let one = block.write(at(1));
        assert!(block.objection(0, at(1)).is_none() && block.objection(one, at(1)).is_none());
        block.written(one, at(2), true);
        assert!(
            block.objection(0, at(2)).is_none(),
            "the read overlaps the write"
        );
        assert!(block.objection(0, at(3)).is_some() && block.objection(one, at(3)).is_none());
        assert!(block.objection(7, at(3)).is_some());
    }

    #[test]
    fn a_write_in_flight_is_read_before_or_after_and_not_both_ways() {
        let mut block = BlockHistory::new();
        let one = block.write(at(1));
        block.read(0, at(2), at(3));
        block.read(one, at(4), at(5));
        assert!(block.objection(0, at(6)).is_some(), "it was read already");
        assert!(block.objection(one, at(6)).is_none());
    }

    #[test]
    fn concurrent_writes_have_one_order() {
        let mut block = BlockHistory::new();
        let (one, two) = (block.write(at(1)), block.write(at(1)));
        block.written(one, at(2), true);
        block.written(two, at(2), true);
        block.read(one, at(3), at(4));
        assert!(block.objection(two, at(5)).is_none());
        block.read(two, at(5), at(6));
        assert!(block.objection(one, at(7)).is_some());
    }

    #[test]
    fn a_power_failure_undoes_no_durable_write() {
        let mut block = BlockHistory::new();
        let one = block.write(at(1));
        block.written(one, at(2), true);
        let mut unflushed = block.clone();
        unflushed.lose_power(at(6));
        assert!(unflushed.objection(0, at(7)).is_none() && unflushed.is_damaged());
        block.flushed(at(3));
        let two = block.write(at(4));
        block.written(two, at(5), true);
        assert!(block.objection(one, at(6)).is_some());
        block.lose_power(at(6));
        assert!(block.objection(0, at(7)).is_some(), "it was flushed");
        assert!(block.objection(one, at(7)).is_none() && block.objection(two, at(7)).is_none());
        let three = block.write(at(8));
        block.written(three, at(9), true);
        block.made_durable(three);
        block.lose_power(at(10));
        assert!(block.objection(one, at(11)).is_some());
        assert!(block.objection(three, at(11)).is_none());
    }

    #[test]
    fn damage_lasts_until_a_later_write_is_acknowledged() {
        let mut block = BlockHistory::new();
        let one = block.write(at(1));
        block.damage(at(2));
        block.written(one, at(3), true);
        assert!(block.is_damaged() && !block.is_certain());
        let two = block.write(at(4));
        block.written(two, at(5), false);
        assert!(block.is_damaged());
        let three = block.write(at(6));
        block.written(three, at(7), true);
        assert!(!block.is_damaged() && block.is_certain());
    }

    #[test]
    fn a_write_of_unknown_outcome_may_take_effect_late() {
        let mut block = BlockHistory::new();
        let one = block.write(at(1));
        block.written(one, at(2), false);
        let two = block.write(at(3));
        block.written(two, at(4), true);
        assert!(block.objection(one, at(5)).is_none());
        block.read(two, at(5), at(6));
        assert!(block.objection(0, at(7)).is_some());
    }
}
