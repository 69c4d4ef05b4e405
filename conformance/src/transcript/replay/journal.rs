//! What became of every step, as cases of a report.

use std::time::Duration;

use super::script::{Script, Step};
use crate::report::{Case, Outcome};
use crate::transcript::Side;

/// The cases of one script.
pub(super) struct Journal {
    suite: String,
    cases: Vec<Case>,
    /// The entry at which the script was left, and why.
    stopped: Option<(usize, String)>,
    /// Somebody is there to play with.
    is_reached: bool,
}

impl Journal {
    pub(super) fn new(script: &Script, role: &str) -> Self {
        Self {
            suite: format!("replay.{role}.{}.{}", script.channel, script.session),
            cases: Vec::new(),
            stopped: None,
            is_reached: true,
        }
    }

    /// Adds what became of a step of the program under test.
    pub(super) fn add(
        &mut self,
        step: &Step,
        differences: &[String],
        notes: &[String],
        took: Duration,
    ) {
        let outcome = match differences {
            [] => Outcome::Passed,
            _ => Outcome::Failed(differences.join("; ")),
        };
        self.cases.push(Case {
            meaning: "what the recording has comes again".to_owned(),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            took,
            ..Case::new(&self.suite, name(step), outcome)
        });
    }

    /// There is nobody to play with.
    pub(super) fn unreachable(&mut self, why: String) {
        self.is_reached = false;
        let outcome = Outcome::Failed(why);
        self.cases.push(Case::new(&self.suite, "connect", outcome));
    }

    /// Leaves the script at an entry.
    pub(super) fn stop(&mut self, entry: usize, why: String) {
        self.stopped.get_or_insert((entry, why));
    }

    /// The cases; also one, not run, for each step of the side under test after the one at which the script was left.
    pub(super) fn finish(mut self, script: &Script, tested: Side) -> Vec<Case> {
        let (rest, left) = match self.stopped {
            Some((entry, why)) => {
                let mut rest = script.steps.iter().filter(|step| step.entry >= entry);
                // What failed is a case of its own, whoever it was up to.
                let failed = rest.next().map_or_else(String::new, name);
                self.cases
                    .push(Case::new(&self.suite, failed, Outcome::Failed(why)));
                let rest: Vec<_> = rest.collect();
                (rest, format!("the session was left at entry {entry}"))
            }
            None if !self.is_reached => {
                let rest = script.steps.iter().collect();
                (rest, "nothing could be said".to_owned())
            }
            None => return self.cases,
        };
        for step in rest.into_iter().filter(|step| step.side == tested) {
            let outcome = Outcome::NotRun(left.clone());
            self.cases.push(Case::new(&self.suite, name(step), outcome));
        }
        self.cases
    }
}

fn name(step: &Step) -> String {
    format!("entry {}: {}", step.entry, step.event)
}
