use std::ptr::{self, NonNull};

use doca_sys as sys;

use super::{SyncEvent, SyncEventContext};
use crate::device::non_null;
use crate::error::call;
use crate::{Device, Pe, Result};

/// Who uses a [`SyncEvent`]: the program itself, through a device, and who else is named here.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct SyncEventBuilder {
    device: Device,
    network_publisher: bool,
    pci_publisher: bool,
    pci_subscriber: bool,
}

impl SyncEventBuilder {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            network_publisher: false,
            pci_publisher: false,
            pci_subscriber: false,
        }
    }

    /// Lets network peers signal it, with RDMA tasks: [`SyncEvent::export_to_network`].
    pub fn network_publisher(mut self) -> Self {
        self.network_publisher = true;
        self
    }

    /// Lets the other side of PCIe signal it: [`SyncEvent::export_to_pci`].
    pub fn pci_publisher(mut self) -> Self {
        self.pci_publisher = true;
        self
    }

    /// Lets the other side of PCIe wait for it: [`SyncEvent::export_to_pci`].
    pub fn pci_subscriber(mut self) -> Self {
        self.pci_subscriber = true;
        self
    }

    /// Starts the event. Its value is 0.
    ///
    /// # Errors
    ///
    /// Whatever `doca_sync_event_start` and the functions before it return.
    pub fn start(self) -> Result<SyncEvent> {
        let event = self.create()?;
        // SAFETY: just created and configured, known to nobody else.
        unsafe { SyncEvent::start_raw(event, self.device) }
    }

    /// Starts the event as a context of `pe`, with room for `tasks` tasks of each kind.
    ///
    /// # Errors
    ///
    /// Whatever `doca_ctx_start` and the functions before it return.
    pub fn start_on(self, pe: &Pe, tasks: u32) -> Result<SyncEventContext> {
        let event = self.create()?;
        // SAFETY: just created and configured, known to nobody else.
        unsafe { SyncEventContext::start(event, pe, tasks, self.device) }
    }

    fn create(&self) -> Result<NonNull<sys::doca_sync_event>> {
        let mut event = ptr::null_mut();
        // SAFETY: the result has a place.
        unsafe { call!(doca_sync_event_create(&mut event)) }?;
        let object = non_null("doca_sync_event_create", event)?;
        // SAFETY: the event is live and not started, the device is open.
        let configured = unsafe { self.configure(event) };
        if configured.is_err() {
            // SAFETY: not started, and nobody else's. What matters is the error before.
            unsafe { sys::doca_sync_event_destroy(event) };
        }
        configured.map(|()| object)
    }

    /// # Safety
    ///
    /// `event` is live and not started.
    unsafe fn configure(&self, event: *mut sys::doca_sync_event) -> Result<()> {
        let device = self.device.as_ptr();
        // SAFETY: the caller's promise; the device is open.
        unsafe {
            call!(doca_sync_event_add_publisher_location_cpu(event, device))?;
            call!(doca_sync_event_add_subscriber_location_cpu(event, device))?;
            if self.network_publisher {
                call!(doca_sync_event_add_publisher_location_remote_net(event))?;
            }
            if self.pci_publisher {
                call!(doca_sync_event_add_publisher_location_remote_pci(event))?;
            }
            if self.pci_subscriber {
                call!(doca_sync_event_add_subscriber_location_remote_pci(event))?;
            }
        }
        Ok(())
    }
}
