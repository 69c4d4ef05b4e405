use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use wire::control::{Message, MessageType, Payload};

use super::*;

/// A client and a server with a relay between them.
struct Connected {
    line: FaultyLine,
    client: TcpStream,
    server: TcpStream,
}

impl Connected {
    fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let line = FaultyLine::start(&[port]).expect("a port");
        let client = TcpStream::connect(("127.0.0.1", line.ports()[0])).expect("the line");
        let (server, _) = listener.accept().expect("the line");
        for stream in [&client, &server] {
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("a socket");
        }
        Self {
            line,
            client,
            server,
        }
    }

    fn hold(&self, message: MessageType, after: u32) -> Trap {
        self.line.hold(Moment {
            channel: 0,
            message,
            after,
        })
    }

    fn server_reads(&mut self, expected: &[u8]) {
        let mut came = vec![0; expected.len()];
        self.server.read_exact(&mut came).expect("what was sent");
        assert_eq!(came, expected);
    }
}

fn default_deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn message(id: u32, payload: Payload) -> Vec<u8> {
    let message = Message {
        message_id: id,
        correlation_id: 0,
        payload,
    };
    message.encode_to_vec()
}

fn query(id: u32) -> Vec<u8> {
    message(id, Payload::QueryStorageRequest)
}

#[test]
fn frame_is_held_until_released_and_earlier_ones_pass() {
    let mut it = Connected::new();
    let trap = it.hold(MessageType::QueryStorageRequest, 1);
    let start = message(3, Payload::StartStorageRequest);
    let sent = [query(1), query(2), start.clone()].concat();
    it.client.write_all(&sent).expect("sent");
    it.server_reads(&query(1));
    let held = trap
        .wait(default_deadline(), || false)
        .expect("the second one");
    assert_eq!(held.message().message_id, 2);
    let short = Duration::from_millis(100);
    it.server.set_read_timeout(Some(short)).expect("a socket");
    let error = it.server.read(&mut [0]).expect_err("nothing yet");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    held.pass();
    it.server
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a socket");
    it.server_reads(&[query(2), start].concat());
    // The other direction was not blocked meanwhile.
    it.server.write_all(b"answer").expect("sent");
    drop(it.server);
    let mut answer = Vec::new();
    it.client.read_to_end(&mut answer).expect("the answer");
    assert_eq!(answer, b"answer");
}

#[test]
fn held_frame_can_be_replaced() {
    let mut it = Connected::new();
    let trap = it.hold(MessageType::QueryStorageRequest, 0);
    it.client.write_all(&query(1)).expect("sent");
    let held = trap.wait(default_deadline(), || false).expect("a frame");
    held.replace(&b"garbage"[..]);
    it.client.write_all(&query(2)).expect("sent");
    it.server_reads(&[b"garbage".to_vec(), query(2)].concat());
}

#[test]
fn connection_can_be_cut_inside_a_frame() {
    for (end, kept) in [(End::Close, 7), (End::Reset, 0)] {
        let mut it = Connected::new();
        let trap = it.hold(MessageType::QueryStorageRequest, 0);
        it.client.write_all(&query(1)).expect("sent");
        trap.wait(default_deadline(), || false)
            .expect("a frame")
            .cut(kept, end);
        it.server_reads(&query(1)[..kept]);
        for stream in [&mut it.server, &mut it.client] {
            let read = stream.read(&mut [0]);
            match end {
                End::Close => assert_eq!(read.expect("an orderly end"), 0),
                End::Reset => {
                    let error = read.expect_err("a reset").kind();
                    assert_eq!(error, ErrorKind::ConnectionReset);
                }
            }
        }
    }
}

#[test]
fn cuts_sends_and_delays_take_effect_at_once() {
    let mut it = Connected::new();
    it.line.send(0, Side::Client, &b"not held"[..]);
    it.server_reads(b"not held");
    let delay = Duration::from_millis(200);
    it.line.delay(0, delay);
    let started = Instant::now();
    it.client.write_all(&query(1)).expect("sent");
    it.server_reads(&query(1));
    assert!(started.elapsed() >= delay, "{:?}", started.elapsed());
    // A held frame does not delay a cut.
    let trap = it.hold(MessageType::QueryStorageRequest, 0);
    it.client.write_all(&query(2)).expect("sent");
    let held = trap.wait(default_deadline(), || false).expect("a frame");
    it.line.cut(0, End::Close);
    assert_eq!(it.client.read(&mut [0]).expect("an orderly end"), 0);
    assert!(
        !it.line.settle(Duration::ZERO),
        "one direction holds a frame"
    );
    held.pass();
    assert!(it.line.settle(Duration::from_secs(5)));
    assert_eq!(it.server.read(&mut [0]).expect("an orderly end"), 0);
    assert_eq!(it.line.connections(0), 1);
}

#[test]
fn dropped_relay_releases_held_frames() {
    let mut it = Connected::new();
    let trap = it.hold(MessageType::QueryStorageRequest, 0);
    it.client.write_all(&query(1)).expect("sent");
    let held = trap.wait(default_deadline(), || false).expect("a frame");
    let never = it.hold(MessageType::StopStorageRequest, 0);
    drop(it.line);
    assert!(never.wait(default_deadline(), || false).is_none());
    drop(held);
    let mut rest = Vec::new();
    // The connection may be closed or reset.
    let _ = it.client.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn dropped_trap_holds_no_frame() {
    let mut it = Connected::new();
    drop(it.hold(MessageType::QueryStorageRequest, 0));
    it.client.write_all(&query(1)).expect("sent");
    it.server_reads(&query(1));
}

#[test]
fn new_connection_waits_for_the_previous_one_and_can_be_redirected() {
    let it = Connected::new();
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = other.local_addr().expect("an address").port();
    it.line.redirect(0, port);
    other.set_nonblocking(true).expect("a socket");
    let mut next = TcpStream::connect(("127.0.0.1", it.line.ports()[0])).expect("the line");
    std::thread::sleep(Duration::from_millis(200));
    let error = other.accept().expect_err("the first one is still there");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop((it.client, it.server));
    other.set_nonblocking(false).expect("a socket");
    let (mut server, _) = other.accept().expect("the line");
    next.write_all(b"hello").expect("sent");
    let mut came = [0; 5];
    server.read_exact(&mut came).expect("what was sent");
    assert_eq!(&came, b"hello");
}
