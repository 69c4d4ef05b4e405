//! Comch's fast path: consumers, which post buffers, and producers, which send messages to them over an existing
//! connection.

use std::ops::Deref;
use std::{fmt, ptr};

use doca_sys as sys;

use crate::context::{Context, context_methods, object};
use crate::error::{call, non_null};
use crate::slots::{self, CompletionHandler, HandlerConf, OneBuffer, OneOfSlot, Slots};
use crate::task::completion_callbacks;
use crate::{Buf, Connection, Error, ErrorCode, Mmap, Pe, Result, Task};

/// The receiving side of a connection's fast path.
///
/// The peer receives its id in [`ComchEvent::ConsumerAdded`](crate::ComchEvent::ConsumerAdded) and sends to it with a
/// [`Producer`](crate::Producer). It may be started by another thread than that of the server or client, on its own
/// progress engine.
///
/// ```no_run
/// use std::time::Duration;
///
/// use doca::{BufInventory, Connection, Consumer, CtxState, Event, Mmap, Pe};
///
/// fn receive(connection: &Connection, messages: &Mmap) -> doca::Result<()> {
///     let pe = Pe::new()?;
///     let inventory = BufInventory::new(1)?;
///     let buf = inventory.buf(messages, 0, 64)?;
///     let consumer = Consumer::start(&pe, connection, messages, 1)?;
///     pe.progress_until(Duration::from_secs(5), || consumer.state() == CtxState::Running);
///     let task = consumer.post_recv_task(&buf, 0)?;
///     loop {
///         buf.reset_data()?;
///         task.submit().expect("nothing but this loop submits it");
///         let completion = loop {
///             if let Some(Event::Task(completion)) = pe.poll() {
///                 break completion;
///             }
///         };
///         if completion.result.is_err() {
///             break;
///         }
///         let mut message = [0; 64];
///         let len = buf.read_data(&mut message)?;
///         println!("{:?}", &message[..len]);
///     }
///     consumer.stop()
/// }
/// ```
#[derive(Debug)]
pub struct Consumer {
    context: Context<sys::doca_comch_consumer>,
    mmap: Mmap,
    handler: Option<HandlerConf<sys::doca_comch_consumer_task_post_recv>>,
}

object!(
    doca_comch_consumer,
    doca_comch_consumer_as_ctx,
    doca_comch_consumer_destroy
);

impl Consumer {
    /// Starts a consumer that receives into bufs of `mmap`, with at most `max_tasks` tasks. The map needs
    /// [`Access::PCI_READ_WRITE`](crate::Access::PCI_READ_WRITE): the peer's device writes to it.
    ///
    /// It becomes [`CtxState::Running`](crate::CtxState::Running) through progress; tasks can be created from then on.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_PERMITTED`] without that permission, [`ErrorCode::NOT_CONNECTED`] if the peer has disconnected;
    /// the errors of `doca_ctx_start` and of the functions that create the consumer.
    pub fn start(pe: &Pe, connection: &Connection, mmap: &Mmap, max_tasks: u32) -> Result<Self> {
        Self::create(pe, connection, mmap, max_tasks, None)
    }

    /// As [`start`](Self::start), for [slots](Self::receive_into): `H` handles the completions. The engine must be that
    /// of a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start), and [`ErrorCode::INVALID_VALUE`] for another engine.
    pub fn start_with<H: CompletionHandler<Buffers = OneBuffer>>(
        pe: &Pe,
        connection: &Connection,
        mmap: &Mmap,
        max_tasks: u32,
    ) -> Result<Self> {
        let handler = HandlerConf::of::<H>();
        handler.check_worker("doca_comch_consumer_task_post_recv_set_conf", pe)?;
        Self::create(pe, connection, mmap, max_tasks, Some(handler))
    }

    fn create(
        pe: &Pe,
        connection: &Connection,
        mmap: &Mmap,
        max_tasks: u32,
        handler: Option<HandlerConf<sys::doca_comch_consumer_task_post_recv>>,
    ) -> Result<Self> {
        let (consumer, user) = connection.enter("doca_comch_consumer_create", |connection| {
            let mut consumer = ptr::null_mut();
            // SAFETY: connection and map are live, the out-parameter is valid.
            unsafe {
                call!(doca_comch_consumer_create(
                    connection,
                    mmap.as_ptr(),
                    &mut consumer
                ))
            }?;
            Ok(consumer)
        })?;
        let object = non_null("doca_comch_consumer_create", consumer)?;
        // SAFETY: just created, and not used elsewhere.
        let context =
            unsafe { Context::new(object, pe, (), max_tasks as usize, (user, mmap.clone())) }?;
        let (completed, failed) = handler.map_or_else(completion_callbacks, HandlerConf::callbacks);
        // SAFETY: the consumer is live and not started.
        unsafe {
            call!(doca_comch_consumer_task_post_recv_set_conf(
                consumer, completed, failed, max_tasks
            ))
        }?;
        context.start()?;
        Ok(Self {
            context,
            mmap: mmap.clone(),
            handler,
        })
    }

    /// Gives each of the slots a task with the number `TASK` that receives one message and appends it to the data of
    /// the slot's buffer.
    ///
    /// # Errors
    ///
    /// As for [`post_recv_task`](Self::post_recv_task), and [`ErrorCode::INVALID_VALUE`] unless the consumer was
    /// started with this handler, on the engine of the slots.
    pub fn receive_into<const TASK: usize, H: CompletionHandler<Buffers = OneBuffer>>(
        &self,
        slots: &Slots<H::State>,
    ) -> Result<()> {
        const OPERATION: &str = "doca_comch_consumer_task_post_recv_alloc_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.handler)?;
        self.check_map(OPERATION, slots.mmap())?;
        let allocate = |buffer: &OneOfSlot| {
            let mut raw = ptr::null_mut();
            // SAFETY: consumer and buf are live, the out-parameter is valid. The slot's pool keeps the buf.
            unsafe {
                call!(doca_comch_consumer_task_post_recv_alloc_init(
                    self.context.object(),
                    buffer.buf,
                    &mut raw
                ))?;
                Ok(sys::doca_comch_consumer_task_post_recv_as_task(raw))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    fn check_map(&self, operation: &'static str, mmap: Option<&Mmap>) -> Result<()> {
        if mmap.is_none_or(|mmap| mmap.is_same(&self.mmap)) {
            return Ok(());
        }
        let detail = "the buf is of another memory map than the consumer was started with";
        Err(Error::with_detail(
            operation,
            ErrorCode::INVALID_VALUE,
            detail,
        ))
    }

    /// Creates a task that receives one message and appends it to the data of `buf`. The sender can use the buffer once
    /// the task is submitted.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for a buf of another map than the consumer's, [`ErrorCode::BAD_STATE`] if the
    /// consumer is not running, [`ErrorCode::NO_MEMORY`] if it has `max_tasks` tasks.
    pub fn post_recv_task(&self, buf: &Buf, token: u64) -> Result<Task> {
        self.allocate(Some(buf), token).map(|(task, _)| task)
    }

    /// As [`post_recv_task`](Self::post_recv_task), for messages with immediate data, which need no buf if they have no
    /// other data.
    ///
    /// # Errors
    ///
    /// As for [`post_recv_task`](Self::post_recv_task).
    pub fn post_recv_immediate_task(&self, buf: Option<&Buf>, token: u64) -> Result<PostRecvTask> {
        let (task, raw) = self.allocate(buf, token)?;
        Ok(PostRecvTask::new(task, raw))
    }

    fn allocate(
        &self,
        buf: Option<&Buf>,
        token: u64,
    ) -> Result<(Task, *mut sys::doca_comch_consumer_task_post_recv)> {
        const OPERATION: &str = "doca_comch_consumer_task_post_recv_alloc_init";
        slots::check_queued(OPERATION, &self.handler)?;
        self.check_map(OPERATION, buf.map(Buf::mmap))?;
        let mut raw = ptr::null_mut();
        // SAFETY: consumer and buf are live, the out-parameter is valid. The task's cell keeps the buf alive.
        unsafe {
            call!(doca_comch_consumer_task_post_recv_alloc_init(
                self.context.object(),
                buf.map_or(ptr::null_mut(), Buf::as_ptr),
                &mut raw
            ))?;
            let task = sys::doca_comch_consumer_task_post_recv_as_task(raw);
            let task = self.context.adopt(OPERATION, task, [buf, None], token)?;
            Ok((task, raw))
        }
    }

    /// Id by which the peer's producers address this consumer; available once it is running.
    ///
    /// # Errors
    ///
    /// The errors of `doca_comch_consumer_get_id`.
    pub fn consumer_id(&self) -> Result<u32> {
        let mut id = 0;
        // SAFETY: the consumer is live, the out-parameter is valid.
        unsafe { call!(doca_comch_consumer_get_id(self.context.object(), &mut id)) }?;
        Ok(id)
    }

    context_methods!("consumer");

    /// Flushes the tasks in flight, whose failed completions are returned by [`Pe::poll`](crate::Pe::poll), and
    /// destroys the consumer.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`] if it does not become idle. The consumer is then leaked.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}

/// A post-receive [`Task`] that provides the received message's sender and immediate data.
pub struct PostRecvTask {
    task: Task,
    raw: *mut sys::doca_comch_consumer_task_post_recv,
}

/// Sender and immediate data of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Id of the producer that sent the message.
    pub producer_id: u32,
    /// The immediate data; empty if the message had none.
    pub immediate: Vec<u8>,
}

impl PostRecvTask {
    pub(super) fn new(task: Task, raw: *mut sys::doca_comch_consumer_task_post_recv) -> Self {
        Self { task, raw }
    }

    /// Sender and immediate data of the last received message. `None` unless the last reaped completion was a success
    /// and the task is not in flight.
    pub fn received(&self) -> Option<ReceivedMessage> {
        if !self.task.has_succeeded() {
            return None;
        }
        // SAFETY: the C task is allocated, and not in flight.
        let (producer_id, data, len) = unsafe {
            (
                sys::doca_comch_consumer_task_post_recv_get_producer_id(self.raw),
                sys::doca_comch_consumer_task_post_recv_get_imm_data(self.raw),
                sys::doca_comch_consumer_task_post_recv_get_imm_data_len(self.raw),
            )
        };
        let immediate = if data.is_null() {
            Vec::new()
        } else {
            // SAFETY: the task keeps that many bytes until it is submitted again or freed, which needs the handle that
            // is borrowed here.
            unsafe { std::slice::from_raw_parts(data, len as usize) }.to_vec()
        };
        Some(ReceivedMessage {
            producer_id,
            immediate,
        })
    }
}

impl Deref for PostRecvTask {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl fmt::Debug for PostRecvTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostRecvTask")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}

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

object!(
    doca_comch_producer,
    doca_comch_producer_as_ctx,
    doca_comch_producer_destroy
);

impl Producer {
    /// Starts a producer with at most `max_tasks` tasks.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NOT_CONNECTED`](crate::ErrorCode::NOT_CONNECTED) if the peer has disconnected; those of
    /// `doca_ctx_start` and of the functions that create the producer.
    pub fn start(pe: &Pe, connection: &Connection, max_tasks: u32) -> Result<Self> {
        Self::create(pe, connection, max_tasks, None)
    }

    /// As [`start`](Self::start), for [slots](Self::send_from): `H` handles the completions. The engine must be that of
    /// a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
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
        // The C parameter is not const; NULL means that there is no data.
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

    context_methods!("producer");

    /// Flushes the tasks in flight, whose completions are returned by [`Pe::poll`](crate::Pe::poll), and destroys the
    /// producer.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`](crate::ErrorCode::TIME_OUT) if it does not become idle. The producer is then leaked.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}
