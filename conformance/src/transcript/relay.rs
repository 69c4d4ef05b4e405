//! A relay between services and targets, and its interceptors: a [`Recorder`] records the traffic.

use std::io;
use std::io::{ErrorKind, Read as _, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Entry, Event, Header, Piece, Side, Splitter, Writer};

/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(50);

/// A relay: each connection to a channel's listener is forwarded to the channel's server.
///
/// Bytes are forwarded unchanged, in the portions in which they were read, unless its [`Interceptor`] decides otherwise; so are the
/// end of a direction, and, as a reset, the failure of a connection.
#[derive(Debug)]
pub struct Relay {
    /// Listener and server (`HOST:PORT`) of each channel.
    pub channels: Vec<(TcpListener, String)>,
    /// Time for which connections to a refusing server are retried: it may be starting.
    pub timeout: Duration,
    /// Maximum number of connections per channel; `None` for no limit until the relay is stopped.
    pub sessions: Option<u32>,
}

impl Relay {
    /// Runs until each channel has had its sessions, or `stop` returns `true`.
    ///
    /// # Errors
    ///
    /// A listener has failed. Failures of connections are reported as events.
    pub fn run(
        &self,
        interceptor: &impl Interceptor,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<()> {
        let failed = AtomicBool::new(false);
        let stop = &|| stop() || failed.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let accepting: Vec<_> = std::iter::zip(0.., &self.channels)
                .map(|(channel, (listener, server))| {
                    let failed = &failed;
                    scope.spawn(move || {
                        let mut session = 0;
                        while self.sessions.is_none_or(|limit| session < limit) && !stop() {
                            let client = match accept(listener) {
                                Ok(Some(client)) => client,
                                Ok(None) => continue,
                                Err(error) => {
                                    failed.store(true, Ordering::Relaxed);
                                    return Err(error);
                                }
                            };
                            let place = Place { channel, session };
                            scope.spawn(move || {
                                serve(client, server, self.timeout, interceptor, place, stop)
                            });
                            session += 1;
                        }
                        Ok(())
                    })
                })
                .collect();
            accepting.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
            })
        })
    }
}

/// Accepts the next client; `None` if none connects within the polling interval.
fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    let tick = Timespec::try_from(TICK).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match listener.accept() {
        Ok((client, _)) => Ok(Some(client)),
        // The client has disconnected before it was accepted.
        Err(error) if passing(&error) || error.kind() == ErrorKind::ConnectionAborted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `true` for an error after which to retry.
fn passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

// One connection through the relay.

/// Timeout of a connection attempt.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of bytes that are read and forwarded together.
const CHUNK: usize = 65536;

fn serve(
    client: TcpStream,
    server: &str,
    timeout: Duration,
    interceptor: &impl Interceptor,
    place: Place,
    stop: &(dyn Fn() -> bool + Sync),
) {
    relay(client, server, timeout, interceptor, place, stop);
    interceptor.ended(place);
}

fn relay(
    client: TcpStream,
    server: &str,
    timeout: Duration,
    interceptor: &impl Interceptor,
    place: Place,
    stop: &(dyn Fn() -> bool + Sync),
) {
    let server = interceptor.route(place, server);
    let server = server.as_str();
    interceptor.observe(place, Some(Side::Client), Event::Opened);
    let server = match connect(server, timeout, stop) {
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

fn connect(server: &str, timeout: Duration, stop: &dyn Fn() -> bool) -> io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
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

/// Connects once, with a timeout for servers that do not answer.
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
    /// `true` if the connection has failed, which also ends the other direction.
    failed: AtomicBool,
    /// `true` if the interceptor has closed the connections; further input is dropped.
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

    /// Forwards the input of `side` until it ends.
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

    /// Forwards bytes received from `side`.
    fn pass(&self, side: Side, splitter: &mut Splitter, bytes: &[u8]) -> io::Result<()> {
        let decides = self.interceptor.decides();
        splitter.push(bytes);
        while let Some(piece) = splitter.next() {
            // Recorded before it is forwarded, so that no answer precedes its request.
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

    /// Executes the interceptor's action for bytes received from `side`.
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

    /// Forwards that `side` has closed its sending direction.
    fn close(&self, side: Side, splitter: &mut Splitter) {
        let to = self.stream(side.peer());
        if let Some(rest) = splitter.rest() {
            self.observe(side, Event::Raw(rest.clone()));
            if self.interceptor.decides() && !self.is_cut() {
                // The other side may also have disconnected.
                let _ = self.forward(to, &rest);
            }
        }
        self.observe(side, Event::Closed);
        // The other side may have disconnected, which the other direction reports.
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Closes the connections to both sides. With [`End::Close`], each is read until it closes its own: unread bytes would
    /// cause a reset.
    fn cut(&self, end: End) {
        self.cut.store(true, Ordering::Release);
        match end {
            End::Close => {
                for stream in [&self.client, &self.server] {
                    // Fails only if the stream is closed.
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

    /// Handles a failed connection to `side`: closes the connection to the other side in the same way, and ends this
    /// direction.
    fn fail(&self, side: Option<Side>, error: &io::Error) {
        if self.failed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.interceptor
            .observe(self.place, side, Event::Failed(error.to_string()));
        for stream in [&self.client, &self.server] {
            reset_when_dropped(stream);
            // Wakes the thread of the other direction.
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

/// Makes dropping a connection reset it. If the option cannot be set, the connection is closed normally.
fn reset_when_dropped(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

// Interceptors of a relay's traffic.

/// Identifies the connection of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index of the relay's channel.
    pub channel: u32,
    /// Index of the channel's connection.
    pub session: u32,
}

/// Ways in which a relay closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Both sides read an end of stream.
    Close,
    /// Both sides get a reset.
    Reset,
}

/// Decision of an interceptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Forward it unchanged.
    Pass,
    /// Forward these bytes instead, as if the same side had sent them; may be empty.
    Replace(Bytes),
    /// As `Replace`, but then closes the connections to both sides.
    Cut(Bytes, End),
}

/// Observes the traffic of a relay and may change it. The relay calls it from two threads per connection, one per direction, which
/// block during the call.
pub trait Interceptor: Sync {
    /// Called for an event before it is forwarded. `from` is `None` for actions of the relay itself.
    fn observe(&self, place: Place, from: Option<Side>, event: Event);

    /// Returns the address (`HOST:PORT`) for a new connection, by default the channel's `server`. The connection
    /// waits while this blocks.
    fn route(&self, _place: Place, server: &str) -> String {
        server.to_owned()
    }

    /// Called when a connection has ended on both sides.
    fn ended(&self, _place: Place) {}

    /// Returns `true` if [`intercept`](Self::intercept) must be called for every frame. Otherwise it is not called,
    /// and bytes are forwarded in the portions in which they arrive, including partial frames.
    fn decides(&self) -> bool {
        false
    }

    /// Decides about a frame, or about bytes that are not a frame. Until it returns, this direction of the connection
    /// forwards nothing else.
    fn intercept(&self, _place: Place, _from: Side, _piece: &Piece) -> Action {
        Action::Pass
    }

    /// Called repeatedly while there is no input from this side; returns an action that the interceptor initiates.
    fn interrupt(&self, _place: Place, _from: Side) -> Action {
        Action::Pass
    }
}

// Recorder of a transcript, shared by several threads.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of connections.
    pub sessions: u64,
    pub frames: u64,
    /// Number of bytes that were not frames.
    pub raw_bytes: u64,
}

/// A transcript written by several threads.
#[derive(Debug)]
pub struct Recorder<W> {
    started: Instant,
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    writer: Writer<W>,
    summary: Summary,
    error: Option<io::Error>,
}

impl<W: Write> Recorder<W> {
    /// Starts a transcript.
    ///
    /// # Errors
    ///
    /// The errors of the sink.
    pub fn new(sink: W, header: &Header) -> io::Result<Self> {
        Ok(Self {
            started: Instant::now(),
            state: Mutex::new(State {
                writer: Writer::new(sink, header)?,
                summary: Summary::default(),
                error: None,
            }),
        })
    }

    /// Records an event with the current time. A failure is stored for [`finish`](Self::finish), so that it does not
    /// affect the deployment.
    fn record(&self, place: Place, from: Option<Side>, event: Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &event {
            Event::Opened => state.summary.sessions += 1,
            Event::Frame(_) => state.summary.frames += 1,
            Event::Raw(bytes) => state.summary.raw_bytes += bytes.len() as u64,
            Event::Closed | Event::Failed(_) | Event::Ended => {}
        }
        if state.error.is_none() {
            let entry = Entry {
                // Read under the lock, so that the times of entries never decrease.
                time: self.started.elapsed(),
                channel: place.channel,
                session: place.session,
                from,
                event,
            };
            state.error = state.writer.write(&entry).err();
        }
    }

    /// Finishes the transcript.
    ///
    /// # Errors
    ///
    /// The first failure of the sink; the transcript is valid up to the failure.
    pub fn finish(self) -> io::Result<Summary> {
        let place = Place {
            channel: 0,
            session: 0,
        };
        self.record(place, None, Event::Ended);
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match state.error {
            Some(error) => Err(error),
            None => Ok(state.summary),
        }
    }
}

impl<W: Write + Send> Interceptor for Recorder<W> {
    fn observe(&self, place: Place, from: Option<Side>, event: Event) {
        self.record(place, from, event);
    }
}

#[cfg(test)]
mod tests {
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
            // An incomplete frame is forwarded.
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
            // Once a byte has arrived, the relay is connected; a failed connection would be a different failure.
            client.write_all(&[0]).expect("the relay reads");
            stream.read_exact(&mut [0]).expect("the client's byte");
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))
                .expect("a socket");
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
                    true => Err(ErrorKind::StorageFull.into()),
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
        let recorder =
            Recorder::new(Full(Mutex::new(false)), &header).expect("room for the header");
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
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
}
