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

    /// Takes the first entry, of which there is one.
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
