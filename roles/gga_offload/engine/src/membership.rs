//! The epochs of a set, as recorded in its targets' superblocks.
//!
//! Whenever the set is opened, and whenever it continues without a member, it enters a new epoch, with a number and a
//! random identifier. This takes two rounds: all members persist that they *prepare* for the epoch, then that they have
//! *committed* it. Consequences for readers of the superblocks:
//!
//! * If a member has committed an epoch, all other members had prepared for it. A target whose superblock does not name
//!   the last committed epoch is not current: it missed that epoch, or is an older copy of a disk.
//! * No I/O was acknowledged in an epoch that no member has committed.
//!
//! The clean state is persisted in two rounds for the same reason: if one member is clean, a member whose superblock
//! does not record that the set is being closed is an older copy.
//!
//! [`Redundancy`] is the state machine of the members' states, and [`View`] is its part that workers use.

use role_formats::superblock::{Epoch, Form, SetId, Superblock};
use wire::control::RecordState;

use crate::{Target, Targets};

/// The identifiers of a session's epochs, from a random seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochIds(u64);

impl EpochIds {
    /// `seed` must be random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Identifier of the session's epoch with this index.
    fn id(self, index: u64) -> u64 {
        // SplitMix64.
        let steps = index.wrapping_add(1);
        let mut id = (self.0).wrapping_add(steps.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        id = (id ^ (id >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The identifier 0 denotes no epoch.
        (id ^ (id >> 31)).max(1)
    }
}

/// Progress of the members' superblocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Members persist that they prepare for the epoch.
    Preparing,
    /// Members persist that they have committed the epoch.
    Committing,
    /// All members have committed the epoch: I/Os may be served and acknowledged.
    InUse,
    /// All I/Os have completed: members persist that the set is being closed.
    Closing,
    /// Members persist that the set is clean.
    Cleaning,
    /// All members have persisted the clean state.
    Clean,
}

/// Superblocks that the three targets have to persist, and those that they have confirmed.
///
/// Later epochs are not persisted by a detached target. A target that is rebuilt first persists an empty superblock
/// before it becomes a member again; otherwise, its old superblock could be mistaken for a current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    set: SetId,
    ids: EpochIds,
    /// Number of the first epoch that this session has created.
    first: u64,
    /// Epochs that the targets had prepared for when the session began.
    prepared: [Epoch; 3],
    epoch: Epoch,
    /// The epoch that the members had committed previously.
    previous: Epoch,
    /// The set's state in that epoch.
    previous_state: RecordState,
    phase: Phase,
    /// `true` if the set has to be closed as soon as it has been opened.
    is_to_close: bool,
    /// Targets that have all acknowledged writes.
    members: Targets,
    /// Targets that have confirmed their last superblock.
    confirmed: Targets,
    /// Form in which the set's blocks are stored.
    form: Form,
}

/// Initial state of a membership.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) set: SetId,
    /// The epoch that the members have committed, or prepared for.
    pub(super) committed: Epoch,
    /// The highest epoch number in any superblock.
    pub(super) highest: u64,
    /// Epochs that the targets have prepared for.
    pub(super) prepared: [Epoch; 3],
    pub(super) state: RecordState,
    pub(super) members: Targets,
    pub(super) form: Form,
}

impl Membership {
    /// Opens the set: its members have to enter a new epoch.
    pub(super) fn put_to_use(origin: Origin, ids: EpochIds) -> Self {
        let first = origin.highest.saturating_add(1);
        Self {
            set: origin.set,
            ids,
            first,
            prepared: origin.prepared,
            epoch: Epoch {
                number: first,
                id: ids.id(0),
            },
            previous: origin.committed,
            previous_state: origin.state,
            phase: Phase::Preparing,
            is_to_close: false,
            members: origin.members,
            confirmed: Targets::NONE,
            form: origin.form,
        }
    }

    #[must_use]
    pub fn set(&self) -> SetId {
        self.set
    }

    /// The current epoch, which the members have committed or are about to commit.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns `true` if the previous session of this set ended in this epoch, and no other one has prepared a target for a
    /// later epoch, or stored a chunk, since.
    pub(super) fn follows(&self, set: SetId, epoch: Epoch) -> bool {
        self.set == set && self.previous == epoch && self.first == epoch.number.saturating_add(1)
    }

    /// Returns `true` if a superblock belongs to a target that remained a member until writes could no longer be
    /// acknowledged.
    pub(super) fn has_epoch(&self, superblock: Superblock) -> bool {
        // A target may have committed an epoch of this session that the others have not, so that it was never in use.
        let is_unused =
            self.is_own(superblock.epoch) && superblock.epoch.number > self.previous.number;
        let known = [superblock.epoch, superblock.next].into_iter();
        known.filter(|&epoch| epoch != Epoch::NONE).any(|epoch| {
            epoch == self.epoch
                || self.phase == Phase::Preparing && (epoch == self.previous || is_unused)
        })
    }

    /// Returns `true` if this session has created the epoch.
    fn is_own(&self, epoch: Epoch) -> bool {
        (self.first..=self.epoch.number).contains(&epoch.number)
            && epoch.id == self.ids.id(epoch.number - self.first)
    }

    /// Returns `true` if another session has prepared a target for an epoch since this session began. That session may
    /// commit its epoch on other targets, relying on this superblock, which must not be overwritten.
    pub(super) fn is_prepared_by_another(&self, target: Target, superblock: Superblock) -> bool {
        let next = superblock.next;
        next != Epoch::NONE && next != self.prepared[target.number()] && !self.is_own(next)
    }

    /// The superblock that a target has to persist.
    #[must_use]
    pub fn superblock_of(&self, target: Target) -> Superblock {
        let nothing = Superblock {
            set: self.set,
            member: target as u32,
            epoch: Epoch::NONE,
            next: Epoch::NONE,
            state: RecordState::InUse,
            form: self.form,
        };
        if !self.members.contains(target) {
            return nothing;
        }
        let (epoch, next, state) = match self.phase {
            Phase::Preparing => (self.previous, self.epoch, self.previous_state),
            Phase::Committing | Phase::InUse => (self.epoch, Epoch::NONE, RecordState::InUse),
            Phase::Closing => (self.epoch, Epoch::NONE, RecordState::Closing),
            Phase::Cleaning | Phase::Clean => (self.epoch, Epoch::NONE, RecordState::Clean),
        };
        Superblock {
            epoch,
            next,
            state,
            ..nothing
        }
    }

    /// Records that a target has persisted this superblock.
    pub fn persisted(&mut self, target: Target, superblock: Superblock) {
        if superblock == self.superblock_of(target) {
            self.confirmed.insert(target);
            self.advance();
        }
    }

    /// Returns `true` if all members have committed the epoch, so that no other target can be mistaken for a member.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        !matches!(self.phase, Phase::Preparing | Phase::Committing)
    }

    /// Returns `true` if a target is a member and has confirmed its superblock.
    #[must_use]
    pub fn is_confirmed_member(&self, target: Target) -> bool {
        self.members.contains(target) && self.confirmed.contains(target)
    }

    /// Excludes a target that will miss writes. If it was a member, the remaining members enter a new epoch.
    pub fn exclude(&mut self, target: Target) {
        self.confirmed.remove(target);
        if !self.members.contains(target) {
            return;
        }
        self.members.remove(target);
        if self.phase != Phase::Preparing {
            // All members have at least prepared for it.
            self.previous = self.epoch;
            self.previous_state = match self.phase {
                // All members, including this one, have persisted that the set is being closed, so this one has all
                // writes.
                Phase::Cleaning | Phase::Clean => RecordState::Closing,
                _ => RecordState::InUse,
            };
        }
        let number = self.epoch.number + 1;
        self.epoch = Epoch {
            number,
            id: self.ids.id(number - self.first),
        };
        self.enter(Phase::Preparing);
        self.advance();
    }

    /// Forgets what a target has confirmed that was detached and is still a member. Another service may use the target
    /// before it is back, and overwrite the superblock that the other members' next one would rely on: a confirmation
    /// holds only while the target is connected. Unless all members have committed the epoch, it has not been in use, and
    /// they prepare for it again.
    pub fn disconnected(&mut self, target: Target) {
        self.confirmed.remove(target);
        if self.phase == Phase::Committing && self.members.contains(target) {
            self.enter(Phase::Preparing);
        }
    }

    /// Makes a rebuilt target a member again, if it has confirmed its empty superblock. Returns `true` if it has become a member.
    pub fn include(&mut self, target: Target) -> bool {
        if self.members.contains(target) || !self.confirmed.contains(target) {
            return false;
        }
        self.members.insert(target);
        self.confirmed.remove(target);
        true
    }

    /// Starts closing the set: all I/Os have completed, and the chunks of all stripes are consistent.
    pub fn close(&mut self) {
        self.is_to_close = true;
        self.advance();
    }

    /// Returns `true` if all superblocks of the closed set are clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.phase == Phase::Clean
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.confirmed = self.confirmed.minus(self.members);
    }

    /// Continues with the next round if all members have confirmed their superblocks.
    fn advance(&mut self) {
        loop {
            let next = match self.phase {
                Phase::InUse if self.is_to_close => Phase::Closing,
                Phase::InUse | Phase::Clean => return,
                _ if !self.members.minus(self.confirmed).is_empty() => return,
                Phase::Preparing => Phase::Committing,
                Phase::Committing => Phase::InUse,
                Phase::Closing => Phase::Cleaning,
                Phase::Cleaning => Phase::Clean,
            };
            match (self.phase, next) {
                // The superblocks are unchanged.
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
    /// Returns `true` if a target is a member: it has all acknowledged writes.
    pub(super) fn is_member(&self, target: Target) -> bool {
        self.members.contains(target)
    }
}

/// The redundancy of a set while it is in use.
///
/// ```text
///            detach X                  rejoin X
///  Healthy ------------> Degraded(X) -----------> Rebuilding(X) ---> Healthy
///                            |  ^                    |      |  all stripes rebuilt
///                            |  +------ detach X ----+      |
///                   detach Y |                              | detach Y
///                            +----------->  Failed  <-------+
///                                restore Y: back to where it came from
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All three targets are current.
    Healthy,
    /// Two targets are current; this target is offline and misses writes.
    Degraded(Target),
    /// Two targets are current; this target stores writes again, but has missed stripes.
    Rebuilding(Target),
    /// Fewer than two targets are current. Writes, and reads of stripes without two current chunks, wait until targets
    /// that have missed no acknowledged write have rejoined.
    Failed {
        offline: Targets,
        /// Target that was being rebuilt when another one was detached.
        incomplete: Option<Target>,
    },
}

/// State machine of the redundancy.
#[derive(Debug)]
pub struct Redundancy {
    state: State,
    generation: u32,
}

impl Redundancy {
    pub(super) fn new() -> Self {
        Self {
            state: State::Healthy,
            generation: 0,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn view(&self) -> View {
        let (offline, rebuilding) = match self.state {
            State::Healthy => (Targets::NONE, Targets::NONE),
            State::Degraded(target) => (Targets::only(target), Targets::NONE),
            State::Rebuilding(target) => (Targets::NONE, Targets::only(target)),
            State::Failed {
                offline,
                incomplete,
            } => (offline, incomplete.map_or(Targets::NONE, Targets::only)),
        };
        View {
            offline,
            rebuilding,
            generation: self.generation,
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation = (self.generation + 1) % (1 << 26);
    }

    /// Records that a target is offline. Returns `false` if it was already.
    pub(super) fn detach(&mut self, target: Target) -> bool {
        let next = match self.state {
            State::Healthy => State::Degraded(target),
            State::Rebuilding(incomplete) if incomplete == target => State::Degraded(target),
            State::Rebuilding(incomplete) => State::Failed {
                offline: Targets::only(target),
                incomplete: Some(incomplete),
            },
            State::Degraded(offline) if offline == target => return false,
            State::Degraded(offline) => State::Failed {
                offline: Targets::only(offline).union(Targets::only(target)),
                incomplete: None,
            },
            State::Failed { offline, .. } if offline.contains(target) => return false,
            State::Failed {
                offline,
                incomplete,
            } => State::Failed {
                offline: offline.union(Targets::only(target)),
                incomplete: incomplete.filter(|&incomplete| incomplete != target),
            },
        };
        self.enter(next);
        true
    }

    /// Records that a detached target is online again and stores writes. Returns `false` for a target that cannot rejoin.
    pub(super) fn rejoin(&mut self, target: Target) -> bool {
        let expected = self.state == State::Degraded(target);
        if expected {
            self.enter(State::Rebuilding(target));
        }
        expected
    }

    /// Records that a target that has missed no acknowledged write is online again, in a set in which `stale` is not
    /// current. Returns `false` in states other than `Failed`.
    pub(super) fn restore(&mut self, target: Target, stale: Target) -> bool {
        let State::Failed {
            mut offline,
            incomplete,
        } = self.state
        else {
            return false;
        };
        if target == stale || !offline.contains(target) {
            return false;
        }
        offline.remove(target);
        let is_complete = offline.minus(Targets::only(stale)).is_empty();
        self.enter(match incomplete {
            Some(incomplete) if is_complete => State::Rebuilding(incomplete),
            None if is_complete => State::Degraded(stale),
            incomplete => State::Failed {
                offline,
                incomplete,
            },
        });
        true
    }

    /// Completes the rebuild: the target is up to date.
    pub(super) fn rebuilt(&mut self) {
        if let State::Rebuilding(_) = self.state {
            self.enter(State::Healthy);
        }
    }
}

/// The targets' state as seen by workers: one word, which is rarely modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Targets that are sent no requests.
    pub offline: Targets,
    /// Targets that store writes, but whose chunks of missed stripes are stale.
    pub rebuilding: Targets,
    /// Number of changes of the view, modulo 2^26.
    pub generation: u32,
}

/// Number of bits of the word that do not belong to the generation.
const TARGETS: u32 = 6;

impl View {
    /// The view of three targets that are current.
    pub(super) const HEALTHY: Self = Self {
        offline: Targets::NONE,
        rebuilding: Targets::NONE,
        generation: 0,
    };

    pub(super) fn to_word(self) -> u32 {
        self.generation << TARGETS
            | u32::from(self.rebuilding.bits()) << 3
            | u32::from(self.offline.bits())
    }

    pub(super) fn from_word(word: u32) -> Self {
        Self {
            offline: Targets::from_bits(word as u8 & 7),
            rebuilding: Targets::from_bits((word >> 3) as u8 & 7),
            generation: word >> TARGETS,
        }
    }

    /// Returns `true` if all three targets are current.
    #[inline]
    pub(super) fn is_healthy(self) -> bool {
        self.offline.union(self.rebuilding).is_empty()
    }

    /// Returns `true` if fewer than two targets are current.
    pub(super) fn has_failed(self) -> bool {
        self.offline.union(self.rebuilding).len() > 1
    }

    /// Targets whose chunk of a stripe is current; `is_missed` is `true` if a target has missed a write of the stripe.
    pub(super) fn sources(self, is_missed: bool) -> Targets {
        let stale = if is_missed {
            self.rebuilding
        } else {
            Targets::NONE
        };
        Targets::ALL.minus(self.offline).minus(stale)
    }

    /// Targets of a write; `None` once writes fail.
    pub(super) fn sinks(self) -> Option<Targets> {
        (!self.has_failed()).then(|| Targets::ALL.minus(self.offline))
    }

    /// Targets of a write that are sources of the stripe afterwards. `was_missed` is `true` if a target had missed the stripe before.
    pub(super) fn holders(self, asked: Targets, failed: Targets, was_missed: bool) -> Targets {
        asked.minus(failed).intersection(self.sources(was_missed))
    }

    /// The chunk that a read from these sources has to recover: `Some(None)` if none, `None` if there are too few
    /// sources.
    pub(super) fn missing_chunk(sources: Targets) -> Option<Option<Target>> {
        let missing = Targets::DATA.minus(sources);
        match missing.len() {
            0 => Some(None),
            1 if sources.contains(Target::DataP) => Some(missing.iter().next()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use role_formats::stored_block::MatrixType;
    use role_formats::superblock::Format;

    use super::*;

    const FORM: Form = Form {
        format: Format::StoredChunks,
        matrix: MatrixType::Vandermonde,
        logical_block_size: 4096,
    };

    fn set(members: Targets) -> Membership {
        let origin = Origin {
            set: SetId(5),
            committed: Epoch { number: 3, id: 30 },
            highest: 4,
            prepared: [Epoch::NONE; 3],
            state: RecordState::Clean,
            members,
            form: FORM,
        };
        Membership::put_to_use(origin, EpochIds::new(1))
    }

    fn persist(set: &mut Membership, target: Target) {
        let superblock = set.superblock_of(target);
        set.persisted(target, superblock);
    }

    fn persist_all(set: &mut Membership) {
        for _ in 0..2 {
            Target::ALL
                .into_iter()
                .for_each(|target| persist(set, target));
        }
    }

    /// Compared with the clean superblock of the detached target, members in use would be mistaken for older copies.
    #[test]
    fn a_target_lost_at_the_end_leaves_no_member_in_use() {
        let mut set = set(Targets::ALL);
        persist_all(&mut set);
        set.close();
        persist_all(&mut set);
        set.exclude(Target::Data2);
        let superblock = set.superblock_of(Target::Data1);
        assert_eq!(superblock.state, RecordState::Closing);
        assert_ne!(superblock.next, Epoch::NONE);
    }

    #[test]
    fn an_epoch_is_committed_after_all_members_have_prepared_for_it() {
        let mut set = set(Targets::ALL);
        let prepared = set.superblock_of(Target::Data1);
        assert_eq!(prepared.epoch, Epoch { number: 3, id: 30 });
        assert_eq!(
            (prepared.next.number, prepared.state),
            (5, RecordState::Clean)
        );
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::Data2);
        assert_eq!(
            set.superblock_of(Target::Data1),
            prepared,
            "one owes its word"
        );
        persist(&mut set, Target::DataP);
        let committed = set.superblock_of(Target::Data1);
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

    /// Another service may have used the target in the meantime.
    #[test]
    fn epoch_is_not_committed_while_a_target_that_has_prepared_for_it_is_disconnected() {
        let mut set = set(Targets::ALL);
        persist_all(&mut set);
        set.exclude(Target::Data2);
        let prepared = set.superblock_of(Target::Data1);
        persist(&mut set, Target::DataP);
        set.disconnected(Target::DataP);
        persist(&mut set, Target::Data1);
        assert_eq!(set.superblock_of(Target::Data1), prepared);
        persist(&mut set, Target::DataP);
        assert_eq!(set.superblock_of(Target::Data1).epoch, prepared.next);
    }

    /// The superblock on which the commit relied may be overwritten.
    #[test]
    fn members_prepare_again_if_one_is_lost_before_all_have_committed() {
        let mut set = set(Targets::ALL);
        persist_all(&mut set);
        set.exclude(Target::Data2);
        let prepared = set.superblock_of(Target::Data1);
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::DataP);
        let committed = set.superblock_of(Target::Data1);
        assert_eq!(committed.epoch, prepared.next);
        persist(&mut set, Target::DataP);
        set.disconnected(Target::Data1);
        assert_eq!(set.superblock_of(Target::Data1), prepared);
        // It may have committed the epoch before it was lost.
        assert!(set.has_epoch(committed) && set.has_epoch(prepared));
        set.exclude(Target::Data1);
        assert!(set.has_epoch(committed), "the epoch was never in use");
        let other = Epoch {
            id: committed.epoch.id + 1,
            ..committed.epoch
        };
        assert!(!set.has_epoch(Superblock {
            epoch: other,
            ..committed
        }));
    }

    /// The other members may not have received the epoch that they were preparing for: members that have received it
    /// would seem to be ahead of them.
    #[test]
    fn members_left_by_one_that_was_lost_while_they_prepare_still_have_the_committed_epoch() {
        let mut set = set(Targets::ALL);
        let before = set.superblock_of(Target::Data1);
        persist(&mut set, Target::Data1);
        set.exclude(Target::Data2);
        let after = set.superblock_of(Target::Data1);
        assert_eq!((after.epoch, after.state), (before.epoch, before.state));
        assert_ne!(after.next, before.next);
    }

    #[test]
    fn excluded_member_learns_no_later_epoch_and_rejoins_empty() {
        let mut set = set(Targets::ALL);
        persist_all(&mut set);
        let before = set.superblock_of(Target::DataP);
        set.exclude(Target::DataP);
        assert!(!set.is_committed());
        let prepared = set.superblock_of(Target::Data1);
        assert_eq!(
            (prepared.epoch, prepared.state),
            (before.epoch, RecordState::InUse)
        );
        assert!(prepared.next.number > before.epoch.number && prepared.next.id != before.epoch.id);
        assert_eq!(set.superblock_of(Target::DataP).epoch, Epoch::NONE);
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::Data2);
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::Data2);
        assert!(set.is_committed());

        assert!(
            !set.include(Target::DataP),
            "its old superblock is on its disk"
        );
        persist(&mut set, Target::DataP);
        assert!(set.include(Target::DataP) && !set.is_confirmed_member(Target::DataP));
        persist(&mut set, Target::DataP);
        assert!(set.is_confirmed_member(Target::DataP));
        let now = set.superblock_of(Target::DataP);
        assert_eq!(now.epoch, set.superblock_of(Target::Data1).epoch);
    }

    #[test]
    fn a_confirmation_does_not_count_for_the_target_that_replaces_another() {
        let mut set = set(Targets::ALL);
        persist_all(&mut set);
        set.exclude(Target::Data1);
        persist(&mut set, Target::Data1);
        set.exclude(Target::Data1);
        assert!(!set.include(Target::Data1));
        persist(&mut set, Target::Data1);
        assert!(set.include(Target::Data1));
    }

    #[test]
    fn a_set_is_closed_in_two_rounds() {
        let mut set = set(Targets::ALL);
        set.close();
        persist_all(&mut set);
        assert!(!set.is_clean());
        let closing = set.superblock_of(Target::Data1);
        assert_eq!(closing.state, RecordState::Closing);
        persist_all(&mut set);
        assert!(set.is_clean() && set.is_committed());
        let clean = set.superblock_of(Target::Data1);
        assert_eq!(
            (clean.state, clean.epoch),
            (RecordState::Clean, closing.epoch)
        );
    }

    #[test]
    fn a_member_lost_while_the_set_is_closed_is_left_behind_first() {
        let mut set = set(Targets::ALL);
        persist_all(&mut set);
        set.close();
        set.exclude(Target::Data2);
        assert_eq!(set.superblock_of(Target::Data1).state, RecordState::InUse);
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::DataP);
        persist(&mut set, Target::Data1);
        persist(&mut set, Target::DataP);
        let closing = set.superblock_of(Target::Data1);
        assert_eq!(closing.state, RecordState::Closing);
    }

    fn all_sets() -> impl Iterator<Item = Targets> {
        (0..8).map(Targets::from_bits)
    }

    fn all_views() -> impl Iterator<Item = View> {
        all_sets().flat_map(|offline| {
            all_sets().map(move |rebuilding| View {
                offline,
                rebuilding,
                generation: 0,
            })
        })
    }

    #[test]
    fn view_round_trips_through_a_word() {
        for view in all_views() {
            for generation in [0, 1, (1 << 26) - 1] {
                let view = View { generation, ..view };
                assert_eq!(View::from_word(view.to_word()), view);
            }
        }
        assert_eq!(View::HEALTHY.to_word(), 0);
    }

    #[test]
    fn a_read_takes_two_current_chunks_or_none() {
        for sources in all_sets() {
            match View::missing_chunk(sources) {
                Some(missing) => {
                    let used = missing.map_or(Targets::DATA, Targets::without);
                    assert!(used.len() == 2 && used.minus(sources).is_empty());
                    // The parity chunk is read only where a data chunk cannot be.
                    assert!(missing.is_none() || !Targets::DATA.minus(sources).is_empty());
                }
                None => assert!(sources.len() < 2, "{sources:?} were enough"),
            }
        }
    }

    #[test]
    fn offline_and_stale_targets_are_no_sources() {
        for view in all_views() {
            assert!(view.sources(false).intersection(view.offline).is_empty());
            assert!(view.sources(true).intersection(view.rebuilding).is_empty());
            match view.sinks() {
                Some(sinks) => {
                    assert!(sinks.minus(view.rebuilding).len() >= 2);
                    assert!(sinks.intersection(view.offline).is_empty());
                }
                None => assert!(view.sources(true).len() < 2),
            }
        }
    }

    #[test]
    fn every_detachment_and_rejoin_changes_the_view() {
        let mut set = Redundancy::new();
        assert!(set.detach(Target::Data2) && !set.detach(Target::Data2));
        assert!(!set.rejoin(Target::Data1) && set.rejoin(Target::Data2));
        assert_eq!(set.state(), State::Rebuilding(Target::Data2));
        set.rebuilt();
        assert_eq!((set.state(), set.view().generation), (State::Healthy, 3));
        assert!(set.detach(Target::Data1) && set.rejoin(Target::Data1));
        assert!(set.detach(Target::DataP));
        let failed = State::Failed {
            offline: Targets::only(Target::DataP),
            incomplete: Some(Target::Data1),
        };
        assert_eq!(set.state(), failed);
        assert!(set.view().has_failed() && !set.rejoin(Target::DataP));
        assert!(set.detach(Target::Data1) && !set.detach(Target::Data1));
        // The target was being rebuilt, and is no longer attached.
        let failed = State::Failed {
            offline: Targets::from_bits(0b101),
            incomplete: None,
        };
        assert_eq!(set.state(), failed);
        assert!(set.restore(Target::DataP, Target::Data1));
        assert_eq!(set.state(), State::Degraded(Target::Data1));
    }

    #[test]
    fn target_that_had_missed_the_stripe_does_not_hold_a_write() {
        let view = View {
            offline: Targets::NONE,
            rebuilding: Targets::only(Target::DataP),
            generation: 0,
        };
        let failed = Targets::only(Target::Data2);
        let holders = |was_missed| view.holders(Targets::ALL, failed, was_missed);
        assert_eq!(holders(true), Targets::only(Target::Data1));
        assert_eq!(holders(false), Targets::without(Target::Data2));
    }
}
