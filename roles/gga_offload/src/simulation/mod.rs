//! Deterministic simulation of the redundancy: the real engines, sets, superblocks and assembly, driven in virtual time through crashes,
//! partitions, pauses and damage, with an oracle that knows what may be read.
//!
//! A seed makes a script of I/Os and faults; the same script always gives the same run. What is checked:
//!
//! * Every read returns a version of its block that is linearizable: never other bytes, never a version that another one has replaced.
//! * A read fails only when a fault explains it.
//! * A set is refused only when fewer than two of its targets are current, and always when two are copies from before. Two current ones
//!   are enough.
//! * A target is detached only for what has happened to it.
//! * A block with checksum whose last write was acknowledged can be read from two chunks at the end.
//! * A read takes chunks that are current: it never has to correct one that nothing has damaged.
//! * A chunk that a read has found to be wrong is rewritten, without a scrub.
//! * After the last fault and a scrub, every block that two chunks make up is read, and its three chunks fit each other.
//!
//! At most one target at a time is damaged in silence (a flipped bit, a lost or misdirected write, an old copy of its disk), and until
//! it was scrubbed or rebuilt, no other target fails: what two such faults at once may cost is not decided here.

mod oracle;
mod script;
mod service;
mod target;
mod world;

use std::fmt;

use script::Script;
use serde::Serialize;
use world::World;

/// What a run has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Sessions of the service.
    pub sessions: u64,
    /// I/Os of the initiator.
    pub ios: u64,
    /// Faults.
    pub faults: u64,
    /// Blocks that could not be read at the end, because too much was damaged at once.
    pub lost: u64,
}

impl Totals {
    /// Adds those of another run.
    pub fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.ios += other.ios;
        self.faults += other.faults;
        self.lost += other.lost;
    }
}

/// A run that has gone wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The seed of its script.
    pub seed: u64,
    /// What has gone wrong.
    pub what: String,
    /// The steps that are needed for that, of those that the script has.
    pub steps: Vec<String>,
    /// How many steps the script has.
    pub of_steps: usize,
    /// The end of what happened in the run of these steps.
    pub history: Vec<String>,
}

/// Lines of the history that are shown.
const HISTORY: usize = 120;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        writeln!(
            f,
            "{} of {} steps are needed for that:",
            self.steps.len(),
            self.of_steps
        )?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        writeln!(f, "what happened last:")?;
        for line in &self.history {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// Runs the script of a seed.
///
/// # Errors
///
/// It has gone wrong: the violation, with as few steps as are needed for it.
pub fn run(seed: u64) -> Result<Totals, Box<Violation>> {
    let script = Script::of_seed(seed);
    let (totals, violation, _) = World::new(&script, false).run();
    match violation {
        None => Ok(totals),
        Some(what) => Err(Box::new(explain(&script, &what))),
    }
}

fn explain(script: &Script, what: &str) -> Violation {
    let minimal = minimise(script);
    let (_, violation, history) = World::new(&minimal, true).run();
    let begin = history.len().saturating_sub(HISTORY);
    Violation {
        seed: script.seed,
        what: violation.unwrap_or_else(|| what.to_owned()),
        steps: minimal.steps.iter().map(ToString::to_string).collect(),
        of_steps: script.steps.len(),
        history: history[begin..].to_vec(),
    }
}

/// Leaves steps out, in ever smaller runs of neighbours, as long as something still goes wrong.
fn minimise(script: &Script) -> Script {
    let fails = |script: &Script| World::new(script, false).run().1.is_some();
    let mut minimal = script.clone();
    let mut length = minimal.steps.len().div_ceil(2).max(1);
    loop {
        let mut begin = 0;
        let mut any = false;
        while begin < minimal.steps.len() {
            let mut shorter = minimal.clone();
            let end = (begin + length).min(shorter.steps.len());
            shorter.steps.drain(begin..end);
            if fails(&shorter) {
                minimal = shorter;
                any = true;
            } else {
                begin = end;
            }
        }
        if length == 1 && !any {
            return minimal;
        }
        length = length.div_ceil(2).max(1);
    }
}

#[cfg(test)]
mod tests;
