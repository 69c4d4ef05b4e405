//! Progress engine, contexts and tasks. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_ctx_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_ctx.h";

            /// Starts a context; `DOCA_ERROR_IN_PROGRESS` if it becomes running only by later progress.
            fn doca_ctx_start(ctx: *mut doca_ctx) -> doca_error_t;

            /// Stops a context; `DOCA_ERROR_IN_PROGRESS` while progress has to flush tasks or serve peers.
            fn doca_ctx_stop(ctx: *mut doca_ctx) -> doca_error_t;

            /// Number of tasks in flight.
            fn doca_ctx_get_num_inflight_tasks(
                ctx: *const doca_ctx,
                num_inflight_tasks: *mut usize
            ) -> doca_error_t;

            /// Sets the user data for callbacks, passed as `ctx_user_data`; before the start.
            fn doca_ctx_set_user_data(ctx: *mut doca_ctx, user_data: doca_data) -> doca_error_t;

            /// The value set by [`doca_ctx_set_user_data`].
            fn doca_ctx_get_user_data(
                ctx: *const doca_ctx,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// Sets the state change callback; before the start.
            fn doca_ctx_set_state_changed_cb(
                ctx: *mut doca_ctx,
                cb: doca_ctx_state_changed_callback_t
            ) -> doca_error_t;

            /// Current state, a [`doca_ctx_states`] value.
            fn doca_ctx_get_state(
                ctx: *const doca_ctx,
                state: *mut doca_ctx_states
            ) -> doca_error_t;

            /// Starts tasks that were submitted without [`DOCA_TASK_SUBMIT_FLAG_FLUSH`].
            fn doca_ctx_flush_tasks(ctx: *mut doca_ctx);

            /// Moves the data path to a GPU; not supported in software.
            fn doca_ctx_set_datapath_on_gpu(
                ctx: *mut doca_ctx,
                gpu_dev: *mut doca_gpu
            ) -> doca_error_t;

            /// Moves the data path to a DPA; not supported in software.
            fn doca_ctx_set_datapath_on_dpa(
                ctx: *mut doca_ctx,
                dpa_dev: *mut doca_dpa
            ) -> doca_error_t;

            /// Number of completion vectors of a device.
            fn doca_ctx_cap_get_num_completion_vectors(
                devinfo: *const doca_devinfo,
                num_comp_vectors: *mut u32
            ) -> doca_error_t;

            /// Sets the completion vector of an idle context.
            fn doca_ctx_set_completion_vector(ctx: *mut doca_ctx, comp_vector: u32) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_pe_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_pe.h";

            /// Creates a progress engine.
            fn doca_pe_create(pe: *mut *mut doca_pe) -> doca_error_t;

            /// Destroys a progress engine; its contexts must have been destroyed.
            fn doca_pe_destroy(pe: *mut doca_pe) -> doca_error_t;

            /// Makes progress and calls callbacks; 1 if there were events, otherwise 0.
            fn doca_pe_progress(pe: *mut doca_pe) -> u8;

            /// A descriptor for `poll` or `epoll` that becomes readable after a requested notification.
            fn doca_pe_get_notification_handle(
                pe: *const doca_pe,
                handle: *mut doca_notification_handle_t
            ) -> doca_error_t;

            /// Acknowledges a notification; before the next call of [`doca_pe_progress`].
            fn doca_pe_clear_notification(
                pe: *mut doca_pe,
                handle: doca_notification_handle_t
            ) -> doca_error_t;

            /// Requests one notification at the next completion or event.
            fn doca_pe_request_notification(pe: *mut doca_pe) -> doca_error_t;

            /// Number of tasks of all contexts of the engine in flight.
            fn doca_pe_get_num_inflight_tasks(
                pe: *const doca_pe,
                num_inflight_tasks: *mut usize
            ) -> doca_error_t;

            /// Connects a context to the engine that progresses it; before the start, once.
            fn doca_pe_connect_ctx(pe: *mut doca_pe, ctx: *mut doca_ctx) -> doca_error_t;

            /// Submits a task; the library owns the task until its callback is called.
            fn doca_task_submit(task: *mut doca_task) -> doca_error_t;

            /// Submits a task after checks that [`doca_task_submit`] leaves out.
            fn doca_task_try_submit(task: *mut doca_task) -> doca_error_t;

            /// Returns a task that is not in flight to its context.
            fn doca_task_free(task: *mut doca_task);

            /// Result of the last completion.
            fn doca_task_get_status(task: *const doca_task) -> doca_error_t;

            /// Sets the user data for the completion callback, passed as `task_user_data`.
            fn doca_task_set_user_data(task: *mut doca_task, user_data: doca_data);

            /// The value set by [`doca_task_set_user_data`].
            fn doca_task_get_user_data(task: *const doca_task) -> doca_data;

            /// The context that the task was allocated from.
            fn doca_task_get_ctx(task: *const doca_task) -> *mut doca_ctx;

            /// Submits a task; `flags` are [`doca_task_submit_flag`] values or-ed together.
            fn doca_task_submit_ex(task: *mut doca_task, flags: u32) -> doca_error_t;

            /// Sets the event mode.
            fn doca_pe_set_event_mode(
                pe: *mut doca_pe,
                event_mode: doca_pe_event_mode
            ) -> doca_error_t;

            /// Submits a batch of tasks; not supported in software.
            fn doca_task_batch_submit(task_batch: *mut doca_task_batch) -> doca_error_t;

            /// As [`doca_task_batch_submit`], after checks.
            fn doca_task_batch_try_submit(task_batch: *mut doca_task_batch) -> doca_error_t;

            /// Returns a batch of tasks to its context.
            fn doca_task_batch_free(task_batch: *mut doca_task_batch);

            /// Result of a batch of tasks.
            fn doca_task_batch_get_status(task_batch: *const doca_task_batch) -> doca_error_t;

            /// Sets the user data for the callback of a batch.
            fn doca_task_batch_set_user_data(
                task_batch: *mut doca_task_batch,
                user_data: doca_data
            );

            /// The value set by [`doca_task_batch_set_user_data`].
            fn doca_task_batch_get_user_data(task_batch: *const doca_task_batch) -> doca_data;

            /// The context of a batch.
            fn doca_task_batch_get_ctx(task_batch: *const doca_task_batch) -> *mut doca_ctx;

            /// The user data of the context of a batch.
            fn doca_task_batch_get_ctx_user_data(task_batch: *const doca_task_batch) -> doca_data;

            /// Number of tasks in a batch.
            fn doca_task_batch_get_tasks_num(task_batch: *mut doca_task_batch) -> u16;
        }
    };
}
