//! Pools of bufs over equal parts of a memory map. See [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_buf_pool_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_buf_pool.h";

            /// Creates a pool of bufs that have a part of a memory map each, for good.
            fn doca_buf_pool_create(
                num_elements: usize,
                element_size: usize,
                mmap: *const doca_mmap,
                buf_pool: *mut *mut doca_buf_pool
            ) -> doca_error_t;

            /// Destroys a pool; all bufs must have been given back.
            fn doca_buf_pool_destroy(buf_pool: *mut doca_buf_pool) -> doca_error_t;

            /// Lets bufs be taken; the memory map must have been started.
            fn doca_buf_pool_start(buf_pool: *mut doca_buf_pool) -> doca_error_t;

            /// Lets no more bufs be taken.
            fn doca_buf_pool_stop(buf_pool: *mut doca_buf_pool) -> doca_error_t;

            /// Takes a buf without data; `doca_buf_dec_refcount` gives it back.
            fn doca_buf_pool_buf_alloc(buf_pool: *mut doca_buf_pool, buf: *mut *mut doca_buf) -> doca_error_t;

            /// Sets a value of the program.
            fn doca_buf_pool_set_user_data(buf_pool: *mut doca_buf_pool, user_data: doca_data) -> doca_error_t;

            /// Sets what the address of each part is a multiple of: a power of two; before the start.
            fn doca_buf_pool_set_element_alignment(
                buf_pool: *mut doca_buf_pool,
                element_alignment: usize
            ) -> doca_error_t;

            /// Number of bufs.
            fn doca_buf_pool_get_num_elements(
                buf_pool: *const doca_buf_pool,
                num_of_elements: *mut u32
            ) -> doca_error_t;

            /// Number of bufs that can be taken.
            fn doca_buf_pool_get_num_free_elements(
                buf_pool: *const doca_buf_pool,
                num_of_free_elements: *mut u32
            ) -> doca_error_t;

            /// The value of the program, 0 until set.
            fn doca_buf_pool_get_user_data(
                buf_pool: *const doca_buf_pool,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// What the address of each part is a multiple of, 1 until set.
            fn doca_buf_pool_get_element_alignment(
                buf_pool: *const doca_buf_pool,
                element_alignment: *mut usize
            ) -> doca_error_t;
        }
    };
}
