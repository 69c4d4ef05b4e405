//! Bufs: descriptors of a range of a memory map, stored in inventories and chained into lists.
//!
//! A buf covers `len` bytes starting at `head`; its data is the `data_len` bytes starting at `data` within that range.
//! Results of a task are appended to the data of its destination.
//!
//! As in DOCA, a buf is used by one thread at a time: there are no locks.

mod inventory;

pub use inventory::{BufInventory, BufPool};

use std::cell::{Cell, Ref, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use crate::check::{self, Mistake, Object};
use crate::device::DeviceKey;
use crate::error::{Error, Result};
use crate::memory;
use crate::memory::Mmap;
use inventory::FreeList;

/// A buf. It is at a fixed address in its inventory, and the C handle is a pointer to it.
///
/// The fields that tasks read share one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Buf {
    /// `None` while the buf is in the inventory.
    mmap: RefCell<Option<Arc<Mmap>>>,
    head: Cell<u64>,
    len: Cell<usize>,
    data: Cell<u64>,
    data_len: Cell<usize>,
    /// Next buf in the list; for a free buf, the next free one in the inventory.
    next: Cell<Option<BufHandle>>,
    /// The devices with keys for the map; all while the buf is in the inventory.
    device_keys: Cell<u32>,
    refcount: Cell<u16>,
    /// `true` if another buf's `next` is this one.
    is_linked: Cell<bool>,
    free: Rc<FreeList>,
}

const _: () = assert!(std::mem::offset_of!(Buf, free) == 64);

impl Buf {
    fn new(free: &Rc<FreeList>) -> Buf {
        Buf {
            free: Rc::clone(free),
            mmap: RefCell::new(None),
            head: Cell::new(0),
            len: Cell::new(0),
            data: Cell::new(0),
            data_len: Cell::new(0),
            device_keys: Cell::new(u32::MAX),
            refcount: Cell::new(0),
            next: Cell::new(None),
            is_linked: Cell::new(false),
        }
    }

    /// Initializes a buf taken from the free list. The ranges have been checked.
    fn take(&self, mmap: &Arc<Mmap>, head: u64, len: usize, data: u64, data_len: usize) {
        mmap.count_buf();
        check::created(Object::Buf);
        *self.mmap.borrow_mut() = Some(Arc::clone(mmap));
        self.head.set(head);
        self.len.set(len);
        self.data.set(data);
        self.data_len.set(data_len);
        self.device_keys.set(mmap.device_keys());
        self.refcount.set(1);
        self.next.set(None);
        self.is_linked.set(false);
    }

    /// Returns a buf to its inventory.
    fn release(&self) {
        if let Some(mmap) = self.mmap.take() {
            mmap.uncount_buf();
            check::destroyed(Object::Buf);
        }
        self.device_keys.set(u32::MAX);
        self.refcount.set(0);
        self.is_linked.set(false);
        self.data_len.set(0);
        self.free.push(self);
    }

    /// The map of the buf.
    ///
    /// # Errors
    /// [`Error::BadState`] if the buf was returned to its inventory.
    #[inline]
    pub fn mmap(&self) -> Result<Ref<'_, Arc<Mmap>>> {
        Ref::filter_map(self.mmap.borrow(), Option::as_ref).map_err(|_| Error::BadState)
    }

    /// Checks that the device has a key for the memory of all bufs of the list, i.e. that it was added to their maps.
    /// Bufs that were returned to their inventory are reported when the task runs.
    ///
    /// # Errors
    /// [`Error::InvalidValue`].
    #[inline]
    pub(crate) fn check_device(&self, key: DeviceKey) -> Result<()> {
        let has_key = |buf: &Buf| key.is_in(buf.device_keys.get());
        if has_key(self) && (self.next.get().is_none() || self.list().all(has_key)) {
            return Ok(());
        }
        Err(no_key())
    }

    /// First address.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.get()
    }

    /// Size of the range that starts at [`Buf::head`], in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.len.get()
    }

    /// First address of the data.
    #[inline]
    pub fn data(&self) -> u64 {
        self.data.get()
    }

    /// Length of the data in this buf, in bytes; the rest of the list does not count.
    #[inline]
    pub fn data_len(&self) -> usize {
        self.data_len.get()
    }

    /// Bytes after the data in this buf; 0 if the data ends outside of the buf.
    #[inline]
    pub fn tail_len(&self) -> usize {
        // Cannot overflow: buf and data are inside a map, whose range does not wrap around.
        let (end, data_end) = (
            self.head.get() + self.len.get() as u64,
            self.data.get() + self.data_len.get() as u64,
        );
        end.saturating_sub(data_end) as usize
    }

    /// Moves the data within the buf, as programs should, or elsewhere in its map. The buf's own range does not change.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the data would leave the map, [`Error::BadState`] if the buf was returned. In both
    /// cases, the buf is unchanged.
    #[inline]
    pub fn set_data(&self, data: u64, data_len: usize) -> Result<()> {
        if !fits(self.head(), self.capacity(), data, data_len) {
            self.check_outside(data, data_len)?;
        }
        self.data.set(data);
        self.data_len.set(data_len);
        Ok(())
    }

    /// Checks data that is not inside the buf.
    #[cold]
    fn check_outside(&self, data: u64, data_len: usize) -> Result<()> {
        let is_mapped = self.mmap()?.contains(data, data_len as u64);
        if is_mapped {
            check::report(
                Mistake::DataOutsideBuf,
                format_args!("{data_len} bytes at {data:#x}"),
            );
            return Ok(());
        }
        report_outside(data, data_len);
        Err(Error::InvalidValue.because(format_args!(
            "data of {data_len} bytes at {data:#x} is outside of the mmap of the buf: {} bytes at {:#x}",
            self.capacity(),
            self.head()
        )))
    }

    /// Sets the length of the data; its start does not change.
    ///
    /// # Errors
    /// As [`Buf::set_data`].
    #[inline]
    pub fn set_data_len(&self, data_len: usize) -> Result<()> {
        self.set_data(self.data(), data_len)
    }

    /// Sets the length of the data to 0; its start does not change.
    #[inline]
    pub fn reset_data_len(&self) {
        self.data_len.set(0);
    }

    /// Adds `len` bytes, written after the data, to the data. `len` is at most [`Buf::tail_len`].
    #[inline]
    pub(crate) fn grow(&self, len: usize) {
        debug_assert!(len <= self.tail_len());
        self.data_len.set(self.data_len() + len);
    }

    /// Sets the buf's range to `len` bytes of its map, with `data_len` bytes of data at `data`. Its position in a list
    /// does not change.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the range is outside the map, or the data outside the range; [`Error::BadState`] if
    /// the buf was returned. In both cases, the buf is unchanged.
    #[inline]
    pub fn reuse_by_args(&self, addr: u64, len: usize, data: u64, data_len: usize) -> Result<()> {
        if !self.mmap()?.contains(addr, len as u64) {
            report_outside(addr, len);
            return Err(Error::InvalidValue.because(format_args!(
                "{len} bytes at {addr:#x} are outside of the buf's mmap"
            )));
        }
        if !fits(addr, len, data, data_len) {
            report_outside(data, data_len);
            return Err(Error::InvalidValue.because(format_args!(
                "data of {data_len} bytes at {data:#x} is outside of the buf: {len} bytes at {addr:#x}"
            )));
        }
        self.head.set(addr);
        self.len.set(len);
        self.data.set(data);
        self.data_len.set(data_len);
        Ok(())
    }

    /// [`Buf::reuse_by_args`] without data.
    ///
    /// # Errors
    /// As [`Buf::reuse_by_args`].
    #[inline]
    pub fn reuse_by_addr(&self, addr: u64, len: usize) -> Result<()> {
        self.reuse_by_args(addr, len, addr, 0)
    }

    /// [`Buf::reuse_by_args`] with a range that is all data.
    ///
    /// # Errors
    /// As [`Buf::reuse_by_args`].
    #[inline]
    pub fn reuse_by_data(&self, addr: u64, len: usize) -> Result<()> {
        self.reuse_by_args(addr, len, addr, len)
    }

    /// Reference count of the buf, or of the first buf of its list.
    pub fn refcount(&self) -> u16 {
        self.refcount.get()
    }

    /// Adds a reference. Returns the previous count.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a buf inside a list, [`Error::TooBig`] at 65535, [`Error::BadState`] if the buf was
    /// returned.
    pub fn inc_refcount(&self) -> Result<u16> {
        let before = self.counted()?;
        self.refcount
            .set(before.checked_add(1).ok_or(Error::TooBig)?);
        Ok(before)
    }

    /// Removes a reference. Returns the previous count. Removing the last one returns the buf and the rest of its list
    /// to the inventory.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a buf inside a list, [`Error::BadState`] if the buf was returned.
    pub fn dec_refcount(&self) -> Result<u16> {
        let before = self.counted()?;
        if before > 1 {
            self.refcount.set(before - 1);
        } else {
            let mut next = Some(self);
            while let Some(buf) = next {
                // Must precede the release, which reuses the link for the free list. A buf without references has no
                // list.
                next = buf.next_in_list();
                buf.release();
            }
        }
        Ok(before)
    }

    fn counted(&self) -> Result<u16> {
        if self.is_linked.get() {
            return Err(Error::NotPermitted
                .because("expected the first buf of a list, which counts the references"));
        }
        match self.refcount.get() {
            0 => {
                check::report(Mistake::BufReturnedTwice, format_args!("buf {self:p}"));
                Err(Error::BadState.because("the buf was already returned to its inventory"))
            }
            count => Ok(count),
        }
    }
}

/// Reports a programming error: a buf that would exceed its map, or data that would exceed its buf. The call is
/// refused.
fn report_outside(addr: u64, len: usize) {
    check::report(
        Mistake::BufOutside,
        format_args!("{len} bytes at {addr:#x}"),
    );
}

#[cold]
#[inline(never)]
fn no_key() -> Error {
    Error::InvalidValue.because(
        "the device of the context was not added to the mmap of one of the task's bufs: call doca_mmap_add_dev before \
         doca_mmap_start, or import the memory with that device",
    )
}

/// `true` if the data is inside the range. Does not overflow.
fn fits(head: u64, len: usize, data: u64, data_len: usize) -> bool {
    let len = len as u64;
    data.checked_sub(head)
        .is_some_and(|offset| offset <= len && data_len as u64 <= len - offset)
}

/// A non-owning reference to a buf, used by tasks; the buf must be kept alive elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufHandle(NonNull<Buf>);

impl BufHandle {
    /// A handle to a buf.
    ///
    /// # Safety
    /// The inventory of the buf exists as long as the handle or a copy of it is used, and is not used by another thread
    /// during the call. DOCA asks the same of programs: bufs stay with a task until it is complete, and an inventory
    /// with bufs out is not destroyed.
    pub unsafe fn new(buf: &Buf) -> BufHandle {
        BufHandle(NonNull::from(buf))
    }

    /// A handle for links within lists and inventories, which exist as long as bufs are in use.
    fn link(buf: &Buf) -> BufHandle {
        BufHandle(NonNull::from(buf))
    }

    /// # Safety
    /// As [`BufHandle::new`], for `'a`.
    unsafe fn resolve<'a>(self) -> &'a Buf {
        // SAFETY: bufs do not move, are shared only within a thread, and the caller guarantees that this one exists.
        unsafe { self.0.as_ref() }
    }

    /// The C handle.
    pub fn as_ptr(self) -> *mut Buf {
        self.0.as_ptr()
    }
}

impl Deref for BufHandle {
    type Target = Buf;

    #[inline]
    fn deref(&self) -> &Buf {
        // SAFETY: guaranteed when the handle was created.
        unsafe { self.resolve() }
    }
}

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

    /// This buf and all following ones.
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
    /// [`Error::InvalidValue`] if `other` does not follow this buf in its list.
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
    /// [`Error::TooBig`] if there are fewer; in this case, the list is unchanged.
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
/// [`Error::TooBig`] if it does not fit, otherwise as [`memory::copy`]. After an error, the data of `dst` is unchanged,
/// but bytes after it may have been written.
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
}

#[cfg(test)]
mod tests {
    //! Tests that combine bufs, lists and inventories.

    use std::sync::Arc;

    use super::{Buf, BufInventory, copy_list};
    use crate::error::Error;
    use crate::memory::{Mmap, Permissions};

    /// A started map over its own memory.
    struct Memory {
        mmap: Arc<Mmap>,
        bytes: Box<[u8]>,
    }

    impl Memory {
        fn new(len: usize) -> Memory {
            let mut bytes: Box<[u8]> = (0..len).map(|index| index as u8).collect();
            let mmap = Mmap::new();
            mmap.set_memrange(bytes.as_mut_ptr().expose_provenance() as u64, len as u64)
                .unwrap();
            mmap.start().unwrap();
            Memory {
                mmap: Arc::new(mmap),
                bytes,
            }
        }

        fn addr(&self, offset: usize) -> u64 {
            self.mmap.memrange().unwrap().0 + offset as u64
        }

        fn read(&self, offset: usize, len: usize) -> Vec<u8> {
            let mut read = vec![0; len];
            // SAFETY: the vector has that many bytes.
            unsafe {
                self.mmap
                    .read_into(self.addr(offset), read.as_mut_ptr(), len)
            }
            .unwrap();
            read
        }
    }

    fn inventory(count: usize) -> BufInventory {
        let inventory = BufInventory::new(count).unwrap();
        inventory.start();
        inventory
    }

    fn view(buf: &Buf) -> (u64, usize, u64, usize) {
        (buf.head(), buf.capacity(), buf.data(), buf.data_len())
    }

    #[test]
    fn bufs_are_bounded_by_their_map() {
        let (memory, inventory) = (Memory::new(100), inventory(4));
        let at = |offset| memory.addr(offset);
        assert_eq!(
            view(inventory.get_by_addr(&memory.mmap, at(10), 90).unwrap()),
            (at(10), 90, at(10), 0)
        );
        assert_eq!(
            view(inventory.get_by_data(&memory.mmap, at(100), 0).unwrap()),
            (at(100), 0, at(100), 0)
        );
        for (addr, len) in [
            (at(10), 91),
            (at(0) - 1, 2),
            (at(1), usize::MAX),
            (u64::MAX, 2),
            (at(101), 0),
        ] {
            assert_eq!(
                inventory.get_by_addr(&memory.mmap, addr, len).unwrap_err(),
                Error::InvalidValue
            );
        }
        assert_eq!(
            inventory
                .get_by_args(&memory.mmap, at(0), 10, at(5), 6)
                .unwrap_err(),
            Error::InvalidValue
        );
        let buf = inventory
            .get_by_args(&memory.mmap, at(0), 10, at(5), 5)
            .unwrap();
        assert_eq!(buf.tail_len(), 0);
        assert_eq!(buf.set_data(at(0), 101), Err(Error::InvalidValue));
        assert_eq!(buf.set_data(at(101), 0), Err(Error::InvalidValue));
        assert_eq!(buf.set_data(at(0) - 1, 1), Err(Error::InvalidValue));
        assert_eq!(buf.set_data(at(5), usize::MAX), Err(Error::InvalidValue));
        assert_eq!(view(buf), (at(0), 10, at(5), 5));
        // Outside of the buf, but inside the map.
        for (data, len) in [(9, 2), (11, 0), (40, 60)] {
            assert_eq!(buf.set_data(at(data), len), Ok(()));
            assert_eq!(view(buf), (at(0), 10, at(data), len));
            assert_eq!(buf.tail_len(), 0);
        }
        buf.reuse_by_addr(at(50), 10).unwrap();
        buf.set_data(at(20), 4).unwrap();
        assert_eq!(buf.tail_len(), 36, "up to the end of the buf");
        buf.reuse_by_addr(at(0), 10).unwrap();
        buf.set_data(at(2), 3).unwrap();
        assert_eq!((buf.data_len(), buf.tail_len()), (3, 5));
        buf.reset_data_len();
        assert_eq!((buf.data(), buf.data_len(), buf.tail_len()), (at(2), 0, 8));
        // Bounded by the map, not by the buf's first length.
        buf.reuse_by_data(at(20), 80).unwrap();
        assert_eq!(view(buf), (at(20), 80, at(20), 80));
        buf.reuse_by_addr(at(1), 99).unwrap();
        assert_eq!(view(buf), (at(1), 99, at(1), 0));
        assert_eq!(buf.reuse_by_addr(at(1), 100), Err(Error::InvalidValue));
        assert_eq!(
            buf.reuse_by_data(at(1), usize::MAX),
            Err(Error::InvalidValue)
        );
        assert_eq!(view(buf), (at(1), 99, at(1), 0));
    }

    #[test]
    fn an_inventory_counts_and_can_grow() {
        let memory = Memory::new(8);
        let stopped = BufInventory::new(2).unwrap();
        assert_eq!(
            stopped
                .get_by_addr(&memory.mmap, memory.addr(0), 8)
                .unwrap_err(),
            Error::BadState
        );
        assert_eq!(stopped.expand(1), Err(Error::BadState));
        assert_eq!(BufInventory::new(0).unwrap_err(), Error::InvalidValue);
        assert_eq!(BufInventory::new(usize::MAX).unwrap_err(), Error::NoMemory);
        let inventory = inventory(2);
        let get = || inventory.get_by_addr(&memory.mmap, memory.addr(0), 8);
        let (a, b) = (get().unwrap(), get().unwrap());
        assert_eq!(get().unwrap_err(), Error::NoMemory);
        inventory.expand(1).unwrap();
        let c = get().unwrap();
        assert!(!std::ptr::eq(a, b) && !std::ptr::eq(b, c));
        assert_eq!(
            (
                inventory.count(),
                inventory.free_count(),
                memory.mmap.buf_count()
            ),
            (3, 0, 3)
        );
        assert_eq!(inventory.check_unused(), Err(Error::InUse));
        assert_eq!(memory.mmap.stop(), Err(Error::NotPermitted));
        assert_eq!(a.inc_refcount(), Ok(1));
        assert_eq!((a.dec_refcount(), a.refcount()), (Ok(2), 1));
        for buf in [a, b, c] {
            assert_eq!(buf.dec_refcount(), Ok(1));
            assert_eq!(buf.dec_refcount(), Err(Error::BadState));
        }
        assert_eq!((inventory.free_count(), memory.mmap.buf_count()), (3, 0));
        assert_eq!(inventory.check_unused(), Ok(()));
        assert_eq!(memory.mmap.stop(), Ok(()));
        assert_eq!(get().unwrap_err(), Error::BadState);
    }

    #[test]
    fn a_map_in_use_by_threads_does_not_count_bufs() {
        let (memory, inventory) = (Memory::new(8), inventory(1));
        memory.mmap.stop().unwrap();
        memory.mmap.enable_thread_safety().unwrap();
        memory.mmap.start().unwrap();
        assert_eq!(memory.mmap.enable_thread_safety(), Err(Error::NotPermitted));
        let buf = inventory
            .get_by_data(&memory.mmap, memory.addr(0), 8)
            .unwrap();
        memory.mmap.stop().unwrap();
        // The program may have freed the memory of a stopped map.
        let mut read = [0; 8];
        // SAFETY: the array has 8 bytes.
        let result = unsafe { buf.read_data(read.as_mut_ptr(), 8) };
        assert_eq!(result, Err(Error::BadState));
    }

    #[test]
    fn lists_are_chained_and_returned_whole() {
        let (memory, inventory) = (Memory::new(100), inventory(5));
        let get = |offset, len| {
            inventory
                .get_by_data(&memory.mmap, memory.addr(offset), len)
                .unwrap()
        };
        let (a, b, c, d) = (get(0, 10), get(10, 20), get(30, 30), get(60, 1));
        a.chain(b).unwrap();
        c.chain(d).unwrap();
        assert_eq!(b.chain(c), Err(Error::InvalidValue), "not the first");
        assert_eq!(a.chain(b), Err(Error::InvalidValue), "in a list already");
        assert_eq!(a.chain(a), Err(Error::InvalidValue));
        c.inc_refcount().unwrap();
        assert_eq!(a.chain(c), Err(Error::NotPermitted));
        c.dec_refcount().unwrap();
        a.chain(c).unwrap();
        assert!(a.list().map(Buf::data_len).eq([10, 20, 30, 1]));
        assert_eq!((a.list_data_len(), a.list_tail_len()), (61, 0));
        assert!(std::ptr::eq(a.last_in_list(), d));
        assert!(a.is_first_in_list() && !d.is_first_in_list() && d.is_in_list());
        assert_eq!(b.dec_refcount(), Err(Error::NotPermitted));
        // Links outlive reuse.
        b.reuse_by_addr(memory.addr(50), 50).unwrap();
        assert!(a.list().map(Buf::capacity).eq([10, 50, 30, 1]));
        a.unchain(c).unwrap();
        assert_eq!(a.unchain(c), Err(Error::InvalidValue));
        assert_eq!(
            (a.list().count(), c.list().count(), c.refcount()),
            (2, 2, 1)
        );
        a.chain(c).unwrap();
        assert_eq!((a.dec_refcount(), inventory.free_count()), (Ok(1), 5));
        assert!(a.next_in_list().is_none(), "a free buf is in no list");
    }

    #[test]
    fn duplicates_are_independent_bufs() {
        let (memory, few, many) = (Memory::new(100), inventory(2), inventory(2));
        let get = |offset| {
            few.get_by_data(&memory.mmap, memory.addr(offset), 10)
                .unwrap()
        };
        let (a, b) = (get(0), get(20));
        a.chain(b).unwrap();
        let copy = many.duplicate(a).unwrap();
        assert!(copy.list().map(view).eq(a.list().map(view)));
        assert_eq!(many.duplicate(b).unwrap_err(), Error::NotPermitted);
        copy.dec_refcount().unwrap();
        let one_more = inventory(1);
        many.duplicate(
            one_more
                .get_by_addr(&memory.mmap, memory.addr(0), 1)
                .unwrap(),
        )
        .unwrap();
        assert_eq!(many.duplicate(a).unwrap_err(), Error::NoMemory);
        assert_eq!(many.free_count(), 1, "the half-made copy was given back");
    }

    #[test]
    fn results_are_appended_after_the_data() {
        let (source, target, inventory) = (Memory::new(64), Memory::new(64), inventory(8));
        let from = |offset, len| {
            inventory
                .get_by_data(&source.mmap, source.addr(offset), len)
                .unwrap()
        };
        let list = from(1, 5);
        list.chain(from(20, 0)).unwrap();
        list.chain(from(40, 7)).unwrap();
        let first = inventory
            .get_by_args(&target.mmap, target.addr(0), 8, target.addr(2), 2)
            .unwrap();
        let second = inventory
            .get_by_addr(&target.mmap, target.addr(32), 9)
            .unwrap();
        first.chain(second).unwrap();
        assert_eq!(first.list_tail_len(), 13);
        assert_eq!(copy_list(first, list), Ok(12));
        assert_eq!(
            (first.data_len(), second.data_len(), first.list_tail_len()),
            (6, 8, 1)
        );
        assert_eq!(target.read(0, 9), [0, 1, 2, 3, 1, 2, 3, 4, 8]);
        assert_eq!(target.read(32, 9), [5, 40, 41, 42, 43, 44, 45, 46, 40]);
        assert_eq!(copy_list(first, list), Err(Error::TooBig));
        let mut all = [0; 14];
        // SAFETY: the array has this size.
        unsafe {
            assert_eq!(first.read_data(all.as_mut_ptr(), 14), Ok(14));
            assert_eq!(first.read_data(all.as_mut_ptr(), 13), Err(Error::TooBig));
        }
        assert_eq!(all, [2, 3, 1, 2, 3, 4, 5, 40, 41, 42, 43, 44, 45, 46]);
        assert_eq!(source.bytes.len(), 64);
    }

    #[test]
    fn read_only_memory_is_not_written() {
        let (source, target, inventory) = (Memory::new(8), Memory::new(8), inventory(2));
        target.mmap.stop().unwrap();
        target.mmap.set_permissions(Permissions::empty()).unwrap();
        target.mmap.start().unwrap();
        let from = inventory
            .get_by_data(&source.mmap, source.addr(0), 8)
            .unwrap();
        let to = inventory
            .get_by_addr(&target.mmap, target.addr(0), 8)
            .unwrap();
        assert_eq!(copy_list(to, from), Err(Error::NotPermitted));
        assert_eq!(to.data_len(), 0);
    }
}
