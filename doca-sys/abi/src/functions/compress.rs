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

            /// How many tasks of all kinds the instance can have.
            fn doca_compress_cap_get_max_num_tasks(
                compress: *mut doca_compress,
                max_num_tasks: *mut u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` when the device can compress by deflate.
            fn doca_compress_cap_task_compress_deflate_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// How many bytes a buf of a deflate compression task can have.
            fn doca_compress_cap_task_compress_deflate_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// How many bufs a list of a deflate compression task can have; 1 means no lists.
            fn doca_compress_cap_task_compress_deflate_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets callbacks and number of deflate compression tasks; before the start.
            fn doca_compress_task_compress_deflate_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_compress_deflate_completion_cb_t,
                task_error_cb: doca_compress_task_compress_deflate_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that compresses the source's data by deflate to the tail of the destination's data.
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

            /// Gives the task another source.
            fn doca_compress_task_compress_deflate_set_src(
                task: *mut doca_compress_task_compress_deflate,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_compress_deflate_get_src(
                task: *const doca_compress_task_compress_deflate
            ) -> *const doca_buf;

            /// Gives the task another destination.
            fn doca_compress_task_compress_deflate_set_dst(
                task: *mut doca_compress_task_compress_deflate,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_compress_deflate_get_dst(
                task: *const doca_compress_task_compress_deflate
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a task that succeeded.
            fn doca_compress_task_compress_deflate_get_crc_cs(
                task: *const doca_compress_task_compress_deflate
            ) -> u32;

            /// Adler-32 of the uncompressed data of a task that succeeded.
            fn doca_compress_task_compress_deflate_get_adler_cs(
                task: *const doca_compress_task_compress_deflate
            ) -> u32;

            /// `DOCA_SUCCESS` when the device can decompress deflate.
            fn doca_compress_cap_task_decompress_deflate_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// How many bytes a buf of a deflate decompression task can have.
            fn doca_compress_cap_task_decompress_deflate_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// How many bufs a list of a deflate decompression task can have; 1 means no lists.
            fn doca_compress_cap_task_decompress_deflate_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets callbacks and number of deflate decompression tasks; before the start.
            fn doca_compress_task_decompress_deflate_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_decompress_deflate_completion_cb_t,
                task_error_cb: doca_compress_task_decompress_deflate_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that decompresses the source's deflate data to the tail of the destination's data.
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

            /// Gives the task another source.
            fn doca_compress_task_decompress_deflate_set_src(
                task: *mut doca_compress_task_decompress_deflate,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_decompress_deflate_get_src(
                task: *const doca_compress_task_decompress_deflate
            ) -> *const doca_buf;

            /// Gives the task another destination.
            fn doca_compress_task_decompress_deflate_set_dst(
                task: *mut doca_compress_task_decompress_deflate,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_decompress_deflate_get_dst(
                task: *const doca_compress_task_decompress_deflate
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a task that succeeded.
            fn doca_compress_task_decompress_deflate_get_crc_cs(
                task: *const doca_compress_task_decompress_deflate
            ) -> u32;

            /// Adler-32 of the uncompressed data of a task that succeeded.
            fn doca_compress_task_decompress_deflate_get_adler_cs(
                task: *const doca_compress_task_decompress_deflate
            ) -> u32;

            /// `DOCA_SUCCESS` when the device can decompress LZ4 streams.
            fn doca_compress_cap_task_decompress_lz4_stream_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// How many bytes a buf of a LZ4 stream decompression task can have.
            fn doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// How many bufs a list of a LZ4 stream decompression task can have; 1 means no lists.
            fn doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets callbacks and number of LZ4 stream decompression tasks; before the start.
            fn doca_compress_task_decompress_lz4_stream_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_decompress_lz4_stream_completion_cb_t,
                task_error_cb: doca_compress_task_decompress_lz4_stream_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that decompresses the blocks of an LZ4 frame, without its header and end mark, to the tail of the destination's data.
            fn doca_compress_task_decompress_lz4_stream_alloc_init(
                compress: *mut doca_compress,
                has_block_checksum: u8,
                are_blocks_independent: u8,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_compress_task_decompress_lz4_stream
            ) -> doca_error_t;

            /// The generic task of a LZ4 stream decompression task.
            fn doca_compress_task_decompress_lz4_stream_as_task(
                task: *mut doca_compress_task_decompress_lz4_stream
            ) -> *mut doca_task;

            /// Says whether a checksum follows each block.
            fn doca_compress_task_decompress_lz4_stream_set_has_block_checksum(
                task: *mut doca_compress_task_decompress_lz4_stream,
                has_block_checksum: u8
            );

            /// Whether a checksum follows each block.
            fn doca_compress_task_decompress_lz4_stream_get_has_block_checksum(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u8;

            /// Says whether no block refers to an earlier one.
            fn doca_compress_task_decompress_lz4_stream_set_are_blocks_independent(
                task: *mut doca_compress_task_decompress_lz4_stream,
                are_blocks_independent: u8
            );

            /// Whether no block refers to an earlier one.
            fn doca_compress_task_decompress_lz4_stream_get_are_blocks_independent(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u8;

            /// Gives the task another source.
            fn doca_compress_task_decompress_lz4_stream_set_src(
                task: *mut doca_compress_task_decompress_lz4_stream,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_decompress_lz4_stream_get_src(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> *const doca_buf;

            /// Gives the task another destination.
            fn doca_compress_task_decompress_lz4_stream_set_dst(
                task: *mut doca_compress_task_decompress_lz4_stream,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_decompress_lz4_stream_get_dst(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a task that succeeded.
            fn doca_compress_task_decompress_lz4_stream_get_crc_cs(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u32;

            /// xxHash-32 of the uncompressed data of a task that succeeded, its bytes in the order of the hash's canonical form.
            fn doca_compress_task_decompress_lz4_stream_get_xxh_cs(
                task: *const doca_compress_task_decompress_lz4_stream
            ) -> u32;

            /// `DOCA_SUCCESS` when the device can decompress LZ4 blocks.
            fn doca_compress_cap_task_decompress_lz4_block_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// How many bytes a buf of a LZ4 block decompression task can have.
            fn doca_compress_cap_task_decompress_lz4_block_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// How many bufs a list of a LZ4 block decompression task can have; 1 means no lists.
            fn doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets callbacks and number of LZ4 block decompression tasks; before the start.
            fn doca_compress_task_decompress_lz4_block_set_conf(
                compress: *mut doca_compress,
                task_completion_cb: doca_compress_task_decompress_lz4_block_completion_cb_t,
                task_error_cb: doca_compress_task_decompress_lz4_block_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that decompresses one LZ4 block, without its length, to the tail of the destination's data.
            fn doca_compress_task_decompress_lz4_block_alloc_init(
                compress: *mut doca_compress,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_compress_task_decompress_lz4_block
            ) -> doca_error_t;

            /// The generic task of a LZ4 block decompression task.
            fn doca_compress_task_decompress_lz4_block_as_task(
                task: *mut doca_compress_task_decompress_lz4_block
            ) -> *mut doca_task;

            /// Gives the task another source.
            fn doca_compress_task_decompress_lz4_block_set_src(
                task: *mut doca_compress_task_decompress_lz4_block,
                src_buff: *const doca_buf
            );

            /// The task's source.
            fn doca_compress_task_decompress_lz4_block_get_src(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> *const doca_buf;

            /// Gives the task another destination.
            fn doca_compress_task_decompress_lz4_block_set_dst(
                task: *mut doca_compress_task_decompress_lz4_block,
                dst_buff: *mut doca_buf
            );

            /// The task's destination.
            fn doca_compress_task_decompress_lz4_block_get_dst(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> *mut doca_buf;

            /// CRC-32 of the uncompressed data of a task that succeeded.
            fn doca_compress_task_decompress_lz4_block_get_crc_cs(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> u32;

            /// xxHash-32 of the uncompressed data of a task that succeeded, its bytes in the order of the hash's canonical form.
            fn doca_compress_task_decompress_lz4_block_get_xxh_cs(
                task: *const doca_compress_task_decompress_lz4_block
            ) -> u32;
        }
    };
}
