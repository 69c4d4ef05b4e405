//! Table of results.

use ::bench::baseline::{Comparison, Metric, Trend};
use ::bench::report::rounds;
use ::bench::suite::{Measurement, Results, Sense, Threshold, Verdict};
use role_common::outln;
use tabled::builder::Builder;

use crate::table::{self, Layout};

pub(super) fn print(results: &Results) {
    let machine = &results.machine;
    table::say!(
        "{}, {} CPUs, Linux {}, load {:.1} before; medians of {}; software DOCA, no BlueField involved",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.load,
        rounds(results.rounds_completed)
    );
    if results
        .measurements
        .iter()
        .any(|one| one.subject.has_rate())
    {
        print_measurements(&results.measurements);
    }
    if !results.thresholds.is_empty() {
        print_thresholds(&results.thresholds);
    }
    for reason in &results.left_out {
        table::say!("left out: {reason}");
    }
    for measurement in results.measurements.iter().filter(|one| one.crashes > 0) {
        table::say!(
            "{}: {} sessions began again, because a C++ program crashed",
            measurement.series.name,
            measurement.crashes
        );
    }
    for measurement in &results.measurements {
        if let Some(failure) = &measurement.failure {
            table::say!("FAIL {}: {failure}", measurement.series.name);
        }
    }
    if let Some(comparison) = &results.comparison {
        print_changes(comparison);
    }
    if results.interrupted {
        table::say!(
            "INTERRUPTED after {} of {} rounds",
            results.rounds_completed,
            results.rounds
        );
    }
    if results.verdict == Verdict::Void {
        table::say!(
            "VOID: the bare ring or connection was too slow, so the machine did something else: run it again when nothing else runs"
        );
    }
    let [holding, missed, unknown] = results.counts();
    table::say!("{holding} target values met, {missed} missed, {unknown} not measured");
}

fn print_changes(comparison: &Comparison) {
    let mut table = Builder::new();
    table.push_record([
        "since the baseline",
        "figure",
        "then",
        "now",
        "change",
        "spread",
        "",
    ]);
    for change in &comparison.changes {
        let spread = change.spread.map_or_else(
            || "-".to_owned(),
            |[low, high]| format!("{:+.1} to {:+.1} %", low * 1e2, high * 1e2),
        );
        table.push_record([
            change.name.clone(),
            match change.metric {
                Metric::Rate => "k I/O/s",
                Metric::MedianLatency => "p50 us",
            }
            .to_owned(),
            format!("{:.1}", change.then / 1e3),
            format!("{:.1}", change.now / 1e3),
            format!("{:+.1} %", change.change * 1e2),
            spread,
            match change.trend {
                Trend::Better => "better",
                Trend::Worse => "WORSE",
                Trend::WithinSpread => "within spread",
                Trend::Unknown => "too few runs",
            }
            .to_owned(),
        ]);
    }
    let layout = Layout {
        right: &[2, 3, 4, 5],
        optional: &[2, 3],
        flexible: Some(0),
    };
    outln!("{}", table::render(table, layout));
    for difference in &comparison.differences {
        table::say!("the baseline is of another machine: {difference}");
    }
}

fn print_measurements(measurements: &[Measurement]) {
    let mut table = Builder::new();
    table.push_record([
        "measured",
        "k I/O/s",
        "min",
        "max",
        "GiB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "CPU us/I/O: initiator",
        "service",
        "targets",
    ]);
    // Measurements without a rate are shown with their thresholds.
    for measurement in measurements.iter().filter(|one| one.subject.has_rate()) {
        let series = &measurement.series;
        let text = |value: Option<f64>, unit: f64, digits: usize| {
            value.map_or_else(
                || "-".to_owned(),
                |value| format!("{:.digits$}", value / unit),
            )
        };
        let rates = || series.runs.iter().map(|run| run.rate);
        table.push_record([
            series.name.clone(),
            text(series.median(|run| Some(run.rate)), 1e3, 1),
            text(rates().reduce(f64::min), 1e3, 1),
            text(rates().reduce(f64::max), 1e3, 1),
            text(
                series.median(|run| Some(run.bandwidth)),
                f64::from(1 << 30),
                2,
            ),
            text(series.median(|run| Some(run.latency?.p50_ns)), 1e3, 1),
            text(series.median(|run| Some(run.latency?.p99_ns)), 1e3, 1),
            text(series.median(|run| Some(run.latency?.p99_9_ns)), 1e3, 1),
            text(series.median(|run| Some(run.cpu_ns?.initiator)), 1e3, 2),
            text(series.median(|run| Some(run.cpu_ns?.service)), 1e3, 2),
            text(series.median(|run| Some(run.cpu_ns?.targets)), 1e3, 2),
        ]);
    }
    let layout = Layout {
        right: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        optional: &[10, 9, 8, 7, 2, 3, 6],
        flexible: Some(0),
    };
    outln!("{}", table::render(table, layout));
}

fn print_thresholds(thresholds: &[Threshold]) {
    let mut table = Builder::new();
    table.push_record(["threshold", "value", "wanted", "holds", "from"]);
    for threshold in thresholds {
        let sense = match threshold.sense {
            Sense::AtLeast => ">=",
            Sense::AtMost => "<=",
        };
        let holds = match threshold.holds() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        table.push_record([
            threshold.name.clone(),
            threshold
                .value
                .map_or_else(|| "-".to_owned(), |value| format!("{value:.3}")),
            format!("{sense} {:.2}", threshold.limit),
            holds.to_owned(),
            threshold.detail.clone(),
        ]);
    }
    let layout = Layout {
        right: &[1, 2],
        optional: &[4],
        flexible: Some(0),
    };
    outln!("{}", table::render(table, layout));
}
