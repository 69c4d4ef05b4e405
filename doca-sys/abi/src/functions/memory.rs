//! Memory maps and advice on them, bufs, their inventories, pools and arrays. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_mmap_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_mmap.h";

            /// Creates a memory map: unstarted, without range or device, permission local read-write.
            fn doca_mmap_create(mmap: *mut *mut doca_mmap) -> doca_error_t;

            /// Imports another process's memory from its export descriptor; usable without a start.
            fn doca_mmap_create_from_export(
                user_data: *const doca_data,
                export_desc: *const c_void,
                export_desc_len: usize,
                dev: *mut doca_dev,
                mmap: *mut *mut doca_mmap
            ) -> doca_error_t;

            /// Destroys a memory map; `DOCA_ERROR_IN_USE` while bufs of it exist.
            fn doca_mmap_destroy(mmap: *mut doca_mmap) -> doca_error_t;

            /// Registers the range with the devices; range, devices and permissions cannot be changed afterwards.
            fn doca_mmap_start(mmap: *mut doca_mmap) -> doca_error_t;

            /// Withdraws the registration, and with it every export.
            fn doca_mmap_stop(mmap: *mut doca_mmap) -> doca_error_t;

            /// Adds a device to an unstarted memory map.
            fn doca_mmap_add_dev(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;

            /// Sets the range, which the caller must keep valid until the map is stopped.
            fn doca_mmap_set_memrange(
                mmap: *mut doca_mmap,
                addr: *mut c_void,
                len: usize
            ) -> doca_error_t;

            /// First address and length in bytes; for an imported map the addresses are those of the exporter.
            fn doca_mmap_get_memrange(
                mmap: *const doca_mmap,
                addr: *mut *mut c_void,
                len: *mut usize
            ) -> doca_error_t;

            /// Sets the permissions, [`doca_access_flag`] values or-ed together.
            fn doca_mmap_set_permissions(
                mmap: *mut doca_mmap,
                access_mask: u32
            ) -> doca_error_t;

            /// Allows several threads to use the object concurrently.
            fn doca_mmap_enable_thread_safety(mmap: *mut doca_mmap) -> doca_error_t;

            /// Export descriptor for a peer across PCIe; owned by the map, valid until it is stopped.
            fn doca_mmap_export_pci(
                mmap: *mut doca_mmap,
                dev: *const doca_dev,
                export_desc: *mut *const c_void,
                export_desc_len: *mut usize
            ) -> doca_error_t;

            /// Export descriptor for RDMA peers; owned by the map, valid until it is stopped.
            fn doca_mmap_export_rdma(
                mmap: *mut doca_mmap,
                dev: *const doca_dev,
                export_desc: *mut *const c_void,
                export_desc_len: *mut usize
            ) -> doca_error_t;

            /// Sets the user data.
            fn doca_mmap_set_user_data(mmap: *mut doca_mmap, user_data: doca_data) -> doca_error_t;

            /// The value set by [`doca_mmap_set_user_data`], or passed to [`doca_mmap_create_from_export`].
            fn doca_mmap_get_user_data(
                mmap: *const doca_mmap,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// Number of bufs of the map.
            fn doca_mmap_get_num_bufs(mmap: *const doca_mmap, num_bufs: *mut u32) -> doca_error_t;

            /// 1 if the map was exported.
            fn doca_mmap_get_exported(mmap: *const doca_mmap, exported: *mut u8) -> doca_error_t;

            /// 1 if the map was imported.
            fn doca_mmap_get_from_export(
                mmap: *const doca_mmap,
                from_export: *mut u8
            ) -> doca_error_t;

            /// 1 if the device can export maps across PCIe.
            fn doca_mmap_cap_is_export_pci_supported(
                devinfo: *const doca_devinfo,
                mmap_export: *mut u8
            ) -> doca_error_t;

            /// 1 if the device can import maps across PCIe.
            fn doca_mmap_cap_is_create_from_export_pci_supported(
                devinfo: *const doca_devinfo,
                from_export: *mut u8
            ) -> doca_error_t;

            /// Removes a device from an unstarted memory map.
            fn doca_mmap_rm_dev(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t;

            /// Sets the maximum number of devices; only before the start.
            fn doca_mmap_set_max_num_devices(
                mmap: *mut doca_mmap,
                max_num_devices: u32
            ) -> doca_error_t;

            /// Gets the maximum number of devices.
            fn doca_mmap_get_max_num_devices(
                mmap: *const doca_mmap,
                max_num_devices: *mut u32
            ) -> doca_error_t;

            /// Sets the callback for the range when the map is destroyed, called only if the map was started after this.
            fn doca_mmap_set_free_cb(
                mmap: *mut doca_mmap,
                free_cb: doca_mmap_memrange_free_cb_t,
                opaque: *mut c_void
            ) -> doca_error_t;

            /// Sets a range of a DMA-BUF; not supported in software.
            fn doca_mmap_set_dmabuf_memrange(
                mmap: *mut doca_mmap,
                dmabuf_fd: c_int,
                addr: *mut c_void,
                dmabuf_offset: usize,
                len: usize
            ) -> doca_error_t;

            /// Gets the handle of the map for the DPA; not supported in software.
            fn doca_mmap_dev_get_dpa_handle(
                mmap: *mut doca_mmap,
                dev: *const doca_dev,
                dpa_mmap_handle: *mut u32
            ) -> doca_error_t;

            /// Sets a range of a DPA's memory; not supported in software.
            fn doca_mmap_set_dpa_memrange(
                mmap: *mut doca_mmap,
                dpa: *mut doca_dpa,
                dpa_addr: u64,
                len: usize
            ) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_buf_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_buf.h";

            /// Removes a reference and writes the previous count; removing the last one returns the buf to its inventory.
            fn doca_buf_dec_refcount(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;

            /// Length in bytes of the buf's range.
            fn doca_buf_get_len(buf: *const doca_buf, len: *mut usize) -> doca_error_t;

            /// First address of the buf's range.
            fn doca_buf_get_head(buf: *const doca_buf, head: *mut *mut c_void) -> doca_error_t;

            /// Length in bytes of the data section.
            fn doca_buf_get_data_len(
                buf: *const doca_buf,
                data_len: *mut usize
            ) -> doca_error_t;

            /// First address of the data section.
            fn doca_buf_get_data(buf: *const doca_buf, data: *mut *mut c_void) -> doca_error_t;

            /// Moves the data section; it must be inside the range of the buf.
            fn doca_buf_set_data(
                buf: *mut doca_buf,
                data: *mut c_void,
                data_len: usize
            ) -> doca_error_t;

            /// Sets the length of the data section to 0; its start stays the same.
            fn doca_buf_reset_data_len(buf: *mut doca_buf) -> doca_error_t;

            /// The buf that follows in the list, or null.
            fn doca_buf_get_next_in_list(
                buf: *mut doca_buf,
                next_buf: *mut *mut doca_buf
            ) -> doca_error_t;

            /// Appends `list2` to `list1`; both must be heads of lists.
            fn doca_buf_chain_list(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;

            /// Adds a reference and writes the previous count.
            fn doca_buf_inc_refcount(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t;

            /// Number of references.
            fn doca_buf_get_refcount(buf: *const doca_buf, refcount: *mut u16) -> doca_error_t;

            /// Sets the length of the data section; its start stays the same.
            fn doca_buf_set_data_len(buf: *mut doca_buf, data_len: usize) -> doca_error_t;

            /// The last buf of the list, which may be the buf itself.
            fn doca_buf_get_last_in_list(
                buf: *mut doca_buf,
                last_buf: *mut *mut doca_buf
            ) -> doca_error_t;

            /// 1 if no buf follows it in the list.
            fn doca_buf_is_last_in_list(buf: *const doca_buf, is_last: *mut u8) -> doca_error_t;

            /// 1 if no buf precedes it in the list.
            fn doca_buf_is_first_in_list(buf: *const doca_buf, is_first: *mut u8) -> doca_error_t;

            /// 1 if the buf is chained to others.
            fn doca_buf_is_in_list(buf: *const doca_buf, is_in_list: *mut u8) -> doca_error_t;

            /// Number of bufs in the list that starts with this one.
            fn doca_buf_get_list_len(buf: *const doca_buf, num_elements: *mut u32) -> doca_error_t;

            /// Appends `list2` to `list1`, whose last buf the caller knows.
            fn doca_buf_chain_list_tail(
                list1_head: *mut doca_buf,
                list1_tail: *mut doca_buf,
                list2: *mut doca_buf
            ) -> doca_error_t;

            /// Splits the list that starts with `list1` before `list2`.
            fn doca_buf_unchain_list(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_buf_inventory_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_buf_inventory.h";

            /// Creates a pool of `num_elements` bufs.
            fn doca_buf_inventory_create(
                num_elements: usize,
                inventory: *mut *mut doca_buf_inventory
            ) -> doca_error_t;

            /// Destroys a stopped pool.
            fn doca_buf_inventory_destroy(inventory: *mut doca_buf_inventory) -> doca_error_t;

            /// Starts the pool; bufs can be taken from then on.
            fn doca_buf_inventory_start(inventory: *mut doca_buf_inventory) -> doca_error_t;

            /// Stops the pool.
            fn doca_buf_inventory_stop(inventory: *mut doca_buf_inventory) -> doca_error_t;

            /// Takes a buf over `len` bytes at `addr` whose data section is `data_len` bytes at `data`.
            fn doca_buf_inventory_buf_get_by_args(
                inventory: *mut doca_buf_inventory,
                mmap: *mut doca_mmap,
                addr: *mut c_void,
                len: usize,
                data: *mut c_void,
                data_len: usize,
                buf: *mut *mut doca_buf
            ) -> doca_error_t;

            /// Takes a buf over `len` bytes at `addr` without data. Inline in the headers of NVIDIA's SDK.
            fn doca_buf_inventory_buf_get_by_addr(
                inventory: *mut doca_buf_inventory,
                mmap: *mut doca_mmap,
                addr: *mut c_void,
                len: usize,
                buf: *mut *mut doca_buf
            ) -> doca_error_t;

            /// Takes a buf whose range and data section are both `data_len` bytes at `data`. Inline in the headers of NVIDIA's SDK.
            fn doca_buf_inventory_buf_get_by_data(
                inventory: *mut doca_buf_inventory,
                mmap: *mut doca_mmap,
                data: *mut c_void,
                data_len: usize,
                buf: *mut *mut doca_buf
            ) -> doca_error_t;

            /// Sets a buf's range and data section within its memory map; links to other bufs are kept.
            fn doca_buf_inventory_buf_reuse_by_args(
                buf: *mut doca_buf,
                addr: *mut c_void,
                len: usize,
                data: *mut c_void,
                data_len: usize
            ) -> doca_error_t;

            /// Sets a buf's range to `len` bytes at `addr`, without data. Inline in the headers of NVIDIA's SDK.
            fn doca_buf_inventory_buf_reuse_by_addr(
                buf: *mut doca_buf,
                addr: *mut c_void,
                len: usize
            ) -> doca_error_t;

            /// Sets a buf's range and data section both to `data_len` bytes at `data`. Inline in the headers of NVIDIA's SDK.
            fn doca_buf_inventory_buf_reuse_by_data(
                buf: *mut doca_buf,
                data: *mut c_void,
                data_len: usize
            ) -> doca_error_t;

            /// Takes copies of the descriptors of a buf or a list.
            fn doca_buf_inventory_buf_dup(
                inventory: *mut doca_buf_inventory,
                src_buf: *const doca_buf,
                dst_buf: *mut *mut doca_buf
            ) -> doca_error_t;

            /// Adds bufs to a started pool.
            fn doca_buf_inventory_expand(
                inventory: *mut doca_buf_inventory,
                num_elements: u32
            ) -> doca_error_t;

            /// Total number of bufs.
            fn doca_buf_inventory_get_num_elements(
                inventory: *const doca_buf_inventory,
                num_of_elements: *mut u32
            ) -> doca_error_t;

            /// Number of free bufs.
            fn doca_buf_inventory_get_num_free_elements(
                inventory: *const doca_buf_inventory,
                num_of_free_elements: *mut u32
            ) -> doca_error_t;

            /// Sets the user data.
            fn doca_buf_inventory_set_user_data(
                inventory: *mut doca_buf_inventory,
                user_data: doca_data
            ) -> doca_error_t;

            /// The value set by [`doca_buf_inventory_set_user_data`].
            fn doca_buf_inventory_get_user_data(
                inventory: *const doca_buf_inventory,
                user_data: *mut doca_data
            ) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_buf_pool_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_buf_pool.h";

            /// Creates a pool of bufs, each with a fixed part of a memory map.
            fn doca_buf_pool_create(
                num_elements: usize,
                element_size: usize,
                mmap: *const doca_mmap,
                buf_pool: *mut *mut doca_buf_pool
            ) -> doca_error_t;

            /// Destroys a pool; all bufs must have been returned.
            fn doca_buf_pool_destroy(buf_pool: *mut doca_buf_pool) -> doca_error_t;

            /// Starts a pool: bufs can be taken; the memory map must have been started.
            fn doca_buf_pool_start(buf_pool: *mut doca_buf_pool) -> doca_error_t;

            /// Stops a pool: no further bufs can be taken.
            fn doca_buf_pool_stop(buf_pool: *mut doca_buf_pool) -> doca_error_t;

            /// Takes a buf without data; returned with `doca_buf_dec_refcount`.
            fn doca_buf_pool_buf_alloc(buf_pool: *mut doca_buf_pool, buf: *mut *mut doca_buf) -> doca_error_t;

            /// Sets the user data.
            fn doca_buf_pool_set_user_data(buf_pool: *mut doca_buf_pool, user_data: doca_data) -> doca_error_t;

            /// Sets the alignment of the parts in bytes, a power of two; only before the start.
            fn doca_buf_pool_set_element_alignment(
                buf_pool: *mut doca_buf_pool,
                element_alignment: usize
            ) -> doca_error_t;

            /// Number of bufs.
            fn doca_buf_pool_get_num_elements(
                buf_pool: *const doca_buf_pool,
                num_of_elements: *mut u32
            ) -> doca_error_t;

            /// Number of free bufs.
            fn doca_buf_pool_get_num_free_elements(
                buf_pool: *const doca_buf_pool,
                num_of_free_elements: *mut u32
            ) -> doca_error_t;

            /// The user data; 0 by default.
            fn doca_buf_pool_get_user_data(
                buf_pool: *const doca_buf_pool,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// Alignment of the parts in bytes; 1 by default.
            fn doca_buf_pool_get_element_alignment(
                buf_pool: *const doca_buf_pool,
                element_alignment: *mut usize
            ) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_buf_array_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_buf_array.h";

            /// Creates an array of bufs for a GPU or the DPA.
            fn doca_buf_arr_create(num_elem: usize, buf_arr: *mut *mut doca_buf_arr) -> doca_error_t;

            /// Creates the array on a GPU; not supported in software.
            fn doca_buf_arr_set_target_gpu(
                buf_arr: *mut doca_buf_arr,
                gpu_handler: *mut doca_gpu
            ) -> doca_error_t;

            /// Creates the array on the DPA; not supported in software.
            fn doca_buf_arr_set_target_dpa(
                buf_arr: *mut doca_buf_arr,
                dpa_handler: *mut doca_dpa
            ) -> doca_error_t;

            /// Sets the memory of the elements; only before the start.
            fn doca_buf_arr_set_params(
                buf_arr: *mut doca_buf_arr,
                mmap: *mut doca_mmap,
                elem_size: usize,
                start_offset: u64
            ) -> doca_error_t;

            /// Starts the array; the memory map must have been started.
            fn doca_buf_arr_start(buf_arr: *mut doca_buf_arr) -> doca_error_t;

            /// Stops the array.
            fn doca_buf_arr_stop(buf_arr: *mut doca_buf_arr) -> doca_error_t;

            /// Destroys an array.
            fn doca_buf_arr_destroy(buf_arr: *mut doca_buf_arr) -> doca_error_t;

            /// Gets the handle of the array for a GPU; not supported in software.
            fn doca_buf_arr_get_gpu_handle(
                buf_arr: *const doca_buf_arr,
                gpu_buf_arr: *mut *mut doca_gpu_buf_arr
            ) -> doca_error_t;

            /// Gets the handle of the array for the DPA; not supported in software.
            fn doca_buf_arr_get_dpa_handle(buf_arr: *const doca_buf_arr, dpa_buf_arr: *mut u64) -> doca_error_t;
        }
    };
}

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

            /// Gets the maximum number of bytes that one task can cover.
            fn doca_mmap_advise_task_cache_invalidate_get_max_buf_size(
                devinfo: *const doca_devinfo,
                buf_size: *mut u64
            ) -> doca_error_t;

            /// Sets the callbacks and the number of tasks; only before the start.
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

            /// Sets the task's buf; not allowed while the task is in flight.
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
