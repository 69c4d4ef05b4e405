//! Copies between memory maps and private memory. Ranges are validated here; permissions of a peer's access are
//! validated by the caller.

use super::imported::Region;
use super::imported::{Imported, Piece};
use super::mmap::Mmap;
use super::move_bytes::move_bytes;
use crate::check::{self, Mistake};
use crate::error::{Error, Result};

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
