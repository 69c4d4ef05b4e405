//! Safe Rust over the DOCA C API: devices, memory maps, progress engines, Comch, RDMA, sync events, DMA, compression
//! and erasure coding.
//!
//! The same code runs over NVIDIA's SDK on a BlueField and over softdoca on any Linux machine; `doca-sys` selects the
//! implementation.
//!
//! # Completions are values
//!
//! The C API reports everything through callbacks. In this crate the callbacks only fill a queue, and [`Pe::poll`]
//! returns its entries: programs are loops over [`Event`]s. Where latency is critical, tasks and buffers are
//! [slots](Slot), and [`WorkerPe::progress`] passes their completions to handlers, without a queue.
//!
//! ```
//! use doca::{Access, BufInventory, Device, Dma, Event, MemoryRegion, Mmap, Pe};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("0000:03:00.0")?;
//! let memory = MemoryRegion::new(4096)?;
//! let mmap = Mmap::register(&device, memory.clone(), Access::LOCAL_READ_WRITE)?;
//! memory.write(0, b"hello")?;
//!
//! let pe = Pe::new()?;
//! let dma = Dma::start(&pe, &device, 1)?;
//! let bufs = BufInventory::new(2)?;
//! let source = bufs.buf_with_data(&mmap, 0, 5)?;
//! let destination = bufs.buf(&mmap, 2048, 5)?;
//! let copy = dma.copy_task(&source, &destination, 7)?;
//! copy.submit()?;
//! loop {
//!     if let Some(Event::Task(completion)) = pe.poll() {
//!         assert_eq!((completion.token, completion.result), (7, Ok(())));
//!         break;
//!     }
//! }
//! let mut copied = [0; 5];
//! memory.read(2048, &mut copied)?;
//! assert_eq!(&copied, b"hello");
//! # drop(copy);
//! dma.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Examples
//!
//! `examples/` contains programs that run by themselves, `dma_copy`, `compress` and `erasure_coding`, and programs that
//! run as pairs of processes: Comch's control path and fast path, RDMA messages, reads and writes, atomics, and sync
//! events. For example, `cargo run -p doca --example rdma_atomics -- server 18515` runs one side of a pair.
//!
//! # Ownership
//!
//! * A handle keeps the objects it was created from alive: a [`Buf`] its [`BufInventory`] and [`Mmap`], an `Mmap` its
//!   [`Device`] and [`MemoryRegion`], a context ([`ComchServer`], [`ComchClient`], [`Consumer`], [`Producer`],
//!   [`Rdma`], [`Dma`], [`Compress`], [`ErasureCoding`], [`SyncEventContext`]) its [`Pe`].
//! * [`Device`], [`Representor`], [`Mmap`], [`MemoryRegion`] and [`Connection`] are shared between threads. All other
//!   objects belong to the thread that created them.
//! * A [`Task`] is allocated once and submitted repeatedly. It keeps its bufs; its context owns the C object. After the
//!   context was stopped, [`Task::submit`] returns [`ErrorCode::BAD_STATE`].
//! * A [`Slot`] is a buffer, or two, with its tasks. Submitting it transfers it to the device, and the completion returns it to a
//!   [`CompletionHandler`]: for loops that must avoid checks and look-ups per task.
//! * A context is stopped by `stop()`, which reports errors, or by dropping it, which logs them.
//!
//! I/O does not allocate memory: queues and task cells are allocated when contexts start and tasks are created.
//!
//! # Shared memory
//!
//! A [`MemoryRegion`] may be read and written by devices and other processes at any time, so no reference to its bytes
//! is created: they are copied in and out.

#![warn(missing_docs)]

mod buf;
mod comch;
mod compress;
mod context;
mod device;
mod dma;
mod erasure_coding;
mod error;
mod event;
mod memory;
mod pe;
mod rdma;
mod sdk_log;
mod slots;
mod sync_event;
mod task;

pub use buf::{Buf, BufInventory};
pub use comch::{
    ComchClient, ComchClientBuilder, ComchServer, ComchServerBuilder, Consumer, PostRecvTask,
    Producer, ReceivedMessage,
};
pub use compress::{
    Compress, CompressBuilder, CompressTask, DeflateChecksums, Lz4Checksums, Lz4Stream,
};
pub use device::{
    Capabilities, ComchLimits, Device, DeviceInfo, ErasureCodingLimits, FastPathLimits,
    FunctionType, RdmaLimits, Representor, RepresentorInfo, TaskLimits,
};
pub use dma::Dma;
pub use erasure_coding::{EcMatrix, EcMatrixType, ErasureCoding, ErasureCodingBuilder};
pub use error::{Error, ErrorCode, Result, StopError};
pub use event::{ComchEvent, Completion, Connection, ContextId, CtxState, Event};
pub use memory::{Access, MemoryRegion, Mmap};
pub use pe::{Pe, PeStats};
pub use rdma::{Rdma, RdmaAddress, RdmaBuilder, RdmaConnection, RdmaEvent, ReceiveTask, Received};
pub use sdk_log::{set_sdk_log_level, with_sdk_reason, without_sdk_messages};
pub use slots::{
    Buffers, CompletionHandler, OneBuffer, Refused, Slot, SlotIter, Slots, TASKS_PER_SLOT,
    TwoBuffers, WorkerPe,
};
pub use sync_event::{RemoteSyncEvent, SyncEvent, SyncEventBuilder, SyncEventContext};
pub use task::Task;
