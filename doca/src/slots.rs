//! Slots: tasks and their buffer behind a handle that costs nothing to submit and to get back.

use std::any::TypeId;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::mem;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use doca_sys as sys;

use crate::context::CompletionCallback;
use crate::memory::load_shared;
use crate::pe::{DeferredCompletion, EventQueue};
use crate::{Buf, BufInventory, Error, ErrorCode, Mmap, Pe, Result};

/// Maximum number of tasks of a slot.
pub const TASKS_PER_SLOT: usize = 2;

/// What a worker does when a task of one kind of a context has completed: see [`WorkerPe`].
pub trait CompletionHandler: 'static {
    /// State of the loop that makes progress.
    type Worker: 'static;
    /// State of each slot. Up to 16 bytes fit into the slot's cache line.
    type State: 'static;

    /// Called inside of [`WorkerPe::progress`] with the slot, which is idle again. A slot that is dropped here is not
    /// used any more.
    ///
    /// As this is called through C functions, a panic aborts the process.
    fn completed(
        worker: &mut Self::Worker,
        slot: Slot<Self::State>,
        result: std::result::Result<(), ErrorCode>,
    );
}

/// A progress engine that passes the completions of [slots](Slot) to a worker of type `W`, without a queue in between.
///
/// All contexts can be started on it. Events other than completions of slots are queued for [`Pe::poll`], as on every
/// engine.
///
/// ```
/// use doca::{CompletionHandler, ErrorCode, Slot, WorkerPe};
///
/// #[derive(Default)]
/// struct Receiver {
///     messages: u64,
/// }
///
/// struct Received;
///
/// impl CompletionHandler for Received {
///     type Worker = Receiver;
///     type State = ();
///
///     fn completed(receiver: &mut Receiver, mut slot: Slot<()>, result: Result<(), ErrorCode>) {
///         if result.is_ok() {
///             receiver.messages += 1;
///             slot.reset_data();
///             let _ = slot.submit::<0>();
///         }
///     }
/// }
///
/// # fn main() -> doca::Result<()> {
/// let mut pe = WorkerPe::new()?;
/// // A consumer that was started with `Consumer::start_with::<Received>`, and its slots, would receive now.
/// let mut receiver = Receiver::default();
/// let others = pe.progress(&mut receiver);
/// assert!(!others && receiver.messages == 0);
/// # Ok(())
/// # }
/// ```
///
/// No event can be taken while completions are handled:
///
/// ```compile_fail,E0502
/// # fn work(pe: &mut doca::WorkerPe<Option<doca::Event>>) {
/// let events: &doca::Pe = pe;
/// pe.progress(&mut None);
/// events.poll();
/// # }
/// ```
#[derive(Debug)]
pub struct WorkerPe<W> {
    pe: Pe,
    worker: std::marker::PhantomData<fn(&mut W)>,
}

impl<W: 'static> WorkerPe<W> {
    /// Creates a progress engine.
    ///
    /// # Errors
    ///
    /// Those of `doca_pe_create`.
    pub fn new() -> Result<Self> {
        Ok(Self {
            pe: Pe::for_workers(TypeId::of::<W>())?,
            worker: std::marker::PhantomData,
        })
    }

    /// Makes progress once and passes the completions of slots to their handlers. Returns `true` if other events are
    /// queued; then [`Pe::poll`] must be called before this makes further progress.
    ///
    /// Completions behind another event are passed after it was taken. A handler can submit and drop slots; a context
    /// that is stopped or dropped in there is stopped when this returns, as in [`Pe::progress_each`].
    // One call site per program.
    #[inline(always)]
    pub fn progress(&mut self, worker: &mut W) -> bool {
        // SAFETY: `for_workers` was called with this type, and `check_worker` has compared it with that of every
        // handler. The worker is borrowed exclusively for the call, and so is the engine: no call is nested.
        unsafe { self.pe.inner().progress_for(NonNull::from(worker).cast()) }
    }
}

impl<W> Deref for WorkerPe<W> {
    type Target = Pe;

    fn deref(&self) -> &Pe {
        &self.pe
    }
}

/// The owner of a slot that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A [`Slot`] refers to it, or did when it was dropped or forgotten.
    Idle,
    /// DOCA has the task with this number.
    InFlight(u8),
    /// The queue of completions behind other events has it.
    Completed,
}

/// Memory of a [`Slot`], also the user data of its tasks: one cache line if the state has at most 16 bytes.
#[repr(C, align(64))]
struct SlotCell<U> {
    /// Null for tasks that the slot does not have, or not any more.
    tasks: [Cell<*mut sys::doca_task>; TASKS_PER_SLOT],
    buf: *mut sys::doca_buf,
    /// Start of the buffer, which has `len` bytes.
    bytes: *const u8,
    pool: *const Pool<U>,
    len: u32,
    phase: Cell<Phase>,
    /// Belongs to the [`Slot`], while there is one.
    state: UnsafeCell<U>,
}

const _: () = assert!(mem::size_of::<SlotCell<[u64; 2]>>() == 64);

/// The memory of slots. Alive as long as there is a slot, idle or in flight, or a context with a task of one.
struct Pool<U> {
    cells: Box<[SlotCell<U>]>,
    /// Keep the buffers' memory map.
    bufs: Box<[Buf]>,
    queue: Rc<EventQueue>,
}

/// Slots as seen by a context that has given them tasks.
pub(crate) trait SlotTasks {
    /// Frees the tasks with this number that are not in flight.
    fn free_idle(&self, task: usize);
}

impl<U> SlotTasks for Pool<U> {
    fn free_idle(&self, task: usize) {
        for cell in &self.cells {
            if cell.phase.get() != Phase::InFlight(task as u8) {
                let task = cell.tasks[task].replace(ptr::null_mut());
                if !task.is_null() {
                    // SAFETY: allocated by the context that asks, which is live, and not in flight.
                    unsafe { sys::doca_task_free(task) };
                }
            }
        }
    }
}

/// An idle slot: a buffer with up to [`TASKS_PER_SLOT`] tasks, of which one at a time is in flight.
///
/// It is the only access to the buffer. [`submit`](Self::submit) gives it to the device, and the
/// [handler](CompletionHandler) of the task gets it back. So there is no task that is submitted twice, and no buffer
/// that is changed in flight:
///
/// ```compile_fail,E0382
/// fn twice(slot: doca::Slot<()>) {
///     let _ = slot.submit::<0>();
///     let _ = slot.submit::<1>();
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn changed_in_flight(mut slot: doca::Slot<()>) {
///     let _ = slot.submit::<0>();
///     slot.reset_data();
/// }
/// ```
///
/// A slot belongs to the thread of its contexts, and the number of a task is checked by the compiler:
///
/// ```compile_fail,E0277
/// fn elsewhere(slot: doca::Slot<()>) {
///     std::thread::spawn(move || slot.submit::<0>().is_ok());
/// }
/// ```
///
/// ```compile_fail,E0080
/// fn third_of_two(slot: doca::Slot<()>) {
///     let _ = slot.submit::<2>();
/// }
/// # fn main() { let _ = third_of_two as fn(_); }
/// ```
///
/// A slot that is dropped is not used any more; its tasks are freed with their contexts. A slot that is forgotten leaks
/// the memory of its pool, and nothing else.
pub struct Slot<U> {
    cell: NonNull<SlotCell<U>>,
}

/// A slot whose task was not submitted, and the reason.
#[derive(Debug)]
pub struct Refused<U> {
    /// The slot.
    pub slot: Slot<U>,
    /// [`ErrorCode::AGAIN`]: not possible now, e.g. because the peer has no buffer posted. [`ErrorCode::BAD_STATE`]: the
    /// slot has no such task, or the context is not running or was destroyed.
    pub code: ErrorCode,
}

impl<U> Slot<U> {
    /// # Safety
    ///
    /// The cell is idle, no other `Slot` refers to it, and its reference to the pool is passed on.
    #[inline(always)]
    unsafe fn from_cell(cell: NonNull<SlotCell<U>>) -> Self {
        Self { cell }
    }

    #[inline(always)]
    fn cell(&self) -> &SlotCell<U> {
        // SAFETY: the slot holds a reference to the pool.
        unsafe { self.cell.as_ref() }
    }

    /// Submits the task with this number. When it has completed, its handler gets the slot.
    ///
    /// # Errors
    ///
    /// The slot, with the code of `doca_task_submit`.
    #[inline(always)]
    pub fn submit<const TASK: usize>(self) -> std::result::Result<(), Refused<U>> {
        const { assert!(TASK < TASKS_PER_SLOT) };
        let cell = self.cell();
        let task = cell.tasks[TASK].get();
        if task.is_null() {
            return Err(self.refused(ErrorCode::BAD_STATE));
        }
        cell.phase.set(Phase::InFlight(TASK as u8));
        // SAFETY: the task is allocated, and not in flight, as the slot is idle; its buf is live. The context's progress
        // engine belongs to this thread, as slots are not `Send`.
        let code = ErrorCode(unsafe { sys::doca_task_submit(task) });
        if code == ErrorCode::SUCCESS {
            // The completion makes a slot of the cell again.
            mem::forget(self);
            return Ok(());
        }
        cell.phase.set(Phase::Idle);
        Err(self.refused(code))
    }

    #[cold]
    fn refused(self, code: ErrorCode) -> Refused<U> {
        Refused { slot: self, code }
    }

    /// The state of the slot.
    #[inline(always)]
    pub fn state(&self) -> &U {
        // SAFETY: only the slot refers to it, of which there is one.
        unsafe { &*self.cell().state.get() }
    }

    /// The state of the slot.
    #[inline(always)]
    pub fn state_mut(&mut self) -> &mut U {
        // SAFETY: as in `state`, and the slot is borrowed exclusively.
        unsafe { &mut *self.cell().state.get() }
    }

    /// Length in bytes of what was received into the buffer or is sent from it.
    #[inline(always)]
    pub fn data_len(&self) -> usize {
        let mut len = 0;
        // SAFETY: the pool has the buf, the out-parameter is valid. Fails only for null.
        let _ = unsafe { sys::doca_buf_get_data_len(self.cell().buf, &mut len) };
        len
    }

    /// Empties the buffer: the next receive begins at its start.
    #[inline(always)]
    pub fn reset_data(&mut self) {
        // SAFETY: the pool has the buf, and it is not in flight, as the slot is idle. Fails only for null.
        let _ = unsafe { sys::doca_buf_reset_data_len(self.cell().buf) };
    }

    /// Copies the first `N` bytes of the buffer, whatever of them is data. Returns `false`, and copies nothing, if the
    /// buffer is smaller.
    ///
    /// Peers may write to the buffer at any time, so its bytes are copied before they are looked at.
    #[inline(always)]
    #[must_use]
    pub fn read<const N: usize>(&self, into: &mut [u8; N]) -> bool {
        let cell = self.cell();
        let fits = N <= cell.len as usize;
        if fits {
            // SAFETY: the buffer has that many bytes, in a region that the pool's bufs keep; `into` is not in it.
            unsafe { load_shared(cell.bytes, into.as_mut_ptr(), N) };
        }
        fits
    }

    /// Makes a copy of `bytes` the data.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TOO_BIG`] for more bytes than the buffer has.
    pub fn write_data(&mut self, bytes: &[u8]) -> Result<()> {
        let cell = self.cell();
        // SAFETY: the slot holds a reference to the pool.
        let pool = unsafe { &*cell.pool };
        let start = pool.cells.as_ptr().addr();
        let index = (ptr::from_ref(cell).addr() - start) / mem::size_of::<SlotCell<U>>();
        pool.bufs[index].write_data(bytes)
    }
}

impl<U> Drop for Slot<U> {
    fn drop(&mut self) {
        let pool = self.cell().pool;
        // SAFETY: the slot's own reference, from `Slots::new`; neither pointer is used afterwards.
        unsafe { Rc::decrement_strong_count(pool) };
    }
}

impl<U> fmt::Debug for Slot<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("cell", &self.cell)
            .field("data_len", &self.data_len())
            .finish_non_exhaustive()
    }
}

/// New slots with their buffers, which contexts give tasks to before they are [used](Self::into_iter).
///
/// [`Consumer::receive_into`](crate::Consumer::receive_into), [`Producer::send_from`](crate::Producer::send_from),
/// [`Rdma::receive_into`](crate::Rdma::receive_into) and [`Rdma::send_from`](crate::Rdma::send_from) add tasks.
pub struct Slots<U> {
    pool: Rc<Pool<U>>,
}

impl<U: 'static> Slots<U> {
    /// `count` slots for handlers of the engine's worker, with buffers of `len` bytes, one behind the other, from
    /// `offset` of `mmap` on. `state` makes the state of the slot with a number.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_SUPPORTED`] for an imported map; as for [`BufInventory::buf`].
    pub fn new<W>(
        pe: &WorkerPe<W>,
        inventory: &BufInventory,
        mmap: &Mmap,
        (offset, len, count): (usize, u32, usize),
        mut state: impl FnMut(usize) -> U,
    ) -> Result<Self> {
        const OPERATION: &str = "doca_buf_inventory_buf_get_by_addr";
        let Some(region) = mmap.region() else {
            let detail = "the memory of an imported map is in another process";
            return Err(Error::with_detail(
                OPERATION,
                ErrorCode::NOT_SUPPORTED,
                detail,
            ));
        };
        let place = |index: usize| {
            let distance = index.checked_mul(len as usize);
            distance.and_then(|distance| offset.checked_add(distance))
        };
        let bufs = (0..count)
            .map(|index| {
                let offset = place(index).unwrap_or(usize::MAX);
                inventory.buf(mmap, offset as u64, len as usize)
            })
            .collect::<Result<Box<[Buf]>>>()?;
        let queue = Rc::clone(pe.pe.inner().queue());
        queue.reserve_deferred(count);
        let pool = Rc::new_cyclic(|pool| Pool {
            cells: bufs
                .iter()
                .enumerate()
                .map(|(index, buf)| SlotCell {
                    tasks: Default::default(),
                    buf: buf.as_ptr(),
                    // Inside of the region, or there would be no buf.
                    bytes: region.as_ptr().wrapping_add(place(index).unwrap_or(0)),
                    pool: pool.as_ptr(),
                    len,
                    phase: Cell::new(Phase::Idle),
                    state: UnsafeCell::new(state(index)),
                })
                .collect(),
            bufs,
            queue,
        });
        Ok(Self { pool })
    }

    /// Refuses slots of another engine, and those that have a task with this number.
    pub(crate) fn check(
        &self,
        operation: &'static str,
        queue: &Rc<EventQueue>,
        task: usize,
    ) -> Result<()> {
        let is_vacant = |cell: &SlotCell<U>| cell.tasks[task].get().is_null();
        let detail = if !Rc::ptr_eq(queue, &self.pool.queue) {
            "the slots are of another progress engine"
        } else if !self.pool.cells.iter().all(is_vacant) {
            "the slots have a task of this number"
        } else {
            return Ok(());
        };
        Err(Error::with_detail(
            operation,
            ErrorCode::INVALID_VALUE,
            detail,
        ))
    }

    /// Gives each slot its task with the number `task`.
    ///
    /// # Safety
    ///
    /// [`check`](Self::check) has accepted the queue of the engine and the number. `allocate` returns a task for a buf,
    /// just allocated from a context of that engine that calls [`SlotTasks::free_idle`] before it is destroyed, with the
    /// callbacks of a handler for this type of state, whose worker is that of the engine.
    pub(crate) unsafe fn adopt(
        &self,
        operation: &'static str,
        task: usize,
        mut allocate: impl FnMut(*mut sys::doca_buf) -> Result<*mut sys::doca_task>,
    ) -> Result<()> {
        for cell in &self.pool.cells {
            let raw = crate::device::non_null(operation, allocate(cell.buf)?)?;
            cell.tasks[task].set(raw.as_ptr());
            let user_data = sys::doca_data {
                ptr: ptr::from_ref(cell).cast_mut().cast(),
            };
            // SAFETY: the task is live. The cell stays where it is as long as the task is allocated.
            unsafe { sys::doca_task_set_user_data(raw.as_ptr(), user_data) };
        }
        Ok(())
    }

    /// The map of the buffers; `None` without slots.
    pub(crate) fn mmap(&self) -> Option<&Mmap> {
        self.pool.bufs.first().map(Buf::mmap)
    }

    pub(crate) fn tasks(&self) -> Rc<dyn SlotTasks> {
        Rc::clone(&self.pool) as Rc<dyn SlotTasks>
    }
}

impl<U> IntoIterator for Slots<U> {
    type Item = Slot<U>;
    type IntoIter = SlotIter<U>;

    /// The slots, idle.
    fn into_iter(self) -> SlotIter<U> {
        SlotIter {
            pool: self.pool,
            next: 0,
        }
    }
}

impl<U> fmt::Debug for Slots<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("count", &self.pool.cells.len())
            .finish_non_exhaustive()
    }
}

/// Iterator over new slots.
pub struct SlotIter<U> {
    pool: Rc<Pool<U>>,
    next: usize,
}

impl<U> Iterator for SlotIter<U> {
    type Item = Slot<U>;

    fn next(&mut self) -> Option<Slot<U>> {
        let cell = NonNull::from(self.pool.cells.get(self.next)?);
        self.next += 1;
        // Not dropped here: the slot's own reference.
        mem::forget(Rc::clone(&self.pool));
        // SAFETY: each cell is passed once, idle, with the reference above.
        Some(unsafe { Slot::from_cell(cell) })
    }
}

impl<U> fmt::Debug for SlotIter<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotIter")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// The callbacks of a kind of tasks that belong to slots, with the types that they expect.
pub(crate) struct HandlerConf<T> {
    handler: TypeId,
    worker: TypeId,
    completed: CompletionCallback<T>,
    failed: CompletionCallback<T>,
}

impl<T> Clone for HandlerConf<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for HandlerConf<T> {}

impl<T> fmt::Debug for HandlerConf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerConf")
            .field("handler", &self.handler)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

impl<T> HandlerConf<T> {
    pub(crate) fn of<H: CompletionHandler>() -> Self {
        Self {
            handler: TypeId::of::<H>(),
            worker: TypeId::of::<H::Worker>(),
            completed: completed::<T, H>,
            failed: failed::<T, H>,
        }
    }

    pub(crate) fn callbacks(
        self,
    ) -> (Option<CompletionCallback<T>>, Option<CompletionCallback<T>>) {
        (Some(self.completed), Some(self.failed))
    }

    /// Refuses an engine that has another type of workers, or none.
    pub(crate) fn check_worker(&self, operation: &'static str, pe: &Pe) -> Result<()> {
        if pe.inner().worker_type() == Some(self.worker) {
            return Ok(());
        }
        Err(Error::with_detail(
            operation,
            ErrorCode::INVALID_VALUE,
            "expected the `WorkerPe` of the handler's worker, got another progress engine",
        ))
    }
}

/// Refuses slots with other handlers than the context was started with.
pub(crate) fn check_handler<T, H: CompletionHandler>(
    operation: &'static str,
    conf: Option<HandlerConf<T>>,
) -> Result<()> {
    if conf.is_some_and(|conf| conf.handler == TypeId::of::<H>()) {
        return Ok(());
    }
    Err(Error::with_detail(
        operation,
        ErrorCode::INVALID_VALUE,
        "the context was started with another handler for tasks of this kind, or without one",
    ))
}

/// Refuses a task whose completions would be queued, where they are passed to handlers.
pub(crate) fn check_queued<T>(
    operation: &'static str,
    conf: &Option<HandlerConf<T>>,
) -> Result<()> {
    if conf.is_none() {
        return Ok(());
    }
    Err(Error::with_detail(
        operation,
        ErrorCode::INVALID_VALUE,
        "the context was started with a handler for tasks of this kind, which are those of slots",
    ))
}

unsafe extern "C" fn completed<T, H: CompletionHandler>(
    _task: *mut T,
    task_user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA passes the user data that `Slots::adopt` set.
    unsafe { complete::<H>(task_user_data, ErrorCode::SUCCESS) };
}

unsafe extern "C" fn failed<T, H: CompletionHandler>(
    _task: *mut T,
    task_user_data: sys::doca_data,
    _ctx_user_data: sys::doca_data,
) {
    // SAFETY: DOCA passes the user data that `Slots::adopt` set; the task is live: it just completed.
    unsafe {
        let cell = &*task_user_data.ptr.cast::<SlotCell<H::State>>();
        let code = match cell.phase.get() {
            Phase::InFlight(task) => {
                ErrorCode(sys::doca_task_get_status(cell.tasks[task as usize].get()))
            }
            Phase::Idle | Phase::Completed => ErrorCode::UNKNOWN,
        };
        // The error callback must not report success.
        let code = if code == ErrorCode::SUCCESS {
            ErrorCode::UNKNOWN
        } else {
            code
        };
        complete::<H>(task_user_data, code);
    }
}

/// Passes a slot to the handler, or keeps it until the events before it were taken.
///
/// # Safety
///
/// The user data is that of a task of a slot with the state of `H` that has completed.
#[inline(always)]
unsafe fn complete<H: CompletionHandler>(user_data: sys::doca_data, code: ErrorCode) {
    // SAFETY: `Slots::adopt` set this member to the address of a cell.
    let pointer = unsafe { NonNull::new_unchecked(user_data.ptr.cast::<SlotCell<H::State>>()) };
    // SAFETY: a slot in flight has a reference to its pool.
    let (cell, pool) = unsafe { (pointer.as_ref(), &*pointer.as_ref().pool) };
    let Some(worker) = pool.queue.worker() else {
        cell.phase.set(Phase::Completed);
        pool.queue.defer(DeferredCompletion {
            slot: pointer.cast(),
            code,
            hand_over: hand_over::<H>,
        });
        return;
    };
    cell.phase.set(Phase::Idle);
    // SAFETY: the slot that was submitted was forgotten, so this is the only one. The worker is that of the active
    // progress call, of the handler's type, and not used meanwhile: no progress is made inside of a handler, and a
    // submission does not call back.
    unsafe {
        let slot = Slot::from_cell(pointer);
        H::completed(worker.cast().as_mut(), slot, code.ok());
    }
}

/// Passes a slot that was kept to its handler; drops it if there is no worker.
///
/// # Safety
///
/// The slot was deferred by [`complete`] with this handler, and is passed once; the worker is of the handler's type and
/// not used meanwhile.
unsafe extern "C" fn hand_over<H: CompletionHandler>(
    slot: NonNull<()>,
    worker: Option<NonNull<()>>,
    code: ErrorCode,
) {
    let pointer = slot.cast::<SlotCell<H::State>>();
    // SAFETY: a slot that was deferred has kept its reference to the pool.
    unsafe {
        pointer.as_ref().phase.set(Phase::Idle);
        let slot = Slot::from_cell(pointer);
        if let Some(worker) = worker {
            H::completed(worker.cast().as_mut(), slot, code.ok());
        }
    }
}
