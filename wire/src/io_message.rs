//! I/O messages: 64 bytes between initiator, service and targets, one per read, write and result.
//!
//! [`IoMessage`] is a view over the bytes; [`Repr`] is the message as values. Integers are big endian. Bytes that
//! belong to no field are ignored when read and written as zeros by [`Repr::emit`].

use std::borrow::Borrow;
use std::ops::Range;

use crate::DecodeError;

/// Bytes of an I/O message.
pub const SIZE: usize = 64;

mod field {
    use super::Range;
    pub(super) const MESSAGE_TYPE: Range<usize> = 0..4;
    pub(super) const USER_DATA: Range<usize> = 8..16;
    pub(super) const RESULT: Range<usize> = 16..20;
    pub(super) const SIZE: Range<usize> = 20..24;
    pub(super) const REQUESTER_OFFSET: Range<usize> = 24..32;
    pub(super) const STORAGE_OFFSET: Range<usize> = 32..40;
}

/// What an I/O message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum IoMessageType {
    /// The answer to a read or a write.
    Result = 0,
    /// Read blocks from the storage into the requester's memory.
    Read = 1,
    /// Write blocks from the requester's memory to the storage.
    Write = 2,
}

impl TryFrom<u32> for IoMessageType {
    type Error = DecodeError;

    fn try_from(number: u32) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Result),
            1 => Ok(Self::Read),
            2 => Ok(Self::Write),
            other => Err(DecodeError::UnknownValue {
                message: "io_message",
                field: "message_type",
                expected: "0 (result), 1 (read) or 2 (write)",
                came: u64::from(other),
            }),
        }
    }
}

/// A view over the bytes of an I/O message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoMessage<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> IoMessage<T> {
    /// A view over bytes that came from outside.
    ///
    /// # Errors
    ///
    /// [`DecodeError::WrongSize`] unless there are exactly [`SIZE`] bytes.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, DecodeError> {
        let came = buffer.as_ref().len();
        if came != SIZE {
            return Err(DecodeError::WrongSize {
                message: "io_message",
                expected: SIZE,
                came,
            });
        }
        Ok(Self { buffer })
    }

    /// A view over bytes whose type says that there are [`SIZE`] of them.
    #[inline]
    pub fn new_unchecked_len(buffer: T) -> Self
    where
        T: Borrow<[u8; SIZE]>,
    {
        Self { buffer }
    }

    /// The viewed bytes.
    #[inline]
    pub fn into_inner(self) -> T {
        self.buffer
    }

    #[inline]
    fn get<const N: usize>(&self, range: Range<usize>) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer.as_ref()[range]);
        bytes
    }

    /// What this message is.
    ///
    /// # Errors
    ///
    /// [`DecodeError::UnknownValue`].
    #[inline]
    pub fn message_type(&self) -> Result<IoMessageType, DecodeError> {
        u32::from_be_bytes(self.get(field::MESSAGE_TYPE)).try_into()
    }

    /// The requester's own number for the I/O.
    #[inline]
    pub fn user_data(&self) -> u64 {
        u64::from_be_bytes(self.get(field::USER_DATA))
    }

    /// `doca_error_t` of a result; meaningless in a request.
    #[inline]
    pub fn result(&self) -> u32 {
        u32::from_be_bytes(self.get(field::RESULT))
    }

    /// Bytes to transfer.
    #[inline]
    pub fn size(&self) -> u32 {
        u32::from_be_bytes(self.get(field::SIZE))
    }

    /// Offset in the requester's memory map.
    #[inline]
    pub fn requester_offset(&self) -> u64 {
        u64::from_be_bytes(self.get(field::REQUESTER_OFFSET))
    }

    /// Offset in the storage's memory map.
    #[inline]
    pub fn storage_offset(&self) -> u64 {
        u64::from_be_bytes(self.get(field::STORAGE_OFFSET))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> IoMessage<T> {
    #[inline]
    fn set(&mut self, range: Range<usize>, bytes: &[u8]) {
        self.buffer.as_mut()[range].copy_from_slice(bytes);
    }

    /// Sets what this message is.
    #[inline]
    pub fn set_message_type(&mut self, message_type: IoMessageType) {
        self.set(field::MESSAGE_TYPE, &(message_type as u32).to_be_bytes());
    }

    /// Sets the requester's own number for the I/O.
    #[inline]
    pub fn set_user_data(&mut self, user_data: u64) {
        self.set(field::USER_DATA, &user_data.to_be_bytes());
    }

    /// Sets the `doca_error_t` of a result.
    #[inline]
    pub fn set_result(&mut self, result: u32) {
        self.set(field::RESULT, &result.to_be_bytes());
    }

    /// Sets the bytes to transfer.
    #[inline]
    pub fn set_size(&mut self, size: u32) {
        self.set(field::SIZE, &size.to_be_bytes());
    }

    /// Sets the offset in the requester's memory map.
    #[inline]
    pub fn set_requester_offset(&mut self, requester_offset: u64) {
        self.set(field::REQUESTER_OFFSET, &requester_offset.to_be_bytes());
    }

    /// Sets the offset in the storage's memory map.
    #[inline]
    pub fn set_storage_offset(&mut self, storage_offset: u64) {
        self.set(field::STORAGE_OFFSET, &storage_offset.to_be_bytes());
    }
}

/// An I/O message as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// What this message is.
    pub message_type: IoMessageType,
    /// The requester's own number for the I/O.
    pub user_data: u64,
    /// `doca_error_t` of a result; meaningless in a request.
    pub result: u32,
    /// Bytes to transfer.
    pub size: u32,
    /// Offset in the requester's memory map.
    pub requester_offset: u64,
    /// Offset in the storage's memory map.
    pub storage_offset: u64,
}

impl Repr {
    /// Reads the values of a message.
    ///
    /// # Errors
    ///
    /// [`DecodeError::UnknownValue`].
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(message: &IoMessage<T>) -> Result<Self, DecodeError> {
        Ok(Self {
            message_type: message.message_type()?,
            user_data: message.user_data(),
            result: message.result(),
            size: message.size(),
            requester_offset: message.requester_offset(),
            storage_offset: message.storage_offset(),
        })
    }

    /// Writes the values, and zeros in the bytes that belong to no field.
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, message: &mut IoMessage<T>) {
        message.buffer.as_mut().fill(0);
        message.set_message_type(self.message_type);
        message.set_user_data(self.user_data);
        message.set_result(self.result);
        message.set_size(self.size);
        message.set_requester_offset(self.requester_offset);
        message.set_storage_offset(self.storage_offset);
    }

    /// The bytes of the message.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut message = IoMessage::new_unchecked_len([0; SIZE]);
        self.emit(&mut message);
        message.into_inner()
    }

    /// The answer to this request: a result with everything else as it came.
    #[inline]
    #[must_use]
    pub fn answer(self, result: u32) -> Self {
        Self {
            message_type: IoMessageType::Result,
            result,
            ..self
        }
    }
}
