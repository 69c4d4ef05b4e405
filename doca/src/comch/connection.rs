use std::cell::RefCell;
use std::ptr::{
    NonNull, {self},
};
use std::rc::Rc;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use doca_sys as sys;

use super::ComchEvent;
use crate::context::{self, CtxState, Events, Object, Shared};
use crate::device::non_null;
use crate::pe::EventQueue;
use crate::{ContextId, Error, ErrorCode, Event, Result};

/// A connection of a client and a server. Clones refer to the same connection and are equal.
///
/// It is passed to the threads that start [`Consumer`](crate::Consumer)s and [`Producer`](crate::Producer)s on it.
/// After the peer has disconnected, or the server or client was stopped, operations on it fail with
/// [`ErrorCode::NOT_CONNECTED`].
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    context: ContextId,
    /// The C object while it is valid. Locked while a C function uses it, so that it is not destroyed in the meantime.
    live: Mutex<Option<Raw>>,
    /// Number of consumers and producers on all connections of the server or client.
    users: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Raw(NonNull<sys::doca_comch_connection>);

// SAFETY: DOCA allows other threads than that of the server or client to create consumers and producers on a
// connection; they use the pointer for nothing else, and only under the lock.
unsafe impl Send for Raw {}

impl Connection {
    pub(crate) fn new(
        context: ContextId,
        connection: NonNull<sys::doca_comch_connection>,
        users: Arc<AtomicUsize>,
    ) -> Self {
        let inner = Inner {
            context,
            live: Mutex::new(Some(Raw(connection))),
            users,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The server or client that the connection belongs to.
    pub fn context(&self) -> ContextId {
        self.inner.context
    }

    /// `true` while the peer is connected, as far as this side knows.
    pub fn is_connected(&self) -> bool {
        self.lock().is_some()
    }

    /// Calls `f` with the C object, which stays valid during the call.
    pub(crate) fn with<R>(
        &self,
        operation: &'static str,
        f: impl FnOnce(*mut sys::doca_comch_connection) -> Result<R>,
    ) -> Result<R> {
        match *self.lock() {
            Some(Raw(connection)) => f(connection.as_ptr()),
            None => Err(Error::with_detail(
                operation,
                ErrorCode::NOT_CONNECTED,
                "the connection is closed",
            )),
        }
    }

    /// As [`with`](Self::with), for a function that creates a consumer or producer; the guard must live as long as that
    /// object.
    pub(crate) fn enter<R>(
        &self,
        operation: &'static str,
        f: impl FnOnce(*mut sys::doca_comch_connection) -> Result<R>,
    ) -> Result<(R, ConnectionUser)> {
        self.with(operation, |connection| {
            // Counted under the lock: a thread that invalidates the connection before it reads the count misses no
            // user.
            let user = ConnectionUser::new(Arc::clone(&self.inner.users));
            Ok((f(connection)?, user))
        })
    }

    pub(crate) fn is(&self, connection: NonNull<sys::doca_comch_connection>) -> bool {
        *self.lock() == Some(Raw(connection))
    }

    /// Invalidates the C object, after waiting for threads that use it. Returns `true` if it was valid.
    pub(crate) fn invalidate(&self) -> bool {
        self.lock().take().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Raw>> {
        // Poisoning is harmless: the value is replaced in one step.
        self.inner
            .live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Connection {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Connection {}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("context", &self.inner.context)
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

/// A consumer or producer on a connection: the server or client cannot be destroyed while it exists.
#[derive(Debug)]
pub(crate) struct ConnectionUser(Arc<AtomicUsize>);

impl ConnectionUser {
    fn new(users: Arc<AtomicUsize>) -> Self {
        users.fetch_add(1, Ordering::AcqRel);
        Self(users)
    }
}

impl Drop for ConnectionUser {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A server or a client, as the owner of a connection.
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
/// The methods borrow its fields and make no calls that could come back here.
pub(crate) struct Endpoint {
    connections: RefCell<Vec<Connection>>,
    /// Set for a client, whose connection exists while it is running. A server gets connections by events.
    client: Option<NonNull<sys::doca_comch_client>>,
    /// Number of consumers and producers on the connections, in all threads.
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

    /// Finds the connection with this C object, or adds a new one.
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

    /// Invalidates all connections and reports it to the user.
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

    fn may_stop(&self, queue: &EventQueue) -> std::result::Result<(), ErrorCode> {
        // First, so that other threads create no further users.
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

/// Finds the server or client of a connection, and the connection for its C object.
///
/// # Safety
///
/// `connection` is what DOCA passed to a callback of an object of the kind `S`, which is running.
unsafe fn find<'a, S: Side>(
    connection: *mut sys::doca_comch_connection,
) -> Option<(&'a Shared<Endpoint>, NonNull<sys::doca_comch_connection>)> {
    let raw = NonNull::new(connection)?;
    // SAFETY: guaranteed by the caller; the object is live during its callback, and its user data is that of
    // `Context::new`.
    let shared = unsafe {
        let object = S::of_connection(connection);
        if object.is_null() {
            return None;
        }
        context::shared::<Endpoint>(context::user_data(S::as_ctx(object)))?
    };
    Some((shared, raw))
}

/// Callback for a received control message.
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

/// Callback for a connected client.
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

/// Callback for a disconnected client. The C object becomes invalid when it returns.
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

/// Callback for a consumer that the peer has started.
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

/// Callback for an expired consumer of the peer.
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

/// A message in flight; freed by the callback of its task.
struct Outgoing {
    // DOCA reads the bytes until the task completes.
    message: Box<[u8]>,
    connection: Connection,
    queue: Rc<EventQueue>,
}

type TaskSend = sys::doca_comch_task_send;

/// Sends `message`: `allocate` creates the task for its bytes.
pub(super) fn send(
    operation: &'static str,
    queue: &Rc<EventQueue>,
    connection: &Connection,
    message: &[u8],
    allocate: impl FnOnce(
        *mut sys::doca_comch_connection,
        *const sys::c_void,
        u32,
        *mut *mut TaskSend,
    ) -> Result<()>,
) -> Result<()> {
    let len = u32::try_from(message.len()).map_err(|_| {
        crate::Error::with_detail(
            operation,
            ErrorCode::TOO_BIG,
            format!("a message of {} bytes", message.len()),
        )
    })?;
    connection.with(operation, |raw| {
        let outgoing = Box::new(Outgoing {
            message: message.into(),
            connection: connection.clone(),
            queue: Rc::clone(queue),
        });
        let mut task = std::ptr::null_mut();
        allocate(raw, outgoing.message.as_ptr().cast(), len, &mut task)?;
        let task = non_null(operation, task)?;
        let outgoing = Box::into_raw(outgoing);
        // SAFETY: the task was just allocated and is submitted once. The message lives until its callback frees it, or
        // until the lines below do if it was not submitted and has no callback.
        unsafe {
            let task = sys::doca_comch_task_send_as_task(task.as_ptr());
            sys::doca_task_set_user_data(
                task,
                sys::doca_data {
                    ptr: outgoing.cast(),
                },
            );
            let result = crate::error::check("doca_task_submit", sys::doca_task_submit(task));
            if result.is_err() {
                sys::doca_task_free(task);
                drop(Box::from_raw(outgoing));
            }
            result
        }
    })
}

/// Callback for a delivered message.
pub(super) unsafe extern "C" fn sent(
    task: *mut TaskSend,
    user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA calls this once for a task of `send`, with the user data set there, and the task is ours again.
    unsafe {
        let outgoing = Box::from_raw(user_data.ptr.cast::<Outgoing>());
        sys::doca_task_free(sys::doca_comch_task_send_as_task(task));
        drop(outgoing);
    }
}

/// Callback for a message that could not be delivered.
pub(super) unsafe extern "C" fn failed(
    task: *mut TaskSend,
    user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: as in `sent`.
    let (outgoing, code) = unsafe {
        let outgoing = Box::from_raw(user_data.ptr.cast::<Outgoing>());
        let task = sys::doca_comch_task_send_as_task(task);
        let code = ErrorCode(sys::doca_task_get_status(task));
        sys::doca_task_free(task);
        (outgoing, code)
    };
    let Outgoing {
        connection, queue, ..
    } = *outgoing;
    // The error callback must not report success.
    let code = if code == ErrorCode::SUCCESS {
        ErrorCode::UNKNOWN
    } else {
        code
    };
    queue.push(Event::Comch(ComchEvent::SendFailed { connection, code }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_connection_is_not_used() {
        let raw = NonNull::<sys::doca_comch_connection>::dangling();
        let connection = Connection::new(ContextId::next(), raw, Arc::default());
        assert!(connection.is(raw) && connection.is_connected());
        assert_eq!(
            connection.with("f", |pointer| Ok(pointer == raw.as_ptr())),
            Ok(true)
        );
        let clone = connection.clone();
        assert!(clone.invalidate() && !clone.invalidate());
        assert!(!connection.is_connected() && !connection.is(raw));
        let error = connection.with("f", |_| Ok(())).unwrap_err();
        assert_eq!(
            (error.operation, error.code),
            ("f", ErrorCode::NOT_CONNECTED)
        );
        assert_eq!(connection, clone);
        assert_ne!(
            connection,
            Connection::new(ContextId::next(), raw, Arc::default())
        );
    }

    #[test]
    fn users_are_counted_until_they_are_dropped() {
        let users = Arc::new(AtomicUsize::new(0));
        let connection =
            Connection::new(ContextId::next(), NonNull::dangling(), Arc::clone(&users));
        let ((), first) = connection.enter("f", |_| Ok(())).unwrap();
        let ((), second) = connection.clone().enter("f", |_| Ok(())).unwrap();
        assert_eq!(users.load(Ordering::Acquire), 2);
        assert!(
            connection
                .enter("f", |_| Err::<(), _>(Error::new("f", ErrorCode::FULL)))
                .is_err()
        );
        drop(first);
        connection.invalidate();
        assert!(connection.enter("f", |_| Ok(())).is_err());
        assert_eq!(users.load(Ordering::Acquire), 1);
        drop(second);
        assert_eq!(users.load(Ordering::Acquire), 0);
    }

    #[test]
    fn connections_go_to_other_threads() {
        fn check<T: Send + Sync + Clone>() {}
        check::<Connection>();
        check::<crate::Device>();
        check::<crate::Representor>();
        check::<crate::Mmap>();
        check::<Arc<crate::MemoryRegion>>();
    }
}
