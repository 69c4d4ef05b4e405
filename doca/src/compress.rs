//! Deflate compression and decompression, and LZ4 decompression, by the device.

use std::ops::Deref;
use std::{fmt, ptr};

use doca_sys as sys;

use crate::context::{Context, context_methods, object};
use crate::error::{call, non_null};
use crate::slots::{self, CompletionHandler, HandlerConf, Slots, TwoBuffers};
use crate::task::NO_DATA;
use crate::{Buf, Device, Pe, Result, Task};

/// Settings of a [`Compress`] instance. Tasks of a kind whose number is not set cannot be created.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct CompressBuilder {
    device: Device,
    compress_deflate_tasks: u32,
    decompress_deflate_tasks: u32,
    decompress_lz4_stream_tasks: u32,
    decompress_lz4_block_tasks: u32,
    decompress_lz4_stream_handler: Option<Lz4StreamHandler>,
}

type Lz4StreamHandler = HandlerConf<sys::doca_compress_task_decompress_lz4_stream>;

impl CompressBuilder {
    fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            compress_deflate_tasks: 0,
            decompress_deflate_tasks: 0,
            decompress_lz4_stream_tasks: 0,
            decompress_lz4_block_tasks: 0,
            decompress_lz4_stream_handler: None,
        }
    }

    /// Sets the number of deflate compression tasks. BlueField-3 does not support them.
    pub fn compress_deflate_tasks(mut self, count: u32) -> Self {
        self.compress_deflate_tasks = count;
        self
    }

    /// Sets the number of deflate decompression tasks.
    pub fn decompress_deflate_tasks(mut self, count: u32) -> Self {
        self.decompress_deflate_tasks = count;
        self
    }

    /// Sets the number of LZ4 stream decompression tasks.
    pub fn decompress_lz4_stream_tasks(mut self, count: u32) -> Self {
        self.decompress_lz4_stream_tasks = count;
        self
    }

    /// Sets the handler of LZ4 stream decompression tasks, which must then be tasks of
    /// [slots](Compress::decompress_lz4_stream_in). The engine must be that of a [`WorkerPe`](crate::WorkerPe) with the
    /// handler's type of workers.
    pub fn decompress_lz4_stream_handler<H: CompletionHandler<Buffers = TwoBuffers>>(
        mut self,
    ) -> Self {
        self.decompress_lz4_stream_handler = Some(HandlerConf::of::<H>());
        self
    }

    /// Sets the number of LZ4 block decompression tasks.
    pub fn decompress_lz4_block_tasks(mut self, count: u32) -> Self {
        self.decompress_lz4_block_tasks = count;
        self
    }

    /// Starts the instance on `pe`.
    ///
    /// # Errors
    ///
    /// The errors of `doca_ctx_start` and of the functions that create the instance;
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) if the handler's type of workers is not that of
    /// the engine.
    pub fn start(self, pe: &Pe) -> Result<Compress> {
        Compress::create(pe, &self)
    }
}

/// A compress instance. Its tasks append their results to the data of their destination.
///
/// ```no_run
/// use doca::{Buf, Compress, Device, Lz4Stream, Pe};
///
/// fn unpack(pe: &Pe, device: &Device, blocks: &Buf, data: &Buf) -> doca::Result<()> {
///     let compress = Compress::builder(device).decompress_lz4_stream_tasks(1).start(pe)?;
///     let task = compress.decompress_lz4_stream_task(blocks, data, Lz4Stream::default(), 1)?;
///     task.submit().expect("a new task of a running instance");
///     while task.is_in_flight() {
///         pe.poll();
///     }
///     println!("{} bytes, checksums {:?}", data.data_len()?, task.checksums());
///     drop(task);
///     compress.stop()
/// }
/// ```
#[derive(Debug)]
pub struct Compress {
    context: Context<sys::doca_compress>,
    decompress_lz4_stream_handler: Option<Lz4StreamHandler>,
}

/// Block format declared by the header of an LZ4 frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lz4Stream {
    /// A checksum follows each block; `false` by default.
    pub block_checksums: bool,
    /// `true` (the default) if no block refers to data of earlier blocks.
    pub independent_blocks: bool,
}

impl Default for Lz4Stream {
    fn default() -> Self {
        Self {
            block_checksums: false,
            independent_blocks: true,
        }
    }
}

object!(doca_compress, doca_compress_as_ctx, doca_compress_destroy);

/// Defines a method that creates a deflate task.
macro_rules! deflate_task {
    ($(#[$doc:meta])* $name:ident: $alloc_init:ident, $as_task:ident, $get_crc:ident, $get_adler:ident) => {
        $(#[$doc])*
        pub fn $name(&self, source: &Buf, destination: &Buf, token: u64) -> Result<CompressTask<DeflateChecksums>> {
            let mut typed = ptr::null_mut();
            // SAFETY: instance and bufs are live, the out-parameter is valid. The task's cell keeps the bufs alive.
            let task = unsafe {
                call!($alloc_init(
                    self.context.object(),
                    source.as_ptr(),
                    destination.as_ptr(),
                    NO_DATA,
                    &mut typed
                ))?;
                let bufs = [Some(source), Some(destination)];
                self.context.adopt(stringify!($alloc_init), sys::$as_task(typed), bufs, token)
            }?;
            // SAFETY: called only while the task is allocated and after a success.
            Ok(CompressTask::new(task, move || unsafe {
                DeflateChecksums { crc32: sys::$get_crc(typed), adler32: sys::$get_adler(typed) }
            }))
        }
    };
}

impl Compress {
    /// Returns the settings of an instance, to be changed before it is started.
    pub fn builder(device: &Device) -> CompressBuilder {
        CompressBuilder::new(device)
    }

    fn create(pe: &Pe, settings: &CompressBuilder) -> Result<Self> {
        let lz4_stream = settings.decompress_lz4_stream_handler;
        if let Some(handler) = lz4_stream {
            handler.check_worker("doca_compress_task_decompress_lz4_stream_set_conf", pe)?;
        }
        let mut compress = ptr::null_mut();
        // SAFETY: the device is open, the out-parameter is valid.
        unsafe {
            call!(doca_compress_create(
                settings.device.as_ptr(),
                &mut compress
            ))
        }?;
        let object = non_null("doca_compress_create", compress)?;
        let tasks = [
            settings.compress_deflate_tasks,
            settings.decompress_deflate_tasks,
            settings.decompress_lz4_stream_tasks,
            settings.decompress_lz4_block_tasks,
        ];
        let max_tasks = tasks
            .iter()
            .fold(0usize, |sum, &count| sum.saturating_add(count as usize));
        // SAFETY: just created, and not used elsewhere.
        let context = unsafe { Context::new(object, pe, (), max_tasks, settings.device.clone()) }?;
        macro_rules! configure {
            ($set_conf:ident, $count:expr $(, $handler:expr)?) => {
                if $count != 0 {
                    let (completed, failed) = slots::callbacks([$($handler)?]);
                    // SAFETY: the instance is live and not started; the callbacks have the declared types.
                    unsafe { call!($set_conf(compress, completed, failed, $count)) }?;
                }
            };
        }
        configure!(
            doca_compress_task_compress_deflate_set_conf,
            settings.compress_deflate_tasks
        );
        configure!(
            doca_compress_task_decompress_deflate_set_conf,
            settings.decompress_deflate_tasks
        );
        configure!(
            doca_compress_task_decompress_lz4_stream_set_conf,
            settings.decompress_lz4_stream_tasks,
            lz4_stream
        );
        configure!(
            doca_compress_task_decompress_lz4_block_set_conf,
            settings.decompress_lz4_block_tasks
        );
        context.start()?;
        Ok(Self {
            context,
            decompress_lz4_stream_handler: lz4_stream,
        })
    }

    /// Gives each of the slots a task with the number `TASK` that decompresses the data of the slot's
    /// [source](TwoBuffers::SOURCE), and appends the result to the data of its [destination](TwoBuffers::DESTINATION),
    /// like the task of [`decompress_lz4_stream_task`](Self::decompress_lz4_stream_task).
    ///
    /// # Errors
    ///
    /// As for [`compress_deflate_task`](Self::compress_deflate_task), and
    /// [`ErrorCode::INVALID_VALUE`](crate::ErrorCode::INVALID_VALUE) unless the instance was started with this
    /// [handler](CompressBuilder::decompress_lz4_stream_handler), on the engine of the slots.
    pub fn decompress_lz4_stream_in<
        const TASK: usize,
        H: CompletionHandler<Buffers = TwoBuffers>,
    >(
        &self,
        slots: &Slots<H::State, TwoBuffers>,
        stream: Lz4Stream,
    ) -> Result<()> {
        const OPERATION: &str = "doca_compress_task_decompress_lz4_stream_alloc_init";
        const { assert!(TASK < slots::TASKS_PER_SLOT) };
        slots::check_handler::<_, H>(OPERATION, self.decompress_lz4_stream_handler)?;
        let allocate = |bufs: &[*mut sys::doca_buf; 2]| {
            let mut task = ptr::null_mut();
            // SAFETY: instance and bufs are live, the out-parameter is valid. The slot's pool keeps the bufs.
            unsafe {
                call!(doca_compress_task_decompress_lz4_stream_alloc_init(
                    self.context.object(),
                    stream.block_checksums.into(),
                    stream.independent_blocks.into(),
                    bufs[TwoBuffers::SOURCE],
                    bufs[TwoBuffers::DESTINATION],
                    NO_DATA,
                    &mut task
                ))?;
                Ok(sys::doca_compress_task_decompress_lz4_stream_as_task(task))
            }
        };
        // SAFETY: new tasks of this context, whose callbacks are those of the handler, as checked.
        unsafe {
            self.context
                .adopt_slots::<H>(OPERATION, slots, TASK, allocate)
        }
    }

    deflate_task! {
        /// Creates a task that compresses the data of `source` to raw deflate data, without a zlib or gzip header.
        ///
        /// # Errors
        ///
        /// [`ErrorCode::BAD_STATE`](crate::ErrorCode::BAD_STATE) if the instance is not running,
        /// [`ErrorCode::NO_MEMORY`](crate::ErrorCode::NO_MEMORY) if all its tasks of this kind exist.
        compress_deflate_task:
        doca_compress_task_compress_deflate_alloc_init,
        doca_compress_task_compress_deflate_as_task,
        doca_compress_task_compress_deflate_get_crc_cs,
        doca_compress_task_compress_deflate_get_adler_cs
    }

    deflate_task! {
        /// Creates a task that decompresses the raw deflate data of `source`, without a zlib or gzip header.
        ///
        /// # Errors
        ///
        /// As for [`compress_deflate_task`](Self::compress_deflate_task).
        decompress_deflate_task:
        doca_compress_task_decompress_deflate_alloc_init,
        doca_compress_task_decompress_deflate_as_task,
        doca_compress_task_decompress_deflate_get_crc_cs,
        doca_compress_task_decompress_deflate_get_adler_cs
    }

    /// Creates a task that decompresses the blocks of an LZ4 frame: the data of `source`, without the frame's header,
    /// end mark and content checksum. If the result exceeds `destination`, it fails with
    /// [`ErrorCode::IO_FAILED`](crate::ErrorCode::IO_FAILED), as for malformed data.
    ///
    /// # Errors
    ///
    /// As for [`compress_deflate_task`](Self::compress_deflate_task).
    pub fn decompress_lz4_stream_task(
        &self,
        source: &Buf,
        destination: &Buf,
        stream: Lz4Stream,
        token: u64,
    ) -> Result<CompressTask<Lz4Checksums>> {
        const OPERATION: &str = "doca_compress_task_decompress_lz4_stream_alloc_init";
        slots::check_queued(OPERATION, &self.decompress_lz4_stream_handler)?;
        let mut typed = ptr::null_mut();
        // SAFETY: instance and bufs are live, the out-parameter is valid. The task's cell keeps the bufs alive.
        let task = unsafe {
            call!(doca_compress_task_decompress_lz4_stream_alloc_init(
                self.context.object(),
                stream.block_checksums.into(),
                stream.independent_blocks.into(),
                source.as_ptr(),
                destination.as_ptr(),
                NO_DATA,
                &mut typed
            ))?;
            let task = sys::doca_compress_task_decompress_lz4_stream_as_task(typed);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }?;
        // SAFETY: called only while the task is allocated and after a success.
        Ok(CompressTask::new(task, move || unsafe {
            Lz4Checksums {
                crc32: sys::doca_compress_task_decompress_lz4_stream_get_crc_cs(typed),
                // DOCA returns the bytes in the order of the hash's canonical form.
                xxh32: sys::doca_compress_task_decompress_lz4_stream_get_xxh_cs(typed).swap_bytes(),
            }
        }))
    }

    /// Creates a task that decompresses one LZ4 block, the data of `source`, without the size that precedes it in a
    /// frame. It fails like [`decompress_lz4_stream_task`](Self::decompress_lz4_stream_task).
    ///
    /// # Errors
    ///
    /// As for [`compress_deflate_task`](Self::compress_deflate_task).
    pub fn decompress_lz4_block_task(
        &self,
        source: &Buf,
        destination: &Buf,
        token: u64,
    ) -> Result<CompressTask<Lz4Checksums>> {
        const OPERATION: &str = "doca_compress_task_decompress_lz4_block_alloc_init";
        let mut typed = ptr::null_mut();
        // SAFETY: as in `decompress_lz4_stream_task`.
        let task = unsafe {
            call!(doca_compress_task_decompress_lz4_block_alloc_init(
                self.context.object(),
                source.as_ptr(),
                destination.as_ptr(),
                NO_DATA,
                &mut typed
            ))?;
            let task = sys::doca_compress_task_decompress_lz4_block_as_task(typed);
            self.context
                .adopt(OPERATION, task, [Some(source), Some(destination)], token)
        }?;
        // SAFETY: called only while the task is allocated and after a success.
        Ok(CompressTask::new(task, move || unsafe {
            Lz4Checksums {
                crc32: sys::doca_compress_task_decompress_lz4_block_get_crc_cs(typed),
                // As for LZ4 streams.
                xxh32: sys::doca_compress_task_decompress_lz4_block_get_xxh_cs(typed).swap_bytes(),
            }
        }))
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

/// A [`Task`] with checksums of the uncompressed data.
pub struct CompressTask<C> {
    task: Task,
    read: Box<dyn Fn() -> C>,
}

/// Checksums of a deflate task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateChecksums {
    /// CRC-32 as in gzip.
    pub crc32: u32,
    /// Adler-32 as in zlib.
    pub adler32: u32,
}

/// Checksums of an LZ4 task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lz4Checksums {
    /// CRC-32 as in gzip.
    pub crc32: u32,
    /// xxHash-32 with seed 0: the last word of an LZ4 frame, read as little endian.
    pub xxh32: u32,
}

impl<C> CompressTask<C> {
    /// `read` returns the checksums of the C task; called only while that is allocated and after it has succeeded.
    fn new(task: Task, read: impl Fn() -> C + 'static) -> Self {
        Self {
            task,
            read: Box::new(read),
        }
    }

    /// Checksums of the uncompressed data. `None` unless the last reaped completion was a success and the task is not
    /// in flight.
    pub fn checksums(&self) -> Option<C> {
        self.task.has_succeeded().then(|| (self.read)())
    }
}

impl<C> Deref for CompressTask<C> {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl<C> fmt::Debug for CompressTask<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressTask")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
