use std::time::Duration;

use super::*;
use crate::data_path::{Failure, Mismatch};

fn worker(
    start: Instant,
    seconds: u64,
    latencies: impl IntoIterator<Item = u64>,
) -> WorkerStatistics {
    let mut recorded = Latencies::new();
    let mut operation_count = 0;
    for micros in latencies {
        recorded.record(Duration::from_micros(micros));
        operation_count += 1;
    }
    WorkerStatistics {
        operation_count,
        bytes: operation_count * (1 << 20),
        pe_hit_count: 1,
        pe_miss_count: 3,
        latencies: recorded,
        flushes: Latencies::new(),
        end: start + Duration::from_secs(seconds),
    }
}

#[test]
fn statistics_have_the_keys_and_format_of_the_reference() {
    let start = Instant::now();
    let report = Report::new(
        Strategy::ReadThroughputTest,
        None,
        start,
        &[worker(start, 2, [10, 20, 31])],
    );
    let expected = "\
+================================================+
| Stats
+================================================+
| Duration (seconds): 2.000000
| Operation count: 3
| Data rate: 0.001 GiB/s
| IO rate: 0.000 MIOP/s
| PE hit rate: 25.000% (1:3)
| Latency:
| \tMin: 10us
| \tMax: 31us
| \tMean: 20us
| \tp50: 20.0us
| \tp99: 31.0us
| \tp99.9: 31.0us
+================================================+
";
    assert_eq!(report.to_string(), expected);
}

#[test]
fn validation_result_names_the_comparison() {
    let start = Instant::now();
    let text =
        |strategy| Report::new(strategy, None, start, &[worker(start, 2, [1, 2, 3])]).to_string();
    for (strategy, with) in [
        (Strategy::ReadWriteDataValidityTest, "what was written"),
        (Strategy::ReadOnlyDataValidityTest, "the plain content"),
    ] {
        let text = text(strategy);
        let expected = format!("compared with {with}: 3 I/Os, 3145728 bytes, all equal\n");
        assert!(text.ends_with(&expected), "{text}");
    }
    assert!(!text(Strategy::WriteThroughputTest).contains("equal"));
}

#[test]
fn statistics_sum_workers_and_end_with_the_slowest() {
    let start = Instant::now();
    let workers = [worker(start, 1, 1..=990), worker(start, 4, [100_000; 10])];
    let report = Report::new(Strategy::WriteThroughputTest, Some(5), start, &workers);
    assert_eq!((report.operation_count, report.bytes), (1000, 1000 << 20));
    assert!((report.duration_seconds - 4.0).abs() < 1e-9);
    assert!((report.data_rate_gib_per_second - 1000.0 / 1024.0 / 4.0).abs() < 1e-9);
    assert!((report.io_rate_miops - 0.000_25).abs() < 1e-9);
    assert_eq!((report.pe_hit_count, report.pe_miss_count), (2, 6));
    let latency = report.latency_us;
    assert_eq!((latency.min, latency.max), (1, 100_000));
    assert!((latency.p50 / 500.0 - 1.0).abs() < 0.002, "{latency:?}");
    assert!((latency.p99 / 990.0 - 1.0).abs() < 0.002, "{latency:?}");
    assert!(
        (latency.p99_9 / 100_000.0 - 1.0).abs() < 0.002,
        "{latency:?}"
    );
}

#[test]
fn json_has_the_values_of_the_text() {
    let start = Instant::now();
    let report = Report::new(
        Strategy::ReadOnlyDataValidityTest,
        None,
        start,
        &[worker(start, 2, [10, 20, 31])],
    );
    let json = serde_json::to_value(&report).expect("serializable");
    assert_eq!(json["result"], "passed");
    assert_eq!(json["execution_strategy"], "read_only_data_validity_test");
    assert_eq!(json["operation_count"], 3);
    assert_eq!(json["duration_seconds"], 2.0);
    assert_eq!(json["latency_us"]["mean"], 20);
    assert!(json["latency_us"]["p99_9"].is_f64());
    let median = &json["latency_us"]["distribution"][3];
    assert_eq!(median[0], 50.0);
    assert_eq!(median[1], json["latency_us"]["p50"]);
    let histogram = json["latency_us"]["histogram"].as_array().expect("a list");
    let counts: Vec<_> = histogram.iter().filter_map(|it| it[2].as_u64()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 3);
    assert_eq!((counts.first(), counts.last()), (Some(&1), Some(&1)));
    for (bucket, latency) in [(&histogram[0], 10.0), (&histogram[counts.len() - 1], 31.0)] {
        assert!(bucket[0].as_f64() <= Some(latency) && Some(latency) < bucket[1].as_f64());
    }
}

#[test]
fn empty_measurements_have_zero_rates() {
    let report = Report::new(Strategy::ReadThroughputTest, None, Instant::now(), &[]);
    assert_eq!(
        (
            report.io_rate_miops,
            report.pe_hit_rate_percent,
            report.latency_us.mean
        ),
        (0.0, 0.0, 0)
    );
    assert!(serde_json::to_string(&report).is_ok_and(|json| !json.contains("null,\"latency")));
}

#[test]
fn failure_report_has_the_position() {
    let mismatch = Mismatch {
        block: 17,
        offset: 3,
        storage_offset: 17 * 512 + 3,
        expected: 0xAB,
        actual: 0x01,
        pass: Some(2),
    };
    let report = FailureReport::new(
        Strategy::ReadWriteDataValidityTest,
        Some(9),
        Failure::Mismatch(mismatch).to_string(),
        Some(mismatch),
    );
    let text = report.to_string();
    for part in [
        "| Test failed!!",
        "block 17",
        "offset 3",
        "0xab",
        "0x01",
        "Seed: 9",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let json = serde_json::to_value(&report).expect("serializable");
    assert_eq!(
        (&json["result"], &json["mismatch"]["block"]),
        (&"failed".into(), &17.into())
    );
}
