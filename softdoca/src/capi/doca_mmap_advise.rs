//! `doca_mmap_advise.h`: memory advice.

use doca_abi::{
    doca_buf, doca_ctx, doca_data, doca_dev, doca_devinfo, doca_mmap_advise,
    doca_mmap_advise_task_invalidate_cache, doca_mmap_advise_task_invalidate_cache_completion_cb_t,
    doca_task,
};

use super::doca_pe::{destroy_ctx, give_ctx};
use super::{
    Handle, Keeper, as_task, borrow, buf, buf_handle, check_out, doca_error_t, generic, guard,
    guard_with, put, put_limit, put_task, share, supported, with_driver,
};
use crate::accelerator::{Advise, Invalidate, MAX_BUF_SIZE, Offload};
use crate::error::Error;
use crate::progress::{Ctx, TaskOf, TaskPool};

// SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
unsafe impl Handle for doca_mmap_advise {
    type Engine = Ctx;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: task handles are pointers to tasks with this body, created by `TaskPool::allocate`.
unsafe impl Handle for doca_mmap_advise_task_invalidate_cache {
    type Engine = TaskOf<Invalidate>;
}

fn invalidations(driver: &Offload<Advise>) -> &TaskPool {
    &driver.accelerator().invalidations
}

/// Creates an instance on a device.
///
/// # Safety
/// `dev` is NULL or an open device; `mmap_advise` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_create(
    dev: *mut doca_dev,
    mmap_advise: *mut *mut doca_mmap_advise,
) -> doca_error_t {
    guard(|| {
        check_out(mmap_advise)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(mmap_advise, give_ctx(Advise::context(share(dev)?))) }
    })
}

/// Destroys an idle instance.
///
/// # Safety
/// `mmap_advise` is NULL or a live instance; on success it is invalid afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_destroy(
    mmap_advise: *mut doca_mmap_advise,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { destroy_ctx(mmap_advise, Error::InUse) })
}

/// The instance's context.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_as_ctx(
    mmap_advise: *mut doca_mmap_advise,
) -> *mut doca_ctx {
    mmap_advise.cast()
}

/// `DOCA_SUCCESS` for every device.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_cap_task_cache_invalidate_is_supported(
    devinfo: *const doca_devinfo,
) -> doca_error_t {
    supported(devinfo)
}

/// Gets the maximum number of bytes that a task can cover.
///
/// # Safety
/// `buf_size` is NULL or writable; `devinfo` is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_task_cache_invalidate_get_max_buf_size(
    devinfo: *const doca_devinfo,
    buf_size: *mut u64,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { put_limit(devinfo, buf_size, MAX_BUF_SIZE as u64) }
}

/// Sets the callbacks and the number of tasks; only before the start.
///
/// # Safety
/// `mmap_advise` is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_task_invalidate_cache_set_conf(
    mmap_advise: *mut doca_mmap_advise,
    completion_cb: doca_mmap_advise_task_invalidate_cache_completion_cb_t,
    error_cb: doca_mmap_advise_task_invalidate_cache_completion_cb_t,
    num_tasks: u32,
) -> doca_error_t {
    let (success, failure) = (generic(completion_cb), generic(error_cb));
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        with_driver(mmap_advise, |ctx, driver| {
            invalidations(driver).configure(ctx, success, failure, num_tasks)
        })
    })
}

/// Allocates a task that invalidates the cache of a buf's memory.
///
/// # Safety
/// As [`doca_mmap_advise_task_invalidate_cache_set_conf`]; `buf` is NULL or stays valid while the task is in flight; `task` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_task_invalidate_cache_alloc_init(
    mmap_advise: *mut doca_mmap_advise,
    buf_or_null: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_mmap_advise_task_invalidate_cache,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe {
        put_task(task, || {
            with_driver(mmap_advise, |ctx, driver| {
                let body = Invalidate::new(buf(buf_or_null));
                invalidations(driver).allocate(ctx, body, user_data)
            })
        })
    })
}

/// The generic task.
///
/// # Safety
/// Safe for any pointer: it is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_task_invalidate_cache_as_doca_task(
    task: *mut doca_mmap_advise_task_invalidate_cache,
) -> *mut doca_task {
    as_task(task)
}

/// Sets the task's buf; not allowed while the task is in flight.
///
/// # Safety
/// `task` is NULL or live, and not used by another thread during the call; the buf is NULL or stays valid while the
/// task is in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_task_invalidate_cache_set_buf(
    task: *mut doca_mmap_advise_task_invalidate_cache,
    buf_or_null: *mut doca_buf,
) {
    // SAFETY: guaranteed by the caller.
    let _ = guard(|| unsafe {
        borrow(task)?.body.buf.set(buf(buf_or_null));
        Ok(())
    });
}

/// The task's buf; NULL for NULL.
///
/// # Safety
/// `task` is NULL or live, and not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_mmap_advise_task_invalidate_cache_get_buf(
    task: *const doca_mmap_advise_task_invalidate_cache,
) -> *mut doca_buf {
    guard_with(std::ptr::null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let task = unsafe { borrow(task) }.ok();
        buf_handle(task.and_then(|task| task.body.buf.get()))
    })
}

doca_abi::check_definitions!(doca_mmap_advise_functions, crate::capi::doca_mmap_advise);

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use doca_abi::{DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS};

    use super::super::doca_pe::*;
    use super::super::testing::*;
    use super::*;
    use crate::memory::{ExportKind, Permissions};

    fn start() -> Instance<doca_mmap_advise> {
        Instance::start(
            doca_mmap_advise_create,
            doca_mmap_advise_destroy,
            |advise| {
                let done = Some(done::<doca_mmap_advise_task_invalidate_cache> as _);
                // SAFETY: a live instance.
                ok(unsafe {
                    doca_mmap_advise_task_invalidate_cache_set_conf(advise, done, done, 4)
                });
            },
        )
    }

    fn task(
        advise: &Instance<doca_mmap_advise>,
        buf: *mut doca_buf,
        user: u64,
    ) -> *mut doca_mmap_advise_task_invalidate_cache {
        let user = doca_data { u64: user };
        // SAFETY: live handles and a valid out-parameter.
        advise.task(|task| unsafe {
            doca_mmap_advise_task_invalidate_cache_alloc_init(advise.handle, buf, user, task)
        })
    }

    #[test]
    fn caches_are_invalidated_in_order() {
        let (advise, memory, bufs) = (start(), Memory::local(4096), Bufs::new());
        let (one, two) = (
            bufs.data(&memory.mmap, 0, 100),
            bufs.room(&memory.mmap, 100, 100),
        );
        let (first, second) = (task(&advise, c(one), 1), task(&advise, c(two), 2));
        advise.submit(first);
        advise.submit(second);
        assert_eq!(advise.wait(2), [(1, 0), (2, 0)]);
        // SAFETY: live handles.
        unsafe {
            assert_eq!(
                doca_mmap_advise_task_invalidate_cache_as_doca_task(first).cast(),
                first
            );
            assert_eq!(
                doca_mmap_advise_task_invalidate_cache_get_buf(first),
                c(one)
            );
            doca_mmap_advise_task_invalidate_cache_set_buf(first, c(two));
            assert_eq!(
                doca_mmap_advise_task_invalidate_cache_get_buf(first),
                c(two)
            );
        }
        assert_eq!(advise.run(first), DOCA_SUCCESS);
        assert_eq!(two.data_len(), 0, "no data is made");
    }

    #[test]
    fn invalid_invalidations_fail_without_stopping_the_context() {
        let (advise, bufs) = (start(), Bufs::new());
        let permissions = Permissions::LOCAL_READ_WRITE | Permissions::RDMA_READ;
        let theirs = Memory::new(4096, permissions, Placement::Pages).import(ExportKind::Rdma);
        let none = task(&advise, null_mut(), 1);
        let remote = task(&advise, c(bufs.room(&theirs, 0, 10)), 2);
        assert_eq!(advise.run(none), DOCA_ERROR_INVALID_VALUE);
        assert_eq!(advise.run(remote), DOCA_ERROR_NOT_PERMITTED);
        // SAFETY: a live task.
        let tried = unsafe { doca_task_try_submit(none.cast()) };
        assert_eq!(tried, DOCA_ERROR_INVALID_VALUE, "and a try says so at once");
        assert!(!advise.progress(), "nothing is in flight");
    }

    #[test]
    fn limits_are_reported_and_nulls_refused() {
        let advise = start();
        let (mut size, mut created) = (0, null_mut());
        let invalid = DOCA_ERROR_INVALID_VALUE;
        // SAFETY: NULL, a live handle, or a valid out-parameter.
        unsafe {
            ok(doca_mmap_advise_cap_task_cache_invalidate_is_supported(
                any_devinfo(),
            ));
            ok(doca_mmap_advise_task_cache_invalidate_get_max_buf_size(
                any_devinfo(),
                &mut size,
            ));
            assert!(size >= 2 << 20, "{size}");
            assert_eq!(
                doca_mmap_advise_cap_task_cache_invalidate_is_supported(null_mut()),
                invalid
            );
            assert_eq!(
                doca_mmap_advise_task_cache_invalidate_get_max_buf_size(any_devinfo(), null_mut()),
                invalid
            );
            assert_eq!(doca_mmap_advise_create(null_mut(), &mut created), invalid);
            assert_eq!(doca_mmap_advise_destroy(null_mut()), invalid);
            assert_eq!(doca_mmap_advise_as_ctx(advise.handle), advise.ctx());
            assert_eq!(
                doca_mmap_advise_task_invalidate_cache_set_conf(null_mut(), None, None, 1),
                invalid
            );
            let no_data = doca_data { u64: 0 };
            assert_eq!(
                doca_mmap_advise_task_invalidate_cache_alloc_init(
                    advise.handle,
                    null_mut(),
                    no_data,
                    null_mut()
                ),
                invalid
            );
            doca_mmap_advise_task_invalidate_cache_set_buf(null_mut(), null_mut());
            assert!(doca_mmap_advise_task_invalidate_cache_get_buf(null_mut()).is_null());
        }
    }
}
