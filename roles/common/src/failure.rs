//! The error of all roles: a DOCA code, because the protocol carries one, and a text.

use std::fmt;

use doca::ErrorCode;
use wire::control::{ErrorResponse, Message, Payload};

/// Bytes of text that a peer is told at most: half of what the shortest control message has room for, which is one of Comch.
const MAX_ANSWER: usize = 2000;

/// Why something failed: the text for people and the `doca_error_t` for the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({})", .code.name())]
pub struct Failure {
    /// The nearest DOCA error.
    pub code: ErrorCode,
    /// What was expected, what came, what to do.
    pub message: String,
}

impl Failure {
    /// A failure with a code and a text.
    #[cold]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Bad input: `INVALID_VALUE`.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_VALUE, message)
    }

    /// Something that the protocol does not allow now: `UNEXPECTED`.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::UNEXPECTED, message)
    }

    /// The user ended the program while it was `doing` something.
    pub fn aborted(doing: impl fmt::Display) -> Self {
        Self::new(
            ErrorCode::CONNECTION_ABORTED,
            format!("aborted by a signal while {doing}"),
        )
    }

    /// Nothing came in time: `TIME_OUT`.
    pub fn timed_out(waiting_for: impl fmt::Display, after: std::time::Duration) -> Self {
        Self::new(
            ErrorCode::TIME_OUT,
            format!("timed out after {after:?} while waiting for {waiting_for}"),
        )
    }

    /// The same failure, with what was being done before its text.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// The failure as an answer to `request`.
    #[must_use]
    pub fn response_to(&self, request: &Message) -> Message {
        request.response(Payload::ErrorResponse(ErrorResponse {
            error_code: self.code.0,
            message: shortened(&self.message).to_owned(),
        }))
    }
}

/// The beginning of a text that is too long for a control message, over Comch too.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ANSWER)]
}

/// A peer's text, for the log and the terminal: one line of at most 2000 bytes. Line breaks, the escape sequences of terminals, and other
/// characters that are not printed as they are, are escaped.
#[must_use]
pub fn text_of_peer(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(MAX_ANSWER));
    for character in text.chars() {
        if matches!(character, '"' | '\'' | '\\') {
            line.push(character);
        } else {
            line.extend(character.escape_debug());
        }
        if line.len() > MAX_ANSWER {
            line.truncate(line.floor_char_boundary(MAX_ANSWER));
            line.push('…');
            break;
        }
    }
    line
}

impl From<doca::Error> for Failure {
    fn from(error: doca::Error) -> Self {
        let message = match &error.detail {
            Some(detail) => format!("{}: {detail}", error.operation),
            None => format!("{}: {}", error.operation, error.code.description()),
        };
        Self::new(error.code, message)
    }
}

impl From<ErrorResponse> for Failure {
    fn from(response: ErrorResponse) -> Self {
        // A peer that reports success as an error is not trusted with the code.
        let code = match ErrorCode(response.error_code) {
            ErrorCode::SUCCESS => ErrorCode::UNEXPECTED,
            code => code,
        };
        Self::new(code, text_of_peer(&response.message))
    }
}

impl From<wire::DecodeError> for Failure {
    fn from(error: wire::DecodeError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The first failure of several things that are done where there is nobody to be told, such as inside of DOCA's progress.
#[derive(Debug, Default)]
pub struct FirstFailure(Option<Failure>);

impl FirstFailure {
    /// Keeps a failure, unless there is one.
    #[cold]
    pub fn keep(&mut self, failure: Failure) {
        self.0.get_or_insert(failure);
    }

    /// Takes what was kept.
    ///
    /// # Errors
    ///
    /// The failure that was kept, if one was since this was asked for the last time.
    #[inline(always)]
    pub fn outcome(&mut self) -> Result<(), Failure> {
        match self.0 {
            None => Ok(()),
            Some(_) => self.0.take().map_or(Ok(()), Err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_peer_is_one_line_that_does_nothing_to_a_terminal() {
        let plain = "Comch server \"ä\" isn't there: C:\\x";
        assert_eq!(text_of_peer(plain), plain);
        assert_eq!(text_of_peer("a\r\n\u{1b}[2Jb"), "a\\r\\n\\u{1b}[2Jb");
        let long = text_of_peer(&"\n".repeat(100_000));
        assert!(
            long.len() <= MAX_ANSWER + '…'.len_utf8() && long.ends_with('…'),
            "{} bytes",
            long.len()
        );
        let failure = Failure::from(ErrorResponse {
            error_code: 17,
            message: "no\nreason".to_owned(),
        });
        assert_eq!(failure, Failure::new(ErrorCode::IO_FAILED, "no\\nreason"));
    }

    #[test]
    fn the_first_failure_is_told_once() {
        let mut failure = FirstFailure::default();
        assert_eq!(failure.outcome(), Ok(()));
        failure.keep(Failure::invalid("first"));
        failure.keep(Failure::invalid("second"));
        assert_eq!(failure.outcome(), Err(Failure::invalid("first")));
        assert_eq!(failure.outcome(), Ok(()));
        failure.keep(Failure::invalid("third"));
        assert_eq!(failure.outcome(), Err(Failure::invalid("third")));
    }
}
