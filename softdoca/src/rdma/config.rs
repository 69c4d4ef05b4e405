//! Properties of an instance, set before it is started.

use std::cell::Cell;

use doca_abi::{
    DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, DOCA_ACCESS_FLAG_RDMA_ATOMIC, DOCA_ACCESS_FLAG_RDMA_READ,
    DOCA_ACCESS_FLAG_RDMA_WRITE, DOCA_RDMA_TRANSPORT_TYPE_RC,
    doca_rdma_connection_disconnection_cb_t, doca_rdma_connection_established_cb_t,
    doca_rdma_connection_failure_cb_t, doca_rdma_connection_request_cb_t, doca_rdma_transport_type,
};

use crate::error::{Error, Result};

/// Functions of the program that are called when connections change.
#[derive(Clone, Copy, Default)]
pub(crate) struct ConnectionCallbacks {
    #[expect(dead_code, reason = "only connections by address are asked for")]
    pub(crate) request: doca_rdma_connection_request_cb_t,
    pub(crate) established: doca_rdma_connection_established_cb_t,
    pub(crate) failure: doca_rdma_connection_failure_cb_t,
    pub(crate) disconnection: doca_rdma_connection_disconnection_cb_t,
}

/// All properties. Whether the instance is idle is the caller's to check.
pub(super) struct Config {
    /// What peers may do, `doca_access_flag` values.
    pub(super) permissions: Cell<u32>,
    pub(super) transport_type: Cell<doca_rdma_transport_type>,
    /// Taken for compatibility: there is no table of GIDs.
    pub(super) gid_index: Cell<u32>,
    pub(super) max_connections: Cell<u16>,
    pub(super) callbacks: Cell<ConnectionCallbacks>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            permissions: Cell::new(DOCA_ACCESS_FLAG_LOCAL_READ_WRITE),
            transport_type: Cell::new(DOCA_RDMA_TRANSPORT_TYPE_RC),
            gid_index: Cell::new(0),
            max_connections: Cell::new(1),
            callbacks: Cell::default(),
        }
    }
}

impl Config {
    pub(super) fn set_permissions(&self, permissions: u32) -> Result<()> {
        const ALLOWED: u32 = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
            | DOCA_ACCESS_FLAG_RDMA_READ
            | DOCA_ACCESS_FLAG_RDMA_WRITE
            | DOCA_ACCESS_FLAG_RDMA_ATOMIC;
        if permissions & !ALLOWED != 0 {
            return Err(Error::InvalidValue.because(format_args!(
                "expected local and RDMA access flags ({ALLOWED:#x} at most) as permissions of an RDMA instance, got {permissions:#x}"
            )));
        }
        self.permissions.set(permissions);
        Ok(())
    }

    pub(super) fn set_transport_type(
        &self,
        transport_type: doca_rdma_transport_type,
    ) -> Result<()> {
        if transport_type != DOCA_RDMA_TRANSPORT_TYPE_RC {
            return Err(Error::NotSupported.because(format_args!(
                "softdoca has RDMA transport type {DOCA_RDMA_TRANSPORT_TYPE_RC} (reliable connection), not {transport_type}"
            )));
        }
        self.transport_type.set(transport_type);
        Ok(())
    }

    pub(super) fn set_max_connections(&self, max_connections: u16) -> Result<()> {
        if max_connections == 0 {
            return Err(
                Error::InvalidValue.because("expected room for at least 1 connection, got 0")
            );
        }
        self.max_connections.set(max_connections);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused() {
        let config = Config::default();
        assert_eq!(config.set_permissions(0b1111), Ok(()));
        assert_eq!(config.set_permissions(0b1_0000), Err(Error::InvalidValue));
        assert_eq!(config.permissions.get(), 0b1111);
        assert_eq!(config.set_transport_type(1), Err(Error::NotSupported));
        assert_eq!(config.set_max_connections(0), Err(Error::InvalidValue));
        assert_eq!(config.max_connections.get(), 1);
    }
}
