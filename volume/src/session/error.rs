//! Why a session failed.

use std::time::Duration;

use doca::ErrorCode;
use role_common::Failure;
use thiserror::Error;
use wire::control::MessageType;

/// Why a session failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// The service answered a request with an error response.
    #[error("the service refused {request} (message id {id}): {}: {text}", ErrorCode(*.code).name())]
    Refused {
        /// The request.
        request: MessageType,
        /// Its message id.
        id: u32,
        /// `doca_error_t` in the response.
        code: u32,
        /// Text in the response.
        text: String,
    },
    /// The service reported an error that answers no request.
    #[error("the service reported an error: {}: {text}", ErrorCode(*.code).name())]
    Unsolicited {
        /// `doca_error_t` in the response.
        code: u32,
        /// Text in the response.
        text: String,
    },
    /// The service sent something else than what the protocol allows now.
    #[error("the service sent {came} with message id {id}; expected {expected}")]
    Unexpected {
        /// What came.
        came: MessageType,
        /// Its message id.
        id: u32,
        /// What may come.
        expected: String,
    },
    /// A step took too long.
    #[error("no end of waiting for {waiting_for} after {} s", .after.as_secs_f64())]
    Timeout {
        /// What was waited for.
        waiting_for: &'static str,
        /// For how long.
        after: Duration,
    },
    /// The control channel closed.
    #[error("the service closed the connection while the initiator waited for {waiting_for}")]
    Disconnected {
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// The service offers more consumers than there are workers.
    #[error(
        "the service has more consumers than the {expected} that were asked for, one for each worker"
    )]
    TooManyConsumers {
        /// Number of workers.
        expected: u32,
    },
    /// A consumer of the service vanished while it was needed.
    #[error("the service's consumer {id} expired before the storage was stopped")]
    ConsumerLost {
        /// Its id.
        id: u32,
    },
    /// Something on this side failed, or what arrived on the control channel is no message.
    #[error("{}", .0.message)]
    Local(Failure),
    /// The user interrupted the program.
    #[error("interrupted by the user")]
    Interrupted,
}

impl SessionError {
    /// Returns `true` if the service is there and not ready, because it is still closing the session of an earlier client, or has just lost a
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
