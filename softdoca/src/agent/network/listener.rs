//! Listening sockets for peers on other machines.
//!
//! One thread accepts. Each connection has its own thread, which authenticates the peer, and then serves its memory
//! requests or heartbeats, or passes the connection to a service and exits. The sockets are opened when memory or a
//! service is first offered to the network, and stay open until the process exits.

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

use super::super::protocol::Rights;
use super::super::server::{lock, shielded, with_signals_blocked};
use super::super::{Deadline, Limits};
use super::authentication::{self, CLIENT_HELLO, Handshake, Purpose, Request};
use super::serving::{self, Exposed, Memory};
use super::settings::Settings;
use super::stream::{self, Stream};
use super::tls;
use crate::error::{Error, Result};
use crate::log::{self, Limited};
use crate::runtime::Key;
use crate::verbs::Nic;

/// Time limit of a peer's authentication.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of unauthenticated connections. A further connection displaces the oldest of the address that has
/// most of them, so that unauthenticated connections cannot lock out peers.
const MAX_UNAUTHENTICATED: usize = 64;
/// Pause of the listener when the process is out of descriptors or threads.
const BACK_OFF: Duration = Duration::from_millis(100);
const STACK: usize = 256 * 1024;

/// Takes over a connection, in the thread of the connection.
pub(crate) type Deliver = Box<dyn FnOnce(Stream) + Send>;
/// A service: accepts or refuses a peer before a response is sent to the peer. Must not block.
pub(crate) type Service = Arc<dyn Fn() -> Result<Deliver> + Send + Sync>;

/// The exports and services of this process that peers on other machines reach.
pub(super) struct Listener {
    process: Key,
    settings: Settings,
    limits: Limits,
    addresses: Vec<SocketAddr>,
    exposed: Mutex<HashMap<Key, Arc<Exposed>>>,
    services: Mutex<HashMap<Key, Service>>,
    connections: AtomicUsize,
    admitted: AtomicU64,
    /// In order of arrival.
    unauthenticated: Mutex<Vec<Unauthenticated>>,
    warnings: Mutex<Limited>,
}

/// A connection whose peer is not authenticated yet.
struct Unauthenticated {
    number: u64,
    address: IpAddr,
    /// A duplicate, to shut the connection down while its thread waits on the original.
    socket: OwnedFd,
}

/// Removes a connection from the list of unauthenticated ones when dropped.
struct UnauthenticatedGuard {
    listener: Arc<Listener>,
    number: u64,
}

impl Drop for UnauthenticatedGuard {
    fn drop(&mut self) {
        lock(&self.listener.unauthenticated)
            .retain(|unauthenticated| unauthenticated.number != self.number);
    }
}

/// Index of the connection that a further one displaces: the oldest of the address with the most connections.
fn displaced(unauthenticated: &[Unauthenticated]) -> Option<usize> {
    let of = |address: IpAddr| {
        unauthenticated
            .iter()
            .filter(|it| it.address == address)
            .count()
    };
    let most = unauthenticated.iter().map(|it| of(it.address)).max()?;
    unauthenticated.iter().position(|it| of(it.address) == most)
}

/// Counts a connection while the value exists.
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

/// Listens on a free port of an address.
///
/// # Errors
/// It is not an address of this machine.
pub(super) fn listen_at(ip: IpAddr) -> Result<(OwnedFd, SocketAddr)> {
    stream::listen(SocketAddr::new(ip, 0)).map_err(|error| {
        error.because(format_args!(
            "cannot listen at {ip}, which {} names: is it an address of this machine?",
            super::settings::ADDRESS
        ))
    })
}

impl Listener {
    /// The listener of this process; `None` if it does not use the network.
    ///
    /// # Errors
    /// The network settings are invalid, or this process cannot listen at its addresses.
    pub(super) fn get() -> Result<Option<Arc<Listener>>> {
        static LISTENER: OnceLock<Result<Arc<Listener>>> = OnceLock::new();
        // The error may be temporary, so it is not stored.
        let Some(settings) = Settings::get()? else {
            return Ok(None);
        };
        LISTENER
            .get_or_init(|| Listener::open(settings.clone(), Limits::get()?.clone()))
            .clone()
            .map(Some)
    }

    pub(super) fn open(settings: Settings, limits: Limits) -> Result<Arc<Listener>> {
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for ip in &settings.addresses {
            let (fd, address) = listen_at(*ip)?;
            listeners.push(fd);
            addresses.push(address);
        }
        let listener = Arc::new(Listener {
            process: Key::random()?,
            settings,
            limits,
            addresses,
            exposed: Mutex::default(),
            services: Mutex::default(),
            connections: AtomicUsize::new(0),
            admitted: AtomicU64::new(0),
            unauthenticated: Mutex::default(),
            warnings: Mutex::new(Limited::new(1)),
        });
        let in_thread = Arc::clone(&listener);
        spawn("softdoca-listener", move || in_thread.accept(&listeners))?;
        Ok(listener)
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
                        self.warn(format_args!("cannot take a connection: {errno}"));
                        std::thread::sleep(BACK_OFF);
                    }
                }
            }
        }
    }

    pub(super) fn admit(self: &Arc<Self>, fd: OwnedFd, address: IpAddr) {
        // Refused without a thread for each, because there may be many.
        if self.connections.load(Ordering::Relaxed) >= self.limits.connections {
            return self.warn(format_args!("too many connections: one is closed"));
        }
        let guard = match self.track_unauthenticated(&fd, address) {
            Ok(guard) => guard,
            Err(error) => {
                return self.warn(format_args!("a connection is closed: {error}"));
            }
        };
        let listener = Arc::clone(self);
        let spawned = spawn("softdoca-peer", move || {
            let served =
                Stream::accepted(fd).and_then(|stream| listener.authenticate(stream, guard));
            match served {
                // A closed connection is not reported.
                Ok(()) | Err(Error::ConnectionReset) => {}
                Err(error) => listener.warn(format_args!("a connection is closed: {error}")),
            }
        });
        if spawned.is_err() {
            std::thread::sleep(BACK_OFF);
        }
    }

    /// Adds a connection to the unauthenticated ones, and shuts another one down if there are too many.
    fn track_unauthenticated(
        self: &Arc<Self>,
        fd: &OwnedFd,
        address: IpAddr,
    ) -> Result<UnauthenticatedGuard> {
        let number = self.admitted.fetch_add(1, Ordering::Relaxed);
        let socket = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        let mut unauthenticated = lock(&self.unauthenticated);
        unauthenticated.push(Unauthenticated {
            number,
            address,
            socket,
        });
        if unauthenticated.len() > MAX_UNAUTHENTICATED
            && let Some(place) = displaced(&unauthenticated)
        {
            let oldest = unauthenticated.remove(place);
            // The socket may already be closed.
            let _ = rustix::net::shutdown(&oldest.socket, Shutdown::Both);
            drop(unauthenticated);
            self.warn(format_args!(
                "too many unauthenticated connections: one of {} is closed",
                oldest.address
            ));
        }
        Ok(UnauthenticatedGuard {
            listener: Arc::clone(self),
            number,
        })
    }

    /// Authenticates a peer and serves it.
    fn authenticate(self: &Arc<Self>, stream: Stream, guard: UnauthenticatedGuard) -> Result<()> {
        let Some(_connection) = Counted::below(&self.connections, self.limits.connections) else {
            return Err(Error::Full);
        };
        let deadline = Deadline::after(AUTHENTICATION_TIMEOUT);
        let stream = match &self.settings.tls {
            None => stream,
            Some(tls) => match tls.accept(stream, deadline) {
                Ok(stream) => stream,
                Err(refused) => {
                    self.warn(format_args!("a connection is closed: {refused}"));
                    return Ok(());
                }
            },
        };
        let hello = authentication::server_hello()?;
        stream.send_all(&hello, deadline)?;
        let mut bytes = [0; CLIENT_HELLO];
        stream.receive_all(&mut bytes, deadline)?;
        let mut handshake = Handshake::new(self.settings.key.as_ref(), &hello)?;
        // An unauthenticated peer gets no response.
        let request = handshake.receive_client_hello(&bytes).inspect_err(|_| {
            if softdoca_net::is_tls(&bytes) {
                self.warn(format_args!("{}", tls::not_configured()));
            }
        })?;
        let found = self.find(&request);
        let result = found.as_ref().map(|_| ()).map_err(|error| *error);
        stream.send_all(&handshake.answer(result)?, deadline)?;
        drop(guard);
        match found? {
            Found::Liveness => serving::liveness(&stream),
            Found::Memory => serving::memory(self, stream),
            Found::Service(deliver) => {
                shielded(|| deliver(stream));
                Ok(())
            }
        }
    }

    fn find(&self, request: &Request) -> Result<Found> {
        if request.process != self.process {
            return Err(Error::NotFound);
        }
        match request.purpose {
            Purpose::Liveness => Ok(Found::Liveness),
            Purpose::Memory => Ok(Found::Memory),
            Purpose::Service => {
                let service = lock(&self.services).get(&request.key).cloned();
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

    /// Logs a warning, limited in rate because peers can cause any number of warnings.
    fn warn(&self, what: fmt::Arguments<'_>) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = warnings.admit(Instant::now()) {
            log::warn!("network: {what}{suppressed}");
        }
    }
}

enum Found {
    Liveness,
    Memory,
    Service(Deliver),
}

/// Starts a thread with signals blocked: the program's signal handlers must not run there.
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

/// Withdraws memory or a service from the network when dropped: no access is in progress afterwards.
pub(crate) struct NetworkGuard {
    listener: Arc<Listener>,
    key: Key,
}

impl fmt::Debug for NetworkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NetworkGuard").field(&self.key).finish()
    }
}

impl Drop for NetworkGuard {
    fn drop(&mut self) {
        let exposed = lock(&self.listener.exposed).remove(&self.key);
        if let Some(exposed) = exposed {
            exposed.withdraw();
        }
        let service = lock(&self.listener.services).remove(&self.key);
        drop(service);
    }
}

/// Makes memory accessible to peers on other machines under `key`, also through its RDMA device, if any; `None` if this
/// process does not use the network.
///
/// # Errors
/// As [`Listener::get`].
pub(crate) fn expose(
    key: Key,
    rights: Rights,
    range: (u64, u64),
    memory: Box<dyn Memory>,
    nic: Option<&'static Nic>,
) -> Result<Option<NetworkGuard>> {
    Ok(Listener::get()?.map(|listener| {
        let exposed = Exposed::new(rights, range, memory);
        if let Some(nic) = nic {
            exposed.register(nic);
        }
        listener.expose(key, exposed)
    }))
}

/// Connects one peer on another machine with `service`; `None` if this process does not use the network.
///
/// # Errors
/// As [`Listener::get`].
pub(crate) fn serve(key: Key, service: Service) -> Result<Option<NetworkGuard>> {
    Ok(Listener::get()?.map(|listener| {
        lock(&listener.services).insert(key, service);
        NetworkGuard { listener, key }
    }))
}

impl Listener {
    pub(super) fn expose(self: Arc<Self>, key: Key, exposed: Exposed) -> NetworkGuard {
        lock(&self.exposed).insert(key, Arc::new(exposed));
        NetworkGuard {
            listener: self,
            key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_most_connections_is_displaced() {
        let socket = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let of = |addresses: &[u8]| {
            let unauthenticated = addresses
                .iter()
                .zip(0..)
                .map(|(last, number)| Unauthenticated {
                    number,
                    address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, *last)),
                    socket: socket(),
                });
            displaced(&unauthenticated.collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[1]), Some(0));
        assert_eq!(of(&[1, 2, 2, 2, 3]), Some(1));
        assert_eq!(of(&[1, 2, 2, 1]), Some(0));
    }
}
