//! Reports of programming errors that may fail on hardware and would not be detected in an emulator.
//!
//! With `SOFTDOCA_CHECK=1` in the environment, the first occurrence of each kind of [`Mistake`] is reported in a line
//! on standard error: the error, the object, and the consequence: the call is refused or, if DOCA leaves it undefined,
//! the possible behaviour on hardware. Return values do not change, except that the otherwise undefined use of a
//! destroyed object is refused: its memory is kept until the process exits. Without the variable, a check costs one
//! load of a flag. At exit, objects that the program has not destroyed are reported as well.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::log::{Level, Origin, Record, Sink as _, StandardError};

/// `true` if `SOFTDOCA_CHECK=1` is set.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        let on = std::env::var_os("SOFTDOCA_CHECK").is_some_and(|value| value == "1");
        if on {
            report_at_exit();
        }
        on
    })
}

/// Kinds of programming errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    TaskFreedInFlight,
    TaskFreedTwice,
    TaskUsedAfterFree,
    TaskSubmittedTwice,
    ContextDestroyedRunning,
    BufOutside,
    DataOutsideBuf,
    BufReturnedTwice,
    MmapDestroyedWithBufs,
    WithdrawnMemoryUsed,
    DestroyedHandleUsed,
    Leak,
}

impl Mistake {
    pub(crate) fn what(self) -> &'static str {
        match self {
            Mistake::TaskFreedInFlight => "a task was freed while it is in flight",
            Mistake::TaskFreedTwice => "a task was freed twice",
            Mistake::TaskUsedAfterFree => "a task was submitted after it was freed",
            Mistake::TaskSubmittedTwice => "a task was submitted again while it is in flight",
            Mistake::ContextDestroyedRunning => "a context was destroyed before it was stopped",
            Mistake::BufOutside => {
                "a buf reaches outside of its mmap, or its data outside of the buf"
            }
            Mistake::DataOutsideBuf => "data was set outside of its buf",
            Mistake::BufReturnedTwice => "a buf was returned twice",
            Mistake::MmapDestroyedWithBufs => {
                "an mmap was stopped or destroyed while bufs point into it"
            }
            Mistake::WithdrawnMemoryUsed => {
                "memory of a peer was used after the peer stopped its mmap"
            }
            Mistake::DestroyedHandleUsed => "an object was used after it was destroyed",
            Mistake::Leak => "objects were not destroyed before the process exited",
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Mistake::TaskFreedInFlight => {
                "undefined in DOCA: its memory may be reused before hardware completes it"
            }
            Mistake::TaskFreedTwice => {
                "undefined in DOCA: the context's pool may hand the same task out twice"
            }
            Mistake::TaskUsedAfterFree => {
                "undefined in DOCA: another task may have its memory by then"
            }
            Mistake::TaskSubmittedTwice => "undefined in DOCA: it may run twice and complete once",
            Mistake::ContextDestroyedRunning => {
                "the call is refused, and the context keeps its resources: stop it, and destroy it when it is idle"
            }
            Mistake::BufOutside => {
                "the call is refused: a device can only access memory of the mmap through the buf"
            }
            Mistake::DataOutsideBuf => {
                "undefined in DOCA: tasks access memory of the mmap that other bufs may describe"
            }
            Mistake::BufReturnedTwice => {
                "the call is refused; if the buf had been handed out again, its new user would lose it"
            }
            Mistake::MmapDestroyedWithBufs => {
                "the call is refused: the memory stays registered with its devices, and must not be freed yet"
            }
            Mistake::WithdrawnMemoryUsed => {
                "hardware fails the access and the connection, or reaches what the memory is used for by then"
            }
            Mistake::DestroyedHandleUsed => {
                "the library reads and writes memory that belongs to something else by then"
            }
            Mistake::Leak => {
                "the device keeps their queues and registrations until the process is gone"
            }
        }
    }
}

/// Reports the first mistake of each kind, if checks are on.
#[cold]
pub(crate) fn report(mistake: Mistake, object: fmt::Arguments<'_>) {
    static REPORTED: AtomicU32 = AtomicU32::new(0);
    let kind = 1 << mistake as u32;
    if !is_on() || REPORTED.fetch_or(kind, Ordering::Relaxed) & kind != 0 {
        return;
    }
    let text = format!(
        "SOFTDOCA_CHECK: {}: {object}; {}",
        mistake.what(),
        mistake.consequence()
    );
    // Not through the log back ends: they belong to the program, which may not have registered any.
    StandardError.accept(&Record {
        origin: Origin::Sdk,
        level: Level::Error,
        file: file!(),
        line: line!(),
        function: None,
        text: &text,
    });
}

/// Kinds of objects that programs create and destroy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    Device,
    Representor,
    /// A list of devices or representors.
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

/// Counts a created object.
#[inline]
pub(crate) fn created(object: Object) {
    if is_on() {
        COUNTS[object as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a destroyed object.
#[inline]
pub(crate) fn destroyed(object: Object) {
    if is_on() {
        COUNTS[object as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Registers the report of undestroyed objects at exit.
fn report_at_exit() {
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
    // SAFETY: the function does not unwind. If the registration fails, the process exits without a report.
    unsafe { libc::atexit(at_exit) };
}
