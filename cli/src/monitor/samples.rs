//! Parser of a metrics page: counters and state of a role.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::Serialize;

/// The metrics of a role.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Role {
    pub role: String,
    pub version: String,
    /// Worker threads of the session that is being served.
    pub workers: u64,
    pub completed_sessions: u64,
    pub failed_sessions: u64,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub in_flight: u64,
    /// Errors of the data path, by kind.
    pub errors: BTreeMap<String, u64>,
    pub refused_connections: u64,
    pub refused_requests: u64,
    pub suppressed_log_lines: u64,
    pub resident_bytes: u64,
    pub cpu_seconds: f64,
    /// Latencies of an initiator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Redundancy of a gga_offload service that has served a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
}

/// Latencies of transactions in seconds. Percentiles are upper bounds of the histogram's buckets, each twice the
/// previous one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Latency {
    pub p50: f64,
    pub p99: f64,
    #[serde(skip)]
    buckets: Vec<(f64, u64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Redundancy {
    pub state: String,
    pub offline: Vec<String>,
    pub missed_stripes: u64,
    /// Progress of rebuild, resync and scrub, 0 to 1; absent if not running.
    pub progress: BTreeMap<String, f64>,
    pub repaired_chunks: u64,
}

/// One line of the page.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    value: f64,
}

impl Sample<'_> {
    fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(key, _)| *key == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Role {
    /// Parses a metrics page. Unknown metrics are ignored.
    pub(super) fn parse(page: &str) -> Result<Self, String> {
        let mut role = Self::default();
        let mut buckets = BTreeMap::<u64, u64>::new();
        for line in page.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let sample = sample(line)
                .ok_or_else(|| format!("expected a metric and its value, got {line:?}"))?;
            if sample.name == "doca_storage_latency_seconds_bucket" {
                if let Ok(bound) = sample.label("le").parse::<f64>() {
                    // Positive floats are ordered like their bits.
                    *buckets.entry(bound.to_bits()).or_default() += sample.value as u64;
                }
            } else {
                role.take(&sample);
            }
        }
        if role.role.is_empty() {
            return Err("expected the metrics of a role, got others".to_owned());
        }
        if !buckets.is_empty() {
            let buckets = buckets
                .into_iter()
                .map(|(bound, count)| (f64::from_bits(bound), count))
                .collect();
            role.latency = Some(Latency::of(buckets));
        }
        Ok(role)
    }

    fn take(&mut self, sample: &Sample<'_>) {
        let Some(name) = sample.name.strip_prefix("doca_storage_") else {
            match sample.name {
                "process_resident_memory_bytes" => self.resident_bytes = sample.value as u64,
                "process_cpu_seconds_total" => self.cpu_seconds = sample.value,
                _ => {}
            }
            return;
        };
        let number = sample.value as u64;
        match (name, sample.label("kind"), sample.label("result")) {
            ("build_info", ..) => {
                sample.label("role").clone_into(&mut self.role);
                sample.label("version").clone_into(&mut self.version);
            }
            ("workers", ..) => self.workers = number,
            ("sessions_total", _, "completed") => self.completed_sessions = number,
            ("sessions_total", _, "failed") => self.failed_sessions = number,
            ("operations_total", "read", _) => self.reads += number,
            ("operations_total", "write", _) => self.writes += number,
            ("operations_total", "flush", _) => self.flushes += number,
            ("bytes_total", "read", _) => self.read_bytes += number,
            ("bytes_total", "write", _) => self.written_bytes += number,
            ("errors_total", kind, _) => *self.errors.entry(kind.to_owned()).or_default() += number,
            ("in_flight", ..) => self.in_flight += number,
            ("refused_connections_total", ..) => self.refused_connections = number,
            ("refused_requests_total", ..) => self.refused_requests = number,
            ("log_lines_suppressed_total", ..) => self.suppressed_log_lines = number,
            ("redundancy_state", ..) if sample.value == 1.0 => {
                let redundancy = self.redundancy.get_or_insert_default();
                sample.label("state").clone_into(&mut redundancy.state);
            }
            ("target_online", ..) if sample.value == 0.0 => {
                let redundancy = self.redundancy.get_or_insert_default();
                redundancy.offline.push(sample.label("target").to_owned());
            }
            ("missed_stripes", ..) => {
                self.redundancy.get_or_insert_default().missed_stripes = number;
            }
            ("work_progress_ratio", ..) if sample.value < 1.0 => {
                let redundancy = self.redundancy.get_or_insert_default();
                let work = sample.label("work").to_owned();
                redundancy.progress.insert(work, sample.value);
            }
            ("repaired_chunks_total", ..) => {
                self.redundancy.get_or_insert_default().repaired_chunks += number;
            }
            _ => {}
        }
    }

    /// Short name of the program, as in its subcommand.
    pub(super) fn short_name(&self) -> &str {
        match self.role.as_str() {
            "doca_storage_target_rdma" => "target",
            "doca_storage_comch_to_rdma_zero_copy" => "zero-copy",
            "doca_storage_comch_to_rdma_gga_offload" => "gga-offload",
            "doca_storage_initiator_comch" => "initiator",
            "doca_storage_nbd" => "nbd",
            "doca_storage_vhost_user_blk" => "vhost-user-blk",
            other => other,
        }
    }

    /// I/Os of all kinds.
    pub(super) fn operations(&self) -> u64 {
        self.reads + self.writes + self.flushes
    }

    /// Bytes in both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    /// Errors of the data path. Kinds included in the failed I/Os are not counted twice.
    pub(super) fn error_count(&self) -> u64 {
        let of = |kind: &str| self.errors.get(kind).copied().unwrap_or_default();
        of("failed").max(of("refused")) + of("unexpected_result")
    }

    /// Short description of the redundancy's state; empty if there is none.
    pub(super) fn redundancy_text(&self) -> String {
        let Some(redundancy) = &self.redundancy else {
            return String::new();
        };
        let mut text = redundancy.state.clone();
        if !redundancy.offline.is_empty() {
            text += &format!(", without {}", redundancy.offline.join(" and "));
        }
        if redundancy.missed_stripes != 0 {
            text += &format!(", {} missed", redundancy.missed_stripes);
        }
        for (work, share) in &redundancy.progress {
            text += &format!(", {work} {:.0} %", share * 100.0);
        }
        text
    }
}

impl Latency {
    fn of(buckets: Vec<(f64, u64)>) -> Self {
        let percentile = |share: f64| {
            let total = buckets.last().map_or(0, |(_, count)| *count);
            if total == 0 {
                return f64::NAN;
            }
            let rank = (total as f64 * share).ceil() as u64;
            let found = buckets.iter().find(|(_, count)| *count >= rank);
            found.map_or(f64::NAN, |(bound, _)| *bound)
        };
        Self {
            p50: percentile(0.5),
            p99: percentile(0.99),
            buckets: buckets.clone(),
        }
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |bound: f64| {
            let found = earlier.buckets.iter().find(|(it, _)| *it == bound);
            found.map_or(0, |(_, count)| *count)
        };
        let buckets = self.buckets.iter();
        Self::of(
            buckets
                .map(|&(bound, count)| (bound, count.saturating_sub(before(bound))))
                .collect(),
        )
    }
}

/// Parses `name{label="value",...} number`. The roles' values contain no quotes or commas.
fn sample(line: &str) -> Option<Sample<'_>> {
    let (key, value) = line.rsplit_once(' ')?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        value => value.parse().ok()?,
    };
    let (name, labels) = match key.split_once('{') {
        None => (key, ""),
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
    };
    let labels = labels
        .split(',')
        .filter(|label| !label.is_empty())
        .map(|label| {
            let (name, value) = label.split_once('=')?;
            Some((name, value.strip_prefix('"')?.strip_suffix('"')?))
        })
        .collect::<Option<_>>()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

// HTTP request for the metrics of a role.

/// Maximum size of a response in bytes.
const ANSWER_BYTES: usize = 4 << 20;
/// Maximum number of headers of a response.
const HEADERS: usize = 64;

/// Error of fetching metrics.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("connection refused: no role serves metrics there")]
    Refused,
    #[error(transparent)]
    Io(std::io::Error),
    #[error("expected at most {ANSWER_BYTES} bytes of metrics")]
    TooLong,
    /// The status of the response; 0 if the response has none.
    #[error("expected status 200, got {0}")]
    Status(u16),
    #[error("the answer is incomplete")]
    Incomplete,
    #[error("expected HTTP, got something else: {0}")]
    NotHttp(httparse::Error),
}

/// Fetches the metrics page at an address.
///
/// # Errors
///
/// Nothing listens there, or the response is invalid or late.
pub(super) fn metrics(address: SocketAddr, within: Duration) -> Result<String, ScrapeError> {
    let deadline = Instant::now() + within;
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would mean none.
        if left.is_zero() {
            Err(ScrapeError::Late(within))
        } else {
            Ok(left)
        }
    };
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => ScrapeError::Late(within),
        std::io::ErrorKind::ConnectionRefused => ScrapeError::Refused,
        _ => ScrapeError::Io(error),
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?).map_err(failed)?;
    stream.set_write_timeout(Some(left()?)).map_err(failed)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        stream.set_read_timeout(Some(left()?)).map_err(failed)?;
        match stream.read(&mut bytes).map_err(failed)? {
            0 => break,
            length => answer.extend_from_slice(&bytes[..length]),
        }
        if answer.len() > ANSWER_BYTES {
            return Err(ScrapeError::TooLong);
        }
    }
    body(&answer)
}

fn body(answer: &[u8]) -> Result<String, ScrapeError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    match parsed.parse(answer) {
        Ok(httparse::Status::Complete(header)) => match parsed.code {
            Some(200) => Ok(String::from_utf8_lossy(&answer[header..]).into_owned()),
            code => Err(ScrapeError::Status(code.unwrap_or(0))),
        },
        Ok(httparse::Status::Partial) => Err(ScrapeError::Incomplete),
        Err(error) => Err(ScrapeError::NotHttp(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP doca_storage_build_info The program; always 1.
# TYPE doca_storage_build_info gauge
doca_storage_build_info{role=\"doca_storage_comch_to_rdma_gga_offload\",version=\"0.1.0\"} 1.0
doca_storage_operations_total{core=\"0\",kind=\"read\"} 5
doca_storage_operations_total{core=\"1\",kind=\"read\"} 7
doca_storage_bytes_total{core=\"1\",kind=\"write\"} 4096
doca_storage_errors_total{core=\"0\",kind=\"failed\"} 3
doca_storage_errors_total{core=\"0\",kind=\"refused\"} 2
doca_storage_sessions_total{result=\"failed\"} 1
doca_storage_redundancy_state{state=\"healthy\"} 0.0
doca_storage_redundancy_state{state=\"degraded\"} 1.0
doca_storage_target_online{target=\"data_1\"} 1.0
doca_storage_target_online{target=\"data_p\"} 0.0
doca_storage_missed_stripes 12.0
doca_storage_work_progress_ratio{work=\"rebuild\"} 0.25
doca_storage_work_progress_ratio{work=\"scrub\"} 1.0
doca_storage_latency_seconds_bucket{core=\"0\",le=\"0.000001\"} 1
doca_storage_latency_seconds_bucket{core=\"0\",le=\"0.000002\"} 9
doca_storage_latency_seconds_bucket{core=\"0\",le=\"+Inf\"} 10
doca_storage_of_the_future 1
process_resident_memory_bytes 1000000.0
";

    #[test]
    fn metrics_are_summed_over_the_cores() {
        let role = Role::parse(PAGE).expect("metrics");
        assert_eq!(role.short_name(), "gga-offload");
        assert_eq!((role.operations(), role.bytes()), (12, 4096));
        assert_eq!((role.error_count(), role.failed_sessions), (3, 1));
        assert_eq!(
            role.redundancy_text(),
            "degraded, without data_p, 12 missed, rebuild 25 %"
        );
        let latency = role.latency.expect("a histogram");
        assert_eq!((latency.p50, latency.p99), (0.000_002, f64::INFINITY));
        assert!(latency.since(&latency).p50.is_nan());
    }

    #[test]
    fn pages_of_other_programs_are_refused() {
        for page in ["", "up 1", "doca_storage_workers", "x{a=1} 2", "x y"] {
            assert!(Role::parse(page).is_err(), "{page}");
        }
    }
}

#[cfg(test)]
mod scrape_tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn serving(answer: &'static [u8]) -> Result<String, ScrapeError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 1024];
            let length = stream.read(&mut request).expect("a request");
            assert!(request[..length].starts_with(b"GET /metrics HTTP/1.1\r\n"));
            stream.write_all(answer).expect("sent");
        });
        let result = metrics(address, Duration::from_secs(60));
        server.join().expect("served");
        result
    }

    #[test]
    fn body_is_returned_on_success_only() {
        let page = serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na 1");
        assert_eq!(page.expect("a page"), "a 1");
        let missing = serving(b"HTTP/1.1 404 Not Found\r\n\r\n");
        assert!(matches!(missing, Err(ScrapeError::Status(404))));
        let other = serving(b"SSH-2.0-x\r\n");
        assert!(matches!(other, Err(ScrapeError::NotHttp(_))), "{other:?}");
        assert!(matches!(serving(b""), Err(ScrapeError::Incomplete)));
    }

    #[test]
    fn unresponsive_peer_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let limit = Duration::from_millis(50);
        let error = metrics(address, limit).expect_err("silence");
        assert!(
            matches!(error, ScrapeError::Late(within) if within == limit),
            "{error}"
        );
        drop(listener);
        let error = metrics(address, Duration::from_secs(60)).expect_err("refused");
        assert!(matches!(error, ScrapeError::Refused), "{error}");
    }
}
