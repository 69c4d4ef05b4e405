//! The storage of the server: queues of a [`volume::Volume`].

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use volume::{Buffer, Queue as VolumeQueue};

use crate::device::{Completion, Failed, Io, Queue};

/// Number of failed I/Os that a process logs; further ones are only counted, so that an offline storage does not fill the log.
const LOGGED: u64 = 100;

static FAILURES: AtomicU64 = AtomicU64::new(0);

/// A queue of the volume.
#[derive(Debug)]
pub struct StorageQueue(pub VolumeQueue);

impl Queue for StorageQueue {
    type Buffer = Buffer;

    fn buffer(&mut self, len: usize) -> Option<Buffer> {
        self.0.buffer(len)
    }

    fn submit(&mut self, io: Io<Buffer>) -> Result<(), Io<Buffer>> {
        let Io {
            tag,
            operation,
            offset,
            len,
            buffer,
        } = io;
        let theirs = volume::Io {
            tag,
            operation,
            offset,
            len,
            buffer,
        };
        self.0.submit(theirs).map_err(|io| Io {
            tag,
            operation,
            offset,
            len,
            buffer: io.buffer,
        })
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completion<Buffer>)) -> usize {
        self.0.poll(&mut |completion| {
            let volume::Completion {
                tag,
                result,
                buffer,
            } = completion;
            let result = result.map_err(|error| {
                log(&error);
                Failed
            });
            done(Completion {
                tag,
                result,
                buffer,
            });
        })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }
}

#[cold]
fn log(error: &volume::IoError) {
    match FAILURES.fetch_add(1, Ordering::Relaxed) {
        LOGGED => tracing::error!("further failed I/Os are not logged"),
        count if count < LOGGED => tracing::error!("I/O failed: {error}"),
        _ => {}
    }
}
