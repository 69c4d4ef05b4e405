//! Relay between a service and its targets that injects connection faults.
//!
//! A [`FaultyLine`] is a relay in front of each target: the service connects to the relay's ports. By default, the
//! relay forwards everything. Every step of a session is a frame here, so a held frame is a reproducible phase of a
//! session: [`FaultyLine::hold`]. Other faults are injected immediately: cutting, sending, delaying.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use bytes::Bytes;
use wire::control::{Message, MessageType};

use crate::transcript::{Action, Event, Frame, Interceptor, Piece, Place, Relay};

pub use crate::transcript::{End, Side};

/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(10);
/// Time for a connection to end before the next one to the same target is made. A target that serves one client at a
/// time must receive the connections in this order; a stopped target never ends a connection.
const ORDER: Duration = Duration::from_secs(1);

/// A relay in front of each target of a deployment. Dropping it ends all connections.
#[derive(Debug)]
pub struct FaultyLine {
    ports: Vec<u16>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl FaultyLine {
    /// Starts a relay for targets on these local ports, which need not listen yet.
    ///
    /// # Errors
    ///
    /// No port can be listened on.
    pub fn start(targets: &[u16]) -> io::Result<Self> {
        let mut channels = Vec::new();
        let mut ports = Vec::new();
        for target in targets {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            ports.push(listener.local_addr()?.port());
            channels.push((listener, format!("{}:{target}", Ipv4Addr::LOCALHOST)));
        }
        let relay = Relay {
            channels,
            // The service retries by itself. A late connection of the relay would compete with the next connection.
            timeout: Duration::ZERO,
            sessions: None,
        };
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = thread::spawn(move || relay.run(&*own, &|| own.has_ended()));
        Ok(Self {
            ports,
            shared,
            thread: Some(thread),
        })
    }

    /// Ports for the service, in the order of the targets.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Holds the next frame that matches.
    pub fn hold(&self, moment: Moment) -> Trap {
        let (armed, trap) = Armed::new(moment);
        self.shared.state().traps.push(armed);
        trap
    }

    /// Delays each frame of this target's connection from now on; zero disables the delay.
    pub fn delay(&self, channel: u32, time: Duration) {
        self.shared.state().delays.insert(channel, time);
    }

    /// Cuts the connection of this target, if there is one: within 100 ms, even while a frame is held.
    pub fn cut(&self, channel: u32, end: End) {
        for side in [Side::Client, Side::Server] {
            let action = Action::Cut(Bytes::new(), end);
            self.shared.order(channel, side, action);
        }
    }

    /// Injects bytes as if this side had sent them, if there is a connection: after all bytes received from it so
    /// far, between two frames, within 100 ms.
    pub fn send(&self, channel: u32, from: Side, bytes: impl Into<Bytes>) {
        let action = Action::Replace(bytes.into());
        self.shared.order(channel, from, action);
    }

    /// Waits until all cuts and injections have been executed, except on connections that have ended. Returns `false` after
    /// `within`.
    pub fn settle(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.shared.state().has_orders() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(TICK);
        }
        true
    }

    /// Connects new connections for this target to another local port.
    pub fn redirect(&self, channel: u32, port: u16) {
        let server = format!("{}:{port}", Ipv4Addr::LOCALHOST);
        self.shared.state().servers.insert(channel, server);
    }

    /// Number of connections that the service has made to this target.
    pub fn connections(&self, channel: u32) -> u32 {
        let state = self.shared.state();
        state.last.get(&channel).map_or(0, |session| session + 1)
    }
}

impl Drop for FaultyLine {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A failed listener has reported its error already.
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    traps: Vec<Armed>,
    delays: HashMap<u32, Duration>,
    /// Servers of new connections, if they differ from the configured ones.
    servers: HashMap<u32, String>,
    open: HashSet<Place>,
    /// Number of the latest connection of each channel.
    last: HashMap<u32, u32>,
    /// Pending actions for connections, each executed by the thread of the direction that starts at the side.
    orders: Vec<(Place, Side, Action)>,
}

impl State {
    fn has_orders(&self) -> bool {
        let mut orders = self.orders.iter();
        orders.any(|(place, ..)| self.open.contains(place))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn order(&self, channel: u32, side: Side, action: Action) {
        let mut state = self.state();
        if let Some(&session) = state.last.get(&channel) {
            let place = Place { channel, session };
            state.orders.push((place, side, action));
        }
    }

    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.has_ended() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(TICK));
        }
    }
}

impl Interceptor for Shared {
    fn route(&self, place: Place, server: &str) -> String {
        let deadline = Instant::now() + ORDER;
        let before = |open: &Place| open.channel == place.channel && open.session < place.session;
        while self.state().open.iter().any(before) && Instant::now() < deadline && !self.has_ended()
        {
            thread::sleep(TICK);
        }
        let mut state = self.state();
        state.open.insert(place);
        let other = state.servers.get(&place.channel);
        other.cloned().unwrap_or_else(|| server.to_owned())
    }

    fn ended(&self, place: Place) {
        self.state().open.remove(&place);
    }

    fn observe(&self, place: Place, _: Option<Side>, event: Event) {
        if event == Event::Opened {
            self.state().last.insert(place.channel, place.session);
        }
    }

    fn decides(&self) -> bool {
        true
    }

    fn intercept(&self, place: Place, _: Side, piece: &Piece) -> Action {
        let (delay, armed) = {
            let mut state = self.state();
            let delay = state.delays.get(&place.channel).copied();
            let met = match piece {
                Piece::Frame(frame) => state
                    .traps
                    .iter_mut()
                    .position(|armed| armed.meets(place.channel, frame)),
                Piece::Raw(_) => None,
            };
            (delay, met.map(|index| state.traps.remove(index)))
        };
        self.rest(delay.unwrap_or_default());
        match (armed, piece) {
            (Some(armed), Piece::Frame(frame)) => armed.hold(frame, || self.has_ended()),
            _ => Action::Pass,
        }
    }

    fn interrupt(&self, place: Place, from: Side) -> Action {
        let mut state = self.state();
        // Drops actions for connections that have ended.
        let last = state.last.clone();
        state
            .orders
            .retain(|(place, ..)| last.get(&place.channel) == Some(&place.session));
        let mine = |(ordered, side, _): &(Place, Side, Action)| *ordered == place && *side == from;
        match state.orders.iter().position(mine) {
            Some(index) => state.orders.remove(index).2,
            None => Action::Pass,
        }
    }
}

// Holding of a matching frame.

/// Selects a frame by its connection, type and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Index of the target.
    pub channel: u32,
    /// Type of the frame. Requests are sent by the service, responses by the target.
    pub message: MessageType,
    /// Number of earlier frames of this type to let pass.
    pub after: u32,
}

/// Waits for the selected frame. Dropping it lets the frame pass.
#[derive(Debug)]
pub struct Trap {
    caught: Receiver<Held>,
}

impl Trap {
    /// Waits for the held frame, which has not been delivered. `None` after `deadline`, or if `given_up` returned `true`.
    pub fn wait(&self, deadline: Instant, mut given_up: impl FnMut() -> bool) -> Option<Held> {
        loop {
            match self.caught.recv_timeout(TICK) {
                Ok(held) => return Some(held),
                // The relay has been dropped.
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline || given_up() => {
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// A held frame, which blocks its direction of the connection. Dropping it passes the frame on.
#[derive(Debug)]
pub struct Held {
    frame: Frame,
    verdict: Sender<Action>,
}

impl Held {
    pub fn message(&self) -> &Message {
        &self.frame.message
    }

    /// Passes the frame on unchanged.
    pub fn pass(self) {
        self.end(Action::Pass);
    }

    /// Forwards these bytes instead; if empty, the frame is dropped.
    pub fn replace(self, bytes: impl Into<Bytes>) {
        self.end(Action::Replace(bytes.into()));
    }

    /// Forwards the first `bytes` bytes of the frame, and closes the connections to both sides.
    pub fn cut(self, bytes: usize, end: End) {
        let mut frame = self.frame.to_bytes();
        frame.truncate(bytes);
        self.end(Action::Cut(frame, end));
    }

    fn end(&self, action: Action) {
        // Fails if the connection has ended.
        let _ = self.verdict.send(action);
    }
}

/// Relay's end of a trap.
#[derive(Debug)]
struct Armed {
    moment: Moment,
    left: u32,
    trap: Sender<Held>,
}

impl Armed {
    fn new(moment: Moment) -> (Self, Trap) {
        let (sender, caught) = channel();
        let armed = Self {
            moment,
            left: moment.after,
            trap: sender,
        };
        (armed, Trap { caught })
    }

    /// Returns `true` for the selected frame.
    fn meets(&mut self, channel: u32, frame: &Frame) -> bool {
        let Moment {
            channel: expected,
            message,
            ..
        } = self.moment;
        if expected != channel || message != frame.message.payload.message_type() {
            return false;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                false
            }
            None => true,
        }
    }

    /// Holds the frame until its owner has decided, or the relay ends.
    fn hold(self, frame: &Frame, ends: impl Fn() -> bool) -> Action {
        let (verdict, decided) = channel();
        let held = Held {
            frame: frame.clone(),
            verdict,
        };
        if self.trap.send(held).is_err() {
            return Action::Pass;
        }
        loop {
            match decided.recv_timeout(TICK) {
                Ok(action) => return action,
                Err(RecvTimeoutError::Timeout) if !ends() => {}
                Err(_) => return Action::Pass,
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        // The other direction was not blocked in the meantime.
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
}
