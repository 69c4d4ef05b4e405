use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ptr::{self, NonNull};

use doca_sys as sys;

use crate::Result;
use crate::device::{c_string, non_null};
use crate::error::call;

/// Where an [`Rdma`](crate::Rdma) instance listens.
///
/// ```
/// use std::net::SocketAddr;
/// use doca::RdmaAddress;
///
/// let by_ip: SocketAddr = "192.168.1.7:18515".parse().unwrap();
/// assert_eq!(RdmaAddress::from(by_ip), RdmaAddress::Ip(by_ip));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RdmaAddress {
    /// An IPv4 or IPv6 address, and a port.
    Ip(SocketAddr),
    /// A global identifier in network order, and a port.
    Gid([u8; 16], u16),
}

impl From<SocketAddr> for RdmaAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl RdmaAddress {
    fn parts(self) -> (sys::doca_rdma_addr_type, String, u16) {
        match self {
            Self::Ip(address) => {
                let kind = match address.ip() {
                    IpAddr::V4(_) => sys::DOCA_RDMA_ADDR_TYPE_IPv4,
                    IpAddr::V6(_) => sys::DOCA_RDMA_ADDR_TYPE_IPv6,
                };
                (kind, address.ip().to_string(), address.port())
            }
            Self::Gid(gid, port) => {
                let groups: Vec<String> = Ipv6Addr::from(gid)
                    .segments()
                    .iter()
                    .map(|group| format!("{group:04x}"))
                    .collect();
                (sys::DOCA_RDMA_ADDR_TYPE_GID, groups.join(":"), port)
            }
        }
    }
}

/// The C object, which connections use as long as they live.
#[derive(Debug)]
pub(super) struct Address {
    addr: NonNull<sys::doca_rdma_addr>,
}

impl Address {
    pub(super) fn new(address: RdmaAddress) -> Result<Self> {
        const OPERATION: &str = "doca_rdma_addr_create";
        let (kind, text, port) = address.parts();
        let text: CString = c_string(OPERATION, &text)?;
        let mut addr = ptr::null_mut();
        // SAFETY: the text is terminated, the result has a place.
        unsafe { call!(doca_rdma_addr_create(kind, text.as_ptr(), port, &mut addr)) }?;
        Ok(Self {
            addr: non_null(OPERATION, addr)?,
        })
    }

    pub(super) fn as_ptr(&self) -> *mut sys::doca_rdma_addr {
        self.addr.as_ptr()
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the instance that used it is gone.
        if let Err(error) = unsafe { call!(doca_rdma_addr_destroy(self.as_ptr())) } {
            tracing::warn!(%error, "an RDMA address stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_doca_reads_them() {
        let parts = |text: &str| RdmaAddress::Ip(text.parse().unwrap()).parts();
        assert_eq!(parts("127.0.0.1:7"), (0, "127.0.0.1".to_owned(), 7));
        assert_eq!(parts("[fe80::1]:8"), (1, "fe80::1".to_owned(), 8));
        let mut gid = [0; 16];
        (gid[0], gid[15]) = (0xfe, 9);
        assert_eq!(
            RdmaAddress::Gid(gid, 9).parts(),
            (2, "fe00:0000:0000:0000:0000:0000:0000:0009".to_owned(), 9)
        );
    }
}
