//! The transport between processes of different machines that both have an RDMA device: a reliable connection (queue pair) per direction.
//!
//! The sender requests the connection's key and is authenticated as over TCP; both exchange the endpoints of their queue
//! pairs over that connection:
//!
//! ```text
//! sender     u8 1, or 0 without a device; 7 zeros; 32 bytes endpoint
//! receiver   u8 1, or 0 if the connection continues over TCP; 3 zeros; u16 number of its device, u16 zero; 32 bytes endpoint; u32 receives; u32 zero
//! ```
//!
//! The queue pairs are not in the blob: each serves one peer, and a peer with the blob is not authenticated yet.
//! Afterwards, each side sends one byte over the connection for a clean end; the connection breaks when a process
//! exits.
//!
//! The sender posts messages as sends, of one fragment each, which begin with a header as over TCP: u8 kind (1 fragment, 3 a message waits
//! for a receive), u8 flags, u8 bytes of immediate data that follow the header, u8 zero, u32 bytes of data. An immediate value of a message
//! is the immediate of the send. Writes, reads and atomics are executed by the devices. The receiver has a fixed number of buffers, and sends back credits: u8
//! kind 4, 3 zeros, u32 receives, u32 buffers, u32 zero. Integers are little endian.
//!
//! A write completes when the peer's device has acknowledged it. The device delivers in order per connection, and places
//! data before it writes later completions: data is visible before any message sent after the write's completion.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::credits::Grants;
use super::network::NetworkOutbox;
use super::shared_memory::SharedInbox;
use super::{ConnectionOutbox, Fill, Fragment, Inbox, Outbox, Peer, SMALL};
use crate::agent::{
    Link, NetworkOffer, Stream, call, close_after_delivery, is_in_progress, receive_within,
    requires_verbs, send_within,
};
use crate::error::{Error, Result};
use crate::runtime::Key;
use crate::verbs::{
    Buffers, Completion, Endpoint, Nic, Opcode, QueuePair, Received, RemoteKey, Sge, WorkRequest,
};

const HEADER: usize = 8;
const FRAGMENT: u8 = 1;
const WANT: u8 = 3;
const CREDITS: u8 = 4;

const FIRST: u8 = 1;
const MORE: u8 = 2;

/// Number of a receiver's buffers, and their size in bytes: a packet of the largest MTU.
const SLOTS: u32 = 128;
const SLOT: usize = 4096;
/// Maximum size of a fragment in bytes, including immediate data.
const MOST: usize = SLOT - HEADER;
/// Size in bytes of the immediate data of a write executed over TCP.
const WRITE_IMMEDIATE: usize = 8;
/// Maximum number of a sender's outstanding requests: the messages and accesses of a full instance.
const SENDS: u32 = 256;
/// Number of a sender's buffers for messages that are not sent inline.
const SEND_BUFFERS: usize = 64;
/// Maximum number of outstanding atomics.
const ATOMICS: usize = 64;
/// Maximum number of credit messages that the sender has not polled: one for each receive, and a few that only return
/// buffers. Up to this number of receives, credits are delivered without progress of the sender's program.
const CREDIT_BUFFERS: u32 = 1024 + SPARE_CREDITS;
const SPARE_CREDITS: u32 = 8;
const CREDIT: usize = 16;
/// Maximum size of a message without a buffer, in bytes.
const INLINE: usize = HEADER + SMALL;

/// Time limit for connecting.
const SET_UP: Duration = Duration::from_secs(2);
/// Time limit for sending queued messages at the end of a connection.
const TIMEOUT: Duration = Duration::from_millis(500);

const HELLO: usize = 8 + Endpoint::SIZE;
const ANSWER: usize = 16 + Endpoint::SIZE;

/// Ids of requests: a kind, and an index below.
const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const SEND_FROM_BUFFER: u64 = 3 << 32;
const ACCESS: u64 = 4 << 32;
const ATOMIC: u64 = 5 << 32;
const KIND: u64 = !0 << 32;

fn header(kind: u8, flags: u8, immediate: usize, len: u32) -> [u8; HEADER] {
    let [a, b, c, d] = len.to_le_bytes();
    // At most 8.
    [kind, flags, immediate as u8, 0, a, b, c, d]
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.map_or(0, |part| u32::from_le_bytes(*part))
}

fn broken(what: std::fmt::Arguments<'_>) -> Error {
    Error::ConnectionAborted.because(format_args!(
        "an RDMA peer on another machine broke the protocol: {what}"
    ))
}

/// The TCP connection that accompanies a queue pair.
struct Companion {
    /// `Some` until drop.
    stream: Option<Stream>,
    end: Option<Peer>,
}

impl Companion {
    fn new(stream: Stream) -> Companion {
        Companion {
            stream: Some(stream),
            end: None,
        }
    }

    /// Checks the socket, which is readable or closed; returns `false` if it was already known to be closed.
    fn look(&mut self) -> bool {
        let was_open = self.end.is_none();
        if let (Some(stream), true) = (&self.stream, was_open) {
            match stream.receive_into(&mut [0]) {
                Err(Error::Again) => {}
                Ok(0) | Err(_) => self.end = Some(Peer::Lost),
                Ok(_) => self.end = Some(Peer::Closed),
            }
        }
        was_open
    }

    /// A request has failed, possibly because the peer has ended the connection.
    fn fail(&mut self) -> Peer {
        self.look();
        *self.end.get_or_insert(Peer::Lost)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    fn close(&mut self) {
        if let Some(stream) = self.stream.take()
            && self.end != Some(Peer::Lost)
            && send_within(&stream, &[1], TIMEOUT).is_ok()
        {
            close_after_delivery(stream);
        }
    }
}

/// A receiving end that a sender has connected with.
pub(crate) struct Accepted {
    qp: QueuePair,
    buffers: Buffers,
    /// Maximum number of credit messages in flight.
    credits: u32,
}

/// Connects a sender that has accepted an offer of an instance with `receives` receives, if both sides have a device;
/// the response is not sent yet. Called by a thread of the agent, which may block.
///
/// # Errors
/// [`Error::TimeOut`] and [`Error::ConnectionReset`] for a sender that sends no endpoint, [`Error::InvalidValue`].
pub(super) fn accept(
    nic: Option<&'static Nic>,
    receives: usize,
    stream: &Stream,
) -> Result<Option<Accepted>> {
    let Some(nic) = nic else { return Ok(None) };
    let mut hello = [0; HELLO];
    receive_within(stream, &mut hello, SET_UP)?;
    let [kind, 0, 0, 0, 0, 0, 0, 0, endpoint @ ..] = hello else {
        return Err(Error::InvalidValue);
    };
    let accepted = match kind {
        0 => None,
        1 => Accepted::new(nic, receives, &Endpoint::decode(&endpoint)?).ok(),
        _ => return Err(Error::InvalidValue),
    };
    if accepted.is_none() {
        send_within(stream, &[0; ANSWER], SET_UP)?;
    }
    Ok(accepted)
}

impl Accepted {
    fn new(nic: &'static Nic, receives: usize, peer: &Endpoint) -> Result<Accepted> {
        let receives = u32::try_from(receives).unwrap_or(u32::MAX);
        let credits = receives.saturating_add(SPARE_CREDITS).min(CREDIT_BUFFERS);
        let qp = QueuePair::new(nic, credits, SLOTS)?;
        let buffers = Buffers::new(nic, SLOTS as usize, SLOT)?;
        for index in 0..SLOTS {
            // SAFETY: the buffers are dropped after the queue pair, and each is posted once.
            unsafe { qp.post_receive(&buffers, index as usize, RECEIVE | u64::from(index)) }?;
        }
        qp.connect(peer)?;
        Ok(Accepted {
            qp,
            buffers,
            credits,
        })
    }

    /// Answers the sender with the endpoint and the number of receives; returns the announced number.
    pub(super) fn answer(&self, stream: &Stream, posted: u64) -> u64 {
        let granted = u32::try_from(posted).unwrap_or(u32::MAX);
        let mut answer = [0; ANSWER];
        answer[0] = 1;
        answer[4..6].copy_from_slice(&self.qp.nic().number().to_le_bytes());
        answer[8..8 + Endpoint::SIZE].copy_from_slice(&self.qp.endpoint().encode());
        answer[ANSWER - 8..ANSWER - 4].copy_from_slice(&granted.to_le_bytes());
        match send_within(stream, &answer, SET_UP) {
            Ok(()) => u64::from(granted),
            // The closed connection is detected later.
            Err(_) => 0,
        }
    }
}

/// A message in a buffer.
#[derive(Clone, Copy)]
struct Current {
    fragment: Fragment,
    slot: u32,
    /// Immediate data, in the format of [`task`](super::super::task).
    immediate: [u8; WRITE_IMMEDIATE],
    /// Byte offset of its data in the buffer.
    from: usize,
}

/// Receives from a peer on another machine, through an RDMA device.
pub(crate) struct VerbsInbox {
    qp: QueuePair,
    /// Dropped after the queue pair.
    buffers: Buffers,
    companion: Companion,
    /// Buffers with messages, in order.
    arrived: VecDeque<(u32, Received)>,
    current: Option<Current>,
    within_message: bool,
    end: Option<Peer>,
    grants: Grants,
    /// Numbers of receives and of buffers that have not been announced to the sender yet.
    unannounced: (u32, u32),
    /// Credit messages in flight, and their maximum.
    sending: u32,
    most_sending: u32,
    /// The accepted offer: holds the slot in the pool of receives, and keeps the key in use.
    offered: Box<SharedInbox>,
}

impl VerbsInbox {
    /// The receiving end for a peer that has accepted an offer. `posted` receives have already been posted.
    pub(crate) fn new(
        offered: Box<SharedInbox>,
        stream: Stream,
        granted: u64,
        accepted: Accepted,
        posted: usize,
    ) -> Result<Self> {
        let receives = offered.shared_receives()?;
        let mut inbox = Self {
            qp: accepted.qp,
            buffers: accepted.buffers,
            companion: Companion::new(stream),
            arrived: VecDeque::with_capacity(SLOTS as usize),
            current: None,
            within_message: false,
            end: None,
            grants: Grants::new(granted, receives),
            unannounced: (0, 0),
            sending: 0,
            most_sending: accepted.credits,
            offered,
        };
        inbox.post((posted as u64).saturating_sub(granted));
        Ok(inbox)
    }

    fn grant(&mut self, goes_on: bool) {
        if let Some(count) = self.grants.take(goes_on) {
            self.unannounced.0 = self.unannounced.0.saturating_add(count);
        }
    }

    /// Polls completions of the device.
    fn poll(&mut self) {
        loop {
            let (arrived, sending, mut failed) = (&mut self.arrived, &mut self.sending, false);
            let polled = self
                .qp
                .poll(|Completion { id, result }| match (id & KIND, result) {
                    (RECEIVE, Ok(received)) => arrived.push_back((id as u32, received)),
                    (SEND, Ok(_)) => *sending = sending.saturating_sub(1),
                    _ => failed = true,
                });
            // Messages received before are still delivered.
            if failed || polled.is_err() {
                self.companion.fail();
            }
            if !matches!(polled, Ok(1..)) {
                return;
            }
        }
    }

    /// Posts a buffer to the device again.
    fn release(&mut self, slot: u32) {
        let id = RECEIVE | u64::from(slot);
        // SAFETY: the buffer's message was taken, and the buffers are dropped after the queue pair.
        let posted = unsafe { self.qp.post_receive(&self.buffers, slot as usize, id) };
        if posted.is_err() {
            self.companion.fail();
        }
        self.unannounced.1 += 1;
    }

    /// The message at the front of the queue.
    fn parse(&mut self) -> Result<Option<Current>> {
        while let Some((slot, received)) = self.arrived.front().copied() {
            let current = if received.by_write {
                // The device has written its data to its destination.
                let mut immediate = [0; WRITE_IMMEDIATE];
                let value = received.immediate.unwrap_or(0);
                immediate[..4].copy_from_slice(&value.to_ne_bytes());
                immediate[4..].copy_from_slice(&received.len.to_ne_bytes());
                Current {
                    fragment: Fragment {
                        len: 0,
                        immediate_len: Some(WRITE_IMMEDIATE),
                        more: false,
                    },
                    slot,
                    immediate,
                    from: HEADER,
                }
            } else {
                match self.parse_send(slot, received)? {
                    Some(current) => current,
                    None => {
                        self.arrived.pop_front();
                        self.release(slot);
                        self.grants.want();
                        self.grant(true);
                        continue;
                    }
                }
            };
            self.arrived.pop_front();
            if !self.within_message && !self.grants.has_receive() {
                return Err(broken(format_args!(
                    "a message for which there is no receive"
                )));
            }
            return Ok(Some(current));
        }
        Ok(None)
    }

    /// Parses a message; `None` if it only notifies that a message is waiting.
    fn parse_send(&self, slot: u32, received: Received) -> Result<Option<Current>> {
        let mut head = [0; HEADER + WRITE_IMMEDIATE];
        let arrived = received.len as usize;
        let known = head.len().min(arrived);
        // SAFETY: a buffer has more bytes, and its owner is this until it is posted again.
        unsafe {
            std::ptr::copy_nonoverlapping(self.buffers.at(slot as usize), head.as_mut_ptr(), known);
        }
        let [kind, flags, immediate, zero, ..] = head;
        let (immediate, len) = (usize::from(immediate), word(&head, 4) as usize);
        if arrived == HEADER && kind == WANT {
            return Ok(None);
        }
        let is_first = flags & FIRST != 0;
        let makes_sense = kind == FRAGMENT
            && flags & !(FIRST | MORE) == 0
            && zero == 0
            && [0, WRITE_IMMEDIATE].contains(&immediate)
            && (immediate == 0 || received.immediate.is_none())
            && arrived == HEADER + immediate + len
            && is_first != self.within_message;
        if !makes_sense {
            return Err(broken(format_args!("a fragment that makes no sense")));
        }
        let mut value = [0; WRITE_IMMEDIATE];
        value[..immediate].copy_from_slice(&head[HEADER..HEADER + immediate]);
        let mut immediate_len = (immediate > 0).then_some(immediate);
        if let Some(sent) = received.immediate {
            value[..4].copy_from_slice(&sent.to_ne_bytes());
            immediate_len = Some(4);
        }
        Ok(Some(Current {
            fragment: Fragment {
                len,
                immediate_len,
                more: flags & MORE != 0,
            },
            slot,
            immediate: value,
            from: HEADER + immediate,
        }))
    }

    /// Announces receives and buffers to the sender.
    pub(crate) fn flush(&mut self) {
        let (receives, buffers) = self.unannounced;
        if receives == 0 && buffers < SLOTS / 4 {
            return;
        }
        if self.sending >= self.most_sending {
            self.poll();
            if self.sending >= self.most_sending {
                return;
            }
        }
        let mut message = [0; CREDIT];
        message[0] = CREDITS;
        message[4..8].copy_from_slice(&receives.to_le_bytes());
        message[8..12].copy_from_slice(&buffers.to_le_bytes());
        if post_inline(&self.qp, &message, None).is_err() {
            self.companion.fail();
            return;
        }
        self.sending += 1;
        self.unannounced = (0, 0);
    }

    /// Handles a descriptor that is readable or closed; returns `false` if the end was already known.
    pub(crate) fn set_readable(&mut self) -> bool {
        self.qp.take_events();
        self.companion.look()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Descriptors that signal messages and the end of the connection.
    pub(crate) fn sockets(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.qp.events()), self.companion.socket()]
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.companion.socket()
    }
}

/// Sends a message that is copied by the call.
fn post_inline(qp: &QueuePair, bytes: &[u8], immediate: Option<u32>) -> Result<()> {
    let piece = Sge {
        addr: bytes.as_ptr().addr() as u64,
        length: bytes.len() as u32,
        lkey: 0,
    };
    let pieces = [piece];
    let request = WorkRequest {
        inline: true,
        immediate: immediate.unwrap_or(0),
        ..WorkRequest::new(SEND, send_opcode(immediate), &pieces)
    };
    // SAFETY: inline, and the bytes can be read.
    unsafe { qp.post(&request) }
}

fn send_opcode(immediate: Option<u32>) -> Opcode {
    match immediate {
        None => Opcode::Send,
        Some(_) => Opcode::SendImmediate,
    }
}

impl Inbox for VerbsInbox {
    fn post(&mut self, count: u64) {
        self.grants.post(count);
        self.grant(is_in_progress());
    }

    fn peek(&mut self) -> Result<Option<Fragment>> {
        if self.current.is_none() {
            if self.arrived.is_empty() {
                self.poll();
            }
            self.current = self.parse()?;
        }
        Ok(self.current.map(|current| current.fragment))
    }

    fn read_immediate(&self, to: &mut [u8]) {
        if let Some(current) = &self.current {
            let len = current.fragment.immediate_len.unwrap_or(0).min(to.len());
            to[..len].copy_from_slice(&current.immediate[..len]);
        }
    }

    unsafe fn read(&self, from: usize, dst: *mut u8, len: usize) {
        if let Some(current) = &self.current {
            let len = len.min(current.fragment.len.saturating_sub(from));
            let at = self.buffers.at(current.slot as usize);
            // SAFETY: the fragment lies within its buffer, as was checked, and the device does not write to the buffer
            // until it is posted again. The caller guarantees that `dst` is writable.
            unsafe { std::ptr::copy_nonoverlapping(at.add(current.from + from), dst, len) };
        }
    }

    fn advance(&mut self) {
        if let Some(current) = self.current.take() {
            if !self.within_message {
                self.grants.use_one();
                self.offered.count_message();
            }
            self.within_message = current.fragment.more;
            self.release(current.slot);
            self.grant(true);
        }
    }

    fn peer(&mut self) -> Peer {
        if self.current.is_none() && self.end.is_none() {
            // First, as messages sent before the end are in the queue.
            let end = self.companion.end;
            if self.peek().is_err() {
                self.end = Some(Peer::Lost);
            } else if self.current.is_none() {
                self.end = end;
            }
        }
        self.end.unwrap_or(Peer::Present)
    }

    fn arm(&mut self) {
        self.grant(false);
        self.flush();
        self.qp.arm();
    }

    fn disarm(&mut self) {}
}

impl Drop for VerbsInbox {
    fn drop(&mut self) {
        self.companion.close();
    }
}

/// Sends to a peer on another machine and accesses its memory, through an RDMA device.
pub(crate) struct VerbsOutbox {
    qp: QueuePair,
    /// Dropped after the queue pair, as the next two.
    credit_buffers: Buffers,
    send_buffers: Buffers,
    atomics: Buffers,
    companion: Companion,
    link: Arc<Link>,
    bell: OwnedFd,
    /// Number of the peer's device.
    peer_nic: u16,
    end: Option<Peer>,
    credits: u64,
    reserved: bool,
    /// The receiver must be notified, or has been notified, that a message waits.
    asked: bool,
    /// Number of free buffers of the receiver.
    room: u32,
    /// Number of requests without a completion.
    outstanding: u32,
    /// Number of used send buffers, and the next one, as they are freed in order. The fields for atomics are
    /// equivalent.
    sends: (usize, usize),
    changes: (usize, usize),
    /// Completed accesses, in order.
    replies: VecDeque<Result<u64>>,
}

/// Connects to the connection that a peer offers, by RDMA devices if both sides have one.
///
/// # Errors
/// As [`Link::to`]; [`Error::AlreadyExist`] if another peer has claimed it, [`Error::NotSupported`] if TCP is required
/// but not permitted.
pub(crate) fn connect(offer: &NetworkOffer, nic: Option<&'static Nic>) -> Result<ConnectionOutbox> {
    let link = Link::to(offer)?;
    let (stream, bell) = (call(offer)?, link.bell()?);
    if offer.verbs {
        match VerbsOutbox::meet(nic, stream, link, bell)? {
            Met::Device(outbox) => return Ok(ConnectionOutbox::Verbs(*outbox)),
            Met::Tcp(stream, link, bell) => return over_tcp(stream, link, bell),
        }
    }
    over_tcp(stream, link, bell)
}

fn over_tcp(stream: Stream, link: Arc<Link>, bell: OwnedFd) -> Result<ConnectionOutbox> {
    if requires_verbs() {
        return Err(Error::NotSupported.because(
            "SOFTDOCA_TRANSPORT is verbs, and the RDMA peer is not reachable through an RDMA device: does its topology file name one that exists there?",
        ));
    }
    Ok(ConnectionOutbox::Network(NetworkOutbox::over(
        stream, link, bell,
    )))
}

/// Result of offering verbs to a receiver.
enum Met {
    Device(Box<VerbsOutbox>),
    Tcp(Stream, Arc<Link>, OwnedFd),
}

/// The sender's objects before the receiver has answered.
struct Prepared {
    qp: QueuePair,
    credit_buffers: Buffers,
    send_buffers: Buffers,
    atomics: Buffers,
}

impl Prepared {
    fn new(nic: &'static Nic) -> Result<Prepared> {
        let qp = QueuePair::new(nic, SENDS, CREDIT_BUFFERS)?;
        let credit_buffers = Buffers::new(nic, CREDIT_BUFFERS as usize, CREDIT)?;
        for index in 0..CREDIT_BUFFERS {
            let id = RECEIVE | u64::from(index);
            // SAFETY: the buffers are dropped after the queue pair, and each is posted once.
            unsafe { qp.post_receive(&credit_buffers, index as usize, id) }?;
        }
        Ok(Prepared {
            qp,
            credit_buffers,
            send_buffers: Buffers::new(nic, SEND_BUFFERS, SLOT)?,
            atomics: Buffers::new(nic, ATOMICS, size_of::<u64>())?,
        })
    }
}

impl VerbsOutbox {
    fn meet(
        nic: Option<&'static Nic>,
        stream: Stream,
        link: Arc<Link>,
        bell: OwnedFd,
    ) -> Result<Met> {
        let prepared = nic.and_then(|nic| Prepared::new(nic).ok());
        let mut hello = [0; HELLO];
        if let Some(prepared) = &prepared {
            hello[0] = 1;
            hello[8..].copy_from_slice(&prepared.qp.endpoint().encode());
        }
        send_within(&stream, &hello, SET_UP)?;
        let mut answer = [0; ANSWER];
        receive_within(&stream, &mut answer, SET_UP)?;
        let Some(prepared) = prepared.filter(|_| answer[0] == 1) else {
            return Ok(Met::Tcp(stream, link, bell));
        };
        let endpoint = answer[8..].first_chunk().ok_or(Error::Unexpected)?;
        prepared.qp.connect(&Endpoint::decode(endpoint)?)?;
        Ok(Met::Device(Box::new(VerbsOutbox {
            qp: prepared.qp,
            credit_buffers: prepared.credit_buffers,
            send_buffers: prepared.send_buffers,
            atomics: prepared.atomics,
            companion: Companion::new(stream),
            link,
            bell,
            // The upper half of the word is zero.
            peer_nic: word(&answer, 4) as u16,
            end: None,
            credits: u64::from(word(&answer, ANSWER - 8)),
            reserved: false,
            asked: false,
            room: SLOTS,
            outstanding: 0,
            sends: (0, 0),
            changes: (0, 0),
            replies: VecDeque::with_capacity(SENDS as usize),
        })))
    }

    pub(crate) fn nic(&self) -> &'static Nic {
        self.qp.nic()
    }

    /// Returns `true` if this connection reaches the memory of a process under this key.
    pub(crate) fn reaches(&self, offer: &NetworkOffer, key: RemoteKey) -> bool {
        key.nic == self.peer_nic && offer.is_of(self.process())
    }

    fn process(&self) -> Key {
        self.link.process()
    }

    /// Polls completions of the device.
    pub(crate) fn poll(&mut self) {
        loop {
            let mut failed = false;
            let (mut freed, mut credits) = (0, [None; 16]);
            let (outstanding, sends, changes) =
                (&mut self.outstanding, &mut self.sends, &mut self.changes);
            let (replies, atomics) = (&mut self.replies, &self.atomics);
            let polled = self.qp.poll(|Completion { id, result }| {
                failed |= result.is_err();
                let kind = id & KIND;
                if kind == RECEIVE {
                    if let Some(slot) = credits.get_mut(freed) {
                        *slot = result.ok().map(|received| (id as u32, received));
                        freed += 1;
                    }
                    return;
                }
                *outstanding = outstanding.saturating_sub(1);
                match kind {
                    SEND_FROM_BUFFER => sends.0 = sends.0.saturating_sub(1),
                    ACCESS => replies.push_back(result.map(|_| 0)),
                    ATOMIC => {
                        changes.0 = changes.0.saturating_sub(1);
                        let at = atomics.at(id as u32 as usize);
                        // SAFETY: the device has written 8 bytes to the aligned buffer, and does not write again.
                        replies.push_back(result.map(|_| unsafe { at.cast::<u64>().read() }));
                    }
                    _ => {}
                }
            });
            for (index, received) in credits[..freed].iter().copied().flatten() {
                failed |= self.take_credits(index, received).is_err();
            }
            if failed || polled.is_err() {
                self.end.get_or_insert(self.companion.fail());
            }
            if !matches!(polled, Ok(1..)) {
                return;
            }
        }
    }

    fn take_credits(&mut self, index: u32, received: Received) -> Result<()> {
        let mut message = [0; CREDIT];
        // SAFETY: a buffer has so many bytes, and its owner is this until it is posted again.
        unsafe {
            let from = self.credit_buffers.at(index as usize);
            std::ptr::copy_nonoverlapping(from, message.as_mut_ptr(), CREDIT);
        }
        let (receives, buffers) = (word(&message, 4), word(&message, 8));
        if received.len as usize != CREDIT || message[0] != CREDITS || buffers > SLOTS - self.room {
            return Err(broken(format_args!("credits that make no sense")));
        }
        if receives > 0 {
            self.credits = self.credits.saturating_add(u64::from(receives));
            self.asked = false;
        }
        self.room += buffers;
        let id = RECEIVE | u64::from(index);
        // SAFETY: its message was taken, and the buffers are dropped after the queue pair.
        unsafe {
            self.qp
                .post_receive(&self.credit_buffers, index as usize, id)
        }
    }

    /// Handles a descriptor that is readable or closed; returns `false` if the end was already known.
    pub(crate) fn set_readable(&mut self) -> bool {
        self.qp.take_events();
        let was_open = self.companion.look();
        if let Some(end) = self.companion.end {
            self.poll();
            self.end.get_or_insert(end);
        }
        was_open
    }

    /// Descriptors that signal completions and the end of the connection.
    pub(crate) fn sockets(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.qp.events()), self.companion.socket()]
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.companion.socket()
    }

    /// Returns `true` if `requests` fit in the queue, and the receiver has buffers for `messages` of them. The last buffer
    /// is reserved for the request for receives.
    fn has_room(&mut self, messages: u32) -> bool {
        let has = |outbox: &Self| {
            outbox.outstanding < SENDS - 1 && (messages == 0 || outbox.room > messages)
        };
        has(self) || {
            self.poll();
            has(self)
        }
    }

    fn count(&mut self, posted: Result<()>, messages: u32) -> Result<()> {
        match posted {
            Ok(()) => {
                self.outstanding += 1;
                self.room -= messages;
                Ok(())
            }
            Err(_) => {
                self.end.get_or_insert(Peer::Lost);
                Err(Error::ConnectionReset)
            }
        }
    }

    fn send_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Result<()> {
        let posted = post_inline(&self.qp, bytes, immediate);
        self.count(posted, 1)
    }

    /// Writes the pieces to remote memory, with an immediate value that takes the receive that was reserved, or reads
    /// into them. `Again` means that the queue is full.
    ///
    /// # Safety
    /// The pieces are registered memory that does not change until the reply, or this is dropped.
    pub(crate) unsafe fn access(
        &mut self,
        opcode: Opcode,
        pieces: &[Sge],
        immediate: u32,
        remote: (u64, u32),
    ) -> Result<()> {
        let messages = u32::from(opcode == Opcode::WriteImmediate);
        if !self.has_room(messages) {
            return Err(Error::Again);
        }
        let request = WorkRequest {
            immediate,
            remote,
            ..WorkRequest::new(ACCESS, opcode, pieces)
        };
        // SAFETY: the caller's promise.
        let posted = unsafe { self.qp.post(&request) };
        self.count(posted, messages)?;
        self.reserved &= messages == 0;
        Ok(())
    }

    /// Modifies a word of remote memory; the reply contains the old value. `Again` means that the queue is full.
    pub(crate) fn change(
        &mut self,
        opcode: Opcode,
        operands: [u64; 2],
        remote: (u64, u32),
    ) -> Result<()> {
        if !self.has_room(0) || self.changes.0 == ATOMICS {
            return Err(Error::Again);
        }
        let index = self.changes.1;
        let pieces = [Sge {
            addr: self.atomics.at(index).addr() as u64,
            length: size_of::<u64>() as u32,
            lkey: self.atomics.lkey(),
        }];
        let request = WorkRequest {
            operands,
            remote,
            ..WorkRequest::new(ATOMIC | index as u64, opcode, &pieces)
        };
        // SAFETY: the buffer is dropped after the queue pair, and free: they are used in turn, and complete in order.
        let posted = unsafe { self.qp.post(&request) };
        self.count(posted, 0)?;
        self.changes = (self.changes.0 + 1, (index + 1) % ATOMICS);
        Ok(())
    }

    /// The next reply to an access: the old value of a word, or its error.
    pub(crate) fn next_reply(&mut self) -> Option<Result<u64>> {
        if self.replies.is_empty() {
            self.poll();
        }
        self.replies.pop_front()
    }
}

impl Outbox for VerbsOutbox {
    fn reserve_receive(&mut self) -> bool {
        if self.reserved {
            return true;
        }
        if self.credits == 0 {
            self.poll();
        }
        if self.credits > 0 {
            self.credits -= 1;
            self.reserved = true;
        } else if !self.asked && self.room > 0 && self.outstanding < SENDS {
            self.asked = self.send_inline(&header(WANT, 0, 0, 0), None).is_ok();
        }
        self.reserved
    }

    fn max_fragment(&self) -> usize {
        MOST
    }

    unsafe fn send_small(&mut self, src: *const u8, len: usize) -> Result<()> {
        if !self.has_room(1) || !self.reserve_receive() {
            return Err(Error::Again);
        }
        let mut bytes = [0; INLINE];
        let len = len.min(SMALL);
        bytes[..HEADER].copy_from_slice(&header(FRAGMENT, FIRST, 0, len as u32));
        // SAFETY: guaranteed by the caller; there is space for the longest message.
        unsafe { std::ptr::copy_nonoverlapping(src, bytes[HEADER..].as_mut_ptr(), len) };
        self.send_inline(&bytes[..HEADER + len], None)?;
        self.reserved = false;
        Ok(())
    }

    unsafe fn push(
        &mut self,
        immediate: Option<&[u8]>,
        len: usize,
        first: bool,
        more: bool,
        fill: Fill<'_>,
    ) -> Result<()> {
        if !self.has_room(1) || self.sends.0 == SEND_BUFFERS {
            return Err(Error::Again);
        }
        // A 4-byte value is the immediate of the send; longer data is part of the message.
        let immediate = immediate.unwrap_or_default();
        let value = immediate.try_into().ok().map(u32::from_ne_bytes);
        let in_message = if value.is_some() { &[] } else { immediate };
        let (flags, index) = (
            if first { FIRST } else { 0 } | if more { MORE } else { 0 },
            self.sends.1,
        );
        let total = HEADER + in_message.len() + len;
        if total > SLOT {
            return Err(Error::Unexpected);
        }
        let buffer = self.send_buffers.at(index);
        let head = header(FRAGMENT, flags, in_message.len(), len as u32);
        let mut done = 0;
        let mut append = |from: *const u8, part: usize| {
            let part = part.min(total - done);
            // SAFETY: the caller guarantees that `from` is readable; the buffer has `SLOT` bytes, is no longer being
            // sent, and has no other user.
            unsafe { std::ptr::copy_nonoverlapping(from, buffer.add(done), part) };
            done += part;
        };
        append(head.as_ptr(), head.len());
        append(in_message.as_ptr(), in_message.len());
        fill(&mut append)?;
        if done != total {
            return Err(Error::Unexpected);
        }
        let pieces = [Sge {
            addr: buffer.addr() as u64,
            length: total as u32,
            lkey: self.send_buffers.lkey(),
        }];
        let request = WorkRequest {
            immediate: value.unwrap_or(0),
            ..WorkRequest::new(SEND_FROM_BUFFER, send_opcode(value), &pieces)
        };
        // SAFETY: the buffer stays as it is until it is used again, after the completion: they are used in turn, and complete in order.
        let posted = unsafe { self.qp.post(&request) };
        self.count(posted, 1)?;
        self.sends = (self.sends.0 + 1, (index + 1) % SEND_BUFFERS);
        self.reserved &= !first;
        Ok(())
    }

    fn peer(&self) -> Peer {
        match self.end {
            Some(end) => end,
            None if self.link.is_gone() => Peer::Lost,
            None => Peer::Present,
        }
    }

    fn liveness(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn arm(&mut self) {
        self.qp.arm();
    }

    fn disarm(&mut self) {}
}

impl Drop for VerbsOutbox {
    fn drop(&mut self) {
        // The end must follow all messages and requests.
        let begin = Instant::now();
        while self.peer() == Peer::Present && self.outstanding > 0 && begin.elapsed() < TIMEOUT {
            self.poll();
            std::thread::yield_now();
        }
        if self.peer() != Peer::Lost {
            self.companion.close();
        }
    }
}
