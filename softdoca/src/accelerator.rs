//! Contexts whose tasks this process computes by itself, when it progresses them: DMA, compress, erasure coding.
//!
//! * [`Accelerator`] is what one kind of context can do; [`Offload`] makes a context's driver of it.
//! * [`memory`] turns the bufs of a task into what [`engines`](crate::engines) take.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use crate::buffer::{Buf, BufHandle, Segment, Segments};
use crate::device::Device;
use crate::engines::stripe::Extent;
use crate::error::{Error, Result};
use crate::memory::{ExportKind, Mmap};
use crate::progress::{Ctx, Driver, Event, Started, Task, TaskPool};

/// A buf of the program, which is looked at only while the task is in flight.
pub(crate) type BufSlot = Cell<Option<BufHandle>>;

/// Bytes that a task takes or makes at most, and that a block of an erasure code can have.
pub(crate) const MAX_BUF_SIZE: usize = 128 << 20;
/// Bufs in a list at most.
pub(crate) const MAX_BUF_LIST_LEN: usize = 64;
/// Tasks that an instance can have at most, of all kinds together.
pub(crate) const MAX_TASKS: u32 = 65_536;

/// Bytes after which progress goes on to other contexts, however few tasks they were: ten microseconds of erasure coding, up to a hundred
/// of decompression.
const BYTES_AT_A_TIME: usize = 256 << 10;

/// Of tasks that take long, one in so many of those that wait, and one more, is done before other contexts, and the program, have their
/// turn. Always as many as of other events would be ten microseconds without an answer to anybody, and with 16 reads of compressed blocks
/// at a time, all that is asked for would wait in one turn: they come 1.2 times as fast so (measured). With many it is much the same.
const WAITING_PER_TURN: usize = 4;

/// What one kind of context can do.
pub(crate) trait Accelerator: 'static {
    /// Whether a task for a few KiB takes longer than a turn of all other contexts.
    const TAKES_LONG: bool;

    /// Whether a task that fails takes its context with it: hardware's queue is in the error state then.
    const FAILURE_IS_FATAL: bool;

    /// The pools of all kinds of tasks.
    fn pools(&self) -> impl Iterator<Item = &TaskPool>;

    /// Whether a task could be done, as far as that can be told without doing it.
    ///
    /// # Errors
    /// What the task would complete with.
    fn check(&self, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// Does what a task says; answers how many bytes it has worked on.
    ///
    /// # Errors
    /// What the task completes with; [`Error::InvalidValue`] for a task of another kind of context.
    fn run(&self, task: &Task) -> Result<usize>;
}

/// A driver that runs tasks in the order of their submission, one at each event.
pub(crate) struct Offload<A> {
    accelerator: A,
    /// Stays open as long as the instance exists.
    _device: Arc<Device>,
    submitted: RefCell<VecDeque<NonNull<Task>>>,
    /// Tasks that have ended and are still to be reported.
    ended: RefCell<VecDeque<(NonNull<Task>, Error)>>,
    /// Bytes worked on in this turn.
    worked: Cell<usize>,
}

impl<A: Accelerator> Offload<A> {
    /// A context for an instance on `device`.
    pub(crate) fn context(accelerator: A, device: Arc<Device>) -> Rc<Ctx> {
        Ctx::new(Self {
            accelerator,
            _device: device,
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
        // Nothing is allocated on the data path.
        self.submitted.borrow_mut().reserve(tasks as usize);
        self.ended.borrow_mut().reserve(tasks as usize);
        Ok(Started::Running)
    }

    fn check(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
        self.accelerator.check(task)
    }

    fn submit(&self, _ctx: &Ctx, task: &Task) -> Result<()> {
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
                // The program learns of the state first: what it submits in the error callback would not run.
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

    fn finish_stop(&self, _ctx: &Ctx) -> bool {
        true
    }
}

/// Checks that a buf of a task is there and its list not too long.
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

/// What a peer exported for RDMA is out of an accelerator's reach.
///
/// # Errors
/// [`Error::NotPermitted`].
pub(crate) fn check_reach(mmap: &Mmap) -> Result<()> {
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

/// The bufs of a task, if they are there and can be used.
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

/// Bytes of a task's source.
///
/// # Errors
/// [`Error::InvalidValue`] when there are none or more than [`MAX_BUF_SIZE`], [`Error::NotPermitted`] when they are out of
/// reach.
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

/// Copies a task's source to private memory, in which it cannot change any more.
///
/// # Errors
/// As [`source_len`], and those of [`memory::copy`](crate::memory::copy()).
pub(crate) fn read_source<'a>(source: &Buf, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    let len = source_len(source)?;
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    // SAFETY: the scratch memory has `len` bytes.
    let read = unsafe { source.read_data(scratch.as_mut_ptr(), len) }?;
    Ok(&scratch[..read])
}

/// Appends data, piece by piece, to the data of a destination.
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

    /// Bytes that can be appended.
    pub(crate) fn room(&self) -> usize {
        self.list.list_tail_len() - self.written
    }

    /// Writes after what was written before. It becomes data with [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`Error::TooBig`] when there is no room, otherwise those of [`memory::copy`](crate::memory::copy()).
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

    /// Counts what was written as data.
    ///
    /// # Errors
    /// [`Error::TooBig`] when bufs have changed meanwhile.
    pub(crate) fn finish(self) -> Result<()> {
        self.list.append(self.written)
    }
}

/// Memory of a list of bufs as pointers; keeps its working memory for the next time.
///
/// What is not mapped here, another host's memory across PCIe, is represented by private memory.
#[derive(Default)]
pub(crate) struct Gathered {
    extents: Vec<Extent>,
    /// Private memory and the number of its extent.
    private: Vec<(usize, Vec<u8>)>,
}

impl Gathered {
    /// The data of a list, readable until a map is stopped.
    ///
    /// # Errors
    /// Those of [`memory::copy`](crate::memory::copy()).
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

    /// The first `len` bytes after the data of a list, writable until a map is stopped. [`write_back`](Self::write_back)
    /// brings them to where they belong.
    ///
    /// # Errors
    /// [`Error::TooBig`] when there are not as many.
    pub(crate) fn destination(&mut self, list: &Buf, len: usize) -> Result<&[Extent]> {
        if list.list_tail_len() < len {
            return Err(Error::TooBig);
        }
        self.gather(list.tail_segments(), len, |_, _| Ok(()))
    }

    /// Writes what was made to a destination that had to be represented, and counts all of it as data.
    ///
    /// # Errors
    /// Those of [`memory::copy`](crate::memory::copy()).
    pub(crate) fn write_back(&self, list: &Buf, len: usize) -> Result<()> {
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

    /// Forgets everything; gives private memory back.
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
                    // Where it is does not change with the list.
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
