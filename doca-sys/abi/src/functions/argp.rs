//! The argument parser. See [`doca_functions!`](crate::doca_functions).

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
