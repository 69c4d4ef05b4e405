//! Programming errors that hardware punishes and an emulator would swallow.
//!
//! With `SOFTDOCA_CHECK=1` in the environment each kind of [`Mistake`] is reported once, in a line on standard error: what
//! was done, to which object, and what hardware makes of it. What the calls answer does not change, except that the use of a destroyed
//! object, which is undefined otherwise, is refused: its memory is kept for that until the process ends. Without it, a check costs the look
//! at one flag.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::log::{Level, Origin, Record, Sink as _, StandardError};

/// Whether programs are checked.
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

/// What programs do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    TaskFreedInFlight,
    TaskFreedTwice,
    TaskUsedAfterFree,
    TaskSubmittedTwice,
    ContextDestroyedRunning,
    BufOutside,
    BufReturnedTwice,
    MmapDestroyedWithBufs,
    WithdrawnMemoryUsed,
    DestroyedHandleUsed,
    Leak,
}

impl Mistake {
    fn what(self) -> &'static str {
        match self {
            Mistake::TaskFreedInFlight => "a task was freed while it is in flight",
            Mistake::TaskFreedTwice => "a task was freed twice",
            Mistake::TaskUsedAfterFree => "a task was submitted after it was freed",
            Mistake::TaskSubmittedTwice => "a task was submitted again while it is in flight",
            Mistake::ContextDestroyedRunning => "a context was destroyed before it was stopped",
            Mistake::BufOutside => "a buf reaches outside of its memory",
            Mistake::BufReturnedTwice => "a buf was given back twice",
            Mistake::MmapDestroyedWithBufs => {
                "a mmap was stopped or destroyed while bufs point into it"
            }
            Mistake::WithdrawnMemoryUsed => {
                "memory of a peer was used after the peer stopped its mmap"
            }
            Mistake::DestroyedHandleUsed => "an object was used after it was destroyed",
            Mistake::Leak => "objects were left when the process ended",
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Mistake::TaskFreedInFlight => {
                "hardware completes into memory that belongs to somebody else by then"
            }
            Mistake::TaskFreedTwice => "the context's pool hands the same task out twice",
            Mistake::TaskUsedAfterFree => "hardware runs whatever task has its memory by then",
            Mistake::TaskSubmittedTwice => {
                "hardware runs it twice over one completion, and the second one corrupts the queue"
            }
            Mistake::ContextDestroyedRunning => "its queues go while hardware still writes to them",
            Mistake::BufOutside => {
                "hardware stops the queue with a protection error, or touches the program's other memory"
            }
            Mistake::BufReturnedTwice => "the inventory hands the same buf out twice",
            Mistake::MmapDestroyedWithBufs => {
                "hardware loses the registration of memory that tasks still name"
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

/// Reports a mistake, the first of its kind, if programs are checked.
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
    // Not through the back ends: they are the program's, and it may have none.
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
    // SAFETY: the function does not unwind. A process that can register no more functions ends without a report.
    unsafe { libc::atexit(at_exit) };
}
