//! What is refused.

use super::*;

#[test]
fn circles_and_strangers_are_refused() {
    let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
    let (graph, other) = (Graph::new(&dma, 1), Graph::new(&dma, 1));
    let (a, b, end) = (graph.copies(), graph.copies(), graph.function());
    let stranger = other.copies();
    graph.order(a, b);
    graph.order(b, end);
    let (mut node, mut instance) = (null_mut(), null_mut());
    // SAFETY: live handles, and valid out-parameters.
    unsafe {
        let order = |from, to| doca_graph_add_dependency(graph.handle, from, to);
        assert_eq!(order(end, a), DOCA_ERROR_NOT_PERMITTED);
        assert_eq!(order(a, a), DOCA_ERROR_NOT_PERMITTED);
        assert_eq!(order(a, stranger), DOCA_ERROR_INVALID_VALUE);
        assert_eq!(
            doca_graph_node_create_from_graph(graph.handle, graph.handle, &mut node),
            DOCA_ERROR_NOT_PERMITTED
        );
        assert_eq!(
            doca_graph_instance_create(graph.handle, &mut instance),
            DOCA_ERROR_BAD_STATE
        );
        graph.start();
        ok(doca_graph_start(graph.handle));
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
        for (node, task) in [(stranger, task), (end, task)] {
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
fn a_graph_needs_a_context_that_runs() {
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
    // SAFETY: NULL is what is tested.
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
