//! Progress engines, which turn callbacks into values.

mod queue;

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::time::{Duration, Instant};

use doca_sys as sys;
pub(crate) use queue::{DeferredCompletion, EventQueue};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::device::non_null;
use crate::error::call;
use crate::{ComchEvent, ContextId, CtxState, Error, ErrorCode, Result};

/// A progress engine, used by one thread: contexts are started on it, and [`poll`](Self::poll) returns their events.
///
/// ```no_run
/// # fn work(pe: &doca::Pe, running: impl Fn() -> bool) -> doca::Result<()> {
/// use doca::Event;
///
/// while running() {
///     match pe.poll() {
///         Some(Event::Task(completion)) => match completion.result {
///             Ok(()) => println!("transaction {} is done", completion.token),
///             Err(code) => println!("transaction {} failed: {code}", completion.token),
///         },
///         Some(event) => println!("{event:?}"),
///         None => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pe {
    inner: Rc<PeInner>,
}

/// Statistics of progress calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeStats {
    /// Calls of `doca_pe_progress` that found events.
    pub hits: u64,
    /// Calls of `doca_pe_progress` that found none.
    pub misses: u64,
}

/// The part of a progress engine that is shared with contexts.
pub(crate) struct PeInner {
    pe: NonNull<sys::doca_pe>,
    notification: RawFd,
    queue: Rc<EventQueue>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    /// `true` while a closure of [`Pe::progress_each`] may be running.
    is_handling: Cell<bool>,
    /// Type of the workers of [`WorkerPe`](crate::WorkerPe).
    worker_type: Option<TypeId>,
    /// Destructions that were requested by closures and have to wait for their end.
    deferred: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Pe {
    /// Creates a progress engine.
    ///
    /// # Errors
    ///
    /// Those of `doca_pe_create`.
    pub fn new() -> Result<Self> {
        Self::create(None)
    }

    /// The engine of a [`WorkerPe`](crate::WorkerPe) with workers of this type.
    pub(crate) fn for_workers(worker_type: TypeId) -> Result<Self> {
        Self::create(Some(worker_type))
    }

    fn create(worker_type: Option<TypeId>) -> Result<Self> {
        let mut pe = ptr::null_mut();
        // SAFETY: the out-parameter is valid.
        unsafe { call!(doca_pe_create(&mut pe)) }?;
        let pe = non_null("doca_pe_create", pe)?;
        let mut notification = -1;
        // SAFETY: the engine was just created, the out-parameter is valid.
        let told = unsafe {
            call!(doca_pe_get_notification_handle(
                pe.as_ptr(),
                &mut notification
            ))
        };
        if let Err(error) = told {
            // SAFETY: not used elsewhere, and without contexts.
            let _ = unsafe { sys::doca_pe_destroy(pe.as_ptr()) };
            return Err(error);
        }
        let inner = PeInner {
            pe,
            notification,
            queue: Rc::default(),
            hits: Cell::new(0),
            misses: Cell::new(0),
            is_handling: Cell::new(false),
            worker_type,
            deferred: RefCell::default(),
        };
        Ok(Self {
            inner: Rc::new(inner),
        })
    }

    /// Returns the next event; makes progress only if none is queued. `None`: no event.
    ///
    /// It may sleep briefly if there is nothing to do, so calling it in a loop does not take a core away from the peer.
    /// It does not allocate, except for [`Event::Comch`].
    #[inline]
    pub fn poll(&self) -> Option<Event> {
        match self.poll_completion() {
            Polled::Completion(completion) => Some(Event::Task(completion)),
            Polled::Other => self.inner.queue.pop_other(),
            Polled::Nothing => None,
        }
    }

    /// As [`poll`](Self::poll), for hot loops: returns completions, which are frequent, and leaves the other events,
    /// which are rare, in the queue.
    ///
    /// ```no_run
    /// # fn completed(_: doca::Completion) {}
    /// # fn happened(_: Option<doca::Event>) {}
    /// # fn example(pe: &doca::Pe) {
    /// use doca::Polled;
    ///
    /// loop {
    ///     match pe.poll_completion() {
    ///         Polled::Completion(completion) => completed(completion),
    ///         Polled::Other => happened(pe.poll()),
    ///         Polled::Nothing => {}
    ///     }
    /// }
    /// # }
    /// ```
    // One call site per program.
    #[inline(always)]
    pub fn poll_completion(&self) -> Polled {
        let queue = &*self.inner.queue;
        if queue.is_empty() {
            self.inner.progress();
            if queue.is_empty() {
                queue.release();
                return Polled::Nothing;
            }
        }
        queue.pop_completion()
    }

    /// Makes progress once and calls `handler` for every completion inside of it, without a queue: for loops that must
    /// be as fast as a C program's callbacks. Returns `true` if other events are queued; then [`poll`](Self::poll) must
    /// be called before this is called again.
    ///
    /// Queued completions come first. Completions behind another event stay queued, so that the order is kept. A panic
    /// in `handler` aborts the process, as it is called through C functions.
    ///
    /// Inside `handler`, tasks can be submitted and dropped. As the C API requires, it cannot make progress on this
    /// engine, which is borrowed, nor stop its contexts: a context that is stopped there (its `stop` returns
    /// [`ErrorCode::IN_PROGRESS`]) or dropped is stopped and destroyed before this returns.
    ///
    /// ```no_run
    /// # fn work(pe: &mut doca::Pe, running: impl Fn() -> bool) {
    /// let mut done = 0;
    /// while running() {
    ///     let others = pe.progress_each(|completion| done += u64::from(completion.result.is_ok()));
    ///     if others {
    ///         println!("after {done} tasks: {:?}", pe.poll());
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0502
    /// # fn work(pe: &mut doca::Pe) {
    /// pe.progress_each(|_completion| {
    ///     pe.poll();
    /// });
    /// # }
    /// ```
    // One call site per program.
    #[inline(always)]
    pub fn progress_each(&mut self, mut handler: impl FnMut(Completion)) -> bool {
        let inner = &*self.inner;
        let handler = Handler::new(&mut handler);
        inner.is_handling.set(true);
        // SAFETY: the closure lives for the duration of this call, which alone calls it: the engine is borrowed.
        let others = unsafe { inner.progress_with(handler) };
        inner.is_handling.set(false);
        if !inner.deferred.borrow().is_empty() {
            return inner.run_deferred();
        }
        others
    }

    /// Makes progress until `done` returns `true`, for at most `timeout`. Returns `false` on a timeout. Events stay
    /// queued for [`poll`](Self::poll).
    ///
    /// ```no_run
    /// # fn example(pe: &doca::Pe, consumer: &doca::Consumer) {
    /// use std::time::Duration;
    ///
    /// let running = pe.progress_until(Duration::from_secs(5), || consumer.state() == doca::CtxState::Running);
    /// assert!(running, "the consumer did not start within 5 s");
    /// # }
    /// ```
    pub fn progress_until(&self, timeout: Duration, done: impl FnMut() -> bool) -> bool {
        self.inner.progress_until(timeout, done)
    }

    /// Requests a notification: the [descriptor](AsFd) of the engine becomes readable at the next event. Returns
    /// `false`, without a request, if events are already queued for [`poll`](Self::poll), or completions of slots for
    /// [`WorkerPe::progress`](crate::WorkerPe::progress).
    ///
    /// For programs that wait for several sources with `epoll` or an async runtime ([`next_event`](Self::next_event)):
    /// arm, wait until the descriptor is readable, [`disarm`](Self::disarm), and poll until there are no more events.
    ///
    /// ```no_run
    /// # fn wait_readable(fd: std::os::fd::BorrowedFd<'_>) {}
    /// # fn example(pe: &doca::Pe) -> doca::Result<()> {
    /// use std::os::fd::AsFd;
    ///
    /// loop {
    ///     while let Some(event) = pe.poll() {
    ///         println!("{event:?}");
    ///     }
    ///     if pe.arm()? {
    ///         wait_readable(pe.as_fd());
    ///         pe.disarm()?;
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `doca_pe_request_notification`.
    pub fn arm(&self) -> Result<bool> {
        let queue = &self.inner.queue;
        if queue.has_undelivered() {
            return Ok(false);
        }
        // It may find events and call back.
        let mut asked = Ok(());
        queue.handlers.without(|| {
            // SAFETY: the engine is live and belongs to this thread; no borrow is held.
            asked = unsafe { call!(doca_pe_request_notification(self.inner.as_ptr())) };
        });
        asked?;
        if queue.has_undelivered() {
            self.disarm()?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Cancels [`arm`](Self::arm), after the descriptor was readable.
    ///
    /// # Errors
    ///
    /// Those of `doca_pe_clear_notification`.
    pub fn disarm(&self) -> Result<()> {
        let handle = self.as_fd().as_raw_fd();
        // SAFETY: the engine is live and belongs to this thread; the handle is its own.
        unsafe { call!(doca_pe_clear_notification(self.inner.as_ptr(), handle)) }
    }

    /// Waits for the next event with any async runtime: `readable` waits until the engine's [descriptor](AsFd) is
    /// readable.
    ///
    /// With tokio: `let fd = AsyncFd::with_interest(pe.as_fd(), Interest::READABLE)?`, and `async ||
    /// fd.readable().await.map(|mut guard| guard.clear_ready())`. With async-io: `let fd =
    /// Async::new_nonblocking(pe.as_fd())?`, and `async || fd.readable().await`.
    ///
    /// The future is cancel safe. Like the engine, it stays on its thread.
    ///
    /// # Errors
    ///
    /// The errors of [`arm`](Self::arm); [`ErrorCode::OPERATING_SYSTEM`] if `readable` fails; [`ErrorCode::AGAIN`] if there is
    /// no event, but completions of slots are queued for [`WorkerPe::progress`](crate::WorkerPe::progress).
    pub async fn next_event(
        &self,
        mut readable: impl AsyncFnMut() -> std::io::Result<()>,
    ) -> Result<Event> {
        loop {
            if let Some(event) = self.poll() {
                return Ok(event);
            }
            if self.inner.queue.has_deferred() {
                return Err(Error::with_detail(
                    "doca_pe_request_notification",
                    ErrorCode::AGAIN,
                    "completions of slots are queued for `WorkerPe::progress`",
                ));
            }
            if self.arm()? {
                readable().await.map_err(|error| {
                    Error::with_detail(
                        "doca_pe_get_notification_handle",
                        ErrorCode::OPERATING_SYSTEM,
                        error.to_string(),
                    )
                })?;
                self.disarm()?;
            }
        }
    }

    /// Sleeps until the engine has an event, `other` is readable, or `timeout` has passed; returns immediately if an
    /// event or a completion of a slot is queued. For loops that wait for more than completions: [`poll`](Self::poll)
    /// alone sleeps on the engine only.
    ///
    /// # Errors
    ///
    /// The errors of [`disarm`](Self::disarm).
    pub fn sleep_until_readable(&self, other: BorrowedFd<'_>, timeout: Duration) -> Result<()> {
        // A refused request means that there is something to do.
        if !matches!(self.arm(), Ok(true)) {
            return Ok(());
        }
        let mut fds = [
            PollFd::new(self, PollFlags::IN),
            PollFd::from_borrowed_fd(other, PollFlags::IN),
        ];
        let timeout = Timespec::try_from(timeout).ok();
        // A signal ends it early, which is not an error.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        self.disarm()
    }

    /// Statistics of progress calls so far.
    pub fn stats(&self) -> PeStats {
        PeStats {
            hits: self.inner.hits.get(),
            misses: self.inner.misses.get(),
        }
    }

    pub(crate) fn inner(&self) -> &Rc<PeInner> {
        &self.inner
    }
}

/// The descriptor that becomes readable at the next event after [`Pe::arm`]. For `epoll`; it must not be read.
impl AsFd for Pe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the engine's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.inner.notification) }
    }
}

impl PeInner {
    pub(crate) fn as_ptr(&self) -> *mut sys::doca_pe {
        self.pe.as_ptr()
    }

    pub(crate) fn queue(&self) -> &Rc<EventQueue> {
        &self.queue
    }

    /// Calls `doca_pe_progress`. Callbacks only fill the queue, so no code of the user runs.
    pub(crate) fn progress(&self) {
        self.queue.handlers.without(|| self.progress_now());
    }

    /// Calls `doca_pe_progress`. Callbacks fill the queue or call the handler of this call.
    #[inline(always)]
    fn progress_now(&self) {
        // SAFETY: the engine is live and belongs to this thread, as the type is not `Send`; no borrow is held.
        let worked = unsafe { sys::doca_pe_progress(self.as_ptr()) };
        let counter = if worked == 0 {
            &self.misses
        } else {
            &self.hits
        };
        counter.set(counter.get().wrapping_add(1));
    }

    /// Calls `doca_pe_progress`, with completions passed to `handler` after the queued ones. Returns `true` if other
    /// events are queued.
    ///
    /// # Safety
    ///
    /// The closure lives, and is not called elsewhere during the call.
    #[inline(always)]
    unsafe fn progress_with(&self, handler: Handler) -> bool {
        let queue = &*self.queue;
        // SAFETY: guaranteed by the caller.
        if !queue.is_empty() && unsafe { queue.hand_over(handler) } {
            return true;
        }
        // SAFETY: as above.
        unsafe { queue.handlers.during(handler, || self.progress_now()) };
        !queue.is_empty()
    }

    /// Calls `doca_pe_progress`, with completions of slots passed to `worker`, deferred ones first. Returns `true` if
    /// other events are queued, and makes no progress if they were before.
    ///
    /// # Safety
    ///
    /// The worker has the type that the engine was created with, and is not used elsewhere during the call; no other
    /// call is active.
    #[inline(always)]
    pub(crate) unsafe fn progress_for(&self, worker: NonNull<()>) -> bool {
        let queue = &*self.queue;
        if !queue.is_empty() {
            return true;
        }
        self.is_handling.set(true);
        if queue.has_deferred() {
            // SAFETY: guaranteed by the caller.
            unsafe { queue.hand_over_deferred(worker) };
        }
        if queue.is_empty() {
            queue.handlers.worker.set(Some(worker));
            self.progress_now();
            queue.handlers.worker.set(None);
        }
        self.is_handling.set(false);
        if !self.deferred.borrow().is_empty() {
            return self.run_deferred();
        }
        !queue.is_empty()
    }

    pub(crate) fn worker_type(&self) -> Option<TypeId> {
        self.worker_type
    }

    /// `true` if a closure of [`Pe::progress_each`] may be running: contexts must not be stopped or destroyed then.
    pub(crate) fn is_handling(&self) -> bool {
        self.is_handling.get()
    }

    /// Runs `action` when [`Pe::progress_each`] returns.
    pub(crate) fn defer(&self, action: Box<dyn FnOnce()>) {
        self.deferred.borrow_mut().push(action);
    }

    /// Runs the deferred actions. Returns `true` if events are queued.
    #[cold]
    fn run_deferred(&self) -> bool {
        let deferred = self.deferred.take();
        deferred.into_iter().for_each(|action| action());
        !self.queue.is_empty()
    }

    pub(crate) fn progress_until(&self, timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        while !done() {
            if start.elapsed() >= timeout {
                return false;
            }
            self.progress();
        }
        true
    }
}

impl std::fmt::Debug for PeInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeInner")
            .field("pe", &self.pe)
            .field("hits", &self.hits.get())
            .field("misses", &self.misses.get())
            .finish_non_exhaustive()
    }
}

impl Drop for PeInner {
    fn drop(&mut self) {
        // Breaks a reference cycle: queued completions hold task cells, which hold the queue.
        self.queue.clear();
        // SAFETY: every context of the engine holds a clone of the `Rc` until it is destroyed, so none is left.
        if let Err(error) = unsafe { call!(doca_pe_destroy(self.as_ptr())) } {
            tracing::warn!(%error, "failed to destroy a progress engine; leaking it");
        }
    }
}

/// An event returned by [`Pe::poll`](crate::Pe::poll).
#[derive(Debug)]
pub enum Event {
    /// A task has completed; it can be submitted again.
    Task(Completion),
    /// A context changed its state. Also delivered for contexts that were stopped since.
    State {
        /// The context, to compare with its handle's `id()`.
        context: ContextId,
        /// State before.
        previous: CtxState,
        /// State after.
        next: CtxState,
    },
    /// An event of a Comch control path.
    Comch(ComchEvent),
}

/// Result of [`Pe::poll_completion`](crate::Pe::poll_completion). Small enough for registers, which an [`Event`] is
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// A task has completed; it can be submitted again.
    Completion(Completion),
    /// Another event is at the head of the queue; [`Pe::poll`](crate::Pe::poll) must take it before later completions
    /// are returned.
    Other,
    /// No event.
    Nothing,
}

/// The completion of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token of the task.
    pub token: u64,
    /// Result. If the context was stopped in the meantime, the code with which DOCA flushes tasks.
    pub result: std::result::Result<(), ErrorCode>,
}

impl Completion {
    #[inline(always)]
    pub(crate) fn new(token: u64, code: ErrorCode) -> Self {
        Self {
            token,
            result: code.ok(),
        }
    }
}

/// A closure on the stack, type-erased.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handler {
    /// `extern "C"` like the C functions that call it: a panic must not unwind through them and aborts the process
    /// here.
    function: unsafe extern "C" fn(NonNull<()>, u64, ErrorCode),
    closure: NonNull<()>,
}

impl Handler {
    /// Erases the type of a closure, which the handler does not borrow.
    #[inline(always)]
    fn new<H: FnMut(Completion)>(closure: &mut H) -> Self {
        Self {
            function: call::<H>,
            closure: NonNull::from(closure).cast(),
        }
    }

    /// Calls the closure with a completion.
    ///
    /// # Safety
    ///
    /// The closure lives, and is not being called.
    #[inline(always)]
    pub(crate) unsafe fn call(self, token: u64, code: ErrorCode) {
        // SAFETY: the function belongs to the closure's type; the rest is guaranteed by the caller.
        unsafe { (self.function)(self.closure, token, code) };
    }
}

/// # Safety
///
/// The closure is of type `H`, lives, and is not being called.
unsafe extern "C" fn call<H: FnMut(Completion)>(closure: NonNull<()>, token: u64, code: ErrorCode) {
    // SAFETY: guaranteed by the caller.
    let closure = unsafe { closure.cast::<H>().as_mut() };
    closure(Completion::new(token, code));
}

/// The closure of the innermost active progress call, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    current: Cell<Option<Handler>>,
    /// The worker of the active call of [`WorkerPe::progress`](crate::WorkerPe::progress).
    worker: Cell<Option<NonNull<()>>>,
}

impl Handlers {
    #[inline(always)]
    fn current(&self) -> Option<Handler> {
        self.current.get()
    }

    /// Removes the handler for the rest of the active progress call.
    fn end(&self) {
        self.current.set(None);
        self.worker.set(None);
    }

    /// Calls `progress` with completions passed to `handler`. Nested progress calls have another closure or none, so no
    /// closure is called recursively.
    ///
    /// # Safety
    ///
    /// The closure lives as long as `progress` takes, and is not used elsewhere.
    #[inline(always)]
    unsafe fn during(&self, handler: Handler, progress: impl FnOnce()) {
        let outer = self.current.replace(Some(handler));
        progress();
        self.current.set(outer);
    }

    /// Calls `progress` with completions queued.
    #[inline(always)]
    fn without(&self, progress: impl FnOnce()) {
        let outer = self.current.replace(None);
        progress();
        self.current.set(outer);
    }
}
