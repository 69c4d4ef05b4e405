//! I/O messages: 64 bytes for each read, write, and result.
//!
//! [`IoMessage`] is a view over the bytes for the data path, [`Repr`] the message as values. Reserved bytes are ignored
//! when read, since C++ peers leave them uninitialised, and written as zeros by [`Repr::emit`].
//!
//! Offsets and sizes are not checked here: the peer controls them, and their user must check them against the memory.

include!(concat!(env!("OUT_DIR"), "/io_message.rs"));

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
    /// Turns this request into its result in place, with `result` as a `doca_error_t`; all other bytes stay.
    #[inline]
    pub fn answer(&mut self, result: u32) {
        self.set_message_type(IoMessageType::Result);
        self.set_result(result);
    }
}
