use std::ptr::{self, NonNull};
use std::rc::Rc;

use doca_sys as sys;

use crate::device::non_null;
use crate::error::call;
use crate::{Device, Result};

/// An event of a network peer. RDMA tasks reach it: [`Rdma::event_get_task`](crate::Rdma::event_get_task),
/// [`Rdma::event_set_task`](crate::Rdma::event_set_task) and [`Rdma::event_add_task`](crate::Rdma::event_add_task).
#[derive(Debug, Clone)]
pub struct RemoteSyncEvent {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    event: NonNull<sys::doca_sync_event_remote_net>,
    _device: Device,
}

impl RemoteSyncEvent {
    /// Makes one of what the peer's [`SyncEvent::export_to_network`](crate::SyncEvent::export_to_network) gave.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) for bytes that are no such event; whatever
    /// `doca_sync_event_remote_net_create_from_export` returns.
    pub fn import(device: &Device, description: &[u8]) -> Result<Self> {
        let mut event = ptr::null_mut();
        // SAFETY: the device is open, the description is valid for its length, the result has a place.
        unsafe {
            call!(doca_sync_event_remote_net_create_from_export(
                device.as_ptr(),
                description.as_ptr(),
                description.len(),
                &mut event
            ))
        }?;
        let inner = Rc::new(Inner {
            event: non_null("doca_sync_event_remote_net_create_from_export", event)?,
            _device: device.clone(),
        });
        Ok(Self { inner })
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::doca_sync_event_remote_net {
        self.inner.event.as_ptr()
    }

    /// What a task holds that uses the event.
    pub(crate) fn keep(&self) -> Rc<dyn std::any::Any> {
        Rc::clone(&self.inner) as Rc<dyn std::any::Any>
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let event = self.event.as_ptr();
        // SAFETY: every task that uses it holds it, so there is none.
        if let Err(error) = unsafe { call!(doca_sync_event_remote_net_destroy(event)) } {
            tracing::warn!(%error, "a remote sync event stays");
        }
    }
}
