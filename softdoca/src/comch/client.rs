//! The client: connects to a server on the DPU by name.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use super::check_name;
use super::connection::{Connection, Outbound, Side};
use super::control::{ControlPath, Notice, Reading};
use super::frame::{self, Answer, Arrival};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, CtxState, Driver, Event, Pe, Started, Task, Urgency};
use crate::runtime::{RuntimeDir, Socket};

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
    /// Connected; the server has not replied.
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

    /// Returns the connection.
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
                let _ = Error::NotFound.because(format_args!(
                    "no server called {:?} runs for {}; start it before the client",
                    self.name,
                    self.device.model().pci
                ));
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
        let function = self.device.model().pci.to_string();
        let name = frame::socket_name(&function, &self.name);
        let socket = Socket::connect(&RuntimeDir::get()?, &name)?;
        let lifeline =
            frame::send_hello(&socket, &function, &self.name, self.control.max_message())?;
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
        let failure = match frame::receive_answer(socket) {
            Arrival::Waiting => return,
            Arrival::Received(Answer::Accepted { max_message }) if max_message == expected => None,
            Arrival::Received(Answer::Accepted { max_message }) => Some(format!(
                "its largest message is {max_message} bytes, the client's {expected}"
            )),
            Arrival::Received(Answer::Refused { code, reason }) => {
                let name = Error::from_code(code).map_or("an unknown error", Error::name);
                Some(format!("it refused with {name}: {reason:?}"))
            }
            Arrival::Gone => Some("it has gone".to_owned()),
            Arrival::Faulty(reason) => Some(format!("its answer is faulty: {reason}")),
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
        let connection = Connection::new(Side::Client, socket, lifeline, ctx, expected, &outbound);
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

impl Driver for Client {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        self.control.prepare(false)?;
        let pe = ctx.pe()?;
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
