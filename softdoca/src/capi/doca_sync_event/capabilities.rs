//! What devices can do with events: all that needs no DPA and no GPU.

use doca_abi::doca_devinfo;

use super::super::task::supported;
use super::super::{doca_error_t, guard, not_null};
use crate::error::Error;

macro_rules! capabilities {
    (supported { $($yes:ident)+ } unsupported { $($no:ident)+ }) => {
        $(
            /// `DOCA_SUCCESS` for every device.
            ///
            /// # Safety
            /// Safe for any pointer: it is not followed.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $yes(devinfo: *const doca_devinfo) -> doca_error_t {
                supported(devinfo)
            }
        )+
        $(
            /// `DOCA_ERROR_NOT_SUPPORTED` for every device.
            ///
            /// # Safety
            /// Safe for any pointer: it is not followed.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $no(devinfo: *const doca_devinfo) -> doca_error_t {
                guard(|| {
                    not_null(devinfo)?;
                    Err(Error::NotSupported)
                })
            }
        )+
    };
}

capabilities! {
    supported {
    doca_sync_event_cap_is_create_from_export_supported
    doca_sync_event_cap_is_export_to_remote_net_supported
    doca_sync_event_cap_is_export_to_remote_pci_supported
    doca_sync_event_cap_remote_net_is_create_from_export_supported
    }
    unsupported {
    doca_sync_event_cap_is_export_to_dpa_supported
    doca_sync_event_cap_is_export_to_gpu_supported
    doca_sync_event_cap_remote_net_is_export_to_dpa_supported
    doca_sync_event_cap_remote_net_is_export_to_gpu_supported
    }
}
