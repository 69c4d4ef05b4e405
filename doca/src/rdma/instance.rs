use std::ptr;
use std::slice;

use doca_sys as sys;

use super::{RdmaBuilder, RdmaConnection};
use crate::context::{Context, ContextId, CtxState, NO_DATA, Object, Task, completion_callbacks};
use crate::device::non_null;
use crate::error::call;
use crate::{Buf, Device, Error, ErrorCode, Pe, Result};

/// An RDMA instance.
///
/// Both sides export a connection, exchange the descriptions by any other channel, and connect; see [`export`](Self::export).
///
/// ```no_run
/// use doca::{Access, Buf, Device, Event, Pe, Rdma};
///
/// /// Reads what `remote` points to in the peer's memory into `local`.
/// fn fetch(exchange: impl Fn(&[u8]) -> Vec<u8>, remote: &Buf, local: &Buf) -> doca::Result<()> {
///     let device = Device::open("mlx5_0")?;
///     let pe = Pe::new()?;
///     let rdma = Rdma::builder(&device).permissions(Access::RDMA_READ).read_tasks(1).start(&pe)?;
///     let (description, connection) = rdma.export()?;
///     rdma.connect(&connection, &exchange(&description))?;
///
///     let task = rdma.read_task(&connection, remote, local, 1)?;
///     task.submit().expect("a new task of a running instance");
///     while task.is_in_flight() {
///         if let Some(Event::Task(completion)) = pe.poll() {
///             println!("read: {:?}", completion.result);
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Rdma {
    context: Context<sys::doca_rdma>,
}

// SAFETY: both functions are those of this type.
unsafe impl Object for sys::doca_rdma {
    type Events = ();
    const DESTROY: &'static str = "doca_rdma_destroy";

    unsafe fn as_ctx(object: *mut Self) -> *mut sys::doca_ctx {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_rdma_as_ctx(object) }
    }

    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_rdma_destroy(object) }
    }
}

impl Rdma {
    /// Settings to start an instance with.
    pub fn builder(device: &Device) -> RdmaBuilder {
        RdmaBuilder::new(device)
    }

    pub(super) fn create(pe: &Pe, settings: &RdmaBuilder) -> Result<Self> {
        let mut rdma = ptr::null_mut();
        // SAFETY: the device is open, the result has a place.
        unsafe { call!(doca_rdma_create(settings.device.as_ptr(), &mut rdma)) }?;
        let object = non_null("doca_rdma_create", rdma)?;
        let tasks = [
            settings.receive_tasks,
            settings.send_tasks,
            settings.read_tasks,
            settings.write_tasks,
        ];
        let max_tasks = tasks
            .iter()
            .fold(0usize, |sum, &count| sum.saturating_add(count as usize));
        // SAFETY: just created, known to nobody else.
        let context = unsafe { Context::new(object, pe, (), max_tasks, settings.device.clone()) }?;
        // SAFETY: the instance is live and not started; the callbacks have the declared types.
        unsafe {
            call!(doca_rdma_set_permissions(rdma, settings.permissions.bits()))?;
            if let Some(count) = settings.max_connections {
                call!(doca_rdma_set_max_num_connections(rdma, count))?;
            }
            if let Some(index) = settings.gid_index {
                call!(doca_rdma_set_gid_index(rdma, index))?;
            }
            if settings.receive_tasks != 0 {
                let (completed, failed) = completion_callbacks();
                call!(doca_rdma_task_receive_set_conf(
                    rdma,
                    completed,
                    failed,
                    settings.receive_tasks
                ))?;
            }
            if settings.send_tasks != 0 {
                let (completed, failed) = completion_callbacks();
                call!(doca_rdma_task_send_set_conf(
                    rdma,
                    completed,
                    failed,
                    settings.send_tasks
                ))?;
            }
            if settings.read_tasks != 0 {
                let (completed, failed) = completion_callbacks();
                call!(doca_rdma_task_read_set_conf(
                    rdma,
                    completed,
                    failed,
                    settings.read_tasks
                ))?;
            }
            if settings.write_tasks != 0 {
                let (completed, failed) = completion_callbacks();
                call!(doca_rdma_task_write_set_conf(
                    rdma,
                    completed,
                    failed,
                    settings.write_tasks
                ))?;
            }
        }
        context.start()?;
        Ok(Self { context })
    }

    /// Makes a connection, and describes it for the peer, which passes the description to its [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`] when the instance is not running, and when it has all the connections it may have whatever `doca_rdma_export` returns.
    pub fn export(&self) -> Result<(Vec<u8>, RdmaConnection)> {
        const OPERATION: &str = "doca_rdma_export";
        let (mut details, mut len, mut connection) = (ptr::null(), 0, ptr::null_mut());
        // SAFETY: the instance is live, the results have places.
        unsafe {
            call!(doca_rdma_export(
                self.context.object(),
                &mut details,
                &mut len,
                &mut connection
            ))
        }?;
        let connection = RdmaConnection::new(self.id(), non_null(OPERATION, connection)?);
        if details.is_null() {
            return Err(Error::new(OPERATION, ErrorCode::UNEXPECTED));
        }
        // SAFETY: the instance owns `len` bytes of description, at least until its next export.
        let details = unsafe { slice::from_raw_parts(details.cast::<u8>(), len) }.to_vec();
        Ok((details, connection))
    }

    /// Connects with the peer that made `description`. Tasks may be submitted at once: they wait until the peer has connected too.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for a connection of another instance; whatever `doca_rdma_connect` returns for a description that is
    /// damaged or not meant for this device.
    pub fn connect(&self, connection: &RdmaConnection, description: &[u8]) -> Result<()> {
        let connection = connection.for_instance("doca_rdma_connect", self.id())?;
        // SAFETY: instance and connection are live and belong together, the description is valid for its length.
        unsafe {
            call!(doca_rdma_connect(
                self.context.object(),
                description.as_ptr().cast(),
                description.len(),
                connection
            ))
        }
    }

    /// Makes a task that receives one message to the tail of the data of `buf`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`] when the instance is not running, [`ErrorCode::NO_MEMORY`] when it has all its receive tasks.
    pub fn receive_task(&self, buf: &Buf, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_receive_allocate_init";
        let mut task = ptr::null_mut();
        // SAFETY: instance and buf are live, the result has a place. The buf is kept by the task's cell.
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

    /// Makes a task that sends the data of `buf`; a receive task of the peer gets it.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] for a connection of another instance, [`ErrorCode::BAD_STATE`] when the instance is not running,
    /// [`ErrorCode::NO_MEMORY`] when it has all its send tasks.
    pub fn send_task(&self, connection: &RdmaConnection, buf: &Buf, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_rdma_task_send_allocate_init";
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and buf are live, the result has a place. The buf is kept by the task's cell.
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

    /// Makes a task that reads the peer's memory, the data of `source`, to the tail of the data of `destination`.
    /// `source` is a buf of a map that the peer exported ([`Mmap::import`](crate::Mmap::import)).
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
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the result has a place. The bufs are kept by the task's cell.
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

    /// Makes a task that writes the data of `source` to the peer's memory, to the tail of the data of `destination`.
    /// `destination` is a buf of a map that the peer exported ([`Mmap::import`](crate::Mmap::import)).
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
        let connection = connection.for_instance(OPERATION, self.id())?;
        let mut task = ptr::null_mut();
        // SAFETY: instance, connection and bufs are live, the result has a place. The bufs are kept by the task's cell.
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

    /// Names the instance in [`Event::State`](crate::Event::State).
    pub fn id(&self) -> ContextId {
        self.context.id()
    }

    /// State of the instance.
    pub fn state(&self) -> CtxState {
        self.context.state()
    }

    /// Number of tasks in flight.
    pub fn in_flight(&self) -> usize {
        self.context.in_flight()
    }

    /// Flushes the tasks in flight, whose completions come from [`Pe::poll`](crate::Pe::poll), ends the connections and destroys the instance.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`] when it does not become idle. The instance stays in memory then, out of reach.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}
