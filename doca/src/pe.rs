//! Progress engines: what turns callbacks into values.

mod queue;

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::time::{Duration, Instant};

use doca_sys as sys;
pub(crate) use queue::EventQueue;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::device::non_null;
use crate::error::call;
use crate::{ComchEvent, ContextId, CtxState, Error, ErrorCode, Result};

/// A progress engine of one thread: contexts are started on it, and [`poll`](Self::poll) tells what happened.
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

/// How often [`Pe::poll`] found work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeStats {
    /// Calls of `doca_pe_progress` that did something.
    pub hits: u64,
    /// Calls of `doca_pe_progress` that found nothing to do.
    pub misses: u64,
}

/// What contexts share of a progress engine.
pub(crate) struct PeInner {
    pe: NonNull<sys::doca_pe>,
    notification: RawFd,
    queue: Rc<EventQueue>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    /// A closure of [`Pe::progress_each`] may be running.
    is_handling: Cell<bool>,
    /// What closures have let go that can only be destroyed outside of them.
    deferred: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Pe {
    /// Makes a progress engine.
    ///
    /// # Errors
    ///
    /// Whatever `doca_pe_create` returns.
    pub fn new() -> Result<Self> {
        let mut pe = ptr::null_mut();
        // SAFETY: the result has a place.
        unsafe { call!(doca_pe_create(&mut pe)) }?;
        let pe = non_null("doca_pe_create", pe)?;
        let mut notification = -1;
        // SAFETY: the engine was just created, the result has a place.
        let told = unsafe {
            call!(doca_pe_get_notification_handle(
                pe.as_ptr(),
                &mut notification
            ))
        };
        if let Err(error) = told {
            // SAFETY: known to nobody, and without contexts.
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
            deferred: RefCell::default(),
        };
        Ok(Self {
            inner: Rc::new(inner),
        })
    }

    /// The next event; makes progress only when none is waiting. `None`: nothing happened.
    ///
    /// It may wait a little when there is nothing to do, so it can be called in a loop without burning a core that the peer needs.
    /// It does not allocate, except for [`Event::Comch`].
    #[inline]
    pub fn poll(&self) -> Option<Event> {
        match self.poll_completion() {
            Polled::Completion(completion) => Some(Event::Task(completion)),
            Polled::Other => self.inner.queue.pop_other(),
            Polled::Nothing => None,
        }
    }

    /// As [`poll`](Self::poll), for loops that have to be fast: tasks end often, anything else is rare, and is left where it is.
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
    // Called from one loop of each program.
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

    /// Makes progress once. `handler` is called for every completion, inside of the progress, which saves the way through a queue:
    /// for loops that have to be as fast as a C program's callbacks. Returns `true` when other events wait for [`poll`](Self::poll), which has
    /// to be called then, before this is called again.
    ///
    /// Completions that are left from before come first. Those that come after another event are left, so that everything is
    /// handled in its order. A `handler` that panics ends the process, as there are C functions below it.
    ///
    /// Inside of `handler`, tasks can be submitted and dropped. As the C API asks, it cannot make progress on this engine, which is borrowed,
    /// nor stop its contexts: a context that is stopped there (its `stop` answers [`ErrorCode::IN_PROGRESS`]) or dropped is stopped and
    /// destroyed before this returns.
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
    // Called from one loop of each program.
    #[inline(always)]
    pub fn progress_each(&mut self, mut handler: impl FnMut(Completion)) -> bool {
        let inner = &*self.inner;
        let handler = Handler::new(&mut handler);
        inner.is_handling.set(true);
        // SAFETY: the closure lives as long as this call, and is called by it only: the engine is borrowed.
        let others = unsafe { inner.progress_with(handler) };
        inner.is_handling.set(false);
        if !inner.deferred.borrow().is_empty() {
            return inner.run_deferred();
        }
        others
    }

    /// Makes progress until `done` or for at most `timeout`, and returns whether it was done. Events stay for [`poll`](Self::poll).
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

    /// Asks for a notification: the [descriptor](AsFd) of the engine becomes readable with the next event. Returns `false` when events
    /// wait already, and nothing was asked for: [`poll`](Self::poll) comes first.
    ///
    /// For programs that wait for several things, with `epoll` or an async runtime ([`next_event`](Self::next_event)): ask, wait until the
    /// descriptor is readable, [`disarm`](Self::disarm), and poll until there is nothing.
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
    /// Whatever `doca_pe_request_notification` returns.
    pub fn arm(&self) -> Result<bool> {
        let queue = &self.inner.queue;
        if !queue.is_empty() {
            return Ok(false);
        }
        // It may find events, and call back.
        let mut asked = Ok(());
        queue.handlers.without(|| {
            // SAFETY: the engine is live and belongs to this thread; no borrow is held.
            asked = unsafe { call!(doca_pe_request_notification(self.inner.as_ptr())) };
        });
        asked?;
        if queue.is_empty() {
            return Ok(true);
        }
        self.disarm()?;
        Ok(false)
    }

    /// Takes back [`arm`](Self::arm), after the descriptor was readable.
    ///
    /// # Errors
    ///
    /// Whatever `doca_pe_clear_notification` returns.
    pub fn disarm(&self) -> Result<()> {
        let handle = self.as_fd().as_raw_fd();
        // SAFETY: the engine is live and belongs to this thread; the handle is its own.
        unsafe { call!(doca_pe_clear_notification(self.inner.as_ptr(), handle)) }
    }

    /// The next event, for an async runtime of any kind: `readable` waits until the engine's [descriptor](AsFd) can be read.
    ///
    /// With tokio: `let fd = AsyncFd::with_interest(pe.as_fd(), Interest::READABLE)?`, and `async || fd.readable().await.map(|mut
    /// guard| guard.clear_ready())`. With async-io: `let fd = Async::new_nonblocking(pe.as_fd())?`, and `async || fd.readable().await`.
    ///
    /// It can be dropped at any time; no event is lost then. As the engine, it stays on its thread.
    ///
    /// # Errors
    ///
    /// Those of [`arm`](Self::arm); [`ErrorCode::OPERATING_SYSTEM`] when `readable` fails.
    pub async fn next_event(
        &self,
        mut readable: impl AsyncFnMut() -> std::io::Result<()>,
    ) -> Result<Event> {
        loop {
            if let Some(event) = self.poll() {
                return Ok(event);
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

    /// Sleeps until the engine has something to do, `other` can be read, or `timeout` has passed; not at all when the engine has something
    /// to do already. For loops that wait for more than completions: [`poll`](Self::poll) alone sleeps on the engine only.
    ///
    /// # Errors
    ///
    /// The engine has no notifications.
    pub fn sleep_until_readable(&self, other: BorrowedFd<'_>, timeout: Duration) -> Result<()> {
        if !self.inner.queue.is_empty() {
            return Ok(());
        }
        let mut handle = sys::doca_event_handle_t::default();
        // SAFETY: the engine is live and belongs to this thread; the result has a place.
        unsafe {
            call!(doca_pe_get_notification_handle(
                self.inner.as_ptr(),
                &mut handle
            ))
        }?;
        // SAFETY: as above. It is refused when there is something to do.
        if unsafe { call!(doca_pe_request_notification(self.inner.as_ptr())) }.is_err() {
            return Ok(());
        }
        // SAFETY: the descriptor is the engine's, which outlives the call.
        let engine = unsafe { BorrowedFd::borrow_raw(handle) };
        let mut fds = [
            PollFd::from_borrowed_fd(engine, PollFlags::IN),
            PollFd::from_borrowed_fd(other, PollFlags::IN),
        ];
        let timeout = Timespec::try_from(timeout).ok();
        // A signal ends it early, which is no error.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        // SAFETY: the handle is that of this engine.
        unsafe { call!(doca_pe_clear_notification(self.inner.as_ptr(), handle)) }
    }

    /// How often progress found work so far.
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

/// What becomes readable with the next event, after [`Pe::arm`]. It can be given to `epoll`, and not be read from.
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

    /// One `doca_pe_progress`. Callbacks only queue, so nothing of the user's runs in here.
    pub(crate) fn progress(&self) {
        self.queue.handlers.without(|| self.progress_now());
    }

    /// One `doca_pe_progress`. Callbacks queue, or call the handler of this call.
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

    /// One `doca_pe_progress` whose completions go to `handler`, after those that wait. Returns `true` when other events wait.
    ///
    /// # Safety
    ///
    /// The closure lives, and is called by nothing else meanwhile.
    #[inline(always)]
    unsafe fn progress_with(&self, handler: Handler) -> bool {
        let queue = &*self.queue;
        // SAFETY: the caller's promise.
        if !queue.is_empty() && unsafe { queue.hand_over(handler) } {
            return true;
        }
        // SAFETY: as above.
        unsafe { queue.handlers.during(handler, || self.progress_now()) };
        !queue.is_empty()
    }

    /// Whether a closure of [`Pe::progress_each`] may be running: contexts are neither stopped nor destroyed then.
    pub(crate) fn is_handling(&self) -> bool {
        self.is_handling.get()
    }

    /// Has `action` done when [`Pe::progress_each`] returns.
    pub(crate) fn defer(&self, action: Box<dyn FnOnce()>) {
        self.deferred.borrow_mut().push(action);
    }

    /// Does what was deferred. Returns `true` when events wait.
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
        // Waiting completions hold task cells, and these the queue: a circle that would never be freed.
        self.queue.clear();
        // SAFETY: every context of the engine holds a clone of the `Rc` until it is destroyed, so none is left.
        if let Err(error) = unsafe { call!(doca_pe_destroy(self.as_ptr())) } {
            tracing::warn!(%error, "a progress engine stays");
        }
    }
}

/// What [`Pe::poll`](crate::Pe::poll) found.
#[derive(Debug)]
pub enum Event {
    /// A task is done; it can be submitted again.
    Task(Completion),
    /// A context changed its state. Events of contexts that were stopped since are still delivered.
    State {
        /// The context, to compare with its handle's `id()`.
        context: ContextId,
        /// State before.
        previous: CtxState,
        /// State after.
        next: CtxState,
    },
    /// Something happened on a Comch control path.
    Comch(ComchEvent),
}

/// What [`Pe::poll_completion`](crate::Pe::poll_completion) found. Small enough for registers, which an [`Event`] is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// A task is done; it can be submitted again.
    Completion(Completion),
    /// Something else has happened: [`Pe::poll`](crate::Pe::poll) gives it, and has to before anything that came after it.
    Other,
    /// Nothing.
    Nothing,
}

/// The end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token that the task was made with.
    pub token: u64,
    /// How it went. When the context was stopped meanwhile, the code that DOCA flushes tasks with.
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
    fn new<H: FnMut(Completion)>(closure: &mut H) -> Self {
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
    fn current(&self) -> Option<Handler> {
        self.current.get()
    }

    /// For the rest of the call of progress that is under way there is none.
    fn end(&self) {
        self.current.set(None);
    }

    /// Calls `progress`, in which `handler` gets the ends of tasks. Progress that is made inside of its closure has another closure, or
    /// none: so no closure is called while it is being called.
    ///
    /// # Safety
    ///
    /// The closure lives as long as `progress` takes, and is used by nobody else.
    #[inline(always)]
    unsafe fn during(&self, handler: Handler, progress: impl FnOnce()) {
        let outer = self.current.replace(Some(handler));
        progress();
        self.current.set(outer);
    }

    /// Calls `progress`, in which the ends of tasks go into the queue.
    #[inline(always)]
    fn without(&self, progress: impl FnOnce()) {
        let outer = self.current.replace(None);
        progress();
        self.current.set(outer);
    }
}
