//! Random faults in a live deployment of real processes, under a load that verifies every block.
//!
//! The faults are injected into a service, its targets, which store their blocks in files, and the [`Load`], which
//! acts as the initiator; never into the [`Verifier`], which is informed of each write before it is submitted and of
//! each acknowledgement, and checks the result of every read. With [`LoadKind::Nbd`], clients access the service
//! through an NBD server, which is restarted as well, and no I/O may fail. A [`Hammer`] starts these processes,
//! injects the faults of a [`Plan`], and checks the consequences.

mod load;
mod nbd;
mod plan;
mod round;
mod verifier;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use deployment::implementation::Implementation;
use deployment::process::Process;
use deployment::sandbox::Sandbox;
use deployment::{Deployment, Part, Resources};
use serde::Serialize;

use crate::faults::relay::FaultyLine;
use crate::matrix::Layout;
use crate::network::Links;
use crate::processes::{self, TICK};
use crate::report::{Case, Outcome, Report, seconds};
use crate::violation::Violation;
use round::Sessions;

pub use load::{Intruder, Load, Malformed, Task};
pub use plan::{Expectation, Fault, FaultyRole, Injection, LoadKind, Phase, Plan, Round};
pub use verifier::{Counts, Verifier};

/// Time for an abandoned session to end.
const SETTLING: Duration = Duration::from_secs(15);
/// Number of rounds of a process after which its memory usage must not increase.
const WARM_UP: u32 = 8;

/// Settings of a hammer run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub implementation: Implementation,
    pub load: LoadKind,
    /// Layouts to test, in sequence.
    pub layouts: Vec<Layout>,
    /// Seed of the plan and of the I/Os.
    pub seed: u64,
    /// Total duration, divided among the layouts.
    pub duration: Duration,
    /// Selects the kinds of faults whose description contains one of these entries; empty for all.
    pub only: Vec<String>,
    /// Number of blocks of the storage.
    pub blocks: u64,
    /// CPUs for the roles' workers.
    pub cpus: Vec<usize>,
    /// Timeout of the load for an answer.
    pub timeout: Duration,
    /// Time in which every role must detect a fault, and recover or exit.
    pub limit: Duration,
    /// For a deployment on several machines, which are network namespaces, with each target on its own: program and
    /// first arguments of [`relay`](crate::network::relay) as a process.
    pub cable: Option<Vec<OsString>>,
}

impl Settings {
    /// Reserves ports, creates the machines if there are several, and starts the relay, but no role yet.
    fn deployment(&self, layout: Layout) -> Result<(Deployment, Connections), Violation> {
        let (sandbox, links) = match &self.cable {
            None => (Sandbox::new()?, Links::default()),
            Some(program) => Links::connect(layout.targets().len(), program)?,
        };
        let size = (layout, self.blocks);
        let mut deployment =
            processes::faulty(sandbox, &self.implementation, size, &self.cpus, self.limit)?;
        deployment.add_flags(Part::Service, ["--idle-timeout", "6"]);
        let line = FaultyLine::start(deployment.ports())?;
        // The relay accepts connections for an offline target, but a session that begins degraded must find them refused.
        if self.load == LoadKind::Initiator && links.is_empty() {
            deployment.reach_targets_at(layout, line.ports().to_vec());
        }
        Ok((deployment, Connections { line, links }))
    }
}

/// The connections between a service and its targets, into which faults are injected.
struct Connections {
    /// Relay of the control connections.
    line: FaultyLine,
    /// Links between the machines, if there are several.
    links: Links,
}

/// Commands that start the hammer's own processes.
pub struct Commands {
    /// A command that calls [`Load::play`].
    pub load: Box<dyn Fn(&Load) -> Command>,
    /// A command that calls [`Verifier::watch`].
    pub verifier: Box<dyn Fn(&Verifier) -> Command>,
    /// A command that calls [`Intruder::intrude`].
    pub intruder: Box<dyn Fn(&Intruder) -> Command>,
    /// A command that runs the NBD server, without arguments.
    pub front_end: Box<dyn Fn() -> Command>,
}

/// A hammer run: random faults in deployments.
pub struct Hammer {
    pub settings: Settings,
    /// Commands for its own processes.
    pub actors: Commands,
}

impl Hammer {
    /// Runs until the time has passed, a violation is found, or `interrupted` returns `true`. `progress` is called
    /// with a description of the next step and the totals so far.
    pub fn run(&self, progress: &dyn Fn(&str, &Totals), interrupted: &dyn Fn() -> bool) -> Totals {
        let started = Instant::now();
        let mut totals = Totals::new(self.settings.seed);
        let plans: Vec<Plan> = self
            .settings
            .layouts
            .iter()
            .map(|&layout| {
                let Settings {
                    load, seed, only, ..
                } = &self.settings;
                match self.settings.cable {
                    Some(_) => Plan::over_network(*seed, layout, only),
                    None => Plan::of_load(*load, *seed, layout, only),
                }
            })
            .collect();
        for (layout, plan) in std::iter::zip(&self.settings.layouts, &plans) {
            totals.expect(*layout, plan);
        }
        let share = self.settings.duration / u32::try_from(plans.len().max(1)).unwrap_or(1);
        for (layout, plan) in std::iter::zip(&self.settings.layouts, plans) {
            if totals.failed.is_some() || interrupted() {
                break;
            }
            let end = Instant::now() + share;
            // On a machine of any speed, at least one round, or one of each selected kind of fault.
            let least = match self.settings.only.is_empty() {
                true => 1,
                false => plan.injections().len() as u64,
            };
            let going_on = |round| (round <= least || Instant::now() < end) && !interrupted();
            self.hammer(*layout, plan, &mut totals, progress, &going_on);
        }
        totals.took = started.elapsed();
        totals.interrupted = interrupted();
        totals
    }

    fn hammer(
        &self,
        layout: Layout,
        plan: Plan,
        totals: &mut Totals,
        progress: &dyn Fn(&str, &Totals),
        going_on: &dyn Fn(u64) -> bool,
    ) {
        let mut now = format!("{}: begin", name(layout));
        let (mut deployment, mut connections) = match self.settings.deployment(layout) {
            Ok(deployment) => deployment,
            Err(violation) => {
                totals.failed = Some(Failed {
                    layout,
                    round: now,
                    what: violation.to_string(),
                    directory: std::path::PathBuf::new(),
                });
                return;
            }
        };
        let mut show = |text: &str, totals: &Totals| {
            now = format!("{}: {text}", name(layout));
            progress(&now, totals);
        };
        let result = match self.settings.load {
            LoadKind::Initiator => {
                let roles = (&mut deployment, &mut connections);
                self.play(roles, plan, totals, going_on, &mut show)
            }
            LoadKind::Nbd => nbd::play(self, &mut deployment, plan, totals, going_on, &mut show),
        };
        let result = result.and_then(|()| end(&mut deployment, &connections));
        if let Err(violation) = result {
            totals.failed = Some(Failed {
                layout,
                round: now,
                what: violation.to_string(),
                directory: deployment.keep(),
            });
        }
    }

    fn play(
        &self,
        (deployment, connections): (&mut Deployment, &mut Connections),
        plan: Plan,
        totals: &mut Totals,
        going_on: &dyn Fn(u64) -> bool,
        progress: &mut dyn FnMut(&str, &Totals),
    ) -> Result<(), Violation> {
        let layout = deployment.layout();
        let mut sessions = Sessions::new(&self.settings, &self.actors, &deployment.sandbox)?;
        let mut watch = ResourceWatch::default();
        let before = totals.blocks;
        progress("the first writes", totals);
        sessions.fill(deployment)?;
        for round in plan {
            if !going_on(round.number) {
                break;
            }
            progress(&round.to_string(), totals);
            if let Some(row) = totals.row(layout, round.injection) {
                row.injected += 1;
            }
            let played = round::play(deployment, connections, &mut sessions, &round)
                .map_err(|violation| sessions.explain(violation));
            totals.blocks = before + sessions.counts;
            let played = played?;
            if let Some(row) = totals.row(layout, round.injection) {
                row.survived += u64::from(!played.is_stalled);
                row.stalled += u64::from(played.is_stalled);
                row.went_on += u64::from(played.went_on);
                row.blocks += played.counts;
            }
            watch.look(deployment)?;
        }
        progress("the end", totals);
        sessions.repair(deployment)?;
        totals.blocks = before + sessions.counts;
        Ok(())
    }
}

/// Terminates all processes, which must not crash or leave anything behind.
fn end(deployment: &mut Deployment, connections: &Connections) -> Result<(), Violation> {
    deployment.stop()?;
    let mut left = deployment.sandbox.leftovers()?;
    left.retain(|path| !is_of_killed_agent(path));
    Violation::unless(
        left.is_empty(),
        "an empty runtime directory when all have ended",
        format!("{left:?}"),
    )?;
    connections.links.expect_no_processes(&deployment.sandbox)
}

/// Returns `true` for the socket of an agent whose process was killed; the next process that starts removes such
/// sockets.
fn is_of_killed_agent(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
    name.is_some_and(|name| name.starts_with("a-") && name.ends_with(".sock"))
        && UnixStream::connect(path).is_err_and(refused)
}

/// Maximum resource usage of each process during its warm-up, with the number of rounds.
#[derive(Default)]
struct ResourceWatch {
    seen: BTreeMap<u32, (u32, Option<Resources>)>,
}

impl ResourceWatch {
    /// Fails if the resources of a continuing process have grown.
    fn look(&mut self, deployment: &Deployment) -> Result<(), Violation> {
        let mut roles = deployment.started();
        roles.retain(|part| *part != Part::FrontEnd);
        for part in roles {
            let Some(id) = deployment.process(part).map(Process::id) else {
                continue;
            };
            let (rounds, most) = self.seen.entry(id).or_default();
            *rounds += 1;
            if *rounds <= WARM_UP {
                let now = Resources::of(id).ok();
                *most = most.map_or(now, |most| now.map(|now| now.max(most)));
                continue;
            }
            let Some(most) = *most else { continue };
            // A process whose session is ending still holds its resources.
            let deadline = Instant::now() + SETTLING;
            while let Ok(now) = Resources::of(id)
                && !now.is_flat_since(most, Resources::RETAINED)
            {
                if Instant::now() > deadline {
                    return Err(Violation::expected(
                        format!(
                            "{} not to grow from {most:?}",
                            part.name(deployment.layout())
                        ),
                        format!("{now:?} after {rounds} rounds"),
                    ));
                }
                std::thread::sleep(TICK);
            }
        }
        Ok(())
    }
}

// Counts of injected faults and of the I/Os in their rounds.

/// Counts of one kind of fault in one layout.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub layout: Layout,
    /// Kind, role and phase of the fault.
    #[serde(flatten)]
    pub injection: Injection,
    pub injected: u64,
    /// Injections after which all roles behaved as expected.
    pub survived: u64,
    /// Injections after which a session ended although it should have continued, while the machine did not complete the
    /// hammer's own writes, either.
    pub stalled: u64,
    /// Injections after which the load's session continued and ended cleanly.
    pub went_on: u64,
    /// I/O counts of these rounds.
    pub blocks: Counts,
}

/// Violation that ended the run.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    pub layout: Layout,
    pub round: String,
    /// Expected and actual behaviour.
    pub what: String,
    /// Directory with logs, blocks, and the verifier's evidence.
    pub directory: PathBuf,
}

/// Results of a hammer run.
#[derive(Debug, Clone, Serialize)]
pub struct Totals {
    /// Seed that reproduces the run.
    pub seed: u64,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// One row per kind of fault, injected or not.
    pub rows: Vec<Row>,
    /// Counts of all I/Os, including those of the read-backs between the rounds.
    pub blocks: Counts,
    /// The violation that ended the run, if any.
    pub failed: Option<Failed>,
    /// `true` if the run was interrupted before its time had passed.
    pub interrupted: bool,
}

impl Totals {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            took: Duration::ZERO,
            rows: Vec::new(),
            blocks: Counts::default(),
            failed: None,
            interrupted: false,
        }
    }

    /// Adds rows for the kinds of faults of a plan.
    fn expect(&mut self, layout: Layout, plan: &Plan) {
        let mut injections = plan.injections().to_vec();
        injections.sort_unstable();
        self.rows
            .extend(injections.into_iter().map(|injection| Row {
                layout,
                injection,
                injected: 0,
                survived: 0,
                stalled: 0,
                went_on: 0,
                blocks: Counts::default(),
            }));
    }

    /// Returns the row of a kind of fault.
    fn row(&mut self, layout: Layout, injection: Injection) -> Option<&mut Row> {
        self.rows
            .iter_mut()
            .find(|row| row.layout == layout && row.injection == injection)
    }

    pub fn injected(&self) -> u64 {
        self.rows.iter().map(|row| row.injected).sum()
    }

    /// Report with one case per kind of fault. A kind that was not injected has not passed.
    pub fn report(&self) -> Report {
        let mut cases: Vec<Case> = self.rows.iter().map(case).collect();
        if let Some(failed) = &self.failed {
            let name = failed.round.clone();
            let suite = suite(failed.layout);
            cases.push(Case::new(
                &suite,
                name,
                Outcome::Failed(failed.what.clone()),
            ));
        }
        Report { cases }
    }

    /// Rows grouped by layout, for a table.
    pub fn by_layout(&self) -> BTreeMap<&'static str, Vec<&Row>> {
        let mut layouts: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            layouts.entry(name(row.layout)).or_default().push(row);
        }
        layouts
    }
}

/// Name of the layout in commands.
fn name(layout: Layout) -> &'static str {
    match layout {
        Layout::ZeroCopy => "zero-copy",
        Layout::Gga => "gga",
    }
}

fn suite(layout: Layout) -> String {
    format!("hammer.{}", name(layout))
}

fn case(row: &Row) -> Case {
    let outcome = match row.injected {
        0 => Outcome::NotRun("the time was over before".to_owned()),
        injected if row.stalled == injected => {
            Outcome::NotRun("the machine stalled each time".to_owned())
        }
        injected if row.survived + row.stalled == injected => Outcome::Passed,
        injected => Outcome::Failed(format!(
            "expected {injected} of {injected} to be survived, {} were",
            row.survived
        )),
    };
    Case {
        note: Some(format!("{} injected", row.injected)),
        ..Case::new(&suite(row.layout), row.injection.to_string(), outcome)
    }
}
