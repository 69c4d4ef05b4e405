//! The report: one self-contained page with SVG plots.

mod plot;

use std::fmt::Write as _;

use crate::baseline::{Comparison, Metric, Trend};
use crate::series::{Bucket, Layout, Point, Series};
use crate::suite::{Measurement, OURS, Results, Sense, Subject, Verdict};
use plot::{Axis, Curve, Form, Plot, nines};

/// Renders the page.
///
/// # Errors
///
/// Description of the plot that could not be drawn.
pub fn html(results: &Results) -> Result<String, String> {
    let plots = plots(results)
        .into_iter()
        .filter(|plot| plot.curves.iter().any(|curve| curve.points.len() > 1))
        .map(|plot| Ok((plot.svg()?, plot)))
        .collect::<Result<Vec<_>, String>>()?;
    Ok(page(results, &plots))
}

/// Parameters that the points of a curve share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Depth,
    BlockSize,
}

fn plots(results: &Results) -> Vec<Plot> {
    let rate = |series: &Series| Some(series.median(|run| Some(run.rate))? / 1e3);
    let bandwidth =
        |series: &Series| Some(series.median(|run| Some(run.bandwidth))? / f64::from(1 << 30));
    let p50 = |series: &Series| Some(series.median(|run| Some(run.latency?.p50_ns))? / 1e3);
    let p99 = |series: &Series| Some(series.median(|run| Some(run.latency?.p99_ns))? / 1e3);
    let depth = Axis::logarithmic("transactions");
    let size = Axis::logarithmic("block size in bytes");
    let mut plots = Vec::new();
    for layout in [Layout::ZeroCopy, Layout::Gga] {
        let plot =
            |title: &str, x: &Axis, y: Axis, over, of: &dyn Fn(&Series) -> Option<f64>| Plot {
                title: format!("{layout}: {title}"),
                x: x.clone(),
                y,
                curves: curves(results, layout, over, of),
                form: Form::Points,
            };
        plots.extend([
            plot(
                "throughput with 4 KiB",
                &depth,
                Axis::linear("k I/Os a second"),
                Over::Depth,
                &rate,
            ),
            plot(
                "median latency with 4 KiB",
                &depth,
                Axis::logarithmic("us"),
                Over::Depth,
                &p50,
            ),
            plot(
                "99th percentile with 4 KiB",
                &depth,
                Axis::logarithmic("us"),
                Over::Depth,
                &p99,
            ),
            plot(
                "bandwidth with 64 transactions",
                &size,
                Axis::linear("GiB/s"),
                Over::BlockSize,
                &bandwidth,
            ),
            plot(
                "median latency with 64 transactions",
                &size,
                Axis::logarithmic("us"),
                Over::BlockSize,
                &p50,
            ),
        ]);
    }
    plots.push(histogram(results));
    plots.push(distribution(results));
    plots
}

/// One curve for each mix, operation and number of workers.
fn curves(
    results: &Results,
    layout: Layout,
    over: Over,
    of: &dyn Fn(&Series) -> Option<f64>,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for measurement in &results.measurements {
        let (point, who) = match &measurement.subject {
            Subject::Deployment { point, mix } => (point, mix.as_str()),
            Subject::Ring { point } => (point, "bare ring"),
            Subject::Copy { point } if over == Over::BlockSize => (point, "memcpy"),
            Subject::Copy { .. }
            | Subject::File { .. }
            | Subject::Fio { .. }
            | Subject::NbdServer { .. }
            | Subject::Hosts { .. }
            | Subject::BareTcp { .. }
            | Subject::NbdTcp { .. }
            | Subject::Nbd { .. }
            | Subject::VhostUserBlk { .. }
            | Subject::NullDisk { .. }
            | Subject::SystemCalls { .. }
            | Subject::FirstIos { .. }
            | Subject::Kernels
            | Subject::WakeUp => continue,
        };
        let base = Point::ZERO_COPY_READ;
        let (x, fits) = match over {
            Over::Depth => (point.transactions, point.block_size == base.block_size),
            Over::BlockSize => (point.block_size, point.transactions == base.transactions),
        };
        let Some(y) = of(&measurement.series).filter(|_| fits && point.layout == layout) else {
            continue;
        };
        let workers = if point.workers > 1 {
            format!(", {} workers", point.workers)
        } else {
            String::new()
        };
        let name = format!("{who} {}{workers}", point.operation);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((x.into(), y)),
            None => curves.push(Curve {
                name,
                points: vec![(x.into(), y)],
            }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves
}

/// Subjects whose latency distribution is plotted: deployments with blocks of 4 KiB, and files.
fn subjects_with_latencies(results: &Results) -> impl Iterator<Item = &Measurement> {
    let base = Point::ZERO_COPY_READ;
    let shown = move |one: &&Measurement| match &one.subject {
        Subject::Deployment { point, mix } => {
            let is_base = Point {
                layout: base.layout,
                operation: base.operation,
                transactions: base.transactions,
                ..*point
            } == base;
            let depth = point.transactions;
            let is_read = point.layout == base.layout && point.operation == base.operation;
            mix == OURS && is_base && (depth == base.transactions || depth == 1 && is_read)
        }
        Subject::File { .. } => true,
        _ => false,
    };
    results.measurements.iter().filter(shown)
}

/// Short name of a subject for the legend.
fn legend(measurement: &Measurement) -> String {
    match &measurement.subject {
        Subject::Deployment { point, .. } => point.to_string(),
        Subject::File { work } => work.to_string(),
        other => other.to_string(),
    }
}

/// Shares of I/Os by latency, of all rounds together.
fn histogram(results: &Results) -> Plot {
    let curves = subjects_with_latencies(results).filter_map(|one| {
        let mut buckets: Vec<Bucket> = Vec::new();
        for &(low, high, count) in one.series.runs.iter().flat_map(|run| &run.histogram) {
            // Buckets are computed in the same way in all runs, so their bounds are equal.
            match buckets.iter_mut().find(|bucket| bucket.0 == low) {
                Some(bucket) => bucket.2 += count,
                None => buckets.push((low, high, count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all: u64 = buckets.iter().map(|bucket| bucket.2).sum();
        let (first, last) = (buckets.first()?.0, buckets.last()?.1);
        let share = |count: u64| count as f64 * 100.0 / all as f64;
        let steps = buckets
            .iter()
            .flat_map(|&(low, high, count)| [(low, share(count)), (high, share(count))]);
        Some(Curve {
            name: legend(one),
            points: std::iter::once((first, 0.0))
                .chain(steps)
                .chain([(last, 0.0)])
                .collect(),
        })
    });
    Plot {
        title: "latency histogram".to_owned(),
        x: Axis::decades("us (four buckets an octave)"),
        y: Axis::linear("% of the I/Os"),
        curves: curves.collect(),
        form: Form::Outline,
    }
}

/// Percentiles of latencies in the last round.
fn distribution(results: &Results) -> Plot {
    let curves = subjects_with_latencies(results).filter_map(|one| {
        let points = one.series.runs.last()?.latency?.distribution?;
        Some(Curve {
            name: legend(one),
            points: points
                .into_iter()
                // The maximum is at infinity on this axis.
                .filter(|(percent, _)| *percent < 100.0)
                .map(|(percent, ns)| (nines(percent), (ns / 1e3).max(0.1)))
                .collect(),
        })
    });
    Plot {
        title: "latency percentiles, last round".to_owned(),
        x: Axis::of_nines("I/Os that are not longer"),
        y: Axis::logarithmic("us"),
        curves: curves.collect(),
        form: Form::Points,
    }
}

// The page around the plots.

const STYLE: &str = include_str!("report/style.css");

/// Replaces the colours of drawings (black for text and axes, numbered colours for curves) by variables of the style
/// sheet.
fn colors_of_drawings(page: &mut String) {
    for (number, name) in plot::color_names().enumerate() {
        append(
            page,
            format_args!(
                ".plot [stroke=\"{name}\"]{{stroke:var(--curve-{number})}}\
                 .plot [fill=\"{name}\"]{{fill:var(--curve-{number})}}\n"
            ),
        );
    }
}

fn page(results: &Results, plots: &[(String, Plot)]) -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>doca-storage bench</title>\n<style>\n",
    );
    page.push_str(STYLE);
    colors_of_drawings(&mut page);
    page.push_str("</style></head><body>\n<h1>doca-storage bench</h1>\n");
    verdict(&mut page, results);
    facts(&mut page, results);
    thresholds(&mut page, results);
    if !results.left_out.is_empty() {
        page.push_str("<h2>Not measured</h2><ul>");
        for reason in &results.left_out {
            append(&mut page, format_args!("<li>{}</li>", escaped(reason)));
        }
        page.push_str("</ul>\n");
    }
    if !plots.is_empty() {
        page.push_str("<h2>Plots</h2>\n<div class=\"plots\">\n");
        for (svg, plot) in plots {
            figure(&mut page, svg, plot);
        }
        page.push_str("</div>\n");
    }
    if let Some(comparison) = &results.comparison {
        changes(&mut page, comparison);
    }
    measurements(&mut page, results);
    page.push_str("</body></html>\n");
    page
}

/// First paragraph of the page: the result of the run as a whole.
fn verdict(page: &mut String, results: &Results) {
    let [holding, missed, unknown] = results.counts();
    let failed = results
        .measurements
        .iter()
        .filter(|one| one.failure.is_some())
        .count();
    let (class, word, meaning) = match results.verdict {
        Verdict::Pass => ("pass", "PASS", "all target values are met".to_owned()),
        Verdict::Fail => (
            "fail",
            "FAIL",
            format!("target values not met: {missed}, failed measurements: {failed}"),
        ),
        Verdict::Void => (
            "void",
            "VOID",
            "the bare ring was too slow: the machine did something else, and no figure here means anything".to_owned(),
        ),
        Verdict::Incomplete => (
            "none",
            "INCOMPLETE",
            "what was measured meets its target values, but not everything was measured".to_owned(),
        ),
    };
    append(
        page,
        format_args!(
            "<p class=\"verdict {class}\"><strong>{word}</strong> {meaning}. \
             {holding} met, {missed} not met, {unknown} not measured.</p>\n"
        ),
    );
    if results.interrupted {
        append(
            page,
            format_args!(
                "<p class=\"verdict none\"><strong>INTERRUPTED</strong> after {} of {} rounds. \
                 This page has what was measured until then.</p>\n",
                results.rounds_completed, results.rounds
            ),
        );
    }
}

/// Program, time, machine and command line.
fn facts(page: &mut String, results: &Results) {
    let (machine, provenance) = (&results.machine, &results.provenance);
    let commit = provenance.commit.as_deref().unwrap_or("unknown");
    page.push_str("<dl>\n");
    for (name, value) in [
        (
            "Version",
            format!("{}, commit {commit}", provenance.version),
        ),
        ("Started", provenance.started.clone()),
        (
            "Machine",
            format!(
                "{}, {} CPUs, Linux {}; load {:.1} before the run",
                machine.cpu, machine.cpus, machine.kernel, machine.load
            ),
        ),
        ("Command", provenance.command.clone()),
        (
            "Figures",
            format!(
                "medians of {}, ratios made within a round; software DOCA, no BlueField involved",
                rounds(results.rounds_completed)
            ),
        ),
    ] {
        let value = escaped(&value);
        let value = if name == "Command" {
            format!("<code>{value}</code>")
        } else {
            value
        };
        append(page, format_args!("<dt>{name}</dt><dd>{value}</dd>\n"));
    }
    page.push_str("</dl>\n");
}

/// Formats a number of rounds.
pub fn rounds(count: usize) -> String {
    match count {
        1 => "1 round".to_owned(),
        count => format!("{count} rounds"),
    }
}

fn thresholds(page: &mut String, results: &Results) {
    if results.thresholds.is_empty() {
        return;
    }
    let comparison = results.comparison.as_ref();
    let earlier = if comparison.is_some() {
        "<th class=\"number\">Baseline"
    } else {
        ""
    };
    append(
        page,
        format_args!(
            "<h2>Target values</h2>\n<table class=\"wide\"><thead><tr><th>Comparison<th class=\"number\">Value{earlier}<th class=\"number\">Target<th>Verdict<th>From</tr></thead><tbody>\n"
        ),
    );
    for threshold in &results.thresholds {
        let sense = match threshold.sense {
            Sense::AtLeast => "≥",
            Sense::AtMost => "≤",
        };
        let (class, word) = match threshold.holds() {
            _ if results.verdict == Verdict::Void => ("void", "VOID"),
            Some(true) => ("pass", "pass"),
            Some(false) => ("fail", "FAIL"),
            None => ("none", "not measured"),
        };
        let earlier = comparison.map_or_else(String::new, |comparison| {
            let value = number(comparison.threshold(&threshold.name), 3);
            format!("<td data-label=\"Baseline\" class=\"number\">{value}")
        });
        append(
            page,
            format_args!(
                "<tr><th scope=\"row\">{}<td data-label=\"Value\" class=\"number\">{}{earlier}<td data-label=\"Target\" class=\"number\">{sense} {:.2}\
                 <td data-label=\"Verdict\" class=\"{class}\">{word}<td data-label=\"From\">{}</tr>\n",
                escaped(&threshold.name),
                number(threshold.value, 3),
                threshold.limit,
                escaped(&threshold.detail)
            ),
        );
    }
    page.push_str("</tbody></table>\n");
}

fn changes(page: &mut String, comparison: &Comparison) {
    let baseline = &comparison.baseline;
    append(
        page,
        format_args!(
            "<h2>Changes since the baseline</h2>\n<p>Baseline: {}, commit {}, {}. The two runs were not made in turns: only changes whose spread \
             (between quartiles of both runs) does not contain 0 are marked.</p>\n",
            escaped(&baseline.version),
            escaped(baseline.commit.as_deref().unwrap_or("unknown")),
            escaped(&baseline.started)
        ),
    );
    for difference in &comparison.differences {
        append(
            page,
            format_args!(
                "<p class=\"verdict fail\"><strong>Another machine.</strong> {}</p>\n",
                escaped(difference)
            ),
        );
    }
    page.push_str(
        "<table class=\"wide\"><thead><tr><th>Measured<th>Figure<th class=\"number\">Baseline<th class=\"number\">Now<th class=\"number\">Change<th class=\"number\">Spread<th>Verdict</tr></thead><tbody>\n",
    );
    for change in &comparison.changes {
        let (class, word) = match change.trend {
            Trend::Better => ("pass", "better"),
            Trend::Worse => ("fail", "WORSE"),
            Trend::WithinSpread => ("", "within spread"),
            Trend::Unknown => ("none", "too few runs"),
        };
        let (figure, unit) = match change.metric {
            Metric::Rate => ("k I/O/s", 1e3),
            Metric::MedianLatency => ("p50 us", 1e3),
        };
        let spread = change.spread.map_or_else(
            || "-".to_owned(),
            |[low, high]| format!("{:+.1} to {:+.1} %", low * 1e2, high * 1e2),
        );
        append(
            page,
            format_args!(
                "<tr><th scope=\"row\">{}<td data-label=\"Figure\">{figure}<td data-label=\"Baseline\" class=\"number\">{:.1}\
                 <td data-label=\"Now\" class=\"number\">{:.1}<td data-label=\"Change\" class=\"number\">{:+.1} %\
                 <td data-label=\"Spread\" class=\"number\">{spread}<td data-label=\"Verdict\" class=\"{class}\">{word}</tr>\n",
                escaped(&change.name),
                change.then / unit,
                change.now / unit,
                change.change * 1e2
            ),
        );
    }
    page.push_str("</tbody></table>\n");
}

/// A drawing with its legend beside it, or below on a narrow page.
fn figure(page: &mut String, svg: &str, plot: &Plot) {
    append(
        page,
        format_args!(
            "<figure><figcaption>{}</figcaption><div class=\"plot\">{svg}<ul>",
            escaped(&plot.title)
        ),
    );
    for (number, curve) in plot.curves.iter().enumerate() {
        append(
            page,
            format_args!(
                "<li style=\"--color:var(--curve-{})\">{}</li>",
                plot::color_of(number),
                escaped(&curve.name)
            ),
        );
    }
    page.push_str("</ul></div></figure>\n");
}

fn measurements(page: &mut String, results: &Results) {
    const HEADINGS: [&str; 8] = [
        "k I/O/s",
        "GiB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "initiator",
        "service",
        "targets",
    ];
    page.push_str(
        "<h2>All measurements</h2>\n<p>The last three columns are CPU time per I/O, in microseconds.</p>\n\
         <table class=\"wide\"><thead><tr><th>Measured",
    );
    for heading in HEADINGS {
        append(page, format_args!("<th class=\"number\">{heading}"));
    }
    page.push_str("</tr></thead><tbody>\n");
    // Measurements without a rate are shown with their limit, unless they have failed.
    let shown = |one: &&Measurement| one.subject.has_rate() || one.failure.is_some();
    for measurement in results.measurements.iter().filter(shown) {
        let series = &measurement.series;
        let median = |of: &dyn Fn(&super::series::Figures) -> Option<f64>, unit: f64| {
            number(series.median(of).map(|value| value / unit), 2)
        };
        append(
            page,
            format_args!("<tr><th scope=\"row\">{}", escaped(&series.name)),
        );
        if let Some(failure) = &measurement.failure {
            append(
                page,
                format_args!(
                    "<td class=\"fail\" colspan=\"8\">FAIL: {}</tr>\n",
                    escaped(failure)
                ),
            );
            continue;
        }
        if series.runs.is_empty() {
            page.push_str("<td class=\"none\" colspan=\"8\">not measured</tr>\n");
            continue;
        }
        let cells = [
            median(&|run| Some(run.rate), 1e3),
            median(&|run| Some(run.bandwidth), f64::from(1 << 30)),
            median(&|run| Some(run.latency?.p50_ns), 1e3),
            median(&|run| Some(run.latency?.p99_ns), 1e3),
            median(&|run| Some(run.latency?.p99_9_ns), 1e3),
            median(&|run| Some(run.cpu_ns?.initiator), 1e3),
            median(&|run| Some(run.cpu_ns?.service), 1e3),
            median(&|run| Some(run.cpu_ns?.targets), 1e3),
        ];
        for (heading, cell) in HEADINGS.iter().zip(cells) {
            append(
                page,
                format_args!("<td data-label=\"{heading}\" class=\"number\">{cell}"),
            );
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn append(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = page.write_fmt(text);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Baseline;
    use crate::series::Figures;
    use crate::suite::Threshold;

    fn threshold(value: Option<f64>) -> Threshold {
        Threshold {
            name: "a < b".to_owned(),
            value,
            sense: Sense::AtLeast,
            limit: 0.5,
            detail: String::new(),
        }
    }

    fn measurement(subject: Subject, rate: Option<f64>, failure: Option<&str>) -> Measurement {
        let run = |rate| Figures {
            histogram: vec![(1.0, 2.0, 1), (2.0, 4.0, 3)],
            ..Figures::of_rate(rate, 4096)
        };
        Measurement {
            series: Series {
                runs: rate.into_iter().map(run).collect(),
                ..Series::new(subject.to_string())
            },
            subject,
            operations: 1,
            crashes: 0,
            failure: failure.map(str::to_owned),
        }
    }

    fn deployment() -> Subject {
        Subject::Deployment {
            point: Point::ZERO_COPY_READ,
            mix: OURS.to_owned(),
        }
    }

    fn ring(rate: Option<f64>, failure: Option<&str>) -> Measurement {
        let point = Point::ZERO_COPY_READ;
        measurement(Subject::Ring { point }, rate, failure)
    }

    /// Renders the page and the JSON document.
    fn rendered(mut results: Results) -> (String, serde_json::Value) {
        results.verdict = results.judge();
        let page = html(&results).expect("a page");
        (page, serde_json::to_value(&results).expect("JSON"))
    }

    #[test]
    fn page_and_document_have_bars_met_missed_and_not_measured() {
        let mut results = Results::of_measurements(vec![]);
        results.thresholds = vec![threshold(Some(0.6)), threshold(Some(0.4)), threshold(None)];
        results.left_out = vec!["fio & nbdkit".to_owned()];
        results.provenance.commit = Some("0123abc".to_owned());
        let (page, document) = rendered(results);
        for text in [
            "a &lt; b",
            "<li>fio &amp; nbdkit</li>",
            "<strong>FAIL</strong>",
            "commit 0123abc",
            "<code>bench</code>",
            "Z</dd>",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert_eq!(document["verdict"], "fail");
        let outcomes: Vec<_> = [0, 1, 2]
            .map(|at| document["thresholds"][at]["outcome"].clone())
            .into();
        assert_eq!(outcomes, ["pass", "fail", "not measured"]);
        let page = page.to_lowercase();
        for outcome in outcomes.iter().filter_map(|outcome| outcome.as_str()) {
            assert!(page.contains(&format!(">{outcome}<")), "{outcome}: {page}");
        }
    }

    #[test]
    fn void_run_has_no_verdict_on_any_bar() {
        let mut results = Results::of_measurements(vec![ring(Some(1000.0), None)]);
        results.thresholds = vec![threshold(Some(0.6))];
        let (page, document) = rendered(results);
        assert!(page.contains("<strong>VOID</strong>") && !page.contains(">pass<"));
        assert_eq!(document["verdict"], "void");
    }

    #[test]
    fn failed_and_missing_measurements_are_rows() {
        let (page, document) = rendered(Results::of_measurements(vec![
            ring(None, Some("no <memory>")),
            measurement(deployment(), None, None),
        ]));
        for row in [
            "class=\"fail\" colspan=\"8\">FAIL: no &lt;memory&gt;<",
            "class=\"none\" colspan=\"8\">",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        assert_eq!(document["verdict"], "fail");
        assert_eq!(document["measurements"][0]["failure"], "no <memory>");
    }

    #[test]
    fn interrupted_run_is_incomplete() {
        let mut results = Results::of_measurements(vec![ring(Some(2e6), None)]);
        (results.interrupted, results.rounds_completed) = (true, 1);
        let (page, document) = rendered(results);
        assert!(page.contains("<strong>INTERRUPTED</strong>") && page.contains(" 1 of 3 "));
        assert_eq!(document["verdict"], "incomplete");
        assert_eq!(document["interrupted"], true);
    }

    #[test]
    fn histogram_has_shares_of_all_rounds() {
        let mut one = measurement(deployment(), Some(2e6), None);
        let more = Figures {
            histogram: vec![(2.0, 4.0, 4)],
            ..one.series.runs[0].clone()
        };
        one.series.runs.push(more);
        let results = Results::of_measurements(vec![one]);
        let Plot { title, curves, .. } = histogram(&results);
        let expected = [
            (1.0, 0.0),
            (1.0, 12.5),
            (2.0, 12.5),
            (2.0, 87.5),
            (4.0, 87.5),
            (4.0, 0.0),
        ];
        assert_eq!(curves[0].points, expected);
        assert!(html(&results).expect("a page").contains(&title));
    }

    #[test]
    fn baseline_is_on_the_page() {
        let mut results = Results::of_measurements(vec![ring(Some(2e6), None)]);
        results.thresholds = vec![threshold(Some(0.625))];
        let document = serde_json::to_string(&results).expect("JSON");
        let baseline = Baseline::parse(&document).expect("a document");
        results.comparison = Some(baseline.compare(&results));
        let (page, document) = rendered(results);
        assert!(page.contains("+0.0 %"), "{page}");
        assert!(page.contains("data-label=\"Baseline\" class=\"number\">0.625"));
        assert_eq!(document["comparison"]["changes"][0]["change"], 0.0);
    }
}
