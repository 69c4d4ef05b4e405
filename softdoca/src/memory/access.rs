//! Access to the memory of maps: copies to and from private memory, and atomic access to 8-byte words in this machine's
//! byte order. Ranges are validated here; permissions of a peer's access are validated by the caller.

use std::sync::atomic::{AtomicU64, Ordering};

use super::imported::{Imported, Piece, Region};
use super::mmap::Mmap;
use crate::check::{self, Mistake};
use crate::error::{Error, Result};
use crate::prefetch::LINE;

/// Copies `len` bytes between (or within) maps. Addresses of an imported map are its exporter's.
///
/// # Errors
/// [`Error::InvalidValue`] outside a range, [`Error::BadState`] if a map is not started, [`Error::NotPermitted`] if
/// `dst` is not writable, [`Error::NotFound`] if an exporter has exited or withdrawn the memory; if an exporter's
/// agent copies, its errors.
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
            // At most `len`, so it fits.
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
/// A page, to which addresses are compared by the CPUs concerned.
const PAGE: usize = 4096;

/// As [`std::ptr::copy`], for bytes. The ranges may overlap.
///
/// The C library copies more than 2 to 4 KiB with `rep movsb`. AMD's Zen 3 and Zen 4 do that 15 to 25 times slower if
/// the destination starts up to 63 bytes after the source, modulo the page size, as is the case for a page copied to
/// any large buffer from `malloc`. (glibc 2.39 avoids it; Debian 12 and Ubuntu 22.04 are older.) Pieces are copied
/// with loads and stores, at full speed.
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
    /// Prefetches the `len` bytes at `addr`. A hint: no effect on memory that is not mapped here.
    #[inline]
    pub fn prefetch(&self, addr: u64, len: usize) {
        let len = len.min(LINES * LINE);
        let Some(start) = self.local_ptr(addr, len as u64) else {
            return;
        };
        for offset in (0..len).step_by(LINE) {
            crate::prefetch::to_read(start.wrapping_add(offset));
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

#[cfg(test)]
mod tests {
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
}
