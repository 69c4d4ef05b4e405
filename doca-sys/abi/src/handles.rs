//! Opaque objects, the few plain data types, and types of callback functions. All callbacks are nullable, as function
//! pointers are in C.

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

use crate::*;

macro_rules! handles {
    ($(#[$about:meta])* $list:ident: $(header $header:literal { $($name:ident, $doc:literal;)+ })+) => {
        $($(
            #[doc = $doc]
            ///
            /// Opaque: accessed only by pointer.
            #[repr(C)]
            pub struct $name {
                _opaque: [u8; 0],
                // Neither Send nor Sync nor Unpin, because the C object is opaque.
                _marker: PhantomData<(*mut u8, PhantomPinned)>,
            }
        )+)+

        $(#[$about])*
        pub const $list: &[HandleDecl] = &[$($(
            HandleDecl { header: $header, name: stringify!($name), doc: $doc },
        )+)+];
    };
}

handles! {
    /// Opaque types of earlier releases only.
    EARLIER_HANDLES:
    header "doca_comm_channel.h" {
        doca_comm_channel_ep_t, "An endpoint of the Comm Channel of 2.5 and 2.6.";
        doca_comm_channel_addr_t, "A peer of such an endpoint.";
    }
}

handles! {
    /// All opaque types of the current release.
    HANDLES:
    header "doca_log.h" {
        doca_log_backend, "A destination of log messages.";
        doca_logger, "A source of a program's log messages, or an inner node of the tree of their names.";
    }

    header "doca_dev.h" {
        doca_devinfo, "Properties of a device that need not be open.";
        doca_devinfo_rep, "Properties of a representor that need not be open.";
        doca_dev, "An open device.";
        doca_dev_rep, "An open representor: the DPU's handle of a function of the host.";
    }

    header "doca_mmap.h" {
        doca_mmap, "A memory map: a range of memory, the devices that may use it, and their permissions.";
    }

    header "doca_buf.h" {
        doca_buf, "A descriptor of a range in a memory map and of the data in it.";
    }

    header "doca_buf_inventory.h" {
        doca_buf_inventory, "A pool of bufs.";
    }

    header "doca_buf_pool.h" {
        doca_buf_pool, "A pool of bufs, each with a part of a memory map.";
    }

    header "doca_buf_array.h" {
        doca_buf_arr, "An array of bufs for a GPU or the DPA.";
        doca_gpu_buf_arr, "The handle of an array of bufs for a GPU; not supported in software.";
    }

    header "doca_clock.h" {
        doca_clock, "A clock reader.";
    }

    header "doca_rdma_bridge.h" {
        ibv_pd, "A protection domain of rdma-core; not supported in software.";
    }

    header "doca_ctx.h" {
        doca_ctx, "The common part of Comch, RDMA and the other libraries: states and tasks.";
    }

    header "doca_pe.h" {
        doca_pe, "A progress engine, which drives contexts and calls callbacks in one thread.";
        doca_task, "A unit of work of a context.";
        doca_task_batch, "Tasks that are submitted together; not supported in software.";
    }

    header "doca_comch.h" {
        doca_comch_connection, "A connection of a client and a server.";
        doca_comch_server, "A Comch server, on the DPU.";
        doca_comch_client, "A Comch client, on the host.";
        doca_comch_task_send, "A task that sends a control message.";
        doca_comch_event_msg_recv, "The event of a received message.";
        doca_comch_event_connection_status_changed, "The event of a client that connected or disconnected.";
        doca_comch_event_consumer, "The event of a new or expired remote consumer.";
    }

    header "doca_comch_consumer.h" {
        doca_comch_consumer, "The receiving side of a connection's fast path.";
        doca_comch_consumer_task_post_recv, "A task that receives one message of the fast path.";
        doca_comch_consumer_completion, "A DPA completion context for consumers; not supported in software.";
        doca_dpa_thread, "A thread of the DPA; not supported in software.";
    }

    header "doca_comch_producer.h" {
        doca_comch_producer, "The sending side of a connection's fast path.";
        doca_comch_producer_task_send, "A task that sends one message of the fast path.";
    }

    header "doca_sync_event.h" {
        doca_sync_event, "A 64-bit value that other processes and devices can wait for.";
        doca_sync_event_remote_net, "A sync event of a network peer.";
        doca_sync_event_task_get, "A task that gets the value of an event.";
        doca_sync_event_task_notify_set, "A task that sets the value of an event.";
        doca_sync_event_task_notify_add, "A task that adds to the value of an event.";
        doca_sync_event_task_wait_eq, "A task that waits until the value of an event equals another.";
        doca_sync_event_task_wait_neq, "A task that waits until the value of an event differs from another.";
        doca_dpa, "A DPA context; not supported in software.";
        doca_gpu, "A GPU; not supported in software.";
    }

    header "doca_rdma.h" {
        doca_rdma, "An RDMA instance.";
        doca_rdma_addr, "An address that an RDMA instance can connect to.";
        doca_rdma_connection, "A connection of two RDMA instances.";
        doca_rdma_task_receive, "A task that receives a message.";
        doca_rdma_task_send, "A task that sends a message.";
        doca_rdma_task_send_imm, "A task that sends a message with an immediate value.";
        doca_rdma_task_read, "A task that reads remote memory.";
        doca_rdma_task_write, "A task that writes remote memory.";
        doca_rdma_task_write_imm, "A task that writes remote memory and sends an immediate value.";
        doca_rdma_task_atomic_cmp_swp, "A task that compares and swaps 8 bytes of remote memory.";
        doca_rdma_task_atomic_fetch_add, "A task that adds to 8 bytes of remote memory.";
        doca_rdma_task_remote_net_sync_event_get, "A task that gets the value of a peer's event.";
        doca_rdma_task_remote_net_sync_event_notify_set, "A task that sets the value of a peer's event.";
        doca_rdma_task_remote_net_sync_event_notify_add, "A task that adds to the value of a peer's event.";
        doca_gpu_dev_rdma, "The handle of an RDMA instance for a GPU; not supported in software.";
        rdma_cm_id, "A connection of rdma-core's connection manager; not supported in software.";
        doca_dpa_completion, "A DPA completion context; not supported in software.";
    }

    header "doca_dma.h" {
        doca_dma, "A DMA instance.";
        doca_dma_task_memcpy, "A task that copies memory.";
        doca_gpu_dma, "The handle of a DMA instance for a GPU; not supported in software.";
    }

    header "doca_compress.h" {
        doca_compress, "A compress instance.";
        doca_compress_task_compress_deflate, "A task that compresses with deflate.";
        doca_compress_task_decompress_deflate, "A task that decompresses deflate data.";
        doca_compress_task_decompress_lz4_stream, "A task that decompresses the blocks of an LZ4 frame.";
        doca_compress_task_decompress_lz4_block, "A task that decompresses one LZ4 block.";
    }

    header "doca_erasure_coding.h" {
        doca_ec, "An erasure-coding instance.";
        doca_ec_matrix, "Factors that map input blocks to output blocks.";
        doca_ec_task_galois_mul, "A task that multiplies blocks by a matrix.";
        doca_ec_task_create, "A task that creates redundancy blocks.";
        doca_ec_task_update, "A task that updates redundancy blocks.";
        doca_ec_task_recover, "A task that recovers missing blocks.";
    }

    header "doca_sha.h" {
        doca_sha, "A SHA instance.";
        doca_sha_task_hash, "A task that hashes a message.";
        doca_sha_task_partial_hash, "A task that hashes a message in parts.";
    }

    header "doca_aes_gcm.h" {
        doca_aes_gcm, "An AES-GCM instance.";
        doca_aes_gcm_key, "A key.";
        doca_aes_gcm_task_encrypt, "A task that encrypts.";
        doca_aes_gcm_task_decrypt, "A task that decrypts and checks the tag.";
    }

    header "doca_graph.h" {
        doca_graph, "Tasks and functions with dependencies.";
        doca_graph_node, "A task, function or graph in a graph.";
        doca_graph_instance, "One run of a graph, with its tasks and arguments.";
    }

    header "doca_mmap_advise.h" {
        doca_mmap_advise, "A memory-advice instance.";
        doca_mmap_advise_task_invalidate_cache, "A task that invalidates caches.";
    }

    header "doca_argp.h" {
        doca_argp_param, "A parameter of a program.";
        doca_argp_cmd, "A command of a program.";
    }
}

/// User data that the library stores and passes back to the program.
///
/// Eight bytes on every platform of the API: either member can identify an object of the program.
#[repr(C)]
#[derive(Clone, Copy)]
pub union doca_data {
    /// The value as a pointer.
    pub ptr: *mut c_void,
    /// The value as an integer.
    pub u64: u64,
}

/// C's `struct timespec`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct timespec {
    /// Seconds.
    pub tv_sec: i64,
    /// Nanoseconds of the second.
    pub tv_nsec: i64,
}

/// A reading of a clock.
#[repr(C)]
#[derive(Clone, Copy)]
pub union doca_clock_timespec_t {
    /// Seconds and nanoseconds.
    pub ts: timespec,
    /// Cycles of a counter.
    pub counter: u64,
}

/// A range of memory, and the next one of a list.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct doca_gather_list {
    /// First byte.
    pub addr: *mut c_void,
    /// Length in bytes.
    pub len: u64,
    /// The next range, or NULL.
    pub next: *mut doca_gather_list,
}

/// A device that a user named on the command line.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct doca_argp_device_ctx {
    /// Opened; to be closed by the program.
    pub dev: *mut doca_dev,
    /// Device arguments after the first comma, or NULL; valid until the parser is destroyed.
    pub devargs: *const c_char,
}

/// A representor that a user named on the command line.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct doca_argp_device_rep_ctx {
    /// Device of the representor.
    pub dev_ctx: doca_argp_device_ctx,
    /// Opened; to be closed by the program.
    pub dev_rep: *mut doca_dev_rep,
}

/// A global identifier of an RDMA port.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct doca_rdma_gid {
    /// Bytes in network order.
    pub raw: [u8; DOCA_GID_BYTE_LENGTH],
}

/// Callbacks whose C typedef is the function and not a pointer to it: parameters of these types are written with a `*`.
pub const FUNCTION_TYPEDEFS: &[&str] = &["doca_mmap_memrange_free_cb_t"];

macro_rules! callbacks {
    ($(header $header:literal; $(fn $name:ident($($param:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?, $doc:literal;)+)+) => {
        $($(
            #[doc = $doc]
            pub type $name = Option<unsafe extern "C" fn($($param: $ty),*) $(-> $ret)?>;
        )+)+

        /// All types of callbacks.
        pub const CALLBACKS: &[CallbackDecl] = &[$($(
            CallbackDecl {
                header: $header,
                name: stringify!($name),
                doc: $doc,
                params: &[$(Parameter { name: stringify!($param), ty: Type(stringify!($ty)) }),*],
                ret: [$(Some(Type(stringify!($ret))),)? None][0],
            },
        )+)+];
    };
}

callbacks! {
    header "doca_log.h";
    fn log_flush_callback(buf: *mut c_char), "Called for each message that was written to the buffer of a log back end.";

    header "doca_mmap.h";
    fn doca_mmap_memrange_free_cb_t(
        addr: *mut c_void,
        len: usize,
        cookie: *mut c_void
    ), "Called with the memory range of a map that was destroyed, and the value that was set with the callback.";

    header "doca_ctx.h";
    fn doca_ctx_state_changed_callback_t(
        user_data: doca_data,
        ctx: *mut doca_ctx,
        prev_state: doca_ctx_states,
        next_state: doca_ctx_states
    ), "Called at every change of a context's state.";

    header "doca_pe.h";
    fn doca_task_completion_cb_t(
        task: *mut doca_task,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a task completes; the user owns the task again.";

    header "doca_comch.h";
    fn doca_comch_task_send_completion_cb_t(
        task: *mut doca_comch_task_send,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a control message was sent, or failed.";
    fn doca_comch_event_msg_recv_cb_t(
        event: *mut doca_comch_event_msg_recv,
        recv_buffer: *mut u8,
        msg_len: u32,
        comch_connection: *mut doca_comch_connection
    ), "Called for each control message; the bytes are valid during the call.";
    fn doca_comch_event_connection_status_changed_cb_t(
        event: *mut doca_comch_event_connection_status_changed,
        comch_connection: *mut doca_comch_connection,
        change_successful: u8
    ), "Called when a client has connected or disconnected.";
    fn doca_comch_event_consumer_cb_t(
        event: *mut doca_comch_event_consumer,
        comch_connection: *mut doca_comch_connection,
        id: u32
    ), "Called when the peer has started or stopped a consumer.";

    header "doca_comch_consumer.h";
    fn doca_comch_consumer_task_post_recv_completion_cb_t(
        task: *mut doca_comch_consumer_task_post_recv,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a message of the fast path arrived, or receiving failed.";

    header "doca_comch_producer.h";
    fn doca_comch_producer_task_send_completion_cb_t(
        task: *mut doca_comch_producer_task_send,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a message of the fast path was sent, or failed.";

    header "doca_sync_event.h";
    fn doca_sync_event_task_get_completion_cb_t(
        task: *mut doca_sync_event_task_get,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a get task completes.";
    fn doca_sync_event_task_notify_set_completion_cb_t(
        task: *mut doca_sync_event_task_notify_set,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a notify-set task completes.";
    fn doca_sync_event_task_notify_add_completion_cb_t(
        task: *mut doca_sync_event_task_notify_add,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a notify-add task completes.";
    fn doca_sync_event_task_wait_eq_completion_cb_t(
        task: *mut doca_sync_event_task_wait_eq,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a wait-until-equal task completes.";
    fn doca_sync_event_task_wait_neq_completion_cb_t(
        task: *mut doca_sync_event_task_wait_neq,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a wait-until-different task completes.";

    header "doca_rdma.h";
    fn doca_rdma_connection_request_cb_t(
        rdma_connection: *mut doca_rdma_connection,
        ctx_user_data: doca_data
    ), "Called when a peer requests a connection.";
    fn doca_rdma_connection_established_cb_t(
        rdma_connection: *mut doca_rdma_connection,
        connection_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a connection is established.";
    fn doca_rdma_connection_failure_cb_t(
        rdma_connection: *mut doca_rdma_connection,
        connection_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a connection could not be established.";
    fn doca_rdma_connection_disconnection_cb_t(
        rdma_connection: *mut doca_rdma_connection,
        connection_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a connection was closed.";
    fn doca_rdma_task_receive_completion_cb_t(
        task: *mut doca_rdma_task_receive,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a receive task completes.";
    fn doca_rdma_task_send_completion_cb_t(
        task: *mut doca_rdma_task_send,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a send task completes.";
    fn doca_rdma_task_send_imm_completion_cb_t(
        task: *mut doca_rdma_task_send_imm,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a send-with-immediate task completes.";
    fn doca_rdma_task_read_completion_cb_t(
        task: *mut doca_rdma_task_read,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a read task completes.";
    fn doca_rdma_task_write_completion_cb_t(
        task: *mut doca_rdma_task_write,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a write task completes.";
    fn doca_rdma_task_write_imm_completion_cb_t(
        task: *mut doca_rdma_task_write_imm,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a write-with-immediate task completes.";
    fn doca_rdma_task_atomic_cmp_swp_completion_cb_t(
        task: *mut doca_rdma_task_atomic_cmp_swp,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a compare-and-swap task completes.";
    fn doca_rdma_task_atomic_fetch_add_completion_cb_t(
        task: *mut doca_rdma_task_atomic_fetch_add,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a fetch-and-add task completes.";
    fn doca_rdma_task_remote_net_sync_event_get_completion_cb_t(
        task: *mut doca_rdma_task_remote_net_sync_event_get,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a remote-event get task completes.";
    fn doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t(
        task: *mut doca_rdma_task_remote_net_sync_event_notify_set,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a remote-event set task completes.";
    fn doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t(
        task: *mut doca_rdma_task_remote_net_sync_event_notify_add,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a remote-event add task completes.";

    header "doca_dma.h";
    fn doca_dma_task_memcpy_completion_cb_t(
        task: *mut doca_dma_task_memcpy,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a copy task completes.";

    header "doca_compress.h";
    fn doca_compress_task_compress_deflate_completion_cb_t(
        task: *mut doca_compress_task_compress_deflate,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a deflate compression task completes.";
    fn doca_compress_task_decompress_deflate_completion_cb_t(
        task: *mut doca_compress_task_decompress_deflate,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a deflate decompression task completes.";
    fn doca_compress_task_decompress_lz4_stream_completion_cb_t(
        task: *mut doca_compress_task_decompress_lz4_stream,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when an LZ4 stream decompression task completes.";
    fn doca_compress_task_decompress_lz4_block_completion_cb_t(
        task: *mut doca_compress_task_decompress_lz4_block,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when an LZ4 block decompression task completes.";

    header "doca_erasure_coding.h";
    fn doca_ec_task_galois_mul_completion_cb_t(
        task: *mut doca_ec_task_galois_mul,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a multiplication task completes.";
    fn doca_ec_task_create_completion_cb_t(
        task: *mut doca_ec_task_create,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a create task completes.";
    fn doca_ec_task_update_completion_cb_t(
        task: *mut doca_ec_task_update,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when an update task completes.";
    fn doca_ec_task_recover_completion_cb_t(
        task: *mut doca_ec_task_recover,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a recover task completes.";

    header "doca_sha.h";
    fn doca_sha_task_hash_completion_cb_t(
        task: *mut doca_sha_task_hash,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a hash task completes.";
    fn doca_sha_task_partial_hash_completion_cb_t(
        task: *mut doca_sha_task_partial_hash,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a part of a message was hashed.";

    header "doca_aes_gcm.h";
    fn doca_aes_gcm_task_encrypt_completion_cb_t(
        task: *mut doca_aes_gcm_task_encrypt,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when an encryption task completes.";
    fn doca_aes_gcm_task_decrypt_completion_cb_t(
        task: *mut doca_aes_gcm_task_decrypt,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a decryption task completes.";

    header "doca_graph.h";
    fn doca_graph_completion_cb_t(
        instance: *mut doca_graph_instance,
        instance_user_data: doca_data,
        graph_user_data: doca_data
    ), "Called when an instance of a graph has completed, or failed.";
    fn doca_graph_user_node_cb_t(cookie: *mut c_void) -> doca_error_t, "The function of a user node; an error fails the instance.";

    header "doca_mmap_advise.h";
    fn doca_mmap_advise_task_invalidate_cache_completion_cb_t(
        task: *mut doca_mmap_advise_task_invalidate_cache,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ), "Called when a task that invalidates caches completes.";

    header "doca_argp.h";
    fn doca_argp_param_cb_t(param: *mut c_void, config: *mut c_void) -> doca_error_t, "Called with a pointer to the value (of a string: to its characters) and the configuration.";
    fn doca_argp_cmd_cb_t(config: *mut c_void) -> doca_error_t, "Called when a command was named.";
    fn doca_argp_dpdk_cb_t(argc: c_int, argv: *mut *mut c_char) -> doca_error_t, "Called with DPDK's arguments, which live until the parser is destroyed.";
    fn doca_argp_validation_cb_t(config: *mut c_void) -> doca_error_t, "Called after all parameters were read.";
    fn doca_argp_dev_open_cb_t(
        devinfo: *mut doca_devinfo,
        usr_ctx: *mut c_void,
        dev: *mut *mut doca_dev
    ) -> doca_error_t, "Called instead of doca_dev_open for a device named by the user; the program closes the device.";
    fn doca_argp_logger_cb_t(
        level: doca_log_level,
        format: *const c_char,
        args: va_list
    ) -> doca_error_t, "Called with messages to the user.";
}
