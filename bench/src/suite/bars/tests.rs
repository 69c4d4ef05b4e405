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
    let bar = bars(&results)
        .into_iter()
        .find(|bar| bar.name.contains(name));
    bar.unwrap_or_else(|| panic!("there is no bar {name:?}"))
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
        cast: OURS.to_owned(),
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
