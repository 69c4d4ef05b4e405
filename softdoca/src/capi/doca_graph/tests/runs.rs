//! What instances do.

use super::*;

#[test]
fn nodes_run_in_the_order_of_their_dependencies() {
    let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
    memory.write(0, b"one");
    let graph = Graph::new(&dma, 1);
    // A diamond, its nodes created in another order: two copies of one, then a change, then a copy of the result.
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
fn instances_run_side_by_side_and_again() {
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
fn a_failure_ends_the_run_when_what_runs_has_ended() {
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
        // The context has stopped: a submission says so and begins nothing.
        assert_eq!(doca_graph_instance_submit(instance), DOCA_ERROR_BAD_STATE);
    }
    assert_eq!(dma.log.completions.borrow().len(), 0);
}

#[test]
fn a_graph_runs_in_another_one() {
    let (dma, memory, bufs) = (dma(), Memory::local(4096), Bufs::new());
    memory.write(0, b"x");
    let (inner, outer) = (Graph::new(&dma, 1), Graph::new(&dma, 1));
    let (one, two) = (inner.copies(), inner.copies());
    inner.order(one, two);
    let (mut nested, end) = (null_mut(), outer.function());
    // SAFETY: live handles and a valid out-parameter.
    unsafe {
        let nest = |nested| doca_graph_node_create_from_graph(outer.handle, inner.handle, nested);
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
