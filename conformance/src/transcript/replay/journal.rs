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
}

impl Journal {
    pub(super) fn new(script: &Script, role: &str) -> Self {
        Self {
            suite: format!("replay.{role}.{}.{}", script.channel, script.session),
            cases: Vec::new(),
            stopped: None,
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

    /// Leaves the script at an entry.
    pub(super) fn stop(&mut self, entry: usize, why: String) {
        self.stopped.get_or_insert((entry, why));
    }

    /// The cases; also one, not run, for each step of the side under test after the one at which the script was left.
    pub(super) fn finish(mut self, script: &Script, tested: Side) -> Vec<Case> {
        let Some((entry, why)) = self.stopped else {
            return self.cases;
        };
        let mut rest = script.steps.iter().filter(|step| step.entry >= entry);
        let mut left = format!("the session was left at entry {entry}");
        // What failed is a case of its own: the step itself, where it is one of the program under test.
        let failed = match rest.clone().next() {
            Some(step) if step.side == tested => {
                rest.next();
                name(step)
            }
            Some(step) => name(step),
            None => left.clone(),
        };
        self.cases
            .push(Case::new(&self.suite, failed, Outcome::Failed(why)));
        for step in rest.filter(|step| step.side == tested) {
            let outcome = Outcome::NotRun(std::mem::take(&mut left));
            left = format!("the session was left at entry {entry}");
            self.cases.push(Case::new(&self.suite, name(step), outcome));
        }
        self.cases
    }
}

fn name(step: &Step) -> String {
    format!("entry {}: {}", step.entry, step.event)
}
