//! Runs checks.

use std::time::Instant;

use serde::Serialize;

use super::check::{Check, Expectation, Strategy};
use super::content::{BLOCKS, Library};
use super::mix::{Interrupted, Mix, Settings};
use super::session::{Deployment, Plan, Session};
use super::verdict::judge;
use crate::report::{Case, Outcome};
use deployment::implementation::Layout;
use deployment::implementation::Role;
use deployment::network::Network;
use deployment::sandbox::Sandbox;

/// Interval of recovery reads of a gga service, in reads.
const RECOVER_EVERY: u32 = 2;

/// Result of a check.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    /// Layout of the deployment.
    pub layout: Layout,
    /// Names of the implementations, from the initiator to the last target.
    pub mix: Vec<String>,
    /// The check.
    #[serde(skip)]
    pub check: Check,
    /// Table cell: `pass`, `FAIL`, or the role in which an error was detected or hidden.
    pub cell: &'static str,
    /// Number of sessions repeated because a program crashed at the start of a worker thread.
    pub start_races: u32,
    /// Entry in a report.
    #[serde(flatten)]
    pub case: Case,
}

/// Runs checks with mixes.
#[derive(Debug)]
pub struct Matrix {
    settings: Settings,
    library: Library,
}

impl Matrix {
    /// Creates a matrix with these settings.
    pub fn new(settings: Settings) -> Self {
        let library = Library::new(settings.timeout);
        Self { settings, library }
    }

    /// Runs a check with a mix: one session, repeated while it ends in a start race of the reference.
    pub fn run(&self, mix: &Mix<'_>, check: Check, interrupted: Interrupted<'_>) -> Tried {
        let started = Instant::now();
        let expectation = Expectation::of(mix, check, self.settings.protocol.as_deref());
        let plan = self.plan(mix, check);
        let mut start_races = 0;
        let verdict = loop {
            let session = self.session(mix, check, plan, interrupted);
            if session.is_start_race() && start_races < self.settings.retries && !interrupted() {
                start_races += 1;
                continue;
            }
            break judge(mix, plan, &expectation, &session);
        };
        let races = match start_races {
            0 => None,
            1 => Some("1 start race repeated".to_owned()),
            n => Some(format!("{n} start races repeated")),
        };
        let notes: Vec<String> = verdict.note.into_iter().chain(races).collect();
        Tried {
            layout: mix.layout,
            mix: mix.names().map(str::to_owned).collect(),
            check,
            cell: verdict.cell,
            start_races,
            case: Case {
                meaning: check.meaning().to_owned(),
                note: (!notes.is_empty()).then(|| notes.join("; ")),
                took: started.elapsed(),
                output: verdict.output,
                ..Case::new(
                    suite(mix.layout),
                    format!("{mix}: {}", check.name()),
                    verdict.outcome,
                )
            },
        }
    }

    fn plan(&self, mix: &Mix<'_>, check: Check) -> Plan {
        let layout = mix.layout;
        let strategy = check.strategy(layout);
        let one_pass = u32::try_from(BLOCKS).unwrap_or(u32::MAX);
        let operations = self.settings.operations;
        Plan {
            strategy,
            // An initiator requests the block beyond the end in its first pass.
            operations: if strategy.validates() && mix.initiator.traits(Role::Initiator).one_pass {
                one_pass
            } else if strategy.validates() || check == Check::IoPastEnd {
                operations.max(2 * one_pass)
            } else {
                operations
            },
            recover_every: match check {
                Check::Strategy(_) => RECOVER_EVERY,
                // A recovery read might bypass the faulty target.
                Check::FailingIo | Check::IoPastEnd | Check::CorruptBlock => 0,
            },
            failing_io: check == Check::FailingIo,
            overstated: check == Check::IoPastEnd,
        }
    }

    fn session(
        &self,
        mix: &Mix<'_>,
        check: Check,
        plan: Plan,
        interrupted: Interrupted<'_>,
    ) -> Session {
        let trouble = |trouble| Session {
            trouble: Some(trouble),
            ..Session::default()
        };
        let mut files = match self.library.of(mix, self.settings.cpus[0]) {
            Ok(files) => files,
            Err(error) => return trouble(error),
        };
        match check {
            Check::CorruptBlock => files.corrupt(mix.layout),
            Check::Strategy(Strategy::WriteReadValidation) => files.shift(mix.layout),
            _ => {}
        }
        let sandbox = match self.sandbox() {
            Ok(sandbox) => sandbox,
            Err(error) => return trouble(error),
        };
        let deployment = Deployment {
            settings: &self.settings,
            mix,
            plan,
            files: &files,
            interrupted,
            sandbox,
        };
        deployment.play()
    }
}

impl Matrix {
    fn sandbox(&self) -> Result<Sandbox, String> {
        let sandbox = match self.settings.hosts {
            0 | 1 => Sandbox::new(),
            hosts => Sandbox::over(Network::new(hosts).map_err(|error| error.to_string())?),
        };
        sandbox.map_err(|error| format!("a directory: {error}"))
    }
}

/// Name of a layout's group of cases in a report.
fn suite(layout: Layout) -> &'static str {
    match layout {
        Layout::ZeroCopy => "matrix.zero_copy",
        Layout::Gga => "matrix.gga",
    }
}

impl Tried {
    /// Returns `true` if the result was as expected.
    pub fn passed(&self) -> bool {
        self.case.outcome == Outcome::Passed
    }
}
