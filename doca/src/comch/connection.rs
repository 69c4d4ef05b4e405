use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use doca_sys as sys;

use crate::{ContextId, Error, ErrorCode, Result};

/// A connection of a client and a server. Clones mean the same connection, and so does `==`.
///
/// It is passed to the threads that start [`Consumer`](crate::Consumer)s and [`Producer`](crate::Producer)s on it. When the
/// peer is gone, or the server or client was stopped, what is done with it fails with [`ErrorCode::NOT_CONNECTED`].
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    context: ContextId,
    /// The C object while it is valid. Locked while a C function uses it, so that it does not go away meanwhile.
    live: Mutex<Option<Raw>>,
    /// Consumers and producers on all connections of the server or client.
    users: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Raw(NonNull<sys::doca_comch_connection>);

// SAFETY: DOCA lets other threads than the one of the server or client create consumers and producers on a connection;
// the pointer is used for nothing else there, and only under the lock.
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

    /// Whether the peer is there, as far as this side knows.
    pub fn is_connected(&self) -> bool {
        self.lock().is_some()
    }

    /// Calls `f` with the C object, which stays valid meanwhile.
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
                "the connection is gone",
            )),
        }
    }

    /// As [`with`](Self::with), for a function that makes a consumer or producer: the guard lives as long as that.
    pub(crate) fn enter<R>(
        &self,
        operation: &'static str,
        f: impl FnOnce(*mut sys::doca_comch_connection) -> Result<R>,
    ) -> Result<(R, ConnectionUser)> {
        self.with(operation, |connection| {
            // Counted under the lock: who invalidates the connection first and counts then misses nobody.
            let user = ConnectionUser::new(Arc::clone(&self.inner.users));
            Ok((f(connection)?, user))
        })
    }

    pub(crate) fn is(&self, connection: NonNull<sys::doca_comch_connection>) -> bool {
        *self.lock() == Some(Raw(connection))
    }

    /// The C object goes away; waits for the thread that uses it. Returns whether it was there.
    pub(crate) fn invalidate(&self) -> bool {
        self.lock().take().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Raw>> {
        // A panic while it was locked changed nothing: the value is replaced in one step.
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

/// A consumer or producer on a connection: its server or client cannot be destroyed as long as it exists.
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
    fn a_connection_that_is_gone_is_not_used() {
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
