//! What a server and a client have in common: their connections, and the callbacks that find them.

use std::cell::RefCell;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use doca_sys as sys;

use super::{ComchEvent, Connection};
use crate::ErrorCode;
use crate::Event;
use crate::context::{self, ContextId, CtxState, Events, Object, Shared};
use crate::pe::EventQueue;

/// Which end of a connection an object is.
///
/// # Safety
///
/// `of_connection` returns the live object of this kind that the connection belongs to, or null.
pub(crate) unsafe trait Side: Object<Events = Endpoint> {
    /// The server or client of a connection.
    unsafe fn of_connection(connection: *const sys::doca_comch_connection) -> *mut Self;
}

/// The connections of a server or client.
///
/// The borrows in the functions below call nothing that comes back here.
pub(crate) struct Endpoint {
    connections: RefCell<Vec<Connection>>,
    /// Set for a client: its connection is there when it is running. A server learns of connections by events.
    client: Option<NonNull<sys::doca_comch_client>>,
    /// Consumers and producers on the connections, of this and other threads.
    users: Arc<AtomicUsize>,
}

impl Endpoint {
    pub(crate) fn server() -> Self {
        Self {
            connections: RefCell::default(),
            client: None,
            users: Arc::default(),
        }
    }

    pub(crate) fn client(client: NonNull<sys::doca_comch_client>) -> Self {
        Self {
            connections: RefCell::default(),
            client: Some(client),
            users: Arc::default(),
        }
    }

    /// The only connection of a client.
    pub(crate) fn first(&self) -> Option<Connection> {
        self.connections.borrow().first().cloned()
    }

    pub(crate) fn owns(&self, connection: &Connection) -> bool {
        self.connections.borrow().contains(connection)
    }

    /// The connection with this C object; a new one when it is not known yet.
    fn find_or_add(
        &self,
        context: ContextId,
        raw: NonNull<sys::doca_comch_connection>,
    ) -> Connection {
        let mut connections = self.connections.borrow_mut();
        if let Some(connection) = connections.iter().find(|connection| connection.is(raw)) {
            return connection.clone();
        }
        let connection = Connection::new(context, raw, Arc::clone(&self.users));
        connections.push(connection.clone());
        connection
    }

    fn remove(&self, raw: NonNull<sys::doca_comch_connection>) -> Option<Connection> {
        let mut connections = self.connections.borrow_mut();
        let index = connections
            .iter()
            .position(|connection| connection.is(raw))?;
        Some(connections.swap_remove(index))
    }

    /// All connections go away; they are told to the user.
    fn remove_all(&self, queue: &EventQueue) {
        let connections = std::mem::take(&mut *self.connections.borrow_mut());
        for connection in connections {
            connection.invalidate();
            queue.push(Event::Comch(ComchEvent::Disconnected(connection)));
        }
    }
}

impl Events for Endpoint {
    fn state_changed(&self, context: ContextId, queue: &EventQueue, next: CtxState) {
        let Some(client) = self.client else { return };
        match next {
            CtxState::Running => {
                let mut connection = ptr::null_mut();
                // SAFETY: this is called from a callback of the client: it is live.
                let code = unsafe {
                    sys::doca_comch_client_get_connection(client.as_ptr(), &mut connection)
                };
                if let (sys::DOCA_SUCCESS, Some(raw)) = (code, NonNull::new(connection)) {
                    let connection = self.find_or_add(context, raw);
                    queue.push(Event::Comch(ComchEvent::Connected(connection)));
                }
            }
            CtxState::Stopping | CtxState::Idle => self.remove_all(queue),
            CtxState::Starting => {}
        }
    }

    fn may_stop(&self, queue: &EventQueue) -> Result<(), ErrorCode> {
        // First, so that no thread makes another one on them.
        self.remove_all(queue);
        match self.users.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(ErrorCode::IN_USE),
        }
    }

    fn closing(&self, queue: &EventQueue) {
        self.remove_all(queue);
    }
}

/// The server or client of a connection, and the connection's C object.
///
/// # Safety
///
/// `connection` is what DOCA passed to a callback of an object of the kind `S`, which is running.
unsafe fn find<'a, S: Side>(
    connection: *mut sys::doca_comch_connection,
) -> Option<(&'a Shared<Endpoint>, NonNull<sys::doca_comch_connection>)> {
    let raw = NonNull::new(connection)?;
    // SAFETY: the caller's promise; the object is live during its callback, and its user data is that of `Context::new`.
    let shared = unsafe {
        let object = S::of_connection(connection);
        if object.is_null() {
            return None;
        }
        context::shared::<Endpoint>(context::user_data(S::as_ctx(object)))?
    };
    Some((shared, raw))
}

/// A control message arrived.
pub(super) unsafe extern "C" fn message_received<S: Side>(
    _event: *mut sys::doca_comch_event_msg_recv,
    buffer: *mut u8,
    len: u32,
    connection: *mut sys::doca_comch_connection,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let bytes = match NonNull::new(buffer) {
        // SAFETY: DOCA passes `len` bytes that are valid until this function returns.
        Some(buffer) => unsafe { slice::from_raw_parts(buffer.as_ptr(), len as usize) }.to_vec(),
        None => Vec::new(),
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::Message { connection, bytes }));
}

/// A client connected.
pub(super) unsafe extern "C" fn connected<S: Side>(
    _event: *mut sys::doca_comch_event_connection_status_changed,
    connection: *mut sys::doca_comch_connection,
    change_successful: u8,
) {
    if change_successful == 0 {
        return;
    }
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::Connected(connection)));
}

/// A client disconnected. The C object goes away when this returns.
pub(super) unsafe extern "C" fn disconnected<S: Side>(
    _event: *mut sys::doca_comch_event_connection_status_changed,
    connection: *mut sys::doca_comch_connection,
    _change_successful: u8,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    if let Some(connection) = shared.events.remove(raw) {
        connection.invalidate();
        shared
            .queue
            .push(Event::Comch(ComchEvent::Disconnected(connection)));
    }
}

/// The peer started a consumer.
pub(super) unsafe extern "C" fn consumer_added<S: Side>(
    _event: *mut sys::doca_comch_event_consumer,
    connection: *mut sys::doca_comch_connection,
    id: u32,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::ConsumerAdded { connection, id }));
}

/// A consumer of the peer is gone.
pub(super) unsafe extern "C" fn consumer_expired<S: Side>(
    _event: *mut sys::doca_comch_event_consumer,
    connection: *mut sys::doca_comch_connection,
    id: u32,
) {
    // SAFETY: DOCA calls this with a connection of an object of this kind.
    let Some((shared, raw)) = (unsafe { find::<S>(connection) }) else {
        return;
    };
    let connection = shared.events.find_or_add(shared.id, raw);
    shared
        .queue
        .push(Event::Comch(ComchEvent::ConsumerExpired { connection, id }));
}
