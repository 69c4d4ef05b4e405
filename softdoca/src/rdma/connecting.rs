//! Establishment and end of an instance's connections.

use std::rc::Rc;

use doca_abi::{doca_data, doca_rdma_connection};

use super::blob::ConnectionDetails;
use super::connection::{Connection, State};
use super::driver::Rdma;
use super::pending::Watched;
use super::transport::{ConnectionInbox, ConnectionOutbox, Inbox as _};
use crate::agent::{AgentAddress, NetworkOffer, Route};
use crate::error::{Error, Result};
use crate::progress::{Ctx, CtxState, Urgency};

/// Reason for the end of a connection, as reported to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Requested by this side, or closed by the peer.
    Orderly,
    /// The peer has died or violated the protocol.
    Failure,
}

impl Rdma {
    /// Creates a connection whose details the peer can use at once.
    ///
    /// # Errors
    /// [`Error::BadState`] before the start, [`Error::Full`] if the instance has its maximum number of connections.
    pub(crate) fn export(&self, ctx: &Ctx) -> Result<Rc<Connection>> {
        self.offer(ctx, false).map(|(connection, _)| connection)
    }

    /// Creates a connection that any peer with its details can use.
    pub(super) fn offer(
        &self,
        ctx: &Ctx,
        by_address: bool,
    ) -> Result<(Rc<Connection>, ConnectionDetails)> {
        expect_running(ctx, "a connection is made")?;
        let mut state = self.state.borrow_mut();
        let (open, max) = (state.connections.len(), self.config.max_connections.get());
        if open >= usize::from(max) {
            return Err(Error::Full.because(format_args!(
                "the RDMA instance has {open} connections, and was configured for {max} (doca_rdma_set_max_num_connections)"
            )));
        }
        let transport = state.transport()?;
        let (inbox, nic) = (transport.offer(state.receives.len())?, transport.nic());
        let details = ConnectionDetails {
            // One of two small numbers, checked when it was set.
            transport_type: self.config.transport_type.get() as u16,
            permissions: self.config.permissions.get(),
            agent: AgentAddress::local()?,
            key: inbox.key(),
            network: NetworkOffer::of(inbox.key())?.map(|mut offer| {
                offer.verbs = nic.is_some();
                offer
            }),
        };
        let connection = Rc::new(Connection::new(
            state.next_id,
            ctx,
            &details,
            Box::new(ConnectionInbox::Shared(inbox)),
            self.pools.work_limit(),
            by_address,
        ));
        state.next_id = (state.next_id + 1) % Watched::NUMBERS;
        state.connections.push(Rc::clone(&connection));
        Ok((connection, details))
    }

    /// Returns the connection of a handle, if it belongs to this instance.
    pub(crate) fn connection(&self, handle: *const Connection) -> Result<Rc<Connection>> {
        let state = self.state.borrow();
        let all = state.connections.iter().chain(&state.ended);
        all.into_iter()
            .find(|connection| Rc::as_ptr(connection) == handle)
            .cloned()
            .ok_or_else(|| {
                Error::InvalidValue
                    .because("expected a connection of this RDMA instance, got another pointer")
            })
    }

    /// Connects to the peer that exported `details`. Its program may be asleep. With dynamic connections it need not
    /// connect either, as it only receives, and is read and written.
    ///
    /// # Errors
    /// Those of [`ConnectionDetails::decode`], [`Error::InvalidValue`] for details of another transport type,
    /// [`Error::BadState`] if the connection is already connected, [`Error::AlreadyExist`] if another peer has used
    /// the details, [`Error::ConnectionAborted`] if the peer no longer exists.
    pub(crate) fn connect(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        details: &[u8],
    ) -> Result<()> {
        expect_running(ctx, "a connection is made")?;
        if connection.state() != State::Exported {
            return Err(Error::BadState.because(format_args!(
                "expected a fresh connection from doca_rdma_export, its state is {:?}",
                connection.state()
            )));
        }
        let details = ConnectionDetails::decode(details)?;
        let own = self.config.transport_type.get();
        if u32::from(details.transport_type) != own {
            return Err(Error::InvalidValue.because(format_args!(
                "expected details of an RDMA instance of transport type {own}, as this one is, got {}: set the same on both sides",
                details.transport_type
            )));
        }
        let outbox = self.claim(&details)?;
        self.establish(ctx, connection, outbox, details.permissions)
    }

    /// Creates the sending side of a connection from the peer's details.
    pub(super) fn claim(&self, details: &ConnectionDetails) -> Result<ConnectionOutbox> {
        let claimed = match details.route()? {
            Route::Local => self
                .state
                .borrow()
                .transport()?
                .claim(&details.agent, details.key)
                .map(ConnectionOutbox::Shared),
            Route::Network(offer) => {
                let nic = self.state.borrow().transport()?.nic();
                super::transport::verbs::connect(&offer, nic)
            }
        };
        claimed.map_err(|error| match error {
            Error::AlreadyExist => error.because(
                "the RDMA connection details were used already: each connection needs an export of its own",
            ),
            Error::NotFound | Error::ConnectionReset => Error::ConnectionAborted
                .because("the RDMA peer has gone, or has ended the connection"),
            error => error,
        })
    }

    /// Marks the connection as connected: tasks of this side can run.
    pub(super) fn establish(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        outbox: ConnectionOutbox,
        permissions: u32,
    ) -> Result<()> {
        let pe = ctx.pe()?;
        let token = Watched::Liveness.token(connection.id);
        pe.watch(outbox.liveness(), ctx, token, Urgency::Liveness)?;
        for socket in outbox.sockets().into_iter().flatten() {
            let token = Watched::Outbox.token(connection.id);
            pe.watch(socket, ctx, token, outbox.urgency())?;
        }
        connection.connect(Box::new(outbox), permissions);
        let callback = self.config.callbacks.get().established;
        self.call_later(ctx, connection, callback);
        // Tasks submitted before run with the next progress.
        pe.wake().ring();
        Ok(())
    }

    /// Ends a connection: its tasks fail. Does nothing if it has ended: programs disconnect in response to a
    /// disconnection event, some of them more than once, and librdmacm allows it.
    pub(crate) fn disconnect(&self, ctx: &Ctx, connection: &Rc<Connection>) {
        if !connection.has_ended() {
            self.end(ctx, connection, Ending::Orderly);
        }
    }

    /// Ends a connection about which the program gets no further events.
    pub(super) fn forget(&self, ctx: &Ctx, connection: &Rc<Connection>) {
        self.close(ctx, connection, Ending::Orderly);
    }

    pub(super) fn call_later(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        callback: Option<unsafe extern "C" fn(*mut doca_rdma_connection, doca_data, doca_data)>,
    ) {
        let Some(callback) = callback else { return };
        let (connection, user_data) = (Rc::clone(connection), ctx.user_data());
        self.state.borrow_mut().calls.push_back(Box::new(move || {
            let handle = Rc::as_ptr(&connection).cast_mut().cast();
            // SAFETY: the program gave the callback for connections of this instance, which is alive.
            unsafe { callback(handle, connection.user_data(), user_data) };
        }));
    }

    pub(super) fn end(&self, ctx: &Ctx, connection: &Rc<Connection>, ending: Ending) {
        let was_connected = connection.state() == State::Connected;
        self.close(ctx, connection, ending);
        let callbacks = self.config.callbacks.get();
        let callback = if was_connected {
            callbacks.disconnection
        } else if self.config.expect_reliable().is_ok() {
            callbacks.failure
        } else {
            // The target of a dynamic connection got no event when it was established.
            None
        };
        self.call_later(ctx, connection, callback);
    }

    fn close(&self, ctx: &Ctx, connection: &Rc<Connection>, ending: Ending) {
        self.unwatch(ctx, connection);
        {
            let state = &mut *self.state.borrow_mut();
            let error = match ending {
                Ending::Orderly => Error::ConnectionReset,
                Ending::Failure => Error::ConnectionAborted,
            };
            // A task that fails for lack of a peer is fatal, as on a reliable connection in hardware.
            let failed = connection.end(error, &mut state.done) || ending == Ending::Failure;
            let place = state
                .connections
                .iter()
                .position(|other| Rc::ptr_eq(other, connection));
            if let Some(place) = place {
                // The program may still use the handle.
                state.ended.push(state.connections.remove(place));
            }
            // It may have returned receives to the shared pool that senders on other connections wait for.
            for other in &state.connections {
                if let Some(inbox) = &mut other.parts.borrow_mut().inbox {
                    inbox.post(0);
                }
            }
            state.broken |= failed && state.connections.is_empty();
        }
    }

    pub(super) fn unwatch(&self, ctx: &Ctx, connection: &Connection) {
        drop(self.stop_shaking(ctx, connection));
        connection.unwatch_sockets();
        let parts = connection.parts.borrow();
        if let (Some(outbox), Ok(pe)) = (&parts.outbox, ctx.pe()) {
            pe.unwatch(outbox.liveness(), Urgency::Liveness);
        }
    }
}

pub(super) fn expect_running(ctx: &Ctx, what: &str) -> Result<()> {
    match ctx.state() {
        CtxState::Starting | CtxState::Running => Ok(()),
        state => Err(Error::BadState.because(format_args!(
            "{what} while the context runs; its state is {state:?}"
        ))),
    }
}
