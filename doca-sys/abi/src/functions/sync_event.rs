//! Sync events and their tasks; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_sync_event_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_sync_event.h";

            /// Creates an event, a 64-bit value that others can wait for.
            fn doca_sync_event_create(event: *mut *mut doca_sync_event) -> doca_error_t;

            /// Destroys a stopped event.
            fn doca_sync_event_destroy(event: *mut doca_sync_event) -> doca_error_t;

            /// The event as a context; NULL when it was started by itself.
            fn doca_sync_event_as_ctx(event: *mut doca_sync_event) -> *mut doca_ctx;

            /// Starts an event that is no context.
            fn doca_sync_event_start(event: *mut doca_sync_event) -> doca_error_t;

            /// Stops an event that is no context.
            fn doca_sync_event_stop(event: *mut doca_sync_event) -> doca_error_t;

            /// The CPU will signal, through a device.
            fn doca_sync_event_add_publisher_location_cpu(
                event: *mut doca_sync_event,
                dev: *mut doca_dev
            ) -> doca_error_t;

            /// The DPA will signal.
            fn doca_sync_event_add_publisher_location_dpa(
                event: *mut doca_sync_event,
                dpa: *mut doca_dpa
            ) -> doca_error_t;

            /// A GPU will signal.
            fn doca_sync_event_add_publisher_location_gpu(
                event: *mut doca_sync_event,
                gpu: *mut doca_gpu
            ) -> doca_error_t;

            /// A network peer will signal.
            fn doca_sync_event_add_publisher_location_remote_net(event: *mut doca_sync_event) -> doca_error_t;

            /// The other side of PCIe will signal.
            fn doca_sync_event_add_publisher_location_remote_pci(event: *mut doca_sync_event) -> doca_error_t;

            /// The CPU will wait, through a device.
            fn doca_sync_event_add_subscriber_location_cpu(
                event: *mut doca_sync_event,
                dev: *mut doca_dev
            ) -> doca_error_t;

            /// The DPA will wait.
            fn doca_sync_event_add_subscriber_location_dpa(
                event: *mut doca_sync_event,
                dpa: *mut doca_dpa
            ) -> doca_error_t;

            /// A GPU will wait.
            fn doca_sync_event_add_subscriber_location_gpu(
                event: *mut doca_sync_event,
                gpu: *mut doca_gpu
            ) -> doca_error_t;

            /// The other side of PCIe will wait.
            fn doca_sync_event_add_subscriber_location_remote_pci(
                event: *mut doca_sync_event
            ) -> doca_error_t;

            /// Puts the value at an address of the program; before the start.
            fn doca_sync_event_set_addr(event: *mut doca_sync_event, addr: *mut u64) -> doca_error_t;

            /// Puts the value into the 8 bytes of data of a buf; before the start.
            fn doca_sync_event_set_doca_buf(event: *mut doca_sync_event, buf: *mut doca_buf) -> doca_error_t;

            /// The value.
            fn doca_sync_event_get(event: *mut doca_sync_event, value: *mut u64) -> doca_error_t;

            /// Adds to the value, in one step, and gives the old one.
            fn doca_sync_event_update_add(
                event: *mut doca_sync_event,
                value: u64,
                fetched: *mut u64
            ) -> doca_error_t;

            /// Sets the value.
            fn doca_sync_event_update_set(event: *mut doca_sync_event, value: u64) -> doca_error_t;

            /// Waits until the masked value equals another.
            fn doca_sync_event_wait_eq(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;

            /// Waits until the masked value equals another, letting other threads run.
            fn doca_sync_event_wait_eq_yield(
                event: *mut doca_sync_event,
                value: u64,
                mask: u64
            ) -> doca_error_t;

            /// Waits until the masked value is greater than another.
            fn doca_sync_event_wait_gt(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;

            /// Waits until the masked value is greater than another, letting other threads run.
            fn doca_sync_event_wait_gt_yield(
                event: *mut doca_sync_event,
                value: u64,
                mask: u64
            ) -> doca_error_t;

            /// Waits until the masked value differs from another.
            fn doca_sync_event_wait_neq(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;

            /// Waits until the masked value differs from another, letting other threads run.
            fn doca_sync_event_wait_neq_yield(
                event: *mut doca_sync_event,
                value: u64,
                mask: u64
            ) -> doca_error_t;

            /// An event of the other side of PCIe; needs no configuration.
            fn doca_sync_event_create_from_export(
                dev: *mut doca_dev,
                data: *const u8,
                sz: usize,
                event: *mut *mut doca_sync_event
            ) -> doca_error_t;

            /// Describes the event for a network peer; the description lives as long as the event.
            fn doca_sync_event_export_to_remote_net(
                event: *mut doca_sync_event,
                data: *mut *const u8,
                sz: *mut usize
            ) -> doca_error_t;

            /// Describes the event for the other side of PCIe; the description lives as long as the event.
            fn doca_sync_event_export_to_remote_pci(
                event: *mut doca_sync_event,
                dev: *mut doca_dev,
                data: *mut *const u8,
                sz: *mut usize
            ) -> doca_error_t;

            /// The event as the DPA sees it.
            fn doca_sync_event_get_dpa_handle(
                event: *mut doca_sync_event,
                dpa: *mut doca_dpa,
                dpa_dev_se_handle: *mut u64
            ) -> doca_error_t;

            /// The event as a GPU sees it.
            fn doca_sync_event_get_gpu_handle(
                event: *mut doca_sync_event,
                gpu: *mut doca_gpu,
                gpu_dev_se: *mut *mut u64
            ) -> doca_error_t;

            /// A remote event, for RDMA tasks.
            fn doca_sync_event_remote_net_create_from_export(
                dev: *mut doca_dev,
                data: *const u8,
                sz: usize,
                event: *mut *mut doca_sync_event_remote_net
            ) -> doca_error_t;

            /// Destroys a remote event.
            fn doca_sync_event_remote_net_destroy(event: *mut doca_sync_event_remote_net) -> doca_error_t;

            /// The remote event as the DPA sees it.
            fn doca_sync_event_remote_net_get_dpa_handle(
                event: *mut doca_sync_event_remote_net,
                dpa: *mut doca_dpa,
                dpa_remote_event: *mut u64
            ) -> doca_error_t;

            /// The remote event as a GPU sees it.
            fn doca_sync_event_remote_net_get_gpu_handle(
                event: *mut doca_sync_event_remote_net,
                gpu: *mut doca_gpu,
                gpu_remote_event: *mut u64
            ) -> doca_error_t;

            /// Whether events of others can be used.
            fn doca_sync_event_cap_is_create_from_export_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether events can be shared with the DPA.
            fn doca_sync_event_cap_is_export_to_dpa_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Whether events can be shared with GPUs.
            fn doca_sync_event_cap_is_export_to_gpu_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Whether events can be shared with network peers.
            fn doca_sync_event_cap_is_export_to_remote_net_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether events can be shared with the other side of PCIe.
            fn doca_sync_event_cap_is_export_to_remote_pci_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether remote events of others can be used.
            fn doca_sync_event_cap_remote_net_is_create_from_export_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether remote events can be shared with the DPA.
            fn doca_sync_event_cap_remote_net_is_export_to_dpa_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether remote events can be shared with GPUs.
            fn doca_sync_event_cap_remote_net_is_export_to_gpu_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Whether a device has get tasks.
            fn doca_sync_event_cap_task_get_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Whether a device has notify-add tasks.
            fn doca_sync_event_cap_task_notify_add_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Whether a device has notify-set tasks.
            fn doca_sync_event_cap_task_notify_set_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Whether a device has wait-until-equal tasks.
            fn doca_sync_event_cap_task_wait_eq_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Whether a device has wait-until-different tasks.
            fn doca_sync_event_cap_task_wait_neq_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Allocates a task that gets the value.
            fn doca_sync_event_task_get_alloc_init(
                event: *mut doca_sync_event,
                ret_val_ptr: *mut u64,
                user_data: doca_data,
                task: *mut *mut doca_sync_event_task_get
            ) -> doca_error_t;

            /// The generic task of a get task.
            fn doca_sync_event_task_get_as_doca_task(task: *mut doca_sync_event_task_get) -> *mut doca_task;

            /// Where the value goes.
            fn doca_sync_event_task_get_get_ret_val_ptr(task: *const doca_sync_event_task_get) -> *mut u64;

            /// Sets callbacks and number of get tasks; before the start.
            fn doca_sync_event_task_get_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_get_completion_cb_t,
                error_cb: doca_sync_event_task_get_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets where the value goes.
            fn doca_sync_event_task_get_set_ret_val_ptr(
                task: *mut doca_sync_event_task_get,
                ret_val_ptr: *mut u64
            );

            /// Allocates a task that adds to the value and gets the old one.
            fn doca_sync_event_task_notify_add_alloc_init(
                event: *mut doca_sync_event,
                inc_val: u64,
                fetched_val_ptr: *mut u64,
                user_data: doca_data,
                task: *mut *mut doca_sync_event_task_notify_add
            ) -> doca_error_t;

            /// The generic task of a notify-add task.
            fn doca_sync_event_task_notify_add_as_doca_task(
                task: *mut doca_sync_event_task_notify_add
            ) -> *mut doca_task;

            /// Where the old value goes.
            fn doca_sync_event_task_notify_add_get_fetched_val_ptr(
                task: *const doca_sync_event_task_notify_add
            ) -> *mut u64;

            /// The value to add.
            fn doca_sync_event_task_notify_add_get_inc_val(
                task: *const doca_sync_event_task_notify_add
            ) -> u64;

            /// Sets callbacks and number of notify-add tasks; before the start.
            fn doca_sync_event_task_notify_add_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_notify_add_completion_cb_t,
                error_cb: doca_sync_event_task_notify_add_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets where the old value goes.
            fn doca_sync_event_task_notify_add_set_fetched_val_ptr(
                task: *mut doca_sync_event_task_notify_add,
                fetched_val_ptr: *mut u64
            );

            /// Sets the value to add.
            fn doca_sync_event_task_notify_add_set_inc_val(
                task: *mut doca_sync_event_task_notify_add,
                inc_val: u64
            );

            /// Allocates a task that sets the value.
            fn doca_sync_event_task_notify_set_alloc_init(
                event: *mut doca_sync_event,
                set_val: u64,
                user_data: doca_data,
                task: *mut *mut doca_sync_event_task_notify_set
            ) -> doca_error_t;

            /// The generic task of a notify-set task.
            fn doca_sync_event_task_notify_set_as_doca_task(
                task: *mut doca_sync_event_task_notify_set
            ) -> *mut doca_task;

            /// The value to set.
            fn doca_sync_event_task_notify_set_get_set_val(
                task: *const doca_sync_event_task_notify_set
            ) -> u64;

            /// Sets callbacks and number of notify-set tasks; before the start.
            fn doca_sync_event_task_notify_set_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_notify_set_completion_cb_t,
                error_cb: doca_sync_event_task_notify_set_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the value to set.
            fn doca_sync_event_task_notify_set_set_set_val(
                task: *mut doca_sync_event_task_notify_set,
                set_val: u64
            );

            /// Allocates a task that completes when the masked value equals another.
            fn doca_sync_event_task_wait_eq_alloc_init(
                event: *mut doca_sync_event,
                wait_val: u64,
                mask: u64,
                user_data: doca_data,
                task: *mut *mut doca_sync_event_task_wait_eq
            ) -> doca_error_t;

            /// The generic task of a wait-until-equal task.
            fn doca_sync_event_task_wait_eq_as_doca_task(
                task: *mut doca_sync_event_task_wait_eq
            ) -> *mut doca_task;

            /// Which bits are compared.
            fn doca_sync_event_task_wait_eq_get_mask(task: *const doca_sync_event_task_wait_eq) -> u64;

            /// The value to compare with.
            fn doca_sync_event_task_wait_eq_get_wait_val(task: *const doca_sync_event_task_wait_eq) -> u64;

            /// Sets callbacks and number of wait-until-equal tasks; before the start.
            fn doca_sync_event_task_wait_eq_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_wait_eq_completion_cb_t,
                error_cb: doca_sync_event_task_wait_eq_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets which bits are compared.
            fn doca_sync_event_task_wait_eq_set_mask(task: *mut doca_sync_event_task_wait_eq, mask: u64);

            /// Sets the value to compare with.
            fn doca_sync_event_task_wait_eq_set_wait_val(
                task: *mut doca_sync_event_task_wait_eq,
                wait_val: u64
            );

            /// Allocates a task that completes when the masked value differs from another.
            fn doca_sync_event_task_wait_neq_alloc_init(
                event: *mut doca_sync_event,
                wait_val: u64,
                mask: u64,
                user_data: doca_data,
                task: *mut *mut doca_sync_event_task_wait_neq
            ) -> doca_error_t;

            /// The generic task of a wait-until-different task.
            fn doca_sync_event_task_wait_neq_as_doca_task(
                task: *mut doca_sync_event_task_wait_neq
            ) -> *mut doca_task;

            /// Which bits are compared.
            fn doca_sync_event_task_wait_neq_get_mask(task: *const doca_sync_event_task_wait_neq) -> u64;

            /// The value to compare with.
            fn doca_sync_event_task_wait_neq_get_wait_val(task: *const doca_sync_event_task_wait_neq) -> u64;

            /// Sets callbacks and number of wait-until-different tasks; before the start.
            fn doca_sync_event_task_wait_neq_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_wait_neq_completion_cb_t,
                error_cb: doca_sync_event_task_wait_neq_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets which bits are compared.
            fn doca_sync_event_task_wait_neq_set_mask(task: *mut doca_sync_event_task_wait_neq, mask: u64);

            /// Sets the value to compare with.
            fn doca_sync_event_task_wait_neq_set_wait_val(
                task: *mut doca_sync_event_task_wait_neq,
                wait_val: u64
            );
        }
    };
}
