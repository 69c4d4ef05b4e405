//! Relay between a service and its targets that injects connection faults.
//!
//! A [`FaultyLine`] is a relay in front of each target: the service connects to its ports. By default it forwards
//! everything. Every step of a session is a frame here, so a held frame is a reproducible phase of a session:
//! [`FaultyLine::hold`]. Other faults are injected at once: cutting, sending, delaying.

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
/// time must get them in this order; a stopped target never ends a connection.
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
            // The service retries by itself. A late connection of the relay would compete with the next one.
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
    /// Open connections.
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
    /// The decoded frame.
    pub fn message(&self) -> &Message {
        &self.frame.message
    }

    /// Passes it on unchanged.
    pub fn pass(self) {
        self.end(Action::Pass);
    }

    /// Passes these bytes on instead; if empty, the frame is dropped.
    pub fn replace(self, bytes: impl Into<Bytes>) {
        self.end(Action::Replace(bytes.into()));
    }

    /// Passes its first `bytes` bytes on, and closes the connections to both sides.
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
mod tests;
