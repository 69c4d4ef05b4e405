//! Memory of this process that peers on other machines access, and the thread that serves a peer's requests without
//! progress by the program.
//!
//! Requests and replies have the agent's format (`protocol`), and are processed in order. The payload of a write goes
//! from the socket to memory, and the payload of a read from memory to the socket, by system calls: memory that the
//! program has unmapped fails the request instead of crashing the process. Replies are collected until no request is
//! pending.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use super::super::Deadline;
use super::super::protocol::{self, Export, Operation, ReplyHeader, RequestHeader, Rights};
use super::super::server::lock;
use super::listener::Listener;
use super::stream::{MOST_PIECES, Piece, Stream};
use crate::error::{Error, Result};
use crate::runtime::Key;
use crate::verbs::{Nic, Region, RemoteKey, RemoteRights};

/// Maximum payload of a request in bytes: the largest RDMA message.
const LONGEST: u64 = 2 << 30;
/// Bytes that are moved at a time if the memory is not contiguous.
const BOUNCE: usize = 64 * 1024;
/// Maximum number of collected replies.
const MOST_REPLIES: usize = 32;
/// Maximum number of exports cached by a connection.
const MOST_EXPORTS: usize = 64;
/// Receive timeout, in effect unlimited: the kernel's keepalive detects an unreachable peer.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
/// Number of polls of an empty socket before the thread sleeps.
const LOOKS: u32 = 4;

/// Echoes heartbeats.
pub(super) fn liveness(stream: &Stream) -> Result<()> {
    let mut bytes = [0; 16];
    loop {
        match stream.receive_into(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(len) => stream.send_all(&bytes[..len], Deadline::after(FOREVER))?,
            Err(Error::Again) => wait(stream)?,
            Err(error) => return Err(error),
        }
    }
}

fn wait(stream: &Stream) -> Result<()> {
    match stream.wait_readable(Deadline::after(FOREVER)) {
        Err(Error::TimeOut) => Ok(()),
        waited => waited,
    }
}

/// Memory that the program has registered, and may have unmapped.
fn exported(start: *mut u8, len: usize) -> Piece {
    Piece {
        start,
        len,
        exported: true,
    }
}

/// Returns the local pointer to bytes of an export, from their address and length.
type PointerTo<'a> = dyn Fn(u64, u64) -> Option<*mut u8> + 'a;

struct Reply {
    header: [u8; ReplyHeader::SIZE],
    /// Memory that follows: index of its export, address and length.
    memory: Option<(usize, u64, usize)>,
}

struct Serving<'a> {
    listener: &'a Listener,
    stream: Stream,
    exports: Vec<(Key, Arc<Exposed>)>,
    /// The next request, and the number of its bytes received.
    head: [u8; RequestHeader::SIZE],
    have: usize,
    replies: Vec<Reply>,
    /// Bytes of the first reply that have been sent.
    sent: usize,
    bounce: Vec<u8>,
}

/// Serves memory requests until the peer closes the connection.
///
/// # Errors
/// [`Error::ConnectionReset`] when the connection is lost, [`Error::InvalidValue`] when the peer violates the protocol.
pub(super) fn memory(listener: &Listener, stream: Stream) -> Result<()> {
    let mut serving = Serving {
        listener,
        stream,
        exports: Vec::new(),
        head: [0; RequestHeader::SIZE],
        have: 0,
        replies: Vec::with_capacity(MOST_REPLIES),
        sent: 0,
        bounce: Vec::new(),
    };
    while let Some(request) = serving.next_request()? {
        serving.serve(&request)?;
        if serving.replies.len() >= MOST_REPLIES {
            serving.flush()?;
        }
    }
    serving.flush()
}

impl Serving<'_> {
    fn next_request(&mut self) -> Result<Option<RequestHeader>> {
        let mut looks = 0;
        while self.have < self.head.len() {
            match self.stream.receive_into(&mut self.head[self.have..]) {
                Ok(0) if self.have == 0 => return Ok(None),
                Ok(0) => return Err(Error::ConnectionReset),
                Ok(received) => self.have += received,
                Err(Error::Again) if !self.replies.is_empty() => self.flush()?,
                Err(Error::Again) if looks < LOOKS => {
                    looks += 1;
                    std::thread::yield_now();
                }
                Err(Error::Again) => wait(&self.stream)?,
                Err(error) => return Err(error),
            }
        }
        self.have = 0;
        let request = RequestHeader::decode(&self.head)?;
        if request.len > LONGEST {
            return Err(Error::InvalidValue);
        }
        Ok(Some(request))
    }

    fn serve(&mut self, request: &RequestHeader) -> Result<()> {
        let export = self.export(request.key)?;
        match request.operation {
            Operation::Write => self.write(export, request),
            Operation::Read => self.read(export, request),
            operation => {
                let value = export.and_then(|(_, exposed)| on_word(&exposed, operation, request));
                self.reply(value);
                Ok(())
            }
        }
    }

    /// Returns the export and its index, or the error with which the request fails.
    #[allow(
        clippy::type_complexity,
        reason = "the outer result ends the connection, the inner one is answered"
    )]
    fn export(&mut self, key: Key) -> Result<Result<(usize, Arc<Exposed>)>> {
        if let Some(index) = self.exports.iter().position(|(known, _)| *known == key) {
            return Ok(Ok((index, Arc::clone(&self.exports[index].1))));
        }
        let exposed = match self.listener.exposed(key) {
            Ok(exposed) => exposed,
            Err(error) => return Ok(Err(error)),
        };
        if self.exports.len() >= MOST_EXPORTS {
            self.flush()?;
            self.exports.clear();
        }
        self.exports.push((key, Arc::clone(&exposed)));
        Ok(Ok((self.exports.len() - 1, exposed)))
    }

    fn reply(&mut self, result: Result<u64>) {
        self.replies.push(Reply {
            header: header(result),
            memory: None,
        });
    }

    /// Receives the payload of a write.
    fn write(
        &mut self,
        export: Result<(usize, Arc<Exposed>)>,
        request: &RequestHeader,
    ) -> Result<()> {
        let checked = export.and_then(|(_, exposed)| {
            if !exposed.rights().write {
                return Err(Error::NotPermitted);
            }
            exposed.check(request.addr, request.len)?;
            Ok(exposed)
        });
        // Cannot overflow: at most 2 GiB.
        let len = request.len as usize;
        let mut done = 0;
        let mut result = checked.as_ref().map(|_| 0).map_err(|error| *error);
        while done < len {
            let received = match (&checked, &result) {
                (Ok(exposed), Ok(_)) => {
                    let exposed = Arc::clone(exposed);
                    self.place(&exposed, request.addr + done as u64, len - done)
                }
                _ => Ok(Err(Error::Skipped)),
            };
            match received {
                Ok(Ok(received)) => {
                    if received > len - done {
                        self.have = received - (len - done);
                    }
                    done += received.min(len - done);
                }
                // The rest is discarded.
                Ok(Err(error)) => {
                    if result.is_ok() {
                        result = Err(error);
                    }
                    match self.discard(len - done) {
                        Ok(received) => done += received,
                        Err(Error::Again) => self.wait_for_payload()?,
                        Err(error) => return Err(error),
                    }
                }
                Err(Error::Again) => self.wait_for_payload()?,
                Err(error) => return Err(error),
            }
        }
        self.reply(result);
        Ok(())
    }

    /// Receives some of the `len` bytes for `addr`, and the next request after them. The inner error is that of the
    /// request.
    fn place(&mut self, exposed: &Exposed, addr: u64, len: usize) -> Result<Result<usize>> {
        let (stream, head) = (&self.stream, Piece::of_mut(&mut self.head));
        let mut of_connection = None;
        let placed = exposed.with(|memory| {
            let Some(start) = memory.pointer(addr, len as u64) else {
                return Ok(None);
            };
            // SAFETY: inside of a range that the program registered as writable by its peers and keeps valid while it is exported, which
            // it is while this runs; `head` is a field of this.
            match unsafe { stream.receive(&[exported(start, len), head]) } {
                Ok(0) => of_connection = Some(Error::ConnectionReset),
                Ok(received) => return Ok(Some(received)),
                Err(error @ Error::InvalidValue) => return Err(error),
                Err(error) => of_connection = Some(error),
            }
            Ok(Some(0))
        });
        if let Some(error) = of_connection {
            return Err(error);
        }
        match placed {
            Ok(Some(received)) => Ok(Ok(received)),
            Ok(None) => {
                let received = self.discard(len)?;
                let from = self.bounce.as_ptr();
                // SAFETY: `discard` has filled so many bytes of the buffer.
                let written = exposed.with(|memory| unsafe { memory.write(addr, from, received) });
                Ok(written.map(|()| received))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Receives at most `len` bytes of a payload into the bounce buffer.
    fn discard(&mut self, len: usize) -> Result<usize> {
        self.bounce.resize(BOUNCE, 0);
        match self
            .stream
            .receive_into(&mut self.bounce[..len.min(BOUNCE)])
        {
            Ok(0) => Err(Error::ConnectionReset),
            received => received,
        }
    }

    fn wait_for_payload(&mut self) -> Result<()> {
        self.flush()?;
        wait(&self.stream)
    }

    fn read(
        &mut self,
        export: Result<(usize, Arc<Exposed>)>,
        request: &RequestHeader,
    ) -> Result<()> {
        let len = request.len as usize;
        let checked = export.and_then(|(index, exposed)| {
            if !exposed.rights().read {
                return Err(Error::NotPermitted);
            }
            exposed.check(request.addr, request.len)?;
            let in_one_run =
                exposed.with(|memory| Ok(memory.pointer(request.addr, request.len).is_some()))?;
            Ok((index, exposed, in_one_run))
        });
        match checked {
            Ok((index, _, true)) => {
                self.replies.push(Reply {
                    header: header(Ok(0)),
                    memory: Some((index, request.addr, len)),
                });
                Ok(())
            }
            Ok((_, exposed, false)) => self.read_in_pieces(&exposed, request.addr, len),
            Err(error) => {
                self.reply(Err(error));
                Ok(())
            }
        }
    }

    /// Sends memory that is not contiguous. An error after the first part ends the connection.
    fn read_in_pieces(&mut self, exposed: &Exposed, addr: u64, len: usize) -> Result<()> {
        self.bounce.resize(BOUNCE, 0);
        let mut done = 0;
        while done < len {
            let part = BOUNCE.min(len - done);
            let to = self.bounce.as_mut_ptr();
            // SAFETY: the buffer has so many bytes.
            let read = exposed.with(|memory| unsafe { memory.read(addr + done as u64, to, part) });
            match read {
                Ok(()) => {}
                Err(error) if done == 0 => {
                    self.reply(Err(error));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            let deadline = Deadline::after(FOREVER);
            if done == 0 {
                self.flush()?;
                self.stream.send_all(&header(Ok(0)), deadline)?;
            }
            self.stream.send_all(&self.bounce[..part], deadline)?;
            done += part;
        }
        Ok(())
    }

    /// Sends all replies.
    fn flush(&mut self) -> Result<()> {
        while !self.replies.is_empty() {
            match self.send() {
                Ok(()) => {}
                Err(Error::Again) => {
                    self.stream.wait_writable(false, Deadline::after(FOREVER))?;
                }
                Err(error) => return Err(error),
            }
        }
        self.stream.flush_all(Deadline::after(FOREVER))
    }

    /// Sends replies with memory of one export.
    fn send(&mut self) -> Result<()> {
        let export = self
            .replies
            .iter()
            .find_map(|reply| reply.memory.map(|(index, ..)| index));
        let sent = match export {
            None => self.send_run(None),
            Some(index) => {
                let exposed = Arc::clone(&self.exports[index].1);
                let sent = exposed.with(|memory| {
                    self.send_run(Some((index, &|addr, len| memory.pointer(addr, len))))
                });
                if let Err(error @ (Error::InvalidValue | Error::NotFound)) = sent {
                    return self.fail_first(index, error);
                }
                sent
            }
        };
        self.sent += sent?;
        let mut whole = 0;
        for reply in &self.replies {
            let len = reply.header.len() + reply.memory.map_or(0, |(.., len)| len);
            if self.sent < len {
                break;
            }
            self.sent -= len;
            whole += 1;
        }
        self.replies.drain(..whole);
        Ok(())
    }

    /// Fails the first reply with memory, which belongs to this export and is no longer available.
    fn fail_first(&mut self, index: usize, error: Error) -> Result<()> {
        let place = self
            .replies
            .iter()
            .position(|reply| matches!(reply.memory, Some((of, ..)) if of == index));
        match place {
            // The header may already have been sent.
            Some(0) if self.sent > 0 => Err(Error::ConnectionReset),
            Some(place) => {
                self.replies[place] = Reply {
                    header: header(Err(error)),
                    memory: None,
                };
                Ok(())
            }
            None => Err(Error::Unexpected),
        }
    }

    /// Sends replies up to the first one with memory of another export.
    fn send_run(&self, export: Option<(usize, &PointerTo<'_>)>) -> Result<usize> {
        let (mut pieces, mut count, mut skip) = ([Piece::NONE; MOST_PIECES], 0, self.sent);
        for reply in &self.replies {
            if count + 2 > MOST_PIECES {
                break;
            }
            let memory = match (reply.memory, export) {
                (None, _) => None,
                (Some((index, addr, len)), Some((of, pointer))) if of == index => {
                    match pointer(addr, len as u64) {
                        Some(start) => Some(exported(start, len)),
                        // Earlier replies are sent first.
                        None if count > 0 => break,
                        None => return Err(Error::NotFound),
                    }
                }
                _ => break,
            };
            for piece in [Some(Piece::of(&reply.header)), memory]
                .into_iter()
                .flatten()
            {
                if skip >= piece.len {
                    skip -= piece.len;
                    continue;
                }
                pieces[count] = piece.skip(skip);
                (count, skip) = (count + 1, 0);
            }
        }
        self.stream.send(&pieces[..count])
    }
}

fn header(result: Result<u64>) -> [u8; ReplyHeader::SIZE] {
    ReplyHeader {
        result: result.map(|_| ()),
        value: result.unwrap_or(0),
    }
    .encode()
}

/// Operations on a single word.
fn on_word(exposed: &Exposed, operation: Operation, request: &RequestHeader) -> Result<u64> {
    exposed.check(request.addr, request.len)?;
    match operation {
        // The rights in the peer's descriptor may have been modified in transit.
        Operation::Describe if !exposed.is_all_of(request.addr, request.len) => {
            Err(Error::InvalidValue)
        }
        Operation::Describe if exposed.rights().include(request.operands[0]) => {
            Ok(exposed.remote_key())
        }
        Operation::FetchAdd | Operation::CompareSwap if exposed.rights().atomic => {
            exposed.check(request.addr, 8)?;
            if !request.addr.is_multiple_of(8) {
                return Err(Error::InvalidValue);
            }
            exposed.with(|memory| match operation {
                Operation::FetchAdd => memory.fetch_add(request.addr, request.operands[0]),
                _ => memory.compare_swap(request.addr, request.operands[0], request.operands[1]),
            })
        }
        Operation::Describe | Operation::FetchAdd | Operation::CompareSwap => {
            Err(Error::NotPermitted)
        }
        _ => Err(Error::NotSupported),
    }
}

/// Memory that a thread of this process accesses for a peer. Ranges have been checked.
pub(crate) trait Memory: Send + Sync {
    /// Returns the `len` bytes at `addr` if they are contiguous in this process; they are then accessed by system calls
    /// only.
    fn pointer(&self, addr: u64, len: u64) -> Option<*mut u8>;

    /// Copies bytes that are not mapped in this process.
    ///
    /// # Errors
    /// [`Error::NotFound`] when their owner has ended or withdrawn them.
    ///
    /// # Safety
    /// The `len` bytes at `to` are the caller's to write.
    unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()>;

    /// Copies to bytes that are not mapped in this process, as [`Memory::read`].
    ///
    /// # Safety
    /// The `len` bytes at `from` can be read.
    unsafe fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()>;

    /// Adds to the u64 at `addr`; returns the old value.
    fn fetch_add(&self, addr: u64, value: u64) -> Result<u64>;

    /// Replaces the u64 at `addr` if it is `expected`; returns the old value.
    fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64>;
}

/// Memory that the program has registered: all of it is in this process.
impl Memory for Export {
    fn pointer(&self, addr: u64, len: u64) -> Option<*mut u8> {
        Export::pointer(self, addr, len).ok()
    }

    unsafe fn read(&self, _: u64, _: *mut u8, _: usize) -> Result<()> {
        Err(Error::Unexpected)
    }

    unsafe fn write(&self, _: u64, _: *const u8, _: usize) -> Result<()> {
        Err(Error::Unexpected)
    }

    fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        self.atomic(addr, protocol::fetch_add(value))
    }

    fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        self.atomic(addr, protocol::compare_swap(expected, new))
    }
}

/// A range of memory under one key.
pub(super) struct Exposed {
    rights: Rights,
    addr: u64,
    len: u64,
    memory: Box<dyn Memory>,
    /// Held for reading by each access, so that none continues after the withdrawal.
    withdrawn: RwLock<bool>,
    /// The range, if it is registered with an RDMA device.
    region: Mutex<Option<Region>>,
}

impl Exposed {
    pub(super) fn new(rights: Rights, (addr, len): (u64, u64), memory: Box<dyn Memory>) -> Exposed {
        Exposed {
            rights,
            addr,
            len,
            memory,
            withdrawn: RwLock::new(false),
            region: Mutex::new(None),
        }
    }

    /// Registers the range with an RDMA device, if it is contiguous and the device accepts it. Otherwise peers access it
    /// over TCP only.
    ///
    /// This is not done at the start of the memory map: registered memory is locked, and only an export for the network
    /// needs it.
    pub(super) fn register(&self, nic: &'static Nic) {
        let Ok(len) = usize::try_from(self.len) else {
            return;
        };
        if let Some(start) = self.memory.pointer(self.addr, self.len) {
            let rights = RemoteRights {
                read: self.rights.read,
                write: self.rights.write,
                atomic: self.rights.atomic,
            };
            *lock(&self.region) = nic.expose(start, (self.addr, len), rights).ok();
        }
    }

    /// Key of the range for peers with an RDMA device, as [`RemoteKey::to_word`]; 0 if it is not registered.
    pub(super) fn remote_key(&self) -> u64 {
        lock(&self.region).as_ref().map_or(0, |region| {
            let key = RemoteKey {
                nic: region.nic().number(),
                rkey: region.rkey(),
                has_atomics: region.nic().has_atomics(),
            };
            key.to_word()
        })
    }

    pub(super) fn rights(&self) -> Rights {
        self.rights
    }

    /// Ends all access. Waits for accesses in progress: a system call that does not block, or requests that an RDMA
    /// device is serving.
    pub(super) fn withdraw(&self) {
        drop(lock(&self.region).take());
        *self
            .withdrawn
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Returns [`Error::InvalidValue`] unless the range is inside of the export.
    pub(super) fn check(&self, addr: u64, len: u64) -> Result<()> {
        addr.checked_sub(self.addr)
            .filter(|offset| *offset <= self.len && len <= self.len - *offset)
            .map(|_| ())
            .ok_or(Error::InvalidValue)
    }

    /// Returns `true` if this is the whole range.
    fn is_all_of(&self, addr: u64, len: u64) -> bool {
        (addr, len) == (self.addr, self.len)
    }

    /// Calls `action` with the memory, which stays valid during the call: it must not block.
    pub(super) fn with<T>(&self, action: impl FnOnce(&dyn Memory) -> Result<T>) -> Result<T> {
        let withdrawn = self
            .withdrawn
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if *withdrawn {
            return Err(Error::NotFound);
        }
        action(&*self.memory)
    }
}
