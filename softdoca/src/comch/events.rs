//! Connection events and the program's callbacks for them.

use std::cell::Cell;
use std::sync::Arc;

use doca_abi::{
    doca_comch_connection, doca_comch_event_connection_status_changed_cb_t,
    doca_comch_event_consumer_cb_t, doca_comch_event_msg_recv_cb_t,
};

use super::connection::Connection;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Event};

/// A pending event for the program.
pub(super) enum Notice {
    Connected(Arc<Connection>, bool),
    Disconnected(Arc<Connection>),
    Message(Arc<Connection>, Vec<u8>),
    ConsumerAdded(Arc<Connection>, u32),
    ConsumerExpired(Arc<Connection>, u32),
    Started,
    StartFailed,
    Broken,
}

/// The callbacks that a program has registered with a server or client.
#[derive(Default)]
pub(crate) struct Events {
    callbacks: Cell<Callbacks>,
}

#[derive(Clone, Copy, Default)]
struct Callbacks {
    message: doca_comch_event_msg_recv_cb_t,
    consumer_added: doca_comch_event_consumer_cb_t,
    consumer_expired: doca_comch_event_consumer_cb_t,
    connected: doca_comch_event_connection_status_changed_cb_t,
    disconnected: doca_comch_event_connection_status_changed_cb_t,
}

impl Events {
    /// Returns `true` if the callback for messages is set.
    pub(super) fn has_message(&self) -> bool {
        self.callbacks.get().message.is_some()
    }

    /// Returns `true` if the callbacks for connections are set.
    pub(super) fn has_connections(&self) -> bool {
        self.callbacks.get().connected.is_some()
    }

    fn update(
        &self,
        ctx: &Ctx,
        what: &str,
        all_given: bool,
        change: impl FnOnce(&mut Callbacks),
    ) -> Result<()> {
        ctx.expect_idle("events are registered")?;
        if !all_given {
            return Err(
                Error::InvalidValue.because(format_args!("expected a {what} callback, got NULL"))
            );
        }
        let mut callbacks = self.callbacks.get();
        change(&mut callbacks);
        self.callbacks.set(callbacks);
        Ok(())
    }

    /// Sets the callback for control messages.
    pub(crate) fn on_message(
        &self,
        ctx: &Ctx,
        callback: doca_comch_event_msg_recv_cb_t,
    ) -> Result<()> {
        self.update(ctx, "message", callback.is_some(), |all| {
            all.message = callback
        })
    }

    /// Sets the callbacks for new and expired consumers of the peer.
    pub(crate) fn on_consumers(
        &self,
        ctx: &Ctx,
        added: doca_comch_event_consumer_cb_t,
        expired: doca_comch_event_consumer_cb_t,
    ) -> Result<()> {
        self.update(
            ctx,
            "consumer",
            added.is_some() && expired.is_some(),
            |all| {
                all.consumer_added = added;
                all.consumer_expired = expired;
            },
        )
    }

    /// Sets the callbacks for connected and disconnected clients.
    pub(crate) fn on_connections(
        &self,
        ctx: &Ctx,
        connected: doca_comch_event_connection_status_changed_cb_t,
        disconnected: doca_comch_event_connection_status_changed_cb_t,
    ) -> Result<()> {
        let given = connected.is_some() && disconnected.is_some();
        self.update(ctx, "connection", given, |all| {
            all.connected = connected;
            all.disconnected = disconnected;
        })
    }

    /// Converts a pending event to a call of the program's callback; `None` without a callback.
    pub(super) fn event_of(&self, ctx: &Ctx, notice: Notice) -> Option<Event> {
        let callbacks = self.callbacks.get();
        // Programs do not use the event objects: they get a pointer that is not NULL and has no meaning.
        let event = std::ptr::from_ref(ctx).cast_mut();
        let handle = |connection: &Arc<Connection>| {
            Arc::as_ptr(connection)
                .cast_mut()
                .cast::<doca_comch_connection>()
        };
        // SAFETY (all calls below): the program registered the functions with these types. The connection lives while
        // the closure does.
        let call: Box<dyn FnOnce()> = match notice {
            Notice::Started => return Some(Event::Started),
            Notice::StartFailed => return Some(Event::StartFailed),
            Notice::Broken => return Some(Event::Broken),
            Notice::Connected(connection, successful) => {
                if !successful {
                    connection.set_told();
                }
                let callback = callbacks.connected?;
                // SAFETY: as above.
                return Some(Event::Connection(Box::new(move || unsafe {
                    callback(event.cast(), handle(&connection), successful.into());
                })));
            }
            Notice::Disconnected(connection) => {
                connection.set_told();
                let callback = callbacks.disconnected?;
                // SAFETY: as above.
                return Some(Event::Connection(Box::new(move || unsafe {
                    callback(event.cast(), handle(&connection), 1);
                })));
            }
            Notice::Message(connection, mut bytes) => {
                let callback = callbacks.message?;
                // SAFETY: as above; the bytes live until the callback returns.
                Box::new(move || unsafe {
                    let len = bytes.len() as u32;
                    callback(event.cast(), bytes.as_mut_ptr(), len, handle(&connection));
                })
            }
            Notice::ConsumerAdded(connection, id) => {
                let callback = callbacks.consumer_added?;
                // SAFETY: as above.
                Box::new(move || unsafe { callback(event.cast(), handle(&connection), id) })
            }
            Notice::ConsumerExpired(connection, id) => {
                let callback = callbacks.consumer_expired?;
                // SAFETY: as above.
                Box::new(move || unsafe { callback(event.cast(), handle(&connection), id) })
            }
        };
        Some(Event::Call(call))
    }
}
