use std::ptr::NonNull;

use doca_sys as sys;

use crate::{ContextId, Error, ErrorCode, Result};

/// One of an [`Rdma`](crate::Rdma) instance's connections. It names the connection to its instance and to no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaConnection {
    context: ContextId,
    // Lives as long as the instance, whose functions alone use it.
    connection: NonNull<sys::doca_rdma_connection>,
}

impl RdmaConnection {
    pub(super) fn new(context: ContextId, connection: NonNull<sys::doca_rdma_connection>) -> Self {
        Self {
            context,
            connection,
        }
    }

    /// The instance that the connection belongs to.
    pub fn context(&self) -> ContextId {
        self.context
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
    }
}
