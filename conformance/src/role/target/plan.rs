//! The steps of a session, and its size.

/// What a session is going to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Query,
    Init,
    Connect,
    Start,
    Stop,
    Shutdown,
    End,
}

impl Step {
    /// All that send something.
    pub(super) const ALL: [Self; 6] = [
        Self::Query,
        Self::Init,
        Self::Connect,
        Self::Start,
        Self::Stop,
        Self::Shutdown,
    ];

    /// What comes after it.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Query => Self::Init,
            Self::Init => Self::Connect,
            Self::Connect => Self::Start,
            Self::Start => Self::Stop,
            Self::Stop => Self::Shutdown,
            Self::Shutdown | Self::End => Self::End,
        }
    }
}

/// How large a session is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Workers that the target is asked for.
    pub(super) cores: u32,
    /// Transactions that the target is asked for.
    pub(super) transactions: u32,
    /// Requests that the service may have under way for each worker.
    pub(super) depth: usize,
    /// Bytes of the memory that the target reads and writes.
    pub(super) memory: usize,
}

impl Plan {
    /// One worker, four transactions, 8 KiB.
    pub(super) const SMALL: Self = Self {
        cores: 1,
        transactions: 4,
        depth: 4,
        memory: 8192,
    };
}
