use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use doca_sys as sys;

use crate::{ContextId, Error, ErrorCode, Result};

/// One of an [`Rdma`](crate::Rdma) instance's connections. It names the connection to its instance and to no other.
#[derive(Debug, Clone)]
pub struct RdmaConnection {
    context: ContextId,
    // Used only by the functions of its instance, and only while it is alive.
    connection: NonNull<sys::doca_rdma_connection>,
    /// False when it has ended. Shared by the clones.
    alive: Rc<Cell<bool>>,
}

impl PartialEq for RdmaConnection {
    fn eq(&self, other: &Self) -> bool {
        // The address of an ended connection may be that of another one later.
        Rc::ptr_eq(&self.alive, &other.alive)
    }
}

impl Eq for RdmaConnection {}

impl RdmaConnection {
    pub(super) fn new(context: ContextId, connection: NonNull<sys::doca_rdma_connection>) -> Self {
        Self {
            context,
            connection,
            alive: Rc::new(Cell::new(true)),
        }
    }

    /// The instance that the connection belongs to.
    pub fn context(&self) -> ContextId {
        self.context
    }

    /// `false` when it has ended: at once when this side has ended it or has stopped its instance, and with the next progress when the peer
    /// has.
    pub fn is_alive(&self) -> bool {
        self.alive.get()
    }

    pub(super) fn invalidate(&self) {
        self.alive.set(false);
    }

    pub(super) fn is(&self, raw: NonNull<sys::doca_rdma_connection>) -> bool {
        self.connection == raw
    }

    /// The C object, for the instance `context`.
    pub(super) fn for_instance(
        &self,
        operation: &'static str,
        context: ContextId,
    ) -> Result<*mut sys::doca_rdma_connection> {
        if self.context != context {
            let detail = "the connection belongs to another RDMA instance";
            return Err(Error::with_detail(
                operation,
                ErrorCode::INVALID_VALUE,
                detail,
            ));
        }
        if !self.is_alive() {
            let detail = "the connection has ended";
            return Err(Error::with_detail(
                operation,
                ErrorCode::NOT_CONNECTED,
                detail,
            ));
        }
        Ok(self.connection.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_for_its_instance_only() {
        let (own, other) = (ContextId::next(), ContextId::next());
        let connection = RdmaConnection::new(own, NonNull::dangling());
        assert!(connection.for_instance("f", own).is_ok());
        assert_eq!(
            connection.for_instance("f", other).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
        let clone = connection.clone();
        assert_eq!(connection, clone);
        assert_ne!(connection, RdmaConnection::new(own, NonNull::dangling()));
        connection.invalidate();
        assert!(!clone.is_alive());
        assert_eq!(
            clone.for_instance("f", own).unwrap_err().code,
            ErrorCode::NOT_CONNECTED
        );
    }
}
