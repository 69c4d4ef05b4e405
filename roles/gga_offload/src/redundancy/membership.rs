//! What the targets of a session keep, so that the next service knows which of them have what was written.

use role_common::superblock::{Epoch, SetId, Superblock};
use wire::control::RecordState;

use crate::target::{Target, Targets};

/// The set of the three targets, as they are to know it. A target that is lost knows of no epoch after its loss, and so do those that
/// find it again. One that is rebuilt keeps that it has nothing, before it becomes a member: otherwise, with what the two others keep, a
/// later service could not tell it from one that had heard of more than they.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    set: SetId,
    epoch: u64,
    state: RecordState,
    /// Those that have all that was written, or the last word of it.
    members: Targets,
    /// Those that are known to keep what they are to keep.
    confirmed: Targets,
    /// Those that keep anything: the reference's do not.
    keepers: Targets,
}

/// The epoch of those that have nothing of what was written: no set begins with it.
const NOTHING: u64 = 0;

impl Membership {
    /// The targets `members` have what was written up to this epoch, and are going to be used.
    pub(super) fn new(set: SetId, epoch: u64, members: Targets, keepers: Targets) -> Self {
        Self {
            set,
            epoch,
            state: RecordState::InUse,
            members,
            confirmed: Targets::NONE,
            keepers,
        }
    }

    /// What a target is to keep; `None` for whatever it keeps.
    pub(crate) fn record_of(&self, target: Target) -> Option<Superblock> {
        let (epoch, state) = if self.members.contains(target) {
            (self.epoch, self.state)
        } else {
            (NOTHING, RecordState::InUse)
        };
        let keeps = self.keepers.contains(target);
        keeps.then_some(Superblock {
            set: self.set,
            member: target as u32,
            epoch: Epoch {
                number: epoch,
                id: 0,
            },
            next: Epoch::NONE,
            state,
            checksums: false,
        })
    }

    /// A target keeps this.
    pub(super) fn confirm(&mut self, target: Target, record: Superblock) {
        if Some(record) == self.record_of(target) {
            self.confirmed.insert(target);
        }
    }

    /// Whether all members know of the epoch: whoever is no member cannot be taken for one any more.
    pub(super) fn is_sealed(&self) -> bool {
        let keeping = self.members.intersection(self.keepers);
        keeping.minus(self.confirmed).is_empty()
    }

    /// A target misses what is written from now on. The epoch is another one when it was a member: who never was cannot be taken for
    /// one.
    pub(super) fn exclude(&mut self, target: Target) {
        if self.members.contains(target) {
            self.members.remove(target);
            self.epoch += 1;
            self.confirmed = Targets::NONE;
        }
    }

    /// Who has come to the place of a target keeps a record, or does not.
    pub(super) fn replace(&mut self, target: Target, keeps: bool) {
        self.keepers.remove(target);
        self.confirmed.remove(target);
        if keeps {
            self.keepers.insert(target);
        }
    }

    /// A target has all that was written, and is a member again, as soon as it knows; not before it keeps that it had nothing. Returns
    /// whether it has become one.
    pub(super) fn include(&mut self, target: Target) -> bool {
        let is_waited_for = self.keepers.contains(target) && !self.confirmed.contains(target);
        if self.members.contains(target) || is_waited_for {
            return false;
        }
        self.members.insert(target);
        self.confirmed.remove(target);
        true
    }

    /// Whether a target is one of those that have all that was written.
    pub(super) fn has(&self, target: Target) -> bool {
        self.members.contains(target)
    }

    /// All I/Os have come to their end, and the halves of all stripes fit each other.
    pub(super) fn conclude(&mut self) {
        if self.members == Targets::ALL {
            self.state = RecordState::Clean;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirm(membership: &mut Membership, target: Target) {
        let record = membership.record_of(target).expect("a member");
        membership.confirm(target, record);
    }

    #[test]
    fn who_is_lost_is_left_behind_before_anything_is_sealed() {
        let mut set = Membership::new(SetId(5), 3, Targets::ALL, Targets::ALL);
        assert!(!set.is_sealed());
        for target in Target::ALL {
            confirm(&mut set, target);
        }
        assert!(set.is_sealed());
        let before = set.record_of(Target::Data2).expect("a member");
        set.exclude(Target::Data1);
        let nothing = set.record_of(Target::Data1).expect("a keeper");
        assert!(!set.is_sealed() && nothing.epoch.number == NOTHING);
        set.confirm(Target::Data2, before);
        confirm(&mut set, Target::DataP);
        assert!(!set.is_sealed(), "what came late was of the epoch before");
        confirm(&mut set, Target::Data2);
        assert!(set.is_sealed());
        let record = set.record_of(Target::DataP).expect("a member");
        assert_eq!((record.epoch.number, record.member), (4, 2));

        set.exclude(Target::Data1);
        assert!(set.is_sealed(), "it was left behind before");
        set.conclude();
        assert_eq!(set.record_of(Target::DataP), Some(record), "one is missing");
        set.replace(Target::Data1, true);
        assert!(!set.include(Target::Data1) && !set.has(Target::Data1));
        confirm(&mut set, Target::Data1);
        assert!(set.include(Target::Data1) && !set.include(Target::Data1) && !set.is_sealed());
        confirm(&mut set, Target::Data1);
        set.conclude();
        for target in Target::ALL {
            let record = set.record_of(target).expect("a member");
            assert_eq!((record.epoch.number, record.state), (4, RecordState::Clean));
        }
    }

    #[test]
    fn what_one_has_confirmed_is_not_taken_for_the_word_of_who_comes_to_its_place() {
        let mut set = Membership::new(SetId(5), 3, Targets::ALL, Targets::ALL);
        set.exclude(Target::Data1);
        set.replace(Target::Data1, true);
        confirm(&mut set, Target::Data1);
        // It leaves again, and another one comes, which keeps the record of anything.
        set.exclude(Target::Data1);
        set.replace(Target::Data1, true);
        assert!(!set.include(Target::Data1));
        confirm(&mut set, Target::Data1);
        assert!(set.include(Target::Data1));
    }

    #[test]
    fn who_keeps_nothing_is_not_asked_to_and_not_waited_for() {
        let mut set = Membership::new(SetId(5), 3, Targets::ALL, Targets::DATA);
        assert_eq!(set.record_of(Target::DataP), None);
        confirm(&mut set, Target::Data1);
        confirm(&mut set, Target::Data2);
        assert!(set.is_sealed());
        set.exclude(Target::Data2);
        set.replace(Target::Data2, false);
        confirm(&mut set, Target::Data1);
        set.include(Target::Data2);
        assert!(set.is_sealed() && set.record_of(Target::Data2).is_none());
    }
}
