//! Connections by address: requests, acceptance and rejection.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::doca_data;

use super::address::{Address, Host};
use super::blob::ConnectionDetails;
use super::connecting::Ending;
use super::connection::Connection;
use super::driver::Rdma;
use super::handshake::{Heard, Word, hear, say};
use super::pending::{Handshake, Watched};
use crate::error::{Error, Result};
use crate::log;
use crate::progress::{Ctx, Urgency};
use crate::runtime::{RuntimeDir, Socket};

impl Rdma {
    /// Connects to the listener at `address`. The result, including the absence of a listener, is reported by
    /// callbacks.
    ///
    /// # Errors
    /// Those of an export; [`Error::NotSupported`] for dynamic connections.
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
            say(&socket, &Word::Request { details, from })?;
            self.shake(ctx, &connection, Handshake::Asked(socket))
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
        // Wake a thread that waits for the callback.
        ctx.pe()?.wake().ring();
        Ok(())
    }

    /// Accepts a peer's connection request.
    ///
    /// # Errors
    /// [`Error::BadState`] for any other connection, [`Error::ConnectionAborted`] if the peer has disconnected
    /// meanwhile.
    pub(crate) fn accept(
        &self,
        ctx: &Ctx,
        connection: &Rc<Connection>,
        private_data: &[u8],
    ) -> Result<()> {
        let (socket, theirs) = self.take_request(ctx, connection)?;
        let accepted = self.claim(&theirs).and_then(|outbox| {
            let word = Word::Acceptance {
                details: ConnectionDetails::decode(connection.details())?,
                private_data: private_data.to_vec(),
            };
            say(&socket, &word)?;
            let handshake = Handshake::Accepted(socket, Box::new(outbox), theirs.permissions);
            self.shake(ctx, connection, handshake)
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
        let _ = say(&socket, &Word::Rejection);
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
        match self.stop_shaking(ctx, connection) {
            Some(Handshake::Requested(socket, details)) => Ok((socket, details)),
            other => {
                if let Some(handshake) = other {
                    self.shake(ctx, connection, handshake)?;
                }
                Err(Error::BadState.because(
                    "expected a connection that a peer has just asked for (from the request callback)",
                ))
            }
        }
    }

    /// Handles the peer's response or disconnection.
    pub(super) fn on_handshake(&self, ctx: &Ctx, connection: &Rc<Connection>) {
        let Some(handshake) = self.stop_shaking(ctx, connection) else {
            return;
        };
        let heard = hear(handshake.socket());
        let done = match (handshake, heard) {
            (handshake, Heard::Nothing) => self.shake(ctx, connection, handshake),
            (
                Handshake::Asked(socket),
                Heard::Word(Word::Acceptance {
                    details,
                    private_data: _,
                }),
            ) => self.claim(&details).and_then(|outbox| {
                self.establish(ctx, connection, outbox, details.permissions)?;
                say(&socket, &Word::Ready)
            }),
            (Handshake::Accepted(_, outbox, permissions), Heard::Word(Word::Ready)) => {
                self.establish(ctx, connection, *outbox, permissions)
            }
            _ => Err(Error::ConnectionAborted),
        };
        if done.is_err() {
            self.end(ctx, connection, Ending::Orderly);
        }
    }

    /// Watches a connection that is being established.
    pub(super) fn shake(
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

    /// The connection was established or has failed.
    pub(super) fn stop_shaking(&self, ctx: &Ctx, connection: &Connection) -> Option<Handshake> {
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
