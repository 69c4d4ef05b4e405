//! Offline examination of a set, for tools: from the superblocks, versions and chunks of its members, without a service.

use gga_engine::Target;
use gga_engine::assembly::{Found, Instructions, Log, assemble};
use gga_engine::chunk::{self, Place, Stamp};
use gga_engine::engine::{Judged, settle};
use gga_engine::membership::EpochIds;
use role_formats::superblock::{Form, SetId, Superblock};

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

/// The state of a set, as a service would find it at the start of a session.
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
/// The reason why a service refuses the set.
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
        // The epoch is not persisted.
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
    /// Current members without a valid chunk of that write, with a description of their contents.
    pub flaws: Vec<(Target, String)>,
}

/// Compares the chunks of a stripe. `None` for a target that is not current; an error for a chunk that could not be read.
///
/// # Panics
///
/// If a chunk is shorter than its record, 64 bytes.
#[must_use]
pub fn compare(set: SetId, stripe: u64, chunks: [Option<Result<&[u8], String>>; 3]) -> Stripe {
    let mut judged = Judged::default();
    let mut flaws = Vec::new();
    for (member, chunk) in Target::ALL.into_iter().zip(chunks) {
        let place = Place {
            set,
            stripe,
            member,
        };
        match chunk.map(|chunk| chunk.map(|bytes| chunk::judge(bytes, place))) {
            Some(Ok(Err(flaw))) => flaws.push((member, flaw.to_string())),
            Some(Ok(Ok(stamp))) => judged[member.number()] = Some(Ok(stamp)),
            Some(Err(why)) => flaws.push((member, why)),
            None => {}
        }
    }
    let newest = settle::complete(&judged);
    for (member, judgement) in Target::ALL.into_iter().zip(judged) {
        let is_holder = newest.is_some_and(|(_, holders)| holders.contains(member));
        if let (Some(Ok(stamp)), false) = (judgement, is_holder) {
            flaws.push((member, format!("has stamp {stamp}")));
        }
    }
    flaws.sort_unstable_by_key(|(member, _)| member.number());
    let is_unwritten = newest.is_some_and(|(stamp, _)| stamp == Stamp::UNWRITTEN);
    Stripe {
        is_written: !is_unwritten || !flaws.is_empty(),
        is_readable: newest.is_some(),
        flaws,
    }
}
