//! The epochs of a set, as its targets' superblocks record them.
//!
//! Whenever the set is put to use, and whenever it goes on without a member, it enters a new epoch, with a number and a random
//! identifier. That takes two rounds: all members persist that they *prepare* for the epoch, then that they have *committed* it. What
//! follows for readers of the superblocks:
//!
//! * A member that has committed an epoch knows that all others had prepared for it. One whose superblock does not even mention the
//!   last committed epoch is not current: it missed that epoch, or is a copy of a disk from before it.
//! * An epoch that no member has committed has never counted: nothing was acknowledged in it.
//!
//! The clean state is persisted in two rounds for the same reason: next to a member that is clean, one that does not even know that
//! the set was being closed is a copy from before.

use role_common::superblock::{Epoch, SetId, Superblock};
use wire::control::RecordState;

use crate::target::{Target, Targets};

/// Makes the identifiers of epochs, from one random number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochIds(u64);

impl EpochIds {
    /// `seed` has to be random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut id = self.0;
        id = (id ^ (id >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // 0 is the identifier of no epoch.
        (id ^ (id >> 31)).max(1)
    }
}

/// Progress of the members' superblocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Members persist that they prepare for the epoch.
    Preparing,
    /// They persist that they have committed it.
    Committing,
    /// All have. I/Os may be served, and acknowledged.
    InUse,
    /// All I/Os have completed: members persist that the set is being closed.
    Closing,
    /// They persist that it is clean.
    Cleaning,
    /// All have.
    Clean,
}

/// Superblocks that the three targets have to persist, and those that they have confirmed.
///
/// A target that is detached hears of no epoch after that. One that is rebuilt persists that it has nothing before it becomes a
/// member again: otherwise its old superblock could be taken for a current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    set: SetId,
    ids: EpochIds,
    epoch: Epoch,
    /// The epoch that the members had committed before.
    previous: Epoch,
    /// The state that belongs to that.
    previous_state: RecordState,
    phase: Phase,
    /// `true` if the set has to be closed as soon as it is in use.
    is_to_close: bool,
    /// Targets that have all that was acknowledged.
    members: Targets,
    /// Targets whose last superblock is confirmed.
    confirmed: Targets,
    /// Targets that have superblocks: the reference's have none.
    keepers: Targets,
    /// `true` if every block has a checksum.
    checksums: bool,
}

/// Base of a new membership.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) set: SetId,
    /// The epoch that the members have committed, or prepared for.
    pub(super) committed: Epoch,
    /// The highest number that any superblock mentions.
    pub(super) highest: u64,
    pub(super) state: RecordState,
    pub(super) members: Targets,
    pub(super) keepers: Targets,
    pub(super) checksums: bool,
}

impl Membership {
    /// Puts the set to use: its members have to enter a new epoch.
    pub(super) fn put_to_use(origin: Origin, mut ids: EpochIds) -> Self {
        let epoch = Epoch {
            number: origin.highest + 1,
            id: ids.next(),
        };
        Self {
            set: origin.set,
            ids,
            epoch,
            previous: origin.committed,
            previous_state: origin.state,
            phase: Phase::Preparing,
            is_to_close: false,
            members: origin.members,
            confirmed: Targets::NONE,
            keepers: origin.keepers,
            checksums: origin.checksums,
        }
    }

    /// The set's identifier.
    #[must_use]
    pub fn set(&self) -> SetId {
        self.set
    }

    /// Returns `true` if the superblocks record that every block of the set has a checksum.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.checksums
    }

    /// The superblock that a target has to persist; `None` for one without.
    #[must_use]
    pub fn superblock_of(&self, target: Target) -> Option<Superblock> {
        if !self.keepers.contains(target) {
            return None;
        }
        let nothing = Superblock {
            set: self.set,
            member: target as u32,
            epoch: Epoch::NONE,
            next: Epoch::NONE,
            state: RecordState::InUse,
            checksums: false,
        };
        if !self.members.contains(target) {
            return Some(nothing);
        }
        let (epoch, next, state) = match self.phase {
            Phase::Preparing => (self.previous, self.epoch, self.previous_state),
            Phase::Committing | Phase::InUse => (self.epoch, Epoch::NONE, RecordState::InUse),
            Phase::Closing => (self.epoch, Epoch::NONE, RecordState::Closing),
            Phase::Cleaning | Phase::Clean => (self.epoch, Epoch::NONE, RecordState::Clean),
        };
        Some(Superblock {
            epoch,
            next,
            state,
            checksums: self.checksums,
            ..nothing
        })
    }

    /// A target has persisted this.
    pub fn persisted(&mut self, target: Target, superblock: Superblock) {
        if Some(superblock) == self.superblock_of(target) {
            self.confirmed.insert(target);
            self.advance();
        }
    }

    /// Returns `true` if all members have committed the epoch, after which no other target can pass for a member.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        !matches!(self.phase, Phase::Preparing | Phase::Committing)
    }

    /// Returns `true` if a target is a member and has confirmed its superblock.
    #[must_use]
    pub fn is_confirmed_member(&self, target: Target) -> bool {
        self.members.contains(target)
            && (self.confirmed.contains(target) || !self.keepers.contains(target))
    }

    /// Excludes a target that misses writes from now on. If it was a member, the others enter a new epoch without it.
    pub fn exclude(&mut self, target: Target) {
        self.confirmed.remove(target);
        if !self.members.contains(target) {
            return;
        }
        self.members.remove(target);
        if self.phase != Phase::Preparing {
            // All members had prepared for it at least.
            self.previous = self.epoch;
            self.previous_state = match self.phase {
                // All members know that the set was being closed, this one too: it has all that was written.
                Phase::Cleaning | Phase::Clean => RecordState::Closing,
                _ => RecordState::InUse,
            };
        }
        self.epoch = Epoch {
            number: self.epoch.number + 1,
            id: self.ids.next(),
        };
        self.enter(Phase::Preparing);
        self.advance();
    }

    /// A target has taken the place of a detached one; `keeps` is `true` if it has a superblock.
    pub fn replace(&mut self, target: Target, keeps: bool) {
        self.keepers.remove(target);
        self.confirmed.remove(target);
        if keeps {
            self.keepers.insert(target);
        }
    }

    /// A target has been rebuilt, and is a member again; not before it has confirmed that it had nothing. Returns whether it has
    /// become one.
    pub fn include(&mut self, target: Target) -> bool {
        let is_waited_for = self.keepers.contains(target) && !self.confirmed.contains(target);
        if self.members.contains(target) || is_waited_for {
            return false;
        }
        self.members.insert(target);
        self.confirmed.remove(target);
        true
    }

    /// Every block of the set has a checksum from now on.
    pub fn set_checksums(&mut self) {
        if !self.checksums {
            self.checksums = true;
            self.confirmed = self.confirmed.minus(self.members);
        }
    }

    /// Starts closing the set: all I/Os have completed, and the chunks of all stripes are consistent.
    pub fn close(&mut self) {
        self.is_to_close = true;
        self.advance();
    }

    /// Returns `true` if a closed set is clean, according to its superblocks.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.phase == Phase::Clean
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.confirmed = self.confirmed.minus(self.members);
    }

    /// Goes on when all members have confirmed their superblocks.
    fn advance(&mut self) {
        loop {
            let owing = self.members.intersection(self.keepers);
            let next = match self.phase {
                Phase::InUse if self.is_to_close => Phase::Closing,
                Phase::InUse | Phase::Clean => return,
                _ if !owing.minus(self.confirmed).is_empty() => return,
                Phase::Preparing => Phase::Committing,
                Phase::Committing => Phase::InUse,
                Phase::Closing => Phase::Cleaning,
                Phase::Cleaning => Phase::Clean,
            };
            match (self.phase, next) {
                // The superblocks are the same.
                (Phase::Committing, Phase::InUse) | (Phase::Cleaning, Phase::Clean) => {
                    self.phase = next;
                }
                _ => self.enter(next),
            }
        }
    }
}

#[cfg(test)]
impl Membership {
    /// Returns `true` if a target is a member, which has all acknowledged writes.
    pub(super) fn is_member(&self, target: Target) -> bool {
        self.members.contains(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: Targets, keepers: Targets) -> Membership {
        let origin = Origin {
            set: SetId(5),
            committed: Epoch { number: 3, id: 30 },
            highest: 4,
            state: RecordState::Clean,
            members,
            keepers,
            checksums: false,
        };
        Membership::put_to_use(origin, EpochIds::new(1))
    }

    fn persist(set: &mut Membership, target: Target) {
        let superblock = set.superblock_of(target).expect("it has a superblock");
        set.persisted(target, superblock);
    }

    fn persist_all(set: &mut Membership) {
        for _ in 0..2 {
            Target::ALL
                .into_iter()
                .filter(|&target| set.superblock_of(target).is_some())
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|target| persist(set, target));
        }
    }

    /// Beside the clean superblock of the detached target, members in use would pass for copies.
    #[test]
    fn a_target_lost_at_the_end_leaves_no_member_in_use() {
        let mut set = set(Targets::ALL, Targets::ALL);
        persist_all(&mut set);
        set.close();
        persist_all(&mut set);
        set.exclude(Target::Data2);
        let superblock = set.superblock_of(Target::Data1).expect("a member");
        assert_eq!(superblock.state, RecordState::Closing);
        assert_ne!(superblock.next, Epoch::NONE);
    }

    #[test]
    fn an_epoch_is_committed_after_all_members_have_prepared_for_it() {
        let mut set = set(Targets::ALL, Targets::ALL);
        let prepared = set.superblock_of(Target::Data1).expect("a member");
        assert_eq!(prepared.epoch, Epoch { number: 3, id: 30 });
        assert_eq!(
            (prepared.next.number, prepared.state),
            (5, RecordState::Clean)
        );
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::Data2);
        assert_eq!(
            set.superblock_of(Target::Data1),
            Some(prepared),
            "one owes its word"
        );
        persist(&mut set, Target::DataP);
        let committed = set.superblock_of(Target::Data1).expect("a member");
        assert_eq!(committed.epoch, prepared.next);
        assert_eq!(
            (committed.next, committed.state),
            (Epoch::NONE, RecordState::InUse)
        );
        set.persisted(Target::Data1, prepared);
        persist(&mut set, Target::Data2);
        persist(&mut set, Target::DataP);
        assert!(
            !set.is_committed(),
            "a late confirmation of the round before"
        );
        persist(&mut set, Target::Data1);
        assert!(set.is_committed());
    }

    #[test]
    fn excluded_member_learns_no_later_epoch_and_rejoins_empty() {
        let mut set = set(Targets::ALL, Targets::ALL);
        persist_all(&mut set);
        let before = set.superblock_of(Target::DataP).expect("a member");
        set.exclude(Target::DataP);
        assert!(!set.is_committed());
        let prepared = set.superblock_of(Target::Data1).expect("a member");
        assert_eq!(
            (prepared.epoch, prepared.state),
            (before.epoch, RecordState::InUse)
        );
        assert!(prepared.next.number > before.epoch.number && prepared.next.id != before.epoch.id);
        assert_eq!(
            set.superblock_of(Target::DataP).expect("a keeper").epoch,
            Epoch::NONE
        );
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::Data2);
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::Data2);
        assert!(set.is_committed());

        set.replace(Target::DataP, true);
        assert!(
            !set.include(Target::DataP),
            "its old superblock is on its disk"
        );
        persist(&mut set, Target::DataP);
        assert!(set.include(Target::DataP) && !set.is_confirmed_member(Target::DataP));
        persist(&mut set, Target::DataP);
        assert!(set.is_confirmed_member(Target::DataP));
        let now = set.superblock_of(Target::DataP).expect("a member");
        assert_eq!(
            now.epoch,
            set.superblock_of(Target::Data1).expect("a member").epoch
        );
    }

    #[test]
    fn a_confirmation_does_not_count_for_the_target_that_replaces_another() {
        let mut set = set(Targets::ALL, Targets::ALL);
        persist_all(&mut set);
        set.exclude(Target::Data1);
        set.replace(Target::Data1, true);
        persist(&mut set, Target::Data1);
        set.exclude(Target::Data1);
        set.replace(Target::Data1, true);
        assert!(!set.include(Target::Data1));
        persist(&mut set, Target::Data1);
        assert!(set.include(Target::Data1));
    }

    #[test]
    fn a_set_is_closed_in_two_rounds() {
        let mut set = set(Targets::ALL, Targets::ALL);
        set.close();
        persist_all(&mut set);
        assert!(!set.is_clean());
        let closing = set.superblock_of(Target::Data1).expect("a member");
        assert_eq!(closing.state, RecordState::Closing);
        persist_all(&mut set);
        assert!(set.is_clean() && set.is_committed());
        let clean = set.superblock_of(Target::Data1).expect("a member");
        assert_eq!(
            (clean.state, clean.epoch),
            (RecordState::Clean, closing.epoch)
        );
    }

    #[test]
    fn a_member_lost_while_the_set_is_closed_is_left_behind_first() {
        let mut set = set(Targets::ALL, Targets::ALL);
        persist_all(&mut set);
        set.close();
        set.exclude(Target::Data2);
        assert_eq!(
            set.superblock_of(Target::Data1).expect("a member").state,
            RecordState::InUse
        );
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::DataP);
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::DataP);
        let closing = set.superblock_of(Target::Data1).expect("a member");
        assert_eq!(closing.state, RecordState::Closing);
    }

    #[test]
    fn a_target_without_superblock_is_not_waited_for() {
        let mut set = set(Targets::ALL, Targets::DATA);
        assert_eq!(set.superblock_of(Target::DataP), None);
        persist_all(&mut set);
        assert!(set.is_committed() && set.is_confirmed_member(Target::DataP));
        set.exclude(Target::Data2);
        set.replace(Target::Data2, false);
        assert!(set.include(Target::Data2));
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::Data1);
        assert!(set.is_committed());
    }

    #[test]
    fn checksums_are_announced_again_to_all_members() {
        let mut set = set(Targets::ALL, Targets::ALL);
        persist_all(&mut set);
        set.set_checksums();
        assert!(set.is_committed(), "acknowledgements do not wait for it");
        for target in Target::ALL {
            assert!(set.superblock_of(target).expect("a member").checksums);
            assert!(!set.is_confirmed_member(target));
        }
    }
}
