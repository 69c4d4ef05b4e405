//! I/O messages: 64 bytes for each read, write, and result.
//!
//! [`IoMessage`] is a view over the bytes for the data path, [`Repr`] the message as values. Reserved bytes are ignored
//! when read, because C++ peers leave them uninitialised, and written as zeros by [`Repr::emit`].
//!
//! A [`Version`] is in bytes that are reserved in other messages: [`Version::write`] follows `emit`.
//!
//! Offsets and sizes are not checked here: they are controlled by the peer, and callers must check them against the
//! memory.

include!(concat!(env!("OUT_DIR"), "/io_message.rs"));

/// Offset of the [`Version`] in write_version, write_version_fua and read_before messages, and in flush messages if
/// versions were announced. The version ends with the message.
pub const VERSION_OFFSET: usize = 40;

const _: () = assert!(VERSION_OFFSET + Version::SIZE == SIZE);

impl Version {
    /// Reads the version of a message of any type; zeros if the sender has written none.
    #[inline]
    #[must_use]
    pub fn of(message: &[u8; SIZE]) -> Self {
        let version = Self::parse(&message[VERSION_OFFSET..]);
        version.expect("24 bytes, and fields that may have any value")
    }

    /// Writes the version into a message.
    #[inline]
    pub fn write(&self, message: &mut [u8; SIZE]) {
        message[VERSION_OFFSET..].copy_from_slice(&self.emit());
    }
}

impl Repr {
    /// The bytes of the message.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut message = IoMessage::new_unchecked_len([0; SIZE]);
        self.emit(&mut message);
        message.into_inner()
    }

    /// The result of this request, with `result` as a `doca_error_t`; all other values are those of the request.
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

impl<T: AsRef<[u8]> + AsMut<[u8]>> IoMessage<T> {
    /// Converts this request into its result in place, with `result` as a `doca_error_t`; all other bytes are
    /// unchanged.
    #[inline]
    pub fn answer(&mut self, result: u32) {
        self.set_message_type(IoMessageType::Result);
        self.set_result(result);
    }
}
