//! Serves scrapers: HTTP/1.1, one request per connection.
//!
//! Resources per peer are limited: [`CONNECTIONS`] at a time, [`REQUEST_BYTES`] per request, and [`DEADLINE`] from the
//! connection to the last byte of the response. Further connections are closed.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, fs, thread};

use control::counts::{ProcessCount, REFUSED_CONNECTIONS, REFUSED_REQUESTS};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Count, Metrics, SUPPRESSED_LOG_LINES, State};

/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 8;
/// Maximum size of a request including its headers, in bytes.
const REQUEST_BYTES: usize = 8 << 10;
/// Maximum number of headers of a request.
const HEADERS: usize = 64;
/// Maximum duration of a connection.
const DEADLINE: Duration = Duration::from_secs(5);
/// Pause after `accept` has failed, for example because no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Bytes after a refused request that are read, so that the client sees the response and not a reset.
const DRAINED_BYTES: usize = 64 << 10;

/// Serves until the process ends.
pub(super) fn serve(listener: TcpListener, registry: Registry) -> io::Result<()> {
    started();
    let registry = Arc::new(registry);
    let accept = move || {
        loop {
            match listener.accept() {
                // Each connection being served holds one reference to the registry.
                Ok((stream, _)) if Arc::strong_count(&registry) <= CONNECTIONS => {
                    let registry = Arc::clone(&registry);
                    let serve = move || {
                        if let Err(error) = answer(&stream, &registry) {
                            tracing::debug!("metrics: {error}");
                        }
                    };
                    // If no thread can be created, the connection is closed.
                    let _ = thread::Builder::new()
                        .name("scrape".to_owned())
                        .spawn(serve);
                }
                Ok(_) => tracing::debug!("metrics: closed a connection, {CONNECTIONS} are served"),
                Err(error) => {
                    tracing::warn!("metrics: accept: {error}");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    };
    thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(accept)
        .map(|_| ())
}

/// Status line, content type and body of a response.
struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    fn refusal(status: &'static str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{status}\n"),
        }
    }
}

fn answer(stream: &TcpStream, registry: &Registry) -> io::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let mut request = Vec::with_capacity(1024);
    let answer = loop {
        if let Some(refusal) = judge(&request, registry) {
            break refusal;
        }
        let mut bytes = [0; 1024];
        stream.set_read_timeout(Some(left(deadline)?))?;
        match (&mut &*stream).read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => request.extend_from_slice(&bytes[..length]),
        }
    };
    let header = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nAllow: GET\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.content_type,
        answer.body.len()
    );
    let bytes = [header.as_bytes(), answer.body.as_bytes()].concat();
    let mut unsent = &bytes[..];
    while !unsent.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = (&mut &*stream).write(unsent)?;
        unsent = &unsent[sent..];
    }
    stream.shutdown(Shutdown::Write)?;
    let mut drained = 0;
    let mut bytes = [0; 1024];
    while drained < DRAINED_BYTES {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match (&mut &*stream).read(&mut bytes)? {
            0 => break,
            length => drained += length,
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    // A timeout of zero would mean none.
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Returns the response to a request, or `None` if the request is incomplete.
fn judge(request: &[u8], registry: &Registry) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(Answer::refusal("431 Request Header Fields Too Large"));
        }
        Err(_) => return Some(Answer::refusal("400 Bad Request")),
    }
    let path = parsed.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return Some(Answer::refusal("404 Not Found"));
    }
    if parsed.method != Some("GET") {
        return Some(Answer::refusal("405 Method Not Allowed"));
    }
    let mut body = String::new();
    Some(match prometheus_text::encode(&mut body, registry) {
        Ok(()) => Answer {
            status: "200 OK",
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body,
        },
        Err(_) => Answer::refusal("500 Internal Server Error"),
    })
}

#[derive(Debug)]
pub struct Page<'a>(DescriptorEncoder<'a>);

/// Name and value of a label.
pub type Label = (&'static str, String);

impl Page<'_> {
    /// Writes a gauge without labels.
    ///
    /// # Errors
    ///
    /// The page cannot be written. As for all functions here, an error aborts the page.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        encoder.encode_gauge(&value)
    }

    /// Writes a gauge with a value for each set of labels.
    ///
    /// # Errors
    ///
    /// As [`gauge`](Self::gauge).
    pub fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], f64)>,
    ) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            encoder.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes a counter with a value for each set of labels. `_total` is appended to its name.
    ///
    /// # Errors
    ///
    /// As [`gauge`](Self::gauge).
    pub fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label; N], u64)>,
    ) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            encoder
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// Writes a counter without labels. `_total` is appended to its name.
    ///
    /// # Errors
    ///
    /// As [`gauge`](Self::gauge).
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(super) fn counter_of_seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }
}

/// A metric of the workers: its name, its help text, and its counts with their label values.
struct Family {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    counts: &'static [(Count, &'static str)],
}

const FAMILIES: [Family; 6] = [
    Family {
        name: "doca_storage_operations",
        help: "I/Os that were answered, by kind",
        label: "kind",
        counts: &[
            (Count::Reads, "read"),
            (Count::Writes, "write"),
            (Count::Flushes, "flush"),
        ],
    },
    Family {
        name: "doca_storage_bytes",
        help: "Bytes of I/Os, by kind",
        label: "kind",
        counts: &[(Count::ReadBytes, "read"), (Count::WrittenBytes, "write")],
    },
    Family {
        name: "doca_storage_errors",
        help: "Errors of the data path, by kind",
        label: "kind",
        counts: &[
            (Count::Failed, "failed"),
            (Count::Refused, "refused"),
            (Count::MediaErrors, "media"),
            (Count::Incompressible, "incompressible"),
            (Count::Uncorrectable, "uncorrectable"),
            (Count::Unexpected, "unexpected_result"),
            (Count::FailedChunkReads, "chunk_read"),
        ],
    },
    Family {
        name: "doca_storage_redundant_blocks",
        help: "Blocks that were served by means of redundancy, by kind",
        label: "kind",
        counts: &[
            (Count::RecoveryReads, "recovery_read"),
            (Count::DegradedReads, "degraded_read"),
            (Count::DegradedWrites, "degraded_write"),
            (Count::CorrectedChunks, "corrected"),
        ],
    },
    Family {
        name: "doca_storage_progress_calls",
        help: "Calls of the progress engine, by result",
        label: "result",
        counts: &[
            (Count::ProgressHits, "hit"),
            (Count::ProgressMisses, "miss"),
        ],
    },
    Family {
        name: "doca_storage_in_flight",
        help: "Requests in flight",
        label: "",
        counts: &[(Count::InFlight, "")],
    },
];

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (Some(shared), Some(mut state)) = (&self.0, self.state()) else {
            return Ok(());
        };
        state.collect_ended();
        let mut page = Page(encoder);
        let info = [
            ("role", shared.role.to_owned()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        let help = "The program; always 1";
        page.gauges("doca_storage_build_info", help, [(info, 1.0)])?;
        write_workers(&mut page, &state)?;
        let result = |text: &str| [("result", text.to_owned())];
        page.counters(
            "doca_storage_sessions",
            "Sessions that have ended, by result",
            [
                (result("completed"), state.completed_sessions),
                (result("failed"), state.failed_sessions),
            ],
        )?;
        let processes: [(&str, &str, &ProcessCount); 3] = [
            (
                "doca_storage_refused_connections",
                "Connections that were refused",
                &REFUSED_CONNECTIONS,
            ),
            (
                "doca_storage_refused_requests",
                "Control requests that were answered with an error",
                &REFUSED_REQUESTS,
            ),
            (
                "doca_storage_log_lines_suppressed",
                "Log lines that were not written because there were too many of their kind",
                &SUPPRESSED_LOG_LINES,
            ),
        ];
        for (name, help, count) in processes {
            page.counter(name, help, count.get())?;
        }
        for section in &state.sections {
            section(&mut page)?;
        }
        write_process(&mut page)
    }
}

fn write_workers(page: &mut Page<'_>, state: &State) -> fmt::Result {
    let cores = state.by_core();
    let help = "Worker threads of the session that is being served";
    page.gauge("doca_storage_workers", help, state.workers.len() as f64)?;
    for family in &FAMILIES {
        let counts: Vec<_> = family
            .counts
            .iter()
            .filter(|(count, _)| state.declared.contains(count))
            .collect();
        if counts.is_empty() {
            continue;
        }
        let core = |core: &u32| ("core", core.to_string());
        if family.label.is_empty() {
            let values = cores
                .iter()
                .map(|(number, sums)| ([core(number)], sums.counts.get(counts[0].0) as f64));
            page.gauges(family.name, family.help, values)?;
            continue;
        }
        let values = cores.iter().flat_map(|(number, sums)| {
            counts.iter().map(move |(count, value)| {
                let labels = [core(number), (family.label, (*value).to_owned())];
                (labels, sums.counts.get(*count))
            })
        });
        page.counters(family.name, family.help, values)?;
    }
    if state.has_latencies {
        let help = "Time from the request of a transaction to its last answer";
        let name = "doca_storage_latency_seconds";
        let mut encoder = page
            .0
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (number, sums) in &cores {
            let labels = [("core", number.to_string())];
            let buckets = sums.latencies.buckets();
            let total = buckets.iter().map(|(_, number)| number).sum();
            let seconds = sums.latencies.nanoseconds as f64 / 1e9;
            encoder
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(seconds, total, &buckets, None)?;
        }
    }
    Ok(())
}

// Process metrics from the kernel, under the names that Prometheus' own clients use.

/// Writes resident memory, CPU time, open descriptors and start time of the process. Values that the kernel does not
/// report are omitted.
fn write_process(page: &mut Page<'_>) -> fmt::Result {
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory in bytes";
        page.gauge("process_resident_memory_bytes", help, bytes as f64)?;
    }
    if let Some(seconds) = cpu_seconds() {
        page.counter_of_seconds("process_cpu_seconds", "CPU time in seconds", seconds)?;
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        let help = "Open file descriptors";
        page.gauge("process_open_fds", help, descriptors.count() as f64)?;
    }
    let help = "Start of the metrics in seconds since 1970";
    page.gauge("process_start_time_seconds", help, started())
}

/// Time of the first call, in seconds since 1970.
pub(super) fn started() -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().as_secs_f64()
    })
}

fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks =
        |field: usize| -> Option<u64> { fields.split_whitespace().nth(field)?.parse().ok() };
    let (user, system) = (ticks(11)?, ticks(12)?);
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod process_tests {
    use super::*;

    #[test]
    fn memory_and_time_of_this_process_are_plausible() {
        let resident = resident_bytes().expect("/proc");
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
        let seconds = cpu_seconds().expect("/proc");
        assert!((0.0..1e6).contains(&seconds), "{seconds}");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        serve(listener, Registry::default()).expect("a thread");
        address
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(request).expect("sent");
        stream.shutdown(Shutdown::Write).expect("shut down");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn requests_get_the_right_status() {
        let address = server();
        let many = "x: y\r\n".repeat(HEADERS + 1);
        let long = format!(
            "GET /metrics HTTP/1.1\r\nx: {}",
            "y".repeat(2 * REQUEST_BYTES)
        );
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
            (&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"), "431"),
            (&long, "431"),
        ] {
            let answer = ask(address, request.as_bytes());
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{request:.40}: {answer}");
        }
    }

    #[test]
    fn idle_connections_block_scrapers_at_most_until_the_deadline() {
        let address = server();
        let begin = Instant::now();
        let idle: Vec<_> = (0..CONNECTIONS)
            .map(|_| TcpStream::connect(address).expect("connected"))
            .collect();
        // All slots are taken, so further connections are closed until the deadline has passed.
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        let was_closed = |mut stream: TcpStream| {
            let _ = stream.write_all(request);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer.is_empty()
        };
        let mut refused = 0;
        while was_closed(TcpStream::connect(address).expect("connected")) {
            refused += 1;
            assert!(begin.elapsed() < DEADLINE + Duration::from_secs(60));
            thread::sleep(Duration::from_millis(20));
        }
        assert!(refused > 0 && begin.elapsed() >= DEADLINE / 2, "{refused}");
        drop(idle);
    }
}
