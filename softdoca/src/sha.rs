//! SHA: digests of messages, in one task or in parts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use doca_abi::{
    DOCA_SHA_ALGORITHM_SHA1, DOCA_SHA_ALGORITHM_SHA256, DOCA_SHA_ALGORITHM_SHA512,
    doca_sha_algorithm,
};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use crate::accelerator::{self, Accelerator, Appender, BufSlot, Offload};
use crate::buffer::{Buf, BufHandle};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

/// Bytes that are copied to private memory (where they cannot change) and hashed at a time.
const CHUNK: usize = 16 << 10;

/// SHA contexts.
pub(crate) struct Sha {
    pub(crate) hashes: TaskPool,
    pub(crate) partial_hashes: TaskPool,
    chunk: RefCell<Box<[u8]>>,
}

/// Body of a task that hashes a whole message.
pub(crate) struct Hash {
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    /// Number of `enum doca_sha_algorithm`, unchecked.
    pub(crate) algorithm: Cell<doca_sha_algorithm>,
}

/// Body of a task that hashes one part of a message in each run.
pub(crate) struct PartialHash {
    pub(crate) whole: Hash,
    /// The source is the last part.
    pub(crate) is_final: Cell<bool>,
    progress: RefCell<Progress>,
}

/// State of a partial hash.
#[expect(
    clippy::large_enum_variant,
    reason = "it is in its task, in place: the data path does not allocate"
)]
enum Progress {
    /// No part has been hashed yet.
    Fresh,
    /// State after the parts hashed so far.
    Parts(Hasher),
    /// The digest has been appended to the destination.
    Done,
}

impl Sha {
    /// Creates the context of an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        let sha = Self {
            hashes: TaskPool::default(),
            partial_hashes: TaskPool::default(),
            chunk: RefCell::new(vec![0; CHUNK].into()),
        };
        Offload::context(sha, device)
    }

    /// Hashes the data of a list.
    fn update(&self, hasher: &mut Hasher, source: &Buf) -> Result<usize> {
        let len = accelerator::source_len(source)?;
        let chunk = &mut self.chunk.borrow_mut()[..];
        for segment in source.data_segments() {
            for begin in (0..segment.len).step_by(CHUNK) {
                let len = CHUNK.min(segment.len - begin);
                // SAFETY: the chunk has that many bytes.
                unsafe {
                    segment
                        .mmap
                        .read_into(segment.addr + begin as u64, chunk.as_mut_ptr(), len)
                }?;
                hasher.update(&chunk[..len]);
            }
        }
        Ok(len)
    }
}

impl Hash {
    pub(crate) fn new(
        algorithm: doca_sha_algorithm,
        source: Option<BufHandle>,
        destination: Option<BufHandle>,
    ) -> Self {
        Self {
            source: BufSlot::new(source),
            destination: BufSlot::new(destination),
            algorithm: Cell::new(algorithm),
        }
    }

    /// Performs the checks that need no hashing.
    fn check(&self, appends: bool) -> Result<()> {
        let algorithm = Algorithm::from_number(self.algorithm.get())?;
        let (source, destination) = (self.source.get(), self.destination.get());
        let (source, destination) =
            accelerator::check_bufs(source.as_deref(), destination.as_deref())?;
        accelerator::source_len(source)?;
        match appends && destination.list_tail_len() < algorithm.digest_len() {
            true => Err(Error::TooBig),
            false => Ok(()),
        }
    }

    /// Hashes the source after the previous parts. Returns its length in bytes.
    fn update(&self, sha: &Sha, hasher: &mut Hasher) -> Result<usize> {
        let source = self.source.get();
        let source = accelerator::check_list(source.as_deref())?;
        sha.update(hasher, source)
    }

    fn append(&self, hasher: Hasher) -> Result<()> {
        let destination = self.destination.get();
        let destination = accelerator::check_list(destination.as_deref())?;
        let mut output = Appender::new(destination)?;
        hasher.finish(|digest| match output.room() < digest.len() {
            true => Err(Error::TooBig),
            false => output.write(digest),
        })?;
        output.finish()
    }

    fn run(&self, sha: &Sha) -> Result<usize> {
        let mut hasher = Hasher::new(Algorithm::from_number(self.algorithm.get())?);
        let len = self.update(sha, &mut hasher)?;
        self.append(hasher)?;
        Ok(len)
    }
}

impl PartialHash {
    pub(crate) fn new(whole: Hash) -> Self {
        Self {
            whole,
            is_final: Cell::new(false),
            progress: RefCell::new(Progress::Fresh),
        }
    }

    pub(crate) fn reset(&self) {
        self.is_final.set(false);
        *self.progress.borrow_mut() = Progress::Fresh;
    }

    /// `true` if the digest was appended to the destination.
    pub(crate) fn has_result(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::Done)
    }

    /// Checks that no part has been hashed yet.
    ///
    /// # Errors
    /// [`Error::BadState`].
    pub(crate) fn expect_fresh(&self) -> Result<()> {
        match *self.progress.borrow() {
            Progress::Fresh => Ok(()),
            _ => Err(Error::BadState.because(
                "set algorithm and destination of a partial hash before its first part, or after a reset",
            )),
        }
    }

    fn check(&self) -> Result<()> {
        self.whole.check(self.is_final.get())?;
        if self.has_result() {
            return Err(Error::BadState);
        }
        self.check_part()
    }

    /// Checks the length of a part.
    fn check_part(&self) -> Result<()> {
        let block = Algorithm::from_number(self.whole.algorithm.get())?.block_len();
        let source = self.whole.source.get();
        let len = accelerator::check_list(source.as_deref())?.list_data_len();
        match self.is_final.get() || len.is_multiple_of(block) {
            true => Ok(()),
            false => Err(Error::InvalidValue.because(format_args!(
                "expected a multiple of {block} bytes in a part that is not the last, got {len}"
            ))),
        }
    }

    fn run(&self, sha: &Sha) -> Result<usize> {
        self.check_part()?;
        let mut progress = self.progress.borrow_mut();
        let mut hasher = match &*progress {
            Progress::Fresh => Hasher::new(Algorithm::from_number(self.whole.algorithm.get())?),
            Progress::Parts(hasher) => hasher.clone(),
            Progress::Done => {
                return Err(Error::BadState
                    .because("the partial hash is complete; reset it for another message"));
            }
        };
        // A failed part leaves the state after the previous parts, so it can be submitted again.
        let len = self.whole.update(sha, &mut hasher)?;
        *progress = if self.is_final.get() {
            self.whole.append(hasher)?;
            Progress::Done
        } else {
            Progress::Parts(hasher)
        };
        Ok(len)
    }
}

impl Accelerator for Sha {
    const TAKES_LONG: bool = true;
    const FAILURE_IS_FATAL: bool = false;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        [&self.hashes, &self.partial_hashes].into_iter()
    }

    fn bufs(&self, task: &Task) -> Result<[Option<BufHandle>; 2]> {
        let hash = match task.downcast::<Hash>() {
            Some(task) => &task.body,
            None => {
                let task = task.downcast::<PartialHash>();
                &task.ok_or(Error::InvalidValue)?.body.whole
            }
        };
        Ok([hash.source.get(), hash.destination.get()])
    }

    fn check(&self, task: &Task) -> Result<()> {
        if let Some(task) = task.downcast::<Hash>() {
            return task.body.check(true);
        }
        let task = task.downcast::<PartialHash>();
        task.ok_or(Error::InvalidValue)?.body.check()
    }

    fn run(&self, task: &Task) -> Result<usize> {
        if let Some(task) = task.downcast::<Hash>() {
            return task.body.run(self);
        }
        let task = task.downcast::<PartialHash>();
        task.ok_or(Error::InvalidValue)?.body.run(self)
    }
}

/// An algorithm of `enum doca_sha_algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    /// # Errors
    /// [`Error::InvalidValue`] for an unknown number.
    pub(crate) fn from_number(number: doca_sha_algorithm) -> Result<Self> {
        match number {
            DOCA_SHA_ALGORITHM_SHA1 => Ok(Self::Sha1),
            DOCA_SHA_ALGORITHM_SHA256 => Ok(Self::Sha256),
            DOCA_SHA_ALGORITHM_SHA512 => Ok(Self::Sha512),
            _ => Err(Error::InvalidValue.because(format_args!(
                "expected an algorithm from 0 to 2, got {number}"
            ))),
        }
    }

    /// Length of a digest in bytes.
    pub(crate) fn digest_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Block length of the algorithm in bytes.
    pub(crate) fn block_len(self) -> usize {
        match self {
            Self::Sha1 | Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// Running hash of one of the algorithms.
#[derive(Clone)]
enum Hasher {
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha1 => Self::Sha1(Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha1(hasher) => hasher.update(data),
            Self::Sha256(hasher) => hasher.update(data),
            Self::Sha512(hasher) => hasher.update(data),
        }
    }

    /// Passes the digest to `take`.
    fn finish<T>(self, take: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Sha1(hasher) => take(&hasher.finalize()),
            Self::Sha256(hasher) => take(&hasher.finalize()),
            Self::Sha512(hasher) => take(&hasher.finalize()),
        }
    }
}
