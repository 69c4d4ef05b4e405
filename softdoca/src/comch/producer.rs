//! The producer: sends messages of the fast path to consumers of the peer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::doca_data;

use super::connection::Connection;
use super::payload::{self, Gather};
use super::remote_consumer::RemoteConsumer;
use super::{MAX_IMMEDIATE, MAX_TASKS, check_range};
use crate::buffer::BufHandle;
use crate::error::{Error, Result};
use crate::progress::{
    Ctx, Driver, Event, Pe, Started, Task, TaskCallback, TaskOf, TaskPool, Urgency,
};

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
    /// Completed tasks, not yet reaped.
    done: VecDeque<(NonNull<Task>, Result<()>)>,
    /// Consumers that could not take a message; the program will retry.
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

    /// Replaces the immediate data.
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

    /// The id by which the peer's consumers name this producer.
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

    /// Looks up the consumer that the task sends to.
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
            (Some(buf), 0) => payload::run_of(buf)?.map(|run| (run, buf.data_len())),
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
        *self.run.borrow_mut() = Run {
            lifeline: Some(lifeline),
            ..Run::default()
        };
        Ok(Started::Running)
    }

    fn submit(&self, ctx: &Ctx, task: &Task) -> Result<()> {
        let body = &task.downcast::<SendTask>().ok_or(Error::InvalidValue)?.body;
        let result = self.send(ctx, body);
        if let Err(error @ (Error::Again | Error::InvalidValue)) = result {
            return Err(error);
        }
        // Completed by the next progress call, never inside submit.
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
            // Makes the progress call return: the program can now submit what failed with `Again`.
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
        // The lifeline is never written to, so it has hung up; it would stay readable for ever.
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
