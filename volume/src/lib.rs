//! A block volume over a DOCA storage service: reads, writes, flushes, zeroing and discards of any byte range.
//!
//! A [`Volume`] is the initiator's side of the storage protocol: it connects to a service (`zero_copy` or
//! `gga_offload`) over Comch, exports memory, and maintains a session. Its [`Queue`]s do the I/O, one for each thread
//! and each worker of the service: I/Os are submitted with a tag and a [`Buffer`] of memory that the storage reads
//! and writes in place, and reaped in the order of their completion.
//!
//! ```no_run
//! use volume::{Config, Io, Operation, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut volume = Volume::open(Config { queues: 1, ..Config::default() })?;
//! let mut queue = volume.take_queues().remove(0);
//! let mut buffer = queue.buffer(4096).expect("nothing is in flight");
//! buffer.fill(7);
//! let write = Operation::Write { fua: volume.capabilities().fua };
//! queue.submit(Io { tag: 1, operation: write, offset: 0, len: 4096, buffer: Some(buffer) }).expect("nothing is in flight");
//! let mut done = 0;
//! while done == 0 {
//!     done = queue.poll(&mut |completion| println!("{}: {:?}", completion.tag, completion.result));
//! }
//! drop(queue);
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Queue::into_blocking`] has blocking calls instead, and [`Queue::into_async`] futures. A thread that also waits
//! for sockets sleeps on [`Queue::descriptor`].
//!
//! # Guarantees
//!
//! * **Any range.** Whole blocks are transferred directly between the storage and the buffer. A write of a part of a block is a
//!   read-modify-write.
//! * **Order.** Overlapping I/Os, on any queues of one volume, are serialised: a read never returns a part of a
//!   write, and overlapping writes do not mix. The order of I/Os that are in flight at the same time is unspecified.
//!   Other volumes, and other initiators, of the same storage are not coordinated.
//! * **Durability.** When a [flush](Operation::Flush) has completed, all writes are durable whose completion was
//!   returned, by any queue, before the flush was submitted. If a storage cannot guarantee this, [`Capabilities`]
//!   says so, and flushes fail.
//! * **Reconnection.** When the service disconnects, or does not answer for [`Config::io_timeout`], I/Os wait for the
//!   next session, and are sent again: they are idempotent, because their blocks stay locked. After
//!   [`Config::reconnect_timeout`], I/Os fail with [`IoError::Disconnected`] until there is a session. A storage that
//!   is smaller than before, has another block size, or has lost its flush is refused. Writes that were not flushed
//!   are as durable as the targets: a target that keeps its blocks in memory loses them when it restarts.
//! * **Cost.** An I/O of whole blocks takes no allocation, no mutex and, while the queue is polled and the storage
//!   busy, no system call: two atomic operations for each of its blocks, a message, and its answer.
//!
//! # Structure
//!
//! The control thread drives [`session`], a state machine without I/O, and creates an [`endpoint`] in each session
//! for each queue: its contexts, and submission and completion of its requests. A second state machine decides on
//! the requests of a queue and their order; it is tested with events in random order against an array of bytes.
//!
//! Programs that must not wait for a lost service, or that manage the memory for blocks themselves, use session and
//! endpoints without a volume, as the initiator does.
#![deny(unsafe_code)]

mod asynchronous;
mod blocking;
mod buffer;
mod control;
pub mod driver;
pub mod endpoint;
mod engine;
mod link;
mod queue;
mod range_lock;
pub mod session;
mod volume;

pub use asynchronous::AsyncQueue;
pub use blocking::BlockingQueue;
pub use buffer::Buffer;
pub use engine::{IoError, Operation};
pub use queue::{Completion, Io, Queue};
pub use volume::{Capabilities, CloseError, Config, OpenError, Volume};
pub use wire::release::Release;
