//! Parts of the protocol that all control state machines share: the release of the wire format that a session uses (chosen by a flag, or
//! detected from the first client request that differs), ids of requests, and the check of responses. [`Failure`] is the error of all
//! roles: a DOCA code, because the protocol carries one, and a text.

use std::fmt;

use clap::{Args, ValueEnum};
use doca::ErrorCode;
use role_formats::superblock::{FormError, NoRandomNumber};
use role_formats::superblocks::NotPersisted;
use wire::control::{ErrorResponse, Message, MessageType, Payload};
use wire::release::Release;

/// Flag common to all roles.
#[derive(Debug, Clone, Copy, Args)]
pub struct ProtocolFlags {
    /// Wire format of which DOCA release to use; 3.3 is the same as 3.2
    #[arg(long, value_enum, value_name = "RELEASE", default_value = "auto")]
    pub protocol: Protocol,
}

/// Wire format that a role uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// 3.0 if the client's requests are in the format of 3.0, else 3.2; an initiator, which sends first, uses 3.2.
    /// Requests of 3.1 are indistinguishable from those of 3.2
    #[default]
    Auto,
    /// DOCA 3.0
    #[value(name = "3.0")]
    V3_0,
    /// DOCA 3.1
    #[value(name = "3.1")]
    V3_1,
    /// DOCA 3.2 and 3.3
    #[value(name = "3.2")]
    V3_2,
}

impl Protocol {
    /// The release chosen explicitly, if any.
    #[must_use]
    pub const fn chosen(self) -> Option<Release> {
        match self {
            Self::Auto => None,
            Self::V3_0 => Some(Release::V3_0),
            Self::V3_1 => Some(Release::V3_1),
            Self::V3_2 => Some(Release::V3_2),
        }
    }

    /// Release of a client, from the presence of a batch size in its init_storage_request.
    ///
    /// # Errors
    ///
    /// Differs from the chosen release.
    pub fn of_client(self, has_batch_size: bool) -> Result<Release, Failure> {
        match (self.chosen(), has_batch_size) {
            (None, true) => Ok(Release::V3_0),
            (None, false) => Ok(Release::default()),
            (Some(release), _) if (release == Release::V3_0) == has_batch_size => Ok(release),
            (Some(release), true) => Err(Failure::invalid(format!(
                "init_storage_request: expected that of {release}, see --protocol, got that of 3.0, which has a batch size"
            ))),
            (Some(release), false) => Err(Failure::invalid(format!(
                "init_storage_request: expected that of {release}, see --protocol, got one without a batch size, of 3.1 or later"
            ))),
        }
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

/// Checks that `response` answers the request with this id and has the expected type.
///
/// # Errors
///
/// The failure in an error response; another type; another id.
pub fn expect_response(
    response: Message,
    message_id: u32,
    expected: MessageType,
) -> Result<Payload, Failure> {
    if response.message_id != message_id {
        let came = response.payload.message_type();
        return Err(Failure::unexpected(format!(
            "expected a {expected} with message id {message_id}, got a {came} with message id {}",
            response.message_id
        )));
    }
    match response.payload {
        Payload::ErrorResponse(error) => Err(error.into()),
        payload if payload.message_type() == expected => Ok(payload),
        payload => Err(unexpected(&payload, expected)),
    }
}

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

    /// Not allowed by the protocol in this state: `UNEXPECTED`.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::UNEXPECTED, message)
    }

    /// Shutdown was requested while the program was `doing` something.
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

impl From<FormError> for Failure {
    fn from(error: FormError) -> Self {
        Self::invalid(format!("superblock: {error}"))
    }
}

impl From<NoRandomNumber> for Failure {
    fn from(error: NoRandomNumber) -> Self {
        Self::new(ErrorCode::OPERATING_SYSTEM, error.to_string())
    }
}

impl From<NotPersisted> for Failure {
    fn from(error: NotPersisted) -> Self {
        match error {
            NotPersisted::Form(error) => error.into(),
            NotPersisted::Refused(error) => error.into(),
            NotPersisted::Other => Self::unexpected(error.to_string()),
        }
    }
}

impl From<wire::DecodeError> for Failure {
    fn from(error: wire::DecodeError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The first of several failures where none can be returned, for example inside a completion handler.
#[derive(Debug, Default)]
pub struct FirstFailure(Option<Failure>);

impl FirstFailure {
    /// Stores a failure, unless there is one.
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
    use wire::control::MessageIds;

    use super::*;

    #[test]
    fn release_is_detected_from_the_request_unless_chosen() {
        for (protocol, batched, plain) in [
            (Protocol::Auto, Some(Release::V3_0), Some(Release::V3_2)),
            (Protocol::V3_0, Some(Release::V3_0), None),
            (Protocol::V3_1, None, Some(Release::V3_1)),
            (Protocol::V3_2, None, Some(Release::V3_2)),
        ] {
            for (has_batch_size, expected) in [(true, batched), (false, plain)] {
                match (protocol.of_client(has_batch_size), expected) {
                    (Ok(release), Some(expected)) => assert_eq!(release, expected),
                    (Err(failure), None) => assert_eq!(failure.code, ErrorCode::INVALID_VALUE),
                    (other, _) => panic!("{protocol:?}, {has_batch_size}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn message_ids_differ_and_correlation_id_is_kept() {
        let mut ids = MessageIds::default();
        let first = ids.request(9, Payload::QueryStorageRequest);
        let second = ids.request(9, Payload::QueryStorageRequest);
        assert_ne!(first.message_id, second.message_id);
        assert_eq!((first.correlation_id, second.correlation_id), (9, 9));
    }

    #[test]
    fn response_must_match_the_request() {
        let request = MessageIds::default().request(1, Payload::StopStorageRequest);
        let expected = MessageType::StopStorageResponse;
        let check = |response| expect_response(response, request.message_id, expected);
        assert_eq!(
            check(request.response(Payload::StopStorageResponse)),
            Ok(Payload::StopStorageResponse)
        );

        let other_type = check(request.response(Payload::ShutdownResponse)).expect_err("type");
        assert!(
            other_type.message.contains("shutdown_response"),
            "{other_type}"
        );
        assert!(
            other_type.message.contains("stop_storage_response"),
            "{other_type}"
        );

        let mut stale = request.response(Payload::StopStorageResponse);
        stale.message_id += 1;
        assert!(check(stale).is_err());

        let error = ErrorResponse {
            error_code: ErrorCode::BAD_STATE.0,
            message: "not now".to_owned(),
        };
        let failure = check(request.response(Payload::ErrorResponse(error))).expect_err("error");
        assert_eq!(
            (failure.code, failure.message.as_str()),
            (ErrorCode::BAD_STATE, "not now")
        );
    }

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
