//! Moving data into and out of bufs.

use super::buf::Buf;
use super::list::{Segment, Segments};
use crate::error::{Error, Result};
use crate::memory;

/// Appends the data of the list `src` to the data of the list `dst`; answers how many bytes.
///
/// # Errors
/// [`Error::TooBig`] when it does not fit, otherwise as [`memory::copy`]. The data of `dst` is as before then, though bytes after it may
/// have been written.
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

/// The rest of some segments.
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
    /// Copies the data of the list to private memory; answers how many bytes.
    ///
    /// # Errors
    /// [`Error::TooBig`] when it is more than `size` bytes, [`Error::BadState`] for a buf that was given back, otherwise as [`memory::copy`].
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
    /// [`Error::TooBig`] when it does not fit, [`Error::BadState`] for a buf that was given back, otherwise as [`memory::copy`]. The data is as before then.
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
