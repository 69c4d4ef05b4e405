//! Bufs: ranges of a memory map that tasks read or write.

use std::cell::{Cell, OnceCell, RefCell};
use std::ptr::{self, NonNull};
use std::rc::{Rc, Weak};

use doca_sys as sys;

use crate::error::{call, non_null};
use crate::{Error, ErrorCode, MemoryRegion, Mmap, Result};

/// A pool of bufs, used by one thread.
///
/// ```no_run
/// use doca::{Access, BufInventory, Device, MemoryRegion, Mmap};
///
/// # fn main() -> doca::Result<()> {
/// let device = Device::open("mlx5_0")?;
/// let mmap = Mmap::register(&device, MemoryRegion::new(4096)?, Access::LOCAL_READ_WRITE)?;
/// let inventory = BufInventory::new(16)?;
///
/// let request = inventory.buf(&mmap, 0, 64)?;
/// request.write_data(b"read block 7")?;
/// assert_eq!(request.data_len()?, 12);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BufInventory {
    inner: Rc<InventoryInner>,
}

#[derive(Debug)]
struct InventoryInner {
    inventory: NonNull<sys::doca_buf_inventory>,
}

impl Drop for InventoryInner {
    fn drop(&mut self) {
        let inventory = self.inventory.as_ptr();
        // SAFETY: every buf of the inventory holds a clone of the `Rc`, so all have been returned.
        let result = unsafe {
            call!(doca_buf_inventory_stop(inventory))
                .and_then(|()| call!(doca_buf_inventory_destroy(inventory)))
        };
        if let Err(error) = result {
            tracing::warn!(%error, "failed to destroy a buf inventory; leaking it");
        }
    }
}

impl BufInventory {
    /// Creates a pool of `count` bufs.
    ///
    /// # Errors
    ///
    /// The errors of `doca_buf_inventory_create`.
    pub fn new(count: usize) -> Result<Self> {
        let mut inventory = ptr::null_mut();
        // SAFETY: the out-parameter is valid.
        unsafe { call!(doca_buf_inventory_create(count, &mut inventory)) }?;
        let inventory = non_null("doca_buf_inventory_create", inventory)?;
        // SAFETY: just created.
        if let Err(error) = unsafe { call!(doca_buf_inventory_start(inventory.as_ptr())) } {
            // SAFETY: not started and not used elsewhere.
            let _ = unsafe { sys::doca_buf_inventory_destroy(inventory.as_ptr()) };
            return Err(error);
        }
        Ok(Self {
            inner: Rc::new(InventoryInner { inventory }),
        })
    }

    /// Takes a buf over `len` bytes at `offset` of `mmap`, without data: a destination.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if the range is not inside the map, [`ErrorCode::NO_MEMORY`] if the pool is empty.
    pub fn buf(&self, mmap: &Mmap, offset: u64, len: usize) -> Result<Buf> {
        self.take("doca_buf_inventory_buf_get_by_addr", mmap, offset, len, 0)
    }

    /// Takes a buf over `len` bytes at `offset` of `mmap`, all of them data: a source.
    ///
    /// # Errors
    ///
    /// As for [`buf`](Self::buf).
    pub fn buf_with_data(&self, mmap: &Mmap, offset: u64, len: usize) -> Result<Buf> {
        self.take("doca_buf_inventory_buf_get_by_data", mmap, offset, len, len)
    }

    fn take(
        &self,
        operation: &'static str,
        mmap: &Mmap,
        offset: u64,
        len: usize,
        data_len: usize,
    ) -> Result<Buf> {
        let address = mmap.address(operation, offset, len)?;
        let mut buf = ptr::null_mut();
        // SAFETY: inventory and map are live, the range is inside the map, the out-parameter is valid.
        let code = unsafe {
            sys::doca_buf_inventory_buf_get_by_args(
                self.inner.inventory.as_ptr(),
                mmap.as_ptr(),
                address,
                len,
                address,
                data_len,
                &mut buf,
            )
        };
        crate::error::check(operation, code)?;
        let inner = BufInner {
            buf: non_null(operation, buf)?,
            area: Cell::new((offset, len)),
            in_flight: Cell::new(0),
            before: OnceCell::new(),
            mmap: mmap.clone(),
            inventory: Rc::clone(&self.inner),
            appended: RefCell::default(),
        };
        Ok(Buf {
            inner: Rc::new(inner),
        })
    }
}

/// A buf: a range of a memory map and the data in it, which may be empty, a part of the range, or all of it. Clones
/// refer to the same buf.
///
/// A task that writes (receive, read) appends to the data; a task that reads (send, write) takes the data. While a task
/// with the buf is in flight, the buf cannot be changed: its methods return [`ErrorCode::IN_USE`].
///
/// Offsets are relative to the map, not to the buf, and are checked against the map before they are used, so they may
/// come from a peer.
#[derive(Clone, Debug)]
pub struct Buf {
    inner: Rc<BufInner>,
}

#[derive(Debug)]
struct BufInner {
    buf: NonNull<sys::doca_buf>,
    /// Offset in the map and length of the range.
    area: Cell<(u64, usize)>,
    /// Number of tasks with the buf that were submitted and have not been reaped yet.
    in_flight: Cell<usize>,
    /// The previous buf in the list that has a handle. Dropping the first buf returns the list to its inventory.
    before: OnceCell<Buf>,
    // Dropped after the buf was returned.
    mmap: Mmap,
    inventory: Rc<InventoryInner>,
    /// Resources of the bufs appended to this one; their handles may be dropped earlier.
    appended: RefCell<Vec<Appended>>,
}

/// A buf of a list, except the first.
#[derive(Debug)]
struct Appended {
    buf: Weak<BufInner>,
    _mmap: Mmap,
    _inventory: Rc<InventoryInner>,
}

impl Drop for BufInner {
    fn drop(&mut self) {
        if self.before.get().is_some() {
            return;
        }
        let mut refcount = 0;
        // SAFETY: taken from the inventory by `take`; tasks with it hold clones, so none is left. Bufs appended to it
        // hold clones as well, so their handles are dropped.
        let result = unsafe { call!(doca_buf_dec_refcount(self.buf.as_ptr(), &mut refcount)) };
        if let Err(error) = result {
            tracing::warn!(%error, "failed to return a buf to its inventory");
        }
    }
}

impl Buf {
    /// Sets the buf's range to `len` bytes at `offset` of its map, without data: a destination.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if the range is not inside the map, [`ErrorCode::IN_USE`] in flight. In both cases,
    /// the buf is unchanged.
    #[inline]
    pub fn set_range(&self, offset: u64, len: usize) -> Result<()> {
        let address = self.new_area("doca_buf_inventory_buf_reuse_by_addr", offset, len)?;
        // SAFETY: the buf is live and not in flight, the range is inside its map.
        unsafe {
            call!(doca_buf_inventory_buf_reuse_by_addr(
                self.as_ptr(),
                address,
                len
            ))
        }?;
        self.inner.area.set((offset, len));
        Ok(())
    }

    /// Sets the buf's range to `len` bytes at `offset` of its map, all of them data: a source.
    ///
    /// # Errors
    ///
    /// As for [`set_range`](Self::set_range).
    #[inline]
    pub fn set_data(&self, offset: u64, len: usize) -> Result<()> {
        let address = self.new_area("doca_buf_inventory_buf_reuse_by_data", offset, len)?;
        // SAFETY: the buf is live and not in flight, the range is inside its map.
        unsafe {
            call!(doca_buf_inventory_buf_reuse_by_data(
                self.as_ptr(),
                address,
                len
            ))
        }?;
        self.inner.area.set((offset, len));
        Ok(())
    }

    /// Clears the data: the next task that writes starts at the beginning of the range again.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::IN_USE`] in flight.
    #[inline]
    pub fn reset_data(&self) -> Result<()> {
        self.check_idle("doca_buf_reset_data_len")?;
        // The data of these bufs always starts where their range does, so resetting its length is sufficient.
        // SAFETY: the buf is live and not in flight.
        unsafe { call!(doca_buf_reset_data_len(self.as_ptr())) }
    }

    /// Length of the data in bytes.
    ///
    /// # Errors
    ///
    /// The errors of `doca_buf_get_data_len`; none for a live buf.
    #[inline]
    pub fn data_len(&self) -> Result<usize> {
        let mut len = 0;
        // SAFETY: the buf is live, the out-parameter is valid.
        unsafe { call!(doca_buf_get_data_len(self.as_ptr(), &mut len)) }?;
        Ok(len)
    }

    /// Length of the range in bytes.
    pub fn capacity(&self) -> usize {
        self.inner.area.get().1
    }

    /// The map of the buf.
    pub fn mmap(&self) -> &Mmap {
        &self.inner.mmap
    }

    /// Copies the start of the data to `into`. Returns the number of bytes: the smaller of both lengths.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_SUPPORTED`] for a buf of an imported map, whose memory is in another process.
    #[inline]
    pub fn read_data(&self, into: &mut [u8]) -> Result<usize> {
        const OPERATION: &str = "doca_buf_get_data";
        let region = self.region(OPERATION)?;
        let mut address = ptr::null_mut();
        // SAFETY: the buf is live, the out-parameter is valid.
        unsafe { call!(doca_buf_get_data(self.as_ptr(), &mut address)) }?;
        let len = self.data_len()?.min(into.len());
        let offset = self.inner.mmap.offset_of(address, len).ok_or_else(|| {
            Error::with_detail(
                OPERATION,
                ErrorCode::UNEXPECTED,
                "the data of the buf is not inside its memory map",
            )
        })?;
        region.read(offset, &mut into[..len])?;
        Ok(len)
    }

    /// Copies `bytes` to the start of the range and makes them the data.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TOO_BIG`] if they exceed [`capacity`](Self::capacity), [`ErrorCode::NOT_SUPPORTED`] for a buf of an
    /// imported map, [`ErrorCode::IN_USE`] in flight.
    #[inline]
    pub fn write_data(&self, bytes: &[u8]) -> Result<()> {
        const OPERATION: &str = "doca_buf_set_data";
        self.check_idle(OPERATION)?;
        let region = self.region(OPERATION)?;
        let (offset, capacity) = self.inner.area.get();
        if bytes.len() > capacity {
            let detail = format!(
                "{} bytes do not fit into a buf of {capacity} bytes",
                bytes.len()
            );
            return Err(Error::with_detail(OPERATION, ErrorCode::TOO_BIG, detail));
        }
        let address = self.inner.mmap.address(OPERATION, offset, bytes.len())?;
        let start = self
            .inner
            .mmap
            .offset_of(address, bytes.len())
            .unwrap_or_default();
        region.write(start, bytes)?;
        // SAFETY: the buf is live and not in flight, and the bytes are inside its range.
        unsafe { call!(doca_buf_set_data(self.as_ptr(), address, bytes.len())) }
    }

    fn region(&self, operation: &'static str) -> Result<&MemoryRegion> {
        match self.inner.mmap.region() {
            Some(region) => Ok(region),
            None => Err(Error::with_detail(
                operation,
                ErrorCode::NOT_SUPPORTED,
                "the memory of an imported map is in another process",
            )),
        }
    }

    fn new_area(
        &self,
        operation: &'static str,
        offset: u64,
        len: usize,
    ) -> Result<*mut std::ffi::c_void> {
        self.check_idle(operation)?;
        self.inner.mmap.address(operation, offset, len)
    }

    #[inline]
    fn check_idle(&self, operation: &'static str) -> Result<()> {
        if self.inner.in_flight.get() != 0 {
            return Err(Error::with_detail(
                operation,
                ErrorCode::IN_USE,
                "a task with this buf is in flight",
            ));
        }
        match self.inner.before.get() {
            Some(before) => before.check_idle(operation),
            None => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut sys::doca_buf {
        self.inner.buf.as_ptr()
    }

    /// Counts a submitted task. The buf must not be changed until the task's completion is [reaped](Self::reaped).
    pub(crate) fn submitted(&self) {
        self.inner.in_flight.set(self.inner.in_flight.get() + 1);
    }

    /// Undoes [`submitted`](Self::submitted) once the completion was reaped.
    pub(crate) fn reaped(&self) {
        self.inner.in_flight.set(self.inner.in_flight.get() - 1);
    }
}

impl Buf {
    /// Appends `tail`, with the bufs appended to it, to the list that starts with this buf: a task with this buf uses
    /// the data, or the free space, of all of them in that order.
    ///
    /// A list cannot be split: it is returned to the inventories as a whole, when this buf and all handles of appended
    /// bufs are dropped. The range of each buf can still be changed through its handle, but not while a task with the
    /// list is in flight. All other methods of a buf, like [`data_len`](Self::data_len), refer to that buf alone.
    ///
    /// ```no_run
    /// # use doca::{BufInventory, ErasureCoding, EcMatrix, Mmap};
    /// # fn recover(ec: &ErasureCoding, matrix: &EcMatrix, inventory: &BufInventory, blocks: &Mmap) -> doca::Result<()> {
    /// // The available blocks of a stripe are in two places.
    /// let available = inventory.buf_with_data(blocks, 0, 2048)?;
    /// available.append(&inventory.buf_with_data(blocks, 8192, 2048)?)?;
    /// let lost = inventory.buf(blocks, 4096, 2048)?;
    /// let task = ec.recover_task(matrix, &available, &lost, 1)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if `tail` is already part of a list, including this one, [`ErrorCode::IN_USE`] if a
    /// task with any buf of the two lists is in flight: it would use the appended bufs as well.
    pub fn append(&self, tail: &Buf) -> Result<()> {
        const OPERATION: &str = "doca_buf_chain_list";
        let head = self.head();
        for list in [&head, tail] {
            list.check_idle(OPERATION)?;
            list.living_appended()
                .try_for_each(|buf| buf.check_idle(OPERATION))?;
        }
        if tail.inner.before.get().is_some() || Rc::ptr_eq(&head.inner, &tail.inner) {
            return Err(Error::with_detail(
                OPERATION,
                ErrorCode::INVALID_VALUE,
                "expected a buf that is not part of a list, or the first of another one",
            ));
        }
        // SAFETY: both bufs are live, not in flight, and begin two lists.
        unsafe { call!(doca_buf_chain_list(head.as_ptr(), tail.as_ptr())) }?;
        // Handles between the two are dropped, and so are their tasks.
        let before = head
            .living_appended()
            .last()
            .unwrap_or_else(|| head.clone());
        let mut appended = head.inner.appended.borrow_mut();
        appended.push(Appended {
            buf: Rc::downgrade(&tail.inner),
            _mmap: tail.inner.mmap.clone(),
            _inventory: Rc::clone(&tail.inner.inventory),
        });
        appended.append(&mut tail.inner.appended.borrow_mut());
        // Empty: `tail` was not part of a list.
        let _ = tail.inner.before.set(before);
        Ok(())
    }

    /// The other bufs of the list that starts with this one, in order, except for those to which no handle or task
    /// refers.
    fn living_appended(&self) -> impl Iterator<Item = Buf> {
        let appended = self.inner.appended.borrow();
        let living: Vec<_> = appended
            .iter()
            .filter_map(|appended| appended.buf.upgrade())
            .collect();
        living.into_iter().map(|inner| Buf { inner })
    }

    /// The first buf of the list.
    fn head(&self) -> Buf {
        match self.inner.before.get() {
            Some(before) => before.head(),
            None => self.clone(),
        }
    }
}
