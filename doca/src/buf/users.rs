//! The tasks that use a buf.

use std::cell::{Cell, OnceCell, RefCell};
use std::ptr::NonNull;

use crate::context::TaskCell;

/// Points to the cells of tasks: two where the buf's other fields are, because few bufs have more and all are looked at whenever a buf
/// is aimed; the others elsewhere.
#[derive(Debug, Default)]
pub(super) struct Users {
    first: [Cell<Option<NonNull<TaskCell>>>; 2],
    more: OnceCell<Box<RefCell<Vec<NonNull<TaskCell>>>>>,
}

impl Users {
    pub(super) fn add(&self, task: NonNull<TaskCell>) {
        match self.first.iter().find(|place| place.get().is_none()) {
            Some(place) => place.set(Some(task)),
            None => self.more.get_or_init(Box::default).borrow_mut().push(task),
        }
    }

    pub(super) fn remove(&self, task: NonNull<TaskCell>) {
        for place in &self.first {
            if place.get() == Some(task) {
                place.set(None);
            }
        }
        if let Some(more) = self.more.get() {
            more.borrow_mut().retain(|other| *other != task);
        }
    }

    /// Whether `test` holds for any of the tasks.
    #[inline(always)]
    pub(super) fn any(&self, test: impl Fn(NonNull<TaskCell>) -> bool) -> bool {
        let [first, second] = &self.first;
        first.get().is_some_and(&test)
            || second.get().is_some_and(&test)
            || self
                .more
                .get()
                .is_some_and(|more| more.borrow().iter().any(|task| test(*task)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address that is never looked at.
    fn task(number: usize) -> NonNull<TaskCell> {
        NonNull::new(std::ptr::without_provenance_mut(number)).expect("not 0")
    }

    #[test]
    fn tasks_are_there_between_add_and_remove_however_many() {
        for count in [1, 2, 3, 7] {
            let users = Users::default();
            let is_there = |number| users.any(|other| other == task(number));
            for round in 0..2 {
                (1..=count).for_each(|number| users.add(task(number)));
                for removed in 1..=count {
                    assert!(
                        (1..removed).all(|number| !is_there(number)),
                        "{count}, {round}"
                    );
                    assert!((removed..=count).all(is_there), "{count}, {round}");
                    users.remove(task(removed));
                }
                assert!(!users.any(|_| true), "{count}, {round}");
            }
        }
    }
}
