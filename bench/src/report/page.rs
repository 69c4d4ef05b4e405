//! The page around the plots.

use std::fmt::Write as _;

use crate::suite::{Bar, Measurement, Results, Sense};

const STYLE: &str = "\
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1500px; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #ccc; padding: 3px 9px; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
td.yes { background: #dff3df } td.no { background: #f8d7d7 }
.plots { display: flex; flex-wrap: wrap; gap: 12px }";

pub(super) fn page(results: &Results, plots: &[String]) -> String {
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
    // What was counted or timed apart stands beside its bar.
    let with_rates = |one: &&Measurement| one.subject.has_rate();
    for measurement in results.measurements.iter().filter(with_rates) {
        let series = &measurement.series;
        let median = |of: &dyn Fn(&crate::series::Figures) -> Option<f64>, unit: f64| {
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
    fn bars_are_shown_with_their_verdicts() {
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
