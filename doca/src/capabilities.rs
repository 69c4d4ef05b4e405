//! The devices of a machine, and what they can do.

use doca_sys as sys;

/// What a device can do. `None`, or `false`: it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Clients of Comch.
    pub comch_client: bool,
    /// Servers of Comch.
    pub comch_server: bool,
    /// Control messages of Comch, of clients and servers.
    pub comch: Option<ComchLimits>,
    /// The receiving end of Comch's fast path.
    pub consumer: Option<FastPathLimits>,
    /// The sending end of Comch's fast path.
    pub producer: Option<FastPathLimits>,
    /// RDMA.
    pub rdma: Option<RdmaLimits>,
    /// Copies by DMA.
    pub dma: Option<TaskLimits>,
    /// Compression by deflate.
    pub compress_deflate: Option<TaskLimits>,
    /// Decompression of deflate data.
    pub decompress_deflate: Option<TaskLimits>,
    /// Decompression of LZ4 streams.
    pub decompress_lz4_stream: Option<TaskLimits>,
    /// Decompression of single LZ4 blocks.
    pub decompress_lz4_block: Option<TaskLimits>,
    /// Erasure coding: all of create, update and recover.
    pub erasure_coding: Option<ErasureCodingLimits>,
}

/// Limits of the bufs of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskLimits {
    /// Longest source, in bytes.
    pub max_buf_size: u64,
    /// Most bufs in a list.
    pub max_buf_list_len: u32,
}

/// Limits of Comch's control path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComchLimits {
    /// Longest message, in bytes.
    pub max_message_size: u32,
    /// Longest name of a server, in bytes with its NUL.
    pub max_name_len: u32,
    /// Most messages that wait to be received.
    pub max_recv_queue: u32,
    /// Most send tasks of a context.
    pub max_send_tasks: u32,
    /// Most clients of a server.
    pub max_clients: u32,
}

/// Limits of a consumer or a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastPathLimits {
    /// Most tasks.
    pub max_tasks: u32,
    /// Longest message, in bytes.
    pub max_buf_size: u32,
    /// Most bufs in a list.
    pub max_buf_list_len: u32,
}

/// Limits of RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaLimits {
    /// Longest message, in bytes.
    pub max_message_size: u32,
    /// Most tasks that act on connections.
    pub max_send_queue: u32,
    /// Most receive tasks.
    pub max_recv_queue: u32,
    /// Most bufs in a local list.
    pub max_send_buf_list_len: u32,
}

/// Limits of erasure coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErasureCodingLimits {
    /// Largest block, in bytes.
    pub max_block_size: u64,
    /// Most bufs in a list.
    pub max_buf_list_len: u32,
}

/// A limit of a device; `None` when the function fails.
///
/// # Safety
///
/// `info` is live, and the function writes one value to where it is told.
unsafe fn limit<T: Default>(
    info: *const sys::doca_devinfo,
    get: unsafe fn(*const sys::doca_devinfo, *mut T) -> sys::doca_error_t,
) -> Option<T> {
    let mut value = T::default();
    // SAFETY: the caller's promise.
    (unsafe { get(info, &mut value) } == sys::DOCA_SUCCESS).then_some(value)
}

impl Capabilities {
    /// Those of a device.
    ///
    /// # Safety
    ///
    /// `info` is a live device's information.
    pub(crate) unsafe fn of(info: *const sys::doca_devinfo) -> Self {
        /// Whether the device can do something.
        macro_rules! can {
            ($is_supported:ident) => {
                // SAFETY: the information is live.
                unsafe { sys::$is_supported(info) } == sys::DOCA_SUCCESS
            };
        }
        /// A value that the device tells.
        macro_rules! get {
            ($get:ident) => {
                // SAFETY: the information is live; the functions write one value.
                unsafe { limit(info, |info, value| sys::$get(info, value)) }?
            };
        }
        /// The limits of a kind of task, if there is such a kind.
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
