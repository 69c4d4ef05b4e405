//! The producer: sends messages of the fast path to consumers of the peer, from the program's buffers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use doca_abi::doca_data;

use super::connection::Connection;
use super::frame::Frame;
use super::{MAX_IMMEDIATE, MAX_TASKS, check_range};
use crate::buffer::{BufHandle, Segment};
use crate::error::{Error, Result};
use crate::memory::ExportKind;
use crate::progress::{
    Ctx, Driver, Event, Pe, Started, Task, TaskCallback, TaskOf, TaskPool, Urgency,
};
use crate::ring::{BiasedLock, EventFd, RingProducer};

/// Token of the connection's lifeline in [`Pe::watch`]; the doorbell of a consumer has the consumer's id, from 1.
const LIFELINE: u32 = 0;

/// The driver of a producer's context.
pub(crate) struct Producer {
    connection: Arc<Connection>,
    id: u32,
    tasks: TaskPool,
    run: RefCell<Run>,
}

/// State between start and stop.
#[derive(Default)]
struct Run {
    lifeline: Option<OwnedFd>,
    /// Consumers that this producer has sent to, with the doorbells that signal new credits or space.
    consumers: Vec<(Arc<RemoteConsumer>, OwnedFd)>,
    /// Completed tasks that have not been reaped yet.
    done: VecDeque<(NonNull<Task>, Result<()>)>,
    /// Consumers without a free buffer or space for a message; the program will retry.
    full: Vec<Arc<RemoteConsumer>>,
    /// The end of the connection was reported to the context.
    broken: bool,
    stopping: bool,
}

/// The body of a send task. Fields that every message uses come first.
#[repr(C)]
pub(crate) struct SendTask {
    buf: Cell<Option<BufHandle>>,
    /// The consumer with the task's consumer id, once it has been looked up.
    consumer: RefCell<Option<Arc<RemoteConsumer>>>,
    consumer_id: Cell<u32>,
    immediate_len: Cell<u32>,
    immediate: Cell<[u8; MAX_IMMEDIATE]>,
}

fn check_immediate(immediate: &[u8]) -> Result<()> {
    if immediate.len() <= MAX_IMMEDIATE {
        return Ok(());
    }
    Err(Error::InvalidValue.because(format_args!(
        "expected at most {MAX_IMMEDIATE} bytes of immediate data, got {}",
        immediate.len()
    )))
}

impl SendTask {
    pub(crate) fn buf(&self) -> Option<BufHandle> {
        self.buf.get()
    }

    pub(crate) fn set_buf(&self, buf: Option<BufHandle>) {
        self.buf.set(buf);
    }

    /// Immediate data to send; NULL if there is none.
    pub(crate) fn immediate(&self) -> *mut u8 {
        match self.immediate_len.get() {
            0 => std::ptr::null_mut(),
            _ => self.immediate.as_ptr().cast(),
        }
    }

    /// Length of the immediate data in bytes.
    pub(crate) fn immediate_len(&self) -> u32 {
        self.immediate_len.get()
    }

    pub(crate) fn set_immediate(&self, immediate: &[u8]) -> Result<()> {
        check_immediate(immediate)?;
        let mut bytes = [0; MAX_IMMEDIATE];
        bytes[..immediate.len()].copy_from_slice(immediate);
        self.immediate.set(bytes);
        self.immediate_len.set(immediate.len() as u32);
        Ok(())
    }

    pub(crate) fn consumer_id(&self) -> u32 {
        self.consumer_id.get()
    }

    pub(crate) fn set_consumer_id(&self, id: u32) {
        if self.consumer_id.replace(id) != id {
            *self.consumer.borrow_mut() = None;
        }
    }
}

fn check_len(consumer: &RemoteConsumer, len: usize) -> Result<()> {
    if len <= consumer.max_message() {
        return Ok(());
    }
    Err(Error::InvalidValue.because(format_args!(
        "a message of {len} bytes, consumer {} takes at most {}",
        consumer.id(),
        consumer.max_message()
    )))
}

impl Producer {
    /// Creates the context of a producer.
    pub(crate) fn create(connection: Arc<Connection>) -> Result<Rc<Ctx>> {
        if connection.is_lost() {
            return Err(Error::BadState.because("the connection is not established any more"));
        }
        let id = connection.allocate_id()?;
        Ok(Ctx::new(Producer {
            connection,
            id,
            tasks: TaskPool::default(),
            run: RefCell::default(),
        }))
    }

    /// The id by which the peer's consumers address this producer.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn configure_tasks(
        &self,
        ctx: &Ctx,
        on_success: Option<TaskCallback>,
        on_error: Option<TaskCallback>,
        count: u32,
    ) -> Result<()> {
        check_range("number of send tasks", count, MAX_TASKS)?;
        self.tasks.configure(ctx, on_success, on_error, count)
    }

    /// Allocates a task that sends the data of `buf`, and immediate data, to one consumer.
    pub(crate) fn allocate(
        &self,
        ctx: &Ctx,
        buf: Option<BufHandle>,
        immediate: &[u8],
        consumer_id: u32,
    ) -> Result<NonNull<TaskOf<SendTask>>> {
        let body = SendTask {
            buf: Cell::new(buf),
            immediate: Cell::new([0; MAX_IMMEDIATE]),
            immediate_len: Cell::new(0),
            consumer_id: Cell::new(consumer_id),
            consumer: RefCell::default(),
        };
        body.set_immediate(immediate)?;
        self.tasks.allocate(ctx, body, doca_data { u64: 0 })
    }

    /// Looks up the consumer to which the task sends.
    fn look_up(&self, ctx: &Ctx, id: u32) -> Result<Arc<RemoteConsumer>> {
        let consumer = self.connection.remote_consumer(id).ok_or(Error::NotFound)?;
        self.attach(ctx, &consumer)?;
        Ok(consumer)
    }

    /// Watches the consumer's doorbell, once per consumer.
    fn attach(&self, ctx: &Ctx, consumer: &Arc<RemoteConsumer>) -> Result<()> {
        let run = &mut *self.run.borrow_mut();
        if run
            .consumers
            .iter()
            .any(|(known, _)| Arc::ptr_eq(known, consumer))
        {
            return Ok(());
        }
        let pe = ctx.pe()?;
        // An id may be reused after its consumer has expired.
        run.consumers.retain(|(known, bell)| {
            let keep = !known.is_expired();
            if !keep {
                pe.unwatch(bell.as_fd(), Urgency::Liveness);
            }
            keep
        });
        let bell = consumer.attach(&self.connection)?;
        pe.watch(bell.as_fd(), ctx, consumer.id(), Urgency::Liveness)?;
        run.consumers.push((Arc::clone(consumer), bell));
        Ok(())
    }

    /// Sends one message. Errors other than `Again` and `InvalidValue` become the task's result.
    fn send(&self, ctx: &Ctx, body: &SendTask) -> Result<()> {
        if self.connection.is_lost() {
            return Err(Error::NotConnected);
        }
        let mut cached = body.consumer.borrow_mut();
        let consumer = match &mut *cached {
            Some(consumer) if !consumer.is_expired() => consumer,
            cached => cached.insert(self.look_up(ctx, body.consumer_id.get())?),
        };
        let buf = body.buf.get();
        let run = match (&buf, body.immediate_len.get()) {
            (Some(buf), 0) => run_of(buf)?.map(|run| (run, buf.data_len())),
            _ => None,
        };
        let sent = if let Some((run, len)) = run {
            check_len(consumer, len)?;
            // SAFETY: the id is this producer's, which only this thread uses now; the data of a buf is readable.
            unsafe { consumer.push_run(self.id, run, len) }
        } else {
            let payload = Gather::data_of(buf.as_ref())?;
            check_len(consumer, payload.len())?;
            let immediate = body.immediate.get();
            let immediate = &immediate[..body.immediate_len.get() as usize];
            // SAFETY: the id is this producer's, which only this thread uses now.
            unsafe { consumer.push(self.id, immediate, payload) }
        };
        if sent == Err(Error::Again) {
            let full = &mut self.run.borrow_mut().full;
            if !full.iter().any(|known| Arc::ptr_eq(known, consumer)) {
                full.push(Arc::clone(consumer));
            }
        }
        sent
    }

    fn leave(&self, pe: &Pe) {
        let run = std::mem::take(&mut *self.run.borrow_mut());
        for (_, bell) in &run.consumers {
            pe.unwatch(bell.as_fd(), Urgency::Liveness);
        }
        if let Some(lifeline) = &run.lifeline {
            pe.unwatch(lifeline.as_fd(), Urgency::Liveness);
        }
    }
}

impl Driver for Producer {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        if self.tasks.limit() == 0 {
            return Err(Error::BadState.because("configure send tasks before the start"));
        }
        if self.connection.is_lost() {
            return Err(Error::NotConnected.because("the connection has ended"));
        }
        let lifeline = self.connection.lifeline()?;
        ctx.pe()?
            .watch(lifeline.as_fd(), ctx, LIFELINE, Urgency::Liveness)?;
        self.connection.endpoint_started();
        *self.run.borrow_mut() = Run {
            lifeline: Some(lifeline),
            ..Run::default()
        };
        Ok(Started::Running)
    }

    fn submit(&self, ctx: &Ctx, task: &Task) -> Result<()> {
        let body = &task.downcast::<SendTask>().ok_or(Error::InvalidValue)?.body;
        if let Some(buf) = body.buf.get() {
            buf.check_device(self.connection.device())?;
            if buf.is_in_list() {
                return Err(Error::InvalidValue.because("a producer sends one buf, not a list"));
            }
        }
        let result = self.send(ctx, body);
        if let Err(error @ (Error::Again | Error::InvalidValue)) = result {
            return Err(error);
        }
        // Completed by the next progress call, and never inside submit.
        let run = &mut *self.run.borrow_mut();
        run.done.push_back((NonNull::from(task), result));
        Ok(())
    }

    #[inline(always)]
    fn next_event(&self, _: &Ctx) -> Option<Event> {
        let run = &mut *self.run.borrow_mut();
        if let Some((task, result)) = run.done.pop_front() {
            return Some(Event::Task(task, result));
        }
        if !run.full.is_empty()
            && let Some(at) = run.full.iter().position(|consumer| {
                // SAFETY: the id is this producer's, which only this thread uses now.
                unsafe { consumer.is_ready(self.id) }
            })
        {
            run.full.swap_remove(at);
            // Makes the progress call return, because the program can now resubmit tasks that failed with `Again`.
            return Some(Event::Call(Box::new(|| {})));
        }
        if self.connection.is_lost() && !run.stopping && !std::mem::replace(&mut run.broken, true) {
            return Some(Event::Broken);
        }
        None
    }

    fn flush(&self, _: &Ctx) {
        // All submitted messages have been sent; their completions are reported as usual.
        self.run.borrow_mut().stopping = true;
    }

    fn finish_stop(&self, ctx: &Ctx) -> bool {
        if let Ok(pe) = ctx.pe() {
            self.leave(&pe);
        }
        self.connection.endpoint_stopped();
        true
    }

    fn on_ready(&self, ctx: &Ctx, token: u32) {
        let run = &mut *self.run.borrow_mut();
        if token != LIFELINE {
            if let Some((consumer, _)) = run.consumers.iter().find(|(known, _)| known.id() == token)
            {
                consumer.drain_bell();
            }
            return;
        }
        // The lifeline is never written to, so it has hung up, and would remain readable.
        self.connection.lose();
        if let (Ok(pe), Some(lifeline)) = (ctx.pe(), run.lifeline.take()) {
            pe.unwatch(lifeline.as_fd(), Urgency::Liveness);
        }
    }

    fn arm(&self) {
        for consumer in &self.run.borrow().full {
            // SAFETY: the id is this producer's, which only this thread uses now.
            unsafe { consumer.arm(self.id) };
        }
    }

    fn disarm(&self) {
        for consumer in &self.run.borrow().full {
            // SAFETY: the id is this producer's, which only this thread uses now.
            unsafe { consumer.disarm(self.id) };
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.connection.release_id(self.id);
    }
}

/// Size in bytes of the producer's id before the immediate data of a message. The id is omitted, together with empty
/// immediate data, if the previous message came from the same producer: a message of 64 bytes then takes one unit.
pub(super) const SENDER_SIZE: usize = 4;

/// The sending end of a consumer's ring, shared by all producers of this end of the connection.
///
/// Fields in the order of use.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RemoteConsumer {
    /// Size in bytes of the largest message that fits any of its buffers.
    max_message: usize,
    id: u32,
    expired: AtomicBool,
    /// Biased to the first producer, which is usually the only one.
    sender: BiasedLock<Sender>,
    /// Used by the consumer to wake waiting producers when it grants credits or space; created when the first producer
    /// attaches.
    credits: Mutex<Option<EventFd>>,
}

#[derive(Debug)]
struct Sender {
    ring: RingProducer,
    /// Producer of the last message.
    last_producer: u32,
}

impl RemoteConsumer {
    /// Takes the descriptors sent with the peer's announcement.
    pub(super) fn open(id: u32, max_message: u32, ring: OwnedFd, wake: OwnedFd) -> Result<Self> {
        let ring = RingProducer::open(ring, EventFd::from_peer(wake)?)?;
        let max_message = max_message as usize;
        // A message larger than the ring would be retried forever.
        let stored = max_message.saturating_add(SENDER_SIZE + MAX_IMMEDIATE);
        if stored > ring.capacity() {
            return Err(Error::InvalidValue);
        }
        Ok(Self {
            id,
            max_message,
            expired: AtomicBool::new(false),
            sender: BiasedLock::new(Sender {
                ring,
                last_producer: 0,
            }),
            credits: Mutex::new(None),
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn max_message(&self) -> usize {
        self.max_message
    }

    pub(super) fn expire(&self) {
        self.expired.store(true, Ordering::Release);
        // Producers in other threads may sleep; the consumer wakes only attached producers.
        if let Some(bell) = &*self.credits.lock().unwrap_or_else(PoisonError::into_inner) {
            bell.ring();
        }
    }

    fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }

    /// Returns a descriptor, for one producer to watch, that becomes readable when the consumer has credits again. The
    /// first call sends it to the consumer.
    pub(super) fn attach(&self, connection: &Connection) -> Result<OwnedFd> {
        let mut credits = self.credits.lock().unwrap_or_else(PoisonError::into_inner);
        let duplicate = |bell: &EventFd| rustix::io::fcntl_dupfd_cloexec(bell, 3);
        if let Some(bell) = &*credits {
            return Ok(duplicate(bell)?);
        }
        let bell = EventFd::new()?;
        let (theirs, ours) = (duplicate(&bell)?, duplicate(&bell)?);
        *credits = Some(bell);
        let frame = Frame::ProducerAttached {
            consumer_id: self.id,
        };
        connection.send(&frame, vec![theirs]);
        Ok(ours)
    }

    /// Clears the doorbell of the descriptor from [`Self::attach`].
    fn drain_bell(&self) {
        if let Some(bell) = &*self.credits.lock().unwrap_or_else(PoisonError::into_inner) {
            bell.drain();
        }
    }

    /// Requests a wake-up for `producer`'s engine when the consumer grants credits or space.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push).
    pub(super) unsafe fn arm(&self, producer: u32) {
        // SAFETY: guaranteed by the caller. On failure there is no wake-up, and the engine polls again after some
        // milliseconds.
        let _ = unsafe {
            self.sender
                .with(producer.into(), |sender| sender.ring.arm())
        };
    }

    /// Cancels [`arm`](Self::arm).
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push).
    pub(super) unsafe fn disarm(&self, producer: u32) {
        // SAFETY: guaranteed by the caller. On failure there is a spurious wake-up, which is harmless.
        let _ = unsafe {
            self.sender
                .with(producer.into(), |sender| sender.ring.disarm())
        };
    }

    /// Returns `true` if [`Self::push`] of a small message would not return `Again`.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push).
    unsafe fn is_ready(&self, producer: u32) -> bool {
        let look = |sender: &mut Sender| {
            let ring = &mut sender.ring;
            (ring.credits() > 0 && ring.has_room_for(SENDER_SIZE + MAX_IMMEDIATE + 1))
                || ring.is_closed_by_peer()
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.sender.with(producer.into(), look) }.unwrap_or(true) || self.is_expired()
    }

    /// Writes one whole message to the ring, which consumes one posted receive.
    ///
    /// Without writing any data, returns [`Error::Again`] if no receive is posted or the ring is full, and
    /// [`Error::NotFound`] if the consumer no longer accepts messages.
    ///
    /// # Safety
    ///
    /// `producer` is the id of a producer of this end of the connection, and the caller is the thread that uses it.
    #[inline]
    unsafe fn push(&self, producer: u32, immediate: &[u8], payload: Gather) -> Result<()> {
        let send = |sender: &mut Sender| sender.push(producer, immediate, payload);
        // SAFETY: ids of producers are from 1 to 0xfffe, and are unique within a connection; like all contexts, a
        // producer is used by one thread at a time, and moves between threads with its engine. An id is reused only
        // after it was released under the connection's lock. The ring does not use this lock.
        unsafe { self.sender.with(producer.into(), send) }?
    }

    /// As [`push`](Self::push), for `len` bytes at `run` without immediate data: the most frequent case.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push), and `run` is readable for `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn push_run(&self, producer: u32, run: *const u8, len: usize) -> Result<()> {
        let send = |sender: &mut Sender| {
            // SAFETY: guaranteed by the caller.
            unsafe { sender.push_run(producer, run, len) }
        };
        // SAFETY: as in `push`.
        unsafe { self.sender.with(producer.into(), send) }?
    }
}

impl Sender {
    /// # Safety
    ///
    /// `run` is readable for `len` bytes.
    #[inline(always)]
    unsafe fn push_run(&mut self, producer: u32, run: *const u8, len: usize) -> Result<()> {
        if self.last_producer != producer || len > self.ring.max_fragment() {
            return self.push(producer, &[], Gather::of_run(run, len));
        }
        let ring = &mut self.ring;
        if ring.is_closed_by_peer() {
            return Err(Error::NotFound);
        }
        if ring.credits() == 0 {
            return Err(Error::Again);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { ring.push_run(run, len) }
    }

    /// Sends any kind of message.
    #[inline(never)]
    fn push(&mut self, producer: u32, immediate: &[u8], payload: Gather) -> Result<()> {
        let mut head = [0; SENDER_SIZE + MAX_IMMEDIATE];
        let mut header = None;
        if !immediate.is_empty() || self.last_producer != producer {
            head[..SENDER_SIZE].copy_from_slice(&producer.to_le_bytes());
            let head = &mut head[..SENDER_SIZE + immediate.len()];
            head[SENDER_SIZE..].copy_from_slice(immediate);
            header = Some(&*head);
        }
        let ring = &mut self.ring;
        let stored = payload.len() + header.map_or(0, <[u8]>::len);
        if ring.credits() == 0 || !ring.has_room_for(stored) {
            return Err(match ring.is_closed_by_peer() {
                true => Error::NotFound,
                false => Error::Again,
            });
        }
        if ring.is_closed_by_peer() {
            return Err(Error::NotFound);
        }
        let most = ring.max_fragment();
        let mut payload = payload;
        let mut first = true;
        // The ring has space for the whole message, and is not used by any other producer in the meantime.
        while first || payload.len() > 0 {
            let header = header.take();
            let len = payload.len().min(most - header.map_or(0, <[u8]>::len));
            let more = len < payload.len();
            // SAFETY: the pieces of a gather list are readable (see `Gather`).
            unsafe {
                ring.push(header, len, first, more, |write| {
                    payload.take(len, write);
                    Ok(())
                })?;
            }
            first = false;
        }
        self.last_producer = producer;
        Ok(())
    }
}

/// The unsent data of a buf.
#[derive(Debug)]
struct Gather {
    source: Source,
    len: usize,
}

#[derive(Debug)]
enum Source {
    Nothing,
    /// Contiguous memory of this process.
    Run(*const u8),
    /// A copy of memory that is not mapped here, and the number of its bytes already consumed.
    Copy {
        bytes: Vec<u8>,
        taken: usize,
    },
}

impl Gather {
    /// The data of a buf, which is not in a list; empty without a buf.
    fn data_of(buf: Option<&BufHandle>) -> Result<Self> {
        let Some(buf) = buf else {
            return Ok(Self {
                source: Source::Nothing,
                len: 0,
            });
        };
        if let Some(run) = run_of(buf)? {
            return Ok(Self::of_run(run, buf.data_len()));
        }
        // A buf without data, or in memory that is not mapped here.
        let len = buf.data_len();
        let source = match len {
            0 => Source::Nothing,
            _ => Source::copy(buf, len)?,
        };
        Ok(Self { source, len })
    }

    /// `len` contiguous readable bytes.
    fn of_run(run: *const u8, len: usize) -> Self {
        Self {
            source: Source::Run(run),
            len,
        }
    }

    /// Number of bytes left.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Passes the next `len` bytes to `write`, in pieces of readable memory.
    pub(super) fn take(&mut self, len: usize, write: &mut dyn FnMut(*const u8, usize)) {
        let left = len.min(self.len);
        self.len -= left;
        match &mut self.source {
            Source::Nothing => {}
            Source::Run(run) => {
                write(*run, left);
                *run = run.wrapping_add(left);
            }
            Source::Copy { bytes, taken } => {
                write(bytes[*taken..].as_ptr(), left);
                *taken += left;
            }
        }
    }
}

impl Source {
    fn copy(buf: &BufHandle, len: usize) -> Result<Self> {
        let mut bytes = vec![0; len];
        // SAFETY: the vector has `len` writable bytes.
        unsafe { buf.read_data(bytes.as_mut_ptr(), len) }?;
        Ok(Source::Copy { bytes, taken: 0 })
    }
}

/// Start of the data of a single buf whose data is in memory of this process; `None` otherwise.
#[inline(always)]
fn run_of(buf: &BufHandle) -> Result<Option<*const u8>> {
    if buf.data_len() == 0 {
        return Ok(None);
    }
    let (mmap, addr, len) = (buf.mmap()?, buf.data(), buf.data_len());
    pointer(&Segment { mmap, addr, len })
}

/// Returns the address of a segment in this process; `None` for memory of another process that is not mapped here.
#[inline(always)]
fn pointer(segment: &Segment<'_>) -> Result<Option<*const u8>> {
    let mmap = &segment.mmap;
    if mmap.import_kind() == Some(ExportKind::Rdma) {
        return Err(Error::NotPermitted.because("memory of an RDMA peer cannot be sent by Comch"));
    }
    let run = mmap.local_ptr(segment.addr, segment.len as u64);
    if run.is_none() && !mmap.is_imported() {
        return Err(Error::InvalidValue.because("the buf's mmap has been stopped"));
    }
    Ok(run.map(<*mut u8>::cast_const))
}
