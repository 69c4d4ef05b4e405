//! The relay that does what it is told.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::trap::{Armed, Moment, Trap};
use crate::transcript::{Action, End, Event, Interceptor, Piece, Place, Relay, Side};

/// How often a wait looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(10);
/// Time that a connection gets to end before the next one to the same target is made. A target that serves one client at a time must
/// not see them in the other order; one that is stopped never ends any.
const ORDER: Duration = Duration::from_secs(1);

/// A relay before each target of a deployment. Dropping it ends all connections.
#[derive(Debug)]
pub struct FaultyLine {
    ports: Vec<u16>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl FaultyLine {
    /// One in front of the targets that listen on these ports of this machine. They may begin to listen later.
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
            // Whoever asks may ask again. A connection that is made later than it was asked for would take the place of the next one.
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

    /// Holds the next frame of this kind.
    pub fn hold(&self, moment: Moment) -> Trap {
        let (armed, trap) = Armed::new(moment);
        self.shared.state().traps.push(armed);
        trap
    }

    /// Each frame before this target takes so much longer from now on; zero ends it.
    pub fn delay(&self, channel: u32, time: Duration) {
        self.shared.state().delays.insert(channel, time);
    }

    /// Ends the connection before this target now, if there is one. Within a tenth of a second; a frame that is held does not keep it.
    pub fn cut(&self, channel: u32, end: End) {
        for side in [Side::Client, Side::Server] {
            let action = Action::Cut(Bytes::new(), end);
            self.shared.order(channel, side, action);
        }
    }

    /// Sends bytes as if this side had, if there is a connection: behind what it has sent so far, between two frames, within a tenth of a
    /// second.
    pub fn send(&self, channel: u32, from: Side, bytes: impl Into<Bytes>) {
        let action = Action::Replace(bytes.into());
        self.shared.order(channel, from, action);
    }

    /// Waits until what was to be cut and sent has been, as far as those connections have not ended; false when it takes longer than
    /// this.
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
            // What a listener has failed with has been seen by whoever could not connect.
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
    /// Where new connections go, where that was changed.
    servers: HashMap<u32, String>,
    /// Connections that have not ended.
    open: HashSet<Place>,
    /// The latest connection of each channel.
    last: HashMap<u32, u32>,
    /// What is to be done on a connection, by the thread of the direction that begins at the side.
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
        // What was meant for a connection that has ended is meant for nobody.
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
