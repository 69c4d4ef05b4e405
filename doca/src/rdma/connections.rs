//! The connections of an instance, and the callbacks that tell what becomes of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;

use doca_sys as sys;

use super::RdmaConnection;
use super::address::Address;
use crate::context::{self, ContextId, CtxState, Events, Shared};
use crate::pe::EventQueue;

/// What became of a connection of an [`Rdma`](crate::Rdma) instance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RdmaEvent {
    /// A peer asks for a connection: [`Rdma::accept`](crate::Rdma::accept) or [`Rdma::reject`](crate::Rdma::reject) it.
    Requested(RdmaConnection),
    /// Tasks on the connection run.
    Established {
        /// The connection.
        connection: RdmaConnection,
        /// The token that it was accepted or asked for with; 0 for one that was exported.
        token: u64,
    },
    /// The connection was not made: nobody listens, the peer has rejected it, or has gone.
    Failed {
        /// The token that it was accepted or asked for with.
        token: u64,
    },
    /// The connection has ended; its tasks fail.
    Disconnected {
        /// The connection.
        connection: RdmaConnection,
        /// As for [`Established`](Self::Established).
        token: u64,
    },
}

/// The connections of an instance.
///
/// The borrows in the functions below call nothing that comes back here.
#[derive(Default)]
pub(crate) struct Connections {
    /// The user asks for events. Otherwise they would pile up.
    tells: bool,
    known: RefCell<Vec<RdmaConnection>>,
    events: RefCell<VecDeque<RdmaEvent>>,
    /// What connections were made to.
    addresses: RefCell<Vec<Address>>,
}

impl Events for Connections {
    fn state_changed(&self, _context: ContextId, _queue: &EventQueue, next: CtxState) {
        if matches!(next, CtxState::Stopping | CtxState::Idle) {
            // They end with it; those whose end is told by a callback as well are still known then.
            self.known
                .borrow()
                .iter()
                .for_each(RdmaConnection::invalidate);
        }
    }

    fn closing(&self, _queue: &EventQueue) {
        for connection in self.known.borrow_mut().drain(..) {
            connection.invalidate();
        }
    }
}

impl Connections {
    /// `tells`: what becomes of connections is asked for.
    pub(super) fn new(tells: bool) -> Self {
        Self {
            tells,
            ..Self::default()
        }
    }

    /// The connection with this C object; a new one when it is not known yet.
    pub(super) fn find_or_add(
        &self,
        context: ContextId,
        raw: NonNull<sys::doca_rdma_connection>,
    ) -> RdmaConnection {
        let mut known = self.known.borrow_mut();
        if let Some(connection) = known.iter().find(|connection| connection.is(raw)) {
            return connection.clone();
        }
        let connection = RdmaConnection::new(context, raw);
        known.push(connection.clone());
        connection
    }

    /// A connection has ended.
    fn remove(
        &self,
        context: ContextId,
        raw: NonNull<sys::doca_rdma_connection>,
    ) -> RdmaConnection {
        let connection = self.find_or_add(context, raw);
        self.known.borrow_mut().retain(|known| *known != connection);
        connection.invalidate();
        connection
    }

    /// This side has ended or refused it: nothing more is to be told of it.
    pub(super) fn forget(&self, connection: &RdmaConnection) {
        self.known.borrow_mut().retain(|known| known != connection);
        connection.invalidate();
    }

    /// Keeps an address as long as the instance; answers its C object.
    pub(super) fn keep(&self, address: Address) -> *mut sys::doca_rdma_addr {
        let addr = address.as_ptr();
        self.addresses.borrow_mut().push(address);
        addr
    }

    pub(super) fn next_event(&self) -> Option<RdmaEvent> {
        self.events.borrow_mut().pop_front()
    }

    fn push(&self, event: RdmaEvent) {
        if self.tells {
            self.events.borrow_mut().push_back(event);
        }
    }
}

/// What a callback works on.
///
/// # Safety
///
/// The arguments are those of a callback of a live instance.
unsafe fn find<'a>(
    connection: *mut sys::doca_rdma_connection,
    ctx_user_data: sys::doca_data,
) -> Option<(&'a Shared<Connections>, NonNull<sys::doca_rdma_connection>)> {
    // SAFETY: the caller's promise; `Context::new` set the user data.
    let shared = unsafe { context::shared::<Connections>(ctx_user_data) }?;
    Some((shared, NonNull::new(connection)?))
}

pub(super) unsafe extern "C" fn requested(
    connection: *mut sys::doca_rdma_connection,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA calls this for connections of the instance.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared.events.push(RdmaEvent::Requested(connection));
}

pub(super) unsafe extern "C" fn established(
    connection: *mut sys::doca_rdma_connection,
    connection_user_data: sys::doca_data,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `requested`.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    // SAFETY: this crate sets only this member.
    let token = unsafe { connection_user_data.u64 };
    shared
        .events
        .push(RdmaEvent::Established { connection, token });
}

pub(super) unsafe extern "C" fn failed(
    connection: *mut sys::doca_rdma_connection,
    connection_user_data: sys::doca_data,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `requested`.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    shared.events.remove(shared.id, raw);
    // SAFETY: as in `established`.
    let token = unsafe { connection_user_data.u64 };
    shared.events.push(RdmaEvent::Failed { token });
}

pub(super) unsafe extern "C" fn disconnected(
    connection: *mut sys::doca_rdma_connection,
    connection_user_data: sys::doca_data,
    ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `requested`.
    let Some((shared, raw)) = (unsafe { find(connection, ctx_user_data) }) else {
        return;
    };
    let ended = shared.events.remove(shared.id, raw);
    // SAFETY: as in `established`. DOCA wants to hear that the end is known.
    let token = unsafe {
        sys::doca_rdma_connection_disconnect(connection);
        connection_user_data.u64
    };
    shared.events.push(RdmaEvent::Disconnected {
        connection: ended,
        token,
    });
}
