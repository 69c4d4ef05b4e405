//! RDMA: tasks on sync events of peers; continues `rdma_tasks`.

#[doc(hidden)]
#[macro_export]
macro_rules! __doca_rdma_with_remote_events {
    (($($callback:ident)::+) [$($arguments:tt)*] $($before:tt)*) => {
        $($callback)::+! {
            [$($arguments)*]
            header "doca_rdma.h";
            $($before)*

            /// Whether a device has remote-event get tasks.
            fn doca_rdma_cap_task_remote_net_sync_event_get_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether a device has remote-event add tasks.
            fn doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether a device has remote-event set tasks.
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

            /// The connection that the task acts on.
            fn doca_rdma_task_remote_net_sync_event_get_get_rdma_connection(
                task: *const doca_rdma_task_remote_net_sync_event_get
            ) -> *const doca_rdma_connection;

            /// How many bytes the task has read.
            fn doca_rdma_task_remote_net_sync_event_get_get_result_len(
                task: *const doca_rdma_task_remote_net_sync_event_get
            ) -> u32;

            /// The remote event.
            fn doca_rdma_task_remote_net_sync_event_get_get_sync_event(
                task: *const doca_rdma_task_remote_net_sync_event_get
            ) -> *const doca_sync_event_remote_net;

            /// Sets callbacks and number of remote-event get tasks; before the start.
            fn doca_rdma_task_remote_net_sync_event_get_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_remote_net_sync_event_get_completion_cb_t,
                error_cb: doca_rdma_task_remote_net_sync_event_get_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Gives the task another destination.
            fn doca_rdma_task_remote_net_sync_event_get_set_dst_buf(
                task: *mut doca_rdma_task_remote_net_sync_event_get,
                dst_buf: *mut doca_buf
            );

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_remote_net_sync_event_get_set_rdma_connection(
                task: *mut doca_rdma_task_remote_net_sync_event_get,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Gives the task another remote event.
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

            /// The connection that the task acts on.
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

            /// Sets callbacks and number of remote-event add tasks; before the start.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t,
                error_cb: doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_rdma_connection(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_add,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Gives the task another buf for the old value.
            fn doca_rdma_task_remote_net_sync_event_notify_add_set_result_buf(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_add,
                result_buf: *mut doca_buf
            );

            /// Gives the task another remote event.
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

            /// The connection that the task acts on.
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

            /// Sets callbacks and number of remote-event set tasks; before the start.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_conf(
                rdma: *mut doca_rdma,
                completion_cb: doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t,
                error_cb: doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Gives the task another connection of its instance.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_rdma_connection(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_set,
                rdma_connection: *mut doca_rdma_connection
            );

            /// Gives the task another source.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_set,
                src_buf: *const doca_buf
            );

            /// Gives the task another remote event.
            fn doca_rdma_task_remote_net_sync_event_notify_set_set_sync_event(
                task: *mut doca_rdma_task_remote_net_sync_event_notify_set,
                event: *mut doca_sync_event_remote_net
            );
        }
    };
}
