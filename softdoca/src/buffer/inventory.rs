//! Inventories and pools that bufs are allocated from.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::{Buf, BufHandle, fits, report_outside};
use crate::error::{Error, Result};
use crate::memory::Mmap;

/// A set of bufs. Taking and returning a buf does not allocate.
#[derive(Debug)]
pub struct BufInventory {
    free: Rc<FreeList>,
    /// Owned; never shrunk or moved while the inventory lives. `Box` is not used, because moving a box asserts unique
    /// access to its content.
    slabs: RefCell<Vec<NonNull<[Buf]>>>,
    count: Cell<usize>,
    started: Cell<bool>,
    user_data: Cell<u64>,
}

/// Unused bufs, linked through `next`.
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
    /// Creates a stopped inventory of `count` bufs.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if `count` is 0, [`Error::NoMemory`] if the allocation fails.
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
            return Err(Error::InvalidValue.because("expected at least 1 buf, got 0"));
        }
        let no_memory =
            |_| Error::NoMemory.because(format_args!("no memory for an inventory of {count} bufs"));
        let mut slab = Vec::new();
        slab.try_reserve_exact(count).map_err(no_memory)?;
        slab.extend((0..count).map(|_| Buf::new(&self.free)));
        let slab = Box::leak(slab.into_boxed_slice());
        self.slabs.borrow_mut().push(NonNull::from(&*slab));
        // In reverse order, so that bufs are allocated in the order of their addresses.
        slab.iter().rev().for_each(|buf| self.free.push(buf));
        self.count.set(self.count.get() + count);
        Ok(())
    }

    /// Adds `count` bufs.
    ///
    /// # Errors
    /// [`Error::BadState`] if not started, otherwise as [`BufInventory::new`].
    pub fn expand(&self, count: usize) -> Result<()> {
        if !self.started.get() {
            return Err(Error::BadState);
        }
        self.add(count)
    }

    /// Permits taking bufs.
    pub fn start(&self) {
        self.started.set(true);
    }

    /// Makes attempts to take bufs fail from now on.
    pub fn stop(&self) {
        self.started.set(false);
    }

    /// `true` between start and stop.
    pub fn is_started(&self) -> bool {
        self.started.get()
    }

    /// Takes a buf of `len` bytes at `addr`, with `data_len` bytes of data at `data`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the range is outside the map or the data outside the range, [`Error::NoMemory`] if no
    /// buf is left, [`Error::BadState`] if the inventory or the map is not started.
    pub fn get_by_args(
        &self,
        mmap: &Arc<Mmap>,
        addr: u64,
        len: usize,
        data: u64,
        data_len: usize,
    ) -> Result<&Buf> {
        if !self.started.get() || !mmap.is_usable() {
            return Err(
                Error::BadState.because("start the inventory and the mmap before taking bufs")
            );
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
        // SAFETY: the buf is in a slab of this inventory, which is borrowed as long as the result is used.
        let buf = unsafe { handle.resolve() };
        buf.take(mmap, addr, len, data, data_len);
        Ok(buf)
    }

    /// Takes a buf without data; `place` maps its index in the order of creation, from 0, to address and length. The
    /// range must be inside the map. Only for inventories that were never expanded.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if no buf is left, [`Error::BadState`] if the inventory or the map is not started.
    pub(super) fn take_with(
        &self,
        mmap: &Arc<Mmap>,
        place: impl FnOnce(usize) -> (u64, usize),
    ) -> Result<&Buf> {
        if !self.started.get() || !mmap.is_usable() {
            return Err(Error::BadState.because("start the pool and the mmap before taking bufs"));
        }
        let first = self.slabs.borrow().first().ok_or(Error::BadState)?.cast();
        let handle = self.free.pop().ok_or(Error::NoMemory)?;
        // SAFETY: the buf is in the only slab of this inventory, which is borrowed as long as the result is used.
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

    /// Takes copies of the descriptors of a buf or a whole list, of any inventory.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a buf inside a list, otherwise as [`BufInventory::get_by_args`].
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

    pub fn count(&self) -> usize {
        self.count.get()
    }

    pub fn free_count(&self) -> usize {
        self.free.count.get()
    }

    /// Checks that the inventory can be destroyed.
    ///
    /// # Errors
    /// [`Error::InUse`] while bufs are allocated.
    pub fn check_unused(&self) -> Result<()> {
        match self.count() - self.free_count() {
            0 => Ok(()),
            out => Err(Error::InUse.because(format_args!(
                "{out} bufs of the inventory were not returned"
            ))),
        }
    }

    /// The program's user data; 0 by default.
    pub fn user_data(&self) -> u64 {
        self.user_data.get()
    }

    /// Sets the program's user data.
    pub fn set_user_data(&self, value: u64) {
        self.user_data.set(value);
    }
}

impl Drop for BufInventory {
    fn drop(&mut self) {
        if self.count() != self.free_count() {
            // Lists of other inventories may still link to these bufs, so they are leaked.
            return;
        }
        for slab in self.slabs.take() {
            // SAFETY: leaked by `add` and freed once; all bufs are free, so no list links to them, and by their
            // contract handles are no longer used.
            drop(unsafe { Box::from_raw(slab.as_ptr()) });
        }
    }
}

/// A pool of bufs over equal parts of a map. Taking and returning a buf does not allocate.
#[derive(Debug)]
pub struct BufPool {
    inventory: BufInventory,
    mmap: Arc<Mmap>,
    element_size: usize,
    alignment: Cell<usize>,
}

/// Layout of the parts of a map.
#[derive(Clone, Copy)]
struct Parts {
    /// Address of the first part.
    first: u64,
    /// Distance between two parts in bytes.
    stride: u64,
}

impl BufPool {
    /// Creates a stopped pool of `count` bufs of `element_size` bytes, without alignment.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if `count` or `element_size` is 0, if `count` exceeds 32 bits, or if the map has no
    /// range; [`Error::NoMemory`].
    pub fn new(count: usize, element_size: usize, mmap: Arc<Mmap>) -> Result<BufPool> {
        if element_size == 0 || u32::try_from(count).is_err() {
            return Err(Error::InvalidValue.because(format_args!(
                "expected at least 1 buf of at least 1 byte, got {count} of {element_size}"
            )));
        }
        mmap.memrange()
            .map_err(|_| Error::InvalidValue.because("the mmap of a buf pool has no range yet"))?;
        Ok(BufPool {
            inventory: BufInventory::new(count)?,
            mmap,
            element_size,
            alignment: Cell::new(1),
        })
    }

    /// Layout of the parts, or `None` if the map is too small.
    fn parts(&self) -> Option<Parts> {
        let alignment = self.alignment.get() as u64;
        let (addr, len) = self.mmap.memrange().ok()?;
        let first = addr.checked_next_multiple_of(alignment)?;
        let stride = (self.element_size as u64).checked_next_multiple_of(alignment)?;
        let before_last = stride.checked_mul(self.inventory.count() as u64 - 1)?;
        let end = first
            .checked_add(before_last)?
            .checked_add(self.element_size as u64)?;
        (end - addr <= len).then_some(Parts { first, stride })
    }

    fn expect_stopped(&self, what: &str) -> Result<()> {
        match self.inventory.is_started() {
            true => Err(Error::BadState.because(format_args!(
                "set {what} of a buf pool before it is started"
            ))),
            false => Ok(()),
        }
    }

    /// Sets the alignment of the parts in bytes.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] unless it is a power of two, [`Error::BadState`] if started.
    pub fn set_alignment(&self, alignment: usize) -> Result<()> {
        self.expect_stopped("the alignment")?;
        if !alignment.is_power_of_two() {
            return Err(Error::InvalidValue
                .because(format_args!("expected a power of two, got {alignment}")));
        }
        self.alignment.set(alignment);
        Ok(())
    }

    /// Alignment of the parts in bytes.
    pub fn alignment(&self) -> usize {
        self.alignment.get()
    }

    /// Permits taking bufs.
    ///
    /// # Errors
    /// [`Error::BadState`] if the map is not started or the pool is already started; [`Error::Initialization`] if the
    /// map is too small.
    pub fn start(&self) -> Result<()> {
        if self.inventory.is_started() {
            return Err(Error::BadState.because("the buf pool is already started"));
        }
        if !self.mmap.is_usable() {
            return Err(Error::BadState.because("start the mmap of a buf pool before the pool"));
        }
        if self.parts().is_none() {
            let (start, size) = self.mmap.memrange()?;
            return Err(Error::Initialization.because(format_args!(
                "the mmap ({size} bytes at {start:#x}) is too small for {} bufs of {} bytes with an alignment of {}",
                self.inventory.count(),
                self.element_size,
                self.alignment.get()
            )));
        }
        self.inventory.start();
        Ok(())
    }

    /// Makes attempts to take bufs fail from now on.
    ///
    /// # Errors
    /// [`Error::InUse`] while bufs are allocated.
    pub fn stop(&self) -> Result<()> {
        self.check_unused()?;
        self.inventory.stop();
        Ok(())
    }

    /// Checks that the pool can be destroyed.
    ///
    /// # Errors
    /// [`Error::InUse`] while bufs are allocated.
    pub fn check_unused(&self) -> Result<()> {
        self.inventory.check_unused()
    }

    /// Takes a buf without data.
    ///
    /// # Errors
    /// [`Error::BadState`] if the pool or its map is not started, [`Error::Empty`] if no buf is left.
    pub fn take(&self) -> Result<&Buf> {
        let parts = self.parts().ok_or(Error::BadState)?;
        let len = self.element_size;
        self.inventory
            .take_with(&self.mmap, |index| {
                (parts.first + parts.stride * index as u64, len)
            })
            .map_err(|error| match error {
                Error::NoMemory => Error::Empty,
                other => other,
            })
    }

    pub fn count(&self) -> usize {
        self.inventory.count()
    }

    pub fn free_count(&self) -> usize {
        self.inventory.free_count()
    }

    /// The program's user data; 0 by default.
    pub fn user_data(&self) -> u64 {
        self.inventory.user_data()
    }

    /// Sets the program's user data.
    ///
    /// # Errors
    /// [`Error::BadState`] if started.
    pub fn set_user_data(&self, value: u64) -> Result<()> {
        self.expect_stopped("the data")?;
        self.inventory.set_user_data(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A started map over `len` bytes at an address of `off` modulo 64.
    fn map(memory: &mut Vec<u8>, off: usize, len: usize) -> Arc<Mmap> {
        memory.resize(len + 128, 0);
        let first = memory.as_mut_ptr().expose_provenance();
        let addr = first.next_multiple_of(64) + off;
        let mmap = Mmap::new();
        mmap.set_memrange(addr as u64, len as u64).unwrap();
        mmap.start().unwrap();
        Arc::new(mmap)
    }

    #[test]
    fn each_buf_keeps_its_part_of_the_map() {
        let mut memory = Vec::new();
        let mmap = map(&mut memory, 0, 100);
        let base = mmap.memrange().unwrap().0;
        let pool = BufPool::new(3, 32, Arc::clone(&mmap)).unwrap();
        assert_eq!(pool.take().unwrap_err(), Error::BadState);
        pool.start().unwrap();
        let bufs = [0, 1, 2].map(|_| pool.take().unwrap());
        for (number, buf) in bufs.into_iter().enumerate() {
            assert_eq!(buf.head(), base + 32 * number as u64);
            assert_eq!((buf.capacity(), buf.data_len()), (32, 0));
        }
        assert_eq!(pool.take().unwrap_err(), Error::Empty);
        assert_eq!((pool.count(), pool.free_count()), (3, 0));
        assert_eq!(mmap.buf_count(), 3);
        assert_eq!(pool.stop(), Err(Error::InUse));
        // A buf that was returned with changed ranges has its original ranges when it is taken again.
        let (address, middle) = (std::ptr::from_ref(bufs[1]), bufs[1]);
        middle.reuse_by_addr(base, 5).unwrap();
        middle.set_data(base, 3).unwrap();
        middle.dec_refcount().unwrap();
        let again = pool.take().unwrap();
        assert_eq!(std::ptr::from_ref(again), address);
        assert_eq!(
            (again.head(), again.capacity(), again.data_len()),
            (base + 32, 32, 0)
        );
        for buf in [bufs[0], again, bufs[2]] {
            buf.dec_refcount().unwrap();
        }
        assert_eq!(pool.stop(), Ok(()));
        assert_eq!(mmap.buf_count(), 0);
    }

    #[test]
    fn parts_are_aligned_and_must_fit() {
        let mut memory = Vec::new();
        let mmap = map(&mut memory, 1, 64 + 40);
        let pool = BufPool::new(2, 40, Arc::clone(&mmap)).unwrap();
        assert_eq!(pool.alignment(), 1);
        for wrong in [0, 3, 48] {
            assert_eq!(pool.set_alignment(wrong), Err(Error::InvalidValue));
        }
        // Aligned to 64 bytes, the second buf would end beyond the map.
        pool.set_alignment(64).unwrap();
        assert_eq!(pool.start(), Err(Error::Initialization));
        pool.set_alignment(4).unwrap();
        pool.start().unwrap();
        assert_eq!(pool.set_alignment(1), Err(Error::BadState));
        assert_eq!(pool.set_user_data(1), Err(Error::BadState));
        assert_eq!(pool.start(), Err(Error::BadState));
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!(second.head() - first.head(), 40);
        assert!(first.head().is_multiple_of(4));
        first.dec_refcount().unwrap();
        second.dec_refcount().unwrap();
        // A range that ends at the end of the address space does not wrap around.
        let edge = Mmap::new();
        edge.set_memrange(u64::MAX - 4096, 4096).unwrap();
        let pool = BufPool::new(2, 1 << 40, Arc::new(edge)).unwrap();
        assert!(pool.parts().is_none());
    }

    #[test]
    fn empty_pools_and_maps_without_range_are_refused() {
        let mut memory = Vec::new();
        let mmap = map(&mut memory, 0, 100);
        for (count, size) in [(0, 1), (1, 0), (usize::MAX, 1)] {
            let pool = BufPool::new(count, size, Arc::clone(&mmap));
            assert_eq!(pool.unwrap_err(), Error::InvalidValue, "{count} {size}");
        }
        let pool = BufPool::new(1, 1, Arc::new(Mmap::new()));
        assert_eq!(pool.unwrap_err(), Error::InvalidValue);
        let unstarted = Mmap::new();
        unstarted.set_memrange(4096, 4096).unwrap();
        let pool = BufPool::new(1, 1, Arc::new(unstarted)).unwrap();
        assert_eq!(pool.start(), Err(Error::BadState));
    }
}
