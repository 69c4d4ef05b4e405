//! Keys, and what is done with them.

use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aes::cipher::{BlockCipherEncrypt, BlockSizeUser};
use aes_gcm::aes::{Aes128, Aes256};
use aes_gcm::{AeadInOut, AesGcm, KeyInit, Nonce, Tag, TagSize};
use doca_abi::{DOCA_AES_GCM_KEY_128, DOCA_AES_GCM_KEY_256, doca_aes_gcm_key_type};

use super::IV_LEN;
use crate::error::{Error, Result};

/// A key, made ready for both lengths of tags.
pub(crate) enum Key {
    Aes128(Box<Ciphers<Aes128>>),
    Aes256(Box<Ciphers<Aes256>>),
}

/// A cipher with tags of 12 and of 16 bytes.
pub(crate) struct Ciphers<A> {
    tag_96: AesGcm<A, U12, U12>,
    tag_128: AesGcm<A, U12, U16>,
}

/// What a key does with data, in place.
pub(super) struct Message<'a> {
    /// Initialization vector.
    pub(super) iv: &'a [u8; IV_LEN],
    /// Authenticated only.
    pub(super) aad: &'a [u8],
    /// Encrypted or decrypted in place.
    pub(super) text: &'a mut [u8],
    /// 12 or 16 bytes: written, or compared.
    pub(super) tag: &'a mut [u8],
}

impl Key {
    /// Bytes of a key of this type.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for a type that is none.
    pub(crate) fn len(key_type: doca_aes_gcm_key_type) -> Result<usize> {
        match key_type {
            DOCA_AES_GCM_KEY_128 => Ok(16),
            DOCA_AES_GCM_KEY_256 => Ok(32),
            _ => Err(Error::InvalidValue.because(format_args!(
                "expected a type of keys, 1 or 2, got {key_type}"
            ))),
        }
    }

    /// A key of 16 or 32 bytes.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for another length.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self> {
        match bytes.len() {
            16 => Ok(Self::Aes128(Box::new(Ciphers::new(bytes)?))),
            _ => Ok(Self::Aes256(Box::new(Ciphers::new(bytes)?))),
        }
    }

    /// Encrypts the text and writes the tag.
    pub(super) fn encrypt(&self, message: Message<'_>) -> Result<()> {
        match self {
            Self::Aes128(ciphers) => ciphers.encrypt(message),
            Self::Aes256(ciphers) => ciphers.encrypt(message),
        }
    }

    /// Decrypts the text if the tag is right, and leaves it alone otherwise.
    ///
    /// # Errors
    /// [`Error::IoFailed`] for a wrong tag.
    pub(super) fn decrypt(&self, message: Message<'_>) -> Result<()> {
        match self {
            Self::Aes128(ciphers) => ciphers.decrypt(message),
            Self::Aes256(ciphers) => ciphers.decrypt(message),
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
        // More than AES-GCM can encrypt with one vector.
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
