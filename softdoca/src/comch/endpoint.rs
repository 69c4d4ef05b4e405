//! An endpoint of the first Comm Channel (`doca_comm_channel.h` of 2.5 and 2.6): the control path of Comch without
//! contexts, callbacks and a progress engine.
//!
//! Programs poll an endpoint from any number of threads, or wait on its descriptors. All work is done in their calls:
//! there is no thread. Frames are those of Comch, so either end may be a Comch client or server of any release. A
//! message stays in the socket until it is received, and a socket that is full is a full send queue.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use doca_abi::doca_comm_channel_addr_t;
use rustix::event::epoll;

use super::control::Traffic;
use super::frame::{self, Arrival, Frame, MAX_FRAME};
use super::{
    Absence, Counter, MAX_MESSAGE_SIZE, MAX_RECV_QUEUE, MEMORIES, answer, check_caller, check_name,
    check_representor, listen, max_clients,
};
use crate::device::{Device, DeviceUse, Representor};
use crate::error::{Error, Result};
use crate::log;
use crate::runtime::{Listener, Socket};

/// Queue size of an endpoint for which none was set.
const DEFAULT_QUEUE: u16 = 64;
/// Bytes of messages that a peer has not received, as far as the system's limit allows. Programs that ignore
/// `DOCA_ERROR_AGAIN` rely on a queue of several messages.
const SEND_BUFFER: usize = 1 << 20;
/// Maximum number of clients of a service that have ended, and whose addresses remain valid for a program that has not
/// disconnected them. The API has no event for the end of a client, so a program may never do so.
const MAX_LOST: usize = 1024;
/// Number of times that a receive is repeated after a reset: it is reported before the messages that are left.
const MOST_RESETS: usize = 8;

/// Settings and connections of a `struct doca_comm_channel_ep_t`.
#[derive(Debug)]
pub(crate) struct Endpoint {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    device: Option<Arc<Device>>,
    representor: Option<Arc<Representor>>,
    max_message: u16,
    send_queue: u16,
    recv_queue: u16,
    role: Role,
    sets: Option<Sets>,
    peers: Vec<Linked>,
    /// Clients of a service that have ended, and that the program may still disconnect; oldest first.
    lost: VecDeque<Arc<Peer>>,
    /// Disconnected peers, oldest first.
    ended: VecDeque<Arc<Peer>>,
    /// Index of the peer from which a message is received next.
    turn: usize,
    listed: Listed,
}

#[derive(Debug, Default)]
enum Role {
    #[default]
    None,
    Service(Service),
    Client {
        _use: DeviceUse,
    },
}

#[derive(Debug)]
struct Service {
    listener: Listener,
    name: String,
    /// PCI address of the function whose clients may connect.
    function: String,
    /// Accepted sockets that have not sent a hello yet.
    pending: VecDeque<Socket>,
    _uses: [DeviceUse; 2],
}

/// The service's state as of the program's last update.
#[derive(Debug, Default)]
struct Listed {
    /// The array that the program gets; `AtomicPtr` has the layout of a pointer.
    addresses: Vec<AtomicPtr<doca_comm_channel_addr_t>>,
    pending: u32,
}

/// The descriptors that programs wait on: sets of sockets (epoll), readable while one of their sockets is ready.
#[derive(Debug)]
struct Sets {
    /// The listener and all connections, for input.
    receive: OwnedFd,
    /// Connections whose socket was full, for output.
    send: OwnedFd,
    /// The listener and the lifelines of all connections.
    service: OwnedFd,
}

/// A `struct doca_comm_channel_addr_t`.
#[derive(Debug)]
pub(crate) struct Peer {
    endpoint: Weak<Endpoint>,
    user_data: AtomicU64,
    traffic: Traffic,
}

/// A peer and its connection.
#[derive(Debug)]
struct Linked {
    peer: Arc<Peer>,
    link: Link,
    /// `true` if the program has the peer's address.
    is_known: bool,
}

#[derive(Debug)]
enum Link {
    /// The service's queue was full; the connect is retried.
    Calling { name: String },
    /// Connected; the service has not replied yet.
    Waiting { socket: Socket, lifeline: OwnedFd },
    Open {
        socket: Socket,
        lifeline: OwnedFd,
        /// Largest message in bytes that the peer accepts.
        max_message: u32,
        /// `true` while the socket is in [`Sets::send`].
        is_full: bool,
    },
    /// The peer has disconnected, or refused the connection.
    Ended,
}

impl Peer {
    fn new(endpoint: &Arc<Endpoint>) -> Arc<Self> {
        Arc::new(Self {
            endpoint: Arc::downgrade(endpoint),
            user_data: AtomicU64::new(0),
            traffic: Traffic::default(),
        })
    }

    pub(crate) fn user_data(&self) -> u64 {
        self.user_data.load(Ordering::Relaxed)
    }

    pub(crate) fn set_user_data(&self, data: u64) {
        self.user_data.store(data, Ordering::Relaxed);
    }

    /// The value of a counter at the last [`update`](Self::update).
    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.traffic.seen(counter)
    }

    /// Updates the counters, continues a connect, and checks the connection.
    ///
    /// # Errors
    /// [`Error::ConnectionInProgress`], or [`Error::ConnectionAborted`] if it has failed or ended.
    pub(crate) fn update(&self) -> Result<()> {
        self.traffic.update();
        let endpoint = self.endpoint.upgrade().ok_or(Error::ConnectionAborted)?;
        let mut state = endpoint.state();
        let index = state.position(self).ok_or(Error::ConnectionAborted)?;
        state.go_on_connecting(index);
        match &state.peers[index].link {
            Link::Calling { .. } | Link::Waiting { .. } => Err(Error::ConnectionInProgress),
            Link::Open { socket, .. } if !socket.is_closed() => Ok(()),
            Link::Open { .. } | Link::Ended => Err(Error::ConnectionAborted),
        }
    }
}

/// Settings, which are fixed while the endpoint is active.
impl Endpoint {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                device: None,
                representor: None,
                max_message: MAX_MESSAGE_SIZE as u16,
                send_queue: DEFAULT_QUEUE,
                recv_queue: DEFAULT_QUEUE,
                role: Role::None,
                sets: None,
                peers: Vec::new(),
                lost: VecDeque::new(),
                ended: VecDeque::new(),
                turn: 0,
                listed: Listed::default(),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn device(&self) -> Option<Arc<Device>> {
        self.state().device.clone()
    }

    pub(crate) fn set_device(&self, device: Arc<Device>) -> Result<()> {
        self.idle()?.device = Some(device);
        Ok(())
    }

    pub(crate) fn representor(&self) -> Option<Arc<Representor>> {
        self.state().representor.clone()
    }

    pub(crate) fn set_representor(&self, representor: Arc<Representor>) -> Result<()> {
        self.idle()?.representor = Some(representor);
        Ok(())
    }

    pub(crate) fn max_message(&self) -> u16 {
        self.state().max_message
    }

    pub(crate) fn set_max_message(&self, size: u16) -> Result<()> {
        super::check_range("largest message", size.into(), MAX_MESSAGE_SIZE)?;
        self.idle()?.max_message = size;
        Ok(())
    }

    pub(crate) fn send_queue(&self) -> u16 {
        self.state().send_queue
    }

    pub(crate) fn set_send_queue(&self, size: u16) -> Result<()> {
        self.idle()?.send_queue = rounded(size)?;
        Ok(())
    }

    pub(crate) fn recv_queue(&self) -> u16 {
        self.state().recv_queue
    }

    pub(crate) fn set_recv_queue(&self, size: u16) -> Result<()> {
        self.idle()?.recv_queue = rounded(size)?;
        Ok(())
    }

    /// The state of an endpoint that neither listens nor is connected.
    fn idle(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        match state.role {
            Role::None => Ok(state),
            _ => Err(Error::BadState.because("set an endpoint's properties before it is active")),
        }
    }
}

/// Size of a queue, a power of two, for a requested one.
fn rounded(size: u16) -> Result<u16> {
    super::check_range("queue size", size.into(), MAX_RECV_QUEUE)?;
    Ok(size.next_power_of_two())
}

/// Connections and messages.
impl Endpoint {
    /// Makes the endpoint a service.
    ///
    /// # Errors
    /// [`Error::BadState`] without a device and a representor, [`Error::NotPermitted`] if the endpoint is active,
    /// [`Error::NotSupported`] on a host's device, [`Error::ConnectionAborted`] if the name is in use.
    pub(crate) fn listen(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let mut state = self.state();
        state.expect_inactive()?;
        let (Some(device), Some(representor)) = (&state.device, &state.representor) else {
            return Err(Error::BadState.because("a service needs a device and a representor"));
        };
        if device.model().representors.is_empty() {
            return Err(
                Error::NotSupported.because("services run on a DPU, and this is a host's device")
            );
        }
        check_representor(device, representor)?;
        let function = representor.model().pci.to_string();
        let listener = listen(name, &function).map_err(|error| match error {
            Error::AlreadyExist => Error::ConnectionAborted,
            error => error,
        })?;
        let sets = Sets::new()?;
        sets.add_listener(&listener)?;
        let uses = [
            DeviceUse::of_device(device),
            DeviceUse::of_representor(representor),
        ];
        state.sets = Some(sets);
        state.role = Role::Service(Service {
            listener,
            name: name.to_owned(),
            function,
            pending: VecDeque::new(),
            _uses: uses,
        });
        Ok(())
    }

    /// Connects to a service, which has to receive before the connection is established.
    ///
    /// # Errors
    /// [`Error::BadState`] without a device, [`Error::NotPermitted`] if the endpoint is active, [`Error::NotSupported`]
    /// on a DPU's device, [`Error::ConnectionAborted`] if no such service listens.
    pub(crate) fn connect(self: &Arc<Self>, name: &str) -> Result<Arc<Peer>> {
        check_name(name)?;
        let mut state = self.state();
        state.expect_inactive()?;
        let Some(device) = state.device.clone() else {
            return Err(Error::BadState.because("a client needs a device"));
        };
        if !device.model().representors.is_empty() {
            return Err(
                Error::NotSupported.because("clients run on a host, and this is a DPU's device")
            );
        }
        let sets = Sets::new()?;
        let link = call(&device, name, state.max_message, &sets).map_err(|error| match error {
            Error::NotFound => {
                let device = &*device;
                let _ = Error::NotFound.because(Absence { name, device });
                Error::ConnectionAborted
            }
            error => error,
        })?;
        let peer = Peer::new(self);
        state.sets = Some(sets);
        state.role = Role::Client {
            _use: DeviceUse::of_device(&device),
        };
        state.peers.push(Linked {
            peer: Arc::clone(&peer),
            link,
            is_known: true,
        });
        Ok(peer)
    }

    /// Sends a copy of a message.
    ///
    /// # Errors
    /// [`Error::Again`] if the socket is full or the connection is not established yet, [`Error::InvalidValue`] for a
    /// message that is empty or too long, [`Error::NotConnected`] for a peer that was disconnected,
    /// [`Error::ConnectionReset`] if the peer has ended.
    pub(crate) fn send(&self, message: &[u8], peer: &Peer) -> Result<()> {
        let state = &mut *self.state();
        let most = u32::from(state.max_message);
        let Some(index) = state.position(peer) else {
            return Err(match state.position_of_lost(peer) {
                Some(_) => Error::ConnectionReset,
                None => not_connected(),
            });
        };
        state.go_on_connecting(index);
        let (Linked { link, peer, .. }, Some(sets)) = (&mut state.peers[index], &state.sets) else {
            return Err(not_connected());
        };
        let Link::Open {
            socket,
            max_message,
            is_full,
            ..
        } = link
        else {
            return Err(match link {
                Link::Ended => Error::ConnectionReset,
                _ => Error::Again,
            });
        };
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        super::check_range("message length", len, most.min(*max_message))?;
        match socket.send(&Frame::Message(message).encode(), &[]) {
            Ok(()) => {
                sets.set_full(socket, is_full, false);
                peer.traffic.sent(message.len());
                Ok(())
            }
            Err(Error::Again) => {
                sets.set_full(socket, is_full, true);
                Err(Error::Again)
            }
            // Messages that it has sent before can still be received.
            Err(_) => Err(Error::ConnectionReset),
        }
    }

    /// Receives a message of any peer into `buffer`. Returns its length, and the peer. A service admits clients.
    ///
    /// # Errors
    /// [`Error::Again`] if there is no message, [`Error::NotConnected`] if the endpoint is not active,
    /// [`Error::InvalidValue`] if the message does not fit; it is not lost. For a client, [`Error::ConnectionReset`] if
    /// the service has ended.
    pub(crate) fn receive(self: &Arc<Self>, buffer: &mut [u8]) -> Result<(usize, Arc<Peer>)> {
        let state = &mut *self.state();
        match state.role {
            Role::None => return Err(not_connected()),
            Role::Service(_) => state.admit(self),
            Role::Client { .. } => state.go_on_connecting(0),
        }
        let count = state.peers.len();
        for step in 0..count {
            let index = (state.turn + step) % count;
            match state.receive_from(index, buffer) {
                Ok(len) => {
                    state.turn = (index + 1) % count;
                    let linked = &mut state.peers[index];
                    linked.is_known = true;
                    return Ok((len, Arc::clone(&linked.peer)));
                }
                Err(Error::Again) => {}
                Err(error) => return Err(error),
            }
        }
        let is_lost = |linked: &Linked| matches!(linked.link, Link::Ended);
        if matches!(state.role, Role::Client { .. }) && state.peers.iter().all(is_lost) {
            return Err(Error::ConnectionReset);
        }
        Err(Error::Again)
    }

    /// Ends a connection. A client may then connect again.
    ///
    /// # Errors
    /// [`Error::NotConnected`] for a peer that was disconnected before.
    pub(crate) fn disconnect(&self, peer: &Peer) -> Result<()> {
        let mut state = self.state();
        let peer = if let Some(index) = state.position(peer) {
            state.end(index);
            state.turn = 0;
            Some(state.peers.remove(index).peer)
        } else {
            let index = state.position_of_lost(peer);
            index.and_then(|index| state.lost.remove(index))
        };
        state.ended.push_back(peer.ok_or_else(not_connected)?);
        if state.ended.len() > MEMORIES {
            state.ended.pop_front();
        }
        if matches!(state.role, Role::Client { .. }) {
            state.role = Role::None;
            state.sets = None;
        }
        Ok(())
    }

    /// Passes the descriptors for sending and receiving.
    ///
    /// # Errors
    /// [`Error::BadState`] if the endpoint is not active.
    pub(crate) fn with_event_channels<T>(
        &self,
        take: impl FnOnce(BorrowedFd<'_>, BorrowedFd<'_>) -> T,
    ) -> Result<T> {
        let state = self.state();
        let sets = state.sets.as_ref().ok_or_else(inactive)?;
        Ok(take(sets.send.as_fd(), sets.receive.as_fd()))
    }

    /// Passes the descriptor for clients that connect and disconnect.
    ///
    /// # Errors
    /// [`Error::BadState`] if the endpoint is not active, [`Error::NotSupported`] for a client.
    pub(crate) fn with_service_channel<T>(
        &self,
        take: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> Result<T> {
        let state = self.state();
        let sets = state.sets.as_ref().ok_or_else(inactive)?;
        state.expect_service()?;
        Ok(take(sets.service.as_fd()))
    }

    /// Makes the descriptor for sending readable once a socket that was full is not, or at once if none was full.
    pub(crate) fn arm_send(&self) {
        let state = &mut *self.state();
        let Some(sets) = &state.sets else { return };
        let is_full =
            |linked: &Linked| matches!(linked.link, Link::Open { is_full, .. } if is_full);
        if state.peers.iter().any(is_full) {
            return;
        }
        for linked in &mut state.peers {
            if let Link::Open {
                socket, is_full, ..
            } = &mut linked.link
            {
                sets.set_full(socket, is_full, true);
            }
        }
    }

    /// Admits clients, and makes [`addresses`](Self::with_addresses) and [`pending`](Self::pending) current.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a client.
    pub(crate) fn update_service(self: &Arc<Self>) -> Result<()> {
        let state = &mut *self.state();
        state.expect_service()?;
        state.admit(self);
        let mut addresses = Vec::new();
        for linked in &mut state.peers {
            let Link::Open {
                socket, lifeline, ..
            } = &linked.link
            else {
                continue;
            };
            if socket.is_closed() {
                if let Some(sets) = &state.sets {
                    match socket.peek(&mut [0; MAX_FRAME]) {
                        // The program may never receive.
                        Ok(None) => {
                            sets.remove(socket, lifeline);
                            linked.link = Link::Ended;
                        }
                        // Its lifeline would keep the descriptor readable; its messages can still be received.
                        _ => {
                            let _ = epoll::delete(&sets.service, lifeline);
                        }
                    }
                }
                continue;
            }
            linked.is_known = true;
            let address = Arc::as_ptr(&linked.peer).cast_mut();
            addresses.push(AtomicPtr::new(address.cast()));
        }
        let pending = match &state.role {
            Role::Service(service) => service.pending.len() as u32,
            _ => 0,
        };
        state.listed = Listed { addresses, pending };
        Ok(())
    }

    /// Passes the array of the addresses of connected clients, valid until the next update, and its length.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a client.
    pub(crate) fn with_addresses<T>(
        &self,
        take: impl FnOnce(*mut *mut doca_comm_channel_addr_t, u32) -> T,
    ) -> Result<T> {
        let mut state = self.state();
        state.expect_service()?;
        let addresses = &mut state.listed.addresses;
        Ok(take(addresses.as_mut_ptr().cast(), addresses.len() as u32))
    }

    /// Number of clients that have not sent their hello yet.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a client.
    pub(crate) fn pending(&self) -> Result<u32> {
        let state = self.state();
        state.expect_service()?;
        Ok(state.listed.pending)
    }
}

fn not_connected() -> Error {
    Error::NotConnected.because("expected an address of a connection of this endpoint")
}

fn inactive() -> Error {
    Error::BadState.because("the endpoint neither listens nor is connected")
}

/// Connects to a service, and sends the hello.
fn call(device: &Device, name: &str, max_message: u16, sets: &Sets) -> Result<Link> {
    match super::call(device, name, max_message.into()) {
        Ok((socket, lifeline)) => {
            grow(&socket);
            sets.add(&socket)?;
            Ok(Link::Waiting { socket, lifeline })
        }
        Err(Error::Again) => Ok(Link::Calling {
            name: name.to_owned(),
        }),
        Err(error) => Err(error),
    }
}

/// Requests a larger send buffer; the system's default also works.
fn grow(socket: &Socket) {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket.as_fd(), SEND_BUFFER);
}

impl State {
    fn expect_inactive(&self) -> Result<()> {
        match self.role {
            Role::None => Ok(()),
            Role::Service(_) => Err(Error::NotPermitted.because("the endpoint listens already")),
            Role::Client { .. } => {
                Err(Error::NotPermitted.because("the endpoint is connected already"))
            }
        }
    }

    fn expect_service(&self) -> Result<()> {
        match self.role {
            Role::Service(_) => Ok(()),
            _ => Err(Error::NotSupported.because("expected the endpoint of a service")),
        }
    }

    fn position(&self, peer: &Peer) -> Option<usize> {
        let is_it = |linked: &Linked| std::ptr::eq(&*linked.peer, peer);
        self.peers.iter().position(is_it)
    }

    fn position_of_lost(&self, peer: &Peer) -> Option<usize> {
        let is_it = |lost: &Arc<Peer>| std::ptr::eq(&**lost, peer);
        self.lost.iter().position(is_it)
    }

    /// Removes clients that have ended. Those whose address the program has are kept for it, within [`MAX_LOST`].
    fn remove_ended(&mut self) {
        let is_ended = |linked: &mut Linked| matches!(linked.link, Link::Ended);
        if !self.peers.iter_mut().any(is_ended) {
            return;
        }
        self.turn = 0;
        for linked in self.peers.extract_if(.., is_ended) {
            if linked.is_known {
                self.lost.push_back(linked.peer);
            }
        }
        let excess = self.lost.len().saturating_sub(MAX_LOST);
        self.lost.drain(..excess);
    }

    /// Closes a connection.
    fn end(&mut self, index: usize) {
        let link = std::mem::replace(&mut self.peers[index].link, Link::Ended);
        if let (
            Link::Waiting { socket, lifeline }
            | Link::Open {
                socket, lifeline, ..
            },
            Some(sets),
        ) = (link, &self.sets)
        {
            sets.remove(&socket, &lifeline);
        }
    }

    /// Continues the handshake of a client.
    fn go_on_connecting(&mut self, index: usize) {
        let (Some(linked), Some(sets)) = (self.peers.get_mut(index), &self.sets) else {
            return;
        };
        if let Link::Calling { name } = &linked.link
            && let Some(device) = &self.device
        {
            linked.link = match call(device, name, self.max_message, sets) {
                Ok(link) => link,
                Err(error) => {
                    log::warn!("cannot connect to the service {name:?}: {error}");
                    Link::Ended
                }
            };
        }
        let Link::Waiting { socket, .. } = &linked.link else {
            return;
        };
        let reason = match answer(socket) {
            None => return,
            Some(Ok(max_message)) => {
                let Link::Waiting { socket, lifeline } =
                    std::mem::replace(&mut linked.link, Link::Ended)
                else {
                    return;
                };
                linked.link = Link::Open {
                    socket,
                    lifeline,
                    max_message,
                    is_full: false,
                };
                return;
            }
            Some(Err(reason)) => reason,
        };
        log::warn!("cannot connect to the service: {reason}");
        self.end(index);
    }

    /// Accepts clients, and answers their hellos.
    fn admit(&mut self, endpoint: &Arc<Endpoint>) {
        self.remove_ended();
        let (Role::Service(service), Some(sets)) = (&mut self.role, &self.sets) else {
            return;
        };
        loop {
            match service.listener.accept() {
                Ok(Some(socket)) => {
                    grow(&socket);
                    if sets.add(&socket).is_ok() {
                        service.pending.push_back(socket);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    log::warn!(
                        "the service {:?} cannot accept a client: {error}",
                        service.name
                    );
                    break;
                }
            }
            if service.pending.len() > max_clients() {
                service.pending.pop_front();
            }
        }
        for _ in 0..service.pending.len() {
            let Some(socket) = service.pending.pop_front() else {
                return;
            };
            let caller = match frame::receive_hello(&socket) {
                Arrival::Waiting => {
                    service.pending.push_back(socket);
                    continue;
                }
                // Other processes probe a server by connecting and closing.
                Arrival::Gone => continue,
                Arrival::Faulty(reason) => {
                    log::warn!("the service {:?} drops a client: {reason}", service.name);
                    continue;
                }
                Arrival::Received(caller) => caller,
            };
            let open = self.peers.len();
            let admitted = check_caller(&caller, &service.name, &service.function, open);
            if let Err((error, reason)) = admitted {
                log::warn!("the service {:?} refuses a client: {reason}", service.name);
                frame::refuse(&socket, error, &reason);
                continue;
            }
            // A Comch client expects its own limit.
            let max_message = caller.max_message.min(MAX_MESSAGE_SIZE);
            let lifeline = caller.lifeline;
            if frame::accept(&socket, caller.max_message).is_err()
                || sets.add_lifeline(&lifeline).is_err()
            {
                continue;
            }
            self.peers.push(Linked {
                peer: Peer::new(endpoint),
                link: Link::Open {
                    socket,
                    lifeline,
                    max_message,
                    is_full: false,
                },
                is_known: false,
            });
        }
    }

    /// Receives a message of one peer; `Again` if there is none.
    fn receive_from(&mut self, index: usize, buffer: &mut [u8]) -> Result<usize> {
        let mut scratch = [0; MAX_FRAME];
        let mut resets = 0;
        loop {
            let Linked { peer, link, .. } = &self.peers[index];
            let Link::Open { socket, .. } = link else {
                return Err(Error::Again);
            };
            let mut descriptors = Vec::new();
            let arrived = socket.peek(&mut scratch).and_then(|len| {
                let Some(len) = len else { return Ok(None) };
                if let Ok(Frame::Message(message)) = Frame::decode(&scratch[..len])
                    && message.len() > buffer.len()
                {
                    return Err(Error::InvalidValue.because(format_args!(
                        "a message of {} bytes has arrived, the buffer has {}; receive it with a larger one",
                        message.len(),
                        buffer.len()
                    )));
                }
                socket.receive(&mut scratch, &mut descriptors)
            });
            let reason = match arrived {
                Ok(Some(len)) => match Frame::decode(&scratch[..len]) {
                    Ok(Frame::Message(message)) => {
                        buffer[..message.len()].copy_from_slice(message);
                        peer.traffic.received(message.len());
                        return Ok(message.len());
                    }
                    // Consumers and producers of a Comch peer, which an endpoint does not have.
                    Ok(
                        Frame::ConsumerAdded { .. }
                        | Frame::ConsumerExpired { .. }
                        | Frame::ProducerAttached { .. },
                    ) => continue,
                    Ok(_) => "a frame of the handshake on an established connection".to_owned(),
                    Err(malformed) => malformed.to_string(),
                },
                Ok(None) => {
                    self.end(index);
                    return Err(Error::Again);
                }
                Err(error @ (Error::Again | Error::InvalidValue)) => return Err(error),
                // Reported once if the peer has closed the connection without receiving everything.
                Err(Error::ConnectionReset) if resets < MOST_RESETS => {
                    resets += 1;
                    continue;
                }
                Err(error) => format!("receiving failed with {error}"),
            };
            log::warn!("a connection of a Comm Channel endpoint ends: {reason}");
            self.end(index);
            return Err(Error::Again);
        }
    }
}

impl Sets {
    fn new() -> Result<Self> {
        let set = || epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(Self {
            receive: set()?,
            send: set()?,
            service: set()?,
        })
    }

    fn add_listener(&self, listener: &Listener) -> Result<()> {
        watch(&self.receive, listener, epoll::EventFlags::IN)?;
        watch(&self.service, listener, epoll::EventFlags::IN)
    }

    fn add(&self, socket: &Socket) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        watch(&self.receive, socket, flags)
    }

    fn add_lifeline(&self, lifeline: &OwnedFd) -> Result<()> {
        watch(&self.service, lifeline, epoll::EventFlags::RDHUP)
    }

    /// Adds or removes a connection whose socket is full or not any more.
    fn set_full(&self, socket: &Socket, is_full: &mut bool, wanted: bool) {
        if *is_full == wanted {
            return;
        }
        *is_full = match wanted {
            true => watch(&self.send, socket, epoll::EventFlags::OUT).is_ok(),
            false => epoll::delete(&self.send, socket).is_err(),
        };
    }

    /// Removes a connection from all sets, before it is closed.
    fn remove(&self, socket: &Socket, lifeline: &OwnedFd) {
        // Most connections are in some of the sets only.
        let _ = epoll::delete(&self.receive, socket);
        let _ = epoll::delete(&self.send, socket);
        let _ = epoll::delete(&self.service, lifeline);
    }
}

/// Adds a descriptor to a set, which only tells whether one of its descriptors is ready.
fn watch(set: &OwnedFd, fd: impl AsFd, flags: epoll::EventFlags) -> Result<()> {
    Ok(epoll::add(set, fd, epoll::EventData::new_u64(0), flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Representor;

    fn service(name: &str) -> Arc<Endpoint> {
        let device = Device::open_by_name("0000:03:00.0").expect("the DPU's device");
        let infos = device.representors(None).expect("representors");
        let service = Endpoint::new();
        service.set_device(device).expect("an idle endpoint");
        service
            .set_representor(Representor::open(&infos[0]))
            .expect("an idle endpoint");
        service.listen(name).expect("an unused name");
        service
    }

    /// A client whose hello the service has answered.
    fn client(service: &Arc<Endpoint>, name: &str) -> (Arc<Endpoint>, Arc<Peer>) {
        let client = Endpoint::new();
        let device = Device::open_by_name("0000:3b:00.0").expect("the host's device");
        client.set_device(device).expect("an idle endpoint");
        let peer = client.connect(name).expect("a service");
        while peer.update() == Err(Error::ConnectionInProgress) {
            assert_eq!(receive(service).err(), Some(Error::Again));
        }
        (client, peer)
    }

    fn receive(endpoint: &Arc<Endpoint>) -> Result<Arc<Peer>> {
        endpoint.receive(&mut [0; 16]).map(|(_, peer)| peer)
    }

    /// Numbers of peers, and of clients that have ended and are not disconnected.
    fn kept(endpoint: &Endpoint) -> (usize, usize) {
        let state = endpoint.state();
        (state.peers.len(), state.lost.len())
    }

    #[test]
    fn clients_unknown_to_the_program_are_forgotten_when_they_end() {
        let name = format!("forgotten-{}", std::process::id());
        let service = service(&name);
        for _ in 0..20 {
            drop(client(&service, &name));
            assert_eq!(receive(&service).err(), Some(Error::Again));
        }
        assert!(kept(&service).0 <= 1, "{:?}", kept(&service));
        assert_eq!(receive(&service).err(), Some(Error::Again));
        assert_eq!(kept(&service), (0, 0));
        // A service that never receives.
        drop(client(&service, &name));
        for _ in 0..2 {
            service.update_service().expect("a service");
        }
        assert_eq!(kept(&service), (0, 0));
    }

    #[test]
    fn addresses_of_ended_clients_are_valid_within_the_bound() {
        let name = format!("addresses-{}", std::process::id());
        let service = service(&name);
        let mut first = None;
        for _ in 0..MAX_LOST + 3 {
            let (client, peer) = client(&service, &name);
            client.send(b"x", &peer).expect("an established connection");
            let peer = receive(&service).expect("a message");
            drop(client);
            assert_eq!(receive(&service).err(), Some(Error::Again));
            first.get_or_insert(peer);
        }
        assert_eq!(receive(&service).err(), Some(Error::Again));
        assert_eq!(kept(&service), (0, MAX_LOST));
        let first = first.expect("a client");
        assert_eq!(service.disconnect(&first), Err(Error::NotConnected));
        let kept_first = Arc::clone(&service.state().lost[0]);
        assert_eq!(kept_first.update(), Err(Error::ConnectionAborted));
        assert_eq!(service.send(b"x", &kept_first), Err(Error::ConnectionReset));
        assert_eq!(service.disconnect(&kept_first), Ok(()));
        assert_eq!(
            service.disconnect(&kept_first),
            Err(Error::NotConnected),
            "again"
        );
        assert_eq!(kept(&service), (0, MAX_LOST - 1));
    }
}
