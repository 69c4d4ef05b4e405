use std::ptr;

use doca_sys as sys;

use super::Connection;
use crate::context::{Context, ContextId, CtxState, Object, Task, completion_callbacks};
use crate::device::non_null;
use crate::error::call;
use crate::slots::{self, CompletionHandler, HandlerConf, OneBuffer, OneOfSlot, Slots};
use crate::{Buf, Pe, Result};

/// The sending side of a connection's fast path.
///
/// ```no_run
/// use doca::{Buf, Connection, ErrorCode, Event, Pe, Producer};
///
/// fn send(pe: &Pe, connection: &Connection, consumer_id: u32, message: &Buf) -> doca::Result<()> {
///     let producer = Producer::start(pe, connection, 1)?;
///     let task = producer.send_task(message, consumer_id, 7)?;
///     while task.submit() == Err(ErrorCode::AGAIN) {
///         // The consumer has no buffer posted.
///         pe.poll();
///     }
///     while task.is_in_flight() {
///         if let Some(Event::Task(completion)) = pe.poll() {
///             println!("sent: {:?}", completion.result);
///         }
///     }
///     drop(task);
///     producer.stop()
/// }
/// ```
#[derive(Debug)]
pub struct Producer {
    context: Context<sys::doca_comch_producer>,
    handler: Option<HandlerConf<sys::doca_comch_producer_task_send>>,
}

// SAFETY: both functions are those of this type.
unsafe impl Object for sys::doca_comch_producer {
    type Events = ();
    const DESTROY: &'static str = "doca_comch_producer_destroy";

    unsafe fn as_ctx(object: *mut Self) -> *mut sys::doca_ctx {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_producer_as_ctx(object) }
    }

    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t {
        // SAFETY: guaranteed by the caller.
        unsafe { sys::doca_comch_producer_destroy(object) }
    }
}

impl Producer {
    /// Starts a producer with at most `max_tasks` tasks.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_CONNECTED`](crate::ErrorCode::NOT_CONNECTED) if the peer is gone; those of `doca_ctx_start` and
    /// of the functions that create the producer.
    pub fn start(pe: &Pe, connection: &Connection, max_tasks: u32) -> Result<Self> {
        Self::create(pe, connection, max_tasks, None)
    }

    /// As [`start`](Self::start), for [slots](Self::send_from): `H` handles the completions. The engine is that of a
    /// [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start), and [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) for another
    /// engine.
    pub fn start_with<H: CompletionHandler<Buffers = OneBuffer>>(
        pe: &Pe,
        connection: &Connection,
        max_tasks: u32,
    ) -> Result<Self> {
        let handler = HandlerConf::of::<H>();
        handler.check_worker("doca_comch_producer_task_send_set_conf", pe)?;
        Self::create(pe, connection, max_tasks, Some(handler))
    }

    fn create(
        pe: &Pe,
        connection: &Connection,
        max_tasks: u32,
        handler: Option<HandlerConf<sys::doca_comch_producer_task_send>>,
    ) -> Result<Self> {
        let (producer, user) = connection.enter("doca_comch_producer_create", |connection| {
            let mut producer = ptr::null_mut();
            // SAFETY: the connection is live, the out-parameter is valid.
            unsafe { call!(doca_comch_producer_create(connection, &mut producer)) }?;
            Ok(producer)
        })?;
        let object = non_null("doca_comch_producer_create", producer)?;
        // SAFETY: just created, and not used elsewhere.
        let context = unsafe { Context::new(object, pe, (), max_tasks as usize, user) }?;
        let (completed, failed) = handler.map_or_else(completion_callbacks, HandlerConf::callbacks);
        // SAFETY: the producer is live and not started.
        unsafe {
            call!(doca_comch_producer_task_send_set_conf(
                producer, completed, failed, max_tasks
            ))
        }?;
        context.start()?;
        Ok(Self { context, handler })
    }

    /// Gives each of the slots a task with the number `TASK` that sends the data of the slot's buffer to the peer's
    /// consumer `consumer_id`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task), and [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) unless
    /// the producer was started with this handler, on the engine of the slots.
    pub fn send_from<const TASK: usize, H: CompletionHandler<Buffers = OneBuffer>>(
        &self,
        slots: &Slots<H::State>,
        consumer_id: u32,
    ) -> Result<()> {
        const OPERATION: &str = "doca_comch_producer_task_send_alloc_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.handler)?;
        let allocate = |buffer: &OneOfSlot| {
            let mut raw = ptr::null_mut();
            // SAFETY: producer and buf are live, the out-parameter is valid. The slot's pool keeps the buf.
            unsafe {
                call!(doca_comch_producer_task_send_alloc_init(
                    self.context.object(),
                    buffer.buf.cast_const(),
                    ptr::null_mut(),
                    0,
                    consumer_id,
                    &mut raw
                ))?;
                Ok(sys::doca_comch_producer_task_send_as_task(raw))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    /// Creates a task that sends the data of `buf` to the peer's consumer `consumer_id`. Its submission returns
    /// [`ErrorCode::AGAIN`](crate::ErrorCode::AGAIN) while the consumer has no buffer posted.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`](crate::ErrorCode::BAD_STATE) if the producer is not running,
    /// [`ErrorCode::NO_MEMORY`](crate::ErrorCode::NO_MEMORY) if it has `max_tasks` tasks.
    pub fn send_task(&self, buf: &Buf, consumer_id: u32, token: u64) -> Result<Task> {
        self.send_immediate_task(Some(buf), &[], consumer_id, token)
    }

    /// As [`send_task`](Self::send_task), with a copy of `immediate` in addition to or instead of data. Every
    /// submission sends the same bytes; a common limit is 32.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task), and [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) for
    /// more bytes than the device supports.
    pub fn send_immediate_task(
        &self,
        buf: Option<&Buf>,
        immediate: &[u8],
        consumer_id: u32,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_comch_producer_task_send_alloc_init";
        slots::check_queued(OPERATION, &self.handler)?;
        let mut task = ptr::null_mut();
        // The C parameter is not const; NULL stands for no data.
        let mut immediate = immediate.to_vec();
        let len = u32::try_from(immediate.len()).unwrap_or(u32::MAX);
        let data = if len == 0 {
            ptr::null_mut()
        } else {
            immediate.as_mut_ptr()
        };
        // SAFETY: producer, buf and the immediate bytes are live during the call, the out-parameter is valid. The
        // task's cell keeps the buf alive.
        unsafe {
            call!(doca_comch_producer_task_send_alloc_init(
                self.context.object(),
                buf.map_or(ptr::null(), |buf| buf.as_ptr().cast_const()),
                data,
                len,
                consumer_id,
                &mut task
            ))?;
            let task = sys::doca_comch_producer_task_send_as_task(task);
            self.context.adopt(OPERATION, task, [buf, None], token)
        }
    }

    /// Identifies the producer in [`Event::State`](crate::Event::State).
    pub fn id(&self) -> ContextId {
        self.context.id()
    }

    /// State of the producer.
    pub fn state(&self) -> CtxState {
        self.context.state()
    }

    /// Number of tasks in flight.
    pub fn in_flight(&self) -> usize {
        self.context.in_flight()
    }

    /// Flushes the tasks in flight, whose completions are returned by [`Pe::poll`](crate::Pe::poll), and destroys the
    /// producer.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`](crate::ErrorCode::TIME_OUT) if it does not become idle. The producer is leaked then.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}
