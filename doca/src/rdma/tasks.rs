use std::ops::Deref;
use std::rc::Rc;
use std::{fmt, ptr};

use doca_sys as sys;

use super::{Rdma, RdmaConnection};
use crate::error::call;
use crate::slots::{self, CompletionHandler, OneBuffer, OneOfSlot, Slots, TwoBuffers};
use crate::task::NO_DATA;
use crate::{Buf, RemoteSyncEvent, Result, Task};

impl Rdma {
    /// Creates a task that receives one message and appends it to the data of `buf`.
    ///
    /// # Errors
    ///
    /// [`BAD_STATE`](crate::ErrorCode::BAD_STATE) if the instance is not running,
    /// [`NO_MEMORY`](crate::ErrorCode::NO_MEMORY) if all its receive tasks exist.
    pub fn receive_task(&self, buf: &Buf, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_receive_allocate_init";
        slots::check_queued(OPERATION, &self.handlers.receive)?;
        let mut task = ptr::null_mut();
        // SAFETY: instance and buf are live, the out-parameter is valid. The buf is kept by the task's cell.
        unsafe {
            call!(doca_rdma_task_receive_allocate_init(
                self.context.object(),
                buf.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            self.context.adopt(
                OPERATION,
                sys::doca_rdma_task_receive_as_task(task),
                [Some(buf), None],
                token,
            )
        }
    }

    /// Creates a task that sends the data of `buf` to a receive task of the peer.
    ///
    /// # Errors
    ///
    /// [`INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) for a connection of another instance,
    /// [`NOT_CONNECTED`](crate::ErrorCode::NOT_CONNECTED) for a closed one, [`BAD_STATE`](crate::ErrorCode::BAD_STATE)
    /// if the instance is not running, [`NO_MEMORY`](crate::ErrorCode::NO_MEMORY) if all its tasks of this kind exist.
    pub fn send_task(&self, connection: &RdmaConnection, buf: &Buf, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_send_allocate_init";
        slots::check_queued(OPERATION, &self.handlers.send)?;
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and buf are live, the out-parameter is valid. The buf is kept by the task's
        // cell.
        unsafe {
            call!(doca_rdma_task_send_allocate_init(
                self.context.object(),
                connection,
                buf.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            self.context.adopt(
                OPERATION,
                sys::doca_rdma_task_send_as_task(task),
                [Some(buf), None],
                token,
            )
        }
    }

    /// Gives each of the slots a task with the number `TASK` that receives one message and appends it to the data of
    /// the slot's buffer.
    ///
    /// # Errors
    ///
    /// As for [`receive_task`](Self::receive_task), and [`INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) unless the
    /// instance was started with this [handler](crate::RdmaBuilder::receive_handler), on the engine of the slots.
    pub fn receive_into<const TASK: usize, H: CompletionHandler<Buffers = OneBuffer>>(
        &self,
        slots: &Slots<H::State>,
    ) -> Result<()> {
        const OPERATION: &str = "doca_rdma_task_receive_allocate_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.handlers.receive)?;
        let allocate = |buffer: &OneOfSlot| {
            let mut task = ptr::null_mut();
            // SAFETY: instance and buf are live, the out-parameter is valid. The slot's pool keeps the buf.
            unsafe {
                call!(doca_rdma_task_receive_allocate_init(
                    self.context.object(),
                    buffer.buf,
                    NO_DATA,
                    &mut task
                ))?;
                Ok(sys::doca_rdma_task_receive_as_task(task))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    /// Gives each of the slots a task with the number `TASK` that sends the data of the slot's buffer to a receive task
    /// of the peer.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task), and [`INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) unless the
    /// instance was started with this [handler](crate::RdmaBuilder::send_handler), on the engine of the slots.
    pub fn send_from<const TASK: usize, H: CompletionHandler<Buffers = OneBuffer>>(
        &self,
        slots: &Slots<H::State>,
        connection: &RdmaConnection,
    ) -> Result<()> {
        const OPERATION: &str = "doca_rdma_task_send_allocate_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.handlers.send)?;
        let connection = connection.for_instance(OPERATION, self.id())?;
        let allocate = |buffer: &OneOfSlot| {
            let mut task = ptr::null_mut();
            // SAFETY: instance, connection and buf are live, the out-parameter is valid. The slot's pool keeps the buf.
            unsafe {
                call!(doca_rdma_task_send_allocate_init(
                    self.context.object(),
                    connection,
                    buffer.buf,
                    NO_DATA,
                    &mut task
                ))?;
                Ok(sys::doca_rdma_task_send_as_task(task))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    /// Gives each of the slots a task with the number `TASK` that reads the peer's memory, the data of the slot's
    /// [remote](TwoBuffers::REMOTE) buffer, and appends it to the data of its [local](TwoBuffers::LOCAL) buffer.
    ///
    /// # Errors
    ///
    /// As for [`read_task`](Self::read_task), and [`INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) unless the instance
    /// was started with this [handler](crate::RdmaBuilder::read_handler), on the engine of the slots.
    pub fn read_into<const TASK: usize, H: CompletionHandler<Buffers = TwoBuffers>>(
        &self,
        slots: &Slots<H::State, TwoBuffers>,
        connection: &RdmaConnection,
    ) -> Result<()> {
        const OPERATION: &str = "doca_rdma_task_read_allocate_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.handlers.read)?;
        let connection = connection.for_instance(OPERATION, self.id())?;
        let allocate = |bufs: &[*mut sys::doca_buf; 2]| {
            let mut task = ptr::null_mut();
            // SAFETY: instance, connection and bufs are live, the out-parameter is valid. The slot's pool keeps the
            // bufs.
            unsafe {
                call!(doca_rdma_task_read_allocate_init(
                    self.context.object(),
                    connection,
                    bufs[TwoBuffers::REMOTE],
                    bufs[TwoBuffers::LOCAL],
                    NO_DATA,
                    &mut task
                ))?;
                Ok(sys::doca_rdma_task_read_as_task(task))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    /// Gives each of the slots a task with the number `TASK` that appends the data of the slot's
    /// [local](TwoBuffers::LOCAL) buffer to the data of its [remote](TwoBuffers::REMOTE) buffer, in the peer's memory.
    ///
    /// # Errors
    ///
    /// As for [`write_task`](Self::write_task), and [`INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) unless the
    /// instance was started with this [handler](crate::RdmaBuilder::write_handler), on the engine of the slots.
    pub fn write_from<const TASK: usize, H: CompletionHandler<Buffers = TwoBuffers>>(
        &self,
        slots: &Slots<H::State, TwoBuffers>,
        connection: &RdmaConnection,
    ) -> Result<()> {
        const OPERATION: &str = "doca_rdma_task_write_allocate_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.handlers.write)?;
        let connection = connection.for_instance(OPERATION, self.id())?;
        let allocate = |bufs: &[*mut sys::doca_buf; 2]| {
            let mut task = ptr::null_mut();
            // SAFETY: as in `read_into`.
            unsafe {
                call!(doca_rdma_task_write_allocate_init(
                    self.context.object(),
                    connection,
                    bufs[TwoBuffers::LOCAL],
                    bufs[TwoBuffers::REMOTE],
                    NO_DATA,
                    &mut task
                ))?;
                Ok(sys::doca_rdma_task_write_as_task(task))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    /// Creates a task that reads the peer's memory, the data of `source`, and appends it to the data of `destination`.
    /// `source` is a buf of a map exported by the peer ([`Mmap::import`](crate::Mmap::import)).
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn read_task(
        &self,
        connection: &RdmaConnection,
        source: &Buf,
        destination: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_read_allocate_init";
        slots::check_queued(OPERATION, &self.handlers.read)?;
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the out-parameter is valid. The bufs are kept by the task's
        // cell.
        unsafe {
            call!(doca_rdma_task_read_allocate_init(
                self.context.object(),
                connection,
                source.as_ptr(),
                destination.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_read_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }
    }

    /// Creates a task that appends the data of `source` to the data of `destination`, a buf of a map exported by the
    /// peer ([`Mmap::import`](crate::Mmap::import)).
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn write_task(
        &self,
        connection: &RdmaConnection,
        source: &Buf,
        destination: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_write_allocate_init";
        slots::check_queued(OPERATION, &self.handlers.write)?;
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the out-parameter is valid. The bufs are kept by the task's
        // cell.
        unsafe {
            call!(doca_rdma_task_write_allocate_init(
                self.context.object(),
                connection,
                source.as_ptr(),
                destination.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_write_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }
    }

    /// Creates a task that receives one message and appends it to the data of `buf`; without a buf, it receives a
    /// message without data or the immediate value of a remote write. Unlike the task of
    /// [`receive_task`](Self::receive_task), it reports the kind of message.
    ///
    /// # Errors
    ///
    /// As for [`receive_task`](Self::receive_task).
    pub fn receive_any_task(&self, buf: Option<&Buf>, token: u64) -> Result<ReceiveTask> {
        const OPERATION: &str = "doca_rdma_task_receive_allocate_init";
        slots::check_queued(OPERATION, &self.handlers.receive)?;
        let mut task = ptr::null_mut();
        let buf_ptr = buf.map_or(ptr::null_mut(), Buf::as_ptr);
        // SAFETY: the instance and the buf, if any, are live, the out-parameter is valid. The task's cell keeps the
        // buf.
        let adopted = unsafe {
            call!(doca_rdma_task_receive_allocate_init(
                self.context.object(),
                buf_ptr,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_receive_as_task(task);
            self.context.adopt(OPERATION, task, [buf, None], token)
        }?;
        Ok(ReceiveTask::new(adopted, task))
    }

    /// Creates a task that sends the data of `buf`, if any, and an immediate value to a receive task of the peer.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn send_immediate_task(
        &self,
        connection: &RdmaConnection,
        buf: Option<&Buf>,
        immediate: u32,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_send_imm_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let (mut task, buf_ptr) = (ptr::null_mut(), buf.map_or(ptr::null_mut(), Buf::as_ptr));
        // SAFETY: instance, connection and buf are live, the out-parameter is valid. The buf is kept by the task's
        // cell.
        unsafe {
            call!(doca_rdma_task_send_imm_allocate_init(
                self.context.object(),
                connection,
                buf_ptr,
                immediate.to_be(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_send_imm_as_task(task);
            self.context.adopt(OPERATION, task, [buf, None], token)
        }
    }

    /// Creates a task that writes like the task of [`write_task`](Self::write_task), and then sends an immediate value
    /// to a receive task of the peer. No data is written before the peer has posted a receive task.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn write_immediate_task(
        &self,
        connection: &RdmaConnection,
        source: &Buf,
        destination: &Buf,
        immediate: u32,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_write_imm_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the out-parameter is valid. The bufs are kept by the task's
        // cell.
        unsafe {
            call!(doca_rdma_task_write_imm_allocate_init(
                self.context.object(),
                connection,
                source.as_ptr(),
                destination.as_ptr(),
                immediate.to_be(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_write_imm_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }
    }

    /// Creates a task that atomically replaces the first 8 bytes of the data of `remote`, a number in the machine's
    /// byte order, by `swap` if they equal `compare`. The old bytes are appended to the data of `result`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn compare_swap_task(
        &self,
        connection: &RdmaConnection,
        remote: &Buf,
        result: &Buf,
        (compare, swap): (u64, u64),
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_atomic_cmp_swp_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `write_immediate_task`.
        unsafe {
            call!(doca_rdma_task_atomic_cmp_swp_allocate_init(
                self.context.object(),
                connection,
                remote.as_ptr(),
                result.as_ptr(),
                compare,
                swap,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_atomic_cmp_swp_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(remote), Some(result)], token)
        }
    }

    /// Creates a task that atomically adds `add` to the first 8 bytes of the data of `remote`, a number in the
    /// machine's byte order. The old bytes are appended to the data of `result`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn fetch_add_task(
        &self,
        connection: &RdmaConnection,
        remote: &Buf,
        result: &Buf,
        add: u64,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_atomic_fetch_add_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `write_immediate_task`.
        unsafe {
            call!(doca_rdma_task_atomic_fetch_add_allocate_init(
                self.context.object(),
                connection,
                remote.as_ptr(),
                result.as_ptr(),
                add,
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_atomic_fetch_add_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(remote), Some(result)], token)
        }
    }

    /// Creates a task that appends the value of a peer's event, 8 bytes in the machine's byte order, to the data of
    /// `buf`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn event_get_task(
        &self,
        connection: &RdmaConnection,
        event: &RemoteSyncEvent,
        buf: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_remote_net_sync_event_get_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection, event and buf are live, the out-parameter is valid. The task's cell keeps event
        // and buf.
        unsafe {
            call!(doca_rdma_task_remote_net_sync_event_get_allocate_init(
                self.context.object(),
                connection,
                event.as_ptr(),
                buf.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_rdma_task_remote_net_sync_event_get_as_task(task);
            let keep: Rc<dyn std::any::Any> = event.keep();
            self.context
                .adopt_with(OPERATION, task, [Some(buf), None], Some(keep), token)
        }
    }

    /// Creates a task that sets a peer's event to the data of `buf`, 8 bytes in the machine's byte order.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn event_set_task(
        &self,
        connection: &RdmaConnection,
        event: &RemoteSyncEvent,
        buf: &Buf,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_remote_net_sync_event_notify_set_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `event_get_task`.
        unsafe {
            call!(
                doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
                    self.context.object(),
                    connection,
                    event.as_ptr(),
                    buf.as_ptr(),
                    NO_DATA,
                    &mut task
                )
            )?;
            let task = sys::doca_rdma_task_remote_net_sync_event_notify_set_as_task(task);
            let keep: Rc<dyn std::any::Any> = event.keep();
            self.context
                .adopt_with(OPERATION, task, [Some(buf), None], Some(keep), token)
        }
    }

    /// Creates a task that atomically adds `add` to a peer's event. The old value is appended to the data of `result`.
    ///
    /// # Errors
    ///
    /// As for [`send_task`](Self::send_task).
    pub fn event_add_task(
        &self,
        connection: &RdmaConnection,
        event: &RemoteSyncEvent,
        result: &Buf,
        add: u64,
        token: u64,
    ) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_remote_net_sync_event_notify_add_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: as in `event_get_task`.
        unsafe {
            call!(
                doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
                    self.context.object(),
                    connection,
                    event.as_ptr(),
                    result.as_ptr(),
                    add,
                    NO_DATA,
                    &mut task
                )
            )?;
            let task = sys::doca_rdma_task_remote_net_sync_event_notify_add_as_task(task);
            let keep: Rc<dyn std::any::Any> = event.keep();
            self.context
                .adopt_with(OPERATION, task, [Some(result), None], Some(keep), token)
        }
    }
}

/// A receive [`Task`] that reports the kind of the received message.
pub struct ReceiveTask {
    task: Task,
    raw: *mut sys::doca_rdma_task_receive,
}

/// A received message or remote write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The peer has sent a message.
    Message {
        /// Length of the data in bytes.
        len: u32,
        /// The immediate value, if any.
        immediate: Option<u32>,
    },
    /// The peer has written to memory of this side, with an immediate value.
    Written {
        /// Number of bytes written.
        len: u32,
        /// The immediate value.
        immediate: u32,
    },
}

impl ReceiveTask {
    pub(super) fn new(task: Task, raw: *mut sys::doca_rdma_task_receive) -> Self {
        Self { task, raw }
    }

    /// The last received message. `None` unless the last reaped completion was a success and the task is not in flight.
    pub fn received(&self) -> Option<Received> {
        if !self.task.has_succeeded() {
            return None;
        }
        // SAFETY: the C task is allocated, and not in flight.
        let (opcode, len, immediate) = unsafe {
            (
                sys::doca_rdma_task_receive_get_result_opcode(self.raw),
                sys::doca_rdma_task_receive_get_result_len(self.raw),
                u32::from_be(sys::doca_rdma_task_receive_get_result_immediate_data(
                    self.raw,
                )),
            )
        };
        Some(match opcode {
            sys::DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM => Received::Written { len, immediate },
            sys::DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM => Received::Message {
                len,
                immediate: Some(immediate),
            },
            _ => Received::Message {
                len,
                immediate: None,
            },
        })
    }
}

impl Deref for ReceiveTask {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl fmt::Debug for ReceiveTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveTask")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
