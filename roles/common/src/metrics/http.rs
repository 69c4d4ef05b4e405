//! Serves scrapers: HTTP/1.1, one request per connection.
//!
//! Resources per peer are limited: [`CONNECTIONS`] at a time, [`REQUEST_BYTES`] per request, and [`DEADLINE`] from the
//! connection to the last byte of the response. Further connections are closed.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use super::page::started;

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
