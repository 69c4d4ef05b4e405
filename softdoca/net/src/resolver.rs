//! Errors of the resolver.

use std::io;

/// Texts of the C libraries (glibc, musl) for `EAI_AGAIN`. The standard library passes on the text of a resolver's error and not its code.
const TEMPORARY: [&str; 2] = ["Temporary failure in name resolution", "Try again"];

/// Returns `true` for a resolver's error that another attempt may not have: no name server was reached, or the process is out of descriptors.
#[must_use]
pub fn is_temporary(error: &io::Error) -> bool {
    let text = error.to_string();
    error.raw_os_error().is_some() || TEMPORARY.iter().any(|temporary| text.ends_with(temporary))
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
