use std::ptr::{self, NonNull};
use std::slice;

use doca_sys as sys;

use super::SyncEventBuilder;
use crate::device::non_null;
use crate::error::call;
use crate::{Device, Error, ErrorCode, Result};

/// A 64-bit value that this program, and whom it has been exported to, can set, add to and wait for.
///
/// ```no_run
/// use doca::{Device, SyncEvent};
///
/// # fn main() -> doca::Result<()> {
/// let event = SyncEvent::builder(&Device::open("mlx5_0")?).network_publisher().start()?;
/// let description = event.export_to_network()?;
/// // A peer makes a `RemoteSyncEvent` of the description, and signals it with RDMA tasks.
/// # drop(description);
/// event.wait_greater_than(0, u64::MAX)?;
/// println!("signalled with {}", event.get()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SyncEvent {
    event: NonNull<sys::doca_sync_event>,
    device: Device,
}

impl SyncEvent {
    /// An event that the program itself uses; who else does is set with the builder.
    pub fn builder(device: &Device) -> SyncEventBuilder {
        SyncEventBuilder::new(device)
    }

    /// An event of the other side of PCIe, from what its [`export_to_pci`](Self::export_to_pci) gave.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for bytes that are no such event; whatever `doca_sync_event_create_from_export` returns.
    pub fn import(device: &Device, description: &[u8]) -> Result<Self> {
        let mut event = ptr::null_mut();
        // SAFETY: the device is open, the description is valid for its length, the result has a place.
        unsafe {
            call!(doca_sync_event_create_from_export(
                device.as_ptr(),
                description.as_ptr(),
                description.len(),
                &mut event
            ))
        }?;
        let event = non_null("doca_sync_event_create_from_export", event)?;
        // SAFETY: just created, known to nobody else; it needs no configuration.
        unsafe { Self::start_raw(event, device.clone()) }
    }

    /// Starts an event and takes it over; destroys it when it does not start.
    ///
    /// # Safety
    ///
    /// `event` is configured, not started, and nobody else's.
    pub(super) unsafe fn start_raw(
        event: NonNull<sys::doca_sync_event>,
        device: Device,
    ) -> Result<Self> {
        // SAFETY: the event is live.
        if let Err(error) = unsafe { call!(doca_sync_event_start(event.as_ptr())) } {
            // SAFETY: not started, and not used again.
            unsafe { sys::doca_sync_event_destroy(event.as_ptr()) };
            return Err(error);
        }
        Ok(Self { event, device })
    }

    fn as_ptr(&self) -> *mut sys::doca_sync_event {
        self.event.as_ptr()
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// Whatever `doca_sync_event_get` returns, as when the value is another process's and that has gone.
    pub fn get(&self) -> Result<u64> {
        let mut value = 0;
        // SAFETY: the event is started, the result has a place.
        unsafe { call!(doca_sync_event_get(self.as_ptr(), &mut value)) }?;
        Ok(value)
    }

    /// Sets the value.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn set(&self, value: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_update_set(self.as_ptr(), value)) }
    }

    /// Adds to the value in one step, wrapping around; answers the old one.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn add(&self, value: u64) -> Result<u64> {
        let mut old = 0;
        // SAFETY: the event is started, the result has a place.
        unsafe { call!(doca_sync_event_update_add(self.as_ptr(), value, &mut old)) }?;
        Ok(old)
    }

    /// Blocks the thread until the value, of which only the bits in `mask` count, is `value`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn wait_equal(&self, value: u64, mask: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_wait_eq_yield(self.as_ptr(), value, mask)) }
    }

    /// Blocks the thread until the value, of which only the bits in `mask` count, is another than `value`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn wait_different(&self, value: u64, mask: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_wait_neq_yield(self.as_ptr(), value, mask)) }
    }

    /// Blocks the thread until the value, of which only the bits in `mask` count, is greater than `value`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn wait_greater_than(&self, value: u64, mask: u64) -> Result<()> {
        // SAFETY: the event is started.
        unsafe { call!(doca_sync_event_wait_gt_yield(self.as_ptr(), value, mask)) }
    }

    /// Describes the event for a network peer, which makes a [`RemoteSyncEvent`](crate::RemoteSyncEvent) of it. Whoever has the
    /// description can signal the event.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_PERMITTED`] unless it was started with [`SyncEventBuilder::network_publisher`].
    pub fn export_to_network(&self) -> Result<Vec<u8>> {
        let (mut data, mut len) = (ptr::null(), 0);
        // SAFETY: the event is started, the results have places.
        unsafe {
            call!(doca_sync_event_export_to_remote_net(
                self.as_ptr(),
                &mut data,
                &mut len
            ))
        }?;
        // SAFETY: the event owns `len` bytes of description.
        unsafe { copy("doca_sync_event_export_to_remote_net", data, len) }
    }

    /// Describes the event for the other side of PCIe, which [`import`](Self::import)s it. Whoever has the description can signal
    /// the event.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_PERMITTED`] unless it was started with [`SyncEventBuilder::pci_publisher`] or
    /// [`SyncEventBuilder::pci_subscriber`].
    pub fn export_to_pci(&self) -> Result<Vec<u8>> {
        let (mut data, mut len) = (ptr::null(), 0);
        // SAFETY: the event is started, the device is open, the results have places.
        unsafe {
            call!(doca_sync_event_export_to_remote_pci(
                self.as_ptr(),
                self.device.as_ptr(),
                &mut data,
                &mut len
            ))
        }?;
        // SAFETY: the event owns `len` bytes of description.
        unsafe { copy("doca_sync_event_export_to_remote_pci", data, len) }
    }
}

/// # Safety
///
/// `data` is null or valid for reading `len` bytes.
unsafe fn copy(operation: &'static str, data: *const u8, len: usize) -> Result<Vec<u8>> {
    if data.is_null() {
        return Err(Error::new(operation, ErrorCode::UNEXPECTED));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { slice::from_raw_parts(data, len) }.to_vec())
}

impl Drop for SyncEvent {
    fn drop(&mut self) {
        // SAFETY: started, and not used again.
        let ended = unsafe {
            call!(doca_sync_event_stop(self.as_ptr()))
                .and_then(|()| call!(doca_sync_event_destroy(self.as_ptr())))
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "a sync event stays");
        }
    }
}
