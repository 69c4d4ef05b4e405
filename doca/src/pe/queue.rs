use std::cell::{Cell, RefCell};
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
}

/// Filled by one call of progress, and then emptied: simpler, and with fewer instructions, than a ring.
#[derive(Debug, Default)]
struct Entries {
    list: Vec<Option<Entry>>,
    /// Those before it were taken.
    next: usize,
}

/// Two words: there are many of the first kind, and few of the second.
#[derive(Debug)]
enum Entry {
    Task { cell: Rc<TaskCell>, code: ErrorCode },
    Other(Box<Event>),
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
    #[inline]
    pub(crate) fn push_task(&self, cell: Rc<TaskCell>, code: ErrorCode) {
        self.entries.borrow_mut().push(Entry::Task { cell, code });
    }

    /// Something else has happened, which is rare.
    pub(crate) fn push(&self, event: Event) {
        self.entries
            .borrow_mut()
            .push(Entry::Other(Box::new(event)));
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<Event> {
        let entry = self.entries.borrow_mut().pop()?;
        Some(match entry {
            Entry::Task { cell, code } => {
                cell.return_to_user();
                Event::Task(Completion {
                    token: cell.token(),
                    result: code.ok(),
                })
            }
            Entry::Other(event) => *event,
        })
    }

    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.entries.borrow_mut());
        // Outside of the borrow: dropping an entry may free the last handle of a task.
        drop(entries);
    }
}

impl Entries {
    #[inline]
    fn push(&mut self, entry: Entry) {
        if self.list.len() == self.list.capacity() {
            self.make_room();
        }
        self.list.push(Some(entry));
    }

    /// Entries are pushed while others wait: room is where some were taken. Without any it grows, for more than was reserved.
    #[cold]
    fn make_room(&mut self) {
        self.list.drain(..self.next);
        self.next = 0;
    }

    #[inline]
    fn pop(&mut self) -> Option<Entry> {
        let Some(entry) = self.list.get_mut(self.next) else {
            self.list.clear();
            self.next = 0;
            return None;
        };
        self.next += 1;
        entry.take()
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
