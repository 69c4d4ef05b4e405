//! The consumer: receives messages of the fast path into buffers that the program posts.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::doca_data;

use super::connection::{Connection, LocalConsumer};
use super::producer::SENDER_SIZE;
use super::{MAX_BUF_SIZE, MAX_IMMEDIATE, MAX_TASKS, check_range};
use crate::buffer::BufHandle;
use crate::error::{Error, Result};
use crate::log;
use crate::memory::{Mmap, Permissions};
use crate::progress::{
    Ctx, Driver, Event, Pe, Started, Task, TaskCallback, TaskOf, TaskPool, Urgency,
};
use crate::ring::{Corrupt, Geometry, Message, RingConsumer};

/// Token of the connection's lifeline in [`Pe::watch`].
const LIFELINE: u32 = 0;

/// Maximum number of consecutive fragments of one message that are processed, because a malicious peer could send
/// fragments without end.
const MOST_FRAGMENTS: usize = 64;

/// The driver of a consumer's context.
pub(crate) struct Consumer {
    connection: Arc<Connection>,
    mmap: Arc<Mmap>,
    id: u32,
    tasks: TaskPool,
    /// Maximum length of immediate data in bytes, as set by the program.
    most_immediate: Cell<u32>,
    run: RefCell<Run>,
    stopping: Cell<bool>,
}

/// State between start and stop.
#[derive(Default)]
struct Run {
    ring: Option<RingConsumer>,
    mailbox: Option<Arc<LocalConsumer>>,
    lifeline: Option<OwnedFd>,
    /// `true` until the context has been reported as running.
    starting: bool,
    /// The end of the connection was reported to the context.
    broken: bool,
    posted: VecDeque<NonNull<Task>>,
    /// The message that was partly received into the first posted buffer.
    partial: Option<Partial>,
    /// Producer of the last message.
    sender: u32,
    /// The configured maximum at the start.
    most_immediate: u32,
}

/// A message of which a part has been received.
#[derive(Clone, Copy)]
struct Partial {
    result: Result<()>,
    /// Bytes appended to the buffer.
    appended: usize,
    /// Bytes received, including discarded ones.
    arrived: usize,
}

impl Partial {
    /// Counts a fragment and checks the limits of a message: each fragment but the last contains data, and the total is
    /// at most the largest message.
    fn count(&mut self, message: &Message) -> std::result::Result<(), Corrupt> {
        if message.more() && message.len() == 0 {
            return Err(Corrupt {
                expected: "data in a fragment that others follow",
                found: 0,
            });
        }
        self.arrived = self.arrived.saturating_add(message.len());
        if self.arrived > MAX_BUF_SIZE {
            return Err(Corrupt {
                expected: "a message of at most 1048576 bytes",
                found: self.arrived as u64,
            });
        }
        Ok(())
    }
}

/// The body of a receive task. Fields that every message uses come first.
#[repr(C)]
pub(crate) struct PostRecv {
    buf: Cell<Option<BufHandle>>,
    producer: Cell<u32>,
    immediate_len: Cell<u32>,
    immediate: UnsafeCell<[u8; MAX_IMMEDIATE]>,
}

impl PostRecv {
    pub(crate) fn buf(&self) -> Option<BufHandle> {
        self.buf.get()
    }

    pub(crate) fn set_buf(&self, buf: Option<BufHandle>) {
        self.buf.set(buf);
    }

    /// Id of the producer that sent the message; 0 before the first message.
    pub(crate) fn producer(&self) -> u32 {
        self.producer.get()
    }

    /// Immediate data of the message; NULL if the message has none.
    pub(crate) fn immediate(&self) -> *const u8 {
        match self.immediate_len.get() {
            0 => std::ptr::null(),
            _ => self.immediate.get().cast_const().cast(),
        }
    }

    /// Length of the immediate data in bytes.
    pub(crate) fn immediate_len(&self) -> u32 {
        self.immediate_len.get()
    }

    fn set_immediate(&self, bytes: &[u8]) {
        let len = bytes.len().min(MAX_IMMEDIATE);
        // SAFETY: the task is in flight, so the program does not read the data; no reference to it exists.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.immediate.get().cast::<u8>(), len);
        }
        self.immediate_len.set(len as u32);
    }
}

impl Consumer {
    /// Creates the context of a consumer that receives into buffers of `mmap`.
    pub(crate) fn create(connection: Arc<Connection>, mmap: Arc<Mmap>) -> Result<Rc<Ctx>> {
        if connection.is_lost() {
            return Err(Error::BadState.because("the connection is not established any more"));
        }
        if !mmap.permissions().contains(Permissions::PCI_READ_WRITE) {
            return Err(Error::NotPermitted.because(
                "a consumer's mmap needs DOCA_ACCESS_FLAG_PCI_READ_WRITE: the peer's device writes to it",
            ));
        }
        let id = connection.allocate_id()?;
        Ok(Ctx::new(Consumer {
            connection,
            mmap,
            id,
            tasks: TaskPool::default(),
            most_immediate: Cell::new(MAX_IMMEDIATE as u32),
            run: RefCell::default(),
            stopping: Cell::new(false),
        }))
    }

    /// The id by which the peer's producers address this consumer.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Maximum length of received immediate data in bytes.
    pub(crate) fn most_immediate(&self) -> u32 {
        self.most_immediate.get()
    }

    pub(crate) fn set_most_immediate(&self, ctx: &Ctx, len: u32) -> Result<()> {
        ctx.expect_idle("the length of immediate data is set")?;
        if len as usize > MAX_IMMEDIATE {
            return Err(Error::InvalidValue.because(format_args!(
                "expected at most {MAX_IMMEDIATE} bytes of immediate data, got {len}"
            )));
        }
        self.most_immediate.set(len);
        Ok(())
    }

    pub(crate) fn configure_tasks(
        &self,
        ctx: &Ctx,
        on_success: Option<TaskCallback>,
        on_error: Option<TaskCallback>,
        count: u32,
    ) -> Result<()> {
        check_range("number of receive tasks", count, MAX_TASKS)?;
        self.tasks.configure(ctx, on_success, on_error, count)
    }

    /// Allocates a task that receives one message into `buf`.
    pub(crate) fn allocate(
        &self,
        ctx: &Ctx,
        buf: Option<BufHandle>,
    ) -> Result<NonNull<TaskOf<PostRecv>>> {
        let body = PostRecv {
            buf: Cell::new(buf),
            producer: Cell::new(0),
            immediate: UnsafeCell::new([0; MAX_IMMEDIATE]),
            immediate_len: Cell::new(0),
        };
        self.tasks.allocate(ctx, body, doca_data { u64: 0 })
    }

    /// Size in bytes of the largest message that any buffer of the map can hold.
    fn max_message(&self) -> usize {
        let (_, len) = self.mmap.memrange().unwrap_or((0, 0));
        usize::try_from(len).unwrap_or(usize::MAX).min(MAX_BUF_SIZE)
    }

    fn begin(&self, ctx: &Ctx, pe: &Pe) -> Result<Run> {
        let max_message = self.max_message();
        let ring = RingConsumer::create(Geometry::for_messages(
            self.tasks.limit() as usize,
            max_message,
        ))?;
        let duplicate = |fd: std::os::fd::BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let descriptors = vec![duplicate(ring.memfd())?, duplicate(pe.wake().as_fd())?];
        let lifeline = self.connection.lifeline()?;
        pe.watch(lifeline.as_fd(), ctx, LIFELINE, Urgency::Liveness)?;
        let mailbox = LocalConsumer::new(self.id, Arc::clone(pe.wake()));
        if let Err(error) = self.connection.announce(&mailbox, max_message, descriptors) {
            pe.unwatch(lifeline.as_fd(), Urgency::Liveness);
            return Err(error);
        }
        Ok(Run {
            ring: Some(ring),
            mailbox: Some(mailbox),
            lifeline: Some(lifeline),
            starting: true,
            ..Run::default()
        })
    }
}

impl Run {
    /// Moves received fragments into the first posted buffers. Returns the first task that this completes.
    #[inline(always)]
    fn receive(&mut self) -> std::result::Result<Option<Event>, Corrupt> {
        let (Some(ring), Some(&task)) = (&mut self.ring, self.posted.front()) else {
            return Ok(None);
        };
        let Some(message) = ring.peek()? else {
            return Ok(None);
        };
        if self.partial.is_some() || message.more() || message.immediate_len().is_some() {
            return self.receive_any();
        }
        // The most frequent case: data of the same producer as before. SAFETY: a posted task is in flight, and tasks in
        // flight are not freed.
        let body = unsafe { task.as_ref() }.downcast::<PostRecv>();
        let body = &body.expect("only receive tasks are posted").body;
        body.producer.set(self.sender);
        let result = take_data(ring, &message, body);
        ring.advance(&message);
        self.posted.pop_front();
        Ok(Some(Event::Task(task, result)))
    }

    /// As [`receive`](Self::receive), for all other messages.
    fn receive_any(&mut self) -> std::result::Result<Option<Event>, Corrupt> {
        let Some(ring) = &mut self.ring else {
            return Ok(None);
        };
        for _ in 0..MOST_FRAGMENTS {
            let Some(&task) = self.posted.front() else {
                return Ok(None);
            };
            let Some(message) = ring.peek()? else {
                return Ok(None);
            };
            // SAFETY: a posted task is in flight, and tasks in flight are not freed.
            let body = unsafe { task.as_ref() }.downcast::<PostRecv>();
            let body = &body.expect("only receive tasks are posted").body;
            let mut partial = self.partial.take().unwrap_or_else(|| {
                let head = take_head(ring, &message, body, self.sender);
                self.sender = head.unwrap_or(self.sender);
                Partial {
                    result: head.and_then(|_| check_immediate(body, self.most_immediate)),
                    appended: 0,
                    arrived: 0,
                }
            });
            partial.count(&message)?;
            if partial.result.is_ok() {
                partial.result = take_data(ring, &message, body);
                match partial.result {
                    Ok(()) => partial.appended += message.len(),
                    // The rest of the message is skipped, and the buffer is restored.
                    Err(_) => take_back(body, partial.appended),
                }
            }
            ring.advance(&message);
            if message.more() {
                self.partial = Some(partial);
                continue;
            }
            self.posted.pop_front();
            return Ok(Some(Event::Task(task, partial.result)));
        }
        Ok(None)
    }
}

/// Refuses immediate data longer than the configured maximum.
fn check_immediate(body: &PostRecv, most: u32) -> Result<()> {
    let len = body.immediate_len();
    if len <= most {
        return Ok(());
    }
    body.immediate_len.set(0);
    Err(Error::TooBig.because(format_args!(
        "the consumer expects at most {most} bytes of immediate data, got {len}"
    )))
}

/// Copies the sender and the immediate data from the first fragment of a message. Returns the sender.
fn take_head(ring: &RingConsumer, message: &Message, body: &PostRecv, last: u32) -> Result<u32> {
    body.immediate_len.set(0);
    let sender = match message.immediate_len() {
        None => last,
        Some(len @ SENDER_SIZE..) if len <= SENDER_SIZE + MAX_IMMEDIATE => {
            let mut head = [0; SENDER_SIZE + MAX_IMMEDIATE];
            ring.read_immediate(message, &mut head[..len]);
            let (sender, immediate) = head[..len].split_at(SENDER_SIZE);
            body.set_immediate(immediate);
            sender.try_into().map(u32::from_le_bytes).unwrap_or(0)
        }
        Some(len) => {
            return Err(Error::IoFailed.because(format_args!(
                "the head of a message has {SENDER_SIZE} to {} bytes, got {len}",
                SENDER_SIZE + MAX_IMMEDIATE
            )));
        }
    };
    body.producer.set(sender);
    Ok(sender)
}

/// Appends a fragment's data to the task's buffer.
#[inline(always)]
fn take_data(ring: &RingConsumer, message: &Message, body: &PostRecv) -> Result<()> {
    let len = message.len();
    append(body.buf.get(), len, |to| {
        // SAFETY: `append` passes `len` writable bytes.
        unsafe { ring.read(message, 0, to, len) };
    })
}

/// Removes the last `len` appended bytes from the task's buffer.
fn take_back(body: &PostRecv, len: usize) {
    if let Some(buf) = body.buf.get() {
        // Cannot fail: the data was longer before.
        let _ = buf.set_data_len(buf.data_len().saturating_sub(len));
    }
}

impl Driver for Consumer {
    fn start(&self, ctx: &Ctx) -> Result<Started> {
        if self.tasks.limit() == 0 {
            return Err(Error::BadState.because("configure receive tasks before the start"));
        }
        self.stopping.set(false);
        if !self.mmap.has_device(self.connection.device()) {
            return Err(Error::InvalidValue.because(
                "the device of the connection was not added to the consumer's mmap: call doca_mmap_add_dev before \
                 doca_mmap_start",
            ));
        }
        let mut run = self.begin(ctx, &*ctx.pe()?)?;
        self.connection.endpoint_started();
        run.most_immediate = self.most_immediate.get();
        *self.run.borrow_mut() = run;
        Ok(Started::InProgress)
    }

    fn submit(&self, _: &Ctx, task: &Task) -> Result<()> {
        let body = &task.downcast::<PostRecv>().ok_or(Error::InvalidValue)?.body;
        check_destination(body.buf.get().as_ref(), &self.mmap)?;
        body.producer.set(0);
        body.immediate_len.set(0);
        let run = &mut *self.run.borrow_mut();
        let ring = run.ring.as_mut().ok_or(Error::BadState)?;
        run.posted.push_back(NonNull::from(task));
        ring.post(1);
        Ok(())
    }

    #[inline(always)]
    fn next_event(&self, _: &Ctx) -> Option<Event> {
        let run = &mut *self.run.borrow_mut();
        if run.starting {
            run.starting = false;
            return Some(Event::Started);
        }
        match run.receive() {
            Ok(Some(event)) => return Some(event),
            Ok(None) => {}
            Err(corrupt) => {
                log::warn!("consumer {}: {corrupt}", self.id);
                run.ring = None;
                self.connection.shut_down();
            }
        }
        if let Some(mailbox) = &run.mailbox
            && let Some(wake) = mailbox.take_producer()
            && let Some(ring) = &mut run.ring
            && let Err(error) = ring.set_producer(wake)
        {
            log::warn!(
                "consumer {}: the peer's producers cannot be woken: {error}",
                self.id
            );
        }
        if self.stopping.get() {
            // Closed before the first buffer is returned: producers fail from now on.
            run.ring = None;
            run.partial = None;
            let task = run.posted.pop_front()?;
            return Some(Event::Task(task, Err(Error::ConnectionAborted)));
        }
        if self.connection.is_lost() && !std::mem::replace(&mut run.broken, true) {
            return Some(Event::Broken);
        }
        None
    }

    fn flush(&self, _: &Ctx) {
        self.stopping.set(true);
        self.run.borrow_mut().starting = false;
    }

    fn finish_stop(&self, ctx: &Ctx) -> bool {
        let run = std::mem::take(&mut *self.run.borrow_mut());
        // The ring is dropped first, so that it is closed before the expiry is reported to the peer.
        drop(run.ring);
        self.connection.retract(self.id);
        self.connection.endpoint_stopped();
        if let (Ok(pe), Some(lifeline)) = (ctx.pe(), &run.lifeline) {
            pe.unwatch(lifeline.as_fd(), Urgency::Liveness);
        }
        true
    }

    fn on_ready(&self, ctx: &Ctx, _: u32) {
        // The lifeline is never written to, so it has hung up, and would remain readable.
        self.connection.lose();
        if let (Ok(pe), Some(lifeline)) = (ctx.pe(), self.run.borrow_mut().lifeline.take()) {
            pe.unwatch(lifeline.as_fd(), Urgency::Liveness);
        }
    }

    fn arm(&self) {
        if let Some(ring) = &self.run.borrow().ring {
            ring.arm();
        }
    }

    fn disarm(&self) {
        if let Some(ring) = &self.run.borrow().ring {
            ring.disarm();
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.connection.release_id(self.id);
    }
}

/// Checks that a buf can receive for a consumer of `mmap`.
fn check_destination(buf: Option<&BufHandle>, mmap: &Arc<Mmap>) -> Result<()> {
    let Some(buf) = buf else {
        // The buf is only for messages that have only immediate data.
        return Ok(());
    };
    if !Arc::ptr_eq(&*buf.mmap()?, mmap) {
        return Err(Error::InvalidValue
            .because("expected a buf of the mmap that the consumer was created with"));
    }
    if buf.is_in_list() {
        return Err(Error::InvalidValue.because("a consumer receives into one buf, not a list"));
    }
    if !mmap.is_writable() {
        return Err(Error::NotPermitted.because("the consumer's mmap cannot be written"));
    }
    Ok(())
}

/// Appends `len` bytes to the data of a buf: `read` writes them to the memory that it is passed.
///
/// Returns [`Error::TooBig`], without writing any data, if they do not fit.
#[inline(always)]
fn append(buf: Option<BufHandle>, len: usize, read: impl FnOnce(*mut u8)) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let buf = buf.ok_or(Error::TooBig)?;
    if len > buf.tail_len() {
        return Err(Error::TooBig);
    }
    let tail = buf.data() + buf.data_len() as u64;
    {
        let mmap = buf.mmap()?;
        if !mmap.is_writable() {
            return Err(Error::NotPermitted);
        }
        match mmap.local_ptr(tail, len as u64) {
            Some(to) => read(to),
            None => {
                let mut bytes = vec![0; len];
                read(bytes.as_mut_ptr());
                // SAFETY: the vector has `len` readable bytes.
                unsafe { mmap.write_from(tail, bytes.as_ptr(), len) }?;
            }
        }
    }
    buf.grow(len);
    Ok(())
}
