//! The value of an event, its memory, and waiting for it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};

use super::Audience;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{Mmap, Permissions};
use crate::progress::yield_before_retry;

/// Size of a value in bytes.
pub(super) const SIZE: u64 = size_of::<u64>() as u64;

/// Permissions that the memory of a shared value needs.
const SHARED: Permissions = Permissions::LOCAL_READ_WRITE.union(Permissions::RDMA);

/// A value, in memory that is mapped here or accessed through its exporter.
#[derive(Debug)]
pub(super) struct Value {
    mmap: Arc<Mmap>,
    addr: u64,
    /// `true` if the map belongs to this value alone and is stopped with it.
    is_own: bool,
    _page: Option<Page>,
}

impl Value {
    /// Creates a value in a page of its own; initially 0.
    pub(super) fn new(devices: &[Arc<Device>], shared: bool) -> Result<Value> {
        let page = Page::new()?;
        let (addr, len) = (page.addr(), page.len());
        let mut value = Value::at(addr, len, devices, shared)?;
        value._page = Some(page);
        Ok(value)
    }

    /// Uses memory of the program.
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

    /// Uses a map of the program.
    pub(super) fn in_map(mmap: Arc<Mmap>, addr: u64) -> Value {
        Value {
            mmap,
            addr,
            is_own: false,
            _page: None,
        }
    }

    /// Uses a value exported by another process.
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

    /// Checks the permissions of the program's map.
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

    /// Adds to the value. Returns the old value.
    pub(super) fn add(&self, value: u64) -> Result<u64> {
        self.mmap.fetch_add(self.addr, value)
    }

    /// `true` if the process that owns the value is gone: it will not change any more.
    pub(super) fn is_orphaned(&self) -> bool {
        self.mmap.is_orphaned()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.is_own {
            // Before the page is unmapped: ends copies by peers through the agent.
            self.mmap.withdraw();
        }
    }
}

/// A zeroed page; whole, so that it can be shared with other processes in place.
#[derive(Debug)]
pub(super) struct Page {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that is accessed only through atomics and raw copies, for the lifetime of the value.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    pub(super) fn new() -> Result<Page> {
        let len = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Error::NoMemory)?;
        Ok(Page { base, len })
    }

    pub(super) fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and not used any more. On failure the page leaks, which is
        // harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Condition on the masked value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Equal to the operand.
    Equal(u64),
    /// Different from the operand.
    Different(u64),
    /// Greater than the operand.
    Greater(u64),
}

impl Condition {
    /// `true` if the value fulfils the condition.
    pub(crate) fn holds(self, value: u64) -> bool {
        match self {
            Condition::Equal(other) => value == other,
            Condition::Different(other) => value != other,
            Condition::Greater(other) => value > other,
        }
    }
}

/// Polls that spin: a peer on another core answers within a microsecond.
const SPINS: u32 = 64;
/// Polls before the thread sleeps; those after the spins yield, as the peer may need this core.
const YIELDS: u32 = 400;
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);
/// Sleeps between two checks that the owner of the value is alive.
const SLEEPS_TO_DOUBT: u32 = 100;

/// Blocks until the masked value fulfils the condition.
///
/// # Errors
/// [`Error::ConnectionReset`] if the value belongs to another process that is gone; errors of reading the value.
pub(super) fn until(value: &Value, condition: Condition, mask: u64) -> Result<()> {
    let (mut looks, mut sleeps, mut sleep) = (0_u32, 0_u32, SHORTEST_SLEEP);
    loop {
        if condition.holds(value.get()? & mask) {
            return Ok(());
        }
        looks = looks.saturating_add(1);
        if looks < SPINS {
            std::hint::spin_loop();
        } else if looks < YIELDS {
            // Also sends pending wake-ups, for messages that a callback has sent before it waits.
            yield_before_retry();
        } else {
            std::thread::sleep(sleep);
            sleep = (sleep * 2).min(LONGEST_SLEEP);
            sleeps = sleeps.wrapping_add(1);
            if sleeps.is_multiple_of(SLEEPS_TO_DOUBT) && value.is_orphaned() {
                return Err(
                    Error::ConnectionReset.because("the process that owns the sync event is gone")
                );
            }
        }
    }
}

/// An event exported by a peer. Only RDMA tasks access it.
#[derive(Debug)]
pub(crate) struct RemoteEvent {
    value: Value,
}

impl RemoteEvent {
    /// Creates it from an export blob.
    ///
    /// # Errors
    /// [`InvalidValue`](crate::error::Error::InvalidValue) for malformed bytes,
    /// [`NotFound`](crate::error::Error::NotFound) if the peer is gone.
    pub(crate) fn import(bytes: &[u8], device: &Arc<Device>) -> Result<RemoteEvent> {
        let descriptor = super::decode(Audience::Network, bytes)?;
        Ok(RemoteEvent {
            value: Value::import(descriptor, device)?,
        })
    }

    pub(crate) fn get(&self) -> Result<u64> {
        self.value.get()
    }

    pub(crate) fn set(&self, value: u64) -> Result<()> {
        self.value.set(value)
    }

    /// Adds to the value. Returns the old value.
    pub(crate) fn add(&self, value: u64) -> Result<u64> {
        self.value.add(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        for (condition, below, same, above) in [
            (Condition::Equal(5), false, true, false),
            (Condition::Different(5), true, false, true),
            (Condition::Greater(5), false, false, true),
        ] {
            assert_eq!(
                [4, 5, 6].map(|value| condition.holds(value)),
                [below, same, above],
                "{condition:?}"
            );
        }
        assert!(!Condition::Greater(u64::MAX).holds(u64::MAX));
    }
}
