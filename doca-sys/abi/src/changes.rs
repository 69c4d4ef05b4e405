//! Changes of the C API between releases: names that were renamed or removed, and functions whose arguments changed.
//!
//! Functions whose current counterpart is in [`EARLIER_FUNCTIONS`](crate::EARLIER_FUNCTIONS) are not repeated here
//! unless there is more to say. Sources are the published headers of 2.5, 2.6 and 3.0, and programs of 2.9, 2.10 and
//! 3.1 to 3.3: names that 2.6 has and 3.0 lacks are assumed to be removed in 2.9.

use crate::Release;

/// Major and minor number of a release whose changes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Version {
    /// A release by its numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl From<Release> for Version {
    fn from(release: Release) -> Self {
        let [major, minor, _] = release.version();
        Self { major, minor }
    }
}

/// Releases whose changes are known, oldest first.
pub const VERSIONS: &[Version] = &[
    V2_5,
    V2_6,
    Version::new(2, 9),
    Version::new(2, 10),
    Version::new(3, 0),
    Version::new(3, 1),
    Version::new(3, 2),
    Version::new(3, 3),
];

const V2_5: Version = Version::new(2, 5);
const V2_6: Version = Version::new(2, 6);

/// Kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SymbolKind {
    Function,
    Type,
    EnumValue,
    Macro,
    Header,
}

/// A change of one name after a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Kind of symbol that the name is of.
    pub kind: SymbolKind,
    /// The name; of a header, its file.
    pub name: &'static str,
    /// The first release that has the name in this form.
    pub since: Version,
    /// The last release that has the name.
    pub until: Version,
    /// The symbol in the next release.
    pub effect: Effect,
    /// Further changes that a use needs, in a sentence without its period; may be empty.
    pub note: &'static str,
}

/// Effect of a change on the uses of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Another name with the same arguments.
    Renamed(&'static str),
    /// Another name with other arguments, or another meaning.
    Replaced(&'static str),
    /// Removed without a direct replacement; the note names alternatives.
    Removed,
    /// The same name with other arguments.
    Arguments(Arguments),
}

/// Criterion by which a call with other arguments is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// By their number.
    Count {
        /// Number of arguments before the change.
        before: usize,
        /// Number of arguments since the change.
        after: usize,
    },
    /// The type of an argument.
    Type {
        /// Position of the argument, from 0.
        index: usize,
        /// The type, without pointers, before the change.
        before: &'static str,
        /// The type, without pointers, since the change.
        after: &'static str,
    },
    /// The identifier of an argument.
    Prefix {
        /// Position of the argument, from 0.
        index: usize,
        /// Prefix of the identifier since the change.
        after: &'static str,
    },
}

macro_rules! changes {
    ($($kind:ident since $since:ident until $until:ident {
        $($name:literal $effect:ident $(($($argument:tt)*))? $(, $note:literal)?;)+
    })+) => {
        /// All changes, except renamed functions of [`EARLIER_FUNCTIONS`](crate::EARLIER_FUNCTIONS).
        pub const CHANGES: &[Change] = &[$($(
            Change {
                kind: SymbolKind::$kind,
                name: $name,
                since: $since,
                until: $until,
                effect: changes!(@effect $effect $(($($argument)*))?),
                note: [$($note,)? ""][0],
            },
        )+)+];
    };
    (@effect Removed) => { Effect::Removed };
    (@effect Count($before:literal => $after:literal)) => {
        Effect::Arguments(Arguments::Count { before: $before, after: $after })
    };
    (@effect Type($index:literal: $before:literal => $after:literal)) => {
        Effect::Arguments(Arguments::Type { index: $index, before: $before, after: $after })
    };
    (@effect Prefix($index:literal: $after:literal)) => {
        Effect::Arguments(Arguments::Prefix { index: $index, after: $after })
    };
    (@effect $effect:ident($name:literal)) => { Effect::$effect($name) };
}

changes! {
    // Other renamed functions are in EARLIER_FUNCTIONS.
    Function since V2_5 until V2_5 {
        "doca_cc_client_send_task_set_conf" Replaced("doca_cc_client_task_send_set_conf"), "the number of tasks itself, not its logarithm; uint32_t";
        "doca_cc_server_send_task_set_conf" Replaced("doca_cc_server_task_send_set_conf"), "the number of tasks itself, not its logarithm; uint32_t";
        "doca_cc_consumer_post_recv_task_set_conf" Replaced("doca_cc_consumer_task_post_recv_set_conf"), "the number of tasks itself, not its logarithm; uint32_t";
        "doca_cc_producer_send_task_set_conf" Replaced("doca_cc_producer_task_send_set_conf"), "the number of tasks itself, not its logarithm; uint32_t";
        "doca_cc_consumer_cap_get_max_log_num_tasks" Replaced("doca_cc_consumer_cap_get_max_num_tasks"), "the number of tasks itself, not its logarithm; uint32_t";
        "doca_cc_producer_cap_get_max_log_num_tasks" Replaced("doca_cc_producer_cap_get_max_num_tasks"), "the number of tasks itself, not its logarithm; uint32_t";
        "doca_cc_cap_get_max_clients" Type(1: "size_t" => "uint32_t");
        "doca_cc_cap_get_max_msg_size" Type(1: "size_t" => "uint32_t");
        "doca_cc_cap_get_max_recv_queue_size" Type(1: "size_t" => "uint32_t");
        "doca_cc_cap_get_max_send_tasks" Type(1: "size_t" => "uint32_t");
        "doca_cc_client_get_max_msg_size" Type(1: "size_t" => "uint32_t");
        "doca_cc_client_get_recv_queue_size" Type(1: "size_t" => "uint32_t");
        "doca_cc_consumer_cap_get_max_buf_size" Type(1: "size_t" => "uint32_t");
        "doca_cc_producer_cap_get_max_buf_size" Type(1: "size_t" => "uint32_t");
        "doca_cc_server_get_max_msg_size" Type(1: "size_t" => "uint32_t");
        "doca_cc_server_get_recv_queue_size" Type(1: "size_t" => "uint32_t");
        "doca_rdma_get_grh_enabled" Type(1: "bool" => "uint8_t");
    }

    Type since V2_5 until V2_5 {
        "doca_cc_send_task" Renamed("doca_cc_task_send");
        "doca_cc_send_task_comp_handler" Renamed("doca_cc_task_send_completion_cb_t");
        "doca_cc_consumer_post_recv_task" Renamed("doca_cc_consumer_task_post_recv");
        "doca_cc_consumer_post_recv_task_comp_handler" Renamed("doca_cc_consumer_task_post_recv_completion_cb_t");
        "doca_cc_producer_send_task" Renamed("doca_cc_producer_task_send");
        "doca_cc_producer_send_task_comp_handler" Renamed("doca_cc_producer_task_send_completion_cb_t");
    }

    Macro since V2_5 until V2_5 {
        "DOCA_VER_MAJOR" Renamed("DOCA_VERSION_MAJOR");
        "DOCA_VER_MINOR" Renamed("DOCA_VERSION_MINOR");
        "DOCA_VER_PATCH" Renamed("DOCA_VERSION_PATCH");
        "DOCA_VER_STRING" Renamed("DOCA_VERSION_STRING");
        "DOCA_VERSION_NUM" Renamed("DOCA_VERSION_CALC_EXACT"), "DOCA_VERSION_CALC counts the patch number in thousands";
        "DOCA_CURRENT_VERSION_NUM" Renamed("DOCA_VERSION_EXACT");
    }

    Header since V2_5 until V2_5 {
        "doca_dpa_dev_buf_array.h" Renamed("doca_dpa_dev_buf.h");
    }

    // Shared receive queues are in 2.6 only.
    Function since V2_6 until V2_6 {
        "doca_rdma_create_with_srq" Replaced("doca_rdma_create"), "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_create" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_destroy" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_as_ctx" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_cap_get_max_shared_recv_queue_size" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_cap_task_receive_get_max_dst_buf_list_len" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_set_shared_recv_queue_size" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_task_receive_set_dst_buf_list_len" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_set_type" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_get_type" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_task_receive_get_dst_buf_list_len" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_get_shared_recv_queue_size" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_get_dpa_handle" Removed, "each RDMA context has a receive queue of its own";
    }

    Type since V2_6 until V2_6 {
        "doca_rdma_srq" Removed, "each RDMA context has a receive queue of its own";
        "doca_rdma_srq_type" Removed, "each RDMA context has a receive queue of its own";
        "doca_dpa_dev_rdma_srq" Removed, "each RDMA context has a receive queue of its own";
    }

    EnumValue since V2_6 until V2_6 {
        "DOCA_RDMA_SRQ_TYPE_LINKED_LIST" Removed, "each RDMA context has a receive queue of its own";
        "DOCA_RDMA_SRQ_TYPE_CYCLIC" Removed, "each RDMA context has a receive queue of its own";
    }

    Header since V2_5 until V2_6 {
        "doca_cc.h" Renamed("doca_comch.h");
        "doca_cc_consumer.h" Renamed("doca_comch_consumer.h");
        "doca_cc_producer.h" Renamed("doca_comch_producer.h");
        "doca_comm_channel.h" Replaced("doca_comch.h"), "Comch has a context for a progress engine instead of an endpoint";
        "doca_telemetry.h" Renamed("doca_telemetry_exporter.h");
        "doca_telemetry_netflow.h" Renamed("doca_telemetry_exporter_netflow.h");
        "doca_telemetry_netflow_types.h" Renamed("doca_telemetry_exporter_netflow_types.h");
    }

    Type since V2_5 until V2_6 {
        "doca_cc_counter" Renamed("doca_comch_counter");
        "doca_cc_connection" Renamed("doca_comch_connection");
        "doca_cc_server" Renamed("doca_comch_server");
        "doca_cc_client" Renamed("doca_comch_client");
        "doca_cc_event_msg_recv" Renamed("doca_comch_event_msg_recv");
        "doca_cc_event_connection_status_changed" Renamed("doca_comch_event_connection_status_changed");
        "doca_cc_event_consumer" Renamed("doca_comch_event_consumer");
        "doca_cc_event_msg_recv_cb_t" Renamed("doca_comch_event_msg_recv_cb_t");
        "doca_cc_event_connection_status_changed_cb_t" Renamed("doca_comch_event_connection_status_changed_cb_t");
        "doca_cc_event_consumer_cb_t" Renamed("doca_comch_event_consumer_cb_t");
        "doca_cc_consumer" Renamed("doca_comch_consumer");
        "doca_cc_producer" Renamed("doca_comch_producer");
        "doca_comm_channel_ep_t" Replaced("doca_comch_server"), "or doca_comch_client, on the host";
        "doca_comm_channel_addr_t" Replaced("doca_comch_connection");
        "doca_comm_channel_msg_flags" Removed, "tasks that send have no flags";
        "doca_event_channel_t" Replaced("doca_notification_handle_t"), "one handle of the progress engine, see doca_pe_get_notification_handle";
        "doca_compress_task_decompress_lz4" Renamed("doca_compress_task_decompress_lz4_stream");
        "doca_compress_task_decompress_lz4_completion_cb_t" Renamed("doca_compress_task_decompress_lz4_stream_completion_cb_t");
        "doca_sync_event_task_wait_gt" Replaced("doca_sync_event_task_wait_eq"), "it waits until the value is equal, not greater; doca_sync_event_wait_gt waits for a greater one without a task";
        "doca_sync_event_task_wait_gt_completion_cb_t" Replaced("doca_sync_event_task_wait_eq_completion_cb_t");
        "doca_dpa_dev_buf_arr" Replaced("doca_dpa_dev_buf_arr_t"), "an integer and not a struct";
        "doca_dpa_dev_rdma" Replaced("doca_dpa_dev_rdma_t"), "an integer and not a struct";
    }

    Type since V2_6 until V2_6 {
        "doca_cc_task_send" Renamed("doca_comch_task_send");
        "doca_cc_task_send_completion_cb_t" Renamed("doca_comch_task_send_completion_cb_t");
        "doca_cc_consumer_task_post_recv" Renamed("doca_comch_consumer_task_post_recv");
        "doca_cc_consumer_task_post_recv_completion_cb_t" Renamed("doca_comch_consumer_task_post_recv_completion_cb_t");
        "doca_cc_producer_task_send" Renamed("doca_comch_producer_task_send");
        "doca_cc_producer_task_send_completion_cb_t" Renamed("doca_comch_producer_task_send_completion_cb_t");
    }

    Function since V2_6 until V2_6 {
        "doca_cc_producer_task_send_alloc_init" Replaced("doca_comch_producer_task_send_alloc_init"), "immediate data and its length are the arguments after the buf: NULL and 0 for none";
        "doca_cc_producer_task_send_get_buf" Replaced("doca_comch_producer_task_send_get_buf"), "returns a pointer to const";
    }

    EnumValue since V2_5 until V2_6 {
        "DOCA_CC_COUNTER_SENT_MESSAGES" Renamed("DOCA_COMCH_COUNTER_SENT_MESSAGES");
        "DOCA_CC_COUNTER_SENT_BYTES" Renamed("DOCA_COMCH_COUNTER_SENT_BYTES");
        "DOCA_CC_COUNTER_RECV_MESSAGES" Renamed("DOCA_COMCH_COUNTER_RECV_MESSAGES");
        "DOCA_CC_COUNTER_RECV_BYTES" Renamed("DOCA_COMCH_COUNTER_RECV_BYTES");
        "DOCA_CC_MSG_FLAG_NONE" Removed, "tasks that send have no flags";
    }

    Macro since V2_5 until V2_6 {
        "DOCA_LOG" Prefix(0: "DOCA_LOG_LEVEL_"), "the level is a value such as DOCA_LOG_LEVEL_INFO, not INFO";
    }

    // Comm Channel before Comch: deprecated in 2.7.
    Function since V2_5 until V2_6 {
        "doca_comm_channel_ep_create" Replaced("doca_comch_server_create"), "or doca_comch_client_create, on the host; both take the device and the name";
        "doca_comm_channel_ep_destroy" Replaced("doca_comch_server_destroy"), "or doca_comch_client_destroy, on the host";
        "doca_comm_channel_ep_listen" Replaced("doca_ctx_start"), "of the server, which takes its name when it is created";
        "doca_comm_channel_ep_connect" Replaced("doca_ctx_start"), "of the client, which takes the server's name when it is created; its connection is that of doca_comch_client_get_connection";
        "doca_comm_channel_ep_disconnect" Replaced("doca_comch_server_disconnect"), "or doca_ctx_stop of the client";
        "doca_comm_channel_ep_sendto" Replaced("doca_comch_server_task_send_alloc_init"), "or doca_comch_client_task_send_alloc_init, and doca_task_submit";
        "doca_comm_channel_ep_recvfrom" Replaced("doca_comch_server_event_msg_recv_register"), "or doca_comch_client_event_msg_recv_register: messages come to a callback of doca_pe_progress";
        "doca_comm_channel_ep_event_handle_arm_recv" Replaced("doca_pe_request_notification");
        "doca_comm_channel_ep_event_handle_arm_send" Replaced("doca_pe_request_notification");
        "doca_comm_channel_ep_get_event_channel" Replaced("doca_pe_get_notification_handle"), "one handle for both directions";
        "doca_comm_channel_ep_get_service_event_channel" Replaced("doca_comch_server_event_connection_status_changed_register");
        "doca_comm_channel_ep_update_service_state_info" Replaced("doca_comch_server_event_connection_status_changed_register");
        "doca_comm_channel_ep_get_peer_addr_list" Replaced("doca_comch_server_event_connection_status_changed_register"), "the program keeps the connections that its callback gets";
        "doca_comm_channel_ep_get_pending_connections" Replaced("doca_comch_server_event_connection_status_changed_register");
        "doca_comm_channel_ep_set_device" Replaced("doca_comch_server_create"), "or doca_comch_client_create, which take the device";
        "doca_comm_channel_ep_set_device_rep" Replaced("doca_comch_server_create"), "which takes the representor";
        "doca_comm_channel_ep_get_device" Replaced("doca_comch_server_get_device"), "or doca_comch_client_get_device";
        "doca_comm_channel_ep_get_device_rep" Replaced("doca_comch_server_get_device_rep");
        "doca_comm_channel_ep_set_max_msg_size" Replaced("doca_comch_server_set_max_msg_size"), "or doca_comch_client_set_max_msg_size; uint32_t";
        "doca_comm_channel_ep_get_max_msg_size" Replaced("doca_comch_server_get_max_msg_size"), "or doca_comch_client_get_max_msg_size; uint32_t";
        "doca_comm_channel_ep_set_recv_queue_size" Replaced("doca_comch_server_set_recv_queue_size"), "or doca_comch_client_set_recv_queue_size; uint32_t";
        "doca_comm_channel_ep_get_recv_queue_size" Replaced("doca_comch_server_get_recv_queue_size"), "or doca_comch_client_get_recv_queue_size; uint32_t";
        "doca_comm_channel_ep_set_send_queue_size" Replaced("doca_comch_server_task_send_set_conf"), "or doca_comch_client_task_send_set_conf: the number of tasks";
        "doca_comm_channel_ep_get_send_queue_size" Removed, "it is the number of tasks that the program has set";
        "doca_comm_channel_get_max_message_size" Replaced("doca_comch_cap_get_max_msg_size");
        "doca_comm_channel_get_max_recv_queue_size" Replaced("doca_comch_cap_get_max_recv_queue_size");
        "doca_comm_channel_get_max_send_queue_size" Replaced("doca_comch_cap_get_max_send_tasks");
        "doca_comm_channel_get_max_service_name_len" Replaced("doca_comch_cap_get_max_name_len"), "takes a devinfo as first argument";
        "doca_comm_channel_get_service_max_num_connections" Replaced("doca_comch_cap_get_max_clients");
        "doca_comm_channel_peer_addr_get_recv_bytes" Replaced("doca_comch_connection_get_counter"), "with DOCA_COMCH_COUNTER_RECV_BYTES";
        "doca_comm_channel_peer_addr_get_recv_messages" Replaced("doca_comch_connection_get_counter"), "with DOCA_COMCH_COUNTER_RECV_MESSAGES";
        "doca_comm_channel_peer_addr_get_send_bytes" Replaced("doca_comch_connection_get_counter"), "with DOCA_COMCH_COUNTER_SENT_BYTES";
        "doca_comm_channel_peer_addr_get_send_messages" Replaced("doca_comch_connection_get_counter"), "with DOCA_COMCH_COUNTER_SENT_MESSAGES";
        "doca_comm_channel_peer_addr_get_send_in_flight_messages" Removed, "the program counts its tasks in flight";
        "doca_comm_channel_peer_addr_get_user_data" Replaced("doca_comch_connection_get_user_data"), "returns a union doca_data";
        "doca_comm_channel_peer_addr_set_user_data" Replaced("doca_comch_connection_set_user_data"), "takes a union doca_data";
        "doca_comm_channel_peer_addr_update_info" Replaced("doca_comch_connection_update_info");

        "doca_argp_set_grpc_program" Removed, "programs have no gRPC interface";
        "doca_argp_get_grpc_addr" Removed, "programs have no gRPC interface";

        "doca_compress_cap_task_decompress_lz4_is_supported" Renamed("doca_compress_cap_task_decompress_lz4_stream_is_supported");
        "doca_compress_cap_task_decompress_lz4_get_max_buf_size" Renamed("doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size");
        "doca_compress_cap_task_decompress_lz4_get_max_buf_list_len" Renamed("doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len");
        "doca_compress_task_decompress_lz4_set_conf" Renamed("doca_compress_task_decompress_lz4_stream_set_conf");
        "doca_compress_task_decompress_lz4_alloc_init" Renamed("doca_compress_task_decompress_lz4_stream_alloc_init"), "or _block for one LZ4 block without a frame";
        "doca_compress_task_decompress_lz4_as_task" Renamed("doca_compress_task_decompress_lz4_stream_as_task");
        "doca_compress_task_decompress_lz4_set_src" Renamed("doca_compress_task_decompress_lz4_stream_set_src");
        "doca_compress_task_decompress_lz4_get_src" Renamed("doca_compress_task_decompress_lz4_stream_get_src");
        "doca_compress_task_decompress_lz4_set_dst" Renamed("doca_compress_task_decompress_lz4_stream_set_dst");
        "doca_compress_task_decompress_lz4_get_dst" Renamed("doca_compress_task_decompress_lz4_stream_get_dst");
        "doca_compress_task_decompress_lz4_get_crc_cs" Renamed("doca_compress_task_decompress_lz4_stream_get_crc_cs");
        "doca_compress_task_decompress_lz4_get_adler_cs" Replaced("doca_compress_task_decompress_lz4_stream_get_xxh_cs"), "the checksum is xxHash, not Adler";

        "doca_sync_event_cap_task_wait_gt_is_supported" Replaced("doca_sync_event_cap_task_wait_eq_is_supported");
        "doca_sync_event_task_wait_gt_set_conf" Replaced("doca_sync_event_task_wait_eq_set_conf");
        "doca_sync_event_task_wait_gt_alloc_init" Replaced("doca_sync_event_task_wait_eq_alloc_init"), "it waits until the value is equal, not greater; doca_sync_event_wait_gt waits for a greater one without a task";
        "doca_sync_event_task_wait_gt_as_doca_task" Replaced("doca_sync_event_task_wait_eq_as_doca_task");
        "doca_sync_event_task_wait_gt_set_wait_val" Replaced("doca_sync_event_task_wait_eq_set_wait_val");
        "doca_sync_event_task_wait_gt_get_wait_val" Replaced("doca_sync_event_task_wait_eq_get_wait_val");
        "doca_sync_event_task_wait_gt_set_mask" Replaced("doca_sync_event_task_wait_eq_set_mask");
        "doca_sync_event_task_wait_gt_get_mask" Replaced("doca_sync_event_task_wait_eq_get_mask");

        "doca_buf_arr_create" Type(0: "doca_mmap" => "size_t"), "the first argument is the number of elements; doca_buf_arr_set_params takes the map";
        "doca_buf_arr_set_params" Type(1: "size_t" => "doca_mmap"), "the map, the size of an element and the offset; doca_buf_arr_create takes the number of elements";
        "doca_buf_arr_get_dpa_handle" Type(1: "doca_dpa_dev_buf_arr" => "doca_dpa_dev_buf_arr_t"), "the handle is an integer and not a pointer";
        "doca_rdma_get_dpa_handle" Type(1: "doca_dpa_dev_rdma" => "doca_dpa_dev_rdma_t"), "the handle is an integer and not a pointer";
        "doca_devinfo_get_active_rate" Type(1: "double" => "uint64_t"), "the rate is in bits a second, not in Gb/s";

        "doca_rdma_export" Count(3 => 4), "a running context exports a connection, the last argument; before, a starting context exported the only one";
        "doca_rdma_connect" Count(3 => 4), "the last argument is the connection that doca_rdma_export returned; the context is running already";
        "doca_rdma_task_atomic_cmp_swp_allocate_init" Count(7 => 8), "the second argument is the connection";
        "doca_rdma_task_atomic_fetch_add_allocate_init" Count(6 => 7), "the second argument is the connection";
        "doca_rdma_task_read_allocate_init" Count(5 => 6), "the second argument is the connection";
        "doca_rdma_task_remote_net_sync_event_get_allocate_init" Count(5 => 6), "the second argument is the connection";
        "doca_rdma_task_remote_net_sync_event_notify_add_allocate_init" Count(6 => 7), "the second argument is the connection";
        "doca_rdma_task_remote_net_sync_event_notify_set_allocate_init" Count(5 => 6), "the second argument is the connection";
        "doca_rdma_task_send_allocate_init" Count(4 => 5), "the second argument is the connection";
        "doca_rdma_task_send_imm_allocate_init" Count(5 => 6), "the second argument is the connection";
        "doca_rdma_task_write_allocate_init" Count(5 => 6), "the second argument is the connection";
        "doca_rdma_task_write_imm_allocate_init" Count(6 => 7), "the second argument is the connection";
    }
}

/// Headers of 2.5 and 2.6, with the headers that they include directly or indirectly; later releases include only the
/// basic types.
pub const EARLIER_INCLUDES: &[(&str, &[&str])] = &[
    (
        "doca_aes_gcm.h",
        &["doca_buf.h", "doca_ctx.h", "doca_dev.h", "doca_pe.h"],
    ),
    (
        "doca_buf_array.h",
        &["doca_buf.h", "doca_dev.h", "doca_mmap.h"],
    ),
    (
        "doca_buf_inventory.h",
        &["doca_buf.h", "doca_dev.h", "doca_mmap.h"],
    ),
    ("doca_comm_channel.h", &["doca_dev.h"]),
    (
        "doca_compress.h",
        &["doca_buf.h", "doca_ctx.h", "doca_dev.h", "doca_pe.h"],
    ),
    ("doca_ctx.h", &["doca_dev.h"]),
    (
        "doca_dma.h",
        &["doca_buf.h", "doca_ctx.h", "doca_dev.h", "doca_pe.h"],
    ),
    (
        "doca_erasure_coding.h",
        &["doca_buf.h", "doca_ctx.h", "doca_dev.h", "doca_pe.h"],
    ),
    ("doca_graph.h", &["doca_ctx.h", "doca_dev.h", "doca_pe.h"]),
    ("doca_mmap.h", &["doca_dev.h"]),
    ("doca_pe.h", &["doca_ctx.h", "doca_dev.h"]),
    (
        "doca_rdma.h",
        &[
            "doca_buf.h",
            "doca_ctx.h",
            "doca_dev.h",
            "doca_pe.h",
            "doca_sync_event.h",
        ],
    ),
    ("doca_sha.h", &["doca_buf.h", "doca_ctx.h", "doca_dev.h"]),
    (
        "doca_sync_event.h",
        &["doca_ctx.h", "doca_dev.h", "doca_pe.h"],
    ),
];

/// The last release with [`EARLIER_INCLUDES`].
pub const EARLIER_INCLUDES_UNTIL: Version = V2_6;

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;
    use crate::{
        CALLBACKS, CONSTANTS, EARLIER_CALLBACKS, EARLIER_FUNCTIONS, ENUMS, HANDLES,
        RENAMED_HANDLES, headers,
    };

    /// All names of the current release in the tables.
    fn current() -> BTreeSet<&'static str> {
        let functions = headers().iter().flat_map(|header| header.functions);
        let files = headers().iter().map(|header| header.name);
        functions
            .map(|function| function.name)
            .chain(files)
            .chain(HANDLES.iter().map(|handle| handle.name))
            .chain(CALLBACKS.iter().map(|callback| callback.name))
            .chain(
                ENUMS
                    .iter()
                    .flat_map(|it| it.values)
                    .map(|value| value.name),
            )
            .chain(ENUMS.iter().flat_map(|it| [it.name, it.tag]))
            .chain(CONSTANTS.iter().map(|constant| constant.name))
            .collect()
    }

    #[test]
    fn replacements_exist_in_the_next_release() {
        let current = current();
        for change in CHANGES {
            let (Effect::Renamed(next) | Effect::Replaced(next)) = change.effect else {
                continue;
            };
            let is_later_name = CHANGES
                .iter()
                .any(|it| it.name == next && it.until > change.until)
                || EARLIER_FUNCTIONS.iter().any(|it| {
                    it.decl.function.name == next && Version::from(it.until) > change.until
                })
                || RENAMED_HANDLES.iter().any(|it| it.name == next)
                || EARLIER_CALLBACKS.iter().any(|it| it.decl.name == next);
            // Macros, plain types and headers of other libraries are not in the tables.
            let is_elsewhere = change.kind == SymbolKind::Macro
                || [
                    "doca_dpa_dev_",
                    "doca_telemetry_",
                    "doca_notification_handle_t",
                ]
                .iter()
                .any(|prefix| next.starts_with(prefix));
            assert!(
                current.contains(next) || is_later_name || is_elsewhere,
                "{}: there is no {next}",
                change.name
            );
        }
    }

    #[test]
    fn only_names_with_other_arguments_are_current() {
        let current = current();
        for change in CHANGES {
            let is_same_name = matches!(change.effect, Effect::Arguments(_));
            assert!(
                is_same_name || !current.contains(change.name),
                "{}",
                change.name
            );
        }
    }

    #[test]
    fn every_name_has_one_change_for_a_release() {
        let mut names = Vec::new();
        for change in CHANGES {
            assert!(change.since <= change.until, "{}", change.name);
            assert!(VERSIONS.contains(&change.until), "{}", change.name);
            assert!(
                !names.contains(&(change.name, change.until)),
                "{}",
                change.name
            );
            names.push((change.name, change.until));
        }
    }

    #[test]
    fn counts_of_arguments_are_those_of_the_current_release() {
        for change in CHANGES {
            if let Effect::Arguments(Arguments::Count { before, after }) = change.effect {
                let mut functions = headers().iter().flat_map(|header| header.functions);
                let function = functions.find(|function| function.name == change.name);
                assert_eq!(
                    function.map(|it| it.params.len()),
                    Some(after),
                    "{}",
                    change.name
                );
                assert_ne!(before, after, "{}", change.name);
            }
        }
    }

    #[test]
    fn included_headers_are_current_and_complete() {
        let current = current();
        for (header, includes) in EARLIER_INCLUDES {
            for include in *includes {
                assert!(current.contains(include), "{header}: {include}");
                let further = EARLIER_INCLUDES.iter().find(|(name, _)| name == include);
                for indirect in further.into_iter().flat_map(|(_, more)| *more) {
                    assert!(includes.contains(indirect), "{header}: {indirect}");
                }
            }
        }
    }

    #[test]
    fn every_renamed_handle_has_a_change() {
        for handle in RENAMED_HANDLES {
            assert!(
                CHANGES.iter().any(|change| change.name == handle.name),
                "{}",
                handle.name
            );
        }
    }
}
