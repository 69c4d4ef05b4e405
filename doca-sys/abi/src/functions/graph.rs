//! Graphs of tasks. See [`doca_functions!`](crate::doca_functions).

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

            /// Sets the completion callbacks and the maximum number of instances; before the start.
            fn doca_graph_set_conf(
                graph: *mut doca_graph,
                graph_completion_cb: doca_graph_completion_cb_t,
                graph_error_cb: doca_graph_completion_cb_t,
                num_instances: u32
            ) -> doca_error_t;

            /// Sets the user data for callbacks, passed as `graph_user_data`; before the start.
            fn doca_graph_set_user_data(
                graph: *mut doca_graph,
                user_data: doca_data
            ) -> doca_error_t;

            /// The value set by [`doca_graph_set_user_data`].
            fn doca_graph_get_user_data(
                graph: *const doca_graph,
                user_data: *mut doca_data
            ) -> doca_error_t;

            /// Adds a node that runs a task of a context; before the start.
            fn doca_graph_node_create_from_ctx(
                graph: *mut doca_graph,
                ctx: *const doca_ctx,
                node: *mut *mut doca_graph_node
            ) -> doca_error_t;

            /// Adds a node that calls a function of the program; before the start.
            fn doca_graph_node_create_from_user(
                graph: *mut doca_graph,
                cb: doca_graph_user_node_cb_t,
                node: *mut *mut doca_graph_node
            ) -> doca_error_t;

            /// Adds a node that runs an instance of a started graph; before the start.
            fn doca_graph_node_create_from_graph(
                graph: *mut doca_graph,
                sub_graph: *mut doca_graph,
                node: *mut *mut doca_graph_node
            ) -> doca_error_t;

            /// Adds a dependency: `to` runs only after `from`; before the start.
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

            /// Sets the instance that a graph node runs; its own callbacks are not called.
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
