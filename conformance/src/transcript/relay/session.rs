//! One connection through the relay.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Action, End, Interceptor, Place, TICK, passing};
use crate::transcript::{Event, Piece, Side, Splitter};

/// How long a server may take to answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Most bytes that are read, and so passed on, at once.
const CHUNK: usize = 65536;

/// One connection, from its beginning to its end.
pub(super) fn serve(
    client: TcpStream,
    server: &str,
    patience: Duration,
    interceptor: &impl Interceptor,
    place: Place,
    stop: &(dyn Fn() -> bool + Sync),
) {
    relay(client, server, patience, interceptor, place, stop);
    interceptor.ended(place);
}

fn relay(
    client: TcpStream,
    server: &str,
    patience: Duration,
    interceptor: &impl Interceptor,
    place: Place,
    stop: &(dyn Fn() -> bool + Sync),
) {
    let server = interceptor.route(place, server);
    let server = server.as_str();
    interceptor.observe(place, Some(Side::Client), Event::Opened);
    let server = match connect(server, patience, stop) {
        Ok(stream) => stream,
        Err(error) => {
            let why = format!("cannot connect to {server}: {error}");
            interceptor.observe(place, None, Event::Failed(why));
            reset_when_dropped(&client);
            return;
        }
    };
    let session = Session {
        client,
        server,
        interceptor,
        place,
        failed: AtomicBool::new(false),
        cut: AtomicBool::new(false),
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

fn connect(server: &str, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<TcpStream> {
    let deadline = Instant::now() + patience;
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

struct Session<'a, I> {
    client: TcpStream,
    server: TcpStream,
    interceptor: &'a I,
    place: Place,
    /// The connection has failed, and the other direction is of no use any more.
    failed: AtomicBool,
    /// The interceptor has ended it: both sides have been told, and what they still say is not passed on.
    cut: AtomicBool,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl<I: Interceptor> Session<'_, I> {
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

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    fn observe(&self, side: Side, event: Event) {
        self.interceptor.observe(self.place, Some(side), event);
    }

    /// Passes on what comes from `side`, until that has ended.
    fn pump(&self, side: Side) {
        let mut from = self.stream(side);
        let mut splitter = Splitter::new();
        let mut buffer = vec![0; CHUNK];
        loop {
            match from.read(&mut buffer) {
                Ok(0) if self.failed.load(Ordering::Acquire) => break,
                Ok(0) => return self.close(side, &mut splitter),
                Ok(_) if self.is_cut() => {}
                Ok(count) => {
                    if let Err(error) = self.pass(side, &mut splitter, &buffer[..count]) {
                        self.fail(Some(side.peer()), &error);
                        break;
                    }
                }
                Err(error) if passing(&error) => {
                    if self.is_over() {
                        break;
                    }
                    let action = self.interceptor.interrupt(self.place, side);
                    if let Err(error) = self.act(side, Bytes::new(), action) {
                        self.fail(Some(side.peer()), &error);
                        break;
                    }
                }
                Err(error) => {
                    self.fail(Some(side), &error);
                    break;
                }
            }
        }
        if let Some(bytes) = splitter.rest() {
            self.observe(side, Event::Raw(bytes));
        }
    }

    /// Passes on what has come from `side`.
    fn pass(&self, side: Side, splitter: &mut Splitter, bytes: &[u8]) -> io::Result<()> {
        let decides = self.interceptor.decides();
        splitter.push(bytes);
        while let Some(piece) = splitter.next() {
            // Written down first, so that no answer stands before its request.
            self.observe(side, event(piece.clone()));
            if decides {
                let action = self.interceptor.intercept(self.place, side, &piece);
                self.act(side, piece.to_bytes(), action)?;
            }
        }
        if decides {
            return Ok(());
        }
        self.forward(self.stream(side.peer()), bytes)
    }

    /// Does with `bytes` from `side` what the interceptor wants.
    fn act(&self, side: Side, bytes: Bytes, action: Action) -> io::Result<()> {
        if self.is_cut() {
            return Ok(());
        }
        let to = self.stream(side.peer());
        match action {
            Action::Pass => self.forward(to, &bytes),
            Action::Replace(bytes) => self.forward(to, &bytes),
            Action::Cut(bytes, end) => {
                let forwarded = self.forward(to, &bytes);
                self.cut(end);
                forwarded
            }
        }
    }

    /// `side` sends nothing more: the other one is to know.
    fn close(&self, side: Side, splitter: &mut Splitter) {
        let to = self.stream(side.peer());
        if let Some(rest) = splitter.rest() {
            self.observe(side, Event::Raw(rest.clone()));
            if self.interceptor.decides() && !self.is_cut() {
                // It may have gone itself, as below.
                let _ = self.forward(to, &rest);
            }
        }
        self.observe(side, Event::Closed);
        // It may have gone itself, which its own direction will tell.
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Ends the connections with both sides. After an orderly end each is listened to until it closes its own: unread bytes would
    /// make it a reset.
    fn cut(&self, end: End) {
        self.cut.store(true, Ordering::Release);
        match end {
            End::Close => {
                for stream in [&self.client, &self.server] {
                    // Who has gone needs no end.
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
            End::Reset => self.fail(None, &io::Error::other("cut off")),
        }
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
        self.interceptor
            .observe(self.place, side, Event::Failed(error.to_string()));
        for stream in [&self.client, &self.server] {
            reset_when_dropped(stream);
            // Wakes the other direction's thread.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }
}

fn event(piece: Piece) -> Event {
    match piece {
        Piece::Frame(frame) => Event::Frame(frame),
        Piece::Raw(bytes) => Event::Raw(bytes),
    }
}

/// The peer gets a reset instead of an orderly end. At worst it gets the latter.
fn reset_when_dropped(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
