//! The pool that bufs come from.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::buf::{Buf, BufHandle, fits, report_outside};
use crate::error::{Error, Result};
use crate::memory::Mmap;

/// A pool of bufs. Taking one and giving it back allocates nothing.
#[derive(Debug)]
pub struct BufInventory {
    free: Rc<FreeList>,
    /// Owned; never shrunk or moved while the inventory lives. No boxes: moving one says that nobody else points into it.
    slabs: RefCell<Vec<NonNull<[Buf]>>>,
    count: Cell<usize>,
    started: Cell<bool>,
    user_data: Cell<u64>,
}

/// The bufs that nobody uses, linked through `next`.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    first: Cell<Option<BufHandle>>,
    count: Cell<usize>,
}

impl FreeList {
    pub(super) fn push(&self, buf: &Buf) {
        buf.next.set(self.first.replace(Some(BufHandle::link(buf))));
        self.count.set(self.count.get() + 1);
    }

    fn pop(&self) -> Option<BufHandle> {
        let first = self.first.get()?;
        self.first.set(first.next.take());
        self.count.set(self.count.get() - 1);
        Some(first)
    }
}

impl BufInventory {
    /// An inventory of `count` bufs, not started.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for none, [`Error::NoMemory`] for more than there is memory for.
    pub fn new(count: usize) -> Result<BufInventory> {
        let inventory = BufInventory {
            free: Rc::default(),
            slabs: RefCell::default(),
            count: Cell::new(0),
            started: Cell::new(false),
            user_data: Cell::new(0),
        };
        inventory.add(count)?;
        Ok(inventory)
    }

    fn add(&self, count: usize) -> Result<()> {
        if count == 0 {
            return Err(Error::InvalidValue.because("an inventory of 0 bufs"));
        }
        let no_memory =
            |_| Error::NoMemory.because(format_args!("no memory for an inventory of {count} bufs"));
        let mut slab = Vec::new();
        slab.try_reserve_exact(count).map_err(no_memory)?;
        slab.extend((0..count).map(|_| Buf::new(&self.free)));
        let slab = Box::leak(slab.into_boxed_slice());
        self.slabs.borrow_mut().push(NonNull::from(&*slab));
        // Handed out in the order of their addresses.
        slab.iter().rev().for_each(|buf| self.free.push(buf));
        self.count.set(self.count.get() + count);
        Ok(())
    }

    /// Adds bufs.
    ///
    /// # Errors
    /// [`Error::BadState`] when not started, otherwise as [`BufInventory::new`].
    pub fn expand(&self, count: usize) -> Result<()> {
        if !self.started.get() {
            return Err(Error::BadState);
        }
        self.add(count)
    }

    /// Lets bufs be taken.
    pub fn start(&self) {
        self.started.set(true);
    }

    /// Lets no more bufs be taken.
    pub fn stop(&self) {
        self.started.set(false);
    }

    /// Whether bufs can be taken.
    pub fn is_started(&self) -> bool {
        self.started.get()
    }

    /// Takes a buf of `len` bytes at `addr`, with `data_len` bytes of data at `data`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] when the bytes are outside the map or the data outside of them, [`Error::NoMemory`] when no buf is
    /// left, [`Error::BadState`] when the inventory or the map is not started.
    pub fn get_by_args(
        &self,
        mmap: &Arc<Mmap>,
        addr: u64,
        len: usize,
        data: u64,
        data_len: usize,
    ) -> Result<&Buf> {
        if !self.started.get() || !mmap.is_usable() {
            return Err(Error::BadState
                .because("bufs are taken after the inventory and the mmap were started"));
        }
        if !mmap.contains(addr, len as u64) {
            report_outside(addr, len);
            let (start, size) = mmap.memrange()?;
            return Err(Error::InvalidValue.because(format_args!(
                "expected a buf inside of its mmap ({size} bytes at {start:#x}), got {len} bytes at {addr:#x}"
            )));
        }
        if !fits(addr, len, data, data_len) {
            report_outside(data, data_len);
            return Err(Error::InvalidValue.because(format_args!(
                "data of {data_len} bytes at {data:#x} is outside of the buf: {len} bytes at {addr:#x}"
            )));
        }
        let handle = self.free.pop().ok_or(Error::NoMemory)?;
        // SAFETY: it lies in a slab of this inventory, which is borrowed as long as the result is used.
        let buf = unsafe { handle.resolve() };
        buf.take(mmap, addr, len, data, data_len);
        Ok(buf)
    }

    /// Takes a buf without data; `place` says from its number, counted from 0 in the order of creation, where it is and how long.
    /// The bytes must be inside of the map. For inventories that were never expanded.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when no buf is left, [`Error::BadState`] when the inventory or the map is not started.
    pub(super) fn take_with(
        &self,
        mmap: &Arc<Mmap>,
        place: impl FnOnce(usize) -> (u64, usize),
    ) -> Result<&Buf> {
        if !self.started.get() || !mmap.is_usable() {
            return Err(Error::BadState
                .because("bufs are taken after their pool and the mmap were started"));
        }
        let first = self.slabs.borrow().first().ok_or(Error::BadState)?.cast();
        let handle = self.free.pop().ok_or(Error::NoMemory)?;
        // SAFETY: it lies in the one slab of this inventory, which is borrowed as long as the result is used.
        let buf = unsafe { handle.resolve() };
        // SAFETY: as above; `first` is where that slab begins.
        let number = unsafe { NonNull::from(buf).offset_from_unsigned(first) };
        let (addr, len) = place(number);
        buf.take(mmap, addr, len, addr, 0);
        Ok(buf)
    }

    /// Takes a buf of `len` bytes at `addr` without data.
    ///
    /// # Errors
    /// As [`BufInventory::get_by_args`].
    pub fn get_by_addr(&self, mmap: &Arc<Mmap>, addr: u64, len: usize) -> Result<&Buf> {
        self.get_by_args(mmap, addr, len, addr, 0)
    }

    /// Takes a buf of `len` bytes at `addr`, all of them data.
    ///
    /// # Errors
    /// As [`BufInventory::get_by_args`].
    pub fn get_by_data(&self, mmap: &Arc<Mmap>, addr: u64, len: usize) -> Result<&Buf> {
        self.get_by_args(mmap, addr, len, addr, len)
    }

    /// Takes bufs that describe the same as a buf, or a whole list, of any inventory.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a buf inside of a list, otherwise as [`BufInventory::get_by_args`].
    pub fn duplicate(&self, source: &Buf) -> Result<&Buf> {
        if source.is_linked.get() {
            return Err(Error::NotPermitted);
        }
        let one = |buf: &Buf| {
            self.get_by_args(
                &*buf.mmap()?,
                buf.head(),
                buf.capacity(),
                buf.data(),
                buf.data_len(),
            )
        };
        let first = one(source)?;
        for buf in source.list().skip(1) {
            let chained = one(buf).and_then(|copy| first.chain(copy));
            if let Err(error) = chained {
                first.dec_refcount()?;
                return Err(error);
            }
        }
        Ok(first)
    }

    /// All bufs.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// The bufs that can be taken.
    pub fn free_count(&self) -> usize {
        self.free.count.get()
    }

    /// Whether it may be destroyed.
    ///
    /// # Errors
    /// [`Error::InUse`] while bufs are out.
    pub fn check_unused(&self) -> Result<()> {
        match self.count() - self.free_count() {
            0 => Ok(()),
            out => Err(Error::InUse.because(format_args!(
                "{out} bufs of the inventory were not given back"
            ))),
        }
    }

    /// The program's own value, 0 until set.
    pub fn user_data(&self) -> u64 {
        self.user_data.get()
    }

    /// Sets the program's own value.
    pub fn set_user_data(&self, value: u64) {
        self.user_data.set(value);
    }
}

impl Drop for BufInventory {
    fn drop(&mut self) {
        if self.count() != self.free_count() {
            // Bufs of other inventories may still lead here.
            return;
        }
        for slab in self.slabs.take() {
            // SAFETY: leaked by `add`, and freed once; all its bufs are free, so no list leads to them, and handles are no longer
            // used by their promise.
            drop(unsafe { Box::from_raw(slab.as_ptr()) });
        }
    }
}
