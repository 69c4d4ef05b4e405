use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::context::TaskCell;
use crate::{Completion, ErrorCode, Event};

/// What callbacks leave for [`Pe::poll`](crate::Pe::poll).
///
/// Borrowed only inside the functions below, none of which calls out: so a callback always finds it free.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    entries: RefCell<Entries>,
    /// Number of entries that there is room for without allocating.
    reserved: Cell<usize>,
    /// Cells that nobody else holds any more, until the queue is empty: some of its entries point to them.
    kept: RefCell<Vec<Rc<TaskCell>>>,
}

/// Filled by one call of progress, and then emptied: simpler, and with fewer instructions, than a ring.
#[derive(Debug, Default)]
struct Entries {
    list: Vec<Entry>,
    /// Those before it were taken.
    next: usize,
    /// What the entries without a task stand for, in their order. They are rare.
    others: VecDeque<Event>,
}

/// The end of a task, or one of the other events.
#[derive(Debug, Clone, Copy)]
struct Entry {
    task: Option<NonNull<TaskCell>>,
    code: ErrorCode,
}

impl EventQueue {
    /// Makes room for `count` more entries at a time: for the tasks of a context, each of which has one at most.
    pub(crate) fn reserve(&self, count: usize) {
        let reserved = self.reserved.get().saturating_add(count);
        self.reserved.set(reserved);
        let list = &mut self.entries.borrow_mut().list;
        let missing = reserved.saturating_sub(list.len());
        list.reserve(missing);
    }

    /// A task has ended, with this code.
    ///
    /// # Safety
    ///
    /// The cell lives until its completion is taken, or is given to [`keep`](Self::keep).
    #[inline(always)]
    pub(crate) unsafe fn push_task(&self, cell: NonNull<TaskCell>, code: ErrorCode) {
        let task = Some(cell);
        self.entries.borrow_mut().push(Entry { task, code });
    }

    /// Something else has happened, which is rare.
    pub(crate) fn push(&self, event: Event) {
        let entries = &mut *self.entries.borrow_mut();
        entries.others.push_back(event);
        entries.push(Entry {
            task: None,
            code: ErrorCode::SUCCESS,
        });
    }

    /// Holds a cell, whose owner is about to let it go, as long as an entry may point to it.
    pub(crate) fn keep(&self, cell: Rc<TaskCell>) {
        self.kept.borrow_mut().push(cell);
    }

    /// Whether all that was pushed was taken.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        let entries = self.entries.borrow();
        entries.next == entries.list.len()
    }

    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<Event> {
        let Some(Entry { task, code }) = self.entries.borrow_mut().pop() else {
            self.release();
            return None;
        };
        let Some(cell) = task else {
            return self.pop_other();
        };
        let (token, has_handle) = {
            // SAFETY: the promise of `push_task`.
            let cell = unsafe { cell.as_ref() };
            cell.return_to_user();
            (cell.token(), cell.has_handle())
        };
        if !has_handle {
            // SAFETY: as above; it is not used afterwards.
            unsafe { TaskCell::free_if_unused(cell) };
        }
        Some(Event::Task(Completion {
            token,
            result: code.ok(),
        }))
    }

    #[cold]
    fn pop_other(&self) -> Option<Event> {
        self.entries.borrow_mut().others.pop_front()
    }

    /// Lets go what was only kept for entries, of which there are none.
    #[inline(always)]
    fn release(&self) {
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
        let entries = self.entries.take();
        // Outside of the borrow: events hold connections.
        drop(entries);
        self.release();
    }
}

impl Entries {
    #[inline(always)]
    fn push(&mut self, entry: Entry) {
        if self.list.len() == self.list.capacity() {
            self.make_room();
        }
        self.list.push(entry);
    }

    /// Entries are pushed while others wait: room is where some were taken. Without any it grows, for more than was reserved.
    #[cold]
    fn make_room(&mut self) {
        self.list.drain(..self.next);
        self.next = 0;
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Entry> {
        let Some(&entry) = self.list.get(self.next) else {
            self.list.clear();
            self.next = 0;
            return None;
        };
        self.next += 1;
        Some(entry)
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
    fn reserved_room_is_there_and_adds_up() {
        let queue = EventQueue::default();
        queue.reserve(10);
        queue.reserve(20);
        let capacity = || queue.entries.borrow().list.capacity();
        let reserved = capacity();
        assert!(reserved >= 30);
        // Never more than 30 at a time, of which some are taken in between.
        (0..30).for_each(|number| queue.push(state(number)));
        for number in 30..200 {
            assert!(queue.pop().is_some());
            queue.push(state(number));
        }
        assert_eq!(capacity(), reserved);
        let last = std::iter::from_fn(|| queue.pop()).last();
        assert!(
            matches!(last, Some(Event::State { context, .. }) if context == ContextId::for_tests(199))
        );
        assert_eq!(capacity(), reserved);
        queue.push(state(0));
        queue.clear();
        assert!(queue.pop().is_none());
    }
}
