//! The DPA, which softdoca does not have: every function answers `DOCA_ERROR_NOT_SUPPORTED`, or `DOCA_ERROR_INVALID_VALUE`
//! for NULL as its object.

use doca_abi::{doca_comch_consumer, doca_comch_consumer_completion, doca_dpa_thread};

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
    doca_comch_consumer_completion_create(consumer_comp: *mut *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_destroy(consumer_comp: *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_start(consumer_comp: *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_stop(consumer_comp: *mut doca_comch_consumer_completion);
    doca_comch_consumer_completion_set_max_num_recv(consumer_comp: *mut doca_comch_consumer_completion, max_num_recv: u32);
    doca_comch_consumer_completion_get_max_num_recv(consumer_comp: *const doca_comch_consumer_completion, max_num_recv: *mut u32);
    doca_comch_consumer_completion_set_max_num_consumers(consumer_comp: *mut doca_comch_consumer_completion, max_num_consumers: u32);
    doca_comch_consumer_completion_get_max_num_consumers(consumer_comp: *const doca_comch_consumer_completion, max_num_consumers: *mut u32);
    doca_comch_consumer_completion_set_imm_data_len(consumer_comp: *mut doca_comch_consumer_completion, imm_data_len: u32);
    doca_comch_consumer_completion_get_imm_data_len(consumer_comp: *const doca_comch_consumer_completion, imm_data_len: *mut u32);
    doca_comch_consumer_completion_set_dpa_thread(consumer_comp: *mut doca_comch_consumer_completion, dpa_thread: *mut doca_dpa_thread);
    doca_comch_consumer_completion_get_dpa_handle(consumer_comp: *mut doca_comch_consumer_completion, consumer_comp_handle: *mut u64);
    doca_comch_consumer_get_dpa_handle(consumer: *mut doca_comch_consumer, dpa_consumer: *mut u64);
    doca_comch_consumer_set_completion(consumer: *mut doca_comch_consumer, consumer_comp: *mut doca_comch_consumer_completion, user_data: u32);
    doca_comch_consumer_set_dev_max_num_recv(consumer: *mut doca_comch_consumer, dev_num_recv: u32);
}
