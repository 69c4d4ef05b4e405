//! SHA digests. See [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_sha_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_sha.h";

            /// Creates a SHA instance on a device.
            fn doca_sha_create(dev: *mut doca_dev, sha: *mut *mut doca_sha) -> doca_error_t;

            /// Destroys an idle SHA instance.
            fn doca_sha_destroy(sha: *mut doca_sha) -> doca_error_t;

            /// The SHA instance's context.
            fn doca_sha_as_ctx(sha: *mut doca_sha) -> *mut doca_ctx;

            /// `DOCA_SUCCESS` if the device can hash whole messages with an algorithm.
            fn doca_sha_cap_task_hash_get_supported(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can hash messages in parts with an algorithm.
            fn doca_sha_cap_task_partial_hash_get_supported(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list; 1 means that lists are not supported.
            fn doca_sha_cap_get_max_list_buf_num_elem(
                devinfo: *const doca_devinfo,
                max_list_buf_num_elem: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of bytes that one task can hash.
            fn doca_sha_cap_get_max_src_buf_size(
                devinfo: *const doca_devinfo,
                max_src_buf_size: *mut u64
            ) -> doca_error_t;

            /// Gets the length of a digest in bytes, which the destination must be able to hold.
            fn doca_sha_cap_get_min_dst_buf_size(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm,
                min_dst_buf_size: *mut u32
            ) -> doca_error_t;

            /// Gets the block length in bytes, which must divide the length of each part but the last.
            fn doca_sha_cap_get_partial_hash_block_size(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm,
                partial_block_size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of tasks of an instance.
            fn doca_sha_cap_get_max_num_tasks(sha: *mut doca_sha, max_num_tasks: *mut u32) -> doca_error_t;

            /// Sets the callbacks and the binary logarithm of the number of hash tasks; before the start.
            fn doca_sha_task_hash_set_conf(
                sha: *mut doca_sha,
                task_completion_cb: doca_sha_task_hash_completion_cb_t,
                task_error_cb: doca_sha_task_hash_completion_cb_t,
                log_num_tasks: u8
            ) -> doca_error_t;

            /// Allocates a task that appends the digest of the source's data to the destination's data.
            fn doca_sha_task_hash_alloc_init(
                sha: *mut doca_sha,
                algorithm: doca_sha_algorithm,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_sha_task_hash
            ) -> doca_error_t;

            /// Sets the task's source.
            fn doca_sha_task_hash_set_src(
                task: *mut doca_sha_task_hash,
                src_buf: *const doca_buf
            ) -> doca_error_t;

            /// The buf that the task reads.
            fn doca_sha_task_hash_get_src(task: *const doca_sha_task_hash) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_sha_task_hash_set_dst(
                task: *mut doca_sha_task_hash,
                dst_buf: *mut doca_buf
            ) -> doca_error_t;

            /// The buf that the task appends the digest to.
            fn doca_sha_task_hash_get_dst(task: *const doca_sha_task_hash) -> *const doca_buf;

            /// Sets the algorithm.
            fn doca_sha_task_hash_set_algorithm(
                task: *mut doca_sha_task_hash,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// The algorithm.
            fn doca_sha_task_hash_get_algorithm(task: *const doca_sha_task_hash) -> doca_sha_algorithm;

            /// The generic task of a hash task.
            fn doca_sha_task_hash_as_task(task: *mut doca_sha_task_hash) -> *mut doca_task;

            /// Sets the callbacks and the binary logarithm of the number of partial hash tasks; before the start.
            fn doca_sha_task_partial_hash_set_conf(
                sha: *mut doca_sha,
                task_completion_cb: doca_sha_task_partial_hash_completion_cb_t,
                task_error_cb: doca_sha_task_partial_hash_completion_cb_t,
                log_num_tasks: u8
            ) -> doca_error_t;

            /// Allocates a task that is submitted once for each part of a message, and appends the digest after the last one.
            fn doca_sha_task_partial_hash_alloc_init(
                sha: *mut doca_sha,
                algorithm: doca_sha_algorithm,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_sha_task_partial_hash
            ) -> doca_error_t;

            /// Resets the task for another message.
            fn doca_sha_task_partial_hash_reset(task: *mut doca_sha_task_partial_hash) -> doca_error_t;

            /// Sets the task's source.
            fn doca_sha_task_partial_hash_set_src(
                task: *mut doca_sha_task_partial_hash,
                src_buf: *const doca_buf
            ) -> doca_error_t;

            /// The buf that the task reads.
            fn doca_sha_task_partial_hash_get_src(task: *const doca_sha_task_partial_hash) -> *const doca_buf;

            /// Sets the task's destination; before the first part.
            fn doca_sha_task_partial_hash_set_dst(
                task: *mut doca_sha_task_partial_hash,
                dst_buf: *mut doca_buf
            ) -> doca_error_t;

            /// The buf that the task appends the digest to.
            fn doca_sha_task_partial_hash_get_dst(task: *const doca_sha_task_partial_hash) -> *const doca_buf;

            /// Sets the algorithm; before the first part.
            fn doca_sha_task_partial_hash_set_algorithm(
                task: *mut doca_sha_task_partial_hash,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// The algorithm.
            fn doca_sha_task_partial_hash_get_algorithm(
                task: *const doca_sha_task_partial_hash
            ) -> doca_sha_algorithm;

            /// Marks the source as the last part of the message.
            fn doca_sha_task_partial_hash_set_is_final_buf(
                task: *mut doca_sha_task_partial_hash
            ) -> doca_error_t;

            /// 1 if the source is the last part of the message.
            fn doca_sha_task_partial_hash_get_is_final(task: *const doca_sha_task_partial_hash) -> u8;

            /// 1 if the digest was appended to the destination.
            fn doca_sha_task_partial_hash_get_has_result(task: *const doca_sha_task_partial_hash) -> u8;

            /// The generic task of a partial hash task.
            fn doca_sha_task_partial_hash_as_task(task: *mut doca_sha_task_partial_hash) -> *mut doca_task;
        }
    };
}
