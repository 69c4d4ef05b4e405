//! Graphs of DMA tasks and closures.

mod rules;
mod runs;

use std::cell::RefCell;
use std::ptr::{from_ref, null_mut};
use std::time::{Duration, Instant};

use doca_abi::{
    DOCA_ERROR_BAD_STATE, DOCA_ERROR_DRIVER, DOCA_ERROR_IN_USE, DOCA_ERROR_INVALID_VALUE,
    DOCA_ERROR_NO_MEMORY, DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS, doca_dma, doca_dma_task_memcpy,
};

use super::*;
use crate::buffer::Buf;
use crate::capi::doca_ctx::*;
use crate::capi::doca_dma::*;
use crate::capi::doca_pe::*;
use crate::capi::testing::{Bufs, Instance, Memory, c, done, ok};

/// What the callbacks saw: the graph's user data.
#[derive(Default)]
struct Seen {
    /// User data of instances, with a minus for failures.
    ended: RefCell<Vec<i64>>,
    /// An instance that the next completion submits once more.
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

unsafe extern "C" fn failed(_: *mut doca_graph_instance, data: doca_data, graph_data: doca_data) {
    // SAFETY: as above.
    unsafe {
        seen(graph_data).ended.borrow_mut().push(-(data.u64 as i64));
    }
}

/// What a user node does: a closure of the test's.
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

/// A graph under a DMA instance's engine; destroyed with it.
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

    /// Progresses until `count` runs have ended in all.
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
        // SAFETY: live handles, for the last time.
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
    // SAFETY: the caller's promise.
    ok(unsafe { doca_graph_instance_set_ctx_node_data(instance, node, task) });
}

unsafe fn set_function(
    instance: *mut doca_graph_instance,
    node: *mut doca_graph_node,
    function: &Function<'_>,
) {
    // SAFETY: the caller's promise.
    ok(unsafe { doca_graph_instance_set_user_node_data(instance, node, cookie(function)) });
}
