//! Memory of a process on another machine, as one thread after the other uses it.

use std::sync::{Mutex, PoisonError};

use super::super::export::Rights;
use super::super::limits::Limits;
use super::super::protocol::Operation;
use super::super::waiting::{Deadline, within_scope};
use super::lane::Lane;
use super::offer::NetworkOffer;
use super::stream::Piece;
use crate::error::{Error, Result};
use crate::verbs::RemoteKey;

/// Memory behind an offer.
#[derive(Debug)]
pub(crate) struct NetworkRegion {
    offer: NetworkOffer,
    remote_key: Option<RemoteKey>,
    /// For what is not done by an RDMA connection's own lane; `None` once it has failed.
    lane: Mutex<Option<Lane>>,
}

impl NetworkRegion {
    /// Connects to the owner, and checks that it exports the range with these rights.
    ///
    /// # Errors
    /// As [`Link::to`](super::Link::to); [`Error::NotFound`] when it has withdrawn the memory, [`Error::NotPermitted`],
    /// [`Error::InvalidValue`] for another range.
    pub(crate) fn open(offer: &NetworkOffer, range: (u64, u64), rights: Rights) -> Result<Self> {
        let deadline = Deadline::after(Limits::get()?.request);
        let mut lane = Lane::open(offer)?;
        let word = lane
            .check(offer.key, range, rights.bits(), deadline)
            .map_err(gone)?;
        Ok(Self {
            offer: *offer,
            remote_key: RemoteKey::from_word(word),
            lane: Mutex::new(Some(lane)),
        })
    }

    /// Network addresses of the memory's owner.
    pub(crate) fn offer(&self) -> &NetworkOffer {
        &self.offer
    }

    /// Key of the memory for RDMA devices, if it is registered with one.
    pub(crate) fn remote_key(&self) -> Option<RemoteKey> {
        self.remote_key
    }

    /// Copies `len` bytes at `addr` to `to`.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the owner is gone or has withdrawn the memory, [`Error::NotPermitted`], [`Error::TimeOut`].
    ///
    /// # Safety
    /// The `len` bytes at `to` are the caller's to write.
    pub(crate) unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
        self.alone(len, |lane, deadline| {
            let piece = mapped(to, len);
            // SAFETY: the caller's promise.
            unsafe { lane.read_now(self.offer.key, addr, piece, deadline) }
        })
    }

    /// Copies `len` bytes at `from` to `addr`; they are there when this returns.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        self.alone(len, |lane, deadline| {
            let piece = mapped(from.cast_mut(), len);
            lane.write_now(self.offer.key, addr, piece, deadline)
        })
    }

    /// Adds `value` to the u64 at `addr`; the old value.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        self.alone(8, |lane, deadline| {
            let operation = Operation::FetchAdd;
            lane.atomic(operation, self.offer.key, addr, [value, 0], deadline)
        })
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; the old value.
    ///
    /// # Errors
    /// As [`NetworkRegion::read`].
    pub(crate) fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        self.alone(8, |lane, deadline| {
            let operation = Operation::CompareSwap;
            lane.atomic(operation, self.offer.key, addr, [expected, new], deadline)
        })
    }

    /// Returns `true` if the owner is gone.
    pub(crate) fn is_closed(&self) -> bool {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.as_ref().is_none_or(Lane::is_closed)
    }

    fn alone<T>(
        &self,
        len: usize,
        action: impl FnOnce(&mut Lane, Deadline) -> Result<T>,
    ) -> Result<T> {
        within_scope(len, |deadline| {
            let mut slot = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
            let lane = slot.as_mut().ok_or(Error::NotFound)?;
            let result = action(lane, deadline);
            if lane.outstanding() > 0 {
                // A late reply would be taken for that to the next request, and written to memory that is the program's again.
                *slot = None;
            }
            result.map_err(gone)
        })
    }
}

fn mapped(start: *mut u8, len: usize) -> Piece {
    Piece {
        start,
        len,
        exported: false,
    }
}

fn gone(error: Error) -> Error {
    match error {
        Error::ConnectionReset => Error::NotFound,
        error => error,
    }
}
