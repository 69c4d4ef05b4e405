//! DMA: memory copies by the device.

use std::ptr;

use doca_sys as sys;

use crate::context::{Context, context_methods, object};
use crate::error::{call, non_null};
use crate::slots::{self, CompletionHandler, HandlerConf, Slots, TwoBuffers};
use crate::task::{NO_DATA, completion_callbacks};
use crate::{Buf, Device, Pe, Result, Task};

/// A DMA instance.
///
/// A failed task stops its instance: the instance enters [`CtxState::Stopping`](crate::CtxState::Stopping), and the
/// tasks in flight fail. To continue, stop it and start another instance.
///
/// ```no_run
/// use doca::{Buf, Device, Dma, Event, Pe};
///
/// fn fetch(pe: &Pe, device: &Device, host: &Buf, local: &Buf) -> doca::Result<()> {
///     let dma = Dma::start(pe, device, 1)?;
///     let task = dma.copy_task(host, local, 1)?;
///     task.submit().expect("a new task of a running instance");
///     while task.is_in_flight() {
///         if let Some(Event::Task(completion)) = pe.poll() {
///             println!("copied: {:?}", completion.result);
///         }
///     }
///     dma.stop()
/// }
/// ```
#[derive(Debug)]
pub struct Dma {
    context: Context<sys::doca_dma>,
    handler: Option<HandlerConf<sys::doca_dma_task_memcpy>>,
}

object!(doca_dma, doca_dma_as_ctx, doca_dma_destroy);

impl Dma {
    /// Starts an instance with at most `max_tasks` tasks.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the instance.
    pub fn start(pe: &Pe, device: &Device, max_tasks: u32) -> Result<Self> {
        Self::create(pe, device, max_tasks, None)
    }

    /// As [`start`](Self::start), for [slots](Self::copy_in): `H` handles the completions. The engine must be that of a
    /// [`WorkerPe`](crate::WorkerPe) with the handler's type of workers.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start), and [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) for another
    /// engine.
    pub fn start_with<H: CompletionHandler<Buffers = TwoBuffers>>(
        pe: &Pe,
        device: &Device,
        max_tasks: u32,
    ) -> Result<Self> {
        let handler = HandlerConf::of::<H>();
        handler.check_worker("doca_dma_task_memcpy_set_conf", pe)?;
        Self::create(pe, device, max_tasks, Some(handler))
    }

    fn create(
        pe: &Pe,
        device: &Device,
        max_tasks: u32,
        handler: Option<HandlerConf<sys::doca_dma_task_memcpy>>,
    ) -> Result<Self> {
        let mut dma = ptr::null_mut();
        // SAFETY: the device is open, the out-parameter is valid.
        unsafe { call!(doca_dma_create(device.as_ptr(), &mut dma)) }?;
        let object = non_null("doca_dma_create", dma)?;
        // SAFETY: just created, and not used elsewhere.
        let context = unsafe { Context::new(object, pe, (), max_tasks as usize, device.clone()) }?;
        let (completed, failed) = handler.map_or_else(completion_callbacks, HandlerConf::callbacks);
        // SAFETY: the instance is live and not started; the callbacks have the declared types.
        unsafe {
            call!(doca_dma_task_memcpy_set_conf(
                dma, completed, failed, max_tasks
            ))
        }?;
        context.start()?;
        Ok(Self { context, handler })
    }

    /// Gives each of the slots a task with the number `TASK` that appends a copy of the data of the slot's
    /// [source](TwoBuffers::SOURCE) to the data of its [destination](TwoBuffers::DESTINATION).
    ///
    /// # Errors
    ///
    /// As for [`copy_task`](Self::copy_task), and [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) unless
    /// the instance was started with this handler, on the engine of the slots.
    pub fn copy_in<const TASK: usize, H: CompletionHandler<Buffers = TwoBuffers>>(
        &self,
        slots: &Slots<H::State, TwoBuffers>,
    ) -> Result<()> {
        const OPERATION: &str = "doca_dma_task_memcpy_alloc_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.handler)?;
        let allocate = |bufs: &[*mut sys::doca_buf; 2]| {
            let mut task = ptr::null_mut();
            // SAFETY: instance and bufs are live, the out-parameter is valid. The slot's pool keeps the bufs.
            unsafe {
                call!(doca_dma_task_memcpy_alloc_init(
                    self.context.object(),
                    bufs[TwoBuffers::SOURCE],
                    bufs[TwoBuffers::DESTINATION],
                    NO_DATA,
                    &mut task
                ))?;
                Ok(sys::doca_dma_task_memcpy_as_task(task))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    /// Creates a task that appends a copy of the data of `source` to the data of `destination`. Both may be memory of
    /// this process or imported across PCIe.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BAD_STATE`](crate::ErrorCode::BAD_STATE) if the instance is not running,
    /// [`ErrorCode::NO_MEMORY`](crate::ErrorCode::NO_MEMORY) if all its tasks exist.
    pub fn copy_task(&self, source: &Buf, destination: &Buf, token: u64) -> Result<Task> {
        const OPERATION: &str = "doca_dma_task_memcpy_alloc_init";
        slots::check_queued(OPERATION, &self.handler)?;
        let mut task = ptr::null_mut();
        // SAFETY: instance and bufs are live, the out-parameter is valid. The task's cell keeps the bufs alive.
        unsafe {
            call!(doca_dma_task_memcpy_alloc_init(
                self.context.object(),
                source.as_ptr(),
                destination.as_ptr(),
                NO_DATA,
                &mut task
            ))?;
            let task = sys::doca_dma_task_memcpy_as_task(task);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }
    }

    context_methods!("instance");

    /// Flushes the tasks in flight, whose completions are returned by [`Pe::poll`](crate::Pe::poll), and destroys the
    /// instance.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::TIME_OUT`](crate::ErrorCode::TIME_OUT) if it does not become idle. The instance is then leaked.
    pub fn stop(self) -> Result<()> {
        self.context.close()
    }
}
