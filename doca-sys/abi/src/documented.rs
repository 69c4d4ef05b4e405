//! The errors that DOCA's API pages (3.0) name for functions of the table, and how the tests of softdoca provoke them.

/// An error that the documentation of a function names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentedError {
    /// Name of the function.
    pub function: &'static str,
    /// Name of the error without `DOCA_ERROR_`.
    pub error: &'static str,
    /// The condition for which the error is returned.
    pub condition: &'static str,
    /// How the tests provoke the error.
    pub provocation: Provocation,
}

/// How the tests provoke an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provocation {
    /// Generated calls: each pointer argument in turn is NULL, or a number is out of range, while the others are valid.
    Null,
    /// A generated call with valid arguments, after their objects were started.
    Started,
    /// A second generated call with valid arguments, of a pool with one task.
    Exhausted,
    /// A generated call with valid arguments.
    Valid,
    /// A line `DOCUMENTED(error, call)` of a test in C.
    Written,
    /// Not provoked.
    Never(Reason),
}

/// Reason why the tests do not provoke an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Memory or a lock cannot be allocated: softdoca aborts, as Rust programs do, or the kernel ends the process.
    Memory,
    /// An error of the operating system, in a place where softdoca makes no system call.
    System,
    /// A driver fails, but softdoca has no driver.
    Driver,
    /// A device lacks a capability, or its port an address: every emulated device has all.
    Device,
    /// Hardware, a data path or a release that softdoca does not emulate.
    NotEmulated,
    /// An object is corrupted: undefined behaviour.
    Corruption,
    /// The documentation does not state a condition.
    Unstated,
    /// No sequence of calls leads to the condition.
    Unreachable,
    /// The documentation contradicts itself, or programs that work on hardware: `SEMANTICS.md` describes softdoca's
    /// behaviour.
    Choice,
}

macro_rules! documented {
    ($($function:ident: $($error:ident $provocation:ident $(($reason:ident))? $condition:literal),+;)+) => {
        &[$($(
            DocumentedError {
                function: stringify!($function),
                error: stringify!($error),
                condition: $condition,
                provocation: Provocation::$provocation $((Reason::$reason))?,
            },
        )+)+]
    };
}

/// All documented errors, in the order of the table of functions.
pub const DOCUMENTED_ERRORS: &[DocumentedError] = documented! {
    // doca_dev.h
    doca_devinfo_create_list:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_FOUND Never(Device) "there are no devices";
    doca_devinfo_destroy_list:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Never(Corruption) "a device of the list is corrupted";
    doca_devinfo_rep_create_list:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Written "the device has no representors";
    doca_devinfo_rep_destroy_list:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Never(Corruption) "the device of the list is corrupted";
    doca_dev_open:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_CONNECTED Never(Device) "the device cannot be opened",
        INITIALIZATION Never(Device) "too many devices are open",
        NOT_SUPPORTED Never(NotEmulated) "the entry is of a device opened from a protection domain of rdma-core";
    doca_dev_close:
        IN_USE Written "a running context or a started map uses the device";
    doca_dev_rep_open:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_dev_rep_close:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "a running server uses the representor";
    doca_devinfo_get_pci_addr_str:
        INVALID_VALUE Null "an argument is NULL or invalid",
        OPERATING_SYSTEM Never(System) "the operating system fails";
    doca_devinfo_is_equal_pci_addr:
        INVALID_VALUE Null "an argument is NULL or invalid",
        OPERATING_SYSTEM Never(System) "the operating system fails";
    doca_devinfo_get_iface_name:
        INVALID_VALUE Null "an argument is NULL or invalid",
        OPERATING_SYSTEM Never(System) "the operating system fails";
    doca_devinfo_get_ibdev_name:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_devinfo_rep_cap_is_filter_net_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Written "the device has no representors";
    doca_devinfo_rep_get_vuid:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_devinfo_rep_get_pci_addr_str:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        UNEXPECTED Never(Corruption) "the object is corrupted";
    doca_devinfo_rep_is_equal_pci_addr:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        UNEXPECTED Never(Corruption) "the object is corrupted";
    doca_devinfo_get_ipv4_addr:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_FOUND Never(Device) "the interface has no IPv4 address",
        OPERATING_SYSTEM Never(System) "the operating system fails";
    doca_devinfo_get_mac_addr:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the port is not Ethernet";
    doca_devinfo_cap_is_hotplug_manager_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_devinfo_cap_is_notification_moderation_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_devinfo_rep_cap_is_filter_all_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Written "the device has no representors";
    doca_devinfo_rep_cap_is_filter_emulated_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Written "the device has no representors";
    doca_devinfo_rep_get_pci_func_type:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_devinfo_rep_get_iface_name:
        INVALID_VALUE Null "an argument is NULL or invalid",
        OPERATING_SYSTEM Never(System) "the operating system fails";
    doca_devinfo_rep_get_is_hotplug:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_devinfo_get_ipv6_addr:
        INVALID_VALUE Null "an argument is NULL or invalid",
        OPERATING_SYSTEM Never(System) "the operating system fails";
    doca_devinfo_get_lid:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(NotEmulated) "a condition of hardware that is not emulated",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";
    doca_devinfo_get_active_rate:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_devinfo_get_vhca_id:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_devinfo_rep_get_vhca_id:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_devinfo_cap_is_accelerate_resource_reclaim_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_dev_accelerate_resource_reclaim:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(NotEmulated) "a condition of hardware that is not emulated",
        AGAIN Never(NotEmulated) "a condition of hardware that is not emulated",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";

    // doca_mmap.h
    doca_mmap_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_mmap_create_from_export:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Written "memory or descriptors are exhausted",
        NOT_SUPPORTED Never(Device) "the device cannot import memory",
        NOT_PERMITTED Never(Unstated) "not stated",
        DRIVER Never(Driver) "the driver fails";
    doca_mmap_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_PERMITTED Written "bufs of the map exist";
    doca_mmap_start:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_PERMITTED Written "the map is exported or imported";
    doca_mmap_stop:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_PERMITTED Written "bufs of the map exist; exported and imported maps are stopped, because the same page says that this ends the exports";
    doca_mmap_add_dev:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_PERMITTED Written "the map is started, exported or imported",
        NO_MEMORY Written "the map has as many devices as it may have",
        ALREADY_EXIST Written "the device was added before",
        NOT_SUPPORTED Never(NotEmulated) "the device was opened from a protection domain of rdma-core";
    doca_mmap_set_memrange:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the map is started",
        NOT_PERMITTED Written "the range was set before";
    doca_mmap_get_memrange:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the range was never set";
    doca_mmap_set_permissions:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the map is started";
    doca_mmap_enable_thread_safety:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_PERMITTED Started "the map is started, or has bufs";
    doca_mmap_export_pci:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_FOUND Written "the device was not added to the map",
        NOT_PERMITTED Written "the map is not started, imported, or lacks the permission",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_SUPPORTED Never(Device) "the device cannot export memory",
        DRIVER Never(Driver) "the driver fails";
    doca_mmap_export_rdma:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_FOUND Written "the device was not added to the map",
        NOT_PERMITTED Written "the map is not started, imported, or lacks the permission",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_SUPPORTED Never(Device) "the device cannot export memory",
        DRIVER Never(Driver) "the driver fails";
    doca_mmap_set_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the map is started";
    doca_mmap_get_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_mmap_get_num_bufs:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_mmap_get_exported:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_mmap_get_from_export:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_mmap_cap_is_export_pci_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_mmap_cap_is_create_from_export_pci_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_mmap_rm_dev:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_FOUND Written "the device was not added",
        NOT_PERMITTED Written "the map is started, exported or imported";
    doca_mmap_set_max_num_devices:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_PERMITTED Written "the map was started before";
    doca_mmap_get_max_num_devices:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_mmap_set_free_cb:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the map is started";
    doca_mmap_set_dmabuf_memrange:
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware",
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated",
        NOT_PERMITTED Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_mmap_dev_get_dpa_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_FOUND Never(NotEmulated) "a condition of hardware that is not emulated",
        NOT_PERMITTED Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_mmap_set_dpa_memrange:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated",
        NOT_PERMITTED Never(NotEmulated) "a condition of hardware that is not emulated";

    // doca_buf.h
    doca_buf_dec_refcount:
        NOT_PERMITTED Written "the buf is in a list, and not its head",
        BAD_STATE Written "the reference count is 0";
    doca_buf_chain_list:
        NOT_PERMITTED Written "the reference count of the second list is not 1";
    doca_buf_inc_refcount:
        NOT_PERMITTED Written "the buf is in a list, and not its head",
        TOO_BIG Written "the reference count is 65535";
    doca_buf_get_last_in_list:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_get_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_PERMITTED Written "the buf is not the head of a list";
    doca_buf_chain_list_tail:
        NOT_PERMITTED Written "the reference count of the second list is not 1";
    doca_buf_unchain_list:
        INVALID_VALUE Written "the second list is not part of the first";

    // doca_buf_inventory.h
    doca_buf_inventory_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Written "memory is exhausted";
    doca_buf_inventory_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "bufs have not been returned";
    doca_buf_inventory_start:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_inventory_stop:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_inventory_buf_get_by_args:
        INVALID_VALUE Written "the range is outside of the map",
        NO_MEMORY Written "no buf is left";
    doca_buf_inventory_buf_get_by_addr:
        NO_MEMORY Written "no buf is left";
    doca_buf_inventory_buf_get_by_data:
        NO_MEMORY Written "no buf is left";
    doca_buf_inventory_buf_dup:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the inventory, or the map of the buf, is not started",
        NOT_PERMITTED Written "the buf is in a list, and not its head",
        NO_MEMORY Written "no buf is left";
    doca_buf_inventory_expand:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the inventory is not started";
    doca_buf_inventory_get_num_elements:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_inventory_get_num_free_elements:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_inventory_set_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the inventory is not started";
    doca_buf_inventory_get_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";

    // doca_buf_pool.h
    doca_buf_pool_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_buf_pool_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "bufs have not been returned";
    doca_buf_pool_start:
        INVALID_VALUE Null "an argument is NULL or invalid",
        INITIALIZATION Written "the map is smaller than the bufs",
        BAD_STATE Written "the map is not started";
    doca_buf_pool_stop:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "bufs have not been returned";
    doca_buf_pool_buf_alloc:
        INVALID_VALUE Written "an argument is NULL",
        BAD_STATE Written "the pool is not started",
        EMPTY Written "no buf is left";
    doca_buf_pool_set_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the pool is started";
    doca_buf_pool_set_element_alignment:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the pool is started";
    doca_buf_pool_get_num_elements:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_pool_get_num_free_elements:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_pool_get_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_pool_get_element_alignment:
        INVALID_VALUE Null "an argument is NULL or invalid";

    // doca_buf_array.h
    doca_buf_arr_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_buf_arr_set_target_gpu:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_buf_arr_set_target_dpa:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_buf_arr_set_params:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "the array is started";
    doca_buf_arr_start:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(Unstated) "not stated",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_buf_arr_stop:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_arr_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_buf_arr_get_gpu_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_buf_arr_get_dpa_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";

    // doca_ctx.h
    doca_ctx_start:
        INVALID_VALUE Written "the context is NULL, or its configuration is invalid",
        NOT_SUPPORTED Never(Device) "a device does not support the context",
        NOT_CONNECTED Written "the context has no engine",
        INITIALIZATION Written "resources of the operating system are missing",
        UNEXPECTED Never(Corruption) "the object is corrupted";
    doca_ctx_stop:
        IN_PROGRESS Written "tasks are allocated",
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_CONNECTED Written "the context has no engine",
        UNEXPECTED Never(Corruption) "the object is corrupted";
    doca_ctx_get_num_inflight_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ctx_set_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ctx_get_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ctx_set_state_changed_cb:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ctx_get_state:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ctx_set_datapath_on_gpu:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_ctx_set_datapath_on_dpa:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_ctx_cap_get_num_completion_vectors:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ctx_set_completion_vector:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle",
        NOT_SUPPORTED Never(Device) "the context has no completion vectors";

    // doca_pe.h
    doca_pe_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Written "memory or descriptors are exhausted";
    doca_pe_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "contexts are connected";
    doca_pe_clear_notification:
        OPERATING_SYSTEM Never(System) "the operating system fails";
    doca_pe_get_num_inflight_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_pe_connect_ctx:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted",
        BAD_STATE Written "the context is not idle",
        NOT_PERMITTED Written "the context has an engine";
    doca_task_try_submit:
        INVALID_VALUE Written "the task lacks a parameter, or has an invalid one";
    doca_pe_set_event_mode:
        INVALID_VALUE Written "the engine is NULL, or the mode unknown";
    doca_task_batch_try_submit:
        INVALID_VALUE Null "an argument is NULL";

    // doca_comch.h
    doca_comch_cap_get_max_msg_size:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_cap_client_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Written "the device is that of a DPU";
    doca_comch_cap_server_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Written "the device is not that of a DPU";
    doca_comch_cap_get_max_clients:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_cap_get_max_name_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_cap_get_max_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_cap_get_max_send_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_connection_update_info:
        INVALID_VALUE Null "an argument is NULL",
        CONNECTION_INPROGRESS Never(Unreachable) "the connection is being established",
        CONNECTION_ABORTED Written "the connection has ended";
    doca_comch_connection_get_counter:
        INVALID_VALUE Written "an argument is NULL, or the counter unknown";
    doca_comch_server_disconnect:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "a consumer or producer of the connection is active",
        AGAIN Written "messages wait for space in the queue";
    doca_comch_server_get_device:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(Choice) "the context is not idle: the sentence of the setters; running programs need the values";
    doca_comch_server_get_device_rep:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(Choice) "the context is not idle: the sentence of the setters; running programs need the values";
    doca_comch_server_get_max_msg_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(Choice) "the context is not idle: the sentence of the setters; running programs need the values";
    doca_comch_server_get_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_client_get_device:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(Choice) "the context is not idle: the sentence of the setters; running programs need the values";
    doca_comch_client_get_max_msg_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(Choice) "the context is not idle: the sentence of the setters; running programs need the values";
    doca_comch_client_get_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_server_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted",
        INITIALIZATION Never(Memory) "memory is exhausted";
    doca_comch_server_destroy:
        INVALID_VALUE Null "an argument is NULL",
        IN_USE Written "the context is not idle";
    doca_comch_server_set_max_msg_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_server_set_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_client_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted",
        INITIALIZATION Never(Memory) "memory is exhausted";
    doca_comch_client_destroy:
        INVALID_VALUE Null "an argument is NULL",
        IN_USE Written "the context is not idle";
    doca_comch_client_set_max_msg_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_client_set_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_client_get_connection:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the client is not connected";
    doca_comch_server_task_send_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_client_task_send_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_server_task_send_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Written "all tasks of the pool are allocated";
    doca_comch_client_task_send_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Written "all tasks of the pool are allocated";
    doca_comch_server_event_msg_recv_register:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Started "the context is not idle";
    doca_comch_client_event_msg_recv_register:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Started "the context is not idle";
    doca_comch_server_event_connection_status_changed_register:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Started "the context is not idle";
    doca_comch_server_event_consumer_register:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Started "the context is not idle";
    doca_comch_client_event_consumer_register:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Started "the context is not idle";

    // doca_comch_consumer.h
    doca_comch_consumer_completion_set_imm_data_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_comch_consumer_completion_get_imm_data_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_consumer_get_dpa_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_comch_consumer_cap_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_comch_consumer_cap_get_max_consumers:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_consumer_cap_get_max_num_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_consumer_cap_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_comch_consumer_cap_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_comch_consumer_cap_get_max_imm_data_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_consumer_set_imm_data_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_consumer_get_imm_data_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_consumer_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Written "the connection has as many ends as it may have",
        BAD_STATE Written "the connection has ended",
        NOT_PERMITTED Never(Unreachable) "the peer speaks another version";
    doca_comch_consumer_destroy:
        INVALID_VALUE Null "an argument is NULL",
        INITIALIZATION Never(Memory) "the sentence of the creation";
    doca_comch_consumer_get_id:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_consumer_task_post_recv_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_consumer_task_post_recv_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";

    // doca_comch_producer.h
    doca_comch_producer_get_dpa_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_comch_producer_cap_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_comch_producer_cap_get_max_producers:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_producer_cap_get_max_num_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_producer_cap_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_comch_producer_cap_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_comch_producer_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Written "the connection has as many ends as it may have",
        BAD_STATE Written "the connection has ended",
        NOT_PERMITTED Never(Unreachable) "the peer speaks another version";
    doca_comch_producer_destroy:
        INVALID_VALUE Null "an argument is NULL",
        INITIALIZATION Never(Memory) "the sentence of the creation";
    doca_comch_producer_get_id:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_comch_producer_task_send_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_comch_producer_task_send_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";

    // doca_sync_event.h
    doca_sync_event_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_sync_event_destroy:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_start:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_stop:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_publisher_location_cpu:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_publisher_location_dpa:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_publisher_location_gpu:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_publisher_location_remote_net:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_publisher_location_remote_pci:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_subscriber_location_cpu:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_subscriber_location_dpa:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_subscriber_location_gpu:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_add_subscriber_location_remote_pci:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_set_addr:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the event is started",
        NOT_SUPPORTED Never(Device) "the address is in memory of another kind";
    doca_sync_event_set_doca_buf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the event is started",
        NOT_PERMITTED Written "the buf has another length than 8, or its map lacks permissions";
    doca_sync_event_get:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_update_add:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_update_set:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_wait_eq:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_wait_eq_yield:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_wait_gt:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_wait_gt_yield:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_wait_neq:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_wait_neq_yield:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_create_from_export:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device cannot do it",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_sync_event_export_to_remote_net:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Never(Device) "the device cannot do it",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_sync_event_export_to_remote_pci:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Never(Device) "the device cannot do it",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_sync_event_get_dpa_handle:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware",
        NO_MEMORY Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_sync_event_get_gpu_handle:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware",
        NO_MEMORY Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_sync_event_remote_net_create_from_export:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device cannot do it",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_sync_event_remote_net_destroy:
        INVALID_VALUE Null "an argument is NULL";
    doca_sync_event_remote_net_get_dpa_handle:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware",
        NO_MEMORY Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_sync_event_remote_net_get_gpu_handle:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware",
        NO_MEMORY Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_sync_event_cap_is_create_from_export_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_is_export_to_dpa_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";
    doca_sync_event_cap_is_export_to_gpu_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";
    doca_sync_event_cap_is_export_to_remote_net_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_is_export_to_remote_pci_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_remote_net_is_create_from_export_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_remote_net_is_export_to_dpa_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";
    doca_sync_event_cap_remote_net_is_export_to_gpu_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";
    doca_sync_event_cap_task_get_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_task_notify_add_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_task_notify_set_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_task_wait_eq_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_cap_task_wait_neq_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sync_event_task_get_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_sync_event_task_get_set_conf:
        INVALID_VALUE Null "an argument is NULL",
        NOT_PERMITTED Started "the context is not idle";
    doca_sync_event_task_notify_add_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_sync_event_task_notify_add_set_conf:
        INVALID_VALUE Null "an argument is NULL",
        NOT_PERMITTED Started "the context is not idle";
    doca_sync_event_task_notify_set_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_sync_event_task_notify_set_set_conf:
        INVALID_VALUE Null "an argument is NULL",
        NOT_PERMITTED Started "the context is not idle";
    doca_sync_event_task_wait_eq_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_sync_event_task_wait_eq_set_conf:
        INVALID_VALUE Null "an argument is NULL",
        NOT_PERMITTED Started "the context is not idle";
    doca_sync_event_task_wait_neq_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_sync_event_task_wait_neq_set_conf:
        INVALID_VALUE Null "an argument is NULL",
        NOT_PERMITTED Started "the context is not idle";

    // doca_rdma.h
    doca_rdma_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted",
        INITIALIZATION Never(Memory) "memory is exhausted";
    doca_rdma_destroy:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Written "the context is not idle";
    doca_rdma_export:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Written "the context is not running",
        CONNECTION_ABORTED Never(Unreachable) "the connection failed",
        FULL Written "the instance has as many connections as it may have";
    doca_rdma_connect:
        INVALID_VALUE Null "an argument is NULL",
        BAD_STATE Written "the context is not running, or the connection is connected",
        CONNECTION_ABORTED Written "the details are corrupted, or the peer is gone";
    doca_rdma_connection_disconnect:
        INVALID_VALUE Null "an argument is NULL or invalid",
        CONNECTION_ABORTED Never(Choice) "the connection failed: disconnecting it again has no effect";
    doca_rdma_connection_set_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_set_transport_type:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Written "the type is unknown",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_permissions:
        INVALID_VALUE Written "an argument is NULL, or a flag is not for RDMA",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_gid_index:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_max_num_connections:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Written "the number is 0",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_connection_state_callbacks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_cap_get_gid:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_rdma_cap_get_gid_table_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_rdma_cap_get_max_message_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_rdma_cap_get_max_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_rdma_cap_get_max_send_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_rdma_cap_get_max_send_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_rdma_cap_transport_type_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Written "the device does not support the type";
    doca_rdma_get_gid_index:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_grh_enabled:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_max_send_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_mtu:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_permissions:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Choice) "the data path is that of the CPU: the value is kept and returned",
        BAD_STATE Never(Choice) "the context is started: the same page promises the size in use";
    doca_rdma_get_rnr_retry_count:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_send_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_sl:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_transport_type:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_set_grh_enabled:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle",
        NOT_SUPPORTED Written "the header cannot be turned off";
    doca_rdma_set_max_send_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_mtu:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support the MTU",
        BAD_STATE Started "the context is not idle",
        UNEXPECTED Never(Corruption) "the object is corrupted";
    doca_rdma_set_recv_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Written "the size is too large",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_rnr_retry_count:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Choice) "the sentence of the number of connections",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_send_queue_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Written "the size is too large",
        BAD_STATE Started "the context is not idle";
    doca_rdma_set_sl:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_get_max_num_connections:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_connection_get_id:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_connection_get_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_get_connection_request_timeout:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_set_connection_request_timeout:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_addr_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_rdma_addr_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "a connection uses the address";
    doca_rdma_addr_get_params:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_connect_to_addr:
        BAD_STATE Written "the context is not running",
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(NotEmulated) "the data path is not that of the CPU",
        CONNECTION_ABORTED Never(Unreachable) "the connection failed: reported by a callback";
    doca_rdma_connection_accept:
        INVALID_VALUE Null "an argument is NULL or invalid",
        CONNECTION_ABORTED Written "the client has disconnected",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_rdma_connection_get_addr:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_rdma_connection_reject:
        INVALID_VALUE Null "an argument is NULL or invalid",
        CONNECTION_ABORTED Written "the client has disconnected";
    doca_rdma_start_listen_to_port:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the context is not running",
        NOT_SUPPORTED Never(NotEmulated) "the data path is not that of the CPU",
        CONNECTION_ABORTED Never(Unreachable) "the connection failed: reported by a callback";
    doca_rdma_stop_listen_to_port:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(NotEmulated) "the data path is not that of the CPU",
        CONNECTION_ABORTED Never(Unreachable) "the connection failed: reported by a callback";
    doca_rdma_bridge_prepare_connection:
        FULL Never(NotEmulated) "a condition of hardware that is not emulated",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated",
        NO_MEMORY Never(NotEmulated) "a condition of hardware that is not emulated",
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware",
        CONNECTION_ABORTED Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_rdma_bridge_accept:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware",
        CONNECTION_ABORTED Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_rdma_bridge_established:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";
    doca_rdma_dpa_completion_attach:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_rdma_get_dpa_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_rdma_get_gpu_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_rdma_cap_task_receive_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_receive_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_receive_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_cap_task_receive_get_max_dst_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails";
    doca_rdma_task_receive_get_dst_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "the receive queue is shared";
    doca_rdma_task_receive_set_dst_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_cap_task_send_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_send_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_send_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_cap_task_send_imm_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_send_imm_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_send_imm_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_cap_task_read_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_read_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_read_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_cap_task_write_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_write_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_write_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_task_write_imm_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_write_imm_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_cap_task_write_imm_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_cap_task_atomic_cmp_swp_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_atomic_cmp_swp_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_task_atomic_cmp_swp_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_cap_task_atomic_fetch_add_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_atomic_fetch_add_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_task_atomic_fetch_add_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_cap_task_remote_net_sync_event_get_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_rdma_task_remote_net_sync_event_get_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_task_remote_net_sync_event_get_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_remote_net_sync_event_notify_add_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_task_remote_net_sync_event_notify_add_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_rdma_task_remote_net_sync_event_notify_set_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_rdma_task_remote_net_sync_event_notify_set_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";

    // doca_rdma_bridge.h
    doca_rdma_bridge_get_dev_pd:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_rdma_bridge_get_buf_mkey:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Valid "softdoca does not emulate the hardware";
    doca_rdma_bridge_get_mmap_mkey_from_pd:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_FOUND Never(NotEmulated) "a condition of hardware that is not emulated",
        OPERATING_SYSTEM Never(NotEmulated) "a condition of hardware that is not emulated";

    // doca_dma.h
    doca_dma_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted",
        INITIALIZATION Never(Memory) "memory is exhausted";
    doca_dma_destroy:
        IN_USE Written "the context is not idle";
    doca_dma_cap_get_max_num_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_dma_cap_task_memcpy_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_dma_cap_task_memcpy_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_dma_cap_task_memcpy_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_dma_get_gpu_handle:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Never(NotEmulated) "a condition of hardware that is not emulated";
    doca_dma_task_memcpy_set_conf:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Never(NotEmulated) "the context uses a work queue, of DOCA before 2.0";
    doca_dma_task_memcpy_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";

    // doca_compress.h
    doca_compress_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted",
        INITIALIZATION Never(Memory) "memory is exhausted";
    doca_compress_destroy:
        IN_USE Written "the context is not idle";
    doca_compress_cap_get_max_num_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_cap_task_compress_deflate_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_compress_deflate_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_compress_deflate_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_compress_deflate_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_compress_deflate_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_cap_task_decompress_deflate_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_decompress_deflate_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_decompress_deflate_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_decompress_deflate_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_decompress_deflate_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_compress_cap_task_decompress_lz4_stream_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_decompress_lz4_stream_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_decompress_lz4_stream_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_cap_task_decompress_lz4_block_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        DRIVER Never(Driver) "the driver fails",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_decompress_lz4_block_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_decompress_lz4_block_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_compress_task_decompress_lz4_block_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated",
        INVALID_VALUE Null "an argument is NULL or invalid";

    // doca_erasure_coding.h
    doca_ec_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_ec_destroy:
        BAD_STATE Written "the context is not idle";
    doca_ec_cap_get_max_block_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_ec_cap_get_max_buf_list_len:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_matrix_create:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_matrix_create_from_raw:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_matrix_create_update:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_matrix_create_recover:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_matrix_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_cap_task_galois_mul_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_ec_task_galois_mul_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_task_galois_mul_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_ec_cap_task_create_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_ec_task_create_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_task_create_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_ec_cap_task_update_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_ec_task_update_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_task_update_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";
    doca_ec_cap_task_recover_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_ec_task_recover_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_ec_task_recover_allocate_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated";

    // doca_sha.h
    doca_sha_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_sha_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "the context is not idle";
    doca_sha_cap_task_hash_get_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sha_cap_task_partial_hash_get_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sha_cap_get_max_list_buf_num_elem:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sha_cap_get_max_src_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sha_cap_get_min_dst_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sha_cap_get_partial_hash_block_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_sha_cap_get_max_num_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_sha_task_hash_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_sha_task_hash_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated",
        BAD_STATE Written "the context is not running";
    doca_sha_task_hash_set_src:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_sha_task_hash_set_dst:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_sha_task_hash_set_algorithm:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_sha_task_partial_hash_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_sha_task_partial_hash_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Exhausted "all tasks of the pool are allocated",
        BAD_STATE Written "the context is not running";
    doca_sha_task_partial_hash_reset:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_sha_task_partial_hash_set_src:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_sha_task_partial_hash_set_dst:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "a part was hashed";
    doca_sha_task_partial_hash_set_algorithm:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "a part was hashed";
    doca_sha_task_partial_hash_set_is_final_buf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the task is in flight";

    // doca_aes_gcm.h
    doca_aes_gcm_create:
        INVALID_VALUE Null "an argument is NULL",
        NOT_SUPPORTED Never(Device) "the device cannot be queried",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_aes_gcm_destroy:
        IN_USE Written "keys of the instance exist",
        BAD_STATE Written "the context is not idle";
    doca_aes_gcm_cap_get_max_num_tasks:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_aes_gcm_key_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support the type";
    doca_aes_gcm_key_destroy:
        DRIVER Never(Driver) "the driver fails";
    doca_aes_gcm_cap_task_encrypt_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_encrypt_get_max_iv_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_encrypt_is_tag_96_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_encrypt_is_tag_128_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_encrypt_is_key_type_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_encrypt_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_encrypt_get_max_list_buf_num_elem:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_task_encrypt_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_aes_gcm_task_encrypt_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Written "all tasks of the pool are allocated",
        BAD_STATE Written "the context is not running";
    doca_aes_gcm_cap_task_decrypt_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_decrypt_get_max_iv_len:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_decrypt_is_tag_96_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_decrypt_is_tag_128_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_decrypt_is_key_type_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_decrypt_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_cap_task_decrypt_get_max_list_buf_num_elem:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_aes_gcm_task_decrypt_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the context is not idle";
    doca_aes_gcm_task_decrypt_alloc_init:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Written "all tasks of the pool are allocated",
        BAD_STATE Written "the context is not running";

    // doca_graph.h
    doca_graph_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_graph_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the graph is started";
    doca_graph_set_conf:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the graph is started";
    doca_graph_set_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the graph is started";
    doca_graph_get_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_graph_node_create_from_ctx:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the graph is started",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_graph_node_create_from_user:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the graph is started",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_graph_node_create_from_graph:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the graph is started, or the inner one is not",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_PERMITTED Written "the graphs would contain each other";
    doca_graph_add_dependency:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Started "the graph is started",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_PERMITTED Written "the dependencies would form a circle";
    doca_graph_start:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the graph is started, or has no node with a context",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_graph_stop:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "instances exist";
    doca_graph_instance_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the graph is not started",
        NO_MEMORY Written "the graph has as many instances as it may have";
    doca_graph_instance_destroy:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "the instance is submitted";
    doca_graph_instance_set_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "the instance is submitted";
    doca_graph_instance_get_user_data:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_graph_instance_set_ctx_node_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the instance is submitted",
        NOT_PERMITTED Written "the node is of another graph";
    doca_graph_instance_set_user_node_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the instance is submitted",
        NOT_PERMITTED Written "the node is of another graph";
    doca_graph_instance_set_sub_graph_node_data:
        INVALID_VALUE Null "an argument is NULL or invalid",
        BAD_STATE Written "the instance is submitted",
        NOT_PERMITTED Written "the node is of another graph";
    doca_graph_instance_submit:
        INVALID_VALUE Null "an argument is NULL or invalid",
        IN_USE Written "the instance is submitted";

    // doca_mmap_advise.h
    doca_mmap_advise_create:
        INVALID_VALUE Null "an argument is NULL",
        NO_MEMORY Never(Memory) "memory is exhausted";
    doca_mmap_advise_destroy:
        INVALID_VALUE Null "an argument is NULL";
    doca_mmap_advise_cap_task_cache_invalidate_is_supported:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NOT_SUPPORTED Never(Device) "the device does not support it";
    doca_mmap_advise_task_cache_invalidate_get_max_buf_size:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_mmap_advise_task_invalidate_cache_set_conf:
        INVALID_VALUE Null "an argument is NULL",
        NOT_PERMITTED Started "the context is not idle";
    doca_mmap_advise_task_invalidate_cache_alloc_init:
        NO_MEMORY Exhausted "all tasks of the pool are allocated";

    // doca_argp.h
    doca_argp_init:
        BAD_STATE Written "the parser exists",
        NO_MEMORY Never(Memory) "memory is exhausted",
        INVALID_VALUE Written "the name is not text";
    doca_argp_register_param:
        BAD_STATE Written "there is no parser, or the parameter is registered",
        INITIALIZATION Written "the parameter lacks a mandatory field",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_register_cmd:
        BAD_STATE Written "there is no parser, or the command is registered",
        INITIALIZATION Written "the command lacks a mandatory field",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_register_version_callback:
        BAD_STATE Written "there is no parser",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_register_validation_callback:
        BAD_STATE Written "there is no parser",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_register_logger_callback:
        BAD_STATE Written "there is no parser",
        ALREADY_EXIST Written "a callback is registered",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_disable_logger_callback:
        BAD_STATE Written "there is no parser, or no callback";
    doca_argp_start:
        BAD_STATE Written "there is no parser",
        INITIALIZATION Never(Unstated) "not stated",
        IO_FAILED Written "the JSON file cannot be read",
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        NOT_SUPPORTED Written "a flag is unknown";
    doca_argp_destroy:
        BAD_STATE Written "there is no parser";
    doca_argp_param_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        BAD_STATE Written "there is no parser";
    doca_argp_param_destroy:
        BAD_STATE Written "it is registered",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_cmd_create:
        INVALID_VALUE Null "an argument is NULL or invalid",
        NO_MEMORY Never(Memory) "memory is exhausted",
        BAD_STATE Written "there is no parser";
    doca_argp_cmd_register_param:
        BAD_STATE Written "one of the two is registered",
        INITIALIZATION Written "it lacks a mandatory field",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_cmd_register_cmd:
        BAD_STATE Written "one of the two is registered",
        INITIALIZATION Written "it lacks a mandatory field",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_cmd_destroy:
        BAD_STATE Written "it is registered",
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_get_log_level:
        INVALID_VALUE Null "an argument is NULL or invalid";
    doca_argp_get_sdk_log_level:
        INVALID_VALUE Null "an argument is NULL or invalid";
};
