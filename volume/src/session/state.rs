//! State of a session.

/// Event that the session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Querying,
    Opening,
    Initialising,
    Gathering,
    Preparing,
    Starting,
    Running,
    Halting,
    Stopping,
    /// `shutdown`: continue with the shutdown request; otherwise the session ends.
    Destroying {
        shutdown: bool,
    },
    ShuttingDown,
    Expiring,
    Finished,
}

impl State {
    /// Description of the awaited event, for timeouts and disconnections.
    pub(super) const fn waits_for(self) -> &'static str {
        match self {
            Self::Connecting => "the connection to the service",
            Self::Querying => "query_storage_response",
            Self::Opening => "local memory",
            Self::Initialising => "init_storage_response",
            Self::Gathering => "the service's consumers and the local contexts",
            Self::Preparing => "the workers to prepare their tasks",
            Self::Starting => "start_storage_response",
            Self::Running => "the operations to complete",
            Self::Halting => "the operations in flight",
            Self::Stopping => "stop_storage_response",
            Self::Destroying { .. } => "the local contexts to stop",
            Self::ShuttingDown => "shutdown_response",
            Self::Expiring => "the service's consumers to expire",
            Self::Finished => "nothing",
        }
    }
}
