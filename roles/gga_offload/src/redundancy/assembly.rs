//! The start of a session: what the three targets keep says which of them have what was written.
//!
//! A service raises the epoch on the two others before it acknowledges the first write that a lost target misses. So an epoch that one
//! target alone has heard of has never counted: nothing was acknowledged in it that the others miss. Those that have heard of the last
//! epoch that two know have all that was acknowledged.

use role_common::Failure;
use role_common::superblock::{SetId, Superblock};
use wire::control::RecordState;

use super::membership::Membership;
use crate::target::{Target, Targets};

/// What a target says that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It keeps nothing of the kind, as the reference's.
    Mute,
    /// It has been a member of no set.
    Blank,
    /// This.
    Record(Superblock),
}

/// What follows from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assembly {
    /// What the targets are to keep. `None` where not all can.
    pub(crate) membership: Option<Membership>,
    /// A target that has not all that was written, and is rebuilt whole.
    pub(crate) stale: Option<Target>,
    /// Whether the last use has come to no good end: the halves of what was being written may not fit each other.
    pub(crate) is_unclean: bool,
}

/// Judges what was `found`. `rebuild` is a target whose blocks are worth nothing, whatever it keeps; the others are taken for good
/// unless what they keep says that they are not. `stale` is one that is known to have missed writes though it cannot say so.
///
/// # Errors
///
/// The targets are of different sets, or exchanged, or more than one has not what was written.
pub(crate) fn assemble(
    found: [Found; 3],
    rebuild: Option<Target>,
    stale: Option<Target>,
) -> Result<Assembly, Failure> {
    let trusted = rebuild.map_or(Targets::ALL, Targets::without);
    let known: Vec<(Target, Superblock)> = trusted
        .iter()
        .filter_map(|target| match found[target.number()] {
            Found::Record(record) => Some((target, record)),
            _ => None,
        })
        .collect();
    refuse_others(&known)?;
    let unclean = |members: Targets| {
        let mut records = known.iter().filter(|(target, _)| members.contains(*target));
        records.any(|(_, record)| record.state != RecordState::Clean)
    };
    let mut keepers = Targets::ALL;
    let mute = |target: &Target| found[target.number()] == Found::Mute;
    let mutes = Target::ALL.into_iter().filter(mute);
    mutes.for_each(|target| keepers.remove(target));
    let in_use = |epoch, members, stale| -> Result<Assembly, Failure> {
        let set = known
            .first()
            .map_or_else(SetId::random, |(_, it)| Ok(it.set))?;
        Ok(Assembly {
            membership: Some(Membership::new(set, epoch, members, keepers)),
            stale,
            is_unclean: unclean(members),
        })
    };
    let Some(epoch) = known.iter().map(|(_, record)| record.epoch.number).max() else {
        // Nobody knows anything, and the user or the last session does.
        if keepers != Targets::ALL {
            return Ok(Assembly {
                membership: None,
                stale: rebuild.or(stale),
                is_unclean: false,
            });
        }
        return in_use(1, trusted, rebuild);
    };
    let of = |wanted: &dyn Fn(&Superblock) -> bool| {
        let mut targets = Targets::NONE;
        let those = known.iter().filter(|(_, record)| wanted(record));
        those.for_each(|(target, _)| targets.insert(*target));
        targets
    };
    // One that is to be rebuilt may still tell whether the two others have what was written.
    let witness = rebuild.and_then(|target| match found[target.number()] {
        Found::Record(record) => {
            (known.len() == 2 && record.member == target as u32 && record.set == known[0].1.set)
                .then_some(record.epoch.number)
        }
        _ => None,
    });
    // The last epoch that two of them have heard of. With only two that say anything, that is for both to say: the third might have
    // heard of a later one.
    let mut epochs: Vec<u64> = known
        .iter()
        .map(|(_, record)| record.epoch.number)
        .collect();
    epochs.extend(witness);
    epochs.sort_unstable();
    let agreed = match epochs[..] {
        [_, agreed, _] => agreed,
        [one, other] if one == other => one,
        [_] if rebuild.is_some() => epoch,
        _ => return Err(too_few(found, epoch)),
    };
    if rebuild.is_some() {
        if known.iter().any(|(_, record)| record.epoch.number < agreed) {
            return Err(too_few(found, epoch));
        }
        // One that is rebuilt must not be taken for whole when the service dies meanwhile.
        return in_use(epoch.max(witness.unwrap_or(0)) + 1, trusted, rebuild);
    }
    let members = of(&|record| record.epoch.number >= agreed);
    let doubtful =
        of(&|record| record.epoch.number >= agreed && record.state == RecordState::InDoubt);
    if members == Targets::ALL && doubtful.len() == 1 {
        return in_use(epoch, members.minus(doubtful), doubtful.iter().next());
    }
    if !doubtful.is_empty() {
        tracing::warn!(
            "the machines of {} storage targets have ended without a clean stop: what they had acknowledged at last may be lost",
            doubtful.len()
        );
    }
    in_use(epoch, members, Targets::ALL.minus(members).iter().next())
}

/// Targets of one set, each in its place, have something to say.
fn refuse_others(known: &[(Target, Superblock)]) -> Result<(), Failure> {
    for (target, record) in known {
        if record.member != *target as u32 {
            let name = |number: u32| {
                let target = Target::ALL.get(number as usize);
                target.map_or("another target", |target| target.name())
            };
            return Err(Failure::invalid(format!(
                "storage target {}: expected {} of its set, {} came; exchange the addresses, or name it with --rebuild to have it \
                 overwritten",
                target.name(),
                target.name(),
                name(record.member)
            )));
        }
    }
    let Some((first, others)) = known.split_first() else {
        return Ok(());
    };
    match others.iter().find(|(_, it)| it.set != first.1.set) {
        None => Ok(()),
        Some(other) => {
            let all: Vec<String> = known
                .iter()
                .map(|(target, it)| format!("{} is of set {}", target.name(), it.set))
                .collect();
            Err(Failure::invalid(format!(
                "expected three storage targets of one set, but {}; name the one that does not belong to the others ({} or {}?) \
                 with --rebuild to have it overwritten",
                all.join(", "),
                first.0.name(),
                other.0.name()
            )))
        }
    }
}

fn too_few(found: [Found; 3], epoch: u64) -> Failure {
    let all: Vec<String> = Target::ALL
        .into_iter()
        .map(|target| {
            let is = match found[target.number()] {
                Found::Mute => "does not say what it has".to_owned(),
                Found::Blank => "is empty or of no set".to_owned(),
                Found::Record(record) => format!("is of epoch {}", record.epoch.number),
            };
            format!("{} {is}", target.name())
        })
        .collect();
    Failure::invalid(format!(
        "expected two storage targets that have all that was written, epoch {epoch}, but {}; start them with the blocks that they \
         had",
        all.join(", ")
    ))
}

#[cfg(test)]
mod tests;
