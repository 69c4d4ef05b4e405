//! Functions of earlier releases, over the current ones: of 2.5 and 2.6, `doca_cc_*` over Comch, and RDMA with one
//! connection per instance. `doca_abi::doca_earlier_functions!` defines which current function each of them calls, and
//! with which arguments; this file contains only those without an equivalent.

use doca_abi::*;

use super::doca_comm_channel::*;
use super::doca_dev::ACTIVE_RATE;
use super::{generic, guard, put_limit, with_driver};
use crate::comch::MAX_TASKS;
use crate::rdma::Connecting;
use crate::sync_event::{Kind, SyncEvent, Work};

/// 2.5 has numbers of tasks as logarithms.
const MAX_LOG_TASKS: usize = MAX_TASKS.ilog2() as usize;

/// Functions that the table's entries call.
mod current {
    pub(super) use crate::capi::{
        doca_aes_gcm::*, doca_comch::*, doca_compress::*, doca_log::*, doca_rdma::*, doca_sha::*,
        doca_sync_event::*,
    };
}

macro_rules! define {
    ([] $(header $header:literal since $since:ident until $until:ident { $(
        $(#[doc = $doc:literal])?
        fn $name:ident $(as $symbol:ident)? ($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
            $(= $target:ident $(($($argument:expr),* $(,)?))? $(as $cast:ty)?)?;
    )* })*) => {
        $($( define! { @function $name $(as $symbol)? ($($param: $ty),*) ($($ret)?)
            $(= $target ($($($argument),*)?) ($($cast)?))? } )*)*
    };
    (@function $name:ident as $symbol:ident $($rest:tt)*) => {
        define! { @function $symbol $($rest)* }
    };
    // Renamed function: the same arguments in the same order.
    (@function $name:ident ($($param:ident: $ty:ty),*) ($($ret:ty)?) = $target:ident () ($($cast:ty)?)) => {
        define! { @function $name ($($param: $ty),*) ($($ret)?) = $target ($($param),*) ($($cast)?) }
    };
    (@function $name:ident ($($param:ident: $ty:ty),*) ($($ret:ty)?)
        = $target:ident ($($argument:expr),+) ($($cast:ty)?)) => {
        #[doc = concat!("As `", stringify!($target), "` of the current release.")]
        ///
        /// # Safety
        /// As for that function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($param: $ty),*) $(-> $ret)? {
            // SAFETY: guaranteed by the caller: the arguments are its own, or constants that the function accepts.
            unsafe { current::$target($($argument),+) $(as $cast)? }
        }
    };
    // The function is defined below; this checks its type.
    (@function $name:ident ($($param:ident: $ty:ty),*) ($($ret:ty)?)) => {
        const _: unsafe extern "C" fn($($ty),*) $(-> $ret)? = $name;
    };
}

doca_abi::doca_earlier_functions!(define);

/// Gets the rate of the device's port in Gb/s: 2.x returns it as a `double`.
///
/// # Safety
/// `devinfo` is NULL or live; `active_rate` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_devinfo_get_active_rate_2_6(
    devinfo: *const doca_devinfo,
    active_rate: *mut f64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, active_rate, ACTIVE_RATE as f64 / 1e9) }
}

/// Creates an RDMA instance with one connection, which is established while its context starts.
///
/// # Safety
/// `dev` is NULL or an open device; `rdma` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_rdma_create_2_6(
    dev: *mut doca_dev,
    rdma: *mut *mut doca_rdma,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { super::doca_rdma::create(dev, rdma, Connecting::WhileStarting) }
}

/// Sets the callbacks and the number of tasks that wait for a greater value; only before the start.
///
/// # Safety
/// `event` is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_wait_gt_set_conf(
    event: *mut doca_sync_event,
    completion_cb: doca_sync_event_task_wait_gt_completion_cb_t,
    error_cb: doca_sync_event_task_wait_gt_completion_cb_t,
    num_tasks: u32,
) -> doca_error_t {
    let (success, failure) = (generic(completion_cb), generic(error_cb));
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        with_driver(event, |ctx, event: &SyncEvent| {
            let pool = event.pools().of(Kind::WaitGreater);
            pool.configure(ctx, success, failure, num_tasks)
        })
    })
}

/// Allocates a task that completes when the value, masked with `mask`, is greater than `wait_val`.
///
/// # Safety
/// `event` is NULL or a live event, not used by another thread during the call; `task` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_sync_event_task_wait_gt_alloc_init(
    event: *mut doca_sync_event,
    wait_val: u64,
    mask: u64,
    user_data: doca_data,
    task: *mut *mut doca_sync_event_task_wait_gt,
) -> doca_error_t {
    let work = Work::new(Kind::WaitGreater, wait_val, mask, std::ptr::null_mut());
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { super::doca_sync_event::allocate(event, work, user_data, task) })
}

/// Defines functions of 2.5 with a `size_t` parameter, over those with a 32-bit parameter.
macro_rules! wide {
    ($($name:ident($object:ty) = $target:ident;)+) => { $(
        #[doc = concat!("As `", stringify!($target), "` of the current release.")]
        ///
        /// # Safety
        /// As for that function; `number` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *const $object, number: *mut usize) -> doca_error_t {
            let mut narrow = 0_u32;
            let out = match number.is_null() {
                true => std::ptr::null_mut(),
                false => &raw mut narrow,
            };
            // SAFETY: guaranteed by the caller.
            let result = unsafe { current::$target(object, out) };
            if result == DOCA_SUCCESS {
                // SAFETY: guaranteed by the caller; the function has refused NULL.
                unsafe { number.write(narrow as usize) };
            }
            result
        }
    )+ };
}

wide! {
    doca_cc_cap_get_max_msg_size_2_5(doca_devinfo) = doca_comch_cap_get_max_msg_size;
    doca_cc_cap_get_max_recv_queue_size_2_5(doca_devinfo) = doca_comch_cap_get_max_recv_queue_size;
    doca_cc_cap_get_max_clients_2_5(doca_devinfo) = doca_comch_cap_get_max_clients;
    doca_cc_cap_get_max_send_tasks_2_5(doca_devinfo) = doca_comch_cap_get_max_send_tasks;
    doca_cc_server_get_max_msg_size_2_5(doca_cc_server) = doca_comch_server_get_max_msg_size;
    doca_cc_server_get_recv_queue_size_2_5(doca_cc_server) = doca_comch_server_get_recv_queue_size;
    doca_cc_client_get_max_msg_size_2_5(doca_cc_client) = doca_comch_client_get_max_msg_size;
    doca_cc_client_get_recv_queue_size_2_5(doca_cc_client) = doca_comch_client_get_recv_queue_size;
    doca_cc_consumer_cap_get_max_buf_size_2_5(doca_devinfo) = doca_comch_consumer_cap_get_max_buf_size;
    doca_cc_producer_cap_get_max_buf_size_2_5(doca_devinfo) = doca_comch_producer_cap_get_max_buf_size;
}

/// Gets the binary logarithm of the maximum number of receive tasks of one consumer.
///
/// # Safety
/// `devinfo` is NULL or live; `max_log_num_tasks` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_cc_consumer_cap_get_max_log_num_tasks(
    devinfo: *const doca_devinfo,
    max_log_num_tasks: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_log_num_tasks, MAX_LOG_TASKS) }
}

/// Gets the binary logarithm of the maximum number of send tasks of one producer.
///
/// # Safety
/// `devinfo` is NULL or live; `max_log_num_tasks` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_cc_producer_cap_get_max_log_num_tasks(
    devinfo: *const doca_devinfo,
    max_log_num_tasks: *mut usize,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_log_num_tasks, MAX_LOG_TASKS) }
}
