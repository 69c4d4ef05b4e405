//! One connection through the relay.

use std::io::{self, ErrorKind, Read as _, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Recorder, TICK, passing};
use crate::transcript::{Event, Piece, Side, Splitter};

/// How long a server may take to answer, and how long one that refuses is asked again: it may be about to start.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Most bytes that are read, and so passed on, at once.
const CHUNK: usize = 65536;

/// One connection, from its beginning to its end.
pub(super) fn serve<W: Write + Send>(
    client: TcpStream,
    server: &str,
    recorder: &Recorder<W>,
    place: (u32, u32),
    stop: &(dyn Fn() -> bool + Sync),
) {
    recorder.record(place, Some(Side::Client), Event::Opened);
    let server = match connect(server, stop) {
        Ok(stream) => stream,
        Err(error) => {
            let why = format!("cannot connect to {server}: {error}");
            recorder.record(place, None, Event::Failed(why));
            reset_when_dropped(&client);
            return;
        }
    };
    let session = Session {
        client,
        server,
        recorder,
        place,
        failed: AtomicBool::new(false),
        stop,
    };
    if let Err(error) = session.prepare() {
        session.fail(None, &error);
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| session.pump(Side::Client));
        session.pump(Side::Server);
    });
}

fn connect(server: &str, stop: &dyn Fn() -> bool) -> io::Result<TcpStream> {
    let deadline = Instant::now() + CONNECT_PATIENCE;
    loop {
        match connect_once(server) {
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused
                    && Instant::now() < deadline
                    && !stop() =>
            {
                std::thread::sleep(TICK);
            }
            result => return result,
        }
    }
}

/// With a limit for those who never answer.
fn connect_once(server: &str) -> io::Result<TcpStream> {
    let mut result = Err(io::Error::other("the name has no address"));
    for address in server.to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, CONNECT_PATIENCE);
        if result.is_ok() {
            break;
        }
    }
    result
}

struct Session<'a, W> {
    client: TcpStream,
    server: TcpStream,
    recorder: &'a Recorder<W>,
    place: (u32, u32),
    /// The connection has failed, and the other direction is of no use any more.
    failed: AtomicBool,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl<W: Write> Session<'_, W> {
    fn prepare(&self) -> io::Result<()> {
        for stream in [&self.client, &self.server] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(TICK))?;
            stream.set_write_timeout(Some(TICK))?;
        }
        Ok(())
    }

    fn stream(&self, side: Side) -> &TcpStream {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    fn is_over(&self) -> bool {
        self.failed.load(Ordering::Acquire) || (self.stop)()
    }

    /// Passes on what comes from `side`, until that has ended.
    fn pump(&self, side: Side) {
        let (mut from, to) = (self.stream(side), self.stream(side.peer()));
        let record = |event| self.recorder.record(self.place, Some(side), event);
        let mut splitter = Splitter::new();
        let mut buffer = vec![0; CHUNK];
        loop {
            match from.read(&mut buffer) {
                Ok(0) if self.failed.load(Ordering::Acquire) => break,
                Ok(0) => {
                    splitter
                        .rest()
                        .into_iter()
                        .for_each(|bytes| record(Event::Raw(bytes)));
                    record(Event::Closed);
                    // It may have gone itself, which its own direction will tell.
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(count) => {
                    // Written down first, so that no answer stands before its request.
                    splitter.push(&buffer[..count]);
                    while let Some(piece) = splitter.next() {
                        record(match piece {
                            Piece::Frame(frame) => Event::Frame(frame),
                            Piece::Raw(bytes) => Event::Raw(bytes),
                        });
                    }
                    if let Err(error) = self.forward(to, &buffer[..count]) {
                        self.fail(Some(side.peer()), &error);
                        break;
                    }
                }
                Err(error) if passing(&error) => {
                    if self.is_over() {
                        break;
                    }
                }
                Err(error) => {
                    self.fail(Some(side), &error);
                    break;
                }
            }
        }
        splitter
            .rest()
            .into_iter()
            .for_each(|bytes| record(Event::Raw(bytes)));
    }

    fn forward(&self, mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match to.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if passing(&error) && !self.is_over() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The connection with `side` has failed: the other side is to see the same, and this one that all is over.
    fn fail(&self, side: Option<Side>, error: &io::Error) {
        if self.failed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.recorder
            .record(self.place, side, Event::Failed(error.to_string()));
        for stream in [&self.client, &self.server] {
            reset_when_dropped(stream);
            // Wakes the other direction's thread.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }
}

/// The peer gets a reset instead of an orderly end. At worst it gets the latter.
fn reset_when_dropped(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
