use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::context::TaskCell;
use crate::{ErrorCode, Event};

/// Queue of events from callbacks for [`Pe::poll`](crate::Pe::poll), and of completed slots without a worker.
///
/// Changed only by the methods below, none of which calls out: a callback never finds it half changed.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    /// The worker of the active call of [`WorkerPe::progress`](crate::WorkerPe::progress).
    worker: Cell<Option<NonNull<()>>>,
    events: Reserved<Queued>,
    /// Completions of slots that came without a worker or behind another event.
    deferred: Reserved<DeferredCompletion>,
}

/// An event, or the task whose completion is one.
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

/// A queue with space for as many entries as were reserved.
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
    pub(super) fn with_worker(&self, worker: Option<NonNull<()>>, progress: impl FnOnce()) {
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

    /// Keeps a completed slot until [`hand_over_deferred`](Self::hand_over_deferred).
    #[cold]
    pub(crate) fn defer(&self, completion: DeferredCompletion) {
        self.deferred.push(completion);
    }

    #[inline(always)]
    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// `true` if an event or a completed slot is queued: the thread must not sleep.
    pub(super) fn has_undelivered(&self) -> bool {
        !self.is_empty() || self.has_deferred()
    }

    /// Passes deferred slots to `worker` until one causes another event, which comes before the rest.
    ///
    /// # Safety
    ///
    /// The worker has the type that the handlers expect, and is not used meanwhile.
    #[cold]
    pub(super) unsafe fn hand_over_deferred(&self, worker: NonNull<()>) {
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

    /// `true` if all events were taken.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes the next event; that of a task returns the task to the user.
    pub(crate) fn pop(&self) -> Option<Event> {
        Some(match self.events.pop()? {
            Queued::Task(task) => Event::Task(task.reap()),
            Queued::Event(event) => event,
        })
    }

    /// Drops what is queued.
    pub(super) fn clear(&self) {
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
        // At most 30 at a time, some of which are taken in between.
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
