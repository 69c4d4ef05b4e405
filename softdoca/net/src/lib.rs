//! Network parts of softdoca and of the storage roles, which are also used without softdoca where the roles are linked to NVIDIA's SDK.

#![forbid(unsafe_code)]

pub mod resolver;
#[cfg(feature = "tls")]
pub mod tls;

/// Returns `true` for the first bytes of a TLS record that is an alert or a handshake.
#[must_use]
pub fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, 0..=4, ..])
}
