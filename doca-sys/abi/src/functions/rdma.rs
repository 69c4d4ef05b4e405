//! RDMA and its bridge to rdma-core. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_rdma_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_rdma.h";

            /// Creates an RDMA instance on a device.
            fn doca_rdma_create(dev: *mut doca_dev, rdma: *mut *mut doca_rdma) -> doca_error_t;

            /// Destroys an idle RDMA instance.
            fn doca_rdma_destroy(rdma: *mut doca_rdma) -> doca_error_t;

            /// The RDMA instance's context.
            fn doca_rdma_as_ctx(rdma: *mut doca_rdma) -> *mut doca_ctx;

            /// Creates a connection and its description for the peer; the instance owns the description.
            fn doca_rdma_export(
                rdma: *mut doca_rdma,
                details: *mut *const c_void,
                details_size: *mut usize,
                rdma_connection: *mut *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Connects to the peer whose description was received.
            fn doca_rdma_connect(
                rdma: *mut doca_rdma,
                details: *const c_void,
                details_size: usize,
                rdma_connection: *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Disconnects a connection; its tasks in flight fail.
            fn doca_rdma_connection_disconnect(
                rdma_connection: *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Sets the user data for connection callbacks.
            fn doca_rdma_connection_set_user_data(
                rdma_connection: *mut doca_rdma_connection,
                connection_user_data: doca_data
            ) -> doca_error_t;

            /// Sets the transport, a [`doca_rdma_transport_type`] value; only before the start.
            fn doca_rdma_set_transport_type(
                rdma: *mut doca_rdma,
                transport_type: doca_rdma_transport_type
            ) -> doca_error_t;

            /// Sets the permissions of peers, [`doca_access_flag`] values or-ed together; only before the start.
            fn doca_rdma_set_permissions(
                rdma: *mut doca_rdma,
                permissions: u32
            ) -> doca_error_t;

            /// Sets the index in the device's GID table; only before the start.
            fn doca_rdma_set_gid_index(rdma: *mut doca_rdma, gid_index: u32) -> doca_error_t;

            /// Sets the maximum number of connections; only before the start.
            fn doca_rdma_set_max_num_connections(
                rdma: *mut doca_rdma,
                max_num_connections: u16
            ) -> doca_error_t;

            /// Sets the callbacks for connection state changes; only before the start.
            fn doca_rdma_set_connection_state_callbacks(
                rdma: *mut doca_rdma,
                request_cb: doca_rdma_connection_request_cb_t,
                established_cb: doca_rdma_connection_established_cb_t,
                failure_cb: doca_rdma_connection_failure_cb_t,
                disconnect_cb: doca_rdma_connection_disconnection_cb_t
            ) -> doca_error_t;

            /// Copies entries of a device's GID table.
            fn doca_rdma_cap_get_gid(
                devinfo: *const doca_devinfo,
                start_index: u32,
                num_entries: u32,
                gid_array: *mut doca_rdma_gid
            ) -> doca_error_t;

            /// Gets the number of entries of a device's GID table.
            fn doca_rdma_cap_get_gid_table_size(
                devinfo: *const doca_devinfo,
                gid_table_size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum message size in bytes.
            fn doca_rdma_cap_get_max_message_size(
                devinfo: *const doca_devinfo,
                max_message_size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum size of the receive queue.
            fn doca_rdma_cap_get_max_recv_queue_size(
                devinfo: *const doca_devinfo,
                max_recv_queue_size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in the local list of a task.
            fn doca_rdma_cap_get_max_send_buf_list_len(
                devinfo: *const doca_devinfo,
                max_send_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum size of the send queue.
            fn doca_rdma_cap_get_max_send_queue_size(
                devinfo: *const doca_devinfo,
                max_send_queue_size: *mut u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports a transport.
            fn doca_rdma_cap_transport_type_is_supported(
                devinfo: *const doca_devinfo,
                transport_type: doca_rdma_transport_type
            ) -> doca_error_t;

            /// Index of the GID in use.
            fn doca_rdma_get_gid_index(rdma: *const doca_rdma, gid_index: *mut u32) -> doca_error_t;

            /// 1 if packets have a global routing header.
            fn doca_rdma_get_grh_enabled(rdma: *const doca_rdma, grh_enabled: *mut u8) -> doca_error_t;

            /// Gets the maximum number of bufs in the local list of a task.
            fn doca_rdma_get_max_send_buf_list_len(
                rdma: *const doca_rdma,
                max_send_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// MTU, a [`doca_mtu_size`] value.
            fn doca_rdma_get_mtu(rdma: *const doca_rdma, mtu: *mut doca_mtu_size) -> doca_error_t;

            /// Permissions of peers, [`doca_access_flag`] values.
            fn doca_rdma_get_permissions(rdma: *mut doca_rdma, permissions: *mut u32) -> doca_error_t;

            /// Size of the receive queue.
            fn doca_rdma_get_recv_queue_size(
                rdma: *const doca_rdma,
                recv_queue_size: *mut u32
            ) -> doca_error_t;

            /// Number of retries for a peer without posted receives.
            fn doca_rdma_get_rnr_retry_count(
                rdma: *const doca_rdma,
                rnr_retry_count: *mut u8
            ) -> doca_error_t;

            /// Size of the send queue.
            fn doca_rdma_get_send_queue_size(
                rdma: *const doca_rdma,
                send_queue_size: *mut u32
            ) -> doca_error_t;

            /// Service level.
            fn doca_rdma_get_sl(rdma: *const doca_rdma, sl: *mut u32) -> doca_error_t;

            /// The transport, a [`doca_rdma_transport_type`] value.
            fn doca_rdma_get_transport_type(
                rdma: *const doca_rdma,
                transport_type: *mut doca_rdma_transport_type
            ) -> doca_error_t;

            /// Sets whether packets have a global routing header; only before the start.
            fn doca_rdma_set_grh_enabled(rdma: *mut doca_rdma, grh_enabled: u8) -> doca_error_t;

            /// Sets the maximum number of bufs in the local list of a task; only before the start.
            fn doca_rdma_set_max_send_buf_list_len(
                rdma: *mut doca_rdma,
                max_send_buf_list_len: u32
            ) -> doca_error_t;

            /// Sets the MTU, a [`doca_mtu_size`] value; only before the start.
            fn doca_rdma_set_mtu(rdma: *mut doca_rdma, mtu: doca_mtu_size) -> doca_error_t;

            /// Sets the size of the receive queue, rounded up to a power of 2; only before the start.
            fn doca_rdma_set_recv_queue_size(rdma: *mut doca_rdma, recv_queue_size: u32) -> doca_error_t;

            /// Sets the number of retries for a peer without posted receives, at most 7, which means unlimited; only before the start.
            fn doca_rdma_set_rnr_retry_count(rdma: *mut doca_rdma, rnr_retry_count: u8) -> doca_error_t;

            /// Sets the size of the send queue, rounded up to a power of 2; only before the start.
            fn doca_rdma_set_send_queue_size(rdma: *mut doca_rdma, send_queue_size: u32) -> doca_error_t;

            /// Sets the service level; only before the start.
            fn doca_rdma_set_sl(rdma: *mut doca_rdma, sl: u32) -> doca_error_t;

            /// Gets the maximum number of connections.
            fn doca_rdma_get_max_num_connections(
                rdma: *mut doca_rdma,
                max_num_connections: *mut u16
            ) -> doca_error_t;

            /// Number of the connection within its instance.
            fn doca_rdma_connection_get_id(
                rdma_connection: *const doca_rdma_connection,
                connection_id: *mut u32
            ) -> doca_error_t;

            /// The user data for connection callbacks.
            fn doca_rdma_connection_get_user_data(
                rdma_connection: *const doca_rdma_connection,
                connection_user_data: *mut doca_data
            ) -> doca_error_t;

            /// Time for resolving an address, in milliseconds.
            fn doca_rdma_get_connection_request_timeout(
                rdma: *const doca_rdma,
                timeout: *mut u16
            ) -> doca_error_t;

            /// Sets the time for resolving an address, in milliseconds; only before the start.
            fn doca_rdma_set_connection_request_timeout(rdma: *mut doca_rdma, timeout: u16) -> doca_error_t;

            /// Creates an address from its kind, its text and a port.
            fn doca_rdma_addr_create(
                addr_type: doca_rdma_addr_type,
                address: *const c_char,
                port: u16,
                addr: *mut *mut doca_rdma_addr
            ) -> doca_error_t;

            /// Destroys an address that no connection uses.
            fn doca_rdma_addr_destroy(addr: *mut doca_rdma_addr) -> doca_error_t;

            /// Kind, text and port of an address; the text is valid as long as the address.
            fn doca_rdma_addr_get_params(
                addr: *mut doca_rdma_addr,
                addr_type: *mut doca_rdma_addr_type,
                address: *mut *const c_char,
                port: *mut u16
            ) -> doca_error_t;

            /// Requests a connection to the instance that listens at an address; callbacks report the result.
            fn doca_rdma_connect_to_addr(
                rdma: *mut doca_rdma,
                addr: *mut doca_rdma_addr,
                connection_user_data: doca_data
            ) -> doca_error_t;

            /// Accepts a requested connection, with up to 255 bytes of private data for the peer.
            fn doca_rdma_connection_accept(
                rdma_connection: *mut doca_rdma_connection,
                private_data: *mut c_void,
                private_data_len: u8
            ) -> doca_error_t;

            /// The address to which a connection was made; NULL for an exported connection.
            fn doca_rdma_connection_get_addr(
                rdma_connection: *const doca_rdma_connection,
                addr: *mut *mut doca_rdma_addr
            ) -> doca_error_t;

            /// Rejects a requested connection.
            fn doca_rdma_connection_reject(rdma_connection: *mut doca_rdma_connection) -> doca_error_t;

            /// Listens for connection requests at a port of the device.
            fn doca_rdma_start_listen_to_port(rdma: *mut doca_rdma, port: u16) -> doca_error_t;

            /// Stops listening at a port. Existing connections remain open.
            fn doca_rdma_stop_listen_to_port(rdma: *mut doca_rdma, port: u16) -> doca_error_t;

            /// Prepares a connection requested through rdma-core's connection manager.
            fn doca_rdma_bridge_prepare_connection(
                rdma: *mut doca_rdma,
                cm_id: *mut rdma_cm_id,
                rdma_connection: *mut *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Accepts a connection of rdma-core's connection manager.
            fn doca_rdma_bridge_accept(
                rdma: *mut doca_rdma,
                private_data: *mut c_void,
                private_data_len: u8,
                rdma_connection: *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Reports that a connection of rdma-core's connection manager is established.
            fn doca_rdma_bridge_established(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Delivers completions to the DPA.
            fn doca_rdma_dpa_completion_attach(
                rdma: *mut doca_rdma,
                dpa_comp: *mut doca_dpa_completion
            ) -> doca_error_t;

            /// Gets the handle of the instance for the DPA.
            fn doca_rdma_get_dpa_handle(rdma: *mut doca_rdma, dpa_rdma: *mut u64) -> doca_error_t;

            /// Gets the handle of the instance for a GPU.
            fn doca_rdma_get_gpu_handle(
                rdma: *mut doca_rdma,
                gpu_rdma: *mut *mut doca_gpu_dev_rdma
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can receive.
            fn doca_rdma_cap_task_receive_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets the callbacks and the number of receive tasks; only before the start.
            fn doca_rdma_task_receive_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_receive_completion_cb_t,
                error_cb: doca_rdma_task_receive_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that receives one message, or one immediate value without a buf.
            fn doca_rdma_task_receive_allocate_init(
                rdma: *mut doca_rdma,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_receive
            ) -> doca_error_t;

            /// The generic task of a receive task.
            fn doca_rdma_task_receive_as_task(
                task: *mut doca_rdma_task_receive
            ) -> *mut doca_task;

            /// Sets the task's destination.
            fn doca_rdma_task_receive_set_dst_buf(
                task: *mut doca_rdma_task_receive,
                dst_buf: *mut doca_buf
            );

            /// The buf that the task receives into.
            fn doca_rdma_task_receive_get_dst_buf(
                task: *const doca_rdma_task_receive
            ) -> *mut doca_buf;

            /// Kind of the received message, a [`doca_rdma_opcode`] value.
            fn doca_rdma_task_receive_get_result_opcode(
                task: *const doca_rdma_task_receive
            ) -> doca_rdma_opcode;

            /// Number of bytes received.
            fn doca_rdma_task_receive_get_result_len(
                task: *const doca_rdma_task_receive
            ) -> u32;

            /// The immediate value received, big endian.
            fn doca_rdma_task_receive_get_result_immediate_data(
                task: *const doca_rdma_task_receive
            ) -> doca_be32_t;

            /// The connection of the received message.
            fn doca_rdma_task_receive_get_result_rdma_connection(
                task: *const doca_rdma_task_receive
            ) -> *const doca_rdma_connection;

            /// Gets the maximum number of bufs in the destination of a receive task.
            fn doca_rdma_cap_task_receive_get_max_dst_buf_list_len(
                devinfo: *const doca_devinfo,
                transport_type: doca_rdma_transport_type,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in the destination of a receive task.
            fn doca_rdma_task_receive_get_dst_buf_list_len(
                rdma: *const doca_rdma,
                buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets the maximum number of bufs in the destination of a receive task; only before the start.
            fn doca_rdma_task_receive_set_dst_buf_list_len(
                rdma: *mut doca_rdma,
                buf_list_len: u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can send.
            fn doca_rdma_cap_task_send_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets the callbacks and the number of send tasks; only before the start.
            fn doca_rdma_task_send_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_send_completion_cb_t,
                error_cb: doca_rdma_task_send_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that sends a buf's data.
            fn doca_rdma_task_send_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                src_buf: *const doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_send
            ) -> doca_error_t;

            /// The generic task of a send task.
            fn doca_rdma_task_send_as_task(task: *mut doca_rdma_task_send) -> *mut doca_task;

            /// Sets the task's source.
            fn doca_rdma_task_send_set_src_buf(
                task: *mut doca_rdma_task_send,
                src_buf: *const doca_buf
            );

            /// The buf whose data the task sends.
            fn doca_rdma_task_send_get_src_buf(
                task: *const doca_rdma_task_send
            ) -> *const doca_buf;

            /// The task's connection.
            fn doca_rdma_task_send_get_rdma_connection(
                task: *const doca_rdma_task_send
            ) -> *const doca_rdma_connection;

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_send_set_rdma_connection(
                task: *mut doca_rdma_task_send,
                rdma_connection: *mut doca_rdma_connection
            );

            /// `DOCA_SUCCESS` if the device can send with an immediate value.
            fn doca_rdma_cap_task_send_imm_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets the callbacks and the number of send-with-immediate tasks; only before the start.
            fn doca_rdma_task_send_imm_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_send_imm_completion_cb_t,
                error_cb: doca_rdma_task_send_imm_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that sends a buf's data and a big-endian immediate value.
            fn doca_rdma_task_send_imm_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                src_buf: *const doca_buf,
                immediate_data: doca_be32_t,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_send_imm
            ) -> doca_error_t;

            /// The generic task of a send-with-immediate task.
            fn doca_rdma_task_send_imm_as_task(
                task: *mut doca_rdma_task_send_imm
            ) -> *mut doca_task;

            /// The immediate value.
            fn doca_rdma_task_send_imm_get_immediate_data(
                task: *const doca_rdma_task_send_imm
            ) -> doca_be32_t;

            /// The task's connection.
            fn doca_rdma_task_send_imm_get_rdma_connection(
                task: *const doca_rdma_task_send_imm
            ) -> *const doca_rdma_connection;

            /// The source.
            fn doca_rdma_task_send_imm_get_src_buf(task: *const doca_rdma_task_send_imm) -> *const doca_buf;

            /// Sets the task's immediate value.
            fn doca_rdma_task_send_imm_set_immediate_data(
                task: *mut doca_rdma_task_send_imm,
                immediate_data: doca_be32_t
            );

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_send_imm_set_rdma_connection(
                task: *mut doca_rdma_task_send_imm,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the task's source.
            fn doca_rdma_task_send_imm_set_src_buf(
                task: *mut doca_rdma_task_send_imm,
                src_buf: *const doca_buf
            );

            /// `DOCA_SUCCESS` if the device can read remote memory.
            fn doca_rdma_cap_task_read_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets the callbacks and the number of read tasks; only before the start.
            fn doca_rdma_task_read_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_read_completion_cb_t,
                error_cb: doca_rdma_task_read_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that reads remote memory (`src_buf`) and appends it to a local buf's data.
            fn doca_rdma_task_read_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_read
            ) -> doca_error_t;

            /// The generic task of a read task.
            fn doca_rdma_task_read_as_task(task: *mut doca_rdma_task_read) -> *mut doca_task;

            /// Sets the task's remote source.
            fn doca_rdma_task_read_set_src_buf(
                task: *mut doca_rdma_task_read,
                src_buf: *const doca_buf
            );

            /// The remote buf that the task reads.
            fn doca_rdma_task_read_get_src_buf(
                task: *const doca_rdma_task_read
            ) -> *const doca_buf;

            /// Sets the task's local destination.
            fn doca_rdma_task_read_set_dst_buf(
                task: *mut doca_rdma_task_read,
                dst_buf: *mut doca_buf
            );

            /// The local buf that the task reads into.
            fn doca_rdma_task_read_get_dst_buf(
                task: *const doca_rdma_task_read
            ) -> *mut doca_buf;

            /// Number of bytes read.
            fn doca_rdma_task_read_get_result_len(task: *const doca_rdma_task_read) -> u32;

            /// The task's connection.
            fn doca_rdma_task_read_get_rdma_connection(
                task: *const doca_rdma_task_read
            ) -> *const doca_rdma_connection;

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_read_set_rdma_connection(
                task: *mut doca_rdma_task_read,
                rdma_connection: *mut doca_rdma_connection
            );

            /// `DOCA_SUCCESS` if the device can write remote memory.
            fn doca_rdma_cap_task_write_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets the callbacks and the number of write tasks; only before the start.
            fn doca_rdma_task_write_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_write_completion_cb_t,
                error_cb: doca_rdma_task_write_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that writes a local buf's data to remote memory (`dst_buf`).
            fn doca_rdma_task_write_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_write
            ) -> doca_error_t;

            /// The generic task of a write task.
            fn doca_rdma_task_write_as_task(task: *mut doca_rdma_task_write) -> *mut doca_task;

            /// Sets the task's local source.
            fn doca_rdma_task_write_set_src_buf(
                task: *mut doca_rdma_task_write,
                src_buf: *const doca_buf
            );

            /// The local buf that the task writes from.
            fn doca_rdma_task_write_get_src_buf(
                task: *const doca_rdma_task_write
            ) -> *const doca_buf;

            /// Sets the task's remote destination.
            fn doca_rdma_task_write_set_dst_buf(
                task: *mut doca_rdma_task_write,
                dst_buf: *mut doca_buf
            );

            /// The remote buf that the task writes to.
            fn doca_rdma_task_write_get_dst_buf(
                task: *const doca_rdma_task_write
            ) -> *mut doca_buf;

            /// The task's connection.
            fn doca_rdma_task_write_get_rdma_connection(
                task: *const doca_rdma_task_write
            ) -> *const doca_rdma_connection;

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_write_set_rdma_connection(
                task: *mut doca_rdma_task_write,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the callbacks and the number of write-with-immediate tasks; only before the start.
            fn doca_rdma_task_write_imm_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_write_imm_completion_cb_t,
                error_cb: doca_rdma_task_write_imm_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that writes remote memory and sends the peer a big-endian immediate value.
            fn doca_rdma_task_write_imm_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                immediate_data: doca_be32_t,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_write_imm
            ) -> doca_error_t;

            /// The generic task of a write-with-immediate task.
            fn doca_rdma_task_write_imm_as_task(
                task: *mut doca_rdma_task_write_imm
            ) -> *mut doca_task;

            /// `DOCA_SUCCESS` if a device supports write-with-immediate tasks.
            fn doca_rdma_cap_task_write_imm_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// The destination.
            fn doca_rdma_task_write_imm_get_dst_buf(task: *const doca_rdma_task_write_imm) -> *mut doca_buf;

            /// The immediate value.
            fn doca_rdma_task_write_imm_get_immediate_data(
                task: *const doca_rdma_task_write_imm
            ) -> doca_be32_t;

            /// The task's connection.
            fn doca_rdma_task_write_imm_get_rdma_connection(
                task: *const doca_rdma_task_write_imm
            ) -> *const doca_rdma_connection;

            /// The source.
            fn doca_rdma_task_write_imm_get_src_buf(task: *const doca_rdma_task_write_imm) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_rdma_task_write_imm_set_dst_buf(
                task: *mut doca_rdma_task_write_imm,
                dst_buf: *mut doca_buf
            );

            /// Sets the task's immediate value.
            fn doca_rdma_task_write_imm_set_immediate_data(
                task: *mut doca_rdma_task_write_imm,
                immediate_data: doca_be32_t
            );

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_write_imm_set_rdma_connection(
                task: *mut doca_rdma_task_write_imm,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the task's source.
            fn doca_rdma_task_write_imm_set_src_buf(
                task: *mut doca_rdma_task_write_imm,
                src_buf: *const doca_buf
            );

            /// `DOCA_SUCCESS` if a device supports compare-and-swap tasks.
            fn doca_rdma_cap_task_atomic_cmp_swp_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Allocates a task that replaces 8 bytes of remote memory if they equal a given value.
            fn doca_rdma_task_atomic_cmp_swp_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                dst_buf: *mut doca_buf,
                result_buf: *mut doca_buf,
                cmp_data: u64,
                swap_data: u64,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_atomic_cmp_swp
            ) -> doca_error_t;

            /// The generic task of a compare-and-swap task.
            fn doca_rdma_task_atomic_cmp_swp_as_task(
                task: *mut doca_rdma_task_atomic_cmp_swp
            ) -> *mut doca_task;

            /// The value to compare with.
            fn doca_rdma_task_atomic_cmp_swp_get_cmp_data(task: *const doca_rdma_task_atomic_cmp_swp) -> u64;

            /// The destination.
            fn doca_rdma_task_atomic_cmp_swp_get_dst_buf(
                task: *const doca_rdma_task_atomic_cmp_swp
            ) -> *mut doca_buf;

            /// The task's connection.
            fn doca_rdma_task_atomic_cmp_swp_get_rdma_connection(
                task: *const doca_rdma_task_atomic_cmp_swp
            ) -> *const doca_rdma_connection;

            /// The buf for the old value.
            fn doca_rdma_task_atomic_cmp_swp_get_result_buf(
                task: *const doca_rdma_task_atomic_cmp_swp
            ) -> *mut doca_buf;

            /// The value to swap in.
            fn doca_rdma_task_atomic_cmp_swp_get_swap_data(task: *const doca_rdma_task_atomic_cmp_swp) -> u64;

            /// Sets the value to compare with.
            fn doca_rdma_task_atomic_cmp_swp_set_cmp_data(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                cmp_data: u64
            );

            /// Sets the callbacks and the number of compare-and-swap tasks; only before the start.
            fn doca_rdma_task_atomic_cmp_swp_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_atomic_cmp_swp_completion_cb_t,
                error_cb: doca_rdma_task_atomic_cmp_swp_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the task's destination.
            fn doca_rdma_task_atomic_cmp_swp_set_dst_buf(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                dst_buf: *mut doca_buf
            );

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_atomic_cmp_swp_set_rdma_connection(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the task's buf for the old value.
            fn doca_rdma_task_atomic_cmp_swp_set_result_buf(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                result_buf: *mut doca_buf
            );

            /// Sets the value to swap in.
            fn doca_rdma_task_atomic_cmp_swp_set_swap_data(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                swap_data: u64
            );

            /// `DOCA_SUCCESS` if a device supports fetch-and-add tasks.
            fn doca_rdma_cap_task_atomic_fetch_add_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Allocates a task that adds to 8 bytes of remote memory.
            fn doca_rdma_task_atomic_fetch_add_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                dst_buf: *mut doca_buf,
                result_buf: *mut doca_buf,
                add_data: u64,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_atomic_fetch_add
            ) -> doca_error_t;

            /// The generic task of a fetch-and-add task.
            fn doca_rdma_task_atomic_fetch_add_as_task(
                task: *mut doca_rdma_task_atomic_fetch_add
            ) -> *mut doca_task;

            /// The value to add.
            fn doca_rdma_task_atomic_fetch_add_get_add_data(
                task: *const doca_rdma_task_atomic_fetch_add
            ) -> u64;

            /// The destination.
            fn doca_rdma_task_atomic_fetch_add_get_dst_buf(
                task: *const doca_rdma_task_atomic_fetch_add
            ) -> *mut doca_buf;

            /// The task's connection.
            fn doca_rdma_task_atomic_fetch_add_get_rdma_connection(
                task: *const doca_rdma_task_atomic_fetch_add
            ) -> *const doca_rdma_connection;

            /// The buf for the old value.
            fn doca_rdma_task_atomic_fetch_add_get_result_buf(
                task: *const doca_rdma_task_atomic_fetch_add
            ) -> *mut doca_buf;

            /// Sets the value to add.
            fn doca_rdma_task_atomic_fetch_add_set_add_data(
                task: *mut doca_rdma_task_atomic_fetch_add,
                add_data: u64
            );

            /// Sets the callbacks and the number of fetch-and-add tasks; only before the start.
            fn doca_rdma_task_atomic_fetch_add_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_atomic_fetch_add_completion_cb_t,
                error_cb: doca_rdma_task_atomic_fetch_add_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the task's destination.
            fn doca_rdma_task_atomic_fetch_add_set_dst_buf(
                task: *mut doca_rdma_task_atomic_fetch_add,
                dst_buf: *mut doca_buf
            );

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_atomic_fetch_add_set_rdma_connection(
                task: *mut doca_rdma_task_atomic_fetch_add,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the task's buf for the old value.
            fn doca_rdma_task_atomic_fetch_add_set_result_buf(
                task: *mut doca_rdma_task_atomic_fetch_add,
                result_buf: *mut doca_buf
            );

            /// `DOCA_SUCCESS` if a device supports remote-event get tasks.
            fn doca_rdma_cap_task_remote_net_sync_event_get_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports remote-event add tasks.
            fn doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports remote-event set tasks.
            fn doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Allocates a task that appends the value of a remote event to a local buf.
            fn doca_rdma_task_remote_net_sync_event_get_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                event: *const doca_sync_event_remote_net,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_remote_net_sync_event_get
            ) -> doca_error_t;

            /// The generic task of a remote-event get task.
            fn doca_rdma_task_remote_net_sync_event_get_as_task(
                task: *mut doca_rdma_task_remote_net_sync_event_get
            ) -> *mut doca_task;

            /// The destination.
            fn doca_rdma_task_remote_net_sync_event_get_get_dst_buf(
                task: *const doca_rdma_task_remote_net_sync_event_get
            ) -> *mut doca_buf;

            /// The task's connection.
            fn doca_rdma_task_remote_net_sync_event_get_get_rdma_connection(
                task: *const doca_rdma_task_remote_net_sync_event_get
            ) -> *const doca_rdma_connection;

            /// Number of bytes read.
            fn doca_rdma_task_remote_net_sync_event_get_get_result_len(
                task: *const doca_rdma_task_remote_net_sync_event_get
            ) -> u32;

            /// The remote event.
            fn doca_rdma_task_remote_net_sync_event_get_get_sync_event(
                task: *const doca_rdma_task_remote_net_sync_event_get
            ) -> *const doca_sync_event_remote_net;

            /// Sets the callbacks and the number of remote-event get tasks; only before the start.
            fn doca_rdma_task_remote_net_sync_event_get_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_remote_net_sync_event_get_completion_cb_t,
                error_cb: doca_rdma_task_remote_net_sync_event_get_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the task's destination.
            fn doca_rdma_task_remote_net_sync_event_get_set_dst_buf(
                task: *mut doca_rdma_task_remote_net_sync_event_get,
                dst_buf: *mut doca_buf
            );

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_remote_net_sync_event_get_set_rdma_connection(
                task: *mut doca_rdma_task_remote_net_sync_event_get,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the task's remote event.
            fn doca_rdma_task_remote_net_sync_event_get_set_sync_event(
                task: *mut doca_rdma_task_remote_net_sync_event_get,
                event: *const doca_sync_event_remote_net
            );

            /// Allocates a task that adds to a remote event and appends the old value to a local buf.
            fn doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                event: *mut doca_sync_event_remote_net,
                result_buf: *mut doca_buf,
                add_data: u64,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_remote_net_sync_event_notify_add
            ) -> doca_error_t;

            /// The generic task of a remote-event add task.
            fn doca_rdma_task_remote_net_sync_event_notify_add_as_task(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_add
            ) -> *mut doca_task;

            /// The value to add.
            fn doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(
                task: *const doca_rdma_task_remote_net_sync_event_notify_add
            ) -> u64;

            /// The task's connection.
            fn doca_rdma_task_remote_net_sync_event_notify_add_get_rdma_connection(
                task: *const doca_rdma_task_remote_net_sync_event_notify_add
            ) -> *const doca_rdma_connection;

            /// The buf for the old value.
            fn doca_rdma_task_remote_net_sync_event_notify_add_get_result_buf(
                task: *const doca_rdma_task_remote_net_sync_event_notify_add
            ) -> *mut doca_buf;

            /// The remote event.
            fn doca_rdma_task_remote_net_sync_event_notify_add_get_sync_event(
                task: *const doca_rdma_task_remote_net_sync_event_notify_add
            ) -> *mut doca_sync_event_remote_net;

            /// Sets the value to add.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_add_data(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_add,
                add_data: u64
            );

            /// Sets the callbacks and the number of remote-event add tasks; only before the start.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t,
                error_cb: doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_rdma_connection(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_add,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the task's buf for the old value.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_result_buf(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_add,
                result_buf: *mut doca_buf
            );

            /// Sets the task's remote event.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_sync_event(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_add,
                event: *mut doca_sync_event_remote_net
            );

            /// Allocates a task that sets a remote event to the 8 bytes in a local buf.
            fn doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection,
                event: *mut doca_sync_event_remote_net,
                src_buf: *const doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_rdma_task_remote_net_sync_event_notify_set
            ) -> doca_error_t;

            /// The generic task of a remote-event set task.
            fn doca_rdma_task_remote_net_sync_event_notify_set_as_task(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_set
            ) -> *mut doca_task;

            /// The task's connection.
            fn doca_rdma_task_remote_net_sync_event_notify_set_get_rdma_connection(
                task: *const doca_rdma_task_remote_net_sync_event_notify_set
            ) -> *const doca_rdma_connection;

            /// The source.
            fn doca_rdma_task_remote_net_sync_event_notify_set_get_src_buf(
                task: *const doca_rdma_task_remote_net_sync_event_notify_set
            ) -> *const doca_buf;

            /// The remote event.
            fn doca_rdma_task_remote_net_sync_event_notify_set_get_sync_event(
                task: *const doca_rdma_task_remote_net_sync_event_notify_set
            ) -> *mut doca_sync_event_remote_net;

            /// Sets the callbacks and the number of remote-event set tasks; only before the start.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t,
                error_cb: doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the task's connection to another one of its instance.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_rdma_connection(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_set,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Sets the task's source.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_set,
                src_buf: *const doca_buf
            );

            /// Sets the task's remote event.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_sync_event(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_set,
                event: *mut doca_sync_event_remote_net
            );
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_rdma_bridge_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_rdma_bridge.h";

            /// Protection domain of a device in rdma-core; not supported for emulated devices.
            fn doca_rdma_bridge_get_dev_pd(dev: *const doca_dev, pd: *mut *mut ibv_pd) -> doca_error_t;

            /// Opens the device of a protection domain of rdma-core; not supported for emulated devices.
            fn doca_rdma_bridge_open_dev_from_pd(pd: *mut ibv_pd, dev: *mut *mut doca_dev) -> doca_error_t;

            /// Key of a buf's memory for a device.
            fn doca_rdma_bridge_get_buf_mkey(
                buf: *const doca_buf,
                dev: *mut doca_dev,
                mkey: *mut u32
            ) -> doca_error_t;

            /// Key of a map's memory in a protection domain of rdma-core; not supported for emulated devices.
            fn doca_rdma_bridge_get_mmap_mkey_from_pd(
                mmap: *const doca_mmap,
                pd: *mut ibv_pd,
                mkey: *mut u32
            ) -> doca_error_t;
        }
    };
}
