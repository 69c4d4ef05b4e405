//! Erasure coding by the device: redundancy is created, updated, and used to recover lost data.

use std::ptr::{self, NonNull};
use std::rc::Rc;

use doca_sys as sys;

use crate::context::{Context, context_methods, object};
use crate::error::{call, non_null};
use crate::slots::{self, CompletionHandler, HandlerConf, Slots, TwoBuffers, callbacks};
use crate::task::NO_DATA;
use crate::{Buf, Device, ErrorCode, Pe, Result, Task};

/// Settings of an [`ErasureCoding`] instance. Tasks of a kind whose number is not set cannot be created.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct ErasureCodingBuilder {
    device: Device,
    create_tasks: u32,
    update_tasks: u32,
    recover_tasks: u32,
    handlers: Handlers,
}

/// The handlers of the kinds of tasks that slots can have.
#[derive(Debug, Clone, Copy, Default)]
struct Handlers {
    create: Option<HandlerConf<sys::doca_ec_task_create>>,
    recover: Option<HandlerConf<sys::doca_ec_task_recover>>,
}

impl ErasureCodingBuilder {
    fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            create_tasks: 0,
            update_tasks: 0,
            recover_tasks: 0,
            handlers: Handlers::default(),
        }
    }

    /// Sets the number of create tasks.
    pub fn create_tasks(mut self, count: u32) -> Self {
        self.create_tasks = count;
        self
    }

    /// Sets the number of update tasks.
    pub fn update_tasks(mut self, count: u32) -> Self {
        self.update_tasks = count;
        self
    }

    /// Sets the number of recover tasks.
    pub fn recover_tasks(mut self, count: u32) -> Self {
        self.recover_tasks = count;
        self
    }

    /// Sets the handler of create tasks, which must then be tasks of [slots](ErasureCoding::create_in). The engine must
    /// be that of a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    pub fn create_handler<H: CompletionHandler<Buffers = TwoBuffers>>(mut self) -> Self {
        self.handlers.create = Some(HandlerConf::of::<H>());
        self
    }

    /// Sets the handler of recover tasks, which must then be tasks of [slots](ErasureCoding::recover_in). The engine
    /// must be that of a [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    pub fn recover_handler<H: CompletionHandler<Buffers = TwoBuffers>>(mut self) -> Self {
        self.handlers.recover = Some(HandlerConf::of::<H>());
        self
    }

    /// Starts the instance on `pe`.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the instance; [`ErrorCode::INVALID_VALUE`] if a
    /// handler's type of workers is not that of the engine.
    pub fn start(self, pe: &Pe) -> Result<ErasureCoding> {
        ErasureCoding::create(pe, &self)
    }
}

/// An erasure-coding instance.
///
/// The source of a task is a sequence of blocks of equal length, a multiple of 64 bytes; it may be a list of bufs
/// ([`Buf::append`]). The results are appended to the data of the destination.
///
/// ```no_run
/// use doca::{Buf, Device, EcMatrixType, ErasureCoding, Pe};
///
/// fn protect(pe: &Pe, device: &Device, data: &Buf, parity: &Buf) -> doca::Result<()> {
///     let ec = ErasureCoding::builder(device).create_tasks(1).start(pe)?;
///     // Two data blocks, each half of the data, and one redundancy block.
///     let matrix = ec.matrix(EcMatrixType::Cauchy, 2, 1)?;
///     let task = ec.create_task(&matrix, data, parity, 1)?;
///     task.submit().expect("a new task of a running instance");
///     while task.is_in_flight() {
///         pe.poll();
///     }
///     ec.stop()
/// }
/// ```
#[derive(Debug)]
pub struct ErasureCoding {
    /// Shared with the matrices, which the object must outlive.
    context: Rc<Context<sys::doca_ec>>,
    handlers: Handlers,
}

object!(doca_ec, doca_ec_as_ctx, doca_ec_destroy);

/// Defines a method that creates a task.
macro_rules! task {
    ($(#[$doc:meta])* $name:ident: $allocate_init:ident, $as_task:ident $(, $handler:ident)?) => {
        $(#[$doc])*
        pub fn $name(&self, matrix: &EcMatrix, source: &Buf, destination: &Buf, token: u64) -> Result<Task> {
            $(slots::check_queued(stringify!($allocate_init), &self.handlers.$handler)?;)?
            let mut task = ptr::null_mut();
            // SAFETY: instance, matrix and bufs are live, the out-parameter is valid. The task's cell keeps the bufs
            // alive; the matrix may be dropped.
            unsafe {
                call!($allocate_init(
                    self.context.object(),
                    matrix.as_ptr(),
                    source.as_ptr(),
                    destination.as_ptr(),
                    NO_DATA,
                    &mut task
                ))?;
                let bufs = [Some(source), Some(destination)];
                self.context.adopt(stringify!($allocate_init), sys::$as_task(task), bufs, token)
            }
        }
    };
}

/// Defines a method that gives slots a task.
macro_rules! slot_task {
    ($(#[$doc:meta])* $name:ident: $allocate_init:ident, $as_task:ident, $handler:ident) => {
        $(#[$doc])*
        pub fn $name<const TASK: usize, H: CompletionHandler<Buffers = TwoBuffers>>(
            &self,
            slots: &Slots<H::State, TwoBuffers>,
            matrix: &EcMatrix,
        ) -> Result<()> {
            const OPERATION: &str = stringify!($allocate_init);
            const { assert!(TASK < slots::TASKS_PER_SLOT) };
            slots::check_handler::<_, H>(OPERATION, self.handlers.$handler)?;
            let allocate = |bufs: &[*mut sys::doca_buf; 2]| {
                let mut task = ptr::null_mut();
                // SAFETY: instance, matrix and bufs are live, the out-parameter is valid. The slot's pool keeps the bufs;
                // the matrix may be dropped.
                unsafe {
                    call!($allocate_init(
                        self.context.object(),
                        matrix.as_ptr(),
                        bufs[TwoBuffers::SOURCE],
                        bufs[TwoBuffers::DESTINATION],
                        NO_DATA,
                        &mut task
                    ))?;
                    Ok(sys::$as_task(task))
                }
            };
            // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
            unsafe { self.context.adopt_slots::<H>(OPERATION, slots, TASK, allocate) }
        }
    };
}

impl ErasureCoding {
    /// Returns the settings of an instance, to be changed before it is started.
    pub fn builder(device: &Device) -> ErasureCodingBuilder {
        ErasureCodingBuilder::new(device)
    }

    fn create(pe: &Pe, settings: &ErasureCodingBuilder) -> Result<Self> {
        let handlers = settings.handlers;
        if let Some(handler) = handlers.create {
            handler.check_worker("doca_ec_task_create_set_conf", pe)?;
        }
        if let Some(handler) = handlers.recover {
            handler.check_worker("doca_ec_task_recover_set_conf", pe)?;
        }
        let mut ec = ptr::null_mut();
        // SAFETY: the device is open, the out-parameter is valid.
        unsafe { call!(doca_ec_create(settings.device.as_ptr(), &mut ec)) }?;
        let object = non_null("doca_ec_create", ec)?;
        let tasks = [
            settings.create_tasks,
            settings.update_tasks,
            settings.recover_tasks,
        ];
        let max_tasks = tasks
            .iter()
            .fold(0usize, |sum, &count| sum.saturating_add(count as usize));
        // SAFETY: just created, and not used elsewhere.
        let context = unsafe { Context::new(object, pe, (), max_tasks, settings.device.clone()) }?;
        macro_rules! configure {
            ($set_conf:ident, $count:expr $(, $handler:expr)?) => {
                if $count != 0 {
                    let (completed, failed) = callbacks([$($handler)?]);
                    // SAFETY: the instance is live and not started; the callbacks have the declared types.
                    unsafe { call!($set_conf(ec, completed, failed, $count)) }?;
                }
            };
        }
        let Handlers { create, recover } = handlers;
        configure!(doca_ec_task_create_set_conf, settings.create_tasks, create);
        configure!(doca_ec_task_update_set_conf, settings.update_tasks);
        configure!(
            doca_ec_task_recover_set_conf,
            settings.recover_tasks,
            recover
        );
        context.start()?;
        Ok(Self {
            context: Rc::new(context),
            handlers,
        })
    }

    /// Creates a coding matrix for `data` data blocks and `redundancy` redundancy blocks.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) if either number is 0 or exceeds the device's
    /// maximum.
    pub fn matrix(
        &self,
        matrix_type: EcMatrixType,
        data: usize,
        redundancy: usize,
    ) -> Result<EcMatrix> {
        let mut matrix = ptr::null_mut();
        // SAFETY: the instance is live, the out-parameter is valid.
        unsafe {
            call!(doca_ec_matrix_create(
                self.context.object(),
                matrix_type.to_raw(),
                data,
                redundancy,
                &mut matrix
            ))
        }?;
        EcMatrix::new("doca_ec_matrix_create", matrix, &self.context)
    }

    /// Creates the matrix for [`update_task`](Self::update_task) after the data blocks `changed` (ascending) have
    /// changed.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) if they are not ascending, or not data blocks of
    /// `coding`.
    pub fn update_matrix(&self, coding: &EcMatrix, changed: &[u32]) -> Result<EcMatrix> {
        // The C parameter is not const.
        let (mut changed, mut matrix) = (changed.to_vec(), ptr::null_mut());
        // SAFETY: instance and matrix are live, the array has this number of indices, and the out-parameter is valid.
        unsafe {
            call!(doca_ec_matrix_create_update(
                self.context.object(),
                coding.as_ptr(),
                changed.as_mut_ptr(),
                changed.len(),
                &mut matrix
            ))
        }?;
        EcMatrix::new("doca_ec_matrix_create_update", matrix, &self.context)
    }

    /// Creates the matrix for [`recover_task`](Self::recover_task) after the loss of the blocks `missing` (ascending).
    /// Redundancy blocks are numbered after the data blocks.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) if they are not ascending, or not blocks of
    /// `coding`, and if this loss cannot be recovered.
    pub fn recover_matrix(&self, coding: &EcMatrix, missing: &[u32]) -> Result<EcMatrix> {
        // The C parameter is not const.
        let (mut missing, mut matrix) = (missing.to_vec(), ptr::null_mut());
        // SAFETY: instance and matrix are live, the array has this number of indices, and the out-parameter is valid.
        unsafe {
            call!(doca_ec_matrix_create_recover(
                self.context.object(),
                coding.as_ptr(),
                missing.as_mut_ptr(),
                missing.len(),
                &mut matrix
            ))
        }?;
        EcMatrix::new("doca_ec_matrix_create_recover", matrix, &self.context)
    }

    task! {
        /// Creates a task that computes all redundancy blocks from the data blocks in `source`, with a matrix of
        /// [`matrix`](Self::matrix).
        ///
        /// # Errors
        ///
        /// [`ErrorCode::BAD_STATE`](crate::ErrorCode::BAD_STATE) if the instance is not running,
        /// [`ErrorCode::NO_MEMORY`](crate::ErrorCode::NO_MEMORY) if all its tasks of this kind exist.
        create_task: doca_ec_task_create_allocate_init, doca_ec_task_create_as_task, create
    }

    task! {
        /// Creates a task that computes all new redundancy blocks, with a matrix of
        /// [`update_matrix`](Self::update_matrix). `source` contains the old and the new block for each changed block,
        /// then the old redundancy blocks.
        ///
        /// # Errors
        ///
        /// As for [`create_task`](Self::create_task).
        update_task: doca_ec_task_update_allocate_init, doca_ec_task_update_as_task
    }

    task! {
        /// Creates a task that recovers missing blocks, with a matrix of [`recover_matrix`](Self::recover_matrix).
        /// `source` contains as many blocks as there are data blocks: the first available ones, ascending.
        ///
        /// # Errors
        ///
        /// As for [`create_task`](Self::create_task).
        recover_task: doca_ec_task_recover_allocate_init, doca_ec_task_recover_as_task, recover
    }

    slot_task! {
        /// Gives each of the slots a task with the number `TASK` that computes all redundancy blocks from the data blocks
        /// in the slot's [source](TwoBuffers::SOURCE), and appends them to its [destination](TwoBuffers::DESTINATION).
        ///
        /// # Errors
        ///
        /// As for [`create_task`](Self::create_task), and [`ErrorCode::INVALID_VALUE`] unless the instance was started
        /// with this [handler](ErasureCodingBuilder::create_handler), on the engine of the slots.
        create_in: doca_ec_task_create_allocate_init, doca_ec_task_create_as_task, create
    }

    slot_task! {
        /// Gives each of the slots a task with the number `TASK` that recovers missing blocks from the blocks in the
        /// slot's [source](TwoBuffers::SOURCE), often a [list](Slots::append_data), like the task of
        /// [`recover_task`](Self::recover_task), and appends them to its [destination](TwoBuffers::DESTINATION).
        ///
        /// # Errors
        ///
        /// As for [`create_in`](Self::create_in), with this [handler](ErasureCodingBuilder::recover_handler).
        recover_in: doca_ec_task_recover_allocate_init, doca_ec_task_recover_as_task, recover
    }

    context_methods!("instance");

    /// Flushes the tasks in flight, whose completions are returned by [`Pe::poll`](crate::Pe::poll), and destroys the
    /// instance, immediately or with the last of its matrices.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`](crate::ErrorCode::TIME_OUT) if it does not become idle. The instance is then leaked.
    pub fn stop(self) -> Result<()> {
        if Rc::strong_count(&self.context) > 1 {
            self.context.halt()
        } else {
            self.context.close()
        }
    }
}

impl Drop for ErasureCoding {
    fn drop(&mut self) {
        // Otherwise the instance is destroyed, and therefore stopped, right now.
        if Rc::strong_count(&self.context) > 1
            && let Err(error) = self.context.halt()
            && error.code != ErrorCode::IN_PROGRESS
        {
            tracing::error!(%error, "failed to stop an erasure-coding instance");
        }
    }
}

/// Choice of the factors of a coding matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EcMatrixType {
    /// Any combination of losses can be recovered, up to the number of redundancy blocks.
    Cauchy,
    /// The first redundancy block is the exclusive or of the data. Some patterns of losses cannot be recovered.
    Vandermonde,
}

impl EcMatrixType {
    fn to_raw(self) -> sys::doca_ec_matrix_type {
        match self {
            Self::Cauchy => sys::DOCA_EC_MATRIX_TYPE_CAUCHY,
            Self::Vandermonde => sys::DOCA_EC_MATRIX_TYPE_VANDERMONDE,
        }
    }
}

/// Factors that map input blocks to output blocks; created by an [`ErasureCoding`](crate::ErasureCoding) instance.
///
/// A matrix may be dropped before the tasks that use it, and before or after its instance, which is destroyed with the
/// last of its matrices.
#[derive(Debug)]
pub struct EcMatrix {
    matrix: NonNull<sys::doca_ec_matrix>,
    // Dropped after the matrix was destroyed.
    _instance: Rc<Context<sys::doca_ec>>,
}

impl EcMatrix {
    fn new(
        operation: &'static str,
        matrix: *mut sys::doca_ec_matrix,
        instance: &Rc<Context<sys::doca_ec>>,
    ) -> Result<Self> {
        non_null(operation, matrix).map(|matrix| Self {
            matrix,
            _instance: Rc::clone(instance),
        })
    }

    fn as_ptr(&self) -> *mut sys::doca_ec_matrix {
        self.matrix.as_ptr()
    }
}

impl Drop for EcMatrix {
    fn drop(&mut self) {
        // SAFETY: created by a function of the C API and destroyed once.
        if let Err(error) = unsafe { call!(doca_ec_matrix_destroy(self.as_ptr())) } {
            tracing::warn!(%error, "failed to destroy a matrix; leaking it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CtxState;

    #[test]
    fn an_instance_is_destroyed_with_the_last_of_its_matrices() {
        let device = Device::open("3b:00.0").expect("the built-in topology has it");
        let pe = Pe::new().expect("an engine");
        let start = || {
            let builder = ErasureCoding::builder(&device).create_tasks(1);
            let ec = builder.start(&pe).expect("a running instance");
            let matrix = ec.matrix(EcMatrixType::Cauchy, 2, 2).expect("a matrix");
            let lost = ec.recover_matrix(&matrix, &[0]).expect("recoverable");
            let context = Rc::downgrade(&ec.context);
            (ec, [matrix, lost], context)
        };
        for is_stopped in [true, false] {
            let (ec, [matrix, lost], context) = start();
            match is_stopped {
                true => ec.stop().expect("it has no tasks"),
                false => drop(ec),
            }
            let state = || context.upgrade().map(|context| context.state());
            assert_eq!(state(), Some(CtxState::Idle), "stopped, and still there");
            drop(matrix);
            assert_eq!(state(), Some(CtxState::Idle));
            drop(lost);
            assert_eq!(state(), None);
        }
        let (ec, matrices, context) = start();
        drop(matrices);
        ec.stop().expect("it has no tasks");
        assert!(context.upgrade().is_none(), "at once, without matrices");
    }
}
