//! AES-GCM: encryption with authentication.

mod key;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::accelerator::{self, Accelerator, Appender, BufSlot, Offload};
use crate::buffer::BufHandle;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

pub(crate) use key::Key;
use key::Message;

/// Most bytes of an initialization vector; a shorter one is followed by zeros.
pub(crate) const IV_LEN: usize = 12;

/// Most bytes of a tag.
const MAX_TAG: usize = 16;

/// Private memory above this size is given back after the task that needed it.
const SCRATCH_KEPT: usize = 4 << 20;

/// What an AES-GCM context can do.
#[derive(Default)]
pub(crate) struct Gcm {
    pub(crate) encryptions: TaskPool,
    pub(crate) decryptions: TaskPool,
    scratch: RefCell<Vec<u8>>,
}

/// What a task does with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Encrypt,
    Decrypt,
}

/// Body of a task. Source and destination begin with what is authenticated only; encrypted ones end with the tag.
pub(crate) struct Crypt {
    operation: Operation,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    key: RefCell<Option<Arc<Key>>>,
    iv: Cell<[u8; IV_LEN]>,
    /// As the program gave it.
    iv_len: Cell<u32>,
    /// In bytes, as the program gave it.
    pub(crate) tag_size: Cell<u32>,
    /// In bytes, as the program gave it.
    pub(crate) aad_size: Cell<u32>,
}

/// Lengths of a source, in bytes.
struct Lengths {
    aad: usize,
    text: usize,
    tag: usize,
}

impl Gcm {
    /// A context for an instance on `device`.
    pub(crate) fn context(device: Arc<Device>) -> Rc<Ctx> {
        Offload::context(Self::default(), device)
    }
}

impl Crypt {
    pub(crate) fn new(
        operation: Operation,
        source: Option<BufHandle>,
        destination: Option<BufHandle>,
    ) -> Self {
        Self {
            operation,
            source: BufSlot::new(source),
            destination: BufSlot::new(destination),
            key: RefCell::new(None),
            iv: Cell::new([0; IV_LEN]),
            iv_len: Cell::new(0),
            tag_size: Cell::new(MAX_TAG as u32),
            aad_size: Cell::new(0),
        }
    }

    pub(crate) fn set_key(&self, key: Option<Arc<Key>>) {
        *self.key.borrow_mut() = key;
    }

    /// Where the key is; NULL without one.
    pub(crate) fn key_ptr(&self) -> *const Key {
        let key = self.key.borrow();
        key.as_ref().map_or(std::ptr::null(), Arc::as_ptr)
    }

    /// Sets the initialization vector. One that is too long is kept as such, so that the task fails and does not run with another.
    pub(crate) fn set_iv(&self, iv: &[u8]) {
        let mut padded = [0; IV_LEN];
        let len = iv.len().min(IV_LEN);
        padded[..len].copy_from_slice(&iv[..len]);
        self.iv.set(padded);
        self.iv_len.set(u32::try_from(iv.len()).unwrap_or(u32::MAX));
    }

    /// The initialization vector, as long as the task lives, and its length.
    pub(crate) fn iv(&self) -> (*const u8, u32) {
        (self.iv.as_ptr().cast_const().cast(), self.iv_len.get())
    }

    /// Checks the numbers that the program gave.
    ///
    /// # Errors
    /// [`Error::InvalidValue`].
    pub(crate) fn check_numbers(&self) -> Result<()> {
        if self.iv_len.get() as usize > IV_LEN {
            return Err(Error::InvalidValue.because(format_args!(
                "expected an initialization vector of at most {IV_LEN} bytes, got {}",
                self.iv_len.get()
            )));
        }
        match self.tag_size.get() {
            12 | 16 => Ok(()),
            size => Err(Error::InvalidValue
                .because(format_args!("expected a tag of 12 or 16 bytes, got {size}"))),
        }
    }

    /// What a source of `len` bytes is made of.
    fn lengths(&self, len: usize) -> Result<Lengths> {
        let (aad, tag) = (self.aad_size.get() as usize, self.tag_size.get() as usize);
        let behind = match self.operation {
            Operation::Encrypt => 0,
            Operation::Decrypt => tag,
        };
        let text = len.checked_sub(behind).and_then(|len| len.checked_sub(aad));
        let text = text.ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "expected a source of at least {aad} bytes of authenticated data and {behind} of the tag, got {len}"
            ))
        })?;
        Ok(Lengths { aad, text, tag })
    }

    /// Checks what can be told without the key.
    fn check(&self) -> Result<()> {
        self.check_numbers()?;
        if self.key.borrow().is_none() {
            return Err(Error::InvalidValue);
        }
        let (source, destination) = (self.source.get(), self.destination.get());
        let (source, destination) =
            accelerator::check_bufs(source.as_deref(), destination.as_deref())?;
        let lengths = self.lengths(accelerator::source_len(source)?)?;
        match destination.list_tail_len() < self.result_len(&lengths) {
            true => Err(Error::TooBig),
            false => Ok(()),
        }
    }

    /// Bytes that the task appends to its destination.
    fn result_len(&self, lengths: &Lengths) -> usize {
        lengths.aad
            + lengths.text
            + match self.operation {
                Operation::Encrypt => lengths.tag,
                Operation::Decrypt => 0,
            }
    }

    fn run(&self, scratch: &mut Vec<u8>) -> Result<usize> {
        self.check_numbers()?;
        let key = self.key.borrow();
        let key = key.as_ref().ok_or(Error::InvalidValue)?;
        let (source, destination) = (self.source.get(), self.destination.get());
        let source = accelerator::check_list(source.as_deref())?;
        let mut output = Appender::new(accelerator::check_list(destination.as_deref())?)?;

        let len = accelerator::source_len(source)?;
        let lengths = self.lengths(len)?;
        if output.room() < self.result_len(&lengths) {
            return Err(Error::TooBig);
        }
        // A copy in memory that no other process reaches: what is authenticated is what is decrypted.
        if scratch.len() < len + MAX_TAG {
            scratch.resize(len + MAX_TAG, 0);
        }
        // SAFETY: the scratch memory has `len` bytes.
        let read = unsafe { source.read_data(scratch.as_mut_ptr(), len) }?;
        if read != len {
            return Err(Error::BadState);
        }
        let (aad, rest) = scratch.split_at_mut(lengths.aad);
        let (text, rest) = rest.split_at_mut(lengths.text);
        let message = Message {
            iv: &self.iv.get(),
            aad,
            text,
            tag: &mut rest[..lengths.tag],
        };
        match self.operation {
            Operation::Encrypt => key.encrypt(message)?,
            Operation::Decrypt => key.decrypt(message)?,
        }
        output.write(&scratch[..self.result_len(&lengths)])?;
        output.finish()?;
        Ok(len)
    }
}

impl Accelerator for Gcm {
    const TAKES_LONG: bool = true;
    const FAILURE_IS_FATAL: bool = false;

    fn pools(&self) -> impl Iterator<Item = &TaskPool> {
        [&self.encryptions, &self.decryptions].into_iter()
    }

    fn check(&self, task: &Task) -> Result<()> {
        let task = task.downcast::<Crypt>();
        task.ok_or(Error::InvalidValue)?.body.check()
    }

    fn run(&self, task: &Task) -> Result<usize> {
        let task = task.downcast::<Crypt>().ok_or(Error::InvalidValue)?;
        let mut scratch = self.scratch.borrow_mut();
        let result = task.body.run(&mut scratch);
        if scratch.len() > SCRATCH_KEPT {
            *scratch = Vec::new();
        }
        result
    }
}
