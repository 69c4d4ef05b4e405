//! RDMA: tasks; continues `rdma`.

#[doc(hidden)]
#[macro_export]
macro_rules! __doca_rdma_with_tasks {
    (($($callback:ident)::+) [$($arguments:tt)*] $($before:tt)*) => {
        $crate::__doca_rdma_with_remote_events! {
            ($($callback)::+)
            [$($arguments)*]
            $($before)*

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

            /// How many bufs the destination of a receive task may have at most.
            fn doca_rdma_cap_task_receive_get_max_dst_buf_list_len(
                devinfo: *const doca_devinfo,
                transport_type: doca_rdma_transport_type,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// How many bufs the destination of a receive task may have.
            fn doca_rdma_task_receive_get_dst_buf_list_len(
                rdma: *const doca_rdma,
                buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets how many bufs the destination of a receive task may have; before the start.
            fn doca_rdma_task_receive_set_dst_buf_list_len(
                rdma: *mut doca_rdma,
                buf_list_len: u32
            ) -> doca_error_t;

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

            /// The connection that the task acts on.
            fn doca_rdma_task_send_get_rdma_connection(
                task: *const doca_rdma_task_send
            ) -> *const doca_rdma_connection;

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_send_set_rdma_connection(
                task: *mut doca_rdma_task_send,
                rdma_connection: *mut doca_rdma_connection
            );

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

            /// The immediate value.
            fn doca_rdma_task_send_imm_get_immediate_data(
                task: *const doca_rdma_task_send_imm
            ) -> doca_be32_t;

            /// The connection that the task acts on.
            fn doca_rdma_task_send_imm_get_rdma_connection(
                task: *const doca_rdma_task_send_imm
            ) -> *const doca_rdma_connection;

            /// The source.
            fn doca_rdma_task_send_imm_get_src_buf(task: *const doca_rdma_task_send_imm) -> *const doca_buf;

            /// Gives the task another immediate value.
            fn doca_rdma_task_send_imm_set_immediate_data(
                task: *mut doca_rdma_task_send_imm,
                immediate_data: doca_be32_t
            );

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_send_imm_set_rdma_connection(
                task: *mut doca_rdma_task_send_imm,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Gives the task another source.
            fn doca_rdma_task_send_imm_set_src_buf(
                task: *mut doca_rdma_task_send_imm,
                src_buf: *const doca_buf
            );

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

            /// The connection that the task acts on.
            fn doca_rdma_task_read_get_rdma_connection(
                task: *const doca_rdma_task_read
            ) -> *const doca_rdma_connection;

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_read_set_rdma_connection(
                task: *mut doca_rdma_task_read,
                rdma_connection: *mut doca_rdma_connection
            );

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

            /// The connection that the task acts on.
            fn doca_rdma_task_write_get_rdma_connection(
                task: *const doca_rdma_task_write
            ) -> *const doca_rdma_connection;

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_write_set_rdma_connection(
                task: *mut doca_rdma_task_write,
                rdma_connection: *mut doca_rdma_connection
            );

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

            /// Whether a device has write-with-immediate tasks.
            fn doca_rdma_cap_task_write_imm_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// The destination.
            fn doca_rdma_task_write_imm_get_dst_buf(task: *const doca_rdma_task_write_imm) -> *mut doca_buf;

            /// The immediate value.
            fn doca_rdma_task_write_imm_get_immediate_data(
                task: *const doca_rdma_task_write_imm
            ) -> doca_be32_t;

            /// The connection that the task acts on.
            fn doca_rdma_task_write_imm_get_rdma_connection(
                task: *const doca_rdma_task_write_imm
            ) -> *const doca_rdma_connection;

            /// The source.
            fn doca_rdma_task_write_imm_get_src_buf(task: *const doca_rdma_task_write_imm) -> *const doca_buf;

            /// Gives the task another destination.
            fn doca_rdma_task_write_imm_set_dst_buf(
                task: *mut doca_rdma_task_write_imm,
                dst_buf: *mut doca_buf
            );

            /// Gives the task another immediate value.
            fn doca_rdma_task_write_imm_set_immediate_data(
                task: *mut doca_rdma_task_write_imm,
                immediate_data: doca_be32_t
            );

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_write_imm_set_rdma_connection(
                task: *mut doca_rdma_task_write_imm,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Gives the task another source.
            fn doca_rdma_task_write_imm_set_src_buf(
                task: *mut doca_rdma_task_write_imm,
                src_buf: *const doca_buf
            );

            /// Whether a device has compare-and-swap tasks.
            fn doca_rdma_cap_task_atomic_cmp_swp_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Allocates a task that replaces 8 bytes of remote memory if they have a given value.
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

            /// The connection that the task acts on.
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

            /// Sets callbacks and number of compare-and-swap tasks; before the start.
            fn doca_rdma_task_atomic_cmp_swp_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_atomic_cmp_swp_completion_cb_t,
                error_cb: doca_rdma_task_atomic_cmp_swp_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Gives the task another destination.
            fn doca_rdma_task_atomic_cmp_swp_set_dst_buf(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                dst_buf: *mut doca_buf
            );

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_atomic_cmp_swp_set_rdma_connection(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Gives the task another buf for the old value.
            fn doca_rdma_task_atomic_cmp_swp_set_result_buf(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                result_buf: *mut doca_buf
            );

            /// Sets the value to swap in.
            fn doca_rdma_task_atomic_cmp_swp_set_swap_data(
                task: *mut doca_rdma_task_atomic_cmp_swp,
                swap_data: u64
            );

            /// Whether a device has fetch-and-add tasks.
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

            /// The connection that the task acts on.
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

            /// Sets callbacks and number of fetch-and-add tasks; before the start.
            fn doca_rdma_task_atomic_fetch_add_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_atomic_fetch_add_completion_cb_t,
                error_cb: doca_rdma_task_atomic_fetch_add_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Gives the task another destination.
            fn doca_rdma_task_atomic_fetch_add_set_dst_buf(
                task: *mut doca_rdma_task_atomic_fetch_add,
                dst_buf: *mut doca_buf
            );

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_atomic_fetch_add_set_rdma_connection(
                task: *mut doca_rdma_task_atomic_fetch_add,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Gives the task another buf for the old value.
            fn doca_rdma_task_atomic_fetch_add_set_result_buf(
                task: *mut doca_rdma_task_atomic_fetch_add,
                result_buf: *mut doca_buf
            );
        }
    };
}
