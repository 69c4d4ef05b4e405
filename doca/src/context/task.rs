use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::rc::{Rc, Weak};

use doca_sys as sys;

use crate::device::non_null;
use crate::pe::{EventQueue, Handler};
use crate::{Buf, ErrorCode, Result};

/// A task: created once, submitted as often as needed, one submission at a time.
///
/// It keeps its bufs. Its context owns the C object: after the context is stopped, the task can only be dropped. A task
/// that is dropped in flight still completes, and its [`Event`](crate::Event) is delivered, before its object is freed.
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
    /// * [`ErrorCode::IN_USE`]: it was submitted and its completion was not reaped yet.
    /// * [`ErrorCode::BAD_STATE`]: the context is not running or was destroyed.
    #[inline(always)]
    pub fn submit(&self) -> std::result::Result<(), ErrorCode> {
        self.cell.submit()
    }

    /// The token of its completions.
    pub fn token(&self) -> u64 {
        self.cell.token
    }

    /// `true` if it was submitted and its completion was not reaped yet.
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
        self.cell.is_ordinary.set(false);
        // SAFETY: the handle's own reference is dropped after this.
        unsafe { TaskCell::free_if_unused(NonNull::from(&*self.cell)) };
    }
}

/// State of a task, by its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Owned by the user.
    Idle,
    /// The C object was freed.
    Freed,
    /// Owned by DOCA.
    Submitted,
    /// Completed, not yet reaped.
    Completed,
}

/// Target of a task's user data, for the completion callback.
///
/// Fields in the order of use: those of every run share one cache line. Runs do not change reference counts: the queue
/// holds a pointer, and an owner that drops a queued cell passes it to [`EventQueue::keep`].
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct TaskCell {
    /// Null after it was freed: the phase is `Freed` then, or will be when the completion is reaped.
    task: Cell<*mut sys::doca_task>,
    bufs: [Option<Buf>; 2],
    queue: Rc<EventQueue>,
    token: u64,
    phase: Cell<Phase>,
    /// Result of the last completed run; an error before the first.
    code: Cell<ErrorCode>,
    /// The user has the handle and the context has the C object, so a completion needs no further work.
    is_ordinary: Cell<bool>,
    has_handle: Cell<bool>,
    slot: Cell<usize>,
    table: Weak<TaskTable>,
    /// Other resources of the task.
    _keep: Option<Rc<dyn Any>>,
}

impl TaskCell {
    #[inline(always)]
    fn submit(&self) -> std::result::Result<(), ErrorCode> {
        if self.phase.get() != Phase::Idle {
            return Err(self.not_idle());
        }
        self.phase.set(Phase::Submitted);
        // SAFETY: the task is allocated (it is idle and not freed), not in flight, and its bufs are live; the context's
        // progress engine belongs to this thread, as neither it nor the task is `Send`.
        let result = ErrorCode(unsafe { sys::doca_task_submit(self.task.get()) }).ok();
        if result.is_err() {
            self.phase.set(Phase::Idle);
        }
        result
    }

    /// Reason why a task that is not idle cannot be submitted.
    #[cold]
    fn not_idle(&self) -> ErrorCode {
        match self.phase.get() {
            Phase::Freed => ErrorCode::BAD_STATE,
            _ => ErrorCode::IN_USE,
        }
    }

    /// `true` if it was submitted and its completion was not reaped yet.
    #[inline(always)]
    pub(crate) fn is_in_flight(&self) -> bool {
        self.phase.get() >= Phase::Submitted
    }

    /// Returns a completed task to the user: its token and result.
    ///
    /// # Safety
    ///
    /// The cell lives; it may be gone afterwards.
    #[inline(always)]
    pub(crate) unsafe fn return_to_user(pointer: NonNull<Self>) -> (u64, ErrorCode) {
        let (is_ordinary, ended) = {
            // SAFETY: guaranteed by the caller.
            let cell = unsafe { pointer.as_ref() };
            cell.phase.set(Phase::Idle);
            (cell.is_ordinary.get(), (cell.token, cell.code.get()))
        };
        if !is_ordinary {
            // SAFETY: as above; it is not used afterwards.
            unsafe { Self::settle(pointer) };
        }
        ended
    }

    /// Completes a run of a task whose handle or C object was dropped in the meantime.
    ///
    /// # Safety
    ///
    /// The cell lives; it may be gone afterwards.
    #[cold]
    unsafe fn settle(pointer: NonNull<Self>) {
        // SAFETY: guaranteed by the caller.
        let cell = unsafe { pointer.as_ref() };
        if cell.task.get().is_null() {
            cell.phase.set(Phase::Freed);
        } else {
            // SAFETY: guaranteed by the caller; it is not used afterwards.
            unsafe { Self::free_if_unused(pointer) };
        }
    }

    /// Frees a task that is owned by neither the user nor DOCA nor the queue.
    ///
    /// # Safety
    ///
    /// The cell lives; it may be gone afterwards.
    #[cold]
    pub(crate) unsafe fn free_if_unused(pointer: NonNull<Self>) {
        // SAFETY: guaranteed by the caller; the reference is not used after the table drops the cell.
        let cell = unsafe { pointer.as_ref() };
        if !cell.has_handle.get()
            && cell.phase.get() == Phase::Idle
            && let Some(table) = cell.table.upgrade()
            && table.holds(cell)
        {
            table.free(cell.slot.get());
        }
    }

    /// Drops a cell, unless the queue points to it because its completion was not reaped.
    fn let_go(cell: Rc<Self>) {
        if cell.phase.get() == Phase::Completed {
            let queue = Rc::clone(&cell.queue);
            queue.keep(cell);
        }
    }

    /// Frees the C object unless it is in flight.
    fn free_object(&self) -> bool {
        if self.phase.get() == Phase::Submitted {
            return false;
        }
        let task = self.task.replace(ptr::null_mut());
        self.is_ordinary.set(false);
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
        let own = NonNull::from(&*self);
        self.bufs.iter().flatten().for_each(|buf| buf.part(own));
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
            is_ordinary: Cell::new(true),
            has_handle: Cell::new(true),
            bufs: bufs.map(|buf| buf.cloned()),
            _keep: keep,
            queue: Rc::clone(queue),
            table: Rc::downgrade(self),
            slot: Cell::new(0),
        });
        for buf in cell.bufs.iter().flatten() {
            // SAFETY: the cell's address is fixed by its `Rc`, and it removes itself from its bufs when it is dropped.
            unsafe { buf.join(NonNull::from(&*cell)) };
        }
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

    /// `true` if a cell is in the table: its slot may have been reused.
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
            TaskCell::let_go(cell);
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

impl Drop for TaskTable {
    fn drop(&mut self) {
        for cell in self.slots.get_mut().drain(..).flatten() {
            TaskCell::let_go(cell);
        }
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

/// Passes a completion to the handler of this progress call, or queues it.
///
/// # Safety
///
/// The user data is that of an allocated task of this crate that has ended; DOCA does not use it any more.
#[inline(always)]
unsafe fn complete(user_data: sys::doca_data, code: impl FnOnce(&TaskCell) -> ErrorCode) {
    // SAFETY: `adopt` set this member to the address of a cell before the task could be submitted.
    let pointer = unsafe { NonNull::new_unchecked(user_data.ptr.cast::<TaskCell>()) };
    // SAFETY: the table holds the `Rc` of the cell while the task is allocated, which is longer than this block.
    let cell = unsafe { pointer.as_ref() };
    cell.code.set(code(cell));
    let Some(handler) = cell.queue.handler() else {
        cell.phase.set(Phase::Completed);
        // SAFETY: from here on the cell is completed: when the table frees it or is dropped, it passes it to the queue.
        return unsafe { cell.queue.push_task(pointer) };
    };
    if !cell.is_ordinary.get() {
        // SAFETY: as below, and neither pointer nor reference is used afterwards.
        return unsafe { hand_over_unusual(pointer, handler) };
    }
    cell.phase.set(Phase::Idle);
    // SAFETY: DOCA calls back only from its progress, so the progress call of the handler has not returned.
    unsafe { handler.call(cell.token, cell.code.get()) };
}

/// Passes a completion to a handler for a task whose handle or C object was dropped in the meantime.
///
/// # Safety
///
/// The cell lives, it may be gone afterwards; the rest is as for [`Handler::call`].
#[cold]
unsafe fn hand_over_unusual(pointer: NonNull<TaskCell>, handler: Handler) {
    // SAFETY: guaranteed by the caller.
    let (token, code) = unsafe { TaskCell::return_to_user(pointer) };
    // SAFETY: guaranteed by the caller.
    unsafe { handler.call(token, code) };
}
