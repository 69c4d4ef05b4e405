//! One case after the other.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::case::{Case, Fault};
use super::stage::{Actor, Ended, Stage};
use crate::implementation::Implementation;
use crate::report;
use crate::report::Outcome;

/// How often a session may fail to come to the place of the fault.
const ATTEMPTS: u32 = 3;
/// What an initiator says of a block that is not what it should be.
const MISMATCH: &str = "not as expected: block";
/// What it says of an answer too many, and what a service says.
const UNASKED: [&str; 2] = ["fits no request", "a result that nobody waits for"];
/// What has gone wrong when a session behind the fault does not find what was acknowledged.
const NO_SESSION: &str = "the next session";

/// A case that was tried.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    /// What was done.
    #[serde(rename = "fault")]
    pub case: Case,
    /// Blocks that were not what they should be, answers too many, and sessions behind the fault that did not find what had been written.
    pub lost_or_wrong: usize,
    /// Seconds until the last of the others had noticed.
    #[serde(serialize_with = "seconds")]
    pub noticed: Option<Duration>,
    /// The same for a report.
    #[serde(flatten)]
    pub report: report::Case,
}

fn seconds<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Tries a case. Its `number` among those of the run spreads them over the CPUs.
pub fn run(settings: &Settings, case: Case, number: usize, interrupted: Interrupted<'_>) -> Tried {
    let started = Instant::now();
    let mut attempts = 1;
    let mut played = Played::of(settings, case, number, interrupted);
    while !played.is_struck && case.fault == Fault::Stop && attempts < ATTEMPTS && !interrupted() {
        // The roles' timeouts are short there: on a busy machine they may end a session that nothing was done to.
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
        victim,
        phase,
        fault,
        layout,
        ..
    } = case;
    let victim = victim.label(layout);
    format!(
        "the {victim} gets {fault} at {phase}: all others notice, nothing is lost, and the next session is as it should be"
    )
}

/// A case that is over.
#[derive(Debug, Default)]
struct Played {
    /// The session came to the place of the fault.
    is_struck: bool,
    problems: Vec<String>,
    noticed: Option<Duration>,
    ended: Vec<Ended>,
}

impl Played {
    fn of(settings: &Settings, case: Case, number: usize, interrupted: Interrupted<'_>) -> Self {
        let mut played = Self::default();
        match Stage::set(settings, case, number, interrupted) {
            Ok(mut stage) => {
                if let Err(why) = played.play(&mut stage) {
                    played.problems.push(why);
                }
                // Those who are left are not needed any more.
                let rest = std::mem::take(&mut stage.actors);
                let ended = stage.ended.drain(..);
                let rest = rest.into_iter().map(Actor::into_ended);
                played.ended = ended.chain(rest).collect();
            }
            Err(why) => played.problems.push(why),
        }
        played
    }

    fn play(&mut self, stage: &mut Stage<'_>) -> Result<(), String> {
        let held = stage.reach()?;
        self.is_struck = true;
        stage.strike(held)?;
        let aftermath = stage.watch()?;
        self.noticed = Some(aftermath.noticed);
        self.problems.extend(aftermath.problems);
        // What somebody leaves who has no time to clean up is cleaned up by the next.
        if stage.case.fault != Fault::Kill {
            self.look_around(stage, "behind the fault")?;
        }
        if stage.is_restarted() {
            self.problems.extend(stage.restart());
        }
        self.look_around(stage, "at the end")
    }

    /// Nothing may be left.
    fn look_around(&mut self, stage: &Stage<'_>, when: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        let left = stage.scene.leftovers().map_err(failed)?;
        if !left.is_empty() {
            let problem = format!("{when}, the runtime directory has {left:?}");
            self.problems.push(problem);
        }
        let processes = processes_of(&stage.scene.path("run")).map_err(failed)?;
        if !processes.is_empty() {
            let problem = format!("{when}, there are still processes {processes:?}");
            self.problems.push(problem);
        }
        Ok(())
    }

    fn lost_or_wrong(&self) -> usize {
        let count = |text: &str| -> usize {
            let said = |ended: &Ended| ended.stderr.matches(text).count();
            self.ended.iter().map(said).sum()
        };
        let unasked: usize = UNASKED.into_iter().map(count).sum();
        let missed = self
            .problems
            .iter()
            .filter(|problem| problem.contains(NO_SESSION))
            .count();
        // A session that has failed for a mismatch is one of both.
        count(MISMATCH).max(missed) + unasked
    }
}

/// Processes that use this runtime directory.
fn processes_of(runtime: &std::path::Path) -> std::io::Result<Vec<String>> {
    let mut expected = b"SOFTDOCA_RUNTIME_DIR=".to_vec();
    expected.extend(runtime.as_os_str().as_bytes());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // It may have ended, or belong to somebody else.
        let Ok(environment) = fs::read(path.join("environ")) else {
            continue;
        };
        if environment
            .split(|&byte| byte == 0)
            .any(|word| word == expected)
        {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}

// What all cases of a run have in common.

/// Says that nobody waits for the result any longer.
pub type Interrupted<'a> = &'a (dyn Fn() -> bool + Sync);

/// How cases are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose programs.
    pub implementation: Implementation,
    /// Timeout of all roles where a peer is stopped: nothing else tells of it. Whole seconds.
    pub timeout: Duration,
    /// Time in which all others have to know of the fault, and to end, on a machine that does other things, too. Where nobody is stopped
    /// the roles' own timeouts are longer than this, so that none of them passes for having noticed.
    pub notice: Duration,
    /// CPUs for the roles' workers, at least one.
    pub cpus: Vec<usize>,
}
