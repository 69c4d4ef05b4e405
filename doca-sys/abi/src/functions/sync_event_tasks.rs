//! Tasks of sync events; continues `sync_event`.

#[doc(hidden)]
#[macro_export]
macro_rules! __doca_sync_event_with_tasks {
    (($($callback:ident)::+) [$($arguments:tt)*] $($before:tt)*) => {
        $($callback)::+! {
            [$($arguments)*]
            header "doca_sync_event.h";
            $($before)*

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
