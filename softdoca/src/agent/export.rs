//! Access of peers to an exported range of memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::protocol::SegmentEntry;
use crate::error::{Error, Result};

/// Rights of holders of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Read the memory.
    pub read: bool,
    /// Write the memory.
    pub write: bool,
    /// Perform atomic operations.
    pub atomic: bool,
}

impl Rights {
    /// As a bit mask: 1 read, 2 write, 4 atomic.
    pub(super) fn bits(self) -> u64 {
        u64::from(self.read) | u64::from(self.write) << 1 | u64::from(self.atomic) << 2
    }

    /// Returns `true` if these rights include those of a bit mask; a peer may request undefined bits.
    pub(super) fn include(self, bits: u64) -> bool {
        bits & !self.bits() == 0
    }
}

/// A segment of an exported range. The segments of an export are ascending and contiguous.
#[derive(Clone, Debug)]
pub struct Segment {
    /// First address in the exporting process.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access method for other processes.
    pub backing: Backing,
}

/// Access method of a segment from another process.
#[derive(Clone, Debug)]
pub enum Backing {
    /// By mapping this memfd from `offset`.
    Shared {
        /// Sealed against shrinking.
        memfd: Arc<OwnedFd>,
        /// Multiple of the page size.
        offset: u64,
    },
    /// Through the agent only.
    Private,
}

/// A range of memory exported under a key.
#[derive(Debug)]
pub struct Export {
    /// Rights granted by the key.
    pub rights: Rights,
    /// The whole range.
    pub segments: Vec<Segment>,
    /// Invalidated when the export ends, for processes that have mapped its segments.
    pub validity: Option<SharedWord>,
}

/// A u32 in shared memory, with its value while the export is valid.
#[derive(Clone, Debug)]
pub struct SharedWord {
    /// Sealed against shrinking.
    pub memfd: Arc<OwnedFd>,
    /// In bytes, a multiple of 4.
    pub offset: u32,
    /// Any other value means that the export has ended.
    pub value: u32,
}

impl SharedWord {
    /// Offset and value in one number.
    pub(super) fn place(&self) -> u64 {
        u64::from(self.offset) << 32 | u64::from(self.value)
    }
}

/// Length of the operand of an atomic operation in bytes.
const ATOMIC_SIZE: u64 = 8;

impl Export {
    /// Returns the address as a pointer if all `len` bytes from it on belong to the export.
    pub(super) fn pointer(&self, addr: u64, len: u64) -> Result<*mut u8> {
        let (Some(first), Some(last)) = (self.segments.first(), self.segments.last()) else {
            return Err(Error::InvalidValue);
        };
        let end = addr.checked_add(len).ok_or(Error::InvalidValue)?;
        if addr < first.addr || end > last.addr.saturating_add(last.len) {
            return Err(Error::InvalidValue);
        }
        usize::try_from(addr)
            .map(std::ptr::with_exposed_provenance_mut)
            .map_err(|_| Error::InvalidValue)
    }

    /// Performs an atomic operation on the u64 at `addr`; returns the old value.
    pub(super) fn atomic(
        &self,
        addr: u64,
        operation: impl FnOnce(&AtomicU64) -> u64,
    ) -> Result<u64> {
        if !self.rights.atomic {
            return Err(Error::NotPermitted);
        }
        let pointer = self.pointer(addr, ATOMIC_SIZE)?;
        if !addr.is_multiple_of(ATOMIC_SIZE) || !is_mapped(pointer) {
            return Err(Error::InvalidValue);
        }
        // SAFETY: aligned, mapped, inside a range that the program registered for this and keeps valid while it is exported; the
        // program and its peers use atomics there as well.
        Ok(operation(unsafe { AtomicU64::from_ptr(pointer.cast()) }))
    }

    /// The entries from index `from` on that fit in one message, with their descriptors.
    pub(super) fn describe(&self, from: u64) -> (Vec<SegmentEntry>, Vec<Arc<OwnedFd>>) {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let (mut entries, mut fds) = (Vec::new(), Vec::<Arc<OwnedFd>>::new());
        for segment in self
            .segments
            .iter()
            .skip(from)
            .take(SegmentEntry::PER_MESSAGE)
        {
            let (memfd, offset) = match &segment.backing {
                Backing::Private => (None, 0),
                Backing::Shared { memfd, offset } => {
                    let index = fds
                        .iter()
                        .position(|fd| Arc::ptr_eq(fd, memfd))
                        .unwrap_or_else(|| {
                            fds.push(Arc::clone(memfd));
                            fds.len() - 1
                        });
                    (u32::try_from(index).ok(), *offset)
                }
            };
            entries.push(SegmentEntry {
                addr: segment.addr,
                len: segment.len,
                offset,
                memfd,
            });
        }
        (entries, fds)
    }
}

/// Returns `true` if the page at `pointer` is mapped: if a program unmaps exported memory, its peers must get errors,
/// and the program must not crash.
fn is_mapped(pointer: *mut u8) -> bool {
    let page = rustix::param::page_size();
    let mut resident = 0_u8;
    // SAFETY: mincore does not read the memory, and writes one byte per requested page: one.
    unsafe {
        libc::mincore(
            pointer.map_addr(|addr| addr & !(page - 1)).cast(),
            page,
            &mut resident,
        ) == 0
    }
}

/// Atomic operations of DOCA RDMA.
pub(super) fn fetch_add(value: u64) -> impl FnOnce(&AtomicU64) -> u64 {
    move |word| word.fetch_add(value, Ordering::SeqCst)
}

/// See [`fetch_add`].
pub(super) fn compare_swap(expected: u64, new: u64) -> impl FnOnce(&AtomicU64) -> u64 {
    move |word| match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(old) | Err(old) => old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(addr: u64, len: u64, atomic: bool) -> Export {
        let rights = Rights {
            read: true,
            write: true,
            atomic,
        };
        Export {
            rights,
            segments: vec![Segment {
                addr,
                len,
                backing: Backing::Private,
            }],
            validity: None,
        }
    }

    #[test]
    fn addresses_are_checked_without_overflow() {
        let export = export(0x1000, 0x100, true);
        assert!(export.pointer(0x1000, 0x100).is_ok());
        assert!(export.pointer(0x1100, 0).is_ok());
        for (addr, len) in [
            (0xfff, 1),
            (0x1000, 0x101),
            (0x1001, u64::MAX),
            (u64::MAX, 1),
            (0x10ff, 2),
        ] {
            assert_eq!(
                export.pointer(addr, len),
                Err(Error::InvalidValue),
                "{addr:#x} {len:#x}"
            );
        }
    }

    #[test]
    fn atomics_need_permission_alignment_and_memory() {
        let mut word = [5_u64, 0];
        let addr = word.as_mut_ptr().expose_provenance() as u64;
        assert_eq!(
            export(addr, 16, false).atomic(addr, fetch_add(1)),
            Err(Error::NotPermitted)
        );
        let allowed = export(addr, 16, true);
        assert_eq!(allowed.atomic(addr, fetch_add(2)), Ok(5));
        assert_eq!(allowed.atomic(addr, compare_swap(0, 9)), Ok(7));
        assert_eq!(allowed.atomic(addr, compare_swap(7, 9)), Ok(7));
        assert_eq!(word[0], 9);
        assert_eq!(
            allowed.atomic(addr + 4, fetch_add(1)),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            allowed.atomic(addr + 16, fetch_add(1)),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            export(0x1000, 8, true).atomic(0x1000, fetch_add(1)),
            Err(Error::InvalidValue)
        );
    }
}
