//! Superblock of a target: metadata stored with its blocks that records its set of targets, its number in the set, the
//! set's epochs known to it, the form of its blocks, and the state of the last session. A service assembles a set only
//! from its members' superblocks.

use std::fmt;

use serde::Serialize;
use wire::control::{IdentifiedStorage, IdentityQuery, RecordState};

use crate::stored_block::MatrixType;

/// Identifier of a set of targets: random, generated when the set is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetId(pub u128);

impl SetId {
    /// No set: for blocks stored without superblocks.
    pub const NONE: Self = Self(0);

    /// Generates a random identifier.
    ///
    /// # Errors
    ///
    /// The operating system provides no random numbers.
    pub fn random() -> Result<Self, NoRandomNumber> {
        random().map(u128::from_be_bytes).map(Self)
    }
}

impl fmt::Display for SetId {
    /// Formats the first 8 of the 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}

/// An epoch of a set: its number, and a random identifier that distinguishes epochs of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch {
    /// Sequence number: increases with every epoch of the set.
    pub number: u64,
    /// Random identifier.
    pub id: u64,
}

impl Epoch {
    /// No epoch: before the first epoch of a set.
    pub const NONE: Self = Self { number: 0, id: 0 };
}

impl fmt::Display for Epoch {
    /// Formats the number, and the first 4 of the identifier's 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:04x}", self.number, self.id >> 48)
    }
}

/// Returns 16 random bytes.
///
/// # Errors
///
/// The operating system provides no random numbers.
pub fn random() -> Result<[u8; 16], NoRandomNumber> {
    let mut bytes = [0; 16];
    let mut rest = &mut bytes[..];
    while !rest.is_empty() {
        let count = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| NoRandomNumber(error.into()))?;
        rest = &mut rest[count..];
    }
    Ok(bytes)
}

/// The operating system provides no random number for an identity.
#[derive(Debug, thiserror::Error)]
#[error("no random number for an identity: {0}")]
pub struct NoRandomNumber(std::io::Error);

/// Form in which a set stores its blocks: determined when the set is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Form {
    pub format: Format,
    /// Matrix used to compute parity chunks.
    pub matrix: MatrixType,
    /// Size of the set's blocks in bytes, as seen by clients. Not 0.
    pub logical_block_size: u32,
}

/// Format of the bytes on the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The reference's stored blocks
    StoredBlocks = 1,
    /// Chunks that identify themselves and their write
    StoredChunks = 2,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::StoredBlocks => "stored blocks",
            Self::StoredChunks => "stored chunks",
        })
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let matrix = match self.matrix {
            MatrixType::Vandermonde => "vandermonde",
            MatrixType::Cauchy => "cauchy",
        };
        write!(
            f,
            "{} for --logical-block-size {} and --matrix-type {matrix}",
            self.format, self.logical_block_size
        )
    }
}

/// A superblock without a valid form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("format: expected 1 (stored blocks) or 2 (stored chunks), got {0}")]
    UnknownFormat(u32),
    #[error("matrix: expected 1 (Vandermonde) or 2 (Cauchy), got {0}")]
    UnknownMatrix(u32),
    #[error("logical block size: expected at least 1 byte, got 0")]
    NoLogicalBlockSize,
}

impl Form {
    /// Returns the form with these numbers of a format and a matrix, as on the wire and in backing files.
    ///
    /// # Errors
    ///
    /// A number is unknown, or the size is 0.
    pub fn of_numbers(
        format: u32,
        matrix: u32,
        logical_block_size: u32,
    ) -> Result<Self, FormError> {
        let format = match format {
            1 => Format::StoredBlocks,
            2 => Format::StoredChunks,
            other => return Err(FormError::UnknownFormat(other)),
        };
        let matrix = match matrix {
            1 => MatrixType::Vandermonde,
            2 => MatrixType::Cauchy,
            other => return Err(FormError::UnknownMatrix(other)),
        };
        if logical_block_size == 0 {
            return Err(FormError::NoLogicalBlockSize);
        }
        Ok(Self {
            format,
            matrix,
            logical_block_size,
        })
    }

    /// Number of the format on the wire and in backing files.
    #[must_use]
    pub const fn format_number(&self) -> u32 {
        self.format as u32
    }

    /// Number of the matrix on the wire and in backing files.
    #[must_use]
    pub const fn matrix_number(&self) -> u32 {
        match self.matrix {
            MatrixType::Vandermonde => 1,
            MatrixType::Cauchy => 2,
        }
    }
}

/// Metadata of a set's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub set: SetId,
    /// Number of the target in the set.
    pub member: u32,
    /// The committed epoch.
    pub epoch: Epoch,
    /// The prepared epoch; [`Epoch::NONE`] if none.
    pub next: Epoch,
    /// State of the set's last session. Not `None`.
    pub state: RecordState,
    /// Form in which the set stores its blocks.
    pub form: Form,
}

impl Superblock {
    /// Returns `true` if the last session of the set was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.state, RecordState::Clean | RecordState::Closing)
    }

    /// Returns `true` if no session uses the set: the last one was closed, and the next one has not persisted that it
    /// is preparing. Until then, blocks are not written.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.is_closed() && self.next == Epoch::NONE
    }

    /// Builds the request to persist this superblock.
    #[must_use]
    pub fn request(&self) -> IdentityQuery {
        IdentityQuery {
            set_high: (self.set.0 >> 64) as u64,
            set_low: self.set.0 as u64,
            epoch: self.epoch.number,
            epoch_id: self.epoch.id,
            next_epoch: self.next.number,
            next_epoch_id: self.next.id,
            member: self.member,
            state: self.state,
            format: self.form.format_number(),
            matrix: self.form.matrix_number(),
            logical_block_size: self.form.logical_block_size,
        }
    }

    /// Returns the superblock that a request asks the target to persist; `None` for a plain query.
    ///
    /// # Errors
    ///
    /// The superblock has no valid form.
    pub fn of_request(query: &IdentityQuery) -> Result<Option<Self>, FormError> {
        if query.state == RecordState::None {
            return Ok(None);
        }
        let form = Form::of_numbers(query.format, query.matrix, query.logical_block_size)?;
        Ok(Some(Self {
            set: SetId(u128::from(query.set_high) << 64 | u128::from(query.set_low)),
            member: query.member,
            epoch: Epoch {
                number: query.epoch,
                id: query.epoch_id,
            },
            next: Epoch {
                number: query.next_epoch,
                id: query.next_epoch_id,
            },
            state: query.state,
            form,
        }))
    }

    /// Returns the superblock in a target's response; `None` if the target has none.
    ///
    /// # Errors
    ///
    /// The superblock has no valid form.
    pub fn of_answer(answer: &IdentifiedStorage) -> Result<Option<Self>, FormError> {
        Self::of_request(&answer.superblock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPERBLOCK: Superblock = Superblock {
        set: SetId(0x0123_4567_89ab_cdef_1020_3040_5060_7080),
        member: 2,
        epoch: Epoch { number: 7, id: 8 },
        next: Epoch { number: 9, id: 10 },
        state: RecordState::InUse,
        form: Form {
            format: Format::StoredChunks,
            matrix: MatrixType::Vandermonde,
            logical_block_size: 4096,
        },
    };

    #[test]
    fn request_carries_every_field() {
        for format in [Format::StoredBlocks, Format::StoredChunks] {
            for matrix in [MatrixType::Vandermonde, MatrixType::Cauchy] {
                let form = Form {
                    format,
                    matrix,
                    logical_block_size: 512,
                };
                let superblock = Superblock { form, ..SUPERBLOCK };
                assert_eq!(
                    Superblock::of_request(&superblock.request()),
                    Ok(Some(superblock))
                );
            }
        }
        let request = SUPERBLOCK.request();
        assert_eq!(
            (request.format, request.matrix, request.logical_block_size),
            (2, 1, 4096)
        );
        assert_eq!(
            Superblock::of_request(&IdentityQuery::WITHOUT_SUPERBLOCK),
            Ok(None)
        );
        assert_eq!(SUPERBLOCK.set.to_string(), "01234567");
        assert_ne!(SetId::random().ok(), SetId::random().ok());
    }

    #[test]
    fn superblock_without_a_valid_form_is_refused() {
        type Change = fn(&mut IdentityQuery);
        let cases: [(Change, FormError); 5] = [
            (|it| it.format = 0, FormError::UnknownFormat(0)),
            (|it| it.format = 3, FormError::UnknownFormat(3)),
            (|it| it.matrix = 0, FormError::UnknownMatrix(0)),
            (|it| it.matrix = 3, FormError::UnknownMatrix(3)),
            (
                |it| it.logical_block_size = 0,
                FormError::NoLogicalBlockSize,
            ),
        ];
        for (change, expected) in cases {
            let mut request = SUPERBLOCK.request();
            change(&mut request);
            assert_eq!(Superblock::of_request(&request), Err(expected));
            // Without a superblock, the fields of the form are unused.
            request.state = RecordState::None;
            assert_eq!(Superblock::of_request(&request), Ok(None));
        }
    }
}
