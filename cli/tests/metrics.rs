//! `--metrics` of real roles agrees with an initiator's I/Os, and `doca-storage status` shows them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::gga::{Set, TARGETS, interrupted, redundancy};
use crate::support::{BLOCK_SIZE, Sandbox, TIMEOUT, default_deadline, document, mentions};
use deployment::log::{LogEvent, error_name};
use deployment::process::Process;
use serde_json::Value;

const METRICS: [&str; 2] = ["--metrics", "0"];

/// Address in the line that a role with `--metrics` prints first. With `--output json`, it is on standard error.
pub fn endpoint(role: &Process) -> SocketAddr {
    let url = |line: &str| match LogEvent::parse(line)? {
        LogEvent::ServingMetrics { url } => Some(url.to_owned()),
        _ => None,
    };
    let url = role.find_line(0, TIMEOUT, url).expect("it serves metrics");
    let address = url.strip_prefix("http://").expect("a URL");
    let (address, _) = address.split_once("/metrics").expect("a path");
    address.parse().expect("an address")
}

fn page(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: role\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (header, page) = answer.split_once("\r\n\r\n").expect("a header");
    assert!(header.starts_with("HTTP/1.1 200 OK"), "{header}");
    assert!(header.contains("text/plain; version=0.0.4"), "{header}");
    page.to_owned()
}

/// Values by name and labels, summed over the cores.
fn values(page: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.rsplit_once(' ').expect("a value");
        let key = key.replace("core=\"0\",", "").replace("{core=\"0\"}", "");
        *values.entry(key).or_default() += value.parse::<f64>().expect("a number");
    }
    values
}

/// Polls until a value is as expected; fails after a timeout.
pub fn value_is(address: SocketAddr, key: &str, expected: impl Fn(f64) -> bool) -> f64 {
    let deadline = default_deadline();
    loop {
        let all = values(&page(address));
        if let Some(&value) = all.get(key)
            && expected(value)
        {
            return value;
        }
        assert!(Instant::now() < deadline, "{key}: {all:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs an initiator that writes and reads back `operations` blocks, and compares with the counts of the roles at these addresses.
fn counts_agree(roles: &[SocketAddr], initiator: Process, operations: u64) {
    let own = endpoint(&initiator);
    let size = BLOCK_SIZE as f64;
    // The page is served while the role is running; its values are checked against those of the other roles.
    let first = values(&page(own));
    assert!(first["process_resident_memory_bytes"] > 1e6, "{first:#?}");
    let report = document(initiator);
    assert_eq!(report["operation_count"], operations);
    for &address in roles {
        value_is(
            address,
            "doca_storage_sessions_total{result=\"completed\"}",
            |value| value == 1.0,
        );
        let all = values(&page(address));
        let get = |key: &str| all.get(key).copied().unwrap_or(f64::NAN);
        let expected = operations as f64;
        for kind in ["read", "write"] {
            let operation = format!("doca_storage_operations_total{{kind=\"{kind}\"}}");
            assert_eq!(get(&operation), expected, "{operation} {all:#?}");
            let bytes = format!("doca_storage_bytes_total{{kind=\"{kind}\"}}");
            assert_eq!(get(&bytes), expected * size, "{bytes} {all:#?}");
        }
        assert_eq!(get("doca_storage_in_flight"), 0.0, "{all:#?}");
        assert_eq!(get("doca_storage_errors_total{kind=\"refused\"}"), 0.0);
        assert!(get("doca_storage_progress_calls_total{result=\"hit\"}") > 0.0);
        assert!(get("process_open_fds") > 3.0);
    }
}

#[test]
fn zero_copy_metrics_match_the_initiators_ios() {
    let sandbox = Sandbox::new();
    let forever = ["--sessions", "forever"];
    let (target, port) = sandbox.target(&[&METRICS[..], &forever].concat());
    let service = sandbox.service(port, &[&METRICS[..], &forever].concat());
    let roles = [endpoint(&target), endpoint(&service)];
    let arguments = [&METRICS[..], &["--run-limit-operation-count", "500"]].concat();
    let initiator = sandbox.initiator("read_write_data_validity_test", &arguments);
    counts_agree(&roles, initiator, 500);

    // A client that sends a malformed message is refused and counted.
    let mut malformed_client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    malformed_client.write_all(&[0xff; 64]).expect("sent");
    let refused = "doca_storage_refused_connections_total";
    value_is(roles[0], refused, |value| value == 1.0);

    let ports = roles.map(|address| address.to_string());
    let status = |more: &[&str]| {
        let output = sandbox
            .command(&["status", &ports[0], &ports[1]])
            .args(more)
            .output()
            .expect("it runs");
        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("text"),
        )
    };
    let (code, table) = status(&[]);
    assert_eq!(code, Some(0), "{table}");
    assert!(
        table.contains("zero-copy") && table.contains("1000"),
        "{table}"
    );
    let (code, json) = status(&["1", "--json"]);
    assert_eq!(code, Some(1), "nothing listens on port 1");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["roles"][0]["role"]["written_bytes"], 500 * BLOCK_SIZE);
    assert_eq!(json["roles"][1]["role"]["reads"], 500);
    assert_eq!(json["roles"][2]["answers"], false);
}

#[test]
fn latency_histogram_counts_every_transaction() {
    let sandbox = Sandbox::new();
    let (target, port) = sandbox.target(&[]);
    let service = sandbox.service(port, &[]);
    // Longer than the test's polling.
    let arguments = [&METRICS[..], &["--run-limit-operation-count", "2000000000"]].concat();
    let initiator = sandbox.initiator("read_throughput_test", &arguments);
    let address = endpoint(&initiator);
    value_is(address, "doca_storage_latency_seconds_count", |count| {
        count > 1000.0
    });
    let all = values(&page(address));
    let count = all["doca_storage_latency_seconds_count"];
    assert_eq!(
        all["doca_storage_latency_seconds_bucket{le=\"+Inf\"}"],
        count
    );
    let mean = all["doca_storage_latency_seconds_sum"] / count;
    assert!((1e-7..10.0).contains(&mean), "{mean}");
    value_is(
        address,
        "doca_storage_operations_total{kind=\"read\"}",
        |reads| reads >= count,
    );
    interrupted(initiator);
    for role in [service, target] {
        document(role);
    }
}

#[test]
fn gga_metrics_show_a_lost_and_a_rebuilt_target() {
    let mut set = Set::new();
    let content = set.content(0);
    set.write(&content);
    let service = set.service(&[&METRICS[..], &["--sessions", "1"]].concat());
    let address = endpoint(&service);
    let state = |state: &str| format!("doca_storage_redundancy_state{{state=\"{state}\"}}");
    let writer = set.writer(&content);
    value_is(address, &state("healthy"), |it| it == 1.0);
    set.kill(1);
    value_is(address, &state("degraded"), |it| it == 1.0);
    let online = format!("doca_storage_target_online{{target=\"{}\"}}", TARGETS[1]);
    value_is(address, &online, |it| it == 0.0);
    value_is(address, "doca_storage_missed_stripes", |it| it > 0.0);
    let degraded = "doca_storage_redundant_blocks_total{kind=\"degraded_write\"}";
    value_is(address, degraded, |it| it > 0.0);
    set.start(1);
    value_is(address, &state("healthy"), |it| it == 1.0);
    value_is(address, &online, |it| it == 1.0);
    value_is(address, "doca_storage_missed_stripes", |it| it == 0.0);
    let rebuilt = value_is(address, "doca_storage_rebuilt_stripes_total", |it| it > 0.0);
    let lost = format!(
        "doca_storage_target_detachments_total{{target=\"{}\"}}",
        TARGETS[1]
    );
    value_is(address, &lost, |it| it == 1.0);
    interrupted(writer);
    let summary = redundancy(service);
    assert_eq!(summary["rebuilt_stripes"].as_f64(), Some(rebuilt));
}

#[test]
fn metrics_address_in_use_is_an_error() {
    let sandbox = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let target = [
        "target",
        "-d",
        "3b:00.0",
        "--cpu",
        "0",
        "--listen-port",
        "0",
    ];
    let output = sandbox
        .command(&[&target[..], &["--metrics", &port]].concat())
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(
        error_name(&stderr),
        Some("DOCA_ERROR_IO_FAILED"),
        "{stderr}"
    );
    mentions(&stderr, &["--metrics", &format!("127.0.0.1:{port}")]);
}

/// A metric in an expression, with its label matchers.
#[derive(Debug, Default)]
struct Selector {
    name: String,
    matchers: Vec<(String, String)>,
}

/// Metrics that a PromQL expression reads, and labels that it groups by.
fn selectors(expression: &str) -> (Vec<Selector>, Vec<String>) {
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let (mut found, mut groups) = (Vec::new(), Vec::new());
    let mut rest = expression;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let end = rest.find(|it| !is_word(it)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let list = |open: char, close: char| -> Option<&str> {
            let inner = after.trim_start().strip_prefix(open)?;
            Some(inner.split_once(close).expect("closed").0)
        };
        if matches!(word, "by" | "on") {
            let labels = list('(', ')').expect("labels").split(',');
            groups.extend(labels.map(|label| label.trim().to_owned()));
        } else if word.starts_with("doca_storage_") || word.starts_with("process_") {
            let matchers = list('{', '}').unwrap_or_default();
            let matchers = matchers.split(',').filter(|it| !it.is_empty());
            found.push(Selector {
                name: word.to_owned(),
                matchers: matchers
                    .map(|matcher| {
                        let (label, value) = matcher.split_once('=').expect("a matcher");
                        let value = value.trim_start_matches('~').trim_matches('"');
                        (label.to_owned(), value.to_owned())
                    })
                    .collect(),
            });
            if let Some(inner) = list('{', '}') {
                rest = &after[after.find(inner).unwrap_or(0) + inner.len()..];
            }
        }
    }
    (found, groups)
}

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];

#[test]
fn dashboard_and_alerts_name_exported_metrics_and_labels() {
    // Pages of every kind of role.
    let set = Set::new();
    let content = set.content(0);
    set.write(&content);
    let service = set.service(&[&METRICS[..], &["--sessions", "1"]].concat());
    let writer = set.writer(&content);
    let healthy = "doca_storage_redundancy_state{state=\"healthy\"}";
    value_is(endpoint(&service), healthy, |it| it == 1.0);
    let mut pages = vec![page(endpoint(&service))];
    let sandbox = Sandbox::new();
    let blocks = sandbox.path("blocks");
    let size = BLOCK_SIZE.to_string();
    let backing = [
        "--backing-file",
        crate::support::text(&blocks),
        "--block-size",
        &size,
        "--block-count",
        "64",
    ];
    let (target, port) = sandbox.target(&[&METRICS[..], &backing].concat());
    let forwards = sandbox.service(port, &METRICS);
    let endless = [&METRICS[..], &["--run-limit-operation-count", "2000000000"]].concat();
    let initiator = sandbox.initiator("read_throughput_test", &endless);
    let latencies = "doca_storage_latency_seconds_count";
    value_is(endpoint(&initiator), latencies, |it| it > 0.0);
    pages.extend([&target, &forwards, &initiator].map(|role| page(endpoint(role))));
    interrupted(initiator);
    for role in [forwards, target] {
        document(role);
    }
    interrupted(writer);
    redundancy(service);
    let samples: Vec<&str> = pages
        .iter()
        .flat_map(|page| page.lines())
        .filter(|line| !line.starts_with('#'))
        .collect();
    let of = |name: &str| {
        let is_of = |line: &&&str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        samples.iter().filter(is_of).copied().collect::<Vec<_>>()
    };

    let monitoring = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/monitoring");
    let read = |name: &str| std::fs::read_to_string(format!("{monitoring}/{name}")).expect(name);
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let text = |name: &str| target[name].as_str().expect(name).to_owned();
            // A `{{label}}` of the legend is a further label that the result must have.
            let labels = text("legendFormat");
            let legend: Vec<String> = labels
                .split("{{")
                .skip(1)
                .map(|rest| rest.split("}}").next().expect("closed").to_owned())
                .collect();
            expressions.push((text("expr"), legend));
        }
    }
    let alerts = read("alerts.yml").replace(">-\n", "");
    let rules = alerts.split("expr:").skip(1);
    let rules = rules.map(|rule| {
        let end = ["\n        for:", "\n        labels:"];
        let end = end.iter().filter_map(|key| rule.find(key)).min();
        (rule[..end.expect("more keys")].to_owned(), Vec::new())
    });
    expressions.extend(rules);
    assert!(expressions.len() > 20, "{expressions:?}");

    let mut count = 0;
    for (expression, legend) in &expressions {
        let (selectors, mut labels) = selectors(expression);
        labels.extend_from_slice(legend);
        for Selector { name, matchers } in &selectors {
            count += 1;
            let exported = of(name);
            assert!(!exported.is_empty(), "{expression}: no role exports {name}");
            for (label, value) in matchers {
                let part = match value.starts_with('$') {
                    true => format!("{label}=\""),
                    false => format!("{label}=\"{value}\""),
                };
                assert!(
                    ADDED.contains(&label.as_str()) || exported.iter().any(|it| it.contains(&part)),
                    "{expression}: {name} never has {part}: {exported:#?}"
                );
            }
            for label in labels
                .iter()
                .filter(|label| !ADDED.contains(&label.as_str()))
            {
                let part = format!("{label}=\"");
                assert!(
                    exported.iter().any(|it| it.contains(&part)),
                    "{expression}: {name} has no label {label}: {exported:#?}"
                );
            }
        }
        assert!(
            !selectors.is_empty() || expression.contains("up{"),
            "{expression}"
        );
    }
    assert!(count > 20, "{count} metrics");
}
