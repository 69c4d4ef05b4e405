//! Progress engines, which turn callbacks into values.

use std::any::TypeId;
use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::time::{Duration, Instant};

use doca_sys as sys;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::error::{call, non_null};
use crate::task::EventQueue;
use crate::{Event, Result};

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
    /// Requested only when it is needed: once the program has the descriptor, softdoca's progress calls do not sleep.
    notification: OnceCell<RawFd>,
    queue: Rc<EventQueue>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    /// `true` while a handler of [`WorkerPe::progress`](crate::WorkerPe::progress) may be running.
    is_handling: Cell<bool>,
    /// Type of the workers of [`WorkerPe`](crate::WorkerPe).
    worker_type: Option<TypeId>,
    /// Destructions requested by handlers, which are deferred until the handlers have returned.
    deferred: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Pe {
    /// Creates a progress engine.
    ///
    /// # Errors
    ///
    /// The errors of `doca_pe_create`.
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
        let inner = PeInner {
            pe,
            notification: OnceCell::new(),
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
    /// If there is no work, this may sleep briefly, so that calling it in a loop does not starve the peer of CPU time.
    /// It does not allocate, except for [`Event::Comch`].
    pub fn poll(&self) -> Option<Event> {
        let queue = &self.inner.queue;
        queue.pop().or_else(|| {
            self.inner.progress();
            queue.pop()
        })
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
    /// For programs that wait for several sources with `epoll` or an async runtime: arm, wait until the descriptor is
    /// readable, [`disarm`](Self::disarm), and poll until there are no more events.
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
    /// The errors of `doca_pe_request_notification`.
    pub fn arm(&self) -> Result<bool> {
        let queue = &self.inner.queue;
        if queue.has_undelivered() {
            return Ok(false);
        }
        // The call may process events and invoke callbacks.
        let mut asked = Ok(());
        queue.with_worker(None, || {
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
    /// The errors of `doca_pe_clear_notification`.
    pub fn disarm(&self) -> Result<()> {
        let handle = self.as_fd().as_raw_fd();
        // SAFETY: the engine is live and belongs to this thread; the handle is its own.
        unsafe { call!(doca_pe_clear_notification(self.inner.as_ptr(), handle)) }
    }

    /// Sleeps until the engine has an event, `other` is readable, or `timeout` has passed; returns immediately if an
    /// event or a completion of a slot is queued. For loops that wait for other descriptors, too: [`poll`](Self::poll)
    /// sleeps only until an event of the engine.
    ///
    /// # Errors
    ///
    /// The errors of [`disarm`](Self::disarm).
    pub fn sleep_until_readable(&self, other: BorrowedFd<'_>, timeout: Duration) -> Result<()> {
        // A refused request means that there are events to process.
        if !matches!(self.arm(), Ok(true)) {
            return Ok(());
        }
        let mut fds = [
            PollFd::new(self, PollFlags::IN),
            PollFd::from_borrowed_fd(other, PollFlags::IN),
        ];
        let timeout = Timespec::try_from(timeout).ok();
        // A signal ends the wait early, which is not an error.
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

/// The descriptor that becomes readable at the next event after [`Pe::arm`]. It is for `epoll`, and must not be read.
/// With softdoca, [`Pe::poll`] does not sleep once the program has requested it.
///
/// # Panics
///
/// If DOCA returns an error, which is not expected for a live engine.
impl AsFd for Pe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the engine's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.inner.notification()) }
    }
}

impl PeInner {
    pub(crate) fn as_ptr(&self) -> *mut sys::doca_pe {
        self.pe.as_ptr()
    }

    pub(crate) fn queue(&self) -> &Rc<EventQueue> {
        &self.queue
    }

    fn notification(&self) -> RawFd {
        *self.notification.get_or_init(|| {
            let mut handle = -1;
            // SAFETY: the engine is live, the out-parameter is valid.
            unsafe { call!(doca_pe_get_notification_handle(self.as_ptr(), &mut handle)) }
                .expect("an engine has a notification handle");
            handle
        })
    }

    /// Calls `doca_pe_progress`. Callbacks only fill the queue, so no code of the user runs.
    pub(crate) fn progress(&self) {
        self.queue.with_worker(None, || self.progress_now());
    }

    /// Calls `doca_pe_progress`. Callbacks fill the queue or call handlers of slots.
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

    /// Calls `doca_pe_progress`, with completions of slots passed to `worker`, deferred ones first. Returns `true` if
    /// other events are queued, and makes no progress if they were already queued.
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
            queue.with_worker(Some(worker), || self.progress_now());
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

    /// `true` if a handler may be running: contexts must not be stopped or destroyed then.
    pub(crate) fn is_handling(&self) -> bool {
        self.is_handling.get()
    }

    /// Runs `action` when [`WorkerPe::progress`](crate::WorkerPe::progress) returns.
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
        // Breaks a reference cycle: queued completions hold tasks, which hold the queue.
        self.queue.clear();
        // SAFETY: every context of the engine holds a clone of the `Rc` until it is destroyed, so none is left.
        if let Err(error) = unsafe { call!(doca_pe_destroy(self.as_ptr())) } {
            tracing::warn!(%error, "failed to destroy a progress engine; leaking it");
        }
    }
}
