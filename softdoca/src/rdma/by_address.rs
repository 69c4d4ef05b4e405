//! Connections by address: listening ports, requests, acceptance and rejection, and the handshake over a socket in the
//! runtime directory.
//!
//! ```text
//!    0  6 bytes magic, u16 version
//!    8  u8 kind: 1 request, 2 acceptance, 3 rejection, 4 ready; u8 length of the data at the end
//!   10  connection details, of requests and acceptances
//!       of requests the client's address, u8 type (`doca_rdma_addr_type`) and 16 bytes; of acceptances private data
//! ```
//!
//! The client sends a request and waits; the server's program accepts or rejects; the client reports that it is
//! connected. Only then is the connection established for the server. If the socket is closed before, the request was
//! rejected.

use std::ffi::{CStr, CString};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::{
    DOCA_RDMA_ADDR_TYPE_GID, DOCA_RDMA_ADDR_TYPE_IPv4, DOCA_RDMA_ADDR_TYPE_IPv6, doca_data,
    doca_rdma_addr_type,
};

use super::Rdma;
use super::connection::{Connection, ConnectionDetails, Ending, expect_running};
use super::transport::ConnectionOutbox;
use crate::error::{Error, Result};
use crate::log;
use crate::progress::{Ctx, Urgency};
use crate::runtime::{Listener, RuntimeDir, Socket, named_socket};
use crate::topology::{DeviceModel, Topology};

impl Rdma {
    /// Connects to the listener at `address`. The result, including the absence of a listener, is reported by
    /// callbacks.
    ///
    /// # Errors
    /// The errors of an export; [`Error::NotSupported`] for dynamic connections.
    pub(crate) fn connect_to_address(
        &self,
        ctx: &Ctx,
        address: &Arc<Address>,
        user_data: doca_data,
    ) -> Result<()> {
        self.config.expect_reliable()?;
        let (connection, details) = self.offer(ctx, true)?;
        connection.set_user_data(user_data);
        connection.set_address(Arc::clone(address));
        match call(address).and_then(|socket| {
            let from = Host::of(self.device.model(), address);
            send_message(&socket, &Message::Request { details, from })?;
            self.start_handshake(ctx, &connection, Handshake::Asked(socket))
        }) {
            Ok(()) => {}
            Err(error) => {
                log::warn!(
                    "no RDMA instance answers at {:?} port {}: {error}",
                    address.text(),
                    address.port()
                );
                self.end(ctx, &connection, Ending::Orderly);
            }
        }
        // Wakes a thread that waits for the callback.
        ctx.pe()?.wake().ring();
        Ok(())
    }

    /// Accepts a peer's connection request.
    ///
    /// # Errors
    /// [`Error::BadState`] for a connection that was not requested, [`Error::ConnectionAborted`] if the peer has
    /// disconnected.
    pub(crate) fn accept(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        private_data: &[u8],
    ) -> Result<()> {
        let (socket, theirs) = self.take_request(ctx, connection)?;
        let accepted = self.claim(&theirs).and_then(|outbox| {
            let message = Message::Acceptance {
                details: ConnectionDetails::decode(connection.details())?,
                private_data: private_data.to_vec(),
            };
            send_message(&socket, &message)?;
            let handshake = Handshake::Accepted(socket, Box::new(outbox), theirs.permissions);
            self.start_handshake(ctx, connection, handshake)
        });
        accepted.map_err(|error| {
            self.end(ctx, connection, Ending::Orderly);
            Error::ConnectionAborted.because(format_args!(
                "the peer that asked for an RDMA connection has gone: {error}"
            ))
        })
    }

    /// Rejects a peer's connection request.
    ///
    /// # Errors
    /// As [`Rdma::accept`].
    pub(crate) fn reject(&self, ctx: &Ctx, connection: &Rc<Connection>) -> Result<()> {
        let (socket, _) = self.take_request(ctx, connection)?;
        // A peer that has disconnected needs no response.
        let _ = send_message(&socket, &Message::Rejection);
        self.forget(ctx, connection);
        Ok(())
    }

    fn take_request(
        &self,
        ctx: &Ctx,
        connection: &Connection,
    ) -> Result<(Socket, ConnectionDetails)> {
        if connection.has_ended() {
            return Err(Error::ConnectionAborted
                .because("the peer that asked for an RDMA connection has gone"));
        }
        match self.take_handshake(ctx, connection) {
            Some(Handshake::Requested(socket, details)) => Ok((socket, details)),
            other => {
                if let Some(handshake) = other {
                    self.start_handshake(ctx, connection, handshake)?;
                }
                Err(Error::BadState.because(
                    "expected a connection that a peer has just asked for (from the request callback)",
                ))
            }
        }
    }

    /// Handles the peer's response or disconnection.
    pub(super) fn on_handshake(&self, ctx: &Ctx, connection: &Rc<Connection>) {
        let Some(handshake) = self.take_handshake(ctx, connection) else {
            return;
        };
        let polled = poll_message(handshake.socket());
        let done = match (handshake, polled) {
            (handshake, Polled::Pending) => self.start_handshake(ctx, connection, handshake),
            (
                Handshake::Asked(socket),
                Polled::Message(Message::Acceptance {
                    details,
                    private_data: _,
                }),
            ) => self.claim(&details).and_then(|outbox| {
                self.establish(ctx, connection, outbox, details.permissions)?;
                send_message(&socket, &Message::Ready)
            }),
            (Handshake::Accepted(_, outbox, permissions), Polled::Message(Message::Ready)) => {
                self.establish(ctx, connection, *outbox, permissions)
            }
            _ => Err(Error::ConnectionAborted),
        };
        if done.is_err() {
            self.end(ctx, connection, Ending::Orderly);
        }
    }

    /// Watches a connection that is being established.
    fn start_handshake(
        &self,
        ctx: &Ctx,
        connection: &Connection,
        handshake: Handshake,
    ) -> Result<()> {
        let token = Watched::Handshake.token(connection.id());
        ctx.pe()?
            .watch(handshake.socket().as_fd(), ctx, token, Urgency::Message)?;
        connection.handshake.replace(Some(handshake));
        Ok(())
    }

    /// Takes the handshake of a connection that was established or has failed.
    pub(super) fn take_handshake(&self, ctx: &Ctx, connection: &Connection) -> Option<Handshake> {
        let handshake = connection.handshake.take()?;
        if let Ok(pe) = ctx.pe() {
            pe.unwatch(handshake.socket().as_fd(), Urgency::Message);
        }
        Some(handshake)
    }
}

/// Connects to the listener at an address.
fn call(address: &Address) -> Result<Socket> {
    let directory = RuntimeDir::get()?;
    let mut result = Err(Error::NotFound);
    for name in address.sockets()? {
        result = Socket::connect(&directory, &name);
        if result.is_ok() {
            break;
        }
    }
    result
}

const MAGIC: [u8; 6] = *b"SDRDCM";
const VERSION: u16 = 2;
const HEAD: usize = 10;
const LONGEST: usize = HEAD + ConnectionDetails::LONGEST + u8::MAX as usize;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Request {
        details: ConnectionDetails,
        /// The client's address, of the same type as the server's.
        from: Host,
    },
    Acceptance {
        details: ConnectionDetails,
        private_data: Vec<u8>,
    },
    Rejection,
    Ready,
}

/// Result of polling the socket.
#[derive(Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
enum Polled {
    Pending,
    Message(Message),
    /// The peer has disconnected, or sent a malformed message.
    Closed,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let host;
        let (kind, details, private_data): (u8, _, &[u8]) = match self {
            Message::Request { details, from } => {
                host = from.encode();
                (1, Some(details), &host)
            }
            Message::Acceptance {
                details,
                private_data,
            } => (2, Some(details), private_data),
            Message::Rejection => (3, None, &[]),
            Message::Ready => (4, None, &[]),
        };
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        // Length limit of a u8 in the C API.
        let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        bytes.extend_from_slice(&[kind, len]);
        if let Some(details) = details {
            bytes.extend_from_slice(&details.encode());
        }
        bytes.extend_from_slice(&private_data[..usize::from(len)]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Message> {
        let (head, rest) = bytes
            .split_first_chunk::<HEAD>()
            .filter(|(head, _)| head[..6] == MAGIC)
            .ok_or(Error::InvalidValue)?;
        if head[6..8] != VERSION.to_be_bytes() {
            return Err(Error::UnsupportedVersion.because(
                "an RDMA peer connects with another version of softdoca: run the same one on both sides",
            ));
        }
        let (kind, len) = (head[8], usize::from(head[9]));
        let (details, private_data) = rest
            .len()
            .checked_sub(len)
            .map(|at| rest.split_at(at))
            .ok_or(Error::InvalidValue)?;
        match (kind, details.is_empty(), len) {
            (1, false, _) => Ok(Message::Request {
                details: ConnectionDetails::decode(details)?,
                from: Host::decode(private_data)?,
            }),
            (2, false, _) => Ok(Message::Acceptance {
                details: ConnectionDetails::decode(details)?,
                private_data: private_data.to_vec(),
            }),
            (3, true, 0) => Ok(Message::Rejection),
            (4, true, 0) => Ok(Message::Ready),
            _ => Err(Error::InvalidValue),
        }
    }
}

impl Polled {
    fn of(len: Result<Option<usize>>, bytes: &[u8]) -> Polled {
        match len {
            Err(Error::Again) => Polled::Pending,
            Ok(Some(len)) => Message::decode(&bytes[..len]).map_or(Polled::Closed, Polled::Message),
            Ok(None) | Err(_) => Polled::Closed,
        }
    }
}

/// Sends a message. It fits in the socket buffer: no other message is in flight.
fn send_message(socket: &Socket, message: &Message) -> Result<()> {
    socket.send(&message.encode(), &[])
}

/// Receives a message, without blocking.
fn poll_message(socket: &Socket) -> Polled {
    let mut bytes = [0; LONGEST + 1];
    let mut fds = Vec::new();
    let len = socket.receive(&mut bytes, &mut fds);
    if !fds.is_empty() {
        return Polled::Closed;
    }
    Polled::of(len, &bytes)
}

/// Encoding of a valid message.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    Message::decode(bytes).map(|message| message.encode())
}

/// Messages of all kinds, for a nonexistent connection.
pub(crate) fn examples() -> Result<Vec<Vec<u8>>> {
    let details = ConnectionDetails::example()?;
    let acceptance = Message::Acceptance {
        details,
        private_data: vec![1, 2, 3],
    };
    let messages = [
        Message::Request {
            details,
            from: Host::example(),
        },
        acceptance,
        Message::Rejection,
        Message::Ready,
    ];
    Ok(messages.map(|message| message.encode()).into())
}

/// Kind of a watched descriptor; the rest of its token is the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// Liveness of a connection's peer.
    Liveness = 0,
    /// Socket of a connection being established.
    Handshake = 1,
    /// A listening port.
    Port = 2,
    /// An accepted connection that has not sent its request.
    Caller = 3,
    /// Receiving socket from a peer on another machine.
    Inbox = 4,
    /// Sending socket to a peer on another machine.
    Outbox = 5,
    /// Socket for access to its memory.
    Lane = 6,
    /// Timer of messages that wait for receives of peers.
    Timer = 7,
}

impl Watched {
    /// Upper limit of numbers, excluded: a token has 29 bits for them.
    pub(super) const NUMBERS: u32 = 1 << 29;

    pub(super) fn token(self, number: u32) -> u32 {
        (self as u32) << 29 | number
    }

    /// Kind and number encoded in a token.
    pub(super) fn of(token: u32) -> (Watched, u32) {
        let watched = match token >> 29 {
            0 => Watched::Liveness,
            1 => Watched::Handshake,
            2 => Watched::Port,
            3 => Watched::Caller,
            4 => Watched::Inbox,
            5 => Watched::Outbox,
            6 => Watched::Lane,
            _ => Watched::Timer,
        };
        (watched, token % Watched::NUMBERS)
    }
}

/// State of a connection by address.
pub(super) enum Handshake {
    /// Requested by this side.
    Asked(Socket),
    /// Requested by the peer; the program has not responded yet.
    Requested(Socket, ConnectionDetails),
    /// Accepted by the program; the peer is connecting.
    Accepted(Socket, Box<ConnectionOutbox>, u32),
}

impl Handshake {
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Handshake::Asked(socket)
            | Handshake::Requested(socket, _)
            | Handshake::Accepted(socket, ..) => socket,
        }
    }
}

/// Listening ports and accepted connections.
#[derive(Default)]
pub(super) struct Reception {
    pub(super) ports: Vec<(u16, Listener)>,
    /// Number, port and socket of each accepted connection.
    callers: Vec<(u32, u16, Socket)>,
    next_caller: u32,
}

impl Rdma {
    /// Accepts connection requests on a port of the device.
    ///
    /// # Errors
    /// [`Error::BadState`] before the start, [`Error::AlreadyExist`] if the port is in use, [`Error::NotSupported`]
    /// for dynamic connections.
    pub(crate) fn listen(&self, ctx: &Ctx, port: u16) -> Result<()> {
        expect_running(ctx, "connection requests are accepted")?;
        self.config.expect_reliable()?;
        check_port(port)?;
        let name = socket_name(self.device.model(), port);
        let listener = Listener::bind(&RuntimeDir::get()?, &name).map_err(|error| match error {
            Error::AlreadyExist => error.because(format_args!(
                "another RDMA instance listens to port {port} of device {}",
                self.device.model().pci
            )),
            error => error,
        })?;
        let pe = ctx.pe()?;
        let token = Watched::Port.token(u32::from(port));
        pe.watch(listener.as_fd(), ctx, token, Urgency::Message)?;
        self.state
            .borrow_mut()
            .reception
            .ports
            .push((port, listener));
        Ok(())
    }

    /// Stops listening on a port. Requests already reported to the program are not affected.
    ///
    /// # Errors
    /// [`Error::BadState`] before the start, [`Error::InvalidValue`] if the instance does not listen on the port.
    pub(crate) fn stop_listening(&self, ctx: &Ctx, port: u16) -> Result<()> {
        expect_running(ctx, "a port is closed")?;
        let reception = &mut self.state.borrow_mut().reception;
        let place = reception
            .ports
            .iter()
            .position(|(listened, _)| *listened == port)
            .ok_or_else(|| {
                Error::InvalidValue.because(format_args!(
                    "the RDMA instance does not listen to port {port}"
                ))
            })?;
        let (_, listener) = reception.ports.swap_remove(place);
        ctx.pe()?.unwatch(listener.as_fd(), Urgency::Message);
        Ok(())
    }

    /// Accepts an incoming connection on a port.
    pub(super) fn on_port(&self, ctx: &Ctx, number: u32) {
        let Ok(port) = u16::try_from(number) else {
            return;
        };
        loop {
            let accepted = {
                let state = self.state.borrow();
                let ports = &state.reception.ports;
                let Some((_, listener)) = ports.iter().find(|(known, _)| *known == port) else {
                    return;
                };
                listener.accept()
            };
            let socket = match accepted {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    log::warn!("an RDMA instance cannot take a request at port {port}: {error}");
                    return;
                }
            };
            self.add_caller(ctx, port, socket);
        }
    }

    fn add_caller(&self, ctx: &Ctx, port: u16, socket: Socket) {
        let number = {
            let reception = &mut self.state.borrow_mut().reception;
            let number = reception.next_caller;
            reception.next_caller = (number + 1) % Watched::NUMBERS;
            number
        };
        let token = Watched::Caller.token(number);
        let watched = ctx
            .pe()
            .and_then(|pe| pe.watch(socket.as_fd(), ctx, token, Urgency::Message));
        if watched.is_ok() {
            self.state
                .borrow_mut()
                .reception
                .callers
                .push((number, port, socket));
            self.on_caller(ctx, number);
        }
    }

    /// Handles the request or the disconnection of an accepted connection.
    pub(super) fn on_caller(&self, ctx: &Ctx, number: u32) {
        let (port, socket, polled) = {
            let callers = &mut self.state.borrow_mut().reception.callers;
            let Some(place) = callers.iter().position(|(known, ..)| *known == number) else {
                return;
            };
            match poll_message(&callers[place].2) {
                Polled::Pending => return,
                polled => {
                    let (_, port, socket) = callers.swap_remove(place);
                    (port, socket, polled)
                }
            }
        };
        if let Ok(pe) = ctx.pe() {
            pe.unwatch(socket.as_fd(), Urgency::Message);
        }
        if let Polled::Message(Message::Request { details, from }) = polled
            && let Err((socket, error)) = self.request(ctx, socket, details, (from, port))
        {
            log::warn!("an RDMA instance rejects a request for a connection: {error}");
            let _ = send_message(&socket, &Message::Rejection);
        }
    }

    /// Reports a connection request to the program.
    fn request(
        &self,
        ctx: &Ctx,
        socket: Socket,
        details: ConnectionDetails,
        (from, port): (Host, u16),
    ) -> std::result::Result<(), (Socket, Error)> {
        let Some(callback) = self.config.callbacks.get().request else {
            let error = Error::NotSupported
                .because("no callback for requests (doca_rdma_set_connection_state_callbacks)");
            return Err((socket, error));
        };
        let address = match Address::of_peer(from, port) {
            Ok(address) => address,
            Err(error) => return Err((socket, error)),
        };
        let connection = match self.offer(ctx, true) {
            Ok((connection, _)) => connection,
            Err(error) => return Err((socket, error)),
        };
        connection.set_address(Arc::new(address));
        if let Err(error) =
            self.start_handshake(ctx, &connection, Handshake::Requested(socket, details))
        {
            log::warn!("an RDMA instance cannot watch a request for a connection: {error}");
            self.forget(ctx, &connection);
            return Ok(());
        }
        let user_data = ctx.user_data();
        self.state.borrow_mut().calls.push_back(Box::new(move || {
            let handle = Rc::as_ptr(&connection).cast_mut().cast();
            // SAFETY: the program gave the callback for connections of this instance, which is alive.
            unsafe { callback(handle, user_data) };
        }));
        Ok(())
    }

    /// Closes the ports, and drops pending requests.
    pub(super) fn close_reception(&self, ctx: &Ctx, reception: Reception) {
        let Ok(pe) = ctx.pe() else { return };
        for (_, listener) in &reception.ports {
            pe.unwatch(listener.as_fd(), Urgency::Message);
        }
        for (.., socket) in &reception.callers {
            pe.unwatch(socket.as_fd(), Urgency::Message);
        }
    }
}

/// An address as given by the program.
#[derive(Debug)]
pub(crate) struct Address {
    kind: doca_rdma_addr_type,
    text: CString,
    port: u16,
    /// IPv4 as its mapped address.
    host: Ipv6Addr,
    /// `true` for the address of a connection's peer, which is owned by the connection: the program must not destroy
    /// it.
    is_peer: bool,
}

/// Address of a peer, without a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Host {
    kind: doca_rdma_addr_type,
    /// IPv4 as its mapped address.
    ip: Ipv6Addr,
}

impl Host {
    /// Encoded size in bytes.
    const SIZE: usize = 17;

    /// This device's address of the same type as `called`.
    pub(super) fn of(device: &DeviceModel, called: &Address) -> Host {
        let [local, mapped] = gids(device).map(Ipv6Addr::from);
        let is_mapped = called.host.to_ipv4_mapped().is_some();
        Host {
            kind: called.kind,
            ip: if is_mapped { mapped } else { local },
        }
    }

    pub(super) fn example() -> Host {
        Host {
            kind: DOCA_RDMA_ADDR_TYPE_IPv4,
            ip: Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped(),
        }
    }

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        // The three types are below 256.
        bytes[0] = self.kind as u8;
        bytes[1..].copy_from_slice(&self.ip.octets());
        bytes
    }

    /// # Errors
    /// [`Error::InvalidValue`] for another length, an unknown type, or an invalid IPv4 address.
    pub(super) fn decode(bytes: &[u8]) -> Result<Host> {
        let Some((&[kind], ip)) = bytes.split_first_chunk() else {
            return Err(Error::InvalidValue);
        };
        let ip = <[u8; 16]>::try_from(ip).map_err(|_| Error::InvalidValue)?;
        let host = Host {
            kind: kind.into(),
            ip: ip.into(),
        };
        host.text().map(|_| host)
    }

    /// In the format used by programs.
    #[allow(non_upper_case_globals, reason = "names of the C API")]
    fn text(&self) -> Result<String> {
        match self.kind {
            DOCA_RDMA_ADDR_TYPE_IPv4 => {
                let ip = self.ip.to_ipv4_mapped().ok_or(Error::InvalidValue)?;
                Ok(ip.to_string())
            }
            DOCA_RDMA_ADDR_TYPE_IPv6 => Ok(self.ip.to_string()),
            // GIDs are never abbreviated.
            DOCA_RDMA_ADDR_TYPE_GID => Ok(self
                .ip
                .segments()
                .map(|segment| format!("{segment:04x}"))
                .join(":")),
            _ => Err(Error::InvalidValue),
        }
    }
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an unknown kind, text that does not match its kind, or port 0.
    #[allow(non_upper_case_globals, reason = "names of the C API")]
    pub(crate) fn new(kind: doca_rdma_addr_type, text: &CStr, port: u16) -> Result<Address> {
        let utf8 = text.to_str().unwrap_or_default();
        let (expected, host) = match kind {
            DOCA_RDMA_ADDR_TYPE_IPv4 => (
                "an IPv4 address such as 127.0.0.1",
                utf8.parse().ok().map(|ip: Ipv4Addr| ip.to_ipv6_mapped()),
            ),
            DOCA_RDMA_ADDR_TYPE_IPv6 => ("an IPv6 address such as ::1", utf8.parse().ok()),
            DOCA_RDMA_ADDR_TYPE_GID => (
                "a GID such as fe80:0000:0000:0000:005d:03ff:fe00:0000",
                utf8.parse().ok(),
            ),
            other => {
                return Err(Error::InvalidValue.because(format_args!(
                    "expected an address type between {DOCA_RDMA_ADDR_TYPE_IPv4} and {DOCA_RDMA_ADDR_TYPE_GID}, got {other}"
                )));
            }
        };
        let host = host.ok_or_else(|| {
            Error::InvalidValue.because(format_args!("expected {expected}, got {text:?}"))
        })?;
        check_port(port)?;
        Ok(Address {
            kind,
            text: text.to_owned(),
            port,
            host,
            is_peer: false,
        })
    }

    /// Address of a peer that has connected to a port of this side.
    fn of_peer(from: Host, port: u16) -> Result<Address> {
        let text = CString::new(from.text()?).map_err(|_| Error::Unexpected)?;
        let address = Address::new(from.kind, &text, port)?;
        Ok(Address {
            is_peer: true,
            ..address
        })
    }

    /// Returns `true` if the address is owned by a connection.
    pub(crate) fn is_peer(&self) -> bool {
        self.is_peer
    }

    pub(crate) fn kind(&self) -> doca_rdma_addr_type {
        self.kind
    }

    pub(crate) fn text(&self) -> &CStr {
        &self.text
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sockets of possible listeners: of devices with this address or, if there are none, of all devices. Every address
    /// is treated as local, because programs are also given the machine's own addresses.
    pub(super) fn sockets(&self) -> Result<Vec<String>> {
        let devices = &Topology::get()?.devices;
        let mut found: Vec<&DeviceModel> = devices
            .iter()
            .filter(|device| has_address(device, self.host))
            .collect();
        if found.is_empty() {
            found.extend(devices);
        }
        Ok(found
            .into_iter()
            .map(|device| socket_name(device, self.port))
            .collect())
    }
}

fn has_address(device: &DeviceModel, host: Ipv6Addr) -> bool {
    gids(device).contains(&host.octets())
}

fn check_port(port: u16) -> Result<()> {
    if port == 0 {
        return Err(Error::InvalidValue.because("expected a port between 1 and 65535, got 0"));
    }
    Ok(())
}

/// Name of the socket on which an instance on the device accepts requests for the port.
pub(super) fn socket_name(device: &DeviceModel, port: u16) -> String {
    named_socket("rdma", &[&device.pci.to_string(), &port.to_string()])
}

/// GID table of a device: the link-local GID derived from its hardware address, and that of its IPv4 address.
pub(crate) fn gids(device: &DeviceModel) -> [[u8; 16]; 2] {
    [
        device.link_local().octets(),
        device.ipv4.to_ipv6_mapped().octets(),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::agent::AgentAddress;
    use crate::runtime::Key;

    fn details() -> ConnectionDetails {
        ConnectionDetails {
            transport_type: 0,
            permissions: 7,
            agent: AgentAddress::local().expect("an address"),
            key: Key::from_bytes([3; Key::SIZE]),
            network: None,
        }
    }

    #[test]
    fn handshake_messages_pass_over_a_socket() {
        let (a, b) = Socket::pair().expect("sockets");
        assert_eq!(poll_message(&b), Polled::Pending);
        for private_data in [vec![], vec![1, 2, 3], vec![9; 255]] {
            let messages = [
                Message::Request {
                    details: details(),
                    from: Host::example(),
                },
                Message::Acceptance {
                    details: details(),
                    private_data,
                },
                Message::Rejection,
                Message::Ready,
            ];
            for message in messages {
                send_message(&a, &message).expect("room");
                assert_eq!(poll_message(&b), Polled::Message(message));
            }
        }
        drop(a);
        assert_eq!(poll_message(&b), Polled::Closed);
    }

    #[test]
    fn other_versions_and_lengths_are_refused() {
        let request = Message::Request {
            details: details(),
            from: Host::example(),
        };
        let good = request.encode();
        for len in 0..good.len() {
            assert!(Message::decode(&good[..len]).is_err(), "{len} bytes");
        }
        let mut other = good.clone();
        other[7] += 1;
        assert_eq!(Message::decode(&other), Err(Error::UnsupportedVersion));
        let (a, b) = Socket::pair().expect("sockets");
        a.send(&other, &[]).expect("room");
        assert_eq!(poll_message(&b), Polled::Closed);
        let mut unknown_type = good.clone();
        unknown_type[HEAD + ConnectionDetails::SIZE] = 3;
        assert_eq!(Message::decode(&unknown_type), Err(Error::InvalidValue));
        let mut longer = Message::Ready.encode();
        longer.push(0);
        assert!(Message::decode(&longer).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_refused(tail in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut bytes = Message::Ready.encode()[..8].to_vec();
            bytes.extend(tail);
            // Must not panic for any input.
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn address_kind_must_match() {
        let (v4, v6, gid) = (
            DOCA_RDMA_ADDR_TYPE_IPv4,
            DOCA_RDMA_ADDR_TYPE_IPv6,
            DOCA_RDMA_ADDR_TYPE_GID,
        );
        for (kind, text, good) in [
            (v4, c"127.0.0.1", true),
            (v4, c"::1", false),
            (v4, c"127.0.0.1:5", false),
            (v4, c"localhost", false),
            (v4, c"", false),
            (v4, c"\xff", false),
            (v6, c"::1", true),
            (v6, c"127.0.0.1", false),
            (gid, c"0000:0000:0000:0000:0000:ffff:7f00:0001", true),
            (gid, c"mlx5_0", false),
            (3, c"127.0.0.1", false),
        ] {
            let address = Address::new(kind, text, 5);
            assert_eq!(address.is_ok(), good, "{kind} {text:?}");
            if let Ok(address) = address {
                assert_eq!(
                    (address.kind(), address.text(), address.port()),
                    (kind, text, 5)
                );
            }
        }
        assert!(Address::new(v4, c"127.0.0.1", 0).is_err());
    }

    #[test]
    fn address_selects_its_device() {
        let devices = Topology::built_in().devices;
        let address = |kind, text: &CStr| {
            let address = Address::new(kind, text, 7).expect("an address");
            address.sockets().expect("a topology")
        };
        let all: Vec<_> = devices
            .iter()
            .map(|device| socket_name(device, 7))
            .collect();
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_IPv4, c"127.0.0.1"), all);
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_IPv4, c"192.168.7.7"), all);
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_IPv6, c"::ffff:127.0.0.1"), all);
        let own = Ipv6Addr::from(gids(&devices[1])[0]).to_string();
        let own = CString::new(own).expect("no zero");
        assert_eq!(address(DOCA_RDMA_ADDR_TYPE_GID, &own), all[1..]);
        assert_ne!(socket_name(&devices[0], 7), socket_name(&devices[0], 8));
    }

    #[test]
    fn first_gid_identifies_the_device() {
        let topology = Topology::built_in();
        let [a, b] = [0, 1].map(|index| gids(&topology.devices[index]));
        assert_ne!(a[0], b[0]);
        assert!(Ipv6Addr::from(a[0]).is_unicast_link_local());
        assert_eq!(Ipv6Addr::from(a[1]).to_string(), "::ffff:127.0.0.1");
    }
}
