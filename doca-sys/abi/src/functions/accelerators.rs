//! Copies of memory, compression and erasure coding. One macro per header; see
//! [`doca_functions!`](crate::doca_functions).

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

            /// Sets the callbacks and the number of copy tasks; only before the start.
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

#[doc(hidden)]
#[macro_export]
macro_rules! doca_compress_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_compress.h";

            /// Creates a compress instance on a device.
            fn doca_compress_create(
                dev: *mut doca_dev,
                compress: *mut *mut doca_compress
            ) -> doca_error_t;

            /// Destroys an idle compress instance.
            fn doca_compress_destroy(compress: *mut doca_compress) -> doca_error_t;

            /// The compress instance's context.
            fn doca_compress_as_ctx(compress: *mut doca_compress) -> *mut doca_ctx;

            /// Gets the maximum number of tasks of an instance, all kinds together.
            fn doca_compress_cap_get_max_num_tasks(
                compress: *mut doca_compress,
                max_num_tasks: *mut u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can compress by deflate.
            fn doca_compress_cap_task_compress_deflate_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Gets the maximum size of a buf of a deflate compression task, in bytes.
            fn doca_compress_cap_task_compress_deflate_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list of a deflate compression task; 1 means that lists are not supported.
            fn doca_compress_cap_task_compress_deflate_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets the callbacks and the number of deflate compression tasks; only before the start.
            fn doca_compress_task_compress_deflate_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_compress_deflate_completion_cb_t,
                task_error_cb: doca_compress_task_compress_deflate_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that compresses the source's data with deflate and appends the result to the destination's data.
            fn doca_compress_task_compress_deflate_alloc_init(
                compress: *mut doca_compress,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_compress_task_compress_deflate
            ) -> doca_error_t;

            /// The generic task of a deflate compression task.
            fn doca_compress_task_compress_deflate_as_task(
                task: *mut doca_compress_task_compress_deflate
            ) -> *mut doca_task;

            /// Sets the task's source.
            fn doca_compress_task_compress_deflate_set_src(
                task: *mut doca_compress_task_compress_deflate,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_compress_deflate_get_src(
                task: *const doca_compress_task_compress_deflate
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_compress_task_compress_deflate_set_dst(
                task: *mut doca_compress_task_compress_deflate,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_compress_deflate_get_dst(
                task: *const doca_compress_task_compress_deflate
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a successful task.
            fn doca_compress_task_compress_deflate_get_crc_cs(
                task: *const doca_compress_task_compress_deflate
            ) -> u32;

            /// Adler-32 of the uncompressed data of a successful task.
            fn doca_compress_task_compress_deflate_get_adler_cs(
                task: *const doca_compress_task_compress_deflate
            ) -> u32;

            /// `DOCA_SUCCESS` if the device can decompress deflate.
            fn doca_compress_cap_task_decompress_deflate_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Gets the maximum size of a buf of a deflate decompression task, in bytes.
            fn doca_compress_cap_task_decompress_deflate_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list of a deflate decompression task; 1 means that lists are not supported.
            fn doca_compress_cap_task_decompress_deflate_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets the callbacks and the number of deflate decompression tasks; only before the start.
            fn doca_compress_task_decompress_deflate_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_decompress_deflate_completion_cb_t,
                task_error_cb: doca_compress_task_decompress_deflate_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that decompresses the source's deflate data and appends the result to the destination's data.
            fn doca_compress_task_decompress_deflate_alloc_init(
                compress: *mut doca_compress,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_compress_task_decompress_deflate
            ) -> doca_error_t;

            /// The generic task of a deflate decompression task.
            fn doca_compress_task_decompress_deflate_as_task(
                task: *mut doca_compress_task_decompress_deflate
            ) -> *mut doca_task;

            /// Sets the task's source.
            fn doca_compress_task_decompress_deflate_set_src(
                task: *mut doca_compress_task_decompress_deflate,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_decompress_deflate_get_src(
                task: *const doca_compress_task_decompress_deflate
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_compress_task_decompress_deflate_set_dst(
                task: *mut doca_compress_task_decompress_deflate,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_decompress_deflate_get_dst(
                task: *const doca_compress_task_decompress_deflate
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a successful task.
            fn doca_compress_task_decompress_deflate_get_crc_cs(
                task: *const doca_compress_task_decompress_deflate
            ) -> u32;

            /// Adler-32 of the uncompressed data of a successful task.
            fn doca_compress_task_decompress_deflate_get_adler_cs(
                task: *const doca_compress_task_decompress_deflate
            ) -> u32;

            /// `DOCA_SUCCESS` if the device can decompress LZ4 streams.
            fn doca_compress_cap_task_decompress_lz4_stream_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Gets the maximum size of a buf of an LZ4 stream decompression task, in bytes.
            fn doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list of an LZ4 stream decompression task; 1 means that lists are not supported.
            fn doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets the callbacks and the number of LZ4 stream decompression tasks; only before the start.
            fn doca_compress_task_decompress_lz4_stream_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_decompress_lz4_stream_completion_cb_t,
                task_error_cb: doca_compress_task_decompress_lz4_stream_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that decompresses the blocks of an LZ4 frame, without its header and end mark, and
            /// appends the result to the destination's data.
            fn doca_compress_task_decompress_lz4_stream_alloc_init(
                compress: *mut doca_compress,
                has_block_checksum: u8,
                are_blocks_independent: u8,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_compress_task_decompress_lz4_stream
            ) -> doca_error_t;

            /// The generic task of an LZ4 stream decompression task.
            fn doca_compress_task_decompress_lz4_stream_as_task(
                task: *mut doca_compress_task_decompress_lz4_stream
            ) -> *mut doca_task;

            /// Sets if a checksum follows each block.
            fn doca_compress_task_decompress_lz4_stream_set_has_block_checksum(
                task: *mut doca_compress_task_decompress_lz4_stream,
                has_block_checksum: u8
            );

            /// 1 if a checksum follows each block.
            fn doca_compress_task_decompress_lz4_stream_get_has_block_checksum(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u8;

            /// Declares whether no block refers to an earlier one.
            fn doca_compress_task_decompress_lz4_stream_set_are_blocks_independent(
                task: *mut doca_compress_task_decompress_lz4_stream,
                are_blocks_independent: u8
            );

            /// 1 if no block refers to an earlier one.
            fn doca_compress_task_decompress_lz4_stream_get_are_blocks_independent(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u8;

            /// Sets the task's source.
            fn doca_compress_task_decompress_lz4_stream_set_src(
                task: *mut doca_compress_task_decompress_lz4_stream,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_decompress_lz4_stream_get_src(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_compress_task_decompress_lz4_stream_set_dst(
                task: *mut doca_compress_task_decompress_lz4_stream,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_decompress_lz4_stream_get_dst(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a successful task.
            fn doca_compress_task_decompress_lz4_stream_get_crc_cs(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u32;

            /// xxHash-32 of the uncompressed data of a successful task, with its bytes in the order of the hash's canonical form.
            fn doca_compress_task_decompress_lz4_stream_get_xxh_cs(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u32;

            /// `DOCA_SUCCESS` if the device can decompress LZ4 blocks.
            fn doca_compress_cap_task_decompress_lz4_block_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Gets the maximum size of a buf of an LZ4 block decompression task, in bytes.
            fn doca_compress_cap_task_decompress_lz4_block_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list of an LZ4 block decompression task; 1 means that lists are not supported.
            fn doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets the callbacks and the number of LZ4 block decompression tasks; only before the start.
            fn doca_compress_task_decompress_lz4_block_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_decompress_lz4_block_completion_cb_t,
                task_error_cb: doca_compress_task_decompress_lz4_block_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that decompresses one LZ4 block, without its length, and appends the result to the destination's data.
            fn doca_compress_task_decompress_lz4_block_alloc_init(
                compress: *mut doca_compress,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_compress_task_decompress_lz4_block
            ) -> doca_error_t;

            /// The generic task of an LZ4 block decompression task.
            fn doca_compress_task_decompress_lz4_block_as_task(
                task: *mut doca_compress_task_decompress_lz4_block
            ) -> *mut doca_task;

            /// Sets the task's source.
            fn doca_compress_task_decompress_lz4_block_set_src(
                task: *mut doca_compress_task_decompress_lz4_block,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_decompress_lz4_block_get_src(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_compress_task_decompress_lz4_block_set_dst(
                task: *mut doca_compress_task_decompress_lz4_block,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_decompress_lz4_block_get_dst(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a successful task.
            fn doca_compress_task_decompress_lz4_block_get_crc_cs(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> u32;

            /// xxHash-32 of the uncompressed data of a successful task, with its bytes in the order of the hash's canonical form.
            fn doca_compress_task_decompress_lz4_block_get_xxh_cs(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> u32;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_erasure_coding_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_erasure_coding.h";

            /// Creates an erasure-coding instance on a device.
            fn doca_ec_create(dev: *mut doca_dev, ec: *mut *mut doca_ec) -> doca_error_t;

            /// Destroys an idle erasure-coding instance.
            fn doca_ec_destroy(ec: *mut doca_ec) -> doca_error_t;

            /// The erasure-coding instance's context.
            fn doca_ec_as_ctx(ec: *mut doca_ec) -> *mut doca_ctx;

            /// Gets the maximum block size in bytes.
            fn doca_ec_cap_get_max_block_size(
                devinfo: *const doca_devinfo,
                max_block_size: *mut u64
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list of a task; 1 means that lists are not supported.
            fn doca_ec_cap_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Creates a coding matrix of a type, a [`doca_ec_matrix_type`] value.
            fn doca_ec_matrix_create(
                ec: *mut doca_ec,
                matrix_type: doca_ec_matrix_type,
                data_block_count: usize,
                rdnc_block_count: usize,
                matrix: *mut *mut doca_ec_matrix
            ) -> doca_error_t;

            /// Creates a coding matrix from factors, ordered by data block and then by redundancy block.
            fn doca_ec_matrix_create_from_raw(
                ec: *mut doca_ec,
                data: *mut u8,
                data_block_count: usize,
                rdnc_block_count: usize,
                matrix: *mut *mut doca_ec_matrix
            ) -> doca_error_t;

            /// Creates the matrix that updates redundancy after data blocks (in ascending order) have changed.
            fn doca_ec_matrix_create_update(
                ec: *mut doca_ec,
                coding_matrix: *const doca_ec_matrix,
                update_indices: *mut u32,
                n_updates: usize,
                matrix: *mut *mut doca_ec_matrix
            ) -> doca_error_t;

            /// Creates the matrix that recovers missing blocks (in ascending order).
            fn doca_ec_matrix_create_recover(
                ec: *mut doca_ec,
                coding_matrix: *const doca_ec_matrix,
                missing_indices: *mut u32,
                n_missing: usize,
                matrix: *mut *mut doca_ec_matrix
            ) -> doca_error_t;

            /// Destroys a matrix; tasks that were allocated with it stay valid.
            fn doca_ec_matrix_destroy(matrix: *mut doca_ec_matrix) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can multiply blocks by a matrix.
            fn doca_ec_cap_task_galois_mul_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets the callbacks and the number of multiplication tasks; only before the start.
            fn doca_ec_task_galois_mul_set_conf(
                ec: *mut doca_ec,
                successful_task_completion_cb: doca_ec_task_galois_mul_completion_cb_t,
                error_task_completion_cb: doca_ec_task_galois_mul_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that multiplies a sequence of blocks by a matrix.
            fn doca_ec_task_galois_mul_allocate_init(
                ec: *mut doca_ec,
                coding_matrix: *const doca_ec_matrix,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_ec_task_galois_mul
            ) -> doca_error_t;

            /// The generic task of a multiplication task.
            fn doca_ec_task_galois_mul_as_task(
                task: *mut doca_ec_task_galois_mul
            ) -> *mut doca_task;

            /// Sets the task's matrix.
            fn doca_ec_task_galois_mul_set_coding_matrix(
                task: *mut doca_ec_task_galois_mul,
                coding_matrix: *const doca_ec_matrix
            );

            /// The task's matrix.
            fn doca_ec_task_galois_mul_get_coding_matrix(
                task: *const doca_ec_task_galois_mul
            ) -> *const doca_ec_matrix;

            /// Sets the task's source.
            fn doca_ec_task_galois_mul_set_src_buf(
                task: *mut doca_ec_task_galois_mul,
                src_buf: *const doca_buf
            );

            /// The task's source.
            fn doca_ec_task_galois_mul_get_src_buf(
                task: *const doca_ec_task_galois_mul
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_ec_task_galois_mul_set_dst_buf(
                task: *mut doca_ec_task_galois_mul,
                dst_buf: *mut doca_buf
            );

            /// The task's destination.
            fn doca_ec_task_galois_mul_get_dst_buf(
                task: *const doca_ec_task_galois_mul
            ) -> *mut doca_buf;

            /// `DOCA_SUCCESS` if the device can create redundancy.
            fn doca_ec_cap_task_create_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Sets the callbacks and the number of create tasks; only before the start.
            fn doca_ec_task_create_set_conf(
                ec: *mut doca_ec,
                successful_task_completion_cb: doca_ec_task_create_completion_cb_t,
                error_task_completion_cb: doca_ec_task_create_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that creates all redundancy blocks of a sequence of data blocks.
            fn doca_ec_task_create_allocate_init(
                ec: *mut doca_ec,
                coding_matrix: *const doca_ec_matrix,
                original_data_blocks: *const doca_buf,
                rdnc_blocks: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_ec_task_create
            ) -> doca_error_t;

            /// The generic task of a create task.
            fn doca_ec_task_create_as_task(task: *mut doca_ec_task_create) -> *mut doca_task;

            /// Sets the task's matrix.
            fn doca_ec_task_create_set_coding_matrix(
                task: *mut doca_ec_task_create,
                coding_matrix: *const doca_ec_matrix
            );

            /// The task's matrix.
            fn doca_ec_task_create_get_coding_matrix(
                task: *const doca_ec_task_create
            ) -> *const doca_ec_matrix;

            /// Sets the task's source.
            fn doca_ec_task_create_set_original_data_blocks(
                task: *mut doca_ec_task_create,
                original_data_blocks: *const doca_buf
            );

            /// The task's source.
            fn doca_ec_task_create_get_original_data_blocks(
                task: *const doca_ec_task_create
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_ec_task_create_set_rdnc_blocks(
                task: *mut doca_ec_task_create,
                rdnc_blocks: *mut doca_buf
            );

            /// The task's destination.
            fn doca_ec_task_create_get_rdnc_blocks(
                task: *const doca_ec_task_create
            ) -> *mut doca_buf;

            /// `DOCA_SUCCESS` if the device can update redundancy.
            fn doca_ec_cap_task_update_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Sets the callbacks and the number of update tasks; only before the start.
            fn doca_ec_task_update_set_conf(
                ec: *mut doca_ec,
                successful_task_completion_cb: doca_ec_task_update_completion_cb_t,
                error_task_completion_cb: doca_ec_task_update_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that updates redundancy blocks: the source is each changed block, old and new, and then the old redundancy.
            fn doca_ec_task_update_allocate_init(
                ec: *mut doca_ec,
                update_matrix: *const doca_ec_matrix,
                original_updated_and_rdnc_blocks: *const doca_buf,
                updated_rdnc_blocks: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_ec_task_update
            ) -> doca_error_t;

            /// The generic task of an update task.
            fn doca_ec_task_update_as_task(task: *mut doca_ec_task_update) -> *mut doca_task;

            /// Sets the task's matrix.
            fn doca_ec_task_update_set_update_matrix(
                task: *mut doca_ec_task_update,
                update_matrix: *const doca_ec_matrix
            );

            /// The task's matrix.
            fn doca_ec_task_update_get_update_matrix(
                task: *const doca_ec_task_update
            ) -> *const doca_ec_matrix;

            /// Sets the task's source.
            fn doca_ec_task_update_set_original_updated_and_rdnc_blocks(
                task: *mut doca_ec_task_update,
                original_updated_and_rdnc_blocks: *const doca_buf
            );

            /// The task's source.
            fn doca_ec_task_update_get_original_updated_and_rdnc_blocks(
                task: *const doca_ec_task_update
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_ec_task_update_set_updated_rdnc_blocks(
                task: *mut doca_ec_task_update,
                updated_rdnc_blocks: *mut doca_buf
            );

            /// The task's destination.
            fn doca_ec_task_update_get_updated_rdnc_blocks(
                task: *const doca_ec_task_update
            ) -> *mut doca_buf;

            /// `DOCA_SUCCESS` if the device can recover blocks.
            fn doca_ec_cap_task_recover_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Sets the callbacks and the number of recover tasks; only before the start.
            fn doca_ec_task_recover_set_conf(
                ec: *mut doca_ec,
                successful_task_completion_cb: doca_ec_task_recover_completion_cb_t,
                error_task_completion_cb: doca_ec_task_recover_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that recovers missing blocks. The source contains as many available blocks as there are
            /// data blocks.
            fn doca_ec_task_recover_allocate_init(
                ec: *mut doca_ec,
                recover_matrix: *const doca_ec_matrix,
                available_blocks: *const doca_buf,
                recovered_data_blocks: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_ec_task_recover
            ) -> doca_error_t;

            /// The generic task of a recover task.
            fn doca_ec_task_recover_as_task(task: *mut doca_ec_task_recover) -> *mut doca_task;

            /// Sets the task's matrix.
            fn doca_ec_task_recover_set_recover_matrix(
                task: *mut doca_ec_task_recover,
                recover_matrix: *const doca_ec_matrix
            );

            /// The task's matrix.
            fn doca_ec_task_recover_get_recover_matrix(
                task: *const doca_ec_task_recover
            ) -> *const doca_ec_matrix;

            /// Sets the task's source.
            fn doca_ec_task_recover_set_available_blocks(
                task: *mut doca_ec_task_recover,
                available_blocks: *const doca_buf
            );

            /// The task's source.
            fn doca_ec_task_recover_get_available_blocks(
                task: *const doca_ec_task_recover
            ) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_ec_task_recover_set_recovered_data_blocks(
                task: *mut doca_ec_task_recover,
                recovered_data_blocks: *mut doca_buf
            );

            /// The task's destination.
            fn doca_ec_task_recover_get_recovered_data(
                task: *const doca_ec_task_recover
            ) -> *mut doca_buf;
        }
    };
}
