//! Tasks, and the queue from which their completions and other events are polled.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::rc::{Rc, Weak};

use doca_sys as sys;

use crate::error::non_null;
use crate::{Buf, Completion, ErrorCode, Event, Result};

/// A task: created once, submitted as often as needed, one submission at a time.
///
/// It keeps its bufs alive. Its context owns the C object: after the context is stopped, the task can only be dropped.
/// A task that is dropped in flight still completes, and its [`Event`](crate::Event) is delivered, before its object is
/// freed.
#[derive(Debug)]
pub struct Task {
    cell: Rc<TaskCell>,
}

impl Task {
    /// Submits the task to the device; its [`Completion`](crate::Completion) is returned by
    /// [`Pe::poll`](crate::Pe::poll).
    ///
    /// # Errors
    ///
    /// * [`ErrorCode::AGAIN`]: not possible now, e.g. because the peer has no buffer posted; submit it again later.
    /// * [`ErrorCode::IN_USE`]: the task was submitted, and its completion has not been reaped yet.
    /// * [`ErrorCode::BAD_STATE`]: the context is not running or was destroyed.
    pub fn submit(&self) -> std::result::Result<(), ErrorCode> {
        self.cell.submit()
    }

    /// The token of the task's completions.
    pub fn token(&self) -> u64 {
        self.cell.token
    }

    /// `true` if the task was submitted, and its completion has not been reaped yet.
    pub fn is_in_flight(&self) -> bool {
        self.cell.is_in_flight()
    }

    /// `true` if the C object exists, is not in flight, and its last run was successful.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.cell.phase.get() == Phase::Idle && self.cell.code.get() == ErrorCode::SUCCESS
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.cell.has_handle.set(false);
        self.cell.free_if_unused();
    }
}

/// State of a task, by its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Owned by the user.
    Idle,
    /// The C object was freed.
    Freed,
    /// Owned by DOCA.
    Submitted,
    /// In the queue: completed, not yet reaped.
    Completed,
}

/// Target of a task's user data, for the completion callback.
#[derive(Debug)]
pub(crate) struct TaskCell {
    /// Null after it was freed: the phase is `Freed` then, or will be when the completion is reaped.
    task: Cell<*mut sys::doca_task>,
    bufs: [Option<Buf>; 2],
    queue: Rc<EventQueue>,
    token: u64,
    phase: Cell<Phase>,
    /// Result of the last completed run; an error before the first.
    code: Cell<ErrorCode>,
    has_handle: Cell<bool>,
    slot: Cell<usize>,
    table: Weak<TaskTable>,
    /// Other resources of the task.
    _keep: Option<Rc<dyn Any>>,
}

impl TaskCell {
    fn submit(&self) -> std::result::Result<(), ErrorCode> {
        match self.phase.get() {
            Phase::Idle => {}
            Phase::Freed => return Err(ErrorCode::BAD_STATE),
            Phase::Submitted | Phase::Completed => return Err(ErrorCode::IN_USE),
        }
        self.phase.set(Phase::Submitted);
        self.bufs.iter().flatten().for_each(Buf::submitted);
        // SAFETY: the task is allocated (it is idle and not freed), not in flight, and its bufs are live; the context's
        // progress engine belongs to this thread, as neither it nor the task is `Send`.
        let result = ErrorCode(unsafe { sys::doca_task_submit(self.task.get()) }).ok();
        if result.is_err() {
            self.phase.set(Phase::Idle);
            self.bufs.iter().flatten().for_each(Buf::reaped);
        }
        result
    }

    /// `true` if the task was submitted, and its completion has not been reaped yet.
    fn is_in_flight(&self) -> bool {
        matches!(self.phase.get(), Phase::Submitted | Phase::Completed)
    }

    /// Returns a completed task to the user.
    pub(crate) fn reap(&self) -> Completion {
        let is_freed = self.task.get().is_null();
        self.phase
            .set(if is_freed { Phase::Freed } else { Phase::Idle });
        self.bufs.iter().flatten().for_each(Buf::reaped);
        self.free_if_unused();
        Completion {
            token: self.token,
            result: self.code.get().ok(),
        }
    }

    /// Frees a task that is owned by neither the user nor DOCA nor the queue.
    fn free_if_unused(&self) {
        if !self.has_handle.get()
            && self.phase.get() == Phase::Idle
            && let Some(table) = self.table.upgrade()
            && table.holds(self)
        {
            table.free(self.slot.get());
        }
    }

    /// Frees the C object unless it is in flight.
    fn free_object(&self) -> bool {
        if self.phase.get() == Phase::Submitted {
            return false;
        }
        let task = self.task.replace(ptr::null_mut());
        if self.phase.get() == Phase::Idle {
            self.phase.set(Phase::Freed);
        }
        if !task.is_null() {
            // SAFETY: allocated by the context, which is live while its table frees tasks, and not in flight.
            unsafe { sys::doca_task_free(task) };
        }
        true
    }
}

impl Drop for TaskCell {
    fn drop(&mut self) {
        // The completion has not been reaped.
        if self.is_in_flight() {
            self.bufs.iter().flatten().for_each(Buf::reaped);
        }
    }
}

/// The allocated tasks of a context. It holds every cell as long as DOCA has a pointer to it.
#[derive(Debug)]
pub(crate) struct TaskTable {
    slots: RefCell<Vec<Option<Rc<TaskCell>>>>,
    vacant: RefCell<Vec<usize>>,
}

impl TaskTable {
    pub(crate) fn with_capacity(max_tasks: usize) -> Rc<Self> {
        Rc::new(Self {
            slots: RefCell::new(Vec::with_capacity(max_tasks)),
            vacant: RefCell::new(Vec::with_capacity(max_tasks)),
        })
    }

    /// Wraps a task allocated by a C function.
    ///
    /// # Safety
    ///
    /// `task` was just allocated from the context of this table with these bufs, and its completion callbacks are
    /// [`completion_callbacks`].
    pub(crate) unsafe fn adopt(
        self: &Rc<Self>,
        operation: &'static str,
        task: *mut sys::doca_task,
        queue: &Rc<EventQueue>,
        bufs: [Option<&Buf>; 2],
        keep: Option<Rc<dyn Any>>,
        token: u64,
    ) -> Result<Task> {
        let task: NonNull<sys::doca_task> = non_null(operation, task)?;
        let cell = Rc::new(TaskCell {
            task: Cell::new(task.as_ptr()),
            token,
            phase: Cell::new(Phase::Idle),
            code: Cell::new(ErrorCode::UNKNOWN),
            has_handle: Cell::new(true),
            bufs: bufs.map(|buf| buf.cloned()),
            _keep: keep,
            queue: Rc::clone(queue),
            table: Rc::downgrade(self),
            slot: Cell::new(0),
        });
        let user_data = sys::doca_data {
            ptr: Rc::as_ptr(&cell).cast_mut().cast(),
        };
        // SAFETY: the task is live. The table holds the cell as long as the task is allocated.
        unsafe { sys::doca_task_set_user_data(task.as_ptr(), user_data) };
        cell.slot.set(self.insert(Rc::clone(&cell)));
        Ok(Task { cell })
    }

    fn insert(&self, cell: Rc<TaskCell>) -> usize {
        let mut slots = self.slots.borrow_mut();
        match self.vacant.borrow_mut().pop() {
            Some(slot) => {
                slots[slot] = Some(cell);
                slot
            }
            None => {
                slots.push(Some(cell));
                slots.len() - 1
            }
        }
    }

    /// `true` if the table contains this cell: its entry may have been reused.
    fn holds(&self, cell: &TaskCell) -> bool {
        let slots = self.slots.borrow();
        let there = slots.get(cell.slot.get()).and_then(Option::as_ref);
        there.is_some_and(|there| std::ptr::eq(&raw const **there, cell))
    }

    fn free(&self, slot: usize) {
        let cell = self.slots.borrow_mut().get_mut(slot).and_then(Option::take);
        let Some(cell) = cell else { return };
        if cell.free_object() {
            self.vacant.borrow_mut().push(slot);
        } else {
            self.slots.borrow_mut()[slot] = Some(cell);
        }
    }

    /// Frees all tasks that are not in flight; their handles return [`ErrorCode::BAD_STATE`] from then on.
    pub(crate) fn free_idle(&self) {
        let count = self.slots.borrow().len();
        (0..count).for_each(|slot| self.free(slot));
    }
}

/// Placeholder for a task's user data until `adopt` sets it.
pub(crate) const NO_DATA: sys::doca_data = sys::doca_data { u64: 0 };

/// The success and the error callback for tasks of type `T`.
pub(crate) type CompletionCallback<T> =
    unsafe extern "C" fn(*mut T, sys::doca_data, sys::doca_data);

/// The callbacks that queue the completions of tasks of type `T`.
pub(crate) fn completion_callbacks<T>()
-> (Option<CompletionCallback<T>>, Option<CompletionCallback<T>>) {
    (Some(completed::<T>), Some(failed::<T>))
}

unsafe extern "C" fn completed<T>(
    _task: *mut T,
    task_user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA passes the user data that `adopt` set.
    unsafe { complete(task_user_data, |_| ErrorCode::SUCCESS) };
}

unsafe extern "C" fn failed<T>(
    _task: *mut T,
    task_user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA passes the user data that `adopt` set.
    unsafe {
        complete(task_user_data, |cell| {
            // SAFETY: the task is live: it just completed.
            match ErrorCode(sys::doca_task_get_status(cell.task.get())) {
                // The error callback must not report success.
                ErrorCode::SUCCESS => ErrorCode::UNKNOWN,
                code => code,
            }
        });
    }
}

/// Queues a completion.
///
/// # Safety
///
/// The user data is that of an allocated task of this crate that has completed; DOCA does not use it any more.
unsafe fn complete(user_data: sys::doca_data, code: impl FnOnce(&TaskCell) -> ErrorCode) {
    // SAFETY: `adopt` set this member to the address of a cell before the task could be submitted. The table has a
    // reference to the cell while the task is allocated; this is another one.
    let cell = unsafe {
        let pointer = user_data.ptr.cast::<TaskCell>();
        Rc::increment_strong_count(pointer);
        Rc::from_raw(pointer)
    };
    cell.code.set(code(&cell));
    cell.phase.set(Phase::Completed);
    let queue = Rc::clone(&cell.queue);
    queue.push_task(cell);
}

/// Queue of events from callbacks for [`Pe::poll`](crate::Pe::poll), and of completed slots without a worker.
///
/// Changed only by the methods below, which call no other code, so a callback never finds it in an inconsistent state.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    /// The worker of the active call of [`WorkerPe::progress`](crate::WorkerPe::progress).
    worker: Cell<Option<NonNull<()>>>,
    events: Reserved<Queued>,
    /// Completions of slots that were reported without a worker or after another event.
    deferred: Reserved<DeferredCompletion>,
}

/// An event, or a task whose completion is an event.
#[derive(Debug)]
enum Queued {
    Task(Rc<TaskCell>),
    Event(Event),
}

/// A completed slot that waits for its handler.
#[derive(Debug)]
pub(crate) struct DeferredCompletion {
    pub(crate) slot: NonNull<()>,
    pub(crate) code: ErrorCode,
    /// Passes the slot to its handler, or drops it without a worker. `extern "C"`: a panic of the handler aborts the
    /// process, as it does in callbacks.
    pub(crate) hand_over: unsafe extern "C" fn(NonNull<()>, Option<NonNull<()>>, ErrorCode),
}

/// A queue with space for the reserved number of entries.
#[derive(Debug)]
struct Reserved<T> {
    entries: RefCell<VecDeque<T>>,
    reserved: Cell<usize>,
}

impl<T> Default for Reserved<T> {
    fn default() -> Self {
        Self {
            entries: RefCell::default(),
            reserved: Cell::new(0),
        }
    }
}

impl<T> Reserved<T> {
    /// Reserves space for `count` more entries.
    fn add(&self, count: usize) {
        let reserved = self.reserved.get().saturating_add(count);
        self.reserved.set(reserved);
        let mut entries = self.entries.borrow_mut();
        let more = reserved.saturating_sub(entries.len());
        entries.reserve(more);
    }

    /// Ends the reservation of `count` entries.
    fn remove(&self, count: usize) {
        self.reserved.set(self.reserved.get().saturating_sub(count));
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    fn push(&self, entry: T) {
        self.entries.borrow_mut().push_back(entry);
    }

    fn pop(&self) -> Option<T> {
        self.entries.borrow_mut().pop_front()
    }
}

impl EventQueue {
    /// The worker of the active progress call; `None`: completions of slots are deferred.
    #[inline(always)]
    pub(crate) fn worker(&self) -> Option<NonNull<()>> {
        self.worker.get()
    }

    /// Calls `progress` with this worker.
    #[inline(always)]
    pub(crate) fn with_worker(&self, worker: Option<NonNull<()>>, progress: impl FnOnce()) {
        let outer = self.worker.replace(worker);
        progress();
        self.worker.set(outer);
    }

    /// Reserves space for the completions of `count` more slots.
    pub(crate) fn add_slots(&self, count: usize) {
        self.deferred.add(count);
    }

    /// Ends the reservation for `count` slots.
    pub(crate) fn remove_slots(&self, count: usize) {
        self.deferred.remove(count);
    }

    /// Reserves space for `count` more events: those of a context, and the completions of its tasks.
    pub(crate) fn add_events(&self, count: usize) {
        self.events.add(count);
    }

    /// Ends the reservation for `count` events.
    pub(crate) fn remove_events(&self, count: usize) {
        self.events.remove(count);
    }

    /// Stores a completed slot until [`hand_over_deferred`](Self::hand_over_deferred).
    #[cold]
    pub(crate) fn defer(&self, completion: DeferredCompletion) {
        self.deferred.push(completion);
    }

    #[inline(always)]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// `true` if an event or a completed slot is queued: the thread must not sleep.
    pub(crate) fn has_undelivered(&self) -> bool {
        !self.is_empty() || self.has_deferred()
    }

    /// Passes deferred slots to `worker` until a handler causes another event, which must be taken before the remaining
    /// ones.
    ///
    /// # Safety
    ///
    /// The worker has the type that the handlers expect, and is not used meanwhile.
    #[cold]
    pub(crate) unsafe fn hand_over_deferred(&self, worker: NonNull<()>) {
        while self.is_empty()
            && let Some(next) = self.deferred.pop()
        {
            // SAFETY: it was taken from the list; the worker is as guaranteed by the caller.
            unsafe { (next.hand_over)(next.slot, Some(worker), next.code) };
        }
    }

    /// Queues the completion of a task.
    pub(crate) fn push_task(&self, task: Rc<TaskCell>) {
        self.events.push(Queued::Task(task));
    }

    /// Queues another event, which is rare. Later completions of this progress call are queued as well, to keep the
    /// order.
    pub(crate) fn push(&self, event: Event) {
        self.worker.set(None);
        self.events.push(Queued::Event(event));
    }

    /// `true` if all events have been taken.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes the next event; taking a task's completion returns the task to the user.
    pub(crate) fn pop(&self) -> Option<Event> {
        Some(match self.events.pop()? {
            Queued::Task(task) => Event::Task(task.reap()),
            Queued::Event(event) => event,
        })
    }

    /// Drops all entries.
    pub(crate) fn clear(&self) {
        // Outside the borrow: events hold connections, and tasks their bufs.
        drop(self.events.entries.take());
        while let Some(next) = self.deferred.pop() {
            // SAFETY: it was taken from the list.
            unsafe { (next.hand_over)(next.slot, None, next.code) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContextId, CtxState};

    fn state(number: u64) -> Event {
        Event::State {
            context: ContextId::for_tests(number),
            previous: CtxState::Idle,
            next: CtxState::Running,
        }
    }

    #[test]
    fn events_come_out_in_order() {
        let queue = EventQueue::default();
        assert!(queue.pop().is_none());
        (0..3).for_each(|number| queue.push(state(number)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|event| match event {
                Event::State { context, .. } => context,
                event => panic!("unexpected {event:?}"),
            })
            .collect();
        assert_eq!(order, [0, 1, 2].map(ContextId::for_tests));
    }

    #[test]
    fn a_worker_gets_nothing_after_another_event_and_nothing_inside_of_progress_without_it() {
        let queue = EventQueue::default();
        let worker = Some(NonNull::dangling());
        queue.with_worker(worker, || {
            assert_eq!(queue.worker(), worker);
            queue.with_worker(None, || assert_eq!(queue.worker(), None));
            assert_eq!(queue.worker(), worker);
            queue.push(state(0));
            assert_eq!(queue.worker(), None);
        });
        assert_eq!(queue.worker(), None);
    }

    #[test]
    fn reserved_space_adds_up_and_is_released() {
        let queue = Reserved::default();
        let capacity = || queue.entries.borrow().capacity();
        queue.add(10);
        queue.add(20);
        let reserved = capacity();
        assert!(reserved >= 30);
        // At most 30 entries at a time, some of which are taken in between.
        (0..30).for_each(|number| queue.push(number));
        for number in 30..200 {
            assert_eq!(queue.pop(), Some(number - 30));
            queue.push(number);
        }
        // Contexts and slots that are replaced.
        for _ in 0..1000 {
            queue.remove(20);
            queue.add(20);
        }
        assert_eq!(capacity(), reserved);
        queue.add(reserved);
        assert!(capacity() >= 30 + reserved);
    }
}
