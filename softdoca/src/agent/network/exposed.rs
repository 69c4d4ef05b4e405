//! Memory of this process that peers reach over the network.

use std::sync::{Mutex, PoisonError, RwLock};

use super::super::export::{self, Export, Rights};
use super::super::server::lock;
use crate::error::{Error, Result};
use crate::verbs::{Nic, Region, RemoteKey, RemoteRights};

/// Memory that a thread of this process reaches for a peer. Ranges have been checked.
pub(crate) trait Memory: Send + Sync {
    /// The `len` bytes at `addr`, if they lie in one run in this process; then they are read and written by system calls only.
    fn pointer(&self, addr: u64, len: u64) -> Option<*mut u8>;

    /// Copies bytes that lie elsewhere.
    ///
    /// # Errors
    /// [`Error::NotFound`] when their owner has ended or withdrawn them.
    ///
    /// # Safety
    /// The `len` bytes at `to` are the caller's to write.
    unsafe fn read(&self, addr: u64, to: *mut u8, len: usize) -> Result<()>;

    /// Copies to bytes that lie elsewhere, as [`Memory::read`].
    ///
    /// # Safety
    /// The `len` bytes at `from` can be read.
    unsafe fn write(&self, addr: u64, from: *const u8, len: usize) -> Result<()>;

    /// Adds to the u64 at `addr`; the old value.
    fn fetch_add(&self, addr: u64, value: u64) -> Result<u64>;

    /// Replaces the u64 at `addr` if it is `expected`; the old value.
    fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64>;
}

/// Memory that the program has registered: all of it is in this process.
impl Memory for Export {
    fn pointer(&self, addr: u64, len: u64) -> Option<*mut u8> {
        Export::pointer(self, addr, len).ok()
    }

    unsafe fn read(&self, _: u64, _: *mut u8, _: usize) -> Result<()> {
        Err(Error::Unexpected)
    }

    unsafe fn write(&self, _: u64, _: *const u8, _: usize) -> Result<()> {
        Err(Error::Unexpected)
    }

    fn fetch_add(&self, addr: u64, value: u64) -> Result<u64> {
        self.atomic(addr, export::fetch_add(value))
    }

    fn compare_swap(&self, addr: u64, expected: u64, new: u64) -> Result<u64> {
        self.atomic(addr, export::compare_swap(expected, new))
    }
}

/// A range of memory under one key.
pub(super) struct Exposed {
    rights: Rights,
    addr: u64,
    len: u64,
    memory: Box<dyn Memory>,
    /// Held for reading by each access, so that none goes on when the withdrawal returns.
    withdrawn: RwLock<bool>,
    /// The range as it is registered with an RDMA device.
    region: Mutex<Option<Region>>,
}

impl Exposed {
    pub(super) fn new(rights: Rights, (addr, len): (u64, u64), memory: Box<dyn Memory>) -> Exposed {
        Exposed {
            rights,
            addr,
            len,
            memory,
            withdrawn: RwLock::new(false),
            region: Mutex::new(None),
        }
    }

    /// Registers the range with an RDMA device, if it lies in one run and the device takes it. Otherwise peers reach it over TCP only.
    ///
    /// This is the time for it, and not the start of the memory map: only here it is known that peers are to reach it, and over a network.
    /// Registered memory is locked.
    pub(super) fn register(&self, nic: &'static Nic) {
        let Ok(len) = usize::try_from(self.len) else {
            return;
        };
        if let Some(start) = self.memory.pointer(self.addr, self.len) {
            let rights = RemoteRights {
                read: self.rights.read,
                write: self.rights.write,
                atomic: self.rights.atomic,
            };
            *lock(&self.region) = nic.expose(start, (self.addr, len), rights).ok();
        }
    }

    /// How peers with an RDMA device name the range; 0 if they cannot.
    pub(super) fn remote_key(&self) -> u64 {
        lock(&self.region).as_ref().map_or(0, |region| {
            let key = RemoteKey {
                nic: region.nic().number(),
                rkey: region.rkey(),
                has_atomics: region.nic().has_atomics(),
            };
            key.to_word()
        })
    }

    pub(super) fn rights(&self) -> Rights {
        self.rights
    }

    /// Ends all access, waiting for that which has begun: a system call that does not block, or requests that an RDMA device is serving.
    pub(super) fn withdraw(&self) {
        drop(lock(&self.region).take());
        *self
            .withdrawn
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Checks a range.
    pub(super) fn check(&self, addr: u64, len: u64) -> Result<()> {
        addr.checked_sub(self.addr)
            .filter(|offset| *offset <= self.len && len <= self.len - *offset)
            .map(|_| ())
            .ok_or(Error::InvalidValue)
    }

    /// Returns `true` if this is the whole range.
    pub(super) fn is_all_of(&self, addr: u64, len: u64) -> bool {
        (addr, len) == (self.addr, self.len)
    }

    /// Calls `action` with the memory, which stays valid during the call: it must not block.
    pub(super) fn with<T>(&self, action: impl FnOnce(&dyn Memory) -> Result<T>) -> Result<T> {
        let withdrawn = self
            .withdrawn
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if *withdrawn {
            return Err(Error::NotFound);
        }
        action(&*self.memory)
    }
}
