//! Memory: regions of it, permissions, and maps that devices and peers use.

mod region;
mod shared_bytes;

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use doca_sys as sys;
pub use region::MemoryRegion;

use crate::device::non_null;
use crate::error::call;
use crate::{Device, Error, ErrorCode, Result};

bitflags::bitflags! {
    /// Who may do what with a memory map or through an RDMA instance.
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
        /// Contexts of this process read; the absence of every other permission.
        const LOCAL_READ_ONLY = sys::DOCA_ACCESS_FLAG_LOCAL_READ_ONLY;
        /// Contexts of this process read and write.
        const LOCAL_READ_WRITE = sys::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;
        /// RDMA peers read.
        const RDMA_READ = sys::DOCA_ACCESS_FLAG_RDMA_READ;
        /// RDMA peers write.
        const RDMA_WRITE = sys::DOCA_ACCESS_FLAG_RDMA_WRITE;
        /// RDMA peers use atomic operations.
        const RDMA_ATOMIC = sys::DOCA_ACCESS_FLAG_RDMA_ATOMIC;
        /// A peer across PCIe reads.
        const PCI_READ_ONLY = sys::DOCA_ACCESS_FLAG_PCI_READ_ONLY;
        /// A peer across PCIe reads and writes.
        const PCI_READ_WRITE = sys::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
        /// Accesses across PCIe may be reordered.
        const PCI_RELAXED_ORDERING = sys::DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING;
    }
}

/// A memory map: memory that a device, and peers with permission, may use. Clones share it.
///
/// Offsets into it are relative to its start, in this process and in the one that exported it.
///
/// ```no_run
/// use doca::{Access, Device, MemoryRegion, Mmap};
///
/// # fn main() -> doca::Result<()> {
/// // On the host: memory that the DPU may use.
/// let device = Device::open("3b:00.0")?;
/// let region = MemoryRegion::new(1 << 20)?;
/// let mmap = Mmap::register(&device, region, Access::PCI_READ_WRITE)?;
/// let blob = mmap.export_pci(&device)?;
/// # let send = |_: &[u8]| ();
/// send(&blob);
///
/// // On the DPU, with the blob that came:
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
    /// First address; in the address space of the exporter when the map is imported.
    base: *mut c_void,
    len: usize,
    // Dropped after the map, which uses both.
    region: Option<Arc<MemoryRegion>>,
    _device: Device,
}

// SAFETY: thread safety was enabled before the map was started, so the C object may be used by several threads at once;
// it is destroyed by the thread that drops the last clone. `base` is only passed to C.
unsafe impl Send for MmapInner {}
// SAFETY: see above.
unsafe impl Sync for MmapInner {}

impl Drop for MmapInner {
    fn drop(&mut self) {
        let mmap = self.mmap.as_ptr();
        // SAFETY: the bufs and contexts that use the map hold clones, so none is left.
        let result =
            unsafe { call!(doca_mmap_stop(mmap)).and_then(|()| call!(doca_mmap_destroy(mmap))) };
        if let Err(error) = result {
            tracing::warn!(%error, "a memory map stays, and with it its memory");
            // The device may still use the memory.
            std::mem::forget(self.region.take());
        }
    }
}

/// Destroys a map that could not be set up.
struct Unfinished(NonNull<sys::doca_mmap>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // SAFETY: created by the function that failed, not started, known to nobody else.
        let _ = unsafe { sys::doca_mmap_destroy(self.0.as_ptr()) };
    }
}

impl Mmap {
    /// Registers a region with a device, and lets peers do with it what `access` says.
    ///
    /// # Errors
    ///
    /// Whatever `doca_mmap_start` and the functions before it return.
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

    /// Makes a map of the memory that a peer exported as `blob`.
    ///
    /// # Errors
    ///
    /// Whatever `doca_mmap_create_from_export` returns for a blob that is damaged, was withdrawn or belongs to another device.
    pub fn import(device: &Device, blob: &[u8]) -> Result<Self> {
        let mut mmap = ptr::null_mut();
        // SAFETY: the blob is valid for its length, the device is open, the result has a place.
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

    /// Blob by which a peer across PCIe imports this map. Valid as long as the map lives.
    ///
    /// # Errors
    ///
    /// Whatever `doca_mmap_export_pci` returns, e.g. when the permissions have no PCI access.
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

    /// Blob by which an RDMA peer imports this map. Valid as long as the map lives.
    ///
    /// A map that was imported across PCIe can be exported again when its owner's permissions have RDMA access: so a DPU
    /// lets a third machine use the host's memory.
    ///
    /// # Errors
    ///
    /// Whatever `doca_mmap_export_rdma` returns, e.g. when the permissions have no RDMA access.
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

    /// The address at which the map begins, in the address space of the process that registered the memory: of an imported one, of its exporter.
    /// Nothing can be accessed through it; protocols that name places by their addresses need it.
    pub fn base_address(&self) -> u64 {
        self.inner.base as u64
    }

    /// The memory of a map made by [`register`](Self::register); `None` for an imported one.
    pub fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.inner.region.as_ref()
    }

    /// Whether both are clones of one map.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::doca_mmap {
        self.inner.mmap.as_ptr()
    }

    /// The address of `len` bytes at `offset`, after the check that they are inside the map.
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
            // Wrapping: the address may be one of another process.
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

    /// The offset of an address that C gave back, if `len` bytes there are inside the map.
    pub(crate) fn offset_of(&self, address: *mut c_void, len: usize) -> Option<usize> {
        let offset = (address as usize).checked_sub(self.inner.base as usize)?;
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.inner.len)
            .then_some(offset)
    }
}
