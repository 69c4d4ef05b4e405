//! What carries messages between two connected instances.
//!
//! Each direction stands alone: the receiving instance makes an [`Inbox`], its peer reaches it with an [`Outbox`]. There are two
//! transports: [`shared_memory`] for processes of one machine, [`network`] for others. An instance offers both, and the peer chooses.
//!
//! Reading and writing remote memory is no part of this: an imported mmap knows how to reach its exporter.

mod credits;
pub(super) mod network;
pub(super) mod shared_memory;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;

use crate::error::Result;

use network::{NetworkInbox, NetworkOutbox};
use shared_memory::{SharedInbox, SharedOutbox};

/// The receiving end of a connection.
pub(super) enum ConnectionInbox {
    /// Of a ring, or of an offer that no peer has taken up yet.
    Shared(SharedInbox),
    /// Of a peer on another machine.
    Network(NetworkInbox),
}

/// The sending end of a connection.
#[allow(
    clippy::large_enum_variant,
    reason = "the frequent one is the large one, and they are boxed"
)]
pub(super) enum ConnectionOutbox {
    Shared(SharedOutbox),
    /// To a peer on another machine.
    Network(NetworkOutbox),
}

macro_rules! either {
    ($end:ident, $self:ident, $inner:ident => $call:expr) => {
        match $self {
            $end::Shared($inner) => $call,
            $end::Network($inner) => $call,
        }
    };
}

impl Inbox for ConnectionInbox {
    #[inline]
    fn post(&mut self, count: u64) {
        either!(ConnectionInbox, self, inbox => inbox.post(count));
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<Fragment>> {
        either!(ConnectionInbox, self, inbox => inbox.peek())
    }

    fn read_immediate(&self, to: &mut [u8]) {
        either!(ConnectionInbox, self, inbox => inbox.read_immediate(to));
    }

    #[inline]
    unsafe fn read(&self, from: usize, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { either!(ConnectionInbox, self, inbox => inbox.read(from, dst, len)) };
    }

    #[inline]
    fn advance(&mut self) {
        either!(ConnectionInbox, self, inbox => inbox.advance());
    }

    #[inline]
    fn peer(&mut self) -> Peer {
        either!(ConnectionInbox, self, inbox => inbox.peer())
    }

    fn arm(&mut self) {
        either!(ConnectionInbox, self, inbox => inbox.arm());
    }

    fn disarm(&mut self) {
        either!(ConnectionInbox, self, inbox => inbox.disarm());
    }
}

impl ConnectionOutbox {
    #[inline]
    pub(super) fn peer(&self) -> Peer {
        either!(ConnectionOutbox, self, outbox => outbox.peer())
    }

    /// Can be read, or hangs up, when the receiver has died.
    pub(super) fn liveness(&self) -> BorrowedFd<'_> {
        either!(ConnectionOutbox, self, outbox => outbox.liveness())
    }

    pub(super) fn arm(&mut self) {
        either!(ConnectionOutbox, self, outbox => outbox.arm());
    }

    pub(super) fn disarm(&mut self) {
        either!(ConnectionOutbox, self, outbox => outbox.disarm());
    }
}

/// What is known of the process at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// It has not come yet.
    Expected,
    /// It is there.
    Present,
    /// It has ended the connection in good order. What it sent before is still there to be read.
    Closed,
    /// It has died, or stopped following the protocol.
    Lost,
}

/// A piece of a message that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Bytes of data.
    pub len: usize,
    /// Bytes of immediate data that came with it.
    pub immediate_len: Option<usize>,
    /// Another fragment of the same message follows.
    pub more: bool,
}

/// Longest message that [`Outbox::send_small`] takes, in bytes: a cache line.
pub(super) const SMALL: usize = 64;

/// Calls its argument for consecutive pieces of memory, each readable for its length.
pub(super) type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(*const u8, usize)) -> Result<()>;

/// The receiving end of one direction.
pub(super) trait Inbox {
    /// Gives the sender `count` more receives.
    fn post(&mut self, count: u64);

    /// The next fragment, if it has arrived. It stays the current one until [`advance`](Self::advance).
    fn peek(&mut self) -> Result<Option<Fragment>>;

    /// Copies the immediate data of the current fragment.
    fn read_immediate(&self, to: &mut [u8]);

    /// Copies `len` bytes of the current fragment's data, from byte `from` on.
    ///
    /// # Safety
    ///
    /// `dst` is writable for `len` bytes.
    unsafe fn read(&self, from: usize, dst: *mut u8, len: usize);

    /// Lets the current fragment go.
    fn advance(&mut self);

    /// The sender. Cheap: called whenever there is nothing else to do.
    fn peer(&mut self) -> Peer;

    /// This thread will sleep: what arrives from now on wakes its engine.
    fn arm(&mut self);

    /// This thread is awake.
    fn disarm(&mut self);
}

/// The sending end of one direction.
pub(super) trait Outbox {
    /// Keeps a receive of the peer for the next message. True, again and again until that message begins, when it has one.
    fn reserve_receive(&mut self) -> bool;

    /// Largest number of bytes, immediate data included, that one fragment takes.
    fn max_fragment(&self) -> usize;

    /// Sends a message of at most [`SMALL`] bytes that lie in one run, in one step. `Again`: the peer has no receive, or there
    /// is no room now; nothing was written.
    ///
    /// # Safety
    ///
    /// `src` is readable for `len` bytes.
    unsafe fn send_small(&mut self, src: *const u8, len: usize) -> Result<()>;

    /// Appends a fragment of `len` bytes. The `first` one of a message takes the receive that the caller has reserved;
    /// `more` says that others of the same message follow. `Again`: no room now, nothing was written.
    ///
    /// # Safety
    ///
    /// `fill` only gives memory that is readable for its length.
    unsafe fn push(
        &mut self,
        immediate: Option<&[u8]>,
        len: usize,
        first: bool,
        more: bool,
        fill: Fill<'_>,
    ) -> Result<()>;

    /// The receiver. Cheap: called whenever there is nothing else to do.
    fn peer(&self) -> Peer;

    /// Can be read, or hangs up, when the receiver has died.
    fn liveness(&self) -> BorrowedFd<'_>;

    /// This thread will sleep: receives and room that come from now on wake its engine.
    fn arm(&mut self);

    /// This thread is awake.
    fn disarm(&mut self);
}
