//! I/O messages: 64 bytes for each read, each write, and each result.
//!
//! [`IoMessage`] is a view over the bytes for the data path, [`Repr`] the message as values. Bytes that belong to no
//! field are ignored when read, since C++ peers leave them uninitialised, and are zeros in what [`Repr::emit`] writes.
//!
//! Offsets and sizes are a peer's claims: they are read here, and checked against the memory by whoever uses them.

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

    /// The result of this request, with `result` as a `doca_error_t`; every other value is that of the request.
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
    /// Turns this request into its result where it lies, with `result` as a `doca_error_t`; every other byte stays.
    #[inline]
    pub fn answer(&mut self, result: u32) {
        self.set_message_type(IoMessageType::Result);
        self.set_result(result);
    }
}
