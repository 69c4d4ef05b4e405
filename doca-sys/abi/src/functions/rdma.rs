//! RDMA: instance, connections and tasks. One macro per header; see [`doca_functions!`](crate::doca_functions).

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

            /// Makes a connection and describes it for the peer; the description is owned by the instance.
            fn doca_rdma_export(
                rdma: *mut doca_rdma,
                details: *mut *const c_void,
                details_size: *mut usize,
                rdma_connection: *mut *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Connects with the peer whose description was received.
            fn doca_rdma_connect(
                rdma: *mut doca_rdma,
                details: *const c_void,
                details_size: usize,
                rdma_connection: *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Ends a connection; its tasks in flight fail.
            fn doca_rdma_connection_disconnect(
                rdma_connection: *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Sets the value that connection callbacks get.
            fn doca_rdma_connection_set_user_data(
                rdma_connection: *mut doca_rdma_connection,
                connection_user_data: doca_data
            ) -> doca_error_t;

            /// Sets the transport, a [`doca_rdma_transport_type`] value; before the start.
            fn doca_rdma_set_transport_type(
                rdma: *mut doca_rdma,
                transport_type: doca_rdma_transport_type
            ) -> doca_error_t;

            /// Sets what peers may do, [`doca_access_flag`] values or-ed together; before the start.
            fn doca_rdma_set_permissions(
                rdma: *mut doca_rdma,
                permissions: u32
            ) -> doca_error_t;

            /// Sets the index in the device's table of GIDs; before the start.
            fn doca_rdma_set_gid_index(rdma: *mut doca_rdma, gid_index: u32) -> doca_error_t;

            /// Sets how many connections the instance may have; before the start.
            fn doca_rdma_set_max_num_connections(
                rdma: *mut doca_rdma,
                max_num_connections: u16
            ) -> doca_error_t;

            /// Sets the functions that are called when connections change; before the start.
            fn doca_rdma_set_connection_state_callbacks(
                rdma: *mut doca_rdma,
                request_cb: doca_rdma_connection_request_cb_t,
                established_cb: doca_rdma_connection_established_cb_t,
                failure_cb: doca_rdma_connection_failure_cb_t,
                disconnect_cb: doca_rdma_connection_disconnection_cb_t
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` when the device can receive.
            fn doca_rdma_cap_task_receive_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets callbacks and number of receive tasks; before the start.
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

            /// Gives the task another destination.
            fn doca_rdma_task_receive_set_dst_buf(
                task: *mut doca_rdma_task_receive,
                dst_buf: *mut doca_buf
            );

            /// The buf that the task receives into.
            fn doca_rdma_task_receive_get_dst_buf(
                task: *const doca_rdma_task_receive
            ) -> *mut doca_buf;

            /// What was received, a [`doca_rdma_opcode`] value.
            fn doca_rdma_task_receive_get_result_opcode(
                task: *const doca_rdma_task_receive
            ) -> doca_rdma_opcode;

            /// How many bytes were received.
            fn doca_rdma_task_receive_get_result_len(
                task: *const doca_rdma_task_receive
            ) -> u32;

            /// The immediate value received, big endian.
            fn doca_rdma_task_receive_get_result_immediate_data(
                task: *const doca_rdma_task_receive
            ) -> doca_be32_t;

            /// The connection that the message came from.
            fn doca_rdma_task_receive_get_result_rdma_connection(
                task: *const doca_rdma_task_receive
            ) -> *const doca_rdma_connection;

            /// `DOCA_SUCCESS` when the device can send.
            fn doca_rdma_cap_task_send_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets callbacks and number of send tasks; before the start.
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

            /// Gives the task another source.
            fn doca_rdma_task_send_set_src_buf(
                task: *mut doca_rdma_task_send,
                src_buf: *const doca_buf
            );

            /// The buf whose data the task sends.
            fn doca_rdma_task_send_get_src_buf(
                task: *const doca_rdma_task_send
            ) -> *const doca_buf;

            /// `DOCA_SUCCESS` when the device can send with an immediate value.
            fn doca_rdma_cap_task_send_imm_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets callbacks and number of send-with-immediate tasks; before the start.
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

            /// `DOCA_SUCCESS` when the device can read remote memory.
            fn doca_rdma_cap_task_read_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets callbacks and number of read tasks; before the start.
            fn doca_rdma_task_read_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_read_completion_cb_t,
                error_cb: doca_rdma_task_read_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that reads remote memory (`src_buf`) to the tail of a local buf's data.
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

            /// Gives the task another remote source.
            fn doca_rdma_task_read_set_src_buf(
                task: *mut doca_rdma_task_read,
                src_buf: *const doca_buf
            );

            /// The remote buf that the task reads.
            fn doca_rdma_task_read_get_src_buf(
                task: *const doca_rdma_task_read
            ) -> *const doca_buf;

            /// Gives the task another local destination.
            fn doca_rdma_task_read_set_dst_buf(
                task: *mut doca_rdma_task_read,
                dst_buf: *mut doca_buf
            );

            /// The local buf that the task reads into.
            fn doca_rdma_task_read_get_dst_buf(
                task: *const doca_rdma_task_read
            ) -> *mut doca_buf;

            /// How many bytes were read.
            fn doca_rdma_task_read_get_result_len(task: *const doca_rdma_task_read) -> u32;

            /// `DOCA_SUCCESS` when the device can write remote memory.
            fn doca_rdma_cap_task_write_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Sets callbacks and number of write tasks; before the start.
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

            /// Gives the task another local source.
            fn doca_rdma_task_write_set_src_buf(
                task: *mut doca_rdma_task_write,
                src_buf: *const doca_buf
            );

            /// The local buf that the task writes from.
            fn doca_rdma_task_write_get_src_buf(
                task: *const doca_rdma_task_write
            ) -> *const doca_buf;

            /// Gives the task another remote destination.
            fn doca_rdma_task_write_set_dst_buf(
                task: *mut doca_rdma_task_write,
                dst_buf: *mut doca_buf
            );

            /// The remote buf that the task writes to.
            fn doca_rdma_task_write_get_dst_buf(
                task: *const doca_rdma_task_write
            ) -> *mut doca_buf;

            /// Sets callbacks and number of write-with-immediate tasks; before the start.
            fn doca_rdma_task_write_imm_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_write_imm_completion_cb_t,
                error_cb: doca_rdma_task_write_imm_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that writes remote memory and hands the peer a big-endian immediate value.
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
        }
    };
}
