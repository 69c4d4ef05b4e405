//! The sockets at which peers on other machines come in.
//!
//! One thread accepts. Each connection has a thread of its own, which lets the peer prove that it has the key, and then serves its memory
//! requests, answers that this process lives, or hands the connection to a service and ends. The sockets are opened when something is
//! first offered to the network, and stay until the process ends.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};

use super::super::export::Rights;
use super::super::limits::{Deadline, Limits};
use super::super::server::{lock, shielded, with_signals_blocked};
use super::authentication::{self, CLIENT_HELLO, Handshake, Purpose, Wish};
use super::serving::{Exposed, Memory};
use super::settings::Settings;
use super::stream::{self, Stream};
use super::{serving, tls};
use crate::error::{Error, Result};
use crate::log::{self, Limited};
use crate::runtime::Key;
use crate::verbs::Nic;

/// Time that a peer has to prove itself.
const PROOF: Duration = Duration::from_secs(2);
/// Connections at a time that have not proved themselves. A further one displaces the oldest of the address that has most of them, so that
/// unauthenticated ones keep no peer out.
const MOST_UNPROVEN: usize = 64;
/// Pause of the listener when the process is out of descriptors or threads.
const BACK_OFF: Duration = Duration::from_millis(100);
const STACK: usize = 256 * 1024;

/// Takes a connection over, in the thread of the connection.
pub(crate) type Deliver = Box<dyn FnOnce(Stream) + Send>;
/// A service: says whether it takes a peer, before that is told so. It must not wait.
pub(crate) type Service = Arc<dyn Fn() -> Result<Deliver> + Send + Sync>;

/// The exports of this process that the network reaches.
pub(super) struct Door {
    process: Key,
    settings: Settings,
    limits: Limits,
    addresses: Vec<SocketAddr>,
    exposed: Mutex<HashMap<Key, Arc<Exposed>>>,
    services: Mutex<HashMap<Key, Service>>,
    connections: AtomicUsize,
    admitted: AtomicU64,
    /// In the order in which they came.
    unproven: Mutex<Vec<Unproven>>,
    complaints: Mutex<Limited>,
}

/// A connection that has not proved itself.
struct Unproven {
    number: u64,
    address: IpAddr,
    /// A duplicate, for ending the connection: its thread waits at the other one.
    socket: OwnedFd,
}

/// Takes a connection from the list of those that have not proved themselves when dropped.
struct Unproved {
    door: Arc<Door>,
    number: u64,
}

impl Drop for Unproved {
    fn drop(&mut self) {
        lock(&self.door.unproven).retain(|unproven| unproven.number != self.number);
    }
}

/// The place of the one that a further connection displaces: the oldest of the address with most of them.
fn displaced(unproven: &[Unproven]) -> Option<usize> {
    let of = |address: IpAddr| unproven.iter().filter(|it| it.address == address).count();
    let most = unproven.iter().map(|it| of(it.address)).max()?;
    unproven.iter().position(|it| of(it.address) == most)
}

/// Counts a connection while it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn below(counter: &'a AtomicUsize, most: usize) -> Option<Counted<'a>> {
        if counter.fetch_add(1, Ordering::Relaxed) < most {
            return Some(Counted(counter));
        }
        counter.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Door {
    /// That of this process; `None` when it does not use the network.
    ///
    /// # Errors
    /// When the network is configured wrongly, or its addresses cannot be listened at.
    pub(super) fn get() -> Result<Option<Arc<Door>>> {
        static DOOR: OnceLock<Result<Arc<Door>>> = OnceLock::new();
        // Its error may not be final.
        let Some(settings) = Settings::get()? else {
            return Ok(None);
        };
        DOOR.get_or_init(|| Door::open(settings.clone(), Limits::get()?.clone()))
            .clone()
            .map(Some)
    }

    pub(super) fn open(settings: Settings, limits: Limits) -> Result<Arc<Door>> {
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for ip in &settings.addresses {
            let (fd, address) = stream::listen(SocketAddr::new(*ip, 0)).map_err(|error| {
                error.because(format_args!(
                    "cannot listen at {ip}, which {} names: is it an address of this machine?",
                    super::settings::ADDRESS
                ))
            })?;
            listeners.push(fd);
            addresses.push(address);
        }
        let door = Arc::new(Door {
            process: Key::random()?,
            settings,
            limits,
            addresses,
            exposed: Mutex::default(),
            services: Mutex::default(),
            connections: AtomicUsize::new(0),
            admitted: AtomicU64::new(0),
            unproven: Mutex::default(),
            complaints: Mutex::new(Limited::new(1)),
        });
        let in_thread = Arc::clone(&door);
        spawn("softdoca-door", move || in_thread.accept(&listeners))?;
        Ok(door)
    }

    pub(super) fn process(&self) -> Key {
        self.process
    }

    #[cfg(test)]
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.settings.tls.is_some()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().copied()
    }

    fn accept(self: &Arc<Self>, listeners: &[OwnedFd]) {
        loop {
            let mut fds: Vec<_> = listeners
                .iter()
                .map(|fd| PollFd::new(fd, PollFlags::IN))
                .collect();
            if let Err(errno) = rustix::event::poll(&mut fds, None)
                && errno != Errno::INTR
            {
                log::error!("softdoca cannot wait for peers on the network any more: {errno}");
                return;
            }
            for listener in listeners {
                match rustix::net::acceptfrom_with(
                    listener,
                    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                ) {
                    Ok((fd, address)) => {
                        let address = address.and_then(|it| SocketAddr::try_from(it).ok());
                        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                        self.admit(fd, address.map_or(unknown, |address| address.ip()));
                    }
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                    Err(errno) => {
                        self.complain(format_args!("cannot take a connection: {errno}"));
                        std::thread::sleep(BACK_OFF);
                    }
                }
            }
        }
    }

    pub(super) fn admit(self: &Arc<Self>, fd: OwnedFd, address: IpAddr) {
        // Without a thread for each: there may be many.
        if self.connections.load(Ordering::Relaxed) >= self.limits.connections {
            return self.complain(format_args!("too many connections: one is closed"));
        }
        let unproved = match self.await_proof(&fd, address) {
            Ok(unproved) => unproved,
            Err(error) => {
                return self.complain(format_args!("a connection is closed: {error}"));
            }
        };
        let door = Arc::clone(self);
        let spawned = spawn("softdoca-peer", move || {
            let served = Stream::accepted(fd).and_then(|stream| door.meet(stream, unproved));
            match served {
                // Its end is no news.
                Ok(()) | Err(Error::ConnectionReset) => {}
                Err(error) => door.complain(format_args!("a connection is closed: {error}")),
            }
        });
        if spawned.is_err() {
            std::thread::sleep(BACK_OFF);
        }
    }

    /// Lists a connection as one that has not proved itself, and ends another one if there are too many.
    fn await_proof(self: &Arc<Self>, fd: &OwnedFd, address: IpAddr) -> Result<Unproved> {
        let number = self.admitted.fetch_add(1, Ordering::Relaxed);
        let socket = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        let mut unproven = lock(&self.unproven);
        unproven.push(Unproven {
            number,
            address,
            socket,
        });
        if unproven.len() > MOST_UNPROVEN
            && let Some(place) = displaced(&unproven)
        {
            let oldest = unproven.remove(place);
            // It may have ended by itself.
            let _ = rustix::net::shutdown(&oldest.socket, Shutdown::Both);
            drop(unproven);
            self.complain(format_args!(
                "too many connections without a proof of the key: one of {} is closed",
                oldest.address
            ));
        }
        Ok(Unproved {
            door: Arc::clone(self),
            number,
        })
    }

    /// Lets a peer prove itself and serves it.
    fn meet(self: &Arc<Self>, stream: Stream, unproved: Unproved) -> Result<()> {
        let Some(_connection) = Counted::below(&self.connections, self.limits.connections) else {
            return Err(Error::Full);
        };
        let deadline = Deadline::after(PROOF);
        let stream = match &self.settings.tls {
            None => stream,
            Some(tls) => match tls.accept(stream, deadline) {
                Ok(stream) => stream,
                Err(refused) => {
                    self.complain(format_args!("a connection is closed: {refused}"));
                    return Ok(());
                }
            },
        };
        let hello = authentication::greet()?;
        stream.send_all(&hello, deadline)?;
        let mut bytes = [0; CLIENT_HELLO];
        stream.receive_all(&mut bytes, deadline)?;
        let mut handshake = Handshake::new(self.settings.key.as_ref(), &hello)?;
        // A stranger gets no answer at all.
        let wish = handshake.hear(&bytes).inspect_err(|_| {
            if softdoca_net::is_tls(&bytes) {
                self.complain(format_args!("{}", tls::not_configured()));
            }
        })?;
        let found = self.find(&wish);
        let result = found.as_ref().map(|_| ()).map_err(|error| *error);
        stream.send_all(&handshake.answer(result)?, deadline)?;
        drop(unproved);
        match found? {
            Found::Liveness => serving::liveness(&stream),
            Found::Memory => serving::memory(self, stream),
            Found::Service(deliver) => {
                shielded(|| deliver(stream));
                Ok(())
            }
        }
    }

    fn find(&self, wish: &Wish) -> Result<Found> {
        if wish.process != self.process {
            return Err(Error::NotFound);
        }
        match wish.purpose {
            Purpose::Liveness => Ok(Found::Liveness),
            Purpose::Memory => Ok(Found::Memory),
            Purpose::Service => {
                let service = lock(&self.services).get(&wish.key).cloned();
                let service = service.ok_or(Error::NotFound)?;
                let taken = shielded(|| service()).unwrap_or(Err(Error::Unexpected));
                taken.map(Found::Service)
            }
        }
    }

    pub(super) fn exposed(&self, key: Key) -> Result<Arc<Exposed>> {
        lock(&self.exposed)
            .get(&key)
            .cloned()
            .ok_or(Error::NotFound)
    }

    /// Peers can cause these as fast as they like.
    fn complain(&self, what: fmt::Arguments<'_>) {
        let mut complaints = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = complaints.admit(Instant::now()) {
            log::warn!("network: {what}{suppressed}");
        }
    }
}

enum Found {
    Liveness,
    Memory,
    Service(Deliver),
}

/// A thread that the program does not know of: its signal handlers are not to run there.
pub(super) fn spawn(name: &str, action: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK);
    with_signals_blocked(|| thread.spawn(action))
        .map(|_| ())
        .map_err(|error| {
            Error::OperatingSystem.because(format_args!("cannot start the thread {name}: {error}"))
        })
}

/// Withdraws what is offered to the network when dropped: no access is under way afterwards.
pub(crate) struct NetworkGuard {
    door: Arc<Door>,
    key: Key,
}

impl fmt::Debug for NetworkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NetworkGuard").field(&self.key).finish()
    }
}

impl Drop for NetworkGuard {
    fn drop(&mut self) {
        let exposed = lock(&self.door.exposed).remove(&self.key);
        if let Some(exposed) = exposed {
            exposed.withdraw();
        }
        let service = lock(&self.door.services).remove(&self.key);
        drop(service);
    }
}

/// Lets peers on other machines reach memory under `key`, also by the RDMA device if there is one; `None` when this process does not use the
/// network.
///
/// # Errors
/// As [`Door::get`].
pub(crate) fn expose(
    key: Key,
    rights: Rights,
    range: (u64, u64),
    memory: Box<dyn Memory>,
    nic: Option<&'static Nic>,
) -> Result<Option<NetworkGuard>> {
    Ok(Door::get()?.map(|door| {
        let exposed = Exposed::new(rights, range, memory);
        if let Some(nic) = nic {
            exposed.register(nic);
        }
        door.expose(key, exposed)
    }))
}

/// Lets one peer on another machine have a connection with `service`; `None` when this process does not use the network.
///
/// # Errors
/// As [`Door::get`].
pub(crate) fn serve(key: Key, service: Service) -> Result<Option<NetworkGuard>> {
    Ok(Door::get()?.map(|door| {
        lock(&door.services).insert(key, service);
        NetworkGuard { door, key }
    }))
}

impl Door {
    pub(super) fn expose(self: Arc<Self>, key: Key, exposed: Exposed) -> NetworkGuard {
        lock(&self.exposed).insert(key, Arc::new(exposed));
        NetworkGuard { door: self, key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_most_connections_is_displaced() {
        let socket = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let of = |addresses: &[u8]| {
            let unproven = addresses.iter().zip(0..).map(|(last, number)| Unproven {
                number,
                address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, *last)),
                socket: socket(),
            });
            displaced(&unproven.collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[1]), Some(0));
        assert_eq!(of(&[1, 2, 2, 2, 3]), Some(1));
        assert_eq!(of(&[1, 2, 2, 1]), Some(0));
    }
}
