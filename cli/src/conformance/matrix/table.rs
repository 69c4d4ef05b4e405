//! One row for each mix.

use std::fmt;

use ::conformance::matrix::{Check, Layout, Member, Strategy, Tried};
use serde::Serialize;
use tabled::builder::Builder;

use crate::table;

/// What was tried, for people and as JSON.
#[derive(Serialize)]
pub(super) struct Table<'a> {
    /// Names of the implementations.
    implementations: Vec<&'a str>,
    /// `true` if there is more than one, without which nothing is mixed.
    mixed: bool,
    /// Sessions that were repeated because the reference crashed when a worker thread began.
    start_races: u32,
    cases: &'a [Tried],
    #[serde(skip)]
    checks: &'a [Check],
}

impl<'a> Table<'a> {
    pub(super) fn new(members: &'a [Member], cases: &'a [Tried], checks: &'a [Check]) -> Self {
        Self {
            implementations: members.iter().map(Member::name).collect(),
            mixed: members.len() > 1,
            start_races: cases.iter().map(|tried| tried.start_races).sum(),
            cases,
            checks,
        }
    }

    fn write_layout(&self, f: &mut fmt::Formatter<'_>, layout: Layout) -> fmt::Result {
        let cases: Vec<&Tried> = self.of(layout).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let mut table = Builder::new();
        let parts = ["initiator", "service"]
            .iter()
            .chain(layout.targets())
            .copied();
        let checks = self.checks.iter().map(|check| heading(*check));
        table.push_record(parts.chain(checks).chain(["races", "seconds"]));
        // The cases of a mix are beside each other.
        for row in cases.chunk_by(|a, b| a.mix == b.mix) {
            let races: u32 = row.iter().map(|tried| tried.start_races).sum();
            let seconds: f64 = row.iter().map(|tried| tried.case.took.as_secs_f64()).sum();
            let names = row[0].mix.iter().map(String::as_str);
            let cells = row.iter().map(|tried| tried.cell);
            let line: Vec<String> = names
                .chain(cells)
                .map(str::to_owned)
                .chain([races.to_string(), format!("{seconds:.1}")])
                .collect();
            table.push_record(line);
        }
        // The last two are races and seconds.
        let columns = table.count_columns();
        let layout = table::Layout {
            right: &[],
            optional: &[columns - 1, columns - 2],
        };
        writeln!(f, "{}", table::render(table, layout))
    }

    fn of(&self, layout: Layout) -> impl Iterator<Item = &'a Tried> {
        self.cases
            .iter()
            .filter(move |tried| tried.layout == layout)
    }
}

/// The name of a check, short.
fn heading(check: Check) -> &'static str {
    match check {
        Check::Strategy(Strategy::ReadThroughput) => "read throughput",
        Check::Strategy(Strategy::WriteThroughput) => "write throughput",
        Check::Strategy(Strategy::ReadValidation) => "read validity",
        Check::Strategy(Strategy::WriteReadValidation) => "write-read validity",
        Check::FailingIo => "failing io",
        Check::IoPastEnd => "io past end",
        Check::CorruptBlock => "corrupt block",
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layout in Layout::ALL {
            self.write_layout(f, layout)?;
        }
        if !self.mixed {
            writeln!(
                f,
                "only one implementation ({}): no mixes",
                self.implementations.join(", ")
            )?;
        }
        f.write_str(&table::prose(LEGEND))
    }
}

const LEGEND: &str = "\
throughput: every I/O was answered with success, and all roles counted as many
validity: the initiator compared every block, too
failing io: a scripted target in place of the target, or of data_1, fails one I/O
corrupt block: one byte in the file of the target, or of data_1, is wrong; all roles are the mix's
io past end: the service is told of one block more than the targets have; all roles are the mix's
noticed: the initiator failed and said why
healed: the service repaired the block
hidden by ...: the initiator ended well, which is what this role of the C++ reference is known for
races: sessions that were repeated because the C++ reference crashed when a worker thread began";
