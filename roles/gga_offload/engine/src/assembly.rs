//! Assembles a set: decides from the superblocks of its targets which of them are current.
//!
//! Targets that have committed the last committed epoch, or prepared for it, are current. At least two targets must be
//! current, whether the third one is reachable or not; [`Membership`] explains why this is sufficient.

use std::fmt;

use role_formats::superblock::{Epoch, Form, SetId, Superblock};
use wire::control::RecordState;

use super::chunk::Stamp;
use super::membership::{EpochIds, Membership, Origin};
use super::versions;
use crate::{Target, Targets};

/// State of a target at the start of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Missing,
    /// The target is not a member of any set.
    Blank,
    Superblock(Superblock),
}

/// State of a target's log of versions, as the target announces it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// The newest version that was written to the target; `None` if it has none.
    pub last: Option<Stamp>,
    /// Versions below this one are complete and durable on all members, according to the target.
    pub retired: Option<Stamp>,
    /// Stripes of which the target keeps earlier versions.
    pub unretired: Vec<u64>,
}

/// Initial state of a session.
#[derive(Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The superblocks to persist. `None` for blocks in the reference's form.
    pub membership: Option<Membership>,
    /// A target that is not current: all its stripes are rebuilt.
    pub stale: Option<Target>,
    /// `true` if the stale target is missing.
    pub is_degraded: bool,
    /// `true` if the contents of the stale target are discarded at an operator's request.
    pub is_discarded: bool,
    /// `true` if the set was created now.
    pub is_new: bool,
    /// Stripes whose chunks may belong to different writes, after an unclean shutdown.
    pub unsettled: Vec<u64>,
    /// The newest versions that the current targets have stored.
    pub stored: [Stamp; 3],
    /// Writes with lower stamps are complete and durable on all members, according to the current targets.
    pub retired: Stamp,
    /// The last epoch in which writes were retired, according to all targets of the set; 0 for none.
    pub retired_epoch: u64,
}

impl Assembly {
    /// Three targets with blocks in the reference's form, which have no superblocks.
    #[must_use]
    pub fn unmanaged() -> Self {
        Self {
            membership: None,
            stale: None,
            is_degraded: false,
            is_discarded: false,
            is_new: false,
            unsettled: Vec::new(),
            stored: [Stamp::UNWRITTEN; 3],
            retired: Stamp::UNWRITTEN,
            retired_epoch: 0,
        }
    }
}

/// Reason why a set cannot be assembled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The target at this address is another one than expected.
    #[error(
        "storage target {}: expected {} of its set, got {}; exchange the addresses, or name it with --rebuild to have it overwritten",
        target.name(), target.name(), Target::ALL.get(*member as usize).map_or("another target", |target| target.name())
    )]
    Exchanged {
        /// The target at the wrong address.
        target: Target,
        /// The number in its superblock.
        member: u32,
    },
    /// The targets belong to different sets.
    #[error(
        "expected three storage targets of one set, got {}; name the one that does not belong to the others with --rebuild to have it \
         overwritten", Listed(.0)
    )]
    SeveralSets(Box<[Found; 3]>),
    /// The set has diverged: it was used with different members from the same epoch on.
    #[error(
        "the storage targets have diverged: they were used with different members of the set ({}); start two of them that were last used \
         together, and name the third with --rebuild to have it overwritten", Listed(.0)
    )]
    Diverged(Box<[Found; 3]>),
    /// Fewer than two targets are current.
    #[error(
        "expected two current storage targets, with epoch {}, got {}; start the targets with their latest blocks, or, to return to the \
         older state of the other two, discard the one with epoch {} with --rebuild: newer writes are lost",
        epoch.number, Listed(found), epoch.number
    )]
    TooFew {
        /// States of the targets.
        found: Box<[Found; 3]>,
        /// The last committed epoch.
        epoch: Epoch,
    },
    /// The set's blocks are stored in another form than the service is configured for.
    #[error(
        "the set stores {found}, but the service was started for {expected}; start it with the set's values"
    )]
    OtherForm {
        /// Form in the superblocks.
        found: Form,
        /// Form for which the service is configured.
        expected: Form,
    },
    /// A target is missing, and the others are not members of a set yet.
    #[error(
        "storage target {} is missing, and the others do not prove that they are current; start all three targets", .0.name()
    )]
    Missing(Target),
}

/// Formats the states of the targets.
struct Listed<'a>(&'a [Found; 3]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (target, found) in Target::ALL.into_iter().zip(self.0) {
            let separator = if target == Target::Data1 { "" } else { ", " };
            write!(f, "{separator}{}: ", target.name())?;
            match found {
                Found::Missing => write!(f, "missing")?,
                Found::Blank => write!(f, "empty or of no set")?,
                Found::Superblock(it) if it.epoch == Epoch::NONE => {
                    write!(f, "set {}, not rebuilt", it.set)?;
                }
                Found::Superblock(it) => write!(
                    f,
                    "set {}, epoch {} ({:08x})",
                    it.set,
                    it.epoch.number,
                    it.epoch.id >> 32
                )?,
            }
        }
        Ok(())
    }
}

/// Input of the user and of earlier sessions to the assembly.
#[derive(Debug, Clone)]
pub struct Instructions {
    /// A target whose contents are discarded, regardless of its superblock. The superblocks of the other targets are
    /// used.
    pub rebuild: Option<Target>,
    /// Form in which the service stores blocks.
    pub form: Form,
    /// The identifier of the set, if it has to be created.
    pub new_set: SetId,
    pub ids: EpochIds,
}

/// Decides which targets are current, and how to treat the others, from their superblocks and logs.
///
/// # Errors
///
/// Fewer than two targets are current, or the targets do not belong together.
pub fn assemble(
    found: [Found; 3],
    logs: &[Log; 3],
    instructions: Instructions,
) -> Result<Assembly, Refusal> {
    let mut missing = Targets::NONE;
    for target in Target::ALL {
        if found[target.number()] == Found::Missing {
            missing.insert(target);
        }
    }
    let mut trusted = Targets::ALL.minus(missing);
    if let Some(target) = instructions.rebuild {
        trusted.remove(target);
    }
    let known = Known::of(&found, trusted);
    known.check_places()?;
    let Some(&(_, Superblock { set, .. })) = known.superblocks.first() else {
        return assemble_new(missing, &found, 0, instructions);
    };
    if known.any(|it| it.set != set) {
        return Err(Refusal::SeveralSets(Box::new(found)));
    }
    if let Some((_, it)) = known
        .superblocks
        .iter()
        .find(|(_, it)| it.form != instructions.form)
    {
        return Err(Refusal::OtherForm {
            found: it.form,
            expected: instructions.form,
        });
    }
    let Some(committed) = known.last_committed() else {
        return Err(Refusal::Diverged(Box::new(found)));
    };
    let highest = found.iter().filter_map(|found| match found {
        Found::Superblock(it) if it.set == set => Some(it.epoch.number.max(it.next.number)),
        _ => None,
    });
    // Logs of targets of other sets are ignored.
    let logs_of_set = || {
        let in_set = |it: &Found| matches!(it, Found::Superblock(it) if it.set == set);
        found
            .iter()
            .zip(logs)
            .filter(move |(it, _)| in_set(it))
            .map(|(_, log)| log)
    };
    // A session that could not commit its epoch may have stored chunks.
    let last_stored = logs_of_set().filter_map(|log| Some(log.last?.epoch));
    let highest = highest.chain(last_stored).max().unwrap_or(0);
    if committed == Epoch::NONE {
        // The creation of the set was interrupted. A target that was to be rebuilt then is empty.
        let rebuilt = known.targets(|it| it.next == Epoch::NONE);
        if rebuilt.len() > 1 {
            return Err(Refusal::TooFew {
                found: Box::new(found),
                epoch: committed,
            });
        }
        let instructions = Instructions {
            rebuild: instructions.rebuild.or(rebuilt.iter().next()),
            new_set: set,
            ..instructions
        };
        // An interrupted session may have stored chunks, all of them unacknowledged: their stamps are not reused, and
        // the stripes are settled.
        let mut assembly = assemble_new(missing, &found, highest, instructions)?;
        assembly.unsettled = logs
            .iter()
            .flat_map(|log| log.unretired.iter().copied())
            .collect();
        return Ok(assembly);
    }
    let mut current = known.targets(|it| it.epoch == committed || it.next == committed);
    if known.any(|it| it.epoch == committed && it.state == RecordState::Clean) {
        // A copy made while the set was in use does not record that the set has been closed since then. A copy that
        // prepares for a later epoch was in use after that. Targets persist that the set is being closed before any of
        // them is clean, so such targets are not in doubt.
        current =
            known.targets(|it| it.epoch == committed && (it.is_closed() || it.next != Epoch::NONE));
    }
    let copies = old_copies(&known, current, logs);
    if current.minus(copies).len() >= 2 {
        current = current.minus(copies);
    }
    let doubtful = known.targets(|it| it.state == RecordState::InDoubt);
    let doubtful = doubtful.intersection(current);
    if current == Targets::ALL && doubtful.len() == 1 {
        current = current.minus(doubtful);
    } else if !doubtful.is_empty() {
        tracing::warn!(
            "the machines of {} storage targets were restarted without a clean shutdown: what they had acknowledged last, without a flush, may be missing",
            doubtful.len()
        );
    }
    let stale = Targets::ALL.minus(current);
    if stale.len() > 1 {
        return Err(Refusal::TooFew {
            found: Box::new(found),
            epoch: committed,
        });
    }
    // A superblock that only prepares for the committed epoch may record that an earlier epoch was closed.
    let mut members = known.members(current);
    let is_unclean = !members.all(|it| it.is_closed() && it.epoch == committed);
    let retired = current.iter().filter_map(|it| logs[it.number()].retired);
    let retired = retired.max().unwrap_or(Stamp::UNWRITTEN);
    let mut unsettled = Vec::new();
    for target in current.iter() {
        let log = &logs[target.number()];
        // Targets learn from the next message that writes are retired: this one was not told. Settling these stripes again
        // would need a further version of each.
        if log.last.is_some_and(|last| last < retired) {
            continue;
        }
        // A session that could not commit its epoch leaves the superblocks unchanged, and may have stored chunks.
        let has_uncommitted = log.last.is_some_and(|last| last.epoch > committed.number);
        if is_unclean || has_uncommitted {
            unsettled.extend_from_slice(&log.unretired);
        }
    }
    let origin = Origin {
        set,
        committed,
        highest,
        prepared: prepared(&found),
        // A target with a clean superblock discards its list of stripes to settle.
        state: if is_unclean || !unsettled.is_empty() {
            RecordState::InUse
        } else {
            RecordState::Clean
        },
        members: current,
        form: instructions.form,
    };
    let stored = Target::ALL.map(|target| {
        let last = logs[target.number()].last;
        last.filter(|_| current.contains(target))
            .unwrap_or(Stamp::UNWRITTEN)
    });
    let epochs = logs_of_set().filter_map(|log| Some(log.retired?.epoch));
    let stale = stale.iter().next();
    Ok(Assembly {
        membership: Some(Membership::put_to_use(origin, instructions.ids)),
        stale,
        is_degraded: stale.is_some_and(|target| missing.contains(target)),
        is_discarded: stale.is_some() && stale == instructions.rebuild,
        is_new: false,
        unsettled,
        stored,
        retired,
        retired_epoch: epochs.max().unwrap_or(0),
    })
}

/// Returns the targets that lack a write which, according to another target's log, was complete on all members: copies
/// of a disk from within the last session, whose
/// superblocks are those of that session. The log of a rebuilt target lacks the versions, too, but has the same retired bound since the flush at the end of the
/// rebuild. The bound is in memory until further versions are written: if the target's process was restarted, the target is rebuilt again.
///
/// A target whose superblock records that the session of that write was closed is not a copy from within that session;
/// a target whose superblock records this only for an earlier session is.
fn old_copies(known: &Known, current: Targets, logs: &[Log; 3]) -> Targets {
    let retired = current.iter().filter_map(|it| logs[it.number()].retired);
    let Some(retired) = retired.max() else {
        return Targets::NONE;
    };
    let closed = known.targets(|it| it.is_closed() && it.epoch.number >= retired.epoch);
    let mut copies = Targets::NONE;
    for target in current.minus(closed).iter() {
        let is_behind = logs[target.number()].last.is_none_or(|last| {
            last.epoch < retired.epoch
                || last.epoch == retired.epoch && last.number + 1 < retired.number
        });
        let has_bound = logs[target.number()].retired == Some(retired);
        // Without a retired write in this session, the last retired write belongs to an earlier epoch.
        if is_behind && !has_bound && retired.number > versions::FIRST {
            copies.insert(target);
        }
    }
    copies
}

/// Creates a set of three targets that are members of none.
fn assemble_new(
    missing: Targets,
    found: &[Found; 3],
    highest: u64,
    instructions: Instructions,
) -> Result<Assembly, Refusal> {
    if let Some(target) = missing.iter().next() {
        return Err(Refusal::Missing(target));
    }
    let origin = Origin {
        set: instructions.new_set,
        committed: Epoch::NONE,
        highest,
        prepared: prepared(found),
        state: RecordState::Clean,
        members: instructions.rebuild.map_or(Targets::ALL, Targets::without),
        form: instructions.form,
    };
    Ok(Assembly {
        membership: Some(Membership::put_to_use(origin, instructions.ids)),
        stale: instructions.rebuild,
        is_degraded: false,
        is_discarded: instructions.rebuild.is_some(),
        is_new: true,
        unsettled: Vec::new(),
        stored: [Stamp::UNWRITTEN; 3],
        retired: Stamp::UNWRITTEN,
        retired_epoch: 0,
    })
}

/// Epochs that the targets have prepared for.
fn prepared(found: &[Found; 3]) -> [Epoch; 3] {
    found.each_ref().map(|found| match found {
        Found::Superblock(it) => it.next,
        Found::Missing | Found::Blank => Epoch::NONE,
    })
}

/// The superblocks of the trusted targets.
struct Known {
    superblocks: Vec<(Target, Superblock)>,
}

impl Known {
    fn of(found: &[Found; 3], trusted: Targets) -> Self {
        let superblocks = trusted
            .iter()
            .filter_map(|target| match found[target.number()] {
                Found::Superblock(superblock) => Some((target, superblock)),
                _ => None,
            })
            .collect();
        Self { superblocks }
    }

    fn check_places(&self) -> Result<(), Refusal> {
        match (self.superblocks.iter()).find(|(target, it)| it.member != *target as u32) {
            None => Ok(()),
            Some(&(target, it)) => Err(Refusal::Exchanged {
                target,
                member: it.member,
            }),
        }
    }

    /// The last committed epoch that may have been in use. `None` if there are two epochs with its number.
    fn last_committed(&self) -> Option<Epoch> {
        let epochs = || {
            let superblocks = self.superblocks.iter();
            let used = superblocks.filter(|(_, it)| !self.was_never_in_use(it.epoch));
            used.map(|(_, it)| it.epoch)
        };
        let last = epochs().max_by_key(|epoch| epoch.number)?;
        let mut rivals = epochs().filter(|epoch| epoch.number == last.number);
        rivals.all(|epoch| epoch == last).then_some(last)
    }

    /// Returns `true` for an epoch that only one target has committed, while the other two have prepared for later ones
    /// without having committed it: a service committed it on the first of its members, and lost the others to another
    /// service. At least one of these two is a member of the epoch, which is in use only when all members have committed
    /// it.
    fn was_never_in_use(&self, epoch: Epoch) -> bool {
        let committed = self.targets(|it| it.epoch == epoch);
        let later =
            self.targets(|it| it.epoch.number < epoch.number && it.next.number > epoch.number);
        committed.len() == 1 && later.len() == 2
    }

    fn any(&self, wanted: impl Fn(&Superblock) -> bool) -> bool {
        self.superblocks.iter().any(|(_, it)| wanted(it))
    }

    fn targets(&self, wanted: impl Fn(&Superblock) -> bool) -> Targets {
        let mut targets = Targets::NONE;
        for (target, superblock) in &self.superblocks {
            if wanted(superblock) {
                targets.insert(*target);
            }
        }
        targets
    }

    fn members(&self, current: Targets) -> impl Iterator<Item = &Superblock> + Clone {
        let members = self.superblocks.iter();
        members
            .filter(move |(target, _)| current.contains(*target))
            .map(|(_, superblock)| superblock)
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

    const NOTHING: [Log; 3] = [const {
        Log {
            last: None,
            retired: None,
            unretired: Vec::new(),
        }
    }; 3];

    fn unretired(stripes: [&[u64]; 3]) -> [Log; 3] {
        stripes.map(|stripes| Log {
            unretired: stripes.to_vec(),
            ..Log::default()
        })
    }

    const SET: SetId = SetId(0xabcd << 96);

    fn epoch(number: u64) -> Epoch {
        Epoch {
            number,
            id: number * 1000 + 1,
        }
    }

    fn superblock(member: u32, number: u64, state: RecordState) -> Superblock {
        Superblock {
            set: SET,
            member,
            epoch: epoch(number),
            next: Epoch::NONE,
            state,
            form: FORM,
        }
    }

    /// Three targets that have committed these epochs; 0 for a target without an epoch.
    fn epochs(epochs: [u64; 3], state: RecordState) -> [Found; 3] {
        std::array::from_fn(|member| match epochs[member] {
            0 => Found::Blank,
            number => Found::Superblock(superblock(member as u32, number, state)),
        })
    }

    fn instructions(rebuild: Option<Target>) -> Instructions {
        Instructions {
            rebuild,
            form: FORM,
            new_set: SetId(99),
            ids: EpochIds::new(5),
        }
    }

    fn judge(found: [Found; 3]) -> Result<Assembly, Refusal> {
        assemble(found, &NOTHING, instructions(None))
    }

    fn members(assembly: &Assembly) -> Targets {
        let membership = assembly.membership.as_ref().expect("they have superblocks");
        let mut members = Targets::NONE;
        let those = Target::ALL
            .into_iter()
            .filter(|&target| membership.is_member(target));
        those.for_each(|target| members.insert(target));
        members
    }

    fn edit(found: &mut [Found; 3], target: Target, change: impl FnOnce(&mut Superblock)) {
        let Found::Superblock(superblock) = &mut found[target.number()] else {
            panic!("{target:?} has no superblock");
        };
        change(superblock);
    }

    /// Numbers of the epoch for which the members have to prepare, and of the previous one.
    fn raised(assembly: &Assembly) -> (u64, u64) {
        let membership = assembly.membership.as_ref().expect("they have superblocks");
        let member = members(assembly).iter().next().expect("a member");
        let superblock = membership.superblock_of(member);
        (superblock.next.number, superblock.epoch.number)
    }

    #[test]
    fn a_clean_shutdown_is_trusted_and_an_unclean_one_is_not() {
        for (state, is_unclean) in [
            (RecordState::Clean, false),
            (RecordState::Closing, false),
            (RecordState::InUse, true),
        ] {
            let unretired = unretired([&[7], &[7, 9], &[]]);
            let found = epochs([4; 3], state);
            let assembly = assemble(found, &unretired, instructions(None)).expect("a set");
            let expected = if is_unclean { vec![7, 7, 9] } else { vec![] };
            assert_eq!((assembly.stale, &assembly.unsettled), (None, &expected));
            assert_eq!(
                (members(&assembly), raised(&assembly)),
                (Targets::ALL, (5, 4))
            );
            // The next session may be interrupted while it is being set up.
            let membership = assembly.membership.expect("superblocks");
            let expected = if is_unclean {
                RecordState::InUse
            } else {
                RecordState::Clean
            };
            assert_eq!(membership.superblock_of(Target::Data1).state, expected);
        }
    }

    /// The machines of the other targets may have lost power since then, and thereby their unflushed writes.
    #[test]
    fn set_that_one_member_alone_records_as_being_closed_is_settled() {
        for closed in Target::ALL {
            let mut found = epochs([4; 3], RecordState::InUse);
            edit(&mut found, closed, |it| it.state = RecordState::Closing);
            let logs = unretired([&[7], &[8], &[9]]);
            let assembly = assemble(found, &logs, instructions(None)).expect("a set");
            let expected = (None, vec![7, 8, 9]);
            assert_eq!((assembly.stale, assembly.unsettled), expected);
        }
    }

    #[test]
    fn newest_bound_of_retired_writes_counts() {
        let stamp = |number| Some(Stamp { epoch: 4, number });
        for numbers in [[5, 7, 6], [7, 5, 6], [6, 5, 7]] {
            let logs = numbers.map(|number| Log {
                last: stamp(9),
                retired: stamp(number),
                unretired: Vec::new(),
            });
            let found = epochs([4; 3], RecordState::InUse);
            let assembly = assemble(found, &logs, instructions(None)).expect("a set");
            assert_eq!(Some(assembly.retired), stamp(7));
        }
    }

    #[test]
    fn interrupted_creation_does_not_forget_which_target_is_to_be_rebuilt() {
        for stale in Target::ALL {
            let mut found = epochs([1; 3], RecordState::InUse);
            for target in Target::ALL {
                edit(&mut found, target, |it| {
                    let is_member = target != stale;
                    it.next = if is_member { it.epoch } else { Epoch::NONE };
                    it.epoch = Epoch::NONE;
                });
            }
            let assembly = judge(found).expect("a set");
            let expected = (Some(stale), Targets::without(stale));
            assert_eq!((assembly.stale, members(&assembly)), expected);
        }
    }

    #[test]
    fn one_target_that_has_missed_an_epoch_or_is_empty_is_rebuilt() {
        for stale in Target::ALL {
            for of_stale in [0, 1, 3] {
                let mut all = [4; 3];
                all[stale.number()] = of_stale;
                let assembly = judge(epochs(all, RecordState::Clean)).expect("a set");
                assert_eq!(assembly.stale, Some(stale), "{all:?}");
                assert_eq!(members(&assembly), Targets::without(stale));
                assert!(!assembly.is_degraded);
            }
        }
    }

    #[test]
    fn two_copies_from_before_the_last_use_are_refused_and_rebuild_is_the_way_out() {
        for current in Target::ALL {
            let mut all = [4; 3];
            all[current.number()] = 5;
            let found = epochs(all, RecordState::Clean);
            let expected = Refusal::TooFew {
                found: Box::new(found),
                epoch: epoch(5),
            };
            assert_eq!(judge(found), Err(expected), "{all:?}");
            let insisted = assemble(found, &NOTHING, instructions(Some(current))).expect("a set");
            assert_eq!(insisted.stale, Some(current));
            assert!(
                raised(&insisted).0 > 5,
                "above what the discarded one knows"
            );
            // Rebuilding one stale target does not make the other one current.
            for old in Target::ALL.into_iter().filter(|&old| old != current) {
                assert!(matches!(
                    assemble(found, &NOTHING, instructions(Some(old))),
                    Err(Refusal::TooFew { .. })
                ));
            }
        }
    }

    /// Two services: the first one had lost two targets to the second one when it committed its epoch on the third.
    #[test]
    fn epoch_that_two_targets_have_passed_over_has_never_counted() {
        for before in [Epoch::NONE, epoch(5)] {
            for first in Targets::ALL.iter() {
                let mut found = epochs([4; 3], RecordState::InUse);
                for (next, target) in (8..).zip(Target::ALL) {
                    edit(&mut found, target, |it| {
                        if target == first {
                            it.epoch = epoch(7);
                        } else {
                            it.epoch = before;
                            it.next = epoch(next);
                        }
                    });
                }
                let assembly = judge(found).expect("two current targets");
                assert_eq!(assembly.stale, Some(first));
            }
        }
    }

    #[test]
    fn an_epoch_that_was_only_prepared_for_has_never_counted() {
        for ahead in Targets::ALL.iter() {
            let mut found = epochs([4; 3], RecordState::Clean);
            edit(&mut found, ahead, |it| it.next = epoch(5));
            let assembly = judge(found).expect("a set");
            assert_eq!(members(&assembly), Targets::ALL);
            assert_eq!(raised(&assembly), (6, 4));
        }
    }

    #[test]
    fn members_that_have_prepared_for_the_committed_epoch_are_current() {
        for stale in Target::ALL {
            let mut survivors = Targets::without(stale).iter();
            let (first, second) = (survivors.next(), survivors.next());
            let (first, second) = (first.expect("two"), second.expect("two"));
            let mut found = epochs([4; 3], RecordState::InUse);
            edit(&mut found, first, |it| it.epoch = epoch(5));
            edit(&mut found, second, |it| it.next = epoch(5));
            let assembly = judge(found).expect("a set");
            assert_eq!((assembly.stale, raised(&assembly)), (Some(stale), (6, 5)));
            // Another epoch with the same number is not identical to the committed one.
            edit(&mut found, second, |it| it.next.id += 1);
            assert!(matches!(judge(found), Err(Refusal::TooFew { .. })));
        }
    }

    #[test]
    fn copies_from_within_the_last_use_show_beside_a_clean_member() {
        for copy in Target::ALL {
            let mut found = epochs([4; 3], RecordState::Clean);
            edit(&mut found, copy, |it| it.state = RecordState::InUse);
            assert_eq!(judge(found).expect("a set").stale, Some(copy));
            let mut found = epochs([4; 3], RecordState::Clean);
            edit(&mut found, copy, |it| {
                (it.epoch, it.next) = (epoch(3), epoch(4));
            });
            assert_eq!(
                judge(found).expect("a set").stale,
                Some(copy),
                "prepared only"
            );
            let mut found = epochs([4; 3], RecordState::InUse);
            edit(&mut found, copy, |it| it.state = RecordState::Clean);
            assert!(
                matches!(judge(found), Err(Refusal::TooFew { .. })),
                "two copies"
            );
            let mut closing = epochs([4; 3], RecordState::Clean);
            edit(&mut closing, copy, |it| it.state = RecordState::Closing);
            let assembly = judge(closing).expect("a set");
            assert_eq!(assembly.stale, None);
        }
    }

    #[test]
    fn two_current_targets_start_without_the_third() {
        for missing in Target::ALL {
            let mut found = epochs([4; 3], RecordState::Clean);
            found[missing.number()] = Found::Missing;
            let assembly = judge(found).expect("a set");
            assert_eq!(assembly.stale, Some(missing));
            assert!(assembly.is_degraded);
            let present = Targets::without(missing).iter().next().expect("two");
            edit(&mut found, present, |it| it.epoch = epoch(3));
            assert!(matches!(judge(found), Err(Refusal::TooFew { .. })));
            found[present.number()] = Found::Blank;
            assert!(matches!(judge(found), Err(Refusal::TooFew { .. })));
        }
        let found = [Found::Blank, Found::Missing, Found::Blank];
        assert_eq!(judge(found), Err(Refusal::Missing(Target::Data2)));
    }

    #[test]
    fn a_new_set_is_made_of_three_empty_targets() {
        let assembly = judge([Found::Blank; 3]).expect("a set");
        assert_eq!(
            (members(&assembly), raised(&assembly)),
            (Targets::ALL, (1, 0))
        );
        let membership = assembly.membership.expect("they have superblocks");
        assert_eq!(membership.set(), SetId(99));
        // Interrupted at any point.
        for prepared in 0..8 {
            let mut found = [Found::Blank; 3];
            for target in Targets::from_bits(prepared).iter() {
                found[target.number()] = Found::Superblock(membership.superblock_of(target));
            }
            assert_eq!(
                members(&judge(found).expect("a set")),
                Targets::ALL,
                "{prepared}"
            );
        }
        let rebuilt = assemble(
            [Found::Blank; 3],
            &NOTHING,
            instructions(Some(Target::DataP)),
        )
        .expect("a set");
        assert_eq!(
            (rebuilt.stale, members(&rebuilt)),
            (Some(Target::DataP), Targets::DATA)
        );
    }

    #[test]
    fn exchanged_targets_and_those_of_several_sets_are_refused() {
        let mut found = epochs([4; 3], RecordState::Clean);
        found.swap(0, 1);
        let expected = Refusal::Exchanged {
            target: Target::Data1,
            member: 1,
        };
        assert_eq!(judge(found), Err(expected));
        let mut found = epochs([4; 3], RecordState::Clean);
        edit(&mut found, Target::Data2, |it| it.set = SetId(1));
        assert_eq!(judge(found), Err(Refusal::SeveralSets(Box::new(found))));
        let rebuilt = assemble(found, &NOTHING, instructions(Some(Target::Data2))).expect("a set");
        assert_eq!(rebuilt.stale, Some(Target::Data2));
    }

    #[test]
    fn targets_that_were_used_apart_are_refused() {
        let mut found = epochs([5, 5, 5], RecordState::InUse);
        edit(&mut found, Target::DataP, |it| it.epoch.id += 1);
        assert_eq!(judge(found), Err(Refusal::Diverged(Box::new(found))));
        let rebuilt = assemble(found, &NOTHING, instructions(Some(Target::DataP))).expect("a set");
        assert_eq!(rebuilt.stale, Some(Target::DataP));
    }

    #[test]
    fn a_target_whose_machine_was_restarted_is_rebuilt_and_two_are_verified() {
        for doubtful in Target::ALL {
            let mut found = epochs([4; 3], RecordState::InUse);
            edit(&mut found, doubtful, |it| it.state = RecordState::InDoubt);
            assert_eq!(judge(found).expect("a set").stale, Some(doubtful));
            let mut found = epochs([4; 3], RecordState::InDoubt);
            edit(&mut found, doubtful, |it| it.state = RecordState::InUse);
            let assembly = judge(found).expect("a set");
            assert_eq!(assembly.stale, None);
        }
    }

    #[test]
    fn a_target_that_was_being_rebuilt_is_rebuilt_again() {
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, Target::Data2, |it| it.epoch = Epoch::NONE);
        assert_eq!(judge(found).expect("a set").stale, Some(Target::Data2));
    }

    #[test]
    fn another_matrix_or_block_size_is_refused_with_both_values() {
        let found = epochs([4; 3], RecordState::Clean);
        for form in [
            Form {
                matrix: MatrixType::Cauchy,
                ..FORM
            },
            Form {
                logical_block_size: 8192,
                ..FORM
            },
        ] {
            let told = Instructions {
                form,
                ..instructions(None)
            };
            let expected = Refusal::OtherForm {
                found: FORM,
                expected: form,
            };
            assert_eq!(assemble(found, &NOTHING, told), Err(expected));
        }
    }

    /// The interrupted session had used two epoch numbers: one for the set, and one without a target that did not
    /// respond.
    #[test]
    fn interrupted_creation_settles_what_was_stored_and_uses_no_epoch_again() {
        let assembly = judge([Found::Blank; 3]).expect("a set");
        let mut found = [Found::Blank; 3];
        for target in [Target::Data2, Target::DataP] {
            let membership = assembly.membership.as_ref().expect("a set");
            found[target.number()] = Found::Superblock(Superblock {
                next: epoch(2),
                ..membership.superblock_of(target)
            });
        }
        let logs = unretired([&[], &[4], &[4, 6]]);
        let again = assemble(found, &logs, instructions(None)).expect("a set");
        assert_eq!(again.unsettled, [4, 4, 6]);
        let membership = again.membership.expect("they have superblocks");
        let next = Target::ALL.map(|it| membership.superblock_of(it).next.number);
        assert_eq!(next, [3; 3]);
    }

    /// A target whose machine had lost power was in use while the other could not persist its superblock.
    #[test]
    fn target_that_prepares_for_an_epoch_after_the_set_was_closed_is_current() {
        let mut found = epochs([4, 3, 4], RecordState::Clean);
        edit(&mut found, Target::Data1, |it| {
            (it.state, it.next) = (RecordState::InUse, epoch(6));
        });
        let assembly = judge(found).expect("a set");
        assert_eq!(assembly.stale, Some(Target::Data2));
        assert_eq!(raised(&assembly), (7, 4));
        edit(&mut found, Target::Data1, |it| it.next = Epoch::NONE);
        assert!(judge(found).is_err(), "a copy from before the shutdown");
    }

    /// The machine of the only target that had committed the epoch lost power, so the target is rebuilt. The service is
    /// killed while the others prepare for the next epoch.
    #[test]
    fn epoch_that_only_a_doubtful_target_had_committed_was_not_closed() {
        let prepared = |target| {
            Found::Superblock(Superblock {
                next: epoch(4),
                ..superblock(target as u32, 3, RecordState::Clean)
            })
        };
        let doubtful = Found::Superblock(superblock(2, 4, RecordState::InDoubt));
        let found = [prepared(Target::Data1), prepared(Target::Data2), doubtful];
        let assembly = judge(found).expect("a set");
        assert_eq!(assembly.stale, Some(Target::DataP));
        let membership = assembly.membership.expect("they have superblocks");
        let next = [
            Found::Superblock(membership.superblock_of(Target::Data1)),
            prepared(Target::Data2),
            Found::Superblock(membership.superblock_of(Target::DataP)),
        ];
        let assembly = judge(next).expect("both have all writes");
        assert_eq!(assembly.stale, Some(Target::DataP));
    }

    /// The copy was made while the set was in use, and its machine has been restarted since then.
    #[test]
    fn copy_in_doubt_is_not_current_beside_a_target_that_was_closed() {
        for copy in Target::ALL {
            let mut found = epochs([4; 3], RecordState::Clean);
            edit(&mut found, copy, |it| it.state = RecordState::InDoubt);
            assert_eq!(judge(found).expect("a set").stale, Some(copy));
            let missing = Target::ALL[(copy.number() + 1) % 3];
            found[missing.number()] = Found::Missing;
            let refused = matches!(judge(found), Err(Refusal::TooFew { .. }));
            assert!(refused, "{copy:?}");
        }
    }

    /// The session could not commit its epoch, and the superblocks still record that the set was closed.
    #[test]
    fn stripes_that_a_session_stored_before_it_had_committed_are_settled() {
        let mut found = epochs([4; 3], RecordState::Clean);
        edit(&mut found, Target::DataP, |it| it.next = epoch(5));
        let mut logs = unretired([&[1], &[2], &[3]]);
        let mut last = |target: usize, epoch| logs[target].last = Some(Stamp { epoch, number: 2 });
        last(0, 4);
        last(2, 6);
        let assembly = assemble(found, &logs, instructions(None)).expect("a set");
        assert_eq!(assembly.unsettled, [3]);
        assert_eq!(assembly.stored.map(|it| it.epoch), [4, 0, 6]);
        // The stamps of the interrupted session are not reused.
        assert_eq!(raised(&assembly), (7, 4));
        let membership = assembly.membership.expect("a set");
        let state = membership.superblock_of(Target::Data1).state;
        assert_eq!(state, RecordState::InUse, "the log is kept");
    }

    /// A target that is to be rebuilt may have been used for another set.
    #[test]
    fn logs_of_other_sets_are_ignored() {
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, Target::Data2, |it| it.set = SetId(5));
        let foreign = Some(Stamp {
            epoch: u64::MAX,
            number: 9,
        });
        let mut logs = NOTHING;
        logs[1] = Log {
            last: foreign,
            retired: foreign,
            unretired: vec![3],
        };
        let rebuild = instructions(Some(Target::Data2));
        let assembly = assemble(found, &logs, rebuild).expect("a set");
        assert_eq!(raised(&assembly), (5, 4));
        assert_eq!(
            (assembly.retired_epoch, &assembly.unsettled[..]),
            (0, &[][..])
        );
        assert_eq!(assembly.stored, [Stamp::UNWRITTEN; 3]);
    }

    /// After a power failure, the disk still has all flushed writes; an old copy does not.
    #[test]
    fn copy_is_rebuilt_rather_than_a_target_that_may_have_lost_unflushed_writes() {
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, Target::DataP, |it| {
            it.state = RecordState::InDoubt
        });
        let stamp = |number| Some(Stamp { epoch: 4, number });
        let log = |last, retired| Log {
            last: stamp(last),
            retired: stamp(retired),
            unretired: Vec::new(),
        };
        let mut logs = [log(20, 15), log(20, 15), log(18, 13)];
        let assembly = assemble(found, &logs, instructions(None)).expect("a set");
        assert_eq!(assembly.stale, Some(Target::DataP));
        logs[0] = log(5, 3);
        let assembly = assemble(found, &logs, instructions(None)).expect("a set");
        assert_eq!(assembly.stale, Some(Target::Data1));
    }

    #[test]
    fn versions_of_a_stale_target_are_not_settled() {
        let mut found = epochs([4; 3], RecordState::InUse);
        edit(&mut found, Target::Data2, |it| it.epoch = epoch(3));
        let unretired = unretired([&[1], &[2], &[3]]);
        let assembly = assemble(found, &unretired, instructions(None)).expect("a set");
        assert_eq!(assembly.unsettled, [1, 3]);
    }

    /// After services that were killed one after the other, targets would otherwise run out of slots.
    #[test]
    fn versions_that_are_retired_according_to_another_target_are_not_settled_again() {
        let stamp = |number| Some(Stamp { epoch: 4, number });
        let found = epochs([4; 3], RecordState::InUse);
        for (last, expected) in [(15, vec![9]), (16, vec![1, 2, 9]), (17, vec![1, 2, 9])] {
            let mut logs = unretired([&[1, 2], &[9], &[]]);
            logs[0].last = stamp(last);
            logs[0].retired = Some(Stamp {
                epoch: 3,
                number: 10,
            });
            for number in [1, 2] {
                logs[number].last = stamp(17);
                logs[number].retired = stamp(16);
            }
            let assembly = assemble(found, &logs, instructions(None)).expect("a set");
            assert_eq!(
                (assembly.stale, assembly.unsettled),
                (None, expected),
                "{last}"
            );
        }
    }

    #[test]
    fn copy_from_within_the_last_session_lacks_retired_writes() {
        let stamp = |number| Some(Stamp { epoch: 4, number });
        let log = |last, retired| Log {
            last: stamp(last),
            retired: stamp(retired),
            unretired: Vec::new(),
        };
        let found = epochs([4; 3], RecordState::InUse);
        for copy in Target::ALL {
            let mut logs = [log(20, 15), log(21, 15), log(20, 13)];
            let stale = |logs: &[Log; 3]| {
                let assembly = assemble(found, logs, instructions(None)).expect("a set");
                assembly.stale
            };
            assert_eq!(stale(&logs), None);
            logs[copy.number()] = log(13, 10);
            assert_eq!(stale(&logs), Some(copy));
            logs[copy.number()] = log(14, 10);
            assert_eq!(stale(&logs), None, "it has all retired writes");
            logs[copy.number()] = log(1, 15);
            assert_eq!(
                stale(&logs),
                None,
                "it was rebuilt before they were retired"
            );
            // No write has been retired.
            let logs = [log(20, 2), log(21, 2), log(1, 2)];
            assert_eq!(stale(&logs), None);
            // A target that was rebuilt, and stopped with its set.
            let mut logs = [log(20, 15), log(21, 15), log(20, 13)];
            logs[copy.number()] = log(1, 10);
            for state in [RecordState::Closing, RecordState::Clean] {
                let found = epochs([4; 3], state);
                let assembly = assemble(found, &logs, instructions(None)).expect("a set");
                assert_eq!(assembly.stale, None, "{state:?}");
            }
            // A copy from before the start of the session on this target, or from the creation of its set.
            for number in [3, 0] {
                let mut found = epochs([4; 3], RecordState::InUse);
                edit(&mut found, copy, |it| {
                    (it.epoch, it.next, it.state) = (epoch(number), epoch(4), RecordState::Clean);
                });
                logs[copy.number()] = Log::default();
                let assembly = assemble(found, &logs, instructions(None)).expect("a set");
                assert_eq!(assembly.stale, Some(copy), "epoch {number}");
            }
        }
    }
}
