use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::context::TaskCell;
use crate::{ComchEvent, Completion, ContextId, CtxState, ErrorCode, Event};

/// What callbacks leave for [`Pe::poll`](crate::Pe::poll).
///
/// Borrowed only inside the functions below, none of which calls out: so a callback always finds it free.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    entries: RefCell<VecDeque<Entry>>,
    /// Number of entries that there is room for without allocating.
    reserved: Cell<usize>,
}

#[derive(Debug)]
pub(crate) enum Entry {
    Task {
        cell: Rc<TaskCell>,
        result: Result<(), ErrorCode>,
    },
    State {
        context: ContextId,
        previous: CtxState,
        next: CtxState,
    },
    Comch(ComchEvent),
}

impl EventQueue {
    /// Makes room for `count` more entries at a time: for the tasks of a context, each of which has one at most.
    pub(crate) fn reserve(&self, count: usize) {
        let reserved = self.reserved.get().saturating_add(count);
        self.reserved.set(reserved);
        let mut entries = self.entries.borrow_mut();
        let missing = reserved.saturating_sub(entries.len());
        entries.reserve(missing);
    }

    pub(crate) fn push(&self, entry: Entry) {
        self.entries.borrow_mut().push_back(entry);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Event> {
        let entry = self.entries.borrow_mut().pop_front()?;
        Some(match entry {
            Entry::Task { cell, result } => {
                cell.return_to_user();
                Event::Task(Completion {
                    token: cell.token(),
                    result,
                })
            }
            Entry::State {
                context,
                previous,
                next,
            } => Event::State {
                context,
                previous,
                next,
            },
            Entry::Comch(event) => Event::Comch(event),
        })
    }

    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.entries.borrow_mut());
        // Outside of the borrow: dropping an entry may free the last handle of a task.
        drop(entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(number: u64) -> Entry {
        Entry::State {
            context: ContextId::for_tests(number),
            previous: CtxState::Idle,
            next: CtxState::Running,
        }
    }

    #[test]
    fn events_come_out_in_order() {
        let queue = EventQueue::default();
        assert!(queue.is_empty() && queue.pop().is_none());
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
        let capacity = queue.entries.borrow().capacity();
        assert!(capacity >= 30);
        (0..30).for_each(|number| queue.push(state(number)));
        assert_eq!(queue.entries.borrow().capacity(), capacity);
        queue.clear();
        assert!(queue.is_empty());
    }
}
