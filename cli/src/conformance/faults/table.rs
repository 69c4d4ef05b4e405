//! One row for each phase, one column for each role.

use std::fmt;

use ::conformance::faults::{Case, Part, Phase, Tried};
use serde::Serialize;
use tabled::builder::Builder;

use ::conformance::report::Outcome;

use crate::table::{self, Layout};

/// What was tried, for people and as JSON.
#[derive(Serialize)]
pub(super) struct Table<'a> {
    injected: usize,
    survived: usize,
    lost_or_wrong: usize,
    cases: &'a [Tried],
}

/// Faults of one kind.
#[derive(Default)]
struct Count {
    injected: usize,
    survived: usize,
    lost_or_wrong: usize,
    /// The longest time until the last of the others had noticed, seconds.
    noticed: f64,
}

impl Count {
    fn of<'a>(tried: impl Iterator<Item = &'a Tried>) -> Self {
        let mut count = Self::default();
        for one in tried {
            count.injected += 1;
            count.survived += usize::from(one.report.outcome == Outcome::Passed);
            count.lost_or_wrong += one.lost_or_wrong;
            let noticed = one.noticed.unwrap_or_default().as_secs_f64();
            count.noticed = count.noticed.max(noticed);
        }
        count
    }

    fn cell(&self) -> String {
        match self.injected {
            0 => String::new(),
            injected => format!("{}/{injected}", self.survived),
        }
    }
}

impl<'a> Table<'a> {
    pub(super) fn new(cases: &'a [Tried]) -> Self {
        let count = Count::of(cases.iter());
        Self {
            injected: count.injected,
            survived: count.survived,
            lost_or_wrong: count.lost_or_wrong,
            cases,
        }
    }

    /// One deployment; its cases are beside each other.
    fn write_suite(f: &mut fmt::Formatter<'_>, cases: &[Tried]) -> fmt::Result {
        let Case { layout, .. } = cases[0].case;
        let parts: Vec<Part> = Part::of(layout)
            .filter(|part| cases.iter().any(|tried| tried.case.victim == *part))
            .collect();
        let mut table = Builder::new();
        let labels = parts.iter().map(|part| part.label(layout));
        table.push_record(
            [cases[0].case.suite()]
                .into_iter()
                .chain(labels)
                .chain(["I/Os lost or wrong", "noticed within (s)"]),
        );
        for phase in Phase::ALL {
            let row = || cases.iter().filter(|tried| tried.case.phase == phase);
            let total = Count::of(row());
            if total.injected == 0 {
                continue;
            }
            let cells = parts
                .iter()
                .map(|part| Count::of(row().filter(|tried| tried.case.victim == *part)).cell());
            table.push_record([phase.to_string()].into_iter().chain(cells).chain([
                total.lost_or_wrong.to_string(),
                format!("{:.1}", total.noticed),
            ]));
        }
        writeln!(f, "{}", table::render(table, Layout::default()))
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_beside = |a: &Tried, b: &Tried| a.case.suite() == b.case.suite();
        for cases in self.cases.chunk_by(is_beside) {
            Self::write_suite(f, cases)?;
        }
        write!(
            f,
            "Faults survived / injected: {} / {}. I/Os lost or wrong: {}",
            self.survived, self.injected, self.lost_or_wrong
        )
    }
}
