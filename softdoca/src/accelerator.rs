//! Contexts whose tasks run in software, in the thread that progresses them: DMA, compress, erasure coding, SHA,
//! AES-GCM.
//!
//! * [`Accelerator`] is the interface of one kind of context; [`Offload`] is the driver that runs its tasks.
//! * [`Gathered`] and [`Appender`] give [`engines`](crate::engines) access to the bufs of a task.
//! * [`Dma`], [`Advise`] and [`ErasureCoding`] are the kinds without state that is shared by tasks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::buffer::{Buf, BufHandle, Segment, Segments, copy_list};
use crate::device::{Device, DeviceUse};
use crate::engines::matrix::Matrix;
use crate::engines::region::Kernel;
use crate::engines::stripe::{Coder, Extent, Striper};
use crate::error::{Error, Result};
use crate::memory::{ExportKind, Mmap};
use crate::progress::{Ctx, Driver, Event, Started, Task, TaskPool};

/// A buf of the program; dereferenced only while the task is in flight.
pub(crate) type BufSlot = Cell<Option<BufHandle>>;

/// Largest source or result of a task, and largest block of an erasure code, in bytes.
pub(crate) const MAX_BUF_SIZE: usize = 128 << 20;
/// Maximum number of bufs in a list.
pub(crate) const MAX_BUF_LIST_LEN: usize = 64;
/// Maximum number of tasks of one instance, all kinds together.
pub(crate) const MAX_TASKS: u32 = crate::progress::MAX_TASKS;

/// Bytes to process before other contexts are progressed, regardless of the number of tasks: about 10 us of erasure
/// coding, up to 100 us of decompression.
const BYTES_AT_A_TIME: usize = 256 << 10;

/// Divisor for kinds of context with slow tasks: one progress call runs a quarter of the pending tasks plus one, so
/// that the program and the other contexts progress in between. Without it, 16 concurrent reads of compressed blocks
/// would all wait for one batch. Measured: 1.2 times the throughput in that case, and about the same throughput with
/// many concurrent reads.
const WAITING_PER_TURN: usize = 4;

/// A type of context, such as DMA.
pub(crate) trait Accelerator: 'static {
    /// `true` if a task on a few KiB takes longer than a progress iteration of all other contexts.
    const TAKES_LONG: bool;

    /// `true` if a failed task stops its context, as on hardware, where the queue enters the error state.
    const FAILURE_IS_FATAL: bool;

    /// Task pools of all kinds of tasks.
    fn pools(&self) -> impl Iterator<Item = &TaskPool>;

    /// Source and destination of a task, if they are set.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for a task of another kind of context.
    fn bufs(&self, task: &Task) -> Result<[Option<BufHandle>; 2]>;

    /// Checks a task without running it.
    ///
    /// # Errors
    /// The error that the task would complete with.
    fn check(&self, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// Runs a task. Returns the number of bytes processed.
    ///
    /// # Errors
    /// The error that the task completes with; [`Error::InvalidValue`] for a task of another kind of context.
    fn run(&self, task: &Task) -> Result<usize>;
}

/// A driver that runs tasks in submission order, one per event.
pub(crate) struct Offload<A> {
    accelerator: A,
    device: Arc<Device>,
    submitted: RefCell<VecDeque<NonNull<Task>>>,
    /// Failed or flushed tasks whose completion has not been reported.
    ended: RefCell<VecDeque<(NonNull<Task>, Error)>>,
    /// Bytes processed in the current progress iteration.
    worked: Cell<usize>,
}

impl<A: Accelerator> Offload<A> {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(accelerator: A, device: Arc<Device>) -> Rc<Ctx> {
        Ctx::new(Self {
            accelerator,
            device,
            submitted: RefCell::default(),
            ended: RefCell::default(),
            worked: Cell::new(0),
        })
    }

    pub(crate) fn accelerator(&self) -> &A {
        &self.accelerator
    }
}

impl<A: Accelerator> Driver for Offload<A> {
    fn start(&self, _ctx: &Ctx) -> Result<Started> {
        let tasks = self
            .accelerator
            .pools()
            .map(TaskPool::limit)
            .fold(0, u32::saturating_add);
        if tasks > MAX_TASKS {
            return Err(Error::InvalidValue.because(format_args!(
                "expected at most {MAX_TASKS} tasks of all kinds together, {tasks} are configured"
            )));
        }
        // Reserved in advance: the data path must not allocate.
        self.submitted.borrow_mut().reserve(tasks as usize);
        self.ended.borrow_mut().reserve(tasks as usize);
        Ok(Started::Running)
    }

    fn check(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        self.accelerator.check(task)
    }

    fn submit(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        // As in the library on hardware, which looks up the keys of the memory here, the context keeps running.
        for buf in self.accelerator.bufs(task)?.into_iter().flatten() {
            buf.check_device(self.device.key())?;
        }
        self.submitted.borrow_mut().push_back(NonNull::from(task));
        Ok(())
    }

    fn next_event(&self, _ctx: &Ctx) -> Option<Event> {
        if let Some((task, error)) = self.ended.borrow_mut().pop_front() {
            return Some(Event::Task(task, Err(error)));
        }
        if self.worked.get() >= BYTES_AT_A_TIME {
            return None;
        }
        let task = self.submitted.borrow_mut().pop_front()?;
        // SAFETY: a task in flight lives: freeing it takes effect after its completion.
        let result = self.accelerator.run(unsafe { task.as_ref() });
        if let Ok(bytes) = result {
            self.worked.set(self.worked.get() + bytes);
        }
        match result {
            Err(error) if A::FAILURE_IS_FATAL => {
                // The state change is reported first: tasks that the program submits in its error callback would not
                // run.
                self.ended.borrow_mut().push_back((task, error));
                Some(Event::Broken)
            }
            result => Some(Event::Task(task, result.map(|_| ()))),
        }
    }

    fn begin_turn(&self, most: u32) -> u32 {
        self.worked.set(0);
        if !A::TAKES_LONG {
            return most;
        }
        let waiting = self.submitted.borrow().len();
        let part = u32::try_from(1 + waiting / WAITING_PER_TURN).unwrap_or(u32::MAX);
        most.min(part)
    }

    fn flush(&self, _ctx: &Ctx) {
        let mut submitted = self.submitted.borrow_mut();
        let flushed = submitted.drain(..).map(|task| (task, Error::Shutdown));
        self.ended.borrow_mut().extend(flushed);
    }

    fn devices(&self) -> Vec<DeviceUse> {
        vec![DeviceUse::of_device(&self.device)]
    }

    fn finish_stop(&self, _ctx: &Ctx) -> bool {
        true
    }
}

/// Checks that a buf is set and that its list is not too long.
///
/// # Errors
/// [`Error::InvalidValue`].
pub(crate) fn check_list(buf: Option<&Buf>) -> Result<&Buf> {
    let list = buf.ok_or(Error::InvalidValue)?;
    if list.list().nth(MAX_BUF_LIST_LEN).is_some() {
        return Err(Error::InvalidValue);
    }
    Ok(list)
}

/// Refuses memory that a peer exported for RDMA: accelerators cannot access it.
///
/// # Errors
/// [`Error::NotPermitted`].
fn check_reach(mmap: &Mmap) -> Result<()> {
    if mmap.import_kind() == Some(ExportKind::Rdma) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

fn check_destination(mmap: &Mmap) -> Result<()> {
    check_reach(mmap)?;
    if mmap.is_writable() {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Checks that a source can be read.
///
/// # Errors
/// [`Error::NotPermitted`].
fn check_reachable(source: &Buf) -> Result<()> {
    source
        .data_segments()
        .try_for_each(|segment| check_reach(&segment.mmap))
}

/// Returns the bufs of a task after checking that they are set and usable.
///
/// # Errors
/// [`Error::InvalidValue`], [`Error::NotPermitted`].
pub(crate) fn check_bufs<'a>(
    source: Option<&'a Buf>,
    destination: Option<&'a Buf>,
) -> Result<(&'a Buf, &'a Buf)> {
    let (source, destination) = (check_list(source)?, check_list(destination)?);
    check_reachable(source)?;
    check_room(destination)?;
    Ok((source, destination))
}

/// Length of a task's source in bytes.
///
/// # Errors
/// [`Error::InvalidValue`] if it is 0 or exceeds [`MAX_BUF_SIZE`], [`Error::NotPermitted`] if the memory cannot be
/// accessed.
pub(crate) fn source_len(source: &Buf) -> Result<usize> {
    check_reachable(source)?;
    match source.list_data_len() {
        0 => Err(Error::InvalidValue),
        len if len > MAX_BUF_SIZE => Err(Error::InvalidValue),
        len => Ok(len),
    }
}

/// Checks that results can be appended to a destination.
///
/// # Errors
/// [`Error::NotPermitted`].
fn check_room(destination: &Buf) -> Result<()> {
    destination
        .tail_segments()
        .try_for_each(|segment| check_destination(&segment.mmap))
}

/// Copies a task's source to private memory, where other processes cannot change it.
///
/// # Errors
/// Errors of [`source_len`], and of [`memory::copy`](crate::memory::copy()).
pub(crate) fn read_source<'a>(source: &Buf, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    let len = source_len(source)?;
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    // SAFETY: the scratch memory has `len` bytes.
    let read = unsafe { source.read_data(scratch.as_mut_ptr(), len) }?;
    Ok(&scratch[..read])
}

/// Appends data piecewise to the data of a destination.
pub(crate) struct Appender<'a> {
    list: &'a Buf,
    segments: Segments<'a>,
    current: Option<Segment<'a>>,
    written: usize,
}

impl<'a> Appender<'a> {
    /// # Errors
    /// As [`check_room`].
    pub(crate) fn new(list: &'a Buf) -> Result<Self> {
        check_room(list)?;
        Ok(Self {
            list,
            segments: list.tail_segments(),
            current: None,
            written: 0,
        })
    }

    /// Number of bytes that can still be appended.
    pub(crate) fn room(&self) -> usize {
        self.list.list_tail_len() - self.written
    }

    /// Writes after the bytes written so far. They become data with [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`Error::TooBig`] if the destination is full, otherwise the errors of [`memory::copy`](crate::memory::copy()).
    pub(crate) fn write(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            if self.current.as_ref().is_none_or(|segment| segment.len == 0) {
                self.current = self.segments.next();
            }
            let segment = self.current.as_mut().ok_or(Error::TooBig)?;
            let len = data.len().min(segment.len);
            // SAFETY: the slice has `len` bytes.
            unsafe { segment.mmap.write_from(segment.addr, data.as_ptr(), len) }?;
            segment.addr += len as u64;
            segment.len -= len;
            self.written += len;
            data = &data[len..];
        }
        Ok(())
    }

    /// Adds the written bytes to the destination's data length.
    ///
    /// # Errors
    /// [`Error::TooBig`] if the bufs were changed in the meantime.
    pub(crate) fn finish(self) -> Result<()> {
        self.list.append(self.written)
    }
}

/// The memory of a list of bufs as extents; working memory is kept for reuse.
///
/// Memory that is not mapped here (another host's memory across PCIe) is staged in private memory.
#[derive(Default)]
struct Gathered {
    extents: Vec<Extent>,
    /// Staging memory, and the index of the extent that it replaces.
    private: Vec<(usize, Vec<u8>)>,
}

impl Gathered {
    /// The data of a list, readable until a map is stopped.
    ///
    /// # Errors
    /// The errors of [`memory::copy`](crate::memory::copy()).
    pub(crate) fn source(&mut self, list: &Buf) -> Result<&[Extent]> {
        self.gather(list.data_segments(), usize::MAX, |segment, memory| {
            // SAFETY: the memory is as long as the segment.
            unsafe {
                segment
                    .mmap
                    .read_into(segment.addr, memory.as_mut_ptr(), memory.len())
            }
        })
    }

    /// The first `len` bytes after the data of a list, writable until a map is stopped.
    /// [`write_back`](Self::write_back) copies staged bytes to their destination.
    ///
    /// # Errors
    /// [`Error::TooBig`] if fewer than `len` bytes are free.
    pub(crate) fn destination(&mut self, list: &Buf, len: usize) -> Result<&[Extent]> {
        if list.list_tail_len() < len {
            return Err(Error::TooBig);
        }
        self.gather(list.tail_segments(), len, |_, _| Ok(()))
    }

    /// Copies staged results to the destination and adds `len` bytes to its data.
    ///
    /// # Errors
    /// The errors of [`memory::copy`](crate::memory::copy()).
    fn write_back(&self, list: &Buf, len: usize) -> Result<()> {
        for (extent, memory) in &self.private {
            let segment = list.tail_segments().nth(*extent).ok_or(Error::BadState)?;
            // SAFETY: the memory has that many bytes; the segment had them when it was gathered, and is checked again.
            unsafe {
                segment
                    .mmap
                    .write_from(segment.addr, memory.as_ptr(), memory.len())
            }?;
        }
        list.append(len)
    }

    /// Clears the list and frees the staging memory.
    pub(crate) fn clear(&mut self) {
        self.extents.clear();
        self.private = Vec::new();
    }

    fn gather(
        &mut self,
        segments: Segments<'_>,
        mut left: usize,
        fill: impl Fn(&Segment<'_>, &mut [u8]) -> Result<()>,
    ) -> Result<&[Extent]> {
        self.clear();
        for segment in segments {
            if left == 0 {
                break;
            }
            let len = segment.len.min(left);
            left -= len;
            if !segment.mmap.is_usable() {
                return Err(Error::BadState);
            }
            let start = match segment.mmap.local_ptr(segment.addr, len as u64) {
                Some(pointer) => pointer,
                None => {
                    let mut memory = vec![0; len];
                    fill(&segment, &mut memory)?;
                    self.private.push((self.extents.len(), memory));
                    // The heap address does not change when the list grows.
                    self.private
                        .last_mut()
                        .map_or(std::ptr::null_mut(), |(_, memory)| memory.as_mut_ptr())
                }
            };
            self.extents.push(Extent { start, len });
        }
        Ok(&self.extents)
    }
}

/// DMA contexts: copies between local memory and memory exported by another process for PCIe.
#[derive(Default)]
pub(crate) struct Dma {
    pub(crate) copies: TaskPool,
}

/// Body of a task that appends a copy of a list's data to another list's data.
pub(crate) struct Memcpy {
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
}

impl Dma {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Offload::context(Self::default(), device)
    }
}

impl Memcpy {
    pub(crate) fn new(source: Option<BufHandle>, destination: Option<BufHandle>) -> Self {
        Self {
            source: BufSlot::new(source),
            destination: BufSlot::new(destination),
        }
    }
}

impl Accelerator for Dma {
    const TAKES_LONG: bool = false;
    const FAILURE_IS_FATAL: bool = true;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        std::iter::once(&self.copies)
    }

    fn bufs(&self, task: &Task) -> Result<[Option<BufHandle>; 2]> {
        let copy = &task.downcast::<Memcpy>().ok_or(Error::InvalidValue)?.body;
        Ok([copy.source.get(), copy.destination.get()])
    }

    fn check(&self, task: &Task) -> Result<()> {
        let copy = &task.downcast::<Memcpy>().ok_or(Error::InvalidValue)?.body;
        let (source, destination) = (copy.source.get(), copy.destination.get());
        let (source, destination) = check_bufs(source.as_deref(), destination.as_deref())?;
        match source_len(source)? > destination.list_tail_len() {
            true => Err(Error::TooBig),
            false => Ok(()),
        }
    }

    fn run(&self, task: &Task) -> Result<usize> {
        let copy = &task.downcast::<Memcpy>().ok_or(Error::InvalidValue)?.body;
        let (source, destination) = (copy.source.get(), copy.destination.get());
        let (source, destination) = check_bufs(source.as_deref(), destination.as_deref())?;
        source_len(source)?;
        copy_list(destination, source)
    }
}

/// mmap-advise contexts.
///
/// The memory of processes on one machine is coherent, so there is nothing to invalidate. The task only orders
/// accesses: writes that happened before it are visible after its completion.
pub(crate) struct Advise {
    pub(crate) invalidations: TaskPool,
}

/// Body of a task that invalidates the cache of a buf's memory.
pub(crate) struct Invalidate {
    pub(crate) buf: BufSlot,
}

impl Advise {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        let invalidations = TaskPool::forbidding_active();
        Offload::context(Self { invalidations }, device)
    }
}

impl Invalidate {
    pub(crate) fn new(buf: Option<BufHandle>) -> Self {
        Self {
            buf: BufSlot::new(buf),
        }
    }
}

impl Accelerator for Advise {
    const TAKES_LONG: bool = false;
    const FAILURE_IS_FATAL: bool = false;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        std::iter::once(&self.invalidations)
    }

    fn bufs(&self, task: &Task) -> Result<[Option<BufHandle>; 2]> {
        let task = task.downcast::<Invalidate>().ok_or(Error::InvalidValue)?;
        Ok([task.body.buf.get(), None])
    }

    fn check(&self, task: &Task) -> Result<()> {
        let body = &task
            .downcast::<Invalidate>()
            .ok_or(Error::InvalidValue)?
            .body;
        let buf = body.buf.get();
        let list = check_list(buf.as_deref())?;
        for buf in list.list() {
            check_reach(&*buf.mmap()?)?;
            if buf.capacity() > MAX_BUF_SIZE {
                return Err(Error::InvalidValue);
            }
        }
        Ok(())
    }

    fn run(&self, task: &Task) -> Result<usize> {
        self.check(task)?;
        fence(Ordering::SeqCst);
        Ok(0)
    }
}

/// Block lengths are multiples of this number of bytes.
const BLOCK_ALIGNMENT: usize = 64;

/// A matrix with its compiled form. Shared with tasks, because the program may destroy the matrix before them.
pub(crate) struct CodingMatrix {
    matrix: Matrix,
    coder: Coder,
}

impl CodingMatrix {
    pub(crate) fn new(matrix: Matrix) -> Arc<Self> {
        let coder = Coder::new(&matrix);
        Arc::new(Self { matrix, coder })
    }

    pub(crate) fn matrix(&self) -> &Matrix {
        &self.matrix
    }
}

/// Task pools, one for each kind that the C API configures.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) galois_mul: TaskPool,
    pub(crate) create: TaskPool,
    pub(crate) update: TaskPool,
    pub(crate) recover: TaskPool,
}

/// Erasure-coding contexts.
///
/// Tasks of every type apply their matrix to a sequence of blocks and append the resulting blocks to the destination's
/// data. The types differ only in their pools and in the blocks that programs pass.
#[derive(Default)]
pub(crate) struct ErasureCoding {
    pub(crate) pools: Pools,
    engine: RefCell<Engine>,
}

/// Buffers that tasks are gathered into and computed in, reused from task to task.
#[derive(Default)]
struct Engine {
    source: Gathered,
    destination: Gathered,
    striper: Striper,
}

/// Body of a task.
pub(crate) struct Work {
    pub(crate) matrix: RefCell<Arc<CodingMatrix>>,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
}

impl ErasureCoding {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Offload::context(Self::default(), device)
    }
}

impl Work {
    pub(crate) fn new(
        matrix: Arc<CodingMatrix>,
        source: Option<BufHandle>,
        destination: Option<BufHandle>,
    ) -> Self {
        Self {
            matrix: RefCell::new(matrix),
            source: BufSlot::new(source),
            destination: BufSlot::new(destination),
        }
    }
}

fn block_len(len: usize, coder: &Coder) -> Result<usize> {
    let block = len / coder.inputs();
    if block * coder.inputs() != len || !block.is_multiple_of(BLOCK_ALIGNMENT) || block == 0 {
        return Err(Error::InvalidValue.because(format_args!(
            "expected {} blocks, each a multiple of {BLOCK_ALIGNMENT} bytes long, got {len} bytes",
            coder.inputs()
        )));
    }
    Ok(block)
}

/// Block length for a source of `len` bytes, and the total length of the resulting blocks.
fn sizes(len: usize, coder: &Coder) -> Result<(usize, usize)> {
    let block = block_len(len, coder)?;
    if block > MAX_BUF_SIZE {
        return Err(Error::InvalidValue);
    }
    let made = block.checked_mul(coder.outputs()).ok_or(Error::TooBig)?;
    Ok((block, made))
}

impl Engine {
    fn run(&mut self, work: &Work) -> Result<usize> {
        let matrix = Arc::clone(&work.matrix.borrow());
        let coder = &matrix.coder;
        let (source, destination) = (work.source.get(), work.destination.get());
        let (source, destination) = check_bufs(source.as_deref(), destination.as_deref())?;
        let source_len = source.list_data_len();
        let (block, made) = sizes(source_len, coder)?;
        let from = self.source.source(source)?;
        let to = self.destination.destination(destination, made)?;
        // SAFETY: the extents are readable and writable memory of the task's bufs, whose maps stay started meanwhile:
        // no code of the program runs in this thread, and other threads must not touch a task's bufs.
        unsafe { self.striper.apply(Kernel::best(), coder, from, to, block) };
        self.destination.write_back(destination, made)?;
        Ok(source_len + made)
    }
}

impl Accelerator for ErasureCoding {
    const TAKES_LONG: bool = false;
    const FAILURE_IS_FATAL: bool = false;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        let pools = &self.pools;
        [
            &pools.galois_mul,
            &pools.create,
            &pools.update,
            &pools.recover,
        ]
        .into_iter()
    }

    fn bufs(&self, task: &Task) -> Result<[Option<BufHandle>; 2]> {
        let work = &task.downcast::<Work>().ok_or(Error::InvalidValue)?.body;
        Ok([work.source.get(), work.destination.get()])
    }

    fn check(&self, task: &Task) -> Result<()> {
        let work = &task.downcast::<Work>().ok_or(Error::InvalidValue)?.body;
        let (source, destination) = (work.source.get(), work.destination.get());
        let (source, destination) = check_bufs(source.as_deref(), destination.as_deref())?;
        let (_, made) = sizes(source.list_data_len(), &work.matrix.borrow().coder)?;
        match made > destination.list_tail_len() {
            true => Err(Error::TooBig),
            false => Ok(()),
        }
    }

    fn run(&self, task: &Task) -> Result<usize> {
        let work = &task.downcast::<Work>().ok_or(Error::InvalidValue)?.body;
        let mut engine = self.engine.borrow_mut();
        let result = engine.run(work);
        engine.source.clear();
        engine.destination.clear();
        result
    }
}
