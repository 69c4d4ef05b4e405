//! Comch: messages between programs on the host and on the DPU.
//!
//! * [`Server`] and [`Client`] are the two ends of the control path; [`control`] is their common state. They exchange
//!   [`frame`]s over a [`connection`].
//! * [`consumer`] and [`producer`] are the two ends of the fast path. A consumer owns a ring in shared memory.
//! * [`endpoint`] is either end of the control path with the functions of `doca_comm_channel.h`, without contexts.
//!
//! The constants are the limits that capability queries report.

mod connection;
mod consumer;
mod control;
mod endpoint;
mod frame;
mod producer;

pub(crate) use connection::{Connection, Side};
pub(crate) use consumer::{Consumer, PostRecv};
pub(crate) use control::{ControlPath, Counter};
pub(crate) use endpoint::{Endpoint, Peer};
pub(crate) use frame::{again as frame_again, examples as example_frames};
pub(crate) use producer::{Producer, SendTask as ProducerSendTask};

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use crate::device::{Device, DeviceUse, Representor};
use crate::error::{Error, Result};
use crate::log;
use crate::progress::{Ctx, CtxState, Driver, Event, Pe, Started, Task, Urgency};
use crate::runtime::{Elsewhere, Listener, RuntimeDir, Socket};
use crate::topology::Topology;
use connection::Outbound;
use control::{Notice, Reading};
use frame::{Answer, Arrival, Caller, VERSION};

/// Maximum, and default, size of a control message in bytes.
pub(crate) const MAX_MESSAGE_SIZE: u32 = 4080;
/// Maximum length of a server name in bytes, without the terminating NUL.
pub(crate) const MAX_NAME_LEN: usize = 119;
/// Maximum number of received control messages queued for the program.
pub(crate) const MAX_RECV_QUEUE: u32 = 8192;
/// Default number of received control messages queued for the program.
const DEFAULT_RECV_QUEUE: u32 = 256;
/// Maximum number of clients of one server if the descriptor limit is high enough: see [`max_clients`].
const MAX_CLIENTS: usize = 512;
/// Maximum number of tasks of one pool.
pub(crate) const MAX_TASKS: u32 = 8192;
/// Maximum number of consumers of one end of a connection.
pub(crate) const MAX_CONSUMERS: usize = 512;
/// Maximum size of a fast-path message in bytes.
pub(crate) const MAX_BUF_SIZE: usize = 1 << 20;
/// Maximum size of immediate data of the fast path in bytes.
pub(crate) const MAX_IMMEDIATE: usize = 32;
/// Maximum length of a list of bufs that a consumer receives into.
pub(crate) const RECEIVE_LIST_LEN: u32 = 1;
/// Maximum length of a list of bufs that a producer sends.
pub(crate) const SEND_LIST_LEN: u32 = 1;
/// Maximum number of consumers of the peer on one connection: each takes two descriptors of this process, or four once
/// messages are sent to it, and a peer must not exhaust them.
fn max_remote_consumers() -> usize {
    eighth_of(descriptors(), MAX_CONSUMERS)
}

/// Maximum number of clients of one server: each takes two descriptors of this process, and clients must not exhaust
/// them. It is also the maximum number of accepted connections that have not sent a hello.
pub(crate) fn max_clients() -> usize {
    eighth_of(descriptors(), MAX_CLIENTS)
}

/// Descriptor limit of this process at the first call: the limits derived from it stay constant.
fn descriptors() -> u64 {
    static LIMIT: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.unwrap_or(u64::MAX)
    })
}

/// An eighth of the descriptors, at least 1 and at most `most`.
fn eighth_of(descriptors: u64, most: usize) -> usize {
    usize::try_from(descriptors / 8).map_or(most, |eighth| eighth.clamp(1, most))
}

/// Maximum id of consumers and producers; the minimum is 1. Programs use 0 and 0xffff for "none".
pub(crate) const MAX_ID: u32 = 0xfffe;

/// Checks the name of a server.
fn check_name(name: &str) -> Result<()> {
    match name.len() {
        1..=MAX_NAME_LEN => Ok(()),
        len => Err(Error::InvalidValue.because(format_args!(
            "a server name has 1 to {MAX_NAME_LEN} bytes, got {len}"
        ))),
    }
}

/// Checks that a configured value is in the device's range.
fn check_range(what: &str, value: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::InvalidValue.because(format_args!(
        "expected a {what} of 1 to {most}, got {value}"
    )))
}

/// The socket's token in [`Pe::watch`].
const SOCKET: u32 = 0;

/// The driver of a client's context.
pub(crate) struct Client {
    control: ControlPath,
    /// Name of the server.
    name: String,
    device: Arc<Device>,
    link: RefCell<Link>,
}

/// State of the client's connection.
#[derive(Default)]
enum Link {
    #[default]
    None,
    /// The server's queue was full; the connect is retried.
    Calling,
    /// Connected; the server has not replied yet.
    Waiting { socket: Socket, lifeline: OwnedFd },
    Open {
        connection: Arc<Connection>,
        outbound: Arc<Outbound>,
    },
    /// The connection is closed; the program may still hold its handle.
    Ended(Arc<Connection>),
}

impl Client {
    /// Creates the context of a client on `device` for the server called `name`.
    pub(crate) fn create(device: Arc<Device>, name: &str) -> Result<Rc<Ctx>> {
        check_name(name)?;
        Ok(Ctx::new(Client {
            control: ControlPath::new(),
            name: name.to_owned(),
            device,
            link: RefCell::default(),
        }))
    }

    pub(crate) fn control(&self) -> &ControlPath {
        &self.control
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn connection(&self) -> Result<Arc<Connection>> {
        match &*self.link.borrow() {
            Link::Open { connection, .. } => Ok(Arc::clone(connection)),
            _ => Err(Error::BadState.because(format_args!(
                "the client is not connected to {:?}; wait until its context is running",
                self.name
            ))),
        }
    }

    fn open_connection(&self) -> Option<Arc<Connection>> {
        match &*self.link.borrow() {
            Link::Open { connection, .. } => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// Tries to connect to the server. A failure is reported as the failure of the start.
    fn call(&self, ctx: &Ctx, pe: &Pe) {
        let next = match self.try_call(ctx, pe) {
            Ok(link) => link,
            Err(Error::Again) => Link::Calling,
            Err(Error::NotFound) => {
                let (name, device) = (self.name.as_str(), &*self.device);
                let _ = Error::NotFound.because(Absence { name, device });
                self.control.notify(Notice::StartFailed);
                Link::None
            }
            Err(error) => {
                let _ = error.because(format_args!("cannot connect to the server {:?}", self.name));
                self.control.notify(Notice::StartFailed);
                Link::None
            }
        };
        *self.link.borrow_mut() = next;
    }

    fn try_call(&self, ctx: &Ctx, pe: &Pe) -> Result<Link> {
        let (socket, lifeline) = call(&self.device, &self.name, self.control.max_message())?;
        pe.watch(socket.as_fd(), ctx, SOCKET, Urgency::Message)?;
        Ok(Link::Waiting { socket, lifeline })
    }

    /// Handles the server's reply, if it has arrived.
    fn receive_answer(&self, ctx: &Ctx, pe: &Pe) {
        let mut link = self.link.borrow_mut();
        let Link::Waiting { socket, .. } = &*link else {
            return;
        };
        let expected = self.control.max_message();
        let failure = match answer(socket) {
            None => return,
            Some(Ok(max_message)) if max_message == expected => None,
            Some(Ok(max_message)) => Some(format!(
                "its largest message is {max_message} bytes, the client's {expected}"
            )),
            Some(Err(reason)) => Some(reason),
        };
        let Link::Waiting { socket, lifeline } = std::mem::take(&mut *link) else {
            return;
        };
        if let Some(reason) = failure {
            let _ = Error::NotConnected.because(format_args!(
                "cannot connect to the server {:?}: {reason}",
                self.name
            ));
            pe.unwatch(socket.as_fd(), Urgency::Message);
            self.control.notify(Notice::StartFailed);
            return;
        }
        let outbound = Outbound::new(Arc::clone(pe.wake()));
        let connection = Connection::new(
            Side::Client,
            socket,
            lifeline,
            ctx,
            self.device.key(),
            expected,
            &outbound,
        );
        *link = Link::Open {
            connection,
            outbound,
        };
        self.control.notify(Notice::Started);
    }

    fn flush_stalled(&self, ctx: &Ctx) {
        if let Link::Open {
            connection,
            outbound,
        } = &*self.link.borrow()
            && outbound.take_stalled()
        {
            connection.flush(ctx, SOCKET);
        }
    }

    /// Closes the connection in any state.
    fn hang_up(&self, pe: &Pe) {
        let mut link = self.link.borrow_mut();
        *link = match std::mem::take(&mut *link) {
            Link::Waiting { socket, .. } => {
                pe.unwatch(socket.as_fd(), Urgency::Message);
                Link::None
            }
            Link::Open { connection, .. } => {
                pe.unwatch(connection.socket().as_fd(), Urgency::Message);
                connection.close();
                connection.expire_all_remote();
                Link::Ended(connection)
            }
            Link::None | Link::Calling => Link::None,
            Link::Ended(connection) => Link::Ended(connection),
        };
    }
}

/// Text of the reason why a client on a device has found no server of that name: where it looked, and where one is.
struct Absence<'a> {
    name: &'a str,
    device: &'a Device,
}

impl fmt::Display for Absence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, pci) = (self.name, self.device.model().pci);
        write!(f, "no server called {name:?} runs for {pci}")?;
        let Ok(directory) = RuntimeDir::get() else {
            return Ok(());
        };
        write!(
            f,
            " in the runtime directory {} of user {}: ",
            directory.path().display(),
            rustix::process::geteuid().as_raw()
        )?;
        let socket = |function: &str| frame::socket_name(function, name);
        let devices = Topology::get().map_or(&[][..], |topology| &topology.devices);
        let other = devices
            .iter()
            .map(|device| device.pci)
            .find(|other| *other != pci && directory.has(&socket(&other.to_string())));
        if let Some(other) = other {
            return write!(f, "one runs for {other}; connect with that device");
        }
        let socket = socket(&pci.to_string());
        match directory.elsewhere(&socket) {
            Some(Elsewhere::Has(path)) => write!(
                f,
                "one runs in {}; use the same {} in both processes",
                path.display(),
                RuntimeDir::VARIABLE
            ),
            Some(Elsewhere::OfUser(path, user)) => write!(
                f,
                "start it first, as the same user, or with the same {}; user {user} has one of its own, {}",
                RuntimeDir::VARIABLE,
                path.display()
            ),
            None => match directory.count("comch-") {
                0 => write!(
                    f,
                    "start it first, as the same user and with the same {}",
                    RuntimeDir::VARIABLE
                ),
                1 => write!(f, "the server that runs there has another name"),
                count => write!(f, "the {count} servers that run there have other names"),
            },
        }
    }
}

impl Driver for Client {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        self.control.prepare(false)?;
        let pe = ctx.pe()?;
        // Fails for reasons that further attempts cannot change.
        RuntimeDir::get()?;
        self.call(ctx, &pe);
        Ok(Started::InProgress)
    }

    fn submit(&self, _: &Ctx, task: &Task) -> Result<()> {
        self.control.submit(task)
    }

    fn next_event(&self, ctx: &Ctx) -> Option<Event> {
        self.flush_stalled(ctx);
        if ctx.state() == CtxState::Starting
            && matches!(*self.link.borrow(), Link::Calling)
            && let Ok(pe) = ctx.pe()
        {
            self.call(ctx, &pe);
        }
        self.control.next_event(ctx)
    }

    fn on_ready(&self, ctx: &Ctx, _: u32) {
        let Ok(pe) = ctx.pe() else { return };
        self.receive_answer(ctx, &pe);
        if let Some(connection) = self.open_connection()
            && self.control.read(&connection) == Reading::Ended
        {
            self.hang_up_for(&pe, &connection);
        }
    }

    fn devices(&self) -> Vec<DeviceUse> {
        vec![DeviceUse::of_device(&self.device)]
    }

    fn flush(&self, _: &Ctx) {
        self.control.begin_stop();
    }

    fn finish_stop(&self, ctx: &Ctx) -> bool {
        self.flush_stalled(ctx);
        let flushed = self
            .open_connection()
            .is_none_or(|connection| connection.is_flushed());
        if !flushed && !self.control.is_impatient() {
            return false;
        }
        if let Ok(pe) = ctx.pe() {
            self.hang_up(&pe);
        }
        true
    }
}

impl Client {
    /// Handles the loss of the server: the context stops by itself.
    fn hang_up_for(&self, pe: &Pe, connection: &Arc<Connection>) {
        pe.unwatch(connection.socket().as_fd(), Urgency::Message);
        *self.link.borrow_mut() = Link::Ended(Arc::clone(connection));
        self.control.end(connection, Notice::Broken);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Link::Open { connection, .. } | Link::Ended(connection) = self.link.get_mut() {
            connection.forget_ctx();
        }
    }
}

/// The listener's token in [`Pe::watch`]; tokens of connections start at 1.
const LISTENER: u32 = 0;
/// Number of closed connections that are kept after their end was reported, because the program may still hold their
/// handles. Each keeps two descriptors open.
const MEMORIES: usize = 8;

/// The driver of a server's context.
pub(crate) struct Server {
    control: ControlPath,
    name: String,
    /// PCI address of the function whose clients may connect.
    function: String,
    device: Arc<Device>,
    representor: Arc<Representor>,
    run: RefCell<Run>,
    next_token: Cell<u32>,
}

/// State between start and stop.
#[derive(Default)]
struct Run {
    listener: Option<Listener>,
    outbound: Option<Arc<Outbound>>,
    /// `true` if a failure to accept was logged, until the next success.
    is_deaf: bool,
    /// Accepted sockets that have not sent a hello yet.
    pending: VecDeque<(u32, Socket)>,
    clients: BTreeMap<u32, Arc<Connection>>,
    /// Closed connections whose end has not been reported to the program, and the last ones for which it has been
    /// reported.
    ended: VecDeque<Arc<Connection>>,
}

impl Server {
    /// Creates the context of a server called `name` for clients on the represented function.
    pub(crate) fn create(
        device: Arc<Device>,
        representor: Arc<Representor>,
        name: &str,
    ) -> Result<Rc<Ctx>> {
        check_name(name)?;
        check_representor(&device, &representor)?;
        Ok(Ctx::new(Server {
            control: ControlPath::new(),
            name: name.to_owned(),
            function: representor.model().pci.to_string(),
            device,
            representor,
            run: RefCell::default(),
            next_token: Cell::new(LISTENER + 1),
        }))
    }

    pub(crate) fn control(&self) -> &ControlPath {
        &self.control
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn representor(&self) -> &Arc<Representor> {
        &self.representor
    }

    fn accept_pending(&self, ctx: &Ctx, pe: &Pe) {
        let run = &mut *self.run.borrow_mut();
        // Limited, so that connecting clients cannot fill the memory while the program does not call progress: the
        // remaining ones stay in the listener's queue.
        while !self.control.is_full() {
            let Some(listener) = &run.listener else {
                return;
            };
            let socket = match listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    // Retried in every iteration, but logged once.
                    if !std::mem::replace(&mut run.is_deaf, true) {
                        log::warn!(
                            "Comch server {:?} cannot accept a client: {error}",
                            self.name
                        );
                    }
                    return;
                }
            };
            run.is_deaf = false;
            let token = self.next_token.get();
            self.next_token.set(token.wrapping_add(1).max(LISTENER + 1));
            if let Err(error) = pe.watch(socket.as_fd(), ctx, token, Urgency::Message) {
                log::warn!(
                    "Comch server {:?} cannot watch a client: {error}",
                    self.name
                );
                continue;
            }
            run.pending.push_back((token, socket));
            // Clients that connected while this process was stopped have sent their hello; only clients that send
            // nothing are pending.
            self.handle_hello(ctx, pe, run, run.pending.len() - 1);
            if run.pending.len() > max_clients()
                && let Some((_, silent)) = run.pending.pop_front()
            {
                pe.unwatch(silent.as_fd(), Urgency::Message);
            }
        }
    }

    /// Handles the first frame of an accepted socket.
    fn handle_hello(&self, ctx: &Ctx, pe: &Pe, run: &mut Run, at: usize) {
        let Some((_, socket)) = run.pending.get(at) else {
            return;
        };
        let arrival = frame::receive_hello(socket);
        if let Arrival::Waiting = arrival {
            return;
        }
        let Some((token, socket)) = run.pending.remove(at) else {
            return;
        };
        let caller = match arrival {
            Arrival::Received(caller) => caller,
            // Other processes probe a server by connecting and closing.
            Arrival::Gone | Arrival::Waiting => {
                return pe.unwatch(socket.as_fd(), Urgency::Message);
            }
            Arrival::Faulty(reason) => {
                log::warn!("Comch server {:?} drops a client: {reason}", self.name);
                return pe.unwatch(socket.as_fd(), Urgency::Message);
            }
        };
        let Some(outbound) = &run.outbound else {
            return;
        };
        let admitted = self.check(&caller, run.clients.len()).and_then(|()| {
            frame::accept(&socket, self.control.max_message())
                .map_err(|error| (error, "the answer could not be sent".to_owned()))
        });
        let connection = Connection::new(
            Side::Server,
            socket,
            caller.lifeline,
            ctx,
            self.device.key(),
            self.control.max_message(),
            outbound,
        );
        match admitted {
            Ok(()) => {
                run.clients.insert(token, Arc::clone(&connection));
                self.control.notify(Notice::Connected(connection, true));
            }
            Err((error, reason)) => {
                log::warn!("Comch server {:?} refuses a client: {reason}", self.name);
                frame::refuse(connection.socket(), error, &reason);
                pe.unwatch(connection.socket().as_fd(), Urgency::Message);
                connection.close();
                remember(&mut run.ended, Arc::clone(&connection));
                self.control.notify(Notice::Connected(connection, false));
            }
        }
    }

    /// Checks that a client can be accepted. An error has the code and the reason to send.
    fn check(&self, caller: &Caller, clients: usize) -> std::result::Result<(), (Error, String)> {
        check_caller(caller, &self.name, &self.function, clients)?;
        if caller.max_message != self.control.max_message() {
            let reason = format!(
                "the client's largest message is {} bytes, the server's {}; set them to the same",
                caller.max_message,
                self.control.max_message()
            );
            return Err((Error::InvalidValue, reason));
        }
        Ok(())
    }

    fn client(&self, token: u32) -> Option<Arc<Connection>> {
        self.run.borrow().clients.get(&token).cloned()
    }

    fn end_client(&self, pe: &Pe, token: u32) {
        let Some(connection) = self.run.borrow_mut().clients.remove(&token) else {
            return;
        };
        pe.unwatch(connection.socket().as_fd(), Urgency::Message);
        self.control
            .end(&connection, Notice::Disconnected(Arc::clone(&connection)));
        remember(&mut self.run.borrow_mut().ended, connection);
    }

    fn flush_stalled(&self, ctx: &Ctx) {
        let run = self.run.borrow();
        if run
            .outbound
            .as_ref()
            .is_some_and(|outbound| outbound.take_stalled())
        {
            for (token, client) in &run.clients {
                client.flush(ctx, *token);
            }
        }
    }
}

/// Connects to the server `name` of a client's device, and sends the hello. Returns the socket and its lifeline.
fn call(device: &Device, name: &str, max_message: u32) -> Result<(Socket, OwnedFd)> {
    let function = device.model().pci.to_string();
    let socket = frame::socket_name(&function, name);
    let socket = Socket::connect(&RuntimeDir::get()?, &socket)?;
    let lifeline = frame::send_hello(&socket, &function, name, max_message)?;
    Ok((socket, lifeline))
}

/// The server's reply, if it has arrived: its largest message in bytes, or the reason why there is no connection.
fn answer(socket: &Socket) -> Option<std::result::Result<u32, String>> {
    Some(match frame::receive_answer(socket) {
        Arrival::Waiting => return None,
        Arrival::Received(Answer::Accepted { max_message }) => Ok(max_message),
        Arrival::Received(Answer::Refused { code, reason }) => {
            let name = Error::from_code(code).map_or("an unknown error", Error::name);
            Err(format!("it refused with {name}: {reason:?}"))
        }
        Arrival::Gone => Err("it has gone".to_owned()),
        Arrival::Faulty(reason) => Err(format!("its answer is faulty: {reason}")),
    })
}

/// Checks that a client calls the server `name` for clients on `function`, and that there is room for it. An error has
/// the code and the reason to send.
fn check_caller(
    caller: &Caller,
    name: &str,
    function: &str,
    clients: usize,
) -> std::result::Result<(), (Error, String)> {
    if caller.version != VERSION {
        let reason = format!(
            "the client speaks version {} of the protocol, the server {VERSION}; use the same softdoca on both sides",
            caller.version
        );
        return Err((Error::UnsupportedVersion, reason));
    }
    if caller.server != name || caller.function != function {
        let reason = format!(
            "the client looks for {:?} on {}, this is {name:?} on {function}",
            caller.server, caller.function
        );
        return Err((Error::NotFound, reason));
    }
    let most = max_clients();
    if clients >= most {
        let reason = format!(
            "the server has {most} clients already, which the limit of descriptors of its process allows"
        );
        return Err((Error::Full, reason));
    }
    Ok(())
}

/// Checks that a server's representor belongs to its device.
fn check_representor(device: &Arc<Device>, representor: &Representor) -> Result<()> {
    if Arc::ptr_eq(representor.device(), device) {
        return Ok(());
    }
    Err(Error::InvalidValue.because(format_args!(
        "the representor of {} belongs to another device than {}",
        representor.model().pci,
        device.model().pci
    )))
}

/// Listens for clients of the server `name` on `function`.
fn listen(name: &str, function: &str) -> Result<Listener> {
    let socket = frame::socket_name(function, name);
    Listener::bind(&RuntimeDir::get()?, &socket).map_err(|error| match error {
        Error::AlreadyExist => error.because(format_args!(
            "a server called {name:?} runs on {function} already"
        )),
        error => error,
    })
}

/// Stores a closed connection, and drops the oldest. Connections whose end has not been reported to the program are
/// always kept: the program's callback looks up the connection's context, and the handle is valid until then.
fn remember(ended: &mut VecDeque<Arc<Connection>>, connection: Arc<Connection>) {
    ended.push_back(connection);
    while ended.len() > MEMORIES
        && let Some(oldest) = ended.pop_front_if(|oldest| oldest.is_reported())
    {
        oldest.forget_ctx();
    }
}

impl Driver for Server {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        self.control.prepare(true)?;
        let pe = ctx.pe()?;
        let listener = listen(&self.name, &self.function)?;
        pe.watch(listener.as_fd(), ctx, LISTENER, Urgency::Message)?;
        let mut run = self.run.borrow_mut();
        run.listener = Some(listener);
        run.outbound = Some(Outbound::new(Arc::clone(pe.wake())));
        Ok(Started::Running)
    }

    fn submit(&self, _: &Ctx, task: &Task) -> Result<()> {
        self.control.submit(task)
    }

    fn next_event(&self, ctx: &Ctx) -> Option<Event> {
        self.flush_stalled(ctx);
        self.control.next_event(ctx)
    }

    fn on_ready(&self, ctx: &Ctx, token: u32) {
        let Ok(pe) = ctx.pe() else { return };
        if token == LISTENER {
            self.accept_pending(ctx, &pe);
            return;
        }
        let pending = self
            .run
            .borrow()
            .pending
            .iter()
            .position(|(of, _)| *of == token);
        if let Some(at) = pending {
            self.handle_hello(ctx, &pe, &mut self.run.borrow_mut(), at);
        }
        if let Some(connection) = self.client(token)
            && self.control.read(&connection) == Reading::Ended
        {
            self.end_client(&pe, token);
        }
    }

    fn devices(&self) -> Vec<DeviceUse> {
        vec![
            DeviceUse::of_device(&self.device),
            DeviceUse::of_representor(&self.representor),
        ]
    }

    fn flush(&self, ctx: &Ctx) {
        self.control.begin_stop();
        let run = &mut *self.run.borrow_mut();
        let Ok(pe) = ctx.pe() else { return };
        // Further clients are not accepted.
        for (_, socket) in run.pending.drain(..) {
            pe.unwatch(socket.as_fd(), Urgency::Message);
        }
        if let Some(listener) = run.listener.take() {
            pe.unwatch(listener.as_fd(), Urgency::Message);
        }
    }

    fn finish_stop(&self, ctx: &Ctx) -> bool {
        self.flush_stalled(ctx);
        let run = &mut *self.run.borrow_mut();
        let flushed = run.clients.values().all(|client| client.is_flushed());
        if !flushed && !self.control.is_impatient() {
            return false;
        }
        if let Ok(pe) = ctx.pe() {
            for connection in std::mem::take(&mut run.clients).into_values() {
                pe.unwatch(connection.socket().as_fd(), Urgency::Message);
                connection.close();
                connection.expire_all_remote();
                remember(&mut run.ended, connection);
            }
            // The end of these connections is not reported to a program that stops its server.
            run.ended
                .iter()
                .for_each(|connection| connection.set_reported());
        }
        run.outbound = None;
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let run = self.run.get_mut();
        for connection in run.clients.values().chain(&run.ended) {
            connection.forget_ctx();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_consumers_of_peers_leave_descriptors_for_the_program() {
        for (descriptors, most) in [(0, 1), (256, 32), (1024, 128), (u64::MAX, 512)] {
            assert_eq!(eighth_of(descriptors, 512), most);
        }
    }
}
