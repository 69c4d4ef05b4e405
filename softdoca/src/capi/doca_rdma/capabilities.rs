//! What devices can do: the same for all of them.

use doca_abi::{doca_devinfo, doca_rdma_gid, doca_rdma_transport_type};

use super::super::task::put_limit;
use super::super::{borrow, check_out, doca_error_t, guard, not_null, put};
use crate::error::Error;
use crate::rdma::{check_transport_type, gids, limits};

/// Defines functions that tell a limit.
macro_rules! limit_functions {
    ($($name:ident => $what:literal: $limit:ident;)+) => { $(
        #[doc = concat!("Tells ", $what, ".")]
        ///
        /// # Safety
        /// `limit` is NULL or writable; `devinfo` is not followed.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(devinfo: *const doca_devinfo, limit: *mut u32) -> doca_error_t {
            // SAFETY: the caller's promise.
            unsafe { put_limit(devinfo, limit, limits::$limit) }
        }
    )+ };
}

limit_functions! {
    doca_rdma_cap_get_max_send_queue_size => "the largest send queue": QUEUE_SIZE;
    doca_rdma_cap_get_max_recv_queue_size => "the largest receive queue": QUEUE_SIZE;
    doca_rdma_cap_get_max_send_buf_list_len => "how many bufs the local list of a task may have": BUF_LIST_LEN;
    doca_rdma_cap_get_max_message_size => "how many bytes a message may have": MESSAGE_SIZE;
    doca_rdma_cap_get_gid_table_size => "how many GIDs a device has": GIDS;
}

/// Tells how many bufs the list of a receive may have.
///
/// # Safety
/// `max_buf_list_len` is NULL or writable; `devinfo` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_task_receive_get_max_dst_buf_list_len(
    devinfo: *const doca_devinfo,
    transport_type: doca_rdma_transport_type,
    max_buf_list_len: *mut u32,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        check_transport_type(transport_type)?;
        // SAFETY: the caller's promise.
        unsafe { put(max_buf_list_len, limits::BUF_LIST_LEN) }
    })
}

/// `DOCA_SUCCESS` for `DOCA_RDMA_TRANSPORT_TYPE_RC` and `DOCA_RDMA_TRANSPORT_TYPE_DC`, else `DOCA_ERROR_NOT_SUPPORTED`.
///
/// # Safety
/// Safe for any pointer: it is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_transport_type_is_supported(
    devinfo: *const doca_devinfo,
    transport_type: doca_rdma_transport_type,
) -> doca_error_t {
    guard(|| {
        not_null(devinfo)?;
        check_transport_type(transport_type)
    })
}

/// Copies `num_entries` of a device's GIDs, from `start_index` on: the link-local one, then that of its IPv4 address.
///
/// # Safety
/// `devinfo` is NULL or live; `gid_array` is NULL or writable for `num_entries` GIDs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_cap_get_gid(
    devinfo: *const doca_devinfo,
    start_index: u32,
    num_entries: u32,
    gid_array: *mut doca_rdma_gid,
) -> doca_error_t {
    guard(|| {
        check_out(gid_array)?;
        // SAFETY: the caller's promise.
        let gids = gids(unsafe { borrow(devinfo) }?.model());
        let end = u64::from(start_index) + u64::from(num_entries);
        if num_entries == 0 || end > gids.len() as u64 {
            return Err(Error::InvalidValue.because(format_args!(
                "the table has {} GIDs, got {num_entries} from index {start_index} on",
                gids.len()
            )));
        }
        for (place, gid) in gids[start_index as usize..end as usize].iter().enumerate() {
            // SAFETY: the caller's promise; `place` is below `num_entries`.
            unsafe { gid_array.add(place).write(doca_rdma_gid { raw: *gid }) };
        }
        Ok(())
    })
}
