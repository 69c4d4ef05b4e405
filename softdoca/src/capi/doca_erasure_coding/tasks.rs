//! The four kinds of tasks.

use std::sync::Arc;

use doca_abi::{
    doca_buf, doca_data, doca_ec, doca_ec_matrix, doca_ec_task_create, doca_ec_task_galois_mul,
    doca_ec_task_recover, doca_ec_task_update, doca_error_t,
};

use super::super::task::{buf, put_task, task_functions, with_driver};
use super::super::{borrow, guard, guard_with, share};
use crate::accelerator::Offload;
use crate::erasure_coding::{ErasureCoding, Pools, Work};

fn pools(driver: &Offload<ErasureCoding>) -> &Pools {
    &driver.accelerator().pools
}

/// Defines a kind of task: its allocation and its matrix here, the rest by [`task_functions!`].
macro_rules! coding_task {
    (
        $task:ident, pool $pool:ident: $allocate_init:ident, $set_matrix:ident, $get_matrix:ident;
        $($functions:tt)*
    ) => {
        /// Allocates a task that applies a matrix to the blocks in the source's data and appends the results to the
        /// destination's data.
        ///
        /// # Safety
        /// The instance is NULL or live, and used by no other thread meanwhile; the matrix is NULL or live; the bufs are
        /// NULL or stay valid while the task is in flight; `task` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $allocate_init(
            ec: *mut doca_ec,
            matrix: *const doca_ec_matrix,
            source: *const doca_buf,
            destination: *mut doca_buf,
            user_data: doca_data,
            task: *mut *mut $task,
        ) -> doca_error_t {
            // SAFETY: the caller's promise.
            guard(|| unsafe {
                put_task(task, || {
                    with_driver(ec, |ctx, driver| {
                        let work = Work::new(share(matrix)?, buf(source), buf(destination));
                        pools(driver).$pool.allocate(ctx, work, user_data)
                    })
                })
            })
        }

        /// Gives the task another matrix; not while it is in flight.
        ///
        /// # Safety
        /// The task is NULL or live, and used by no other thread meanwhile; the matrix is NULL or live.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_matrix(task: *mut $task, matrix: *const doca_ec_matrix) {
            // SAFETY: the caller's promise.
            let _ = guard(|| unsafe {
                let matrix = share(matrix)?;
                borrow(task)?.body.matrix.replace(matrix);
                Ok(())
            });
        }

        /// The matrix, dead if it was destroyed meanwhile; NULL for NULL.
        ///
        /// # Safety
        /// The task is NULL or live, and used by no other thread meanwhile.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_matrix(task: *const $task) -> *const doca_ec_matrix {
            guard_with(std::ptr::null(), || {
                // SAFETY: the caller's promise.
                let task = unsafe { borrow(task) };
                task.map_or(std::ptr::null(), |task| Arc::as_ptr(&task.body.matrix.borrow()).cast())
            })
        }

        task_functions! {
            $task of doca_ec, pool |driver| &pools(driver).$pool;
            $($functions)*
        }
    };
}

coding_task! {
    doca_ec_task_galois_mul, pool galois_mul: doca_ec_task_galois_mul_allocate_init,
    doca_ec_task_galois_mul_set_coding_matrix, doca_ec_task_galois_mul_get_coding_matrix;
    doca_ec_cap_task_galois_mul_is_supported,
    doca_ec_task_galois_mul_set_conf(doca_ec_task_galois_mul_completion_cb_t),
    doca_ec_task_galois_mul_as_task,
    doca_ec_task_galois_mul_set_src_buf, doca_ec_task_galois_mul_get_src_buf,
    doca_ec_task_galois_mul_set_dst_buf, doca_ec_task_galois_mul_get_dst_buf
}

coding_task! {
    doca_ec_task_create, pool create: doca_ec_task_create_allocate_init,
    doca_ec_task_create_set_coding_matrix, doca_ec_task_create_get_coding_matrix;
    doca_ec_cap_task_create_is_supported,
    doca_ec_task_create_set_conf(doca_ec_task_create_completion_cb_t),
    doca_ec_task_create_as_task,
    doca_ec_task_create_set_original_data_blocks, doca_ec_task_create_get_original_data_blocks,
    doca_ec_task_create_set_rdnc_blocks, doca_ec_task_create_get_rdnc_blocks
}

coding_task! {
    doca_ec_task_update, pool update: doca_ec_task_update_allocate_init,
    doca_ec_task_update_set_update_matrix, doca_ec_task_update_get_update_matrix;
    doca_ec_cap_task_update_is_supported,
    doca_ec_task_update_set_conf(doca_ec_task_update_completion_cb_t),
    doca_ec_task_update_as_task,
    doca_ec_task_update_set_original_updated_and_rdnc_blocks,
    doca_ec_task_update_get_original_updated_and_rdnc_blocks,
    doca_ec_task_update_set_updated_rdnc_blocks, doca_ec_task_update_get_updated_rdnc_blocks
}

coding_task! {
    doca_ec_task_recover, pool recover: doca_ec_task_recover_allocate_init,
    doca_ec_task_recover_set_recover_matrix, doca_ec_task_recover_get_recover_matrix;
    doca_ec_cap_task_recover_is_supported,
    doca_ec_task_recover_set_conf(doca_ec_task_recover_completion_cb_t),
    doca_ec_task_recover_as_task,
    doca_ec_task_recover_set_available_blocks, doca_ec_task_recover_get_available_blocks,
    doca_ec_task_recover_set_recovered_data_blocks, doca_ec_task_recover_get_recovered_data
}
