//! Settling a stripe: makes its chunks equal on all members, under its exclusive lock.
//!
//! Reads that do not find two valid chunks with equal stamps settle the stripe before they return data, so that later
//! reads return the same block. Stripes are also settled by I/Os on stripes that were being written when the last
//! session ended uncleanly, and by background work: rebuild, resync of such stripes, scrub.
//!
//! The newest stamp that two current members have in common belongs to the last complete write. Chunks with an older
//! stamp, or without one, missed it and are rewritten from these two. A newer chunk exists only if its write was
//! interrupted: the write is then undone by rewriting the content of the two chunks with a new stamp. If no two stamps
//! are equal, the older versions that targets keep are read. This happens only after an interruption, because otherwise
//! two members would be wrong at the same time.

use super::{Action, Judged, ReadStage, SettleStage, Slot, Stage, Status, StripeEngine};
use crate::chunk::{Judgement, Stamp};
use crate::request::{Operation, Request};
use crate::set::{Outcome, Purpose, Work};
use crate::{Target, Targets};

/// State of settling a stripe.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settling {
    /// `true` if the current block has to be settled before its I/O.
    pub(super) is_wanted: bool,
    /// `true` if the current block is settled, as far as possible.
    pub(super) is_done: bool,
    /// Members whose chunks are considered.
    sources: Targets,
    judged: Judged,
    /// Sources whose chunks are unreadable.
    unread: Targets,
    /// `true` if the stored chunk replaces a chunk that is corrupt, or lacks a write.
    is_repair: bool,
    seen: Seen,
    /// Members whose payloads of the last complete write are in private memory.
    payloads: Targets,
    /// Stamp of the chunks to store.
    stamp: Option<Stamp>,
    /// `true` if the chunks are stored again with a new stamp.
    is_again: bool,
    /// Targets on which chunks are stored.
    stores: Targets,
}

impl Settling {
    /// Returns `true` if the sources have valid chunks of different writes. If one of the sources is corrupt, the
    /// target's own chunk may be the second chunk of the last write.
    fn has_different_writes(&self) -> bool {
        let judged = |source: Target| self.judged[source.number()].and_then(Judgement::ok);
        let mut stamps = self.sources.iter().map(judged);
        let first = stamps.next().flatten();
        first.is_some() && stamps.all(|stamp| stamp.is_some() && stamp != first)
    }
}

/// Result of comparing the stamps of a stripe's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// These members have the chunks of the last complete write, with this stamp. No chunk is newer.
    Complete { stamp: Stamp, holders: Targets },
    /// As `Complete`, but another chunk is newer, because its write was interrupted.
    Interrupted { stamp: Stamp, holders: Targets },
    /// The chunk of this member, with this stamp, is newer than those of the others: an older version of it is needed.
    Older { target: Target, stamp: Stamp },
    /// No two chunks belong to the same write.
    Lost,
}

/// The newest stamps found in a stripe.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    newest: Option<Stamp>,
    /// The newest stamp of a write that was complete on all members: older chunks are not considered.
    complete: Option<Stamp>,
}

/// Returns the newest stamp of a stripe that was not interrupted, and its holders, if two members have it.
pub fn complete(judged: &Judged) -> Option<(Stamp, Targets)> {
    let seen = Seen {
        newest: judged.iter().flatten().filter_map(|it| it.ok()).max(),
        complete: None,
    };
    match decide(judged, seen, false) {
        Decision::Complete { stamp, holders } => Some((stamp, holders)),
        _ => None,
    }
}

/// Decides which chunks count. `may_be_mixed` is `true` after an unclean shutdown.
fn decide(judged: &Judged, seen: Seen, may_be_mixed: bool) -> Decision {
    let valid = |target: &Target| match judged[target.number()] {
        Some(Ok(stamp)) => Some((*target, stamp)),
        _ => None,
    };
    let mut best: Option<(Stamp, Targets)> = None;
    let mut latest: Option<(Target, Stamp)> = None;
    for (target, stamp) in Target::ALL.iter().filter_map(valid) {
        if latest.is_none_or(|(_, other)| other < stamp) {
            latest = Some((target, stamp));
        }
        let mut holders = Targets::NONE;
        for (other, same) in Target::ALL.iter().filter_map(valid) {
            if same == stamp {
                holders.insert(other);
            }
        }
        if holders.len() >= 2 && best.is_none_or(|(other, _)| other < stamp) {
            best = Some((stamp, holders));
        }
    }
    match (best, latest) {
        (Some((stamp, holders)), _) if seen.newest.is_none_or(|newest| newest <= stamp) => {
            Decision::Complete { stamp, holders }
        }
        (Some((stamp, holders)), _) if may_be_mixed && Some(stamp) >= seen.complete => {
            Decision::Interrupted { stamp, holders }
        }
        // A block that was lost before the interruption is not rolled back to an older write.
        _ if Target::ALL
            .iter()
            .filter_map(valid)
            .any(|(_, stamp)| stamp.is_lost()) =>
        {
            Decision::Lost
        }
        (None, Some((target, stamp)))
            if may_be_mixed && stamp != Stamp::UNWRITTEN && Some(stamp) > seen.complete =>
        {
            Decision::Older { target, stamp }
        }
        _ => Decision::Lost,
    }
}

impl StripeEngine {
    /// Starts work on stripes to rebuild, verify or settle, while there are stripes and idle slots.
    #[cold]
    pub(super) fn begin_works(&mut self) {
        while let Some(&slot) = self.idle_workers.last() {
            // One slot is reserved for the flush that retires writes.
            let is_last = self.idle_workers.len() == 1;
            if is_last && !self.setup.set.is_retiring_due() {
                break;
            }
            let Some(work) = self.setup.set.next_work(self.now, is_last) else {
                break;
            };
            self.idle_workers.pop();
            let mut next = Slot::new();
            next.work = Some(work);
            next.request = Request {
                operation: Operation::Write,
                first_stripe: work.stripe,
                blocks: 1,
                ..Request::default()
            };
            next.settling.is_wanted = true;
            *self.slot(slot) = next;
            match work.purpose {
                Purpose::Retire => self.begin_flush(slot),
                Purpose::Rebuild(_) | Purpose::Resync | Purpose::Scrub => self.begin_block(slot),
            }
        }
    }

    /// Reads the chunks of the stripe, which is locked exclusively.
    pub(super) fn begin_settling(&mut self, slot: u32) {
        self.follow_view();
        if let Some(work) = self.slots[slot as usize].work
            && !self.setup.set.is_current(work)
        {
            return self.end_work(slot, Outcome::Retry);
        }
        let sources = self.sources(slot);
        if sources.len() < 2 {
            return self.too_few_targets(slot);
        }
        self.slot(slot).settling = Settling {
            is_wanted: true,
            sources,
            ..Settling::default()
        };
        self.read_chunks(slot, sources, Stage::Settle(SettleStage::Chunks));
    }

    pub(super) fn settling_chunks_read(&mut self, slot: u32, stage: SettleStage) {
        let it = &self.slots[slot as usize];
        let (asked, failed) = (it.asked, it.failed);
        if !failed.intersection(self.detached).is_empty() {
            // With the remaining targets.
            return self.begin_settling(slot);
        }
        self.count_failed_reads(slot, failed);
        let settling = &mut self.slot(slot).settling;
        settling.unread = settling.unread.union(failed);
        let read = asked.minus(failed);
        match stage {
            SettleStage::Version(target) if !failed.is_empty() => {
                // Its older versions cannot be read, so only the other chunks are considered.
                self.slot(slot).settling.judged[target.number()] = None;
                self.decide(slot);
            }
            SettleStage::Zeros(target) if !failed.is_empty() => self.write_zeros(slot, target),
            SettleStage::Own(target) if !failed.is_empty() => self.mark_lost(slot, target),
            SettleStage::Zeros(_) | SettleStage::Own(_) => {
                self.judge(slot, read, Stage::Settle(stage));
            }
            _ if read.is_empty() => self.decide(slot),
            _ => self.judge(slot, read, Stage::Settle(SettleStage::Judgement)),
        }
    }

    pub(super) fn settling_judged(&mut self, slot: u32, judged: &Judged) {
        let settling = &mut self.slot(slot).settling;
        for (known, found) in settling.judged.iter_mut().zip(judged) {
            if let Some(found) = found {
                let before = known.and_then(Judgement::ok);
                let is_older = before.is_none_or(|before| found.is_ok_and(|stamp| stamp < before));
                // An "older version" that is not older ends the search in this chunk.
                *known = Some(*found).filter(|_| is_older);
            }
        }
        let Settling { judged, seen, .. } = *settling;
        let stamps = || judged.iter().flatten().filter_map(|it| it.ok());
        let stripe = self.slots[slot as usize].stripe();
        let complete = stamps().filter(|&it| self.setup.set.was_complete(stripe, it));
        let seen = Seen {
            newest: stamps().chain(seen.newest).max(),
            complete: complete.chain(seen.complete).max(),
        };
        self.slot(slot).settling.seen = seen;
        self.decide(slot);
    }

    fn decide(&mut self, slot: u32) {
        let may_be_mixed = self.is_unsettled(slot);
        let settling = self.slots[slot as usize].settling;
        match decide(&settling.judged, settling.seen, may_be_mixed) {
            // A service that is killed again and again must not use up the slots for versions.
            Decision::Complete { stamp, holders }
                if may_be_mixed && self.is_settled_before(slot, stamp, holders) =>
            {
                self.slot(slot).settling.payloads = holders;
                if holders != Targets::ALL {
                    self.setup
                        .set
                        .missed
                        .insert(self.slots[slot as usize].stripe());
                }
                self.settled(slot, Outcome::Consistent);
            }
            // Even if no chunk is newer: a target may have stored a chunk without acknowledging it, and find it at its
            // next start. Such a chunk is older than a chunk that is stored now.
            Decision::Complete { stamp, holders } if may_be_mixed => {
                self.store_again(slot, stamp, holders);
            }
            Decision::Complete { stamp, holders } => self.complete_chunks(slot, stamp, holders),
            Decision::Interrupted { stamp, holders } => self.store_again(slot, stamp, holders),
            Decision::Older { target, stamp } => self.read_before(slot, target, stamp),
            Decision::Lost => self.lost(slot),
        }
    }

    /// Returns `true` if an earlier session that only settled stripes has settled this one, and all current targets
    /// have its chunks.
    fn is_settled_before(&self, slot: u32, stamp: Stamp, holders: Targets) -> bool {
        let set = &self.setup.set;
        let current = self.view.sources(true);
        let work = self.slots[slot as usize].work;
        let is_rebuild = work.is_some_and(|it| matches!(it.purpose, Purpose::Rebuild(_)));
        !is_rebuild
            && set.is_settled_before(stamp)
            && current.len() >= 2
            && current.minus(holders).is_empty()
            && (holders == Targets::ALL || set.is_committed())
    }

    /// Rewrites the chunks of targets that lack the last complete write, which was not interrupted.
    fn complete_chunks(&mut self, slot: u32, stamp: Stamp, holders: Targets) {
        self.slot(slot).settling.payloads = holders;
        // A target that is being rebuilt is not among the sources of a stripe that it has missed.
        let is_missed = self.is_missed(slot);
        let others = if is_missed {
            Targets::ALL.minus(self.view.offline).minus(holders)
        } else {
            self.slots[slot as usize].settling.sources.minus(holders)
        };
        let Some(other) = others.iter().next() else {
            return self.settled(slot, Outcome::Consistent);
        };
        if self.view.has_failed() {
            return self.too_few_targets(slot);
        }
        let judged = self.slots[slot as usize].settling.judged[other.number()];
        let is_repair = !is_missed;
        self.slot(slot).settling.is_repair = is_repair;
        match judged {
            Some(Err(flaw)) => self.found_corrupt(slot, other, flaw),
            Some(Ok(older)) if is_repair => {
                let what = format_args!("has stamp {older} instead of {stamp}: it lost a write");
                self.found_corrupt(slot, other, what);
            }
            _ => {}
        }
        if stamp != Stamp::UNWRITTEN {
            return self.write_payload(slot, stamp, Targets::only(other), false, other);
        }
        if judged.is_some() {
            return self.write_zeros(slot, other);
        }
        // Most of the unwritten chunks of a target that is rebuilt are zeros already.
        let stage = Stage::Settle(SettleStage::Zeros(other));
        self.read_chunks(slot, Targets::only(other), stage);
    }

    /// A chunk of an unwritten stripe was read.
    pub(super) fn zeros_judged(&mut self, slot: u32, target: Target, judged: &Judged) {
        if judged[target.number()] == Some(Ok(Stamp::UNWRITTEN)) {
            self.settled(slot, Outcome::Consistent);
        } else {
            self.write_zeros(slot, target);
        }
    }

    /// Replaces the chunk of an unwritten stripe by zeros.
    fn write_zeros(&mut self, slot: u32, target: Target) {
        self.prepare_store(slot, Stamp::UNWRITTEN, Targets::only(target), false);
        self.number_settled(slot);
    }

    /// Stores the content of the last complete write again, with a new stamp, on all targets.
    fn store_again(&mut self, slot: u32, stamp: Stamp, holders: Targets) {
        self.slot(slot).settling.payloads = holders;
        let Some(stores) = self.view.sinks() else {
            return self.too_few_targets(slot);
        };
        let others = Targets::ALL.minus(holders);
        // Three chunks have payloads; one of them may be that of an offline target.
        let other = others.iter().next();
        match other.filter(|&other| stores.contains(other)) {
            Some(other) => self.write_payload(slot, stamp, stores, true, other),
            None => {
                self.prepare_store(slot, stamp, stores, true);
                self.number_settled(slot);
            }
        }
    }

    fn prepare_store(&mut self, slot: u32, stamp: Stamp, stores: Targets, is_again: bool) {
        let settling = &mut self.slot(slot).settling;
        settling.stamp = Some(stamp);
        settling.stores = stores;
        settling.is_again = is_again;
    }

    /// Computes the payload of one chunk from those of the other two, and stores the chunks of `stores`.
    fn write_payload(
        &mut self,
        slot: u32,
        stamp: Stamp,
        stores: Targets,
        is_again: bool,
        other: Target,
    ) {
        self.prepare_store(slot, stamp, stores, is_again);
        self.slot(slot).settling.payloads.insert(other);
        let stage = Stage::Settle(SettleStage::Payload(other));
        match other {
            Target::DataP => self.create_parity(slot, stage),
            data => self.recover(slot, data, stage),
        }
    }

    fn read_before(&mut self, slot: u32, target: Target, stamp: Stamp) {
        let stage = Stage::Settle(SettleStage::Version(target));
        let (attached, stripe) = self.ask(slot, Targets::only(target), stage);
        if attached.is_empty() {
            return self.chunks_done(slot);
        }
        self.act(Action::ReadBefore {
            slot,
            target,
            stripe,
            stamp,
        });
    }

    /// The payloads of all chunks to store are complete.
    pub(super) fn payload_complete(&mut self, slot: u32) {
        self.number_settled(slot);
    }

    /// Takes a number for rewritten chunks, as soon as one is available.
    pub(super) fn number_settled(&mut self, slot: u32) {
        let Settling {
            stamp: Some(stamp),
            stores,
            is_again,
            ..
        } = self.slots[slot as usize].settling
        else {
            return self.impossible("chunks to store without a stamp");
        };
        let stamp = if is_again {
            match self.begin_number(slot) {
                Some(stamp) => stamp,
                None => return self.wait_for_number(slot, Stage::Settle(SettleStage::Number)),
            }
        } else {
            stamp
        };
        self.slot(slot).settling.stamp = Some(stamp);
        self.seal(slot, stores, stamp, Stage::Settle(SettleStage::Seal));
    }

    pub(super) fn settled_sealed(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        let Settling {
            stamp: Some(stamp),
            stores,
            is_again,
            ..
        } = it.settling
        else {
            return self.impossible("chunks to store without a stamp");
        };
        if is_again && stores != Targets::ALL {
            // Before any other target modifies it.
            self.setup.set.missed.insert(it.stripe());
        }
        let version = match self.setup.set.versions() {
            Some(versions) if !is_again => versions.of_repair(stamp),
            _ => stamp,
        };
        self.write_chunks(
            slot,
            stores,
            Stage::Settle(SettleStage::Store),
            Some(version),
        );
    }

    pub(super) fn settled_stored(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        let (failed, error, settling) = (it.failed, it.error, it.settling);
        if settling.is_again {
            if !failed.is_empty() {
                self.setup.set.unsettle(it.stripe(), it.stamp);
                self.end_number(slot);
                return self.begin_settling(slot);
            }
            if settling.stores != Targets::ALL && !self.setup.set.is_committed() {
                // A read is answered under the same condition as a write.
                return self.wait_for_commit(slot);
            }
            self.end_number(slot);
            return self.settled(slot, Outcome::StoredAgain);
        }
        let Some(target) = settling.stores.iter().next() else {
            return self.impossible("no chunk was made again");
        };
        if let Some(versions) = self.setup.set.versions() {
            versions.repaired();
        }
        if failed.is_empty() {
            let outcome = match settling.stamp {
                Some(stamp) if stamp.is_lost() => Outcome::Lost,
                _ => Outcome::Rewritten(target),
            };
            return self.settled(slot, outcome);
        }
        if !self.detached.contains(target) {
            let status = error.unwrap_or(Status::IO_FAILED);
            let why = format_args!("it failed to write a chunk that was made again: {status}");
            self.setup.set.detach(target, why);
        }
        self.begin_settling(slot);
    }

    /// No two readable chunks of the current stripe belong to the same write. A write may replace the block.
    fn lost(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        let outcome = if it.settling.unread.is_empty() {
            Outcome::Lost
        } else {
            Outcome::Unread
        };
        match (it.work, it.request.operation) {
            (
                Some(Work {
                    purpose: Purpose::Rebuild(target),
                    ..
                }),
                _,
            ) if it.settling.has_different_writes() => {
                let stage = Stage::Settle(SettleStage::Own(target));
                self.read_chunks(slot, Targets::only(target), stage);
            }
            (Some(_), _) | (None, Operation::Write) => self.settled(slot, outcome),
            (None, _) => {
                let judged = it.settling.judged;
                self.corrupt(slot, &judged);
            }
        }
    }

    /// The chunk of a target that is rebuilt was read. It has the last write if the target was only missing when the session began.
    #[cold]
    pub(super) fn own_judged(&mut self, slot: u32, target: Target, judged: &Judged) {
        let settling = self.slots[slot as usize].settling;
        let has = |source: &Target| {
            let found = settling.judged[source.number()];
            found.and_then(Judgement::ok) == settling.seen.newest
        };
        let own = judged[target.number()].and_then(Judgement::ok);
        match (settling.sources.iter().find(has), settling.seen.newest) {
            (Some(source), Some(newest)) if own == Some(newest) => {
                let holders = Targets::only(source).union(Targets::only(target));
                self.complete_chunks(slot, newest, holders);
            }
            _ => self.mark_lost(slot, target),
        }
    }

    /// Replaces the chunk of a target that is being rebuilt: the target missed the last write, so its chunk would have
    /// the same stamp as the chunk of a member that lost that write.
    #[cold]
    fn mark_lost(&mut self, slot: u32, target: Target) {
        self.prepare_store(slot, Stamp::lost(target), Targets::only(target), false);
        self.number_settled(slot);
    }

    /// Continues with the I/O of a settled block, or completes the work on it.
    fn settled(&mut self, slot: u32, outcome: Outcome) {
        if let Outcome::Rewritten(target) = outcome
            && self.slots[slot as usize].settling.is_repair
        {
            self.setup.set.rewrote(target);
        }
        if self.is_unsettled(slot) && outcome != Outcome::Unread {
            self.setup.set.settle(self.slots[slot as usize].stripe());
        }
        let it = self.slot(slot);
        it.settling.is_done = true;
        it.settling.is_wanted = false;
        match (it.work, it.request.operation) {
            (Some(_), _) => self.end_work(slot, outcome),
            (None, Operation::Read) => self.deliver_settled(slot),
            (None, Operation::Write) => self.begin_write(slot),
            (None, Operation::Flush) => self.impossible("a flush has no stripe"),
        }
    }

    /// Delivers a settled block from the payloads that are in private memory.
    fn deliver_settled(&mut self, slot: u32) {
        let payloads = self.slots[slot as usize].settling.payloads;
        match Targets::DATA.minus(payloads).iter().next() {
            None => self.deliver(slot),
            Some(missing) => self.recover(slot, missing, Stage::Read(ReadStage::Recovery(missing))),
        }
    }

    /// Completes work on a stripe. If it has failed, it is retried later.
    #[cold]
    pub(super) fn end_work(&mut self, slot: u32, outcome: Outcome) {
        let Some(work) = self.slot(slot).work.take() else {
            return;
        };
        // Before the lock is released, so that the lock's next owner can mark the stripe again.
        self.setup.set.finish_work(work, outcome, self.now);
        self.idle_workers.push(slot);
        self.unlock(slot);
        self.slot(slot).stage = Stage::Idle;
    }

    /// Returns `true` if the current block may have been being written when the last session ended uncleanly.
    pub(super) fn is_unsettled(&self, slot: u32) -> bool {
        let stripe = self.slots[slot as usize].stripe();
        self.setup.set.unsettled.contains(stripe)
    }

    /// Returns `true` if a target has missed the current block.
    pub(super) fn is_missed(&self, slot: u32) -> bool {
        let stripe = self.slots[slot as usize].stripe();
        !self.view.is_healthy() && self.setup.set.missed.contains(stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Flaw;

    const OLD: Stamp = Stamp {
        epoch: 3,
        number: 9,
    };
    const NEW: Stamp = Stamp {
        epoch: 4,
        number: 1,
    };
    const NEXT: Stamp = Stamp {
        epoch: 4,
        number: 2,
    };

    fn of(stamps: [Option<Stamp>; 3], may_be_mixed: bool) -> Decision {
        let judged = stamps.map(|stamp| stamp.map(Ok));
        let newest = stamps.into_iter().flatten().max();
        decide(&judged, incomplete(newest), may_be_mixed)
    }

    fn incomplete(newest: Option<Stamp>) -> Seen {
        let complete = None;
        Seen { newest, complete }
    }

    const DATA_1_AND_P: Targets = Targets::from_bits(0b101);

    #[test]
    fn newest_pair_counts() {
        for mixed in [false, true] {
            assert_eq!(
                of([Some(NEW); 3], mixed),
                Decision::Complete {
                    stamp: NEW,
                    holders: Targets::ALL
                }
            );
            assert_eq!(
                of([Some(NEW), Some(OLD), Some(NEW)], mixed),
                Decision::Complete {
                    stamp: NEW,
                    holders: DATA_1_AND_P
                }
            );
            assert_eq!(
                of([Some(NEW), None, Some(NEW)], mixed),
                Decision::Complete {
                    stamp: NEW,
                    holders: DATA_1_AND_P
                }
            );
        }
    }

    #[test]
    fn newer_single_chunk_is_an_interrupted_write_or_two_faults() {
        let stamps = [Some(OLD), Some(NEW), Some(OLD)];
        assert_eq!(
            of(stamps, true),
            Decision::Interrupted {
                stamp: OLD,
                holders: DATA_1_AND_P
            }
        );
        assert_eq!(of(stamps, false), Decision::Lost);
    }

    #[test]
    fn older_versions_are_read_from_the_newest_chunk_and_only_after_an_interruption() {
        let stamps = [Some(OLD), Some(NEXT), Some(NEW)];
        assert_eq!(
            of(stamps, true),
            Decision::Older {
                target: Target::Data2,
                stamp: NEXT
            }
        );
        assert_eq!(of(stamps, false), Decision::Lost);
        assert_eq!(of([Some(NEW), None, Some(OLD)], false), Decision::Lost);
        assert_eq!(
            of([Some(Stamp::UNWRITTEN), None, None], true),
            Decision::Lost
        );
    }

    /// Two members have lost a write, or old copies of their disks are used.
    #[test]
    fn nothing_older_than_a_complete_write_counts() {
        let decided = |stamps: [Option<Stamp>; 3], newest, complete| {
            let (newest, complete) = (Some(newest), Some(complete));
            let seen = Seen { newest, complete };
            decide(&stamps.map(|it| it.map(Ok)), seen, true)
        };
        let pair = [Some(OLD), Some(NEW), Some(OLD)];
        assert_eq!(decided(pair, NEW, NEW), Decision::Lost);
        let holders = DATA_1_AND_P;
        let stamp = OLD;
        assert_eq!(
            decided(pair, NEW, OLD),
            Decision::Interrupted { stamp, holders }
        );
        let single = [Some(OLD), Some(NEW), None];
        assert_eq!(decided(single, NEW, NEW), Decision::Lost);
        assert_eq!(
            decided(single, NEXT, NEW),
            Decision::Lost,
            "NEXT was read before"
        );
        let (target, stamp) = (Target::Data2, NEW);
        assert_eq!(decided(single, NEW, OLD), Decision::Older { target, stamp });
    }

    #[test]
    fn an_older_version_that_makes_a_pair_is_that_of_an_interrupted_write() {
        let judged = [Some(Ok(OLD)), Some(Ok(OLD)), None];
        assert_eq!(
            decide(&judged, incomplete(Some(NEW)), true),
            Decision::Interrupted {
                stamp: OLD,
                holders: Targets::DATA
            }
        );
    }

    #[test]
    fn corrupt_chunk_counts_for_nothing() {
        let corrupt = Some(Err(Flaw::NoRecord));
        let judged = [Some(Ok(NEW)), corrupt, Some(Ok(NEW))];
        assert_eq!(
            decide(&judged, incomplete(Some(NEW)), false),
            Decision::Complete {
                stamp: NEW,
                holders: DATA_1_AND_P
            }
        );
        assert_eq!(
            decide(
                &[Some(Ok(NEW)), corrupt, corrupt],
                incomplete(Some(NEW)),
                false
            ),
            Decision::Lost
        );
    }
}
