//! Functions of releases before the current one: since renamed, or with other arguments. One macro; see
//! [`doca_earlier_functions!`](crate::doca_earlier_functions).
//!
//! The declarations are known from the published headers of 2.5 and 2.6.

/// Passes the functions of earlier releases to the macro `$callback`.
///
/// `$callback` gets `[$arguments]`, then for each header and range of releases
/// `header "doca_x.h" since V2_5 until V2_6 { … }` with functions:
///
/// * `fn name(param: type, …) -> type = target;` has the parameters of `target`, a function of
///   [`doca_functions!`](crate::doca_functions), in the same order; the function was renamed.
/// * `… = target(argument, …);` calls it with other arguments.
/// * `… = target as type;` converts its result.
/// * `fn name(…) -> type;` has no equivalent in the current release; softdoca defines it. `#[doc = "…"]` is its
///   documentation, if no current function has its name.
/// * `fn name as symbol(…) …` has the name of another function with another signature. The library exports it as
///   `symbol`, to which the headers of the releases in the range redirect the name.
///
/// The types are names of this crate, so the expansion of the callback needs `use doca_abi::*` in scope.
#[macro_export]
macro_rules! doca_earlier_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]

            header "doca_dev.h" since V2_6 until V2_6 {
                fn doca_devinfo_get_active_rate as doca_devinfo_get_active_rate_2_6(
                    devinfo: *const doca_devinfo,
                    active_rate: *mut f64
                ) -> doca_error_t;
            }

            header "doca_sync_event.h" since V2_5 until V2_6 {
                fn doca_sync_event_add_publisher_location_dpu(event: *mut doca_sync_event) -> doca_error_t
                    = doca_sync_event_add_publisher_location_remote_pci;

                fn doca_sync_event_add_subscriber_location_dpu(event: *mut doca_sync_event) -> doca_error_t
                    = doca_sync_event_add_subscriber_location_remote_pci;

                fn doca_sync_event_cap_is_export_to_dpu_supported(
                    devinfo: *const doca_devinfo
                ) -> doca_error_t
                    = doca_sync_event_cap_is_export_to_remote_pci_supported;

                fn doca_sync_event_export_to_dpu(
                    event: *mut doca_sync_event,
                    dev: *mut doca_dev,
                    data: *mut *const u8,
                    sz: *mut usize
                ) -> doca_error_t
                    = doca_sync_event_export_to_remote_pci;

                fn doca_sync_event_export_to_dpa(
                    event: *mut doca_sync_event,
                    dpa: *mut doca_dpa,
                    dpa_dev_se_handle: *mut u64
                ) -> doca_error_t
                    = doca_sync_event_get_dpa_handle;

                fn doca_sync_event_export_to_gpu(
                    event: *mut doca_sync_event,
                    gpu: *mut doca_gpu,
                    gpu_dev_se_handle: *mut *mut u64
                ) -> doca_error_t
                    = doca_sync_event_get_gpu_handle;

                fn doca_sync_event_remote_net_export_to_dpa(
                    event: *mut doca_sync_event_remote_net,
                    dpa: *mut doca_dpa,
                    dpa_dev_se_handle: *mut u64
                ) -> doca_error_t
                    = doca_sync_event_remote_net_get_dpa_handle;

                fn doca_sync_event_remote_net_export_to_gpu(
                    event: *mut doca_sync_event_remote_net,
                    gpu: *mut doca_gpu,
                    gpu_remote_event: *mut u64
                ) -> doca_error_t
                    = doca_sync_event_remote_net_get_gpu_handle;

                fn doca_sync_event_cap_task_wait_gt_is_supported(
                    devinfo: *const doca_devinfo
                ) -> doca_error_t
                    = doca_sync_event_cap_task_wait_eq_is_supported;

                fn doca_sync_event_task_wait_gt_set_conf(
                    event: *mut doca_sync_event,
                    completion_cb: doca_sync_event_task_wait_gt_completion_cb_t,
                    error_cb: doca_sync_event_task_wait_gt_completion_cb_t,
                    num_tasks: u32
                ) -> doca_error_t;

                fn doca_sync_event_task_wait_gt_alloc_init(
                    event: *mut doca_sync_event,
                    wait_val: u64,
                    mask: u64,
                    user_data: doca_data,
                    task: *mut *mut doca_sync_event_task_wait_gt
                ) -> doca_error_t;

                fn doca_sync_event_task_wait_gt_as_doca_task(task: *mut doca_sync_event_task_wait_gt) -> *mut doca_task
                    = doca_sync_event_task_wait_eq_as_doca_task;

                fn doca_sync_event_task_wait_gt_set_wait_val(task: *mut doca_sync_event_task_wait_gt, wait_val: u64)
                    = doca_sync_event_task_wait_eq_set_wait_val;

                fn doca_sync_event_task_wait_gt_get_wait_val(task: *const doca_sync_event_task_wait_gt) -> u64
                    = doca_sync_event_task_wait_eq_get_wait_val;

                fn doca_sync_event_task_wait_gt_set_mask(task: *mut doca_sync_event_task_wait_gt, mask: u64)
                    = doca_sync_event_task_wait_eq_set_mask;

                fn doca_sync_event_task_wait_gt_get_mask(task: *const doca_sync_event_task_wait_gt) -> u64
                    = doca_sync_event_task_wait_eq_get_mask;
            }

            // One connection per instance, which is established while the context starts. NULL denotes it.
            header "doca_rdma.h" since V2_5 until V2_6 {
                fn doca_rdma_create as doca_rdma_create_2_6(
                    dev: *mut doca_dev,
                    rdma: *mut *mut doca_rdma
                ) -> doca_error_t;

                fn doca_rdma_export as doca_rdma_export_2_6(
                    rdma: *const doca_rdma,
                    local_rdma_conn_details: *mut *const c_void,
                    local_rdma_conn_details_size: *mut usize
                ) -> doca_error_t
                    = doca_rdma_export(rdma.cast_mut(), local_rdma_conn_details, local_rdma_conn_details_size, &mut core::ptr::null_mut());

                fn doca_rdma_connect as doca_rdma_connect_2_6(
                    rdma: *mut doca_rdma,
                    remote_rdma_conn_details: *const c_void,
                    remote_rdma_conn_details_size: usize
                ) -> doca_error_t
                    = doca_rdma_connect(rdma, remote_rdma_conn_details, remote_rdma_conn_details_size, core::ptr::null_mut());

                fn doca_rdma_get_dpa_handle as doca_rdma_get_dpa_handle_2_6(
                    rdma: *mut doca_rdma,
                    dpa_rdma: *mut *mut doca_dpa_dev_rdma
                ) -> doca_error_t
                    = doca_rdma_get_dpa_handle(rdma, dpa_rdma.cast());

                fn doca_rdma_task_send_allocate_init as doca_rdma_task_send_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    src_buf: *const doca_buf,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_send
                ) -> doca_error_t
                    = doca_rdma_task_send_allocate_init(rdma, core::ptr::null_mut(), src_buf, user_data, task);

                fn doca_rdma_task_send_imm_allocate_init as doca_rdma_task_send_imm_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    src_buf: *const doca_buf,
                    immediate_data: doca_be32_t,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_send_imm
                ) -> doca_error_t
                    = doca_rdma_task_send_imm_allocate_init(rdma, core::ptr::null_mut(), src_buf, immediate_data, user_data, task);

                fn doca_rdma_task_read_allocate_init as doca_rdma_task_read_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    src_buf: *const doca_buf,
                    dst_buf: *mut doca_buf,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_read
                ) -> doca_error_t
                    = doca_rdma_task_read_allocate_init(rdma, core::ptr::null_mut(), src_buf, dst_buf, user_data, task);

                fn doca_rdma_task_write_allocate_init as doca_rdma_task_write_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    src_buf: *const doca_buf,
                    dst_buf: *mut doca_buf,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_write
                ) -> doca_error_t
                    = doca_rdma_task_write_allocate_init(rdma, core::ptr::null_mut(), src_buf, dst_buf, user_data, task);

                fn doca_rdma_task_write_imm_allocate_init as doca_rdma_task_write_imm_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    src_buf: *const doca_buf,
                    dst_buf: *mut doca_buf,
                    immediate_data: doca_be32_t,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_write_imm
                ) -> doca_error_t
                    = doca_rdma_task_write_imm_allocate_init(rdma, core::ptr::null_mut(), src_buf, dst_buf, immediate_data, user_data, task);

                fn doca_rdma_task_atomic_cmp_swp_allocate_init as doca_rdma_task_atomic_cmp_swp_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    dst_buf: *mut doca_buf,
                    result_buf: *mut doca_buf,
                    cmp_data: u64,
                    swap_data: u64,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_atomic_cmp_swp
                ) -> doca_error_t
                    = doca_rdma_task_atomic_cmp_swp_allocate_init(rdma, core::ptr::null_mut(), dst_buf, result_buf, cmp_data, swap_data, user_data, task);

                fn doca_rdma_task_atomic_fetch_add_allocate_init as doca_rdma_task_atomic_fetch_add_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    dst_buf: *mut doca_buf,
                    result_buf: *mut doca_buf,
                    add_data: u64,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_atomic_fetch_add
                ) -> doca_error_t
                    = doca_rdma_task_atomic_fetch_add_allocate_init(rdma, core::ptr::null_mut(), dst_buf, result_buf, add_data, user_data, task);

                fn doca_rdma_task_remote_net_sync_event_get_allocate_init as doca_rdma_task_remote_net_sync_event_get_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    event: *const doca_sync_event_remote_net,
                    dst_buf: *mut doca_buf,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_remote_net_sync_event_get
                ) -> doca_error_t
                    = doca_rdma_task_remote_net_sync_event_get_allocate_init(rdma, core::ptr::null_mut(), event, dst_buf, user_data, task);

                fn doca_rdma_task_remote_net_sync_event_notify_set_allocate_init as doca_rdma_task_remote_net_sync_event_notify_set_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    event: *mut doca_sync_event_remote_net,
                    src_buf: *const doca_buf,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_remote_net_sync_event_notify_set
                ) -> doca_error_t
                    = doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(rdma, core::ptr::null_mut(), event, src_buf, user_data, task);

                fn doca_rdma_task_remote_net_sync_event_notify_add_allocate_init as doca_rdma_task_remote_net_sync_event_notify_add_allocate_init_2_6(
                    rdma: *mut doca_rdma,
                    event: *mut doca_sync_event_remote_net,
                    result_buf: *mut doca_buf,
                    add_data: u64,
                    user_data: doca_data,
                    task: *mut *mut doca_rdma_task_remote_net_sync_event_notify_add
                ) -> doca_error_t
                    = doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(rdma, core::ptr::null_mut(), event, result_buf, add_data, user_data, task);
            }

            header "doca_rdma.h" since V2_5 until V2_5 {
                fn doca_rdma_get_grh_enabled as doca_rdma_get_grh_enabled_2_5(
                    rdma: *const doca_rdma,
                    grh_enabled: *mut bool
                ) -> doca_error_t
                    = doca_rdma_get_grh_enabled(rdma, grh_enabled.cast());

                fn doca_rdma_task_receive_get_result_length(
                    task: *const doca_rdma_task_receive
                ) -> u32
                    = doca_rdma_task_receive_get_result_len;

                fn doca_rdma_task_read_get_result_length(task: *const doca_rdma_task_read) -> u32
                    = doca_rdma_task_read_get_result_len;

                fn doca_rdma_task_remote_net_sync_event_get_get_result_length(
                    task: *const doca_rdma_task_remote_net_sync_event_get
                ) -> u32
                    = doca_rdma_task_remote_net_sync_event_get_get_result_len;
            }

            header "doca_log.h" since V2_5 until V2_5 {
                fn doca_log_backend_create_with_buffer(
                    buf: *mut c_char,
                    capacity: usize,
                    handler: log_flush_callback,
                    backend: *mut *mut doca_log_backend
                ) -> doca_error_t
                    = doca_log_backend_create_with_buf;

                fn doca_log_backend_create_with_buffer_sdk(
                    buf: *mut c_char,
                    capacity: usize,
                    handler: log_flush_callback,
                    backend: *mut *mut doca_log_backend
                ) -> doca_error_t
                    = doca_log_backend_create_with_buf_sdk;
            }

            header "doca_compress.h" since V2_5 until V2_5 {
                fn doca_compress_get_max_num_tasks(
                    compress: *mut doca_compress,
                    max_num_tasks: *mut u32
                ) -> doca_error_t
                    = doca_compress_cap_get_max_num_tasks;
            }

            header "doca_sha.h" since V2_5 until V2_5 {
                fn doca_sha_cap_get_max_src_buffer_size(
                    devinfo: *const doca_devinfo,
                    max_src_buf_size: *mut u64
                ) -> doca_error_t
                    = doca_sha_cap_get_max_src_buf_size;

                fn doca_sha_cap_get_min_dst_buffer_size(
                    devinfo: *const doca_devinfo,
                    algorithm: doca_sha_algorithm,
                    min_dst_buf_size: *mut u32
                ) -> doca_error_t
                    = doca_sha_cap_get_min_dst_buf_size;

                fn doca_sha_task_partial_hash_set_is_final_buffer(
                    task: *mut doca_sha_task_partial_hash
                ) -> doca_error_t
                    = doca_sha_task_partial_hash_set_is_final_buf;
            }

            header "doca_aes_gcm.h" since V2_5 until V2_5 {
                fn doca_aes_gcm_cap_task_encrypt_get_max_iv_length(
                    devinfo: *const doca_devinfo,
                    max_iv_len: *mut u32
                ) -> doca_error_t
                    = doca_aes_gcm_cap_task_encrypt_get_max_iv_len;

                fn doca_aes_gcm_cap_task_decrypt_get_max_iv_length(
                    devinfo: *const doca_devinfo,
                    max_iv_len: *mut u32
                ) -> doca_error_t
                    = doca_aes_gcm_cap_task_decrypt_get_max_iv_len;
            }

            // The first Comm Channel.
            header "doca_comm_channel.h" since V2_5 until V2_6 {
                #[doc = "Gets the maximum length of a service name in bytes, with the terminating NUL."]
                fn doca_comm_channel_get_max_service_name_len(
                    max_service_name_len: *mut u32
                ) -> doca_error_t;

                #[doc = "Gets the maximum size of a message in bytes."]
                fn doca_comm_channel_get_max_message_size(
                    devinfo: *mut doca_devinfo,
                    max_message_size: *mut u32
                ) -> doca_error_t;

                #[doc = "Gets the maximum size of a send queue in messages."]
                fn doca_comm_channel_get_max_send_queue_size(
                    devinfo: *mut doca_devinfo,
                    max_send_queue_size: *mut u32
                ) -> doca_error_t;

                #[doc = "Gets the maximum size of a receive queue in messages."]
                fn doca_comm_channel_get_max_recv_queue_size(
                    devinfo: *mut doca_devinfo,
                    max_recv_queue_size: *mut u32
                ) -> doca_error_t;

                #[doc = "Gets the maximum number of clients of a service on a DPU's device; `DOCA_ERROR_NOT_SUPPORTED` for a host's."]
                fn doca_comm_channel_get_service_max_num_connections(
                    devinfo: *mut doca_devinfo,
                    max_num_connections: *mut u32
                ) -> doca_error_t;

                #[doc = "Creates an endpoint."]
                fn doca_comm_channel_ep_create(
                    ep: *mut *mut doca_comm_channel_ep_t
                ) -> doca_error_t;

                #[doc = "Gets the endpoint's device; NULL if none was set."]
                fn doca_comm_channel_ep_get_device(
                    ep: *mut doca_comm_channel_ep_t,
                    device: *mut *mut doca_dev
                ) -> doca_error_t;

                #[doc = "Gets the endpoint's representor; NULL if none was set."]
                fn doca_comm_channel_ep_get_device_rep(
                    ep: *mut doca_comm_channel_ep_t,
                    device_rep: *mut *mut doca_dev_rep
                ) -> doca_error_t;

                #[doc = "Gets the maximum size of a message in bytes."]
                fn doca_comm_channel_ep_get_max_msg_size(
                    ep: *mut doca_comm_channel_ep_t,
                    max_msg_size: *mut u16
                ) -> doca_error_t;

                #[doc = "Gets the size of the send queue in messages, which is rounded up to a power of two."]
                fn doca_comm_channel_ep_get_send_queue_size(
                    ep: *mut doca_comm_channel_ep_t,
                    send_queue_size: *mut u16
                ) -> doca_error_t;

                #[doc = "Gets the size of the receive queue in messages, which is rounded up to a power of two."]
                fn doca_comm_channel_ep_get_recv_queue_size(
                    ep: *mut doca_comm_channel_ep_t,
                    recv_queue_size: *mut u16
                ) -> doca_error_t;

                #[doc = "Sets the endpoint's device; only before it is active."]
                fn doca_comm_channel_ep_set_device(
                    ep: *mut doca_comm_channel_ep_t,
                    device: *mut doca_dev
                ) -> doca_error_t;

                #[doc = "Sets the representor of a service's clients; only before the endpoint is active."]
                fn doca_comm_channel_ep_set_device_rep(
                    ep: *mut doca_comm_channel_ep_t,
                    device_rep: *mut doca_dev_rep
                ) -> doca_error_t;

                #[doc = "Sets, before the endpoint is active, the maximum size of a message in bytes."]
                fn doca_comm_channel_ep_set_max_msg_size(
                    ep: *mut doca_comm_channel_ep_t,
                    max_msg_size: u16
                ) -> doca_error_t;

                #[doc = "Sets, before the endpoint is active, the size of the send queue in messages, which is rounded up to a power of two."]
                fn doca_comm_channel_ep_set_send_queue_size(
                    ep: *mut doca_comm_channel_ep_t,
                    send_queue_size: u16
                ) -> doca_error_t;

                #[doc = "Sets, before the endpoint is active, the size of the receive queue in messages, which is rounded up to a power of two."]
                fn doca_comm_channel_ep_set_recv_queue_size(
                    ep: *mut doca_comm_channel_ep_t,
                    recv_queue_size: u16
                ) -> doca_error_t;

                #[doc = "Gets the descriptors that become readable when messages can be sent, and when one can be received. One of the pointers may be NULL."]
                fn doca_comm_channel_ep_get_event_channel(
                    local_ep: *mut doca_comm_channel_ep_t,
                    send_event_channel: *mut doca_event_channel_t,
                    recv_event_channel: *mut doca_event_channel_t
                ) -> doca_error_t;

                #[doc = "Gets the descriptor that becomes readable when a client connects or disconnects."]
                fn doca_comm_channel_ep_get_service_event_channel(
                    local_ep: *mut doca_comm_channel_ep_t,
                    service_event_channel: *mut doca_event_channel_t
                ) -> doca_error_t;

                #[doc = "Makes the send descriptor readable once a message can be sent."]
                fn doca_comm_channel_ep_event_handle_arm_send(
                    local_ep: *mut doca_comm_channel_ep_t
                ) -> doca_error_t;

                #[doc = "Accepted without effect: the receive descriptor is readable as long as there is something to receive."]
                fn doca_comm_channel_ep_event_handle_arm_recv(
                    local_ep: *mut doca_comm_channel_ep_t
                ) -> doca_error_t;

                #[doc = "Makes the endpoint a service with this name."]
                fn doca_comm_channel_ep_listen(
                    local_ep: *mut doca_comm_channel_ep_t,
                    name: *const c_char
                ) -> doca_error_t;

                #[doc = "Connects to a service. The connection is established once `doca_comm_channel_peer_addr_update_info` says so."]
                fn doca_comm_channel_ep_connect(
                    local_ep: *mut doca_comm_channel_ep_t,
                    name: *const c_char,
                    peer_addr: *mut *mut doca_comm_channel_addr_t
                ) -> doca_error_t;

                #[doc = "Sends a copy of a message."]
                fn doca_comm_channel_ep_sendto(
                    local_ep: *mut doca_comm_channel_ep_t,
                    msg: *const c_void,
                    len: usize,
                    flags: c_int,
                    peer_addr: *mut doca_comm_channel_addr_t
                ) -> doca_error_t;

                #[doc = "Receives a message of any peer. `len` is the size of the buffer, then that of the message."]
                fn doca_comm_channel_ep_recvfrom(
                    local_ep: *mut doca_comm_channel_ep_t,
                    msg: *mut c_void,
                    len: *mut usize,
                    flags: c_int,
                    peer_addr: *mut *mut doca_comm_channel_addr_t
                ) -> doca_error_t;

                #[doc = "Ends a connection."]
                fn doca_comm_channel_ep_disconnect(
                    local_ep: *mut doca_comm_channel_ep_t,
                    peer_addr: *mut doca_comm_channel_addr_t
                ) -> doca_error_t;

                #[doc = "Ends all connections of an endpoint, and destroys it with its addresses and descriptors."]
                fn doca_comm_channel_ep_destroy(
                    local_ep: *mut doca_comm_channel_ep_t
                ) -> doca_error_t;

                #[doc = "Gets the value that the program has set for an address; 0 if none."]
                fn doca_comm_channel_peer_addr_get_user_data(
                    peer_addr: *mut doca_comm_channel_addr_t,
                    user_data: *mut u64
                ) -> doca_error_t;

                #[doc = "Sets a value for an address."]
                fn doca_comm_channel_peer_addr_set_user_data(
                    peer_addr: *mut doca_comm_channel_addr_t,
                    user_context: u64
                ) -> doca_error_t;

                #[doc = "Updates an address's counters, and checks its connection."]
                fn doca_comm_channel_peer_addr_update_info(
                    peer_addr: *mut doca_comm_channel_addr_t
                ) -> doca_error_t;

                #[doc = "Gets the number of messages that were sent to an address."]
                fn doca_comm_channel_peer_addr_get_send_messages(
                    peer_addr: *const doca_comm_channel_addr_t,
                    send_messages: *mut u64
                ) -> doca_error_t;

                #[doc = "Gets the bytes in messages that were sent to an address."]
                fn doca_comm_channel_peer_addr_get_send_bytes(
                    peer_addr: *const doca_comm_channel_addr_t,
                    send_bytes: *mut u64
                ) -> doca_error_t;

                #[doc = "Gets the number of messages that were received from an address."]
                fn doca_comm_channel_peer_addr_get_recv_messages(
                    peer_addr: *const doca_comm_channel_addr_t,
                    recv_messages: *mut u64
                ) -> doca_error_t;

                #[doc = "Gets the bytes in messages that were received from an address."]
                fn doca_comm_channel_peer_addr_get_recv_bytes(
                    peer_addr: *const doca_comm_channel_addr_t,
                    recv_bytes: *mut u64
                ) -> doca_error_t;

                #[doc = "Gets the number of messages that a disconnect would lose: 0, because a message that was sent reaches the peer."]
                fn doca_comm_channel_peer_addr_get_send_in_flight_messages(
                    peer_addr: *const doca_comm_channel_addr_t,
                    send_in_flight_messages: *mut u64
                ) -> doca_error_t;

                #[doc = "Admits clients of a service, and updates its list of addresses and its number of pending connections."]
                fn doca_comm_channel_ep_update_service_state_info(
                    local_ep: *mut doca_comm_channel_ep_t
                ) -> doca_error_t;

                #[doc = "Gets the addresses of a service's clients, as of the last update."]
                fn doca_comm_channel_ep_get_peer_addr_list(
                    local_ep: *const doca_comm_channel_ep_t,
                    peer_addr_array: *mut *mut *mut doca_comm_channel_addr_t,
                    peer_addr_array_len: *mut u32
                ) -> doca_error_t;

                #[doc = "Gets the number of a service's clients whose handshake has not begun, as of the last update."]
                fn doca_comm_channel_ep_get_pending_connections(
                    local_ep: *const doca_comm_channel_ep_t,
                    pending_connections: *mut u32
                ) -> doca_error_t;
            }

            header "doca_cc.h" since V2_5 until V2_6 {
                fn doca_cc_connection_set_user_data(
                    connection: *mut doca_cc_connection,
                    user_data: doca_data
                ) -> doca_error_t
                    = doca_comch_connection_set_user_data;

                fn doca_cc_connection_get_user_data(connection: *const doca_cc_connection) -> doca_data
                    = doca_comch_connection_get_user_data;

                fn doca_cc_server_get_server_ctx(
                    connection: *const doca_cc_connection
                ) -> *mut doca_cc_server
                    = doca_comch_server_get_server_ctx;

                fn doca_cc_client_get_client_ctx(
                    connection: *const doca_cc_connection
                ) -> *mut doca_cc_client
                    = doca_comch_client_get_client_ctx;

                fn doca_cc_cap_get_max_name_len(
                    devinfo: *const doca_devinfo,
                    max_name_len: *mut u32
                ) -> doca_error_t
                    = doca_comch_cap_get_max_name_len;

                fn doca_cc_server_create(
                    dev: *mut doca_dev,
                    repr: *mut doca_dev_rep,
                    name: *const c_char,
                    cc_server: *mut *mut doca_cc_server
                ) -> doca_error_t
                    = doca_comch_server_create;

                fn doca_cc_server_destroy(cc_server: *mut doca_cc_server) -> doca_error_t
                    = doca_comch_server_destroy;

                fn doca_cc_cap_server_is_supported(devinfo: *const doca_devinfo) -> doca_error_t
                    = doca_comch_cap_server_is_supported;

                fn doca_cc_server_set_max_msg_size(
                    cc_server: *mut doca_cc_server,
                    size: u32
                ) -> doca_error_t
                    = doca_comch_server_set_max_msg_size;

                fn doca_cc_server_set_recv_queue_size(
                    cc_server: *mut doca_cc_server,
                    size: u32
                ) -> doca_error_t
                    = doca_comch_server_set_recv_queue_size;

                fn doca_cc_server_get_device(
                    cc_server: *const doca_cc_server,
                    dev: *mut *mut doca_dev
                ) -> doca_error_t
                    = doca_comch_server_get_device;

                fn doca_cc_server_get_device_repr(
                    cc_server: *const doca_cc_server,
                    repr: *mut *mut doca_dev_rep
                ) -> doca_error_t
                    = doca_comch_server_get_device_rep;

                fn doca_cc_server_as_ctx(cc_server: *mut doca_cc_server) -> *mut doca_ctx
                    = doca_comch_server_as_ctx;

                fn doca_cc_client_create(
                    dev: *mut doca_dev,
                    name: *const c_char,
                    cc_client: *mut *mut doca_cc_client
                ) -> doca_error_t
                    = doca_comch_client_create;

                fn doca_cc_client_destroy(cc_client: *mut doca_cc_client) -> doca_error_t
                    = doca_comch_client_destroy;

                fn doca_cc_cap_client_is_supported(devinfo: *const doca_devinfo) -> doca_error_t
                    = doca_comch_cap_client_is_supported;

                fn doca_cc_client_set_max_msg_size(
                    cc_client: *mut doca_cc_client,
                    size: u32
                ) -> doca_error_t
                    = doca_comch_client_set_max_msg_size;

                fn doca_cc_client_set_recv_queue_size(
                    cc_client: *mut doca_cc_client,
                    size: u32
                ) -> doca_error_t
                    = doca_comch_client_set_recv_queue_size;

                fn doca_cc_client_get_device(
                    cc_client: *const doca_cc_client,
                    dev: *mut *mut doca_dev
                ) -> doca_error_t
                    = doca_comch_client_get_device;

                fn doca_cc_client_as_ctx(cc_client: *mut doca_cc_client) -> *mut doca_ctx
                    = doca_comch_client_as_ctx;

                fn doca_cc_client_get_connection(
                    cc_client: *const doca_cc_client,
                    connection: *mut *mut doca_cc_connection
                ) -> doca_error_t
                    = doca_comch_client_get_connection;

                fn doca_cc_server_event_msg_recv_register(
                    cc_server: *mut doca_cc_server,
                    recv_event_cb: doca_cc_event_msg_recv_cb_t
                ) -> doca_error_t
                    = doca_comch_server_event_msg_recv_register;

                fn doca_cc_client_event_msg_recv_register(
                    cc_client: *mut doca_cc_client,
                    recv_event_cb: doca_cc_event_msg_recv_cb_t
                ) -> doca_error_t
                    = doca_comch_client_event_msg_recv_register;

                fn doca_cc_server_event_connection_register(
                    cc_server: *mut doca_cc_server,
                    connect_event_cb: doca_cc_event_connection_status_changed_cb_t,
                    disconnect_event_cb: doca_cc_event_connection_status_changed_cb_t
                ) -> doca_error_t
                    = doca_comch_server_event_connection_status_changed_register;

                fn doca_cc_connection_update_info(
                    cc_connection: *mut doca_cc_connection
                ) -> doca_error_t
                    = doca_comch_connection_update_info;

                fn doca_cc_connection_get_counter(
                    cc_connection: *const doca_cc_connection,
                    counter_type: doca_cc_counter,
                    counter_value: *mut u64
                ) -> doca_error_t
                    = doca_comch_connection_get_counter;

                fn doca_cc_server_event_consumer_register(
                    cc_server: *mut doca_cc_server,
                    new_consumer_event_cb: doca_cc_event_consumer_cb_t,
                    expired_consumer_event_cb: doca_cc_event_consumer_cb_t
                ) -> doca_error_t
                    = doca_comch_server_event_consumer_register;

                fn doca_cc_client_event_consumer_register(
                    cc_client: *mut doca_cc_client,
                    new_consumer_event_cb: doca_cc_event_consumer_cb_t,
                    expired_consumer_event_cb: doca_cc_event_consumer_cb_t
                ) -> doca_error_t
                    = doca_comch_client_event_consumer_register;
            }

            header "doca_cc.h" since V2_6 until V2_6 {
                fn doca_cc_cap_get_max_msg_size(
                    devinfo: *const doca_devinfo,
                    size: *mut u32
                ) -> doca_error_t
                    = doca_comch_cap_get_max_msg_size;

                fn doca_cc_cap_get_max_recv_queue_size(
                    devinfo: *const doca_devinfo,
                    size: *mut u32
                ) -> doca_error_t
                    = doca_comch_cap_get_max_recv_queue_size;

                fn doca_cc_cap_get_max_clients(
                    devinfo: *const doca_devinfo,
                    num_clients: *mut u32
                ) -> doca_error_t
                    = doca_comch_cap_get_max_clients;

                fn doca_cc_server_get_max_msg_size(
                    cc_server: *const doca_cc_server,
                    size: *mut u32
                ) -> doca_error_t
                    = doca_comch_server_get_max_msg_size;

                fn doca_cc_server_get_recv_queue_size(
                    cc_server: *const doca_cc_server,
                    size: *mut u32
                ) -> doca_error_t
                    = doca_comch_server_get_recv_queue_size;

                fn doca_cc_client_get_max_msg_size(
                    cc_client: *const doca_cc_client,
                    size: *mut u32
                ) -> doca_error_t
                    = doca_comch_client_get_max_msg_size;

                fn doca_cc_client_get_recv_queue_size(
                    cc_client: *const doca_cc_client,
                    size: *mut u32
                ) -> doca_error_t
                    = doca_comch_client_get_recv_queue_size;

                fn doca_cc_cap_get_max_send_tasks(
                    devinfo: *const doca_devinfo,
                    max_send_tasks: *mut u32
                ) -> doca_error_t
                    = doca_comch_cap_get_max_send_tasks;

                fn doca_cc_server_task_send_set_conf(
                    cc_server: *mut doca_cc_server,
                    completion_cb: doca_cc_task_send_completion_cb_t,
                    error_cb: doca_cc_task_send_completion_cb_t,
                    num_send_tasks: u32
                ) -> doca_error_t
                    = doca_comch_server_task_send_set_conf;

                fn doca_cc_client_task_send_set_conf(
                    cc_client: *mut doca_cc_client,
                    completion_cb: doca_cc_task_send_completion_cb_t,
                    error_cb: doca_cc_task_send_completion_cb_t,
                    num_send_tasks: u32
                ) -> doca_error_t
                    = doca_comch_client_task_send_set_conf;

                fn doca_cc_server_task_send_alloc_init(
                    cc_server: *mut doca_cc_server,
                    peer: *mut doca_cc_connection,
                    msg: *const c_void,
                    len: u32,
                    task: *mut *mut doca_cc_task_send
                ) -> doca_error_t
                    = doca_comch_server_task_send_alloc_init;

                fn doca_cc_client_task_send_alloc_init(
                    cc_client: *mut doca_cc_client,
                    peer: *mut doca_cc_connection,
                    msg: *const c_void,
                    len: u32,
                    task: *mut *mut doca_cc_task_send
                ) -> doca_error_t
                    = doca_comch_client_task_send_alloc_init;

                fn doca_cc_task_send_as_task(task: *mut doca_cc_task_send) -> *mut doca_task
                    = doca_comch_task_send_as_task;
            }

            header "doca_cc.h" since V2_5 until V2_5 {
                fn doca_cc_cap_get_max_msg_size as doca_cc_cap_get_max_msg_size_2_5(
                    devinfo: *const doca_devinfo,
                    size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_cap_get_max_recv_queue_size as doca_cc_cap_get_max_recv_queue_size_2_5(
                    devinfo: *const doca_devinfo,
                    size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_cap_get_max_clients as doca_cc_cap_get_max_clients_2_5(
                    devinfo: *const doca_devinfo,
                    num_clients: *mut usize
                ) -> doca_error_t;

                fn doca_cc_server_get_max_msg_size as doca_cc_server_get_max_msg_size_2_5(
                    cc_server: *const doca_cc_server,
                    size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_server_get_recv_queue_size as doca_cc_server_get_recv_queue_size_2_5(
                    cc_server: *const doca_cc_server,
                    size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_client_get_max_msg_size as doca_cc_client_get_max_msg_size_2_5(
                    cc_client: *const doca_cc_client,
                    size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_client_get_recv_queue_size as doca_cc_client_get_recv_queue_size_2_5(
                    cc_client: *const doca_cc_client,
                    size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_cap_get_max_send_tasks as doca_cc_cap_get_max_send_tasks_2_5(
                    devinfo: *const doca_devinfo,
                    max_send_tasks: *mut usize
                ) -> doca_error_t;

                fn doca_cc_server_send_task_set_conf(
                    cc_server: *mut doca_cc_server,
                    completion_cb: doca_cc_send_task_comp_handler,
                    error_cb: doca_cc_send_task_comp_handler,
                    log_num_tasks: u8
                ) -> doca_error_t
                    = doca_comch_server_task_send_set_conf(cc_server, completion_cb, error_cb, $crate::power_of_two(log_num_tasks));

                fn doca_cc_client_send_task_set_conf(
                    cc_client: *mut doca_cc_client,
                    completion_cb: doca_cc_send_task_comp_handler,
                    error_cb: doca_cc_send_task_comp_handler,
                    log_num_tasks: u8
                ) -> doca_error_t
                    = doca_comch_client_task_send_set_conf(cc_client, completion_cb, error_cb, $crate::power_of_two(log_num_tasks));

                fn doca_cc_server_send_task_alloc_init(
                    cc_server: *mut doca_cc_server,
                    peer: *mut doca_cc_connection,
                    msg: *const c_void,
                    len: u32,
                    task: *mut *mut doca_cc_send_task
                ) -> doca_error_t
                    = doca_comch_server_task_send_alloc_init;

                fn doca_cc_client_send_task_alloc_init(
                    cc_client: *mut doca_cc_client,
                    peer: *mut doca_cc_connection,
                    msg: *const c_void,
                    len: u32,
                    task: *mut *mut doca_cc_send_task
                ) -> doca_error_t
                    = doca_comch_client_task_send_alloc_init;

                fn doca_cc_send_task_as_task(task: *mut doca_cc_send_task) -> *mut doca_task
                    = doca_comch_task_send_as_task;
            }

            header "doca_cc_consumer.h" since V2_5 until V2_6 {
                fn doca_cc_consumer_create(
                    cc_connection: *mut doca_cc_connection,
                    buf_mmap: *mut doca_mmap,
                    consumer: *mut *mut doca_cc_consumer
                ) -> doca_error_t
                    = doca_comch_consumer_create;

                fn doca_cc_consumer_destroy(consumer: *mut doca_cc_consumer) -> doca_error_t
                    = doca_comch_consumer_destroy;

                fn doca_cc_consumer_get_id(
                    consumer: *const doca_cc_consumer,
                    id: *mut u32
                ) -> doca_error_t
                    = doca_comch_consumer_get_id;

                fn doca_cc_consumer_as_ctx(consumer: *mut doca_cc_consumer) -> *mut doca_ctx
                    = doca_comch_consumer_as_ctx;
            }

            header "doca_cc_consumer.h" since V2_6 until V2_6 {
                fn doca_cc_consumer_cap_get_max_buf_size(
                    devinfo: *const doca_devinfo,
                    max_buf_size: *mut u32
                ) -> doca_error_t
                    = doca_comch_consumer_cap_get_max_buf_size;

                fn doca_cc_consumer_cap_get_max_consumers(
                    devinfo: *const doca_devinfo,
                    max_consumers: *mut u32
                ) -> doca_error_t
                    = doca_comch_consumer_cap_get_max_consumers;

                fn doca_cc_consumer_cap_is_supported(devinfo: *const doca_devinfo) -> doca_error_t
                    = doca_comch_consumer_cap_is_supported;

                fn doca_cc_consumer_cap_get_max_num_tasks(
                    devinfo: *const doca_devinfo,
                    max_num_tasks: *mut u32
                ) -> doca_error_t
                    = doca_comch_consumer_cap_get_max_num_tasks;

                fn doca_cc_consumer_task_post_recv_set_conf(
                    consumer: *mut doca_cc_consumer,
                    completion_cb: doca_cc_consumer_task_post_recv_completion_cb_t,
                    error_cb: doca_cc_consumer_task_post_recv_completion_cb_t,
                    num_post_recv_tasks: u32
                ) -> doca_error_t
                    = doca_comch_consumer_task_post_recv_set_conf;

                fn doca_cc_consumer_task_post_recv_alloc_init(
                    consumer: *mut doca_cc_consumer,
                    buf: *mut doca_buf,
                    task: *mut *mut doca_cc_consumer_task_post_recv
                ) -> doca_error_t
                    = doca_comch_consumer_task_post_recv_alloc_init;

                fn doca_cc_consumer_task_post_recv_get_buf(
                    task: *mut doca_cc_consumer_task_post_recv
                ) -> *mut doca_buf
                    = doca_comch_consumer_task_post_recv_get_buf;

                fn doca_cc_consumer_task_post_recv_set_buf(
                    task: *mut doca_cc_consumer_task_post_recv,
                    buf: *mut doca_buf
                )
                    = doca_comch_consumer_task_post_recv_set_buf;

                fn doca_cc_consumer_task_post_recv_get_producer_id(
                    task: *mut doca_cc_consumer_task_post_recv
                ) -> u32
                    = doca_comch_consumer_task_post_recv_get_producer_id;

                fn doca_cc_consumer_task_post_recv_as_task(
                    task: *mut doca_cc_consumer_task_post_recv
                ) -> *mut doca_task
                    = doca_comch_consumer_task_post_recv_as_task;
            }

            header "doca_cc_consumer.h" since V2_5 until V2_5 {
                fn doca_cc_consumer_cap_get_max_buf_size as doca_cc_consumer_cap_get_max_buf_size_2_5(
                    devinfo: *const doca_devinfo,
                    max_buf_size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_cap_is_consumer_supported(devinfo: *const doca_devinfo) -> doca_error_t
                    = doca_comch_consumer_cap_is_supported;

                fn doca_cc_consumer_cap_get_max_log_num_tasks(
                    devinfo: *const doca_devinfo,
                    max_log_num_tasks: *mut usize
                ) -> doca_error_t;

                fn doca_cc_consumer_post_recv_task_set_conf(
                    consumer: *mut doca_cc_consumer,
                    completion_cb: doca_cc_consumer_post_recv_task_comp_handler,
                    error_cb: doca_cc_consumer_post_recv_task_comp_handler,
                    log_num_post_recv_tasks: u8
                ) -> doca_error_t
                    = doca_comch_consumer_task_post_recv_set_conf(consumer, completion_cb, error_cb, $crate::power_of_two(log_num_post_recv_tasks));

                fn doca_cc_consumer_post_recv_task_alloc_init(
                    consumer: *mut doca_cc_consumer,
                    buf: *mut doca_buf,
                    task: *mut *mut doca_cc_consumer_post_recv_task
                ) -> doca_error_t
                    = doca_comch_consumer_task_post_recv_alloc_init;

                fn doca_cc_consumer_post_recv_task_get_buf(
                    task: *mut doca_cc_consumer_post_recv_task
                ) -> *mut doca_buf
                    = doca_comch_consumer_task_post_recv_get_buf;

                fn doca_cc_consumer_post_recv_task_set_buf(
                    task: *mut doca_cc_consumer_post_recv_task,
                    buf: *mut doca_buf
                )
                    = doca_comch_consumer_task_post_recv_set_buf;

                fn doca_cc_consumer_post_recv_task_as_task(
                    task: *mut doca_cc_consumer_post_recv_task
                ) -> *mut doca_task
                    = doca_comch_consumer_task_post_recv_as_task;
            }

            header "doca_cc_producer.h" since V2_5 until V2_6 {
                fn doca_cc_producer_create(
                    cc_connection: *mut doca_cc_connection,
                    producer: *mut *mut doca_cc_producer
                ) -> doca_error_t
                    = doca_comch_producer_create;

                fn doca_cc_producer_destroy(producer: *mut doca_cc_producer) -> doca_error_t
                    = doca_comch_producer_destroy;

                fn doca_cc_producer_as_ctx(producer: *mut doca_cc_producer) -> *mut doca_ctx
                    = doca_comch_producer_as_ctx;
            }

            header "doca_cc_producer.h" since V2_6 until V2_6 {
                fn doca_cc_producer_cap_get_max_buf_size(
                    devinfo: *const doca_devinfo,
                    max_buf_size: *mut u32
                ) -> doca_error_t
                    = doca_comch_producer_cap_get_max_buf_size;

                fn doca_cc_producer_cap_get_max_producers(
                    devinfo: *const doca_devinfo,
                    max_producers: *mut u32
                ) -> doca_error_t
                    = doca_comch_producer_cap_get_max_producers;

                fn doca_cc_producer_get_id(
                    producer: *const doca_cc_producer,
                    id: *mut u32
                ) -> doca_error_t
                    = doca_comch_producer_get_id;

                fn doca_cc_producer_cap_is_supported(devinfo: *const doca_devinfo) -> doca_error_t
                    = doca_comch_producer_cap_is_supported;

                fn doca_cc_producer_cap_get_max_num_tasks(
                    devinfo: *const doca_devinfo,
                    max_num_tasks: *mut u32
                ) -> doca_error_t
                    = doca_comch_producer_cap_get_max_num_tasks;

                fn doca_cc_producer_task_send_set_conf(
                    producer: *mut doca_cc_producer,
                    completion_cb: doca_cc_producer_task_send_completion_cb_t,
                    error_cb: doca_cc_producer_task_send_completion_cb_t,
                    num_send_tasks: u32
                ) -> doca_error_t
                    = doca_comch_producer_task_send_set_conf;

                fn doca_cc_producer_task_send_alloc_init(
                    producer: *mut doca_cc_producer,
                    buf: *mut doca_buf,
                    consumer_id: u32,
                    task: *mut *mut doca_cc_producer_task_send
                ) -> doca_error_t
                    = doca_comch_producer_task_send_alloc_init(producer, buf, core::ptr::null_mut(), 0, consumer_id, task);

                fn doca_cc_producer_task_send_get_buf(
                    task: *mut doca_cc_producer_task_send
                ) -> *mut doca_buf
                    = doca_comch_producer_task_send_get_buf as *mut doca_buf;

                fn doca_cc_producer_task_send_set_buf(
                    task: *mut doca_cc_producer_task_send,
                    buf: *mut doca_buf
                )
                    = doca_comch_producer_task_send_set_buf;

                fn doca_cc_producer_task_send_get_consumer_id(
                    task: *mut doca_cc_producer_task_send
                ) -> u32
                    = doca_comch_producer_task_send_get_consumer_id;

                fn doca_cc_producer_task_send_set_consumer_id(
                    task: *mut doca_cc_producer_task_send,
                    consumer_id: u32
                )
                    = doca_comch_producer_task_send_set_consumer_id;

                fn doca_cc_producer_task_send_as_task(
                    task: *mut doca_cc_producer_task_send
                ) -> *mut doca_task
                    = doca_comch_producer_task_send_as_task;
            }

            header "doca_cc_producer.h" since V2_5 until V2_5 {
                fn doca_cc_producer_cap_get_max_buf_size as doca_cc_producer_cap_get_max_buf_size_2_5(
                    devinfo: *const doca_devinfo,
                    max_buf_size: *mut usize
                ) -> doca_error_t;

                fn doca_cc_cap_is_producer_supported(devinfo: *const doca_devinfo) -> doca_error_t
                    = doca_comch_producer_cap_is_supported;

                fn doca_cc_producer_cap_get_max_log_num_tasks(
                    devinfo: *const doca_devinfo,
                    max_log_num_tasks: *mut usize
                ) -> doca_error_t;

                fn doca_cc_producer_send_task_set_conf(
                    producer: *mut doca_cc_producer,
                    completion_cb: doca_cc_producer_send_task_comp_handler,
                    error_cb: doca_cc_producer_send_task_comp_handler,
                    log_num_send_tasks: u8
                ) -> doca_error_t
                    = doca_comch_producer_task_send_set_conf(producer, completion_cb, error_cb, $crate::power_of_two(log_num_send_tasks));

                fn doca_cc_producer_send_task_alloc_init(
                    producer: *mut doca_cc_producer,
                    buf: *mut doca_buf,
                    consumer_id: u32,
                    task: *mut *mut doca_cc_producer_send_task
                ) -> doca_error_t
                    = doca_comch_producer_task_send_alloc_init(producer, buf, core::ptr::null_mut(), 0, consumer_id, task);

                fn doca_cc_producer_send_task_get_buf(
                    task: *mut doca_cc_producer_send_task
                ) -> *mut doca_buf
                    = doca_comch_producer_task_send_get_buf as *mut doca_buf;

                fn doca_cc_producer_send_task_set_buf(
                    task: *mut doca_cc_producer_send_task,
                    buf: *mut doca_buf
                )
                    = doca_comch_producer_task_send_set_buf;

                fn doca_cc_producer_send_task_get_consumer_id(
                    task: *mut doca_cc_producer_send_task
                ) -> u32
                    = doca_comch_producer_task_send_get_consumer_id;

                fn doca_cc_producer_send_task_set_consumer_id(
                    task: *mut doca_cc_producer_send_task,
                    consumer_id: u32
                )
                    = doca_comch_producer_task_send_set_consumer_id;

                fn doca_cc_producer_send_task_as_task(
                    task: *mut doca_cc_producer_send_task
                ) -> *mut doca_task
                    = doca_comch_producer_task_send_as_task;
            }
        }
    };
}
