use std::io::{Read as _, Write};
use std::net::Shutdown;
use std::sync::Mutex;

use wire::control::{Message, Payload};

use super::*;
use crate::transcript::{Entry, Event, Frame, Header, Role, Side, Transcript};

/// Runs `play` with the address of a relay to `server`, and returns the recording of one session.
fn recorded(server: String, play: impl FnOnce(std::net::SocketAddr)) -> Vec<Entry> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let relay = Relay {
        channels: vec![(listener, server.clone())],
        timeout: Duration::from_millis(100),
        sessions: Some(1),
    };
    let header = Header {
        client: Role::Service,
        server: Role::Target,
        start_unix_ns: 0,
        channels: vec![server],
        recorder: String::new(),
    };
    let mut file = Vec::new();
    let recorder = Recorder::new(&mut file, &header).expect("memory");
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| relay.run(&recorder, &|| false));
        play(address);
        relay.join().expect("no panic").expect("a good relay");
    });
    recorder.finish().expect("memory");
    let transcript = Transcript::from_reader(&file[..]).expect("a transcript");
    assert!(transcript.is_whole());
    transcript.entries
}

fn server() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

fn query() -> Message {
    Message {
        message_id: 1,
        correlation_id: 2,
        payload: Payload::QueryStorageRequest,
    }
}

fn events(entries: Vec<Entry>) -> Vec<(Option<Side>, Event)> {
    entries
        .into_iter()
        .map(|entry| (entry.from, entry.event))
        .collect()
}

#[test]
fn bytes_are_forwarded_unchanged_and_each_side_closes_alone() {
    let (listener, address) = server();
    let garbage: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let sent = [query().encode_to_vec(), garbage].concat();
    let answer = [b"\0\0".to_vec(), sent.clone()].concat();
    let entries = recorded(address, |relay| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut came = Vec::new();
                stream.read_to_end(&mut came).expect("the client's bytes");
                assert!(came == sent, "{} bytes came", came.len());
                // The client has closed its sending direction and still receives.
                stream.write_all(&answer).expect("the client listens");
            });
            let mut client = TcpStream::connect(relay).expect("the relay");
            client.write_all(&sent).expect("the server listens");
            client.shutdown(Shutdown::Write).expect("connected");
            let mut came = Vec::new();
            client.read_to_end(&mut came).expect("the server's bytes");
            assert!(came == answer, "{} bytes came", came.len());
        });
    });
    assert_eq!(entries[0].event, Event::Opened);
    assert_eq!(entries[1].event, Event::Frame(Frame::of(query())));
    for (side, expected) in [(Side::Client, &sent), (Side::Server, &answer)] {
        let own: Vec<&Entry> = entries
            .iter()
            .filter(|entry| entry.from == Some(side))
            .collect();
        let bytes: Vec<u8> = own
            .iter()
            .flat_map(|entry| match &entry.event {
                Event::Frame(frame) => frame.to_bytes().to_vec(),
                Event::Raw(bytes) => bytes.to_vec(),
                _ => Vec::new(),
            })
            .collect();
        assert!(bytes == *expected, "{side:?}: {} bytes", bytes.len());
        assert_eq!(own.last().expect("entries").event, Event::Closed);
    }
    assert!(entries.is_sorted_by_key(|entry| entry.time));
}

#[test]
fn incomplete_frame_is_recorded_as_raw_bytes() {
    let (listener, address) = server();
    let half = query().encode_to_vec()[..7].to_vec();
    let entries = recorded(address, |relay| {
        let mut client = TcpStream::connect(relay).expect("the relay");
        client.write_all(&half).expect("the server listens");
        let (mut stream, _) = listener.accept().expect("a client");
        // It is forwarded although it is incomplete.
        let mut came = [0; 7];
        stream.read_exact(&mut came).expect("the client's bytes");
        drop(client);
        assert_eq!(stream.read(&mut came).expect("an orderly end"), 0);
    });
    let client = Some(Side::Client);
    let expected = [
        (client, Event::Opened),
        (client, Event::Raw(half.into())),
        (client, Event::Closed),
        (Some(Side::Server), Event::Closed),
        (None, Event::Ended),
    ];
    assert_eq!(events(entries), expected);
}

#[test]
fn reset_is_forwarded_as_a_reset() {
    let (listener, address) = server();
    let entries = recorded(address, |relay| {
        let mut client = TcpStream::connect(relay).expect("the relay");
        let (mut stream, _) = listener.accept().expect("a client");
        // Once a byte has arrived, the relay is connected; a failed connection would be another failure.
        client.write_all(&[0]).expect("the relay reads");
        stream.read_exact(&mut [0]).expect("the client's byte");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
        drop(stream);
        let error = client.read(&mut [0]).expect_err("no orderly end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
    let failed = |entry: &Entry| {
        entry.from == Some(Side::Server) && matches!(&entry.event, Event::Failed(_))
    };
    assert!(entries.iter().any(failed), "{entries:?}");
}

#[test]
fn missing_server_causes_a_reset_and_an_entry() {
    let (listener, address) = server();
    drop(listener);
    let entries = recorded(address.clone(), |relay| {
        let mut client = TcpStream::connect(relay).expect("the relay");
        let error = client.read(&mut [0]).expect_err("no orderly end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
    let Event::Failed(why) = &entries[1].event else {
        panic!("a failure: {entries:?}");
    };
    assert!(why.contains(&address) && why.contains("refused"), "{why}");
}

#[test]
fn failed_recording_does_not_affect_the_deployment() {
    /// Accepts only the header.
    struct Full(Mutex<bool>);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match std::mem::replace(self.0.get_mut().expect("one thread"), true) {
                false => Ok(bytes.len()),
                true => Err(io::Error::other("no space left")),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let header = Header {
        client: Role::Service,
        server: Role::Target,
        start_unix_ns: 0,
        channels: Vec::new(),
        recorder: String::new(),
    };
    let recorder = Recorder::new(Full(Mutex::new(false)), &header).expect("room for the header");
    let (target, address) = server();
    let (listener, relay_address) = server();
    let relay = Relay {
        channels: vec![(listener, address)],
        timeout: Duration::from_millis(100),
        sessions: Some(1),
    };
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| relay.run(&recorder, &|| false));
        let mut client = TcpStream::connect(relay_address).expect("the relay");
        client.write_all(b"ping").expect("the server listens");
        let (mut stream, _) = target.accept().expect("a client");
        let mut came = [0; 4];
        stream.read_exact(&mut came).expect("the client's bytes");
        assert_eq!(&came, b"ping");
        drop((client, stream));
        relay.join().expect("no panic").expect("a good relay");
    });
    let error = recorder.finish().expect_err("no room");
    assert!(error.to_string().contains("no space left"), "{error}");
}
