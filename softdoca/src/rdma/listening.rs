//! Listening ports of an instance, and incoming connections.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use super::address::{Address, Host, check_port, socket_name};
use super::blob::ConnectionDetails;
use super::connecting::expect_running;
use super::driver::Rdma;
use super::handshake::{Heard, Word, hear, say};
use super::pending::{Handshake, Reception, Watched};
use crate::error::{Error, Result};
use crate::log;
use crate::progress::{Ctx, Urgency};
use crate::runtime::{Listener, RuntimeDir, Socket};

impl Rdma {
    /// Accepts connection requests on a port of the device.
    ///
    /// # Errors
    /// [`Error::BadState`] before the start, [`Error::AlreadyExist`] if the port is in use, [`Error::NotSupported`]
    /// for dynamic connections.
    pub(crate) fn listen(&self, ctx: &Ctx, port: u16) -> Result<()> {
        expect_running(ctx, "requests for connections are taken")?;
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
    /// [`Error::BadState`] before the start, [`Error::InvalidValue`] if the instance does not listen there.
    pub(crate) fn stop_listening(&self, ctx: &Ctx, port: u16) -> Result<()> {
        expect_running(ctx, "a port is given up")?;
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
            self.welcome(ctx, port, socket);
        }
    }

    fn welcome(&self, ctx: &Ctx, port: u16, socket: Socket) {
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
        let (port, socket, heard) = {
            let callers = &mut self.state.borrow_mut().reception.callers;
            let Some(place) = callers.iter().position(|(known, ..)| *known == number) else {
                return;
            };
            match hear(&callers[place].2) {
                Heard::Nothing => return,
                heard => {
                    let (_, port, socket) = callers.swap_remove(place);
                    (port, socket, heard)
                }
            }
        };
        if let Ok(pe) = ctx.pe() {
            pe.unwatch(socket.as_fd(), Urgency::Message);
        }
        if let Heard::Word(Word::Request { details, from }) = heard
            && let Err((socket, error)) = self.request(ctx, socket, details, (from, port))
        {
            log::warn!("an RDMA instance rejects a request for a connection: {error}");
            let _ = say(&socket, &Word::Rejection);
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
        if let Err(error) = self.shake(ctx, &connection, Handshake::Requested(socket, details)) {
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
