//! `doca_graph.h`: graphs of tasks and functions.

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

/// Sets the callbacks and the number of instances; only before the start.
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

/// Sets the user data for the callbacks; only before the start.
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

/// Adds a node that runs a task of a context; only before the start.
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

/// Adds a node that calls a function; only before the start.
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

/// Adds a node that runs an instance of another graph, which must be started; only before the start.
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

/// Adds a dependency: `to` runs only after `from`; only before the start. `DOCA_ERROR_NOT_PERMITTED` for a cycle.
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

/// Starts a graph, whose nodes cannot change afterwards; its contexts must be running.
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

#[cfg(test)]
mod tests {
    //! Graphs of DMA tasks and closures.

    use std::cell::RefCell;
    use std::ptr::{from_ref, null_mut};
    use std::time::{Duration, Instant};

    use doca_abi::{
        DOCA_ERROR_BAD_STATE, DOCA_ERROR_DRIVER, DOCA_ERROR_IN_USE, DOCA_ERROR_INVALID_VALUE,
        DOCA_ERROR_NO_MEMORY, DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS, doca_dma,
        doca_dma_task_memcpy,
    };

    use super::*;
    use crate::buffer::Buf;
    use crate::capi::doca_dma::*;
    use crate::capi::doca_pe::*;
    use crate::capi::testing::{Bufs, Instance, Memory, c, done, ok};

    /// Calls of the callbacks; set as the graph's user data.
    #[derive(Default)]
    struct Seen {
        /// User data of completed instances, negated for failures.
        ended: RefCell<Vec<i64>>,
        /// An instance that the next completion submits again.
        again: RefCell<Option<*mut doca_graph_instance>>,
    }

    unsafe fn seen<'a>(data: doca_data) -> &'a Seen {
        // SAFETY: the user data of a test's graph.
        unsafe { &*data.ptr.cast::<Seen>() }
    }

    unsafe extern "C" fn completed(
        instance: *mut doca_graph_instance,
        data: doca_data,
        graph_data: doca_data,
    ) {
        // SAFETY: called with a live instance and the data that the test set.
        unsafe {
            let seen = seen(graph_data);
            seen.ended.borrow_mut().push(data.u64 as i64);
            if let Some(again) = seen.again.take() {
                assert_eq!(again, instance);
                ok(doca_graph_instance_submit(again));
            }
        }
    }

    unsafe extern "C" fn failed(
        _: *mut doca_graph_instance,
        data: doca_data,
        graph_data: doca_data,
    ) {
        // SAFETY: as above.
        unsafe {
            seen(graph_data).ended.borrow_mut().push(-(data.u64 as i64));
        }
    }

    /// Action of a user node.
    type Function<'a> = &'a dyn Fn() -> u32;

    unsafe extern "C" fn call(cookie: *mut c_void) -> u32 {
        // SAFETY: the cookie of a test's node points to its function.
        unsafe { (*cookie.cast::<Function<'_>>())() }
    }

    fn cookie(function: &Function<'_>) -> *mut c_void {
        from_ref(function).cast_mut().cast()
    }

    fn dma() -> Instance<doca_dma> {
        Instance::start(doca_dma_create, doca_dma_destroy, |dma| {
            let done = Some(done::<doca_dma_task_memcpy> as _);
            // SAFETY: a live instance.
            ok(unsafe { doca_dma_task_memcpy_set_conf(dma, done, done, 64) });
        })
    }

    fn copy(dma: &Instance<doca_dma>, from: &Buf, to: &Buf) -> *mut doca_task {
        let none = doca_data { u64: 0 };
        // SAFETY: live handles and a valid out-parameter.
        let task = dma.task(|task: *mut *mut doca_dma_task_memcpy| unsafe {
            doca_dma_task_memcpy_alloc_init(dma.handle, c(from), c(to), none, task)
        });
        task.cast()
    }

    /// A graph under a DMA instance's engine; destroyed on drop.
    struct Graph<'a> {
        dma: &'a Instance<doca_dma>,
        handle: *mut doca_graph,
        seen: Box<Seen>,
        instances: RefCell<Vec<*mut doca_graph_instance>>,
    }

    impl<'a> Graph<'a> {
        fn new(dma: &'a Instance<doca_dma>, limit: u32) -> Graph<'a> {
            let mut handle = null_mut();
            let seen = Box::<Seen>::default();
            let data = doca_data {
                ptr: from_ref(&*seen).cast_mut().cast(),
            };
            // SAFETY: live handles and valid out-parameters.
            unsafe {
                ok(doca_graph_create(dma.pe, &mut handle));
                ok(doca_graph_set_conf(
                    handle,
                    Some(completed),
                    Some(failed),
                    limit,
                ));
                ok(doca_graph_set_user_data(handle, data));
            }
            Graph {
                dma,
                handle,
                seen,
                instances: RefCell::default(),
            }
        }

        fn copies(&self) -> *mut doca_graph_node {
            let mut node = null_mut();
            // SAFETY: live handles and a valid out-parameter.
            ok(unsafe { doca_graph_node_create_from_ctx(self.handle, self.dma.ctx(), &mut node) });
            node
        }

        fn function(&self) -> *mut doca_graph_node {
            let mut node = null_mut();
            // SAFETY: live handles and a valid out-parameter.
            ok(unsafe { doca_graph_node_create_from_user(self.handle, Some(call), &mut node) });
            node
        }

        fn order(&self, from: *mut doca_graph_node, to: *mut doca_graph_node) {
            // SAFETY: live handles.
            ok(unsafe { doca_graph_add_dependency(self.handle, from, to) });
        }

        fn start(&self) {
            // SAFETY: a live handle.
            ok(unsafe { doca_graph_start(self.handle) });
        }

        fn instance(&self, number: u64) -> *mut doca_graph_instance {
            let mut instance = null_mut();
            let data = doca_data { u64: number };
            // SAFETY: live handles and a valid out-parameter.
            unsafe {
                ok(doca_graph_instance_create(self.handle, &mut instance));
                ok(doca_graph_instance_set_user_data(instance, data));
            }
            self.instances.borrow_mut().push(instance);
            instance
        }

        fn submit(&self, instance: *mut doca_graph_instance) {
            // SAFETY: a live handle.
            ok(unsafe { doca_graph_instance_submit(instance) });
        }

        /// Progresses until `count` runs have completed in total.
        #[track_caller]
        fn wait(&self, count: usize) -> Vec<i64> {
            let deadline = Instant::now() + Duration::from_secs(10);
            while self.seen.ended.borrow().len() < count {
                assert!(Instant::now() < deadline, "{:?}", self.seen.ended);
                self.dma.progress();
            }
            self.seen.ended.borrow().clone()
        }
    }

    impl Drop for Graph<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                return;
            }
            // SAFETY: live handles, not used afterwards.
            unsafe {
                for instance in self.instances.take() {
                    ok(doca_graph_instance_destroy(instance));
                }
                ok(doca_graph_stop(self.handle));
                ok(doca_graph_destroy(self.handle));
            }
        }
    }

    unsafe fn set_task(
        instance: *mut doca_graph_instance,
        node: *mut doca_graph_node,
        task: *mut doca_task,
    ) {
        // SAFETY: guaranteed by the caller.
        ok(unsafe { doca_graph_instance_set_ctx_node_data(instance, node, task) });
    }

    unsafe fn set_function(
        instance: *mut doca_graph_instance,
        node: *mut doca_graph_node,
        function: &Function<'_>,
    ) {
        // SAFETY: guaranteed by the caller.
        ok(unsafe { doca_graph_instance_set_user_node_data(instance, node, cookie(function)) });
    }

    #[test]
    fn cycles_and_foreign_nodes_are_refused() {
        let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
        let (graph, other) = (Graph::new(&dma, 1), Graph::new(&dma, 1));
        let (a, b, end) = (graph.copies(), graph.copies(), graph.function());
        let foreign = other.copies();
        graph.order(a, b);
        graph.order(b, end);
        let (mut node, mut instance) = (null_mut(), null_mut());
        // SAFETY: live handles, and valid out-parameters.
        unsafe {
            let order = |from, to| doca_graph_add_dependency(graph.handle, from, to);
            assert_eq!(order(end, a), DOCA_ERROR_NOT_PERMITTED);
            assert_eq!(order(a, a), DOCA_ERROR_NOT_PERMITTED);
            assert_eq!(order(a, foreign), DOCA_ERROR_INVALID_VALUE);
            assert_eq!(
                doca_graph_node_create_from_graph(graph.handle, graph.handle, &mut node),
                DOCA_ERROR_NOT_PERMITTED
            );
            assert_eq!(
                doca_graph_instance_create(graph.handle, &mut instance),
                DOCA_ERROR_BAD_STATE
            );
            graph.start();
            assert_eq!(doca_graph_start(graph.handle), DOCA_ERROR_BAD_STATE);
            let none = doca_data { u64: 0 };
            for late in [
                order(a, end),
                doca_graph_node_create_from_ctx(graph.handle, dma.ctx(), &mut node),
                doca_graph_node_create_from_user(graph.handle, Some(call), &mut node),
                doca_graph_set_conf(graph.handle, Some(completed), Some(failed), 1),
                doca_graph_set_user_data(graph.handle, none),
                doca_graph_destroy(graph.handle),
            ] {
                assert_eq!(late, DOCA_ERROR_BAD_STATE);
            }
            let run = graph.instance(1);
            let task = copy(
                &dma,
                bufs.data(&memory.mmap, 0, 1),
                bufs.room(&memory.mmap, 9, 1),
            );
            for (node, task) in [(foreign, task), (end, task)] {
                assert_eq!(
                    doca_graph_instance_set_ctx_node_data(run, node, task),
                    DOCA_ERROR_NOT_PERMITTED
                );
            }
            assert_eq!(
                doca_graph_instance_set_user_node_data(run, a, null_mut()),
                DOCA_ERROR_NOT_PERMITTED
            );
            let mut data = none;
            ok(doca_graph_instance_get_user_data(run, &mut data));
            assert_eq!(data.u64, 1);
            ok(doca_graph_get_user_data(graph.handle, &mut data));
            assert_eq!(data.ptr, from_ref(&*graph.seen).cast_mut().cast());
        }
    }

    #[test]
    fn a_graph_needs_a_running_context() {
        let dma = dma();
        let graph = Graph::new(&dma, 1);
        graph.function();
        // SAFETY: live handles.
        unsafe {
            assert_eq!(doca_graph_start(graph.handle), DOCA_ERROR_BAD_STATE);
            graph.copies();
            ok(doca_ctx_stop(dma.ctx()));
            assert_eq!(doca_graph_start(graph.handle), DOCA_ERROR_BAD_STATE);
            ok(doca_ctx_start(dma.ctx()));
            ok(doca_graph_start(graph.handle));
            ok(doca_graph_stop(graph.handle));
            ok(doca_graph_stop(graph.handle));
            assert_eq!(
                doca_graph_set_conf(graph.handle, None, Some(failed), 1),
                DOCA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                doca_graph_set_conf(graph.handle, Some(completed), Some(failed), 0),
                DOCA_ERROR_INVALID_VALUE
            );
        }
    }

    #[test]
    fn null_is_refused() {
        let dma = dma();
        let graph = Graph::new(&dma, 1);
        let (mut node, mut instance, mut handle) = (null_mut(), null_mut(), null_mut());
        let mut data = doca_data { u64: 0 };
        let a = graph.copies();
        graph.start();
        let run = graph.instance(1);
        // SAFETY: NULL is refused, which this test checks.
        unsafe {
            for refused in [
                doca_graph_create(null_mut(), &mut handle),
                doca_graph_create(dma.pe, null_mut()),
                doca_graph_destroy(null_mut()),
                doca_graph_set_conf(null_mut(), Some(completed), Some(failed), 1),
                doca_graph_set_user_data(null_mut(), data),
                doca_graph_get_user_data(null_mut(), &mut data),
                doca_graph_get_user_data(graph.handle, null_mut()),
                doca_graph_node_create_from_ctx(graph.handle, null_mut(), &mut node),
                doca_graph_node_create_from_ctx(graph.handle, dma.ctx(), null_mut()),
                doca_graph_node_create_from_user(graph.handle, None, &mut node),
                doca_graph_node_create_from_graph(graph.handle, null_mut(), &mut node),
                doca_graph_add_dependency(null_mut(), a, a),
                doca_graph_start(null_mut()),
                doca_graph_stop(null_mut()),
                doca_graph_instance_create(null_mut(), &mut instance),
                doca_graph_instance_create(graph.handle, null_mut()),
                doca_graph_instance_destroy(null_mut()),
                doca_graph_instance_set_user_data(null_mut(), data),
                doca_graph_instance_get_user_data(run, null_mut()),
                doca_graph_instance_set_ctx_node_data(run, a, null_mut()),
                doca_graph_instance_set_user_node_data(run, null_mut(), null_mut()),
                doca_graph_instance_set_sub_graph_node_data(run, a, null_mut()),
                doca_graph_instance_submit(null_mut()),
            ] {
                assert_eq!(refused, DOCA_ERROR_INVALID_VALUE);
            }
        }
    }

    #[test]
    fn nodes_run_in_the_order_of_their_dependencies() {
        let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
        memory.write(0, b"one");
        let graph = Graph::new(&dma, 1);
        // A diamond, with its nodes created in another order: two copies of a source, a change, and a copy of the result.
        let last = graph.copies();
        let change = graph.function();
        let (left, right) = (graph.copies(), graph.copies());
        graph.order(change, last);
        graph.order(left, change);
        graph.order(right, change);
        graph.order(right, change);
        graph.start();
        let from = bufs.data(&memory.mmap, 0, 3);
        let joined = bufs.room(&memory.mmap, 100, 6);
        let result = bufs.room(&memory.mmap, 200, 6);
        let change_it: Function<'_> = &|| {
            assert_eq!(memory.read(100, 6), b"oneone", "both copies come before");
            memory.write(100, b"two");
            DOCA_SUCCESS
        };
        let instance = graph.instance(7);
        // SAFETY: live handles; the function outlives the run.
        unsafe {
            set_task(instance, left, copy(&dma, from, joined));
            set_task(instance, right, copy(&dma, from, joined));
            set_function(instance, change, &change_it);
            set_task(instance, last, copy(&dma, joined, result));
        }
        graph.submit(instance);
        assert_eq!(memory.read(100, 3), [0; 3], "nothing runs before progress");
        // SAFETY: live handles.
        unsafe {
            assert_eq!(doca_graph_instance_submit(instance), DOCA_ERROR_IN_USE);
            assert_eq!(doca_graph_instance_destroy(instance), DOCA_ERROR_IN_USE);
            let none = doca_data { u64: 0 };
            assert_eq!(
                doca_graph_instance_set_user_data(instance, none),
                DOCA_ERROR_IN_USE
            );
            assert_eq!(
                doca_graph_instance_set_user_node_data(instance, change, null_mut()),
                DOCA_ERROR_BAD_STATE
            );
            assert_eq!(doca_graph_stop(graph.handle), DOCA_ERROR_IN_USE);
        }
        assert_eq!(graph.wait(1), [7]);
        assert_eq!(memory.read(200, 6), b"twoone");
        assert_eq!(
            dma.log.completions.borrow().len(),
            0,
            "the graph's callbacks alone are called"
        );
    }

    #[test]
    fn instances_run_concurrently_and_repeatedly() {
        const INSTANCES: usize = 10;
        let (dma, memory, bufs) = (dma(), Memory::local(8192), Bufs::new());
        let graph = Graph::new(&dma, INSTANCES as u32);
        let (node, end) = (graph.copies(), graph.function());
        graph.order(node, end);
        graph.start();
        let calls = RefCell::new(0);
        let count: Function<'_> = &|| {
            *calls.borrow_mut() += 1;
            DOCA_SUCCESS
        };
        let mut one_more = null_mut();
        for number in 0..INSTANCES {
            memory.write(number * 100, &[number as u8 + 1; 50]);
            let from = bufs.data(&memory.mmap, number * 100, 50);
            let to = bufs.room(&memory.mmap, 4096 + number * 100, 100);
            let instance = graph.instance(number as u64 + 1);
            // SAFETY: live handles; the function outlives the run.
            unsafe {
                set_task(instance, node, copy(&dma, from, to));
                set_function(instance, end, &count);
            }
            graph.submit(instance);
        }
        // SAFETY: live handles and a valid out-parameter.
        unsafe {
            assert_eq!(
                doca_graph_instance_create(graph.handle, &mut one_more),
                DOCA_ERROR_NO_MEMORY
            );
        }
        let first = graph.instances.borrow()[0];
        *graph.seen.again.borrow_mut() = Some(first);
        let ended = graph.wait(INSTANCES + 1);
        assert_eq!(
            ended[..INSTANCES],
            (1..=INSTANCES as i64).collect::<Vec<_>>()
        );
        assert_eq!(
            ended[INSTANCES..],
            [1],
            "a completion may submit its instance again"
        );
        assert_eq!(*calls.borrow(), INSTANCES + 1);
        for number in 1..INSTANCES {
            let copied = memory.read(4096 + number * 100, 100);
            assert_eq!(copied[..50], [number as u8 + 1; 50]);
            assert_eq!(copied[50..], [0; 50]);
        }
        assert_eq!(memory.read(4096, 100), [1; 100], "appended twice");
    }

    #[test]
    fn a_failure_completes_the_run_after_its_running_nodes() {
        let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
        let graph = Graph::new(&dma, 1);
        let (refuse, after) = (graph.function(), graph.copies());
        let beside = graph.copies();
        graph.order(refuse, after);
        graph.start();
        let from = bufs.data(&memory.mmap, 0, 3);
        let (to, untouched) = (
            bufs.room(&memory.mmap, 100, 9),
            bufs.room(&memory.mmap, 200, 9),
        );
        let instance = graph.instance(5);
        let answer = RefCell::new(DOCA_ERROR_DRIVER);
        let refuse_it: Function<'_> = &|| *answer.borrow();
        // SAFETY: live handles; the function outlives the run.
        unsafe {
            set_function(instance, refuse, &refuse_it);
            set_task(instance, after, copy(&dma, from, untouched));
            set_task(instance, beside, copy(&dma, from, to));
        }
        graph.submit(instance);
        assert_eq!(graph.wait(1), [-5]);
        assert_eq!((to.data_len(), untouched.data_len()), (3, 0));
        *answer.borrow_mut() = DOCA_SUCCESS;
        graph.submit(instance);
        assert_eq!(graph.wait(2), [-5, 5], "the next run begins anew");
        assert_eq!((to.data_len(), untouched.data_len()), (6, 3));
    }

    #[test]
    fn a_task_that_fails_fails_the_run() {
        let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
        let graph = Graph::new(&dma, 1);
        let (bad, after) = (graph.copies(), graph.function());
        graph.order(bad, after);
        graph.start();
        let (from, small) = (
            bufs.data(&memory.mmap, 0, 3),
            bufs.room(&memory.mmap, 100, 2),
        );
        let instance = graph.instance(5);
        let never: Function<'_> = &|| panic!("the node before it failed");
        // SAFETY: live handles; the function outlives the run.
        unsafe {
            let task = copy(&dma, from, small);
            set_task(instance, bad, task);
            set_function(instance, after, &never);
            graph.submit(instance);
            assert_eq!(graph.wait(1), [-5]);
            assert_eq!(
                doca_task_get_status(task),
                crate::error::Error::TooBig.code()
            );
            // The context has stopped: the submission is refused without starting a task.
            assert_eq!(doca_graph_instance_submit(instance), DOCA_ERROR_BAD_STATE);
        }
        assert_eq!(dma.log.completions.borrow().len(), 0);
    }

    #[test]
    fn a_graph_runs_as_a_node_of_another() {
        let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
        memory.write(0, b"x");
        let (inner, outer) = (Graph::new(&dma, 1), Graph::new(&dma, 1));
        let (one, two) = (inner.copies(), inner.copies());
        inner.order(one, two);
        let (mut nested, end) = (null_mut(), outer.function());
        // SAFETY: live handles and a valid out-parameter.
        unsafe {
            let nest =
                |nested| doca_graph_node_create_from_graph(outer.handle, inner.handle, nested);
            assert_eq!(nest(&mut nested), DOCA_ERROR_BAD_STATE, "it is not started");
            inner.start();
            ok(nest(&mut nested));
        }
        outer.order(nested, end);
        outer.start();
        let run = inner.instance(1);
        let whole = outer.instance(2);
        let to = bufs.room(&memory.mmap, 100, 9);
        let from = bufs.data(&memory.mmap, 0, 1);
        let check: Function<'_> = &|| {
            assert_eq!(memory.read(100, 3), b"xx\0");
            DOCA_SUCCESS
        };
        // SAFETY: live handles; the function outlives the run.
        unsafe {
            set_task(run, one, copy(&dma, from, to));
            set_task(run, two, copy(&dma, from, to));
            set_function(whole, end, &check);
            assert_eq!(
                doca_graph_instance_submit(whole),
                DOCA_ERROR_INVALID_VALUE,
                "a node has no data"
            );
            let set = |inner| doca_graph_instance_set_sub_graph_node_data(whole, nested, inner);
            assert_eq!(set(whole), DOCA_ERROR_NOT_PERMITTED);
            ok(set(run));
            assert_eq!(
                doca_graph_instance_destroy(run),
                DOCA_ERROR_IN_USE,
                "it is a node's data"
            );
        }
        outer.submit(whole);
        assert_eq!(outer.wait(1), [2]);
        assert_eq!(
            inner.seen.ended.borrow().len(),
            0,
            "the outer graph's callbacks alone are called"
        );
        drop(outer);
    }
}
