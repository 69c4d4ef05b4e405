//! Compression and decompression. One macro per header; see [`doca_functions!`](crate::doca_functions).

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

            /// Sets the callbacks and the number of deflate compression tasks; before the start.
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

            /// Sets the callbacks and the number of deflate decompression tasks; before the start.
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

            /// Sets the callbacks and the number of LZ4 stream decompression tasks; before the start.
            fn doca_compress_task_decompress_lz4_stream_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_decompress_lz4_stream_completion_cb_t,
                task_error_cb: doca_compress_task_decompress_lz4_stream_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that decompresses the blocks of an LZ4 frame, without its header and end mark, and appends the result to the destination's data.
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

            /// Sets if no block refers to an earlier one.
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

            /// Sets the callbacks and the number of LZ4 block decompression tasks; before the start.
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
