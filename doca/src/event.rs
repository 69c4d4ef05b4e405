//! Events of a progress engine, and the values that they carry. Other modules build on these.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use doca_sys as sys;

use crate::{Error, ErrorCode, Result};

/// An event returned by [`Pe::poll`](crate::Pe::poll).
#[derive(Debug)]
pub enum Event {
    /// A task has completed; it can be submitted again.
    Task(Completion),
    /// A context changed its state. Also delivered for contexts that were stopped since.
    State {
        /// The context, to compare with its handle's `id()`.
        context: ContextId,
        /// State before.
        previous: CtxState,
        /// State after.
        next: CtxState,
    },
    /// An event of a Comch control path.
    Comch(ComchEvent),
}

/// The completion of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token of the task.
    pub token: u64,
    /// Result. If the context was stopped in the meantime, the error code of flushed tasks.
    pub result: std::result::Result<(), ErrorCode>,
}

/// Identifies a context within the process; ids are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(u64);

impl ContextId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) fn for_tests(number: u64) -> Self {
        Self(number)
    }
}

/// State of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CtxState {
    /// Not started, or stopped.
    Idle,
    /// Becomes [`Running`](Self::Running) through progress, or idle again if that fails.
    Starting,
    /// Tasks can be created and submitted.
    Running,
    /// The tasks of the context are flushed. A context whose peer disconnects enters this state by itself.
    Stopping,
}

impl CtxState {
    /// Values that DOCA does not define are treated as idle, in which tasks cannot be submitted.
    pub(crate) fn from_raw(state: sys::doca_ctx_states) -> Self {
        match state {
            sys::DOCA_CTX_STATE_STARTING => Self::Starting,
            sys::DOCA_CTX_STATE_RUNNING => Self::Running,
            sys::DOCA_CTX_STATE_STOPPING => Self::Stopping,
            _ => Self::Idle,
        }
    }
}

/// An event of a control path.
#[derive(Debug)]
pub enum ComchEvent {
    /// A client connected to the server, or the client is connected.
    Connected(Connection),
    /// The connection was closed: the peer disconnected or exited, or the client was stopped.
    Disconnected(Connection),
    /// A control message arrived.
    Message {
        /// Source of the message.
        connection: Connection,
        /// The whole message: messages are neither split nor merged.
        bytes: Vec<u8>,
    },
    /// The peer started a consumer: a [`Producer`](crate::Producer) on this connection can send to it.
    ConsumerAdded {
        /// Connection to the peer that has the consumer.
        connection: Connection,
        /// Id of the consumer.
        id: u32,
    },
    /// A consumer of the peer expired.
    ConsumerExpired {
        /// Connection to the peer that has the consumer.
        connection: Connection,
        /// Id of the consumer.
        id: u32,
    },
    /// A control message that `send` accepted could not be delivered.
    SendFailed {
        /// Destination of the message.
        connection: Connection,
        /// Reason of the failure.
        code: ErrorCode,
    },
}

/// A connection of a client and a server. Clones refer to the same connection and are equal.
///
/// It is passed to the threads that start [`Consumer`](crate::Consumer)s and [`Producer`](crate::Producer)s on it.
/// After the peer has disconnected, or the server or client was stopped, operations on it fail with
/// [`ErrorCode::NOT_CONNECTED`].
#[derive(Clone)]
pub struct Connection {
    inner: Arc<SharedConnection>,
}

struct SharedConnection {
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
        let inner = SharedConnection {
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

    /// `true` until this side has detected that the peer has disconnected.
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
        // Poisoning is harmless: the value is replaced by a single assignment.
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

    #[test]
    fn ids_differ() {
        assert_ne!(ContextId::next(), ContextId::next());
    }
}
