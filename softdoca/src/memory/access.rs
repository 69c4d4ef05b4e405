//! Access to the memory of maps, of this process and of others ([`Imported`]): copies to and from private memory, and
//! atomic access to 8-byte words in this machine's byte order. Ranges are validated here; permissions of a peer's access
//! are validated by the caller.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::Mmap;
use super::export::{Descriptor, ExportKind};
use crate::agent::{
    Limits, NetworkRegion, RemoteBacking, RemoteRegion, RemoteSegment, Rights, Route,
};
use crate::check::{self, Mistake};
use crate::error::{Error, Result};
use crate::runtime::sealed_memory_len;

/// Copies `len` bytes between (or within) maps. Addresses of an imported map are its exporter's.
///
/// # Errors
/// [`Error::InvalidValue`] outside a range, [`Error::BadState`] if a map is not started, [`Error::NotPermitted`] if
/// `dst` is not writable, [`Error::NotFound`] if an exporter has exited or withdrawn the memory; the errors of the
/// exporter's agent, if the agent copies.
#[inline]
pub fn copy(dst: &Mmap, dst_addr: u64, src: &Mmap, src_addr: u64, len: usize) -> Result<()> {
    if let (Some(to), Some(from), true) = (
        dst.local_ptr(dst_addr, len as u64),
        src.local_ptr(src_addr, len as u64),
        dst.is_writable(),
    ) {
        // SAFETY: both pointers are valid for `len` bytes, `to` for writing. They may overlap. Others may access the
        // memory concurrently, as with a NIC: the copied bytes are then unspecified, but no value is invalid.
        unsafe { move_bytes(from, to, len) };
        return Ok(());
    }
    dst.check_write(dst_addr, len)?;
    src.check(src_addr, len)?;
    let mut done = 0;
    while done < len {
        done += copy_piece(
            dst,
            dst_addr + done as u64,
            src,
            src_addr + done as u64,
            len - done,
        )?;
    }
    Ok(())
}

/// Size of a bounce buffer, for copies between two maps neither of which is mapped here.
const BOUNCE: usize = 64 * 1024;

/// Copies the first of `len` bytes that have one access method on both sides; returns their number. Both ranges have
/// been validated.
fn copy_piece(dst: &Mmap, dst_addr: u64, src: &Mmap, src_addr: u64, len: usize) -> Result<usize> {
    let (to, to_len) = dst.piece(dst_addr, len)?;
    let (from, from_len) = src.piece(src_addr, len)?;
    let len = to_len.min(from_len);
    match (to, from) {
        // SAFETY: as in `copy`.
        (Piece::Mapped(to), Piece::Mapped(from)) => unsafe { move_bytes(from, to, len) },
        (Piece::Mapped(to), Piece::Remote) => {
            // SAFETY: `to` is valid for writing `len` bytes.
            unsafe { src.region()?.read(src_addr, to, len) }?;
        }
        (Piece::Remote, Piece::Mapped(from)) => dst.region()?.write(dst_addr, from, len)?,
        (Piece::Remote, Piece::Remote) => {
            let mut bounce = vec![0; len.min(BOUNCE)];
            // SAFETY: the buffer has that many bytes.
            unsafe {
                src.region()?
                    .read(src_addr, bounce.as_mut_ptr(), bounce.len())
            }?;
            dst.region()?
                .write(dst_addr, bounce.as_ptr(), bounce.len())?;
            return Ok(bounce.len());
        }
    }
    Ok(len)
}

impl Mmap {
    /// Copies `len` bytes at `addr` to private memory.
    ///
    /// # Errors
    /// As [`copy`].
    ///
    /// # Safety
    /// `to` must be valid for writing `len` bytes.
    #[inline]
    pub unsafe fn read_into(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
        if let Some(from) = self.local_ptr(addr, len as u64) {
            // SAFETY: `from` is valid for `len` bytes, `to` by the caller's guarantee.
            unsafe { move_bytes(from, to, len) };
            return Ok(());
        }
        self.check(addr, len)?;
        let mut done = 0;
        while done < len {
            let position = addr + done as u64;
            let (from, piece) = self.piece(position, len - done)?;
            // SAFETY: `to` is valid for `len` bytes, of which this writes those from `done` on.
            unsafe {
                match from {
                    Piece::Mapped(from) => move_bytes(from, to.add(done), piece),
                    Piece::Remote => self.region()?.read(position, to.add(done), piece)?,
                }
            }
            done += piece;
        }
        Ok(())
    }

    /// Copies `len` bytes of private memory to `addr`.
    ///
    /// # Errors
    /// As [`copy`].
    ///
    /// # Safety
    /// `from` must be valid for reading `len` bytes.
    #[inline]
    pub unsafe fn write_from(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        if let (Some(to), true) = (self.local_ptr(addr, len as u64), self.is_writable()) {
            // SAFETY: `to` is valid for writing `len` bytes, `from` for reading them by the caller's guarantee.
            unsafe { move_bytes(from, to, len) };
            return Ok(());
        }
        self.check_write(addr, len)?;
        let mut done = 0;
        while done < len {
            let position = addr + done as u64;
            let (to, piece) = self.piece(position, len - done)?;
            match to {
                // SAFETY: as above, from `done` on.
                Piece::Mapped(to) => unsafe { move_bytes(from.add(done), to, piece) },
                Piece::Remote => self
                    .region()?
                    .write(position, from.wrapping_add(done), piece)?,
            }
            done += piece;
        }
        Ok(())
    }

    pub(super) fn check(&self, addr: u64, len: usize) -> Result<()> {
        if !self.is_usable() {
            return Err(Error::BadState);
        }
        if self.imported().is_some_and(Imported::is_withdrawn) {
            return Err(withdrawn(addr, len));
        }
        if self.contains(addr, len as u64) {
            Ok(())
        } else {
            Err(Error::InvalidValue)
        }
    }

    fn check_write(&self, addr: u64, len: usize) -> Result<()> {
        self.check(addr, len)?;
        if self.is_writable() {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }

    /// Access method of the bytes from `addr` on. The range has been validated.
    fn piece(&self, addr: u64, len: usize) -> Result<(Piece, usize)> {
        match self.imported() {
            None => Ok((
                Piece::Mapped(std::ptr::with_exposed_provenance_mut(addr as usize)),
                len,
            )),
            // At most `len`, so the number fits in `usize`.
            Some(imported) => imported
                .piece(addr, len as u64)
                .map(|(piece, len)| (piece, len as usize))
                .ok_or(Error::InvalidValue),
        }
    }

    pub(super) fn region(&self) -> Result<&Region> {
        self.imported()
            .map(Imported::region)
            .ok_or(Error::Unexpected)
    }
}

#[cold]
fn withdrawn(addr: u64, len: usize) -> Error {
    check::report(
        Mistake::WithdrawnMemoryUsed,
        format_args!("{len} bytes at {addr:#x}"),
    );
    Error::NotFound.because(format_args!(
        "the owner of the {len} bytes at {addr:#x} has stopped or destroyed its mmap"
    ))
}

/// C libraries use `rep movsb` for copies of at least this length only.
const LONG: usize = 2048;
/// Long copies are cut into pieces of this length.
const PIECE: usize = 1024;
/// Page size that CPUs use when they compare addresses.
const PAGE: usize = 4096;

/// As [`std::ptr::copy`], for bytes. The ranges may overlap.
///
/// The C library copies more than 2 to 4 KiB with `rep movsb`. On AMD's Zen 3 and Zen 4, this is 15 to 25 times slower
/// if the destination starts up to 63 bytes after the source, modulo the page size, as is the case for a page copied to
/// any large buffer from `malloc`. (glibc 2.39 avoids this; Debian 12 and Ubuntu 22.04 have older versions.) Therefore,
/// data is copied in pieces that are small enough to be copied with loads and stores, at full speed.
///
/// # Safety
///
/// `from` must be valid for reading and `to` for writing `len` bytes.
#[inline]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    if len < LONG || !is_slow(from.addr(), to.addr(), len) {
        // SAFETY: the caller's guarantee.
        unsafe { std::ptr::copy(from, to, len) };
        return;
    }
    for done in (0..len).step_by(PIECE) {
        let piece = PIECE.min(len - done);
        // SAFETY: the piece ends within the `len` bytes, and `is_slow` holds for ranges that do not overlap only.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), piece) };
    }
}

/// Returns `true` if `rep movsb` may be slow for these ranges. Overlapping ranges are copied without it.
#[inline]
fn is_slow(from: usize, to: usize, len: usize) -> bool {
    let behind = to.wrapping_sub(from) % PAGE;
    (1..64).contains(&behind) && from.abs_diff(to) >= len
}

// Prefetch of memory that will be copied soon.

/// Maximum number of lines to prefetch. The hardware's prefetchers continue once a copy has begun; only their start is
/// slow, and more lines delay other loads (measured: 16 are not better than 8, and 64 are worse than none).
const LINES: usize = 8;

impl Mmap {
    /// Prefetches the `len` bytes at `addr`. This is a hint, which has no effect on memory that is not mapped here.
    #[inline]
    pub fn prefetch(&self, addr: u64, len: usize) {
        let len = len.min(LINES * LINE);
        let Some(start) = self.local_ptr(addr, len as u64) else {
            return;
        };
        for offset in (0..len).step_by(LINE) {
            prefetch_to_read(start.wrapping_add(offset));
        }
    }
}

const SIZE: usize = size_of::<u64>();

/// An atomic operation on a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    Atomic,
}

impl Mmap {
    /// Loads the u64 at `addr`.
    ///
    /// # Errors
    /// As [`copy`](super::copy()); [`Error::InvalidValue`] for an address that is not a multiple of 8.
    pub fn load(&self, addr: u64) -> Result<u64> {
        match self.word(addr, Access::Load)? {
            Some(word) => Ok(word.load(Ordering::SeqCst)),
            None => {
                let mut bytes = [0; SIZE];
                // SAFETY: the array has that many bytes.
                unsafe { self.region()?.read(addr, bytes.as_mut_ptr(), SIZE) }?;
                Ok(u64::from_ne_bytes(bytes))
            }
        }
    }

    /// Stores the u64 at `addr`.
    ///
    /// # Errors
    /// As [`Mmap::load`].
    pub fn store(&self, addr: u64, value: u64) -> Result<()> {
        match self.word(addr, Access::Store)? {
            Some(word) => {
                word.store(value, Ordering::SeqCst);
                Ok(())
            }
            None => {
                let bytes = value.to_ne_bytes();
                self.region()?.write(addr, bytes.as_ptr(), SIZE)
            }
        }
    }

    /// Adds `value` to the u64 at `addr`; returns the old value.
    ///
    /// # Errors
    /// As [`Mmap::load`]. The caller must check that the peer permits atomics; its agent checks as well.
    pub fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        match self.word(addr, Access::Atomic)? {
            Some(word) => Ok(word.fetch_add(value, Ordering::SeqCst)),
            None => self.region()?.fetch_add(addr, value),
        }
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; returns the old value.
    ///
    /// # Errors
    /// As [`Mmap::fetch_add`].
    pub fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        match self.word(addr, Access::Atomic)? {
            Some(word) => {
                match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => Ok(old),
                }
            }
            None => self.region()?.compare_swap(addr, expected, new),
        }
    }

    /// The word, if it is mapped here.
    fn word(&self, addr: u64, access: Access) -> Result<Option<&AtomicU64>> {
        self.check(addr, SIZE)?;
        let allowed = match (self.imported(), access) {
            (Some(imported), Access::Load) => imported.rights.read,
            (Some(imported), Access::Store) => imported.rights.write,
            (Some(imported), Access::Atomic) => imported.rights.atomic,
            (None, Access::Load) => true,
            (None, Access::Store | Access::Atomic) => self.is_writable(),
        };
        if !allowed {
            return Err(Error::NotPermitted);
        }
        if !addr.is_multiple_of(SIZE as u64) {
            return Err(Error::InvalidValue);
        }
        let Some(pointer) = self
            .local_ptr(addr, SIZE as u64)
            .map(<*mut u8>::cast::<u64>)
        else {
            return Ok(None);
        };
        if !pointer.is_aligned() {
            return Err(Error::InvalidValue);
        }
        // SAFETY: in range, aligned as checked above, valid as long as the map, and writable unless it is only loaded
        // from, which as an aligned u64 is one instruction that writes nothing; all sides use atomics on shared words.
        Ok(Some(unsafe { AtomicU64::from_ptr(pointer) }))
    }

    /// Returns `true` if the memory belongs to another process that has exited or withdrawn it.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.imported()
            .is_some_and(|imported| imported.region().is_closed())
    }
}

/// An imported range: mapped segments, and access to the rest.
#[derive(Debug)]
pub(super) struct Imported {
    pub descriptor: Descriptor,
    pub rights: Rights,
    /// The whole range, ascending and contiguous.
    segments: Box<[Segment]>,
    /// Validity word of the export; `None` if no memory is mapped, in which case the agent reports the withdrawal.
    validity: Option<Validity>,
    region: Region,
}

#[derive(Debug)]
struct Segment {
    /// Addresses in the exporter.
    start: u64,
    end: u64,
    mapping: Option<Mapping>,
}

/// Validity word of the export.
#[derive(Debug)]
struct Validity {
    /// Of 4 bytes.
    mapping: Mapping,
    /// The word's value while the export is valid.
    value: u32,
}

impl Validity {
    const RIGHTS: Rights = Rights {
        read: true,
        write: false,
        atomic: false,
    };

    fn new(region: &RemoteRegion) -> Result<Validity> {
        let (memfd, offset, value) = region.validity()?;
        if !(offset as usize).is_multiple_of(align_of::<AtomicU32>()) {
            return Err(mismatch());
        }
        let word = RemoteSegment {
            addr: 0,
            len: size_of::<AtomicU32>() as u64,
            backing: RemoteBacking::Shared {
                memfd,
                offset: offset.into(),
            },
        };
        let mapping = map(word, Self::RIGHTS)?.ok_or_else(mismatch)?;
        Ok(Validity { mapping, value })
    }

    #[inline]
    fn holds(&self) -> bool {
        // SAFETY: aligned, and mapped as long as `mapping` lives; correct peers use atomics, and any value is valid if
        // others do not.
        let word = unsafe { AtomicU32::from_ptr(self.mapping.pointer(0).cast()) };
        word.load(Ordering::Acquire) == self.value
    }
}

/// Pages of another process, mapped here.
#[derive(Debug)]
struct Mapping {
    base: *mut u8,
    len: usize,
    /// Start of the segment: memfds are mapped in whole pages.
    skip: usize,
}

// SAFETY: the mapping is used only through raw copies and atomics, from any thread, as other processes do.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: created by `map`, and pointers into it do not outlive the `Imported` that owns it.
        // Cannot fail for a range returned by mmap.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// Contiguous bytes with the same access method.
pub(super) enum Piece {
    Mapped(*mut u8),
    /// Through the exporter's agent.
    Remote,
}

impl Imported {
    /// Requests the memory from the exporter and maps the segments that can be mapped.
    pub fn new(bytes: &[u8]) -> Result<Imported> {
        let descriptor = Descriptor::decode(bytes)?;
        let rights = match descriptor.kind {
            ExportKind::Pci => descriptor.permissions.pci_rights(),
            ExportKind::Rdma => descriptor.permissions.rdma_rights(),
        };
        let most = Limits::get()?.import_bytes;
        if descriptor.len > most {
            return Err(Error::TooBig.because(format_args!(
                "expected memory of at most {} MiB from another process, got {} bytes: raise SOFTDOCA_IMPORT_MIB if it is meant",
                most >> 20,
                descriptor.len
            )));
        }
        if let Route::Network(offer) = descriptor.route()? {
            let range = (descriptor.addr, descriptor.len);
            let region = NetworkRegion::open(&offer, range, rights)?;
            let segments = Box::new([Segment {
                start: descriptor.addr,
                end: descriptor.addr + descriptor.len,
                mapping: None,
            }]);
            return Ok(Imported {
                descriptor,
                rights,
                segments,
                validity: None,
                region: Region::Network(Box::new(region)),
            });
        }
        let (mut position, end) = (descriptor.addr, descriptor.addr + descriptor.len);
        let mut segments = Vec::new();
        let region = RemoteRegion::open(&descriptor.agent, descriptor.key, rights, |segment| {
            let fits = segment.addr == position && (1..=end - position).contains(&segment.len);
            if !fits || !is_congruent(&segment) {
                return Err(mismatch());
            }
            position += segment.len;
            segments.push(Segment {
                start: segment.addr,
                end: position,
                mapping: map(segment, rights)?,
            });
            Ok(())
        })?;
        let segments = segments.into_boxed_slice();
        if position != end {
            return Err(mismatch());
        }
        let is_mapped = segments.iter().any(|segment| segment.mapping.is_some());
        let validity = is_mapped.then(|| Validity::new(&region)).transpose()?;
        Ok(Imported {
            descriptor,
            rights,
            segments,
            validity,
            region: Region::Agent(region),
        })
    }

    /// Returns `true` if the exporter has stopped or destroyed the map. `false` if none of it is mapped here, in which
    /// case its agent reports the withdrawal.
    #[inline]
    pub fn is_withdrawn(&self) -> bool {
        self.validity
            .as_ref()
            .is_some_and(|validity| !validity.holds())
    }

    /// Returns the `len` bytes at the exporter's `addr` if they are mapped contiguously and still exported. The range
    /// has been validated.
    #[inline]
    pub fn pointer(&self, addr: u64, len: u64) -> Option<*mut u8> {
        if self.is_withdrawn() {
            return None;
        }
        let segment = self.segment(addr)?;
        if addr + len > segment.end {
            return None;
        }
        segment
            .mapping
            .as_ref()
            .map(|mapping| mapping.pointer(addr - segment.start))
    }

    /// Returns the access method of the bytes from `addr` on, and their number, at most `len`.
    pub fn piece(&self, addr: u64, len: u64) -> Option<(Piece, u64)> {
        let segment = self.segment(addr)?;
        let piece = match &segment.mapping {
            Some(mapping) => Piece::Mapped(mapping.pointer(addr - segment.start)),
            None => Piece::Remote,
        };
        Some((piece, len.min(segment.end - addr)))
    }

    #[inline]
    fn segment(&self, addr: u64) -> Option<&Segment> {
        let index = self.segments.partition_point(|segment| segment.end <= addr);
        self.segments
            .get(index)
            .filter(|segment| segment.start <= addr)
    }

    /// Access to segments that are not mapped.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl Mapping {
    #[inline]
    fn pointer(&self, offset: u64) -> *mut u8 {
        // Inside the mapping, whose size fits in `usize`. Computed without `unsafe`, because it is used only by copies
        // that check the length.
        self.base.wrapping_add(self.skip + offset as usize)
    }
}

/// Returns `true` if a segment has the same offset within a page here as in its exporter: otherwise alignment differs.
fn is_congruent(segment: &RemoteSegment) -> bool {
    let page = rustix::param::page_size() as u64;
    match segment.backing {
        RemoteBacking::Shared { offset, .. } => segment.addr % page == offset % page,
        RemoteBacking::Private => true,
    }
}

fn mismatch() -> Error {
    Error::Unexpected.because("the exporter describes another range than its descriptor")
}

fn map(segment: RemoteSegment, rights: Rights) -> Result<Option<Mapping>> {
    let RemoteBacking::Shared { memfd, offset } = segment.backing else {
        return Ok(None);
    };
    let page = rustix::param::page_size() as u64;
    let size = sealed_memory_len(&memfd)?;
    if offset.checked_add(segment.len).is_none_or(|end| end > size) {
        return Err(mismatch());
    }
    let skip = offset % page;
    let len = usize::try_from(segment.len + skip).map_err(|_| Error::TooBig)?;
    let mut protection = ProtFlags::READ;
    if rights.write || rights.atomic {
        protection |= ProtFlags::WRITE;
    }
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            protection,
            MapFlags::SHARED,
            &memfd,
            offset - skip,
        )
    };
    let base = base.map_err(|errno| {
        Error::from(errno).because(format_args!(
            "cannot map {len} bytes of another process: {errno}"
        ))
    })?;
    Ok(Some(Mapping {
        base: base.cast(),
        len,
        skip: skip as usize,
    }))
}

// Memory of other processes that is not mapped here.

/// Access method of memory that is not mapped here.
#[derive(Debug)]
pub(in crate::memory) enum Region {
    /// Through the agent of a process of this machine.
    Agent(RemoteRegion),
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
    pub(in crate::memory) unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
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
    pub(in crate::memory) fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        match self {
            Region::Agent(region) => region.write(addr, from, len),
            Region::Network(region) => region.write(addr, from, len),
        }
    }

    /// Adds `value` to the u64 at `addr`; returns the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::fetch_add`].
    pub(in crate::memory) fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        match self {
            Region::Agent(region) => region.fetch_add(addr, value),
            Region::Network(region) => region.fetch_add(addr, value),
        }
    }

    /// Replaces the u64 at `addr` by `new` if it is `expected`; returns the old value.
    ///
    /// # Errors
    /// As [`RemoteRegion::fetch_add`].
    pub(in crate::memory) fn compare_swap(
        &self,
        addr: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64> {
        match self {
            Region::Agent(region) => region.compare_swap(addr, expected, new),
            Region::Network(region) => region.compare_swap(addr, expected, new),
        }
    }

    /// Returns `true` if the owner has exited or has no exports left.
    pub(in crate::memory) fn is_closed(&self) -> bool {
        match self {
            Region::Agent(region) => region.is_closed(),
            Region::Network(region) => region.is_closed(),
        }
    }
}

/// Assumed size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches the line at `address` for reading. A prefetch affects only timing, for any address.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch_to_read(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch does not access memory architecturally; an invalid address has no effect.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Prefetches the line at `address` for writing, exclusively to this CPU.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch_to_write(address: *const u8) {
    // Not the intrinsic, which prefetches for reading unless the whole program is compiled for CPUs with `prefetchw`.
    // On CPUs without it (Intel before 2014), the instruction has no effect. SAFETY: as for reading; the instruction
    // changes no register and no memory.
    unsafe {
        std::arch::asm!(
            "prefetchw [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// Prefetches the line at `address` for reading.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn prefetch_to_read(address: *const u8) {
    // SAFETY: as on x86-64; the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// Prefetches the line at `address` for writing, exclusively to this CPU.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn prefetch_to_write(address: *const u8) {
    // SAFETY: as for reading.
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
}

/// No effect on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn prefetch_to_read(_address: *const u8) {}

/// No effect on this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn prefetch_to_write(_address: *const u8) {}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags};

    use super::super::Permissions;
    use super::*;

    const ROOM: usize = 5 * PAGE;

    #[test]
    fn all_bytes_are_moved_for_any_ranges() {
        let original: Vec<u8> = (0..ROOM).map(|at| (at % 251) as u8).collect();
        for len in [
            0,
            1,
            LONG - 1,
            LONG,
            LONG + 1,
            PAGE - 1,
            PAGE,
            PAGE + PIECE / 2,
        ] {
            for (from, to) in [
                (0, 2 * PAGE),
                (0, 2 * PAGE + 1),
                (0, 2 * PAGE + 63),
                (0, 2 * PAGE + 64),
                (2 * PAGE, 16),
                (2 * PAGE, 0),
                // Overlapping, either way.
                (0, 16),
                (16, 0),
                (0, PIECE),
                (7, 7),
            ] {
                let mut bytes = original.clone();
                let start = bytes.as_mut_ptr();
                // SAFETY: both ranges lie in the vector.
                unsafe { move_bytes(start.add(from), start.add(to), len) };
                let mut expected = original.clone();
                expected.copy_within(from..from + len, to);
                assert!(bytes == expected, "{len} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn slow_destinations_are_those_just_behind_in_their_page() {
        for (to, slow) in [
            (0, false),
            (1, true),
            (16, true),
            (63, true),
            (64, false),
            (PAGE - 16, false),
        ] {
            assert_eq!(is_slow(8 * PAGE, 16 * PAGE + to, PAGE), slow, "{to}");
            assert_eq!(is_slow(16 * PAGE, 8 * PAGE + to, PAGE), slow, "{to}");
        }
        assert!(!is_slow(0, 16, PAGE), "they overlap");
        assert!(!is_slow(PAGE, 16, PAGE), "they overlap by 16 bytes");
    }

    #[test]
    fn words_are_loaded_and_stored() {
        let mut words = [1_u64, 2];
        let addr = words.as_mut_ptr().expose_provenance() as u64;
        let mmap = Mmap::new();
        mmap.set_memrange(addr, 16).unwrap();
        assert_eq!(mmap.load(addr), Err(Error::BadState), "not started");
        mmap.start().unwrap();
        assert_eq!((mmap.load(addr), mmap.load(addr + 8)), (Ok(1), Ok(2)));
        assert_eq!(mmap.store(addr + 8, u64::MAX), Ok(()));
        assert_eq!(mmap.load(addr + 8), Ok(u64::MAX));
        assert_eq!(mmap.fetch_add(addr + 8, 3), Ok(u64::MAX));
        assert_eq!(mmap.compare_swap(addr + 8, 2, 5), Ok(2));
        assert_eq!(mmap.load(addr + 8), Ok(5));
        assert_eq!(mmap.load(addr + 4), Err(Error::InvalidValue));
        assert_eq!(mmap.store(addr + 16, 0), Err(Error::InvalidValue));
        assert!(!mmap.is_orphaned());
    }

    #[test]
    fn read_only_words_can_be_loaded() {
        let words = [7_u64];
        let addr = words.as_ptr().expose_provenance() as u64;
        let mmap = Mmap::new();
        mmap.set_memrange(addr, 8).unwrap();
        mmap.set_permissions(Permissions::empty()).unwrap();
        mmap.start().unwrap();
        assert_eq!(mmap.load(addr), Ok(7));
        assert_eq!(mmap.store(addr, 1), Err(Error::NotPermitted));
        assert_eq!(mmap.fetch_add(addr, 1), Err(Error::NotPermitted));
    }

    const PAGE_LEN: u64 = 4096;
    const RIGHTS: Rights = Rights {
        read: true,
        write: true,
        atomic: false,
    };

    /// A segment as an exporter may describe it: `len` bytes from `offset` on of a memfd of four pages.
    fn segment(seals: SealFlags, offset: u64, len: u64) -> RemoteSegment {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&memfd, 4 * PAGE_LEN).unwrap();
        rustix::fs::fcntl_add_seals(&memfd, seals).unwrap();
        RemoteSegment {
            addr: 0x1000,
            len,
            backing: RemoteBacking::Shared { memfd, offset },
        }
    }

    #[test]
    fn shrinkable_memory_is_not_mapped() {
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        for (offset, len) in [
            (0, 4 * PAGE_LEN),
            (PAGE_LEN, PAGE_LEN),
            (PAGE_LEN + 8, 3 * PAGE_LEN - 8),
        ] {
            let mapping = map(segment(sealed, offset, len), RIGHTS).unwrap();
            assert!(mapping.is_some(), "{len} bytes at {offset}");
        }
        for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::WRITE] {
            let refused = map(segment(seals, 0, PAGE_LEN), RIGHTS);
            assert!(refused.is_err(), "{seals:?}");
        }
    }

    #[test]
    fn memory_beyond_the_end_is_not_mapped() {
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        for (offset, len) in [
            (0, 4 * PAGE_LEN + 1),
            (3 * PAGE_LEN, PAGE_LEN + 1),
            (4 * PAGE_LEN, 1),
            (u64::MAX - PAGE_LEN + 1, PAGE_LEN),
            (PAGE_LEN, u64::MAX),
        ] {
            let refused = map(segment(sealed, offset, len), RIGHTS);
            assert!(refused.is_err(), "{len} bytes at {offset}");
        }
    }
}
