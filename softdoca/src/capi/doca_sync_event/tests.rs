//! Sync events through their C functions.

mod contexts;
mod values;

use std::ptr::null_mut;
use std::sync::Arc;

use doca_abi::{doca_dev, doca_sync_event};

use super::*;
use crate::capi::give;
use crate::device::Device;
use crate::error::Error;

fn ok(code: u32) {
    assert_eq!(code, 0, "{:?}", Error::from_code(code));
}

fn device() -> Arc<Device> {
    Device::open_by_name("mlx5_0").expect("the built-in topology has it")
}

/// An open device.
struct Dev(*mut doca_dev);

impl Dev {
    fn open() -> Dev {
        Dev(give::<doca_dev>(device()))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // SAFETY: gives back the reference of `open`.
        drop(unsafe { Arc::from_raw(self.0.cast::<Device>()) });
    }
}

/// An event, which may be used by several threads.
struct Se(*mut doca_sync_event);

// SAFETY: the functions on values may be called from any thread, and the tests call no others from several.
unsafe impl Sync for Se {}

impl Se {
    fn create() -> Se {
        let mut event = null_mut();
        // SAFETY: a valid out-parameter.
        ok(unsafe { doca_sync_event_create(&mut event) });
        Se(event)
    }

    /// Creates an event for the CPU alone.
    fn local() -> Se {
        let (event, dev) = (Se::create(), Dev::open());
        // SAFETY: live handles.
        unsafe {
            ok(doca_sync_event_add_publisher_location_cpu(event.0, dev.0));
            ok(doca_sync_event_add_subscriber_location_cpu(event.0, dev.0));
        }
        event
    }

    /// Creates and starts an event for the CPU alone.
    fn started() -> Se {
        let event = Se::local();
        event.start();
        event
    }

    /// The handle. A method, because a closure would capture the field alone.
    fn raw(&self) -> *mut doca_sync_event {
        self.0
    }

    fn start(&self) {
        // SAFETY: a live handle.
        ok(unsafe { doca_sync_event_start(self.0) });
    }

    fn get(&self) -> u64 {
        let mut value = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_get(self.0, &mut value) });
        value
    }

    fn set(&self, value: u64) {
        // SAFETY: a live handle.
        ok(unsafe { doca_sync_event_update_set(self.0, value) });
    }

    fn add(&self, value: u64) -> u64 {
        let mut fetched = 0;
        // SAFETY: a live handle and a valid out-parameter.
        ok(unsafe { doca_sync_event_update_add(self.0, value, &mut fetched) });
        fetched
    }
}

impl Drop for Se {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: a live handle, not used afterwards; one that is a context, or is not started, cannot be stopped so.
        unsafe {
            doca_sync_event_stop(self.0);
            ok(doca_sync_event_destroy(self.0));
        }
    }
}
