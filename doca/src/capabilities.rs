//! Devices of a machine, and their capabilities.

use doca_sys as sys;

/// Capabilities of a device. `None` or `false`: not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Comch clients.
    pub comch_client: bool,
    /// Comch servers.
    pub comch_server: bool,
    /// Comch control messages, of clients and servers.
    pub comch: Option<ComchLimits>,
    /// Comch consumers: the receiving side of the fast path.
    pub consumer: Option<FastPathLimits>,
    /// Comch producers: the sending side of the fast path.
    pub producer: Option<FastPathLimits>,
    /// RDMA.
    pub rdma: Option<RdmaLimits>,
    /// DMA copies.
    pub dma: Option<TaskLimits>,
    /// Deflate compression.
    pub compress_deflate: Option<TaskLimits>,
    /// Deflate decompression.
    pub decompress_deflate: Option<TaskLimits>,
    /// LZ4 stream decompression.
    pub decompress_lz4_stream: Option<TaskLimits>,
    /// LZ4 block decompression.
    pub decompress_lz4_block: Option<TaskLimits>,
    /// Erasure coding: create, update and recover tasks.
    pub erasure_coding: Option<ErasureCodingLimits>,
}

/// Limits of the bufs of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskLimits {
    /// Maximum source length in bytes.
    pub max_buf_size: u64,
    /// Maximum number of bufs in a list.
    pub max_buf_list_len: u32,
}

/// Limits of the Comch control path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComchLimits {
    /// Maximum message length in bytes.
    pub max_message_size: u32,
    /// Maximum length of a server's name in bytes, with the terminating NUL.
    pub max_name_len: u32,
    /// Maximum number of queued received messages.
    pub max_recv_queue: u32,
    /// Maximum number of send tasks of a context.
    pub max_send_tasks: u32,
    /// Maximum number of clients of a server.
    pub max_clients: u32,
}

/// Limits of a consumer or a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastPathLimits {
    /// Maximum number of tasks.
    pub max_tasks: u32,
    /// Maximum message length in bytes.
    pub max_buf_size: u32,
    /// Maximum number of bufs in a list.
    pub max_buf_list_len: u32,
}

/// Limits of RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaLimits {
    /// Maximum message length in bytes.
    pub max_message_size: u32,
    /// Maximum number of tasks other than receives.
    pub max_send_queue: u32,
    /// Maximum number of receive tasks.
    pub max_recv_queue: u32,
    /// Maximum number of bufs in a local list.
    pub max_send_buf_list_len: u32,
}

/// Limits of erasure coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErasureCodingLimits {
    /// Maximum block size in bytes.
    pub max_block_size: u64,
    /// Maximum number of bufs in a list.
    pub max_buf_list_len: u32,
}

/// Reads a limit of a device; `None` if the function fails.
///
/// # Safety
///
/// `info` is live, and the function writes one value to where it is told.
unsafe fn limit<T: Default>(
    info: *const sys::doca_devinfo,
    get: unsafe fn(*const sys::doca_devinfo, *mut T) -> sys::doca_error_t,
) -> Option<T> {
    let mut value = T::default();
    // SAFETY: guaranteed by the caller.
    (unsafe { get(info, &mut value) } == sys::DOCA_SUCCESS).then_some(value)
}

impl Capabilities {
    /// Capabilities of a device.
    ///
    /// # Safety
    ///
    /// `info` is a live device's information.
    pub(crate) unsafe fn of(info: *const sys::doca_devinfo) -> Self {
        /// `true` if a capability function succeeds.
        macro_rules! can {
            ($is_supported:ident) => {
                // SAFETY: the information is live.
                unsafe { sys::$is_supported(info) } == sys::DOCA_SUCCESS
            };
        }
        /// A value reported by the device.
        macro_rules! get {
            ($get:ident) => {
                // SAFETY: the information is live; the functions write one value.
                unsafe { limit(info, |info, value| sys::$get(info, value)) }?
            };
        }
        /// Limits of a kind of task, if it is supported.
        macro_rules! task {
            ($is_supported:ident, $size:ident, $list:ident) => {
                can!($is_supported)
                    .then(|| {
                        Some(TaskLimits {
                            max_buf_size: get!($size),
                            max_buf_list_len: get!($list),
                        })
                    })
                    .flatten()
            };
        }
        macro_rules! fast_path {
            ($is_supported:ident, $tasks:ident, $size:ident, $list:ident) => {
                can!($is_supported)
                    .then(|| {
                        Some(FastPathLimits {
                            max_tasks: get!($tasks),
                            max_buf_size: get!($size),
                            max_buf_list_len: get!($list),
                        })
                    })
                    .flatten()
            };
        }
        let (comch_client, comch_server) = (
            can!(doca_comch_cap_client_is_supported),
            can!(doca_comch_cap_server_is_supported),
        );
        let comch = || {
            Some(ComchLimits {
                max_message_size: get!(doca_comch_cap_get_max_msg_size),
                max_name_len: get!(doca_comch_cap_get_max_name_len),
                max_recv_queue: get!(doca_comch_cap_get_max_recv_queue_size),
                max_send_tasks: get!(doca_comch_cap_get_max_send_tasks),
                max_clients: get!(doca_comch_cap_get_max_clients),
            })
        };
        let rdma = || {
            Some(RdmaLimits {
                max_message_size: get!(doca_rdma_cap_get_max_message_size),
                max_send_queue: get!(doca_rdma_cap_get_max_send_queue_size),
                max_recv_queue: get!(doca_rdma_cap_get_max_recv_queue_size),
                max_send_buf_list_len: get!(doca_rdma_cap_get_max_send_buf_list_len),
            })
        };
        let erasure_coding = || {
            Some(ErasureCodingLimits {
                max_block_size: get!(doca_ec_cap_get_max_block_size),
                max_buf_list_len: get!(doca_ec_cap_get_max_buf_list_len),
            })
        };
        let can_code = can!(doca_ec_cap_task_create_is_supported)
            && can!(doca_ec_cap_task_update_is_supported)
            && can!(doca_ec_cap_task_recover_is_supported);
        Self {
            comch_client,
            comch_server,
            comch: (comch_client || comch_server).then(comch).flatten(),
            consumer: fast_path!(
                doca_comch_consumer_cap_is_supported,
                doca_comch_consumer_cap_get_max_num_tasks,
                doca_comch_consumer_cap_get_max_buf_size,
                doca_comch_consumer_cap_get_max_buf_list_len
            ),
            producer: fast_path!(
                doca_comch_producer_cap_is_supported,
                doca_comch_producer_cap_get_max_num_tasks,
                doca_comch_producer_cap_get_max_buf_size,
                doca_comch_producer_cap_get_max_buf_list_len
            ),
            rdma: can!(doca_rdma_cap_task_send_is_supported)
                .then(rdma)
                .flatten(),
            dma: task!(
                doca_dma_cap_task_memcpy_is_supported,
                doca_dma_cap_task_memcpy_get_max_buf_size,
                doca_dma_cap_task_memcpy_get_max_buf_list_len
            ),
            compress_deflate: task!(
                doca_compress_cap_task_compress_deflate_is_supported,
                doca_compress_cap_task_compress_deflate_get_max_buf_size,
                doca_compress_cap_task_compress_deflate_get_max_buf_list_len
            ),
            decompress_deflate: task!(
                doca_compress_cap_task_decompress_deflate_is_supported,
                doca_compress_cap_task_decompress_deflate_get_max_buf_size,
                doca_compress_cap_task_decompress_deflate_get_max_buf_list_len
            ),
            decompress_lz4_stream: task!(
                doca_compress_cap_task_decompress_lz4_stream_is_supported,
                doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size,
                doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len
            ),
            decompress_lz4_block: task!(
                doca_compress_cap_task_decompress_lz4_block_is_supported,
                doca_compress_cap_task_decompress_lz4_block_get_max_buf_size,
                doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len
            ),
            erasure_coding: can_code.then(erasure_coding).flatten(),
        }
    }
}
