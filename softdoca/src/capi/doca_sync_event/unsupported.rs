//! Data paths that softdoca does not have: every function answers `DOCA_ERROR_NOT_SUPPORTED`, or
//! `DOCA_ERROR_INVALID_VALUE` for NULL as the event.

use doca_abi::{doca_dpa, doca_gpu, doca_sync_event, doca_sync_event_remote_net};

use super::super::{doca_error_t, guard, not_null};
use crate::error::Error;

macro_rules! unsupported {
    ($($name:ident($event:ty $(, $argument:ident: $ty:ty)*), $what:literal;)+) => { $(
        #[doc = concat!("`DOCA_ERROR_NOT_SUPPORTED`: softdoca has no ", $what, ".")]
        ///
        /// # Safety
        /// Safe for any pointers: they are not followed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(event: *mut $event $(, $argument: $ty)*) -> doca_error_t {
            $(let _ = $argument;)*
            guard(|| {
                not_null(event)?;
                Err(Error::NotSupported.because(concat!("softdoca has no ", $what)))
            })
        }
    )+ };
}

unsupported! {
    doca_sync_event_add_publisher_location_dpa(doca_sync_event, dpa: *mut doca_dpa), "DPA";
    doca_sync_event_add_subscriber_location_dpa(doca_sync_event, dpa: *mut doca_dpa), "DPA";
    doca_sync_event_get_dpa_handle(doca_sync_event, dpa: *mut doca_dpa, handle: *mut u64), "DPA";
    doca_sync_event_remote_net_get_dpa_handle(doca_sync_event_remote_net, dpa: *mut doca_dpa, handle: *mut u64), "DPA";
    doca_sync_event_add_publisher_location_gpu(doca_sync_event, gpu: *mut doca_gpu), "GPU data path";
    doca_sync_event_add_subscriber_location_gpu(doca_sync_event, gpu: *mut doca_gpu), "GPU data path";
    doca_sync_event_get_gpu_handle(doca_sync_event, gpu: *mut doca_gpu, handle: *mut *mut u64), "GPU data path";
    doca_sync_event_remote_net_get_gpu_handle(doca_sync_event_remote_net, gpu: *mut doca_gpu, handle: *mut u64), "GPU data path";
}
