//! Slots: tasks and their buffers behind a handle that is submitted and returned without overhead.

use std::any::TypeId;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use doca_sys as sys;
use sealed::Area;

use crate::memory::{load_shared, store_shared};
use crate::task::{CompletionCallback, DeferredCompletion, EventQueue, completion_callbacks};
use crate::{Buf, BufInventory, Error, ErrorCode, Mmap, Pe, Result};

pub(crate) use sealed::OneOfSlot;

/// Maximum number of tasks of a slot.
pub const TASKS_PER_SLOT: usize = 2;

/// Handler of completed tasks of one kind of a context: see [`WorkerPe`].
pub trait CompletionHandler: 'static {
    /// State of the loop that makes progress.
    type Worker: 'static;
    /// State of each slot. Up to 16 bytes fit into the slot's cache line.
    type State: 'static;
    /// Buffers of each slot.
    type Buffers: Buffers;

    /// Called inside [`WorkerPe::progress`] with the slot, which is idle again. A slot that is dropped here is never
    /// used again.
    ///
    /// A panic aborts the process, because this is called through C functions.
    fn completed(
        worker: &mut Self::Worker,
        slot: Slot<Self::State, Self::Buffers>,
        result: std::result::Result<(), ErrorCode>,
    );
}

/// Defines a [`CompletionHandler`] with one expression for success and one for failure.
///
/// For a generic handler, list its parameters, followed by their bounds in brackets: `struct Received<T> [T: Clone];`.
///
/// ```
/// use doca::{OneBuffer, Slot, completion_handler};
///
/// #[derive(Default)]
/// struct Receiver {
///     messages: u64,
/// }
///
/// completion_handler! {
///     /// Handles received messages.
///     struct Received;
///     |receiver: Receiver, slot: Slot<(), OneBuffer>| {
///         receiver.messages += 1;
///         drop(slot);
///     },
///     |code| eprintln!("receiving a message: {code}")
/// }
/// ```
#[macro_export]
macro_rules! completion_handler {
    (
        $(#[$meta:meta])*
        $vis:vis struct $handler:ident $(<$($parameter:ident),+> [$($bounds:tt)+])?;
        |$worker:ident: $worker_type:ty, $slot:ident: Slot<$state:ty, $buffers:ty>| $completed:expr,
        |$code:pat_param| $failed:expr
    ) => {
        $(#[$meta])*
        $vis struct $handler $(<$($parameter),+>(::std::marker::PhantomData<($($parameter),+)>))?;

        impl $(<$($bounds)+>)? $crate::CompletionHandler for $handler $(<$($parameter),+>)? {
            type Worker = $worker_type;
            type State = $state;
            type Buffers = $buffers;

            #[inline(always)]
            fn completed(
                $worker: &mut $worker_type,
                $slot: $crate::Slot<$state, $buffers>,
                result: ::std::result::Result<(), $crate::ErrorCode>,
            ) {
                match result {
                    Ok(()) => $completed,
                    Err($code) => $failed,
                }
            }
        }
    };
}

/// A progress engine that passes the completions of [slots](Slot) to a worker of type `W`, without a queue in between.
///
/// All contexts can be started on it. Events other than completions of slots are queued for [`Pe::poll`], as on every
/// engine.
///
/// ```
/// use doca::{CompletionHandler, ErrorCode, OneBuffer, Slot, WorkerPe};
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
///     type Buffers = OneBuffer;
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
    /// The errors of `doca_pe_create`.
    pub fn new() -> Result<Self> {
        Ok(Self {
            pe: Pe::for_workers(TypeId::of::<W>())?,
            worker: std::marker::PhantomData,
        })
    }

    /// Makes progress once and passes the completions of slots to their handlers. Returns `true` if other events are
    /// queued; in this case, [`Pe::poll`] must be called before this method makes further progress.
    ///
    /// Completions that follow another event are passed once that event was taken. A handler can submit and drop slots;
    /// a context that is stopped (its `stop` returns [`ErrorCode::IN_PROGRESS`]) or dropped in a handler is stopped at
    /// the end of this call.
    // Always inlined, because a program has only one call site.
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
    /// A [`Slot`] refers to the cell, or referred to it when it was dropped or forgotten.
    Idle,
    /// DOCA has the task with this number.
    InFlight(u8),
    /// The slot is in the queue of completions that follow other events.
    Completed,
}

/// Number and kind of a slot's buffers: [`OneBuffer`] or [`TwoBuffers`].
pub trait Buffers: sealed::Buffers {}

mod sealed {
    use doca_sys as sys;

    pub trait Buffers: 'static {
        /// Part of a slot.
        type OfSlot;
        /// Part shared by all slots of a pool.
        type OfPool;
    }

    /// The buffer of a slot.
    pub struct OneOfSlot {
        pub buf: *mut sys::doca_buf,
        /// Start of the buffer.
        pub bytes: *mut u8,
    }

    /// The address range of a memory map, which may be in another process.
    #[derive(Debug, Clone, Copy)]
    pub struct Area {
        pub base: *mut std::ffi::c_void,
        pub len: usize,
    }
}

/// Each slot has a buffer of the same length, at a fixed address in memory of this process: for messages.
#[derive(Debug)]
pub enum OneBuffer {}

/// Each slot has two buffers in two memory maps, whose ranges are set before a task is submitted.
///
/// RDMA transfers data between [`LOCAL`](Self::LOCAL) and [`REMOTE`](Self::REMOTE), in the direction of the task;
/// accelerators process the data of [`SOURCE`](Self::SOURCE) and append the result to the data of
/// [`DESTINATION`](Self::DESTINATION).
#[derive(Debug)]
pub enum TwoBuffers {}

impl TwoBuffers {
    /// Number of the buffer in memory of this process.
    pub const LOCAL: usize = 0;
    /// Number of the buffer in the peer's memory.
    pub const REMOTE: usize = 1;
    /// Number of the buffer that a task of an accelerator reads.
    pub const SOURCE: usize = 0;
    /// Number of the buffer that a task of an accelerator writes.
    pub const DESTINATION: usize = 1;
}

impl Buffers for OneBuffer {}
impl Buffers for TwoBuffers {}

impl sealed::Buffers for OneBuffer {
    type OfSlot = OneOfSlot;
    /// Length of each buffer in bytes.
    type OfPool = usize;
}

impl sealed::Buffers for TwoBuffers {
    type OfSlot = [*mut sys::doca_buf; 2];
    type OfPool = [Area; 2];
}

/// The buffers of a slot of the type that `H` handles.
pub(crate) type BuffersOf<H> = <<H as CompletionHandler>::Buffers as sealed::Buffers>::OfSlot;

impl Area {
    fn of(mmap: &Mmap) -> Self {
        Self {
            base: mmap.base(),
            len: usize::try_from(mmap.len()).unwrap_or(usize::MAX),
        }
    }

    /// The address of `len` bytes at `offset`, if they are inside the map.
    #[inline(always)]
    fn address(&self, offset: u64, len: usize) -> Option<*mut c_void> {
        // As `u64`: an offset that does not fit into `usize` is outside.
        let (all, wanted) = (self.len as u64, len as u64);
        if wanted <= all && offset <= all - wanted {
            // Wrapping: the address may belong to another process.
            Some(self.base.wrapping_byte_add(offset as usize))
        } else {
            None
        }
    }
}

/// Target of a [`Slot`] and of the user data of its tasks: one cache line, if the state has at most 16 bytes.
#[repr(C, align(64))]
struct SlotCell<U, B: Buffers> {
    /// Null for tasks that the slot does not have, or no longer has.
    tasks: [Cell<*mut sys::doca_task>; TASKS_PER_SLOT],
    buffers: B::OfSlot,
    pool: *const Pool<U, B>,
    phase: Cell<Phase>,
    /// Owned by the [`Slot`], which drops it.
    state: UnsafeCell<ManuallyDrop<U>>,
}

const _: () = assert!(mem::size_of::<SlotCell<[u64; 2], OneBuffer>>() == 64);
const _: () = assert!(mem::size_of::<SlotCell<[u64; 2], TwoBuffers>>() == 64);

/// The memory of slots. Alive as long as a slot exists, idle or in flight, or a context with a task of a slot.
struct Pool<U, B: Buffers> {
    cells: Box<[SlotCell<U, B>]>,
    buffers: B::OfPool,
    /// Keep the buffers' memory maps: one for each buffer of each slot, in order.
    bufs: Box<[Buf]>,
    queue: Rc<EventQueue>,
}

/// Slots, as seen by a context that has tasks in them.
pub(crate) trait SlotTasks {
    /// Frees the tasks with this number that are not in flight.
    fn free_idle(&self, task: usize);
}

impl<U, B: Buffers> Drop for Pool<U, B> {
    fn drop(&mut self) {
        self.queue.remove_slots(self.cells.len());
    }
}

impl<U, B: Buffers> SlotTasks for Pool<U, B> {
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

/// An idle slot: one buffer or [two](TwoBuffers) with up to [`TASKS_PER_SLOT`] tasks, of which one at a time is in
/// flight.
///
/// The buffers can only be accessed through it. [`submit`](Self::submit) moves it to the device, and the
/// [handler](CompletionHandler) of the task receives it back. Therefore a task cannot be submitted twice, and a buffer
/// cannot be changed in flight:
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
/// ```compile_fail,E0382
/// use doca::TwoBuffers;
///
/// fn moved_in_flight(mut slot: doca::Slot<(), TwoBuffers>) {
///     let _ = slot.submit::<0>();
///     let _ = slot.set_range::<{ TwoBuffers::LOCAL }>(0, 64);
/// }
/// ```
///
/// ```compile_fail,E0382
/// use doca::TwoBuffers;
///
/// fn emptied_in_flight(mut slot: doca::Slot<(), TwoBuffers>) {
///     let _ = slot.submit::<0>();
///     slot.reset_data::<{ TwoBuffers::DESTINATION }>();
/// }
/// ```
///
/// The address of a message buffer is fixed, and buffers of transfers cannot be read:
///
/// ```compile_fail,E0599
/// fn moved(mut slot: doca::Slot<()>) {
///     let _ = slot.set_range::<0>(0, 64);
/// }
/// ```
///
/// ```compile_fail,E0599
/// fn read(slot: doca::Slot<(), doca::TwoBuffers>) {
///     let _ = slot.read(&mut [0; 64]);
/// }
/// ```
///
/// A slot belongs to the thread of its contexts, and the numbers of tasks and buffers are checked by the compiler:
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
/// ```compile_fail,E0080
/// fn third_buffer_of_two(mut slot: doca::Slot<(), doca::TwoBuffers>) {
///     let _ = slot.set_data::<2>(0, 64);
/// }
/// # fn main() { let _ = third_buffer_of_two as fn(_); }
/// ```
///
/// ```compile_fail,E0080
/// fn result_in_a_third_buffer(slot: doca::Slot<(), doca::TwoBuffers>) -> usize {
///     slot.data_len::<2>()
/// }
/// # fn main() { let _ = result_in_a_third_buffer as fn(_) -> _; }
/// ```
///
/// Dropping a slot drops its state, and its tasks are freed with their contexts. Forgetting a slot leaks only its state
/// and the memory of its pool.
pub struct Slot<U, B: Buffers = OneBuffer> {
    cell: NonNull<SlotCell<U, B>>,
}

// A slot has the size of a pointer, as has an optional slot.
const _: () = assert!(mem::size_of::<Option<Slot<(), TwoBuffers>>>() == mem::size_of::<usize>());

/// A slot whose task was not submitted, and the reason.
#[derive(Debug)]
pub struct Refused<U, B: Buffers = OneBuffer> {
    /// The idle slot, returned to its owner.
    pub slot: Slot<U, B>,
    /// [`ErrorCode::AGAIN`]: not possible now, e.g. because the peer has no buffer posted. [`ErrorCode::BAD_STATE`]: the
    /// slot has no such task, or the context is not running or was destroyed.
    pub code: ErrorCode,
}

impl<U, B: Buffers> Slot<U, B> {
    /// # Safety
    ///
    /// The cell is idle, its state was not dropped, no other `Slot` refers to it, and its reference to the pool is
    /// passed on.
    #[inline(always)]
    unsafe fn from_cell(cell: NonNull<SlotCell<U, B>>) -> Self {
        Self { cell }
    }

    #[inline(always)]
    fn cell(&self) -> &SlotCell<U, B> {
        // SAFETY: the slot holds a reference to the pool.
        unsafe { self.cell.as_ref() }
    }

    #[inline(always)]
    fn pool(&self) -> &Pool<U, B> {
        // SAFETY: the slot holds a reference to the pool.
        unsafe { &*self.cell().pool }
    }

    /// Index of the slot among those created together.
    #[inline(always)]
    pub fn index(&self) -> usize {
        let start = self.pool().cells.as_ptr().addr();
        (self.cell.as_ptr().addr() - start) / mem::size_of::<SlotCell<U, B>>()
    }

    /// Submits the task with this number. When it has completed, its handler receives the slot.
    ///
    /// # Errors
    ///
    /// The slot, with the code of `doca_task_submit`.
    #[inline(always)]
    pub fn submit<const TASK: usize>(self) -> std::result::Result<(), Refused<U, B>> {
        const { assert!(TASK < TASKS_PER_SLOT) };
        let cell = self.cell();
        let task = cell.tasks[TASK].get();
        if task.is_null() {
            return Err(self.refused(ErrorCode::BAD_STATE));
        }
        cell.phase.set(Phase::InFlight(TASK as u8));
        // SAFETY: the task is allocated, and not in flight, as the slot is idle; its bufs are live. The context's
        // progress engine belongs to this thread, as slots are not `Send`.
        let code = ErrorCode(unsafe { sys::doca_task_submit(task) });
        if code == ErrorCode::SUCCESS {
            // The completion creates a slot for the cell again.
            mem::forget(self);
            return Ok(());
        }
        cell.phase.set(Phase::Idle);
        Err(self.refused(code))
    }

    #[cold]
    fn refused(self, code: ErrorCode) -> Refused<U, B> {
        Refused { slot: self, code }
    }

    /// The state of the slot.
    #[inline(always)]
    pub fn state(&self) -> &U {
        // SAFETY: only the slot refers to the state, and there is only one slot for it.
        unsafe { &*self.cell().state.get() }
    }

    /// The state of the slot.
    #[inline(always)]
    pub fn state_mut(&mut self) -> &mut U {
        // SAFETY: as in `state`, and the slot is borrowed exclusively.
        unsafe { &mut *self.cell().state.get() }
    }
}

impl<U> Slot<U> {
    /// Length in bytes of the data that was received into the buffer, or is sent from it.
    #[inline(always)]
    pub fn data_len(&self) -> usize {
        let mut len = 0;
        // SAFETY: the pool has the buf, the out-parameter is valid. Fails only for null.
        let _ = unsafe { sys::doca_buf_get_data_len(self.cell().buffers.buf, &mut len) };
        len
    }

    /// Empties the buffer: the next receive begins at its start.
    #[inline(always)]
    pub fn reset_data(&mut self) {
        // SAFETY: the pool has the buf, and it is not in flight, as the slot is idle. Fails only for null.
        let _ = unsafe { sys::doca_buf_reset_data_len(self.cell().buffers.buf) };
    }

    /// Copies the first `N` bytes of the buffer, which may include bytes after its data. Returns `false`, and copies
    /// nothing, if the buffer is smaller.
    ///
    /// Peers may write to the buffer at any time, so its bytes are copied before they are examined.
    #[inline(always)]
    #[must_use]
    pub fn read<const N: usize>(&self, into: &mut [u8; N]) -> bool {
        let fits = N <= self.pool().buffers;
        if fits {
            // SAFETY: the buffer has that many bytes, in a region that the pool's bufs keep; `into` is not in it.
            unsafe { load_shared(self.cell().buffers.bytes, into.as_mut_ptr(), N) };
        }
        fits
    }

    /// Overwrites the first `N` bytes of the buffer, which may include bytes after its data. Returns `false`, and
    /// writes nothing, if the buffer is smaller.
    #[inline(always)]
    #[must_use]
    pub fn write<const N: usize>(&mut self, bytes: &[u8; N]) -> bool {
        let fits = N <= self.pool().buffers;
        if fits {
            // SAFETY: the buffer has that many bytes, in a region that the pool's bufs keep; `bytes` is not in it. The
            // device does not use it, as the slot is idle.
            unsafe { store_shared(bytes.as_ptr(), self.cell().buffers.bytes, N) };
        }
        fits
    }

    /// Copies `bytes` to the start of the buffer and makes them its data.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TOO_BIG`] for more bytes than the buffer has.
    pub fn write_data(&mut self, bytes: &[u8]) -> Result<()> {
        self.pool().bufs[self.index()].write_data(bytes)
    }
}

impl<U> Slot<U, TwoBuffers> {
    /// Sets the range of a buffer to `len` bytes at `offset` of its memory map, all of them data: the source of a task.
    /// `BUFFER` is [`LOCAL`](TwoBuffers::LOCAL) or [`REMOTE`](TwoBuffers::REMOTE).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] if the range is not inside the map. In this case, the buffer is unchanged.
    #[inline(always)]
    pub fn set_data<const BUFFER: usize>(
        &mut self,
        offset: u64,
        len: usize,
    ) -> std::result::Result<(), ErrorCode> {
        let (buf, address) = self.place::<BUFFER>(offset, len)?;
        // SAFETY: the pool has the buf, which is not in flight, as the slot is idle; the range is inside its map.
        ErrorCode(unsafe { sys::doca_buf_inventory_buf_reuse_by_data(buf, address, len) }).ok()
    }

    /// Sets the range of a buffer to `len` bytes at `offset` of its memory map, without data: the destination of a task.
    ///
    /// # Errors
    ///
    /// As for [`set_data`](Self::set_data).
    #[inline(always)]
    pub fn set_range<const BUFFER: usize>(
        &mut self,
        offset: u64,
        len: usize,
    ) -> std::result::Result<(), ErrorCode> {
        let (buf, address) = self.place::<BUFFER>(offset, len)?;
        // SAFETY: as in `set_data`.
        ErrorCode(unsafe { sys::doca_buf_inventory_buf_reuse_by_addr(buf, address, len) }).ok()
    }

    /// Empties a buffer: the next task that writes to it begins at the start of its range.
    #[inline(always)]
    pub fn reset_data<const BUFFER: usize>(&mut self) {
        const { assert!(BUFFER < 2) };
        // SAFETY: the pool has the buf, and it is not in flight, as the slot is idle. Fails only for null.
        let _ = unsafe { sys::doca_buf_reset_data_len(self.cell().buffers[BUFFER]) };
    }

    /// Length in bytes of a buffer's data: for a destination, of the data written to it. That of the first buffer of a
    /// [list](Slots::append_data).
    #[inline(always)]
    pub fn data_len<const BUFFER: usize>(&self) -> usize {
        const { assert!(BUFFER < 2) };
        let mut len = 0;
        // SAFETY: the pool has the buf, the out-parameter is valid. Fails only for null.
        let _ = unsafe { sys::doca_buf_get_data_len(self.cell().buffers[BUFFER], &mut len) };
        len
    }

    #[inline(always)]
    fn place<const BUFFER: usize>(
        &self,
        offset: u64,
        len: usize,
    ) -> std::result::Result<(*mut sys::doca_buf, *mut c_void), ErrorCode> {
        const { assert!(BUFFER < 2) };
        match self.pool().buffers[BUFFER].address(offset, len) {
            Some(address) => Ok((self.cell().buffers[BUFFER], address)),
            None => Err(ErrorCode::INVALID_VALUE),
        }
    }
}

impl<U, B: Buffers> Drop for Slot<U, B> {
    // A separate function, so that the check for a slot is inlined where an `Option<Slot>` is overwritten.
    #[cold]
    fn drop(&mut self) {
        let cell = self.cell();
        // SAFETY: the state has not been dropped, and only this slot, the last reference to its cell, refers to it.
        unsafe { ManuallyDrop::drop(&mut *cell.state.get()) };
        // SAFETY: the slot's own reference, from `SlotIter::next`; neither pointer is used afterwards.
        unsafe { Rc::decrement_strong_count(cell.pool) };
    }
}

impl<U, B: Buffers> fmt::Debug for Slot<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("cell", &self.cell)
            .field("index", &self.index())
            .finish_non_exhaustive()
    }
}

/// New slots with their buffers, to which contexts add tasks before the slots are [used](Self::into_iter).
///
/// Tasks for messages are added by [`Consumer::receive_into`](crate::Consumer::receive_into),
/// [`Producer::send_from`](crate::Producer::send_from), [`Rdma::receive_into`](crate::Rdma::receive_into) and
/// [`Rdma::send_from`](crate::Rdma::send_from). Slots with two buffers get tasks from
/// [`Rdma::read_into`](crate::Rdma::read_into), [`Rdma::write_from`](crate::Rdma::write_from),
/// [`Dma::copy_in`](crate::Dma::copy_in), [`Compress::decompress_lz4_stream_in`](crate::Compress::decompress_lz4_stream_in),
/// [`ErasureCoding::create_in`](crate::ErasureCoding::create_in) and
/// [`ErasureCoding::recover_in`](crate::ErasureCoding::recover_in).
pub struct Slots<U, B: Buffers = OneBuffer> {
    slots: SlotIter<U, B>,
}

impl<U: 'static> Slots<U> {
    /// `count` slots for handlers of the engine's worker, with buffers of `len` bytes, contiguous from `offset` of
    /// `mmap` on. `state` returns the initial state of a slot, given its index.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_SUPPORTED`] for an imported map; as for [`BufInventory::buf`].
    pub fn new<W>(
        pe: &WorkerPe<W>,
        inventory: &BufInventory,
        mmap: &Mmap,
        (offset, len, count): (usize, u32, usize),
        state: impl FnMut(usize) -> U,
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
        let buffers = |index: usize| OneOfSlot {
            buf: bufs[index].as_ptr(),
            // Inside the region, because otherwise the buf could not be created.
            bytes: region.as_ptr().wrapping_add(place(index).unwrap_or(0)),
        };
        let buffers = (0..count).map(buffers).collect();
        Ok(Self::with_buffers(pe, buffers, len as usize, bufs, state))
    }

    /// The map of the buffers; `None` without slots.
    pub(crate) fn mmap(&self) -> Option<&Mmap> {
        self.slots.pool.bufs.first().map(Buf::mmap)
    }
}

impl<U: 'static> Slots<U, TwoBuffers> {
    /// `count` slots for handlers of the engine's worker, each with a buffer in `local`, memory of this process, and
    /// one in `remote`, that of a peer. `state` returns the initial state of a slot, given its index.
    ///
    /// The range of each buffer is all of its map, until it is [set](Slot::set_range).
    ///
    /// # Errors
    ///
    /// As for [`BufInventory::buf`].
    pub fn with_two_buffers<W>(
        pe: &WorkerPe<W>,
        inventory: &BufInventory,
        local: &Mmap,
        remote: &Mmap,
        count: usize,
        state: impl FnMut(usize) -> U,
    ) -> Result<Self> {
        let areas = [local, remote].map(Area::of);
        let mut bufs = Vec::with_capacity(2 * count);
        for _ in 0..count {
            bufs.push(inventory.buf(local, 0, areas[TwoBuffers::LOCAL].len)?);
            bufs.push(inventory.buf(remote, 0, areas[TwoBuffers::REMOTE].len)?);
        }
        let buffers = bufs.as_chunks::<2>().0;
        let buffers = buffers.iter().map(|pair| pair.each_ref().map(Buf::as_ptr));
        Ok(Self::with_buffers(
            pe,
            buffers.collect(),
            areas,
            bufs.into(),
            state,
        ))
    }

    /// Makes a buffer of each slot a list: after its data, a task also uses the bytes of `mmap` at the offset and with
    /// the length that `place` returns for the index of the slot, both in bytes. [`Slot::set_data`] and
    /// [`Slot::set_range`] change the first buffer of the list.
    ///
    /// # Errors
    ///
    /// As for [`BufInventory::buf`].
    pub fn append_data<const BUFFER: usize>(
        &self,
        inventory: &BufInventory,
        mmap: &Mmap,
        place: impl Fn(usize) -> (u64, usize),
    ) -> Result<()> {
        const { assert!(BUFFER < 2) };
        let slots = self.slots.pool.bufs.as_chunks::<2>().0;
        slots.iter().enumerate().try_for_each(|(index, bufs)| {
            let (offset, len) = place(index);
            bufs[BUFFER].append(&inventory.buf_with_data(mmap, offset, len)?)
        })
    }
}

impl<U: 'static, B: Buffers> Slots<U, B> {
    /// Slots with these buffers, whose memory is kept by `bufs`.
    fn with_buffers<W>(
        pe: &WorkerPe<W>,
        of_slots: Vec<B::OfSlot>,
        of_pool: B::OfPool,
        bufs: Box<[Buf]>,
        mut state: impl FnMut(usize) -> U,
    ) -> Self {
        let queue = Rc::clone(pe.pe.inner().queue());
        queue.add_slots(of_slots.len());
        let pool = Rc::new_cyclic(|pool| Pool {
            cells: of_slots
                .into_iter()
                .enumerate()
                .map(|(index, buffers)| SlotCell {
                    tasks: Default::default(),
                    buffers,
                    pool: pool.as_ptr(),
                    phase: Cell::new(Phase::Idle),
                    state: UnsafeCell::new(ManuallyDrop::new(state(index))),
                })
                .collect(),
            buffers: of_pool,
            bufs,
            queue,
        });
        Self {
            slots: SlotIter { pool, next: 0 },
        }
    }

    /// Fails for slots of another engine, and if a slot already has a task with this number.
    pub(crate) fn check(
        &self,
        operation: &'static str,
        queue: &Rc<EventQueue>,
        task: usize,
    ) -> Result<()> {
        let pool = &self.slots.pool;
        let is_vacant = |cell: &SlotCell<U, B>| cell.tasks[task].get().is_null();
        let detail = if !Rc::ptr_eq(queue, &pool.queue) {
            "the slots are of another progress engine"
        } else if !pool.cells.iter().all(is_vacant) {
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
    /// [`check`](Self::check) has accepted the queue of the engine and the number. `allocate` returns a task for the
    /// buffers of a slot, just allocated from a context of that engine that calls [`SlotTasks::free_idle`] before it is
    /// destroyed, with the callbacks of a handler for slots of this type, whose worker is that of the engine.
    pub(crate) unsafe fn adopt(
        &self,
        operation: &'static str,
        task: usize,
        mut allocate: impl FnMut(&B::OfSlot) -> Result<*mut sys::doca_task>,
    ) -> Result<()> {
        for cell in &self.slots.pool.cells {
            let raw = crate::error::non_null(operation, allocate(&cell.buffers)?)?;
            cell.tasks[task].set(raw.as_ptr());
            let user_data = sys::doca_data {
                ptr: ptr::from_ref(cell).cast_mut().cast(),
            };
            // SAFETY: the task is live. The cell stays where it is as long as the task is allocated.
            unsafe { sys::doca_task_set_user_data(raw.as_ptr(), user_data) };
        }
        Ok(())
    }

    pub(crate) fn tasks(&self) -> Rc<dyn SlotTasks> {
        Rc::clone(&self.slots.pool) as Rc<dyn SlotTasks>
    }
}

impl<U, B: Buffers> IntoIterator for Slots<U, B> {
    type Item = Slot<U, B>;
    type IntoIter = SlotIter<U, B>;

    /// Returns the idle slots.
    fn into_iter(self) -> SlotIter<U, B> {
        self.slots
    }
}

impl<U, B: Buffers> fmt::Debug for Slots<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("count", &self.slots.pool.cells.len())
            .finish_non_exhaustive()
    }
}

/// Iterator over new slots. Slots that were not returned are dropped with the iterator.
pub struct SlotIter<U, B: Buffers = OneBuffer> {
    pool: Rc<Pool<U, B>>,
    next: usize,
}

impl<U, B: Buffers> Drop for SlotIter<U, B> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<U, B: Buffers> Iterator for SlotIter<U, B> {
    type Item = Slot<U, B>;

    fn next(&mut self) -> Option<Slot<U, B>> {
        let cell = NonNull::from(self.pool.cells.get(self.next)?);
        self.next += 1;
        // Leaked on purpose: it is the slot's own reference.
        mem::forget(Rc::clone(&self.pool));
        // SAFETY: each cell is passed once, idle, with its state and the reference above.
        Some(unsafe { Slot::from_cell(cell) })
    }
}

impl<U, B: Buffers> fmt::Debug for SlotIter<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotIter")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// The callbacks for a kind of tasks of slots, with the types that they expect.
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

/// The callbacks for a kind of tasks: those of its handler, or those that queue completions.
pub(crate) fn callbacks<T, const N: usize>(
    handler: [Option<HandlerConf<T>>; N],
) -> (Option<CompletionCallback<T>>, Option<CompletionCallback<T>>) {
    let handler = handler.into_iter().next().flatten();
    handler.map_or_else(completion_callbacks, HandlerConf::callbacks)
}

/// Fails if the context was started with another handler.
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

/// Fails for a task whose completions would be queued, if the context passes them to a handler.
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
        let cell = &*task_user_data.ptr.cast::<SlotCell<H::State, H::Buffers>>();
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

/// Passes a slot to the handler, or stores it until the preceding events have been taken.
///
/// # Safety
///
/// The user data is that of a task of a slot of the type that `H` handles, and the task has completed.
#[inline(always)]
unsafe fn complete<H: CompletionHandler>(user_data: sys::doca_data, code: ErrorCode) {
    // SAFETY: `Slots::adopt` set this member to the address of a cell.
    let pointer =
        unsafe { NonNull::new_unchecked(user_data.ptr.cast::<SlotCell<H::State, H::Buffers>>()) };
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
    // progress call, of the handler's type, and is not used in the meantime: no progress is made inside a handler, and
    // a submission does not invoke callbacks.
    unsafe {
        let slot = Slot::from_cell(pointer);
        H::completed(worker.cast().as_mut(), slot, code.ok());
    }
}

/// Passes a deferred slot to its handler; drops it if there is no worker.
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
    let pointer = slot.cast::<SlotCell<H::State, H::Buffers>>();
    // SAFETY: a slot that was deferred has kept its reference to the pool.
    unsafe {
        pointer.as_ref().phase.set(Phase::Idle);
        let slot = Slot::from_cell(pointer);
        if let Some(worker) = worker {
            H::completed(worker.cast().as_mut(), slot, code.ok());
        }
    }
}
