//! Releases, and the differing declarations of earlier ones: types, callbacks, enums, functions.
//!
//! The rest of this crate describes the current release. An earlier release has the declarations listed here for it,
//! and those of the current release except for names that were [`ADDED`] later and headers in [`UNADAPTED`].

use crate::*;

/// A release of DOCA that softdoca has the headers of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Release {
    /// 2.5 LTS: the first with `doca_cc_*`.
    V2_5,
    /// 2.6: names of `doca_cc_*` changed; 2.7 has `doca_comch_*`.
    V2_6,
    /// 2.9 LTS.
    V2_9,
    V3_3,
}

impl Release {
    /// All releases, oldest first.
    pub const ALL: [Self; 4] = [Self::V2_5, Self::V2_6, Self::V2_9, Self::V3_3];

    /// The release that the tables of this crate describe.
    pub const CURRENT: Self = Self::V3_3;

    /// Major, minor and patch number of the version.
    pub const fn version(self) -> [u32; 3] {
        match self {
            Self::V2_5 => [2, 5, 0],
            Self::V2_6 => [2, 6, 0],
            Self::V2_9 => [2, 9, 0],
            Self::V3_3 => [DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH],
        }
    }

    /// Major and minor number, e.g. `"2.5"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2_5 => "2.5",
            Self::V2_6 => "2.6",
            Self::V2_9 => "2.9",
            Self::V3_3 => "3.3",
        }
    }
}

/// Text in softdoca's shared library before the [name](Release::name) of the release that its installation is for.
pub const RELEASE_MARKER: &str = "softdoca is installed for release ";

/// A declaration of some releases before the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earlier<T> {
    /// The first release that has the declaration.
    pub since: Release,
    /// The last release that has the name.
    pub until: Release,
    /// The declaration.
    pub decl: T,
}

impl<T> Earlier<T> {
    /// `true` if a release has the declaration.
    pub fn is_in(&self, release: Release) -> bool {
        (self.since..=self.until).contains(&release)
    }
}

/// 2 to the power of a number of tasks that 2.5 takes as a logarithm; `u32::MAX` if the exponent is too large.
pub const fn power_of_two(exponent: u8) -> u32 {
    match 1_u32.checked_shl(exponent as u32) {
        Some(number) => number,
        None => u32::MAX,
    }
}

macro_rules! renamed_types {
    ($(header $header:literal { $($name:ident = $current:ident, $doc:literal;)+ })+) => {
        $($(
            #[doc = $doc]
            pub type $name = $current;
        )+)+

        /// Opaque types that have been renamed or replaced: several names of one type.
        pub const RENAMED_HANDLES: &[HandleDecl] = &[$($(
            HandleDecl { header: $header, name: stringify!($name), doc: $doc },
        )+)+];
    };
}

renamed_types! {
    header "doca_cc.h" {
        doca_cc_connection = doca_comch_connection, "A connection of a client and a server.";
        doca_cc_server = doca_comch_server, "A Comm Channel server, on the DPU.";
        doca_cc_client = doca_comch_client, "A Comm Channel client, on the host.";
        doca_cc_task_send = doca_comch_task_send, "A task that sends a control message.";
        doca_cc_send_task = doca_comch_task_send, "A task that sends a control message; its name in 2.5.";
        doca_cc_event_msg_recv = doca_comch_event_msg_recv, "The event of a received message.";
        doca_cc_event_connection_status_changed = doca_comch_event_connection_status_changed, "The event of a client that connected or disconnected.";
        doca_cc_event_consumer = doca_comch_event_consumer, "The event of a new or expired remote consumer.";
    }
    header "doca_cc_consumer.h" {
        doca_cc_consumer = doca_comch_consumer, "The receiving side of a connection's fast path.";
        doca_cc_consumer_task_post_recv = doca_comch_consumer_task_post_recv, "A task that receives one message of the fast path.";
        doca_cc_consumer_post_recv_task = doca_comch_consumer_task_post_recv, "A task that receives one message of the fast path; its name in 2.5.";
    }
    header "doca_rdma.h" {
        doca_dpa_dev_rdma = c_void, "A handle of an RDMA instance on the DPA; an integer since.";
    }
    header "doca_sync_event.h" {
        doca_sync_event_task_wait_gt = doca_sync_event_task_wait_eq, "A task that waits for a greater value.";
    }
    header "doca_cc_producer.h" {
        doca_cc_producer = doca_comch_producer, "The sending side of a connection's fast path.";
        doca_cc_producer_task_send = doca_comch_producer_task_send, "A task that sends one message of the fast path.";
        doca_cc_producer_send_task = doca_comch_producer_task_send, "A task that sends one message of the fast path; its name in 2.5.";
    }
}

/// Kinds of counters.
pub type doca_cc_counter = doca_comch_counter;

/// Flags of the Comm Channel of 2.5 and 2.6: `enum doca_comm_channel_msg_flags`.
pub type doca_comm_channel_msg_flags = u32;
/// No flags; there are no others.
pub const DOCA_CC_MSG_FLAG_NONE: doca_comm_channel_msg_flags = 0;

macro_rules! earlier_callbacks {
    ($(
        header $header:literal since $since:ident until $until:ident;
        $(fn $name:ident($($param:ident: $ty:ty),* $(,)?) = $current:ident $(as $other:ident)?, $doc:literal;)+
    )+) => {
        $($( earlier_callbacks!(@type $name $current $($other)?); )+)+

        /// Types of callback functions of earlier releases.
        pub const EARLIER_CALLBACKS: &[Earlier<CallbackDecl>] = &[$($(
            Earlier {
                since: Release::$since,
                until: Release::$until,
                decl: CallbackDecl {
                    header: $header,
                    name: stringify!($name),
                    doc: $doc,
                    params: &[$(Parameter { name: stringify!($param), ty: Type(stringify!($ty)) }),*],
                    ret: None,
                },
            },
        )+)+];
    };
    (@type $name:ident $current:ident) => {
        #[doc = concat!("As [`", stringify!($current), "`].")]
        pub type $name = $current;
    };
    // A second declaration of a name, for another release.
    (@type $name:ident $current:ident $other:ident) => {};
}

// One Rust type serves all releases: a function receives the same registers for lengths of 32 and of 64 bits (softdoca
// passes 64), and for the two values of a bool and of a byte.
earlier_callbacks! {
    header "doca_sync_event.h" since V2_5 until V2_6;
    fn doca_sync_event_task_wait_gt_completion_cb_t(
        task: *mut doca_sync_event_task_wait_gt,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ) = doca_sync_event_task_wait_eq_completion_cb_t, "Called when a task that waits for a greater value has completed, or failed.";

    header "doca_cc.h" since V2_6 until V2_6;
    fn doca_cc_task_send_completion_cb_t(
        task: *mut doca_cc_task_send,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ) = doca_comch_task_send_completion_cb_t, "Called when a control message was sent, or failed.";
    fn doca_cc_event_msg_recv_cb_t(
        event: *mut doca_cc_event_msg_recv,
        recv_buffer: *mut u8,
        msg_len: u32,
        cc_connection: *mut doca_cc_connection
    ) = doca_comch_event_msg_recv_cb_t, "Called for each control message; the bytes are valid during the call.";
    fn doca_cc_event_connection_status_changed_cb_t(
        event: *mut doca_cc_event_connection_status_changed,
        cc_connection: *mut doca_cc_connection,
        change_successful: u8
    ) = doca_comch_event_connection_status_changed_cb_t, "Called when a client has connected or disconnected.";

    header "doca_cc.h" since V2_5 until V2_5;
    fn doca_cc_send_task_comp_handler(
        task: *mut doca_cc_send_task,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ) = doca_comch_task_send_completion_cb_t, "Called when a control message was sent, or failed.";
    fn doca_cc_event_msg_recv_cb_t(
        event: *mut doca_cc_event_msg_recv,
        recv_buffer: *mut u8,
        msg_len: usize,
        cc_connection: *mut doca_cc_connection
    ) = doca_comch_event_msg_recv_cb_t as declared_above, "Called for each control message; the bytes are valid during the call.";
    fn doca_cc_event_connection_status_changed_cb_t(
        event: *mut doca_cc_event_connection_status_changed,
        cc_connection: *mut doca_cc_connection,
        change_successful: bool
    ) = doca_comch_event_connection_status_changed_cb_t as declared_above, "Called when a client has connected or disconnected.";

    header "doca_cc.h" since V2_5 until V2_6;
    fn doca_cc_event_consumer_cb_t(
        event: *mut doca_cc_event_consumer,
        cc_connection: *mut doca_cc_connection,
        id: u32
    ) = doca_comch_event_consumer_cb_t, "Called when the peer has started or stopped a consumer.";

    header "doca_cc_consumer.h" since V2_6 until V2_6;
    fn doca_cc_consumer_task_post_recv_completion_cb_t(
        task: *mut doca_cc_consumer_task_post_recv,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ) = doca_comch_consumer_task_post_recv_completion_cb_t, "Called when a message of the fast path arrived, or receiving failed.";

    header "doca_cc_consumer.h" since V2_5 until V2_5;
    fn doca_cc_consumer_post_recv_task_comp_handler(
        task: *mut doca_cc_consumer_post_recv_task,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ) = doca_comch_consumer_task_post_recv_completion_cb_t, "Called when a message of the fast path arrived, or receiving failed.";

    header "doca_cc_producer.h" since V2_6 until V2_6;
    fn doca_cc_producer_task_send_completion_cb_t(
        task: *mut doca_cc_producer_task_send,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ) = doca_comch_producer_task_send_completion_cb_t, "Called when a message of the fast path was sent, or failed.";

    header "doca_cc_producer.h" since V2_5 until V2_5;
    fn doca_cc_producer_send_task_comp_handler(
        task: *mut doca_cc_producer_send_task,
        task_user_data: doca_data,
        ctx_user_data: doca_data
    ) = doca_comch_producer_task_send_completion_cb_t, "Called when a message of the fast path was sent, or failed.";
}

/// Enums of earlier releases; an enum with the name of a current enum replaces it.
pub const EARLIER_ENUMS: &[Earlier<EnumDecl>] = &[
    Earlier {
        since: Release::V2_5,
        until: Release::V2_6,
        decl: EnumDecl {
            header: "doca_comm_channel.h",
            name: "doca_comm_channel_msg_flags",
            tag: "doca_comm_channel_msg_flags",
            doc: "Flags for sending and receiving.",
            values: &[EnumValue {
                name: "DOCA_CC_MSG_FLAG_NONE",
                value: DOCA_CC_MSG_FLAG_NONE,
                doc: "No flags.",
            }],
        },
    },
    Earlier {
        since: Release::V2_5,
        until: Release::V2_6,
        decl: EnumDecl {
            header: "doca_cc.h",
            name: "doca_cc_counter",
            tag: "doca_cc_counter",
            doc: "Counters of a connection's control path.",
            values: &[
                EnumValue {
                    name: "DOCA_CC_COUNTER_SENT_MESSAGES",
                    value: DOCA_COMCH_COUNTER_SENT_MESSAGES,
                    doc: "Messages that were sent.",
                },
                EnumValue {
                    name: "DOCA_CC_COUNTER_SENT_BYTES",
                    value: DOCA_COMCH_COUNTER_SENT_BYTES,
                    doc: "Their bytes.",
                },
                EnumValue {
                    name: "DOCA_CC_COUNTER_RECV_MESSAGES",
                    value: DOCA_COMCH_COUNTER_RECV_MESSAGES,
                    doc: "Messages that were received.",
                },
                EnumValue {
                    name: "DOCA_CC_COUNTER_RECV_BYTES",
                    value: DOCA_COMCH_COUNTER_RECV_BYTES,
                    doc: "Their bytes.",
                },
            ],
        },
    },
    Earlier {
        since: Release::V2_5,
        until: Release::V2_9,
        decl: EnumDecl {
            header: "doca_argp.h",
            name: "doca_argp_type",
            tag: "doca_argp_type",
            doc: "Types of a parameter's value.",
            values: &[
                EnumValue {
                    name: "DOCA_ARGP_TYPE_UNKNOWN",
                    value: DOCA_ARGP_TYPE_UNKNOWN,
                    doc: "None.",
                },
                EnumValue {
                    name: "DOCA_ARGP_TYPE_STRING",
                    value: DOCA_ARGP_TYPE_STRING,
                    doc: "A string.",
                },
                EnumValue {
                    name: "DOCA_ARGP_TYPE_INT",
                    value: DOCA_ARGP_TYPE_INT,
                    doc: "An int.",
                },
                EnumValue {
                    name: "DOCA_ARGP_TYPE_BOOLEAN",
                    value: DOCA_ARGP_TYPE_BOOLEAN,
                    doc: "A bool: true when the flag is given.",
                },
                // The number that the device has in 3.1 and later.
                EnumValue {
                    name: "DOCA_ARGP_TYPE_JSON_OBJ",
                    value: DOCA_ARGP_TYPE_DEVICE,
                    doc: "The text of a JSON object, JSON file only.",
                },
            ],
        },
    },
];

/// Headers, and functions, enums and types of callbacks of other headers, that later releases have, but the release
/// named here does not.
pub const ADDED: &[(Release, &[&str])] = &[
    (
        Release::V2_5,
        &[
            "doca_aes_gcm_cap_task_decrypt_get_max_iv_len",
            "doca_aes_gcm_cap_task_encrypt_get_max_iv_len",
            "doca_compress_cap_get_max_num_tasks",
            "doca_devinfo_get_active_rate",
            "doca_log_backend_create_with_buf",
            "doca_log_backend_create_with_buf_sdk",
            "doca_sha_cap_get_max_src_buf_size",
            "doca_sha_cap_get_min_dst_buf_size",
            "doca_sha_task_partial_hash_set_is_final_buf",
            "doca_rdma_task_read_get_result_len",
            "doca_rdma_task_receive_get_result_len",
            "doca_rdma_task_remote_net_sync_event_get_get_result_len",
        ],
    ),
    (
        Release::V2_6,
        &[
            "doca_bitfield.h",
            "doca_comch.h",
            "doca_comch_consumer.h",
            "doca_comch_producer.h",
            "doca_mmap_advise.h",
            "doca_argp_cmd_create",
            "doca_argp_cmd_destroy",
            "doca_argp_cmd_register_cmd",
            "doca_argp_cmd_register_param",
            "doca_argp_cmd_set_callback",
            "doca_argp_cmd_set_description",
            "doca_argp_cmd_set_hidden",
            "doca_argp_cmd_set_name",
            "doca_argp_disable_logger_callback",
            "doca_argp_param_set_hidden",
            "doca_argp_param_set_inherited",
            "doca_argp_param_set_singular",
            "doca_argp_register_cmd",
            "doca_argp_register_logger_callback",
            "doca_buf_chain_list_tail",
            "doca_buf_set_data_len",
            "doca_buf_inventory_expand",
            "doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len",
            "doca_compress_cap_task_decompress_lz4_block_get_max_buf_size",
            "doca_compress_cap_task_decompress_lz4_block_is_supported",
            "doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len",
            "doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size",
            "doca_compress_cap_task_decompress_lz4_stream_is_supported",
            "doca_compress_task_decompress_lz4_block_alloc_init",
            "doca_compress_task_decompress_lz4_block_as_task",
            "doca_compress_task_decompress_lz4_block_get_crc_cs",
            "doca_compress_task_decompress_lz4_block_get_dst",
            "doca_compress_task_decompress_lz4_block_get_src",
            "doca_compress_task_decompress_lz4_block_get_xxh_cs",
            "doca_compress_task_decompress_lz4_block_set_conf",
            "doca_compress_task_decompress_lz4_block_set_dst",
            "doca_compress_task_decompress_lz4_block_set_src",
            "doca_compress_task_decompress_lz4_stream_alloc_init",
            "doca_compress_task_decompress_lz4_stream_as_task",
            "doca_compress_task_decompress_lz4_stream_get_are_blocks_independent",
            "doca_compress_task_decompress_lz4_stream_get_crc_cs",
            "doca_compress_task_decompress_lz4_stream_get_dst",
            "doca_compress_task_decompress_lz4_stream_get_has_block_checksum",
            "doca_compress_task_decompress_lz4_stream_get_src",
            "doca_compress_task_decompress_lz4_stream_get_xxh_cs",
            "doca_compress_task_decompress_lz4_stream_set_are_blocks_independent",
            "doca_compress_task_decompress_lz4_stream_set_conf",
            "doca_compress_task_decompress_lz4_stream_set_dst",
            "doca_compress_task_decompress_lz4_stream_set_has_block_checksum",
            "doca_compress_task_decompress_lz4_stream_set_src",
            "doca_ctx_cap_get_num_completion_vectors",
            "doca_ctx_flush_tasks",
            "doca_ctx_set_completion_vector",
            "doca_dev_accelerate_resource_reclaim",
            "doca_devinfo_cap_is_accelerate_resource_reclaim_supported",
            "doca_devinfo_cap_is_notification_moderation_supported",
            "doca_devinfo_get_vhca_id",
            "doca_devinfo_rep_get_iface_name",
            "doca_devinfo_rep_get_vhca_id",
            "doca_dma_get_gpu_handle",
            "doca_mmap_dev_get_dpa_handle",
            "doca_mmap_enable_thread_safety",
            "doca_mmap_set_dpa_memrange",
            "doca_pe_set_event_mode",
            "doca_rdma_addr_create",
            "doca_rdma_addr_destroy",
            "doca_rdma_addr_get_params",
            "doca_rdma_addr_type",
            "doca_rdma_bridge_accept",
            "doca_rdma_bridge_established",
            "doca_rdma_bridge_get_mmap_mkey_from_pd",
            "doca_rdma_bridge_prepare_connection",
            "doca_rdma_connect_to_addr",
            "doca_rdma_connection_accept",
            "doca_rdma_connection_disconnect",
            "doca_rdma_connection_disconnection_cb_t",
            "doca_rdma_connection_established_cb_t",
            "doca_rdma_connection_failure_cb_t",
            "doca_rdma_connection_get_addr",
            "doca_rdma_connection_get_id",
            "doca_rdma_connection_get_user_data",
            "doca_rdma_connection_reject",
            "doca_rdma_connection_request_cb_t",
            "doca_rdma_connection_set_user_data",
            "doca_rdma_dpa_completion_attach",
            "doca_rdma_get_connection_request_timeout",
            "doca_rdma_get_gpu_handle",
            "doca_rdma_get_max_num_connections",
            "doca_rdma_get_rnr_retry_count",
            "doca_rdma_set_connection_request_timeout",
            "doca_rdma_set_connection_state_callbacks",
            "doca_rdma_set_max_num_connections",
            "doca_rdma_set_rnr_retry_count",
            "doca_rdma_start_listen_to_port",
            "doca_rdma_stop_listen_to_port",
            "doca_rdma_task_atomic_cmp_swp_get_rdma_connection",
            "doca_rdma_task_atomic_cmp_swp_set_rdma_connection",
            "doca_rdma_task_atomic_fetch_add_get_rdma_connection",
            "doca_rdma_task_atomic_fetch_add_set_rdma_connection",
            "doca_rdma_task_read_get_rdma_connection",
            "doca_rdma_task_read_set_rdma_connection",
            "doca_rdma_task_receive_get_result_rdma_connection",
            "doca_rdma_task_remote_net_sync_event_get_get_rdma_connection",
            "doca_rdma_task_remote_net_sync_event_get_set_rdma_connection",
            "doca_rdma_task_remote_net_sync_event_notify_add_get_rdma_connection",
            "doca_rdma_task_remote_net_sync_event_notify_add_set_rdma_connection",
            "doca_rdma_task_remote_net_sync_event_notify_set_get_rdma_connection",
            "doca_rdma_task_remote_net_sync_event_notify_set_set_rdma_connection",
            "doca_rdma_task_send_get_rdma_connection",
            "doca_rdma_task_send_imm_get_rdma_connection",
            "doca_rdma_task_send_imm_set_rdma_connection",
            "doca_rdma_task_send_set_rdma_connection",
            "doca_rdma_task_write_get_rdma_connection",
            "doca_rdma_task_write_imm_get_rdma_connection",
            "doca_rdma_task_write_imm_set_rdma_connection",
            "doca_rdma_task_write_set_rdma_connection",
            "doca_sync_event_add_publisher_location_remote_pci",
            "doca_sync_event_add_subscriber_location_remote_pci",
            "doca_sync_event_cap_is_export_to_remote_pci_supported",
            "doca_sync_event_cap_task_wait_eq_is_supported",
            "doca_sync_event_cap_task_wait_neq_is_supported",
            "doca_sync_event_export_to_remote_pci",
            "doca_sync_event_get_dpa_handle",
            "doca_sync_event_get_gpu_handle",
            "doca_sync_event_remote_net_get_dpa_handle",
            "doca_sync_event_remote_net_get_gpu_handle",
            "doca_sync_event_set_doca_buf",
            "doca_sync_event_task_wait_eq_alloc_init",
            "doca_sync_event_task_wait_eq_as_doca_task",
            "doca_sync_event_task_wait_eq_completion_cb_t",
            "doca_sync_event_task_wait_eq_get_mask",
            "doca_sync_event_task_wait_eq_get_wait_val",
            "doca_sync_event_task_wait_eq_set_conf",
            "doca_sync_event_task_wait_eq_set_mask",
            "doca_sync_event_task_wait_eq_set_wait_val",
            "doca_sync_event_task_wait_neq_alloc_init",
            "doca_sync_event_task_wait_neq_as_doca_task",
            "doca_sync_event_task_wait_neq_completion_cb_t",
            "doca_sync_event_task_wait_neq_get_mask",
            "doca_sync_event_task_wait_neq_get_wait_val",
            "doca_sync_event_task_wait_neq_set_conf",
            "doca_sync_event_task_wait_neq_set_mask",
            "doca_sync_event_task_wait_neq_set_wait_val",
            "doca_sync_event_wait_eq",
            "doca_sync_event_wait_eq_yield",
            "doca_sync_event_wait_neq",
            "doca_sync_event_wait_neq_yield",
            "doca_task_batch_free",
            "doca_task_batch_get_ctx",
            "doca_task_batch_get_ctx_user_data",
            "doca_task_batch_get_status",
            "doca_task_batch_get_tasks_num",
            "doca_task_batch_get_user_data",
            "doca_task_batch_set_user_data",
            "doca_task_batch_submit",
            "doca_task_batch_try_submit",
            "doca_task_submit_ex",
            "doca_sha_cap_get_max_num_tasks",
        ],
    ),
    // Same as 3.0, because the headers of 2.9 are not public.
    (
        Release::V2_9,
        &[
            "doca_clock.h",
            "doca_argp_disable_pedantic_config_parsing",
            "doca_argp_register_dev_open_callback",
            "doca_buf_inventory_buf_reuse_by_addr",
            "doca_buf_inventory_buf_reuse_by_args",
            "doca_buf_inventory_buf_reuse_by_data",
            "doca_devinfo_get_pci_func_type",
            "doca_devinfo_get_sf_index",
            "doca_log_get_max_num_backends_sdk",
            "doca_logger_create_list",
            "doca_logger_destroy_list",
            "doca_logger_find_by_name",
            "doca_logger_get_level",
            "doca_logger_get_name",
            "doca_logger_set_level",
        ],
    ),
];

/// Headers whose 2.x declarations softdoca does not have: arrays of bufs are for the DPA and GPUs, which are not
/// emulated. Installations of the named release, and of earlier ones, omit them.
pub const UNADAPTED: &[(Release, &[&str])] = &[(Release::V2_6, &["doca_buf_array.h"])];

/// `true` if a release has the current declaration of a name or header.
pub fn is_current_in(release: Release, name: &str) -> bool {
    !ADDED
        .iter()
        .chain(UNADAPTED)
        .any(|(last, names)| release <= *last && names.contains(&name))
}
