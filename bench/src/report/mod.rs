//! One page with everything, readable without a network: plots are SVG inside it.

mod page;
mod plot;

use crate::point::{Layout, Operation, Point};
use crate::series::Series;
use crate::suite::{Results, Subject};
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
    Ok(page::page(results, &plots))
}

/// What a curve's points have in common.
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

/// One curve for each who plays, operation and number of workers.
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
                // All of them are not longer than the longest, which is infinitely far away.
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
