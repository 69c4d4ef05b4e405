//! The transport between processes of different machines: frames over a TCP connection per direction.
//!
//! The receiver offers the connection's key to the network, and the sender requests it. Frames from the sender:
//!
//! ```text
//!    0  u8 kind: 1 fragment, 2 end, 3 a message waits for a receive
//!    1  u8 flags of a fragment: 1 first of its message, 2 more follow, 4 with immediate data
//!    2  u16 bytes of immediate data
//!    4  u32 bytes of data; immediate data and data follow
//! ```
//!
//! Frames from the receiver, in the same format: 2 end, 4 credits (the number of additional receives, in place of the
//! length). Integers are little endian. As on iWARP, messages are untagged and consume posted receives in order; memory
//! is read and written over other connections.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::credits::Grants;
use super::shared_memory::SharedInbox;
use super::{Fill, Fragment, Inbox, Outbox, Peer};
use crate::agent::{Link, Stream, close_after_delivery, is_in_progress, send_within};
use crate::error::{Error, Result};

const HEADER: usize = 8;
const FRAGMENT: u8 = 1;
const END: u8 = 2;
const WANT: u8 = 3;
const CREDITS: u8 = 4;

const FIRST: u8 = 1;
const MORE: u8 = 2;
const IMMEDIATE: u8 = 4;

/// Maximum size of a fragment in bytes, including immediate data.
const MOST: usize = 32 * 1024;
/// Maximum size of immediate data in bytes.
const MOST_IMMEDIATE: usize = 8;
/// Size of a receiver's stream buffer, in bytes.
const BUFFER: usize = 2 * (HEADER + MOST);
/// Maximum number of bytes that a sender queues.
const UNSENT: usize = 256 * 1024;
/// Time limit for sending queued bytes at the end of a connection.
const TIMEOUT: Duration = Duration::from_millis(500);

fn frame(kind: u8, flags: u8, immediate: usize, len: u32) -> [u8; HEADER] {
    let [a, b, c, d] = len.to_le_bytes();
    // At most 8.
    [kind, flags, immediate as u8, 0, a, b, c, d]
}

/// Announces `count` receives to a sender that has just connected; returns the announced number, 0 on failure.
pub(super) fn grant(stream: &Stream, count: u64) -> u64 {
    let announced = u32::try_from(count).unwrap_or(u32::MAX);
    match stream.send_from(&frame(CREDITS, 0, 0, announced)) {
        Ok(HEADER) => u64::from(announced),
        // The first bytes of a connection are sent immediately.
        _ => 0,
    }
}

fn broken(what: std::fmt::Arguments<'_>) -> Error {
    Error::ConnectionAborted.because(format_args!(
        "an RDMA peer on another machine broke the protocol: {what}"
    ))
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
    blocked: bool,
}

impl Output {
    fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends as much as fits.
    fn flush(&mut self, stream: &Stream) -> Result<()> {
        self.blocked = false;
        while self.unsent() > 0 {
            match stream.send_from(&self.bytes[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(Error::Again) => {
                    self.blocked = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if self.unsent() == 0 {
            self.bytes.clear();
            self.sent = 0;
            self.blocked = !stream.flush()?;
        } else if self.sent > UNSENT {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Sends the rest and the end frame, and closes the connection.
    fn close(&mut self, stream: Stream) {
        self.bytes.extend_from_slice(&frame(END, 0, 0, 0));
        if send_within(&stream, &self.bytes[self.sent..], TIMEOUT).is_ok() {
            close_after_delivery(stream);
        }
    }
}

#[derive(Clone, Copy)]
struct Current {
    fragment: Fragment,
    /// Byte offset of its immediate data.
    from: usize,
}

impl Current {
    fn immediate_len(&self) -> usize {
        self.fragment.immediate_len.unwrap_or(0)
    }

    fn data(&self) -> usize {
        self.from + self.immediate_len()
    }
}

/// Receives from a peer on another machine.
pub(crate) struct NetworkInbox {
    /// `Some` until drop.
    stream: Option<Stream>,
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
    current: Option<Current>,
    within_message: bool,
    readable: bool,
    end: Option<Peer>,
    grants: Grants,
    output: Output,
    /// The accepted offer: holds the slot in the pool of receives, and keeps the key in use.
    offered: Box<SharedInbox>,
}

impl NetworkInbox {
    /// The receiving end for a peer that has accepted an offer and to which `granted` receives were announced. `posted`
    /// receives have already been posted.
    pub(crate) fn new(
        offered: Box<SharedInbox>,
        (stream, granted): (Stream, u64),
        posted: usize,
    ) -> Result<Self> {
        let receives = offered.shared_receives()?;
        let mut inbox = Self {
            stream: Some(stream),
            buffer: vec![0; BUFFER].into(),
            from: 0,
            to: 0,
            current: None,
            within_message: false,
            readable: true,
            end: None,
            grants: Grants::new(granted, receives),
            output: Output::default(),
            offered,
        };
        inbox.post((posted as u64).saturating_sub(granted));
        Ok(inbox)
    }

    /// Announces receives to the sender.
    fn grant(&mut self, goes_on: bool) {
        if let Some(count) = self.grants.take(goes_on) {
            let frame = frame(CREDITS, 0, 0, count);
            self.output.bytes.extend_from_slice(&frame);
        }
    }

    /// The fragment at the front of the buffer, if it is complete.
    fn parse(&mut self) -> Result<Option<Current>> {
        if self.end == Some(Peer::Closed) {
            // Bytes after the end frame are ignored.
            return Ok(None);
        }
        while let Some(header) = self.buffer[self.from..self.to].first_chunk::<HEADER>() {
            let [kind, flags, immediate, zero, a, b, c, d] = *header;
            let (immediate, len) = (usize::from(immediate), u32::from_le_bytes([a, b, c, d]));
            match kind {
                FRAGMENT => {
                    let (len, first) = (len as usize, flags & FIRST != 0);
                    let has_immediate = flags & IMMEDIATE != 0;
                    if flags & !(FIRST | MORE | IMMEDIATE) != 0
                        || zero != 0
                        || immediate > MOST_IMMEDIATE
                        || (immediate > 0) != has_immediate
                        || len > MOST - immediate
                        || first == self.within_message
                    {
                        return Err(broken(format_args!("a fragment that makes no sense")));
                    }
                    if first && !self.grants.has_receive() {
                        return Err(broken(format_args!(
                            "a message for which there is no receive"
                        )));
                    }
                    if self.to - self.from < HEADER + immediate + len {
                        return Ok(None);
                    }
                    return Ok(Some(Current {
                        fragment: Fragment {
                            len,
                            immediate_len: has_immediate.then_some(immediate),
                            more: flags & MORE != 0,
                        },
                        from: self.from + HEADER,
                    }));
                }
                END => {
                    self.from += HEADER;
                    self.end = Some(Peer::Closed);
                    return Ok(None);
                }
                WANT => {
                    self.from += HEADER;
                    self.grants.want();
                    self.grant(true);
                }
                kind => return Err(broken(format_args!("a frame of kind {kind}"))),
            }
        }
        Ok(None)
    }

    fn receive(&mut self) -> Result<()> {
        let stream = self.stream.as_ref().ok_or(Error::ConnectionReset)?;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.buffer.len() - self.from < HEADER + MOST + MOST_IMMEDIATE {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        match stream.receive_into(&mut self.buffer[self.to..])? {
            0 => Err(Error::ConnectionReset),
            received => {
                self.to += received;
                Ok(())
            }
        }
    }

    /// Handles a socket that is readable or closed; returns `false` if it was already known to be closed.
    pub(crate) fn set_readable(&mut self) -> bool {
        self.readable = true;
        self.end.is_none()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Sends queued frames.
    pub(crate) fn flush(&mut self) {
        if let Some(stream) = &self.stream
            && (self.output.unsent() > 0 || !stream.is_flushed())
            && self.output.flush(stream).is_err()
        {
            self.end.get_or_insert(Peer::Lost);
        }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }
}

impl Inbox for NetworkInbox {
    fn post(&mut self, count: u64) {
        self.grants.post(count);
        self.grant(is_in_progress());
    }

    fn peek(&mut self) -> Result<Option<Fragment>> {
        loop {
            if self.current.is_none() {
                self.current = self.parse()?;
            }
            if let Some(current) = &self.current {
                return Ok(Some(current.fragment));
            }
            if !self.readable || self.end.is_some() {
                return Ok(None);
            }
            match self.receive() {
                Ok(()) => {}
                Err(Error::Again) => {
                    self.readable = false;
                    return Ok(None);
                }
                Err(_) => self.end = Some(Peer::Lost),
            }
        }
    }

    fn read_immediate(&self, to: &mut [u8]) {
        if let Some(current) = &self.current {
            let len = current.immediate_len().min(to.len());
            to[..len].copy_from_slice(&self.buffer[current.from..][..len]);
        }
    }

    unsafe fn read(&self, from: usize, dst: *mut u8, len: usize) {
        if let Some(current) = &self.current
            && let Some(bytes) = self.buffer.get(current.data() + from..)
        {
            let len = len.min(bytes.len());
            // SAFETY: the caller guarantees that `dst` is writable; the buffer is owned by this inbox.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, len) };
        }
    }

    fn advance(&mut self) {
        if let Some(current) = self.current.take() {
            if !self.within_message {
                self.grants.use_one();
                self.offered.count_message();
            }
            self.within_message = current.fragment.more;
            self.from = current.data() + current.fragment.len;
            self.grant(true);
        }
    }

    fn peer(&mut self) -> Peer {
        // Without posted receives, the socket is not polled otherwise, and the sender may have closed it.
        if self.readable && self.current.is_none() && self.peek().is_err() {
            self.end = Some(Peer::Lost);
        }
        self.end.unwrap_or(Peer::Present)
    }

    fn arm(&mut self) {
        self.grant(false);
        self.flush();
    }

    fn disarm(&mut self) {}
}

impl Drop for NetworkInbox {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take()
            && self.end != Some(Peer::Lost)
        {
            self.output.close(stream);
        }
    }
}

/// Sends to a peer on another machine.
pub(crate) struct NetworkOutbox {
    /// `Some` until drop.
    stream: Option<Stream>,
    link: Arc<Link>,
    bell: OwnedFd,
    output: Output,
    /// The next frame of the receiver, and the number of its bytes received.
    input: [u8; HEADER],
    have: usize,
    readable: bool,
    end: Option<Peer>,
    credits: u64,
    reserved: bool,
    /// The receiver has been notified that a message waits.
    asked: bool,
}

impl NetworkOutbox {
    /// The sending end over a connection to the peer.
    pub(super) fn over(stream: Stream, link: Arc<Link>, bell: OwnedFd) -> Self {
        Self {
            stream: Some(stream),
            bell,
            link,
            output: Output::default(),
            input: [0; HEADER],
            have: 0,
            readable: true,
            end: None,
            credits: 0,
            reserved: false,
            asked: false,
        }
    }

    /// Handles frames of the receiver.
    pub(crate) fn look(&mut self) {
        while self.readable && self.end.is_none() {
            match self.receive() {
                Ok(()) => {}
                Err(Error::Again) => self.readable = false,
                Err(_) => self.end = Some(Peer::Lost),
            }
        }
    }

    fn receive(&mut self) -> Result<()> {
        let stream = self.stream.as_ref().ok_or(Error::ConnectionReset)?;
        match stream.receive_into(&mut self.input[self.have..])? {
            0 => return Err(Error::ConnectionReset),
            received => self.have += received,
        }
        if self.have < HEADER {
            return Ok(());
        }
        self.have = 0;
        let [kind, _, _, _, a, b, c, d] = self.input;
        match kind {
            CREDITS => {
                let count = u64::from(u32::from_le_bytes([a, b, c, d]));
                self.credits = self.credits.saturating_add(count);
                self.asked = false;
            }
            END => self.end = Some(Peer::Closed),
            kind => return Err(broken(format_args!("an answer of kind {kind}"))),
        }
        Ok(())
    }

    /// Handles a socket that is readable or closed; returns `false` if it was already known to be closed.
    pub(crate) fn set_readable(&mut self) -> bool {
        self.readable = true;
        self.end.is_none()
    }

    /// Sends queued frames; returns `false` if not all of them have been sent.
    pub(crate) fn flush(&mut self) -> bool {
        if let Some(stream) = &self.stream
            && (self.output.unsent() > 0 || !stream.is_flushed())
            && self.output.flush(stream).is_err()
        {
            // Frames that the peer has sent before can still be received.
            self.readable = true;
            self.look();
            self.end.get_or_insert(Peer::Lost);
        }
        !self.output.blocked
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    fn room(&mut self) -> Result<()> {
        if self.output.unsent() > UNSENT {
            self.flush();
            if self.output.unsent() > UNSENT {
                return Err(Error::Again);
            }
        }
        Ok(())
    }
}

impl Outbox for NetworkOutbox {
    fn reserve_receive(&mut self) -> bool {
        if self.reserved {
            return true;
        }
        if self.credits == 0 {
            // Outside of progress the engine has not polled the socket.
            self.readable |= !is_in_progress();
            self.look();
        }
        if self.credits > 0 {
            self.credits -= 1;
            self.reserved = true;
        } else if !self.asked {
            self.asked = true;
            self.output.bytes.extend_from_slice(&frame(WANT, 0, 0, 0));
        }
        self.reserved
    }

    fn max_fragment(&self) -> usize {
        MOST
    }

    unsafe fn send_small(&mut self, src: *const u8, len: usize) -> Result<()> {
        self.room()?;
        if !self.reserve_receive() {
            return Err(Error::Again);
        }
        self.reserved = false;
        let header = frame(FRAGMENT, FIRST, 0, len as u32);
        self.output.bytes.extend_from_slice(&header);
        // SAFETY: the caller's promise.
        unsafe { append(&mut self.output.bytes, src, len) };
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
        self.room()?;
        let mut flags = 0;
        for (flag, is_set) in [
            (FIRST, first),
            (MORE, more),
            (IMMEDIATE, immediate.is_some()),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        let immediate = immediate.unwrap_or_default();
        let bytes = &mut self.output.bytes;
        let before = bytes.len();
        bytes.extend_from_slice(&frame(FRAGMENT, flags, immediate.len(), len as u32));
        bytes.extend_from_slice(immediate);
        let end = bytes.len() + len;
        // SAFETY: `fill` only gives readable memory.
        let filled = fill(&mut |from, part| unsafe { append(bytes, from, part) });
        let filled = filled.and(if bytes.len() == end {
            Ok(())
        } else {
            Err(Error::Unexpected)
        });
        if filled.is_err() {
            bytes.truncate(before);
        } else {
            self.reserved &= !first;
        }
        filled
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
        self.flush();
    }

    fn disarm(&mut self) {}
}

impl Drop for NetworkOutbox {
    fn drop(&mut self) {
        let is_lost = self.peer() == Peer::Lost;
        if let Some(stream) = self.stream.take()
            && !is_lost
        {
            self.output.close(stream);
        }
    }
}

/// Appends a copy of memory that others may write.
///
/// # Safety
/// `from` is readable for `len` bytes.
unsafe fn append(bytes: &mut Vec<u8>, from: *const u8, len: usize) {
    bytes.reserve(len);
    // SAFETY: there is space for `len` bytes after the present ones, and `from` is readable; concurrent writers write
    // other bytes, of which no value is invalid.
    unsafe {
        std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr().add(bytes.len()), len);
        bytes.set_len(bytes.len() + len);
    }
}

#[cfg(test)]
mod tests {
    //! Arbitrary bytes of a peer on another machine, in arbitrary pieces: the receiver decodes them as documented, in bounded
    //! memory.

    use std::time::Instant;

    use proptest::prelude::*;

    use super::super::shared_memory::SharedMemory;
    use super::*;
    use crate::ring::EventFd;

    /// A fragment with its immediate data and data.
    type Received = (Fragment, Vec<u8>, Vec<u8>);

    /// The ways in which a connection ends.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum End {
        Closed,
        /// Within a frame, or without an end frame.
        Lost,
        /// The sender has broken the protocol.
        Broken,
    }

    /// Fragments and end according to the documentation of the frames, for a receiver with `receives` receives.
    fn expected(mut bytes: &[u8], mut receives: u64) -> (Vec<Received>, End) {
        let (mut found, mut is_within) = (Vec::new(), false);
        while let Some((header, rest)) = bytes.split_first_chunk::<8>() {
            let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
            match header[0] {
                1 => {
                    let (flags, immediate) = (header[1], usize::from(header[2]));
                    let is_first = flags & 1 != 0;
                    let is_sound = flags < 8
                        && header[3] == 0
                        && immediate <= 8
                        && (flags & 4 != 0) == (immediate != 0)
                        && immediate + len <= 32 * 1024
                        && is_first != is_within
                        && (is_within || receives > 0);
                    if !is_sound {
                        return (found, End::Broken);
                    }
                    let Some((payload, rest)) = rest.split_at_checked(immediate + len) else {
                        return (found, End::Lost);
                    };
                    let fragment = Fragment {
                        len,
                        immediate_len: (immediate > 0).then_some(immediate),
                        more: flags & 2 != 0,
                    };
                    let (first, second) = payload.split_at(immediate);
                    found.push((fragment, first.to_vec(), second.to_vec()));
                    receives -= u64::from(is_first);
                    is_within = fragment.more;
                    bytes = rest;
                }
                2 => return (found, End::Closed),
                3 => bytes = rest,
                _ => return (found, End::Broken),
            }
        }
        (found, End::Lost)
    }

    /// A receiver with `receives` receives, and a socket of its sender.
    fn receiver(receives: usize) -> (SharedMemory, NetworkInbox, Stream) {
        let wake = Arc::new(EventFd::new().unwrap());
        let memory = SharedMemory::new(1, 16, &wake, None).unwrap();
        let (here, there) = crate::agent::stream_pair();
        let offered = Box::new(memory.offer(0).unwrap());
        let mut inbox = NetworkInbox::new(offered, (here, 0), receives).unwrap();
        inbox.flush();
        (memory, inbox, there)
    }

    /// Takes the available fragments.
    fn take(inbox: &mut NetworkInbox, found: &mut Vec<Received>) -> Result<()> {
        inbox.set_readable();
        while let Some(fragment) = inbox.peek()? {
            let (mut immediate, mut data) = (
                vec![0; fragment.immediate_len.unwrap_or(0)],
                vec![0; fragment.len],
            );
            inbox.read_immediate(&mut immediate);
            // SAFETY: the vector has so many bytes.
            unsafe { inbox.read(0, data.as_mut_ptr(), data.len()) };
            found.push((fragment, immediate, data));
            inbox.advance();
        }
        Ok(())
    }

    /// Fragments and end of a receiver that gets `bytes` in pieces of these sizes.
    fn received(bytes: &[u8], sizes: &[usize], receives: usize) -> (Vec<Received>, End) {
        let (_memory, mut inbox, sender) = receiver(receives);
        let mut found = Vec::new();
        let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
        while !rest.is_empty() {
            let size = sizes
                .next()
                .map_or(rest.len(), |size| rest.len().min(*size));
            let (piece, behind) = rest.split_at(size);
            assert_eq!(sender.send_from(piece), Ok(size), "it fits into the socket");
            rest = behind;
            if take(&mut inbox, &mut found).is_err() {
                return (found, End::Broken);
            }
            assert_eq!(inbox.buffer.len(), BUFFER);
            assert!(inbox.output.bytes.capacity() <= 1024);
            if inbox.has_ended() {
                break;
            }
        }
        sender.shut_down_output();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if take(&mut inbox, &mut found).is_err() {
                return (found, End::Broken);
            }
            match inbox.peer() {
                Peer::Closed => return (found, End::Closed),
                Peer::Lost => return (found, End::Lost),
                _ => assert!(Instant::now() < deadline, "no end"),
            }
        }
    }

    /// Generates the bytes of frames, most of which are valid.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
        let fragment = |is_first: bool| {
            (any::<bool>(), bytes(9), bytes(200)).prop_map(move |(more, immediate, data)| {
                let mut flags = u8::from(is_first) | u8::from(more) << 1;
                if !immediate.is_empty() {
                    flags |= 4;
                }
                let header = frame(FRAGMENT, flags, immediate.len(), data.len() as u32);
                [&header[..], &immediate, &data].concat()
            })
        };
        let long = (1_usize..4).prop_map(|quarters| {
            let data = vec![0x5a; quarters * 8 * 1024];
            let header = frame(FRAGMENT, FIRST, 0, data.len() as u32);
            [&header[..], &data].concat()
        });
        prop_oneof![
            8 => fragment(true),
            4 => fragment(false),
            2 => long,
            2 => Just(frame(WANT, 0, 0, 0).to_vec()),
            1 => Just(frame(END, 0, 0, 0).to_vec()),
            1 => any::<[u8; HEADER]>().prop_map(Vec::from),
            1 => bytes(12),
            1 => (0..4_u8, any::<u8>(), 0..10_u8, any::<u32>()).prop_map(|(kind, flags, immediate, len)| {
                frame(kind, flags, usize::from(immediate), len).to_vec()
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_decoded_as_documented(
            frames in proptest::collection::vec(frames(), 0..12),
            sizes in proptest::collection::vec(prop_oneof![1..20_usize, 1..40_000_usize], 1..8),
            receives in 0..8_usize,
        ) {
            let bytes = frames.concat();
            // Many pieces of a long input take a long time without testing more.
            let sizes: Vec<usize> = sizes.into_iter().map(|size| size.max(bytes.len() / 100)).collect();
            let expected = expected(&bytes, receives as u64);
            prop_assert_eq!(received(&bytes, &sizes, receives), expected);
        }

        #[test]
        fn any_answers_of_a_receiver_cost_no_memory(
            answers in proptest::collection::vec(any::<[u8; HEADER]>(), 0..20),
            sizes in proptest::collection::vec(1..20_usize, 1..4),
        ) {
            let (here, there) = crate::agent::stream_pair();
            let link = Link::example();
            let bell = link.bell().unwrap();
            let mut outbox = NetworkOutbox::over(here, link, bell);
            let (bytes, mut sizes) = (answers.concat(), sizes.iter().cycle());
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                // Fails after the end.
                let _ = there.send_from(piece);
                rest = behind;
                outbox.set_readable();
                outbox.look();
            }
            there.shut_down_output();
            let deadline = Instant::now() + Duration::from_secs(60);
            while outbox.end.is_none() {
                prop_assert!(Instant::now() < deadline, "no end");
                outbox.set_readable();
                outbox.look();
            }
            // Granted are the credits before the first frame of another kind.
            let credits = answers.iter().take_while(|answer| answer[0] == CREDITS).fold(0_u64, |sum, answer| {
                sum + u64::from(u32::from_le_bytes([answer[4], answer[5], answer[6], answer[7]]))
            });
            prop_assert_eq!(outbox.credits, credits);
            let other = answers.iter().find(|answer| answer[0] != CREDITS);
            let end = match other {
                Some([END, ..]) => Peer::Closed,
                _ => Peer::Lost,
            };
            prop_assert_eq!(outbox.end, Some(end));
            prop_assert_eq!(outbox.output.bytes.len(), 0);
        }
    }
}
