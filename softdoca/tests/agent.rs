//! Calls between processes through their agents.

mod process;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use process::{Peer, from_hex, hear, say, to_hex};
use softdoca::agent::{self, AgentAddress, Handler, MAX_PAYLOAD, PublishGuard, Reply};
use softdoca::error::Error;
use softdoca::runtime::Key;

/// A service that answers with its payload reversed and the same descriptors, and reports calls and closed connections.
fn publish() -> (PublishGuard, Receiver<String>) {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let handler: Handler = Arc::new(move |request| {
        let sender = sender.lock().unwrap().clone();
        match request.payload {
            b"refuse" => return Err(Error::Full),
            b"panic" => panic!("on purpose"),
            _ => {}
        }
        sender
            .send(String::from_utf8_lossy(request.payload).into_owned())
            .unwrap();
        let payload = request.payload.iter().rev().copied().collect();
        let id = request.connection;
        // The test may have dropped the receiver.
        let on_close = Box::new(move || drop(sender.send(format!("{id:?} closed"))));
        Ok(Reply {
            payload,
            fds: request.fds,
            on_close: Some(on_close),
        })
    });
    (
        agent::publish(Key::random().unwrap(), handler).unwrap(),
        receiver,
    )
}

fn address(guard: &PublishGuard) -> String {
    let mut bytes = AgentAddress::local().unwrap().encode().to_vec();
    bytes.extend(guard.key().to_bytes());
    to_hex(&bytes)
}

fn parse(text: &str) -> (AgentAddress, Key) {
    let bytes = from_hex(text);
    let (address, key) = bytes.split_first_chunk().unwrap();
    (
        AgentAddress::decode(address),
        Key::from_bytes(key.try_into().unwrap()),
    )
}

#[test]
fn a_service_is_called_and_notified_of_closed_connections() {
    const NAME: &str = "a_service_is_called_and_notified_of_closed_connections";
    fn main() {
        let (guard, events) = publish();
        let next = || events.recv_timeout(Duration::from_secs(5)).unwrap();
        for dies in [false, true] {
            let mut caller = Peer::start(NAME, "caller");
            caller.tell(&address(&guard));
            assert_eq!(caller.answer(), "called");
            assert_eq!(next(), "hello");
            assert!(events.try_recv().is_err(), "the connection stays open");
            if dies {
                caller.kill();
            } else {
                caller.tell("end");
                caller.finish();
            }
            assert!(next().ends_with("closed"));
        }
    }
    fn caller() {
        let (address, key) = parse(&hear());
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let (connection, answer, fds) =
            agent::request(&address, key, b"hello", &[file.as_fd()]).unwrap();
        assert_eq!((&answer[..], fds.len()), (&b"olleh"[..], 1));
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(&fds[0]), inode(&file));
        assert!(!connection.is_closed());
        say("called");
        assert_eq!(hear(), "end");
    }
    process::run(NAME, main, &[("caller", caller)]);
}

#[test]
fn callers_get_errors_and_detect_a_withdrawn_service() {
    const NAME: &str = "callers_get_errors_and_detect_a_withdrawn_service";
    fn main() {
        let (guard, events) = publish();
        let (address, key) = parse(&address(&guard));
        assert_eq!(
            agent::request(&address, key, b"refuse", &[]).unwrap_err(),
            Error::Full
        );
        assert_eq!(
            agent::request(&address, key, b"panic", &[]).unwrap_err(),
            Error::Unexpected
        );
        assert_eq!(
            agent::request(&address, Key::random().unwrap(), b"x", &[]).unwrap_err(),
            Error::NotFound
        );
        assert_eq!(
            agent::request(&address, key, &vec![0; MAX_PAYLOAD + 1], &[]).unwrap_err(),
            Error::TooBig
        );
        let (connection, answer, _) =
            agent::request(&address, key, &vec![b'a'; MAX_PAYLOAD], &[]).unwrap();
        assert_eq!(answer.len(), MAX_PAYLOAD);
        let (other, _other_events) = publish();
        drop(guard);
        // The caller sees the end of the connection; the service requested it and is not notified.
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while !connection.is_closed() {
            assert!(std::time::Instant::now() < deadline);
        }
        assert_eq!(events.iter().count(), 1, "only the call");
        assert_eq!(
            agent::request(&address, key, b"x", &[]).unwrap_err(),
            Error::NotFound
        );
        drop(other);
        assert_eq!(
            agent::request(&address, key, b"x", &[]).unwrap_err(),
            Error::NotFound
        );
    }
    process::run(NAME, main, &[]);
}

#[test]
fn the_agent_survives_malformed_requests() {
    const NAME: &str = "the_agent_survives_malformed_requests";
    fn main() {
        use softdoca::runtime::{RuntimeDir, Socket};
        let (guard, _events) = publish();
        let (address, key) = parse(&address(&guard));
        let directory = RuntimeDir::get().unwrap();
        let name = std::fs::read_dir(directory.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .file_name();
        for garbage in [
            &b"x"[..],
            &[0; 56],
            &[0xff; 1000],
            b"SDrq\x01\x00\x06\x00",
            &[0; 65536],
        ] {
            let socket = Socket::connect(&directory, name.to_str().unwrap()).unwrap();
            socket.send(garbage, &[socket.as_fd(); 16]).unwrap();
            socket.wait_readable(Duration::from_secs(5)).unwrap();
            let received = socket.receive(&mut [0; 100], &mut Vec::new());
            assert!(
                matches!(received, Ok(None) | Err(Error::ConnectionReset)),
                "{received:?}"
            );
        }
        assert!(agent::request(&address, key, b"still there", &[]).is_ok());
    }
    process::run(NAME, main, &[]);
}

#[test]
fn the_agent_starts_and_stops_with_its_users() {
    const NAME: &str = "the_agent_starts_and_stops_with_its_users";
    fn main() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..50 {
                        let (guard, _events) = publish();
                        let (address, key) = parse(&address(&guard));
                        let (_, answer, _) = agent::request(&address, key, b"ab", &[]).unwrap();
                        assert_eq!(answer, b"ba");
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let directory = std::env::var("SOFTDOCA_RUNTIME_DIR").unwrap();
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
    }
    process::run(NAME, main, &[]);
}
