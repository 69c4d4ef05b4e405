//! Sync events and their tasks; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_sync_event_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_sync_event.h";

            /// Creates an event, a 64-bit value that other processes and devices can wait for.
            fn doca_sync_event_create(event: *mut *mut doca_sync_event) -> doca_error_t;

            /// Destroys a stopped event.
            fn doca_sync_event_destroy(event: *mut doca_sync_event) -> doca_error_t;

            /// The event as a context; NULL if it was started without a context.
            fn doca_sync_event_as_ctx(event: *mut doca_sync_event) -> *mut doca_ctx;

            /// Starts an event that is not used as a context.
            fn doca_sync_event_start(event: *mut doca_sync_event) -> doca_error_t;

            /// Stops an event that is not used as a context.
            fn doca_sync_event_stop(event: *mut doca_sync_event) -> doca_error_t;

            /// Adds the CPU as a publisher, through a device.
            fn doca_sync_event_add_publisher_location_cpu(
                event: *mut doca_sync_event,
                dev: *mut doca_dev
            ) -> doca_error_t;

            /// Adds the DPA as a publisher.
            fn doca_sync_event_add_publisher_location_dpa(
                event: *mut doca_sync_event,
                dpa: *mut doca_dpa
            ) -> doca_error_t;

            /// Adds a GPU as a publisher.
            fn doca_sync_event_add_publisher_location_gpu(
                event: *mut doca_sync_event,
                gpu: *mut doca_gpu
            ) -> doca_error_t;

            /// Adds a network peer as a publisher.
            fn doca_sync_event_add_publisher_location_remote_net(event: *mut doca_sync_event) -> doca_error_t;

            /// Adds the other side of PCIe as a publisher.
            fn doca_sync_event_add_publisher_location_remote_pci(event: *mut doca_sync_event) -> doca_error_t;

            /// Adds the CPU as a subscriber, through a device.
            fn doca_sync_event_add_subscriber_location_cpu(
                event: *mut doca_sync_event,
                dev: *mut doca_dev
            ) -> doca_error_t;

            /// Adds the DPA as a subscriber.
            fn doca_sync_event_add_subscriber_location_dpa(
                event: *mut doca_sync_event,
                dpa: *mut doca_dpa
            ) -> doca_error_t;

            /// Adds a GPU as a subscriber.
            fn doca_sync_event_add_subscriber_location_gpu(
                event: *mut doca_sync_event,
                gpu: *mut doca_gpu
            ) -> doca_error_t;

            /// Adds the other side of PCIe as a subscriber.
            fn doca_sync_event_add_subscriber_location_remote_pci(
                event: *mut doca_sync_event
            ) -> doca_error_t;

            /// Sets the address of the value in the program's memory; only before the start.
            fn doca_sync_event_set_addr(event: *mut doca_sync_event, addr: *mut u64) -> doca_error_t;

            /// Uses the 8 bytes of data of a buf as the value; only before the start.
            fn doca_sync_event_set_doca_buf(event: *mut doca_sync_event, buf: *mut doca_buf) -> doca_error_t;

            /// Gets the value.
            fn doca_sync_event_get(event: *mut doca_sync_event, value: *mut u64) -> doca_error_t;

            /// Adds to the value atomically and gets the old value.
            fn doca_sync_event_update_add(
                event: *mut doca_sync_event,
                value: u64,
                fetched: *mut u64
            ) -> doca_error_t;

            /// Sets the value.
            fn doca_sync_event_update_set(event: *mut doca_sync_event, value: u64) -> doca_error_t;

            /// Waits until the masked value equals another.
            fn doca_sync_event_wait_eq(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;

            /// Waits until the masked value equals another; yields while waiting.
            fn doca_sync_event_wait_eq_yield(
                event: *mut doca_sync_event,
                value: u64,
                mask: u64
            ) -> doca_error_t;

            /// Waits until the masked value is greater than another.
            fn doca_sync_event_wait_gt(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;

            /// Waits until the masked value is greater than another; yields while waiting.
            fn doca_sync_event_wait_gt_yield(
                event: *mut doca_sync_event,
                value: u64,
                mask: u64
            ) -> doca_error_t;

            /// Waits until the masked value differs from another.
            fn doca_sync_event_wait_neq(event: *mut doca_sync_event, value: u64, mask: u64) -> doca_error_t;

            /// Waits until the masked value differs from a given value; yields while waiting.
            fn doca_sync_event_wait_neq_yield(
                event: *mut doca_sync_event,
                value: u64,
                mask: u64
            ) -> doca_error_t;

            /// Imports an event from the other side of PCIe; it needs no configuration.
            fn doca_sync_event_create_from_export(
                dev: *mut doca_dev,
                data: *const u8,
                sz: usize,
                event: *mut *mut doca_sync_event
            ) -> doca_error_t;

            /// Exports the event to a network peer; the export is valid as long as the event.
            fn doca_sync_event_export_to_remote_net(
                event: *mut doca_sync_event,
                data: *mut *const u8,
                sz: *mut usize
            ) -> doca_error_t;

            /// Exports the event to the other side of PCIe; the export is valid as long as the event.
            fn doca_sync_event_export_to_remote_pci(
                event: *mut doca_sync_event,
                dev: *mut doca_dev,
                data: *mut *const u8,
                sz: *mut usize
            ) -> doca_error_t;

            /// Gets the handle of the event for the DPA.
            fn doca_sync_event_get_dpa_handle(
                event: *mut doca_sync_event,
                dpa: *mut doca_dpa,
                dpa_dev_se_handle: *mut u64
            ) -> doca_error_t;

            /// Gets the handle of the event for a GPU.
            fn doca_sync_event_get_gpu_handle(
                event: *mut doca_sync_event,
                gpu: *mut doca_gpu,
                gpu_dev_se: *mut *mut u64
            ) -> doca_error_t;

            /// Imports a remote event, for RDMA tasks.
            fn doca_sync_event_remote_net_create_from_export(
                dev: *mut doca_dev,
                data: *const u8,
                sz: usize,
                event: *mut *mut doca_sync_event_remote_net
            ) -> doca_error_t;

            /// Destroys a remote event.
            fn doca_sync_event_remote_net_destroy(event: *mut doca_sync_event_remote_net) -> doca_error_t;

            /// Gets the handle of the remote event for the DPA.
            fn doca_sync_event_remote_net_get_dpa_handle(
                event: *mut doca_sync_event_remote_net,
                dpa: *mut doca_dpa,
                dpa_remote_event: *mut u64
            ) -> doca_error_t;

            /// Gets the handle of the remote event for a GPU.
            fn doca_sync_event_remote_net_get_gpu_handle(
                event: *mut doca_sync_event_remote_net,
                gpu: *mut doca_gpu,
                gpu_remote_event: *mut u64
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if events exported by other processes can be imported.
            fn doca_sync_event_cap_is_create_from_export_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if events can be exported to the DPA.
            fn doca_sync_event_cap_is_export_to_dpa_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if events can be exported to GPUs.
            fn doca_sync_event_cap_is_export_to_gpu_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if events can be exported to network peers.
            fn doca_sync_event_cap_is_export_to_remote_net_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if events can be exported to the other side of PCIe.
            fn doca_sync_event_cap_is_export_to_remote_pci_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if remote events exported by other processes can be imported.
            fn doca_sync_event_cap_remote_net_is_create_from_export_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if remote events can be exported to the DPA.
            fn doca_sync_event_cap_remote_net_is_export_to_dpa_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if remote events can be exported to GPUs.
            fn doca_sync_event_cap_remote_net_is_export_to_gpu_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports get tasks.
            fn doca_sync_event_cap_task_get_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports notify-add tasks.
            fn doca_sync_event_cap_task_notify_add_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports notify-set tasks.
            fn doca_sync_event_cap_task_notify_set_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports wait-until-equal tasks.
            fn doca_sync_event_cap_task_wait_eq_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if a device supports wait-until-different tasks.
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

            /// Destination of the value.
            fn doca_sync_event_task_get_get_ret_val_ptr(task: *const doca_sync_event_task_get) -> *mut u64;

            /// Sets the callbacks and the number of get tasks; only before the start.
            fn doca_sync_event_task_get_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_get_completion_cb_t,
                error_cb: doca_sync_event_task_get_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the destination of the value.
            fn doca_sync_event_task_get_set_ret_val_ptr(
                task: *mut doca_sync_event_task_get,
                ret_val_ptr: *mut u64
            );

            /// Allocates a task that adds to the value and gets the old value.
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

            /// Destination of the old value.
            fn doca_sync_event_task_notify_add_get_fetched_val_ptr(
                task: *const doca_sync_event_task_notify_add
            ) -> *mut u64;

            /// The value to add.
            fn doca_sync_event_task_notify_add_get_inc_val(
                task: *const doca_sync_event_task_notify_add
            ) -> u64;

            /// Sets the callbacks and the number of notify-add tasks; only before the start.
            fn doca_sync_event_task_notify_add_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_notify_add_completion_cb_t,
                error_cb: doca_sync_event_task_notify_add_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the destination of the old value.
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

            /// Sets the callbacks and the number of notify-set tasks; only before the start.
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

            /// Mask of the compared bits.
            fn doca_sync_event_task_wait_eq_get_mask(task: *const doca_sync_event_task_wait_eq) -> u64;

            /// The value to compare with.
            fn doca_sync_event_task_wait_eq_get_wait_val(task: *const doca_sync_event_task_wait_eq) -> u64;

            /// Sets the callbacks and the number of wait-until-equal tasks; only before the start.
            fn doca_sync_event_task_wait_eq_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_wait_eq_completion_cb_t,
                error_cb: doca_sync_event_task_wait_eq_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the mask of the compared bits.
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

            /// Mask of the compared bits.
            fn doca_sync_event_task_wait_neq_get_mask(task: *const doca_sync_event_task_wait_neq) -> u64;

            /// The value to compare with.
            fn doca_sync_event_task_wait_neq_get_wait_val(task: *const doca_sync_event_task_wait_neq) -> u64;

            /// Sets the callbacks and the number of wait-until-different tasks; only before the start.
            fn doca_sync_event_task_wait_neq_set_conf(
                event: *mut doca_sync_event,
                completion_cb: doca_sync_event_task_wait_neq_completion_cb_t,
                error_cb: doca_sync_event_task_wait_neq_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Sets the mask of the compared bits.
            fn doca_sync_event_task_wait_neq_set_mask(task: *mut doca_sync_event_task_wait_neq, mask: u64);

            /// Sets the value to compare with.
            fn doca_sync_event_task_wait_neq_set_wait_val(
                task: *mut doca_sync_event_task_wait_neq,
                wait_val: u64
            );
        }
    };
}
