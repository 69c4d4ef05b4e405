use super::*;
use crate::series::Series;
use crate::suite::Measurement;

fn measured(subject: Subject, runs: &[Figures]) -> Measurement {
    Measurement {
        series: Series {
            runs: runs.to_vec(),
            ..Series::new(subject.to_string())
        },
        subject,
        operations: 1,
        crashes: 0,
        failure: None,
    }
}

fn value_of(name: &str, measurements: Vec<Measurement>) -> Option<f64> {
    let mut results = Results::of_measurements(measurements);
    results.machine.cpus = 2;
    let threshold = thresholds(&results)
        .into_iter()
        .find(|threshold| threshold.name.contains(name));
    threshold
        .unwrap_or_else(|| panic!("there is no threshold {name:?}"))
        .value
}

#[test]
fn gga_is_compared_with_the_limit_of_the_same_round() {
    let point = Point::ZERO_COPY_READ;
    // In rounds 2 and 3, another load uses most of the machine.
    let slower = [1.0, 4.0, 5.0];
    let of_rate = |rate: f64| slower.map(|by| Figures::of_rate(rate / by, 4096));
    let kernels = slower.map(|by| Figures {
        kernels: Some(BlockKernels {
            compress_ns: 8000.0 * by,
            decompress_ns: 1500.0 * by,
            create_ns: 100.0 * by,
            recover_ns: 500.0 * by,
            check_ns: 200.0 * by,
        }),
        ..Figures::without_rate()
    });
    let own = Subject::Deployment {
        point: gga_point(Operation::RecoveryRead),
        mix: OURS.to_owned(),
    };
    let measurements = |own_rates: &[Figures]| {
        vec![
            measured(Subject::Ring { point }, &of_rate(1e6)),
            measured(Subject::Copy { point }, &of_rate(4e6)),
            measured(Subject::Kernels, &kernels),
            measured(own.clone(), own_rates),
        ]
    };
    let name = "gga recovery read 4 KiB x64: of what";
    // The service: 2000 for kernels, 500 for copies, 3 hops of (2 us - 250) / 4; the two CPUs together have less work.
    let limit = 1e9 / (2000.0 + 500.0 + 3.0 * 437.5);
    let value = value_of(name, measurements(&of_rate(limit / 2.0))).expect("measured");
    assert!((value - 0.5).abs() < 1e-9, "{value}");
    assert_eq!(value_of(name, measurements(&[])), None);
}

#[test]
fn wake_up_time_is_allowed_for() {
    let point = Point::ZERO_COPY_READ;
    let paused = |first_rate| Figures {
        after_pause: Some(AfterPause {
            pause_seconds: 2.0,
            first_rate,
            steady_rate: 1e6,
            first_ns: 1e5,
            steady_ns: 1e4,
        }),
        ..Figures::without_rate()
    };
    let wake = |nanoseconds| Figures {
        wake_up_ns: Some(nanoseconds),
        ..Figures::without_rate()
    };
    let value = |first_rate, wake_up| {
        let mut measurements = vec![measured(Subject::FirstIos { point }, &[paused(first_rate)])];
        if let Some(nanoseconds) = wake_up {
            measurements.push(measured(Subject::WakeUp, &[wake(nanoseconds)]));
        }
        value_of("I/Os after 2 s", measurements)
    };
    // 1000 I/Os in 2 ms instead of 1 ms.
    assert_eq!(value(5e5, Some(0.0)), Some(0.5));
    assert_eq!(value(5e5, Some(6e5)), Some(0.8));
    assert_eq!(value(5e5, None), None, "it is not known what to expect");
}

#[test]
fn two_hosts_are_compared_with_bare_tcp_and_nbdkit() {
    let [base, single, large, _] = crate::point::network_points();
    let of = |point: Point, rate: f64, p50_ns: f64| Figures {
        latency: Some(crate::series::Latency {
            p50_ns,
            p99_ns: p50_ns,
            p99_9_ns: p50_ns,
            distribution: None,
        }),
        ..Figures::of_rate(rate, point.block_size)
    };
    let at = |point: Point, rates: [f64; 3], times: [f64; 3]| {
        let subjects = [
            Subject::BareTcp { point },
            Subject::Hosts { point },
            Subject::NbdTcp { point },
        ];
        let measured = |index: usize| {
            let run = of(point, rates[index], times[index]);
            measured(subjects[index].clone(), &[run])
        };
        [0, 1, 2].map(measured)
    };
    let measurements = [
        at(base, [4e5, 3e5, 5e4], [1e5; 3]),
        at(single, [4e4, 2e4, 1e4], [2e4, 5e4, 4e4]),
        at(large, [1e4, 9e3, 9e3], [1e6; 3]),
    ];
    let results = Results::of_measurements(measurements.concat());
    let hosts = hosts(&results);
    let found: Vec<_> = hosts
        .iter()
        .map(|threshold| (threshold.value, threshold.holds()))
        .collect();
    let expected = [
        (Some(0.75), Some(true)),
        (Some(6.0), Some(true)),
        (Some(2.5), Some(false)),
        (Some(2.0), Some(false)),
        (Some(0.9), Some(true)),
        (Some(1.0), Some(false)),
    ];
    assert_eq!(found, expected);
    assert!(!is_void(&results));
    let slow = at(base, [9e4, 3e5, 5e4], [1e5; 3]).to_vec();
    assert!(is_void(&Results::of_measurements(slow)));
}
