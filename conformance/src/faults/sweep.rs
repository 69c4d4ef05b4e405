//! Runs single cases.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::case::{Case, Fault};
use super::deployment::{Deployment, Ended, Running};
use crate::report;
use crate::report::Outcome;
use deployment::implementation::Implementation;

/// Attempts to bring a session to the phase of the fault.
const ATTEMPTS: u32 = 3;
/// Log text of an initiator for a block with unexpected contents.
const MISMATCH: &str = "not as expected: block";
/// Log texts of an initiator and of a service for an unexpected result.
const UNASKED: [&str; 2] = ["fits no request", "a result that nobody waits for"];
/// Problem text if a session after the fault did not read acknowledged data.
const NO_SESSION: &str = "the next session";

/// Result of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    /// The fault.
    #[serde(rename = "fault")]
    pub case: Case,
    /// Number of blocks with wrong contents, of unexpected results, and of sessions after the fault that did not read
    /// the written data.
    pub lost_or_wrong: usize,
    /// Time until the last of the other roles had detected the fault.
    #[serde(serialize_with = "seconds")]
    pub noticed: Option<Duration>,
    /// Entry in a report.
    #[serde(flatten)]
    pub report: report::Case,
}

fn seconds<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Runs a case. Its `number` among those of the run spreads them over the CPUs.
pub fn run(settings: &Settings, case: Case, number: usize, interrupted: Interrupted<'_>) -> Tried {
    let started = Instant::now();
    let mut attempts = 1;
    let mut played = Played::of(settings, case, number, interrupted);
    while !played.is_struck && case.fault == Fault::Stop && attempts < ATTEMPTS && !interrupted() {
        // With the roles' short timeouts, an overloaded machine may end a session without a fault.
        attempts += 1;
        played = Played::of(settings, case, number, interrupted);
    }
    let lost_or_wrong = played.lost_or_wrong();
    if lost_or_wrong > 0 {
        played
            .problems
            .push(format!("{lost_or_wrong} I/Os were lost or wrong"));
    }
    let outcome = if played.problems.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(played.problems.join("; "))
    };
    let output =
        (!played.problems.is_empty()).then(|| played.ended.iter().map(Ended::to_string).collect());
    Tried {
        case,
        lost_or_wrong,
        noticed: played.noticed,
        report: report::Case {
            meaning: meaning(case),
            note: played.noticed.map(|time| {
                let seconds = time.as_secs_f64();
                format!("noticed after {seconds:.1} s, in attempt {attempts}")
            }),
            took: started.elapsed(),
            output,
            ..report::Case::new(case.suite(), case.to_string(), outcome)
        },
    }
}

fn meaning(case: Case) -> String {
    let Case {
        faulty,
        phase,
        fault,
        layout,
        ..
    } = case;
    let faulty = faulty.label(layout);
    format!(
        "the {faulty} gets {fault} at {phase}: all others notice, nothing is lost, and the next session is as it should be"
    )
}

/// A completed case.
#[derive(Debug, Default)]
struct Played {
    /// `true` if the session has reached the phase of the fault.
    is_struck: bool,
    problems: Vec<String>,
    noticed: Option<Duration>,
    ended: Vec<Ended>,
}

impl Played {
    fn of(settings: &Settings, case: Case, number: usize, interrupted: Interrupted<'_>) -> Self {
        let mut played = Self::default();
        match Deployment::set(settings, case, number, interrupted) {
            Ok(mut deployment) => {
                if let Err(why) = played.play(&mut deployment) {
                    played.problems.push(why);
                }
                // The remaining roles are not needed any more.
                let rest = std::mem::take(&mut deployment.running);
                let ended = deployment.ended.drain(..);
                let rest = rest.into_iter().map(Running::into_ended);
                played.ended = ended.chain(rest).collect();
            }
            Err(why) => played.problems.push(why),
        }
        played
    }

    fn play(&mut self, deployment: &mut Deployment<'_>) -> Result<(), String> {
        let held = deployment.reach()?;
        self.is_struck = true;
        deployment.strike(held)?;
        let aftermath = deployment.watch()?;
        self.noticed = Some(aftermath.noticed);
        self.problems.extend(aftermath.problems);
        // A killed process cannot clean up: the next process that starts does.
        if deployment.case.fault != Fault::Kill {
            self.look_around(deployment, "behind the fault")?;
        }
        if deployment.is_restarted() {
            self.problems.extend(deployment.restart());
        }
        self.look_around(deployment, "at the end")
    }

    /// Checks that the roles left nothing behind.
    fn look_around(&mut self, deployment: &Deployment<'_>, when: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        let left = deployment.sandbox.leftovers().map_err(failed)?;
        if !left.is_empty() {
            let problem = format!("{when}, the runtime directory has {left:?}");
            self.problems.push(problem);
        }
        let processes = deployment.sandbox.processes().map_err(failed)?;
        if !processes.is_empty() {
            let problem = format!("{when}, there are still processes {processes:?}");
            self.problems.push(problem);
        }
        Ok(())
    }

    fn lost_or_wrong(&self) -> usize {
        let count = |text: &str| -> usize {
            let said = |ended: &Ended| ended.exit.stderr.matches(text).count();
            self.ended.iter().map(said).sum()
        };
        let unasked: usize = UNASKED.into_iter().map(count).sum();
        let missed = self
            .problems
            .iter()
            .filter(|problem| problem.contains(NO_SESSION))
            .count();
        // A session that failed because of a mismatch is included in both counts.
        count(MISMATCH).max(missed) + unasked
    }
}

// Settings of all cases of a run.

/// Returns `true` if the run is to be stopped.
pub type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The programs under test.
    pub implementation: Implementation,
    /// Timeout of all roles if a peer is stopped, which only a timeout can detect. Whole seconds.
    pub timeout: Duration,
    /// Time in which all other roles must detect the fault and exit, on a loaded machine. If no role is stopped, the roles' own
    /// timeouts are longer, so that a timeout is not mistaken for detection.
    pub notice: Duration,
    /// CPUs for the roles' workers, at least one.
    pub cpus: Vec<usize>,
}
