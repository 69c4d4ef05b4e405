//! Memory: permissions, regions, and maps for devices and peers.

mod shared_bytes;

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use doca_sys as sys;
use rustix::mm::{
    Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap,
};
use shared_bytes::{Outside, SharedBytes};

use crate::error::{call, non_null};
use crate::{Device, Error, ErrorCode, Result};

pub(crate) use shared_bytes::{load as load_shared, store as store_shared};

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
    /// The errors of `doca_mmap_start` and of the functions that create the map.
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
    /// The errors of `doca_mmap_create_from_export`, for a blob that is malformed, was withdrawn, or belongs to another
    /// device.
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
    /// The errors of `doca_mmap_export_pci`, e.g. if the permissions do not include PCI access.
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
    /// The errors of `doca_mmap_export_rdma`, e.g. if the permissions do not include RDMA access.
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

    /// The memory of a map created by [`register`](Self::register); `None` for an imported map.
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

/// Memory for devices and peers: page-aligned, initially zero, at a fixed address until it is dropped.
///
/// Devices and other processes may read and write it at any time once it is registered
/// ([`Mmap::register`](crate::Mmap::register)), so there are no references to its bytes: they are copied in and out,
/// each byte atomically and in no particular order. A copy that races with a write by another thread, process or device
/// sees an arbitrary mixture of old and new bytes.
///
/// ```
/// use doca::MemoryRegion;
///
/// let region = MemoryRegion::new(8192)?;
/// region.write(4096, b"hello")?;
/// let mut bytes = [0; 6];
/// region.read(4096, &mut bytes)?;
/// assert_eq!(&bytes, b"hello\0");
/// assert!(region.write(8190, b"too long").is_err());
/// # doca::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct MemoryRegion(SharedBytes);

impl MemoryRegion {
    /// Owns a mapping.
    ///
    /// # Safety
    ///
    /// `start` is the result of a successful `mmap` of `len` bytes with read and write access that nothing else unmaps.
    unsafe fn of_mapping(start: *mut c_void, len: usize) -> Result<Arc<Self>> {
        let start =
            NonNull::new(start.cast()).ok_or_else(|| Error::new("mmap", ErrorCode::NO_MEMORY))?;
        // SAFETY: mapped until this value is dropped; users of `as_ptr` are told to access the bytes atomically.
        Ok(Arc::new(Self(unsafe { SharedBytes::new(start, len) })))
    }

    /// Allocates `len` bytes of zeroed memory.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for a length of 0, [`ErrorCode::NO_MEMORY`] if the allocation fails.
    pub fn new(len: usize) -> Result<Arc<Self>> {
        if len == 0 {
            return Err(Error::with_detail(
                "mmap",
                ErrorCode::INVALID_VALUE,
                "expected a memory region of at least one byte, got 0",
            ));
        }
        // SAFETY: a new anonymous mapping at an address chosen by the kernel affects no existing one.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .map_err(|error| {
            Error::with_detail(
                "mmap",
                ErrorCode::NO_MEMORY,
                format!("{len} bytes: {error}"),
            )
        })?;
        // SAFETY: mapped above.
        unsafe { Self::of_mapping(start, len) }
    }

    /// As [`new`](Self::new), for large, fully used memory that only this process and its devices access: asks the
    /// kernel for huge pages. With small pages nearly every block of a storage causes a TLB miss.
    ///
    /// This is a hint. The kernel may not provide huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`), and
    /// memory that is registered with access for peers is remapped with small pages. Unused parts take no memory, in
    /// units of a huge page (2 MiB on most machines).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_huge_pages(len: usize) -> Result<Arc<Self>> {
        let region = Self::new(len)?;
        // SAFETY: the range is the whole mapping; the advice changes no byte of it.
        let advised = unsafe { madvise(region.as_ptr().cast(), len, Advice::LinuxHugepage) };
        if let Err(error) = advised {
            tracing::debug!(%error, "no huge pages for {len} bytes");
        }
        Ok(region)
    }

    /// Maps `len` bytes of `file`, starting at `offset`: written bytes are in the file and survive any exit of the
    /// process. After [`sync`](Self::sync) they survive a crash of the machine.
    ///
    /// The region must be registered without access for peers ([`Access::LOCAL_READ_WRITE`](crate::Access) at most),
    /// otherwise softdoca has to copy the data for them. If the file is truncated, an access to the missing part raises
    /// SIGBUS.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for a length of 0, an offset that is not page-aligned, or a range that is not
    /// inside the file; the error of the operating system if the file cannot be mapped, for instance because it was not
    /// opened for writing.
    pub fn map_file(file: &std::fs::File, offset: u64, len: usize) -> Result<Arc<Self>> {
        let invalid = |detail: String| Error::with_detail("mmap", ErrorCode::INVALID_VALUE, detail);
        let failed = |error: std::io::Error| {
            Error::with_detail("mmap", ErrorCode::OPERATING_SYSTEM, error.to_string())
        };
        if len == 0 {
            return Err(invalid(
                "expected a memory region of at least one byte, got 0".to_owned(),
            ));
        }
        let length = file.metadata().map_err(failed)?.len();
        if offset
            .checked_add(len as u64)
            .is_none_or(|end| end > length)
        {
            return Err(invalid(format!(
                "{len} bytes at offset {offset} are not inside a file of {length} bytes"
            )));
        }
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing one; concurrent changes of the
        // file are what the type is designed for.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                offset,
            )
        }
        .map_err(|error| failed(error.into()))?;
        // SAFETY: mapped above.
        unsafe { Self::of_mapping(start, len) }
    }

    /// Waits until all written bytes are on disk. Has no effect on a region that is not of a file.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::IO_FAILED`] if the disk did not store all of them.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the range is the whole mapping, which the call does not change.
        unsafe { msync(self.as_ptr().cast(), self.len(), MsyncFlags::SYNC) }
            .map_err(|error| Error::with_detail("msync", ErrorCode::IO_FAILED, error.to_string()))
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// First address. The caller is responsible for accesses through it, which must be atomic, because other threads
    /// may access the same bytes through the region.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.start().as_ptr()
    }

    /// Copies bytes at `offset` to `into`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if the range is not inside the region; nothing is copied.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.0
            .read(offset, into)
            .map_err(|range| self.outside(range))
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if the range is not inside the region; nothing is copied.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.0
            .write(offset, bytes)
            .map_err(|range| self.outside(range))
    }

    /// Sets `len` bytes at `offset` to `value`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if the range is not inside the region; nothing is written.
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<()> {
        self.0
            .fill(offset, len, value)
            .map_err(|range| self.outside(range))
    }

    /// Copies `len` bytes from `source_offset` of `source` to `offset` of this region. The ranges may overlap.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if a range is not inside its region; nothing is copied.
    pub fn copy_from(
        &self,
        offset: usize,
        source: &Self,
        source_offset: usize,
        len: usize,
    ) -> Result<()> {
        self.0
            .copy_from(offset, &source.0, source_offset, len)
            .map_err(|range| self.outside(range))
    }

    #[cold]
    fn outside(&self, Outside { offset, len }: Outside) -> Error {
        let detail = format!(
            "{len} bytes at offset {offset} are not inside a region of {} bytes",
            self.len()
        );
        Error::with_detail("MemoryRegion", ErrorCode::INVALID_VALUE, detail)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; all owners are dropped.
        if let Err(error) = unsafe { munmap(self.as_ptr().cast::<c_void>(), self.len()) } {
            tracing::warn!(%error, len = self.len(), "failed to unmap a memory region; leaking it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shared_bytes::PIECE;
    use super::*;

    #[test]
    fn a_region_is_zeroed_and_page_aligned() {
        let region = MemoryRegion::new(5000).unwrap();
        assert_eq!(region.as_ptr() as usize % 4096, 0);
        let mut bytes = vec![1; 5000];
        region.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn huge_pages_are_requested_without_other_effects() {
        let region = MemoryRegion::with_huge_pages(4 << 20).unwrap();
        region.write((4 << 20) - 1, &[7]).unwrap();
        let mut bytes = [1, 0];
        region.read((4 << 20) - 2, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 7]);
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        // The flag "hg" of a mapping: huge pages were advised.
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", region.as_ptr() as usize);
        let mut mapping = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = mapping.find(|line| line.starts_with("VmFlags:"));
        assert!(
            flags.unwrap().split(' ').any(|flag| flag == "hg"),
            "{flags:?}"
        );
    }

    #[test]
    fn every_access_outside_is_refused() {
        let region = MemoryRegion::new(16).unwrap();
        assert!(region.read(16, &mut []).is_ok());
        assert!(region.read(17, &mut []).is_err());
        assert!(region.read(8, &mut [0; 9]).is_err());
        assert!(region.write(usize::MAX, &[1]).is_err());
        assert!(region.fill(1, usize::MAX, 0).is_err());
        assert!(region.copy_from(9, &region, 0, 8).is_err());
        assert!(region.copy_from(0, &region, 9, 8).is_err());
        assert_eq!(
            MemoryRegion::new(0).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
    }

    #[test]
    fn all_bytes_arrive_wherever_the_program_has_its_own() {
        let region = MemoryRegion::new(3 * 4096).unwrap();
        let bytes: Vec<u8> = (0..4096 + 64).map(|at| (at % 251) as u8).collect();
        // All distances within a page, in steps of 32 bytes.
        let mut room = vec![0; 3 * 4096];
        for (offset, at) in (0..4096).step_by(16).map(|at| (4096 - at, at)) {
            for len in [0, 1, 1024, 4095, 4096 + 64] {
                region.write(offset, &bytes[..len]).unwrap();
                region.read(offset, &mut room[at..at + len]).unwrap();
                assert_eq!(room[at..at + len], bytes[..len], "{len} at {offset}");
            }
        }
    }

    #[test]
    fn fill_and_overlapping_copy() {
        let region = MemoryRegion::new(8).unwrap();
        region.fill(0, 4, 7).unwrap();
        region.write(0, &[1, 2]).unwrap();
        region.copy_from(1, &region, 0, 4).unwrap();
        let mut bytes = [0; 8];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 1, 2, 7, 7, 0, 0, 0]);
        // The copy is made in several pieces, in both directions.
        let (len, region) = (3 * PIECE + 10, MemoryRegion::new(4 * PIECE).unwrap());
        let pattern: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        for (from, to) in [(0, 700), (700, 0), (5, 5)] {
            region.write(from, &pattern).unwrap();
            region.copy_from(to, &region, from, len).unwrap();
            let mut copied = vec![0; len];
            region.read(to, &mut copied).unwrap();
            assert!(copied == pattern, "from {from} to {to}");
        }
        region.fill(3, len, 9).unwrap();
        let mut filled = vec![0; len + 2];
        region.read(2, &mut filled).unwrap();
        assert_ne!(filled[0], 9);
        assert!(filled[1..=len].iter().all(|byte| *byte == 9));
    }

    #[test]
    fn threads_that_use_the_same_bytes_see_whole_bytes_of_one_or_the_other() {
        let region = MemoryRegion::new(4096).unwrap();
        std::thread::scope(|scope| {
            for value in [0x11, 0x22] {
                let region = &region;
                scope.spawn(move || {
                    for round in 0..1000 {
                        region.write(round % 64, &[value; 1000]).unwrap();
                    }
                });
            }
            for _ in 0..1000 {
                let mut bytes = [0; 1000];
                region.read(32, &mut bytes).unwrap();
                let mut seen = bytes.iter();
                assert!(seen.all(|byte| [0, 0x11, 0x22].contains(byte)));
            }
        });
    }

    #[test]
    fn bytes_written_to_a_mapped_file_are_in_the_file() {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(65536 + 100).unwrap();
        let region = MemoryRegion::map_file(&file, 65536, 100).unwrap();
        region.write(98, b"ab").unwrap();
        let mut bytes = [0; 2];
        file.seek(SeekFrom::Start(65536 + 98)).unwrap();
        file.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ab", "before it is synced");
        region.sync().unwrap();
        // Registered as memory that softdoca and devices access.
        let access = crate::Access::LOCAL_READ_WRITE;
        if let Ok(device) = crate::Device::open("3b:00.0") {
            let mmap = crate::Mmap::register(&device, region.clone(), access).unwrap();
            region.write(0, b"c").unwrap();
            file.seek(SeekFrom::Start(65536)).unwrap();
            file.read_exact(&mut bytes[..1]).unwrap();
            assert_eq!(bytes[0], b'c', "a registered region is still the file's");
            drop(mmap);
        }
    }

    #[test]
    fn ranges_that_a_file_does_not_have_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        for (offset, len) in [(0, 0), (0, 8193), (8192, 1), (u64::MAX, 1)] {
            let error = MemoryRegion::map_file(&file, offset, len).unwrap_err();
            assert_eq!(error.code, ErrorCode::INVALID_VALUE, "{offset} {len}");
        }
        assert!(MemoryRegion::map_file(&file, 1, 1).is_err(), "no page");
        MemoryRegion::new(10).unwrap().sync().unwrap();
    }
}
