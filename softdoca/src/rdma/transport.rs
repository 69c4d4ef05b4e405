//! Transports for messages between two connected instances.
//!
//! Each direction is independent: the receiving instance creates an [`Inbox`], its peer sends through an [`Outbox`].
//! There are three transports: [`shared_memory`] for processes on one machine, [`network`] for processes on different
//! machines, and [`verbs`] for those if both sides have an RDMA device. An instance offers all of them, and the peer
//! chooses.
//!
//! Access to remote memory is separate: an imported mmap contains the route to its exporter.

mod credits;
pub(super) mod network;
pub(super) mod shared_memory;
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
    /// Polling frequency of the descriptors: completions of an RDMA device are polled without them.
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

    /// Called when a descriptor is readable; returns the descriptor that must no longer be watched because its end has
    /// been detected.
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
    /// Polling frequency of the descriptors.
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

    /// Called when a descriptor is readable; returns the descriptor that must no longer be watched because its end has
    /// been detected.
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

    /// As [`Outbox::reserve_receive`].
    pub(super) fn reserve_receive(&mut self) -> bool {
        either!(ConnectionOutbox, self, outbox => outbox.reserve_receive())
    }

    #[inline]
    pub(super) fn peer(&self) -> Peer {
        either!(ConnectionOutbox, self, outbox => outbox.peer())
    }

    /// Becomes readable, or hangs up, when the receiver has exited.
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

    /// Next fragment, if it has arrived. It remains current until [`advance`](Self::advance).
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

    /// State of the sender. Must be fast, because it is called whenever the engine is idle.
    fn peer(&mut self) -> Peer;

    /// Prepares for sleep: later messages must wake this thread's engine.
    fn arm(&mut self);

    /// Cancels [`arm`](Self::arm).
    fn disarm(&mut self);
}

/// The sending side of one direction.
pub(super) trait Outbox {
    /// Reserves a receive of the peer for the next message. Returns `true` if one is available; repeated calls before
    /// that message starts reserve no further receive.
    fn reserve_receive(&mut self) -> bool;

    /// Maximum size of a fragment in bytes, including immediate data.
    fn max_fragment(&self) -> usize;

    /// Sends a message of at most [`SMALL`] contiguous bytes in one step. `Again` means that the peer has no receive,
    /// or the ring is full; no data was written.
    ///
    /// # Safety
    ///
    /// `src` must be valid for reading `len` bytes.
    unsafe fn send_small(&mut self, src: *const u8, len: usize) -> Result<()>;

    /// Appends a fragment of `len` bytes. The `first` fragment of a message uses the reserved receive; `more` means
    /// that further fragments of the same message follow. `Again` means that the ring is full; no data was written.
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

    /// State of the receiver. Must be fast, because it is called whenever the engine is idle.
    fn peer(&self) -> Peer;

    /// Becomes readable, or hangs up, when the receiver has exited.
    fn liveness(&self) -> BorrowedFd<'_>;

    /// Prepares for sleep: receives posted and space freed later must wake this thread's engine.
    fn arm(&mut self);

    /// Cancels [`arm`](Self::arm).
    fn disarm(&mut self);
}

#[cfg(test)]
mod tests {
    //! Both ends of the shared-memory transport in one process, and peers that violate its protocol.

    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::network::NetworkInbox;
    use super::shared_memory::{SharedInbox, SharedMemory, SharedOutbox};
    use super::{Fragment, Inbox, Outbox, Peer};
    use crate::agent::{self, AgentAddress};
    use crate::error::{Error, Result};
    use crate::ring::EventFd;

    fn transport(connections: u16) -> SharedMemory {
        let wake = Arc::new(EventFd::new().expect("an eventfd"));
        SharedMemory::new(connections, 16, &wake, None).expect("memory")
    }

    fn local() -> AgentAddress {
        AgentAddress::local().expect("an address")
    }

    fn pair(receiver: &SharedMemory) -> (SharedOutbox, SharedInbox) {
        let inbox = receiver.offer(0).expect("a ring");
        let outbox = transport(1)
            .claim(&local(), inbox.key())
            .expect("the first claim");
        (outbox, inbox)
    }

    fn push(outbox: &mut SharedOutbox, data: &[u8], more: bool) -> Result<()> {
        // SAFETY: a slice is readable for its length.
        unsafe {
            outbox.push(None, data.len(), true, more, &mut |write| {
                write(data.as_ptr(), data.len());
                Ok(())
            })
        }
    }

    fn wait_for(what: Peer, mut peer: impl FnMut() -> Peer) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while peer() != what {
            assert!(Instant::now() < deadline, "the peer stays {:?}", peer());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn both_sides_see_the_state_of_the_other() {
        let (receiver, sender) = (transport(1), transport(1));
        let mut inbox = receiver.offer(0).expect("a ring");
        assert_eq!(inbox.peer(), Peer::Expected);
        let outbox = sender
            .claim(&local(), inbox.key())
            .expect("the first claim");
        assert_eq!(
            (inbox.peer(), outbox.peer()),
            (Peer::Present, Peer::Present)
        );
        drop(outbox);
        assert_eq!(inbox.peer(), Peer::Closed);
        let (outbox, inbox) = pair(&receiver);
        drop(inbox);
        assert_eq!(outbox.peer(), Peer::Closed);
    }

    #[test]
    fn ring_is_offered_once_and_not_after_its_end() {
        for connections in [1, 2] {
            let receiver = transport(connections);
            let (_outbox, inbox) = pair(&receiver);
            let (again, key) = (transport(1).claim(&local(), inbox.key()), inbox.key());
            assert_eq!(again.err(), Some(Error::AlreadyExist));
            drop(inbox);
            assert_eq!(
                transport(1).claim(&local(), key).err(),
                Some(Error::NotFound)
            );
        }
    }

    #[test]
    fn wrong_greetings_do_not_use_up_the_offer() {
        let receiver = transport(1);
        let inbox = receiver.offer(0).expect("a ring");
        let file = tempfile::tempfile().expect("a file");
        let ask = |payload: &[u8], fds: &[_]| {
            agent::request(&local(), inbox.key(), payload, fds)
                .map(|_| ())
                .err()
        };
        let fd = file.as_fd();
        assert_eq!(ask(b"", &[fd]), Some(Error::UnsupportedVersion));
        assert_eq!(ask(b"SDRDMA\0\x02", &[fd]), Some(Error::UnsupportedVersion));
        assert_eq!(ask(b"SDRDMA\0\x01", &[]), Some(Error::InvalidValue));
        assert_eq!(ask(b"SDRDMA\0\x01", &[fd, fd]), Some(Error::InvalidValue));
        transport(1)
            .claim(&local(), inbox.key())
            .expect("the first right claim");
    }

    /// Claims the descriptors that a sender receives, for a hostile peer.
    fn steal(inbox: &SharedInbox) -> (agent::AgentConnection, Vec<OwnedFd>) {
        let file = tempfile::tempfile().expect("a file");
        let claim = agent::request(&local(), inbox.key(), b"SDRDMA\0\x01", &[file.as_fd()]);
        let (connection, _, fds) = claim.expect("the first claim");
        (connection, fds)
    }

    #[test]
    fn garbage_in_the_ring_closes_the_connection() {
        let receiver = transport(1);
        let mut inbox = receiver.offer(4).expect("a ring");
        let (_connection, fds) = steal(&inbox);
        assert_eq!(
            inbox.peer(),
            Peer::Present,
            "an eventfd that is none is no harm"
        );
        // Everything except the header, which the receiver does not read again.
        let size = rustix::fs::fstat(&fds[0]).expect("a memfd").st_size as usize;
        for byte in [0x00, 0xff, 0x01] {
            let garbage = vec![byte; size - 64];
            rustix::io::pwrite(&fds[0], &garbage, 64).expect("a writable memfd");
            assert_eq!(inbox.peek(), Ok(None), "other laps are no messages");
        }
        // A fragment of the first lap that is longer than any may be.
        let word = 1_u64 << 32 | 0xff_ffff;
        rustix::io::pwrite(&fds[0], &word.to_ne_bytes(), 512).expect("a writable memfd");
        assert_eq!(inbox.peek().err(), Some(Error::ConnectionAborted));
        inbox.post(1);
        inbox.arm();
        inbox.disarm();
    }

    #[test]
    fn sender_that_disconnects_without_closing_is_lost() {
        let receiver = transport(1);
        let mut inbox = receiver.offer(1).expect("a ring");
        let (connection, fds) = steal(&inbox);
        assert_eq!(inbox.peer(), Peer::Present);
        drop((connection, fds));
        wait_for(Peer::Lost, || inbox.peer());
    }

    #[test]
    fn invalid_receive_count_grants_no_credits() {
        let receiver = transport(2);
        let (mut outbox, mut inbox) = pair(&receiver);
        assert!(!outbox.reserve_receive());
        receiver.post();
        inbox.post(1);
        assert!(
            outbox.reserve_receive() && outbox.reserve_receive(),
            "kept for the next message"
        );
        push(&mut outbox, b"a message", false).expect("room");
        assert!(!outbox.reserve_receive());
        let fragment = inbox.peek().expect("sound").expect("a message");
        assert_eq!((fragment.len, fragment.more), (9, false));
        inbox.advance();
        // A receiver that revokes granted receives.
        let other = receiver.offer(0).expect("a ring");
        let (_connection, fds) = steal(&other);
        rustix::io::pwrite(&fds[2], &0_u64.to_ne_bytes(), 64).expect("a writable memfd");
        assert!(!outbox.reserve_receive());
    }

    /// State of a receiver with one posted receive after these bytes from another machine.
    fn over_the_network(bytes: &[u8]) -> (Result<Option<Fragment>>, Peer) {
        let receiver = transport(1);
        let (here, there) = crate::agent::stream_pair();
        let offered = Box::new(receiver.offer(0).expect("a ring"));
        let mut inbox = NetworkInbox::new(offered, (here, 0), 1).expect("a receiver");
        inbox.flush();
        assert_eq!(there.send_from(bytes), Ok(bytes.len()));
        there.shut_down_output();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            inbox.set_readable();
            match inbox.peek() {
                Ok(None) if inbox.peer() == Peer::Present => {
                    assert!(Instant::now() < deadline, "nothing came");
                    std::thread::yield_now();
                }
                found => return (found, inbox.peer()),
            }
        }
    }

    #[test]
    fn frames_of_another_machine_are_checked() {
        let whole = [1, 1, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c'];
        let fragment = Fragment {
            len: 3,
            immediate_len: None,
            more: false,
        };
        assert_eq!(over_the_network(&whole).0, Ok(Some(fragment)));
        let immediate = [1, 5, 4, 0, 0, 0, 0, 0, 9, 9, 9, 9];
        let fragment = Fragment {
            len: 0,
            immediate_len: Some(4),
            more: false,
        };
        assert_eq!(over_the_network(&immediate).0, Ok(Some(fragment)));
        assert_eq!(
            over_the_network(&[2, 0, 0, 0, 0, 0, 0, 0]),
            (Ok(None), Peer::Closed)
        );
        // Broken off.
        assert_eq!(over_the_network(&whole[..10]), (Ok(None), Peer::Lost));
        assert_eq!(over_the_network(&[]), (Ok(None), Peer::Lost));
        for bytes in [
            // A fragment in the middle of no message, unknown flags, and a byte that is always 0.
            [1, 0, 0, 0, 3, 0, 0, 0],
            [1, 9, 0, 0, 3, 0, 0, 0],
            [1, 1, 0, 1, 3, 0, 0, 0],
            // Immediate data without its flag, the flag without immediate data, and too much immediate data.
            [1, 1, 4, 0, 0, 0, 0, 0],
            [1, 5, 0, 0, 0, 0, 0, 0],
            [1, 5, 9, 0, 0, 0, 0, 0],
            // More data than fits in a fragment.
            [1, 1, 0, 0, 1, 0x80, 0, 0],
            [1, 1, 0, 0, 0xff, 0xff, 0xff, 0xff],
            // A frame that a sender never sends.
            [0, 0, 0, 0, 0, 0, 0, 0],
            [4, 0, 0, 0, 1, 0, 0, 0],
            [0xff; 8],
        ] {
            assert_eq!(
                over_the_network(&bytes).0,
                Err(Error::ConnectionAborted),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn message_of_another_machine_needs_a_receive() {
        let receiver = transport(1);
        let (here, there) = crate::agent::stream_pair();
        let offered = Box::new(receiver.offer(0).expect("a ring"));
        let mut inbox = NetworkInbox::new(offered, (here, 0), 0).expect("a receiver");
        let message = [1, 1, 0, 0, 1, 0, 0, 0, b'a'];
        assert_eq!(there.send_from(&message), Ok(message.len()));
        let deadline = Instant::now() + Duration::from_secs(60);
        while inbox.peek() == Ok(None) {
            inbox.set_readable();
            assert!(Instant::now() < deadline, "nothing came");
        }
        assert_eq!(inbox.peek(), Err(Error::ConnectionAborted));
    }
}
