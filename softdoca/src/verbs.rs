//! RDMA devices of this machine: rdma-core's libibverbs, loaded if the topology file names a device that exists.
//!
//! * [`abi`] declares the used structures of `infiniband/verbs.h`, and loads the library.
//! * [`Nic`] is an open device with its protection domain; [`Region`] is memory registered there.
//! * [`QueuePair`] is a reliable connection, with its completion queue.
//!
//! The library is required only if such a device is named. The crate `rdma-mummy-sys`, and `sideway` on top of it, also
//! load the library at run time, but need CMake, a C compiler and libclang to build.

mod abi;
mod queue_pair;

pub(crate) use abi::{Opcode, Sge};
pub(crate) use queue_pair::{Completion, Endpoint, MOST_PIECES, QueuePair, Received, WorkRequest};

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::log;
use crate::topology::{DeviceModel, Topology};
use abi::{
    Context, DeviceAttr, ETHERNET, MemoryRegion, PORT_ACTIVE, PortAttr, ProtectionDomain, Verbs,
    access,
};

/// Identifies registered memory for peers that are connected through a device of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteKey {
    /// Number of the device within the owner's process.
    pub(crate) nic: u16,
    pub(crate) rkey: u32,
    /// `true` if the device supports atomic operations.
    pub(crate) has_atomics: bool,
}

impl RemoteKey {
    /// Encodes the key in one word, which is never 0.
    pub(crate) fn to_word(self) -> u64 {
        let nic = u64::from(self.nic) << 32;
        let flags = VALID | if self.has_atomics { ATOMICS } else { 0 };
        flags | nic | u64::from(self.rkey)
    }

    pub(crate) fn from_word(word: u64) -> Option<RemoteKey> {
        (word & VALID != 0).then_some(RemoteKey {
            nic: (word >> 32) as u16,
            rkey: word as u32,
            has_atomics: word & ATOMICS != 0,
        })
    }
}

const VALID: u64 = 1 << 63;
const ATOMICS: u64 = 1 << 62;

/// sysfs directory with an entry for each RDMA device.
const DEVICES: &str = "/sys/class/infiniband";
/// Maximum number of outstanding reads and atomics of a queue pair.
const MOST_READS: c_int = 16;

/// Rights to registered memory, of the peers of this process's queue pairs on the same device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RemoteRights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

/// An open device. It stays open until the process exits.
pub(crate) struct Nic {
    verbs: &'static Verbs,
    context: NonNull<Context>,
    pd: NonNull<ProtectionDomain>,
    name: String,
    /// Identifies the device within this process.
    number: u16,
    port: u8,
    gid_index: u8,
    gid: [u8; 16],
    lid: u16,
    link_layer: u8,
    mtu: u8,
    most_reads: u8,
    most_pieces: usize,
    most_bytes: usize,
    has_atomics: bool,
}

// SAFETY: libibverbs is thread-safe; the context and its protection domain live as long as the process.
unsafe impl Send for Nic {}
// SAFETY: as above.
unsafe impl Sync for Nic {}

impl std::fmt::Debug for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Nic").field(&self.name).finish()
    }
}

/// Devices by name, with the result of opening them. The list is short, and used only during set-up.
static OPEN: Mutex<Vec<(String, Option<&'static Nic>)>> = Mutex::new(Vec::new());

impl Nic {
    /// The RDMA device that the topology file names for `device`, if it exists on this machine and can be used; opened by the first call.
    pub(crate) fn of(device: &DeviceModel) -> Option<&'static Nic> {
        // Real devices often have the same names as the built-in ones, which are emulated.
        if !Topology::is_from_file() || !Path::new(DEVICES).join(&device.ibdev).exists() {
            return None;
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, nic)) = open.iter().find(|(name, _)| *name == device.ibdev) {
            return *nic;
        }
        let nic = match Nic::open(&device.ibdev, open.len() as u16) {
            Ok(nic) => Some(&*Box::leak(Box::new(nic))),
            Err(reason) => {
                log::warn!(
                    "the RDMA device {} exists but cannot be used, so its peers are reached over TCP: {reason}",
                    device.ibdev
                );
                None
            }
        };
        open.push((device.ibdev.clone(), nic));
        nic
    }

    fn open(name: &str, number: u16) -> std::result::Result<Nic, String> {
        let verbs = Verbs::get()?;
        let context = open_device(verbs, name)?;
        // Closed only if the set-up fails; otherwise the device stays open.
        Nic::set_up(verbs, context, name, number).inspect_err(|_| {
            // SAFETY: there is no other user of the context.
            unsafe { (verbs.ibv_close_device)(context.as_ptr()) };
        })
    }

    fn set_up(
        verbs: &'static Verbs,
        context: NonNull<Context>,
        name: &str,
        number: u16,
    ) -> std::result::Result<Nic, String> {
        // SAFETY: structures of integers, for which zeros are values.
        let mut device: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: an open context, and room for the structure.
        if unsafe { (verbs.ibv_query_device)(context.as_ptr(), &mut device) } != 0 {
            return Err("its attributes cannot be read".to_owned());
        }
        let (port, attributes) = (1..=MOST_PORTS)
            .find_map(|port| {
                // SAFETY: as above.
                let mut attributes: PortAttr = unsafe { std::mem::zeroed() };
                // SAFETY: as above.
                let failed =
                    unsafe { (verbs.ibv_query_port)(context.as_ptr(), port, &mut attributes) };
                (failed == 0 && attributes.state == PORT_ACTIVE).then_some((port, attributes))
            })
            .ok_or("none of its ports is active")?;
        let (gid_index, gid) = gid(verbs, context, name, port, &attributes)?;
        // SAFETY: an open context.
        let pd = NonNull::new(unsafe { (verbs.ibv_alloc_pd)(context.as_ptr()) })
            .ok_or("it has no protection domain left")?;
        let reads = device
            .max_qp_rd_atom
            .min(device.max_qp_init_rd_atom)
            .clamp(1, MOST_READS);
        Ok(Nic {
            verbs,
            context,
            pd,
            name: name.to_owned(),
            number,
            port,
            gid_index,
            gid,
            lid: attributes.lid,
            link_layer: attributes.link_layer,
            mtu: attributes.active_mtu as u8,
            most_reads: reads as u8,
            most_pieces: (device.max_sge.max(1) as usize).min(MOST_PIECES),
            most_bytes: attributes.max_msg_sz as usize,
            has_atomics: device.atomic_cap != 0,
        })
    }

    /// Identifies the device within this process.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Name of the RDMA device.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Maximum number of local segments of a request.
    pub(crate) fn most_pieces(&self) -> usize {
        self.most_pieces
    }

    /// Maximum size of a request in bytes.
    pub(crate) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Returns `true` if the device has atomic operations.
    pub(crate) fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// Registers `len` bytes at `start` for peers, which address them from `addr` on.
    ///
    /// # Errors
    /// [`Error::Driver`] if the device refuses them: too much locked memory (`ulimit -l`), or pages of a file.
    pub(crate) fn expose(
        &'static self,
        start: *mut u8,
        (addr, len): (u64, usize),
        rights: RemoteRights,
    ) -> Result<Region> {
        let mut flags = 0;
        for (flag, is_set) in [
            (access::REMOTE_READ, rights.read),
            (access::REMOTE_WRITE | access::LOCAL_WRITE, rights.write),
            (
                access::REMOTE_ATOMIC | access::LOCAL_WRITE,
                rights.atomic && self.has_atomics,
            ),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        self.register(start, addr, len, flags)
    }

    /// Registers `len` bytes at `start` for this process's own requests.
    ///
    /// # Errors
    /// As [`Nic::expose`].
    pub(crate) fn register_local(
        &'static self,
        start: *mut u8,
        len: usize,
        writable: bool,
    ) -> Result<Region> {
        let flags = if writable { access::LOCAL_WRITE } else { 0 };
        self.register(start, start.addr() as u64, len, flags)
    }

    fn register(
        &'static self,
        start: *mut u8,
        addr: u64,
        len: usize,
        flags: c_int,
    ) -> Result<Region> {
        let (pd, memory) = (self.pd.as_ptr(), start.cast::<c_void>());
        // SAFETY: the kernel checks the range and pins its pages; the device accesses them only as requests say. The
        // address for peers is only a number.
        let mr = unsafe {
            if addr == start.addr() as u64 {
                (self.verbs.ibv_reg_mr)(pd, memory, len, flags)
            } else {
                (self.verbs.ibv_reg_mr_iova)(pd, memory, len, addr, flags)
            }
        };
        NonNull::new(mr)
            .map(|mr| Region { nic: self, mr })
            .ok_or_else(|| {
                let error = std::io::Error::last_os_error();
                log::info!(
                    "{len} bytes at {start:?} are not registered with the RDMA device {}: {error}",
                    self.name
                );
                Error::Driver
            })
    }
}

const MOST_PORTS: u8 = 4;

fn open_device(verbs: &Verbs, name: &str) -> std::result::Result<NonNull<Context>, String> {
    let mut count = 0;
    // SAFETY: it writes the number of devices.
    let list = unsafe { (verbs.ibv_get_device_list)(&mut count) };
    if list.is_null() {
        return Err("libibverbs lists no devices".to_owned());
    }
    let mut context = std::ptr::null_mut();
    let mut is_listed = false;
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices, whose names are NUL-terminated.
        unsafe {
            let device = *list.add(index);
            let known = CStr::from_ptr((verbs.ibv_get_device_name)(device));
            if known.to_bytes() == name.as_bytes() {
                is_listed = true;
                context = (verbs.ibv_open_device)(device);
            }
        }
    }
    // SAFETY: the list from above; the open device does not need it.
    unsafe { (verbs.ibv_free_device_list)(list) };
    NonNull::new(context).ok_or_else(|| {
        let reason = if is_listed {
            "it cannot be opened: are /dev/infiniband/uverbs* there, and accessible?"
        } else {
            "libibverbs has no provider for it (package ibverbs-providers), or the module ib_uverbs is not loaded"
        };
        reason.to_owned()
    })
}

/// Index and GID of the port: preferably of RoCE version 2, which is routable, and of an IP address that is not
/// link-local.
fn gid(
    verbs: &Verbs,
    context: NonNull<Context>,
    name: &str,
    port: u8,
    attributes: &PortAttr,
) -> std::result::Result<(u8, [u8; 16]), String> {
    let types = Path::new(DEVICES).join(format!("{name}/ports/{port}/gid_attrs/types"));
    let mut best = None;
    for index in 0..attributes.gid_tbl_len.clamp(0, 256) {
        let mut words = [0; 2];
        // SAFETY: an open context, and room for a GID.
        if unsafe { (verbs.ibv_query_gid)(context.as_ptr(), port, index, &mut words) } != 0 {
            continue;
        }
        let [a, b] = words.map(u64::to_ne_bytes);
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&a);
        gid[8..].copy_from_slice(&b);
        if gid == [0; 16] {
            continue;
        }
        if attributes.link_layer == ETHERNET {
            let kind = std::fs::read_to_string(types.join(index.to_string())).unwrap_or_default();
            if kind.trim() != "RoCE v2" {
                continue;
            }
        }
        let is_link_local = attributes.link_layer == ETHERNET && gid[..2] == [0xfe, 0x80];
        if best.is_none() || !is_link_local {
            best = Some((index as u8, gid));
        }
        if !is_link_local {
            break;
        }
    }
    best.ok_or_else(|| {
        format!("port {port} has no GID for RoCE version 2: has its interface an IP address?")
    })
}

/// Registered memory.
pub(crate) struct Region {
    nic: &'static Nic,
    mr: NonNull<MemoryRegion>,
}

// SAFETY: libibverbs is thread-safe, and the region is only read until it is dropped.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn nic(&self) -> &'static Nic {
        self.nic
    }

    /// Key for this process's own requests.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: valid until it is dropped.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// Key for requests of peers.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Region").field(&self.nic).finish()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once. Requests that use it fail from now on.
        unsafe { (self.nic.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}

/// Registered buffers of one size.
pub(crate) struct Buffers {
    /// `Some` until drop, where it is released before the memory.
    region: Option<Region>,
    lkey: u32,
    memory: NonNull<u8>,
    size: usize,
    count: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates and registers `count` buffers of `size` bytes.
    ///
    /// # Errors
    /// [`Error::NoMemory`], and as [`Nic::expose`].
    pub(crate) fn new(nic: &'static Nic, count: usize, size: usize) -> Result<Buffers> {
        let layout = Self::layout(count, size)?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        let memory = memory.ok_or(Error::NoMemory)?;
        match nic.register_local(memory.as_ptr(), layout.size(), true) {
            Ok(region) => Ok(Buffers {
                lkey: region.lkey(),
                region: Some(region),
                memory,
                size,
                count,
            }),
            Err(error) => {
                // SAFETY: allocated above, and not used.
                unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    fn layout(count: usize, size: usize) -> Result<std::alloc::Layout> {
        let len = count.checked_mul(size).filter(|len| *len > 0);
        let len = len.ok_or(Error::InvalidValue)?;
        // Whole pages: neighbouring memory may be unmapped, or shared by a fork.
        std::alloc::Layout::from_size_align(len.next_multiple_of(PAGE), PAGE)
            .map_err(|_| Error::InvalidValue)
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// First byte of a buffer. The device may write there, so no reference to it is created.
    pub(crate) fn at(&self, index: usize) -> *mut u8 {
        debug_assert!(index < self.count);
        self.memory.as_ptr().wrapping_add(index * self.size)
    }
}

const PAGE: usize = 4096;

impl Drop for Buffers {
    fn drop(&mut self) {
        // Deregistered before the memory is freed.
        self.region = None;
        if let Ok(layout) = Self::layout(self.count, self.size) {
            // SAFETY: allocated with this layout, and not used by the device any more.
            unsafe { std::alloc::dealloc(self.memory.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RemoteKey;

    #[test]
    fn remote_keys_round_trip_and_0_is_none() {
        for (nic, rkey, has_atomics) in [(0, 0, false), (u16::MAX, u32::MAX, true)] {
            let key = RemoteKey {
                nic,
                rkey,
                has_atomics,
            };
            assert_eq!(RemoteKey::from_word(key.to_word()), Some(key));
        }
        assert_eq!(RemoteKey::from_word(0), None);
    }
}
