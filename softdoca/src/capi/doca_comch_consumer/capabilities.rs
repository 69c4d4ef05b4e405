//! What devices can do with consumers.

use doca_abi::doca_devinfo;

use super::super::doca_error_t;
use super::super::task::{put_limit, supported};
use crate::comch::{MAX_BUF_SIZE, MAX_CONSUMERS, MAX_IMMEDIATE, MAX_TASKS, RECEIVE_LIST_LEN};

/// Every device can have them.
///
/// # Safety
/// `devinfo` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_comch_consumer_cap_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident = $limit:expr;)+) => { $(
        $(#[doc = $doc])+
        ///
        /// # Safety
        /// `devinfo` is NULL or live; `limit` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(devinfo: *const doca_devinfo, limit: *mut u32) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { put_limit(devinfo, limit, $limit as u32) }
        }
    )+ };
}
limits! {
    /// Most consumers of one end of a connection.
    doca_comch_consumer_cap_get_max_consumers = MAX_CONSUMERS;
    /// Most receive tasks of one consumer.
    doca_comch_consumer_cap_get_max_num_tasks = MAX_TASKS;
    /// Largest buf in bytes that can be received into.
    doca_comch_consumer_cap_get_max_buf_size = MAX_BUF_SIZE;
    /// Longest list of bufs that can be received into.
    doca_comch_consumer_cap_get_max_buf_list_len = RECEIVE_LIST_LEN;
    /// Longest immediate data in bytes.
    doca_comch_consumer_cap_get_max_imm_data_len = MAX_IMMEDIATE;
}
