//! The control side of the scripted target: one TCP connection, one session.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use wire::control::{FrameDecoder, Message, Payload};

use super::{Error, Script, Session};

/// How long nothing is polled while nothing can happen.
const PAUSE: Duration = Duration::from_millis(1);

/// Serves one session, until the service has shut it down or has gone. Answers what it leaves in the storage.
pub(super) fn serve(listener: &TcpListener, script: &Script) -> Result<Vec<u8>, Error> {
    let mut session = Session::new(script)?;
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let mut connection = Connection {
        stream,
        decoder: FrameDecoder::new(),
    };
    loop {
        match connection.receive()? {
            Received::Message(request) if session.withholds(&request.payload) => {}
            Received::Message(request) => {
                let response = session.answer(&request.payload)?;
                let last = matches!(request.payload, Payload::ShutdownRequest);
                connection.send(&request.response(response))?;
                if last {
                    break;
                }
            }
            Received::Closed => break,
            Received::Nothing if session.is_running() => session.progress()?,
            Received::Nothing => std::thread::sleep(PAUSE),
        }
    }
    session.into_content()
}

struct Connection {
    stream: TcpStream,
    decoder: FrameDecoder,
}

enum Received {
    Message(Message),
    Nothing,
    Closed,
}

impl Connection {
    fn receive(&mut self) -> Result<Received, Error> {
        if let Some(message) = self.decoder.next()? {
            return Ok(Received::Message(message));
        }
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Ok(Received::Closed),
            Ok(count) => {
                self.decoder.push(&bytes[..count]);
                Ok(self
                    .decoder
                    .next()?
                    .map_or(Received::Nothing, Received::Message))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Received::Closed),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self, message: &Message) -> Result<(), Error> {
        let bytes = message.encode_to_vec();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(PAUSE)
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
