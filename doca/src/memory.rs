//! Memory: permissions, regions, and maps for devices and peers.

mod region;
mod shared_bytes;

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use doca_sys as sys;
pub use region::MemoryRegion;
pub(crate) use shared_bytes::{load as load_shared, store as store_shared};

use crate::device::non_null;
use crate::error::call;
use crate::{Device, Error, ErrorCode, Result};

bitflags::bitflags! {
    /// Permissions of a memory map or an RDMA instance.
    ///
    /// ```
    /// use doca::Access;
    ///
    /// let access = Access::PCI_READ_WRITE | Access::RDMA_READ;
    /// assert!(access.contains(Access::RDMA_READ));
    /// assert!(Access::LOCAL_READ_ONLY.is_empty());
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Contexts of this process may read; the absence of all other permissions.
        const LOCAL_READ_ONLY = sys::DOCA_ACCESS_FLAG_LOCAL_READ_ONLY;
        /// Contexts of this process may read and write.
        const LOCAL_READ_WRITE = sys::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;
        /// RDMA peers may read.
        const RDMA_READ = sys::DOCA_ACCESS_FLAG_RDMA_READ;
        /// RDMA peers may write.
        const RDMA_WRITE = sys::DOCA_ACCESS_FLAG_RDMA_WRITE;
        /// RDMA peers may use atomic operations.
        const RDMA_ATOMIC = sys::DOCA_ACCESS_FLAG_RDMA_ATOMIC;
        /// A peer across PCIe may read.
        const PCI_READ_ONLY = sys::DOCA_ACCESS_FLAG_PCI_READ_ONLY;
        /// A peer across PCIe may read and write.
        const PCI_READ_WRITE = sys::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
        /// Accesses across PCIe may be reordered.
        const PCI_RELAXED_ORDERING = sys::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING;
    }
}

/// A memory map: memory that a device, and peers with permission, can access. Clones share it.
///
/// Offsets into it are relative to its start, in the importing as in the exporting process.
///
/// ```no_run
/// use doca::{Access, Device, MemoryRegion, Mmap};
///
/// # fn main() -> doca::Result<()> {
/// // On the host: memory for the DPU.
/// let device = Device::open("3b:00.0")?;
/// let region = MemoryRegion::new(1 << 20)?;
/// let mmap = Mmap::register(&device, region, Access::PCI_READ_WRITE)?;
/// let blob = mmap.export_pci(&device)?;
/// # let send = |_: &[u8]| ();
/// send(&blob);
///
/// // On the DPU, with the received blob:
/// let device = Device::open("03:00.0")?;
/// let host_memory = Mmap::import(&device, &blob)?;
/// assert_eq!(host_memory.len(), 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mmap {
    inner: Arc<MmapInner>,
}

#[derive(Debug)]
struct MmapInner {
    mmap: NonNull<sys::doca_mmap>,
    /// First address; in the exporter's address space if the map is imported.
    base: *mut c_void,
    len: usize,
    // Dropped after the map, which uses both.
    region: Option<Arc<MemoryRegion>>,
    _device: Device,
}

// SAFETY: thread safety was enabled before the map was started, so several threads may use the C object at once; it is
// destroyed by the thread that drops the last clone. `base` is only passed to C.
unsafe impl Send for MmapInner {}
// SAFETY: see above.
unsafe impl Sync for MmapInner {}

impl Drop for MmapInner {
    fn drop(&mut self) {
        let mmap = self.mmap.as_ptr();
        // SAFETY: bufs and contexts that use the map hold clones, so none is left.
        let result =
            unsafe { call!(doca_mmap_stop(mmap)).and_then(|()| call!(doca_mmap_destroy(mmap))) };
        if let Err(error) = result {
            tracing::warn!(%error, "failed to destroy a memory map; leaking it with its memory");
            // The device may still access the memory.
            std::mem::forget(self.region.take());
        }
    }
}

/// Destroys a map whose setup failed.
struct Unfinished(NonNull<sys::doca_mmap>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // SAFETY: created by the function that failed, not started, and not used elsewhere.
        let _ = unsafe { sys::doca_mmap_destroy(self.0.as_ptr()) };
    }
}

impl Mmap {
    /// Registers a region with a device, with the permissions `access`.
    ///
    /// # Errors
    ///
    /// Those of `doca_mmap_start` and of the functions that create the map.
    pub fn register(device: &Device, region: Arc<MemoryRegion>, access: Access) -> Result<Self> {
        let mut mmap = ptr::null_mut();
        // SAFETY: the result has a valid place.
        unsafe { call!(doca_mmap_create(&mut mmap)) }?;
        let unfinished = Unfinished(non_null("doca_mmap_create", mmap)?);
        // SAFETY: the map was just created; the device is open; the region stays mapped until `MmapInner` has stopped the map.
        unsafe {
            call!(doca_mmap_add_dev(mmap, device.as_ptr()))?;
            call!(doca_mmap_set_memrange(
                mmap,
                region.as_ptr().cast(),
                region.len()
            ))?;
            call!(doca_mmap_set_permissions(mmap, access.bits()))?;
            call!(doca_mmap_enable_thread_safety(mmap))?;
            call!(doca_mmap_start(mmap))?;
        }
        Self::finish(unfinished, device, Some(region))
    }

    /// Imports the memory that a peer exported as `blob`.
    ///
    /// # Errors
    ///
    /// Those of `doca_mmap_create_from_export`, for a blob that is damaged, withdrawn, or belongs to another device.
    pub fn import(device: &Device, blob: &[u8]) -> Result<Self> {
        let mut mmap = ptr::null_mut();
        // SAFETY: the blob is valid for its length, the device is open, the out-parameter is valid.
        unsafe {
            call!(doca_mmap_create_from_export(
                ptr::null(),
                blob.as_ptr().cast(),
                blob.len(),
                device.as_ptr(),
                &mut mmap
            ))
        }?;
        let unfinished = Unfinished(non_null("doca_mmap_create_from_export", mmap)?);
        // SAFETY: the map was just created.
        unsafe { call!(doca_mmap_enable_thread_safety(mmap)) }?;
        Self::finish(unfinished, device, None)
    }

    fn finish(
        unfinished: Unfinished,
        device: &Device,
        region: Option<Arc<MemoryRegion>>,
    ) -> Result<Self> {
        let (mut base, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the map is live, both results have a place.
        unsafe {
            call!(doca_mmap_get_memrange(
                unfinished.0.as_ptr(),
                &mut base,
                &mut len
            ))
        }?;
        let mmap = unfinished.0;
        std::mem::forget(unfinished);
        Ok(Self {
            inner: Arc::new(MmapInner {
                mmap,
                base,
                len,
                region,
                _device: device.clone(),
            }),
        })
    }

    /// Exports the map to peers across PCIe. The blob is valid as long as the map.
    ///
    /// # Errors
    ///
    /// Those of `doca_mmap_export_pci`, e.g. if the permissions do not include PCI access.
    pub fn export_pci(&self, device: &Device) -> Result<Vec<u8>> {
        let (mut blob, mut len) = (ptr::null(), 0);
        // SAFETY: the map and the device are live, both results have a place.
        unsafe {
            call!(doca_mmap_export_pci(
                self.as_ptr(),
                device.as_ptr(),
                &mut blob,
                &mut len
            ))
        }?;
        self.copy_blob("doca_mmap_export_pci", blob, len)
    }

    /// Exports the map to RDMA peers. The blob is valid as long as the map.
    ///
    /// A map imported across PCIe can be exported again if its owner's permissions include RDMA access: a DPU can thus
    /// give a third machine access to the host's memory.
    ///
    /// # Errors
    ///
    /// Those of `doca_mmap_export_rdma`, e.g. if the permissions do not include RDMA access.
    pub fn export_rdma(&self, device: &Device) -> Result<Vec<u8>> {
        let (mut blob, mut len) = (ptr::null(), 0);
        // SAFETY: the map and the device are live, both results have a place.
        unsafe {
            call!(doca_mmap_export_rdma(
                self.as_ptr(),
                device.as_ptr(),
                &mut blob,
                &mut len
            ))
        }?;
        self.copy_blob("doca_mmap_export_rdma", blob, len)
    }

    fn copy_blob(
        &self,
        operation: &'static str,
        blob: *const c_void,
        len: usize,
    ) -> Result<Vec<u8>> {
        if blob.is_null() {
            return Err(Error::new(operation, ErrorCode::UNEXPECTED));
        }
        // SAFETY: the map owns `len` bytes of blob until it is stopped, which `self` prevents.
        Ok(unsafe { slice::from_raw_parts(blob.cast::<u8>(), len) }.to_vec())
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a map is never empty")]
    pub fn len(&self) -> u64 {
        self.inner.len as u64
    }

    /// Start of the map in the address space of the process that registered the memory, which is the exporter's for an
    /// imported map. Not for access: it is needed by protocols that refer to memory by address.
    pub fn base_address(&self) -> u64 {
        self.inner.base as u64
    }

    pub(crate) fn base(&self) -> *mut c_void {
        self.inner.base
    }

    /// The memory of a map created by [`register`](Self::register); `None` for an imported one.
    pub fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.inner.region.as_ref()
    }

    /// `true` if both are clones of one map.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::doca_mmap {
        self.inner.mmap.as_ptr()
    }

    /// The address of `len` bytes at `offset`, after checking that they are inside the map.
    pub(crate) fn address(
        &self,
        operation: &'static str,
        offset: u64,
        len: usize,
    ) -> Result<*mut c_void> {
        let inside = usize::try_from(offset).ok().filter(|offset| {
            offset
                .checked_add(len)
                .is_some_and(|end| end <= self.inner.len)
        });
        match inside {
            // Wrapping: the address may belong to another process.
            Some(offset) => Ok(self.inner.base.cast::<u8>().wrapping_add(offset).cast()),
            None => Err(Error::with_detail(
                operation,
                ErrorCode::INVALID_VALUE,
                format!(
                    "{len} bytes at offset {offset} are not inside a memory map of {} bytes",
                    self.inner.len
                ),
            )),
        }
    }

    /// The offset of an address returned by C, if `len` bytes there are inside the map.
    pub(crate) fn offset_of(&self, address: *mut c_void, len: usize) -> Option<usize> {
        let offset = (address as usize).checked_sub(self.inner.base as usize)?;
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.inner.len)
            .then_some(offset)
    }
}
