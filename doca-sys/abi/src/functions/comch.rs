//! Comch: server, client, consumer and producer. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_comch_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_comch.h";

            /// Sets the user data of a connection.
            fn doca_comch_connection_set_user_data(
                connection: *mut doca_comch_connection,
                user_data: doca_data
            ) -> doca_error_t;

            /// The user data of a connection; zero by default.
            fn doca_comch_connection_get_user_data(
                connection: *const doca_comch_connection
            ) -> doca_data;

            /// The server of a connection, or null on the client's side.
            fn doca_comch_server_get_server_ctx(
                connection: *const doca_comch_connection
            ) -> *mut doca_comch_server;

            /// The client of a connection, or null on the server's side.
            fn doca_comch_client_get_client_ctx(
                connection: *const doca_comch_connection
            ) -> *mut doca_comch_client;

            /// Gets the upper limit of the maximum message size, in bytes.
            fn doca_comch_cap_get_max_msg_size(
                devinfo: *const doca_devinfo,
                size: *mut u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device supports clients.
            fn doca_comch_cap_client_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device supports servers.
            fn doca_comch_cap_server_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Gets the maximum number of clients of one server.
            fn doca_comch_cap_get_max_clients(
                devinfo: *const doca_devinfo,
                num_clients: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum length of a name in bytes, with the terminating NUL.
            fn doca_comch_cap_get_max_name_len(
                devinfo: *const doca_devinfo,
                max_name_len: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of queued received messages.
            fn doca_comch_cap_get_max_recv_queue_size(
                devinfo: *const doca_devinfo,
                size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of send tasks of one client or server.
            fn doca_comch_cap_get_max_send_tasks(
                devinfo: *const doca_devinfo,
                max_send_tasks: *mut u32
            ) -> doca_error_t;

            /// Updates the values of the counters.
            fn doca_comch_connection_update_info(
                comch_connection: *mut doca_comch_connection
            ) -> doca_error_t;

            /// Gets a counter of the control path, as of the last update.
            fn doca_comch_connection_get_counter(
                comch_connection: *const doca_comch_connection,
                counter_type: doca_comch_counter,
                counter_value: *mut u64
            ) -> doca_error_t;

            /// Disconnects a connection of a server; consumers and producers must have been destroyed.
            fn doca_comch_server_disconnect(
                comch_server: *mut doca_comch_server,
                connection: *mut doca_comch_connection
            ) -> doca_error_t;

            /// The server's device, which it keeps open.
            fn doca_comch_server_get_device(
                comch_server: *const doca_comch_server,
                dev: *mut *mut doca_dev
            ) -> doca_error_t;

            /// The server's representor, which it keeps open.
            fn doca_comch_server_get_device_rep(
                comch_server: *const doca_comch_server,
                rep: *mut *mut doca_dev_rep
            ) -> doca_error_t;

            /// Gets the maximum message size of the server in bytes.
            fn doca_comch_server_get_max_msg_size(
                comch_server: *const doca_comch_server,
                size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of queued received messages of the server.
            fn doca_comch_server_get_recv_queue_size(
                comch_server: *const doca_comch_server,
                size: *mut u32
            ) -> doca_error_t;

            /// The client's device, which it keeps open.
            fn doca_comch_client_get_device(
                comch_client: *const doca_comch_client,
                dev: *mut *mut doca_dev
            ) -> doca_error_t;

            /// Gets the maximum message size of the client in bytes.
            fn doca_comch_client_get_max_msg_size(
                comch_client: *const doca_comch_client,
                size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of queued received messages of the client.
            fn doca_comch_client_get_recv_queue_size(
                comch_client: *const doca_comch_client,
                size: *mut u32
            ) -> doca_error_t;

            /// Creates a server for `name` for clients on the represented function.
            fn doca_comch_server_create(
                dev: *mut doca_dev,
                repr: *mut doca_dev_rep,
                name: *const c_char,
                comch_server: *mut *mut doca_comch_server
            ) -> doca_error_t;

            /// Destroys an idle server.
            fn doca_comch_server_destroy(comch_server: *mut doca_comch_server) -> doca_error_t;

            /// Sets the maximum message size in bytes; only before the start.
            fn doca_comch_server_set_max_msg_size(
                comch_server: *mut doca_comch_server,
                size: u32
            ) -> doca_error_t;

            /// Sets the maximum number of queued received messages; only before the start.
            fn doca_comch_server_set_recv_queue_size(
                comch_server: *mut doca_comch_server,
                size: u32
            ) -> doca_error_t;

            /// The server's context.
            fn doca_comch_server_as_ctx(comch_server: *mut doca_comch_server) -> *mut doca_ctx;

            /// Creates a client of the server called `name`.
            fn doca_comch_client_create(
                dev: *mut doca_dev,
                name: *const c_char,
                comch_client: *mut *mut doca_comch_client
            ) -> doca_error_t;

            /// Destroys an idle client.
            fn doca_comch_client_destroy(comch_client: *mut doca_comch_client) -> doca_error_t;

            /// Sets the maximum message size in bytes; only before the start.
            fn doca_comch_client_set_max_msg_size(
                comch_client: *mut doca_comch_client,
                size: u32
            ) -> doca_error_t;

            /// Sets the maximum number of queued received messages; only before the start.
            fn doca_comch_client_set_recv_queue_size(
                comch_client: *mut doca_comch_client,
                size: u32
            ) -> doca_error_t;

            /// The client's context.
            fn doca_comch_client_as_ctx(comch_client: *mut doca_comch_client) -> *mut doca_ctx;

            /// The connection of a running client.
            fn doca_comch_client_get_connection(
                comch_client: *const doca_comch_client,
                connection: *mut *mut doca_comch_connection
            ) -> doca_error_t;

            /// Sets the callbacks and the number of a server's send tasks; only before the start.
            fn doca_comch_server_task_send_set_conf(
                comch_server: *mut doca_comch_server,
                completion_cb: doca_comch_task_send_completion_cb_t,
                error_cb: doca_comch_task_send_completion_cb_t,
                num_send_tasks: u32
            ) -> doca_error_t;

            /// Sets the callbacks and the number of a client's send tasks; only before the start.
            fn doca_comch_client_task_send_set_conf(
                comch_client: *mut doca_comch_client,
                completion_cb: doca_comch_task_send_completion_cb_t,
                error_cb: doca_comch_task_send_completion_cb_t,
                num_send_tasks: u32
            ) -> doca_error_t;

            /// Allocates a send task; the message must stay valid until it completes.
            fn doca_comch_server_task_send_alloc_init(
                comch_server: *mut doca_comch_server,
                peer: *mut doca_comch_connection,
                msg: *const c_void,
                len: u32,
                task: *mut *mut doca_comch_task_send
            ) -> doca_error_t;

            /// Allocates a send task; the message must stay valid until it completes.
            fn doca_comch_client_task_send_alloc_init(
                comch_client: *mut doca_comch_client,
                peer: *mut doca_comch_connection,
                msg: *const c_void,
                len: u32,
                task: *mut *mut doca_comch_task_send
            ) -> doca_error_t;

            /// The generic task of a send task.
            fn doca_comch_task_send_as_task(task: *mut doca_comch_task_send) -> *mut doca_task;

            /// Sets the callback for received messages; only before the start.
            fn doca_comch_server_event_msg_recv_register(
                comch_server: *mut doca_comch_server,
                recv_event_cb: doca_comch_event_msg_recv_cb_t
            ) -> doca_error_t;

            /// Sets the callback for received messages; only before the start.
            fn doca_comch_client_event_msg_recv_register(
                comch_client: *mut doca_comch_client,
                recv_event_cb: doca_comch_event_msg_recv_cb_t
            ) -> doca_error_t;

            /// Sets the callbacks for connecting and disconnecting clients; only before the start.
            fn doca_comch_server_event_connection_status_changed_register(
                comch_server: *mut doca_comch_server,
                connect_event_cb: doca_comch_event_connection_status_changed_cb_t,
                disconnect_event_cb: doca_comch_event_connection_status_changed_cb_t
            ) -> doca_error_t;

            /// Sets the callbacks for new and expired consumers of the peer; only before the start.
            fn doca_comch_server_event_consumer_register(
                comch_server: *mut doca_comch_server,
                new_consumer_event_cb: doca_comch_event_consumer_cb_t,
                expired_consumer_event_cb: doca_comch_event_consumer_cb_t
            ) -> doca_error_t;

            /// Sets the callbacks for new and expired consumers of the peer; only before the start.
            fn doca_comch_client_event_consumer_register(
                comch_client: *mut doca_comch_client,
                new_consumer_event_cb: doca_comch_event_consumer_cb_t,
                expired_consumer_event_cb: doca_comch_event_consumer_cb_t
            ) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_comch_consumer_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_comch_consumer.h";

            /// Creates a DPA completion context.
            fn doca_comch_consumer_completion_create(
                consumer_comp: *mut *mut doca_comch_consumer_completion
            ) -> doca_error_t;

            /// Destroys a DPA completion context.
            fn doca_comch_consumer_completion_destroy(
                consumer_comp: *mut doca_comch_consumer_completion
            ) -> doca_error_t;

            /// Starts a DPA completion context.
            fn doca_comch_consumer_completion_start(
                consumer_comp: *mut doca_comch_consumer_completion
            ) -> doca_error_t;

            /// Stops a DPA completion context.
            fn doca_comch_consumer_completion_stop(
                consumer_comp: *mut doca_comch_consumer_completion
            ) -> doca_error_t;

            /// Sets the maximum number of receive operations.
            fn doca_comch_consumer_completion_set_max_num_recv(
                consumer_comp: *mut doca_comch_consumer_completion,
                max_num_recv: u32
            ) -> doca_error_t;

            /// Gets the maximum number of receive operations.
            fn doca_comch_consumer_completion_get_max_num_recv(
                consumer_comp: *const doca_comch_consumer_completion,
                max_num_recv: *mut u32
            ) -> doca_error_t;

            /// Sets the maximum number of consumers.
            fn doca_comch_consumer_completion_set_max_num_consumers(
                consumer_comp: *mut doca_comch_consumer_completion,
                max_num_consumers: u32
            ) -> doca_error_t;

            /// Gets the maximum number of consumers.
            fn doca_comch_consumer_completion_get_max_num_consumers(
                consumer_comp: *const doca_comch_consumer_completion,
                max_num_consumers: *mut u32
            ) -> doca_error_t;

            /// Sets the maximum length of immediate data.
            fn doca_comch_consumer_completion_set_imm_data_len(
                consumer_comp: *mut doca_comch_consumer_completion,
                imm_data_len: u32
            ) -> doca_error_t;

            /// Gets the maximum length of immediate data.
            fn doca_comch_consumer_completion_get_imm_data_len(
                consumer_comp: *const doca_comch_consumer_completion,
                imm_data_len: *mut u32
            ) -> doca_error_t;

            /// Sets the DPA thread that is activated.
            fn doca_comch_consumer_completion_set_dpa_thread(
                consumer_comp: *mut doca_comch_consumer_completion,
                dpa_thread: *mut doca_dpa_thread
            ) -> doca_error_t;

            /// Gets the handle of the destination for the DPA.
            fn doca_comch_consumer_completion_get_dpa_handle(
                consumer_comp: *mut doca_comch_consumer_completion,
                consumer_comp_handle: *mut u64
            ) -> doca_error_t;

            /// Gets the handle of the consumer for the DPA.
            fn doca_comch_consumer_get_dpa_handle(
                consumer: *mut doca_comch_consumer,
                dpa_consumer: *mut u64
            ) -> doca_error_t;

            /// Delivers completions to the DPA.
            fn doca_comch_consumer_set_completion(
                consumer: *mut doca_comch_consumer,
                consumer_comp: *mut doca_comch_consumer_completion,
                user_data: u32
            ) -> doca_error_t;

            /// Sets the maximum number of receive operations of the DPA.
            fn doca_comch_consumer_set_dev_max_num_recv(
                consumer: *mut doca_comch_consumer,
                dev_num_recv: u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device supports consumers.
            fn doca_comch_consumer_cap_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Gets the maximum number of consumers of one side of a connection.
            fn doca_comch_consumer_cap_get_max_consumers(
                devinfo: *const doca_devinfo,
                max_consumers: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of receive tasks of one consumer.
            fn doca_comch_consumer_cap_get_max_num_tasks(
                devinfo: *const doca_devinfo,
                max_num_tasks: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum size of a receive buf in bytes.
            fn doca_comch_consumer_cap_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buf_size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a receive list.
            fn doca_comch_consumer_cap_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum length of immediate data in bytes.
            fn doca_comch_consumer_cap_get_max_imm_data_len(
                devinfo: *const doca_devinfo,
                max_imm_data_len: *mut u32
            ) -> doca_error_t;

            /// Sets the maximum length of received immediate data in bytes; only before the start.
            fn doca_comch_consumer_set_imm_data_len(
                consumer: *mut doca_comch_consumer,
                imm_data_len: u32
            ) -> doca_error_t;

            /// Gets the maximum length of received immediate data in bytes.
            fn doca_comch_consumer_get_imm_data_len(
                consumer: *const doca_comch_consumer,
                imm_data_len: *mut u32
            ) -> doca_error_t;

            /// Creates a consumer on a connection, which receives into bufs of one memory map.
            fn doca_comch_consumer_create(
                comch_connection: *mut doca_comch_connection,
                buf_mmap: *mut doca_mmap,
                consumer: *mut *mut doca_comch_consumer
            ) -> doca_error_t;

            /// Destroys an idle consumer.
            fn doca_comch_consumer_destroy(consumer: *mut doca_comch_consumer) -> doca_error_t;

            /// The id by which producers of the peer address this consumer.
            fn doca_comch_consumer_get_id(
                consumer: *const doca_comch_consumer,
                id: *mut u32
            ) -> doca_error_t;

            /// The consumer's context.
            fn doca_comch_consumer_as_ctx(consumer: *mut doca_comch_consumer) -> *mut doca_ctx;

            /// Sets the callbacks and the number of receive tasks; only before the start.
            fn doca_comch_consumer_task_post_recv_set_conf(
                consumer: *mut doca_comch_consumer,
                completion_cb: doca_comch_consumer_task_post_recv_completion_cb_t,
                error_cb: doca_comch_consumer_task_post_recv_completion_cb_t,
                num_post_recv_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that receives one message into a buf.
            fn doca_comch_consumer_task_post_recv_alloc_init(
                consumer: *mut doca_comch_consumer,
                buf: *mut doca_buf,
                task: *mut *mut doca_comch_consumer_task_post_recv
            ) -> doca_error_t;

            /// The buf that the task receives into.
            fn doca_comch_consumer_task_post_recv_get_buf(
                task: *const doca_comch_consumer_task_post_recv
            ) -> *mut doca_buf;

            /// Sets the task's buf.
            fn doca_comch_consumer_task_post_recv_set_buf(
                task: *mut doca_comch_consumer_task_post_recv,
                buf: *mut doca_buf
            );

            /// Id of the producer that sent the received message.
            fn doca_comch_consumer_task_post_recv_get_producer_id(
                task: *const doca_comch_consumer_task_post_recv
            ) -> u32;

            /// Immediate data of the received message, valid during the completion callback.
            fn doca_comch_consumer_task_post_recv_get_imm_data(
                task: *const doca_comch_consumer_task_post_recv
            ) -> *const u8;

            /// Length in bytes of the immediate data; 0 if there is none.
            fn doca_comch_consumer_task_post_recv_get_imm_data_len(
                task: *const doca_comch_consumer_task_post_recv
            ) -> u32;

            /// The generic task of a receive task.
            fn doca_comch_consumer_task_post_recv_as_task(
                task: *mut doca_comch_consumer_task_post_recv
            ) -> *mut doca_task;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_comch_producer_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_comch_producer.h";

            /// Delivers completions to the DPA.
            fn doca_comch_producer_dpa_completion_attach(
                producer: *mut doca_comch_producer,
                dpa_comp: *mut doca_dpa_completion
            ) -> doca_error_t;

            /// Gets the handle of the producer for the DPA.
            fn doca_comch_producer_get_dpa_handle(
                producer: *mut doca_comch_producer,
                dpa_producer: *mut u64
            ) -> doca_error_t;

            /// Sets the maximum number of send operations of the DPA.
            fn doca_comch_producer_set_dev_max_num_send(
                producer: *mut doca_comch_producer,
                dev_num_send: u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device supports producers.
            fn doca_comch_producer_cap_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Gets the maximum number of producers of one side of a connection.
            fn doca_comch_producer_cap_get_max_producers(
                devinfo: *const doca_devinfo,
                max_producers: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of send tasks of one producer.
            fn doca_comch_producer_cap_get_max_num_tasks(
                devinfo: *const doca_devinfo,
                max_num_tasks: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum size of a sent buf in bytes.
            fn doca_comch_producer_cap_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buf_size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a sent list.
            fn doca_comch_producer_cap_get_max_buf_list_len(
                devinfo: *const doca_devinfo,
                max_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Sets a task's immediate data, which is copied; not allowed while the task is in flight.
            fn doca_comch_producer_task_send_set_imm_data(
                task: *mut doca_comch_producer_task_send,
                imm_data: *mut u8,
                imm_data_len: u32
            );

            /// Immediate data of a task, or null.
            fn doca_comch_producer_task_send_get_imm_data(
                task: *const doca_comch_producer_task_send
            ) -> *mut u8;

            /// Length of a task's immediate data in bytes.
            fn doca_comch_producer_task_send_get_imm_data_len(
                task: *const doca_comch_producer_task_send
            ) -> u32;

            /// Creates a producer on a connection.
            fn doca_comch_producer_create(
                comch_connection: *mut doca_comch_connection,
                producer: *mut *mut doca_comch_producer
            ) -> doca_error_t;

            /// Destroys an idle producer.
            fn doca_comch_producer_destroy(producer: *mut doca_comch_producer) -> doca_error_t;

            /// The id by which consumers of the peer address this producer.
            fn doca_comch_producer_get_id(
                producer: *const doca_comch_producer,
                id: *mut u32
            ) -> doca_error_t;

            /// The producer's context.
            fn doca_comch_producer_as_ctx(producer: *mut doca_comch_producer) -> *mut doca_ctx;

            /// Sets the callbacks and the number of send tasks; only before the start.
            fn doca_comch_producer_task_send_set_conf(
                producer: *mut doca_comch_producer,
                completion_cb: doca_comch_producer_task_send_completion_cb_t,
                error_cb: doca_comch_producer_task_send_completion_cb_t,
                num_send_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that sends a buf's data and immediate data to one consumer.
            fn doca_comch_producer_task_send_alloc_init(
                producer: *mut doca_comch_producer,
                buf: *const doca_buf,
                imm_data: *mut u8,
                imm_data_len: u32,
                consumer_id: u32,
                task: *mut *mut doca_comch_producer_task_send
            ) -> doca_error_t;

            /// The buf that the task sends.
            fn doca_comch_producer_task_send_get_buf(
                task: *const doca_comch_producer_task_send
            ) -> *const doca_buf;

            /// Sets the task's buf.
            fn doca_comch_producer_task_send_set_buf(
                task: *mut doca_comch_producer_task_send,
                buf: *const doca_buf
            );

            /// Id of the consumer that the task sends to.
            fn doca_comch_producer_task_send_get_consumer_id(
                task: *const doca_comch_producer_task_send
            ) -> u32;

            /// Sets the consumer that the task sends to.
            fn doca_comch_producer_task_send_set_consumer_id(
                task: *mut doca_comch_producer_task_send,
                consumer_id: u32
            );

            /// The generic task of a send task.
            fn doca_comch_producer_task_send_as_task(
                task: *mut doca_comch_producer_task_send
            ) -> *mut doca_task;
        }
    };
}
