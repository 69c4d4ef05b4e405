use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::rc::{Rc, Weak};

use doca_sys as sys;

use crate::device::non_null;
use crate::pe::EventQueue;
use crate::{Buf, ErrorCode, Result};

/// A task: made once, submitted as often as needed, one submission at a time.
///
/// It holds its bufs. Its context owns the C object: when the context is stopped, the task can only be dropped.
/// A task that is dropped in flight completes, and its [`Event`](crate::Event) comes, before its object is freed.
#[derive(Debug)]
pub struct Task {
    cell: Rc<TaskCell>,
}

impl Task {
    /// Hands the task to the device; its [`Completion`](crate::Completion) will come from [`Pe::poll`](crate::Pe::poll).
    ///
    /// # Errors
    ///
    /// * [`ErrorCode::AGAIN`]: not now, e.g. because the peer has no buffer posted; submit it again later.
    /// * [`ErrorCode::IN_USE`]: it was submitted and its completion has not been taken from the progress engine.
    /// * [`ErrorCode::BAD_STATE`]: the context is not running, or gone.
    pub fn submit(&self) -> std::result::Result<(), ErrorCode> {
        self.cell.submit()
    }

    /// The token that its completions carry.
    pub fn token(&self) -> u64 {
        self.cell.token
    }

    /// Whether it was submitted and its completion has not been taken from the progress engine.
    pub fn is_in_flight(&self) -> bool {
        self.cell.phase.get() != Phase::Idle
    }

    /// Whether the C object is there, is the user's, and its last run was a success.
    pub(crate) fn has_succeeded(&self) -> bool {
        !self.cell.task.get().is_null() && !self.is_in_flight() && self.cell.succeeded.get()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.cell.has_handle.set(false);
        self.cell.free_if_unused();
    }
}

/// Who has the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The user.
    Idle,
    /// DOCA.
    Submitted,
    /// Nobody: its completion waits in the queue.
    Completed,
}

/// What the completion callback finds through a task's user data.
///
/// In the order in which it is needed: with the counts of its `Rc`, what every run of the task uses fits a cache line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TaskCell {
    /// Null when it was freed.
    task: Cell<*mut sys::doca_task>,
    bufs: [Option<Buf>; 2],
    queue: Rc<EventQueue>,
    token: u64,
    phase: Cell<Phase>,
    /// How the last run went; false before and during it.
    succeeded: Cell<bool>,
    has_handle: Cell<bool>,
    slot: Cell<usize>,
    table: Weak<TaskTable>,
    /// Whatever else the task uses.
    _keep: Option<Rc<dyn Any>>,
}

impl TaskCell {
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    #[inline]
    fn submit(&self) -> std::result::Result<(), ErrorCode> {
        let task = self.task.get();
        if task.is_null() {
            return Err(ErrorCode::BAD_STATE);
        }
        if self.phase.get() != Phase::Idle {
            return Err(ErrorCode::IN_USE);
        }
        self.phase.set(Phase::Submitted);
        self.succeeded.set(false);
        // SAFETY: the task is allocated, not in flight, and its bufs are live; the context's progress engine is of this
        // thread, as neither it nor the task is `Send`.
        let result = ErrorCode(unsafe { sys::doca_task_submit(task) }).ok();
        match result {
            Ok(()) => self.bufs.iter().flatten().for_each(Buf::borrow_for_task),
            Err(_) => self.phase.set(Phase::Idle),
        }
        result
    }

    /// Its completion was taken from the queue.
    #[inline]
    pub(crate) fn return_to_user(&self) {
        self.bufs.iter().flatten().for_each(Buf::return_from_task);
        self.phase.set(Phase::Idle);
        if !self.has_handle.get() {
            self.free_if_unused();
        }
    }

    #[cold]
    fn free_if_unused(&self) {
        if !self.has_handle.get()
            && self.phase.get() == Phase::Idle
            && let Some(table) = self.table.upgrade()
        {
            table.free(self.slot.get());
        }
    }

    /// Frees the C object unless DOCA has it.
    fn free_object(&self) -> bool {
        if self.phase.get() == Phase::Submitted {
            return false;
        }
        let task = self.task.replace(ptr::null_mut());
        if !task.is_null() {
            // SAFETY: allocated by the context, which is live as long as its table frees tasks, and not in flight.
            unsafe { sys::doca_task_free(task) };
        }
        true
    }
}

/// The allocated tasks of a context. It holds every cell as long as DOCA holds a pointer to it.
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

    /// Makes a task of what a C function allocated.
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
            succeeded: Cell::new(false),
            has_handle: Cell::new(true),
            bufs: bufs.map(|buf| buf.cloned()),
            _keep: keep,
            queue: Rc::clone(queue),
            table: Rc::downgrade(self),
            slot: Cell::new(0),
        });
        let user_data = sys::doca_data {
            ptr: Rc::as_ptr(&cell).cast_mut().cast(),
        };
        // SAFETY: the task is live. The cell lives in the table as long as the task is allocated.
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

    fn free(&self, slot: usize) {
        let cell = self.slots.borrow_mut().get_mut(slot).and_then(Option::take);
        let Some(cell) = cell else { return };
        if cell.free_object() {
            self.vacant.borrow_mut().push(slot);
        } else {
            self.slots.borrow_mut()[slot] = Some(cell);
        }
    }

    /// Frees all tasks that DOCA does not have; their handles answer [`ErrorCode::BAD_STATE`] from here on.
    pub(crate) fn free_idle(&self) {
        let count = self.slots.borrow().len();
        (0..count).for_each(|slot| self.free(slot));
    }
}

/// User data of a task until it is adopted, which sets the real one.
pub(crate) const NO_DATA: sys::doca_data = sys::doca_data { u64: 0 };

/// The success and the error callback for tasks of type `T`.
pub(crate) type CompletionCallback<T> =
    unsafe extern "C" fn(*mut T, sys::doca_data, sys::doca_data);

/// The callbacks that put the completions of tasks of type `T` into the queue.
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
    let Some(cell) = (unsafe { cell(task_user_data) }) else {
        return;
    };
    complete(cell, ErrorCode::SUCCESS);
}

unsafe extern "C" fn failed<T>(
    _task: *mut T,
    task_user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA passes the user data that `adopt` set.
    let Some(cell) = (unsafe { cell(task_user_data) }) else {
        return;
    };
    // SAFETY: the task is live: it just completed.
    let code = match ErrorCode(unsafe { sys::doca_task_get_status(cell.task.get()) }) {
        // The error callback was called, so it did not succeed.
        ErrorCode::SUCCESS => ErrorCode::UNKNOWN,
        code => code,
    };
    complete(cell, code);
}

#[inline]
fn complete(cell: Rc<TaskCell>, code: ErrorCode) {
    cell.phase.set(Phase::Completed);
    cell.succeeded.set(code == ErrorCode::SUCCESS);
    let queue = Rc::clone(&cell.queue);
    queue.push_task(cell, code);
}

/// The cell of a task, counted once more.
///
/// # Safety
///
/// The user data is that of an allocated task of this crate.
unsafe fn cell(user_data: sys::doca_data) -> Option<Rc<TaskCell>> {
    // SAFETY: `adopt` set this member.
    let cell = NonNull::new(unsafe { user_data.ptr })?.cast::<TaskCell>();
    // SAFETY: the pointer came from `Rc::as_ptr`, and the table holds the `Rc` while the task is allocated.
    unsafe {
        Rc::increment_strong_count(cell.as_ptr());
        Some(Rc::from_raw(cell.as_ptr()))
    }
}
