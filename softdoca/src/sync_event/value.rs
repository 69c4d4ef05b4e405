//! Where the value of an event lives.

use std::sync::Arc;

use super::page::Page;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{Mmap, Permissions};

/// Bytes of a value.
pub(super) const SIZE: u64 = size_of::<u64>() as u64;

/// What the memory of a value that others use must permit.
const SHARED: Permissions = Permissions::LOCAL_READ_WRITE.union(Permissions::RDMA);

/// A value, in memory that is mapped here or reached through its exporter.
#[derive(Debug)]
pub(super) struct Value {
    mmap: Arc<Mmap>,
    addr: u64,
    /// Where the map belongs to this value alone: it ends with it.
    is_own: bool,
    _page: Option<Page>,
}

impl Value {
    /// In a page of its own; 0 at first.
    pub(super) fn new(devices: &[Arc<Device>], shared: bool) -> Result<Value> {
        let page = Page::new()?;
        let (addr, len) = (page.addr(), page.len());
        let mut value = Value::at(addr, len, devices, shared)?;
        value._page = Some(page);
        Ok(value)
    }

    /// At an address of the program.
    pub(super) fn at(addr: u64, len: u64, devices: &[Arc<Device>], shared: bool) -> Result<Value> {
        let mmap = Mmap::new();
        mmap.set_memrange(addr, len)?;
        mmap.set_permissions(match shared {
            true => SHARED,
            false => Permissions::LOCAL_READ_WRITE,
        })?;
        for device in devices {
            mmap.add_device(device)?;
        }
        mmap.start()?;
        Ok(Value {
            mmap: Arc::new(mmap),
            addr,
            is_own: true,
            _page: None,
        })
    }

    /// In a map of the program.
    pub(super) fn in_map(mmap: Arc<Mmap>, addr: u64) -> Value {
        Value {
            mmap,
            addr,
            is_own: false,
            _page: None,
        }
    }

    /// In another process, which has exported it.
    pub(super) fn import((addr, descriptor): (u64, &[u8]), device: &Arc<Device>) -> Result<Value> {
        let mmap = Mmap::import(descriptor, device)?;
        if !mmap.contains(addr, SIZE) || !addr.is_multiple_of(SIZE) {
            return Err(Error::InvalidValue
                .because("the exported sync event has no 8 aligned bytes for its value"));
        }
        Ok(Value {
            mmap: Arc::new(mmap),
            addr,
            is_own: true,
            _page: None,
        })
    }

    /// What a map of the program must permit.
    pub(super) fn check_map(mmap: &Mmap) -> Result<()> {
        if mmap.permissions().contains(SHARED) {
            return Ok(());
        }
        Err(Error::NotPermitted.because(format_args!(
            "the memory of a sync event needs the permissions {SHARED:?}, the mmap has {:?}",
            mmap.permissions()
        )))
    }

    pub(super) fn mmap(&self) -> &Mmap {
        &self.mmap
    }

    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    pub(super) fn get(&self) -> Result<u64> {
        self.mmap.load(self.addr)
    }

    pub(super) fn set(&self, value: u64) -> Result<()> {
        self.mmap.store(self.addr, value)
    }

    /// Answers the old value.
    pub(super) fn add(&self, value: u64) -> Result<u64> {
        self.mmap.fetch_add(self.addr, value)
    }

    /// The process that has the value has gone: it will not change any more.
    pub(super) fn is_orphaned(&self) -> bool {
        self.mmap.is_orphaned()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.is_own {
            // Before the page goes: peers' copies by the agent end here.
            self.mmap.withdraw();
        }
    }
}
