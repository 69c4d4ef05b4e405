//! Memory maps: ranges of memory for devices and, through exports, for other processes.
//!
//! A range of a started map with remote permissions is shared in place: its whole private pages become pages of a
//! memfd that importers map as well; the rest is accessed through the [`agent`]. Addresses of an
//! imported map are its exporter's, throughout this API.
//!
//! Other processes write to this memory at any time, so no Rust references to it are created: bytes are copied through
//! raw pointers.

mod access;
mod export;
mod sharing;

pub use access::copy;
pub(crate) use access::{prefetch_to_read, prefetch_to_write};
pub use export::{ExportKind, Permissions};
pub(crate) use export::{again as descriptor_again, examples as example_descriptors};

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::agent::{self, NetworkOffer, Segment};
use crate::check::{self, Mistake};
use crate::device::{Device, DeviceKey, DeviceUse};
use crate::error::{Error, Result};
use crate::verbs::{Nic, Region, RemoteKey};
use access::{Imported, Region as RemoteMemory};
use export::Exported;

/// A range of memory for devices: of this process, or imported from another one. Shared as `Arc<Mmap>`.
///
/// The data path's state (range, permissions, started or not) is in separate atomics, so that the data path takes no
/// lock.
#[derive(Debug)]
pub struct Mmap {
    addr: AtomicU64,
    len: AtomicU64,
    permissions: AtomicU32,
    /// Started, or imported: usable.
    usable: AtomicBool,
    /// `true` if local devices may write, and the pages can be written.
    writable: AtomicBool,
    /// Set of the [keys](DeviceKey) of the added devices.
    device_keys: AtomicU32,
    thread_safe: AtomicBool,
    exported: AtomicBool,
    /// Bufs that point into the map.
    bufs: AtomicU32,
    user_data: AtomicU64,
    /// Number and key of the RDMA device used last, as a [`RemoteKey`] word; 0 if none.
    local_key: AtomicU64,
    imported: Option<Imported>,
    setup: Mutex<Setup>,
}

/// Function of the program that frees a map's range. Arguments: address, length, and the user data set with it.
pub type FreeFunction = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

/// Release callback of the range.
#[derive(Debug, Clone, Copy)]
pub struct FreeCallback {
    pub function: FreeFunction,
    /// The map's user data: a pointer of the program with its provenance exposed.
    pub opaque: usize,
}

/// State that changes only while no data is transferred.
#[derive(Debug)]
struct Setup {
    pub max_devices: u32,
    pub devices: Vec<Arc<Device>>,
    /// Held while the map is started or, if it is imported, until it is destroyed.
    uses: Vec<DeviceUse>,
    /// Segments of a started map of this process.
    pub segments: Vec<Segment>,
    pub pci: Option<Exported>,
    pub rdma: Option<Exported>,
    /// Registrations with RDMA devices for requests of this process.
    local: Vec<Region>,
    /// `true` if a device has refused a registration.
    local_failed: bool,
    free: Option<FreeCallback>,
    /// `true` if the map has been started since the callback was set.
    free_is_due: bool,
    was_started: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            max_devices: Mmap::MAX_DEVICES,
            devices: Vec::new(),
            uses: Vec::new(),
            segments: Vec::new(),
            pci: None,
            rdma: None,
            local: Vec::new(),
            local_failed: false,
            free: None,
            free_is_due: false,
            was_started: false,
        }
    }
}

impl Setup {
    /// The RDMA device of the first device that has one.
    ///
    /// # Errors
    /// As [`agent::nic_of`].
    fn nic(&self) -> Result<Option<&'static Nic>> {
        for device in &self.devices {
            if let nic @ Some(_) = agent::nic_of(device.model())? {
                return Ok(nic);
            }
        }
        Ok(None)
    }
}

impl Mmap {
    /// Default maximum number of devices of a map.
    pub const MAX_DEVICES: u32 = 64;

    /// Creates a map without a range, with the default permission.
    pub fn new() -> Mmap {
        Mmap {
            addr: AtomicU64::new(0),
            len: AtomicU64::new(0),
            permissions: AtomicU32::new(Permissions::default().bits()),
            usable: AtomicBool::new(false),
            writable: AtomicBool::new(false),
            device_keys: AtomicU32::new(0),
            thread_safe: AtomicBool::new(false),
            exported: AtomicBool::new(false),
            bufs: AtomicU32::new(0),
            user_data: AtomicU64::new(0),
            local_key: AtomicU64::new(0),
            imported: None,
            setup: Mutex::default(),
        }
    }

    /// Imports another process's memory from its export descriptor. The map is immediately usable, and has the
    /// exporter's addresses and permissions.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for bytes that are not a descriptor, [`Error::UnsupportedVersion`],
    /// [`Error::NotSupported`] for another machine's memory, [`Error::NotFound`] if the exporter has exited or
    /// withdrawn it.
    pub fn import(descriptor: &[u8], device: &Arc<Device>) -> Result<Mmap> {
        let imported = Imported::new(descriptor)?;
        let mut mmap = Mmap::new();
        mmap.addr = AtomicU64::new(imported.descriptor.addr);
        mmap.len = AtomicU64::new(imported.descriptor.len);
        mmap.permissions = AtomicU32::new(imported.descriptor.permissions.bits());
        mmap.usable = AtomicBool::new(true);
        mmap.writable = AtomicBool::new(imported.rights.write);
        mmap.device_keys = AtomicU32::new(device.key().to_set());
        let mut setup = mmap.setup();
        setup.devices.push(Arc::clone(device));
        setup.uses.push(DeviceUse::of_device(device));
        drop(setup);
        mmap.imported = Some(imported);
        Ok(mmap)
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        // Every change is complete before the next call that can panic.
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_unstarted(&self, what: &str) -> Result<()> {
        if self.imported.is_some() {
            return Err(Error::NotPermitted
                .because(format_args!("{what} of an imported mmap cannot be changed")));
        }
        if self.is_usable() {
            return Err(Error::BadState.because(format_args!(
                "{what} cannot be changed after doca_mmap_start"
            )));
        }
        Ok(())
    }

    /// Sets the range, once.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an empty range or one that wraps around, [`Error::BadState`] when started,
    /// [`Error::NotPermitted`] the second time.
    pub fn set_memrange(&self, addr: u64, len: u64) -> Result<()> {
        self.check_unstarted("the range")?;
        let _setup = self.setup();
        if addr == 0
            || len == 0
            || addr
                .checked_add(len)
                .is_none_or(|end| usize::try_from(end).is_err())
        {
            return Err(Error::InvalidValue
                .because(format_args!("{len} bytes at {addr:#x} are no memory range")));
        }
        if self.len.load(Ordering::Relaxed) != 0 {
            return Err(
                Error::NotPermitted.because("the memory range of an mmap can be set only once")
            );
        }
        self.addr.store(addr, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// First address and length; the exporter's for an imported map.
    ///
    /// # Errors
    /// [`Error::BadState`] if it was never set.
    pub fn memrange(&self) -> Result<(u64, u64)> {
        let (addr, len) = self.range();
        if len == 0 {
            Err(Error::BadState)
        } else {
            Ok((addr, len))
        }
    }

    /// Sets or removes the function that frees the range when the map is destroyed.
    ///
    /// # Errors
    /// [`Error::BadState`] if started, [`Error::NotPermitted`] for an imported map, whose range belongs to the
    /// exporter.
    pub fn set_free_callback(&self, callback: Option<FreeCallback>) -> Result<()> {
        self.check_unstarted("the callback that frees the range")?;
        let mut setup = self.setup();
        setup.free = callback;
        setup.free_is_due = false;
        Ok(())
    }

    /// Ends the use of the devices of a map that the program destroys, because bufs of a thread-safe map may keep it
    /// alive.
    pub(crate) fn release_devices(&self) {
        let uses = std::mem::take(&mut self.setup().uses);
        drop(uses);
    }

    /// Takes the release callback, if the map was started after it was set; called once, when the map is destroyed.
    pub fn take_free_callback(&self) -> Option<FreeCallback> {
        let mut setup = self.setup();
        let callback = setup.free.take();
        callback.filter(|_| setup.free_is_due)
    }

    /// Sets the permissions of devices and peers.
    ///
    /// # Errors
    /// [`Error::BadState`] when started.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        self.check_unstarted("the permissions")?;
        self.permissions
            .store(permissions.bits(), Ordering::Relaxed);
        Ok(())
    }

    /// Permissions of devices and peers; the exporter's for an imported map.
    #[inline]
    pub fn permissions(&self) -> Permissions {
        Permissions::from_bits_retain(self.permissions.load(Ordering::Relaxed))
    }

    fn expect_fresh(&self, what: &str) -> Result<()> {
        if self.is_usable() || self.is_exported() {
            return Err(Error::NotPermitted.because(format_args!(
                "{what} an mmap that is not started, was never exported, and is not imported"
            )));
        }
        Ok(())
    }

    pub fn max_devices(&self) -> u32 {
        self.setup().max_devices
    }

    /// Sets the maximum number of devices.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for 0 or less than the present number; [`Error::NotPermitted`] after the first start, and
    /// for an imported map.
    pub fn set_max_devices(&self, count: u32) -> Result<()> {
        self.expect_fresh("the number of devices is set of")?;
        let mut setup = self.setup();
        if setup.was_started {
            return Err(Error::NotPermitted
                .because("the number of devices is set before the first start of an mmap"));
        }
        if count == 0 || (count as usize) < setup.devices.len() {
            return Err(Error::InvalidValue.because(format_args!(
                "expected room for at least one device and for the added ones, got {count}"
            )));
        }
        setup.max_devices = count;
        Ok(())
    }

    /// Removes a device.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was not added, [`Error::NotPermitted`] once started, exported or imported.
    pub fn remove_device(&self, device: &Arc<Device>) -> Result<()> {
        self.expect_fresh("a device is removed from")?;
        let mut setup = self.setup();
        let known = setup
            .devices
            .iter()
            .position(|known| Arc::ptr_eq(known, device));
        setup.devices.remove(known.ok_or(Error::NotFound)?);
        self.set_device_keys(&setup);
        Ok(())
    }

    fn set_device_keys(&self, setup: &Setup) {
        let keys = setup.devices.iter().map(|device| device.key().to_set());
        self.device_keys
            .store(keys.fold(0, |set, key| set | key), Ordering::Relaxed);
    }

    /// `true` if the device was added, so that it has a key for the memory.
    pub fn has_device(&self, key: DeviceKey) -> bool {
        key.is_in(self.device_keys())
    }

    /// The devices that were added. The set does not change while bufs exist.
    #[inline]
    pub fn device_keys(&self) -> u32 {
        self.device_keys.load(Ordering::Relaxed)
    }

    /// Adds a device.
    ///
    /// # Errors
    /// [`Error::AlreadyExist`], [`Error::NoMemory`] over [`Mmap::MAX_DEVICES`], [`Error::NotPermitted`] once started, exported or
    /// imported.
    pub fn add_device(&self, device: &Arc<Device>) -> Result<()> {
        self.expect_fresh("a device is added to")?;
        let mut setup = self.setup();
        if setup.devices.iter().any(|known| Arc::ptr_eq(known, device)) {
            return Err(Error::AlreadyExist);
        }
        if setup.devices.len() >= setup.max_devices as usize {
            return Err(Error::NoMemory.because(format_args!(
                "the mmap has at most {} devices",
                setup.max_devices
            )));
        }
        setup.devices.push(Arc::clone(device));
        self.set_device_keys(&setup);
        Ok(())
    }

    /// Allows use of the map by several threads while bufs of it exist: bufs are no longer counted. The engine needs no
    /// other changes for this.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] once started, or with bufs.
    pub fn enable_thread_safety(&self) -> Result<()> {
        if self.imported.is_none() && self.is_usable() || self.buf_count() != 0 {
            return Err(Error::NotPermitted
                .because("thread safety is enabled before the mmap is started and has bufs"));
        }
        self.thread_safe.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the range usable; with remote permissions, shares it in place.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] without a range or for one that is not mapped, [`Error::BadState`] when started already,
    /// [`Error::NotPermitted`] for an imported map, [`Error::NoMemory`].
    pub fn start(&self) -> Result<()> {
        if self.imported.is_some() {
            return Err(Error::NotPermitted.because("an imported mmap needs no start"));
        }
        let mut setup = self.setup();
        if self.is_usable() {
            return Err(match setup.pci.is_some() || setup.rdma.is_some() {
                true => Error::NotPermitted.because("the mmap is started and exported already"),
                false => Error::BadState.because("the mmap is started already"),
            });
        }
        let (addr, len) = self.range();
        if len == 0 {
            return Err(
                Error::InvalidValue.because("doca_mmap_set_memrange comes before doca_mmap_start")
            );
        }
        let permissions = self.permissions();
        let layout = sharing::lay_out(addr, len, permissions.remote())?;
        if !layout.writable
            && (Permissions::RDMA_WRITE | Permissions::RDMA_ATOMIC | Permissions::PCI_READ_WRITE)
                .intersects(permissions)
        {
            return Err(Error::InvalidValue.because(format_args!(
                "peers may write to {len} bytes at {addr:#x} by the permissions {permissions:?}, but the memory is read-only"
            )));
        }
        setup.was_started = true;
        setup.segments = layout.segments;
        setup.uses = setup.devices.iter().map(DeviceUse::of_device).collect();
        setup.free_is_due = setup.free.is_some();
        self.writable.store(
            layout.writable && permissions.local_write(),
            Ordering::Relaxed,
        );
        // Published last, because the data path reads the other fields after it.
        self.usable.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes the range unusable and withdraws its exports. Has no effect on an imported or unstarted map.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] while bufs of it exist, unless thread safety is enabled.
    pub fn stop(&self) -> Result<()> {
        self.check_no_bufs()?;
        self.withdraw();
        Ok(())
    }

    /// Checks that the map may be destroyed.
    ///
    /// # Errors
    /// As [`Mmap::stop`].
    pub fn check_no_bufs(&self) -> Result<()> {
        match self.buf_count() {
            0 => Ok(()),
            count => {
                check::report(
                    Mistake::MmapDestroyedWithBufs,
                    format_args!("mmap {self:p} with {count} bufs"),
                );
                Err(Error::NotPermitted
                    .because(format_args!("{count} bufs still point into the mmap")))
            }
        }
    }

    /// Stops without checking for bufs.
    pub(crate) fn withdraw(&self) {
        let mut setup = self.setup();
        let exports = (setup.pci.take(), setup.rdma.take());
        self.local_key.store(0, Ordering::Release);
        let local = std::mem::take(&mut setup.local);
        setup.local_failed = false;
        setup.segments.clear();
        let uses = match self.imported {
            None => std::mem::take(&mut setup.uses),
            Some(_) => Vec::new(),
        };
        drop(setup);
        drop((exports, local, uses));
        if self.imported.is_none() {
            self.usable.store(false, Ordering::Release);
        }
    }

    fn set_exported(&self) {
        self.exported.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if an export was ever created.
    pub fn is_exported(&self) -> bool {
        self.exported.load(Ordering::Relaxed)
    }

    /// Returns `true` if the memory is another process's.
    #[inline]
    pub fn is_imported(&self) -> bool {
        self.imported.is_some()
    }

    /// Kind of the import; `None` for memory of this process.
    #[inline]
    pub fn import_kind(&self) -> Option<ExportKind> {
        self.imported
            .as_ref()
            .map(|imported| imported.descriptor.kind)
    }

    /// Returns `true` if data can be transferred: started and not stopped, or imported.
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    /// Returns `true` if a local device may write: the permissions (for an import, the permissions of its kind of access) and the pages allow it.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    #[inline]
    fn range(&self) -> (u64, u64) {
        (
            self.addr.load(Ordering::Relaxed),
            self.len.load(Ordering::Relaxed),
        )
    }

    /// Returns `true` if all of the `len` bytes at `addr` belong to the range. Does not wrap around.
    #[inline]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        let (start, size) = self.range();
        addr.checked_sub(start)
            .is_some_and(|offset| offset <= size && len <= size - offset)
    }

    /// Returns the `len` bytes at `addr` (the exporter's address, if imported) as a pointer valid in this process;
    /// `None` if they are outside the range or not mapped contiguously, or the map is not usable. Use
    /// [`copy`](copy()) and the methods below in that case.
    ///
    /// Other processes may write there: no reference may be created to it, and memory that is not
    /// [`Mmap::is_writable`] must not be written. The pointer is valid while the map lives and, for memory of this
    /// process, is not stopped.
    #[inline]
    pub fn local_ptr(&self, addr: u64, len: u64) -> Option<*mut u8> {
        if !self.is_usable() || !self.contains(addr, len) {
            return None;
        }
        match &self.imported {
            // Set by the program as a pointer, so it fits.
            None => Some(std::ptr::with_exposed_provenance_mut(addr as usize)),
            Some(imported) => imported.pointer(addr, len),
        }
    }

    /// Description of network access to the memory, if it is on another machine.
    pub(crate) fn network_offer(&self) -> Option<&NetworkOffer> {
        match self.imported.as_ref()?.region() {
            RemoteMemory::Network(region) => Some(region.offer()),
            RemoteMemory::Agent(_) => None,
        }
    }

    /// Key of the memory for RDMA devices, if it is on another machine and registered with a device.
    pub(crate) fn remote_key(&self) -> Option<RemoteKey> {
        match self.imported.as_ref()?.region() {
            RemoteMemory::Network(region) => region.remote_key(),
            RemoteMemory::Agent(_) => None,
        }
    }

    /// Key of the memory for requests of this process to `nic`; the first call registers the memory. `None` if the
    /// device refuses it, or if the memory is not mapped contiguously in this process.
    #[inline]
    pub(crate) fn local_key(&self, nic: &'static Nic) -> Option<u32> {
        match RemoteKey::from_word(self.local_key.load(Ordering::Acquire)) {
            Some(key) if key.nic == nic.number() => Some(key.rkey),
            _ => self.register_local(nic),
        }
    }

    #[cold]
    fn register_local(&self, nic: &'static Nic) -> Option<u32> {
        let mut setup = self.setup();
        let known = |region: &&Region| region.nic().number() == nic.number();
        let lkey = match setup.local.iter().find(known) {
            Some(region) => region.lkey(),
            None => {
                let (addr, len) = self.range();
                let start = self.local_ptr(addr, len)?;
                let len = usize::try_from(len).ok()?;
                if setup.local_failed {
                    return None;
                }
                match nic.register_local(start, len, self.is_writable()) {
                    Ok(region) => {
                        let lkey = region.lkey();
                        setup.local.push(region);
                        lkey
                    }
                    Err(_) => {
                        // Remembered, so that it is not retried with every request.
                        setup.local_failed = true;
                        return None;
                    }
                }
            }
        };
        let key = RemoteKey {
            nic: nic.number(),
            rkey: lkey,
            has_atomics: false,
        };
        self.local_key.store(key.to_word(), Ordering::Release);
        Some(lkey)
    }

    fn imported(&self) -> Option<&Imported> {
        self.imported.as_ref()
    }

    /// The program's user data, 0 until set.
    pub fn user_data(&self) -> u64 {
        self.user_data.load(Ordering::Relaxed)
    }

    /// Sets the program's user data.
    ///
    /// # Errors
    /// [`Error::BadState`] when started.
    pub fn set_user_data(&self, value: u64) -> Result<()> {
        if self.imported.is_none() && self.is_usable() {
            return Err(Error::BadState
                .because("the user data of an mmap cannot be changed after doca_mmap_start"));
        }
        self.user_data.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Number of bufs that point into the map; 0 if thread safety is enabled.
    pub fn buf_count(&self) -> u32 {
        if self.thread_safe.load(Ordering::Relaxed) {
            0
        } else {
            self.bufs.load(Ordering::Relaxed)
        }
    }

    #[inline]
    pub(crate) fn count_buf(&self) {
        self.bufs.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn uncount_buf(&self) {
        self.bufs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Mmap {
    fn default() -> Mmap {
        Mmap::new()
    }
}

#[cfg(test)]
mod tests {
    //! Tests of memory maps inside one process; those between processes are integration tests.

    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::{ExportKind, Mmap, Permissions, copy};
    use crate::capi::testing::{Answer, ScriptedAgent, segment};
    use crate::device::Device;
    use crate::error::Error;

    /// Backing bytes for a map.
    struct Bytes(Box<[u8]>);

    impl Bytes {
        fn new(len: usize) -> Bytes {
            Bytes((0..len).map(|index| index as u8).collect())
        }

        fn addr(&mut self) -> u64 {
            self.0.as_mut_ptr().expose_provenance() as u64
        }

        fn map(&mut self) -> Mmap {
            let mmap = Mmap::new();
            mmap.set_memrange(self.addr(), self.0.len() as u64).unwrap();
            mmap
        }
    }

    #[test]
    fn setters_of_a_map_must_precede_its_start() {
        let (mut bytes, mmap) = (Bytes::new(100), Mmap::new());
        let device = Device::open_by_name("mlx5_0").unwrap();
        assert_eq!(mmap.memrange(), Err(Error::BadState));
        assert_eq!(mmap.start(), Err(Error::InvalidValue));
        for (addr, len) in [
            (0, 1),
            (bytes.addr(), 0),
            (bytes.addr(), u64::MAX),
            (u64::MAX, 2),
        ] {
            assert_eq!(mmap.set_memrange(addr, len), Err(Error::InvalidValue));
        }
        mmap.set_memrange(bytes.addr(), 100).unwrap();
        assert_eq!(
            mmap.set_memrange(bytes.addr(), 100),
            Err(Error::NotPermitted)
        );
        assert_eq!(mmap.memrange(), Ok((bytes.addr(), 100)));
        assert_eq!(mmap.permissions(), Permissions::LOCAL_READ_WRITE);
        mmap.add_device(&device).unwrap();
        assert_eq!(mmap.add_device(&device), Err(Error::AlreadyExist));
        mmap.enable_thread_safety().unwrap();
        assert_eq!(
            mmap.export(ExportKind::Pci, &device).unwrap_err(),
            Error::NotPermitted
        );
        assert_eq!(
            (mmap.local_ptr(bytes.addr(), 1), mmap.is_writable()),
            (None, false),
            "not started"
        );
        mmap.start().unwrap();
        assert_eq!(mmap.start(), Err(Error::BadState));
        assert_eq!(
            mmap.set_permissions(Permissions::PCI_READ_ONLY),
            Err(Error::BadState)
        );
        assert_eq!(mmap.add_device(&device), Err(Error::NotPermitted));
        assert_eq!(mmap.enable_thread_safety(), Err(Error::NotPermitted));
        assert!(mmap.is_writable() && !mmap.is_imported() && !mmap.is_exported());
        mmap.stop().unwrap();
        mmap.stop().unwrap();
        mmap.set_permissions(Permissions::empty()).unwrap();
        mmap.start().unwrap();
        assert!(!mmap.is_writable());
    }

    #[test]
    fn the_range_bounds_every_access() {
        let mut bytes = Bytes::new(100);
        let mmap = bytes.map();
        mmap.start().unwrap();
        let addr = bytes.addr();
        for (offset, len) in [(0, 100), (100, 0), (99, 1), (0, 0)] {
            assert!(mmap.contains(addr + offset, len));
            assert_eq!(
                mmap.local_ptr(addr + offset, len).unwrap().addr() as u64,
                addr + offset
            );
        }
        let outside = [
            (addr - 1, 1),
            (addr, 101),
            (addr + 100, 1),
            (addr + 1, u64::MAX),
            (0, 1),
            (u64::MAX, u64::MAX),
        ];
        for (at, len) in outside {
            assert!(!mmap.contains(at, len), "{at:#x} {len:#x}");
            assert_eq!(mmap.local_ptr(at, len), None);
            let len = usize::try_from(len).unwrap();
            assert_eq!(copy(&mmap, addr, &mmap, at, len), Err(Error::InvalidValue));
            assert_eq!(copy(&mmap, at, &mmap, addr, len), Err(Error::InvalidValue));
        }
    }

    #[test]
    fn bytes_are_copied_as_by_memmove() {
        let mut bytes = Bytes::new(32);
        let (mmap, addr) = (bytes.map(), bytes.addr());
        mmap.start().unwrap();
        copy(&mmap, addr + 4, &mmap, addr, 16).unwrap();
        let (mut read, expected): (_, Vec<u8>) = ([0; 20], (0..4).chain(0..16).collect());
        // SAFETY: the arrays have these sizes.
        unsafe {
            mmap.read_into(addr, read.as_mut_ptr(), 20).unwrap();
            assert_eq!(read[..], expected);
            mmap.write_from(addr + 31, [7].as_ptr(), 1).unwrap();
            mmap.read_into(addr + 30, read.as_mut_ptr(), 2).unwrap();
            assert_eq!(read[..2], [30, 7]);
            assert_eq!(
                mmap.write_from(addr + 31, read.as_ptr(), 2),
                Err(Error::InvalidValue)
            );
        }
        mmap.stop().unwrap();
        assert_eq!(copy(&mmap, addr, &mmap, addr, 1), Err(Error::BadState));
    }

    #[test]
    fn read_only_memory_cannot_be_offered_for_writing() {
        static CONSTANT: [u8; 64] = [7; 64];
        let addr = (&raw const CONSTANT).expose_provenance() as u64;
        let mmap = Mmap::new();
        mmap.set_memrange(addr, 64).unwrap();
        mmap.set_permissions(Permissions::RDMA_WRITE).unwrap();
        assert_eq!(mmap.start(), Err(Error::InvalidValue));
        // The map can be used as a source with the default permission.
        mmap.set_permissions(Permissions::default()).unwrap();
        mmap.start().unwrap();
        assert!(!mmap.is_writable());
        assert_eq!(
            copy(&mmap, addr, &mmap, addr + 8, 8),
            Err(Error::NotPermitted)
        );
        assert_eq!(
            mmap.fetch_add(addr.next_multiple_of(8), 1),
            Err(Error::NotPermitted)
        );
    }

    #[test]
    fn maps_are_usable_from_several_threads() {
        let mut bytes = Bytes::new(64);
        let (mmap, addr) = (Arc::new(bytes.map()), bytes.addr().next_multiple_of(8));
        mmap.start().unwrap();
        // SAFETY: the array has 8 bytes.
        unsafe { mmap.write_from(addr, [0; 8].as_ptr(), 8) }.unwrap();
        let add = |mmap: Arc<Mmap>| {
            move || (0..1000).try_for_each(|_| mmap.fetch_add(addr, 1).map(|_| ()))
        };
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(add(Arc::clone(&mmap))))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap().unwrap());
        assert_eq!(mmap.compare_swap(addr, 4000, 0), Ok(4000));
    }

    const PAGE: u64 = 4096;
    /// `DOCA_ACCESS_FLAG_RDMA_READ`, `_WRITE`, `_ATOMIC`.
    const RDMA: u32 = 0b1110;

    fn import(descriptor: &[u8]) -> Result<Mmap, Error> {
        Mmap::import(descriptor, &Device::open_by_name("mlx5_0").unwrap())
    }

    fn memfd(flags: MemfdFlags, len: u64) -> rustix::io::Result<Arc<OwnedFd>> {
        let memfd = rustix::fs::memfd_create("test", flags | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memfd, len)?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Arc::new(memfd))
    }

    fn memfd_of_zeros() -> Arc<OwnedFd> {
        memfd(MemfdFlags::CLOEXEC, PAGE).unwrap()
    }

    /// An agent whose export is one segment in a memfd, from `offset` on.
    fn exporter(memfd: Arc<OwnedFd>, addr: u64, len: u64, offset: u64) -> ScriptedAgent {
        // The validity word: 0 while the export is valid.
        let validity = memfd_of_zeros();
        ScriptedAgent::start(move |asked| match asked.operation {
            1 if asked.addr == 0 => {
                let entry = segment(addr, len, offset, Some(0));
                Some((1, entry, vec![Arc::clone(&memfd)]))
            }
            7 => Some((0, Vec::new(), vec![Arc::clone(&validity)])),
            _ => None,
        })
    }

    #[test]
    fn words_of_imported_memory_are_aligned() {
        // The exporter's addresses are multiples of 8, which the importer's must also be.
        for (offset, accepted) in [(0, true), (PAGE, true), (4, false), (8, false), (64, false)] {
            let memory = memfd(MemfdFlags::CLOEXEC, 4 * PAGE).unwrap();
            let agent = exporter(memory, 0x10_0000, PAGE, offset);
            let mmap = import(&agent.descriptor(2, RDMA, 0x10_0000, PAGE));
            match mmap {
                Ok(mmap) if accepted => assert_eq!(mmap.fetch_add(0x10_0000, 5), Ok(0)),
                Err(error) if !accepted => assert_eq!(error, Error::Unexpected),
                other => panic!("offset {offset}: {other:?}"),
            }
        }
    }

    #[test]
    fn huge_page_memory_is_not_mapped() {
        let Ok(memory) = memfd(MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB, 2 << 20) else {
            eprintln!("not run: this kernel has no huge pages");
            return;
        };
        let agent = exporter(memory, 0x20_0000, 2 << 20, 0);
        let refused = import(&agent.descriptor(2, RDMA, 0x20_0000, 2 << 20));
        assert_eq!(refused.err(), Some(Error::NotSupported));
    }

    #[test]
    fn slow_description_by_an_exporter_times_out() {
        // One segment in each reply, each of which arrives in time.
        let agent = ScriptedAgent::start(|asked| {
            std::thread::sleep(Duration::from_millis(400));
            let next = 0x10_0000 + asked.addr * PAGE;
            Some((100, segment(next, PAGE, 0, None), vec![]))
        });
        let begin = Instant::now();
        let given_up = import(&agent.descriptor(2, RDMA, 0x10_0000, 100 * PAGE));
        assert_eq!(given_up.err(), Some(Error::TimeOut));
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(6), "{took:?}");
    }

    #[test]
    fn an_import_has_limits() {
        let describe = |count: u64, per_reply: u64| {
            ScriptedAgent::start(move |asked| {
                let entries = (asked.addr..(asked.addr + per_reply).min(count))
                    .flat_map(|index| segment(0x10_0000 + index * PAGE, PAGE, 0, None));
                Some((count, entries.collect(), vec![])) as Answer
            })
        };
        let import_of = |agent: &ScriptedAgent, count: u64| {
            import(&agent.descriptor(2, RDMA, 0x10_0000, count * PAGE)).err()
        };
        assert_eq!(import_of(&describe(1024, 16), 1024), None);
        let many = describe(1025, 16);
        assert_eq!(import_of(&many, 1025), Some(Error::TooBig));
        assert_eq!(many.asked(), 1, "the first reply says how many there are");
        assert_eq!(import_of(&describe(100, 100), 100), Some(Error::Unexpected));
        // More bytes than any machine has are refused without a request.
        let large = describe(1, 1);
        let refused = import(&large.descriptor(2, RDMA, 0x10_0000, 1 << 41));
        assert_eq!((refused.err(), large.asked()), (Some(Error::TooBig), 0));
    }

    #[test]
    fn threads_sharing_an_import_share_its_timeout() {
        let agent = ScriptedAgent::start(|asked| {
            let first = asked.operation == 1;
            first.then(|| (1, segment(0x10_0000, PAGE, 0, None), vec![]))
        });
        let mmap = import(&agent.descriptor(2, RDMA, 0x10_0000, PAGE)).unwrap();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let result = mmap.load(0x10_0000);
                    // Accesses after the first timeout find the connection closed.
                    let given_up = [Err(Error::TimeOut), Err(Error::NotFound)];
                    assert!(given_up.contains(&result), "{result:?}");
                });
            }
        });
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(agent.asked(), 2, "the answer is cached");
    }
}
