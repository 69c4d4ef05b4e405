//! The algorithms, as one type.

use doca_abi::{
    DOCA_SHA_ALGORITHM_SHA1, DOCA_SHA_ALGORITHM_SHA256, DOCA_SHA_ALGORITHM_SHA512,
    doca_sha_algorithm,
};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use crate::error::{Error, Result};

/// An algorithm of `enum doca_sha_algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    /// # Errors
    /// [`Error::InvalidValue`] for a number that is none.
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

    /// Bytes of a digest.
    pub(crate) fn digest_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Bytes that the algorithm works on at a time.
    pub(crate) fn block_len(self) -> usize {
        match self {
            Self::Sha1 | Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// A digest on its way.
#[derive(Clone)]
pub(super) enum Hasher {
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha1 => Self::Sha1(Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha1(hasher) => hasher.update(data),
            Self::Sha256(hasher) => hasher.update(data),
            Self::Sha512(hasher) => hasher.update(data),
        }
    }

    /// Hands the digest to `take`.
    pub(super) fn finish<T>(self, take: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Sha1(hasher) => take(&hasher.finalize()),
            Self::Sha256(hasher) => take(&hasher.finalize()),
            Self::Sha512(hasher) => take(&hasher.finalize()),
        }
    }
}
