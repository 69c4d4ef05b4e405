//! Closures that get the ends of tasks while a call of progress lasts.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::{Completion, ErrorCode};

/// A closure, which lives somewhere on the stack, without its type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handler {
    /// Of C, as the functions of C that call it in the end: a panic must not pass them, and ends the process here.
    function: unsafe extern "C" fn(NonNull<()>, u64, ErrorCode),
    closure: NonNull<()>,
}

impl Handler {
    /// Of a closure that the handler does not borrow.
    #[inline(always)]
    pub(super) fn new<H: FnMut(Completion)>(closure: &mut H) -> Self {
        Self {
            function: call::<H>,
            closure: NonNull::from(closure).cast(),
        }
    }

    /// Calls the closure with the end of a task.
    ///
    /// # Safety
    ///
    /// The closure lives, and is not being called.
    #[inline(always)]
    pub(crate) unsafe fn call(self, token: u64, code: ErrorCode) {
        // SAFETY: the function is that of the closure's type; the rest is the caller's promise.
        unsafe { (self.function)(self.closure, token, code) };
    }
}

/// # Safety
///
/// The closure is of type `H`, lives, and is not being called.
unsafe extern "C" fn call<H: FnMut(Completion)>(closure: NonNull<()>, token: u64, code: ErrorCode) {
    // SAFETY: the caller's promise.
    let closure = unsafe { closure.cast::<H>().as_mut() };
    closure(Completion::new(token, code));
}

/// The closure of the innermost call of progress that is under way, if that has one.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    current: Cell<Option<Handler>>,
}

impl Handlers {
    #[inline(always)]
    pub(super) fn current(&self) -> Option<Handler> {
        self.current.get()
    }

    /// For the rest of the call of progress that is under way there is none.
    pub(super) fn end(&self) {
        self.current.set(None);
    }

    /// Calls `progress`, in which `handler` gets the ends of tasks. Progress that is made inside of its closure has another closure, or
    /// none: so no closure is called while it is being called.
    ///
    /// # Safety
    ///
    /// The closure lives as long as `progress` takes, and is used by nobody else.
    #[inline(always)]
    pub(super) unsafe fn during(&self, handler: Handler, progress: impl FnOnce()) {
        let outer = self.current.replace(Some(handler));
        progress();
        self.current.set(outer);
    }

    /// Calls `progress`, in which the ends of tasks go into the queue.
    #[inline(always)]
    pub(super) fn without(&self, progress: impl FnOnce()) {
        let outer = self.current.replace(None);
        progress();
        self.current.set(outer);
    }
}
