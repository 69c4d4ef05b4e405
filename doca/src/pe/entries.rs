//! Pointers to the cells of tasks that have ended, in order.
//!
//! Filled by one call of progress, and then emptied: simpler, and with fewer instructions, than a ring.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use crate::context::TaskCell;

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
