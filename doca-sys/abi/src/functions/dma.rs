//! DMA: copies of memory. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_dma_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_dma.h";

            /// Creates a DMA instance on a device.
            fn doca_dma_create(dev: *mut doca_dev, dma: *mut *mut doca_dma) -> doca_error_t;

            /// Destroys an idle DMA instance.
            fn doca_dma_destroy(dma: *mut doca_dma) -> doca_error_t;

            /// The DMA instance's context.
            fn doca_dma_as_ctx(dma: *mut doca_dma) -> *mut doca_ctx;

            /// Gets the maximum number of tasks of an instance.
            fn doca_dma_cap_get_max_num_tasks(
                dma: *mut doca_dma,
                max_num_tasks: *mut u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can copy memory.
            fn doca_dma_cap_task_memcpy_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Gets the maximum number of bufs in a list; 1 means that lists are not supported.
            fn doca_dma_cap_task_memcpy_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of bytes that one task can copy.
            fn doca_dma_cap_task_memcpy_get_max_buf_size(
                devinfo: *const doca_devinfo,
                buf_size: *mut u64
            ) -> doca_error_t;

            /// Gets the handle of the instance for a GPU; not supported in software.
            fn doca_dma_get_gpu_handle(
                dma: *mut doca_dma,
                gpu_dma: *mut *mut doca_gpu_dma
            ) -> doca_error_t;

            /// Sets the callbacks and the number of copy tasks; before the start.
            fn doca_dma_task_memcpy_set_conf(
                dma: *mut doca_dma,
                task_completion_cb: doca_dma_task_memcpy_completion_cb_t,
                task_error_cb: doca_dma_task_memcpy_completion_cb_t,
                num_memcpy_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that appends a copy of the source's data to the destination's data.
            fn doca_dma_task_memcpy_alloc_init(
                dma: *mut doca_dma,
                src: *const doca_buf,
                dst: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_dma_task_memcpy
            ) -> doca_error_t;

            /// The generic task of a copy task.
            fn doca_dma_task_memcpy_as_task(task: *mut doca_dma_task_memcpy) -> *mut doca_task;

            /// Sets the task's source.
            fn doca_dma_task_memcpy_set_src(task: *mut doca_dma_task_memcpy, src: *const doca_buf);

            /// The buf that the task copies from.
            fn doca_dma_task_memcpy_get_src(task: *const doca_dma_task_memcpy) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_dma_task_memcpy_set_dst(task: *mut doca_dma_task_memcpy, dst: *mut doca_buf);

            /// The buf that the task copies to.
            fn doca_dma_task_memcpy_get_dst(task: *const doca_dma_task_memcpy) -> *mut doca_buf;
        }
    };
}
