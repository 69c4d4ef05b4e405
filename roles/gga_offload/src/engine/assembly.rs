//! Puts a set to use: decides from the superblocks of its targets which of them are current.
//!
//! The last committed epoch counts. Current are those that have committed it or prepared for it; at least two have to be, whether the
//! third is there or not. See [`Membership`] for why that is enough.

use std::fmt;

use role_common::superblock::{Epoch, SetId, Superblock};
use wire::control::RecordState;

use super::membership::{EpochIds, Membership, Origin};
use crate::target::{Target, Targets};

/// State of a target at the start of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is not reachable.
    Missing,
    /// It never has a superblock, like the reference's.
    Mute,
    /// It is a member of no set.
    Blank,
    /// This superblock.
    Superblock(Superblock),
}

/// Initial state of a session.
#[derive(Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The superblocks to persist. `None` where not all targets have one.
    pub membership: Option<Membership>,
    /// A target that is not current: it is rebuilt whole.
    pub stale: Option<Target>,
    /// `true` if that one is not there.
    pub is_degraded: bool,
    /// `true` if the set was not closed: the chunks of stripes that were being written may be inconsistent.
    pub is_unclean: bool,
}

impl Assembly {
    /// Three targets that are taken to be current and have no superblocks to persist.
    #[must_use]
    pub fn unmanaged() -> Self {
        Self {
            membership: None,
            stale: None,
            is_degraded: false,
            is_unclean: false,
        }
    }
}

/// A set cannot be put to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A target is the one of another place.
    #[error(
        "storage target {}: expected {} of its set, got {}; exchange the addresses, or name it with --rebuild to have it overwritten",
        target.name(), target.name(), Target::ALL.get(*member as usize).map_or("another target", |target| target.name())
    )]
    Exchanged {
        /// The target in the wrong place.
        target: Target,
        /// The number that its superblock has.
        member: u32,
    },
    /// The targets are of several sets.
    #[error(
        "expected three storage targets of one set, got {}; name the one that does not belong to the others with --rebuild to have it \
         overwritten", Listed(.0)
    )]
    SeveralSets(Box<[Found; 3]>),
    /// The set was used twice from one epoch on, with different members.
    #[error(
        "the storage targets have been used apart from each other since they last were one set ({}); start two of them that were used \
         together, and name the third with --rebuild to have it overwritten", Listed(.0)
    )]
    Diverged(Box<[Found; 3]>),
    /// Fewer than two targets are current.
    #[error(
        "expected two storage targets that have all that was written, up to epoch {}, got {}; start the targets with their latest \
         blocks, or, to go back to the two others as they are, name the one of epoch {} with --rebuild: what was written since is lost",
        epoch.number, Listed(found), epoch.number
    )]
    TooFew {
        /// The states of the targets.
        found: Box<[Found; 3]>,
        /// The last committed epoch.
        epoch: Epoch,
    },
    /// One target alone was used by a service that maintains no superblocks.
    #[error(
        "storage target {} was used by a service that maintains no superblocks, without the two others; name it with --rebuild to have \
         it overwritten", .0.name()
    )]
    UsedAlone(Target),
    /// A target is missing, and the others are not a set yet.
    #[error(
        "storage target {} is missing, and the others do not say that they can do without it; start all three targets", .0.name()
    )]
    Missing(Target),
}

/// Says what was found, target by target.
struct Listed<'a>(&'a [Found; 3]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (target, found) in Target::ALL.into_iter().zip(self.0) {
            let separator = if target == Target::Data1 { "" } else { ", " };
            write!(f, "{separator}{}: ", target.name())?;
            match found {
                Found::Missing => write!(f, "missing")?,
                Found::Mute => write!(f, "no superblock")?,
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
    /// A target whose contents are discarded, whatever its superblock says. The superblocks of the others are used.
    pub rebuild: Option<Target>,
    /// A target without superblock that is known to have missed writes.
    pub stale: Option<Target>,
    /// `true` if every block is going to be written with a checksum.
    pub writes_checksums: bool,
    /// The identifier of a set that is made now.
    pub new_set: SetId,
    /// Identifiers for epochs.
    pub ids: EpochIds,
}

/// Decides which targets are current, and how to treat the others.
///
/// # Errors
///
/// Fewer than two are, or they do not belong together.
pub fn assemble(found: [Found; 3], instructions: Instructions) -> Result<Assembly, Refusal> {
    let found_as = |wanted: Found| {
        let mut targets = Targets::NONE;
        let those = Target::ALL
            .into_iter()
            .filter(|target| found[target.number()] == wanted);
        those.for_each(|target| targets.insert(target));
        targets
    };
    let (missing, mute) = (found_as(Found::Missing), found_as(Found::Mute));
    let mut trusted = Targets::ALL.minus(missing);
    if let Some(target) = instructions.rebuild {
        trusted.remove(target);
    }
    let known = Known::of(&found, trusted);
    known.check_places()?;
    let Some(&(_, Superblock { set, .. })) = known.superblocks.first() else {
        return assemble_unknown(missing, mute, instructions);
    };
    if known.any(|it| it.set != set) {
        return Err(Refusal::SeveralSets(Box::new(found)));
    }
    let Some(committed) = known.last_committed() else {
        return Err(Refusal::Diverged(Box::new(found)));
    };
    if committed == Epoch::NONE {
        // The making of the set was interrupted. One that was to be rebuilt in it has nothing.
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
        return assemble_unknown(missing, mute, instructions);
    }
    let mut current = known.targets(|it| it.epoch == committed || it.next == committed);
    let foreign = known.targets(|it| it.state == RecordState::Foreign);
    let foreign = foreign.intersection(current);
    if current == Targets::ALL && foreign.len() == 1 {
        let alone = foreign.iter().next().expect("one of them");
        return Err(Refusal::UsedAlone(alone));
    }
    if !foreign.is_empty() {
        // The others took no part in that use.
        current = foreign;
    } else if known.any(|it| it.epoch == committed && it.state == RecordState::Clean) {
        // A target that was copied while the set was in use does not know that it was closed since.
        current = known.targets(|it| it.epoch == committed && it.state != RecordState::InUse);
    }
    let doubtful = known.targets(|it| it.state == RecordState::InDoubt);
    let doubtful = doubtful.intersection(current);
    if current == Targets::ALL && doubtful.len() == 1 {
        current = current.minus(doubtful);
    } else if !doubtful.is_empty() {
        tracing::warn!(
            "the machines of {} storage targets were restarted without a clean shutdown: what they had acknowledged last may be missing",
            doubtful.len()
        );
    }
    if instructions.rebuild.is_some() {
        // A target without superblock cannot report that it is stale; it is trusted unless the user names it.
        current = current.union(mute.intersection(trusted));
    }
    let stale = Targets::ALL.minus(current);
    if stale.len() > 1 {
        return Err(Refusal::TooFew {
            found: Box::new(found),
            epoch: committed,
        });
    }
    let members = known.members(current);
    let is_clean = |it: &Superblock| matches!(it.state, RecordState::Clean | RecordState::Closing);
    let is_unclean = !members.clone().all(is_clean);
    let state = if !foreign.is_empty() {
        RecordState::Foreign
    } else if is_unclean {
        RecordState::InUse
    } else {
        RecordState::Clean
    };
    let checksums = foreign.is_empty()
        && instructions.writes_checksums
        && members.clone().any(|it| it.checksums);
    let highest = found.iter().filter_map(|found| match found {
        Found::Superblock(it) if it.set == set => Some(it.epoch.number.max(it.next.number)),
        _ => None,
    });
    let origin = Origin {
        set,
        committed,
        highest: highest.max().unwrap_or(0),
        state,
        members: current,
        keepers: Targets::ALL.minus(mute).minus(missing),
        checksums,
    };
    let stale = stale.iter().next();
    Ok(Assembly {
        membership: Some(Membership::put_to_use(origin, instructions.ids)),
        stale,
        is_degraded: stale.is_some_and(|target| missing.contains(target)),
        is_unclean,
    })
}

/// The targets that count have no superblock: the user and the last session decide.
fn assemble_unknown(
    missing: Targets,
    mute: Targets,
    instructions: Instructions,
) -> Result<Assembly, Refusal> {
    if let Some(target) = missing.iter().next() {
        return Err(Refusal::Missing(target));
    }
    if !mute.is_empty() {
        return Ok(Assembly {
            membership: None,
            stale: instructions.rebuild.or(instructions.stale),
            is_degraded: false,
            is_unclean: false,
        });
    }
    let origin = Origin {
        set: instructions.new_set,
        committed: Epoch::NONE,
        highest: 0,
        state: RecordState::Clean,
        members: instructions.rebuild.map_or(Targets::ALL, Targets::without),
        keepers: Targets::ALL,
        checksums: false,
    };
    Ok(Assembly {
        membership: Some(Membership::put_to_use(origin, instructions.ids)),
        stale: instructions.rebuild,
        is_degraded: false,
        is_unclean: false,
    })
}

/// The superblocks that count.
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

    /// The last epoch that was committed. `None` where there are two of its number.
    fn last_committed(&self) -> Option<Epoch> {
        let epochs = || self.superblocks.iter().map(|(_, it)| it.epoch);
        let last = epochs().max_by_key(|epoch| epoch.number)?;
        let mut rivals = epochs().filter(|epoch| epoch.number == last.number);
        rivals.all(|epoch| epoch == last).then_some(last)
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
mod tests;
