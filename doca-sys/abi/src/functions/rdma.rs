//! RDMA: instances and connections. The tasks are in `rdma_tasks`; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_rdma_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $crate::__doca_rdma_with_tasks! {
            ($($callback)::+) [$($($arguments)*)?]

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

            /// Copies entries of a device's table of GIDs.
            fn doca_rdma_cap_get_gid(
                devinfo: *const doca_devinfo,
                start_index: u32,
                num_entries: u32,
                gid_array: *mut doca_rdma_gid
            ) -> doca_error_t;

            /// How many entries a device's table of GIDs has.
            fn doca_rdma_cap_get_gid_table_size(
                devinfo: *const doca_devinfo,
                gid_table_size: *mut u32
            ) -> doca_error_t;

            /// How many bytes a message may have.
            fn doca_rdma_cap_get_max_message_size(
                devinfo: *const doca_devinfo,
                max_message_size: *mut u32
            ) -> doca_error_t;

            /// Largest receive queue.
            fn doca_rdma_cap_get_max_recv_queue_size(
                devinfo: *const doca_devinfo,
                max_recv_queue_size: *mut u32
            ) -> doca_error_t;

            /// How many bufs the local list of a task may have at most.
            fn doca_rdma_cap_get_max_send_buf_list_len(
                devinfo: *const doca_devinfo,
                max_send_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Largest send queue.
            fn doca_rdma_cap_get_max_send_queue_size(
                devinfo: *const doca_devinfo,
                max_send_queue_size: *mut u32
            ) -> doca_error_t;

            /// Whether a device has a transport.
            fn doca_rdma_cap_transport_type_is_supported(
                devinfo: *const doca_devinfo,
                transport_type: doca_rdma_transport_type
            ) -> doca_error_t;

            /// Index of the GID in use.
            fn doca_rdma_get_gid_index(rdma: *const doca_rdma, gid_index: *mut u32) -> doca_error_t;

            /// Whether packets have a global routing header.
            fn doca_rdma_get_grh_enabled(rdma: *const doca_rdma, grh_enabled: *mut u8) -> doca_error_t;

            /// How many bufs the local list of a task may have.
            fn doca_rdma_get_max_send_buf_list_len(
                rdma: *const doca_rdma,
                max_send_buf_list_len: *mut u32
            ) -> doca_error_t;

            /// Largest packet, a [`doca_mtu_size`] value.
            fn doca_rdma_get_mtu(rdma: *const doca_rdma, mtu: *mut doca_mtu_size) -> doca_error_t;

            /// What peers may do, [`doca_access_flag`] values.
            fn doca_rdma_get_permissions(rdma: *mut doca_rdma, permissions: *mut u32) -> doca_error_t;

            /// Size of the receive queue.
            fn doca_rdma_get_recv_queue_size(
                rdma: *const doca_rdma,
                recv_queue_size: *mut u32
            ) -> doca_error_t;

            /// How often a message is sent again to a peer without receives.
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

            /// Sets whether packets have a global routing header; before the start.
            fn doca_rdma_set_grh_enabled(rdma: *mut doca_rdma, grh_enabled: u8) -> doca_error_t;

            /// Sets how many bufs the local list of a task may have; before the start.
            fn doca_rdma_set_max_send_buf_list_len(
                rdma: *mut doca_rdma,
                max_send_buf_list_len: u32
            ) -> doca_error_t;

            /// Sets the largest packet, a [`doca_mtu_size`] value; before the start.
            fn doca_rdma_set_mtu(rdma: *mut doca_rdma, mtu: doca_mtu_size) -> doca_error_t;

            /// Sets the size of the receive queue, rounded up to a power of 2; before the start.
            fn doca_rdma_set_recv_queue_size(rdma: *mut doca_rdma, recv_queue_size: u32) -> doca_error_t;

            /// Sets how often a message is sent again to a peer without receives, at most 7, which is for ever; before the start.
            fn doca_rdma_set_rnr_retry_count(rdma: *mut doca_rdma, rnr_retry_count: u8) -> doca_error_t;

            /// Sets the size of the send queue, rounded up to a power of 2; before the start.
            fn doca_rdma_set_send_queue_size(rdma: *mut doca_rdma, send_queue_size: u32) -> doca_error_t;

            /// Sets the service level; before the start.
            fn doca_rdma_set_sl(rdma: *mut doca_rdma, sl: u32) -> doca_error_t;

            /// How many connections the instance may have.
            fn doca_rdma_get_max_num_connections(
                rdma: *mut doca_rdma,
                max_num_connections: *mut u16
            ) -> doca_error_t;

            /// Number of the connection within its instance.
            fn doca_rdma_connection_get_id(
                rdma_connection: *const doca_rdma_connection,
                connection_id: *mut u32
            ) -> doca_error_t;

            /// The value that connection callbacks get.
            fn doca_rdma_connection_get_user_data(
                rdma_connection: *const doca_rdma_connection,
                connection_user_data: *mut doca_data
            ) -> doca_error_t;

            /// Time for finding the way to an address, in milliseconds.
            fn doca_rdma_get_connection_request_timeout(
                rdma: *const doca_rdma,
                timeout: *mut u16
            ) -> doca_error_t;

            /// Sets the time for finding the way to an address, in milliseconds; before the start.
            fn doca_rdma_set_connection_request_timeout(rdma: *mut doca_rdma, timeout: u16) -> doca_error_t;

            /// An address to connect to: its kind, its text, and a port.
            fn doca_rdma_addr_create(
                addr_type: doca_rdma_addr_type,
                address: *const c_char,
                port: u16,
                addr: *mut *mut doca_rdma_addr
            ) -> doca_error_t;

            /// Destroys an address that no connection uses.
            fn doca_rdma_addr_destroy(addr: *mut doca_rdma_addr) -> doca_error_t;

            /// Kind, text and port of an address; the text lives as long as the address.
            fn doca_rdma_addr_get_params(
                addr: *mut doca_rdma_addr,
                addr_type: *mut doca_rdma_addr_type,
                address: *mut *const c_char,
                port: *mut u16
            ) -> doca_error_t;

            /// Asks the instance that listens at an address for a connection; callbacks tell what comes of it.
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

            /// The address that a connection was made to; NULL when it was made otherwise.
            fn doca_rdma_connection_get_addr(
                rdma_connection: *const doca_rdma_connection,
                addr: *mut *mut doca_rdma_addr
            ) -> doca_error_t;

            /// Rejects a requested connection.
            fn doca_rdma_connection_reject(rdma_connection: *mut doca_rdma_connection) -> doca_error_t;

            /// Takes requests for connections at a port of the device.
            fn doca_rdma_start_listen_to_port(rdma: *mut doca_rdma, port: u16) -> doca_error_t;

            /// Takes no more requests at a port. Connections stay.
            fn doca_rdma_stop_listen_to_port(rdma: *mut doca_rdma, port: u16) -> doca_error_t;

            /// Prepares a connection that rdma-core's connection manager was asked for.
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

            /// Says that a connection of rdma-core's connection manager is established.
            fn doca_rdma_bridge_established(
                rdma: *mut doca_rdma,
                rdma_connection: *mut doca_rdma_connection
            ) -> doca_error_t;

            /// Lets completions go to the DPA.
            fn doca_rdma_dpa_completion_attach(
                rdma: *mut doca_rdma,
                dpa_comp: *mut doca_dpa_completion
            ) -> doca_error_t;

            /// The instance as the DPA sees it.
            fn doca_rdma_get_dpa_handle(rdma: *mut doca_rdma, dpa_rdma: *mut u64) -> doca_error_t;

            /// The instance as a GPU sees it.
            fn doca_rdma_get_gpu_handle(
                rdma: *mut doca_rdma,
                gpu_rdma: *mut *mut doca_gpu_dev_rdma
            ) -> doca_error_t;
        }
    };
}
