//! Counts of the objects that a program has, for what it leaves behind.

use std::sync::atomic::{AtomicI64, Ordering};

use super::{Mistake, is_on, report};

/// Kinds of objects that programs create and destroy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    Device,
    Representor,
    /// Of devices or representors that could be opened.
    List,
    Mmap,
    Inventory,
    BufPool,
    Buf,
    Engine,
    Context,
    Task,
    Graph,
    GraphInstance,
}

const KINDS: [(Object, &str); 12] = [
    (Object::Device, "doca_dev"),
    (Object::Representor, "doca_dev_rep"),
    (Object::List, "list of devices"),
    (Object::Mmap, "doca_mmap"),
    (Object::Inventory, "doca_buf_inventory"),
    (Object::BufPool, "doca_buf_pool"),
    (Object::Buf, "doca_buf"),
    (Object::Engine, "doca_pe"),
    (Object::Context, "doca_ctx"),
    (Object::Task, "doca_task"),
    (Object::Graph, "doca_graph"),
    (Object::GraphInstance, "doca_graph_instance"),
];

static COUNTS: [AtomicI64; KINDS.len()] = [const { AtomicI64::new(0) }; KINDS.len()];

/// The program has one more.
#[inline]
pub(crate) fn created(object: Object) {
    if is_on() {
        COUNTS[object as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The program has one less.
#[inline]
pub(crate) fn destroyed(object: Object) {
    if is_on() {
        COUNTS[object as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets the process tell in the end what it leaves.
pub(super) fn report_at_exit() {
    extern "C" fn at_exit() {
        let left: Vec<String> = KINDS
            .iter()
            .map(|(object, name)| (COUNTS[*object as usize].load(Ordering::Relaxed), name))
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        if !left.is_empty() {
            report(Mistake::Leak, format_args!("{}", left.join(", ")));
        }
    }
    // SAFETY: the function does not unwind. A process that can register no more functions ends without a report.
    unsafe { libc::atexit(at_exit) };
}
