use std::ptr::null_mut;

use doca_abi::{DOCA_ERROR_INVALID_VALUE, DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS};

use super::*;
use crate::capi::doca_pe::*;
use crate::capi::testing::*;
use crate::memory::{ExportKind, Permissions};

fn start() -> Instance<doca_mmap_advise> {
    Instance::start(
        doca_mmap_advise_create,
        doca_mmap_advise_destroy,
        |advise| {
            let done = Some(done::<doca_mmap_advise_task_invalidate_cache> as _);
            // SAFETY: a live instance.
            ok(unsafe { doca_mmap_advise_task_invalidate_cache_set_conf(advise, done, done, 4) });
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
