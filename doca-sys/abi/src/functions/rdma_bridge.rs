//! The bridge to rdma-core. See [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_rdma_bridge_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_rdma_bridge.h";

            /// Protection domain of a device in rdma-core; emulated devices have none.
            fn doca_rdma_bridge_get_dev_pd(dev: *const doca_dev, pd: *mut *mut ibv_pd) -> doca_error_t;

            /// Opens the device of a protection domain of rdma-core; emulated devices have none.
            fn doca_rdma_bridge_open_dev_from_pd(pd: *mut ibv_pd, dev: *mut *mut doca_dev) -> doca_error_t;

            /// Key of a buf's memory for a device.
            fn doca_rdma_bridge_get_buf_mkey(
                buf: *const doca_buf,
                dev: *mut doca_dev,
                mkey: *mut u32
            ) -> doca_error_t;

            /// Key of a map's memory in a protection domain of rdma-core; emulated devices have none.
            fn doca_rdma_bridge_get_mmap_mkey_from_pd(
                mmap: *const doca_mmap,
                pd: *mut ibv_pd,
                mkey: *mut u32
            ) -> doca_error_t;
        }
    };
}
