//! Exporting memory maps.
//!
//! Memory that a peer has mapped stays mapped there when its exporter stops the map: the peer would not know that the
//! memory has been reused. So each export has a word in pages of the exporting process and a number ([`Validity`]): the
//! word holds the number while the export is valid, and another value afterwards. Importers read the word before each
//! access. It is written once, when the export ends, so the read hits a line that is shared by all caches.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::descriptor::{Descriptor, ExportKind, Permissions};
use super::mmap::{Mmap, Setup};
use crate::agent::{
    self, AgentAddress, Backing, Export, ExportGuard, Memory, NetworkGuard, NetworkOffer, Rights,
    Segment, SharedWord,
};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::runtime::Key;

/// An existing export.
#[derive(Debug)]
pub(super) struct Exported {
    descriptor: Arc<[u8]>,
    /// Absent, as the guard, for an imported map. Dropped first: peers that have mapped the memory stop using it.
    _validity: Option<Validity>,
    /// Absent for an imported map, which the original exporter serves on this machine.
    _guard: Option<ExportGuard>,
    /// Absent for PCI, and if this process does not use the network.
    _network: Option<NetworkGuard>,
}

impl Mmap {
    /// Returns the export descriptor for one kind of peer, valid (and owned by the map) until the map is stopped.
    ///
    /// An imported map can be exported again: from PCIe to RDMA, if its exporter permits RDMA. Importers of that
    /// export access the original exporter directly.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it is not started, or its permissions do not allow this kind; [`Error::NotFound`] if
    /// `device` was not added.
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

    /// Lets peers on other machines access an imported map through this process, which has its pages mapped, because
    /// its owner may not use the network. That import has the rights that the owner gives to RDMA peers, and ends when
    /// the owner stops the map.
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

/// A page of words.
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
        // SAFETY: indices are those of words of the page, which stays mapped.
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
        // Ordered before anything that the program does with its memory from now on.
        page.word(index).fetch_add(1, Ordering::SeqCst);
        page.free.push(index);
    }
}

#[cfg(test)]
mod tests {
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
}
