//! Processes on other machines: connecting to them, and detecting their end.
//!
//! A [`Link`] is a connection to a process that carries heartbeats for as long as this process uses the other one. The
//! kernel detects a dead machine; only an answer shows that the process is not stopped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::super::limits::{Deadline, Limits};
use super::super::server::lock;
use super::authentication::{Handshake, MAGIC, Purpose, Request, SERVER_ANSWER, SERVER_HELLO};
use super::listener::spawn;
use super::offer::{NetworkOffer, not_configured};
use super::settings::Settings;
use super::stream::{Stream, Unreached};
use super::tls;
use crate::error::{Error, Result};
use crate::log;
use crate::ring::EventFd;
use crate::runtime::Key;

/// Heartbeat interval.
const INTERVAL: Duration = Duration::from_millis(250);
/// Consecutive unanswered heartbeats after which the process is considered dead: 2.25 s with the last one.
const MAX_UNANSWERED: u32 = 8;
/// Time for data that an ended process has sent before over other connections to arrive.
const DELIVERY_GRACE: Duration = Duration::from_millis(100);
/// Time for a machine to answer a connection request before the attempt is repeated; the kernel would repeat it after
/// 1 s, and 2 s or 3 s.
const CONNECT: Duration = Duration::from_millis(500);
/// Time between attempts at all addresses.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for which a closed connection is kept, so that its peer can read what was sent.
const LINGER: Duration = Duration::from_secs(2);

/// A process on another machine.
#[derive(Debug)]
pub(crate) struct Link {
    process: Key,
    gone: AtomicBool,
    /// Readable once the process is gone.
    bell: EventFd,
}

/// Links by process; unused ones have ended.
static LINKS: Mutex<Option<HashMap<Key, Weak<Link>>>> = Mutex::new(None);

impl Link {
    /// Returns the link to the process of an offer; connects if there is none.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the process has ended, [`Error::TimeOut`] when its machine is not reached,
    /// [`Error::Authentication`] when it has another key, [`Error::NotSupported`] when this process does not use the network.
    pub(crate) fn to(offer: &NetworkOffer) -> Result<Arc<Link>> {
        if let Some(link) = Link::known(offer.process) {
            return Ok(link);
        }
        let stream = open(offer, Purpose::Liveness)?;
        let link = Link::unwatched(offer.process)?;
        let watched = Arc::downgrade(&link);
        spawn("softdoca-link", move || watch(&stream, &watched))?;
        lock(&LINKS)
            .get_or_insert_default()
            .insert(offer.process, Arc::downgrade(&link));
        Ok(link)
    }

    /// A link without a process.
    #[cfg(test)]
    pub(crate) fn example() -> Arc<Link> {
        Link::unwatched(Key::from_bytes([1; Key::SIZE])).expect("an eventfd")
    }

    pub(super) fn unwatched(process: Key) -> Result<Arc<Link>> {
        Ok(Arc::new(Link {
            process,
            gone: AtomicBool::new(false),
            bell: EventFd::new()?,
        }))
    }

    fn known(process: Key) -> Option<Arc<Link>> {
        let mut links = lock(&LINKS);
        let links = links.get_or_insert_default();
        links.retain(|_, link| link.strong_count() > 0);
        links
            .get(&process)
            .and_then(Weak::upgrade)
            .filter(|link| !link.is_gone())
    }

    pub(crate) fn process(&self) -> Key {
        self.process
    }

    /// Returns `true` if the process has ended, is stopped, or its machine is not reached any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns a descriptor, owned by the caller, that is readable once the process is gone.
    pub(crate) fn bell(&self) -> Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.bell.as_fd(), 0)?)
    }
}

/// Sends heartbeats until the peer does not answer or the link is unused.
fn watch(stream: &Stream, link: &Weak<Link>) {
    let mut unanswered = 0;
    let ended = loop {
        let Some(link) = link.upgrade() else { return };
        drop(link);
        match heartbeat(stream) {
            Ok(true) => unanswered = 0,
            // Counted, not timed: this process may have been stopped itself.
            Ok(false) if unanswered < MAX_UNANSWERED => unanswered += 1,
            Ok(false) => break "does not answer",
            Err(_) => {
                // Data that it has sent before over other connections must arrive first.
                std::thread::sleep(DELIVERY_GRACE);
                break "has ended, or its machine is not reached";
            }
        }
    };
    if let Some(link) = link.upgrade() {
        log::info!("a process on another machine {ended}");
        link.gone.store(true, Ordering::Release);
        link.bell.ring();
    }
}

/// Sends a heartbeat; returns `true` if the peer has sent anything within one interval.
fn heartbeat(stream: &Stream) -> Result<bool> {
    match stream.send_from(&[1]) {
        // Its buffers are full of heartbeats.
        Ok(_) | Err(Error::Again) => {}
        Err(error) => return Err(error),
    }
    let begin = Instant::now();
    let mut bytes = [0; 64];
    let mut answered = false;
    loop {
        match stream.receive_into(&mut bytes) {
            Ok(0) => return Err(Error::ConnectionReset),
            Ok(_) => answered = true,
            Err(Error::Again) => {
                let left = INTERVAL.saturating_sub(begin.elapsed());
                if left.is_zero() {
                    return Ok(answered);
                }
                match stream.wait_readable(Deadline::after(left)) {
                    Ok(()) | Err(Error::TimeOut) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the process of an offer at its first reachable address, and authenticates with the shared key.
///
/// # Errors
/// As [`Link::to`].
pub(super) fn open(offer: &NetworkOffer, purpose: Purpose) -> Result<Stream> {
    let settings = Settings::get()?.ok_or_else(not_configured)?;
    open_with(settings, Limits::get()?.request, offer, purpose)
}

/// As [`open`], within `limit`. Addresses of a machine that does not answer, or to which there is no route, are tried
/// again until then, so a shorter outage is not an error.
pub(super) fn open_with(
    settings: &Settings,
    limit: Duration,
    offer: &NetworkOffer,
    purpose: Purpose,
) -> Result<Stream> {
    let deadline = Deadline::after(limit);
    let request = Request {
        purpose,
        process: offer.process,
        key: offer.key,
    };
    let mut addresses: Vec<_> = offer.addresses().collect();
    loop {
        let mut round = Round::default();
        let mut others = addresses.len() as u32;
        for address in std::mem::take(&mut addresses) {
            settings.check(address.ip())?;
            let part = deadline.left() / others;
            others -= 1;
            let missed = match Stream::connect(address, Deadline::after(part.min(CONNECT))) {
                Ok(stream) => {
                    match set_up(stream, settings, address.ip(), offer, &request, part) {
                        // The port now belongs to another process, or the address to another machine.
                        Err(
                            error
                            @ (Error::NotFound | Error::NotConnected | Error::ConnectionReset),
                        ) => {
                            round.is_refused = true;
                            error
                        }
                        // It may have accepted the request, which must not be repeated.
                        Err(Error::TimeOut) => {
                            round.has_timed_out = true;
                            Error::TimeOut
                        }
                        done => return done,
                    }
                }
                Err(Unreached::Failed(error)) => return Err(error),
                Err(unreached) => {
                    match unreached {
                        Unreached::NoAnswer => round.is_lost = true,
                        Unreached::NoRoute => round.is_unreachable = true,
                        _ => round.is_refused = true,
                    }
                    addresses.push(address);
                    unreached.into()
                }
            };
            log::info!("a peer is not reached at {address}: {missed:?}");
        }
        if !round.is_worth_another() || deadline.left() <= PAUSE {
            return Err(round.error());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Results of trying all addresses of a process once.
#[derive(Default)]
struct Round {
    /// A machine has answered that the process does not exist.
    is_refused: bool,
    /// A machine has not answered.
    is_lost: bool,
    /// There is no route to a machine.
    is_unreachable: bool,
    /// A machine has accepted a connection, and sent nothing more in time.
    has_timed_out: bool,
}

impl Round {
    /// Addresses without a route are usual if a process offers several: an answer from another address that the process
    /// has ended is final.
    fn is_worth_another(&self) -> bool {
        self.is_lost || self.is_unreachable && !self.is_refused
    }

    fn error(&self) -> Error {
        if self.has_timed_out || self.is_worth_another() {
            Error::TimeOut
        } else {
            Error::NotFound
        }
    }
}

/// Encrypts a connection if configured, and authenticates this process.
fn set_up(
    stream: Stream,
    settings: &Settings,
    address: IpAddr,
    offer: &NetworkOffer,
    request: &Request,
    limit: Duration,
) -> Result<Stream> {
    if offer.tls && settings.tls.is_none() {
        return Err(needs_tls(&stream));
    }
    let deadline = Deadline::after(limit);
    let stream = encrypted(stream, settings, address, deadline)?;
    authenticate(&stream, settings, request, deadline)?;
    Ok(stream)
}

/// Adds TLS to a connection to a server at this address, if configured.
pub(super) fn encrypted(
    stream: Stream,
    settings: &Settings,
    address: IpAddr,
    deadline: Deadline,
) -> Result<Stream> {
    match &settings.tls {
        None => Ok(stream),
        Some(tls) => tls
            .connect(stream, address, deadline)
            .map_err(|refused| refused.explained()),
    }
}

/// Also shows the peer that only one side uses TLS.
fn needs_tls(stream: &Stream) -> Error {
    let _ = stream.send_from(&MAGIC);
    stream.shut_down_output();
    Error::Authentication.because(tls::not_configured())
}

pub(super) fn authenticate(
    stream: &Stream,
    settings: &Settings,
    request: &Request,
    deadline: Deadline,
) -> Result<()> {
    let mut hello = [0; SERVER_HELLO];
    stream.receive_all(&mut hello, deadline)?;
    let mut handshake = Handshake::new(settings.key.as_ref(), &hello)?;
    stream.send_all(&handshake.client_hello(request)?, deadline)?;
    let mut answer = [0; SERVER_ANSWER];
    let answered = stream.receive_all(&mut answer, deadline);
    let refused = || {
        Error::Authentication.because(
            "a peer on another machine does not have the key of this process: the file of SOFTDOCA_KEY_FILE has the same content on all \
             machines",
        )
    };
    match answered.and_then(|()| handshake.conclude(&answer)) {
        // Servers close the connections of unauthenticated peers without an answer.
        Err(Error::ConnectionReset | Error::Authentication) => Err(refused()),
        result => result,
    }
}

/// Closes a connection after delivery of the data sent last. If a socket with unread data were closed at once, the
/// kernel would discard data that the peer has not received.
pub(crate) fn close_after_delivery(stream: Stream) {
    static LINGERING: OnceLock<std::sync::mpsc::Sender<(Instant, Stream)>> = OnceLock::new();
    stream.shut_down_output();
    let mut rest = [0; 4096];
    loop {
        match stream.receive_into(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(Error::Again) => break,
            Err(_) => return,
        }
    }
    let sender = LINGERING.get_or_init(|| {
        let (sender, receiver) = std::sync::mpsc::channel();
        // Without the thread, connections sent to it are closed at once.
        let _ = spawn("softdoca-linger", move || linger(&receiver));
        sender
    });
    let _ = sender.send((Instant::now() + LINGER, stream));
}

fn linger(receiver: &std::sync::mpsc::Receiver<(Instant, Stream)>) {
    let mut streams: Vec<(Instant, Stream)> = Vec::new();
    let mut rest = [0; 4096];
    loop {
        let next = if streams.is_empty() {
            receiver.recv().ok()
        } else {
            receiver.recv_timeout(Duration::from_millis(10)).ok()
        };
        streams.extend(next);
        let now = Instant::now();
        streams.retain(|(until, stream)| {
            let ended = loop {
                match stream.receive_into(&mut rest) {
                    Ok(0) => break true,
                    Ok(_) => {}
                    Err(Error::Again) => break false,
                    Err(_) => break true,
                }
            };
            !ended && now < *until
        });
    }
}
