use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ptr::{
    NonNull, {self},
};
use std::rc::Rc;

use doca_sys as sys;

use crate::context::{self, CtxState, Events, Shared};
use crate::device::{c_string, non_null};
use crate::error::call;
use crate::pe::EventQueue;
use crate::{ContextId, Error, ErrorCode, Result};

/// A connection of an [`Rdma`](crate::Rdma) instance. Valid for this instance only.
#[derive(Debug, Clone)]
pub struct RdmaConnection {
    context: ContextId,
    // Used only by methods of its instance, and only while it is alive.
    connection: NonNull<sys::doca_rdma_connection>,
    /// `false` once it is closed. Shared by the clones.
    alive: Rc<Cell<bool>>,
}

impl PartialEq for RdmaConnection {
    fn eq(&self, other: &Self) -> bool {
        // A later connection may have the address of a closed one.
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

    /// `false` once it is closed: immediately when this side has disconnected it or stopped its instance, and at the
    /// next progress when the peer has.
    pub fn is_alive(&self) -> bool {
        self.alive.get()
    }

    pub(super) fn invalidate(&self) {
        self.alive.set(false);
    }

    pub(super) fn is(&self, raw: NonNull<sys::doca_rdma_connection>) -> bool {
        self.connection == raw
    }

    /// The C object, if the connection belongs to the instance `context`.
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
            let detail = "the connection is closed";
            return Err(Error::with_detail(
                operation,
                ErrorCode::NOT_CONNECTED,
                detail,
            ));
        }
        Ok(self.connection.as_ptr())
    }
}

/// A change of a connection of an [`Rdma`](crate::Rdma) instance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RdmaEvent {
    /// A peer requests a connection: [`Rdma::accept`](crate::Rdma::accept) or [`Rdma::reject`](crate::Rdma::reject) it.
    Requested(RdmaConnection),
    /// The connection is established, and its tasks run.
    Established {
        /// The connection.
        connection: RdmaConnection,
        /// The token of the accept or connect call; 0 for an exported connection.
        token: u64,
    },
    /// The connection failed: there is no listener, the peer has rejected it, or is gone.
    Failed {
        /// The token of the accept or connect call.
        token: u64,
    },
    /// The connection was closed; its tasks fail.
    Disconnected {
        /// The connection.
        connection: RdmaConnection,
        /// As for [`Established`](Self::Established).
        token: u64,
    },
}

/// The connections of an instance.
///
/// The methods borrow its fields and make no calls that could come back here.
#[derive(Default)]
pub(crate) struct Connections {
    /// `true` if the user reads events. Otherwise they would accumulate.
    tells: bool,
    known: RefCell<Vec<RdmaConnection>>,
    events: RefCell<VecDeque<RdmaEvent>>,
    /// Addresses that connections were made to.
    addresses: RefCell<Vec<Address>>,
}

impl Events for Connections {
    fn state_changed(&self, _context: ContextId, _queue: &EventQueue, next: CtxState) {
        if matches!(next, CtxState::Stopping | CtxState::Idle) {
            // All of them are closed with the instance; a callback that reports it finds them already removed.
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
    /// `tells`: events are read by the user.
    pub(super) fn new(tells: bool) -> Self {
        Self {
            tells,
            ..Self::default()
        }
    }

    /// Finds the connection with this C object, or adds a new one.
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

    /// Removes a closed connection.
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

    /// Removes a connection that this side has disconnected or rejected, without further events.
    pub(super) fn forget(&self, connection: &RdmaConnection) {
        self.known.borrow_mut().retain(|known| known != connection);
        connection.invalidate();
    }

    /// Stores an address for the lifetime of the instance, and returns its C object.
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

/// Finds the target of a callback.
///
/// # Safety
///
/// The arguments are those of a callback of a live instance.
unsafe fn find<'a>(
    connection: *mut sys::doca_rdma_connection,
    ctx_user_data: sys::doca_data,
) -> Option<(&'a Shared<Connections>, NonNull<sys::doca_rdma_connection>)> {
    // SAFETY: guaranteed by the caller; `Context::new` set the user data.
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
    // SAFETY: as in `established`. DOCA requires a disconnect in response.
    let token = unsafe {
        sys::doca_rdma_connection_disconnect(connection);
        connection_user_data.u64
    };
    shared.events.push(RdmaEvent::Disconnected {
        connection: ended,
        token,
    });
}

/// Address of a listening [`Rdma`](crate::Rdma) instance.
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

/// A C address object, which connections use as long as they exist.
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
        // SAFETY: the text is terminated, the out-parameter is valid.
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
            tracing::warn!(%error, "failed to destroy an RDMA address; leaking it");
        }
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
