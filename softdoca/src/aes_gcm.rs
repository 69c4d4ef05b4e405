//! AES-GCM: encryption with authentication.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aes::cipher::{BlockCipherEncrypt, BlockSizeUser};
use aes_gcm::aes::{Aes128, Aes256};
use aes_gcm::{AeadInOut, AesGcm, KeyInit, Nonce, Tag, TagSize};
use doca_abi::{DOCA_AES_GCM_KEY_128, DOCA_AES_GCM_KEY_256, doca_aes_gcm_key_type};

use crate::accelerator::{self, Accelerator, Appender, BufSlot, Offload};
use crate::buffer::BufHandle;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::progress::{Ctx, Task, TaskPool};

/// Maximum length of an initialization vector in bytes; a shorter one is padded with zeros.
pub(crate) const IV_LEN: usize = 12;

/// Maximum length of a tag in bytes.
const MAX_TAG: usize = 16;

/// Scratch memory above this size is freed after the task that needed it.
const SCRATCH_KEPT: usize = 4 << 20;

/// AES-GCM contexts.
#[derive(Default)]
pub(crate) struct Gcm {
    pub(crate) encryptions: TaskPool,
    pub(crate) decryptions: TaskPool,
    /// Number of keys that the program has not destroyed.
    keys: Arc<AtomicUsize>,
    scratch: RefCell<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Encrypt,
    Decrypt,
}

/// Body of a task. Source and destination start with the additional authenticated data; encrypted ones end with the
/// tag.
pub(crate) struct Crypt {
    operation: Operation,
    pub(crate) source: BufSlot,
    pub(crate) destination: BufSlot,
    key: RefCell<Option<Arc<Key>>>,
    iv: Cell<[u8; IV_LEN]>,
    /// In bytes, unchecked.
    iv_len: Cell<u32>,
    /// In bytes, unchecked.
    pub(crate) tag_size: Cell<u32>,
    /// In bytes, unchecked.
    pub(crate) aad_size: Cell<u32>,
}

/// Lengths of the parts of a source, in bytes.
struct Lengths {
    aad: usize,
    text: usize,
    tag: usize,
}

impl Gcm {
    /// Checks that the instance can be destroyed.
    ///
    /// # Errors
    /// [`Error::InUse`] if the program has not destroyed all keys.
    pub(crate) fn check_no_keys(&self) -> Result<()> {
        match self.keys.load(Ordering::Relaxed) {
            0 => Ok(()),
            keys => Err(Error::InUse.because(format_args!(
                "{keys} keys of the instance are not destroyed"
            ))),
        }
    }

    /// Creates the context of an instance on `device`.
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

    /// The key's address; NULL without a key.
    pub(crate) fn key_ptr(&self) -> *const Key {
        let key = self.key.borrow();
        key.as_ref().map_or(std::ptr::null(), Arc::as_ptr)
    }

    /// Sets the initialization vector. If it is too long, only its length is stored, so that the task fails instead of
    /// running with another vector.
    pub(crate) fn set_iv(&self, iv: &[u8]) {
        let mut padded = [0; IV_LEN];
        let len = iv.len().min(IV_LEN);
        padded[..len].copy_from_slice(&iv[..len]);
        self.iv.set(padded);
        self.iv_len.set(u32::try_from(iv.len()).unwrap_or(u32::MAX));
    }

    /// The initialization vector, valid for the lifetime of the task, and its length.
    pub(crate) fn iv(&self) -> (*const u8, u32) {
        (self.iv.as_ptr().cast_const().cast(), self.iv_len.get())
    }

    /// Checks the lengths that the program set.
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

    /// Splits a source of `len` bytes into its parts.
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

    /// Performs the checks that need no key.
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

    /// Number of bytes that the task appends to its destination.
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
        // Decrypt a private copy, because the authenticated bytes must be identical to the decrypted ones.
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

    fn bufs(&self, task: &Task) -> Result<[Option<BufHandle>; 2]> {
        let task = task.downcast::<Crypt>().ok_or(Error::InvalidValue)?;
        Ok([task.body.source.get(), task.body.destination.get()])
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

/// A key of an instance. Tasks may outlive it.
pub(crate) struct Key {
    cipher: Cipher,
    /// See [`Gcm::check_no_keys`].
    keys: Arc<AtomicUsize>,
}

/// The ciphers of a key, expanded for both tag lengths.
enum Cipher {
    Aes128(Box<Ciphers<Aes128>>),
    Aes256(Box<Ciphers<Aes256>>),
}

/// Ciphers with 12-byte and 16-byte tags.
struct Ciphers<A> {
    tag_96: AesGcm<A, U12, U12>,
    tag_128: AesGcm<A, U12, U16>,
}

/// The parts of a message, encrypted or decrypted in place.
struct Message<'a> {
    iv: &'a [u8; IV_LEN],
    aad: &'a [u8],
    /// Encrypted or decrypted in place.
    text: &'a mut [u8],
    /// 12 or 16 bytes: output of encryption, input of decryption.
    tag: &'a mut [u8],
}

impl Key {
    /// Length in bytes of a key of this type.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an unknown type.
    pub(crate) fn len(key_type: doca_aes_gcm_key_type) -> Result<usize> {
        match key_type {
            DOCA_AES_GCM_KEY_128 => Ok(16),
            DOCA_AES_GCM_KEY_256 => Ok(32),
            _ => Err(Error::InvalidValue.because(format_args!(
                "expected a type of keys, 1 or 2, got {key_type}"
            ))),
        }
    }

    /// Creates a key from 16 or 32 bytes.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for any other length.
    pub(crate) fn new(gcm: &Gcm, bytes: &[u8]) -> Result<Self> {
        let cipher = match bytes.len() {
            16 => Cipher::Aes128(Box::new(Ciphers::new(bytes)?)),
            _ => Cipher::Aes256(Box::new(Ciphers::new(bytes)?)),
        };
        let keys = Arc::clone(&gcm.keys);
        keys.fetch_add(1, Ordering::Relaxed);
        Ok(Self { cipher, keys })
    }

    /// Counts the key as destroyed by the program.
    pub(crate) fn destroyed(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    /// Encrypts the text and writes the tag.
    fn encrypt(&self, message: Message<'_>) -> Result<()> {
        match &self.cipher {
            Cipher::Aes128(ciphers) => ciphers.encrypt(message),
            Cipher::Aes256(ciphers) => ciphers.encrypt(message),
        }
    }

    /// Decrypts the text if the tag matches; leaves it unchanged otherwise.
    ///
    /// # Errors
    /// [`Error::IoFailed`] if the tag does not match.
    fn decrypt(&self, message: Message<'_>) -> Result<()> {
        match &self.cipher {
            Cipher::Aes128(ciphers) => ciphers.decrypt(message),
            Cipher::Aes256(ciphers) => ciphers.decrypt(message),
        }
    }
}

impl<A> Ciphers<A>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Clone,
{
    fn new(key: &[u8]) -> Result<Self> {
        let cipher = A::new_from_slice(key).map_err(|_| Error::InvalidValue)?;
        Ok(Self {
            tag_96: cipher.clone().into(),
            tag_128: cipher.into(),
        })
    }

    fn encrypt(&self, message: Message<'_>) -> Result<()> {
        match message.tag.len() {
            12 => encrypt(&self.tag_96, message),
            _ => encrypt(&self.tag_128, message),
        }
    }

    fn decrypt(&self, message: Message<'_>) -> Result<()> {
        match message.tag.len() {
            12 => decrypt(&self.tag_96, message),
            _ => decrypt(&self.tag_128, message),
        }
    }
}

fn encrypt<A, T: TagSize>(cipher: &AesGcm<A, U12, T>, message: Message<'_>) -> Result<()>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt,
{
    let iv: &Nonce<U12> = message.iv.into();
    let tag = cipher
        .encrypt_inout_detached(iv, message.aad, message.text.into())
        // The message exceeds the limit of AES-GCM for one initialization vector.
        .map_err(|_| Error::InvalidValue)?;
    message.tag.copy_from_slice(&tag);
    Ok(())
}

fn decrypt<A, T: TagSize>(cipher: &AesGcm<A, U12, T>, message: Message<'_>) -> Result<()>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt,
{
    let iv: &Nonce<U12> = message.iv.into();
    let tag: &Tag<T> = (&*message.tag)
        .try_into()
        .map_err(|_| Error::InvalidValue)?;
    cipher
        .decrypt_inout_detached(iv, message.aad, message.text.into(), tag)
        .map_err(|_| Error::IoFailed.because("the authentication tag is wrong"))
}
