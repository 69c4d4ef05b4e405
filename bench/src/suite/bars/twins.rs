//! Each Rust role in place of its C++ twin, among C++ roles and among Rust roles.

use super::{Bar, Sense};
use crate::point::{Layout, Operation, Point};
use crate::series::{CpuTime, Figures, Series};
use crate::suite::subject::{Exchanged, OURS, THEIRS};
use crate::suite::{Measurement, Results, Subject};

/// What is no slower may seem so by this much: medians of a few ratios on a shared machine are not better than this.
const EVEN: f64 = 0.97;

/// All that can be made of what was measured.
pub(super) fn bars(results: &Results) -> Vec<Bar> {
    results
        .measurements
        .iter()
        .filter_map(|measurement| {
            let Subject::Deployment { point, cast } = &measurement.subject else {
                return None;
            };
            let exchanged = Exchanged::parse(cast)?;
            if !does_the_same(*point, exchanged) {
                return None;
            }
            let base = if exchanged.among_theirs { THEIRS } else { OURS };
            let base = results.of(&Subject::Deployment {
                point: *point,
                cast: base.to_owned(),
            })?;
            let (with_ours, with_theirs) = if exchanged.among_theirs {
                (measurement, base)
            } else {
                (base, measurement)
            };
            let mut pair = pair(*point, exchanged, with_ours, with_theirs);
            if checks(*point, exchanged) {
                let told = beside_a_twin_that_checks(results, with_ours, with_theirs);
                pair[0].detail.extend(told);
            }
            Some(pair)
        })
        .flatten()
        .collect()
}

/// Whether ours checks what the twin takes as it is. Among their roles the service's time is not what limits the rate.
fn checks(point: Point, exchanged: Exchanged) -> bool {
    let reads = point.layout == Layout::Gga && point.operation == Operation::Read;
    reads && exchanged.role == "service" && !exchanged.among_theirs
}

/// How ours compares with a twin that would check blocks as ours does, on a CPU of its own, in the time that this takes where nothing comes
/// in between.
fn beside_a_twin_that_checks(
    results: &Results,
    ours: &Measurement,
    theirs: &Measurement,
) -> Option<String> {
    let check = results.of(&Subject::Kernels)?;
    let check_ns = check.series.median(|run| Some(run.kernels?.check_ns))?;
    let ratio = ours.series.ratio(&theirs.series, |run| Some(run.rate))?;
    let twin = theirs.series.median(|run| Some(run.rate))?;
    let with_checks = ratio * (1.0 + check_ns * twin / 1e9);
    Some(format!(
        "; {with_checks:.2} of a twin that checks blocks too, which takes {check_ns:.0} ns each at least"
    ))
}

/// Whether both twins do the same work. The reference's initiator writes memory that it has never touched: all zeros, which a service
/// that compresses is done with at once. Ours writes what does not compress so well.
fn does_the_same(point: Point, exchanged: Exchanged) -> bool {
    let compresses = point.layout == Layout::Gga && point.operation == Operation::Write;
    !(compresses && exchanged.role == "initiator")
}

/// Throughput and CPU time of two deployments that differ in one role. The runs of one that came to no good end say nothing of how
/// it compares: then nothing was measured.
fn pair(point: Point, exchanged: Exchanged, ours: &Measurement, theirs: &Measurement) -> [Bar; 2] {
    let failed = ours.failure.is_some() || theirs.failure.is_some();
    let is_complete = !failed && ours.series.runs.len() == theirs.series.runs.len();
    let measured = |value: Option<f64>| value.filter(|_| is_complete);
    let (ours, theirs) = (&ours.series, &theirs.series);
    let Exchanged { role, among_theirs } = exchanged;
    let among = if among_theirs { "C++" } else { "Rust" };
    let rate = |run: &Figures| Some(run.rate);
    let cpu = move |run: &Figures| -> Option<f64> {
        let CpuTime {
            initiator,
            service,
            targets,
        } = run.cpu_ns?;
        Some(match role {
            "initiator" => initiator,
            "service" => service,
            _ => targets,
        })
    };
    let medians = |of: &dyn Fn(&Figures) -> Option<f64>, unit: f64| {
        let median = |series: &Series| series.median(of).unwrap_or_default() / unit;
        (median(ours), median(theirs))
    };
    let (rates, cpus) = (medians(&rate, 1e3), medians(&cpu, 1e3));
    [
        Bar {
            name: format!(
                "{point}, among {among} roles: rate with our {role}, of that with its C++ twin"
            ),
            value: measured(ours.ratio(theirs, rate)),
            sense: Sense::AtLeast,
            bar: EVEN,
            detail: format!("{:.1} of {:.1} k I/Os a second", rates.0, rates.1),
        },
        Bar {
            name: format!(
                "{point}, among {among} roles: CPU time per I/O of our {role}, of its C++ twin's"
            ),
            value: measured(ours.ratio(theirs, cpu)),
            sense: Sense::AtMost,
            bar: 1.0 / EVEN,
            detail: format!("{:.2} of {:.2} us", cpus.0, cpus.1),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::BlockKernels;

    /// A deployment that reached these rates; all its roles took as many nanoseconds.
    fn measured(cast: &str, rates: &[f64]) -> Measurement {
        let figures = |rate: &f64| Figures {
            cpu_ns: Some(CpuTime {
                initiator: *rate,
                service: *rate * 2.0,
                targets: *rate * 3.0,
            }),
            ..Figures::of_rate(*rate, 4096)
        };
        Measurement {
            subject: Subject::Deployment {
                point: Point::ZERO_COPY_READ,
                cast: cast.to_owned(),
            },
            series: Series {
                runs: rates.iter().map(figures).collect(),
                ..Series::new(cast)
            },
            operations: 1,
            crashes: 0,
            failure: None,
        }
    }

    fn of(measurements: Vec<Measurement>) -> Vec<Bar> {
        bars(&Results::of_measurements(measurements))
    }

    #[test]
    fn ours_is_always_what_is_compared_with_the_twin() {
        // Ours is twice as fast: among theirs the exchanged one has ours in it, among ours the other one.
        let measurements = vec![
            measured("cpp", &[100.0, 10.0, 100.0]),
            measured("cpp + rust service", &[200.0, 20.0, 200.0]),
            measured("rust", &[200.0, 20.0, 200.0]),
            measured("rust + cpp target", &[100.0, 10.0, 100.0]),
        ];
        let bars = of(measurements);
        let values: Vec<_> = bars.iter().map(|bar| (bar.value, bar.holds())).collect();
        let twice = [(Some(2.0), Some(true)), (Some(2.0), Some(false))];
        assert_eq!(values, [twice, twice].concat());
        assert!(
            bars[0]
                .name
                .contains("among C++ roles: rate with our service")
        );
        assert!(
            bars[1].detail.contains("0.40 of 0.20 us"),
            "{}",
            bars[1].detail
        );
        assert!(
            bars[2]
                .name
                .contains("among Rust roles: rate with our target")
        );
        assert!(
            bars[3].detail.contains("0.60 of 0.30 us"),
            "{}",
            bars[3].detail
        );
    }

    #[test]
    fn initiators_are_not_compared_where_they_write_what_is_compressed() {
        for (layout, operation, compared) in [
            (Layout::Gga, Operation::Write, false),
            (Layout::Gga, Operation::Read, true),
            (Layout::ZeroCopy, Operation::Write, true),
        ] {
            for (role, expected) in [("initiator", compared), ("service", true)] {
                let point = Point {
                    layout,
                    operation,
                    ..Point::ZERO_COPY_READ
                };
                let deployment = |cast: &str| Measurement {
                    subject: Subject::Deployment {
                        point,
                        cast: cast.to_owned(),
                    },
                    ..measured(cast, &[100.0])
                };
                let exchanged = deployment(&format!("rust + cpp {role}"));
                let bars = of(vec![deployment("rust"), exchanged]);
                assert_eq!(!bars.is_empty(), expected, "{point}, {role}");
            }
        }
    }

    #[test]
    fn a_deployment_that_did_not_come_to_its_end_holds_no_bar() {
        let ours = || measured("rust", &[200.0, 200.0, 200.0]);
        let twin = |rates: &[f64]| measured("rust + cpp target", rates);
        let crashed = Measurement {
            failure: Some("signal: 11".to_owned()),
            ..twin(&[100.0, 100.0, 100.0])
        };
        // Interrupted: no failure, and fewer rounds.
        for incomplete in [crashed, twin(&[100.0]), twin(&[])] {
            let bars = of(vec![ours(), incomplete]);
            let holds: Vec<_> = bars.iter().map(Bar::holds).collect();
            assert_eq!(holds, [None, None]);
        }
    }

    #[test]
    fn a_service_that_checks_blocks_is_also_compared_with_a_twin_that_does() {
        let point = |operation| Point {
            layout: Layout::Gga,
            operation,
            ..Point::ZERO_COPY_READ
        };
        let deployment = |cast: &str, operation, rate: f64| Measurement {
            subject: Subject::Deployment {
                point: point(operation),
                cast: cast.to_owned(),
            },
            ..measured(cast, &[rate])
        };
        let kernels = || Measurement {
            subject: Subject::Kernels,
            series: Series {
                runs: vec![Figures {
                    kernels: Some(BlockKernels {
                        compress_ns: 1.0,
                        decompress_ns: 1.0,
                        create_ns: 1.0,
                        recover_ns: 1.0,
                        check_ns: 500.0,
                    }),
                    ..Figures::without_rate()
                }],
                ..Series::new("kernels")
            },
            ..measured("kernels", &[])
        };
        let told = |operation, role: &str, kernels: Vec<Measurement>| {
            let mut all = kernels;
            all.push(deployment("rust", operation, 4e5));
            all.push(deployment(&format!("rust + cpp {role}"), operation, 5e5));
            of(all)[0].detail.clone()
        };
        // The twin's 2 us would be 2.5.
        let detail = told(Operation::Read, "service", vec![kernels()]);
        assert!(
            detail.ends_with(
                "; 1.00 of a twin that checks blocks too, which takes 500 ns each at least"
            ),
            "{detail}"
        );
        for other in [
            told(Operation::Read, "service", vec![]),
            told(Operation::Read, "target", vec![kernels()]),
            told(Operation::Write, "service", vec![kernels()]),
        ] {
            assert!(other.ends_with("k I/Os a second"), "{other}");
        }
    }

    #[test]
    fn without_the_other_deployment_there_is_no_bar() {
        assert!(of(vec![measured("cpp + rust service", &[1.0])]).is_empty());
        assert!(of(vec![measured("cpp", &[1.0]), measured("rust", &[1.0])]).is_empty());
    }
}
