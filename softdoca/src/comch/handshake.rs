//! The first frames of a connection, before it is established.

use std::os::fd::{AsFd, OwnedFd};

use super::frame::{Frame, Hello, VERSION};
use crate::error::{Error, Result};
use crate::runtime::{Socket, is_unix_socket, named_socket};

/// Size of the receive buffer in bytes; no frame of a handshake is as long.
const SCRATCH: usize = 1024;

/// Result of waiting for the peer's first frame.
#[derive(Debug)]
pub(super) enum Arrival<T> {
    /// No frame has arrived.
    Waiting,
    /// The peer has closed the connection without sending a frame.
    Gone,
    /// The frame received is invalid or not expected here.
    Faulty(String),
    Here(T),
}

/// A client that requests a connection.
#[derive(Debug)]
pub(super) struct Caller {
    pub version: u32,
    pub max_message: u32,
    pub function: String,
    pub server: String,
    pub lifeline: OwnedFd,
}

/// The server's reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted { max_message: u32 },
    Refused { code: u32, reason: String },
}

/// Name of the socket on which the server `name` listens for clients on the function at PCI address `function`.
pub(super) fn socket_name(function: &str, name: &str) -> String {
    named_socket("comch", &[function, name])
}

/// Sends the client's hello. Returns the client's end of the lifeline.
pub(super) fn say_hello(
    socket: &Socket,
    function: &str,
    server: &str,
    max_message: u32,
) -> Result<OwnedFd> {
    let (ours, theirs) = Socket::pair()?;
    let hello = Frame::Hello(Hello {
        version: VERSION,
        max_message,
        function,
        server,
    });
    socket.send(&hello.encode(), &[theirs.as_fd()])?;
    Ok(rustix::io::fcntl_dupfd_cloexec(&ours, 3)?)
}

/// Receives a client's hello, without blocking.
pub(super) fn hear_hello(socket: &Socket) -> Arrival<Caller> {
    receive(socket, |frame, mut descriptors| {
        let Frame::Hello(hello) = frame else {
            return Err("expected a hello as the first frame".into());
        };
        let lifeline = match (descriptors.pop(), descriptors.is_empty()) {
            // A descriptor that never hangs up would hide the peer's death.
            (Some(lifeline), true) if is_unix_socket(&lifeline) => lifeline,
            _ => return Err("expected one socket with the hello".into()),
        };
        Ok(Caller {
            version: hello.version,
            max_message: hello.max_message,
            function: hello.function.to_owned(),
            server: hello.server.to_owned(),
            lifeline,
        })
    })
}

/// Accepts a client.
pub(super) fn accept(socket: &Socket, max_message: u32) -> Result<()> {
    socket.send(&Frame::Accept { max_message }.encode(), &[])
}

/// Refuses a client with a reason.
pub(super) fn refuse(socket: &Socket, error: Error, reason: &str) {
    let code = error.code();
    // Ignored: a client that has disconnected needs no reply.
    let _ = socket.send(&Frame::Refuse { code, reason }.encode(), &[]);
}

/// Receives the server's reply, without blocking.
pub(super) fn hear_answer(socket: &Socket) -> Arrival<Answer> {
    receive(socket, |frame, descriptors| match frame {
        Frame::Accept { max_message } if descriptors.is_empty() => {
            Ok(Answer::Accepted { max_message })
        }
        Frame::Refuse { code, reason } if descriptors.is_empty() => Ok(Answer::Refused {
            code,
            reason: reason.to_owned(),
        }),
        _ => Err("expected the answer to a hello as the first frame".into()),
    })
}

fn receive<T>(
    socket: &Socket,
    take: impl FnOnce(Frame<'_>, Vec<OwnedFd>) -> std::result::Result<T, String>,
) -> Arrival<T> {
    let mut scratch = [0; SCRATCH];
    let mut descriptors = Vec::new();
    let len = match socket.receive(&mut scratch, &mut descriptors) {
        Ok(Some(len)) => len,
        Ok(None) => return Arrival::Gone,
        Err(Error::Again) => return Arrival::Waiting,
        Err(error) => return Arrival::Faulty(error.to_string()),
    };
    match Frame::decode(&scratch[..len]) {
        Ok(frame) => match take(frame, descriptors) {
            Ok(value) => Arrival::Here(value),
            Err(reason) => Arrival::Faulty(reason),
        },
        Err(malformed) => Arrival::Faulty(malformed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_accepted_or_refused() {
        let (client, server) = Socket::pair().unwrap();
        assert!(matches!(hear_hello(&server), Arrival::Waiting));
        let lifeline = say_hello(&client, "0000:3b:00.0", "name", 100).unwrap();
        let Arrival::Here(caller) = hear_hello(&server) else {
            panic!("a hello was sent");
        };
        assert_eq!((caller.version, caller.max_message), (VERSION, 100));
        assert_eq!(
            (caller.function.as_str(), caller.server.as_str()),
            ("0000:3b:00.0", "name")
        );
        drop(caller);
        let mut poll = [rustix::event::PollFd::new(
            &lifeline,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(rustix::event::poll(&mut poll, None), Ok(1), "it hangs up");

        accept(&server, 100).unwrap();
        refuse(&server, Error::Full, "full");
        drop(server);
        assert!(matches!(
            hear_answer(&client),
            Arrival::Here(Answer::Accepted { max_message: 100 })
        ));
        let Arrival::Here(Answer::Refused { code, reason }) = hear_answer(&client) else {
            panic!("a refusal was sent");
        };
        assert_eq!((code, reason.as_str()), (Error::Full.code(), "full"));
        assert!(matches!(hear_answer(&client), Arrival::Gone));
    }

    #[test]
    fn frames_other_than_the_handshakes_are_refused() {
        let (client, server) = Socket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let hello = Frame::Hello(Hello {
            version: VERSION,
            max_message: 1,
            function: "f",
            server: "s",
        })
        .encode();
        client.send(b"?", &[]).unwrap();
        client.send(&hello, &[]).unwrap();
        client.send(&hello, &[file.as_fd()]).unwrap();
        client.send(&Frame::Message(b"x").encode(), &[]).unwrap();
        for _ in 0..4 {
            assert!(matches!(hear_hello(&server), Arrival::Faulty(_)));
        }
        server.send(&hello, &[]).unwrap();
        assert!(matches!(hear_answer(&client), Arrival::Faulty(_)));
    }
}
