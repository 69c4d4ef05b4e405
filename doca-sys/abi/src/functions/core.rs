//! The headers on which all libraries and programs depend: errors, version, clocks, log, contexts, progress engines,
//! graphs of tasks, and arguments. One macro per header; see [`doca_functions!`](crate::doca_functions).
//!
//! `doca_log` is not in the table: it is the only variadic function.

#[doc(hidden)]
#[macro_export]
macro_rules! doca_error_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_error.h";

            /// Name of an error code, e.g. `"DOCA_ERROR_AGAIN"`; a static string, never null.
            fn doca_error_get_name(error: doca_error_t) -> *const c_char;

            /// One-line explanation of an error code; a static string, never null.
            fn doca_error_get_descr(error: doca_error_t) -> *const c_char;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_version_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_version.h";

            /// Version that the headers were made for, e.g. `"3.3.0"`; a static string. Inline in the headers of NVIDIA's SDK.
            fn doca_version() -> *const c_char;

            /// Version of the library that is loaded; a static string.
            fn doca_version_runtime() -> *const c_char;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_clock_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_clock.h";

            /// `DOCA_SUCCESS` if the device has a free-running clock.
            fn doca_clock_cap_nic_free_running_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device has a real-time clock.
            fn doca_clock_cap_nic_real_time_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device has a DPA with a timer.
            fn doca_clock_cap_nic_dpa_timer_is_supported(
                devinfo: *const doca_devinfo
            ) -> doca_error_t;

            /// Creates a clock reader for the clocks of a device and of the host.
            fn doca_clock_create(dev: *const doca_dev, clock: *mut *mut doca_clock) -> doca_error_t;

            /// Destroys a clock reader.
            fn doca_clock_destroy(clock: *mut doca_clock) -> doca_error_t;

            /// Reads a clock, one of `DOCA_CLOCK_*`.
            fn doca_clock_get_timestamp(
                clock: *const doca_clock,
                clock_type: u64,
                clock_ts: *mut doca_clock_timespec_t
            ) -> doca_error_t;

            /// Reads any clock and a device clock at the same time, with the maximum error.
            fn doca_clock_get_crosstimestamp(
                clock: *const doca_clock,
                primary_clock_type: u64,
                nic_clock_type: u64,
                primary_clock_ts: *mut doca_clock_timespec_t,
                nic_clock_ts: *mut doca_clock_timespec_t,
                error_margin_nsecs: *mut u64
            ) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_log_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_log.h";

            /// Sets the least severe level (a [`doca_log_level`] value) of the program's messages that a back end accepts.
            fn doca_log_backend_set_level_lower_limit(
                backend: *mut doca_log_backend,
                level: u32
            ) -> doca_error_t;

            /// Sets the most severe level of the program's messages that a back end accepts.
            fn doca_log_backend_set_level_upper_limit(
                backend: *mut doca_log_backend,
                upper_limit: u32
            ) -> doca_error_t;

            /// Prevents the lower limit from being widened by later calls.
            fn doca_log_backend_set_level_lower_limit_strict(
                backend: *mut doca_log_backend
            ) -> doca_error_t;

            /// Prevents the upper limit from being widened by later calls.
            fn doca_log_backend_set_level_upper_limit_strict(
                backend: *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the lower limit of all back ends for the program's messages, including future ones.
            fn doca_log_level_set_global_lower_limit(level: u32) -> doca_error_t;

            /// Sets the upper limit of all back ends for the program's messages, including future ones.
            fn doca_log_level_set_global_upper_limit(upper_limit: u32) -> doca_error_t;

            /// Lower limit of new back ends for the program's messages; `DOCA_LOG_LEVEL_INFO` by default.
            fn doca_log_level_get_global_lower_limit() -> u32;

            /// Upper limit of new back ends for the program's messages; `DOCA_LOG_LEVEL_CRIT` by default.
            fn doca_log_level_get_global_upper_limit() -> u32;

            /// Registers a named source of messages.
            fn doca_log_register_source(
                source_name: *const c_char,
                source: *mut c_int
            ) -> doca_error_t;

            /// Removes a source.
            fn doca_log_unregister_source(source: c_int) -> doca_error_t;

            /// Creates a back end that writes the program's messages to a `FILE *`.
            fn doca_log_backend_create_with_file(
                fptr: *mut FILE,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes the program's messages to a file descriptor.
            fn doca_log_backend_create_with_fd(
                fd: c_int,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes each of the program's messages to the start of a buffer and calls `handler`.
            fn doca_log_backend_create_with_buf(
                buf: *mut c_char,
                capacity: usize,
                handler: log_flush_callback,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that sends the program's messages to syslog.
            fn doca_log_backend_create_with_syslog(
                name: *const c_char,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the least severe level of the SDK's messages that a back end accepts.
            fn doca_log_backend_set_sdk_level(
                backend: *mut doca_log_backend,
                level: u32
            ) -> doca_error_t;

            /// Creates a back end that writes the SDK's own messages to a `FILE *`.
            fn doca_log_backend_create_with_file_sdk(
                fptr: *mut FILE,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes the SDK's own messages to a file descriptor.
            fn doca_log_backend_create_with_fd_sdk(
                fd: c_int,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that writes each of the SDK's own messages to the start of a buffer and calls `handler`.
            fn doca_log_backend_create_with_buf_sdk(
                buf: *mut c_char,
                capacity: usize,
                handler: log_flush_callback,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Creates a back end that sends the SDK's own messages to syslog.
            fn doca_log_backend_create_with_syslog_sdk(
                name: *const c_char,
                backend: *mut *mut doca_log_backend
            ) -> doca_error_t;

            /// Sets the level of all back ends for the SDK's messages, including future ones.
            fn doca_log_level_set_global_sdk_limit(level: u32) -> doca_error_t;

            /// Level of new back ends for the SDK's messages; `DOCA_LOG_LEVEL_INFO` by default.
            fn doca_log_level_get_global_sdk_limit() -> u32;

            /// Writes the program's messages to standard output up to level info, and to standard error from level warning.
            fn doca_log_backend_create_standard() -> doca_error_t;

            /// Gets the maximum number of back ends for the SDK's messages.
            fn doca_log_get_max_num_backends_sdk() -> u32;

            /// Lists the descendants of a logger, or all loggers, at most `depth` levels deep, 0 for no limit. The list is NULL-terminated.
            fn doca_logger_create_list(
                logger: *const doca_logger,
                depth: u8,
                logger_list: *mut *mut *mut doca_logger,
                nb_loggers: *mut u32
            ) -> doca_error_t;

            /// Frees a list of loggers, but not the loggers.
            fn doca_logger_destroy_list(logger_list: *mut *mut doca_logger) -> doca_error_t;

            /// Sets the least severe level of a logger's messages, and with `propagate` of its descendants.
            fn doca_logger_set_level(
                logger: *mut doca_logger,
                level: c_int,
                propagate: u8
            ) -> doca_error_t;

            /// The least severe level of a logger's messages.
            fn doca_logger_get_level(logger: *const doca_logger, level: *mut c_int) -> doca_error_t;

            /// Writes the name of a logger, at most [`DOCA_LOGGER_NAME_SIZE`] bytes.
            fn doca_logger_get_name(logger: *const doca_logger, name: *mut c_char) -> doca_error_t;

            /// The logger with this name in a list; NULL if it does not exist.
            fn doca_logger_find_by_name(
                logger_list: *mut *mut doca_logger,
                name: *const c_char
            ) -> *mut doca_logger;
        }
    };
}

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

            /// Sets the user data for callbacks, passed as `ctx_user_data`; only before the start.
            fn doca_ctx_set_user_data(ctx: *mut doca_ctx, user_data: doca_data) -> doca_error_t;

            /// The value set by [`doca_ctx_set_user_data`].
            fn doca_ctx_get_user_data(
                ctx: *const doca_ctx,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// Sets the state change callback; only before the start.
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

            /// Connects a context to the engine that progresses it; only before the start, once.
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

#[doc(hidden)]
#[macro_export]
macro_rules! doca_graph_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_graph.h";

            /// Creates an empty graph under a progress engine.
            fn doca_graph_create(pe: *mut doca_pe, graph: *mut *mut doca_graph) -> doca_error_t;

            /// Destroys a stopped graph.
            fn doca_graph_destroy(graph: *mut doca_graph) -> doca_error_t;

            /// Sets the completion callbacks and the maximum number of instances; only before the start.
            fn doca_graph_set_conf(
                graph: *mut doca_graph,
                graph_completion_cb: doca_graph_completion_cb_t,
                graph_error_cb: doca_graph_completion_cb_t,
                num_instances: u32
            ) -> doca_error_t;

            /// Sets the user data for callbacks, passed as `graph_user_data`; only before the start.
            fn doca_graph_set_user_data(
                graph: *mut doca_graph,
                user_data: doca_data
            ) -> doca_error_t;

            /// The value set by [`doca_graph_set_user_data`].
            fn doca_graph_get_user_data(
                graph: *const doca_graph,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// Adds a node that runs a task of a context; only before the start.
            fn doca_graph_node_create_from_ctx(
                graph: *mut doca_graph,
                ctx: *const doca_ctx,
                node: *mut *mut doca_graph_node
            ) -> doca_error_t;

            /// Adds a node that calls a function of the program; only before the start.
            fn doca_graph_node_create_from_user(
                graph: *mut doca_graph,
                cb: doca_graph_user_node_cb_t,
                node: *mut *mut doca_graph_node
            ) -> doca_error_t;

            /// Adds a node that runs an instance of a started graph; only before the start.
            fn doca_graph_node_create_from_graph(
                graph: *mut doca_graph,
                sub_graph: *mut doca_graph,
                node: *mut *mut doca_graph_node
            ) -> doca_error_t;

            /// Adds a dependency: `to` runs only after `from`; only before the start.
            fn doca_graph_add_dependency(
                graph: *mut doca_graph,
                from: *mut doca_graph_node,
                to: *mut doca_graph_node
            ) -> doca_error_t;

            /// Starts the graph, whose nodes are fixed from then on; instances can be created.
            fn doca_graph_start(graph: *mut doca_graph) -> doca_error_t;

            /// Stops a graph; its instances must have been destroyed.
            fn doca_graph_stop(graph: *mut doca_graph) -> doca_error_t;

            /// Creates an instance of a started graph.
            fn doca_graph_instance_create(
                graph: *const doca_graph,
                graph_instance: *mut *mut doca_graph_instance
            ) -> doca_error_t;

            /// Destroys an instance that is not submitted.
            fn doca_graph_instance_destroy(
                graph_instance: *mut doca_graph_instance
            ) -> doca_error_t;

            /// Sets the user data for callbacks, passed as `instance_user_data`.
            fn doca_graph_instance_set_user_data(
                graph_instance: *mut doca_graph_instance,
                user_data: doca_data
            ) -> doca_error_t;

            /// The value set by [`doca_graph_instance_set_user_data`].
            fn doca_graph_instance_get_user_data(
                graph_instance: *const doca_graph_instance,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// Sets the task of a context node; the task's own callbacks are not called.
            fn doca_graph_instance_set_ctx_node_data(
                graph_instance: *mut doca_graph_instance,
                node: *mut doca_graph_node,
                task: *mut doca_task
            ) -> doca_error_t;

            /// Sets the argument of a user node's function.
            fn doca_graph_instance_set_user_node_data(
                graph_instance: *mut doca_graph_instance,
                node: *mut doca_graph_node,
                cookie: *mut c_void
            ) -> doca_error_t;

            /// Sets the instance that a graph node runs; that instance's own callbacks are not called.
            fn doca_graph_instance_set_sub_graph_node_data(
                graph_instance: *mut doca_graph_instance,
                node: *mut doca_graph_node,
                sub_graph_instance: *mut doca_graph_instance
            ) -> doca_error_t;

            /// Submits an instance.
            fn doca_graph_instance_submit(graph_instance: *mut doca_graph_instance) -> doca_error_t;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! doca_argp_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_argp.h";

            /// Prints the usage text.
            fn doca_argp_usage();

            /// Starts the parser; `program_config` is passed to every callback.
            fn doca_argp_init(
                program_name: *const c_char,
                program_config: *mut c_void
            ) -> doca_error_t;

            /// Registers a parameter of the program, which the parser owns from then on, even after an error.
            fn doca_argp_register_param(input_param: *mut doca_argp_param) -> doca_error_t;

            /// Registers a command of the program, which the parser owns from then on, even after an error.
            fn doca_argp_register_cmd(input_cmd: *mut doca_argp_cmd) -> doca_error_t;

            /// Sets the callback of `--version`, instead of printing the library's version.
            fn doca_argp_register_version_callback(callback: doca_argp_param_cb_t) -> doca_error_t;

            /// Sets the callback that validates the configuration after all parameters were read.
            fn doca_argp_register_validation_callback(
                callback: doca_argp_validation_cb_t
            ) -> doca_error_t;

            /// Sets the callback that opens the devices named by the user, instead of `doca_dev_open`.
            fn doca_argp_register_dev_open_callback(
                callback: doca_argp_dev_open_cb_t,
                usr_ctx: *mut c_void
            ) -> doca_error_t;

            /// Ignores keys of the JSON file without a parameter instead of refusing them.
            fn doca_argp_disable_pedantic_config_parsing() -> doca_error_t;

            /// Sets the callback for messages to the user, instead of standard error.
            fn doca_argp_register_logger_callback(callback: doca_argp_logger_cb_t) -> doca_error_t;

            /// Restores messages to the user on standard error.
            fn doca_argp_disable_logger_callback() -> doca_error_t;

            /// Reads the arguments, and the JSON file that they name, and calls the callbacks.
            fn doca_argp_start(argc: c_int, argv: *mut *mut c_char) -> doca_error_t;

            /// Stops the parser and frees everything that was created or registered.
            fn doca_argp_destroy() -> doca_error_t;

            /// Sets the callback for DPDK's arguments, which precede a `--`.
            fn doca_argp_set_dpdk_program(callback: doca_argp_dpdk_cb_t);

            /// Creates a parameter, to be described by the setters and registered.
            fn doca_argp_param_create(param: *mut *mut doca_argp_param) -> doca_error_t;

            /// Sets the name after one dash; it may have several letters.
            fn doca_argp_param_set_short_name(param: *mut doca_argp_param, name: *const c_char);

            /// Sets the name after two dashes, which is also the key in the JSON file.
            fn doca_argp_param_set_long_name(param: *mut doca_argp_param, name: *const c_char);

            /// Sets the placeholder of the value in the usage text, e.g. `<path>`.
            fn doca_argp_param_set_arguments(param: *mut doca_argp_param, arguments: *const c_char);

            /// Sets the help text of the parameter.
            fn doca_argp_param_set_description(
                param: *mut doca_argp_param,
                description: *const c_char
            );

            /// Sets the callback for each value, which is valid only during the callback.
            fn doca_argp_param_set_callback(
                param: *mut doca_argp_param,
                callback: doca_argp_param_cb_t
            );

            /// Sets the type of the value.
            fn doca_argp_param_set_type(param: *mut doca_argp_param, arg_type: doca_argp_type);

            /// Makes the parameter mandatory.
            fn doca_argp_param_set_mandatory(param: *mut doca_argp_param);

            /// Refuses the parameter in the JSON file.
            fn doca_argp_param_set_cli_only(param: *mut doca_argp_param);

            /// Allows the parameter several times; in the JSON file as an array.
            fn doca_argp_param_set_multiplicity(param: *mut doca_argp_param);

            /// Refuses the parameter together with others.
            fn doca_argp_param_set_singular(param: *mut doca_argp_param);

            /// Accepts the parameter after subcommands as well.
            fn doca_argp_param_set_inherited(param: *mut doca_argp_param);

            /// Leaves the parameter out of the usage text.
            fn doca_argp_param_set_hidden(param: *mut doca_argp_param);

            /// Destroys a parameter that was not registered.
            fn doca_argp_param_destroy(param: *mut doca_argp_param) -> doca_error_t;

            /// Creates a command, to be described by the setters and registered.
            fn doca_argp_cmd_create(cmd: *mut *mut doca_argp_cmd) -> doca_error_t;

            /// Sets the name of a command.
            fn doca_argp_cmd_set_name(cmd: *mut doca_argp_cmd, name: *const c_char);

            /// Sets the help text of the command.
            fn doca_argp_cmd_set_description(cmd: *mut doca_argp_cmd, description: *const c_char);

            /// Sets the callback for the command.
            fn doca_argp_cmd_set_callback(cmd: *mut doca_argp_cmd, callback: doca_argp_cmd_cb_t);

            /// Leaves the command out of the usage text.
            fn doca_argp_cmd_set_hidden(cmd: *mut doca_argp_cmd);

            /// Registers a parameter of a command that is not registered yet; the parser owns it from then on.
            fn doca_argp_cmd_register_param(
                cmd: *mut doca_argp_cmd,
                input_param: *mut doca_argp_param
            ) -> doca_error_t;

            /// Registers a subcommand of a command that is not registered yet; the parser owns it from then on.
            fn doca_argp_cmd_register_cmd(
                cmd: *mut doca_argp_cmd,
                input_cmd: *mut doca_argp_cmd
            ) -> doca_error_t;

            /// Destroys a command that was not registered.
            fn doca_argp_cmd_destroy(cmd: *mut doca_argp_cmd) -> doca_error_t;

            /// Log level set by the user, or the global lower limit.
            fn doca_argp_get_log_level(log_level: *mut c_int) -> doca_error_t;

            /// SDK log level set by the user, or the global limit.
            fn doca_argp_get_sdk_log_level(log_level: *mut c_int) -> doca_error_t;
        }
    };
}
