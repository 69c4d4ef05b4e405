//! Lists of bufs, and copies into and out of them.

use std::cell::Ref;
use std::sync::Arc;

use super::buf::{Buf, BufHandle};
use crate::error::{Error, Result};
use crate::memory;
use crate::memory::Mmap;

impl Buf {
    /// The next buf of the list.
    #[inline]
    pub fn next_in_list(&self) -> Option<&Buf> {
        // SAFETY: bufs of a list are in use until the whole list is returned, and an inventory keeps its bufs while any
        // is in use.
        (self.refcount() != 0)
            .then(|| self.next.get().map(|next| unsafe { next.resolve() }))
            .flatten()
    }

    /// This buf and those after it.
    #[inline]
    pub fn list(&self) -> Bufs<'_> {
        Bufs { next: Some(self) }
    }

    /// The last buf of the list.
    pub fn last_in_list(&self) -> &Buf {
        self.list().last().unwrap_or(self)
    }

    /// `true` if no other buf precedes this one.
    pub fn is_first_in_list(&self) -> bool {
        !self.is_linked.get()
    }

    /// `true` if the buf is chained to others.
    pub fn is_in_list(&self) -> bool {
        self.is_linked.get() || self.next_in_list().is_some()
    }

    /// Appends the list `other` to this one, whose reference count applies to both from then on.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if `other` has more than one reference, [`Error::InvalidValue`] if either is not the
    /// first of its list, or both are the same.
    pub fn chain(&self, other: &Buf) -> Result<()> {
        if !self.is_first_in_list() || !other.is_first_in_list() || std::ptr::eq(self, other) {
            return Err(Error::InvalidValue.because("expected the first bufs of two lists"));
        }
        if self.refcount() == 0 || other.refcount() != 1 {
            return Err(Error::NotPermitted.because(format_args!(
                "expected one reference to the appended list, got {}",
                other.refcount()
            )));
        }
        self.last_in_list().next.set(Some(BufHandle::link(other)));
        other.is_linked.set(true);
        Ok(())
    }

    /// Splits the list before `other`, which gets one reference.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if `other` does not come after this buf in its list.
    pub fn unchain(&self, other: &Buf) -> Result<()> {
        let before = self.list().find(|buf| {
            buf.next_in_list()
                .is_some_and(|next| std::ptr::eq(next, other))
        });
        let before = before
            .ok_or_else(|| Error::InvalidValue.because("the buf is not part of that list"))?;
        before.next.set(None);
        other.is_linked.set(false);
        Ok(())
    }

    /// Length of the data in the list, in bytes.
    #[inline]
    pub fn list_data_len(&self) -> usize {
        self.list().map(Buf::data_len).sum()
    }

    /// Number of bytes that can be appended to the list.
    #[inline]
    pub fn list_tail_len(&self) -> usize {
        self.list().map(Buf::tail_len).sum()
    }

    /// The data of the list as segments, none of them empty.
    #[inline]
    pub fn data_segments(&self) -> Segments<'_> {
        Segments {
            bufs: self.list(),
            range: |buf| (buf.data(), buf.data_len()),
        }
    }

    /// The free bytes after the data of each buf as segments, none of them empty. [`Buf::append`] turns them into data.
    #[inline]
    pub fn tail_segments(&self) -> Segments<'_> {
        Segments {
            bufs: self.list(),
            range: |buf| (buf.data() + buf.data_len() as u64, buf.tail_len()),
        }
    }

    /// Adds the first `len` bytes of [`Buf::tail_segments`] to the data.
    ///
    /// # Errors
    /// [`Error::TooBig`] if there are fewer; the list is unchanged then.
    #[inline]
    pub fn append(&self, len: usize) -> Result<()> {
        if self.next_in_list().is_none() && len <= self.tail_len() {
            self.grow(len);
            return Ok(());
        }
        if len > self.list_tail_len() {
            return Err(Error::TooBig);
        }
        let mut left = len;
        for buf in self.list() {
            let part = left.min(buf.tail_len());
            buf.grow(part);
            left -= part;
        }
        Ok(())
    }
}

/// Iterator over the bufs of a list.
#[derive(Clone, Debug)]
pub struct Bufs<'a> {
    next: Option<&'a Buf>,
}

impl<'a> Iterator for Bufs<'a> {
    type Item = &'a Buf;

    #[inline]
    fn next(&mut self) -> Option<&'a Buf> {
        let buf = self.next?;
        self.next = buf.next_in_list();
        Some(buf)
    }
}

/// A contiguous range of one map.
#[derive(Debug)]
pub struct Segment<'a> {
    /// Map of the range.
    pub mmap: Ref<'a, Arc<Mmap>>,
    /// Address in the map's address space.
    pub addr: u64,
    /// Length in bytes, not 0.
    pub len: usize,
}

/// Iterator over the data or the free bytes of a list. Returned bufs have none.
#[derive(Debug)]
pub struct Segments<'a> {
    bufs: Bufs<'a>,
    range: fn(&Buf) -> (u64, usize),
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    #[inline]
    fn next(&mut self) -> Option<Segment<'a>> {
        loop {
            let buf = self.bufs.next()?;
            let (addr, len) = (self.range)(buf);
            if len != 0
                && let Ok(mmap) = buf.mmap()
            {
                return Some(Segment { mmap, addr, len });
            }
        }
    }
}

/// Appends the data of the list `src` to the data of the list `dst`. Returns the number of bytes.
///
/// # Errors
/// [`Error::TooBig`] if it does not fit, otherwise as [`memory::copy`]. The data of `dst` is unchanged then, but bytes
/// after it may have been written.
pub fn copy_list(dst: &Buf, src: &Buf) -> Result<usize> {
    let total = src.list_data_len();
    if total > dst.list_tail_len() {
        return Err(Error::TooBig);
    }
    let (mut from, mut to) = (
        Cursor::new(src.data_segments()),
        Cursor::new(dst.tail_segments()),
    );
    let mut left = total;
    while left != 0 {
        let (Some(source), Some(target)) = (from.current(), to.current()) else {
            return Err(Error::BadState);
        };
        let len = left.min(source.len).min(target.len);
        memory::copy(&target.mmap, target.addr, &source.mmap, source.addr, len)?;
        from.advance(len);
        to.advance(len);
        left -= len;
    }
    dst.append(total)?;
    Ok(total)
}

/// Position within a sequence of segments.
struct Cursor<'a> {
    segments: Segments<'a>,
    current: Option<Segment<'a>>,
}

impl<'a> Cursor<'a> {
    fn new(segments: Segments<'a>) -> Cursor<'a> {
        Cursor {
            segments,
            current: None,
        }
    }

    fn current(&mut self) -> Option<&Segment<'a>> {
        if self.current.as_ref().is_none_or(|segment| segment.len == 0) {
            self.current = self.segments.next();
        }
        self.current.as_ref()
    }

    fn advance(&mut self, len: usize) {
        if let Some(segment) = &mut self.current {
            segment.addr += len as u64;
            segment.len -= len;
        }
    }
}

impl Buf {
    /// Copies the data of the list to private memory. Returns the number of bytes.
    ///
    /// # Errors
    /// [`Error::TooBig`] if it exceeds `size` bytes, [`Error::BadState`] for a returned buf, otherwise as
    /// [`memory::copy`].
    ///
    /// # Safety
    /// The `size` bytes at `to` are the caller's to write.
    #[inline]
    pub unsafe fn read_data(&self, to: *mut u8, size: usize) -> Result<usize> {
        let total = self.list_data_len();
        if total > size {
            return Err(Error::TooBig);
        }
        let mut done = 0;
        for segment in self.data_segments() {
            // SAFETY: all segments together have `total` bytes.
            unsafe {
                segment
                    .mmap
                    .read_into(segment.addr, to.add(done), segment.len)
            }?;
            done += segment.len;
        }
        if done == total {
            Ok(done)
        } else {
            Err(Error::BadState)
        }
    }

    /// Appends private memory to the data of the list.
    ///
    /// # Errors
    /// [`Error::TooBig`] if it does not fit, [`Error::BadState`] for a returned buf, otherwise as [`memory::copy`]. The
    /// data is unchanged then.
    ///
    /// # Safety
    /// The `len` bytes at `from` can be read.
    #[inline]
    pub unsafe fn append_data(&self, from: *const u8, len: usize) -> Result<()> {
        if len > self.list_tail_len() {
            return Err(Error::TooBig);
        }
        let mut done = 0;
        for segment in self.tail_segments() {
            if done == len {
                break;
            }
            let part = segment.len.min(len - done);
            // SAFETY: at most `len` bytes in all.
            unsafe { segment.mmap.write_from(segment.addr, from.add(done), part) }?;
            done += part;
        }
        if done != len {
            return Err(Error::BadState);
        }
        self.append(len)
    }
}
