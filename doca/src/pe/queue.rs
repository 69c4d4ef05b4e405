use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use super::{Handler, Handlers};
use crate::context::TaskCell;
use crate::{Completion, ErrorCode, Event, Polled};

/// What callbacks leave for [`Pe::poll`](crate::Pe::poll).
///
/// Changed only inside the functions below, none of which calls out: so a callback always finds it whole.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    /// Who gets the ends of tasks instead of the queue.
    pub(super) handlers: Handlers,
    entries: Entries,
    /// What the entries without a task stand for, in their order. They are rare.
    others: RefCell<VecDeque<Event>>,
    /// Number of entries that there is room for without allocating.
    reserved: Cell<usize>,
    /// Cells that nobody else holds any more, until the queue is empty: some of its entries point to them.
    kept: RefCell<Vec<Rc<TaskCell>>>,
}

impl EventQueue {
    /// Makes room for `count` more entries at a time: for the tasks of a context, each of which has one at most.
    pub(crate) fn reserve(&self, count: usize) {
        let reserved = self.reserved.get().saturating_add(count);
        self.reserved.set(reserved);
        self.entries.reserve(reserved);
    }

    /// Who is to learn of the end of a task. `None`: it goes into the queue.
    #[inline(always)]
    pub(crate) fn handler(&self) -> Option<Handler> {
        self.handlers.current()
    }

    /// A task has ended.
    ///
    /// # Safety
    ///
    /// The cell lives until its completion is taken, or is given to [`keep`](Self::keep).
    #[inline(always)]
    pub(crate) unsafe fn push_task(&self, cell: NonNull<TaskCell>) {
        self.entries.push(Some(cell));
    }

    /// Something else has happened, which is rare. What follows it in this call of progress goes into the queue as well, in order.
    pub(crate) fn push(&self, event: Event) {
        self.handlers.end();
        self.others.borrow_mut().push_back(event);
        self.entries.push(None);
    }

    /// Holds a cell, whose owner is about to let it go, as long as an entry may point to it.
    pub(crate) fn keep(&self, cell: Rc<TaskCell>) {
        self.kept.borrow_mut().push(cell);
    }

    /// Whether all that was pushed was taken.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the next entry, if it is a completion.
    #[inline(always)]
    pub(crate) fn pop_completion(&self) -> Polled {
        let Some(task) = self.entries.first() else {
            return Polled::Nothing;
        };
        let Some(cell) = task else {
            return Polled::Other;
        };
        self.entries.drop_first();
        // SAFETY: the promise of `push_task`; it is not used afterwards.
        let (token, code) = unsafe { TaskCell::return_to_user(cell) };
        Polled::Completion(Completion::new(token, code))
    }

    /// Gives `handler` the completions up to the next entry that is none. True when there is one.
    ///
    /// # Safety
    ///
    /// As for [`Handler::call`].
    #[cold]
    pub(super) unsafe fn hand_over(&self, handler: Handler) -> bool {
        loop {
            match self.pop_completion() {
                // SAFETY: the caller's promise.
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

    /// Takes the next entry, which is no completion.
    #[cold]
    pub(crate) fn pop_other(&self) -> Option<Event> {
        let event = self.others.borrow_mut().pop_front()?;
        self.entries.drop_first();
        Some(event)
    }

    /// Lets go what was only kept for entries, of which there are none.
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
        // Outside of the borrow: cells hold bufs and whatever else their tasks use.
        drop(kept);
    }

    pub(crate) fn clear(&self) {
        while self.entries.first().is_some() {
            self.entries.drop_first();
        }
        let others = self.others.take();
        // Outside of the borrow: events hold connections.
        drop(others);
        self.release();
    }
}

/// The end of a task, or `None` for one of the other events.
pub(super) type Entry = Option<NonNull<TaskCell>>;

/// A list that is appended to at its end and taken from at its beginning.
#[derive(Debug)]
pub(super) struct Entries {
    /// As long as its capacity; entries that are not between the two marks mean nothing.
    room: RefCell<Box<[Cell<Entry>]>>,
    /// The first entry of the room, and the number of entries in it: the same as of `room`, which is only there to own them.
    start: Cell<NonNull<Cell<Entry>>>,
    length: Cell<usize>,
    /// Those before it were taken.
    next: Cell<usize>,
    /// Those before it were pushed.
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
    /// Room for `count` entries beside those that were pushed since the list was empty for the last time.
    pub(super) fn reserve(&self, count: usize) {
        let wanted = count.saturating_add(self.end.get());
        if wanted > self.length.get() {
            self.grow(wanted);
        }
    }

    /// Entries that there is room for.
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
        // SAFETY: the room has `length` entries from `start` on, and `end` is less: `push` makes sure of that.
        unsafe { self.start.get().add(end).as_ref() }.set(entry);
        self.end.set(end + 1);
    }

    /// Entries are pushed while others wait: room is where some were taken. Without any it grows, for more than was reserved.
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

    /// The entry that was pushed first of those that were not taken.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the room has `length` entries from `start` on; `next` is less than `end`, which is not more than that.
        Some(unsafe { self.start.get().add(self.next.get()).as_ref() }.get())
    }

    /// Takes the first entry, if there is one.
    #[inline(always)]
    pub(super) fn drop_first(&self) {
        self.next
            .set(self.next.get() + usize::from(!self.is_empty()));
    }

    /// Uses the room from its beginning again. The list is empty.
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
        // Progress is over: nobody handles this one. The event inside of `without` was no reason to end the outer handler.
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
    fn reserved_room_is_there_and_adds_up() {
        let queue = EventQueue::default();
        queue.reserve(10);
        queue.reserve(20);
        let capacity = || queue.entries.capacity();
        let reserved = capacity();
        assert!(reserved >= 30);
        // Never more than 30 at a time, of which some are taken in between.
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

    /// An address that is never looked at; 0 stands for another event.
    fn entry(number: usize) -> Entry {
        NonNull::new(std::ptr::without_provenance_mut(number))
    }

    fn take(entries: &Entries) -> Option<Entry> {
        let first = entries.first();
        entries.drop_first();
        first
    }

    #[test]
    fn what_was_pushed_is_taken_in_its_order_however_both_alternate() {
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
    fn reserved_room_is_beside_what_waits() {
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
