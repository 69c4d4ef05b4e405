//! The closing table.

use ::conformance::hammer::{Counts, Row, Tally};
use role_common::outln;
use tabled::builder::Builder;

use crate::table::{self, Layout};

/// What was done to whom, what came of it, and how to do it again.
pub(super) fn print(tally: &Tally, again: &str) {
    let mut table = Builder::new();
    table.push_record([
        "layout",
        "victim",
        "fault",
        "phase",
        "injected",
        "survived",
        "session went on",
        "acknowledged",
        "read back",
        "failed",
        "in doubt",
        "lost",
        "wrong",
    ]);
    for (layout, rows) in tally.by_layout() {
        for row in rows.into_iter().filter(|row| row.injected > 0) {
            table.push_record(record(layout, row));
        }
    }
    table.push_record(totals(tally));
    let layout = Layout {
        right: &[],
        optional: &[7, 8, 9, 10, 6],
    };
    outln!("{}", table::render(table, layout));
    let torn = tally.blocks.torn;
    if torn > 0 {
        let note = "blocks were neither old nor new: a target was killed, or missing, when a write was cut off that was never acknowledged";
        outln!("{}", table::prose(&format!("{torn} {note}")));
    }
    outln!(
        "{}",
        table::prose(
            "columns from \"acknowledged\" on count blocks; \"failed\" ended in an error, \"in doubt\" never ended"
        )
    );
    if let Some(failed) = &tally.failed {
        outln!("\n{}\n  {}", failed.round, failed.what);
        outln!(
            "  logs, blocks and evidence: {}",
            failed.directory.display()
        );
    }
    outln!("{}", verdict(tally));
    outln!("again: {again}");
}

fn record(layout: &str, row: &Row) -> Vec<String> {
    let texts = [
        layout.to_owned(),
        row.blow.victim.name().to_owned(),
        row.blow.fault.name().to_owned(),
        row.blow.phase.name().to_owned(),
    ];
    let numbers = [row.injected, row.survived, row.went_on];
    line(texts, numbers, row.blocks)
}

fn totals(tally: &Tally) -> Vec<String> {
    let texts = ["all", "", "", "with read-backs"].map(str::to_owned);
    let sum = |of: fn(&Row) -> u64| tally.rows.iter().map(of).sum();
    let numbers = [
        tally.injected(),
        sum(|row| row.survived),
        sum(|row| row.went_on),
    ];
    line(texts, numbers, tally.blocks)
}

fn line(texts: [String; 4], numbers: [u64; 3], blocks: Counts) -> Vec<String> {
    let blocks = [
        blocks.acknowledged,
        blocks.read_back,
        blocks.failed,
        blocks.in_doubt,
        blocks.lost,
        blocks.wrong,
    ];
    let numbers = numbers.into_iter().chain(blocks);
    texts
        .into_iter()
        .chain(numbers.map(|number| number.to_string()))
        .collect()
}

fn verdict(tally: &Tally) -> String {
    let kinds = tally.rows.iter().filter(|row| row.injected > 0).count();
    let word = match (&tally.failed, tally.injected()) {
        (Some(_), _) => "FAIL",
        (None, 0) => "NOT RUN",
        (None, _) => "PASS",
    };
    let cut = if tally.interrupted {
        ", interrupted before its time was over"
    } else {
        ""
    };
    format!(
        "{word}: {} faults of {kinds} kinds ({} were not tried) in {:.0} s{cut}",
        tally.injected(),
        tally.rows.len() - kinds,
        tally.took.as_secs_f64()
    )
}
