//! Fetches the metrics of a role: one HTTP request.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Most bytes of an answer.
const ANSWER_BYTES: usize = 4 << 20;
/// Most headers of an answer.
const HEADERS: usize = 64;

/// The page of metrics at an address.
///
/// # Errors
///
/// Nothing listens there, or what does answers otherwise, or not within the time.
pub(super) fn metrics(address: SocketAddr, within: Duration) -> Result<String, String> {
    let deadline = Instant::now() + within;
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of zero is none.
        if left.is_zero() {
            Err(format!("no answer within {within:?}"))
        } else {
            Ok(left)
        }
    };
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            format!("no answer within {within:?}")
        }
        std::io::ErrorKind::ConnectionRefused => {
            "connection refused: no role serves metrics there".to_owned()
        }
        _ => error.to_string(),
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
            return Err(format!("expected at most {ANSWER_BYTES} bytes of metrics"));
        }
    }
    body(&answer)
}

fn body(answer: &[u8]) -> Result<String, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    match parsed.parse(answer) {
        Ok(httparse::Status::Complete(header)) => match parsed.code {
            Some(200) => Ok(String::from_utf8_lossy(&answer[header..]).into_owned()),
            code => Err(format!("expected status 200, got {}", code.unwrap_or(0))),
        },
        Ok(httparse::Status::Partial) => Err("the answer is incomplete".to_owned()),
        Err(error) => Err(format!("expected HTTP, got something else: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn serving(answer: &'static [u8]) -> Result<String, String> {
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
        assert_eq!(page.as_deref(), Ok("a 1"));
        let missing = serving(b"HTTP/1.1 404 Not Found\r\n\r\n").expect_err("404");
        assert!(missing.contains("got 404"), "{missing}");
        assert!(serving(b"SSH-2.0-x\r\n").is_err());
        assert!(serving(b"").is_err());
    }

    #[test]
    fn unresponsive_peer_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let error = metrics(address, Duration::from_millis(50)).expect_err("silence");
        assert!(error.contains("no answer within 50ms"), "{error}");
        drop(listener);
        let error = metrics(address, Duration::from_secs(60)).expect_err("refused");
        assert!(error.contains("connection refused"), "{error}");
    }
}
