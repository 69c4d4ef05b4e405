//! `doca_dma.h`: memory copies.

#[cfg(test)]
mod tests;

use doca_abi::{
    doca_buf, doca_ctx, doca_data, doca_dev, doca_devinfo, doca_dma, doca_dma_task_memcpy,
    doca_gpu_dma,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::task::{buf, put_limit, put_task, task_functions, with_driver};
use super::{Handle, Keeper, check_out, doca_error_t, guard, not_null, put, share};
use crate::accelerator::{MAX_BUF_LIST_LEN, MAX_BUF_SIZE, MAX_TASKS, Offload};
use crate::dma::{Copy, Dma};
use crate::error::Error;
use crate::progress::{Ctx, TaskOf, TaskPool};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_dma {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: tasks are given out as pointers to what `TaskPool::allocate` made of this body.
unsafe impl Handle for doca_dma_task_memcpy {
    type Engine = TaskOf<Copy>;
}

type Driver = Offload<Dma>;

fn copies(driver: &Driver) -> &TaskPool {
    &driver.accelerator().copies
}

/// Creates a DMA instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `dma` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_create(
    dev: *mut doca_dev,
    dma: *mut *mut doca_dma,
) -> doca_error_t {
    guard(|| {
        check_out(dma)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(dma, give_ctx(Dma::context(share(dev)?))) }
    })
}

/// Destroys an idle instance; `DOCA_ERROR_IN_USE` while tasks of it are allocated.
///
/// # Safety
/// `dma` is NULL or a live instance; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_destroy(dma: *mut doca_dma) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_ctx(dma) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_as_ctx(dma: *mut doca_dma) -> *mut doca_ctx {
    dma.cast()
}

/// Gets the maximum number of tasks of an instance.
///
/// # Safety
/// `max_num_tasks` is NULL or writable; `dma` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_cap_get_max_num_tasks(
    dma: *mut doca_dma,
    max_num_tasks: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(dma, max_num_tasks, MAX_TASKS) }
}

/// Gets the maximum number of bufs in a list.
///
/// # Safety
/// `max_buf_list_len` is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_cap_task_memcpy_get_max_buf_list_len(
    devinfo: *const doca_devinfo,
    max_buf_list_len: *mut u32,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, max_buf_list_len, MAX_BUF_LIST_LEN as u32) }
}

/// Gets the maximum number of bytes that a task can copy.
///
/// # Safety
/// `buf_size` is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_cap_task_memcpy_get_max_buf_size(
    devinfo: *const doca_devinfo,
    buf_size: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, buf_size, MAX_BUF_SIZE as u64) }
}

task_functions! {
    doca_dma_task_memcpy of doca_dma, pool copies;
    doca_dma_cap_task_memcpy_is_supported,
    doca_dma_task_memcpy_set_conf(doca_dma_task_memcpy_completion_cb_t),
    doca_dma_task_memcpy_as_task,
    doca_dma_task_memcpy_set_src, doca_dma_task_memcpy_get_src,
    doca_dma_task_memcpy_set_dst, doca_dma_task_memcpy_get_dst
}

/// Allocates a task that appends a copy of the source's data to the destination's data.
///
/// # Safety
/// As [`doca_dma_task_memcpy_set_conf`]; the bufs are NULL or stay valid while the task is in flight; `task` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_task_memcpy_alloc_init(
    dma: *mut doca_dma,
    src: *const doca_buf,
    dst: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_dma_task_memcpy,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_task(task, || {
            with_driver(dma, |ctx, driver| {
                let copy = Copy::new(buf(src), buf(dst));
                copies(driver).allocate(ctx, copy, user_data)
            })
        })
    })
}

/// `DOCA_ERROR_NOT_SUPPORTED`: softdoca has no GPU data path.
///
/// # Safety
/// Safe for any pointers: they are not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_dma_get_gpu_handle(
    dma: *mut doca_dma,
    gpu_dma: *mut *mut doca_gpu_dma,
) -> doca_error_t {
    guard(|| {
        not_null(dma)?;
        check_out(gpu_dma)?;
        Err(Error::NotSupported.because("softdoca has no GPU data path"))
    })
}

doca_abi::check_definitions!(doca_dma_functions, crate::capi::doca_dma);
