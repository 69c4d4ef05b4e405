//! Buf lists as sources and destinations: local memory may be scattered, remote memory is contiguous.

use super::transport::verbs::VerbsOutbox;
use crate::agent::{Lane, NetworkOffer, Piece};
use crate::buffer::{Buf, BufHandle};
use crate::error::{Error, Result};
use crate::memory::{ExportKind, Mmap, Permissions, copy};
use crate::verbs::{MOST_PIECES, Opcode, RemoteKey, Sge};

/// Size of the bounce buffer for local bufs in memory that is not mapped here (another host's, across PCIe).
const BOUNCE: usize = 4096;

/// Checks that local devices may use the memory, as the guide's table of permissions requires for sources and
/// destinations.
#[inline]
fn check_local(mmap: &Mmap) -> Result<()> {
    let usable = Permissions::LOCAL_READ_WRITE | Permissions::PCI;
    if mmap.permissions().intersects(usable) && mmap.import_kind() != Some(ExportKind::Rdma) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Checks that a peer has exported the memory for RDMA with this permission.
fn check_remote(mmap: &Mmap, wanted: Permissions) -> Result<()> {
    if mmap.permissions().contains(wanted) && mmap.import_kind() == Some(ExportKind::Rdma) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Prefetches the head of the list.
pub(super) fn prefetch(list: Option<&Buf>) {
    if let Some(buf) = list
        && let Ok(mmap) = buf.mmap()
    {
        mmap.prefetch(buf.data(), buf.data_len());
    }
}

/// Bytes of data in the list.
pub(super) fn data_len(list: Option<&Buf>) -> usize {
    list.map_or(0, Buf::list_data_len)
}

/// Checks that the list may be sent, before its first byte is.
pub(super) fn check_source(list: Option<&Buf>) -> Result<()> {
    list.into_iter()
        .flat_map(Buf::data_segments)
        .try_for_each(|segment| check_local(&segment.mmap))
}

/// Address of a list's data if it can be read in place: one buf of at most `most` bytes, in mapped memory.
///
/// # Errors
/// As [`check_source`].
#[inline]
pub(super) fn small_run(list: &Buf, most: usize) -> Result<Option<*const u8>> {
    let len = list.data_len();
    if len == 0 || len > most || list.next_in_list().is_some() {
        return Ok(None);
    }
    let mmap = list.mmap()?;
    check_local(&mmap)?;
    Ok(mmap
        .local_ptr(list.data(), len as u64)
        .map(<*mut u8>::cast_const))
}

/// Passes the `len` bytes of the list's data from byte `from` on to `write`. The list has been checked.
pub(super) fn with_data(
    list: Option<&Buf>,
    from: usize,
    len: usize,
    write: &mut dyn FnMut(*const u8, usize),
) -> Result<()> {
    let (mut skip, mut left) = (from, len);
    for segment in list.into_iter().flat_map(Buf::data_segments) {
        if left == 0 {
            break;
        }
        if skip >= segment.len {
            skip -= segment.len;
            continue;
        }
        let part = left.min(segment.len - skip);
        give(&segment.mmap, segment.addr + skip as u64, part, write)?;
        (skip, left) = (0, left - part);
    }
    Ok(())
}

fn give(mmap: &Mmap, addr: u64, len: usize, write: &mut dyn FnMut(*const u8, usize)) -> Result<()> {
    if let Some(pointer) = mmap.local_ptr(addr, len as u64) {
        write(pointer, len);
        return Ok(());
    }
    give_bounced(mmap, addr, len, write)
}

/// Variant for memory without a pointer in this process. A separate function, so that only it pays for the bounce
/// buffer on the stack.
#[cold]
#[inline(never)]
fn give_bounced(
    mmap: &Mmap,
    addr: u64,
    len: usize,
    write: &mut dyn FnMut(*const u8, usize),
) -> Result<()> {
    let mut bounce = [0; BOUNCE];
    for done in (0..len).step_by(BOUNCE) {
        let part = BOUNCE.min(len - done);
        // SAFETY: the array has `part` bytes.
        unsafe { mmap.read_into(addr + done as u64, bounce.as_mut_ptr(), part) }?;
        write(bounce.as_ptr(), part);
    }
    Ok(())
}

/// Appends `len` bytes to the list's data. `read(from, to, part)` writes those from byte `from` on to `to`, which is
/// valid for writing `part` bytes.
///
/// # Errors
/// [`Error::TooBig`] if they do not fit; no data is written in this case.
#[inline]
pub(super) fn fill_tail(
    list: &Buf,
    len: usize,
    mut read: impl FnMut(usize, *mut u8, usize),
) -> Result<()> {
    if list.next_in_list().is_none() && list.tail_len() >= len {
        let mmap = list.mmap()?;
        check_local(&mmap)?;
        let tail = list.data() + list.data_len() as u64;
        take(&mmap, tail, 0, len, &mut read)?;
        list.grow(len);
        return Ok(());
    }
    if list.list_tail_len() < len {
        return Err(Error::TooBig);
    }
    let mut done = 0;
    for segment in list.tail_segments() {
        if done == len {
            break;
        }
        let part = segment.len.min(len - done);
        check_local(&segment.mmap)?;
        take(&segment.mmap, segment.addr, done, part, &mut read)?;
        done += part;
    }
    list.append(done)
}

#[inline(always)]
fn take(
    mmap: &Mmap,
    addr: u64,
    from: usize,
    len: usize,
    read: &mut impl FnMut(usize, *mut u8, usize),
) -> Result<()> {
    if !mmap.is_writable() {
        return Err(Error::NotPermitted);
    }
    if let Some(pointer) = mmap.local_ptr(addr, len as u64) {
        read(from, pointer, len);
        return Ok(());
    }
    take_bounced(mmap, addr, from, len, read)
}

/// As [`give_bounced`], in the other direction.
#[cold]
#[inline(never)]
fn take_bounced(
    mmap: &Mmap,
    addr: u64,
    from: usize,
    len: usize,
    read: &mut impl FnMut(usize, *mut u8, usize),
) -> Result<()> {
    let mut bounce = [0; BOUNCE];
    for done in (0..len).step_by(BOUNCE) {
        let part = BOUNCE.min(len - done);
        read(from + done, bounce.as_mut_ptr(), part);
        // SAFETY: the array has `part` bytes.
        unsafe { mmap.write_from(addr + done as u64, bounce.as_ptr(), part) }?;
    }
    Ok(())
}

/// Appends the data of a remote buf (only the head of a list is used) to a local list; returns the number of bytes.
pub(super) fn read_remote(source: &Buf, destination: &Buf) -> Result<usize> {
    let (remote, len) = (source.mmap()?, source.data_len());
    check_remote(&remote, Permissions::RDMA_READ)?;
    if destination.list_tail_len() < len {
        return Err(Error::TooBig);
    }
    let mut done = 0;
    for segment in destination.tail_segments() {
        if done == len {
            break;
        }
        let part = segment.len.min(len - done);
        check_local(&segment.mmap)?;
        copy(
            &segment.mmap,
            segment.addr,
            &remote,
            source.data() + done as u64,
            part,
        )?;
        done += part;
    }
    destination.append(done)?;
    Ok(done)
}

/// Appends the data of a local list to a remote buf (only the head of a list is used); returns the number of bytes.
pub(super) fn write_remote(source: &Buf, destination: &Buf) -> Result<usize> {
    let (remote, len) = (destination.mmap()?, source.list_data_len());
    check_remote(&remote, Permissions::RDMA_WRITE)?;
    if destination.tail_len() < len {
        return Err(Error::TooBig);
    }
    let to = destination.data() + destination.data_len() as u64;
    let mut done = 0;
    for segment in source.data_segments() {
        check_local(&segment.mmap)?;
        copy(
            &remote,
            to + done as u64,
            &segment.mmap,
            segment.addr,
            segment.len,
        )?;
        done += segment.len;
    }
    destination.set_data_len(destination.data_len() + done)?;
    Ok(done)
}

/// A read or write of memory on another machine, with validated bufs.
pub(super) struct RemoteAccess {
    pub(super) offer: NetworkOffer,
    pub(super) len: usize,
    addr: u64,
    source: BufHandle,
    destination: BufHandle,
    is_read: bool,
}

/// As [`read_remote`], for memory on another machine; `None` for other memory.
pub(super) fn remote_read(
    source: BufHandle,
    destination: BufHandle,
) -> Result<Option<RemoteAccess>> {
    let (remote, len) = (source.mmap()?, source.data_len());
    check_remote(&remote, Permissions::RDMA_READ)?;
    let Some(offer) = remote.network_offer().copied() else {
        return Ok(None);
    };
    check_range(&remote, source.data(), len)?;
    if destination.list_tail_len() < len {
        return Err(Error::TooBig);
    }
    let mut left = len;
    for segment in destination.tail_segments() {
        let part = segment.len.min(left);
        check_local(&segment.mmap)?;
        if !segment.mmap.is_writable() {
            return Err(Error::NotPermitted);
        }
        if segment.mmap.local_ptr(segment.addr, part as u64).is_none() {
            return Ok(None);
        }
        left -= part;
        if left == 0 {
            break;
        }
    }
    let addr = source.data();
    Ok((len > 0).then_some(RemoteAccess {
        offer,
        len,
        addr,
        source,
        destination,
        is_read: true,
    }))
}

/// As [`write_remote`], for memory on another machine; `None` for other memory.
pub(super) fn remote_write(
    source: BufHandle,
    destination: BufHandle,
) -> Result<Option<RemoteAccess>> {
    let (remote, len) = (destination.mmap()?, source.list_data_len());
    check_remote(&remote, Permissions::RDMA_WRITE)?;
    let Some(offer) = remote.network_offer().copied() else {
        return Ok(None);
    };
    if destination.tail_len() < len {
        return Err(Error::TooBig);
    }
    let addr = destination.data() + destination.data_len() as u64;
    check_range(&remote, addr, len)?;
    for segment in source.data_segments() {
        check_local(&segment.mmap)?;
        let pointer = segment.mmap.local_ptr(segment.addr, segment.len as u64);
        if pointer.is_none() {
            return Ok(None);
        }
    }
    Ok((len > 0).then_some(RemoteAccess {
        offer,
        len,
        addr,
        source,
        destination,
        is_read: false,
    }))
}

fn check_range(remote: &Mmap, addr: u64, len: usize) -> Result<()> {
    if remote.contains(addr, len as u64) {
        Ok(())
    } else {
        Err(Error::InvalidValue)
    }
}

impl RemoteAccess {
    /// Queues the request.
    ///
    /// # Safety
    /// The bufs and their memory must stay unchanged until the reply, or until the lane is dropped.
    pub(super) unsafe fn send(&self, lane: &mut Lane) {
        let piece = |mmap: &Mmap, addr: u64, len: usize| Piece {
            // Present when the access was checked; address 0 would fail the request.
            start: mmap
                .local_ptr(addr, len as u64)
                .unwrap_or(std::ptr::null_mut()),
            len,
            exported: false,
        };
        if self.is_read {
            let mut left = self.len;
            let pieces = self.destination.tail_segments().map_while(|segment| {
                let part = segment.len.min(left);
                left -= part;
                (part > 0).then(|| piece(&segment.mmap, segment.addr, part))
            });
            // SAFETY: the caller's guarantee; the pieces have room for `len` bytes.
            unsafe { lane.read(self.offer.key, self.addr, pieces) };
        } else {
            let pieces = self
                .source
                .data_segments()
                .map(|segment| piece(&segment.mmap, segment.addr, segment.len));
            // SAFETY: the caller's guarantee.
            unsafe { lane.write(self.offer.key, self.addr, pieces) };
        }
    }
}

/// A read or write to be executed by an RDMA device.
pub(super) struct DeviceRequest {
    pieces: [Sge; MOST_PIECES],
    count: usize,
    /// Address and key.
    pub(super) remote: (u64, u32),
}

impl DeviceRequest {
    pub(super) fn pieces(&self) -> &[Sge] {
        &self.pieces[..self.count]
    }
}

impl RemoteAccess {
    /// The request for the device of a connection; `None` if the memory is not registered with the device, or exceeds
    /// the size of a request.
    pub(super) fn for_device(&self, outbox: &VerbsOutbox) -> Option<DeviceRequest> {
        let (nic, remote) = (
            outbox.nic(),
            if self.is_read {
                &self.source
            } else {
                &self.destination
            },
        );
        let key = remote.mmap().ok()?.remote_key()?;
        if !outbox.reaches(&self.offer, key) || self.len > nic.most_bytes() {
            return None;
        }
        let mut request = DeviceRequest {
            pieces: [Sge::default(); MOST_PIECES],
            count: 0,
            remote: (self.addr, key.rkey),
        };
        let mut left = self.len;
        let mut add = |mmap: &Mmap, addr: u64, len: usize| {
            let len = len.min(left);
            left -= len;
            if len == 0 {
                return Some(());
            }
            if request.count == nic.most_pieces() {
                return None;
            }
            request.pieces[request.count] = Sge {
                addr: mmap.local_ptr(addr, len as u64)?.addr() as u64,
                length: u32::try_from(len).ok()?,
                lkey: mmap.local_key(nic)?,
            };
            request.count += 1;
            Some(())
        };
        if self.is_read {
            for segment in self.destination.tail_segments() {
                add(&segment.mmap, segment.addr, segment.len)?;
            }
        } else {
            for segment in self.source.data_segments() {
                add(&segment.mmap, segment.addr, segment.len)?;
            }
        }
        Some(request)
    }
}

/// An atomic on a word of another machine's memory, through an RDMA device, with validated bufs.
pub(super) struct RemoteChange {
    pub(super) offer: NetworkOffer,
    pub(super) key: RemoteKey,
    pub(super) addr: u64,
    pub(super) opcode: Opcode,
    pub(super) operands: [u64; 2],
}

/// As [`atomic`], for memory on another machine that is registered with its RDMA device; `None` for other memory.
pub(super) fn remote_change(
    destination: &Buf,
    result: &Buf,
    opcode: Opcode,
    operands: [u64; 2],
) -> Result<Option<RemoteChange>> {
    let remote = destination.mmap()?;
    check_remote(&remote, Permissions::RDMA_ATOMIC)?;
    let (Some(offer), Some(key)) = (remote.network_offer(), remote.remote_key()) else {
        return Ok(None);
    };
    if !key.has_atomics {
        return Ok(None);
    }
    if destination.data_len() + destination.tail_len() < ATOMIC {
        return Err(Error::TooBig);
    }
    let addr = destination.data();
    check_range(&remote, addr, ATOMIC)?;
    if !addr.is_multiple_of(ATOMIC as u64) {
        return Err(Error::InvalidValue);
    }
    result_room(result)?;
    Ok(Some(RemoteChange {
        offer: *offer,
        key,
        addr,
        opcode,
        operands,
    }))
}

/// Operand size of an atomic operation in bytes.
const ATOMIC: usize = size_of::<u64>();

/// Performs `operation` on the first 8 bytes of a remote buf's data, and appends the old value to the data of the
/// local buf `result`. Only the heads of lists are used.
pub(super) fn atomic(
    destination: &Buf,
    result: &Buf,
    operation: impl FnOnce(&Mmap, u64) -> Result<u64>,
) -> Result<()> {
    let remote = destination.mmap()?;
    check_remote(&remote, Permissions::RDMA_ATOMIC)?;
    // A buf without data is accepted: the operation does not use the data length.
    if destination.data_len() + destination.tail_len() < ATOMIC {
        return Err(Error::TooBig);
    }
    // All possible failures are detected before the remote memory changes.
    let room = result_room(result)?;
    let old = operation(&remote, destination.data())?;
    put_result(result, room, old)
}

/// Destination of an 8-byte value in a local buf.
pub(super) fn result_room(result: &Buf) -> Result<u64> {
    let local = result.mmap()?;
    check_local(&local)?;
    if !local.is_writable() {
        return Err(Error::NotPermitted);
    }
    if result.tail_len() < ATOMIC {
        return Err(Error::TooBig);
    }
    Ok(result.data() + result.data_len() as u64)
}

/// Appends a value, in the machine's byte order, to the data of a local buf.
pub(super) fn put_result(result: &Buf, room: u64, value: u64) -> Result<()> {
    let bytes = value.to_ne_bytes();
    // SAFETY: the array has that many bytes.
    unsafe { result.mmap()?.write_from(room, bytes.as_ptr(), bytes.len()) }?;
    result.set_data_len(result.data_len() + bytes.len())
}

/// Checks that 8 bytes can be appended to the data of a local list.
pub(super) fn check_room(list: &Buf) -> Result<()> {
    if list.list_tail_len() < ATOMIC {
        return Err(Error::TooBig);
    }
    list.tail_segments()
        .try_for_each(|segment| check_local(&segment.mmap))
}

/// Appends a value, in the machine's byte order, to the data of a local list; returns the number of bytes.
pub(super) fn append_value(list: &Buf, value: u64) -> Result<usize> {
    let bytes = value.to_ne_bytes();
    fill_tail(list, bytes.len(), |from, to, len| {
        // SAFETY: `to` is writable for `len` bytes, and `from + len` is at most 8.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().add(from), to, len) };
    })?;
    Ok(bytes.len())
}

/// Reads the value, in the machine's byte order, from the data of a local list.
///
/// # Errors
/// [`Error::InvalidValue`] if the data is not 8 bytes long.
pub(super) fn value(list: &Buf) -> Result<u64> {
    check_source(Some(list))?;
    if list.list_data_len() != ATOMIC {
        return Err(Error::InvalidValue.because(format_args!(
            "a sync event is set to {ATOMIC} bytes of data, the list has {}",
            list.list_data_len()
        )));
    }
    let (mut bytes, mut done) = ([0; ATOMIC], 0);
    with_data(Some(list), 0, ATOMIC, &mut |from, len| {
        // SAFETY: `from` is readable for `len` bytes, and the total length is 8.
        unsafe { std::ptr::copy(from, bytes.as_mut_ptr().add(done), len) };
        done += len;
    })?;
    Ok(u64::from_ne_bytes(bytes))
}
