//! Shared parts of the control state machines.

use wire::control::{Message, MessageType, Payload};

use crate::failure::Failure;

/// Allocates message ids for the requests of one program.
#[derive(Debug, Default)]
pub struct MessageIds {
    next: u32,
}

impl MessageIds {
    /// Ids of superblock requests, disjoint from those that begin with 0 for 2^31 requests.
    #[must_use]
    pub fn for_superblocks() -> Self {
        Self { next: 1 << 31 }
    }

    /// Creates a request with a new id. Ids are not reused within 2^32 requests.
    pub fn request(&mut self, correlation_id: u32, payload: Payload) -> Message {
        let message_id = self.next;
        self.next = self.next.wrapping_add(1);
        Message {
            message_id,
            correlation_id,
            payload,
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

#[cfg(test)]
mod tests {
    use doca::ErrorCode;
    use wire::control::ErrorResponse;

    use super::*;

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
