//! Attacks on the promises of `SECURITY.md` to users of the storage, on deployments of real processes.
//!
//! Each [`Attack`] starts a deployment, injects the faults that one promise is about, and verifies what clients of the
//! front end read. An oracle knows the contents that each block may have. The attacks are written from the sentences of
//! `SECURITY.md` alone; the promises are read from it at compile time, and a promise without an attack fails a test.

mod acknowledged;
mod client;
mod contents;
mod disks;
mod failures;
mod loss;
mod oracle;
mod recovery;
mod run;
mod services;
mod set;
mod setup;
mod takeover;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use deployment::implementation::Implementation;
use deployment::sandbox::Sandbox;
use serde::Serialize;

use crate::matrix::Layout;
use crate::processes;
use crate::report::{Case, Outcome, Report, seconds};
use crate::stall::StallWatch;
use crate::violation::Violation;
use run::Run;

/// Number of violations of an attack after which it is not repeated, because each violation keeps its directory.
const MOST_VIOLATIONS: usize = 3;
/// Number of runs of an attack with the same seed, if the machine stalls in each.
const ATTEMPTS: usize = 3;
const SECURITY: &str = include_str!("../../SECURITY.md");

/// A promise to users of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Letter and number, such as `S1`.
    pub id: &'static str,
    /// First sentence.
    pub title: &'static str,
}

/// The promises in the table of `SECURITY.md`.
pub fn promises() -> Vec<Promise> {
    let row = |line: &'static str| {
        let (id, text) = line.strip_prefix("| ")?.split_once(" | ")?;
        let (letter, number) = id.split_at_checked(1)?;
        let is_id = matches!(letter, "S" | "R") && number.parse::<u8>().is_ok();
        let (title, _) = text.strip_prefix("**")?.split_once("**")?;
        is_id.then_some(Promise { id, title })
    };
    SECURITY.lines().filter_map(row).collect()
}

/// The promises that are not attacked.
pub fn promises_without_attack() -> Vec<&'static str> {
    let attacks = attacks();
    let is_attacked = |id: &&str| attacks.iter().any(|attack| attack.promise == *id);
    let ids = promises().into_iter().map(|promise| promise.id);
    ids.filter(|id| !is_attacked(id)).collect()
}

/// An attack on a promise.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Id of the promise.
    pub promise: &'static str,
    pub name: &'static str,
    /// Faults and checks, in one sentence.
    pub summary: &'static str,
    /// Layouts of the attack's deployment; the seed selects one.
    layouts: &'static [Layout],
    /// `true` if the attack is fast enough for a short selection.
    pub is_quick: bool,
    /// `true` if machines must be restarted, which takes mount namespaces.
    needs_machines: bool,
    run: fn(&mut Run<'_>) -> Result<(), Violation>,
}

impl fmt::Debug for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.promise, self.name)
    }
}

impl Attack {
    const fn new(
        promise: &'static str,
        name: &'static str,
        summary: &'static str,
        run: fn(&mut Run<'_>) -> Result<(), Violation>,
    ) -> Self {
        Self {
            promise,
            name,
            summary,
            layouts: &[Layout::Gga],
            is_quick: false,
            needs_machines: false,
            run,
        }
    }

    const fn on(self, layouts: &'static [Layout]) -> Self {
        Self { layouts, ..self }
    }

    const fn quick(self) -> Self {
        Self {
            is_quick: true,
            ..self
        }
    }

    const fn with_machines(self) -> Self {
        Self {
            needs_machines: true,
            ..self
        }
    }

    fn is_selected(&self, only: &[String]) -> bool {
        let is = |word: &String| self.promise == word.as_str() || self.name.contains(word.as_str());
        only.is_empty() || only.iter().any(is)
    }
}

/// All attacks, in the order of the promises.
pub fn attacks() -> Vec<Attack> {
    let groups = [
        acknowledged::ATTACKS,
        failures::ATTACKS,
        loss::ATTACKS,
        recovery::ATTACKS,
        services::ATTACKS,
        contents::ATTACKS,
        set::ATTACKS,
        takeover::ATTACKS,
    ];
    let mut attacks = groups.concat();
    attacks.sort_by_key(|attack| (attack.promise.starts_with('R'), attack.promise));
    attacks
}

/// Settings of a torture run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub implementation: Implementation,
    /// A `doca-storage`, whose `nbd` is the front end.
    pub front_end: PathBuf,
    /// Seed of the first round; each further round uses the next number.
    pub seed: u64,
    /// Time after which no further round starts. The first round is always complete.
    pub duration: Duration,
    /// Ids of promises, or parts of the names of attacks; empty for all.
    pub only: Vec<String>,
    /// Runs only the attacks of the short selection.
    pub is_short: bool,
    /// Number of concurrent attacks.
    pub jobs: usize,
    /// CPUs for the roles' workers.
    pub cpus: Vec<usize>,
    /// Time in which a process must start, detect a fault, recover, or exit.
    pub limit: Duration,
    /// `true` if targets can be started with separate boot identifiers; see [`has_machines`].
    pub has_machines: bool,
    /// The service's flag `--degraded on`.
    pub degraded: bool,
}

impl Settings {
    fn cpu(&self, index: usize) -> String {
        processes::cpu(&self.cpus, index)
    }

    fn selected(&self) -> Vec<Attack> {
        let mut attacks = attacks();
        attacks
            .retain(|attack| attack.is_selected(&self.only) && (attack.is_quick || !self.is_short));
        attacks
    }
}

/// Returns `true` if processes can be started with separate boot identifiers, as on different machines: if mount
/// namespaces are permitted.
pub fn has_machines() -> bool {
    setup::has_machines()
}

/// A violation of a promise.
#[derive(Debug, Clone, Serialize)]
pub struct Broken {
    pub seed: u64,
    /// Expected and actual behaviour.
    pub what: String,
    /// Directory with logs and backing files.
    pub directory: PathBuf,
}

/// Times of a takeover since the start of the service, or the command to it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Pause {
    /// Time until the service was ready.
    #[serde(rename = "ready_seconds", serialize_with = "seconds")]
    pub ready: Duration,
    /// Time until its front end had completed a read.
    #[serde(rename = "read_seconds", serialize_with = "seconds")]
    pub read: Duration,
}

/// Results of one attack.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub promise: &'static str,
    pub attack: &'static str,
    pub runs: u64,
    /// Number of runs that a stall of the machine ended: an error or a timeout, while the machine did not complete the
    /// suite's own writes, either. Wrong contents are violations in any case.
    pub stalled: u64,
    /// Number of blocks whose content was verified.
    pub verified: u64,
    pub violations: Vec<Broken>,
    /// Number of blocks that were I/O errors, by the id of the promise that allows it.
    pub excuses: BTreeMap<&'static str, u64>,
    /// Number of I/Os under load that failed, which the attack allows while processes or disks are missing.
    pub failed_ios: u64,
    /// Number of connections that the front end has ended under load, because it was stopped or killed.
    pub closed_connections: u64,
    /// Takeovers of services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub takeovers: Vec<Pause>,
    /// Reason why the attack was not run.
    pub not_run: Option<String>,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
}

/// Results of a torture run.
#[derive(Debug, Clone, Serialize)]
pub struct Totals {
    pub seed: u64,
    pub rows: Vec<Row>,
    /// Promises that no attack is for.
    pub promises_without_attack: Vec<&'static str>,
    pub interrupted: bool,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
}

impl Totals {
    pub fn runs(&self) -> u64 {
        self.rows.iter().map(|row| row.runs).sum()
    }

    pub fn violations(&self) -> usize {
        self.rows.iter().map(|row| row.violations.len()).sum()
    }

    /// Report with one case per attack.
    pub fn report(&self) -> Report {
        let case = |row: &Row| {
            let outcome = match (row.violations.first(), &row.not_run) {
                (Some(broken), _) => Outcome::Failed(format!(
                    "seed {}: {}; see {}",
                    broken.seed,
                    broken.what,
                    broken.directory.display()
                )),
                (None, Some(why)) => Outcome::NotRun(why.clone()),
                (None, None) if row.runs == 0 => Outcome::NotRun("interrupted".to_owned()),
                (None, None) if row.runs == row.stalled => {
                    Outcome::NotRun("the machine stalled each time".to_owned())
                }
                (None, None) => Outcome::Passed,
            };
            Case {
                note: Some(format!("{} runs", row.runs)),
                took: row.took,
                ..Case::new(&format!("torture.{}", row.promise), row.attack, outcome)
            }
        };
        let mut cases: Vec<Case> = self.rows.iter().map(case).collect();
        for id in &self.promises_without_attack {
            let outcome = Outcome::Failed("no attack is for this promise".to_owned());
            cases.push(Case::new(&format!("torture.{id}"), "any attack", outcome));
        }
        Report { cases }
    }
}

/// Runs the selected attacks in rounds, each with the next seed, until the time has passed or `interrupted` returns
/// `true`. `progress` is called with the attack that starts and the results so far.
///
/// # Errors
///
/// The machine cannot be watched for stalls: there is no directory for temporary files.
pub fn run(
    settings: &Settings,
    progress: &(dyn Fn(&str, &Totals) + Sync),
    interrupted: &(dyn Fn() -> bool + Sync),
) -> io::Result<Totals> {
    let began = Instant::now();
    let sandbox = Sandbox::new()?;
    let stalls = StallWatch::start(&sandbox, &settings.cpus)?;
    let attacks = settings.selected();
    let row = |attack: &Attack| Row {
        promise: attack.promise,
        attack: attack.name,
        runs: 0,
        stalled: 0,
        verified: 0,
        violations: Vec::new(),
        excuses: BTreeMap::new(),
        failed_ios: 0,
        closed_connections: 0,
        takeovers: Vec::new(),
        not_run: None,
        took: Duration::ZERO,
    };
    let totals = Mutex::new(Totals {
        seed: settings.seed,
        rows: attacks.iter().map(row).collect(),
        promises_without_attack: promises_without_attack(),
        interrupted: false,
        took: Duration::ZERO,
    });
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..settings.jobs.max(1) {
            scope.spawn(|| {
                while !interrupted() && !attacks.is_empty() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let (round, index) = (
                        number / attacks.len() as u64,
                        (number % attacks.len() as u64) as usize,
                    );
                    if round > 0 && began.elapsed() >= settings.duration {
                        break;
                    }
                    let seed = settings.seed.wrapping_add(round);
                    let (on, attack) = ((settings, &stalls), (&attacks[index], index));
                    for _ in 0..ATTEMPTS {
                        let is_stalled = run_attack(on, attack, seed, &totals, progress);
                        if !is_stalled || interrupted() {
                            break;
                        }
                    }
                }
            });
        }
    });
    let mut totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    totals.took = began.elapsed();
    totals.interrupted = interrupted();
    Ok(totals)
}

/// Runs an attack once, unless it has reached the maximum number of violations. Returns `true` if a stall has ended it.
fn run_attack(
    (settings, stalls): (&Settings, &StallWatch),
    (attack, index): (&Attack, usize),
    seed: u64,
    totals: &Mutex<Totals>,
    progress: &(dyn Fn(&str, &Totals) + Sync),
) -> bool {
    {
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        let row = &mut totals.rows[index];
        if attack.needs_machines && !settings.has_machines {
            row.not_run = Some("mount namespaces are not allowed here".to_owned());
        }
        if row.not_run.is_some() || row.violations.len() >= MOST_VIOLATIONS {
            return false;
        }
        let text = format!("{} {}, seed {seed}", attack.promise, attack.name);
        progress(&text, &totals);
    }
    let began = Instant::now();
    let outcome = Run::of(settings, stalls, attack, index, seed);
    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
    let row = &mut totals.rows[index];
    row.runs += 1;
    row.stalled += u64::from(outcome.is_stalled);
    row.took += began.elapsed();
    row.verified += outcome.verified;
    for (id, count) in outcome.excuses {
        *row.excuses.entry(id).or_default() += count;
    }
    row.failed_ios += outcome.failures.0;
    row.closed_connections += outcome.failures.1;
    row.takeovers.extend(outcome.takeovers);
    if let Some((violation, directory)) = outcome.broken {
        row.violations.push(Broken {
            seed,
            what: violation.to_string(),
            directory,
        });
        let text = format!("{} {}, seed {seed}: violated", attack.promise, attack.name);
        progress(&text, &totals);
    }
    outcome.is_stalled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_those_of_the_table() {
        let ids: Vec<&str> = promises().iter().map(|promise| promise.id).collect();
        let expected = [
            "S1", "S2", "S3", "S4", "S5", "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9",
        ];
        assert_eq!(ids[..expected.len()], expected);
        let title = promises()[0].title;
        assert_eq!(title, "Acknowledged means there.");
    }

    #[test]
    fn every_promise_is_attacked() {
        assert_eq!(promises_without_attack(), [""; 0]);
    }

    #[test]
    fn attacks_have_a_promise_and_names_of_their_own() {
        let promises = promises();
        let mut names = std::collections::BTreeSet::new();
        for attack in attacks() {
            let is_there = promises.iter().any(|it| it.id == attack.promise);
            assert!(is_there, "{attack:?}");
            assert!(names.insert(attack.name), "{attack:?}");
        }
    }
}
