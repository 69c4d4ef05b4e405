//! The report: one self-contained page with SVG plots.

mod plot;

use std::fmt::Write as _;

use super::point::{Layout, Operation, Point};
use super::series::Series;
use super::suite::{Bar, Measurement, Results, Sense, Subject};
use plot::{Axis, Curve, Plot, nines};

/// The page.
///
/// # Errors
///
/// A plot could not be drawn, in words.
pub fn html(results: &Results) -> Result<String, String> {
    let plots = plots(results)
        .into_iter()
        .filter(|plot| plot.curves.iter().any(|curve| curve.points.len() > 1))
        .map(|plot| plot.svg())
        .collect::<Result<Vec<_>, _>>()?;
    Ok(page(results, &plots))
}

/// The parameters that the points of a curve share.
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
    plots.push(distribution(results));
    plots
}

/// One curve for each cast, operation and number of workers.
fn curves(
    results: &Results,
    layout: Layout,
    over: Over,
    of: &dyn Fn(&Series) -> Option<f64>,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for measurement in &results.measurements {
        let (point, who) = match &measurement.subject {
            Subject::Deployment { point, cast } => (point, cast.as_str()),
            Subject::Ring { point } => (point, "bare ring"),
            Subject::Copy { point } if over == Over::BlockSize => (point, "memcpy"),
            Subject::Copy { .. }
            | Subject::File { .. }
            | Subject::Fio { .. }
            | Subject::Nbd { .. }
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

/// Latencies of single I/Os at the base points; of the last round.
fn distribution(results: &Results) -> Plot {
    let curve = |operation, layout, transactions| {
        let point = Point {
            layout,
            operation,
            transactions,
            ..Point::ZERO_COPY_READ
        };
        let subject = Subject::Deployment {
            point,
            cast: "rust".to_owned(),
        };
        let last = results.of(&subject)?.series.runs.last()?;
        let points = last.latency?.distribution?;
        Some(Curve {
            name: point.to_string(),
            points: points
                .into_iter()
                // The maximum is infinitely far away on this axis.
                .filter(|(percent, _)| *percent < 100.0)
                .map(|(percent, ns)| (nines(percent), (ns / 1e3).max(0.1)))
                .collect(),
        })
    };
    let curves = [
        curve(Operation::Read, Layout::ZeroCopy, 1),
        curve(Operation::Read, Layout::ZeroCopy, 64),
        curve(Operation::Read, Layout::Gga, 64),
        curve(Operation::RecoveryRead, Layout::Gga, 64),
        curve(Operation::Write, Layout::Gga, 64),
    ];
    Plot {
        title: "latency distribution".to_owned(),
        x: Axis::of_nines("I/Os that are not longer"),
        y: Axis::logarithmic("us"),
        curves: curves.into_iter().flatten().collect(),
    }
}

// The page around the plots.

const STYLE: &str = "\
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1500px; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #ccc; padding: 3px 9px; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
td.yes { background: #dff3df } td.no { background: #f8d7d7 }
.plots { display: flex; flex-wrap: wrap; gap: 12px }";

fn page(results: &Results, plots: &[String]) -> String {
    let machine = &results.machine;
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>doca-storage bench</title>\
         <style>{STYLE}</style></head><body>\n<h1>doca-storage bench</h1>\n\
         <p>{}, {} CPUs, Linux {}, load {:.1} before; medians of {} runs. Software DOCA: no BlueField was involved.</p>\n",
        escaped(&machine.cpu),
        machine.cpus,
        escaped(&machine.kernel),
        machine.load,
        results.rounds
    );
    bars(&mut page, &results.bars);
    if !results.left_out.is_empty() {
        page.push_str("<p>Left out:</p><ul>");
        for reason in &results.left_out {
            append(&mut page, format_args!("<li>{}</li>", escaped(reason)));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("<div class=\"plots\">\n");
    for plot in plots {
        append(&mut page, format_args!("<figure>{plot}</figure>\n"));
    }
    page.push_str("</div>\n");
    measurements(&mut page, results);
    page.push_str("</body></html>\n");
    page
}

fn bars(page: &mut String, bars: &[Bar]) {
    page.push_str("<h2>Bars</h2><table><tr><th>bar<th>value<th>wanted<th>holds<th>from</tr>\n");
    for bar in bars {
        let sense = match bar.sense {
            Sense::AtLeast => "at least",
            Sense::AtMost => "at most",
        };
        let (class, holds) = match bar.holds() {
            Some(true) => ("yes", "yes"),
            Some(false) => ("no", "no"),
            None => ("", "not measured"),
        };
        append(
            page,
            format_args!(
                "<tr><td>{}<td class=\"number\">{}<td>{sense} {:.2}<td class=\"{class}\">{holds}<td>{}</tr>\n",
                escaped(&bar.name),
                number(bar.value, 3),
                bar.bar,
                escaped(&bar.detail)
            ),
        );
    }
    page.push_str("</table>\n");
}

fn measurements(page: &mut String, results: &Results) {
    page.push_str(
        "<h2>All measurements</h2><table><tr><th>measured<th>k I/O/s<th>GiB/s<th>p50 us<th>p99 us<th>p99.9 us\
         <th>CPU us per I/O: initiator<th>service<th>targets</tr>\n",
    );
    // Measurements without a rate are shown beside their limit.
    let with_rates = |one: &&Measurement| one.subject.has_rate();
    for measurement in results.measurements.iter().filter(with_rates) {
        let series = &measurement.series;
        let median = |of: &dyn Fn(&super::series::Figures) -> Option<f64>, unit: f64| {
            number(series.median(of).map(|value| value / unit), 2)
        };
        append(page, format_args!("<tr><td>{}", escaped(&series.name)));
        for cell in [
            median(&|run| Some(run.rate), 1e3),
            median(&|run| Some(run.bandwidth), f64::from(1 << 30)),
            median(&|run| Some(run.latency?.p50_ns), 1e3),
            median(&|run| Some(run.latency?.p99_ns), 1e3),
            median(&|run| Some(run.latency?.p99_9_ns), 1e3),
            median(&|run| Some(run.cpu_ns?.initiator), 1e3),
            median(&|run| Some(run.cpu_ns?.service), 1e3),
            median(&|run| Some(run.cpu_ns?.targets), 1e3),
        ] {
            append(page, format_args!("<td class=\"number\">{cell}"));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
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
    use crate::machine::Machine;
    use crate::suite::Kernels;

    #[test]
    fn page_shows_bars_with_verdicts() {
        let bar = |value| Bar {
            name: "a < b".to_owned(),
            value,
            sense: Sense::AtLeast,
            bar: 0.5,
            detail: String::new(),
        };
        let results = Results {
            machine: Machine::this(),
            rounds: 5,
            measurements: Vec::new(),
            kernels: Kernels::default(),
            idle_percent: None,
            bars: vec![bar(Some(0.6)), bar(Some(0.4)), bar(None)],
            left_out: vec!["fio".to_owned()],
        };
        let page = page(&results, &["<svg/>".to_owned()]);
        for text in [
            "a &lt; b",
            ">yes<",
            ">no<",
            ">not measured<",
            "<li>fio</li>",
            "<svg/>",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }
}
