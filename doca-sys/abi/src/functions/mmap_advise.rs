//! Advice on memory: invalidation of caches. See [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_mmap_advise_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_mmap_advise.h";

            /// Creates an instance on a device.
            fn doca_mmap_advise_create(
                dev: *mut doca_dev,
                mmap_advise: *mut *mut doca_mmap_advise
            ) -> doca_error_t;

            /// Destroys an idle instance.
            fn doca_mmap_advise_destroy(mmap_advise: *mut doca_mmap_advise) -> doca_error_t;

            /// The context of an instance.
            fn doca_mmap_advise_as_ctx(mmap_advise: *mut doca_mmap_advise) -> *mut doca_ctx;

            /// `DOCA_SUCCESS` if the device can invalidate caches.
            fn doca_mmap_advise_cap_task_cache_invalidate_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Bytes that one task can cover.
            fn doca_mmap_advise_task_cache_invalidate_get_max_buf_size(
                devinfo: *const doca_devinfo,
                buf_size: *mut u64
            ) -> doca_error_t;

            /// Sets callbacks and number of the tasks; before the start.
            fn doca_mmap_advise_task_invalidate_cache_set_conf(
                mmap_advise: *mut doca_mmap_advise,
                completion_cb: doca_mmap_advise_task_invalidate_cache_completion_cb_t,
                error_cb: doca_mmap_advise_task_invalidate_cache_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that invalidates the cache of a buf's memory.
            fn doca_mmap_advise_task_invalidate_cache_alloc_init(
                mmap_advise: *mut doca_mmap_advise,
                buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_mmap_advise_task_invalidate_cache
            ) -> doca_error_t;

            /// The generic task.
            fn doca_mmap_advise_task_invalidate_cache_as_doca_task(
                task: *mut doca_mmap_advise_task_invalidate_cache
            ) -> *mut doca_task;

            /// Gives the task another buf; not while it is in flight.
            fn doca_mmap_advise_task_invalidate_cache_set_buf(
                task: *mut doca_mmap_advise_task_invalidate_cache,
                buf: *mut doca_buf
            );

            /// The task's buf.
            fn doca_mmap_advise_task_invalidate_cache_get_buf(
                task: *const doca_mmap_advise_task_invalidate_cache
            ) -> *mut doca_buf;
        }
    };
}
