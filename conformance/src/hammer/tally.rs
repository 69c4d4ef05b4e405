//! How often what was done to whom, and what became of the I/Os.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::ledger::Counts;
use super::plan::{Blow, Plan};
use crate::matrix::Layout;
use crate::report::{Case, Outcome, Report};

/// One kind of fault in one deployment.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The deployment.
    pub layout: Layout,
    /// What, to whom, when.
    #[serde(flatten)]
    pub blow: Blow,
    /// How often it was done.
    pub injected: u64,
    /// How often everybody did as they should afterwards.
    pub survived: u64,
    /// Sessions of the load that went on to their good end all the same.
    pub went_on: u64,
    /// What became of the I/Os in these rounds.
    pub blocks: Counts,
}

/// Why the run was stopped.
#[derive(Debug, Clone, Serialize)]
pub struct Failed {
    /// The deployment.
    pub layout: Layout,
    /// In which round, in words.
    pub round: String,
    /// What was expected, and what came.
    pub what: String,
    /// Where everything is that was left: logs, blocks, the witness's evidence.
    pub directory: PathBuf,
}

/// A run of the hammer.
#[derive(Debug, Clone, Serialize)]
pub struct Tally {
    /// What it can be repeated with.
    pub seed: u64,
    /// How long it took.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// What was done, and what was not.
    pub rows: Vec<Row>,
    /// What became of all I/Os, those of the read-backs between the rounds as well.
    pub blocks: Counts,
    /// Why it was stopped, if it was.
    pub failed: Option<Failed>,
    /// It was interrupted before its time was over.
    pub interrupted: bool,
}

fn seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64())
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            took: Duration::ZERO,
            rows: Vec::new(),
            blocks: Counts::default(),
            failed: None,
            interrupted: false,
        }
    }

    /// Rows for what a plan has.
    pub(super) fn expect(&mut self, layout: Layout, plan: &Plan) {
        let mut blows = plan.blows().to_vec();
        blows.sort_unstable();
        self.rows.extend(blows.into_iter().map(|blow| Row {
            layout,
            blow,
            injected: 0,
            survived: 0,
            went_on: 0,
            blocks: Counts::default(),
        }));
    }

    /// The row of a kind of fault.
    pub(super) fn row(&mut self, layout: Layout, blow: Blow) -> Option<&mut Row> {
        self.rows
            .iter_mut()
            .find(|row| row.layout == layout && row.blow == blow)
    }

    /// Faults that were injected.
    pub fn injected(&self) -> u64 {
        self.rows.iter().map(|row| row.injected).sum()
    }

    /// As checks: one for each kind of fault. What was not done is no pass.
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

    /// Rows of the same victim and fault as one, over all phases: for a short table.
    pub fn by_layout(&self) -> BTreeMap<&'static str, Vec<&Row>> {
        let mut layouts: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            layouts.entry(name(row.layout)).or_default().push(row);
        }
        layouts
    }
}

/// As the commands have it.
pub(super) fn name(layout: Layout) -> &'static str {
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
        injected if row.survived == injected => Outcome::Passed,
        injected => Outcome::Failed(format!(
            "expected {injected} of {injected} to be survived, {} were",
            row.survived
        )),
    };
    Case {
        note: Some(format!("{} injected", row.injected)),
        ..Case::new(&suite(row.layout), row.blow.to_string(), outcome)
    }
}
