//! The DPA, which softdoca does not have: every function answers `DOCA_ERROR_NOT_SUPPORTED`, or `DOCA_ERROR_INVALID_VALUE`
//! for NULL as its object.

use doca_abi::{doca_comch_producer, doca_dpa_completion};

use super::super::{doca_error_t, guard, not_null};
use crate::error::Error;

macro_rules! unsupported {
    ($($name:ident($object:ident: $ty:ty $(, $argument:ident: $argument_ty:ty)*);)+) => { $(
        /// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no DPA.
        ///
        /// # Safety
        /// Safe for any pointers: they are not followed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($object: $ty $(, $argument: $argument_ty)*) -> doca_error_t {
            $(let _ = $argument;)*
            guard(|| {
                not_null($object as *const _)?;
                Err(Error::NotSupported.because("softdoca has no DPA"))
            })
        }
    )+ };
}

unsupported! {
    doca_comch_producer_dpa_completion_attach(producer: *mut doca_comch_producer, dpa_comp: *mut doca_dpa_completion);
    doca_comch_producer_get_dpa_handle(producer: *mut doca_comch_producer, dpa_producer: *mut u64);
    doca_comch_producer_set_dev_max_num_send(producer: *mut doca_comch_producer, dev_num_send: u32);
}
