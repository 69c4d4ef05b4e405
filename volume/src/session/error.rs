//! Errors of a session.

use std::time::Duration;

use doca::ErrorCode;
use role_common::Failure;
use thiserror::Error;
use wire::control::MessageType;

/// Error of a session.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// The service answered a request with an error response.
    #[error("the service refused {request} (message id {id}): {}: {text}", ErrorCode(*.code).name())]
    Refused {
        /// The request.
        request: MessageType,
        /// Message id of the request.
        id: u32,
        /// `doca_error_t` in the response.
        code: u32,
        /// Text in the response.
        text: String,
    },
    /// The service sent an error response without a request.
    #[error("the service reported an error: {}: {text}", ErrorCode(*.code).name())]
    Unsolicited {
        /// `doca_error_t` in the response.
        code: u32,
        /// Text in the response.
        text: String,
    },
    /// The service sent a message that is not allowed in this state.
    #[error("the service sent {came} with message id {id}; expected {expected}")]
    Unexpected {
        /// Type of the message.
        came: MessageType,
        /// Message id of the message.
        id: u32,
        /// Expected messages.
        expected: String,
    },
    /// A step exceeded its timeout.
    #[error("no end of waiting for {waiting_for} after {} s", .after.as_secs_f64())]
    Timeout {
        /// Description of the awaited event.
        waiting_for: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The control channel was closed.
    #[error("the service closed the connection while the initiator waited for {waiting_for}")]
    Disconnected {
        /// Description of the awaited event.
        waiting_for: &'static str,
    },
    /// The service has more consumers than there are workers.
    #[error(
        "the service has more consumers than the {expected} that were asked for, one for each worker"
    )]
    TooManyConsumers {
        /// Number of workers.
        expected: u32,
    },
    /// A consumer of the service expired while it was needed.
    #[error("the service's consumer {id} expired before the storage was stopped")]
    ConsumerLost {
        /// Id of the consumer.
        id: u32,
    },
    /// A local operation failed, or the control channel received an invalid message.
    #[error("{}", .0.message)]
    Local(Failure),
    /// The user interrupted the program.
    #[error("interrupted by the user")]
    Interrupted,
}

impl SessionError {
    /// Returns `true` if a retry may succeed: the service is still closing the session of an earlier client, or has just lost a
    /// target.
    pub(crate) fn is_temporary(&self) -> bool {
        const CODES: [ErrorCode; 3] = [
            ErrorCode::CONNECTION_RESET,
            ErrorCode::CONNECTION_ABORTED,
            ErrorCode::NOT_CONNECTED,
        ];
        match self {
            Self::Disconnected { .. } => true,
            Self::Refused { code, .. } => CODES.contains(&ErrorCode(*code)),
            _ => false,
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::Local(failure) => return failure.clone(),
            SessionError::Refused { code, .. } | SessionError::Unsolicited { code, .. } => {
                ErrorCode(*code)
            }
            SessionError::Unexpected { .. } | SessionError::TooManyConsumers { .. } => {
                ErrorCode::UNEXPECTED
            }
            SessionError::Timeout { .. } => ErrorCode::TIME_OUT,
            SessionError::Disconnected { .. }
            | SessionError::ConsumerLost { .. }
            | SessionError::Interrupted => ErrorCode::CONNECTION_ABORTED,
        };
        Self::new(code, error.to_string())
    }
}
