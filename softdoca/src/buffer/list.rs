//! Lists of bufs.

use std::cell::Ref;
use std::sync::Arc;

use super::buf::{Buf, BufHandle};
use crate::error::{Error, Result};
use crate::memory::Mmap;

impl Buf {
    /// The next buf of the list.
    #[inline]
    pub fn next_in_list(&self) -> Option<&Buf> {
        // SAFETY: bufs of a list are in use until the whole list is given back, and an inventory with bufs in use keeps them.
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

    /// Whether no other buf comes before it.
    pub fn is_first_in_list(&self) -> bool {
        !self.is_linked.get()
    }

    /// Whether it is chained to others.
    pub fn is_in_list(&self) -> bool {
        self.is_linked.get() || self.next_in_list().is_some()
    }

    /// Appends the list `other` to this one. From then on its first buf's references are this one's.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] when `other` has more than one reference, [`Error::InvalidValue`] when one of the two is not the first of its
    /// list, or both are the same.
    pub fn chain(&self, other: &Buf) -> Result<()> {
        if !self.is_first_in_list() || !other.is_first_in_list() || std::ptr::eq(self, other) {
            return Err(Error::InvalidValue.because("two lists are chained by their first bufs"));
        }
        if self.refcount() == 0 || other.refcount() != 1 {
            return Err(Error::NotPermitted.because(format_args!(
                "a list that is appended has one reference, this one has {}",
                other.refcount()
            )));
        }
        self.last_in_list().next.set(Some(BufHandle::link(other)));
        other.is_linked.set(true);
        Ok(())
    }

    /// Takes the list off that begins with `other` inside of this one. It has one reference then.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] when `other` does not come after this buf in its list.
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

    /// Bytes of data in the list.
    #[inline]
    pub fn list_data_len(&self) -> usize {
        self.list().map(Buf::data_len).sum()
    }

    /// Bytes that can be appended to the bufs of the list.
    #[inline]
    pub fn list_tail_len(&self) -> usize {
        self.list().map(Buf::tail_len).sum()
    }

    /// The data of the list, piece by piece; no piece is empty.
    #[inline]
    pub fn data_segments(&self) -> Segments<'_> {
        Segments {
            bufs: self.list(),
            range: |buf| (buf.data(), buf.data_len()),
        }
    }

    /// Where data can be appended, piece by piece; no piece is empty. [`Buf::append`] makes it data.
    #[inline]
    pub fn tail_segments(&self) -> Segments<'_> {
        Segments {
            bufs: self.list(),
            range: |buf| (buf.data() + buf.data_len() as u64, buf.tail_len()),
        }
    }

    /// Counts the first `len` bytes of [`Buf::tail_segments`] as data.
    ///
    /// # Errors
    /// [`Error::TooBig`] when there are not as many; nothing is changed then.
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

/// A run of bytes in one map.
#[derive(Debug)]
pub struct Segment<'a> {
    /// The map.
    pub mmap: Ref<'a, Arc<Mmap>>,
    /// First address, as the map counts.
    pub addr: u64,
    /// In bytes, not 0.
    pub len: usize,
}

/// Iterator over the data or the tails of a list. Bufs that were given back have none.
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
