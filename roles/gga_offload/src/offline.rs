//! What a set is, from the superblocks, versions and chunks of its members, without a service: for tools.

use role_common::superblock::{Form, SetId, Superblock};

use crate::engine::assembly::{Found, Instructions, Log, assemble};
use crate::engine::chunk::{self, Flaw, Place, Stamp};
use crate::engine::membership::EpochIds;
use crate::{Target, Targets};

/// A member of a set, as its target would describe it.
#[derive(Debug, Clone)]
pub struct Member {
    pub superblock: Superblock,
    /// Epoch and number of the newest version that was written; zeros for none.
    pub last: (u64, u64),
    /// Versions below this epoch and number are complete and durable on all members; zeros for none.
    pub retired: (u64, u64),
    /// Stripes with a version that is not retired.
    pub unretired: Vec<u64>,
}

/// What a service would find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    pub set: SetId,
    pub form: Form,
    /// The target that would be rebuilt, or that is missing.
    pub stale: Option<Target>,
    /// Stripes whose last write may have been interrupted, in ascending order: a service settles them first.
    pub unsettled: Vec<u64>,
}

impl Assessment {
    /// Returns `true` if this target's chunks count.
    #[must_use]
    pub fn is_current(&self, target: Target) -> bool {
        self.stale != Some(target)
    }
}

/// Decides which targets are current, as a service without `--rebuild` does. `None` for a target that is missing, or was never a member.
///
/// # Errors
///
/// The reason for which a service refuses the set.
pub fn assess(members: &[Option<Member>; 3]) -> Result<Assessment, String> {
    let Some(first) = members.iter().flatten().next() else {
        return Err("expected a member of a set, got none".to_owned());
    };
    let Superblock { set, form, .. } = first.superblock;
    let found = members.each_ref().map(|member| match member {
        Some(member) => Found::Superblock(member.superblock),
        None => Found::Missing,
    });
    let stamp = |(epoch, number)| Some(Stamp { epoch, number }).filter(|it| it.epoch != 0);
    let logs = members.each_ref().map(|member| match member {
        Some(member) => Log {
            last: stamp(member.last),
            retired: stamp(member.retired),
            unretired: member.unretired.clone(),
        },
        None => Log::default(),
    });
    let instructions = Instructions {
        rebuild: None,
        form,
        new_set: set,
        // Nothing is persisted.
        ids: EpochIds::new(1),
    };
    let assembly = assemble(found, &logs, instructions).map_err(|refusal| refusal.to_string())?;
    let mut unsettled = assembly.unsettled;
    unsettled.sort_unstable();
    unsettled.dedup();
    Ok(Assessment {
        set,
        form,
        stale: assembly.stale,
        unsettled,
    })
}

/// The chunks of a stripe, compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripe {
    /// `false` for zeros on all current members: the block was never written.
    pub is_written: bool,
    /// `true` if two current members have valid chunks of the newest write.
    pub is_readable: bool,
    /// Current members without a valid chunk of that write, and what is there instead.
    pub flaws: Vec<(Target, String)>,
}

/// Compares the chunks of a stripe. `None` for a target that is not current; an error for a chunk that could not be read.
///
/// # Panics
///
/// If a chunk is shorter than its record, 64 bytes.
#[must_use]
pub fn compare(set: SetId, stripe: u64, chunks: [Option<Result<&[u8], String>>; 3]) -> Stripe {
    let judged = Target::ALL.map(|member| {
        let place = Place {
            set,
            stripe,
            member,
        };
        let chunk = chunks[member.number()].as_ref()?;
        Some(match chunk {
            Ok(chunk) => chunk::judge(chunk, place).map_err(|flaw: Flaw| flaw.to_string()),
            Err(why) => Err(why.clone()),
        })
    });
    let valid = |member: &Target| match &judged[member.number()] {
        Some(Ok(stamp)) => Some(*stamp),
        _ => None,
    };
    let newest = Target::ALL.iter().filter_map(valid).max();
    let mut holders = Targets::NONE;
    for member in Target::ALL {
        if newest.is_some() && valid(&member) == newest {
            holders.insert(member);
        }
    }
    let is_readable = holders.len() >= 2;
    let mut flaws = Vec::new();
    for member in Target::ALL {
        match &judged[member.number()] {
            Some(Err(flaw)) => flaws.push((member, flaw.clone())),
            Some(Ok(stamp)) if !is_readable || !holders.contains(member) => {
                flaws.push((member, format!("has stamp {stamp}")));
            }
            _ => {}
        }
    }
    Stripe {
        is_written: newest != Some(Stamp::UNWRITTEN) || !flaws.is_empty(),
        is_readable,
        flaws,
    }
}
