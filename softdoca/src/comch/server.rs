//! The server: listens for clients of one function, by name.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use super::connection::{Connection, Outbound, Side};
use super::control::{ControlPath, Notice, Reading};
use super::frame::{self, Arrival, Caller, VERSION};
use super::{MAX_PENDING_CLIENTS, check_name, max_clients};
use crate::device::{Device, Representor};
use crate::error::{Error, Result};
use crate::log;
use crate::progress::{Ctx, Driver, Event, Pe, Started, Task, Urgency};
use crate::runtime::{Listener, RuntimeDir, Socket};

/// The listener's token in [`Pe::watch`]; tokens of connections start at 1.
const LISTENER: u32 = 0;
/// Number of closed connections that are kept after their end was reported: the program may still hold their handles.
/// Each keeps two descriptors open.
const MEMORIES: usize = 8;

/// The driver of a server's context.
pub(crate) struct Server {
    control: ControlPath,
    name: String,
    /// PCI address of the function whose clients may connect.
    function: String,
    // Keeps the device open as long as the server exists.
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
    /// Accepted sockets that have not sent a hello.
    pending: VecDeque<(u32, Socket)>,
    clients: BTreeMap<u32, Arc<Connection>>,
    /// Closed connections whose end has not been reported to the program, and the last ones for which it has.
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
        if !Arc::ptr_eq(representor.device(), &device) {
            return Err(Error::InvalidValue.because(format_args!(
                "the representor of {} belongs to another device than {}",
                representor.model().pci,
                device.model().pci
            )));
        }
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

    /// Accepts all pending connections.
    fn accept_strangers(&self, ctx: &Ctx, pe: &Pe) {
        let run = &mut *self.run.borrow_mut();
        let Some(listener) = &run.listener else {
            return;
        };
        // Limited, so that connecting clients cannot fill the memory while the program does not call progress: the rest
        // stays in the listener's queue.
        while !self.control.is_full() {
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
            if run.pending.len() > MAX_PENDING_CLIENTS
                && let Some((_, silent)) = run.pending.pop_front()
            {
                pe.unwatch(silent.as_fd(), Urgency::Message);
            }
        }
    }

    /// Handles the first frame of an accepted socket.
    fn hear_stranger(&self, ctx: &Ctx, pe: &Pe, at: usize) {
        let run = &mut *self.run.borrow_mut();
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
        if caller.version != VERSION {
            let reason = format!(
                "the client speaks version {} of the protocol, the server {VERSION}; use the same softdoca on both sides",
                caller.version
            );
            return Err((Error::UnsupportedVersion, reason));
        }
        if caller.server != self.name || caller.function != self.function {
            let reason = format!(
                "the client looks for {:?} on {}, this is {:?} on {}",
                caller.server, caller.function, self.name, self.function
            );
            return Err((Error::NotFound, reason));
        }
        if caller.max_message != self.control.max_message() {
            let reason = format!(
                "the client's largest message is {} bytes, the server's {}; set them to the same",
                caller.max_message,
                self.control.max_message()
            );
            return Err((Error::InvalidValue, reason));
        }
        let most = max_clients();
        if clients >= most {
            return Err((
                Error::Full,
                format!(
                    "the server has {most} clients already, which the limit of descriptors of its process allows"
                ),
            ));
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

/// Stores a closed connection, and drops the oldest. Connections whose end has not been reported to the program are
/// kept in any case: its callback looks up the connection's context, and the handle is valid until then.
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
        let name = frame::socket_name(&self.function, &self.name);
        let listener = Listener::bind(&RuntimeDir::get()?, &name).map_err(|error| match error {
            Error::AlreadyExist => error.because(format_args!(
                "a server called {:?} runs on {} already",
                self.name, self.function
            )),
            error => error,
        })?;
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
            self.accept_strangers(ctx, &pe);
            return;
        }
        let pending = self
            .run
            .borrow()
            .pending
            .iter()
            .position(|(of, _)| *of == token);
        if let Some(at) = pending {
            self.hear_stranger(ctx, &pe, at);
        }
        if let Some(connection) = self.client(token)
            && self.control.read(&connection) == Reading::Ended
        {
            self.end_client(&pe, token);
        }
    }

    fn flush(&self, ctx: &Ctx) {
        self.control.begin_stop();
        let run = &mut *self.run.borrow_mut();
        let Ok(pe) = ctx.pe() else { return };
        // No further clients are accepted.
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
