//! Memory of other processes.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::descriptor::{Descriptor, ExportKind};
use crate::agent::{
    Limits, NetworkRegion, RemoteBacking, RemoteRegion, RemoteSegment, Rights, Route,
};
use crate::error::{Error, Result};
use crate::runtime::sealed_memory_len;

/// An imported range: mapped segments, and access to the rest.
#[derive(Debug)]
pub(super) struct Imported {
    pub descriptor: Descriptor,
    pub rights: Rights,
    /// The whole range, ascending and contiguous.
    segments: Box<[Segment]>,
    /// Validity word of the export; `None` if nothing is mapped, in which case the agent reports the withdrawal.
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

/// A run of bytes with one access method.
pub(super) enum Piece {
    /// Directly.
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
        // Inside the mapping, whose size fits: computed without `unsafe`, used only by copies that check the length.
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

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    const PAGE: u64 = 4096;
    const RIGHTS: Rights = Rights {
        read: true,
        write: true,
        atomic: false,
    };

    /// A segment as an exporter may describe it: `len` bytes from `offset` on of a memfd of four pages.
    fn segment(seals: SealFlags, offset: u64, len: u64) -> RemoteSegment {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&memfd, 4 * PAGE).unwrap();
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
        for (offset, len) in [(0, 4 * PAGE), (PAGE, PAGE), (PAGE + 8, 3 * PAGE - 8)] {
            let mapping = map(segment(sealed, offset, len), RIGHTS).unwrap();
            assert!(mapping.is_some(), "{len} bytes at {offset}");
        }
        for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::WRITE] {
            let refused = map(segment(seals, 0, PAGE), RIGHTS);
            assert!(refused.is_err(), "{seals:?}");
        }
    }

    #[test]
    fn memory_beyond_the_end_is_not_mapped() {
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        for (offset, len) in [
            (0, 4 * PAGE + 1),
            (3 * PAGE, PAGE + 1),
            (4 * PAGE, 1),
            (u64::MAX - PAGE + 1, PAGE),
            (PAGE, u64::MAX),
        ] {
            let refused = map(segment(sealed, offset, len), RIGHTS);
            assert!(refused.is_err(), "{len} bytes at {offset}");
        }
    }
}
