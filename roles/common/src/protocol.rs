//! Parts of the protocol that all control state machines share: the release of the wire format that a session uses
//! (chosen by a flag, or detected from the first client request that differs), and the validation of responses.

use clap::{Args, ValueEnum};
use control::{Failure, unexpected};
use wire::control::{Message, MessageType, Payload};
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
    /// The release differs from the chosen one.
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

/// Message id of a message that answers no request.
const UNSOLICITED: u32 = 0;

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
    // An error without a request says why the peer ends the session.
    if let Payload::ErrorResponse(error) = &response.payload
        && response.message_id == UNSOLICITED
    {
        return Err(error.clone().into());
    }
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

#[cfg(test)]
mod tests {
    use doca::ErrorCode;
    use wire::control::{ErrorResponse, MessageIds};

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
}
