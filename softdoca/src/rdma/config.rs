//! Properties of an instance, set before it is started.

use std::cell::Cell;
use std::fmt::Display;

use doca_abi::{
    DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, DOCA_ACCESS_FLAG_RDMA_ATOMIC, DOCA_ACCESS_FLAG_RDMA_READ,
    DOCA_ACCESS_FLAG_RDMA_WRITE, DOCA_MTU_SIZE_1K_BYTES, DOCA_MTU_SIZE_4K_BYTES,
    DOCA_RDMA_TRANSPORT_TYPE_DC, DOCA_RDMA_TRANSPORT_TYPE_RC, doca_mtu_size,
    doca_rdma_connection_disconnection_cb_t, doca_rdma_connection_established_cb_t,
    doca_rdma_connection_failure_cb_t, doca_rdma_connection_request_cb_t, doca_rdma_transport_type,
};

use crate::error::{Error, Result};

/// Callbacks of the program for connection events.
#[derive(Clone, Copy, Default)]
pub(crate) struct ConnectionCallbacks {
    pub(crate) request: doca_rdma_connection_request_cb_t,
    pub(crate) established: doca_rdma_connection_established_cb_t,
    pub(crate) failure: doca_rdma_connection_failure_cb_t,
    pub(crate) disconnection: doca_rdma_connection_disconnection_cb_t,
}

/// All properties. The caller must check that the instance is idle.
pub(super) struct Config {
    /// Rights of peers, `doca_access_flag` values.
    pub(super) permissions: Cell<u32>,
    pub(super) transport_type: Cell<doca_rdma_transport_type>,
    pub(super) max_connections: Cell<u16>,
    /// Maximum number of bufs in the local list of a task that acts on a connection.
    pub(super) send_list_len: Cell<u32>,
    /// Maximum number of bufs in the list of a receive.
    pub(super) receive_list_len: Cell<u32>,
    pub(super) fabric: Fabric,
    pub(super) callbacks: Cell<ConnectionCallbacks>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            permissions: Cell::new(DOCA_ACCESS_FLAG_LOCAL_READ_WRITE),
            transport_type: Cell::new(DOCA_RDMA_TRANSPORT_TYPE_RC),
            max_connections: Cell::new(1),
            send_list_len: Cell::new(limits::BUF_LIST_LEN),
            receive_list_len: Cell::new(limits::BUF_LIST_LEN),
            fabric: Fabric::default(),
            callbacks: Cell::default(),
        }
    }
}

/// Network properties. Without a network they have no effect: they are validated, stored, and returned by the getters.
pub(crate) struct Fabric {
    pub(crate) gid_index: Cell<u32>,
    pub(crate) send_queue_size: Cell<u32>,
    pub(crate) recv_queue_size: Cell<u32>,
    pub(crate) mtu: Cell<doca_mtu_size>,
    pub(crate) grh_enabled: Cell<u8>,
    pub(crate) service_level: Cell<u32>,
    pub(crate) rnr_retry_count: Cell<u8>,
    /// Milliseconds.
    pub(crate) request_timeout: Cell<u16>,
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            gid_index: Cell::new(0),
            send_queue_size: Cell::new(128),
            recv_queue_size: Cell::new(128),
            mtu: Cell::new(DOCA_MTU_SIZE_1K_BYTES),
            grh_enabled: Cell::new(1),
            service_level: Cell::new(0),
            rnr_retry_count: Cell::new(limits::RNR_RETRIES),
            request_timeout: Cell::new(2000),
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
        check_transport_type(transport_type)?;
        self.transport_type.set(transport_type);
        Ok(())
    }

    /// Checks that connections are established by address.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for dynamic connections, which use exported details.
    pub(super) fn expect_reliable(&self) -> Result<()> {
        if self.transport_type.get() == DOCA_RDMA_TRANSPORT_TYPE_RC {
            return Ok(());
        }
        Err(Error::NotSupported.because(
            "RDMA instances with dynamic connections (DOCA_RDMA_TRANSPORT_TYPE_DC) connect by doca_rdma_export and doca_rdma_connect, not by address",
        ))
    }

    pub(super) fn set_send_list_len(&self, len: u32) -> Result<()> {
        self.send_list_len.set(list_len(len)?);
        Ok(())
    }

    pub(super) fn set_receive_list_len(&self, len: u32) -> Result<()> {
        self.receive_list_len.set(list_len(len)?);
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

/// Checks that the transport type is supported.
///
/// # Errors
/// [`Error::NotSupported`] for any but reliable and dynamic connections.
pub(crate) fn check_transport_type(transport_type: doca_rdma_transport_type) -> Result<()> {
    if matches!(
        transport_type,
        DOCA_RDMA_TRANSPORT_TYPE_RC | DOCA_RDMA_TRANSPORT_TYPE_DC
    ) {
        return Ok(());
    }
    Err(Error::NotSupported.because(format_args!(
        "softdoca has RDMA transport types {DOCA_RDMA_TRANSPORT_TYPE_RC} (reliable connection) and {DOCA_RDMA_TRANSPORT_TYPE_DC} (dynamic connection), not {transport_type}"
    )))
}

impl Fabric {
    pub(crate) fn set_gid_index(&self, index: u32) -> Result<()> {
        self.gid_index
            .set(at_most("a GID index", index, limits::GIDS - 1)?);
        Ok(())
    }

    pub(crate) fn set_send_queue_size(&self, size: u32) -> Result<()> {
        self.send_queue_size.set(queue_size(size)?);
        Ok(())
    }

    pub(crate) fn set_recv_queue_size(&self, size: u32) -> Result<()> {
        self.recv_queue_size.set(queue_size(size)?);
        Ok(())
    }

    pub(crate) fn set_mtu(&self, mtu: doca_mtu_size) -> Result<()> {
        self.mtu
            .set(at_most("a doca_mtu_size", mtu, DOCA_MTU_SIZE_4K_BYTES)?);
        Ok(())
    }

    pub(crate) fn set_grh_enabled(&self, enabled: u8) -> Result<()> {
        if enabled == 0 {
            return Err(Error::NotSupported.because(
                "the emulated devices are on Ethernet, where packets have a global routing header",
            ));
        }
        self.grh_enabled.set(at_most("0 or 1", enabled, 1)?);
        Ok(())
    }

    pub(crate) fn set_service_level(&self, level: u32) -> Result<()> {
        self.service_level
            .set(at_most("a service level", level, limits::SERVICE_LEVEL)?);
        Ok(())
    }

    pub(crate) fn set_rnr_retry_count(&self, count: u8) -> Result<()> {
        self.rnr_retry_count
            .set(at_most("a retry count", count, limits::RNR_RETRIES)?);
        Ok(())
    }

    pub(crate) fn set_request_timeout(&self, milliseconds: u16) -> Result<()> {
        self.request_timeout.set(milliseconds);
        Ok(())
    }
}

fn at_most<T: PartialOrd + Display + Copy>(what: &str, value: T, limit: T) -> Result<T> {
    if value > limit {
        return Err(Error::InvalidValue.because(format_args!(
            "expected {what}, at most {limit}, got {value}"
        )));
    }
    Ok(value)
}

fn queue_size(size: u32) -> Result<u32> {
    if size == 0 || size > limits::QUEUE_SIZE {
        return Err(Error::InvalidValue.because(format_args!(
            "expected a queue size between 1 and {}, got {size}",
            limits::QUEUE_SIZE
        )));
    }
    Ok(size.next_power_of_two())
}

fn list_len(len: u32) -> Result<u32> {
    if len == 0 || len > limits::BUF_LIST_LEN {
        return Err(Error::InvalidValue.because(format_args!(
            "expected between 1 and {} bufs in a list, got {len}",
            limits::BUF_LIST_LEN
        )));
    }
    Ok(len)
}

/// Limits of every emulated device.
pub(crate) mod limits {
    /// Bufs in a list.
    pub(crate) const BUF_LIST_LEN: u32 = 32;
    /// Maximum message size in bytes, according to the guide.
    pub(crate) const MESSAGE_SIZE: u32 = 1 << 31;
    pub(crate) const QUEUE_SIZE: u32 = 1 << 15;
    /// Size of the GID table: the link-local GID, and that of the IPv4 address.
    pub(crate) const GIDS: u32 = 2;
    pub(super) const SERVICE_LEVEL: u32 = 15;
    /// Infinite, which is also the actual behaviour.
    pub(super) const RNR_RETRIES: u8 = 7;
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
        assert_eq!(config.set_transport_type(2), Err(Error::NotSupported));
        assert_eq!(config.set_max_connections(0), Err(Error::InvalidValue));
        assert_eq!(config.max_connections.get(), 1);
        let fabric = &config.fabric;
        assert_eq!(fabric.set_gid_index(2), Err(Error::InvalidValue));
        assert_eq!(fabric.set_send_queue_size(0), Err(Error::InvalidValue));
        assert_eq!(fabric.set_recv_queue_size(32_769), Err(Error::InvalidValue));
        assert_eq!(fabric.set_mtu(5), Err(Error::InvalidValue));
        assert_eq!(fabric.set_grh_enabled(0), Err(Error::NotSupported));
        assert_eq!(fabric.set_grh_enabled(2), Err(Error::InvalidValue));
        assert_eq!(fabric.set_service_level(16), Err(Error::InvalidValue));
        assert_eq!(fabric.set_rnr_retry_count(8), Err(Error::InvalidValue));
        assert_eq!(config.set_send_list_len(33), Err(Error::InvalidValue));
        assert_eq!(config.set_receive_list_len(0), Err(Error::InvalidValue));
    }
}
