//! Tests that need programs or libraries which may not be installed. They are then reported as ignored and not as passed: the
//! binary has its own harness, because Rust's cannot decide that at run time.
//!
//! * The page in a real browser: nothing is wider than the window, and plots are in the right number of columns.
//!   Screenshots are written to `target/tmp/bench_page`. Chromium is Debian's package of the same name.
//! * ISA-L.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bench::baseline::{Baseline, Machine, Provenance};
use bench::limits::{ErasureCoding, Speed};
use bench::report;
use bench::series::{Figures, Latency, Layout, Operation, Point, Series};
use bench::suite::{Kernels, Measurement, OURS, Results, Subject, Verdict, thresholds};
use libtest_mimic::{Arguments, Failed, Trial};
use yardstick::IsaL;

/// Widths of windows in pixels, and the number of columns of plots at these widths.
const WIDTHS: [(u32, usize); 3] = [(500, 1), (1280, 2), (1920, 2)];

/// Height of the windows in pixels: enough for target values and plots.
const HEIGHT: u32 = 4400;

/// Writes the width of the page and the number of columns of plots to its title.
const PROBE: &str = "<script>
addEventListener('load', () => {
  const left = [...document.querySelectorAll('figure')].map(it => Math.round(it.getBoundingClientRect().left));
  const svg = document.querySelector('.plot svg').getBoundingClientRect();
  const list = document.querySelector('.plot ul').getBoundingClientRect();
  document.title = [document.documentElement.scrollWidth, innerWidth, new Set(left).size,
    list.left >= svg.right ? 'beside' : 'below', getComputedStyle(document.body).backgroundColor].join('|');
});
</script>";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let chromium = chromium();
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench_page");
    let mut trials: Vec<_> = WIDTHS
        .into_iter()
        .map(|(width, columns)| {
            let (chromium, output) = (chromium.clone(), output.clone());
            let is_missing = chromium.is_none();
            let test = move || match chromium {
                Some(chromium) => look(&chromium, &output, width, columns),
                None => Err("Chromium is not installed".into()),
            };
            Trial::test(format!("page_fits_a_window_of_{width}_pixels"), test)
                .with_ignored_flag(is_missing)
        })
        .collect();
    trials.push(isal());
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn isal() -> Trial {
    let name = "it_computes_in_the_field_of_doca";
    match IsaL::load() {
        Ok(library) => Trial::test(name, move || computes_in_the_field_of_doca(&library)),
        Err(error) => {
            eprintln!("NOT RUN: {name}: {error}");
            // Fails if it is requested explicitly (--ignored).
            Trial::test(name, move || Err(error.into())).with_ignored_flag(true)
        }
    }
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|program| program.is_file())
}

fn look(chromium: &Path, output: &Path, width: u32, columns: usize) -> Result<(), Failed> {
    std::fs::create_dir_all(output)?;
    let html = report::html(&results())?;
    let page = output.join(format!("page-{width}.html"));
    std::fs::write(&page, html.replace("</body>", &format!("{PROBE}</body>")))?;
    let mut backgrounds = Vec::new();
    for (mode, scheme) in [("dark", 0), ("light", 1)] {
        let profile = tempfile::tempdir()?;
        let run = |last: &[String]| {
            let result = Command::new(chromium)
                .args([
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                ])
                .args([
                    "--disable-dev-shm-usage",
                    "--disable-extensions",
                    "--no-first-run",
                ])
                .arg(format!("--user-data-dir={}", profile.path().display()))
                .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
                .arg(format!("--window-size={width},{HEIGHT}"))
                .args(last)
                .arg(format!("file://{}", page.display()))
                .output()?;
            let (stdout, stderr) = (
                String::from_utf8_lossy(&result.stdout).into_owned(),
                String::from_utf8_lossy(&result.stderr).into_owned(),
            );
            if result.status.success() {
                Ok::<_, Failed>(stdout)
            } else {
                Err(format!("{}: {}: {stderr}", chromium.display(), result.status).into())
            }
        };
        let screenshot = output.join(format!("{width}-{mode}.png"));
        run(&[format!("--screenshot={}", screenshot.display())])?;
        let size = png_size(&std::fs::read(&screenshot)?).ok_or("expected a PNG file")?;
        if size.0 != width {
            return Err(format!("expected a screenshot of {width} pixels, got {size:?}").into());
        }
        let document = run(&["--dump-dom".to_owned()])?;
        let title = document
            .split_once("<title>")
            .and_then(|(_, rest)| rest.split_once("</title>"))
            .map(|(title, _)| title.split('|').collect::<Vec<_>>());
        let Some([page_width, window, plots, legend, background]) = title.as_deref() else {
            return Err(format!("expected the probe's title, got {title:?}").into());
        };
        let beside = if width < 600 { "below" } else { "beside" };
        let expected = (window.to_string(), columns.to_string(), beside);
        let actual = (page_width.to_string(), plots.to_string(), *legend);
        if actual != expected {
            return Err(format!(
                "expected width of the page, columns of plots and place of the legend {expected:?}, got {actual:?}"
            )
            .into());
        }
        backgrounds.push((*background).to_owned());
    }
    if backgrounds[0] == backgrounds[1] {
        return Err(format!("expected two colours, got {backgrounds:?}").into());
    }
    Ok(())
}

/// Width and height, from the PNG header.
fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    bytes.starts_with(b"\x89PNG").then_some(())?;
    Some((number(16)?, number(20)?))
}

/// Results with all axes and every kind of outcome. The figures are computed by a formula, and not measured.
fn results() -> Results {
    let mut measurements = Vec::new();
    let base = Point::ZERO_COPY_READ;
    let layouts: [(Layout, &[Operation]); 2] = [
        (Layout::ZeroCopy, &[Operation::Read, Operation::Write]),
        (
            Layout::Gga,
            &[Operation::Read, Operation::RecoveryRead, Operation::Write],
        ),
    ];
    let mut add = |subject: Subject, rate: f64, point: Point| {
        if measurements
            .iter()
            .any(|one: &Measurement| one.subject == subject)
        {
            return;
        }
        let run = |round: u32| {
            let rate = rate * (1.0 + 0.01 * f64::from(round));
            let ns = f64::from(point.transactions) * 1e9 / rate;
            Figures {
                latency: Some(Latency {
                    p50_ns: ns,
                    p99_ns: 2.0 * ns,
                    p99_9_ns: 4.0 * ns,
                    distribution: Some(DISTRIBUTION.map(|(percent, times)| (percent, times * ns))),
                }),
                histogram: histogram(ns / 1e3),
                ..Figures::of_rate(rate, point.block_size)
            }
        };
        measurements.push(Measurement {
            series: Series {
                runs: (0..3).map(run).collect(),
                ..Series::new(subject.to_string())
            },
            subject,
            operations: 1000,
            crashes: 0,
            failure: None,
        });
    };
    for transactions in [1, 4, 16, 64, 256] {
        let point = Point {
            transactions,
            ..base
        };
        let rate = 4e6 * (1.0 - 0.9 / f64::from(transactions));
        add(Subject::Ring { point }, rate, point);
    }
    for (number, (layout, operation)) in layouts
        .into_iter()
        .flat_map(|(layout, all)| all.iter().map(move |operation| (layout, *operation)))
        .enumerate()
    {
        for workers in [1, 2] {
            let of = |block_size: u32, transactions: u32| Point {
                layout,
                operation,
                block_size,
                transactions,
                workers,
            };
            let depths = [1, 4, 16, 64, 256].map(|transactions| of(4096, transactions));
            let sizes = [512, 4096, 65536, 1 << 20].map(|size| of(size, 64));
            for point in depths.into_iter().chain(sizes) {
                let time = 350.0
                    * (1.0 + number as f64)
                    * (0.6 + 0.1 * f64::from(workers))
                    * (1.0 + 9.0 / f64::from(point.transactions))
                    + f64::from(point.block_size) / 14.0;
                let mix = OURS.to_owned();
                add(Subject::Deployment { point, mix }, 1e9 / time, point);
            }
        }
    }
    for block_size in [4096, 64 << 10, 1 << 20] {
        let point = Point { block_size, ..base };
        add(Subject::Copy { point }, 14e9 / f64::from(block_size), point);
    }
    measurements.push(Measurement {
        subject: Subject::Nbd { point: base },
        series: Series::new("nbdkit + fio: zero copy read 4 KiB x64"),
        operations: 0,
        crashes: 0,
        failure: Some("nbdkit: exited with status 1 before its socket was there".to_owned()),
    });
    let coding = |bandwidth| {
        let kernel = Speed {
            bandwidth,
            block_ns: 1.0,
        };
        ErasureCoding {
            create: kernel,
            recover: kernel,
        }
    };
    let mut results = Results {
        verdict: Verdict::Incomplete,
        provenance: Provenance::now(
            [
                "doca-storage",
                "bench",
                "--axes",
                "--rounds",
                "3",
                "--report",
                "a page.html",
            ]
            .map(str::to_owned),
        ),
        machine: Machine::this(),
        rounds: 3,
        rounds_completed: 3,
        interrupted: false,
        measurements,
        kernels: Kernels {
            ours: Some(coding(60e9)),
            isal: Some(coding(90e9)),
        },
        idle_percent: Some(0.4),
        thresholds: Vec::new(),
        left_out: vec!["system calls per I/O: `perf stat` does not count here".to_owned()],
        comparison: None,
    };
    results.thresholds = thresholds(&results);
    results.verdict = results.judge();
    let mut before = results.clone();
    for measurement in &mut before.measurements {
        for run in &mut measurement.series.runs {
            run.rate *= 0.93;
        }
    }
    let document = serde_json::to_string(&before).expect("JSON");
    let baseline = Baseline::parse(&document).expect("a document");
    results.comparison = Some(baseline.compare(&results));
    results
}

/// Percentiles, and multiples of the median.
const DISTRIBUTION: [(f64, f64); 12] = [
    (1.0, 0.6),
    (10.0, 0.7),
    (25.0, 0.85),
    (50.0, 1.0),
    (75.0, 1.1),
    (90.0, 1.3),
    (95.0, 1.5),
    (99.0, 2.0),
    (99.5, 2.5),
    (99.9, 4.0),
    (99.99, 9.0),
    (100.0, 30.0),
];

/// Buckets of a quarter of an octave around a median in microseconds.
fn histogram(median: f64) -> Vec<(f64, f64, u64)> {
    let middle = (median.log2() * 4.0).floor() as i32;
    let counts = [2, 30, 240, 420, 180, 60, 20, 9, 4, 2, 1];
    let bound = |index: i32| (f64::from(index) / 4.0).exp2();
    counts
        .into_iter()
        .zip(middle - 3..)
        .map(|(count, index)| (bound(index), bound(index + 1), count))
        .collect()
}

fn computes_in_the_field_of_doca(library: &IsaL) -> Result<(), Failed> {
    let (a, b) = ([0x83_u8; 96], [5_u8; 96]);
    let (mut sum, mut weighted) = ([0; 96], [0; 96]);
    library
        .coder(2, &[1, 1, 2, 4])
        .code(&[&a, &b], &mut [&mut sum, &mut weighted]);
    // 2 * 0x83 is reduced by the polynomial 0x11d; 4 * 5 is not.
    for (what, came, expected) in [
        ("sum", sum, 0x83 ^ 5),
        ("weighted_sum", weighted, (0x106 ^ 0x11d) as u8 ^ 20),
    ] {
        if came != [expected; 96] {
            return Err(format!("{what}: expected {expected:#x}, got {:#x}", came[0]).into());
        }
    }
    Ok(())
}
