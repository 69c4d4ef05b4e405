//! Transports for messages between two connected instances.
//!
//! Each direction is independent: the receiving instance creates an [`Inbox`], its peer sends through an [`Outbox`].
//! There are three transports: [`shared_memory`] for processes on one machine, [`network`] for others, and [`verbs`]
//! for others where both sides have an RDMA device. An instance offers all, and the peer chooses.
//!
//! Access to remote memory is separate: an imported mmap knows how to reach its exporter.

mod credits;
pub(super) mod network;
pub(super) mod shared_memory;
#[cfg(test)]
mod tests;
pub(super) mod verbs;

use std::os::fd::BorrowedFd;

use crate::error::Result;
use crate::progress::Urgency;

use network::{NetworkInbox, NetworkOutbox};
use shared_memory::{SharedInbox, SharedOutbox};
use verbs::{VerbsInbox, VerbsOutbox};

/// The receiving side of a connection.
pub(super) enum ConnectionInbox {
    /// A ring, or an offer that no peer has accepted yet.
    Shared(SharedInbox),
    /// A peer on another machine.
    Network(NetworkInbox),
    /// A peer on another machine, by RDMA devices.
    Verbs(VerbsInbox),
}

/// The sending side of a connection.
#[allow(
    clippy::large_enum_variant,
    reason = "the frequent one is the large one, and they are boxed"
)]
pub(super) enum ConnectionOutbox {
    Shared(SharedOutbox),
    /// A peer on another machine.
    Network(NetworkOutbox),
    /// A peer on another machine, by RDMA devices.
    Verbs(VerbsOutbox),
}

macro_rules! either {
    ($end:ident, $self:ident, $inner:ident => $call:expr) => {
        match $self {
            $end::Shared($inner) => $call,
            $end::Network($inner) => $call,
            $end::Verbs($inner) => $call,
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
        // SAFETY: the caller's guarantee.
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

impl ConnectionInbox {
    /// How often the descriptors are polled: completions of an RDMA device are polled without them.
    pub(super) fn urgency(&self) -> Urgency {
        match self {
            ConnectionInbox::Verbs(_) => Urgency::Liveness,
            _ => Urgency::Message,
        }
    }

    /// Descriptors that signal messages and the end of the connection; none for a ring.
    pub(super) fn sockets(&self) -> [Option<BorrowedFd<'_>>; 2] {
        match self {
            ConnectionInbox::Shared(_) => [None; 2],
            ConnectionInbox::Network(inbox) => [inbox.socket(), None],
            ConnectionInbox::Verbs(inbox) => inbox.sockets(),
        }
    }

    /// A descriptor is readable; returns the one that must not be watched any more because its end is known.
    pub(super) fn set_readable(&mut self) -> Option<BorrowedFd<'_>> {
        match self {
            ConnectionInbox::Shared(_) => None,
            ConnectionInbox::Network(inbox) => match inbox.set_readable() {
                true => None,
                false => inbox.socket(),
            },
            ConnectionInbox::Verbs(inbox) => match inbox.set_readable() {
                true => None,
                false => inbox.socket(),
            },
        }
    }

    /// Returns `true` if a peer on another machine has ended, and all its messages were received.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            ConnectionInbox::Shared(_) => true,
            ConnectionInbox::Network(inbox) => inbox.has_ended(),
            ConnectionInbox::Verbs(inbox) => inbox.has_ended(),
        }
    }

    /// Sends queued credits.
    pub(super) fn flush(&mut self) {
        match self {
            ConnectionInbox::Shared(_) => {}
            ConnectionInbox::Network(inbox) => inbox.flush(),
            ConnectionInbox::Verbs(inbox) => inbox.flush(),
        }
    }
}

impl ConnectionOutbox {
    /// How often the descriptors are polled.
    pub(super) fn urgency(&self) -> Urgency {
        match self {
            ConnectionOutbox::Verbs(_) => Urgency::Liveness,
            _ => Urgency::Message,
        }
    }

    /// Descriptors that signal replies and the end of the connection; none for a ring.
    pub(super) fn sockets(&self) -> [Option<BorrowedFd<'_>>; 2] {
        match self {
            ConnectionOutbox::Shared(_) => [None; 2],
            ConnectionOutbox::Network(outbox) => [outbox.socket(), None],
            ConnectionOutbox::Verbs(outbox) => outbox.sockets(),
        }
    }

    /// A descriptor is readable; returns the one that must not be watched any more because its end is known.
    pub(super) fn set_readable(&mut self) -> Option<BorrowedFd<'_>> {
        match self {
            ConnectionOutbox::Shared(_) => None,
            ConnectionOutbox::Network(outbox) => {
                let was_open = outbox.set_readable();
                outbox.look();
                match was_open {
                    true => None,
                    false => outbox.socket(),
                }
            }
            ConnectionOutbox::Verbs(outbox) => match outbox.set_readable() {
                true => None,
                false => outbox.socket(),
            },
        }
    }

    #[inline]
    pub(super) fn peer(&self) -> Peer {
        either!(ConnectionOutbox, self, outbox => outbox.peer())
    }

    /// Becomes readable, or hangs up, when the receiver has died.
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

/// State of the peer process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// Not connected yet.
    Expected,
    /// Connected.
    Present,
    /// Closed the connection. Data sent before can still be received.
    Closed,
    /// Died, or violated the protocol.
    Lost,
}

/// A fragment of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Size of its data in bytes.
    pub len: usize,
    /// Size of its immediate data in bytes.
    pub immediate_len: Option<usize>,
    /// Another fragment of the same message follows.
    pub more: bool,
}

/// Maximum message size of [`Outbox::send_small`] in bytes: a cache line.
pub(super) const SMALL: usize = 64;

/// Calls its argument for consecutive pieces of memory, each valid for reading its length.
pub(super) type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(*const u8, usize)) -> Result<()>;

/// The receiving side of one direction.
pub(super) trait Inbox {
    /// Grants the sender `count` more receives.
    fn post(&mut self, count: u64);

    /// Next fragment, if it has arrived. It stays current until [`advance`](Self::advance).
    fn peek(&mut self) -> Result<Option<Fragment>>;

    /// Copies the immediate data of the current fragment.
    fn read_immediate(&self, to: &mut [u8]);

    /// Copies `len` bytes of the current fragment's data, from byte `from` on.
    ///
    /// # Safety
    ///
    /// `dst` must be valid for writing `len` bytes.
    unsafe fn read(&self, from: usize, dst: *mut u8, len: usize);

    /// Releases the current fragment.
    fn advance(&mut self);

    /// State of the sender. Cheap: called whenever the engine is idle.
    fn peer(&mut self) -> Peer;

    /// This thread is about to sleep: messages from now on must wake its engine.
    fn arm(&mut self);

    /// This thread is awake.
    fn disarm(&mut self);
}

/// The sending side of one direction.
pub(super) trait Outbox {
    /// Reserves a receive of the peer for the next message. Returns `true` if there is one, also when called again
    /// before that message starts.
    fn reserve_receive(&mut self) -> bool;

    /// Maximum size of a fragment in bytes, including immediate data.
    fn max_fragment(&self) -> usize;

    /// Sends a message of at most [`SMALL`] contiguous bytes in one step. `Again`: the peer has no receive, or the
    /// ring is full; nothing was written.
    ///
    /// # Safety
    ///
    /// `src` must be valid for reading `len` bytes.
    unsafe fn send_small(&mut self, src: *const u8, len: usize) -> Result<()>;

    /// Appends a fragment of `len` bytes. The `first` one of a message uses the reserved receive; `more` means that
    /// others of the same message follow. `Again`: the ring is full, nothing was written.
    ///
    /// # Safety
    ///
    /// `fill` must pass memory that is valid for reading its length.
    unsafe fn push(
        &mut self,
        immediate: Option<&[u8]>,
        len: usize,
        first: bool,
        more: bool,
        fill: Fill<'_>,
    ) -> Result<()>;

    /// State of the receiver. Cheap: called whenever the engine is idle.
    fn peer(&self) -> Peer;

    /// Becomes readable, or hangs up, when the receiver has died.
    fn liveness(&self) -> BorrowedFd<'_>;

    /// This thread is about to sleep: receives and free space from now on must wake its engine.
    fn arm(&mut self);

    /// This thread is awake.
    fn disarm(&mut self);
}
