//! One buf.

use std::cell::{Cell, Ref, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::inventory::FreeList;
use crate::check::{self, Mistake, Object};
use crate::error::{Error, Result};
use crate::memory::Mmap;

/// A buf. Lives in its inventory, where its address does not change: the C handle is a pointer to it.
///
/// What tasks need is in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Buf {
    /// `None` while the buf is in the inventory.
    mmap: RefCell<Option<Arc<Mmap>>>,
    head: Cell<u64>,
    len: Cell<usize>,
    data: Cell<u64>,
    data_len: Cell<usize>,
    /// The next one in its list; in the inventory, the next free one.
    pub(super) next: Cell<Option<BufHandle>>,
    refcount: Cell<u16>,
    /// Whether another buf's `next` is this one.
    pub(super) is_linked: Cell<bool>,
    free: Rc<FreeList>,
}

const _: () = assert!(std::mem::offset_of!(Buf, free) == 64);

impl Buf {
    pub(super) fn new(free: &Rc<FreeList>) -> Buf {
        Buf {
            free: Rc::clone(free),
            mmap: RefCell::new(None),
            head: Cell::new(0),
            len: Cell::new(0),
            data: Cell::new(0),
            data_len: Cell::new(0),
            refcount: Cell::new(0),
            next: Cell::new(None),
            is_linked: Cell::new(false),
        }
    }

    /// Puts a buf that came off the free list to use. The ranges have been checked.
    pub(super) fn take(&self, mmap: &Arc<Mmap>, head: u64, len: usize, data: u64, data_len: usize) {
        mmap.count_buf();
        check::created(Object::Buf);
        *self.mmap.borrow_mut() = Some(Arc::clone(mmap));
        self.head.set(head);
        self.len.set(len);
        self.data.set(data);
        self.data_len.set(data_len);
        self.refcount.set(1);
        self.next.set(None);
        self.is_linked.set(false);
    }

    /// Gives a buf back to its inventory.
    fn release(&self) {
        if let Some(mmap) = self.mmap.take() {
            mmap.uncount_buf();
            check::destroyed(Object::Buf);
        }
        self.refcount.set(0);
        self.is_linked.set(false);
        self.data_len.set(0);
        self.free.push(self);
    }

    /// The map that it points into.
    ///
    /// # Errors
    /// [`Error::BadState`] when the buf was given back to its inventory.
    #[inline]
    pub fn mmap(&self) -> Result<Ref<'_, Arc<Mmap>>> {
        Ref::filter_map(self.mmap.borrow(), Option::as_ref).map_err(|_| Error::BadState)
    }

    /// First address.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.get()
    }

    /// Bytes from [`Buf::head`] on that it covers.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.len.get()
    }

    /// First address of the data.
    #[inline]
    pub fn data(&self) -> u64 {
        self.data.get()
    }

    /// Bytes of data in this buf alone.
    #[inline]
    pub fn data_len(&self) -> usize {
        self.data_len.get()
    }

    /// Bytes after the data in this buf alone; 0 for data that ends behind the buf.
    #[inline]
    pub fn tail_len(&self) -> usize {
        // Buf and data lie inside of a map, whose range does not wrap around.
        let (end, data_end) = (
            self.head.get() + self.len.get() as u64,
            self.data.get() + self.data_len.get() as u64,
        );
        end.saturating_sub(data_end) as usize
    }

    /// Moves the data: inside the buf, as programs should, or elsewhere in its map. The buf's own range does not change.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] when it would leave the map, [`Error::BadState`] for a buf that was given back; nothing is changed then.
    #[inline]
    pub fn set_data(&self, data: u64, data_len: usize) -> Result<()> {
        if !fits(self.head(), self.capacity(), data, data_len) {
            self.check_outside(data, data_len)?;
        }
        self.data.set(data);
        self.data_len.set(data_len);
        Ok(())
    }

    /// Checks data outside of the buf.
    #[cold]
    fn check_outside(&self, data: u64, data_len: usize) -> Result<()> {
        let is_mapped = self.mmap()?.contains(data, data_len as u64);
        report_outside(data, data_len);
        if is_mapped {
            return Ok(());
        }
        Err(Error::InvalidValue.because(format_args!(
            "data of {data_len} bytes at {data:#x} is outside of the mmap of the buf: {} bytes at {:#x}",
            self.capacity(),
            self.head()
        )))
    }

    /// Changes the length of the data, not its begin.
    ///
    /// # Errors
    /// As [`Buf::set_data`].
    #[inline]
    pub fn set_data_len(&self, data_len: usize) -> Result<()> {
        self.set_data(self.data(), data_len)
    }

    /// Forgets the data; it still begins at the same address.
    #[inline]
    pub fn reset_data_len(&self) {
        self.data_len.set(0);
    }

    /// Adds `len` bytes that were written after the data to it. `len` is at most [`Buf::tail_len`].
    #[inline]
    pub(crate) fn grow(&self, len: usize) {
        debug_assert!(len <= self.tail_len());
        self.data_len.set(self.data_len() + len);
    }

    /// Points the buf to `len` other bytes of its map, with `data_len` bytes of data at `data`. Its place in a list stays.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] when they are outside the map, or the data outside of them; [`Error::BadState`] for a buf that was given
    /// back. Nothing is changed then.
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

    /// [`Buf::reuse_by_args`] with nothing but data.
    ///
    /// # Errors
    /// As [`Buf::reuse_by_args`].
    #[inline]
    pub fn reuse_by_data(&self, addr: u64, len: usize) -> Result<()> {
        self.reuse_by_args(addr, len, addr, len)
    }

    /// References to the buf; for a list, to its first.
    pub fn refcount(&self) -> u16 {
        self.refcount.get()
    }

    /// Adds a reference; answers how many there were.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] inside a list, [`Error::TooBig`] at 65535, [`Error::BadState`] for a buf that was given back.
    pub fn inc_refcount(&self) -> Result<u16> {
        let before = self.counted()?;
        self.refcount
            .set(before.checked_add(1).ok_or(Error::TooBig)?);
        Ok(before)
    }

    /// Removes a reference; answers how many there were. The last one gives the buf, with the rest of its list, back to the inventory.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] inside a list, [`Error::BadState`] for a buf that was given back.
    pub fn dec_refcount(&self) -> Result<u16> {
        let before = self.counted()?;
        if before > 1 {
            self.refcount.set(before - 1);
        } else {
            let mut next = Some(self);
            while let Some(buf) = next {
                // Before the release, which uses the link for the free list. A buf without references has no list.
                next = buf.next_in_list();
                buf.release();
            }
        }
        Ok(before)
    }

    fn counted(&self) -> Result<u16> {
        if self.is_linked.get() {
            return Err(
                Error::NotPermitted.because("references are counted on the first buf of a list")
            );
        }
        match self.refcount.get() {
            0 => {
                check::report(Mistake::BufReturnedTwice, format_args!("buf {self:p}"));
                Err(Error::BadState.because("the buf was given back to its inventory already"))
            }
            count => Ok(count),
        }
    }
}

/// A program has aimed a buf at what is not its.
pub(super) fn report_outside(addr: u64, len: usize) {
    check::report(
        Mistake::BufOutside,
        format_args!("{len} bytes at {addr:#x}"),
    );
}

/// Whether data lies inside a buf. Never wraps around.
pub(super) fn fits(head: u64, len: usize, data: u64, data_len: usize) -> bool {
    let len = len as u64;
    data.checked_sub(head)
        .is_some_and(|offset| offset <= len && data_len as u64 <= len - offset)
}

/// A buf that somebody else keeps alive: how tasks refer to bufs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufHandle(NonNull<Buf>);

impl BufHandle {
    /// A handle to a buf.
    ///
    /// # Safety
    /// The inventory of the buf exists as long as the handle or a copy of it is used, and is used by no other thread meanwhile. DOCA asks
    /// the same of programs: bufs stay with a task until it is complete, and an inventory with bufs out is not destroyed.
    pub unsafe fn new(buf: &Buf) -> BufHandle {
        BufHandle(NonNull::from(buf))
    }

    /// For links inside of lists and inventories, which bufs that are in use keep alive.
    pub(super) fn link(buf: &Buf) -> BufHandle {
        BufHandle(NonNull::from(buf))
    }

    /// # Safety
    /// As [`BufHandle::new`], for `'a`.
    pub(super) unsafe fn resolve<'a>(self) -> &'a Buf {
        // SAFETY: bufs do not move, are shared only within a thread, and exist by the caller's promise.
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
        // SAFETY: promised when the handle was made.
        unsafe { self.resolve() }
    }
}
