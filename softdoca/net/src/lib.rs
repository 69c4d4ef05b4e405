//! Network parts of softdoca and of the storage roles, which are also used without softdoca if the roles are linked to
//! NVIDIA's SDK.

#![forbid(unsafe_code)]

#[cfg(feature = "tls")]
pub mod tls;

use std::io;

/// Texts of the C libraries (glibc, musl) for `EAI_AGAIN`. The standard library passes on the text of a resolver's error and not its code.
const TEMPORARY: [&str; 2] = ["Temporary failure in name resolution", "Try again"];

/// Returns `true` for a resolver's error that another attempt may not have: no name server was reached, or the process is out of descriptors.
#[must_use]
pub fn is_temporary(error: &io::Error) -> bool {
    let text = error.to_string();
    error.raw_os_error().is_some() || TEMPORARY.iter().any(|temporary| text.ends_with(temporary))
}

/// Returns `true` for the first bytes of a TLS record that is an alert or a handshake.
#[must_use]
pub fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, 0..=4, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_may_pass_are_temporary() {
        let lookup = |detail: &str| {
            io::Error::other(format!("failed to lookup address information: {detail}"))
        };
        assert!(is_temporary(&lookup(
            "Temporary failure in name resolution"
        )));
        assert!(is_temporary(&lookup("Try again")));
        assert!(is_temporary(&io::Error::from_raw_os_error(24)));
        assert!(!is_temporary(&lookup("Name or service not known")));
        assert!(!is_temporary(&io::Error::other("the host has no address")));
    }
}
