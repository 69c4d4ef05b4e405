//! The relay between a service and its targets that injects connection faults.
//!
//! A [`FaultyLine`] is a relay in front of each target: the service is given its ports instead of theirs. Without orders it forwards
//! everything. Every step of a session is a frame here, so a held frame is a reproducible phase of a session: [`FaultyLine::hold`]. Other
//! faults are injected at once: cutting, sending, delaying.

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

// The relay that injects faults.

/// Polling interval of all waits.
const TICK: Duration = Duration::from_millis(10);
/// Time for a connection to end before the next one to the same target is made. A target that serves one client at a time must see them in
/// this order; a stopped target never ends a connection.
const ORDER: Duration = Duration::from_secs(1);

/// A relay before each target of a deployment. Dropping it ends all connections.
#[derive(Debug)]
pub struct FaultyLine {
    ports: Vec<u16>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl FaultyLine {
    /// Starts a relay for the targets on these ports of this machine, which may begin to listen later.
    ///
    /// # Errors
    ///
    /// There are no ports to listen on.
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
            // The service retries by itself. A connection that the relay makes late would take the place of the next one.
            patience: Duration::ZERO,
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

    /// The ports for the service, in the order of the targets.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Holds the next such frame.
    pub fn hold(&self, moment: Moment) -> Trap {
        let (armed, trap) = Armed::new(moment);
        self.shared.state().traps.push(armed);
        trap
    }

    /// Delays each frame of this target's connection from now on; zero ends that.
    pub fn delay(&self, channel: u32, time: Duration) {
        self.shared.state().delays.insert(channel, time);
    }

    /// Cuts the connection of this target now, if there is one: within 100 ms, even while a frame is held.
    pub fn cut(&self, channel: u32, end: End) {
        for side in [Side::Client, Side::Server] {
            let action = Action::Cut(Bytes::new(), end);
            self.shared.order(channel, side, action);
        }
    }

    /// Sends bytes as if this side had, if there is a connection: behind all that it has sent so far, between two frames, within 100 ms.
    pub fn send(&self, channel: u32, from: Side, bytes: impl Into<Bytes>) {
        let action = Action::Replace(bytes.into());
        self.shared.order(channel, from, action);
    }

    /// Waits until all cuts and sends have been carried out, except on connections that have ended; `false` if that takes longer than
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

    /// New connections for this target go to another port of this machine.
    pub fn redirect(&self, channel: u32, port: u16) {
        let server = format!("{}:{port}", Ipv4Addr::LOCALHOST);
        self.shared.state().servers.insert(channel, server);
    }

    /// Connections that the service has made to this target so far.
    pub fn connections(&self, channel: u32) -> u32 {
        let state = self.shared.state();
        state.last.get(&channel).map_or(0, |session| session + 1)
    }
}

impl Drop for FaultyLine {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The client of a failed listener could not connect, and has reported that.
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
    /// Servers of new connections that differ from the configured ones.
    servers: HashMap<u32, String>,
    /// Connections that have not ended.
    open: HashSet<Place>,
    /// The latest connection of each channel.
    last: HashMap<u32, u32>,
    /// Actions for connections, carried out by the thread of the direction that starts at the side.
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

// A frame that is waited for, and then held.

/// A frame, by its connection, type and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Before which target, from 0.
    pub channel: u32,
    /// Type of the frame. Requests are sent by the service, responses by the target.
    pub message: MessageType,
    /// Frames of this type that pass before it.
    pub after: u32,
}

/// Waits for its frame. Dropped, it lets the frame pass.
#[derive(Debug)]
pub struct Trap {
    caught: Receiver<Held>,
}

impl Trap {
    /// The held frame, which has not been delivered. `None` if it has not arrived at `deadline`, or `given_up` returned `true`.
    pub fn wait(&self, deadline: Instant, mut given_up: impl FnMut() -> bool) -> Option<Held> {
        loop {
            match self.caught.recv_timeout(TICK) {
                Ok(held) => return Some(held),
                // The line has ended.
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline || given_up() => {
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// A held frame, which blocks its direction of the connection. It is passed on when this is dropped.
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

    /// Passes these bytes on instead; with none, the frame is dropped.
    pub fn replace(self, bytes: impl Into<Bytes>) {
        self.end(Action::Replace(bytes.into()));
    }

    /// Passes its first bytes on, this many, and closes the connections with both sides.
    pub fn cut(self, bytes: usize, end: End) {
        let mut frame = self.frame.to_bytes();
        frame.truncate(bytes);
        self.end(Action::Cut(frame, end));
    }

    fn end(&self, action: Action) {
        // The line has ended, and with it the connection.
        let _ = self.verdict.send(action);
    }
}

/// The line's side of a trap.
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

    /// Returns `true` for the frame that it waits for.
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
