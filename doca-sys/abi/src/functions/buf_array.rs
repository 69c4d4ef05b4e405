//! Arrays of bufs for GPUs and the DPA. See [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_buf_array_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_buf_array.h";

            /// Creates an array of bufs for a GPU or the DPA.
            fn doca_buf_arr_create(num_elem: usize, buf_arr: *mut *mut doca_buf_arr) -> doca_error_t;

            /// Creates the array on a GPU; there is none in software.
            fn doca_buf_arr_set_target_gpu(
                buf_arr: *mut doca_buf_arr,
                gpu_handler: *mut doca_gpu
            ) -> doca_error_t;

            /// Creates the array on the DPA; there is none in software.
            fn doca_buf_arr_set_target_dpa(
                buf_arr: *mut doca_buf_arr,
                dpa_handler: *mut doca_dpa
            ) -> doca_error_t;

            /// Sets the memory that the elements are parts of; before the start.
            fn doca_buf_arr_set_params(
                buf_arr: *mut doca_buf_arr,
                mmap: *mut doca_mmap,
                elem_size: usize,
                start_offset: u64
            ) -> doca_error_t;

            /// Makes the array; the memory map must have been started.
            fn doca_buf_arr_start(buf_arr: *mut doca_buf_arr) -> doca_error_t;

            /// Undoes the start.
            fn doca_buf_arr_stop(buf_arr: *mut doca_buf_arr) -> doca_error_t;

            /// Destroys an array.
            fn doca_buf_arr_destroy(buf_arr: *mut doca_buf_arr) -> doca_error_t;

            /// The array as a GPU sees it; there is none in software.
            fn doca_buf_arr_get_gpu_handle(
                buf_arr: *const doca_buf_arr,
                gpu_buf_arr: *mut *mut doca_gpu_buf_arr
            ) -> doca_error_t;

            /// The array as the DPA sees it; there is none in software.
            fn doca_buf_arr_get_dpa_handle(buf_arr: *const doca_buf_arr, dpa_buf_arr: *mut u64) -> doca_error_t;
        }
    };
}
