//! The error of all roles: a DOCA code, because the protocol carries one, and a text.

use std::fmt;

use doca::ErrorCode;
use softdoca_net::tls::TlsError;
use wire::control::{ErrorResponse, Message, MessageType, Payload};

/// Maximum length of an error text sent to a peer, in bytes: half the payload of the shortest control message, a Comch
/// message.
const MAX_ANSWER: usize = 2000;

/// An error: a text for people and a `doca_error_t` for the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({})", .code.name())]
pub struct Failure {
    /// The nearest DOCA error.
    pub code: ErrorCode,
    /// The expectation, the finding, and the remedy.
    pub message: String,
}

impl Failure {
    #[cold]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Invalid input: `INVALID_VALUE`.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_VALUE, message)
    }

    /// Not permitted by the protocol in this state: `UNEXPECTED`.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::UNEXPECTED, message)
    }

    /// Shutdown was requested during the operation `doing`.
    pub fn aborted(doing: impl fmt::Display) -> Self {
        Self::new(
            ErrorCode::CONNECTION_ABORTED,
            format!("aborted by a signal while {doing}"),
        )
    }

    /// Deadline exceeded: `TIME_OUT`.
    pub fn timed_out(waiting_for: impl fmt::Display, after: std::time::Duration) -> Self {
        Self::new(
            ErrorCode::TIME_OUT,
            format!("timed out after {after:?} while waiting for {waiting_for}"),
        )
    }

    /// Prefixes the text with the operation that failed.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// Builds an error response that answers no request, for a peer whose connection is closed because of this failure.
    #[must_use]
    pub fn unsolicited(&self) -> Message {
        Message {
            message_id: 0,
            correlation_id: 0,
            payload: Payload::ErrorResponse(ErrorResponse {
                error_code: self.code.0,
                message: self.message.clone(),
            }),
        }
    }

    /// Builds the error response to `request`.
    #[must_use]
    pub fn response_to(&self, request: &Message) -> Message {
        request.response(Payload::ErrorResponse(ErrorResponse {
            error_code: self.code.0,
            message: shortened(&self.message).to_owned(),
        }))
    }
}

/// Truncates a text to the length that fits in a control message of any transport.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ANSWER)]
}

/// Escapes a peer's text for log and terminal: one line of at most 2000 bytes, with line breaks, terminal escape
/// sequences and other non-printable characters escaped.
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
        // The code of a peer that reports success as an error is not trusted.
        let code = match ErrorCode(response.error_code) {
            ErrorCode::SUCCESS => ErrorCode::UNEXPECTED,
            code => code,
        };
        Self::new(code, text_of_peer(&response.message))
    }
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<wire::DecodeError> for Failure {
    fn from(error: wire::DecodeError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Failure that answers a request received while another message was expected.
#[must_use]
pub fn unexpected(came: &Payload, expected: MessageType) -> Failure {
    Failure::unexpected(format!(
        "unexpected {} while expecting a {expected}",
        came.message_type()
    ))
}

/// The first of several failures where none can be returned, for example inside a completion handler.
#[derive(Debug, Default)]
pub struct FirstFailure(Option<Failure>);

impl FirstFailure {
    /// Stores a failure, unless one is already stored.
    #[cold]
    pub fn keep(&mut self, failure: Failure) {
        self.0.get_or_insert(failure);
    }

    /// Takes the stored failure.
    ///
    /// # Errors
    ///
    /// The failure stored since the last call, if any.
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
    fn text_of_peer_is_one_line_without_control_characters() {
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
    fn first_failure_is_returned_once() {
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
