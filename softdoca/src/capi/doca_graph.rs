//! `doca_graph.h`: graphs of tasks and functions.

#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use doca_abi::{
    doca_ctx, doca_data, doca_graph, doca_graph_completion_cb_t, doca_graph_instance,
    doca_graph_node, doca_graph_user_node_cb_t, doca_pe, doca_task,
};

use super::{
    Handle, Keeper, borrow, check_out, doca_error_t, give_local, guard, not_null, put,
    reclaim_local, share_local,
};
use crate::check::{self, Object};
use crate::error::Result;
use crate::graph::{Data, Graph, Instance, Node};

// SAFETY: graphs are given out by `give_local`.
unsafe impl Handle for doca_graph {
    type Engine = Graph;

    const KEEPER: Keeper = Keeper::Rc;
}

// SAFETY: nodes are given out as pointers to nodes that their graph owns until it is destroyed.
unsafe impl Handle for doca_graph_node {
    type Engine = Node;
}

// SAFETY: instances are given out by `give_local`.
unsafe impl Handle for doca_graph_instance {
    type Engine = Instance;

    const KEEPER: Keeper = Keeper::Rc;
}

/// Creates a graph under an engine.
///
/// # Safety
/// `pe` is NULL or a live engine, not used by another thread during the call; `graph` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_create(
    pe: *mut doca_pe,
    graph: *mut *mut doca_graph,
) -> doca_error_t {
    guard(|| {
        check_out(graph)?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(graph, give_local(Graph::new(share_local(pe)?))) }?;
        check::created(Object::Graph);
        Ok(())
    })
}

/// Destroys a stopped graph, with its nodes.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call, and invalid after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_destroy(graph: *mut doca_graph) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(graph) }?.check_destroyable()?;
        // SAFETY: guaranteed by the caller.
        unsafe { reclaim_local(graph) }.map(drop)?;
        check::destroyed(Object::Graph);
        Ok(())
    })
}

/// Sets the callbacks and the number of instances; before the start.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call; the callbacks are NULL or functions of that
/// type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_set_conf(
    graph: *mut doca_graph,
    graph_completion_cb: doca_graph_completion_cb_t,
    graph_error_cb: doca_graph_completion_cb_t,
    num_instances: u32,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let graph = unsafe { borrow(graph) }?;
        graph.configure(graph_completion_cb, graph_error_cb, num_instances)
    })
}

/// Sets the user data for the callbacks; before the start.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_set_user_data(
    graph: *mut doca_graph,
    user_data: doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(graph) }?.set_user_data(user_data))
}

/// Gets the user data for the callbacks.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call; `user_data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_get_user_data(
    graph: *const doca_graph,
    user_data: *mut doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(user_data, borrow(graph)?.user_data()) })
}

/// Adds a node and writes its handle.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call; `node` is NULL or writable.
unsafe fn add(
    graph: *mut doca_graph,
    node: *mut *mut doca_graph_node,
    add: impl FnOnce(&Graph) -> Result<Rc<Node>>,
) -> doca_error_t {
    guard(|| {
        check_out(node)?;
        // SAFETY: guaranteed by the caller. The graph keeps the node.
        unsafe {
            let added = add(borrow(graph)?)?;
            put(node, Rc::as_ptr(&added).cast_mut().cast())
        }
    })
}

/// Adds a node that runs a task of a context; before the start.
///
/// # Safety
/// `graph` and `ctx` are NULL or live, not used by another thread during the call; `node` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_node_create_from_ctx(
    graph: *mut doca_graph,
    ctx: *const doca_ctx,
    node: *mut *mut doca_graph_node,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { add(graph, node, |graph| graph.add_ctx(share_local(ctx)?)) }
}

/// Adds a node that calls a function; before the start.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call; `cb` is NULL or a function that takes what
/// instances set for the node; `node` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_node_create_from_user(
    graph: *mut doca_graph,
    cb: doca_graph_user_node_cb_t,
    node: *mut *mut doca_graph_node,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe { add(graph, node, |graph| graph.add_function(cb)) }
}

/// Adds a node that runs an instance of another graph, which must be started; before the start.
///
/// # Safety
/// The graphs are NULL or live, not used by another thread during the call; `node` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_node_create_from_graph(
    graph: *mut doca_graph,
    sub_graph: *mut doca_graph,
    node: *mut *mut doca_graph_node,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        add(graph, node, |graph| {
            graph.add_graph(share_local(sub_graph)?)
        })
    }
}

/// Adds a dependency: `to` runs only after `from`; before the start. `DOCA_ERROR_NOT_PERMITTED` for a cycle.
///
/// # Safety
/// The handles are NULL or live, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_add_dependency(
    graph: *mut doca_graph,
    from: *mut doca_graph_node,
    to: *mut doca_graph_node,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(graph)?.add_dependency(borrow(from)?, borrow(to)?) })
}

/// Starts a graph, whose nodes are fixed from then on; its contexts must be running.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_start(graph: *mut doca_graph) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(graph) }?.start())
}

/// Stops a graph; `DOCA_ERROR_IN_USE` while it has instances.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_stop(graph: *mut doca_graph) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(graph) }?.stop())
}

/// Creates an instance of a started graph.
///
/// # Safety
/// `graph` is NULL or live, not used by another thread during the call; `graph_instance` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_create(
    graph: *const doca_graph,
    graph_instance: *mut *mut doca_graph_instance,
) -> doca_error_t {
    guard(|| {
        check_out(graph_instance)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            put(
                graph_instance,
                give_local(Instance::new(share_local(graph)?)?),
            )
        }?;
        check::created(Object::GraphInstance);
        Ok(())
    })
}

/// Destroys an instance; `DOCA_ERROR_IN_USE` while it is submitted or is the data of a node.
///
/// # Safety
/// `graph_instance` is NULL or live, not used by another thread during the call, and invalid after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_destroy(
    graph_instance: *mut doca_graph_instance,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(graph_instance) }?.retire()?;
        // SAFETY: guaranteed by the caller.
        unsafe { reclaim_local(graph_instance) }.map(drop)?;
        check::destroyed(Object::GraphInstance);
        Ok(())
    })
}

/// Sets the user data for the callbacks.
///
/// # Safety
/// `graph_instance` is NULL or live, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_set_user_data(
    graph_instance: *mut doca_graph_instance,
    user_data: doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(graph_instance) }?.set_user_data(user_data))
}

/// Gets the user data for the callbacks.
///
/// # Safety
/// `graph_instance` is NULL or live, not used by another thread during the call; `user_data` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_get_user_data(
    graph_instance: *const doca_graph_instance,
    user_data: *mut doca_data,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { put(user_data, borrow(graph_instance)?.user_data()) })
}

/// Sets the task of a context node. Its own callbacks are not called when the graph runs it.
///
/// # Safety
/// The handles are NULL or live, not used by another thread during the call; the task lives as long as the instance is
/// submitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_set_ctx_node_data(
    graph_instance: *mut doca_graph_instance,
    node: *mut doca_graph_node,
    task: *mut doca_task,
) -> doca_error_t {
    guard(|| {
        not_null(task)?;
        let task = NonNull::new(task.cast()).ok_or(crate::error::Error::InvalidValue)?;
        // SAFETY: guaranteed by the caller.
        unsafe { borrow(graph_instance)?.set_data(borrow(node)?, Data::Task(task)) }
    })
}

/// Sets the argument of a user node's function; NULL by default.
///
/// # Safety
/// The handles are NULL or live, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_set_user_node_data(
    graph_instance: *mut doca_graph_instance,
    node: *mut doca_graph_node,
    cookie: *mut c_void,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(graph_instance)?.set_data(borrow(node)?, Data::Cookie(cookie)) })
}

/// Sets the instance that a graph node runs. The callbacks of its graph are not called for such a run.
///
/// # Safety
/// The handles are NULL or live, not used by another thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_set_sub_graph_node_data(
    graph_instance: *mut doca_graph_instance,
    node: *mut doca_graph_node,
    sub_graph_instance: *mut doca_graph_instance,
) -> doca_error_t {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let inner = Data::Instance(share_local(sub_graph_instance)?);
            borrow(graph_instance)?.set_data(borrow(node)?, inner)
        }
    })
}

/// Submits an instance; one of the graph's callbacks reports its completion.
///
/// # Safety
/// `graph_instance` is NULL or live, not used by another thread during the call; so is what its nodes have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doca_graph_instance_submit(
    graph_instance: *mut doca_graph_instance,
) -> doca_error_t {
    // SAFETY: guaranteed by the caller. The extra reference keeps the instance alive.
    guard(|| unsafe { share_local(graph_instance) }?.submit())
}

doca_abi::check_definitions!(doca_graph_functions, crate::capi::doca_graph);
