use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use super::{Handler, Handlers};
use crate::context::TaskCell;
use crate::{Completion, ErrorCode, Event, Polled};

/// Queue of events from callbacks for [`Pe::poll`](crate::Pe::poll).
///
/// Changed only by the methods below, none of which calls out: a callback never finds it half changed.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    /// Receiver of completions instead of the queue.
    pub(super) handlers: Handlers,
    entries: Entries,
    /// The events behind the entries without a task, in order. They are rare.
    others: RefCell<VecDeque<Event>>,
    /// Number of entries that fit without an allocation.
    reserved: Cell<usize>,
    /// Completions of slots that came without a worker or behind another event.
    deferred: RefCell<VecDeque<DeferredCompletion>>,
    /// Number of slots, each of which can be deferred once.
    slots: Cell<usize>,
    /// Cells without other owners, kept until the queue is empty because entries may point to them.
    kept: RefCell<Vec<Rc<TaskCell>>>,
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

impl EventQueue {
    /// The worker of the active progress call; `None`: completions of slots are deferred.
    #[inline(always)]
    pub(crate) fn worker(&self) -> Option<NonNull<()>> {
        self.handlers.worker.get()
    }

    /// Reserves space for the completions of `count` more slots.
    pub(crate) fn add_slots(&self, count: usize) {
        let slots = self.slots.get().saturating_add(count);
        self.slots.set(slots);
        let mut deferred = self.deferred.borrow_mut();
        let more = slots.saturating_sub(deferred.len());
        deferred.reserve(more);
    }

    /// Ends the reservation for `count` slots.
    pub(crate) fn remove_slots(&self, count: usize) {
        self.slots.set(self.slots.get().saturating_sub(count));
    }

    /// Keeps a completed slot until [`hand_over_deferred`](Self::hand_over_deferred).
    #[cold]
    pub(crate) fn defer(&self, completion: DeferredCompletion) {
        self.deferred.borrow_mut().push_back(completion);
    }

    #[inline(always)]
    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.borrow().is_empty()
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
        while self.is_empty() {
            let Some(next) = self.deferred.borrow_mut().pop_front() else {
                break;
            };
            // SAFETY: it was taken from the list; the worker is as guaranteed by the caller.
            unsafe { (next.hand_over)(next.slot, Some(worker), next.code) };
        }
    }

    /// Drops the deferred slots.
    fn drop_deferred(&self) {
        while let Some(next) = { self.deferred.borrow_mut().pop_front() } {
            // SAFETY: it was taken from the list.
            unsafe { (next.hand_over)(next.slot, None, next.code) };
        }
    }

    /// Reserves `count` more entries: for the tasks of a context, each of which has one at most.
    pub(crate) fn reserve(&self, count: usize) {
        let reserved = self.reserved.get().saturating_add(count);
        self.reserved.set(reserved);
        self.entries.reserve(reserved);
    }

    /// The handler for completions; `None`: they are queued.
    #[inline(always)]
    pub(crate) fn handler(&self) -> Option<Handler> {
        self.handlers.current()
    }

    /// Queues a completion.
    ///
    /// # Safety
    ///
    /// The cell lives until its completion is taken, or is given to [`keep`](Self::keep).
    #[inline(always)]
    pub(crate) unsafe fn push_task(&self, cell: NonNull<TaskCell>) {
        self.entries.push(Some(cell));
    }

    /// Queues another event, which is rare. Later completions of this progress call are queued as well, to keep the
    /// order.
    pub(crate) fn push(&self, event: Event) {
        self.handlers.end();
        self.others.borrow_mut().push_back(event);
        self.entries.push(None);
    }

    /// Keeps a cell that its owner is about to drop, as long as an entry may point to it.
    pub(crate) fn keep(&self, cell: Rc<TaskCell>) {
        self.kept.borrow_mut().push(cell);
    }

    /// `true` if all entries were taken.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the next entry if it is a completion.
    #[inline(always)]
    pub(crate) fn pop_completion(&self) -> Polled {
        let Some(task) = self.entries.first() else {
            return Polled::Nothing;
        };
        let Some(cell) = task else {
            return Polled::Other;
        };
        self.entries.drop_first();
        // SAFETY: as required by `push_task`; not used afterwards.
        let (token, code) = unsafe { TaskCell::return_to_user(cell) };
        Polled::Completion(Completion::new(token, code))
    }

    /// Passes completions to `handler` up to the next other entry. Returns `true` if there is one.
    ///
    /// # Safety
    ///
    /// As for [`Handler::call`].
    #[cold]
    pub(super) unsafe fn hand_over(&self, handler: Handler) -> bool {
        loop {
            match self.pop_completion() {
                // SAFETY: guaranteed by the caller.
                Polled::Completion(Completion { token, result }) => unsafe {
                    handler.call(token, result.err().unwrap_or(ErrorCode::SUCCESS));
                },
                Polled::Other => return true,
                Polled::Nothing => {
                    self.release();
                    return false;
                }
            }
        }
    }

    /// Takes the next entry, which must not be a completion.
    #[cold]
    pub(crate) fn pop_other(&self) -> Option<Event> {
        let event = self.others.borrow_mut().pop_front()?;
        self.entries.drop_first();
        Some(event)
    }

    /// Drops the cells that were kept for entries. The queue must be empty.
    #[inline(always)]
    pub(crate) fn release(&self) {
        self.entries.rewind();
        if !self.kept.borrow().is_empty() {
            self.release_now();
        }
    }

    #[cold]
    fn release_now(&self) {
        let kept = self.kept.take();
        // Outside the borrow: cells hold bufs and other resources of their tasks.
        drop(kept);
    }

    pub(crate) fn clear(&self) {
        while self.entries.first().is_some() {
            self.entries.drop_first();
        }
        let others = self.others.take();
        // Outside the borrow: events hold connections.
        drop(others);
        self.drop_deferred();
        self.release();
    }
}

/// A completed task, or `None` for another event.
pub(super) type Entry = Option<NonNull<TaskCell>>;

/// A FIFO list of entries, filled by one progress call and then emptied: simpler than a ring, and with fewer
/// instructions.
#[derive(Debug)]
pub(super) struct Entries {
    /// Storage; entries outside of `next..end` are unused.
    room: RefCell<Box<[Cell<Entry>]>>,
    /// The first entry of the storage and the number of entries in it, cached; `room` owns them.
    start: Cell<NonNull<Cell<Entry>>>,
    length: Cell<usize>,
    /// Entries before it were taken.
    next: Cell<usize>,
    /// End of the pushed entries.
    end: Cell<usize>,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            room: RefCell::default(),
            start: Cell::new(NonNull::dangling()),
            length: Cell::new(0),
            next: Cell::new(0),
            end: Cell::new(0),
        }
    }
}

impl Entries {
    /// Reserves `count` entries in addition to those pushed since the list was last empty.
    pub(super) fn reserve(&self, count: usize) {
        let wanted = count.saturating_add(self.end.get());
        if wanted > self.length.get() {
            self.grow(wanted);
        }
    }

    /// Number of entries in the storage.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.length.get()
    }

    #[inline(always)]
    pub(super) fn push(&self, entry: Entry) {
        if self.end.get() == self.length.get() {
            return self.push_into_more_room(entry);
        }
        self.place(entry);
    }

    #[inline(always)]
    fn place(&self, entry: Entry) {
        let end = self.end.get();
        // SAFETY: the storage has `length` entries from `start`, and `end` is less, as checked by `push`.
        unsafe { self.start.get().add(end).as_ref() }.set(entry);
        self.end.set(end + 1);
    }

    /// Handles a push behind the end of the storage: moves the entries to its start, or grows it beyond the reserved
    /// size.
    #[cold]
    fn push_into_more_room(&self, entry: Entry) {
        let (next, end) = (self.next.get(), self.end.get());
        if next == 0 {
            self.grow(2 * end.max(8));
        } else {
            let room = self.room.borrow();
            for (to, from) in (next..end).enumerate() {
                room[to].set(room[from].get());
            }
            self.next.set(0);
            self.end.set(end - next);
        }
        self.place(entry);
    }

    fn grow(&self, length: usize) {
        let mut room = self.room.borrow_mut();
        let mut more = std::mem::take(&mut *room).into_vec();
        more.resize_with(length, Cell::default);
        *room = more.into_boxed_slice();
        self.length.set(room.len());
        self.start.set(NonNull::from(&mut **room).cast());
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next.get() == self.end.get()
    }

    /// The oldest entry.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the storage has `length` entries from `start`; `next` is less than `end`, which does not exceed it.
        Some(unsafe { self.start.get().add(self.next.get()).as_ref() }.get())
    }

    /// Removes the oldest entry, if any.
    #[inline(always)]
    pub(super) fn drop_first(&self) {
        self.next
            .set(self.next.get() + usize::from(!self.is_empty()));
    }

    /// Starts at the beginning of the storage again. The list must be empty.
    #[inline(always)]
    pub(super) fn rewind(&self) {
        if self.is_empty() {
            self.next.set(0);
            self.end.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::{ContextId, CtxState};

    fn pop(queue: &EventQueue) -> Option<Event> {
        match queue.pop_completion() {
            Polled::Other => queue.pop_other(),
            Polled::Nothing => None,
            Polled::Completion(completion) => Some(Event::Task(completion)),
        }
    }

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
        assert!(pop(&queue).is_none());
        (0..3).for_each(|number| queue.push(state(number)));
        let order: Vec<_> = std::iter::from_fn(|| pop(&queue))
            .map(|event| match event {
                Event::State { context, .. } => context,
                event => panic!("unexpected {event:?}"),
            })
            .collect();
        assert_eq!(order, [0, 1, 2].map(ContextId::for_tests));
    }

    #[test]
    fn a_handler_gets_nothing_after_another_event_and_nothing_inside_of_progress_that_queues() {
        let queue = EventQueue::default();
        let mut ended = 0;
        let mut closure = |_: Completion| ended += 1;
        let handler = Handler::new(&mut closure);
        let call = || match queue.handler() {
            // SAFETY: the closure lives and is not being called.
            Some(handler) => unsafe { handler.call(7, ErrorCode::SUCCESS) },
            None => queue.push(state(0)),
        };
        let progress = || {
            call();
            queue.handlers.without(call);
            call();
            call();
        };
        // SAFETY: the closure lives, and only this handler uses it.
        unsafe { queue.handlers.during(handler, progress) };
        // No handler after the progress call. The event inside `without` does not remove the outer handler.
        call();
        let queued = std::iter::from_fn(|| pop(&queue)).count();
        assert_eq!((ended, queued), (3, 2));
        let progress = || {
            call();
            queue.push(state(2));
            call();
        };
        // SAFETY: the closure lives, and only this handler uses it.
        unsafe { queue.handlers.during(Handler::new(&mut |_| ()), progress) };
        assert_eq!(std::iter::from_fn(|| pop(&queue)).count(), 2);
        assert!(queue.handler().is_none());
    }

    #[test]
    fn slots_that_are_replaced_reserve_no_more_space() {
        let queue = EventQueue::default();
        let capacity = || queue.deferred.borrow().capacity();
        queue.add_slots(100);
        let reserved = capacity();
        assert!(reserved >= 100);
        for _ in 0..1000 {
            queue.remove_slots(60);
            queue.add_slots(60);
        }
        assert_eq!(capacity(), reserved);
        queue.add_slots(reserved);
        assert!(capacity() >= 100 + reserved);
    }

    #[test]
    fn reserved_room_is_there_and_adds_up() {
        let queue = EventQueue::default();
        queue.reserve(10);
        queue.reserve(20);
        let capacity = || queue.entries.capacity();
        let reserved = capacity();
        assert!(reserved >= 30);
        // At most 30 at a time, some of which are taken in between.
        (0..30).for_each(|number| queue.push(state(number)));
        for number in 30..200 {
            assert!(pop(&queue).is_some());
            queue.push(state(number));
        }
        assert_eq!(capacity(), reserved);
        let last = std::iter::from_fn(|| pop(&queue)).last();
        assert!(
            matches!(last, Some(Event::State { context, .. }) if context == ContextId::for_tests(199))
        );
        assert_eq!(capacity(), reserved);
        queue.push(state(0));
        queue.clear();
        assert!(pop(&queue).is_none());
    }

    /// An address that is never dereferenced; 0 stands for another event.
    fn entry(number: usize) -> Entry {
        NonNull::new(std::ptr::without_provenance_mut(number))
    }

    fn take(entries: &Entries) -> Option<Entry> {
        let first = entries.first();
        entries.drop_first();
        first
    }

    #[test]
    fn entries_are_taken_in_the_order_of_pushes() {
        for (pushes, takes) in [(1, 1), (3, 1), (3, 2), (7, 7), (8, 3), (5, 9)] {
            let (entries, mut expected) = (Entries::default(), VecDeque::new());
            for turn in 0..100 {
                for number in 0..pushes {
                    let number = turn * 10 + number;
                    entries.push(entry(number));
                    expected.push_back(entry(number));
                }
                for _ in 0..takes {
                    assert_eq!(take(&entries), expected.pop_front());
                }
                assert_eq!(entries.is_empty(), expected.is_empty());
                entries.rewind();
            }
            while let Some(number) = expected.pop_front() {
                assert_eq!(take(&entries), Some(number));
            }
            assert_eq!(take(&entries), None);
        }
    }

    #[test]
    fn reserved_entries_do_not_count_queued_ones() {
        let entries = Entries::default();
        entries.reserve(4);
        (0..4).for_each(|number| entries.push(entry(number)));
        assert_eq!(entries.capacity(), 4);
        entries.reserve(4);
        assert_eq!(entries.capacity(), 8);
        (4..8).for_each(|number| entries.push(entry(number)));
        assert_eq!(entries.capacity(), 8);
        (0..8).for_each(|number| assert_eq!(take(&entries), Some(entry(number))));
    }
}
