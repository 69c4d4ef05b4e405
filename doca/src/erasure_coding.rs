//! Erasure coding: redundancy is created, updated, and turned back into lost data by the device.

use std::ptr;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::context::{Context, ContextId, CtxState, NO_DATA, Object, Task, completion_callbacks};
use crate::device::non_null;
use crate::error::call;
use crate::{Buf, Device, ErrorCode, Pe, Result};

/// Settings of an [`ErasureCoding`] instance. A kind of task whose number is not set cannot be made.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct ErasureCodingBuilder {
    device: Device,
    create_tasks: u32,
    update_tasks: u32,
    recover_tasks: u32,
}

impl ErasureCodingBuilder {
    fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            create_tasks: 0,
            update_tasks: 0,
            recover_tasks: 0,
        }
    }

    /// How many create tasks there may be.
    pub fn create_tasks(mut self, count: u32) -> Self {
        self.create_tasks = count;
        self
    }

    /// How many update tasks there may be.
    pub fn update_tasks(mut self, count: u32) -> Self {
        self.update_tasks = count;
        self
    }

    /// How many recover tasks there may be.
    pub fn recover_tasks(mut self, count: u32) -> Self {
        self.recover_tasks = count;
        self
    }

    /// Starts the instance on `pe`.
    ///
    /// # Errors
    ///
    /// Whatever `doca_ctx_start` and the functions before it return.
    pub fn start(self, pe: &Pe) -> Result<ErasureCoding> {
        ErasureCoding::create(pe, &self)
    }
}

use doca_sys as sys;

/// An erasure-coding instance.
///
/// A task works on a sequence of blocks of equal length, a multiple of 64 bytes: the data of its source, which may be a
/// list ([`Buf::append`]). Its results are appended to the data of its destination.
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
    /// Shared with the matrices, which the object has to outlive.
    context: Rc<Context<sys::doca_ec>>,
}

// SAFETY: both functions are those of this type.
unsafe impl Object for sys::doca_ec {
    type Events = ();
    const DESTROY: &'static str = "doca_ec_destroy";

    unsafe fn as_ctx(object: *mut Self) -> *mut sys::doca_ctx {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_ec_as_ctx(object) }
    }

    unsafe fn destroy(object: *mut Self) -> sys::doca_error_t {
        // SAFETY: the caller's promise.
        unsafe { sys::doca_ec_destroy(object) }
    }
}

/// Defines a function that makes a task; they differ in the C functions only.
macro_rules! task {
    ($(#[$doc:meta])* $name:ident: $allocate_init:ident, $as_task:ident) => {
        $(#[$doc])*
        pub fn $name(&self, matrix: &EcMatrix, source: &Buf, destination: &Buf, token: u64) -> Result<Task> {
            let mut task = ptr::null_mut();
            // SAFETY: instance, matrix and bufs are live, the result has a place. The bufs are kept by the task's cell; the
            // matrix need not be.
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

impl ErasureCoding {
    /// Settings to start an instance with.
    pub fn builder(device: &Device) -> ErasureCodingBuilder {
        ErasureCodingBuilder::new(device)
    }

    fn create(pe: &Pe, settings: &ErasureCodingBuilder) -> Result<Self> {
        let mut ec = ptr::null_mut();
        // SAFETY: the device is open, the result has a place.
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
        // SAFETY: just created, known to nobody else.
        let context = unsafe { Context::new(object, pe, (), max_tasks, settings.device.clone()) }?;
        macro_rules! configure {
            ($set_conf:ident, $count:expr) => {
                if $count != 0 {
                    let (completed, failed) = completion_callbacks();
                    // SAFETY: the instance is live and not started; the callbacks have the declared types.
                    unsafe { call!($set_conf(ec, completed, failed, $count)) }?;
                }
            };
        }
        configure!(doca_ec_task_create_set_conf, settings.create_tasks);
        configure!(doca_ec_task_update_set_conf, settings.update_tasks);
        configure!(doca_ec_task_recover_set_conf, settings.recover_tasks);
        context.start()?;
        Ok(Self {
            context: Rc::new(context),
        })
    }

    /// Makes a coding matrix for `data` data blocks and `redundancy` redundancy blocks.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) when one of them is 0 or they are more than the device supports.
    pub fn matrix(
        &self,
        matrix_type: EcMatrixType,
        data: usize,
        redundancy: usize,
    ) -> Result<EcMatrix> {
        let mut matrix = ptr::null_mut();
        // SAFETY: the instance is live, the result has a place.
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

    /// Makes the matrix for [`update_task`](Self::update_task) after the data blocks `changed`, ascending, have changed.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) when they are not ascending, or not data blocks of `coding`.
    pub fn update_matrix(&self, coding: &EcMatrix, changed: &[u32]) -> Result<EcMatrix> {
        // C takes a pointer to what it may write.
        let (mut changed, mut matrix) = (changed.to_vec(), ptr::null_mut());
        // SAFETY: instance and matrix are live, the indices are as many, the result has a place.
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

    /// Makes the matrix for [`recover_task`](Self::recover_task) after the loss of the blocks `missing`, ascending. Redundancy blocks are
    /// numbered after the data blocks.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) when they are not ascending, or not blocks of `coding`, and when this
    /// loss cannot be recovered.
    pub fn recover_matrix(&self, coding: &EcMatrix, missing: &[u32]) -> Result<EcMatrix> {
        // C takes a pointer to what it may write.
        let (mut missing, mut matrix) = (missing.to_vec(), ptr::null_mut());
        // SAFETY: instance and matrix are live, the indices are as many, the result has a place.
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
        /// Makes a task that makes all redundancy blocks of the data blocks in `source`, with a matrix of [`matrix`](Self::matrix).
        ///
        /// # Errors
        ///
        /// [`ErrorCode::BAD_STATE`](crate::ErrorCode::BAD_STATE) when the instance is not running,
        /// [`ErrorCode::NO_MEMORY`](crate::ErrorCode::NO_MEMORY) when it has all its tasks of this kind.
        create_task: doca_ec_task_create_allocate_init, doca_ec_task_create_as_task
    }

    task! {
        /// Makes a task that makes all new redundancy blocks, with a matrix of [`update_matrix`](Self::update_matrix). `source` has, for each
        /// changed block, the old one and the new one, and then the old redundancy blocks.
        ///
        /// # Errors
        ///
        /// As for [`create_task`](Self::create_task).
        update_task: doca_ec_task_update_allocate_init, doca_ec_task_update_as_task
    }

    task! {
        /// Makes a task that recovers missing blocks, with a matrix of [`recover_matrix`](Self::recover_matrix). `source` has as many blocks
        /// as there are data blocks: the first that are not missing, ascending.
        ///
        /// # Errors
        ///
        /// As for [`create_task`](Self::create_task).
        recover_task: doca_ec_task_recover_allocate_init, doca_ec_task_recover_as_task
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

    /// Flushes the tasks in flight, whose completions come from [`Pe::poll`](crate::Pe::poll), and destroys the instance, at once or with
    /// the last of its matrices.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`](crate::ErrorCode::TIME_OUT) when it does not become idle. The instance stays in memory then, out of reach.
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
        // Otherwise it stops when it is destroyed, which is now.
        if Rc::strong_count(&self.context) > 1
            && let Err(error) = self.context.halt()
            && error.code != ErrorCode::IN_PROGRESS
        {
            tracing::error!(%error, "an erasure-coding instance could not be stopped");
        }
    }
}

/// How the factors of a coding matrix are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EcMatrixType {
    /// Any losses can be recovered, as many as there are redundancy blocks.
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

/// Factors by which blocks are made of other blocks; made by an [`ErasureCoding`](crate::ErasureCoding) instance.
///
/// It may be dropped before the tasks that were made with it, and before or after its instance: that is destroyed with the last of its
/// matrices.
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
            tracing::warn!(%error, "a matrix stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
