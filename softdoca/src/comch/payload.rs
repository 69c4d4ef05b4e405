//! The program's buffers on the fast path: data to gather a message from, and space to receive one into.

use std::sync::Arc;

use crate::buffer::{BufHandle, Segment, Segments};
use crate::error::{Error, Result};
use crate::memory::{ExportKind, Mmap};

/// The unsent data of a list of bufs.
#[derive(Debug)]
pub(super) struct Gather<'a> {
    source: Source<'a>,
    len: usize,
}

#[derive(Debug)]
enum Source<'a> {
    Nothing,
    /// Contiguous memory of this process.
    Run(*const u8),
    /// Memory of this process in several segments.
    List {
        segments: Segments<'a>,
        current: Option<Segment<'a>>,
    },
    /// A copy of memory that is not mapped here, and the number of bytes taken from it.
    Copy {
        bytes: Vec<u8>,
        taken: usize,
    },
}

impl<'a> Gather<'a> {
    /// The data of a list of bufs; empty without a buf.
    pub(super) fn data_of(buf: Option<&'a BufHandle>) -> Result<Self> {
        let Some(buf) = buf else {
            return Ok(Self {
                source: Source::Nothing,
                len: 0,
            });
        };
        if let Some(run) = run_of(buf)? {
            return Ok(Self::of_run(run, buf.data_len()));
        }
        let len = buf.list_data_len();
        let mut segments = buf.data_segments();
        let source = match (segments.next(), buf.next_in_list()) {
            (None, _) => Source::Nothing,
            (Some(only), None) => match pointer(&only)? {
                Some(run) => Source::Run(run),
                None => Source::copy(buf, len)?,
            },
            (Some(first), Some(_)) => {
                // All segments are examined before anything is sent: a message is sent whole or not at all.
                let mut mapped = pointer(&first)?.is_some();
                for segment in buf.data_segments().skip(1) {
                    mapped &= pointer(&segment)?.is_some();
                }
                match mapped {
                    true => Source::List {
                        segments,
                        current: Some(first),
                    },
                    false => Source::copy(buf, len)?,
                }
            }
        };
        Ok(Self { source, len })
    }

    /// `len` contiguous readable bytes.
    pub(super) fn of_run(run: *const u8, len: usize) -> Self {
        Self {
            source: Source::Run(run),
            len,
        }
    }

    /// Number of bytes left.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Passes the next `len` bytes to `write`, in pieces of readable memory.
    pub(super) fn take(&mut self, len: usize, write: &mut dyn FnMut(*const u8, usize)) {
        let mut left = len.min(self.len);
        self.len -= left;
        match &mut self.source {
            Source::Nothing => {}
            Source::Run(run) => {
                write(*run, left);
                *run = run.wrapping_add(left);
            }
            Source::Copy { bytes, taken } => {
                write(bytes[*taken..].as_ptr(), left);
                *taken += left;
            }
            Source::List { segments, current } => {
                while left > 0
                    && let Some(segment) = current
                {
                    let part = left.min(segment.len);
                    if let Some(run) = segment.mmap.local_ptr(segment.addr, part as u64) {
                        write(run, part);
                    }
                    left -= part;
                    segment.addr += part as u64;
                    segment.len -= part;
                    if segment.len == 0 {
                        *current = segments.next();
                    }
                }
            }
        }
    }
}

impl Source<'_> {
    fn copy(buf: &BufHandle, len: usize) -> Result<Self> {
        let mut bytes = vec![0; len];
        // SAFETY: the vector has `len` writable bytes.
        unsafe { buf.read_data(bytes.as_mut_ptr(), len) }?;
        Ok(Source::Copy { bytes, taken: 0 })
    }
}

/// Start of the data of a single buf whose data is in memory of this process; `None` otherwise.
#[inline(always)]
pub(super) fn run_of(buf: &BufHandle) -> Result<Option<*const u8>> {
    if buf.next_in_list().is_some() || buf.data_len() == 0 {
        return Ok(None);
    }
    let (mmap, addr, len) = (buf.mmap()?, buf.data(), buf.data_len());
    pointer(&Segment { mmap, addr, len })
}

/// Returns the address of a segment in this process; `None` for memory of another process that is not mapped here.
#[inline(always)]
fn pointer(segment: &Segment<'_>) -> Result<Option<*const u8>> {
    let mmap = &segment.mmap;
    if mmap.import_kind() == Some(ExportKind::Rdma) {
        return Err(Error::NotPermitted.because("memory of an RDMA peer cannot be sent by Comch"));
    }
    let run = mmap.local_ptr(segment.addr, segment.len as u64);
    if run.is_none() && !mmap.is_imported() {
        return Err(Error::InvalidValue.because("the buf's mmap has been stopped"));
    }
    Ok(run.map(<*mut u8>::cast_const))
}

/// Checks that a buf can receive for a consumer of `mmap`.
pub(super) fn check_destination(buf: Option<&BufHandle>, mmap: &Arc<Mmap>) -> Result<()> {
    let Some(buf) = buf else {
        // For messages that have only immediate data.
        return Ok(());
    };
    if !Arc::ptr_eq(&*buf.mmap()?, mmap) {
        return Err(Error::InvalidValue
            .because("expected a buf of the mmap that the consumer was created with"));
    }
    if buf.is_in_list() {
        return Err(Error::InvalidValue.because("a consumer receives into one buf, not a list"));
    }
    if !mmap.is_writable() {
        return Err(Error::NotPermitted.because("the consumer's mmap cannot be written"));
    }
    Ok(())
}

/// Appends `len` bytes to the data of a buf: `read` writes them to the memory that it is passed.
///
/// Returns [`Error::TooBig`] if they do not fit; nothing is written then.
#[inline(always)]
pub(super) fn append(buf: Option<BufHandle>, len: usize, read: impl FnOnce(*mut u8)) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let buf = buf.ok_or(Error::TooBig)?;
    if len > buf.tail_len() {
        return Err(Error::TooBig);
    }
    let tail = buf.data() + buf.data_len() as u64;
    {
        let mmap = buf.mmap()?;
        if !mmap.is_writable() {
            return Err(Error::NotPermitted);
        }
        match mmap.local_ptr(tail, len as u64) {
            Some(to) => read(to),
            None => {
                let mut bytes = vec![0; len];
                read(bytes.as_mut_ptr());
                // SAFETY: the vector has `len` readable bytes.
                unsafe { mmap.write_from(tail, bytes.as_ptr(), len) }?;
            }
        }
    }
    buf.grow(len);
    Ok(())
}
