//! Exporting memory maps: permissions, export descriptors, and the end of an export.
//!
//! Memory that a peer has mapped remains mapped when its exporter stops the map, and the peer could not detect that the
//! memory has been reused. Therefore each export has a word in pages of the exporting process and a number
//! ([`Validity`]): the word equals the number while the export is valid, and has another value afterwards. Importers
//! read the word before each access. It is written once, when the export ends, so the read hits a line that is shared
//! by all caches.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::{Mmap, Setup};
use crate::agent::{
    self, AgentAddress, Backing, Export, ExportGuard, Memory, NetworkGuard, NetworkOffer, Rights,
    Route, Segment, SharedWord,
};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::runtime::Key;

#[derive(Debug)]
pub(super) struct Exported {
    descriptor: Arc<[u8]>,
    /// `None` for an imported map. Dropped first: peers that have mapped the memory stop using it.
    _validity: Option<Validity>,
    /// `None` for an imported map, which the original exporter serves on this machine.
    _guard: Option<ExportGuard>,
    /// `None` for PCIe, and if this process does not use the network.
    _network: Option<NetworkGuard>,
}

impl Mmap {
    /// Returns the export descriptor for one kind of peer, valid (and owned by the map) until the map is stopped.
    ///
    /// An imported map can be exported again: from PCIe to RDMA, if its exporter permits RDMA. Importers of that
    /// export access the original exporter directly.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the map is not started, or its permissions do not include this kind of peer;
    /// [`Error::NotFound`] if `device` was not added.
    pub fn export(&self, kind: ExportKind, device: &Arc<Device>) -> Result<Arc<[u8]>> {
        let mut setup = self.setup();
        if !self.is_usable() {
            return Err(Error::NotPermitted.because("an mmap is exported after doca_mmap_start"));
        }
        if !setup.devices.iter().any(|known| Arc::ptr_eq(known, device)) {
            return Err(Error::NotFound.because(format_args!(
                "device {} was not added to the mmap; call doca_mmap_add_dev before doca_mmap_start",
                device.model().pci
            )));
        }
        if !self.permissions().intersects(kind.permissions()) {
            return Err(Error::NotPermitted.because(format_args!(
                "an export for {kind:?} needs one of the permissions {:?}, the mmap has {:?}",
                kind.permissions(),
                self.permissions()
            )));
        }
        let exported = match kind {
            ExportKind::Pci => self.pci_export(&mut setup)?,
            ExportKind::Rdma => self.rdma_export(&mut setup)?.0,
        };
        self.set_exported();
        Ok(exported)
    }

    fn pci_export(&self, setup: &mut Setup) -> Result<Arc<[u8]>> {
        if let Some(exported) = &setup.pci {
            return Ok(Arc::clone(&exported.descriptor));
        }
        if self.imported().is_some() {
            return Err(Error::NotPermitted.because("an imported mmap cannot be exported for PCI"));
        }
        let onward = match self.permissions().intersects(Permissions::RDMA) {
            true => Some(self.rdma_export(setup)?.1),
            false => None,
        };
        let (exported, _) = self.offer(
            setup,
            ExportKind::Pci,
            self.permissions().pci_rights(),
            onward,
        )?;
        Ok(Arc::clone(&setup.pci.insert(exported).descriptor))
    }

    fn rdma_export(&self, setup: &mut Setup) -> Result<(Arc<[u8]>, Key)> {
        if let Some(exported) = &setup.rdma {
            let descriptor = Arc::clone(&exported.descriptor);
            let key = Descriptor::decode(&descriptor)?.key;
            return Ok((descriptor, key));
        }
        let (exported, key) = match self.imported() {
            None => self.offer(
                setup,
                ExportKind::Rdma,
                self.permissions().rdma_rights(),
                None,
            )?,
            Some(imported) => {
                let key = imported.descriptor.onward.ok_or_else(|| {
                    Error::NotPermitted.because(
                        "only an mmap that was imported over PCI can be exported again, for RDMA",
                    )
                })?;
                let mut descriptor = imported.descriptor.clone();
                (descriptor.kind, descriptor.key, descriptor.onward) =
                    (ExportKind::Rdma, key, None);
                let network = self.offer_onward(setup, &mut descriptor)?;
                (
                    Exported {
                        descriptor: descriptor.encode().into(),
                        _validity: None,
                        _guard: None,
                        _network: network,
                    },
                    key,
                )
            }
        };
        Ok((Arc::clone(&setup.rdma.insert(exported).descriptor), key))
    }

    /// Registers the range with the agent under a new key.
    fn offer(
        &self,
        setup: &Setup,
        kind: ExportKind,
        rights: Rights,
        onward: Option<Key>,
    ) -> Result<(Exported, Key)> {
        let key = Key::random()?;
        let mut segments = setup.segments.clone();
        if !rights.write && !rights.atomic {
            make_read_only(&mut segments)?;
        }
        let validity = Validity::begin()?;
        let export = Export {
            rights,
            segments,
            validity: Some(validity.shared().clone()),
        };
        let (addr, len) = self.range();
        let network = match kind {
            ExportKind::Pci => None,
            ExportKind::Rdma => {
                let memory = Export {
                    rights,
                    segments: export.segments.clone(),
                    validity: None,
                };
                agent::expose(key, rights, (addr, len), Box::new(memory), setup.nic()?)?
            }
        };
        let guard = agent::export(key, export)?;
        let (permissions, agent) = (self.permissions(), AgentAddress::local()?);
        let descriptor = Descriptor {
            kind,
            permissions,
            addr,
            len,
            agent,
            key,
            onward,
            network: match network {
                Some(_) => NetworkOffer::of(key)?,
                None => None,
            },
        };
        Ok((
            Exported {
                descriptor: descriptor.encode().into(),
                _validity: Some(validity),
                _guard: Some(guard),
                _network: network,
            },
            key,
        ))
    }

    /// Makes an imported map accessible to peers on other machines through this process, which has its pages mapped,
    /// because the owner might not use the network. The peers have the rights that the owner grants to RDMA peers,
    /// until the owner stops the map.
    fn offer_onward(
        &self,
        setup: &Setup,
        descriptor: &mut Descriptor,
    ) -> Result<Option<NetworkGuard>> {
        descriptor.network = None;
        let key = Key::random()?;
        let Some(offer) = NetworkOffer::of(key)? else {
            return Ok(None);
        };
        let device = setup.devices.first().ok_or(Error::Unexpected)?;
        let onward = Mmap::import(&descriptor.encode(), device)?;
        let (range, rights) = (onward.range(), descriptor.permissions.rdma_rights());
        let guard = agent::expose(key, rights, range, Box::new(onward), setup.nic()?)?;
        descriptor.network = Some(offer);
        Ok(guard)
    }
}

/// An imported map with a network offer.
impl Memory for Mmap {
    fn pointer(&self, addr: u64, len: u64) -> Option<*mut u8> {
        self.local_ptr(addr, len)
    }

    unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()> {
        // SAFETY: the caller's guarantee.
        unsafe { self.read_into(addr, to, len) }
    }

    unsafe fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()> {
        // SAFETY: the caller's guarantee.
        unsafe { self.write_from(addr, from, len) }
    }

    fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        Mmap::fetch_add(self, addr, value)
    }

    fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        Mmap::compare_swap(self, addr, expected, new)
    }
}

/// Replaces the memfds by descriptors that cannot be mapped for writing.
fn make_read_only(segments: &mut [Segment]) -> Result<()> {
    for segment in segments {
        if let Backing::Shared { memfd, .. } = &mut segment.backing {
            *memfd = Arc::new(read_only(memfd)?);
        }
    }
    Ok(())
}

/// A descriptor of the same memory that cannot be mapped for writing.
fn read_only(memfd: &OwnedFd) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memfd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

const WORD: usize = size_of::<AtomicU32>();

struct Page {
    /// Descriptor for peers; it cannot be mapped for writing.
    memfd: Arc<OwnedFd>,
    /// Mapped for writing, and never unmapped.
    words: NonNull<AtomicU32>,
    /// Indices of free words.
    free: Vec<u32>,
}

// SAFETY: the words are atomics in memory that stays mapped.
unsafe impl Send for Page {}

/// All pages. They are never freed.
static PAGES: Mutex<Vec<Page>> = Mutex::new(Vec::new());

/// Validity word of an export. Dropping it ends the export.
#[derive(Debug)]
pub(super) struct Validity {
    page: usize,
    shared: SharedWord,
}

impl Page {
    fn new() -> Result<Page> {
        let size = rustix::param::page_size();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("softdoca-validity", flags)?;
        rustix::fs::ftruncate(&memfd, size as u64)?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let words =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, flags, &memfd, 0) }?;
        Ok(Page {
            memfd: Arc::new(read_only(&memfd)?),
            words: NonNull::new(words.cast()).ok_or(crate::error::Error::Unexpected)?,
            free: (0..(size / WORD) as u32).rev().collect(),
        })
    }

    fn word(&self, index: u32) -> &AtomicU32 {
        // SAFETY: indices are those of words of the page, which is never unmapped.
        unsafe { self.words.add(index as usize).as_ref() }
    }
}

impl Validity {
    /// Allocates a word for a new export.
    ///
    /// # Errors
    /// The operating system refuses a new page.
    pub(super) fn begin() -> Result<Validity> {
        let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match pages.iter().position(|page| !page.free.is_empty()) {
            Some(page) => page,
            None => {
                pages.push(Page::new()?);
                pages.len() - 1
            }
        };
        let Page { memfd, free, .. } = &mut pages[page];
        let memfd = Arc::clone(memfd);
        let index = free.pop().ok_or(crate::error::Error::Unexpected)?;
        let shared = SharedWord {
            memfd,
            offset: index * WORD as u32,
            value: pages[page].word(index).load(Ordering::Relaxed),
        };
        Ok(Validity { page, shared })
    }

    /// Descriptor, offset and value for importers.
    pub(super) fn shared(&self) -> &SharedWord {
        &self.shared
    }
}

impl Drop for Validity {
    fn drop(&mut self) {
        let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.shared.offset / WORD as u32;
        let page = &mut pages[self.page];
        // Ordered before any later access of the program to its memory.
        page.word(index).fetch_add(1, Ordering::SeqCst);
        page.free.push(index);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExportKind {
    /// A device across PCIe: `doca_mmap_export_pci`.
    Pci = 1,
    /// RDMA peers: `doca_mmap_export_rdma`.
    Rdma = 2,
}

impl ExportKind {
    /// Permissions of which an export of this kind needs at least one.
    pub const fn permissions(self) -> Permissions {
        match self {
            ExportKind::Pci => Permissions::PCI,
            ExportKind::Rdma => Permissions::RDMA,
        }
    }
}

/// An export descriptor: opaque bytes with which another process can access a map.
///
/// Little endian: magic (8 bytes), version (u16), kind (u8), 0 (u8), permissions (u32), address (u64), length
/// (u64), agent (boot id and key, 32 bytes), key of the export (16), key for exporting it onwards (16, zero for none).
/// Version 1 ends here; in version 2, which is for RDMA only, an offer to the network follows ([`NetworkOffer`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub kind: ExportKind,
    pub permissions: Permissions,
    /// Address in the exporting process.
    pub addr: u64,
    /// In bytes, not 0; `addr + len` does not overflow.
    pub len: u64,
    pub agent: AgentAddress,
    pub key: Key,
    /// Set on a PCI export of memory that RDMA peers may also access: the importer may export it again for RDMA.
    pub onward: Option<Key>,
    /// Access for peers on other machines.
    pub network: Option<NetworkOffer>,
}

const MAGIC: [u8; 8] = *b"SOFTDOCA";
/// Sizes without and with a network offer.
const VERSIONS: [u16; 2] = [1, 2];
const NO_KEY: [u8; Key::SIZE] = [0; Key::SIZE];

impl Descriptor {
    /// Encoded size in bytes without a network offer.
    pub const SIZE: usize = 96;

    /// Access method from this process.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for another machine's memory without a network offer.
    pub fn route(&self) -> Result<Route> {
        self.agent.route(self.network.as_ref())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Descriptor::SIZE];
        bytes[0..8].copy_from_slice(&MAGIC);
        let version = VERSIONS[usize::from(self.network.is_some())];
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        bytes[10] = self.kind as u8;
        bytes[12..16].copy_from_slice(&self.permissions.bits().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.addr.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.agent.encode());
        bytes[64..80].copy_from_slice(&self.key.to_bytes());
        bytes[80..96].copy_from_slice(&self.onward.map_or(NO_KEY, Key::to_bytes));
        if let Some(network) = &self.network {
            bytes.extend_from_slice(&network.encode());
        }
        bytes
    }

    /// Decodes and validates an untrusted descriptor.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor> {
        let invalid = |reason: std::fmt::Arguments<'_>| {
            Error::InvalidValue.because(format_args!(
                "this is no export descriptor of softdoca: {reason}"
            ))
        };
        let mut rest = bytes;
        let mut field = Fields { rest: &mut rest };
        if field.take::<8>().is_none_or(|magic| magic != MAGIC) {
            return Err(invalid(format_args!(
                "it does not begin with {:?}",
                MAGIC.escape_ascii().to_string()
            )));
        }
        let version = field.take().map(u16::from_le_bytes);
        let Some(version) = version.filter(|version| VERSIONS.contains(version)) else {
            return Err(Error::UnsupportedVersion.because(format_args!(
                "the export descriptor has version {version:?}, expected one of {VERSIONS:?}; use one softdoca in all processes"
            )));
        };
        let offer = bytes
            .get(Descriptor::SIZE..)
            .filter(|offer| !offer.is_empty());
        let network = offer.and_then(NetworkOffer::decode);
        if bytes.len() < Descriptor::SIZE
            || (version == VERSIONS[1]) != offer.is_some()
            || offer.is_some() != network.is_some()
        {
            return Err(invalid(format_args!(
                "it has {} bytes, expected {}, and an offer to the network in version 2",
                bytes.len(),
                Descriptor::SIZE
            )));
        }
        let checked = || -> Option<Descriptor> {
            let kind = match field.take()? {
                [1, 0] => ExportKind::Pci,
                [2, 0] => ExportKind::Rdma,
                _ => return None,
            };
            let permissions = Permissions::from_bits(u32::from_le_bytes(field.take()?))?;
            let addr = u64::from_le_bytes(field.take()?);
            let len = u64::from_le_bytes(field.take()?);
            let agent = AgentAddress::decode(&field.take()?);
            let key = Key::from_bytes(field.take()?);
            let onward = field.take()?;
            let onward = (onward != NO_KEY).then(|| Key::from_bytes(onward));
            let sane = permissions.intersects(kind.permissions())
                && !permissions.contains(Permissions::PCI)
                && len != 0
                && addr
                    .checked_add(len)
                    .is_some_and(|end| usize::try_from(end).is_ok())
                && (network.is_none() || kind == ExportKind::Rdma)
                && (onward.is_none()
                    || kind == ExportKind::Pci && permissions.intersects(Permissions::RDMA));
            sane.then_some(Descriptor {
                kind,
                permissions,
                addr,
                len,
                agent,
                key,
                onward,
                network,
            })
        };
        let mut checked = checked;
        checked().ok_or_else(|| invalid(format_args!("kind, permissions or range make no sense")))
    }
}

/// Encoding of a valid descriptor.
pub(crate) fn again(bytes: &[u8]) -> Result<Vec<u8>> {
    Descriptor::decode(bytes).map(|descriptor| descriptor.encode())
}

/// Valid descriptors of nonexistent memory.
pub(crate) fn examples() -> Result<Vec<Vec<u8>>> {
    let key = Key::from_bytes([1; Key::SIZE]);
    let pci = Descriptor {
        kind: ExportKind::Pci,
        permissions: Permissions::PCI_READ_WRITE | Permissions::RDMA_READ,
        addr: 0x7f00_0000_0010,
        len: 4096,
        agent: AgentAddress::local()?,
        key,
        onward: Some(key),
        network: None,
    };
    let rdma = Descriptor {
        kind: ExportKind::Rdma,
        onward: None,
        ..pci.clone()
    };
    let remote = Descriptor {
        network: Some(NetworkOffer::example()),
        ..rdma.clone()
    };
    Ok([pci, rdma, remote].map(|it| it.encode()).into())
}

/// Reads fixed-size fields from the front.
struct Fields<'a, 'b> {
    rest: &'a mut &'b [u8],
}

impl Fields<'_, '_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk::<N>()?;
        *self.rest = rest;
        Some(*field)
    }
}

bitflags::bitflags! {
    /// `enum doca_access_flag`. Local reads need no flag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Permissions: u32 {
        /// Local devices may write.
        const LOCAL_READ_WRITE = 1 << 0;
        const RDMA_READ = 1 << 1;
        const RDMA_WRITE = 1 << 2;
        /// RDMA peers may perform atomic operations.
        const RDMA_ATOMIC = 1 << 3;
        /// Devices across PCIe may read.
        const PCI_READ_ONLY = 1 << 4;
        /// Devices across PCIe may read and write.
        const PCI_READ_WRITE = 1 << 5;
        /// Accesses across PCIe may be reordered. No effect here.
        const PCI_RELAXED_ORDERING = 1 << 6;
    }
}

impl Permissions {
    /// The flags that make a map exportable for RDMA.
    pub const RDMA: Permissions = Permissions::RDMA_READ
        .union(Permissions::RDMA_WRITE)
        .union(Permissions::RDMA_ATOMIC);
    /// The flags that make a map exportable across PCIe.
    pub const PCI: Permissions = Permissions::PCI_READ_ONLY.union(Permissions::PCI_READ_WRITE);

    /// Checks a mask that a program set.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for unknown flags and for read-only together with read-write.
    pub fn from_mask(mask: u32) -> Result<Permissions> {
        let permissions = Permissions::from_bits(mask).ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "access mask {mask:#x} has unknown flags, expected a combination of {:#x}",
                Permissions::all().bits()
            ))
        })?;
        if permissions.contains(Permissions::PCI) {
            return Err(Error::InvalidValue
                .because("DOCA_ACCESS_FLAG_PCI_READ_ONLY and DOCA_ACCESS_FLAG_PCI_READ_WRITE exclude each other"));
        }
        Ok(permissions)
    }

    /// Returns `true` if the program's own devices may write. Memory that peers may write is also locally writable:
    /// hardware registers no other combination.
    pub const fn local_write(self) -> bool {
        let any = Permissions::LOCAL_READ_WRITE
            .union(Permissions::PCI_READ_WRITE)
            .union(Permissions::RDMA_WRITE)
            .union(Permissions::RDMA_ATOMIC);
        self.intersects(any)
    }

    /// Returns `true` if another process may have any access.
    pub const fn remote(self) -> bool {
        self.intersects(Permissions::RDMA.union(Permissions::PCI))
    }

    /// Rights of a peer across PCIe.
    pub(super) fn pci_rights(self) -> Rights {
        Rights {
            read: self.intersects(Permissions::PCI),
            write: self.contains(Permissions::PCI_READ_WRITE),
            atomic: false,
        }
    }

    /// Rights of an RDMA peer.
    pub(super) fn rdma_rights(self) -> Rights {
        Rights {
            read: self.contains(Permissions::RDMA_READ),
            write: self.contains(Permissions::RDMA_WRITE),
            atomic: self.contains(Permissions::RDMA_ATOMIC),
        }
    }
}

/// As in DOCA, a new map can be used locally.
impl Default for Permissions {
    fn default() -> Permissions {
        Permissions::LOCAL_READ_WRITE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn validity_words_are_reused_with_new_values() {
        // More than fit in two pages.
        let count = 2 * rustix::param::page_size() / WORD + 1;
        let words: Vec<_> = (0..count)
            .map(|_| Validity::begin().expect("a word"))
            .collect();
        let mut places: Vec<_> = words
            .iter()
            .map(|word| (word.page, word.shared.offset))
            .collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count, "each has a word of its own");
        let (page, offset, value) = {
            let word = &words[0];
            (word.page, word.shared.offset, word.shared.value)
        };
        drop(words);
        let now = PAGES.lock().expect("not poisoned")[page]
            .word(offset / WORD as u32)
            .load(Ordering::Relaxed);
        assert_ne!(now, value);
    }

    fn example() -> Descriptor {
        Descriptor {
            kind: ExportKind::Pci,
            permissions: Permissions::PCI_READ_WRITE | Permissions::RDMA_READ,
            addr: 0x7f00_0000_0010,
            len: 4096,
            agent: AgentAddress::local().unwrap(),
            key: Key::random().unwrap(),
            onward: Some(Key::random().unwrap()),
            network: None,
        }
    }

    #[test]
    fn round_trips() {
        let descriptor = example();
        assert_eq!(
            Descriptor::decode(&descriptor.encode()),
            Ok(descriptor.clone())
        );
        let rdma = Descriptor {
            kind: ExportKind::Rdma,
            onward: None,
            ..descriptor
        };
        assert_eq!(Descriptor::decode(&rdma.encode()), Ok(rdma.clone()));
        let remote = Descriptor {
            network: Some(NetworkOffer::example()),
            ..rdma
        };
        assert_eq!(Descriptor::decode(&remote.encode()), Ok(remote.clone()));
        let pci = Descriptor {
            kind: ExportKind::Pci,
            ..remote
        };
        assert_eq!(Descriptor::decode(&pci.encode()), Err(Error::InvalidValue));
        // Programs have buffers of that size.
        const { assert!(Descriptor::SIZE + NetworkOffer::LONGEST <= 512) };
    }

    #[test]
    fn every_field_is_checked() {
        let good = example().encode();
        let changed = |index: usize, values: &[u8]| {
            let mut bytes = good.clone();
            bytes[index..index + values.len()].copy_from_slice(values);
            Descriptor::decode(&bytes).map(|_| ())
        };
        assert_eq!(changed(0, b"s"), Err(Error::InvalidValue));
        assert_eq!(changed(8, &[3]), Err(Error::UnsupportedVersion));
        assert_eq!(changed(8, &[2]), Err(Error::InvalidValue), "no offer");
        assert_eq!(changed(10, &[3]), Err(Error::InvalidValue), "kind");
        assert_eq!(changed(11, &[1]), Err(Error::InvalidValue), "reserved");
        assert_eq!(
            changed(12, &[1, 0, 0, 0]),
            Err(Error::InvalidValue),
            "nothing that PCI may do"
        );
        assert_eq!(
            changed(12, &[0x30, 0, 0, 0]),
            Err(Error::InvalidValue),
            "read-only and read-write"
        );
        assert_eq!(
            changed(12, &[0x20, 1, 0, 0]),
            Err(Error::InvalidValue),
            "unknown permission"
        );
        assert_eq!(changed(24, &[0; 8]), Err(Error::InvalidValue), "no length");
        assert_eq!(
            changed(24, &[0xff; 8]),
            Err(Error::InvalidValue),
            "overflow"
        );
        assert_eq!(
            changed(12, &[0x20, 0, 0, 0]),
            Err(Error::InvalidValue),
            "onward without RDMA"
        );
        assert_eq!(Descriptor::decode(&good[..95]), Err(Error::InvalidValue));
        assert_eq!(Descriptor::decode(&[]), Err(Error::InvalidValue));
        let long: Vec<u8> = good.iter().copied().chain([0]).collect();
        assert_eq!(Descriptor::decode(&long), Err(Error::InvalidValue));
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(tail in proptest::collection::vec(any::<u8>(), 0..120), len in 0..130_usize) {
            let mut bytes = example().encode()[..10].to_vec();
            bytes.extend(tail);
            bytes.truncate(len);
            let _ = Descriptor::decode(&bytes);
        }
    }

    #[test]
    fn masks_are_checked() {
        assert_eq!(Permissions::from_mask(0), Ok(Permissions::empty()));
        assert_eq!(
            Permissions::from_mask(0x7f & !0x10),
            Ok(Permissions::all() - Permissions::PCI_READ_ONLY)
        );
        assert_eq!(Permissions::from_mask(0x80), Err(Error::InvalidValue));
        assert_eq!(Permissions::from_mask(0x30), Err(Error::InvalidValue));
    }

    #[test]
    fn derived_rights() {
        assert!(!Permissions::empty().local_write() && !Permissions::PCI_READ_ONLY.local_write());
        assert!(Permissions::PCI_READ_WRITE.local_write() && Permissions::default().local_write());
        assert!(!Permissions::default().remote() && Permissions::RDMA_ATOMIC.remote());
        let pci = Permissions::PCI_READ_ONLY.pci_rights();
        assert_eq!((pci.read, pci.write, pci.atomic), (true, false, false));
        let rdma = (Permissions::RDMA_WRITE | Permissions::PCI_READ_WRITE).rdma_rights();
        assert_eq!((rdma.read, rdma.write, rdma.atomic), (false, true, false));
    }
}
