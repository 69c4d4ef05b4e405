//! Memory of other processes that is not mapped here.

use crate::agent::{NetworkRegion, RemoteRegion};
use crate::error::Result;

/// Access method of memory that is not mapped here.
#[derive(Debug)]
pub(super) enum Region {
    /// Through the agent of a process of this machine.
    Agent(RemoteRegion),
    /// Over the network.
    Network(Box<NetworkRegion>),
}

impl Region {
    /// Copies `len` bytes at `addr` to `to`.
    ///
    /// # Errors
    /// As [`RemoteRegion::read`].
    ///
    /// # Safety
    /// `to` must be valid for writing `len` bytes.
    pub(super) unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
        match self {
            // SAFETY: the caller's guarantee.
            Region::Agent(region) => unsafe { region.read(addr, to, len) },
            // SAFETY: the caller's guarantee.
            Region::Network(region) => unsafe { region.read(addr, to, len) },
        }
    }

    /// Copies `len` bytes at `from` to `addr`.
    ///
    /// # Errors
    /// As [`RemoteRegion::read`].
    pub(super) fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        match self {
            Region::Agent(region) => region.write(addr, from, len),
            Region::Network(region) => region.write(addr, from, len),
        }
    }

    /// Adds `value` to the u64 at `addr`; returns the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::fetch_add`].
    pub(super) fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        match self {
            Region::Agent(region) => region.fetch_add(addr, value),
            Region::Network(region) => region.fetch_add(addr, value),
        }
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; returns the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::fetch_add`].
    pub(super) fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        match self {
            Region::Agent(region) => region.compare_swap(addr, expected, new),
            Region::Network(region) => region.compare_swap(addr, expected, new),
        }
    }

    /// Returns `true` if the owner has exited or has no exports left.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Region::Agent(region) => region.is_closed(),
            Region::Network(region) => region.is_closed(),
        }
    }
}
