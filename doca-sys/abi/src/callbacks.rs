//! Types of callback functions. All are nullable, as function pointers are in C.

use crate::*;

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
